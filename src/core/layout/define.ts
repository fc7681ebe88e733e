/** Definition language of binary layouts: data from which the TypeScript accessors, the C++ headers
 *  and docs/reference/layouts.md are generated. No other part of the project may know an offset.
 *
 *  Two shapes exist. A *struct* is one record with fields at fixed offsets. A *batch* is one
 *  ArrayBuffer whose parts start at multiples of ALIGN bytes:
 *
 *    | header struct | column 0 | column 1 | … | arena |
 *
 *  A column is `rowCapacity` cells of one type. Integers are little-endian unless a field says
 *  otherwise.
 */

export const ALIGN = 64;

export type CellType = 'u8' | 'i32' | 'u32' | 'i64' | 'u64' | 'f64';

export const CELL_BYTES: Readonly<Record<CellType, number>> = {
  u8: 1,
  i32: 4,
  u32: 4,
  i64: 8,
  u64: 8,
  f64: 8,
};

export interface Field {
  readonly name: string;
  readonly type: CellType | 'u32be' | 'bytes';
  /** Byte offset from the start of the struct. */
  readonly at: number;
  /** Length of a `bytes` field; absent: to the end of the struct. */
  readonly bytes?: number;
  readonly meaning: string;
}

export interface StructLayout {
  readonly shape: 'struct';
  readonly name: string;
  /** Total size, or the least size where the last field runs to the end. */
  readonly bytes: number;
  readonly fields: readonly Field[];
  readonly meaning: string;
}

export interface LayoutColumn {
  readonly name: string;
  readonly type: CellType;
  readonly meaning: string;
}

export interface BatchLayout {
  readonly shape: 'batch';
  readonly name: string;
  /** Layout id in the header of a buffer; identifies the layout of the buffer. */
  readonly id: number;
  readonly columns: readonly LayoutColumn[];
  readonly arena: boolean;
  readonly meaning: string;
}

export type Layout = StructLayout | BatchLayout;

/** Named numbers that both sides of the seam use: flags, status words, sentinels. */
export interface ConstantGroup {
  readonly name: string;
  readonly meaning: string;
  readonly values: Readonly<Record<string, number>>;
}

/** FNV-1a, 32 bit, over the text that describes every layout: a cheap identity of the whole set. */
export function fingerprintOf(layouts: readonly Layout[], constants: readonly ConstantGroup[]): number {
  const text = JSON.stringify([layouts, constants], (key, value) => (key === 'meaning' ? undefined : value));
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
