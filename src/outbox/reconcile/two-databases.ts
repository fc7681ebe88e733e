/** Comparison of orders in one database with payments in another.
 *
 *  Classes that one service decides alone are the queries of deltas.ts in its database. Classes
 *  between the two are comparisons of pairs (pairs/compare.ts): digests by bucket, and a merge of
 *  the rows of buckets that differ, so neither database gets the rows of the other and no set is in
 *  the memory of this process. The snapshots of the two databases are not one: that of orders is
 *  taken first, and the settle window covers what happened between them.
 */
import type { SqlPool, SqlSession } from '../../io/postgres/sql/port.ts';
import { isUuidV7 } from '../inbox/names.ts';
import { readAhead } from './ahead.ts';
import {
  byReason,
  type Counts,
  type Delta,
  exists,
  openComparison,
  type ReconcileOptions,
  type Reconciliation,
  readCounts,
  readDeltas,
} from './comparison.ts';
import { DELTA_CLASSES, type ReconcileRange, type Tables, tablesOf } from './deltas.ts';
import { inSchemas, ORDERS_TO_CHARGES, OUTBOX_TO_INBOX } from './orders-pairs.ts';
import { type CompareOptions, comparePair, type PairResult } from './pairs/compare.ts';
import type { PairFinding } from './pairs/findings.ts';
import type { MergedRow } from './pairs/merge.ts';
import { type PairConfig, readPair } from './pairs/pair.ts';
import { parkedLookup } from './parked.ts';
import {
  boundMs,
  type InboxBounds,
  type OrdersBounds,
  readInboxBounds,
  readOrdersBounds,
} from './retained.ts';

type TwoDatabases = ReconcileOptions & { readonly paymentsPool: SqlPool };

/** Bounds of the class of an inbox that no query of one database reads. */
const NO_INBOX: InboxBounds = { inboxFloor: '', inboxTimedFrom: '', inboxTimelessFrom: '' };
const NO_ORDERS: OrdersBounds = { keysFrom: '', outboxFrom: '', outboxDropped: false, outboxFromId: '' };

interface OrdersSide {
  readonly bounds: OrdersBounds;
  readonly tables: Tables;
  /** Orders that are dated ahead of the database's clock. */
  readonly ahead: ReadonlySet<string>;
  /** Counts without charges. */
  readonly counts: Counts;
  readonly deltas: readonly Delta[];
  readonly classes: readonly string[];
}

/** Runs one comparison.
 *  @throws table_unusable, unreachable, bad_file */
export async function compareTwoDatabases(
  options: TwoDatabases,
  range: ReconcileRange,
  comparisons: number,
): Promise<Reconciliation> {
  const side = await options.pool.transaction(async (session) => {
    await openComparison(session, options);
    return compareOrders(session, options, range);
  });
  const pairs = await comparePairs(options, side, range);
  const ofPayments = await options.paymentsPool.transaction((session) =>
    comparePayments(session, options, range),
  );
  const counts = { ...side.counts, distinct_charges: pairs.chargedOrders };
  const deltas = [...side.deltas, ...pairs.deltas, ...ofPayments.deltas];
  const equal =
    counts.produced_intents === counts.distinct_orders && counts.distinct_orders === counts.distinct_charges;
  const { lateAfterMs } = options;
  return {
    holds: equal && deltas.length === 0,
    intents_from: side.tables.hasLedger ? 'ledger' : 'idempotency_keys',
    ...counts,
    suppressed: ofPayments.suppressed,
    parked: ofPayments.parked,
    classes: [...side.classes, ...pairs.classes, ...ofPayments.classes],
    deltas,
    ...(lateAfterMs === undefined
      ? {}
      : { late: { after_ms: Math.trunc(lateAfterMs), count: pairs.late.count, ids: pairs.late.ids } }),
    from: range.from ?? null,
    to: range.to ?? null,
    comparisons,
  };
}

async function compareOrders(
  session: SqlSession,
  options: TwoDatabases,
  range: ReconcileRange,
): Promise<OrdersSide> {
  const { ordersSchema, paymentsSchema, ledgers, keyTtlMs } = options;
  const bounds = await readOrdersBounds(session, ordersSchema, keyTtlMs);
  const hasLedger = ledgers.length > 0;
  const state = { hasLedger, hasParked: false, retained: { ...bounds, ...NO_INBOX }, range };
  const ahead = await readAhead(session, tablesOf(ordersSchema, paymentsSchema, state));
  const tables = tablesOf(ordersSchema, paymentsSchema, { ...state, hasAhead: ahead.size > 0 });
  const classes = DELTA_CLASSES.filter((one) => one.of === 'orders' && (hasLedger || !one.needsLedger));
  return {
    bounds,
    tables,
    ahead,
    counts: await readCounts(session, tables, 'SELECT 0::bigint'),
    deltas: await readDeltas(session, tables, classes, new Set(), options),
    classes: classes.map((one) => one.name),
  };
}

async function comparePayments(session: SqlSession, options: TwoDatabases, range: ReconcileRange) {
  await openComparison(session, { ledgers: [] });
  const tables = tablesOf(options.ordersSchema, options.paymentsSchema, {
    hasLedger: false,
    hasParked: await exists(session, `${options.paymentsSchema}.payments_parked`),
    retained: { ...NO_ORDERS, ...NO_INBOX },
    range,
  });
  const hasSuppressed = await exists(session, tables.suppressed);
  const classes = DELTA_CLASSES.filter(
    (one) => one.of === 'payments' && (hasSuppressed || one.needsSuppressed !== true),
  );
  return {
    deltas: await readDeltas(session, tables, classes, new Set(), options),
    classes: classes.map((one) => one.name),
    suppressed: hasSuppressed ? await byReason(session, tables.suppressed) : {},
    parked: tables.hasParked ? await byReason(session, tables.parked) : {},
  };
}

interface Pairs {
  readonly deltas: readonly Delta[];
  readonly classes: readonly string[];
  readonly late: PairFinding;
  /** Orders with a charge, and charged orders that do not exist. */
  readonly chargedOrders: number;
}

async function comparePairs(options: TwoDatabases, side: OrdersSide, range: ReconcileRange): Promise<Pairs> {
  const pools = { left: options.pool, right: options.paymentsPool };
  const shared: CompareOptions = {
    range: { fromMs: msOf(range.from), toMs: msOf(range.to) },
    idsMax: options.idsMax,
    lateAfterMs: options.lateAfterMs,
  };
  const hasAhead = side.ahead.size > 0;
  const compared = async (config: PairConfig, more: Partial<CompareOptions>): Promise<PairResult> => {
    const placed = inSchemas(config, options.ordersSchema, options.paymentsSchema);
    return comparePair(await readPair(placed, pools), pools, { ...shared, ...more });
  };
  const charges = await compared(ORDERS_TO_CHARGES, {
    ...(hasAhead ? { ahead: side.ahead } : {}),
    setAside: await parkedLookup(options.paymentsPool, options.paymentsSchema),
  });
  const messages = await compared(OUTBOX_TO_INBOX, {
    hasIdsAhead: hasAhead,
    excuses: await excusesOf(options, side),
  });
  const deltas = [
    ...charges.deltas.map((one) => deltaOf(one, 'order_id')),
    ...messages.deltas.map((one) => deltaOf(one, 'msg_id')),
  ];
  for (const one of deltas) options.onCompared?.(one.class, one.count);
  return {
    deltas,
    classes: [ORDERS_TO_CHARGES, OUTBOX_TO_INBOX].flatMap(({ classes }) =>
      Object.values(classes).map(({ name }) => name),
    ),
    late: messages.late,
    chargedOrders: charges.matched + charges.extra,
  };
}

/** Rules by which rows of the outbox and the inbox expire (retained.ts), for rows in memory. */
async function excusesOf(options: TwoDatabases, side: OrdersSide): Promise<CompareOptions['excuses']> {
  const { paymentsPool, paymentsSchema } = options;
  const inbox = await readInboxBounds(paymentsPool, `${paymentsSchema}.inbox`);
  const floor = textOf(inbox.inboxFloor);
  const timedFromMs = await boundMs(paymentsPool, inbox.inboxTimedFrom);
  const timelessFromMs = await boundMs(paymentsPool, inbox.inboxTimelessFrom);
  const { outboxDropped, outboxFromId } = side.bounds;
  const firstId = textOf(outboxFromId);
  return {
    left: ({ id, ms }: MergedRow): boolean =>
      isUuidV7(id) ? id >= floor && ms >= timedFromMs : ms >= timelessFromMs,
    right: ({ id }: MergedRow): boolean => !outboxDropped || (isUuidV7(id) && id >= firstId),
  };
}

/** Text of the literal of a bound, such as `'…'::uuid`. */
const textOf = (literal: string): string => literal.slice(1, literal.lastIndexOf("'"));

const msOf = (time: string | undefined): number | undefined =>
  time === undefined ? undefined : Date.parse(time);

const deltaOf = (finding: PairFinding, idsOf: Delta['idsOf']): Delta => ({ ...finding, idsOf });
