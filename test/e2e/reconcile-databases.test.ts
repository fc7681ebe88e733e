/** `millrace reconcile` with orders in one database and payments in another: it finds what it finds
 *  where both are in one database. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { type ReconcileOptions, reconcile } from '../../src/outbox/reconcile/run.ts';
import { connectPool, createTables, ownDatabase } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock } from '../wait.ts';
import { idAt, reconciled } from './reconcile-kit.ts';

const own = launcher();
const { postgres } = await sharedStack();
const COUNT = 30;
const AGE_MS = 3_600_000;
let orders: SqlPool;
let payments: SqlPool;
let url: string;
const schema = `reconcile_two_${own.suffix}`;
const database = `reconcile_payments_${own.suffix}`;

beforeAll(async () => {
  url = await ownDatabase(postgres, database);
  orders = await connectPool(postgres, { schema });
  payments = await connectPool(url);
  await createTables(orders, schema, 'orders');
  await createTables(payments, 'public', 'payments');
});
afterAll(async () => {
  await payments.close();
  await orders.query(`DROP SCHEMA ${schema} CASCADE`);
  await orders.query(`DROP DATABASE ${database} WITH (FORCE)`);
  await orders.close();
});

interface Order {
  readonly orderId: string;
  readonly msgId: string;
}
let all: readonly Order[];

beforeEach(async () => {
  await orders.query('TRUNCATE orders, idempotency_keys, outbox');
  await payments.query('TRUNCATE inbox, charges, payments_parked, payments_suppressed');
  const at = realClock.wallNowMs() - AGE_MS;
  all = Array.from({ length: COUNT }, (_, n) => ({ orderId: idAt(at + n), msgId: idAt(at + n) }));
  for (const [n, { orderId, msgId }] of all.entries()) {
    const time = new Date(at + n);
    await orders.query(`INSERT INTO orders VALUES ($1::uuid, 1, $2, 'created', $3)`, [orderId, n + 1, time]);
    await orders.query(`INSERT INTO idempotency_keys VALUES ($1, '\\x00', $2::uuid, 201, '{}', $3)`, [
      randomUUID(),
      orderId,
      time,
    ]);
    await orders.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, published_at, created_at)
       VALUES ($1::uuid, $2::uuid, 'order.created.v1', '{}', $3, $3)`,
      [orderId, msgId, time],
    );
    await payments.query('INSERT INTO inbox VALUES ($1::uuid, $2)', [msgId, time]);
    await payments.query('INSERT INTO charges VALUES (gen_random_uuid(), $1::uuid, $2, $3)', [
      orderId,
      n + 1,
      time,
    ]);
  }
});

const compared = (settle: Partial<ReconcileOptions> = {}) =>
  reconcile({
    pool: orders,
    paymentsPool: payments,
    ...settle,
    ordersSchema: schema,
    paymentsSchema: 'public',
    ledgers: [],
    idsMax: 10,
    lateAfterMs: 15_000,
  });

/** Adds each statement of the pool's transactions to `statements`. */
const recording = (pool: SqlPool, statements: string[]): SqlPool =>
  Object.create(pool, {
    transaction: {
      value: <T>(work: (session: SqlSession) => Promise<T>): Promise<T> =>
        pool.transaction((session) => {
          const query = (...[text, ...rest]: Parameters<SqlSession['query']>) => {
            statements.push(text);
            return session.query(text, ...rest);
          };
          return work(Object.create(session, { query: { value: query } }));
        }),
    },
  });

const one = (n: number): Order => all[n] as Order;

it('a clean run in two databases has the ground truth of one', async () => {
  expect(await compared()).toMatchObject({
    holds: true,
    produced_intents: COUNT,
    distinct_orders: COUNT,
    distinct_charges: COUNT,
    deltas: [],
    late: { after_ms: 15_000, count: 0 },
  });
});

it('each difference between the two databases is named with its id', async () => {
  const ghost = idAt(realClock.wallNowMs() - AGE_MS);
  const ghostMessage = idAt(realClock.wallNowMs() - AGE_MS);
  await payments.query('DELETE FROM charges WHERE order_id = ANY ($1::uuid[])', [
    [one(0).orderId, one(1).orderId],
  ]);
  await payments.query(
    `INSERT INTO payments_parked (topic, partition, "offset", reason, detail, key, digest)
     VALUES ('t', 0, 0, 'refused', '', convert_to($1, 'UTF8'), '\\x00')`,
    [one(1).orderId],
  );
  await payments.query('UPDATE charges SET amount_cents = 1000 WHERE order_id = $1::uuid', [one(2).orderId]);
  await payments.query('DELETE FROM inbox WHERE msg_id = $1::uuid', [one(3).msgId]);
  await payments.query('INSERT INTO charges VALUES (gen_random_uuid(), $1::uuid, 5)', [ghost]);
  await payments.query('INSERT INTO inbox VALUES ($1::uuid)', [ghostMessage]);
  await payments.query(
    `INSERT INTO payments_suppressed (msg_id, order_id, reason, injected, topic, partition, "offset")
     VALUES ($1::uuid, $2::uuid, 'order_charged', false, 't', 0, 0)`,
    [one(4).msgId, one(4).orderId],
  );
  await orders.query('DELETE FROM idempotency_keys WHERE order_id = $1::uuid', [one(5).orderId]);
  await orders.query('UPDATE outbox SET published_at = NULL WHERE msg_id = $1::uuid', [one(6).msgId]);
  await payments.query(
    `UPDATE inbox SET processed_at = processed_at + interval '20 seconds' WHERE msg_id = $1::uuid`,
    [one(7).msgId],
  );
  const result = await compared();
  expect(Object.fromEntries(result.deltas.map((delta) => [delta.class, delta.ids]))).toEqual({
    order_without_charge: [one(0).orderId],
    order_parked: [one(1).orderId],
    charge_amount_differs: [one(2).orderId],
    outbox_without_inbox: [one(3).msgId],
    charge_without_order: [ghost],
    inbox_without_outbox: [ghostMessage],
    charge_attempted_again: [one(4).orderId],
    ghost_order: [one(5).orderId],
    pending_outbox: [one(6).msgId],
  });
  expect(result).toMatchObject({
    holds: false,
    distinct_orders: COUNT,
    distinct_charges: COUNT - 1,
    suppressed: { order_charged: 1 },
    parked: { refused: 1 },
    late: { count: 1, ids: [one(7).msgId] },
  });
});

it('an order whose id and date are ahead of the clock of the database is judged by its outbox row', async () => {
  const settle = { settleMs: 600_000, wait: () => Promise.reject(new Error('nothing is in flight')) };
  const at = realClock.wallNowMs() + AGE_MS;
  const insert = async (isCharged: boolean): Promise<Order> => {
    const [orderId, msgId] = [idAt(at), idAt(at)];
    await orders.query(
      `WITH created AS (INSERT INTO orders VALUES ($1::uuid, 1, 5, 'created', $3)),
         kept AS (INSERT INTO idempotency_keys VALUES ($4, '\\x00', $1::uuid, 201, '{}', $3))
       INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, published_at, created_at)
       VALUES ($1::uuid, $2::uuid, 'order.created.v1', '{}', now(), now() - interval '1 hour')`,
      [orderId, msgId, new Date(at), randomUUID()],
    );
    await payments.query(`INSERT INTO inbox VALUES ($1::uuid, now() - interval '1 hour')`, [msgId]);
    if (isCharged)
      await payments.query(
        `INSERT INTO charges VALUES (gen_random_uuid(), $1::uuid, 5, now() - interval '1 hour')`,
        [orderId],
      );
    return { orderId, msgId };
  };
  const charged = await insert(true);
  const statements: string[] = [];
  const paymentsPool = recording(payments, statements);
  expect(await compared({ ...settle, paymentsPool })).toMatchObject({
    holds: true,
    distinct_orders: COUNT + 1,
    distinct_charges: COUNT + 1,
    deltas: [],
  });
  const merges = statements.filter((sql) => sql.startsWith('DECLARE'));
  expect(merges.some((sql) => sql.includes('charges'))).toBe(true);
  expect(merges.filter((sql) => sql.includes('inbox'))).toEqual([]);
  const lost = await insert(false);
  expect(await compared(settle)).toMatchObject({
    distinct_orders: COUNT + 2,
    distinct_charges: COUNT + 1,
    deltas: [{ class: 'order_without_charge', ids: [lost.orderId] }],
  });
  await payments.query('DELETE FROM inbox WHERE msg_id = $1::uuid', [charged.msgId]);
  expect(await compared(settle)).toMatchObject({
    deltas: [
      { class: 'order_without_charge', ids: [lost.orderId] },
      { class: 'outbox_without_inbox', ids: [charged.msgId] },
    ],
  });
});

it('inbox rows below the floor have expired in the other database too', async () => {
  await payments.query('DELETE FROM inbox WHERE msg_id = ANY ($1::uuid[])', [[one(0).msgId, one(1).msgId]]);
  await payments.query('UPDATE inbox_floor SET floor = $1::uuid', [
    [one(1).msgId, one(2).msgId].sort()[1] as string,
  ]);
  try {
    expect(await compared()).toMatchObject({ holds: true, deltas: [] });
  } finally {
    await payments.query(`UPDATE inbox_floor SET floor = '00000000-0000-0000-0000-000000000000'`);
  }
  const { deltas } = await compared();
  expect(deltas).toMatchObject([{ class: 'outbox_without_inbox', count: 2 }]);
});

it('millrace reconcile connects to both databases, and names the address that it cannot reach', async () => {
  const flags = [`-postgres=${postgres}`, `-schema=${schema}`, '-payments-schema=public', '-json'];
  const clean = await reconciled([...flags, `-inbox-postgres=${url}`]);
  expect(clean.errors).toEqual([]);
  expect(clean.code).toBe(0);
  expect(JSON.parse(clean.stdout)).toMatchObject({ holds: true, distinct_charges: COUNT });
  const gone = await reconciled([...flags, '-inbox-postgres=postgres://me@127.0.0.1:1/none']);
  expect(gone.code).toBe(3);
  expect(gone.errors.join()).toContain('127.0.0.1:1');
});
