/** Types of columns in the Arrow columnar format, and the constructors of the tree.
 *
 *  A column has children in the order of the Arrow format: the items of a list, the struct of key
 *  and value of a map, the fields of a struct, the branches of a dense union. Source: Arrow
 *  columnar format 1.5, "Physical Memory Layout". */
import { COLUMN_KIND } from '../layout/layouts.gen.ts';

/** Memory layout of a column.
 *
 *  null: no buffer. bool: one bit a value. utf8, binary: bytes behind i32 offsets. fixed: `size`
 *  bytes a value. decimal128, decimal256: two's complement, little-endian. dictionary: i32 indexes
 *  of `symbols`. list, map: i32 offsets into the child. union: a dense union, with one type id (i8)
 *  and one offset (i32) a value; it has no validity. */
export type ColumnKind =
  | 'null'
  | 'bool'
  | 'int32'
  | 'int64'
  | 'uint32'
  | 'uint64'
  | 'float32'
  | 'float64'
  | 'utf8'
  | 'binary'
  | 'fixed'
  | 'decimal128'
  | 'decimal256'
  | 'dictionary'
  | 'list'
  | 'map'
  | 'struct'
  | 'union';

/** Meaning of the values of a column beyond their memory layout. */
export type ColumnLogical =
  | { readonly type: 'date' }
  | { readonly type: 'time'; readonly unit: 'millis' | 'micros' }
  | {
      readonly type: 'timestamp';
      readonly unit: 'millis' | 'micros' | 'nanos';
      /** True: a wall-clock time without a time zone. */
      readonly isLocal: boolean;
    }
  | { readonly type: 'uuid' }
  /** Avro's 12 bytes: months, days and milliseconds, each u32 little-endian. */
  | { readonly type: 'duration' }
  | { readonly type: 'decimal'; readonly precision: number; readonly scale: number };

export interface Column {
  readonly name: string;
  readonly kind: ColumnKind;
  /** True: the column has a validity bitmap. Never true of null and union columns. */
  readonly nullable: boolean;
  /** Bytes of a value of a fixed column; otherwise absent. */
  readonly size?: number;
  /** Values of a dictionary column, by index; otherwise absent. */
  readonly symbols?: readonly string[];
  readonly logical?: ColumnLogical;
  readonly children: readonly Column[];
}

/** Number of each kind in the table that kernels read. */
export const COLUMN_KIND_OF: Readonly<Record<ColumnKind, number>> = {
  null: COLUMN_KIND.NULL,
  bool: COLUMN_KIND.BOOL,
  int32: COLUMN_KIND.INT32,
  int64: COLUMN_KIND.INT64,
  uint32: COLUMN_KIND.UINT32,
  uint64: COLUMN_KIND.UINT64,
  float32: COLUMN_KIND.FLOAT32,
  float64: COLUMN_KIND.FLOAT64,
  utf8: COLUMN_KIND.UTF8,
  binary: COLUMN_KIND.BINARY,
  fixed: COLUMN_KIND.FIXED,
  decimal128: COLUMN_KIND.DECIMAL128,
  decimal256: COLUMN_KIND.DECIMAL256,
  dictionary: COLUMN_KIND.DICTIONARY,
  list: COLUMN_KIND.LIST,
  map: COLUMN_KIND.MAP,
  struct: COLUMN_KIND.STRUCT,
  union: COLUMN_KIND.UNION,
};

const CELL_BYTES: Readonly<Partial<Record<ColumnKind, number>>> = {
  int32: 4,
  int64: 8,
  uint32: 4,
  uint64: 8,
  float32: 4,
  float64: 8,
  decimal128: 16,
  decimal256: 32,
  dictionary: 4,
};

/** Bytes of one value in the values buffer; 0 where values have no fixed number of bytes. */
export const cellBytes = (column: Column): number =>
  column.kind === 'fixed' ? (column.size ?? 0) : (CELL_BYTES[column.kind] ?? 0);

/** Makes a column. @param more children, size, symbols, and the annotation, where the kind has
 *  them */
export function column(
  kind: ColumnKind,
  name: string,
  nullable: boolean,
  more: Partial<Pick<Column, 'children' | 'size' | 'symbols' | 'logical'>> = {},
): Column {
  return { name, kind, nullable, children: more.children ?? [], ...more };
}

/** Makes a map column from its key and value columns. Arrow requires that keys and entries are
 *  never null. */
export function mapColumn(name: string, nullable: boolean, key: Column, value: Column): Column {
  const entries = column('struct', 'entries', false, { children: [key, value] });
  return column('map', name, nullable, { children: [entries] });
}
