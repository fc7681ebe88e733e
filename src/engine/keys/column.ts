/** Canonical keys of the rows of a page, one after the other. */
export class KeyColumn {
  private readonly bytes: Uint8Array;
  private readonly ends: Uint32Array;

  /** @param ends end of each key in `bytes` */
  constructor(bytes: Uint8Array, ends: Uint32Array) {
    this.bytes = bytes;
    this.ends = ends;
  }

  /** Borrows the key of a row. */
  key(row: number): Uint8Array {
    return this.bytes.subarray(row === 0 ? 0 : this.ends[row - 1], this.ends[row]);
  }
}
