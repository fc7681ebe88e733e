/** Effect of the flags of `millrace payments` for times and sizes, and the metrics of its keeper
 *  and its consumer. One service has an inbox that reaches back three partitions; the outbox is in
 *  another database. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { inboxNames } from '../../src/outbox/inbox/names.ts';
import {
  listPartitions,
  makePartitions,
  type TimePartition,
} from '../../src/outbox/inbox/retention/partitions.ts';
import { copyPlan } from '../../src/outbox/payments/duplicates.ts';
import { openPool, ownDatabase } from '../fixtures/database.ts';
import { becomes, pageOf, sumOf } from '../fixtures/metrics.ts';
import { runPayments, startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { settingsOf } from '../fixtures/topic.ts';
import { realClock, until } from '../wait.ts';
import { HOUR_MS, idAt } from './inbox-kit.ts';
import { bytes, events, paymentsKit, recordOf } from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { world } = await paymentsKit(own, stack);
const at = world('flags');
const names = inboxNames('inbox');

/** Current time, which is near the middle of a partition whenever the test runs, so that no
 *  partition begins or expires meanwhile. */
const NOW = realClock.wallNowMs();
const WIDTH = Math.round(NOW / (Math.floor(NOW / 2_700_000) + 0.5));
const RETENTION = 2 * WIDTH;
const RELAY = Math.floor(WIDTH / 2);
const CONSUMER = Math.floor(WIDTH / 4);
const SKEW = WIDTH - RELAY - CONSUMER;
const TTL = RETENTION + RELAY + CONSUMER + SKEW;
/** Age of the oldest row of the outbox, in ms; greater than the age of every key. */
const PENDING = 10 * HOUR_MS;
/** Tolerance for a busy machine, in s. */
const SLACK_S = 600;

const RECORDS = { orders: 4, others: 3, malformed: 5 } as const;
const BEFORE_LAST = RECORDS.orders + RECORDS.others + RECORDS.malformed;
/** Seed with which every record is copied and the copy of the last record is in the same batch, so
 *  that no copy waits for a later batch. */
const SEED = Array.from({ length: 64 }, (_, seed) => seed).find(
  (seed) => copyPlan(seed, 1, 0, BigInt(BEFORE_LAST)) === 'same_batch',
);

const outboxUrl = await ownDatabase(stack.postgres, `boxes_${own.suffix}`);
const outboxPool = await openPool(outboxUrl);
await outboxPool.query('CREATE SCHEMA shop');
await outboxPool.query(
  'CREATE TABLE shop.parcels (id bigserial PRIMARY KEY, created_at timestamptz NOT NULL, published_at timestamptz)',
);
await outboxPool.query(
  "INSERT INTO shop.parcels (created_at) VALUES (now() - $1::float8 * interval '1 ms')",
  [PENDING],
);
const inbox = await openPool(withSettings(stack.postgres, { schema: at.schema }));

let service: Running;
let address: string;
const horizon = (bound: string): string => `inbox_horizon_seconds{inbox="inbox",bound="${bound}"}`;
const MARGIN = 'dedup_ttl_margin_seconds';
const CREATED = 'inbox_partitions_made_total';
const DROPPED = 'inbox_partitions_dropped_total';
const MOVED = 'inbox_moved_keys_total';
const EXPIRED = 'inbox_expired_keys_total';
/** Bounds of the partitions, in units of WIDTH. */
const spans = async (): Promise<number[][]> =>
  (await listPartitions(inbox, names)).map(({ fromMs, toMs }) => [fromMs / WIDTH, toMs / WIDTH]);
const now = Math.floor(NOW / WIDTH);

it('the parts of the horizon and -inbox-width determine the span of the inbox', async () => {
  service = startPayments(
    own,
    at.args(
      'a',
      `-topic-retention=${RETENTION}ms`,
      `-max-relay-outage=${RELAY}ms`,
      `-max-consumer-outage=${CONSUMER}ms`,
      `-clock-skew=${SKEW}ms`,
      `-inbox-width=${WIDTH}ms`,
      '-inbox-every=1s',
      `-outbox-postgres=${outboxUrl}`,
      '-outbox-table=shop.parcels',
      '-dup-rate=1',
      `-seed=${SEED}`,
      '-batch-wait=1ms',
      '-batch-every=0',
    ),
  );
  address = await service.address();
  const page = await becomes(address, horizon('retention'), TTL / 1000);
  expect((await settingsOf(stack.brokers, at.topic)).get('retention.ms')).toBe(String(RETENTION));
  const outbox = page.get(horizon('outbox')) as number;
  expect(outbox - (PENDING + SKEW) / 1000).toBeGreaterThanOrEqual(0);
  expect(outbox - (PENDING + SKEW) / 1000).toBeLessThan(SLACK_S);
  expect(page.get(MARGIN)).toBeCloseTo(TTL / 1000 - outbox, 3);
  expect(await spans()).toEqual([-3, -2, -1, 0, 1, 2].map((i) => [now + i, now + i + 1]));
  // The partitions of the start are created before anything is counted.
  expect([CREATED, DROPPED, MOVED, EXPIRED].map((name) => page.get(name))).toEqual([0, 0, 0, 0]);
});

it('a missing future partition is created again, and keys of its range are moved into it', async () => {
  const ahead = (await listPartitions(inbox, names)).at(-1) as TimePartition;
  for (const turn of [1, 2]) {
    await inbox.transaction(async (session) => {
      await session.query(`ALTER TABLE inbox DETACH PARTITION ${ahead.sqlName}`);
      await session.query(`DROP TABLE ${ahead.sqlName}`);
      await session.query('INSERT INTO inbox (msg_id) VALUES ($1)', [idAt(ahead.fromMs + turn)]);
    });
    await becomes(address, CREATED, turn);
    await becomes(address, MOVED, turn);
  }
  expect((await spans()).at(-1)).toEqual([now + 2, now + 3]);
});

it('expired keys are kept while an outbox row is older than they are, and are dropped once the row is marked', async () => {
  const fromMs = (now - 8) * WIDTH;
  const old = [1, 2, 3].map((ms) => idAt(fromMs + ms));
  const timeless = Array.from({ length: 5 }, (_, i) => `f0000000-0000-4000-8000-00000000000${i}`);
  // The first bits of this id are a time, but its version is not 7.
  const other = idAt(fromMs + 4, '4');
  await inbox.query('INSERT INTO inbox (msg_id) SELECT unnest($1::uuid[])', [[...old, other]]);
  await inbox.query(
    "INSERT INTO inbox (msg_id, processed_at) SELECT unnest($1::uuid[]), now() - interval '5 hours'",
    [timeless],
  );
  const range = { fromMs, toMs: fromMs + 2 * WIDTH, widthMs: WIDTH };
  await until('two old partitions', async () => {
    await makePartitions(inbox, names, range);
    return (await spans()).length === 8 ? true : undefined;
  });
  // The number of dropped keys comes from the table statistics.
  await inbox.query('SELECT pg_stat_force_next_flush()');
  for (const { sqlName } of (await listPartitions(inbox, names)).slice(0, 2))
    await inbox.query(`ANALYZE ${sqlName}`);
  const held = async (ids: readonly string[]): Promise<number> =>
    (await inbox.query('SELECT FROM inbox WHERE msg_id = ANY($1::uuid[])', [[...ids]])).rows.length;
  // Once this partition was created twice again, a whole turn has run since the rows were inserted.
  const ahead = (await listPartitions(inbox, names)).at(-1) as TimePartition;
  for (const made of [3, 4]) {
    await inbox.transaction(async (session) => {
      await session.query(`ALTER TABLE inbox DETACH PARTITION ${ahead.sqlName}`);
      await session.query(`DROP TABLE ${ahead.sqlName}`);
    });
    await becomes(address, CREATED, made);
  }
  expect(await held([...old, other, ...timeless])).toBe(9);
  const before = await pageOf(address);
  expect([DROPPED, EXPIRED, MOVED].map((name) => before.get(name))).toEqual([0, 0, 2]);

  await outboxPool.query('UPDATE shop.parcels SET published_at = now()');
  await becomes(address, DROPPED, 2);
  const page = await becomes(address, EXPIRED, old.length + timeless.length);
  expect([page.get(DROPPED), page.get(MOVED)]).toEqual([2, 3]);
  expect([await held([...old, ...timeless]), await held([other])]).toEqual([0, 1]);
  expect((await spans())[0]).toEqual([now - 3, now - 2]);
  await becomes(address, MARGIN, 0);
  const floor = (await becomes(address, 'inbox_floor_age_seconds{inbox="inbox"}', (age) => age > 0)).get(
    'inbox_floor_age_seconds{inbox="inbox"}',
  ) as number;
  expect(Math.abs(floor - (NOW - range.toMs) / 1000)).toBeLessThan(SLACK_S);
});

it('each record and each copy is counted, and records without a charge by reason', async () => {
  const orders = events(RECORDS.orders + 1);
  const other = (): RecordInput => ({
    partition: 0,
    key: bytes('k'),
    value: bytes(JSON.stringify({ msg_id: randomUUID(), event_type: 'order.cancelled.v1', payload: {} })),
  });
  const malformed = (): RecordInput => ({ partition: 0, key: bytes('k'), value: bytes('not json') });
  const repeat = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);
  await at.publish([
    ...orders.slice(0, RECORDS.orders).map((event) => recordOf(event, 0)),
    ...repeat(RECORDS.others, other),
    ...repeat(RECORDS.malformed, malformed),
  ]);
  await becomes(address, 'payments_charges_total', RECORDS.orders);
  await becomes(address, 'payments_messages_total', BEFORE_LAST);
  await until('the parked records', async () =>
    (await at.count('payments_parked')) === RECORDS.malformed ? true : undefined,
  );
  await at.publish([recordOf(orders[RECORDS.orders] as (typeof orders)[number], 0)]);
  await becomes(address, 'payments_charges_total', orders.length);
  const page = await becomes(address, 'payments_injected_total', BEFORE_LAST + 1);
  await until('the copies', async () =>
    (await at.count('payments_suppressed')) === orders.length ? true : undefined,
  );
  expect([page.get('payments_messages_total'), page.get('payments_ignored_total')]).toEqual([
    BEFORE_LAST + 1,
    2 * RECORDS.others,
  ]);
  // Copies and malformed records may be in different batches, so wait for one page that shows both.
  const after = await until('counters of the records without a charge', async () => {
    const shown = await pageOf(address);
    const isWhole =
      shown.get('payments_parked_total{reason="malformed_payload"}') === 2 * RECORDS.malformed &&
      sumOf(shown, 'payments_duplicates_total') >= orders.length;
    return isWhole ? shown : undefined;
  });
  expect(sumOf(after, 'payments_duplicates_total')).toBe(orders.length);
  expect(sumOf(after, 'payments_parked_total')).toBe(2 * RECORDS.malformed);
  expect(await at.count('charges')).toBe(orders.length);
});

it('-parked-max limits the records that -parked lists, and the number of others is printed', async () => {
  const args = [`-postgres=${stack.postgres}`, `-schema=${at.schema}`, '-parked', '-parked-max=2'];
  const { code, stdout } = await runPayments(own, args);
  expect(code).toBe(0);
  const lines = stdout.trim().split('\n');
  expect(lines[0]).toBe(`parked: ${RECORDS.malformed} malformed_payload`);
  expect(lines.filter((line) => line.startsWith(`${at.topic}/0/`))).toHaveLength(2);
  expect(lines.at(-1)).toBe(`and ${RECORDS.malformed - 2} more`);
});

it('a -replication-factor above the number of brokers is refused for a new topic', async () => {
  const { code, stderr } = await runPayments(
    own,
    world('copies').args('a', '-replication-factor=2', '-log-level=silent'),
  );
  expect([code, stderr]).toEqual([
    2,
    expect.stringMatching(/^error: .*replication factor.*\[broker_refused\]$/im),
  ]);
});

it('a -batch-wait longer than the drain is ended by the drain', async () => {
  const idle = world('idle').args('a', '-batch-wait=10s', '-drain-timeout=8s');
  const waiting = startPayments(own, idle);
  const waitingAddress = await waiting.address();
  await until('an assignment', async () => (waiting.log().includes('"kind":"assigned"') ? true : undefined));
  // The first read is over, so the next read waits for a record that does not arrive.
  await until('lag metrics', async () =>
    [...(await pageOf(waitingAddress)).keys()].some((series) => series.startsWith('consumer_lag_records{')),
  );
  await waiting.drain();
});

it('payments exits with 0 after the flags tests', async () => {
  await service.drain();
});
