/** Orders that are dated ahead of the database's clock.
 *
 *  The process that writes orders dates them and their keys by its own clock; the database dates
 *  every other row. With a settle window, rows up to the database's time at the start are compared,
 *  so an order of a clock that is ahead would be left out of each run until its date has passed.
 *  Such an order is judged by its outbox row, which the same transaction wrote. A key without an
 *  order, and an order without an outbox row, are differences at any age.
 */
import type { SqlSession } from '../../io/postgres/sql/port.ts';

/** Names of tables, and the range of deltas.ts. */
interface AheadTables {
  readonly orders: string;
  readonly keys: string;
  readonly outbox: string;
  readonly range: { readonly to: string | undefined; readonly aheadTo?: string };
  readonly retained: { readonly outboxDropped: boolean };
}

/** Statement of the ids of these orders; undefined where the range ends at a time of the user. */
export function aheadSql({ orders, keys, outbox, range, retained }: AheadTables): string | undefined {
  const { to, aheadTo } = range;
  if (to === undefined || aheadTo === undefined) return undefined;
  const isAhead = (time: string): string => `${time} > '${to}'::timestamptz AND ${time} <= '${aheadTo}'`;
  // The outbox row of an old order may have expired.
  const hasNone = retained.outboxDropped ? '' : ' OR ahead_row.id IS NULL';
  return `SELECT ahead_order.order_id FROM ${orders} AS ahead_order
      LEFT JOIN ${outbox} AS ahead_row ON ahead_row.aggregate_id = ahead_order.order_id
    WHERE ${isAhead('ahead_order.created_at')}
      AND (ahead_row.created_at <= '${to}'::timestamptz${hasNone})
    UNION ALL SELECT ahead_key.order_id FROM ${keys} AS ahead_key
    WHERE ${isAhead('ahead_key.created_at')}
      AND NOT EXISTS (SELECT FROM ${orders} AS known WHERE known.order_id = ahead_key.order_id)`;
}

/** True if such orders or keys exist. */
export async function hasAhead(session: SqlSession, tables: AheadTables): Promise<boolean> {
  const sql = aheadSql(tables);
  if (sql === undefined) return false;
  const { rows } = await session.query<{ found: boolean }>(`SELECT EXISTS (${sql}) AS found`);
  return rows[0]?.found === true;
}

/** Reads the ids of these orders; their number is bounded by how far the clock is ahead. */
export async function readAhead(session: SqlSession, tables: AheadTables): Promise<ReadonlySet<string>> {
  const sql = aheadSql(tables);
  if (sql === undefined) return new Set();
  const { rows } = await session.query<{ id: string }>(`SELECT order_id::text AS id FROM (${sql}) AS ahead`);
  return new Set(rows.map(({ id }) => id));
}
