/** Parts of a comparison of whole tables: its options and result, the transaction that it runs in,
 *  and the reading of counts and classes. */
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import type { DeltaClass, Tables } from './deltas.ts';
import { type LedgerEntries, loadLedgers } from './ledger.ts';

/** work_mem of PostgreSQL, for each hash table of a comparison. */
const WORK_MEM = '256MB';

export interface ReconcileOptions {
  readonly pool: SqlPool;
  /** Database of inbox and charges, if it is another one. */
  readonly paymentsPool?: SqlPool;
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
  /** Effects that came later than this after their intent are listed as late, ms. Absent: lateness
   *  is not judged. */
  readonly lateAfterMs?: number;
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

/** Effects that exist, but came later than the bound. They break nothing. */
export interface LateEffects {
  readonly after_ms: number;
  readonly count: number;
  /** First msg_ids in the order of their text. */
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
  /** Absent if lateness was not judged. */
  readonly late?: LateEffects;
  /** Times of the compared rows; null: unbounded. */
  readonly from: string | null;
  readonly to: string | null;
  /** 2 if the first comparison found differences and rows that may have been in flight. */
  readonly comparisons: number;
}

/** Prepares a transaction for the comparison of whole tables, and loads the ledgers. */
export async function openComparison(
  session: SqlSession,
  { ledgers, onEntry }: Pick<ReconcileOptions, 'ledgers' | 'onEntry'>,
): Promise<void> {
  // The isolation level applies to the whole transaction; its first statement that reads takes
  // the snapshot.
  await session.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
  // Whole tables are compared. The planner would choose a nested loop only for lack of
  // statistics.
  await session.query('SET LOCAL enable_nestloop = off');
  // Each class is a few joins of whole tables: one hash in memory is faster than spilling.
  await session.query(`SET LOCAL work_mem = '${WORK_MEM}'`);
  if (ledgers.length === 0) return;
  const opened = ledgers.map((open) => open());
  await loadLedgers(session, opened, onEntry ?? (() => {}));
}

/** Reads the members of each class.
 *  @param empty classes that have no member, which are not read */
export async function readDeltas(
  session: SqlSession,
  tables: Tables,
  classes: readonly DeltaClass[],
  empty: ReadonlySet<string>,
  options: Pick<ReconcileOptions, 'idsMax' | 'onClass' | 'onCompared'>,
): Promise<Delta[]> {
  const deltas: Delta[] = [];
  for (const one of classes) {
    options.onClass?.(one.name);
    const { count, ids } = empty.has(one.name)
      ? { count: 0, ids: [] }
      : await readDelta(session, one.sql(tables), options.idsMax);
    options.onCompared?.(one.name, count);
    if (count > 0) deltas.push({ class: one.name, meaning: one.meaning, count, idsOf: one.ids, ids });
  }
  return deltas;
}

export async function exists(session: SqlSession, table: string): Promise<boolean> {
  const { rows } = await session.query<{ found: boolean }>('SELECT to_regclass($1) IS NOT NULL AS found', [
    table,
  ]);
  return rows[0]?.found === true;
}

export async function byReason(session: SqlSession, table: string): Promise<Record<string, number>> {
  const { rows } = await session.query<{ reason: string; n: bigint }>(
    `SELECT reason, count(*) AS n FROM ${table} GROUP BY reason ORDER BY reason`,
  );
  return Object.fromEntries(rows.map(({ reason, n }) => [reason, Number(n)]));
}

export type Counts = Pick<
  Reconciliation,
  | 'produced_intents'
  | 'distinct_orders'
  | 'distinct_charges'
  | 'unanswered_intents'
  | 'refused_intents'
  | 'expired_keys'
>;

/** Condition: an intent or charge counts in the range of its order, because their own times differ
 *  by the latency between processes.
 *  @param own condition of a row without an order */
const countedIn = (t: Tables, own: string): string =>
  // Without bounds, nothing refers to the join, so the planner drops it.
  t.range.from === undefined && t.range.to === undefined
    ? 'true'
    : `CASE WHEN o.order_id IS NULL THEN ${own} ELSE ${t.inOrder('o.')} END`;

function intentsSql(t: Tables): string {
  if (!t.hasLedger) {
    return `count(*) AS produced, 0::bigint AS unanswered, 0::bigint AS refused
       FROM ${t.keys} k LEFT JOIN ${t.orders} o USING (order_id) WHERE ${countedIn(t, t.inOrder('k.'))}`;
  }
  return `count(DISTINCT key) FILTER (WHERE done) AS produced, count(DISTINCT key) FILTER (WHERE NOT done AND refused = 0) AS unanswered,
       count(DISTINCT key) FILTER (WHERE NOT done AND refused > 0) AS refused
       FROM (SELECT l.key, l.refused, l.acknowledged > 0 OR (l.refused = 0 AND k.idem_key IS NOT NULL) AS done
             FROM ledger l LEFT JOIN ${t.keys} k ON k.idem_key = l.key LEFT JOIN ${t.orders} o USING (order_id)
             WHERE ${countedIn(t, t.in('l.sent_at'))}) AS intents`;
}

const chargesSql = (t: Tables): string => `
  SELECT count(DISTINCT c.order_id) FROM ${t.charges} c LEFT JOIN ${t.orders} o USING (order_id)
  WHERE ${countedIn(t, t.in('c.created_at'))}`;

/** @param charges statement of the number of charged orders; absent: that of this database */
export async function readCounts(session: SqlSession, t: Tables, charges?: string): Promise<Counts> {
  const { rows } = await session.query<
    Record<'produced' | 'unanswered' | 'refused' | 'orders' | 'charges' | 'expired', bigint>
  >(
    `SELECT *, (SELECT count(*) FROM ${t.orders} o WHERE ${t.inOrder('o.')}) AS orders,
       (${charges ?? chargesSql(t)}) AS charges,
       (SELECT count(*) FROM ${t.orders} o WHERE o.created_at < ${t.retained.keysFrom} AND ${t.inOrder('o.')}
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

/** Counts the members of a class and reads the first ids. */
export async function readDelta(
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
