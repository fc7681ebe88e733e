/** Maintenance of orders: expired keys, and the other rows that a maintenance turn deletes. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { migrate } from '../../src/outbox/database/migrations.ts';
import { expireKeys } from '../../src/outbox/orders/write/keys.ts';
import { Maintenance } from '../../src/outbox/orders/write/maintenance.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, realClock } from '../wait.ts';
import { ALL, emptySchema, fixedTtl, options, put } from './orders-outbox-kit.ts';
import { writesWorld } from './orders-writes-kit.ts';

const stack = await sharedStack();
/** Time limit for a busy machine. */
const SLOW = { timeout: 300_000 };

describe('key expiry', () => {
  it('keys expire after their TTL, in chunks, while requests continue', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders } = await world.instance({ cacheBytes: 0 });
    await world.pool.query(
      `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body, created_at)
       SELECT gen_random_uuid()::text, '', gen_random_uuid(), 201, '{}', now() - (n % 2) * interval '40 days' FROM generate_series(1, 5000) n`,
    );
    const key = randomUUID();
    const ask = () => orders.create(key, { accountId: 1n, amountCents: 1n });
    const first = await ask();
    await world.pool.query(
      "UPDATE idempotency_keys SET created_at = now() - interval '31 days' WHERE idem_key = $1",
      [key],
    );
    const ttl = 30 * 86_400_000;
    let isDone = false;
    const asking = (async () => {
      while (!isDone) await orders.create(randomUUID(), { accountId: 1n, amountCents: 1n });
    })();
    const deleted: Array<number | undefined> = [];
    for (let i = 0; i < 4; i++) deleted.push(await expireKeys(options(world.pool, world.schema), ttl));
    isDone = true;
    await asking;
    expect(deleted).toEqual([1000, 1000, 501, 0]);
    const again = await ask();
    expect([again.replayed, again.orderId === first.orderId]).toEqual([false, false]);
    const { rows } = await world.pool.query<{ n: bigint }>(
      "SELECT count(*) AS n FROM idempotency_keys WHERE created_at < now() - interval '1 day'",
    );
    expect(rows).toEqual([{ n: 0n }]);
  });
});

describe('maintenance', () => {
  it('the maintenance runs by itself, reports its work in metrics, and continues after a failure', async () => {
    const { schema, pool } = await emptySchema();
    const metrics = new Metrics();
    const stop = new AbortController();
    const maintenance = new Maintenance({
      ...options(pool, schema),
      keyTtl: fixedTtl(1000),
      intervalMs: 5,
      metrics,
      log: silentLogger,
      monotonicMs: realClock.monotonicMs,
      sleep: pause,
      drain: stop.signal,
    });
    const value = (name: string): number =>
      metrics
        .snapshot()
        .find((one) => one.name === name)
        ?.samples.reduce((sum, one) => sum + (one.value ?? 0), 0) ?? Number.NaN;
    // The tables do not exist yet.
    const running = maintenance.run();
    await expect.poll(() => value('orders_maintenance_errors_total'), SLOW).toBeGreaterThan(0);
    await migrate(pool, schema, 'orders', ALL);
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    await expect.poll(() => value('orders_outbox_partitions_made_total'), SLOW).toBe(2);
    await pool.query(put(1001));
    await pool.query('UPDATE outbox SET published_at = now()');
    await pool.query(
      `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body, created_at)
       VALUES ('old', '', gen_random_uuid(), 201, '{}', now() - interval '1 hour')`,
    );
    await expect.poll(() => value('orders_outbox_partitions_dropped_total'), SLOW).toBe(2);
    await expect.poll(() => value('orders_keys_expired_total'), SLOW).toBe(1);
    expect(value('orders_key_ttl_seconds')).toBe(1);
    stop.abort();
    await running;
  });

  it('the maintenance deletes all expired rows in one turn, and retries soon after lock conflicts', async () => {
    const { schema, pool } = await emptySchema();
    await migrate(pool, schema, 'orders', ALL);
    const metrics = new Metrics();
    const maintenance = new Maintenance({
      ...options(pool, schema),
      keyTtl: fixedTtl(86_400_000),
      intervalMs: 5,
      metrics,
      log: silentLogger,
      // The clock stands still, so that no turn is cut short and no pause ends.
      monotonicMs: () => 0,
      sleep: pause,
      drain: new AbortController().signal,
    });
    const value = (name: string): number | undefined =>
      metrics.snapshot().find((one) => one.name === name)?.samples[0]?.value;
    await pool.query("SELECT setval('outbox_id_seq', 999999)");
    await pool.query(put(2500));
    await pool.query('UPDATE outbox SET published_at = now()');
    await pool.query(
      `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body, created_at)
       SELECT gen_random_uuid()::text, '', gen_random_uuid(), 201, '{}', now() - interval '2 days' FROM generate_series(1, 2500)`,
    );
    await pool.transaction(async (session) => {
      await session.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [
        `millrace.orders.maintenance.${schema}`,
      ]);
      expect(await maintenance.turn()).toBe(false);
    });
    expect(value('orders_keys_expired_total') ?? 0).toBe(0);
    expect(await maintenance.turn()).toBe(false);
    expect(value('orders_keys_expired_total')).toBe(2500);
    expect(value('orders_outbox_default_swept_total')).toBe(2500);
  });
});
