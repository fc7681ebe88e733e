/** Reads keys of variable length from decoded columns. */
import type { Column } from '../../../../core/columns/column.ts';
import type { BatchViews, ColumnViews } from '../../../../core/columns/views.ts';
import { EVENT_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { KeySpans } from '../../../keys/spans.ts';
import { isInteger, type KeyKind, UUID_BYTES } from '../../../keys/type.ts';
import { type ColumnReader, type Place, signOf } from '../columns.ts';

/** Appends a part of the key at an index of a column. False: the value is no key. */
export type KeyGet = (at: number, into: KeySpans) => boolean;

type PutSpan = (into: KeySpans, bytes: Uint8Array, from: number, to: number) => boolean;

const SIGN_BIT = 1 << 31;

/** Appends a span as it stands alone, or after its length. */
function putOf(kind: KeyKind, isAlone: boolean): PutSpan {
  if (kind === 'uuid')
    return (into, bytes, from, to) => to - from === UUID_BYTES && into.put(bytes, from, to);
  const isString = kind === 'string';
  if (isAlone)
    return (into, bytes, from, to) => (isString ? into.putText(bytes, from, to) : into.put(bytes, from, to));
  return (into, bytes, from, to) =>
    into.putLength(to - from) && (isString ? into.putText(bytes, from, to) : into.put(bytes, from, to));
}

/** Makes the reader of a part. Undefined: the column does not have values of the kind.
 *  @param isAlone true: the key has no other part */
export function keyGet(
  { columns }: BatchViews,
  { index, column }: Place,
  kind: KeyKind,
  isAlone: boolean,
): KeyGet | undefined {
  const views = columns[index] as ColumnViews;
  if (isInteger(kind)) return integerGet(views, column, kind === 'i64');
  const put = putOf(kind, isAlone);
  if (column.kind === 'utf8' && kind === 'uuid')
    return (at, into) =>
      into.putUuid(views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
  const isSpan = column.kind === 'utf8' ? kind === 'string' : column.kind === 'binary' && kind !== 'string';
  if (isSpan)
    return (at, into) => put(into, views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
  const { size = 0 } = column;
  if (column.kind === 'fixed' && kind !== 'string' && column.logical?.type !== 'duration')
    return (at, into) => put(into, views.bytes, at * size, (at + 1) * size);
  return undefined;
}

function integerGet(views: ColumnViews, column: Column, isSigned: boolean): KeyGet | undefined {
  const sign = signOf(column);
  if (sign === undefined) return undefined;
  const flip = isSigned ? SIGN_BIT : 0;
  const isOther = (sign === 'i64') !== isSigned;
  if (column.kind === 'int32' || column.kind === 'uint32')
    return (at, into) => {
      const value = (column.kind === 'int32' ? views.int32[at] : views.uint32[at]) as number;
      if (value < 0 && !isSigned) return false;
      return into.putWord(value | 0, (value < 0 ? -1 : 0) ^ flip);
    };
  return (at, into) => {
    const value = (column.kind === 'int64' ? views.int64[at] : views.uint64[at]) as bigint;
    const high = Number(BigInt.asIntN(32, value >> 32n));
    // The top bit is the sign in one range and 2^63 in the other.
    if (isOther && high < 0) return false;
    return into.putWord(Number(BigInt.asIntN(32, value)), high ^ flip);
  };
}

/** Reads the keys of the rows with status OK, part after part. */
export function keyReader(gets: readonly KeyGet[]): ColumnReader {
  const [only] = gets;
  const get: KeyGet =
    gets.length === 1 ? (only as KeyGet) : (at, into) => gets.every((part) => part(at, into));
  return ({ count, rows }, { status, keys }) => {
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      keys.begin();
      if (get(i, keys)) keys.end(row);
      else status[row] = EVENT_STATUS.BAD_KEY;
    }
  };
}
