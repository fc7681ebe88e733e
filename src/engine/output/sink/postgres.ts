/** The PostgreSQL sink: COPY into a temporary staging table, then one INSERT ... ON CONFLICT.
 *
 *  An existing row with the same values is not updated, so a replay writes no dead tuple and no
 *  WAL. The columns are those of the job's results (output/columns.ts), in the layout of the table
 *  (table.ts). */
import type { Logger } from '../../../core/log.ts';
import type { SqlPool, SqlSession, SqlValue } from '../../../io/postgres/sql/port.ts';
import { engineError } from '../../errors.ts';
import type { KeyType } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import { type ResultShape, resultShape, shapeOfKeys } from '../columns.ts';
import { KeyColumns, quoted } from './key-columns.ts';
import type { WindowSink } from './port.ts';
import { ResultRows } from './rows.ts';
import { type FoundTable, findTable, type ResultRow, ResultTable, unfitDecimal } from './table.ts';

/** Rows of a page of `read`. */
const PAGE_ROWS = 20_000;
/** Rows of one transaction. */
const WRITE_ROWS_MAX = 50_000;
const TWO_64 = 1n << 64n;

export const SINK_TABLE_NAME = /^[a-z_][a-z0-9_]{0,47}$/;

/** Options of a sink, besides its database and its table. */
export interface PostgresSinkOptions {
  /** Shape of the results; absent: that of the fixed layout. `later`: `bind` gives it; until then
   *  `migrate` only checks that the server answers, and `check` that the bounds and the aggregates
   *  have columns. */
  readonly shape?: ResultShape | 'later';
  /** Aggregates of the job, for a reader without its shape. */
  readonly aggregate?: string | undefined;
  /** Early results are written too; for a reader without the shape. */
  readonly emit?: 'updates' | undefined;
  /** Receives the warning about results that the table cannot hold. */
  readonly log?: Pick<Logger, 'warn'>;
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
  private readonly log: PostgresSinkOptions['log'];
  /** Shape of a sink that is not bound: its key is unknown. */
  private readonly unbound: ResultShape;
  private shape: ResultShape | undefined;
  /** Columns of the table, once they were compared with it. */
  private columns: ResultTable | undefined;
  private unheld = 0;

  /** @param table name that matches SINK_TABLE_NAME */
  constructor(pool: SqlPool, table: string, { shape, aggregate, emit, log }: PostgresSinkOptions = {}) {
    this.pool = pool;
    this.table = table;
    this.stage = `${table}_stage`;
    this.unbound =
      aggregate === undefined
        ? resultShape(emit === undefined ? {} : { emit })
        : shapeOfKeys([{ name: 'key', kind: 'i64' }], aggregate, emit);
    this.shape = shape === 'later' ? undefined : (shape ?? this.unbound);
    this.log = log;
  }

  get keyType(): KeyType | undefined {
    return this.columns?.keys.keyType;
  }

  async bind(_type: KeyType | undefined, shape: ResultShape): Promise<void> {
    this.shape = shape;
    this.columns = undefined;
  }

  async migrate(): Promise<void> {
    const { shape, table } = this;
    if (shape === undefined) {
      await this.pool.query('SELECT 1');
      return;
    }
    await this.pool.transaction(async (session) => {
      // Serializes concurrent migrations: two concurrent CREATE TABLE statements would conflict in
      // the catalog.
      await session.query('SELECT pg_advisory_xact_lock(hashtext($1))', [`millrace:${table}`]);
      const fresh = ResultTable.fresh(shape);
      await session.query(
        `CREATE TABLE IF NOT EXISTS ${table} (${fresh.definitions}, PRIMARY KEY (${fresh.primaryKey.join(', ')}))`,
      );
      const found = await findTable(session, table);
      const columns = found && columnsIn(found, shape);
      // A foreign table is left alone; `check` refuses it.
      if (found === undefined || columns === undefined) return;
      await this.addColumns(session, found, columns);
      await this.createViews(session, columns);
    });
  }

  /** Adds the columns of aggregates that the job has and the table has not. */
  private async addColumns(session: SqlSession, found: FoundTable, columns: ResultTable): Promise<void> {
    for (const name of columns.aggregateNames)
      if (!found.names.includes(name))
        await session.query(`ALTER TABLE ${this.table} ADD COLUMN ${columns.addedDefinition(name)}`);
  }

  private async createViews(session: SqlSession, { keys, primaryKey }: ResultTable): Promise<void> {
    const { table } = this;
    const { names } = (await findTable(session, table)) as FoundTable;
    // In the reverse order of the primary key, which is then read backward.
    await session.query(`CREATE OR REPLACE VIEW ${table}_latest AS
      SELECT DISTINCT ON (${keys.quotedNames.join(', ')}) ${names.map(quoted).join(', ')} FROM ${table}
      ORDER BY ${primaryKey.map((name) => `${name} DESC`).join(', ')}`);
    if (keys.form !== 'bits') return;
    const others = names.filter((name) => name !== 'account_id').map(quoted);
    await session.query(`CREATE OR REPLACE VIEW ${table}_unsigned AS SELECT
      CASE WHEN account_id < 0 THEN account_id::numeric + ${TWO_64} ELSE account_id::numeric END AS account_id,
      ${others.join(', ')} FROM ${table}`);
  }

  async check(): Promise<void> {
    await this.compared();
  }

  /** Compares the table with the shape. @throws sink_missing */
  private async compared(): Promise<ResultTable> {
    const { shape, table } = this;
    const found = await findTable(this.pool, table);
    const wanted = shape ?? this.unbound;
    const missing = ResultTable.fresh(wanted)
      .names.slice(wanted.parts.length)
      .filter((name) => found?.names.includes(name) !== true);
    if (found === undefined || missing.length > 0) throw this.missing(found, missing);
    const unfit = unfitDecimal(found, wanted);
    if (unfit !== undefined)
      throw engineError(
        'sink_refused',
        `the column ${unfit.name} of table ${table} is ${unfit.type}, and the results need ${unfit.wanted}`,
        {
          next: 'name the aggregate otherwise (… as NAME), or give a -sink-table that does not exist yet, and run the engine with -migrate once',
        },
      );
    const columns = columnsIn(found, wanted);
    if (columns !== undefined) this.columns = columns;
    else if (shape !== undefined)
      throw engineError('sink_missing', `the key of table ${table} is not (${KeyColumns.ofShape(wanted)})`, {
        next: 'run the engine with -migrate once, with a -sink-table that does not exist yet',
      });
    return columns ?? ResultTable.fresh(wanted);
  }

  private missing(found: FoundTable | undefined, columns: readonly string[]): Error {
    const { table, shape } = this;
    const key =
      shape === undefined || shape.isFixed ? '' : `, with the key columns (${KeyColumns.ofShape(shape)})`;
    const isOurs = found?.keys !== undefined;
    const line = isOurs
      ? `table ${table} has no columns ${columns.join(', ')} of the job's results`
      : `the sink has no table ${table} with the columns of a window result${key}`;
    return engineError('sink_missing', line, {
      next:
        found === undefined || isOurs
          ? 'run the engine with -migrate once'
          : 'run the engine with -migrate once, with a -sink-table that does not exist yet',
    });
  }

  async write(pages: readonly FiredPage[]): Promise<void> {
    const columns = this.columns ?? (await this.compared());
    await this.pool.transaction(async (session) => {
      await session.query(
        `CREATE TEMP TABLE IF NOT EXISTS ${this.stage} (LIKE ${this.table}) ON COMMIT DELETE ROWS`,
      );
      await session.copyIn(this.stage, columns.names, this.cells(pages, columns));
      await session.query(this.insert(columns));
    });
  }

  private insert({ names, primaryKey, aggregateNames }: ResultTable): string {
    const all = names.map(quoted).join(', ');
    const values = aggregateNames.map(quoted);
    const tuple = (prefix: string): string => values.map((column) => `${prefix}.${column}`).join(', ');
    // The server may commit a write of a killed process late, after the final result.
    const order = aggregateNames.includes('final') ? ' AND (excluded.final OR t.final IS NOT TRUE)' : '';
    return `INSERT INTO ${this.table} AS t (${all}) SELECT ${all} FROM ${this.stage}
      ON CONFLICT (${primaryKey.join(', ')}) DO UPDATE SET ${values.map((column) => `${column} = excluded.${column}`).join(', ')}
      WHERE (${tuple('t')}) IS DISTINCT FROM (${tuple('excluded')})${order}`;
  }

  /** Yields the cells of the rows that the table can hold. */
  private *cells(pages: readonly FiredPage[], columns: ResultTable): Iterable<readonly SqlValue[]> {
    for (const page of pages) {
      const rows = new ResultRows(page);
      for (let at = 0; at < rows.rowCount; at++) {
        const result = rows.result(at);
        if (columns.holds(result)) yield columns.cells(result);
        else this.warnOf(result);
      }
    }
  }

  /** A window before 4714 BC is a fault of its event's time; it must not end the run. */
  private warnOf({ windowStart }: WindowResult): void {
    if (this.unheld++ > 0) return;
    this.log?.warn(
      { table: this.table, window_start: windowStart },
      'a window before 4714 BC is not written, because timestamptz cannot hold its times; GET /windows has it. Later ones are not reported',
    );
  }

  async *read(): AsyncIterable<readonly WindowResult[]> {
    const found = await findTable(this.pool, this.table);
    if (found?.keys === undefined) return;
    const columns = new ResultTable(found.layout, found.keys, this.shape ?? this.unbound);
    this.columns = columns;
    if (columns.keys.form !== 'bits') {
      yield* this.readRange(columns, undefined);
      return;
    }
    // Unsigned order: keys that are not negative as int8 come first.
    for (const bound of ['account_id >= 0', 'account_id < 0']) yield* this.readRange(columns, bound);
  }

  /** Reads rows in the order of the primary key, page by page. */
  private async *readRange(
    columns: ResultTable,
    bound: string | undefined,
  ): AsyncIterable<readonly WindowResult[]> {
    const key = columns.primaryKey.join(', ');
    const selected = columns.names.map((name) => columns.selected(name)).join(', ');
    let after: readonly SqlValue[] = [];
    for (;;) {
      const marks = after.map((_, at) => `$${at + 1}`).join(', ');
      const position = after.length === 0 ? [] : [`(${key}) > (${marks})`];
      const conditions = [...(bound === undefined ? [] : [bound]), ...position];
      const where = conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
      const { rows } = await this.pool.query<ResultRow>(
        `SELECT ${selected} FROM ${this.table} ${where} ORDER BY ${key} LIMIT ${PAGE_ROWS}`,
        [...after],
      );
      if (rows.length > 0) yield rows.map((row) => columns.resultOf(row));
      const last = rows.at(-1);
      if (rows.length < PAGE_ROWS || last === undefined) break;
      after = [
        ...columns.keys.names.map((name) => last[name] as SqlValue),
        columns.boundValue(last.window_start),
        columns.boundValue(last.window_end),
      ];
    }
  }
}

/** Columns of results in an existing table, in its layout; undefined: its key is another one. */
function columnsIn({ layout, keys }: FoundTable, shape: ResultShape): ResultTable | undefined {
  if (keys === undefined) return undefined;
  const isBits = layout === 'packed' && shape.keyType === undefined;
  const wanted = isBits ? KeyColumns.bits() : KeyColumns.of(shape.parts);
  return keys.toString() === wanted.toString() ? new ResultTable(layout, wanted, shape) : undefined;
}
