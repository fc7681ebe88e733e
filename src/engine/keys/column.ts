import { copySpan } from '../../core/rows.ts';

/** Canonical keys of the rows of a page, one after the other. */
export class KeyColumn {
  private readonly bytes: Uint8Array;
  private readonly ends: Uint32Array;
  private readonly first: number;

  /** @param ends end of each key in `bytes`
   *  @param first index of the key of row 0 */
  constructor(bytes: Uint8Array, ends: Uint32Array, first = 0) {
    this.bytes = bytes;
    this.ends = ends;
    this.first = first;
  }

  /** Borrows the key of a row. */
  key(row: number): Uint8Array {
    const at = this.first + row;
    return this.bytes.subarray(at === 0 ? 0 : this.ends[at - 1], this.ends[at]);
  }

  /** Bytes of the key of a row. */
  length(row: number): number {
    const at = this.first + row;
    return (this.ends[at] as number) - (at === 0 ? 0 : (this.ends[at - 1] as number));
  }

  /** Copies the key of a row. Returns the end of the copy. */
  copy(row: number, into: Uint8Array, to: number): number {
    const at = this.first + row;
    return copySpan(
      this.bytes,
      at === 0 ? 0 : (this.ends[at - 1] as number),
      this.ends[at] as number,
      into,
      to,
    );
  }

  /** Keys of the first rows: their bytes, and the end of each from the start of the bytes. */
  spans(rowCount: number): { readonly bytes: Uint8Array; readonly ends: Uint32Array } {
    const { bytes, ends, first } = this;
    if (first === 0) return { bytes, ends };
    const start = ends[first - 1] as number;
    return {
      bytes: bytes.subarray(start),
      ends: ends.slice(first, first + rowCount).map((end) => end - start),
    };
  }

  /** Bytes of the keys of the first rows. */
  end(rowCount: number): number {
    const { ends, first } = this;
    const endOf = (rows: number): number => (rows === 0 ? 0 : (ends[rows - 1] as number));
    return endOf(first + rowCount) - endOf(first);
  }

  /** The keys of the rows from a row on. */
  from(row: number): KeyColumn {
    return new KeyColumn(this.bytes, this.ends, this.first + row);
  }
}
