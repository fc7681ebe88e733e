/** The effects slice of the demo at a small scale: every fact holds in an unmodified run, and each
 *  fact fails when the test corrupts its data. */
import { readFile, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { append, createTopics, TopicReader } from '../../src/demo/contracts/topic.ts';
import { connect, type EffectsRun } from '../../src/demo/effects/judge.ts';
import { effectsSlice } from '../../src/demo/effects/slice.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import type { LedgerEntry } from '../../src/outbox/reconcile/client-ledger.ts';
import { sliceContext } from '../fixtures/demo.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const stack = await sharedStack();
const context = sliceContext(own, stack, { seed: 11, scale: 0.25 });

let run: EffectsRun;
let pool: SqlPool;

beforeAll(async () => {
  run = await effectsSlice.run(context);
  pool = await connect(context, run.schema);
});
afterAll(async () => {
  await pool?.query(`DROP SCHEMA ${run.schema} CASCADE`);
  await pool?.close();
});

/** Words that identify each claim. */
const SETS = 'as sets';
const AMOUNTS = 'has the amount';
const RECONCILER = 'the reconciler reports';
const REPLIES = 'byte for byte';
const KILLED = 'killed in the middle';
const OFFSETS = 'two offsets';
const ARRIVED = 'nothing is pending';
const ORDER = 'in the order they were written';
const SUPPRESSED = 'was suppressed';
const ALL = [SETS, AMOUNTS, RECONCILER, REPLIES, KILLED, OFFSETS, ARRIVED, ORDER, SUPPRESSED];

/** Returns the identifying words of the claims whose fact does not hold. */
async function failedClaims(judged: EffectsRun = run): Promise<string[]> {
  const facts = await effectsSlice.judge(context, judged);
  return facts
    .filter((fact) => !fact.holds)
    .map((fact) => ALL.find((word) => fact.claim.includes(word)) ?? fact.claim);
}

/** Corrupts the tables, judges the run, and restores the tables. */
async function judgedAfter(corrupt: readonly string[], restore: readonly string[]): Promise<string[]> {
  for (const sql of corrupt) await pool.query(sql);
  try {
    return await failedClaims();
  } finally {
    for (const sql of restore) await pool.query(sql);
  }
}

/** Deletes rows from a table, judges the run, and inserts the rows again. */
const without = (table: string, where: string): Promise<string[]> =>
  judgedAfter(
    [`CREATE TABLE kept AS SELECT * FROM ${table} WHERE ${where}`, `DELETE FROM ${table} WHERE ${where}`],
    [`INSERT INTO ${table} SELECT * FROM kept`, 'DROP TABLE kept'],
  );

/** Changes the last order and undoes the change. No further events follow that order. */
const LAST = '(SELECT order_id FROM idempotency_keys ORDER BY order_id DESC LIMIT 1)';
const changed = (table: string, set: string, back: string, where: string): Promise<string[]> =>
  judgedAfter([`UPDATE ${table} SET ${set} WHERE ${where}`], [`UPDATE ${table} SET ${back} WHERE ${where}`]);

describe('effects slice', () => {
  it('the effects demo confirms every fact of an unmodified run', async () => {
    const facts = await effectsSlice.judge(context, run);
    expect(facts.filter((fact) => !fact.holds)).toEqual([]);
    expect(facts).toHaveLength(ALL.length);
    for (const word of ALL) expect(facts.filter((fact) => fact.claim.includes(word))).toHaveLength(1);
    expect(facts.every((fact) => fact.slice === 'effects' && /\d/.test(fact.seen))).toBe(true);
  });

  describe('tables', () => {
    it('the effects demo detects a missing charge', async () => {
      expect(await without('charges', `order_id = ${LAST}`)).toEqual([SETS, RECONCILER]);
    });

    it('the effects demo detects a charge without an order', async () => {
      const found = await judgedAfter(
        ["INSERT INTO charges VALUES (gen_random_uuid(), '00000000-0000-7000-8000-000000000001', 5)"],
        ["DELETE FROM charges WHERE order_id = '00000000-0000-7000-8000-000000000001'"],
      );
      expect(found).toEqual([SETS, RECONCILER]);
    });

    it('the effects demo detects a second charge of one order', async () => {
      const found = await judgedAfter(
        [
          'ALTER TABLE charges DROP CONSTRAINT charges_order_id_key',
          `INSERT INTO charges SELECT '00000000-0000-7000-8000-000000000002', order_id, amount_cents FROM charges WHERE order_id = ${LAST}`,
        ],
        [
          "DELETE FROM charges WHERE charge_id = '00000000-0000-7000-8000-000000000002'",
          'ALTER TABLE charges ADD CONSTRAINT charges_order_id_key UNIQUE (order_id)',
        ],
      );
      expect(found).toEqual([SETS, RECONCILER]);
    });

    it('the effects demo detects a missing order, and an order without an intent', async () => {
      expect(await without('orders', `order_id = ${LAST}`)).toEqual([SETS, RECONCILER]);
      const found = await judgedAfter(
        ["INSERT INTO orders VALUES ('00000000-0000-7000-8000-000000000003', 1, 1, 'created')"],
        ["DELETE FROM orders WHERE order_id = '00000000-0000-7000-8000-000000000003'"],
      );
      expect(found).toEqual([SETS, RECONCILER]);
    });

    it.each([
      ['charges', 'amount_cents'],
      ['orders', 'amount_cents'],
      ['orders', 'account_id'],
    ])('the effects demo detects a row of %s whose %s is off by one', async (table, column) => {
      const found = await changed(
        table,
        `${column} = ${column} + 1`,
        `${column} = ${column} - 1`,
        `order_id = ${LAST}`,
      );
      expect(found).toEqual([AMOUNTS, RECONCILER]);
    });

    it('the effects demo detects a stored response that differs from the sent response by a space', async () => {
      const found = await changed(
        'idempotency_keys',
        "response_body = (response_body::text || ' ')::json",
        'response_body = rtrim(response_body::text)::json',
        `order_id = ${LAST}`,
      );
      expect(found).toEqual([REPLIES, RECONCILER].sort((a, b) => ALL.indexOf(a) - ALL.indexOf(b)));
    });

    it('the effects demo detects a pending row', async () => {
      const where = `aggregate_id = ${LAST}`;
      await pool.query(`CREATE TABLE marked AS SELECT id, published_at FROM outbox WHERE ${where}`);
      const found = await judgedAfter(
        [`UPDATE outbox SET published_at = NULL WHERE ${where}`],
        [
          'UPDATE outbox SET published_at = marked.published_at FROM marked WHERE marked.id = outbox.id',
          'DROP TABLE marked',
        ],
      );
      expect(found).toEqual([RECONCILER, ARRIVED]);
    });

    it('the effects demo detects a message that is missing from the inbox', async () => {
      const where = `msg_id = (SELECT msg_id FROM outbox WHERE event_type = 'order.created.v1'
        AND msg_id NOT IN (SELECT msg_id FROM payments_suppressed) ORDER BY id DESC LIMIT 1)`;
      expect(await without('inbox', where)).toEqual([RECONCILER]);
    });

    it('the effects demo detects suppressed deliveries without a record: one, the published ones, or most', async () => {
      expect(await without('payments_suppressed', 'id = (SELECT min(id) FROM payments_suppressed)')).toEqual([
        SUPPRESSED,
      ]);
      expect(await without('payments_suppressed', 'NOT injected')).toEqual([SUPPRESSED]);
      const most = 'id > (SELECT min(id) + 2 FROM payments_suppressed)';
      const found = await judgedAfter(
        [
          `CREATE TABLE kept AS SELECT * FROM payments_suppressed WHERE ${most}`,
          'CREATE TABLE batches AS SELECT * FROM payments_batches',
          `DELETE FROM payments_suppressed WHERE ${most}`,
          'UPDATE payments_batches SET suppressed = 0',
          'UPDATE payments_batches SET suppressed = (SELECT count(*) FROM payments_suppressed) WHERE id = (SELECT min(id) FROM payments_batches)',
        ],
        [
          'INSERT INTO payments_suppressed SELECT * FROM kept',
          'UPDATE payments_batches b SET suppressed = k.suppressed FROM batches k WHERE k.id = b.id',
          'DROP TABLE kept, batches',
        ],
      );
      expect(found).toEqual([SUPPRESSED]);
    });

    it('the effects demo detects a kill before which every row was published', async () => {
      const at = run.kills[0]?.at as string;
      const rows = `created_at < '${at}' AND published_at > '${at}'`;
      await pool.query(`CREATE TABLE marked AS SELECT id, published_at FROM outbox WHERE ${rows}`);
      const found = await judgedAfter(
        [`UPDATE outbox SET published_at = created_at WHERE ${rows}`],
        [
          'UPDATE outbox SET published_at = marked.published_at FROM marked WHERE marked.id = outbox.id',
          'DROP TABLE marked',
        ],
      );
      expect(found).toEqual([KILLED]);
    });
  });

  it('the effects demo detects a relay that was not killed, not in the middle, or had nothing to do', async () => {
    const [first, second] = run.kills as [EffectsRun['kills'][0], EffectsRun['kills'][0]];
    const edge = async (sql: string): Promise<string> =>
      (await pool.query<{ at: string }>(`SELECT (${sql})::text AS at FROM orders`)).rows[0]?.at as string;
    for (const kills of [
      [],
      [{ ...first, signal: null }, second],
      [{ ...first, signal: 'SIGTERM' }, second],
      [first, { ...second, pending: 0 }],
      [first, { ...second, pending: 1_000_000 }],
      [{ ...first, at: await edge("min(created_at) + interval '1 ms'") }, second],
      [first, { ...second, at: await edge("max(created_at) + interval '1 ms'") }],
    ])
      expect(await failedClaims({ ...run, kills })).toEqual([KILLED]);
  });

  describe('ledger', () => {
    /** Rewrites the ledger, judges the run, and restores the ledger. */
    async function rewritten(change: (entries: LedgerEntry[]) => LedgerEntry[]): Promise<string[]> {
      const clean = await readFile(run.ledgerPath, 'utf8');
      const entries = clean
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as LedgerEntry);
      const lines = change(entries).map((entry) => `${JSON.stringify(entry)}\n`);
      await writeFile(run.ledgerPath, lines.join(''));
      try {
        return await failedClaims();
      } finally {
        await writeFile(run.ledgerPath, clean);
      }
    }
    const isOf = (entry: LedgerEntry, intent: number): boolean =>
      'intent' in entry && entry.intent === intent;
    const repeated = (entries: readonly LedgerEntry[]): number => {
      const repeat = entries.find((entry) => entry.type === 'reply' && entry.kind === 'repeat');
      return repeat?.type === 'reply' ? repeat.intent : -1;
    };
    const other = '0'.repeat(64);

    it('the effects demo detects a missing intent, which leaves an order without an intent', async () => {
      const found = await rewritten((entries) => entries.filter((entry) => !isOf(entry, 3)));
      expect(found).toEqual([SETS, RECONCILER]);
    });

    it('the effects demo detects an extra intent that was acknowledged and never ordered', async () => {
      const found = await rewritten((entries) => [
        ...entries,
        { type: 'intent', intent: 10_000_000, key: 'no-order', account_id: 1, amount_cents: 1, due_ms: 0 },
        {
          type: 'reply',
          intent: 10_000_000,
          kind: 'first',
          status: 201,
          sha256: other,
          replayed: false,
          latency_ms: 1,
        },
      ]);
      expect(found).toEqual([SETS, RECONCILER, REPLIES]);
    });

    it('the effects demo detects an intent with another amount', async () => {
      const found = await rewritten((entries) =>
        entries.map((entry) =>
          entry.type === 'intent' && entry.intent === 3
            ? { ...entry, amount_cents: entry.amount_cents + 1 }
            : entry,
        ),
      );
      expect(found).toEqual([AMOUNTS, RECONCILER]);
    });

    it('the effects demo detects a repeat that was answered with other bytes or another status', async () => {
      for (const over of [{ sha256: other }, { status: 200 }]) {
        const found = await rewritten((entries) => {
          const intent = repeated(entries);
          const at = entries.findLastIndex((entry) => entry.type === 'reply' && entry.intent === intent);
          return entries.map((entry, i) => (i === at ? ({ ...entry, ...over } as LedgerEntry) : entry));
        });
        expect(found).toEqual([RECONCILER, REPLIES]);
      }
    });

    it('the effects demo detects a run without repeats', async () => {
      const found = await rewritten((entries) =>
        entries.filter((entry) => entry.type !== 'reply' || entry.kind !== 'repeat'),
      );
      expect(found).toEqual([REPLIES]);
    });
  });

  describe('topic', () => {
    type Copy = RecordInput & {
      readonly key: Uint8Array;
      readonly value: Uint8Array;
      readonly partition: number;
    };
    let records: Copy[];
    let copies = 0;

    beforeAll(async () => {
      records = [];
      const reader = await TopicReader.open(stack.brokers);
      await reader.read([run.topic], (_, { key, value, partition }) => {
        records.push({ key: Uint8Array.from(key ?? []), value: Uint8Array.from(value ?? []), partition });
      });
      await reader.close();
    });

    /** Judges the run by a copy of the topic with other records. */
    async function replaced(changedRecords: readonly Copy[]): Promise<string[]> {
      const topic = `${run.topic}-copy-${copies++}`;
      await createTopics(stack.brokers, [{ topic, partitions: 4 }]);
      for (let at = 0; at < changedRecords.length; at += 500)
        await append(stack.brokers, topic, changedRecords.slice(at, at + 500));
      return failedClaims({ ...run, topic });
    }
    const idOf = (record: Copy): string =>
      (JSON.parse(Buffer.from(record.value).toString()) as { msg_id: string }).msg_id;
    const keyOf = (record: Copy): string => Buffer.from(record.key).toString();

    it('the effects demo accepts a true copy of the topic', async () => {
      expect(await replaced(records)).toEqual([]);
    });

    it('the effects demo detects a topic without any duplicated message', async () => {
      const seen = new Set<string>();
      const once = records.filter((record) => !seen.has(idOf(record)) && seen.add(idOf(record)));
      expect(once.length).toBeLessThan(records.length);
      expect(await replaced(once)).toEqual([OFFSETS]);
    });

    it('the effects demo detects a missing message, an unsent message, and garbage', async () => {
      const times = new Map<string, number>();
      for (const record of records) times.set(keyOf(record), (times.get(keyOf(record)) ?? 0) + 1);
      const lone = records.findLast((record) => times.get(keyOf(record)) === 1) as Copy;
      expect(await replaced(records.filter((record) => record !== lone))).toEqual([ARRIVED]);
      const ghost = Buffer.from('{"msg_id":"00000000-0000-4000-8000-000000000009"}');
      expect(await replaced([...records, { ...lone, value: ghost }])).toEqual([ARRIVED]);
      expect(await replaced([...records, { ...lone, value: Buffer.from('no JSON') }])).toEqual([ARRIVED]);
    });

    it('the effects demo detects a message that was published again under another key', async () => {
      const [first] = records as [Copy];
      expect(await replaced([...records, { ...first, key: Buffer.from('another') }])).toEqual([ARRIVED]);
    });

    it('the effects demo detects two swapped events of one order', async () => {
      const lastAt = records.findLastIndex(
        (record) => !Buffer.from(record.value).includes('order.created.v1'),
      );
      const last = records[lastAt] as Copy;
      const aheadAt = records.findIndex((record) => keyOf(record) === keyOf(last));
      const swapped = [...records];
      swapped[lastAt] = records[aheadAt] as Copy;
      swapped[aheadAt] = last;
      expect(await replaced(swapped)).toEqual([ORDER]);
    });
  });

  it('the test has restored everything that it changed', async () => {
    expect(await failedClaims()).toEqual([]);
  });
});
