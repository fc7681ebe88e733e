/** The reconciler on tables whose rows expire: keys, outbox partitions and inbox rows that were
 *  removed by age are no deltas; rows that are missing earlier are deltas. */

import { randomBytes, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { type Reconciliation, reconcile } from '../../src/outbox/reconcile/run.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock } from '../wait.ts';

const { postgres } = await sharedStack();

const found = (result: Reconciliation): Record<string, readonly string[]> =>
  Object.fromEntries(result.deltas.map((delta) => [delta.class, delta.ids]));

/** Returns a UUIDv7 with that time. */
function idAt(ms: number): string {
  const time = ms.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

describe('rows removed by rule', () => {
  const DAY_MS = 86_400_000;
  const other = `reconcile_kept_${randomBytes(5).toString('hex')}`;
  let own: SqlPool;
  beforeAll(async () => {
    own = await connectPool(postgres, { schema: other, name: 'reconcile test' });
    await createTables(own, other, 'orders', 'payments');
  });
  afterAll(async () => {
    await own.query(`DROP SCHEMA ${other} CASCADE`);
    await own.close();
  });

  /** Inserts an order that was charged at that time, with this outbox id, and returns its order
   *  id. */
  async function insertCharged(id: number, ms: number, msgId: string): Promise<string> {
    const orderId = idAt(ms);
    const at = new Date(ms);
    await own.query(`INSERT INTO orders VALUES ($1::uuid, 1, 5, 'created', $2)`, [orderId, at]);
    await own.query(`INSERT INTO idempotency_keys VALUES ($1, '\\x00', $2::uuid, 201, '{}', $3)`, [
      randomUUID(),
      orderId,
      at,
    ]);
    await own.query(
      `INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload, published_at, created_at)
       VALUES ($1, $2::uuid, $3::uuid, 'order.created.v1', '\\x00', $4, $4)`,
      [id, orderId, msgId, at],
    );
    await own.query('INSERT INTO inbox VALUES ($1::uuid, $2)', [msgId, at]);
    await own.query(`INSERT INTO charges VALUES (gen_random_uuid(), $1::uuid, 5, $2)`, [orderId, at]);
    return orderId;
  }
  const ask = (options: { readonly keyTtlMs?: number } = {}): Promise<Reconciliation> =>
    reconcile({ pool: own, ordersSchema: other, paymentsSchema: other, ledgers: [], idsMax: 10, ...options });
  const expire = (some: readonly (string | undefined)[]) =>
    own.query('DELETE FROM idempotency_keys WHERE order_id = ANY ($1::uuid[])', [some.map(String)]);

  it('dropped outbox partitions and expired inbox rows are no delta', async () => {
    const now = realClock.wallNowMs();
    await own.query('CREATE TABLE outbox_last PARTITION OF outbox FOR VALUES FROM (1000000) TO (2000000)');
    const days = [5, 4, 3, 2, 1];
    const orders: string[] = [];
    for (const [i, day] of days.entries()) {
      const ms = now - day * DAY_MS;
      orders.push(
        await insertCharged(i < 2 ? i + 1 : 1_000_000 + i, ms, i % 2 === 0 ? idAt(ms) : randomUUID()),
      );
    }
    expect(await ask()).toMatchObject({ holds: true, distinct_orders: 5, deltas: [] });

    // Drops the first partition of the outbox, and the inbox rows older than 3.5 days.
    await own.query('DROP TABLE outbox_p0');
    await own.query(`DELETE FROM inbox WHERE processed_at < to_timestamp($1::float8 / 1000)`, [
      now - 3.5 * DAY_MS,
    ]);
    await own.query('UPDATE inbox_floor SET floor = $1::uuid', [idAt(now - 3.5 * DAY_MS)]);
    expect(await ask()).toMatchObject({ holds: true, deltas: [] });
    await own.query(`DELETE FROM inbox WHERE processed_at < to_timestamp($1::float8 / 1000)`, [
      now - 2.5 * DAY_MS,
    ]);
    await own.query('UPDATE inbox_floor SET floor = $1::uuid', [idAt(now - 2.5 * DAY_MS)]);
    expect(await ask()).toMatchObject({ holds: true, deltas: [] });

    // A missing row that is younger than the floor is a delta.
    const [last, before] = [orders[4], orders[3]] as [string, string];
    await own.query(
      `DELETE FROM inbox WHERE msg_id = (SELECT msg_id FROM outbox WHERE aggregate_id = $1::uuid)`,
      [last],
    );
    expect(found(await ask())).toEqual({ charge_without_inbox: [last] });
    await own.query(`DELETE FROM outbox WHERE aggregate_id = ANY ($1::uuid[])`, [[last, before]]);
    expect(found(await ask())).toEqual({ order_without_outbox: [before, last].sort() });
  });

  it('expired keys are no delta, also in the minute before the oldest remaining key', async () => {
    await own.query('TRUNCATE orders, idempotency_keys, outbox, inbox, charges');
    const now = realClock.wallNowMs();
    const agesMs = [7200_000, 3610_000, 3600_000, 60_000];
    const orders: string[] = [];
    for (const [i, age] of agesMs.entries())
      orders.push(await insertCharged(1_100_000 + i, now - age, idAt(now - age)));
    expect((await ask()).holds).toBe(true);
    await expire(orders.slice(0, 2));
    expect(await ask()).toMatchObject({ holds: true, produced_intents: 4, expired_keys: 2, deltas: [] });
    await expire(orders.slice(3));
    expect(found(await ask())).toEqual({ ghost_order: [orders[3]] });
  });

  it('the TTL decides when keys expired in any order, so only younger missing keys are a delta', async () => {
    await own.query('TRUNCATE orders, idempotency_keys, outbox, inbox, charges');
    const now = realClock.wallNowMs();
    const keyTtlMs = 3600_000;
    const orders: string[] = [];
    for (const [i, age] of [7200_000, 7000_000, 6800_000, 3000_000, 60_000].entries())
      orders.push(await insertCharged(1_200_000 + i, now - age, idAt(now - age)));
    // The oldest key still exists: expiry works through a backlog page by page.
    await expire(orders.slice(1, 3));
    expect(found(await ask())).toEqual({ ghost_order: orders.slice(1, 3).sort() });
    expect(await ask({ keyTtlMs })).toMatchObject({
      holds: true,
      produced_intents: 5,
      expired_keys: 2,
      deltas: [],
    });
    // The orders service stores its TTL in the database.
    await own.query('INSERT INTO orders_key_ttl (ttl_ms) VALUES ($1)', [keyTtlMs]);
    expect(await ask()).toMatchObject({ holds: true, expired_keys: 2, deltas: [] });
    await expire([orders[3]]);
    for (const options of [{}, { keyTtlMs }]) {
      const result = await ask(options);
      expect(found(result)).toEqual({ ghost_order: [orders[3]] });
      expect(result.holds).toBe(false);
    }
  });
});
