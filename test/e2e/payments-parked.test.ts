/** Records that payments parks: their list, their redrive with one charge each, and the redelivery
 *  of a forgotten msg_id. */

import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { migrationsOf } from '../../src/outbox/database/migration-files.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { reconcile } from '../../src/outbox/reconcile/run.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { runPayments, startPayments } from '../fixtures/payments.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';
import { bytes, type Event, events, paymentsKit, recordOf, type World } from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { pool, world } = await paymentsKit(own, stack);

interface Redriven {
  readonly taken: number;
  readonly charged: number;
  readonly suppressed: number;
  readonly parked: number;
  readonly ignored: number;
  readonly left: Readonly<Record<string, number>>;
}

/** Flags of the commands that need the database only. */
const withoutBroker = (at: World, ...more: readonly string[]): readonly string[] => [
  `-postgres=${stack.postgres}`,
  `-schema=${at.schema}`,
  '-json',
  ...more,
];

async function answer<T>(args: readonly string[]): Promise<T> {
  const ended = await runPayments(own, args);
  expect({ code: ended.code, signal: ended.signal }, ended.stderr).toEqual({ code: 0, signal: null });
  return JSON.parse(ended.stdout) as T;
}

const redrive = (at: World, ...more: readonly string[]): Promise<Redriven> =>
  answer(withoutBroker(at, '-redrive', ...more));

/** Returns a UUIDv7 with that time. */
function idAt(ms: number): string {
  const time = ms.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

const HOUR_MS = 3_600_000;
const LIMIT_MS = 60_000;

describe('parked records', () => {
  it('parked records are listed, and a redrive charges each repaired record once and reports the others', async () => {
    const at = world('redrive');
    const orders = events(40);
    const refused = [3, 17, 30];
    await at.create();
    await at.run('a');
    await pool.query(
      `ALTER TABLE ${at.schema}.charges ADD CONSTRAINT sane CHECK (amount_cents NOT IN (${refused.map((i) => 100 + i)}))`,
    );
    // This floor is older than every partition, because the partitions reach back only as far as
    // the TTL.
    await pool.query(
      `UPDATE ${at.schema}.inbox_floor SET floor = '${idAt(realClock.wallNowMs() - 72 * HOUR_MS)}'`,
    );
    const forgotten: Event = {
      msgId: idAt(realClock.wallNowMs() - 96 * HOUR_MS),
      orderId: randomUUID(),
      cents: 7,
    };
    await at.publish([
      ...orders.map(recordOf),
      recordOf(forgotten, 0),
      { partition: 1, key: bytes('k'), value: bytes('not\u001b[2Jjson') },
      { partition: 2, key: null, value: null },
    ]);
    expect(await at.run('a', '-batch-rows=7')).toMatchObject({ charged: 37, parked: 6 });
    await at.expectCharged(orders.filter((_, i) => !refused.includes(i)));

    const list = await answer<{ parked: number; reasons: unknown; records: Array<Record<string, unknown>> }>(
      withoutBroker(at, '-parked'),
    );
    expect(list).toMatchObject({
      parked: 6,
      reasons: { malformed_payload: 2, refused: 3, undecidable: 1 },
    });
    expect(list.records).toHaveLength(6);
    const text = await runPayments(
      own,
      withoutBroker(at, '-parked', '-redrive-reason=malformed_payload').filter((arg) => arg !== '-json'),
    );
    expect(text.stdout).toContain('parked: 2 malformed_payload');
    expect(text.stdout).toContain('not.[2Jjson');
    expect(text.stdout).not.toContain('\u001b');

    // No cause is removed, so each record is processed once and parked again.
    expect(await redrive(at, '-batch-rows=2')).toMatchObject({ taken: 6, charged: 0, parked: 6, ignored: 0 });
    await pool.query(`ALTER TABLE ${at.schema}.charges DROP CONSTRAINT sane`);
    const one = list.records.find((record) => record['reason'] === 'refused') as Record<string, unknown>;
    const place = [
      `-redrive-topic=${at.topic}`,
      `-redrive-partition=${one['partition']}`,
      `-redrive-offset=${one['offset']}`,
    ];
    expect(await redrive(at, ...place)).toMatchObject({ taken: 1, charged: 1, left: {} });
    expect(await redrive(at, '-redrive-reason=refused')).toMatchObject({ taken: 2, charged: 2, left: {} });
    // The undecidable record needs a decision; the unreadable records stay unreadable.
    expect(await redrive(at)).toMatchObject({ taken: 3, charged: 0, parked: 3 });
    await at.expectCharged(orders);
    const repaired = Buffer.from(recordOf({ ...forgotten, msgId: randomUUID() }, 0).value as Uint8Array);
    await pool.query(
      `UPDATE ${at.schema}.payments_parked SET reason = 'refused', value = $1 WHERE value IS NULL`,
      [repaired],
    );
    expect(await redrive(at)).toMatchObject({ taken: 3, charged: 1, parked: 2 });
    // With -unsafe-ttl the forgotten id counts as unseen, but its order has a charge by now.
    expect(await redrive(at, '-redrive-reason=undecidable', '-unsafe-ttl')).toMatchObject({
      taken: 1,
      charged: 0,
      suppressed: 1,
      left: {},
    });
    expect(await at.count('payments_parked')).toBe(1);
    const charges = await at.query<{ n: number }>(
      'SELECT count(*)::int AS n FROM SCHEMA.charges GROUP BY order_id',
    );
    expect(charges.map(({ n }) => n)).toEqual(Array.from({ length: 41 }, () => 1));
  });

  it('parked records are charged once each although a redrive is killed half-way and others run concurrently', async () => {
    const at = world('halfway');
    const orders = events(300);
    await at.create();
    await at.run('a');
    await pool.query(`ALTER TABLE ${at.schema}.charges ADD CONSTRAINT sane CHECK (amount_cents < 0)`);
    await at.publish(orders.map(recordOf));
    expect(await at.run('a')).toMatchObject({ charged: 0, parked: 300 });
    await pool.query(`ALTER TABLE ${at.schema}.charges DROP CONSTRAINT sane`);
    const crash = ['-redrive', '-batch-rows=20', '-crash-point=effect', '-crash-after=4'];
    expect(await runPayments(own, withoutBroker(at, ...crash))).toMatchObject({
      code: null,
      signal: 'SIGKILL',
    });
    expect(await at.count('charges')).toBe(80);
    expect(await at.count('payments_parked')).toBe(220);
    // Two redrives run while another group reads the whole topic again.
    const [one, two, again] = await Promise.all([
      redrive(at, '-batch-rows=10'),
      redrive(at, '-batch-rows=10'),
      at.run('b', '-batch-rows=25'),
    ]);
    expect(one.charged + two.charged + again.charged).toBe(220);
    expect(await redrive(at)).toMatchObject({ charged: 0, parked: 0, left: {} });
    await at.expectCharged(orders);
  });

  it('parked records of a recreated topic are kept beside older records at the same offsets, and redriven with them', async () => {
    const at = world('remade');
    const [before, after] = [events(3), events(3)] as const;
    const poison = { partition: 1, key: null, value: bytes('no event') };
    await at.create();
    await at.run('a');
    await pool.query(`ALTER TABLE ${at.schema}.charges ADD CONSTRAINT sane CHECK (amount_cents < 0)`);
    await at.publish([...before.map(recordOf), poison]);
    expect(await at.run('a')).toMatchObject({ charged: 0, parked: 4 });
    // A redelivered record maps to its existing row.
    expect(await at.run('b')).toMatchObject({ charged: 0, parked: 4 });
    expect(await at.count('payments_parked')).toBe(4);

    await at.recreate();
    await at.publish([...after.map(recordOf), poison]);
    expect(await at.run('c')).toMatchObject({ charged: 0, parked: 4 });
    // A record with the same content at the same offset maps to the existing row; the others are
    // kept.
    expect(await at.count('payments_parked')).toBe(7);
    const list = await answer<{ records: Array<Record<string, unknown>> }>(
      withoutBroker(at, '-parked', '-redrive-partition=1', '-redrive-offset=0'),
    );
    expect(list.records.map(({ partition, offset, reason }) => [partition, offset, reason])).toEqual([
      [1, '0', 'refused'],
      [1, '0', 'refused'],
    ]);
    const digests = list.records.map(({ digest }) => String(digest));
    expect(digests.every((digest) => /^[0-9a-f]{64}$/.test(digest))).toBe(true);
    const text = await runPayments(
      own,
      withoutBroker(at, '-parked', '-redrive-offset=0').filter((arg) => arg !== '-json'),
    );
    for (const digest of digests) expect(text.stdout).toContain(`${at.topic}/1/0 ${digest.slice(0, 8)}`);

    await pool.query(`ALTER TABLE ${at.schema}.charges DROP CONSTRAINT sane`);
    expect(await redrive(at, '-batch-rows=2')).toMatchObject({ taken: 7, charged: 6, parked: 1 });
    await at.expectCharged([...before, ...after]);
    expect(await at.count('payments_parked')).toBe(1);
  });

  it('parked records of an older release are kept by the migration and recognised when redelivered', async () => {
    const at = world('older');
    const [repaired] = events(1) as [Event];
    const value = recordOf(repaired, 0).value as Uint8Array;
    const older = await connectPool(stack.postgres, {
      schema: at.schema,
      connections: 1,
      name: 'payments test',
    });
    try {
      await migrate(older, at.schema, 'payments', migrationsOf('payments').slice(0, 2));
      await older.query(
        `INSERT INTO payments_parked (topic, partition, "offset", reason, detail, key, value) VALUES
         ($1, 0, 0, 'refused', 'then', $2, $3), ($1, 1, 0, 'malformed_payload', 'then', NULL, NULL),
         ($1, 2, 0, 'malformed_payload', 'then', '', 'poison')`,
        [at.topic, bytes(repaired.orderId), value],
      );
      const service = at.args('a').filter((arg) => arg !== '-migrate');
      const refused = await runPayments(own, [...service, '-log-level=silent']);
      expect([refused.code, refused.stderr]).toEqual([
        3,
        expect.stringContaining('payments_parked has no column digest; run `millrace payments -migrate'),
      ]);
    } finally {
      await older.close();
    }
    await at.create();
    await at.run('a');
    expect(await at.count("payments_parked WHERE detail = 'then'")).toBe(3);
    await pool.query(`ALTER TABLE ${at.schema}.charges ADD CONSTRAINT sane CHECK (amount_cents < 0)`);
    await at.publish([
      { partition: 0, key: bytes(repaired.orderId), value },
      { partition: 1, key: null, value: null },
      { partition: 2, key: bytes(''), value: bytes('poison') },
    ]);
    expect(await at.run('b')).toMatchObject({ parked: 3 });
    expect(await at.count('payments_parked')).toBe(3);
    expect(await at.count("payments_parked WHERE detail = 'then'")).toBe(3);
    await pool.query(`ALTER TABLE ${at.schema}.charges DROP CONSTRAINT sane`);
    expect(await redrive(at)).toMatchObject({ taken: 3, charged: 1, parked: 2 });
    await at.expectCharged([repaired]);
  });

  it.each([
    [['-parked', '-redrive'], /-redrive changes nothing with -parked/],
    [['-redrive', '-topic=orders'], /-topic changes nothing with -redrive/],
    [['-redrive', '-parked-max=5'], /-parked-max changes nothing without -parked/],
    [['-redrive', '-dup-rate=0.1'], /-dup-rate changes nothing with -redrive/],
    [['-redrive', '-crash-point=offset'], /-crash-point=offset .*-redrive/],
    [['-parked', '-crash-point=effect'], /-crash-point changes nothing with -parked/],
    [['-redrive-offset=3'], /-redrive-offset changes nothing without -parked or -redrive/],
    [['-crash-after=3'], /-crash-after changes nothing without -crash-point/],
    [['-seed=3'], /-seed changes nothing without -dup-rate/],
    [['-outbox-table=public.o'], /-outbox-table changes nothing without -outbox-postgres/],
  ])('payments refuses %j before it connects', async (flags, line) => {
    const ended = await runPayments(own, [
      '-postgres=postgres://me@127.0.0.1:1/none',
      ...flags,
      '-log-level=silent',
    ]);
    expect([ended.code, ended.stderr]).toEqual([2, expect.stringMatching(line)]);
  });

  it('payments refuses a redrive for an unknown reason', async () => {
    const at = world('reasons');
    await at.create();
    await at.run('a');
    const ended = await runPayments(
      own,
      withoutBroker(at, '-redrive', '-redrive-reason=poison', '-log-level=silent'),
    );
    expect(ended.code).toBe(2);
    expect(ended.stderr).toMatch(/malformed_payload, refused, undecidable/);
  });
});

describe('forgotten message', () => {
  /** Charges orders of two hours ago, lets their ids expire, and delivers the orders again. */
  async function lateDuplicates(at: World, ...flags: readonly string[]) {
    const made = realClock.wallNowMs() - 2 * HOUR_MS;
    const orders = events(50).map((event, i) => (i % 2 === 0 ? { ...event, msgId: idAt(made) } : event));
    await at.publish(orders.map(recordOf));
    await pool.query(
      `INSERT INTO ${at.schema}.payments_batches (delivered, inserted, suppressed, injected, committed_at)
       SELECT 1, 1, 0, 0, now() - interval '2 hours' FROM generate_series(1, 5)`,
    );
    await pool.query(
      `INSERT INTO ${at.schema}.payments_suppressed (msg_id, order_id, reason, injected, topic, partition, "offset", seen_at)
       SELECT gen_random_uuid(), gen_random_uuid(), reason, false, 't', 0, n, now() - interval '2 hours'
       FROM generate_series(1, 3) AS n, unnest(ARRAY['order_charged', 'seen', 'same_batch']) AS reason`,
    );
    // The orders are charged under a TTL that keeps their ids. With the short TTL, the keeper might
    // drop their partition before the group is joined; ids charged below the floor are kept for a
    // TTL from then on.
    expect(await at.run('a')).toMatchObject({ charged: 50 });
    expect(await at.count('inbox')).toBe(50);
    const service = startPayments(own, at.args('a', '-dedup-ttl=1h', '-inbox-every=1s', ...flags));
    await until('the expiry', async () => ((await at.count('inbox')) === 25 ? true : undefined), LIMIT_MS);
    // Batch statistics and suppressed duplicates are pruned by the same age. Duplicates that only
    // the UNIQUE constraint of charges stopped are kept.
    const early = `payments_suppressed WHERE seen_at < now() - interval '1 hour'`;
    for (const old of [
      `payments_batches WHERE committed_at < now() - interval '1 hour'`,
      `${early} AND reason <> 'order_charged'`,
    ])
      await until('the pruning', async () => ((await at.count(old)) === 0 ? true : undefined), LIMIT_MS);
    expect(await at.count(early)).toBe(3);
    await pool.query(`DELETE FROM ${at.schema}.${early}`);
    await at.publish(orders.map(recordOf));
    await until(
      'the duplicates',
      async () => {
        const settled = (await at.count('payments_suppressed')) + (await at.count('payments_parked'));
        const more = (await at.count('charges')) - 50;
        return settled + more >= 50 ? true : undefined;
      },
      LIMIT_MS,
    );
    await service.drain();
    return orders;
  }

  const reasons = async (at: World): Promise<unknown> =>
    Object.fromEntries(
      (
        await at.query<{ reason: string; n: number }>(
          'SELECT reason, count(*)::int AS n FROM SCHEMA.payments_suppressed GROUP BY reason ORDER BY reason',
        )
      ).map(({ reason, n }) => [reason, n]),
    );

  it('a forgotten message is unseen with -unsafe-ttl, and the UNIQUE of charges stops the second charge', async () => {
    const at = world('late');
    await at.create();
    await at.run('a');
    const orders = await lateDuplicates(at, '-unsafe-ttl');
    expect(await reasons(at)).toEqual({ order_charged: 25, seen: 25 });
    expect(await at.count('payments_parked')).toBe(0);
    const rows = await at.query<{ id: string }>('SELECT DISTINCT order_id AS id FROM SCHEMA.charges');
    expect(rows.map(({ id }) => id).sort()).toEqual(orders.map(({ orderId }) => orderId).sort());
    expect(await at.count('charges')).toBe(50);
  });

  it('a forgotten message is parked by default, and not charged', async () => {
    const at = world('undecided');
    await at.create();
    const [first, late] = events(2).map((event) => ({
      ...event,
      msgId: idAt(realClock.wallNowMs() - 96 * HOUR_MS),
    })) as [Event, Event];
    await at.publish([recordOf(first, 0)]);
    expect(await at.run('a')).toMatchObject({ charged: 1 });
    await pool.query(
      `UPDATE ${at.schema}.inbox_floor SET floor = '${idAt(realClock.wallNowMs() - 72 * HOUR_MS)}'`,
    );
    await at.publish([recordOf(first, 1), recordOf(late, 1)]);
    // The row of the first message still exists, so that message is seen.
    expect(await at.run('a')).toMatchObject({ charged: 0, suppressed: 1, parked: 1 });
    const parked = await at.query('SELECT reason FROM SCHEMA.payments_parked');
    expect(parked).toEqual([{ reason: 'undecidable' }]);
    await at.expectCharged([first]);
  });

  it('a forgotten message is charged twice where charges has no UNIQUE on order_id, and the reconciler names its order', async () => {
    const at = world('twofold');
    await at.create();
    await at.run('a');
    await pool.query(`ALTER TABLE ${at.schema}.charges DROP CONSTRAINT charges_order_id_key`);
    const orders = await lateDuplicates(at, '-unsafe-ttl');
    expect(await at.count('charges')).toBe(75);
    expect(await reasons(at)).toEqual({ seen: 25 });
    const there = await connectPool(stack.postgres, { schema: at.schema, connections: 1 });
    const schemas = { ordersSchema: at.schema, paymentsSchema: at.schema };
    try {
      await createTables(there, at.schema, 'orders');
      await there.query(
        `INSERT INTO orders (order_id, account_id, amount_cents, status)
         SELECT DISTINCT order_id, 7, amount_cents, 'created' FROM charges`,
      );
    } finally {
      await there.close();
    }
    const { deltas } = await reconcile({ pool, ...schemas, ledgers: [], idsMax: 100 });
    const named = deltas.find(({ class: name }) => name === 'double_charge')?.ids ?? [];
    const forgotten = orders.filter((_, i) => i % 2 === 0).map(({ orderId }) => orderId);
    expect([...named].sort()).toEqual(forgotten.sort());
  });
});

it('two groups on their own schemas charge every order and do not disturb each other', async () => {
  const one = world('side1');
  const two = world('side2');
  const orders = events(600);
  await one.create();
  await one.publish(orders.map(recordOf));
  const elsewhere = two.args('b').map((arg) => (arg.startsWith('-topic=') ? `-topic=${one.topic}` : arg));
  const both = [
    startPayments(own, one.args('a', '-batch-rows=40', '-dup-rate=0.2'), 'one'),
    startPayments(own, [...elsewhere, '-batch-rows=30', '-dup-rate=0.2'], 'two'),
  ];
  for (const at of [one, two])
    await until('all charges', async () => ((await at.count('charges')) >= 600 ? true : undefined), LIMIT_MS);
  for (const service of both) {
    await service.drain();
  }
  for (const at of [one, two]) await at.expectCharged(orders);
});
