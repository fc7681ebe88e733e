/** Key and time of the events in Flink SQL. */
import { quotedName } from '../../formats/flink/sql.ts';
import type { InputFields, KeySpec, TimeSpec, TimeUnit } from '../source/input/definition.ts';
import type { ViewColumn } from './aggregates.ts';
import { unsayable } from './error.ts';
import type { FlinkField, FlinkFields } from './fields.ts';
import { isoMillisSql } from './iso.ts';

/** Parts of the source's definition that the key or the time needs. */
export interface FlinkKey {
  /** Columns of the view, in the order of the key's parts. */
  readonly parts: readonly ViewColumn[];
  /** Column of the record's key, with its type; undefined: the key is in the value. */
  readonly column: string | undefined;
  /** Conditions without which a record is no event. */
  readonly required: readonly string[];
}

export const RECORD_KEY = 'millrace_key';
const UUID = "'^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$'";
/** A literal of Flink SQL without a type has at most 64 bits. */
const U64_MAX = `CAST('${2n ** 64n - 1n}' AS DECIMAL(20, 0))`;
/** Time of a record without one: the first of year 1, which advances no watermark. */
const NO_TIME = 'TO_TIMESTAMP_LTZ(-62135596800000, 3)';
/** Column of the time. */
export const TIME = 'millrace_time';

/** @param names columns of the view by the parts of the key. @throws flink_unsupported */
export function flinkKey({ key }: InputFields, source: FlinkFields, names: readonly string[]): FlinkKey {
  if (key.from === 'record') return recordKey(key, names[0] as string);
  const made = key.fields.map(({ path, kind = 'i64' }) => keyPart(path.join('.'), kind, source.of(path)));
  return {
    parts: made.map(({ sql }, at) => ({ name: names[at] as string, sql })),
    column: undefined,
    required: made.flatMap(({ required }) => required),
  };
}

interface Part {
  readonly sql: string;
  readonly required: readonly string[];
}

function keyPart(path: string, kind: string, { sql, type, logical }: FlinkField): Part {
  const wrong = (): Error =>
    unsayable(
      'key',
      path,
      `is ${logical ?? type}, which is no ${kind} in Flink SQL`,
      'give a key of integers, texts or uuids in text',
    );
  const isPresent = `${sql} IS NOT NULL`;
  switch (kind) {
    case 'i64':
      if (type !== 'BIGINT' && type !== 'INT') throw wrong();
      return { sql: type === 'INT' ? `CAST(${sql} AS BIGINT)` : sql, required: [isPresent] };
    case 'u64':
      if (type !== 'BIGINT' && type !== 'INT' && type !== 'DECIMAL(20, 0)') throw wrong();
      return {
        sql: type === 'DECIMAL(20, 0)' ? sql : `CAST(${sql} AS DECIMAL(20, 0))`,
        required: [isPresent, `${sql} BETWEEN 0 AND ${U64_MAX}`],
      };
    case 'uuid':
      if (type !== 'STRING') throw wrong();
      return { sql: `LOWER(${sql})`, required: [isPresent, `REGEXP(${sql}, ${UUID})`] };
    default:
      if (type !== 'STRING' || kind === 'bytes') throw wrong();
      return { sql, required: [isPresent] };
  }
}

const KEY_COLUMNS: Readonly<Record<string, string>> = {
  long: 'BIGINT',
  int: 'INT',
  text: 'STRING',
  string: 'STRING',
  uuid: 'STRING',
};

function recordKey({ form }: Extract<KeySpec, { from: 'record' }>, name: string): FlinkKey {
  const type = KEY_COLUMNS[form ?? ''];
  if (type === undefined)
    throw unsayable(
      'key',
      form === undefined ? '@key' : `@key:${form}`,
      form === undefined ? 'leaves the form of the record key open' : 'is no key in Flink SQL',
      'give -key=@key:long, @key:int, @key:text, @key:string or @key:uuid, or fields of the value',
    );
  const sql = quotedName(RECORD_KEY);
  const isPresent = `${sql} IS NOT NULL`;
  const part: Part =
    form === 'text'
      ? {
          sql: `TRY_CAST(${sql} AS BIGINT)`,
          required: [`REGEXP(${sql}, '^(0|-?[1-9][0-9]*)$')`, `TRY_CAST(${sql} AS BIGINT) IS NOT NULL`],
        }
      : form === 'uuid'
        ? keyPart('@key', 'uuid', { sql, type: 'STRING' })
        : { sql: form === 'int' ? `CAST(${sql} AS BIGINT)` : sql, required: [isPresent] };
  return { parts: [{ name, sql: part.sql }], column: type, required: part.required };
}

export interface FlinkTime {
  /** Expression of the time's column; undefined: the timestamp of the record. */
  readonly sql: string | undefined;
  readonly required: readonly string[];
}

const UNITS: Readonly<Record<string, TimeUnit>> = {
  'timestamp-millis': 'ms',
  'timestamp-micros': 'us',
  'timestamp-nanos': 'ns',
};

/** @throws flink_unsupported */
export function flinkTime({ time }: InputFields, source: FlinkFields): FlinkTime {
  if (time.from === 'record') return { sql: undefined, required: [] };
  const instant = instantSql(time, source.of(time.path), source.reader === undefined);
  return { sql: `COALESCE(${instant}, ${NO_TIME})`, required: [`${quotedName(TIME)} > ${NO_TIME}`] };
}

function instantSql(
  { path, unit }: Extract<TimeSpec, { from: 'field' }>,
  { sql, type, logical }: FlinkField,
  isJson: boolean,
): string {
  if (isJson && unit === 'iso') return `TO_TIMESTAMP_LTZ(${isoMillisSql(sql)}, 3)`;
  const known = unit ?? UNITS[logical ?? ''];
  if ((type !== 'BIGINT' && type !== 'INT') || known === undefined || known === 'iso')
    throw unsayable(
      'time',
      path.join('.'),
      `is ${logical ?? type}${known === undefined ? '' : ` in ${known}`}, which Flink SQL does not read as a time`,
      'give a timestamp type, an integer with its unit (:s, :ms, :us, :ns), a JSON text in ISO 8601 (:iso), or @timestamp',
    );
  return `TO_TIMESTAMP_LTZ(${millisSql(type === 'INT' ? `CAST(${sql} AS BIGINT)` : sql, known)}, 3)`;
}

/** Milliseconds, rounded down: a division of Flink SQL rounds towards zero. */
function millisSql(value: string, unit: TimeUnit): string {
  if (unit === 'ms') return value;
  if (unit === 's') return `${value} * 1000`;
  const per = unit === 'us' ? 1000 : 1_000_000;
  return `CASE WHEN ${value} >= 0 THEN ${value} / ${per} ELSE (${value} - ${per - 1}) / ${per} END`;
}
