/** Buckets of the deliveries to payments that charged nothing. An order whose second charge only
 *  the UNIQUE on charges.order_id prevented is a delta: its inbox row was missing, and the tables
 *  of charges and orders agree, so no comparison of pairs shows it.
 *
 *  A bucket is a range of the primary key, found by its first time (rows-by-time.ts), so that no
 *  further index is needed. Adjacent buckets have adjacent ranges: each row is in one bucket,
 *  whatever its own time.
 */
import type { SqlPool } from '../../../io/postgres/sql/port.ts';
import { exists } from '../comparison.ts';
import { CHARGE_ATTEMPTED_AGAIN } from '../deltas.ts';
import type { PairFinding } from '../pairs/findings.ts';
import { LATE } from '../pairs/pair.ts';
import { epochMs, readSide } from '../pairs/side.ts';
import type { BucketResult, TimeBuckets } from './bucket.ts';
import { RowsByTime, type TimeSpan } from './rows-by-time.ts';
import type { WatchedPair } from './run.ts';

const TABLE = 'payments_suppressed';
/** Deltas of a bucket. */
const AGAIN = `reason = 'order_charged'`;
const NONE_LATE: PairFinding = { class: LATE.name, meaning: LATE.meaning, count: 0, ids: [] };

export class SuppressedBuckets implements TimeBuckets {
  private readonly pool: SqlPool;
  private readonly rows: RowsByTime;
  private readonly idsMax: number;

  private constructor(pool: SqlPool, rows: RowsByTime, idsMax: number) {
    this.pool = pool;
    this.rows = rows;
    this.idsMax = idsMax;
  }

  /** Returns the buckets as a pair of a watch. Undefined: payments has no such table.
   *  @param pool database of payments
   *  @param schema plain name
   *  @param idsMax ids listed for a bucket
   *  @throws table_unusable, unreachable */
  static async open(pool: SqlPool, schema: string, idsMax: number): Promise<WatchedPair | undefined> {
    const table = `${schema}.${TABLE}`;
    if (!(await exists(pool, table))) return undefined;
    const config = { table, id: 'id', time: 'seen_at' };
    const rows = new RowsByTime(pool, await readSide(pool, config, 'the suppressed deliveries of payments'));
    return {
      name: TABLE,
      classes: { extra: CHARGE_ATTEMPTED_AGAIN },
      buckets: new SuppressedBuckets(pool, rows, idsMax),
    };
  }

  async nowMs(): Promise<number> {
    const { rows } = await this.pool.query<{ ms: number }>(`SELECT ${epochMs('clock_timestamp()')} AS ms`);
    return (rows[0] as { ms: number }).ms;
  }

  /** Rows that show a second attempt never expire. */
  retainedFromMs(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  async nextMs(ms: number): Promise<number> {
    const { table, id, time } = this.rows.side;
    const { rows } = await this.pool.query<{ ms: number }>(
      `SELECT ${epochMs(time)} AS ms FROM ${table.sql} WHERE ${id} >= $1::bigint ORDER BY ${id} LIMIT 1`,
      [await this.rows.idAt(ms)],
    );
    return rows[0] === undefined ? Number.POSITIVE_INFINITY : Math.max(ms, rows[0].ms);
  }

  async compare({ fromMs, toMs }: TimeSpan): Promise<BucketResult> {
    const { table, id } = this.rows.side;
    const range = [await this.rows.idAt(fromMs), await this.rows.idAt(toMs)];
    const where = `${id} >= $1::bigint AND ${id} < $2::bigint`;
    const { rows } = await this.pool.query<{ n: bigint; again: bigint }>(
      `SELECT count(*) AS n, count(DISTINCT order_id) FILTER (WHERE ${AGAIN}) AS again
       FROM ${table.sql} WHERE ${where}`,
      range,
    );
    const { n = 0n, again = 0n } = rows[0] ?? {};
    const { name, meaning } = CHARGE_ATTEMPTED_AGAIN;
    const deltas: PairFinding[] = [];
    if (again > 0n) {
      const { rows: first } = await this.pool.query<{ id: string }>(
        `SELECT DISTINCT order_id::text AS id FROM ${table.sql} WHERE ${where} AND ${AGAIN} ORDER BY 1 LIMIT $3::int`,
        [...range, this.idsMax],
      );
      deltas.push({ class: name, meaning, count: Number(again), ids: first.map((one) => one.id) });
    }
    return { left: Number(n), right: 0, deltas, late: NONE_LATE };
  }
}
