/** The PostgreSQL sink: COPY into a temporary staging table, then one INSERT ... ON CONFLICT.
 *
 *  An existing row with the same values is not updated, so a replay writes no dead tuple and no
 *  WAL. account_id is unsigned and stored bit for bit in an int8; a view converts it to a number.
 */
import type { SqlPool, SqlRow, SqlValue } from '../../../io/postgres/sql/port.ts';
import { engineError } from '../../errors.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import type { WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';

const KEY = ['account_id', 'window_start', 'window_end'];
const VALUES = ['count', 'sum', 'min', 'max', 'last_update_ts', 'overflow'];
const COLUMNS = [...KEY, ...VALUES];
/** Rows of a page of `read`. */
const PAGE_ROWS = 20_000;
/** Rows of one transaction. */
const WRITE_ROWS_MAX = 50_000;
const TWO_64 = 1n << 64n;
const INT8_MIN = -(1n << 63n);

export const SINK_TABLE_NAME = /^[a-z_][a-z0-9_]{0,47}$/;

interface ResultRow extends SqlRow {
  readonly account_id: bigint;
  readonly window_start: bigint;
  readonly window_end: bigint;
  readonly count: bigint;
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
  readonly last_update_ts: bigint;
  readonly overflow: boolean;
}

/** Yields the cells of each row in one reused array: COPY converts a row to text before it requests
 *  the next. */
function* cells(pages: readonly FiredPage[]): Iterable<readonly SqlValue[]> {
  const row: SqlValue[] = new Array(COLUMNS.length).fill(null);
  for (const page of pages) {
    const rows = new ResultRows(page);
    for (let at = 0; at < rows.rowCount; at++) {
      row[0] = rows.accountIdBits(at);
      row[1] = rows.windowStart(at);
      row[2] = rows.windowEnd(at);
      row[3] = BigInt.asIntN(64, rows.count(at));
      row[4] = rows.sum(at);
      row[5] = rows.min(at);
      row[6] = rows.max(at);
      row[7] = rows.lastUpdateTs(at);
      row[8] = rows.overflow(at);
      yield row;
    }
  }
}

function toResult(row: ResultRow): WindowResult {
  return {
    accountId: BigInt.asUintN(64, row.account_id),
    windowStart: Number(row.window_start),
    windowEnd: Number(row.window_end),
    count: BigInt.asUintN(64, row.count),
    sum: row.sum,
    min: row.min,
    max: row.max,
    lastUpdateTs: row.last_update_ts,
    overflow: row.overflow,
  };
}

/** Sink of results in a PostgreSQL table, one row for each key and window: an upsert of the same
 *  result changes nothing.
 */
export class PostgresSink implements WindowSink {
  readonly name = 'postgres';
  readonly writeRowsMax = WRITE_ROWS_MAX;
  private readonly pool: SqlPool;
  private readonly table: string;
  private readonly stage: string;
  private readonly insert: string;

  /** @param table name that matches SINK_TABLE_NAME */
  constructor(pool: SqlPool, table: string) {
    this.pool = pool;
    this.table = table;
    this.stage = `${table}_stage`;
    const tuple = (prefix: string): string => VALUES.map((column) => `${prefix}.${column}`).join(', ');
    this.insert = `INSERT INTO ${table} AS t (${COLUMNS.join(', ')}) SELECT ${COLUMNS.join(', ')} FROM ${this.stage}
      ON CONFLICT (${KEY.join(', ')}) DO UPDATE SET ${VALUES.map((column) => `${column} = excluded.${column}`).join(', ')}
      WHERE (${tuple('t')}) IS DISTINCT FROM (${tuple('excluded')})`;
  }

  async migrate(): Promise<void> {
    await this.pool.transaction(async (session) => {
      // Serializes concurrent migrations: two concurrent CREATE TABLE statements would conflict in
      // the catalog.
      await session.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`millrace:${this.table}`]);
      await session.query(`CREATE TABLE IF NOT EXISTS ${this.table} (
        account_id int8 NOT NULL, window_start int8 NOT NULL, window_end int8 NOT NULL,
        count int8 NOT NULL, sum int8 NOT NULL, min int8 NOT NULL, max int8 NOT NULL,
        last_update_ts int8 NOT NULL, overflow bool NOT NULL,
        PRIMARY KEY (account_id, window_start, window_end))`);
      await session.query(`CREATE OR REPLACE VIEW ${this.table}_unsigned AS SELECT
        CASE WHEN account_id < 0 THEN account_id::numeric + ${TWO_64} ELSE account_id::numeric END AS account_id,
        window_start, window_end, count, sum, min, max, last_update_ts, overflow FROM ${this.table}`);
    });
  }

  async check(): Promise<void> {
    try {
      await this.pool.query(`SELECT ${COLUMNS.join(', ')} FROM ${this.table} LIMIT 0`);
    } catch (thrown) {
      const sqlstate = (thrown as { details?: { sqlstate?: unknown } }).details?.sqlstate;
      if (sqlstate !== '42P01' && sqlstate !== '42703') throw thrown;
      throw engineError(
        'sink_missing',
        `the sink has no table ${this.table} with the columns of a window result`,
        {
          next: 'run the engine with -migrate once',
          cause: thrown,
        },
      );
    }
  }

  async write(pages: readonly FiredPage[]): Promise<void> {
    await this.pool.transaction(async (session) => {
      await session.query(
        `CREATE TEMP TABLE IF NOT EXISTS ${this.stage} (LIKE ${this.table}) ON COMMIT DELETE ROWS`,
      );
      await session.copyIn(this.stage, COLUMNS, cells(pages));
      await session.query(this.insert);
    });
  }

  async *read(): AsyncIterable<readonly WindowResult[]> {
    // Unsigned order: keys that are not negative as int8 come first.
    for (const [first, bound] of [
      [0n, 'account_id >= 0'],
      [INT8_MIN, 'account_id < 0'],
    ] as const) {
      let after: readonly [bigint, bigint, bigint] | undefined;
      for (;;) {
        const { rows } = await this.pool.query<ResultRow>(
          `SELECT ${COLUMNS.join(', ')} FROM ${this.table}
           WHERE ${bound} AND (${after === undefined ? '(account_id, window_start, window_end) >= ($1, $2, $3)' : '(account_id, window_start, window_end) > ($1, $2, $3)'})
           ORDER BY account_id, window_start, window_end LIMIT ${PAGE_ROWS}`,
          [...(after ?? [first, INT8_MIN, INT8_MIN])],
        );
        if (rows.length > 0) yield rows.map(toResult);
        if (rows.length < PAGE_ROWS) break;
        const last = rows.at(-1) as ResultRow;
        after = [last.account_id, last.window_start, last.window_end];
      }
    }
  }
}
