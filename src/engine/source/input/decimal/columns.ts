/** Reads decimals in decoded columns: logical decimals of Avro, integers, texts, and the messages
 *  google.type.Decimal and confluent.type.Decimal of Protobuf. */
import type { Column } from '../../../../core/columns/column.ts';
import type { BatchViews, ColumnViews } from '../../../../core/columns/views.ts';
import {
  DECIMAL_BYTES_MAX,
  DECIMAL_CHARS_MAX,
  DECIMAL_PLACES_MAX,
  Decimal,
  firstSignificant,
  integerOfBytes,
  powerOfTen,
} from '../../../../core/decimal/exact.ts';
import { EVENT_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { FieldColumn } from '../../../aggregate/definition.ts';
import { valuesOf } from '../../../aggregate/values.ts';
import {
  type ColumnReader,
  type FieldGet,
  fieldGet,
  isFilterable,
  type Place,
  plainGet,
  signOf,
  unlessNull,
} from '../columns.ts';
import { type DecimalFault, DecimalReader, decimalFaultText } from './reader.ts';

/** Names of the messages that are decimals, with the columns that they need. */
export const DECIMAL_MESSAGES: Readonly<Record<string, readonly string[]>> = {
  'google.type.Decimal': ['value'],
  'confluent.type.Decimal': ['value', 'scale'],
};

/** A value that is no decimal: not null, and equal to nothing. */
const NO_DECIMAL: unknown = {};

/** Column of a decimal, with the column of its scale where each value has its own. */
export interface DecimalColumns {
  readonly column: Column;
  readonly views: ColumnViews;
  /** Decimal places of each value; absent: those of the column's type. */
  readonly scales?: ColumnViews | undefined;
  /** An empty text is zero. Source: google/type/decimal.proto. */
  readonly isEmptyZero?: boolean;
}

/** Reads the value of a row. False: it is no decimal of the reader's scale. */
export type DecimalGet = (at: number, into: DecimalReader) => boolean;

/** True if a column has a decimal type. */
const hasDecimalType = ({ logical, kind }: Column): boolean =>
  logical?.type === 'decimal' && logical.scale <= DECIMAL_PLACES_MAX && kind !== 'utf8';

/** True if the values of a column are exact numbers, or texts of numbers. */
export const isDecimalColumn = (column: Column): boolean =>
  hasDecimalType(column) || signOf(column) !== undefined || isText(column);

const isText = ({ kind, logical }: Column): boolean => kind === 'utf8' && logical === undefined;

/** Bytes of the value at a row: first, and behind the last. */
function spanOf({ column, views }: DecimalColumns): (at: number) => readonly [number, number] {
  const size = column.kind === 'decimal128' ? 16 : column.kind === 'decimal256' ? 32 : column.size;
  if (size !== undefined) return (at) => [at * size, (at + 1) * size];
  return (at) => [views.offsets[at] as number, views.offsets[at + 1] as number];
}

/** Makes the reader of a column. REQUIRES: `isDecimalColumn` of it, or a binary column with scales
 */
export function decimalGet(of: DecimalColumns): DecimalGet {
  const { column, views, scales, isEmptyZero } = of;
  const span = spanOf(of);
  const places = column.logical?.type === 'decimal' ? column.logical.scale : 0;
  switch (column.kind) {
    case 'decimal128':
    case 'decimal256':
      return (at, into) => {
        const [start, end] = span(at);
        return into.readLittleEndian(views.bytes, start, end, places);
      };
    case 'binary':
    case 'fixed':
      return (at, into) => {
        const [start, end] = span(at);
        return into.readBigEndian(views.bytes, start, end, scales?.int32[at] ?? places);
      };
    case 'utf8':
      return (at, into) => {
        const [start, end] = span(at);
        if (start === end && isEmptyZero === true) return into.readInteger(0, 0, 'i64');
        return into.readText(views.bytes, start, end);
      };
    case 'int32':
      return (at, into) => {
        const value = views.int32[at] as number;
        return into.readInteger(value, value >> 31, 'i64');
      };
    case 'uint32':
      return (at, into) => into.readInteger(views.uint32[at] as number, 0, 'u64');
    default: {
      const sign = column.kind === 'uint64' ? 'u64' : 'i64';
      return (at, into) => {
        const value = (sign === 'u64' ? views.uint64[at] : views.int64[at]) as bigint;
        return into.readInteger(
          Number(BigInt.asIntN(32, value)),
          Number(BigInt.asIntN(64, value) >> 32n),
          sign,
        );
      };
    }
  }
}

/** Makes the reader of a column for a condition: a Decimal or an integer, or a value that is equal
 *  to nothing. REQUIRES: as for `decimalGet` */
export function decimalFieldGet(of: DecimalColumns): FieldGet {
  const { column, views, scales, isEmptyZero } = of;
  if (signOf(column) !== undefined) return plainGet(views, column);
  const span = spanOf(of);
  if (column.kind === 'utf8')
    return (at) => {
      const [start, end] = span(at);
      if (start === end && isEmptyZero === true) return new Decimal(0n, 0);
      if (end - start > DECIMAL_CHARS_MAX) return NO_DECIMAL;
      return Decimal.parse(views.bytes.toString('latin1', start, end)) ?? NO_DECIMAL;
    };
  const places = column.logical?.type === 'decimal' ? column.logical.scale : 0;
  const isLittle = column.kind === 'decimal128' || column.kind === 'decimal256';
  return (at) => {
    const [start, end] = span(at);
    if (start === end) return NO_DECIMAL;
    const stored = views.bytes.subarray(start, end);
    const bytes = isLittle ? stored.toReversed() : stored;
    const from = firstSignificant(bytes, 0, bytes.length);
    if (bytes.length - from > DECIMAL_BYTES_MAX) return NO_DECIMAL;
    const scale = scales?.int32[at] ?? places;
    const unscaled = integerOfBytes(bytes.subarray(from));
    if (Math.abs(scale) > DECIMAL_PLACES_MAX) return unscaled === 0n ? new Decimal(0n, 0) : NO_DECIMAL;
    return scale >= 0 ? new Decimal(unscaled, scale) : new Decimal(unscaled * powerOfTen(-scale), 0);
  };
}

/** Makes the reader of a column for a condition. Undefined: the column has no values that it can
 *  compare.
 *  @param isDecimal true: the condition declares the field as a decimal
 *  @param symbols names of an open enum's numbers */
export function conditionGet(
  batch: BatchViews,
  place: Place,
  isDecimal: boolean,
  symbols?: ReadonlyMap<number, string>,
): FieldGet | undefined {
  const { index, column, nullable } = place;
  if (hasDecimalType(column) || (isDecimal && symbols === undefined && isDecimalColumn(column))) {
    const views = batch.columns[index] as ColumnViews;
    return unlessNull(batch, nullable, decimalFieldGet({ column, views }));
  }
  return isFilterable(column) && !isDecimal ? fieldGet(batch, place, symbols) : undefined;
}

/** Cells that receive the decimals of a batch. */
export interface DecimalTarget {
  readonly field: FieldColumn;
  /** Number of columns of the values. */
  readonly columns: number;
  /** True: they are the values of the events too. */
  readonly isValue: boolean;
}

/** Reads decimals into a column of the values; null is no fault.
 *  @param nullable columns around the value */
export function decimalReader(
  { columns: all }: BatchViews,
  nullable: readonly number[],
  get: DecimalGet,
  { field: { column: to, path, scale = 0 }, columns, isValue }: DecimalTarget,
): ColumnReader {
  const around = nullable.map((one) => all[one] as ColumnViews);
  const reader = new DecimalReader(scale);
  const texts = new Map<DecimalFault, string>();
  const textOf = (fault: DecimalFault): string => {
    const text = texts.get(fault) ?? decimalFaultText(fault, path, scale);
    texts.set(fault, text);
    return text;
  };
  return ({ count, rows }, { status, value, faults, batch }) => {
    const { words, valid, capacity } = valuesOf(batch, columns);
    for (let i = 0; i < count; i++) {
      const row = rows[i] as number;
      if (status[row] !== EVENT_STATUS.OK) continue;
      const cell = to * capacity + row;
      let isValid = 1;
      for (const view of around) if (!view.isValid(i)) isValid = 0;
      valid[cell] = isValid;
      if (isValid === 0) continue;
      if (get(i, reader)) {
        words[2 * cell] = reader.low;
        words[2 * cell + 1] = reader.high;
        if (!isValue) continue;
        value[2 * row] = reader.low;
        value[2 * row + 1] = reader.high;
      } else {
        status[row] = EVENT_STATUS.BAD_VALUE;
        faults.set(row, textOf(reader.fault));
      }
    }
  };
}
