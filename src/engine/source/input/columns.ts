/** Reads decoded columns into the cells of events. Each reader makes one pass over the rows of one
 *  column.
 *
 *  A reader changes only rows with status OK: the first fault of a row decides its reason. */
import type { Column, ColumnLogical } from '../../../core/columns/column.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import type { BatchViews, ColumnViews } from '../../../core/columns/views.ts';
import { EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import type { Sign, TimeUnit } from './definition.ts';
import { msOf } from './int64.ts';
import { isoMs } from './iso.ts';
import type { EventWords } from './words.ts';

/** Column at a path. */
export interface Place {
  readonly index: number;
  readonly column: Column;
  /** Nullable columns on the path, outermost first, the column itself included. */
  readonly nullable: readonly number[];
}

/** Rows of a batch of columns: row `i` of the columns is row `rows[i]` of the events. */
export interface RowMap {
  readonly count: number;
  readonly rows: Int32Array;
  /** First of the rows if they are consecutive and none is filtered: cells are then copied
   *  together, also those of invalid rows, which are cleared at the end. Otherwise -1. */
  readonly first: number;
}

export type ColumnReader = (map: RowMap, into: EventWords) => void;

/** Finds the column of a path. Undefined: no struct on the path has the field. */
export function placeAt(schema: ColumnSchema, path: readonly string[]): Place | undefined {
  const nullable: number[] = [];
  let among = schema.topIndex;
  let found: number | undefined;
  for (const name of path) {
    found = among.find((index) => (schema.all[index] as Column).name === name);
    if (found === undefined) return undefined;
    const column = schema.all[found] as Column;
    if (column.nullable) nullable.push(found);
    among = column.kind === 'struct' ? schema.childrenOf(found) : [];
  }
  return found === undefined ? undefined : { index: found, column: schema.all[found] as Column, nullable };
}

/** Marks rows whose column, or a record around it, is null. */
export function nullReader({ columns }: BatchViews, { nullable }: Place): ColumnReader | undefined {
  if (nullable.length === 0) return undefined;
  const views = nullable.map((index) => columns[index] as ColumnViews);
  return ({ count, rows }, { status }) => {
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      for (const view of views) if (!view.isValid(i)) status[row] = EVENT_STATUS.MISSING_FIELD;
    }
  };
}

/** Kinds of columns that hold integers, with the sign of 64-bit ones. */
const INTEGERS: Readonly<Partial<Record<Column['kind'], Sign>>> = {
  int32: 'i64',
  int64: 'i64',
  uint32: 'u64',
  uint64: 'u64',
};

/** Sign of the integers of a column; undefined for a column of other values. */
export const signOf = ({ kind }: Column): Sign | undefined => INTEGERS[kind];

/** Reads integers into the keys or the values. @param sign range of the target: an integer outside
 *  it sets `fault` */
export function integerReader(
  { columns }: BatchViews,
  { index, column }: Place,
  sign: Sign,
  target: 'key' | 'value',
): ColumnReader {
  const views = columns[index] as ColumnViews;
  const fault = target === 'key' ? EVENT_STATUS.BAD_KEY : EVENT_STATUS.BAD_VALUE;
  const isOther = signOf(column) !== sign;
  if (column.kind === 'int64' || column.kind === 'uint64') {
    return ({ count, rows, first }, words) => {
      const from = column.kind === 'int64' ? views.int64 : views.uint64;
      const cells = new Int32Array(from.buffer, from.byteOffset, count * 2);
      const { status } = words;
      const to = words[target];
      if (first >= 0 && !isOther) {
        to.set(cells, first * 2);
        return;
      }
      for (let i = 0; i < count; i++) {
        const row = rows[i] as number;
        if (status[row] !== EVENT_STATUS.OK) continue;
        const high = cells[2 * i + 1] as number;
        // The top bit is the sign in one range and 2^63 in the other.
        if (isOther && high < 0) status[row] = fault;
        else {
          to[row * 2] = cells[2 * i] as number;
          to[row * 2 + 1] = high;
        }
      }
    };
  }
  return ({ count, rows }, words) => {
    const cells = column.kind === 'int32' ? views.int32 : views.uint32;
    const { status } = words;
    const to = words[target];
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      const value = cells[i] as number;
      if (value < 0 && sign === 'u64') status[row] = fault;
      else {
        to[row * 2] = value | 0;
        to[row * 2 + 1] = value < 0 ? -1 : 0;
      }
    }
  };
}

/** Unit of a timestamp type in UTC; undefined for any other type. */
export function timestampUnit(logical: ColumnLogical | undefined): TimeUnit | undefined {
  if (logical?.type !== 'timestamp' || logical.isLocal) return undefined;
  return logical.unit === 'millis' ? 'ms' : logical.unit === 'micros' ? 'us' : 'ns';
}

/** Reads integers in a unit into the times. REQUIRES: `signOf` the column is defined */
export function timeReader({ columns }: BatchViews, { index, column }: Place, unit: TimeUnit): ColumnReader {
  const views = columns[index] as ColumnViews;
  const isUnsigned = column.kind === 'uint64';
  if (column.kind === 'int64' || column.kind === 'uint64') {
    return ({ count, rows, first }, words) => {
      const from = isUnsigned ? views.uint64 : views.int64;
      const cells = new Int32Array(from.buffer, from.byteOffset, count * 2);
      if (first >= 0 && unit === 'ms' && !isUnsigned) {
        words.setTimes(first, cells);
        return;
      }
      for (let i = 0; i < count; i++) {
        const row = rows[i] as number;
        if (words.status[row] !== EVENT_STATUS.OK) continue;
        const high = cells[2 * i + 1] as number;
        words.setTime(row, isUnsigned && high < 0 ? Number.NaN : msOf(cells[2 * i] as number, high, unit));
      }
    };
  }
  return ({ count, rows }, words) => {
    const cells = column.kind === 'int32' ? views.int32 : views.uint32;
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (words.status[row] !== EVENT_STATUS.OK) continue;
      const value = cells[i] as number;
      words.setTime(row, msOf(value | 0, value < 0 ? -1 : 0, unit));
    }
  };
}

/** Reads ISO 8601 texts into the times. REQUIRES: the column is utf8 */
export function isoReader({ columns }: BatchViews, { index }: Place): ColumnReader {
  const views = columns[index] as ColumnViews;
  return ({ count, rows }, words) => {
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (words.status[row] !== EVENT_STATUS.OK) continue;
      words.setTime(row, isoMs(views.bytes, views.offsets[i] as number, views.offsets[i + 1] as number));
    }
  };
}

/** Reads google.protobuf.Timestamp into the times: seconds, and nanoseconds that count forward. */
export function secondsReader({ columns }: BatchViews, seconds: Place, nanos: Place): ColumnReader {
  const [whole, parts] = [columns[seconds.index] as ColumnViews, columns[nanos.index] as ColumnViews];
  return ({ count, rows }, words) => {
    const cells = new Int32Array(whole.int64.buffer, whole.int64.byteOffset, count * 2);
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (words.status[row] !== EVENT_STATUS.OK) continue;
      const nano = parts.int32[i] as number;
      const ms = msOf(cells[2 * i] as number, cells[2 * i + 1] as number, 's') + Math.floor(nano / 1_000_000);
      words.setTime(row, nano >= 0 && nano < 1_000_000_000 ? ms : Number.NaN);
    }
  };
}

/** Reads the value at an index of a column for a filter; undefined for null. */
export type FieldGet = (at: number) => unknown;

/** Makes the reader of a column for a filter. @param symbols names of an open enum's numbers */
export function fieldGet(
  { columns }: BatchViews,
  { index, column, nullable }: Place,
  symbols?: ReadonlyMap<number, string>,
): FieldGet {
  return unlessNull({ columns }, nullable, plainGet(columns[index] as ColumnViews, column, symbols));
}

/** Reads undefined where one of the columns is null. */
export function unlessNull(
  { columns }: Pick<BatchViews, 'columns'>,
  nullable: readonly number[],
  get: FieldGet,
): FieldGet {
  if (nullable.length === 0) return get;
  const around = nullable.map((one) => columns[one] as ColumnViews);
  return (at) => (around.every((view) => view.isValid(at)) ? get(at) : undefined);
}

/** Reads the values of a column by row, null or not. */
export function plainGet(
  views: ColumnViews,
  column: Column,
  symbols?: ReadonlyMap<number, string>,
): FieldGet {
  switch (column.kind) {
    case 'bool':
      return (at) => (((views.bytes[at >>> 3] as number) >>> (at & 7)) & 1) === 1;
    case 'int32':
      return symbols === undefined
        ? (at) => views.int32[at]
        : (at) => symbols.get(views.int32[at] as number) ?? views.int32[at];
    case 'uint32':
      return (at) => views.uint32[at];
    case 'int64':
      return (at) => views.int64[at];
    case 'uint64':
      return (at) => views.uint64[at];
    case 'float32':
      return (at) => views.float32[at];
    case 'float64':
      return (at) => views.float64[at];
    case 'utf8':
      return (at) => views.bytes.toString('utf8', views.offsets[at], views.offsets[at + 1]);
    case 'dictionary':
      return (at) => column.symbols?.[views.int32[at] as number];
    default:
      return () => undefined;
  }
}

/** Kinds of columns that a filter can read. */
export const isFilterable = ({ kind }: Column): boolean =>
  signOf({ kind } as Column) !== undefined ||
  ['bool', 'float32', 'float64', 'utf8', 'dictionary', 'null'].includes(kind);
