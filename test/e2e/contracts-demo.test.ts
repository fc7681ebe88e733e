/** The contracts part of the demo at a small scale: every fact holds in an unmodified run, and each
 *  fact fails when the test corrupts its data. */
import { readFile, writeFile } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { judgeLive } from '../../src/demo/contracts/live-judge.ts';
import {
  ask,
  type ContractsRun,
  type FleetRun,
  type FlowRun,
  subjectOf,
} from '../../src/demo/contracts/model.ts';
import { contractsSlice } from '../../src/demo/contracts/slice.ts';
import { append, TopicReader } from '../../src/demo/contracts/topic.ts';
import type { Fact } from '../../src/demo/fact.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { sliceContext } from '../fixtures/demo.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { createTopic, deleteTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const context = sliceContext(own, stack, { seed: 5, scale: 0.02 });

/** Pattern that identifies each claim, in the order of the table. */
const CLAIM = {
  accepted: /are registered in Avro/,
  refused: /breaking v3 is refused/,
  equal: /equals the generator/,
  complete: /Nothing is lost/,
  quarantine: /in quarantine, untouched/,
  counter: /deserialize_errors_total/,
  wrongOrder: /with the producers first breaks a live consumer/,
  rightOrder: /in the order of the plan breaks nothing/,
  rescue: /every record that the wrong order broke/,
  redrive: /though the redrive was killed/,
  counts: /count what the topics hold/,
} as const;

let run: ContractsRun;

beforeAll(async () => {
  run = await contractsSlice.run(context);
});

async function judge(judged: ContractsRun = run): Promise<readonly Fact[]> {
  return contractsSlice.judge(context, judged);
}

/** Returns the names of the claims whose fact does not hold. */
async function failedClaims(judged: ContractsRun = run): Promise<string[]> {
  return namesOf(await judge(judged));
}

const namesOf = (facts: readonly Fact[]): string[] =>
  Object.entries(CLAIM).flatMap(([name, words]) =>
    facts.some((fact) => words.test(fact.claim) && !fact.holds) ? [name] : [],
  );

/** Judges only the upgrades and redrives, which is faster. */
async function failedLive(judged: ContractsRun = run): Promise<string[]> {
  const reader = await TopicReader.open(stack.brokers);
  const facts = await judgeLive(reader, judged).finally(() => reader.close());
  return namesOf(facts);
}

const flow = (index: number): FlowRun => run.flows[index] as FlowRun;

/** Changes the decoded file of a flow for the duration of one judgement. */
const withLines = (index: number, change: (lines: string[]) => string[]): Promise<string[]> =>
  withFile(flow(index).decodedPath, change);

async function withFile(
  decodedPath: string,
  change: (lines: string[]) => string[],
  judged = failedClaims,
): Promise<string[]> {
  const text = await readFile(decodedPath, 'utf8');
  await writeFile(decodedPath, `${change(text.trimEnd().split('\n')).join('\n')}\n`);
  try {
    return await judged();
  } finally {
    await writeFile(decodedPath, text);
  }
}

const withLive = (path: string, change: (lines: string[]) => string[]): Promise<string[]> =>
  withFile(path, change, failedLive);

/** Recreates a topic with one partition and the records that `keep` accepts, headers included. */
async function rewriteTopic(topic: string, keep: (index: number) => boolean): Promise<void> {
  const records: RecordInput[] = [];
  const reader = await TopicReader.open(stack.brokers);
  await reader.read([topic], (_topic, { key, value, headers }) => {
    const copy = (bytes: Uint8Array | null): Uint8Array | null =>
      bytes === null ? null : Buffer.from(bytes);
    records.push({
      partition: 0,
      key: copy(key),
      value: copy(value),
      headers: [...headers()].map(([name, text]) => [name, Buffer.from(text)]),
    });
  });
  await reader.close();
  await deleteTopic(stack, topic);
  await until('the topic to be back', async () => {
    await createTopic(stack.brokers, topic, 1);
    return true;
  });
  await append(
    stack.brokers,
    topic,
    records.filter((_, index) => keep(index)),
  );
}

describe('contracts slice', () => {
  it('the contracts demo confirms every fact of an unmodified run', async () => {
    const facts = await judge();
    expect(facts.filter((fact) => !fact.holds)).toEqual([]);
    expect(facts).toHaveLength(Object.keys(CLAIM).length);
    expect(facts.every((fact) => fact.slice === 'contracts' && /\d/.test(fact.seen))).toBe(true);
    expect(facts.some((fact) => fact.seen.includes('2400 orders compared'))).toBe(true);
  });

  it.each([0, 1, 2, 3])('the contracts demo detects an altered decoded order of flow %i', async (index) => {
    const found = await withLines(index, ([first = '', ...rest]) => [
      first.replace(
        /("amount_?[cC]ents":"?)(\d)/,
        (_all, head: string, digit: string) => `${head}${(Number(digit) % 9) + 1}`,
      ),
      ...rest,
    ]);
    expect(found).toContain('equal');
  });

  it('the contracts demo detects an altered digit of a number beyond 2^53', async () => {
    const found = await withLines(0, ([first = '', ...rest]) => [
      first.replace(
        /("account_id":\d+)(\d)/,
        (_all, head: string, last: string) => `${head}${(Number(last) + 1) % 10}`,
      ),
      ...rest,
    ]);
    expect(found).toContain('equal');
  });

  it('the contracts demo detects a wrong default of the newer reader', async () => {
    expect(
      await withLines(0, ([first = '', ...rest]) => [first.replace('"coupon":null', '"coupon":""'), ...rest]),
    ).toContain('equal');
  });

  it('the contracts demo detects an order that is missing from the decoded file', async () => {
    expect(await withLines(1, (lines) => lines.slice(1))).toEqual(['complete']);
  });

  it('the contracts demo detects an order decoded in the place of another', async () => {
    const found = await withLines(2, ([first = '', second = '', ...rest]) => {
      const value = second.slice(second.indexOf('"value"'));
      return [first.slice(0, first.indexOf('"value"')) + value, second, ...rest];
    });
    expect(found).toEqual(['complete']);
  });

  it('the contracts demo detects a counter that disagrees with the topic', async () => {
    const flows = run.flows.map((one, i) =>
      i === 0 ? { ...one, counted: { ...one.counted, bad_magic: 3 } } : one,
    );
    expect(await failedClaims({ ...run, flows })).toEqual(['counter']);
  });

  it('the contracts demo detects a missing refusal and a refusal that does not name the field', async () => {
    const [first, second] = run.refusals as [
      ContractsRun['refusals'][number],
      ContractsRun['refusals'][number],
    ];
    expect(await failedClaims({ ...run, refusals: [{ ...first, message: 'incompatible' }, second] })).toEqual(
      ['refused'],
    );
    expect(await failedClaims({ ...run, refusals: [first, { ...second, status: 200 }] })).toEqual([
      'refused',
    ]);
  });

  it('the contracts demo detects a registry that calls the breaking version compatible', async () => {
    const subject = subjectOf('avro');
    await ask(run.registry, 'PUT', `/config/${subject}`, { compatibility: 'NONE' });
    expect(await failedClaims()).toEqual(['refused']);
    await ask(run.registry, 'PUT', `/config/${subject}`, { compatibility: 'FULL' });
    expect(await failedClaims()).toEqual([]);
  });

  describe('live upgrades', () => {
    it.each<[string, Partial<FleetRun>]>([
      ['ended with success', { code: 0 }],
      ['did not return', { verdict: 'errors' }],
      ['counted one record less', { errors: -1 }],
    ])('the contracts demo detects a rollout in the wrong order that %s', async (_, change) => {
      const errors = run.wrongOrder.errors + (change.errors ?? 0);
      const wrongOrder = { ...run.wrongOrder, ...change, errors };
      expect(await failedLive({ ...run, wrongOrder })).toEqual(['wrongOrder']);
    });

    it.each<[string, Partial<FleetRun>]>([
      ['was refused', { code: 1 }],
      ['returned', { verdict: 'rolled-back' }],
      ['took another order than that of the plan', { order: 'producers-first' }],
    ])('the contracts demo detects a rollout in the right order that %s', async (_, change) => {
      const rightOrder = { ...run.rightOrder, ...change };
      expect(await failedLive({ ...run, rightOrder })).toEqual(['rightOrder']);
    });

    it('the contracts demo detects a record of a fleet that no consumer decoded', async () => {
      expect(await withLive(run.wrongOrder.decoded.from, (lines) => lines.slice(1))).toEqual(['wrongOrder']);
      expect(await withLive(run.rightOrder.decoded.to, (lines) => lines.slice(1))).toEqual(['rightOrder']);
    });

    it('the contracts demo detects an order that the new version of a consumer read wrongly', async () => {
      const changed = await withLive(run.rightOrder.decoded.to, ([first = '', ...rest]) => [
        first.replace('"customer":"', '"customer":"x'),
        ...rest,
      ]);
      expect(changed).toEqual(['rightOrder']);
    });

    it('the contracts demo detects fleets whose versions have other schema ids', async () => {
      const { ids } = run.rightOrder;
      const swapped = { from: ids.to, to: ids.from };
      const found = await failedLive({
        ...run,
        wrongOrder: { ...run.wrongOrder, ids: swapped },
        rightOrder: { ...run.rightOrder, ids: swapped },
      });
      expect(found).toEqual(['wrongOrder', 'rightOrder']);
    });
  });

  describe('redrives', () => {
    /** A copy of a record that a redrive wrote, to be appended again. */
    async function redriven(topic: string): Promise<RecordInput> {
      let copy: RecordInput | undefined;
      const reader = await TopicReader.open(stack.brokers);
      await reader.read([topic], (_topic, { partition, key, value, headers }) => {
        const named = headers();
        if (copy !== undefined || !named.has('millrace.record_id')) return;
        copy = {
          partition,
          key: Buffer.from(key ?? []),
          value: Buffer.from(value ?? []),
          headers: [...named].map(([name, text]) => [name, Buffer.from(text)]),
        };
      });
      await reader.close();
      return copy as RecordInput;
    }

    it('the contracts demo detects a redrive that was not killed, or not in the middle', async () => {
      const { redrive } = run;
      for (const killed of [
        { ...redrive.killed, signal: null },
        { ...redrive.killed, back: 0 },
        { ...redrive.killed, back: 1500 },
      ]) {
        const reported = { ...redrive.reported, repeated: 1500, redriven: 0 };
        expect(await failedLive({ ...run, redrive: { ...redrive, killed, reported } })).toEqual(['redrive']);
      }
    });

    it('the contracts demo detects a count of a redrive or of a list that is off by one', async () => {
      const { redrive, rescue } = run;
      const { reported, listed } = redrive;
      for (const change of [
        { reported: { ...reported, redriven: reported.redriven - 1 } },
        { reported: { ...reported, failed: reported.failed + 1 } },
        { listed: { ...listed, left: listed.left - 1 } },
        { listed: { ...listed, redriven: listed.redriven + 1 } },
      ])
        expect(await failedLive({ ...run, redrive: { ...redrive, ...change } })).toEqual(['counts']);
      const fewer = { ...rescue.reported, redriven: rescue.reported.redriven - 1 };
      expect(await failedLive({ ...run, rescue: { ...rescue, reported: fewer } })).toEqual(['rescue']);
    });

    it('the contracts demo detects a redriven record that was not decoded, or twice', async () => {
      const { rescue, redrive } = run;
      expect(await withLive(rescue.decodedPath, (lines) => lines.slice(1))).toEqual(['rescue']);
      expect(await withLive(redrive.decodedPath, ([first = '', ...rest]) => [first, first, ...rest])).toEqual(
        ['redrive'],
      );
    });

    it('the contracts demo detects a record of a writer that the redrive was not for', async () => {
      const { redrive } = run;
      const writerId = redrive.writerId + 1;
      expect(await failedLive({ ...run, redrive: { ...redrive, writerId } })).toEqual(['redrive']);
    });

    it('the contracts demo detects a record that came back twice or changed', async () => {
      const twice = await redriven(run.redrive.topic);
      await append(stack.brokers, run.redrive.topic, [twice]);
      expect(await failedLive()).toEqual(['redrive', 'counts']);
      const changed = await redriven(run.wrongOrder.topic);
      await append(stack.brokers, run.wrongOrder.topic, [
        { ...changed, value: Buffer.from([0, 0, 0, 0, 1, 2]) },
      ]);
      expect(await failedLive()).toEqual(['rescue', 'redrive', 'counts']);
    });

    it('the contracts demo detects a quarantined record of the fleet that was upgraded in the right order', async () => {
      const { topic, quarantine } = run.rightOrder;
      const place = { 'millrace.source_partition': '0', 'millrace.source_offset': '0' };
      const headers = {
        'millrace.reason': 'incompatible_schema',
        'millrace.source_topic': topic,
        ...place,
      };
      await append(stack.brokers, quarantine, [
        {
          partition: 0,
          key: Buffer.from('k'),
          value: Buffer.from('v'),
          headers: Object.entries(headers).map(([name, text]) => [name, Buffer.from(text)]),
        },
      ]);
      expect(await failedLive()).toContain('rightOrder');
    });
  });

  it('the contracts demo detects a quarantined record that the demo did not produce', async () => {
    const { quarantine, topic } = flow(3);
    const headers = (place: string): Array<[string, Uint8Array]> =>
      Object.entries({
        origin: 'demo',
        'millrace.reason': 'bad_magic',
        'millrace.source_topic': topic,
        'millrace.source_partition': '0',
        'millrace.source_offset': place,
      }).map(([name, value]) => [name, Buffer.from(value)]);
    await append(stack.brokers, quarantine, [
      { partition: 0, key: Buffer.from('k'), value: Buffer.from('good after all'), headers: headers('5') },
    ]);
    expect(await failedClaims()).toEqual(expect.arrayContaining(['complete', 'quarantine', 'counter']));
  });

  it('the contracts demo detects a quarantined record that was dropped', async () => {
    await rewriteTopic(flow(2).quarantine, (index) => index !== 3);
    const facts = await judge();
    const seen = facts.find((fact) => CLAIM.quarantine.test(fact.claim));
    expect(seen).toMatchObject({ holds: false, seen: expect.stringMatching(/is missing/) });
    expect(facts.find((fact) => CLAIM.complete.test(fact.claim))).toMatchObject({ holds: false });
  });

  it('the contracts demo detects a quarantined record whose bytes were changed', async () => {
    const [bad, ...rest] = flow(1).bad;
    const flows = run.flows.map((one, i) =>
      i === 1 && bad !== undefined
        ? { ...one, bad: [{ ...bad, valueHex: `${bad.valueHex.slice(0, -2)}aa` }, ...rest] }
        : one,
    );
    const facts = await judge({ ...run, flows });
    expect(facts.find((fact) => CLAIM.quarantine.test(fact.claim))?.seen).toMatch(/was changed/);
  });

  it('the contracts demo detects a record that was produced and never read', async () => {
    await append(stack.brokers, flow(0).topic, [
      { partition: 1, key: null, value: Buffer.from([0, 0, 0, 0, 1, 2]) },
    ]);
    const facts = await judge();
    expect(facts.find((fact) => CLAIM.complete.test(fact.claim))?.seen).toMatch(
      /neither decoded nor in quarantine/,
    );
  });

  it('the contracts demo detects an unexpected third version', async () => {
    await ask(run.registry, 'POST', `/subjects/${subjectOf('protobuf')}/versions`, {
      schema: orderSchema(3, 'protobuf'),
      schemaType: 'PROTOBUF',
    });
    expect(await failedClaims()).toContain('accepted');
  });
});
