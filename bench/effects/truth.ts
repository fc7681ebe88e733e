/** Checks of the database after a run, independent of the processes' counters. */
import { invariant } from '../../src/core/errors.ts';
import type { FaultTimes } from './load.ts';
import type { Database } from './world.ts';

interface Counts {
  readonly orders: number;
  readonly outbox: number;
  readonly outbox_ids: number;
  readonly keys: number;
  readonly deadlocks: number;
}

async function counts({ pool }: Pick<Database, 'pool'>): Promise<Counts> {
  const { rows } = await pool.query<{ readonly all: string }>(
    `SELECT json_build_object(
       'orders', (SELECT count(*) FROM orders),
       'outbox', (SELECT count(*) FROM outbox),
       'outbox_ids', (SELECT count(DISTINCT aggregate_id) FROM outbox),
       'keys', (SELECT count(*) FROM idempotency_keys),
       'deadlocks', (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()))::text AS all`,
  );
  return JSON.parse(rows[0]?.all as string) as Counts;
}

/** Checks that every intent has exactly one order, outbox row and key, and that there are no
 *  others. `preloaded` keys existed before. Returns the number of deadlocks that the server saw. */
export async function requireOrders(
  database: Database,
  intents: { readonly least: number; readonly most: number },
  preloaded = 0,
): Promise<number> {
  const { orders, outbox, outbox_ids, keys, deadlocks } = await counts(database);
  const seen = `orders ${orders}, outbox rows ${outbox} of ${outbox_ids} orders, keys ${keys - preloaded}, intents ${intents.least} to ${intents.most}`;
  invariant(
    orders === outbox && outbox === outbox_ids && orders === keys - preloaded,
    `one order, outbox row and key for each intent: ${seen}`,
  );
  invariant(orders >= intents.least && orders <= intents.most, `as many as intents: ${seen}`);
  return deadlocks;
}

/** Checks that every order has exactly one charge with its amount, and that there are no other
 *  charges. */
export async function requireCharges({ pool }: Pick<Database, 'pool'>): Promise<void> {
  const { rows } = await pool.query<{ readonly wrong: bigint; readonly orders: bigint }>(
    `SELECT count(*) FILTER (WHERE o.order_id IS NULL OR c.order_id IS NULL OR o.amount_cents <> c.amount_cents) AS wrong,
       count(o.order_id) AS orders
     FROM orders o FULL JOIN charges c USING (order_id)`,
  );
  const row = rows[0];
  invariant(row?.wrong === 0n, `orders and charges are the same: ${row?.wrong} of ${row?.orders} differ`);
}

/** Quantiles of the time from the commit of an order to that of its charge. */
export interface EffectTimes {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly rows: number;
}

/** Milliseconds from the commit of an order to the commit of its charge, for orders committed in a
 *  span of wall time, those in the time after a fault left out. Needs track_commit_timestamp. */
export async function commitToEffectMs(
  { pool }: Pick<Database, 'pool'>,
  fromMs: number,
  toMs: number,
  faults?: FaultTimes,
): Promise<EffectTimes> {
  const { rows } = await pool.query<{ readonly all: string }>(
    `WITH pairs AS MATERIALIZED (
       SELECT pg_xact_commit_timestamp(o.xmin) AS ordered, pg_xact_commit_timestamp(c.xmin) AS charged
       FROM orders o JOIN charges c USING (order_id)
     ), late AS (
       SELECT extract(epoch FROM charged - ordered) * 1000 AS ms FROM pairs
       CROSS JOIN LATERAL (SELECT extract(epoch FROM ordered) - $1::numeric / 1000 AS second) AS since
       WHERE ordered BETWEEN to_timestamp($1::float8 / 1000) AND to_timestamp($2::float8 / 1000)
         AND ($3::numeric IS NULL OR second < $3 OR mod(second, $3) >= $4::numeric)
     )
     SELECT json_build_object('rows', count(*), 'max', max(ms),
       'p50', percentile_disc(0.5) WITHIN GROUP (ORDER BY ms),
       'p99', percentile_disc(0.99) WITHIN GROUP (ORDER BY ms))::text AS all FROM late`,
    [fromMs, toMs, faults?.everySeconds ?? null, faults?.forSeconds ?? null],
  );
  return JSON.parse(rows[0]?.all as string) as EffectTimes;
}
