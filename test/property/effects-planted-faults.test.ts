/** Tests the test of the whole system: plants each fault into the compiled product, one at a time,
 *  and expects the auditor to see it. Without a fault it must see nothing. The table in
 *  docs/explanation/testing.md names the tests that catch other faults. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { projectRoot } from '../repository/root.ts';

const run = promisify(execFile);
const SEEDS_MAX = 60;
const HUNT_MS_MAX = 600_000;

interface Fault {
  readonly what: string;
  readonly module: string;
  readonly edits: ReadonlyArray<readonly [from: string, to: string]>;
  /** Pattern of the violation. */
  readonly seen: RegExp;
  /** `relay`: relays alone, with several events a key; absent: the whole system. */
  readonly world?: 'relay';
  /** Fields of the plan in which the fault shows. */
  readonly plan?: Readonly<Record<string, unknown>>;
}

const CHARGED_TWICE = /is charged twice/;
const EARLY_OFFSET = /was committed before the charge of/;
const OVERTAKEN = /overtook an earlier row/;
const NOT_CHARGED = /is not charged once|did not come about/;

const FAULTS: readonly Fault[] = [
  {
    what: 'rows are marked before they are sent',
    module: 'outbox/relay/pipeline/publisher.js',
    edits: [
      [
        'sent = await sender.send(flight.batch);',
        'for (const entry of flight.entries) this.options.marker.add({ ...entry }); sent = await sender.send(flight.batch);',
      ],
    ],
    seen: /was marked before its record was in the log/,
  },
  {
    what: 'a mark covers all lower ids',
    module: 'outbox/relay/pipeline/marker.js',
    edits: [
      [
        'WHERE id = ANY($1::bigint[]) AND published_at IS NULL AND',
        'WHERE id <= ALL (SELECT max(i) FROM unnest($1::bigint[]) AS i) AND published_at IS NULL AND',
      ],
    ],
    seen: /was marked before its record was in the log/,
  },
  {
    what: 'a poll never returns to ids that were not visible yet',
    module: 'outbox/relay/poll/source.js',
    edits: [
      ['const { decided } = horizon;', 'const decided = cursor;'],
      ['const stragglers = horizon.stragglers();', 'const stragglers = [];'],
      [
        'generation !== this.seenGeneration || nowMs - this.rescannedMs >= rescanMs',
        'this.seenGeneration === -1',
      ],
    ],
    plan: { mode: 'poll' },
    seen: NOT_CHARGED,
  },
  {
    what: 'offsets are finished before the effects are committed',
    module: 'outbox/payments/consumer.js',
    edits: [
      [
        'if (!(await this.write(options.injector.inject(deliveries))))',
        'for (const one of deliveries) member.finished({ topic: options.topic, partition: one.partition }, one.offset + 1n); if (!(await this.write(options.injector.inject(deliveries))))',
      ],
    ],
    seen: EARLY_OFFSET,
  },
  {
    what: 'offsets are finished when records are read',
    module: 'outbox/payments/consumer.js',
    edits: [
      [
        'member.took({ topic: options.topic, partition }, next)',
        '(member.took({ topic: options.topic, partition }, next), member.finished({ topic: options.topic, partition }, next))',
      ],
    ],
    seen: EARLY_OFFSET,
  },
  {
    what: 'the inbox commits before the charges',
    module: 'outbox/payments/consumer.js',
    edits: [
      [
        'inbox: options.inbox,',
        'inbox: { claim: (_, ids) => options.pool.transaction((own) => options.inbox.claim(own, ids)) },',
      ],
    ],
    seen: EARLY_OFFSET,
  },
  {
    what: 'messages are recognised by partition and offset',
    module: 'outbox/payments/store.js',
    edits: [
      ['orders.map((delivery) => delivery.event.msgId));', 'orders.map((delivery) => placeId(delivery)));'],
      [
        'const { msgId, orderId } = delivery.event;',
        'const { orderId } = delivery.event; const msgId = placeId(delivery);',
      ],
      [
        'export async function applyBatch',
        "const placeId = (at) => '00000000-0000-4000-8' + String(at.partition).padStart(3, '0') + '-' + String(at.offset).padStart(12, '0');\nexport async function applyBatch",
      ],
    ],
    seen: CHARGED_TWICE,
  },
  {
    what: 'a repeat within a batch counts as new',
    module: 'outbox/payments/store.js',
    edits: [
      ['const repeated = first.has(msgId);', 'const repeated = false;'],
      ['else if (candidates.has(orderId))', 'else if (false)'],
      ['candidates.set(orderId, {', 'candidates.set(orderId + candidates.size, {'],
    ],
    plan: { dupRate: 0.3 },
    seen: CHARGED_TWICE,
  },
  {
    what: 'a batch whose commit is unknown counts as committed',
    module: 'outbox/payments/writer.js',
    edits: [['if (!(await this.didCommit(written)))', 'if (false)']],
    plan: { lostStatement: 0.05 },
    seen: EARLY_OFFSET,
  },
  {
    what: 'an answer is replayed to another request',
    module: 'outbox/orders/service.js',
    edits: [
      ['if (known.requestHash !== hash)', 'if (false)'],
      ['if (waiter.hash === answer.requestHash)', 'if (true)'],
    ],
    seen: /was accepted with another request/,
  },
  {
    what: 'a write with an unknown outcome is answered with new ids',
    module: 'outbox/orders/write/writer.js',
    edits: [
      [
        'return await this.answerStored(open);',
        'for (const job of open) job.settle({ requestHash: job.requestHash, orderId: job.orderId, responseCode: RESPONSE_CODE, responseBody: responseOf(job.orderId), expiresMs: 1e15 }, true); return [];',
      ],
    ],
    plan: { lostStatement: 0.05 },
    seen: /names no committed order|got two answers/,
  },
  {
    what: 'a relay sends rows under a lease that expired',
    module: 'outbox/relay/leases.js',
    edits: [
      ['return !this.expired() && this.mine', 'return this.mine'],
      ['if (this.expired() || this.leaving', 'if (this.leaving'],
    ],
    world: 'relay',
    seen: /has 2 owners|was repeated amid its key/,
  },
  {
    // `enable.gapless.guarantee` masks the time limit alone: the producer ends with its first
    // expired row.
    what: 'a row that expires in the client after 5 s is overtaken by later rows',
    module: 'outbox/relay/pipeline/sender.js',
    edits: [
      ["'message.timeout.ms': 0,", "'message.timeout.ms': 5000,"],
      ["'enable.gapless.guarantee': true,", "'enable.gapless.guarantee': false,"],
    ],
    world: 'relay',
    seen: OVERTAKEN,
  },
];

async function hunted(fault: Fault | null): Promise<string> {
  const args = [
    join(projectRoot, 'test/property/faults/effects-hunt.mjs'),
    projectRoot,
    String(fault === null ? SEEDS_MAX / 2 : SEEDS_MAX),
    JSON.stringify(fault),
  ];
  return (await run(process.execPath, args, { timeout: HUNT_MS_MAX })).stdout;
}

describe('faults planted into the whole system', () => {
  it('the auditor sees nothing in the unchanged product', async () => {
    expect(await hunted(null)).toBe('');
  });

  it.each(FAULTS)('the auditor sees that $what', async (fault) => {
    expect(await hunted(fault)).toMatch(fault.seen);
  });
});
