/** Table of the results in Flink SQL: a table of PostgreSQL as the engine makes it. */
import { quotedName, type TableOptions } from '../../formats/flink/sql.ts';
import type { ColumnType, ResultColumn, ResultShape } from '../output/columns.ts';
import { KeyColumns } from '../output/sink/key-columns.ts';
import { unsayable } from './error.ts';

export interface PostgresTarget {
  /** Address with its database, without user and password: `postgres://host:port/name?sslmode=…` */
  readonly url: string;
  readonly table: string;
}

export interface FlinkSink {
  /** Lines of the table's definition. */
  readonly lines: readonly string[];
  readonly options: TableOptions;
  /** Names of the columns of a result, in the order of its shape. */
  readonly names: readonly string[];
  /** Expression of a value as the column takes it. */
  cell(column: ResultColumn, sql: string): string;
}

/** Types of the columns. A time is sent as a text with its zone, because the connector would send
 *  it in the time zone of the process; `stringtype=unspecified` lets the server read it. */
const TYPES: Readonly<Partial<Record<ColumnType, string>>> = {
  i64: 'BIGINT',
  u64: 'DECIMAL(20, 0)',
  f64: 'DOUBLE',
  string: 'STRING',
  uuid: 'STRING',
  timestamp: 'STRING',
  bool: 'BOOLEAN',
};

/** Parameters of the address that the Java driver has too. */
const SHARED: readonly string[] = ['sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'options'];
/** Words that PostgreSQL does not read as a column without quotes, which the connector leaves out.
 */
const RESERVED: ReadonlySet<string> = new Set(
  'all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user using variadic verbose when where window with'.split(
    ' ',
  ),
);

/** @throws flink_unsupported for a column that the connector cannot name or write */
export function postgresSink(shape: ResultShape, target: PostgresTarget): FlinkSink {
  const keys = KeyColumns.ofShape(shape).names;
  const names = shape.columns.map(({ name, role }, at) => (role === 'key' ? (keys[at] as string) : name));
  const typed = shape.columns.map(({ type, role }, at) => {
    const name = names[at] as string;
    const setting = role === 'key' ? 'key' : 'aggregate';
    const sql = TYPES[type];
    if (sql === undefined)
      throw unsayable(
        setting,
        name,
        'has a type that the JDBC connector of Flink does not write',
        'leave it out, or keep this job here',
      );
    if (!/^[a-z_][a-z0-9_]*$/.test(name) || RESERVED.has(name))
      throw unsayable(
        setting,
        name,
        'is a column that PostgreSQL needs quotes for, which the JDBC connector of Flink leaves out',
        role === 'key' ? 'keep this job here' : 'name the aggregate in small letters: … as total',
      );
    return `${quotedName(name)} ${sql}`;
  });
  const primary = names.filter((_, at) => shape.columns[at]?.role !== 'aggregate').map(quotedName);
  return {
    lines: [...typed, `PRIMARY KEY (${primary.join(', ')}) NOT ENFORCED`],
    options: {
      connector: 'jdbc',
      url: jdbcUrl(target.url),
      'table-name': target.table,
      driver: 'org.postgresql.Driver',
      'sink.buffer-flush.max-rows': '5000',
      'sink.buffer-flush.interval': '1s',
    },
    names,
    cell: ({ type }, sql) => (type === 'timestamp' ? `CAST(${sql} AS STRING) || '+00'` : sql),
  };
}

function jdbcUrl(address: string): string {
  const { host, pathname, searchParams } = new URL(address);
  const parameters = new URLSearchParams([...searchParams].filter(([name]) => SHARED.includes(name)));
  parameters.set('stringtype', 'unspecified');
  parameters.set('reWriteBatchedInserts', 'true');
  return `jdbc:postgresql://${host}${pathname}?${parameters}`;
}
