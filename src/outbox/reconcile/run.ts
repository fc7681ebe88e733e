/** Reconciler: compares intents, orders and charges as sets in one snapshot of the database.
 *
 *  Invariants: (1) all classes and counts come from one REPEATABLE READ snapshot; (2) the invariant
 *  holds if no class has a member and the three counts are equal; (3) listed ids are bounded,
 *  counts are not. Ledgers are read first, so the orders that a client knows are committed before
 *  the snapshot. Source: spec/outbox.txt 1.8.
 *
 *  The settle window makes this usable under load. Rows younger than the first comparison are not
 *  compared. If that comparison finds a difference and some of its rows are younger than the
 *  window, the same rows are compared again after the window: orders in flight are then complete,
 *  and a remaining difference is a delta. No difference is hidden by its age, nor by the clock of
 *  the process that dates orders (ahead.ts).
 */

import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { requireTables } from '../database/migrations.ts';
import { requirePlainSchema } from '../database/schema-name.ts';
import { outboxError } from '../errors.ts';
import { ORDERS_TABLES } from '../orders/tables.ts';
import { hasAhead } from './ahead.ts';
import {
  byReason,
  type Counts,
  exists,
  type LateEffects,
  openComparison,
  type ReconcileOptions,
  type Reconciliation,
  readCounts,
  readDelta,
  readDeltas,
} from './comparison.ts';
import { DELTA_CLASSES, lateSql, type ReconcileRange, type Tables, tablesOf } from './deltas.ts';
import { type EmptyClasses, readEmptyClasses } from './digests.ts';
import { readRetainedBounds } from './retained.ts';
import { compareTwoDatabases } from './two-databases.ts';

export type { Delta, ReconcileOptions, Reconciliation } from './comparison.ts';

/** Tables of payments that a comparison reads. */
const PAYMENTS_TABLES = ['inbox', 'charges'] as const;

/** Runs the reconciliation.
 *  @throws tables_missing, bad_value, bad_option, bad_file, unreachable */
export async function reconcile(options: ReconcileOptions): Promise<Reconciliation> {
  const { pool, ordersSchema, paymentsSchema } = options;
  requirePlainSchema(ordersSchema);
  requirePlainSchema(paymentsSchema, '-payments-schema');
  await requireTables(pool, ordersSchema, ORDERS_TABLES, 'orders');
  await requireTables(options.paymentsPool ?? pool, paymentsSchema, PAYMENTS_TABLES, 'payments');
  const { settleMs = 0, wait } = options;
  if (settleMs > 0 && wait === undefined)
    throw outboxError('bad_option', 'reconcile with settleMs needs the option wait', {
      next: 'give wait: (ms) => a promise that resolves after ms, or leave settleMs out',
    });
  const startMs = settleMs > 0 ? await databaseNowMs(pool) : Number.POSITIVE_INFINITY;
  const toMs = options.to?.getTime() ?? Number.POSITIVE_INFINITY;
  const range = {
    from: options.from?.toISOString(),
    to: boundOf(Math.min(startMs, toMs)),
    ...(startMs < toMs ? { aheadTo: boundOf(toMs) ?? 'infinity' } : {}),
  };
  const first = await compareOnce(options, range, 1);
  if (first.holds || settleMs === 0 || wait === undefined) return first;
  const youngFromMs = startMs - settleMs;
  if (!(await hasYoungRows(pool, `${ordersSchema}.outbox`, youngFromMs, range.to))) return first;
  await wait(Math.max(0, startMs + settleMs - (await databaseNowMs(pool))));
  return compareOnce(options, range, 2);
}

const boundOf = (ms: number): string | undefined =>
  Number.isFinite(ms) ? new Date(ms).toISOString() : undefined;

async function databaseNowMs(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ ms: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
  );
  return (rows[0] as { ms: number }).ms;
}

/** True if an outbox row in the range is younger than this: its order may still be in flight. The
 *  database's clock sets `created_at` of the outbox, but not that of an order. */
async function hasYoungRows(
  pool: SqlPool,
  outbox: string,
  fromMs: number,
  to: string | undefined,
): Promise<boolean> {
  const { rows } = await pool.query<{ young: boolean }>(
    `SELECT EXISTS (SELECT FROM ${outbox} WHERE created_at > to_timestamp($1::float8 / 1000)
       AND ($2::text IS NULL OR created_at <= $2::text::timestamptz)) AS young`,
    [fromMs, to ?? null],
  );
  return rows[0]?.young === true;
}

/** Runs one comparison in one snapshot; with two databases, in one snapshot of each. */
function compareOnce(
  options: ReconcileOptions,
  range: ReconcileRange,
  comparisons: number,
): Promise<Reconciliation> {
  const { pool, ordersSchema, paymentsSchema, ledgers, paymentsPool } = options;
  if (paymentsPool !== undefined)
    return compareTwoDatabases({ ...options, paymentsPool }, range, comparisons);
  return pool.transaction(async (session) => {
    await openComparison(session, options);
    const state = {
      hasLedger: ledgers.length > 0,
      hasParked: await exists(session, `${paymentsSchema}.payments_parked`),
      retained: await readRetainedBounds(session, ordersSchema, paymentsSchema, options.keyTtlMs),
      range,
    };
    let tables = tablesOf(ordersSchema, paymentsSchema, state);
    let empty = await readEmptyClasses(session, tables, options.lateAfterMs);
    if (empty.hasOthers && (await hasAhead(session, tables))) {
      tables = tablesOf(ordersSchema, paymentsSchema, { ...state, hasAhead: true });
      empty = await readEmptyClasses(session, tables, options.lateAfterMs);
    }
    const compared = await compare(session, tables, empty, options);
    return { ...compared, from: range.from ?? null, to: range.to ?? null, comparisons };
  });
}

async function compare(
  session: SqlSession,
  tables: Tables,
  empty: EmptyClasses,
  options: ReconcileOptions,
): Promise<Omit<Reconciliation, 'from' | 'to' | 'comparisons'>> {
  const counts = empty.equal === undefined ? await readCounts(session, tables) : equalCounts(empty.equal);
  const hasSuppressed = await exists(session, tables.suppressed);
  const classes = DELTA_CLASSES.filter(
    (one) =>
      (tables.hasLedger || !one.needsLedger) &&
      (hasSuppressed || one.needsSuppressed !== true) &&
      (tables.hasParked || one.needsParked !== true),
  );
  const suppressed = hasSuppressed ? await byReason(session, tables.suppressed) : {};
  const parked = tables.hasParked ? await byReason(session, tables.parked) : {};
  const deltas = await readDeltas(session, tables, classes, empty.classes, options);
  const late = await readLate(session, tables, empty, options);
  const equal =
    counts.produced_intents === counts.distinct_orders && counts.distinct_orders === counts.distinct_charges;
  return {
    holds: equal && deltas.length === 0,
    intents_from: tables.hasLedger ? 'ledger' : 'idempotency_keys',
    ...counts,
    suppressed,
    parked,
    classes: classes.map((one) => one.name),
    deltas,
    ...(late === undefined ? {} : { late }),
  };
}

/** Counts of a run in which keys, orders and charges are equal sets of this size. */
const equalCounts = (size: number): Counts => ({
  produced_intents: size,
  distinct_orders: size,
  distinct_charges: size,
  unanswered_intents: 0,
  refused_intents: 0,
  expired_keys: 0,
});

async function readLate(
  session: SqlSession,
  tables: Tables,
  empty: EmptyClasses,
  { lateAfterMs, idsMax }: ReconcileOptions,
): Promise<LateEffects | undefined> {
  if (lateAfterMs === undefined) return undefined;
  const afterMs = Math.trunc(lateAfterMs);
  const found = empty.noneLate
    ? { count: 0, ids: [] }
    : await readDelta(session, lateSql(tables, afterMs), idsMax);
  return { after_ms: afterMs, ...found };
}
