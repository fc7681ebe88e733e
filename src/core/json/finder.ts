/** Port of the kernel that finds the values of named fields in JSON documents: the addon and the
 *  TypeScript reference implementation. */
import type { PayloadSpans } from '../columns/kernel.ts';

/** Greatest nesting of values: it bounds the recursion. */
export const JSON_DEPTH_MAX = 1000;

/** Kind of a found value. */
export const JSON_VALUE = {
  MISSING: 0,
  NULL: 1,
  FALSE: 2,
  TRUE: 3,
  /** Any other number than an INTEGER. */
  NUMBER: 4,
  STRING: 5,
  /** String with an escape: JSON.parse reads its text. */
  ESCAPED: 6,
  OBJECT: 7,
  ARRAY: 8,
  /** Number of decimal digits within the range of an i64, other than -0. */
  INTEGER: 9,
} as const;

/** Found values of several documents. Row `i` has the cells from `i * fields` on, one a field.
 *  @shape isDocument u8[rows]; all others [rows * fields] */
export class FoundFields {
  readonly fields: number;
  readonly rowCapacity: number;
  /** 1 for a JSON document, 0 for other bytes and null values: their cells are meaningless. */
  readonly isDocument: Uint8Array;
  /** JSON_VALUE.* */
  readonly kind: Uint8Array;
  /** Place of the value in the bytes of the payloads, with the quotes of a string. */
  readonly start: Uint32Array;
  readonly end: Uint32Array;
  /** Value of a cell of kind INTEGER. */
  readonly integer: BigInt64Array;
  /** The same as words: low and high. */
  readonly words: Int32Array;

  constructor(fields: number, rowCapacity: number) {
    const cells = fields * rowCapacity;
    this.fields = fields;
    this.rowCapacity = rowCapacity;
    this.isDocument = new Uint8Array(rowCapacity);
    this.kind = new Uint8Array(cells);
    this.start = new Uint32Array(cells);
    this.end = new Uint32Array(cells);
    this.integer = new BigInt64Array(cells);
    this.words = new Int32Array(this.integer.buffer);
  }
}

/** Opened finder for fields at fixed paths. */
export interface JsonFinder {
  /** Fills the rows from 0 on with what the payloads `from` to `to` (exclusive) have.
   *  @throws out_of_range for a span outside its buffer, or more payloads than `into` has rows */
  find(payloads: PayloadSpans, from: number, to: number, into: FoundFields): void;
  /** Frees the finder; calling it again has no effect. */
  close(): void;
}

export interface JsonKernels {
  readonly name: 'native' | 'reference';
  /** Opens a finder of the fields at `paths`; a path is the names of nested objects. */
  openFinder(paths: ReadonlyArray<readonly string[]>): JsonFinder;
}
