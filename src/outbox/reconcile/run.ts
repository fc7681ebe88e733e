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
 *  and a remaining difference is a delta. No difference is hidden by its age.
 */

import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { requireTables } from '../database/migrations.ts';
import { requirePlainSchema } from '../database/schema-name.ts';
import { outboxError } from '../errors.ts';
import { ORDERS_TABLES } from '../orders/tables.ts';
import { DELTA_CLASSES, type DeltaClass, type ReconcileRange, type Tables, tablesOf } from './deltas.ts';
import { type LedgerEntries, loadLedgers } from './ledger.ts';
import { readRetainedBounds } from './retained.ts';

export interface ReconcileOptions {
  readonly pool: SqlPool;
  readonly ordersSchema: string;
  readonly paymentsSchema: string;
  /** Ledgers of the clients. Without any, the stored idempotency keys are the intents, plus each
   *  order whose key has expired. */
  readonly ledgers: readonly LedgerSource[];
  /** Age after which keys may have expired, ms, even if older keys remain. Default: the TTL in the
   *  database of orders. */
  readonly keyTtlMs?: number;
  /** Maximum number of ids listed for each class. */
  readonly idsMax: number;
  /** Only rows from this time on are compared. */
  readonly from?: Date;
  /** Only rows up to this time are compared. */
  readonly to?: Date;
  /** Longest time of an order in flight, from its commit to its charge, ms. 0 or absent: one
   *  comparison, of all rows. */
  readonly settleMs?: number;
  /** Waits for the rest of the settle window; required if settleMs > 0. */
  readonly wait?: (ms: number) => Promise<void>;
  readonly onEntry?: () => void;
  readonly onClass?: (name: string) => void;
  /** Called after a class was compared, with the number of its members. */
  readonly onCompared?: (name: string, count: number) => void;
}

/** Opens a ledger; called once for each comparison, because a ledger grows while its client runs.
 */
export type LedgerSource = () => LedgerEntries;

export interface Delta {
  readonly class: string;
  readonly meaning: string;
  readonly count: number;
  readonly idsOf: DeltaClass['ids'];
  /** First ids in the order of their text. */
  readonly ids: readonly string[];
}

export interface Reconciliation {
  readonly holds: boolean;
  readonly intents_from: 'ledger' | 'idempotency_keys';
  readonly produced_intents: number;
  readonly distinct_orders: number;
  readonly distinct_charges: number;
  /** Intents without an answer and without an order. 0 without a ledger. */
  readonly unanswered_intents: number;
  /** Intents with a final refusal and no order. 0 without a ledger. */
  readonly refused_intents: number;
  /** Orders so old that their key may have expired, and that have none: no deltas. */
  readonly expired_keys: number;
  /** Deliveries that charged nothing, by reason. Empty if payments has no such table. */
  readonly suppressed: Readonly<Record<string, number>>;
  /** Records that payments parked, by reason. */
  readonly parked: Readonly<Record<string, number>>;
  /** All compared classes. */
  readonly classes: readonly string[];
  /** Classes with members. */
  readonly deltas: readonly Delta[];
  /** Times of the compared rows; null: unbounded. */
  readonly from: string | null;
  readonly to: string | null;
  /** 2 if the first comparison found differences and rows that may have been in flight. */
  readonly comparisons: number;
}

const PAYMENTS_TABLES = ['inbox', 'charges'] as const;
/** work_mem of PostgreSQL, for each hash table of a comparison. */
const WORK_MEM = '256MB';

/** Runs the reconciliation.
 *  @throws tables_missing, bad_value, bad_option, bad_file, unreachable */
export async function reconcile(options: ReconcileOptions): Promise<Reconciliation> {
  const { pool, ordersSchema, paymentsSchema } = options;
  requirePlainSchema(ordersSchema);
  requirePlainSchema(paymentsSchema, '-payments-schema');
  await requireTables(pool, ordersSchema, ORDERS_TABLES, 'orders');
  await requireTables(pool, paymentsSchema, PAYMENTS_TABLES, 'payments');
  const { settleMs = 0, wait } = options;
  if (settleMs > 0 && wait === undefined)
    throw outboxError('bad_option', 'reconcile with settleMs needs the option wait', {
      next: 'give wait: (ms) => a promise that resolves after ms, or leave settleMs out',
    });
  const startMs = settleMs > 0 ? await databaseNowMs(pool) : Number.POSITIVE_INFINITY;
  const range = {
    from: options.from?.toISOString(),
    to: boundOf(Math.min(startMs, options.to?.getTime() ?? Number.POSITIVE_INFINITY)),
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

/** Runs one comparison in one snapshot. */
function compareOnce(
  options: ReconcileOptions,
  range: ReconcileRange,
  comparisons: number,
): Promise<Reconciliation> {
  const { pool, ordersSchema, paymentsSchema, ledgers } = options;
  return pool.transaction(async (session) => {
    // The isolation level applies to the whole transaction; its first statement that reads takes
    // the snapshot.
    await session.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    // Whole tables are compared. The planner would choose a nested loop only for lack of
    // statistics.
    await session.query('SET LOCAL enable_nestloop = off');
    // Each class is a few joins of whole tables: one hash in memory is faster than spilling.
    await session.query(`SET LOCAL work_mem = '${WORK_MEM}'`);
    if (ledgers.length > 0) {
      const opened = ledgers.map((open) => open());
      await loadLedgers(session, opened, options.onEntry ?? (() => {}));
    }
    const tables = tablesOf(ordersSchema, paymentsSchema, {
      hasLedger: ledgers.length > 0,
      hasParked: await exists(session, `${paymentsSchema}.payments_parked`),
      retained: await readRetainedBounds(session, ordersSchema, paymentsSchema, options.keyTtlMs),
      range,
    });
    const compared = await compare(session, tables, options);
    return { ...compared, from: range.from ?? null, to: range.to ?? null, comparisons };
  });
}

async function compare(
  session: SqlSession,
  tables: Tables,
  options: ReconcileOptions,
): Promise<Omit<Reconciliation, 'from' | 'to' | 'comparisons'>> {
  const counts = await readCounts(session, tables);
  const hasSuppressed = await exists(session, tables.suppressed);
  const classes = DELTA_CLASSES.filter(
    (one) =>
      (tables.hasLedger || !one.needsLedger) &&
      (hasSuppressed || one.needsSuppressed !== true) &&
      (tables.hasParked || one.needsParked !== true),
  );
  const suppressed = hasSuppressed ? await byReason(session, tables.suppressed) : {};
  const parked = tables.hasParked ? await byReason(session, tables.parked) : {};
  const deltas: Delta[] = [];
  for (const one of classes) {
    options.onClass?.(one.name);
    const { count, ids } = await readDelta(session, one.sql(tables), options.idsMax);
    options.onCompared?.(one.name, count);
    if (count > 0) deltas.push({ class: one.name, meaning: one.meaning, count, idsOf: one.ids, ids });
  }
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
  };
}

async function exists(session: SqlSession, table: string): Promise<boolean> {
  const { rows } = await session.query<{ found: boolean }>('SELECT to_regclass($1) IS NOT NULL AS found', [
    table,
  ]);
  return rows[0]?.found === true;
}

async function byReason(session: SqlSession, table: string): Promise<Record<string, number>> {
  const { rows } = await session.query<{ reason: string; n: bigint }>(
    `SELECT reason, count(*) AS n FROM ${table} GROUP BY reason ORDER BY reason`,
  );
  return Object.fromEntries(rows.map(({ reason, n }) => [reason, Number(n)]));
}

type Counts = Pick<
  Reconciliation,
  | 'produced_intents'
  | 'distinct_orders'
  | 'distinct_charges'
  | 'unanswered_intents'
  | 'refused_intents'
  | 'expired_keys'
>;

/** Condition: an intent or charge counts in the range of its order, because their own times differ
 *  by the latency between processes. */
const countedIn = (t: Tables, own: string): string =>
  // Without bounds, nothing refers to the join, so the planner drops it.
  t.range.from === undefined && t.range.to === undefined
    ? 'true'
    : `CASE WHEN o.order_id IS NULL THEN ${t.in(own)} ELSE ${t.in('o.created_at')} END`;

function intentsSql(t: Tables): string {
  if (!t.hasLedger) {
    return `count(*) AS produced, 0::bigint AS unanswered, 0::bigint AS refused
       FROM ${t.keys} k LEFT JOIN ${t.orders} o USING (order_id) WHERE ${countedIn(t, 'k.created_at')}`;
  }
  return `count(DISTINCT key) FILTER (WHERE done) AS produced, count(DISTINCT key) FILTER (WHERE NOT done AND refused = 0) AS unanswered,
       count(DISTINCT key) FILTER (WHERE NOT done AND refused > 0) AS refused
       FROM (SELECT l.key, l.refused, l.acknowledged > 0 OR (l.refused = 0 AND k.idem_key IS NOT NULL) AS done
             FROM ledger l LEFT JOIN ${t.keys} k ON k.idem_key = l.key LEFT JOIN ${t.orders} o USING (order_id)
             WHERE ${countedIn(t, 'l.sent_at')}) AS intents`;
}

async function readCounts(session: SqlSession, t: Tables): Promise<Counts> {
  const { rows } = await session.query<
    Record<'produced' | 'unanswered' | 'refused' | 'orders' | 'charges' | 'expired', bigint>
  >(
    `SELECT *, (SELECT count(*) FROM ${t.orders} o WHERE ${t.in('o.created_at')}) AS orders,
       (SELECT count(DISTINCT c.order_id) FROM ${t.charges} c LEFT JOIN ${t.orders} o USING (order_id)
          WHERE ${countedIn(t, 'c.created_at')}) AS charges,
       (SELECT count(*) FROM ${t.orders} o WHERE o.created_at < ${t.retained.keysFrom} AND ${t.in('o.created_at')}
          AND NOT EXISTS (SELECT FROM ${t.keys} k WHERE k.order_id = o.order_id)) AS expired
     FROM (SELECT ${intentsSql(t)}) AS counted`,
  );
  const row = rows[0];
  const expired = Number(row?.expired);
  return {
    // An expired key was an intent too.
    produced_intents: Number(row?.produced) + (t.hasLedger ? 0 : expired),
    distinct_orders: Number(row?.orders),
    distinct_charges: Number(row?.charges),
    unanswered_intents: Number(row?.unanswered),
    refused_intents: Number(row?.refused),
    expired_keys: expired,
  };
}

async function readDelta(
  session: SqlSession,
  sql: string,
  idsMax: number,
): Promise<{ readonly count: number; readonly ids: readonly string[] }> {
  const { rows } = await session.query<{ count: bigint; ids: readonly string[] }>(
    `WITH members AS MATERIALIZED (${sql})
     SELECT (SELECT count(*) FROM members) AS count, ARRAY(SELECT id FROM members ORDER BY id LIMIT $1) AS ids`,
    [idsMax],
  );
  const row = rows[0];
  return { count: Number(row?.count), ids: row?.ids ?? [] };
}
