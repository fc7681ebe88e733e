/** Classes of differences between intents of clients, orders and charges: one query each.
 *
 *  Every query returns the ids of one class and nothing else, so that the classes are sets, not
 *  counts. The temporary table `ledger` (ledger.ts) has one row for each intent of a client. Rows
 *  that expired by rule (keys by their TTL, outbox partitions by their retention, inbox rows by the
 *  redelivery horizon) are no deltas: see retained.ts. Each class checks the rows whose own time is
 *  in the range; the rows that they are compared with are not limited.
 */
import { isUuidV7Sql } from '../inbox/names.ts';
import { aheadSql } from './ahead.ts';
import type { RetainedBounds } from './retained.ts';

export interface DeltaClass {
  readonly name: string;
  /** Meaning of the class, in one sentence. */
  readonly meaning: string;
  /** Kind of the ids. */
  readonly ids: 'idempotency key' | 'order_id' | 'msg_id';
  /** Database whose tables alone decide the class; undefined: tables of both services. */
  readonly of?: 'orders' | 'payments';
  /** True if the class needs a client's ledger. */
  readonly needsLedger: boolean;
  /** True if the class needs payments' table of suppressed deliveries. */
  readonly needsSuppressed?: true;
  /** True if the class needs payments' table of parked records. */
  readonly needsParked?: true;
  sql(tables: Tables): string;
}

/** Table names for SQL, and the state that the queries depend on. */
export interface Tables {
  readonly orders: string;
  readonly keys: string;
  readonly outbox: string;
  readonly inbox: string;
  readonly charges: string;
  /** One row for each delivery that charged nothing. */
  readonly suppressed: string;
  /** One row for each parked record. */
  readonly parked: string;
  readonly hasParked: boolean;
  readonly hasLedger: boolean;
  readonly retained: RetainedBounds;
  readonly range: ReconcileRange;
  /** Returns the condition that this timestamp is in the range. */
  in(column: string): string;
  /** Returns the condition that a row of orders or of keys is in the range.
   *  @param row prefix of its columns, such as `o.` */
  inOrder(row?: string): string;
}

/** Bounds as timestamps in text, both inclusive; undefined: unbounded. */
export interface ReconcileRange {
  readonly from: string | undefined;
  readonly to: string | undefined;
  /** Bound of orders that are dated after `to` (ahead.ts), where `to` is the time of the database
   *  at the start. Absent: `to` is a bound of the user. */
  readonly aheadTo?: string;
}

function condition({ from, to }: ReconcileRange, column: string): string {
  const bounds = [
    from === undefined ? '' : `${column} >= '${from}'::timestamptz`,
    to === undefined ? '' : `${column} <= '${to}'::timestamptz`,
  ].filter((bound) => bound !== '');
  return bounds.length === 0 ? 'true' : `(${bounds.join(' AND ')})`;
}

export function tablesOf(
  ordersSchema: string,
  paymentsSchema: string,
  {
    hasLedger,
    hasParked,
    retained,
    range,
    hasAhead = false,
  }: Pick<Tables, 'hasLedger' | 'hasParked' | 'retained' | 'range'> & {
    /** True if orders are dated ahead of the database's clock. */
    readonly hasAhead?: boolean;
  },
): Tables {
  const tables = {
    orders: `${ordersSchema}.orders`,
    keys: `${ordersSchema}.idempotency_keys`,
    outbox: `${ordersSchema}.outbox`,
    inbox: `${paymentsSchema}.inbox`,
    charges: `${paymentsSchema}.charges`,
    suppressed: `${paymentsSchema}.payments_suppressed`,
    parked: `${paymentsSchema}.payments_parked`,
    hasParked,
    hasLedger,
    retained,
    range,
  };
  const ahead = hasAhead ? aheadSql(tables) : undefined;
  return {
    ...tables,
    in: (column) => condition(range, column),
    inOrder: (row = '') => {
      const inRange = condition(range, `${row}created_at`);
      return ahead === undefined ? inRange : `(${inRange} OR ${row}order_id IN (${ahead}))`;
    },
  };
}

/** Condition: the intent was acknowledged, or its outcome is unknown to the client. */
const MAY_EXIST = '(l.acknowledged > 0 OR l.refused = 0)';

const NOT_CHARGED = (t: Tables): string =>
  `NOT EXISTS (SELECT FROM ${t.charges} c WHERE c.order_id = o.order_id)`;
/** Condition: payments parked the order's record; its key is the order_id. */
const IS_PARKED = (t: Tables): string =>
  `EXISTS (SELECT FROM ${t.parked} p WHERE p.key = convert_to(o.order_id::text, 'UTF8'))`;

/** Class of the deliveries that the table of suppressed deliveries shows. */
export const CHARGE_ATTEMPTED_AGAIN = {
  name: 'charge_attempted_again',
  meaning:
    'an order whose second charge only the UNIQUE on charges.order_id prevented: its inbox row had expired',
} as const;

export const DELTA_CLASSES: readonly DeltaClass[] = [
  {
    name: 'lost_order',
    meaning: 'a key without an order, although its client got an answer or one is stored',
    ids: 'idempotency key',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT k.idem_key AS id FROM ${t.keys} k LEFT JOIN ${t.orders} o USING (order_id)
      WHERE o.order_id IS NULL AND ${t.inOrder('k.')}
      ${
        t.hasLedger
          ? `UNION SELECT l.key FROM ledger l LEFT JOIN ${t.keys} k ON k.idem_key = l.key
             WHERE l.acknowledged > 0 AND k.idem_key IS NULL AND l.sent_at >= ${t.retained.keysFrom}
               AND ${t.in('l.sent_at')}`
          : ''
      }`,
  },
  {
    name: 'ghost_order',
    meaning: 'an order that no client requested, or whose request was refused',
    ids: 'order_id',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT o.order_id::text AS id FROM ${t.orders} o WHERE o.created_at >= ${t.retained.keysFrom} AND ${t.inOrder('o.')} AND NOT EXISTS (
        SELECT FROM ${t.keys} k ${t.hasLedger ? `JOIN ledger l ON l.key = k.idem_key AND ${MAY_EXIST}` : ''}
        WHERE k.order_id = o.order_id)`,
  },
  {
    name: 'shared_order',
    meaning: 'one order for two keys',
    ids: 'order_id',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT order_id::text AS id FROM ${t.keys} GROUP BY order_id
      HAVING count(*) > 1 AND bool_or(${t.inOrder()})`,
  },
  {
    name: 'order_amount_differs',
    meaning: 'an order with another account or amount than its client sent',
    ids: 'order_id',
    of: 'orders',
    needsLedger: true,
    sql: (t) => `
      SELECT DISTINCT o.order_id::text AS id
      FROM ledger l JOIN ${t.keys} k ON k.idem_key = l.key JOIN ${t.orders} o USING (order_id)
      WHERE ${t.inOrder('o.')} AND ${MAY_EXIST} AND (l.account_id, l.amount_cents) IS DISTINCT FROM (o.account_id, o.amount_cents)`,
  },
  {
    name: 'order_without_outbox',
    meaning: 'an order without an outbox row',
    ids: 'order_id',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT o.order_id::text AS id FROM ${t.orders} o
      WHERE o.created_at >= ${t.retained.outboxFrom} AND ${t.inOrder('o.')}
        AND NOT EXISTS (SELECT FROM ${t.outbox} x WHERE x.aggregate_id = o.order_id)`,
  },
  {
    name: 'outbox_without_order',
    meaning: 'an outbox row of an order that does not exist',
    ids: 'msg_id',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT x.msg_id::text AS id FROM ${t.outbox} x
      WHERE ${t.in('x.created_at')} AND NOT EXISTS (SELECT FROM ${t.orders} o WHERE o.order_id = x.aggregate_id)`,
  },
  {
    name: 'pending_outbox',
    meaning: 'an outbox row that is not marked as published',
    ids: 'msg_id',
    of: 'orders',
    needsLedger: false,
    sql: (t) => `
      SELECT msg_id::text AS id FROM ${t.outbox} WHERE published_at IS NULL AND ${t.in('created_at')}`,
  },
  {
    name: 'order_without_charge',
    meaning: 'an order that was not charged and whose record is not parked',
    ids: 'order_id',
    needsLedger: false,
    sql: (t) => `
      SELECT o.order_id::text AS id FROM ${t.orders} o
      WHERE ${t.inOrder('o.')} AND ${NOT_CHARGED(t)}${t.hasParked ? ` AND NOT ${IS_PARKED(t)}` : ''}`,
  },
  {
    name: 'order_parked',
    meaning: 'an order that was not charged because payments parked its record (millrace payments -parked)',
    ids: 'order_id',
    needsLedger: false,
    needsParked: true,
    sql: (t) => `
      SELECT o.order_id::text AS id FROM ${t.orders} o
      WHERE ${t.inOrder('o.')} AND ${NOT_CHARGED(t)} AND ${IS_PARKED(t)}`,
  },
  {
    name: 'charge_without_order',
    meaning: 'a charge of an order that does not exist',
    ids: 'order_id',
    needsLedger: false,
    sql: (t) => `
      SELECT DISTINCT c.order_id::text AS id FROM ${t.charges} c
      WHERE ${t.in('c.created_at')} AND NOT EXISTS (SELECT FROM ${t.orders} o WHERE o.order_id = c.order_id)`,
  },
  {
    name: 'double_charge',
    meaning: 'an order that was charged more than once',
    ids: 'order_id',
    of: 'payments',
    needsLedger: false,
    sql: (t) => `
      SELECT order_id::text AS id FROM ${t.charges} GROUP BY order_id
      HAVING count(*) > 1 AND bool_or(${t.in('created_at')})`,
  },
  {
    name: 'charge_amount_differs',
    meaning: 'a charge of another amount than its order',
    ids: 'order_id',
    needsLedger: false,
    sql: (t) => `
      SELECT DISTINCT c.order_id::text AS id FROM ${t.charges} c JOIN ${t.orders} o USING (order_id)
      WHERE c.amount_cents IS DISTINCT FROM o.amount_cents AND ${t.in('c.created_at')}`,
  },
  {
    ...CHARGE_ATTEMPTED_AGAIN,
    ids: 'order_id',
    of: 'payments',
    needsLedger: false,
    needsSuppressed: true,
    sql: (t) => `
      SELECT DISTINCT order_id::text AS id FROM ${t.suppressed}
      WHERE reason = 'order_charged' AND ${t.in('seen_at')}`,
  },
  {
    name: 'charge_without_inbox',
    meaning: 'a charge without any of its messages in the inbox, though none is old enough to have expired',
    ids: 'order_id',
    needsLedger: false,
    sql: (t) => `
      WITH unseen AS MATERIALIZED (
        SELECT x.aggregate_id FROM ${t.outbox} x
        WHERE NOT EXISTS (SELECT FROM ${t.inbox} i WHERE i.msg_id = x.msg_id)),
      candidates AS MATERIALIZED (
        SELECT c.order_id, max(c.created_at) AS created_at FROM ${t.charges} c
        WHERE c.order_id IN (SELECT aggregate_id FROM unseen) AND ${t.in('c.created_at')} GROUP BY c.order_id),
      excused AS (
        SELECT x.aggregate_id FROM ${t.outbox} x JOIN candidates c ON c.order_id = x.aggregate_id
        WHERE EXISTS (SELECT FROM ${t.inbox} i WHERE i.msg_id = x.msg_id)
          OR CASE WHEN ${isUuidV7Sql('x.msg_id')} THEN x.msg_id < ${t.retained.inboxFloor}
                OR c.created_at < ${t.retained.inboxTimedFrom}
              ELSE c.created_at < ${t.retained.inboxTimelessFrom} END)
      SELECT order_id::text AS id FROM candidates c
      WHERE NOT EXISTS (SELECT FROM excused e WHERE e.aggregate_id = c.order_id)`,
  },
  {
    name: 'inbox_without_outbox',
    meaning: 'a processed message without an outbox row',
    ids: 'msg_id',
    needsLedger: false,
    sql: (t) => `
      SELECT i.msg_id::text AS id FROM ${t.inbox} i
      WHERE ${t.in('i.processed_at')} AND NOT EXISTS (SELECT FROM ${t.outbox} x WHERE x.msg_id = i.msg_id)
        ${t.retained.outboxDropped ? `AND ${isUuidV7Sql('i.msg_id')} AND i.msg_id >= ${t.retained.outboxFromId}` : ''}`,
  },
  {
    name: 'inbox_without_charge',
    meaning: 'a processed message without a charge',
    ids: 'msg_id',
    needsLedger: false,
    sql: (t) => `
      SELECT i.msg_id::text AS id FROM ${t.inbox} i JOIN ${t.outbox} x USING (msg_id)
      WHERE ${t.in('i.processed_at')} AND NOT EXISTS (SELECT FROM ${t.charges} c WHERE c.order_id = x.aggregate_id)`,
  },
  {
    name: 'differing_replies',
    meaning: 'a key whose final replies differ in status or body',
    ids: 'idempotency key',
    of: 'orders',
    needsLedger: true,
    sql: (t) => `
      SELECT l.key AS id FROM ledger l WHERE l.acknowledged > 0 AND ${t.in('l.sent_at')}
      GROUP BY l.key HAVING min(l.answer) IS DISTINCT FROM max(l.other_answer) OR max(l.refused) > 0`,
  },
  {
    name: 'reply_not_stored',
    meaning: 'a key whose client got another reply than the stored one',
    ids: 'idempotency key',
    of: 'orders',
    needsLedger: true,
    sql: (t) => `
      SELECT DISTINCT l.key AS id FROM ledger l JOIN ${t.keys} k ON k.idem_key = l.key
      WHERE l.acknowledged > 0 AND ${t.in('l.sent_at')} AND l.answer IS DISTINCT FROM
        k.response_code || ' ' || encode(sha256(convert_to(k.response_body::text, 'UTF8')), 'hex')`,
  },
];

/** Effects that exist, but whose message was processed later than the bound. They break nothing:
 *  decision 0077.
 *  @param lateAfterMs whole number */
export const lateSql = (t: Tables, lateAfterMs: number): string => `
  SELECT x.msg_id::text AS id FROM ${t.outbox} x JOIN ${t.inbox} i USING (msg_id)
  WHERE ${t.in('x.created_at')} AND i.processed_at - x.created_at > interval '1 millisecond' * ${lateAfterMs}`;
