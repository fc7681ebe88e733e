/** The PostgreSQL sink: COPY into a temporary staging table, then one INSERT ... ON CONFLICT.
 *
 *  An existing row with the same values is not updated, so a replay writes no dead tuple and no
 *  WAL. An integer key is the column account_id: it is unsigned and stored bit for bit in an int8,
 *  and a view converts it to a number. Other keys have a column for each part. */
import type { SqlPool, SqlRow, SqlValue } from '../../../io/postgres/sql/port.ts';
import { engineError } from '../../errors.ts';
import type { KeyType } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import { columnsOf, KeyColumns, quoted } from './key-columns.ts';
import type { WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';

const BOUNDS = ['window_start', 'window_end'];
const VALUES = ['count', 'sum', 'min', 'max', 'last_update_ts', 'overflow'];
/** Definitions of the columns beside the key. */
const DEFINITIONS = `window_start int8 NOT NULL, window_end int8 NOT NULL,
        count int8 NOT NULL, sum int8 NOT NULL, min int8 NOT NULL, max int8 NOT NULL,
        last_update_ts int8 NOT NULL, overflow bool NOT NULL`;
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
function* cells(pages: readonly FiredPage[], keys: KeyColumns | undefined): Iterable<readonly SqlValue[]> {
  const keyCells = keys?.names.length ?? 1;
  const row: SqlValue[] = new Array(keyCells + BOUNDS.length + VALUES.length).fill(null);
  for (const page of pages) {
    const rows = new ResultRows(page);
    for (let at = 0; at < rows.rowCount; at++) {
      if (keys === undefined) row[0] = rows.accountIdBits(at);
      else for (const [i, value] of keys.values(rows.key(at)).entries()) row[i] = value;
      let cell = keyCells;
      row[cell++] = rows.windowStart(at);
      row[cell++] = rows.windowEnd(at);
      row[cell++] = BigInt.asIntN(64, rows.count(at));
      row[cell++] = rows.sum(at);
      row[cell++] = rows.min(at);
      row[cell++] = rows.max(at);
      row[cell++] = rows.lastUpdateTs(at);
      row[cell++] = rows.overflow(at);
      yield row;
    }
  }
}

function toResult(row: ResultRow, keys: KeyColumns | undefined): WindowResult {
  return {
    accountId: keys === undefined ? BigInt.asUintN(64, row.account_id) : 0n,
    ...(keys === undefined ? {} : { key: keys.key(row) }),
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
  /** False until `bind`: the columns of the key are not known. */
  private isBound: boolean;
  /** Columns of a key that is no integer. */
  private keys: KeyColumns | undefined;

  /** @param table name that matches SINK_TABLE_NAME
   *  @param isBound false: `bind` sets the type of the keys later; until then `migrate` only checks
   *  that the server answers, and `check` leaves the key columns out */
  constructor(pool: SqlPool, table: string, isBound = true) {
    this.pool = pool;
    this.table = table;
    this.stage = `${table}_stage`;
    this.isBound = isBound;
  }

  get keyType(): KeyType | undefined {
    return this.keys?.type;
  }

  async bind(type: KeyType | undefined): Promise<void> {
    this.isBound = true;
    this.keys = type === undefined ? undefined : new KeyColumns(type);
  }

  /** Names of the key columns as SQL needs them. */
  private get keyNames(): readonly string[] {
    if (!this.isBound) return [];
    return this.keys?.names.map(quoted) ?? ['account_id'];
  }

  private get columns(): readonly string[] {
    return [...this.keyNames, ...BOUNDS, ...VALUES];
  }

  private get insert(): string {
    const columns = this.columns.join(', ');
    const tuple = (prefix: string): string => VALUES.map((column) => `${prefix}.${column}`).join(', ');
    return `INSERT INTO ${this.table} AS t (${columns}) SELECT ${columns} FROM ${this.stage}
      ON CONFLICT (${[...this.keyNames, ...BOUNDS].join(', ')}) DO UPDATE SET ${VALUES.map((column) => `${column} = excluded.${column}`).join(', ')}
      WHERE (${tuple('t')}) IS DISTINCT FROM (${tuple('excluded')})`;
  }

  async migrate(): Promise<void> {
    if (!this.isBound) {
      await this.pool.query('SELECT 1');
      return;
    }
    const { keys, table } = this;
    await this.pool.transaction(async (session) => {
      // Serializes concurrent migrations: two concurrent CREATE TABLE statements would conflict in
      // the catalog.
      await session.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`millrace:${table}`]);
      await session.query(`CREATE TABLE IF NOT EXISTS ${table} (
        ${keys?.definitions ?? 'account_id int8 NOT NULL'}, ${DEFINITIONS},
        PRIMARY KEY (${[...this.keyNames, ...BOUNDS].join(', ')}))`);
      if (keys === undefined && (await columnsOf(session, table)) === undefined)
        await session.query(`CREATE OR REPLACE VIEW ${table}_unsigned AS SELECT
        CASE WHEN account_id < 0 THEN account_id::numeric + ${TWO_64} ELSE account_id::numeric END AS account_id,
        window_start, window_end, count, sum, min, max, last_update_ts, overflow FROM ${table}`);
    });
  }

  async check(): Promise<void> {
    const { table, keys } = this;
    try {
      await this.pool.query(`SELECT ${this.columns.join(', ')} FROM ${table} LIMIT 0`);
    } catch (thrown) {
      const sqlstate = (thrown as { details?: { sqlstate?: unknown } }).details?.sqlstate;
      if (sqlstate !== '42P01' && sqlstate !== '42703') throw thrown;
      throw this.missing(`the sink has no table ${table} with the columns of a window result`, thrown);
    }
    if (keys === undefined) return;
    const found = await columnsOf(this.pool, table);
    if (found?.toString() === keys.toString()) return;
    throw this.missing(`the key of table ${table} is not (${keys})`);
  }

  private missing(what: string, cause?: unknown): Error {
    const key = this.keys === undefined ? '' : `, with the key columns (${this.keys})`;
    return engineError('sink_missing', `${what}${cause === undefined ? '' : key}`, {
      next:
        this.keys === undefined
          ? 'run the engine with -migrate once'
          : 'run the engine with -migrate once, with a -sink-table that does not exist yet',
      ...(cause === undefined ? {} : { cause }),
    });
  }

  async write(pages: readonly FiredPage[]): Promise<void> {
    await this.pool.transaction(async (session) => {
      await session.query(
        `CREATE TEMP TABLE IF NOT EXISTS ${this.stage} (LIKE ${this.table}) ON COMMIT DELETE ROWS`,
      );
      const names = [...(this.keys?.names ?? ['account_id']), ...BOUNDS, ...VALUES];
      await session.copyIn(this.stage, names, cells(pages, this.keys));
      await session.query(this.insert);
    });
  }

  async *read(): AsyncIterable<readonly WindowResult[]> {
    this.keys = await columnsOf(this.pool, this.table);
    this.isBound = true;
    if (this.keys !== undefined) {
      yield* this.readRange(this.keys, undefined, []);
      return;
    }
    // Unsigned order: keys that are not negative as int8 come first.
    for (const [first, bound] of [
      [0n, 'account_id >= 0'],
      [INT8_MIN, 'account_id < 0'],
    ] as const)
      yield* this.readRange(undefined, bound, [first, INT8_MIN, INT8_MIN]);
  }

  /** Reads rows in the order of the primary key, page by page. @param from first key; empty: any */
  private async *readRange(
    keys: KeyColumns | undefined,
    bound: string | undefined,
    from: readonly SqlValue[],
  ): AsyncIterable<readonly WindowResult[]> {
    const key = [...this.keyNames, ...BOUNDS].join(', ');
    let after = from;
    for (let isFirst = true; ; isFirst = false) {
      const marks = after.map((_, at) => `$${at + 1}`).join(', ');
      const position = after.length === 0 ? [] : [`(${key}) ${isFirst ? '>=' : '>'} (${marks})`];
      const conditions = [...(bound === undefined ? [] : [bound]), ...position];
      const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
      const { rows } = await this.pool.query<ResultRow>(
        `SELECT ${this.columns.join(', ')} FROM ${this.table} ${where} ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
        [...after],
      );
      if (rows.length > 0) yield rows.map((row) => toResult(row, keys));
      if (rows.length < PAGE_ROWS) break;
      const last = rows.at(-1) as ResultRow;
      after = [...(keys?.names ?? ['account_id']), ...BOUNDS].map((name) => last[name] as SqlValue);
    }
  }
}
