/** Table of results in PostgreSQL: its columns in the form of SQL.
 *
 *  A table has one of two layouts. `typed`: key columns by the names and types of the fields, times
 *  as timestamptz. `packed`: times as int8 in ms, and an integer key as account_id; it is the
 *  layout of the fixed format, and of every table that an earlier version created. A table keeps
 *  its layout. Aggregates have the same columns in both. */
import type { SqlRow, SqlSession, SqlValue } from '../../../io/postgres/sql/port.ts';
import type { AggregateValue } from '../../aggregate/results.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import {
  type ColumnType,
  DECIMAL_PRECISION,
  type ResultColumn,
  type ResultShape,
  topItems,
  topText,
} from '../columns.ts';
import { KeyColumns, kindOfSqlType, quoted } from './key-columns.ts';

export type TableLayout = 'typed' | 'packed';

const SQL_TYPE: Readonly<Record<ColumnType, string>> = {
  u64: 'numeric(20,0)',
  i64: 'int8',
  f64: 'float8',
  decimal: `numeric(${DECIMAL_PRECISION})`,
  string: 'text',
  bytes: 'bytea',
  uuid: 'uuid',
  timestamp: 'timestamptz(3)',
  bool: 'bool',
  top: 'jsonb',
};

/** First millisecond of timestamptz, 24 November 4714 BC. */
export const TIMESTAMP_MS_MIN = Date.UTC(-4713, 10, 24);

/** Text of a time as timestamptz accepts it. REQUIRES: `ms` is at least TIMESTAMP_MS_MIN */
export function timestampText(ms: number): string {
  const iso = new Date(ms).toISOString();
  if (iso[0] !== '+' && iso[0] !== '-' && !iso.startsWith('0000')) return iso;
  const [, year, rest] = /^([+-]?\d+)(-\d\d-.*)$/.exec(iso) as unknown as [string, string, string];
  // The year before 1 is 1 BC.
  return Number(year) > 0
    ? `${Number(year)}${rest}`
    : `${String(1 - Number(year)).padStart(4, '0')}${rest} BC`;
}

interface TableColumn {
  readonly name: string;
  readonly definition: string;
  read(result: WindowResult): SqlValue;
}

/** Columns of an existing table, in their order. */
export interface FoundTable {
  readonly layout: TableLayout;
  /** Undefined: the primary key is not that of a table of results. */
  readonly keys: KeyColumns | undefined;
  readonly names: readonly string[];
  /** Types of the columns as PostgreSQL names them. */
  readonly types: ReadonlyMap<string, string>;
}

const sqlType = ({ type, scale }: Pick<ResultColumn, 'type' | 'scale'>): string =>
  type === 'decimal' ? `numeric(${DECIMAL_PRECISION},${scale})` : SQL_TYPE[type];

/** First column of a table that would round or refuse the decimals of a shape; undefined: none. */
export const unfitDecimal = (
  { types }: FoundTable,
  { columns }: Pick<ResultShape, 'columns'>,
): { readonly name: string; readonly type: string; readonly wanted: string } | undefined =>
  columns.flatMap((column) => {
    const type = types.get(column.name);
    const wanted = sqlType(column);
    if (type === undefined || type === wanted || type === 'numeric') return [];
    return column.type === 'decimal' || type.startsWith('numeric(38,')
      ? [{ name: column.name, type, wanted }]
      : [];
  })[0];

/** Columns of a table that are not those of the key. */
export class ResultTable {
  readonly layout: TableLayout;
  readonly keys: KeyColumns;
  private readonly bounds: readonly TableColumn[];
  private readonly aggregates: readonly TableColumn[];
  private readonly own: readonly string[] | undefined;
  private readonly tops: ReadonlySet<string>;

  constructor(
    layout: TableLayout,
    keys: KeyColumns,
    { columns, aggregates }: Pick<ResultShape, 'columns' | 'aggregates'>,
  ) {
    this.own = aggregates;
    this.tops = new Set(columns.filter(({ type }) => type === 'top').map(({ name }) => name));
    this.layout = layout;
    this.keys = keys;
    const of = (role: ResultColumn['role']): readonly TableColumn[] =>
      columns.filter((one) => one.role === role).map((one) => this.sqlColumn(one));
    this.bounds = of('bound');
    this.aggregates = of('aggregate');
  }

  /** Table that `-migrate` creates for a shape. */
  static fresh(shape: ResultShape): ResultTable {
    const layout = shape.isFixed ? 'packed' : 'typed';
    return new ResultTable(layout, KeyColumns.ofShape(shape), shape);
  }

  private sqlColumn(column: ResultColumn): TableColumn {
    const { name, type, nullable, read } = column;
    const isTime = type === 'timestamp';
    const sql = isTime && this.layout === 'packed' ? 'int8' : sqlType(column);
    const definition = `${quoted(name)} ${sql}${nullable ? '' : ' NOT NULL'}`;
    if (!isTime || this.layout === 'packed') return { name, definition, read };
    return {
      name,
      definition,
      read: (result) => {
        const value = read(result);
        return value === null ? null : timestampText(value as number);
      },
    };
  }

  /** Names of all columns. */
  get names(): readonly string[] {
    return [...this.keys.names, ...this.bounds.map(named), ...this.aggregates.map(named)];
  }

  get aggregateNames(): readonly string[] {
    return this.aggregates.map(named);
  }

  /** Quoted names of the primary key. */
  get primaryKey(): readonly string[] {
    return [...this.keys.quotedNames, ...this.bounds.map(({ name }) => quoted(name))];
  }

  get definitions(): string {
    return [this.keys.definitions, ...[...this.bounds, ...this.aggregates].map((one) => one.definition)].join(
      ', ',
    );
  }

  /** Definition of an aggregate's column that is added to a table with rows: they have no value. */
  addedDefinition(name: string): string {
    const column = this.aggregates.find((one) => one.name === name);
    return (column as TableColumn).definition.replace(/ NOT NULL$/, '');
  }

  /** False if a time of the result is before the first of timestamptz. */
  holds({ windowStart }: WindowResult): boolean {
    return this.layout === 'packed' || windowStart >= TIMESTAMP_MS_MIN;
  }

  /** Cells of a result, in the order of `names`. */
  cells(result: WindowResult): readonly SqlValue[] {
    return [
      ...this.keys.values(result),
      ...this.bounds.map((column) => column.read(result)),
      ...this.aggregates.map((column) => column.read(result)),
    ];
  }

  /** Expression that reads a column: a time as int8 in ms. */
  selected(name: string): string {
    const isTime = this.layout === 'typed' && TIMES.has(name);
    return isTime
      ? `round(extract(epoch FROM ${quoted(name)}) * 1000)::int8 AS ${quoted(name)}`
      : quoted(name);
  }

  /** Value of a bound as a parameter. */
  boundValue(ms: bigint): SqlValue {
    return this.layout === 'typed' ? timestampText(Number(ms)) : ms;
  }

  /** Result of a row that `selected` expressions read. */
  resultOf(row: ResultRow): WindowResult {
    const { accountId, key } = this.keys.keyOf(row);
    return {
      accountId,
      ...(key === undefined ? {} : { key }),
      windowStart: Number(row.window_start),
      windowEnd: Number(row.window_end),
      // A table of the job's own aggregates may lack these columns, or have another type there.
      count: BigInt.asUintN(64, integerOf(row.count)),
      sum: integerOf(row.sum),
      min: integerOf(row.min),
      max: integerOf(row.max),
      ...(this.own === undefined
        ? {}
        : { aggregates: this.own.map((name) => this.valueOf(name, row[name] ?? null)) }),
      lastUpdateTs: row.last_update_ts,
      overflow: row.overflow,
      ...(this.aggregateNames.includes('final') && row['final'] === false ? { isEarly: true as const } : {}),
    };
  }

  /** The server prints JSON in a form of its own. */
  private valueOf(name: string, value: unknown): AggregateValue {
    return this.tops.has(name) && value !== null
      ? topText(topItems(String(value)))
      : (value as AggregateValue);
  }
}

export interface ResultRow extends SqlRow {
  readonly window_start: bigint;
  readonly window_end: bigint;
  readonly count?: unknown;
  readonly sum?: unknown;
  readonly min?: unknown;
  readonly max?: unknown;
  readonly last_update_ts: bigint;
  readonly overflow: boolean;
}

const integerOf = (value: unknown): bigint => (typeof value === 'bigint' ? value : 0n);
const named = ({ name }: { readonly name: string }): string => name;
const TIMES: ReadonlySet<string> = new Set(['window_start', 'window_end', 'last_update_ts']);

/** Describes an existing table; undefined: there is none. */
export async function findTable(
  session: Pick<SqlSession, 'query'>,
  table: string,
): Promise<FoundTable | undefined> {
  const { rows } = await session.query<{
    readonly name: string;
    readonly type: string;
    readonly place: number | null;
  }>(
    `SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod)::text AS type, k.place::int4 AS place
     FROM pg_attribute a LEFT JOIN (
       SELECT i.indrelid, c.attnum, c.place FROM pg_index i
       CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS c (attnum, place) WHERE i.indisprimary
     ) k ON k.indrelid = a.attrelid AND k.attnum = a.attnum
     WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
    [table],
  );
  if (rows.length === 0) return undefined;
  const key = rows.filter(({ place }) => place !== null).sort((a, b) => Number(a.place) - Number(b.place));
  const bounds = key.slice(-2);
  const isTyped = bounds[0]?.type.startsWith('timestamp') === true;
  const layout = isTyped ? 'typed' : 'packed';
  const isResult = bounds.map(named).join() === 'window_start,window_end';
  const keys = isResult ? keysOf(key.slice(0, -2), layout) : undefined;
  const types = new Map(rows.map(({ name, type }) => [name, type]));
  return { layout, keys, names: rows.map(named), types };
}

function keysOf(
  parts: ReadonlyArray<{ readonly name: string; readonly type: string }>,
  layout: TableLayout,
): KeyColumns | undefined {
  if (parts.length === 0) return undefined;
  const isAccount = parts.length === 1 && parts[0]?.name === 'account_id' && parts[0].type === 'bigint';
  if (isAccount && layout === 'packed') return KeyColumns.bits();
  const type = parts.flatMap(({ name, type: sql }) => {
    const kind = kindOfSqlType(sql);
    return kind === undefined ? [] : [{ name, kind }];
  });
  return type.length < parts.length ? undefined : KeyColumns.of(type, parts.map(named));
}
