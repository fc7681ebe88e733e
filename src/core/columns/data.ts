/** Values of one column of a batch as typed arrays, without a copy. */
import { COLUMN_SLOT } from '../layout/layouts.gen.ts';
import type { ColumnBatch } from './batch.ts';
import type { Column } from './column.ts';

/** Values of a column: the array that its kind prescribes. */
export type ColumnValues =
  | Uint8Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array;

/** Buffers of one column in the Arrow layout. They show the memory of the batch: they are valid
 *  until the batch is cleared or decoded into. */
export interface ColumnData extends Column {
  /** Number of values; for the items of a list that of all lists together. */
  readonly length: number;
  /** One bit a value, 1 where it is not null, from the least significant bit; undefined for a
   *  column that is not nullable. */
  readonly validity: Uint8Array | undefined;
  /** Start of each value of a text, list or map, and behind them the end of the last one. In a
   *  union: the element of the branch. Undefined for other kinds. */
  readonly offsets: Int32Array | undefined;
  /** Numbers; indexes of symbols; bytes of texts and of fixed values; bits of booleans; type ids of
   *  a union. Empty for lists, maps and structs. */
  readonly values: ColumnValues;
  readonly children: readonly ColumnData[];
}

/** Shows column `index` of a batch. */
export function columnData(batch: ColumnBatch, index: number): ColumnData {
  const column = batch.schema.all[index] as Column;
  const offsets = batch.bytesOf(index, COLUMN_SLOT.OFFSETS);
  return {
    ...column,
    length: batch.lengthOf(index),
    validity: column.nullable ? batch.bytesOf(index, COLUMN_SLOT.VALIDITY) : undefined,
    offsets:
      offsets.length === 0
        ? undefined
        : new Int32Array(offsets.buffer, offsets.byteOffset, offsets.length >>> 2),
    values: valuesOf(column, batch.bytesOf(index, COLUMN_SLOT.VALUES)),
    children: batch.schema.childrenOf(index).map((child) => columnData(batch, child)),
  };
}

function valuesOf({ kind }: Column, { buffer, byteOffset, length }: Uint8Array): ColumnValues {
  switch (kind) {
    case 'int32':
    case 'dictionary':
      return new Int32Array(buffer, byteOffset, length >>> 2);
    case 'uint32':
      return new Uint32Array(buffer, byteOffset, length >>> 2);
    case 'int64':
      return new BigInt64Array(buffer, byteOffset, length >>> 3);
    case 'uint64':
      return new BigUint64Array(buffer, byteOffset, length >>> 3);
    case 'float32':
      return new Float32Array(buffer, byteOffset, length >>> 2);
    case 'float64':
      return new Float64Array(buffer, byteOffset, length >>> 3);
    default:
      return new Uint8Array(buffer, byteOffset, length);
  }
}
