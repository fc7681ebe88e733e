/** Position in an Avro payload and the checked readers of primitive values. The rules and the
 *  reported positions are those of src/formats/avro/codec/cursor.ts. */
import { isUtf8 } from 'node:buffer';
import { AVRO_LIMIT, COLUMN_STATUS } from '../../../core/layout/layouts.gen.ts';

/** Verdict that ends a row. */
export class RowError extends Error {
  /** COLUMN_STATUS.* */
  readonly status: number;
  /** Byte of the payload's buffer. */
  readonly at: number;

  constructor(status: number, at: number) {
    super(`status ${status} at byte ${at}`);
    this.status = status;
    this.at = at;
  }
}

export class AvroInput {
  bytes: Uint8Array = new Uint8Array(0);
  at = 0;
  end = 0;
  /** Words of the long that was read last. */
  low = 0;
  high = 0;
  private depth = 0;
  emptyValues = 0;

  open(bytes: Uint8Array, start: number, end: number): void {
    this.bytes = bytes;
    this.at = start;
    this.end = end;
    this.depth = 0;
    this.emptyValues = 0;
  }

  close(): void {
    if (this.at !== this.end) throw this.malformed();
  }

  malformed(at = this.at): RowError {
    return new RowError(COLUMN_STATUS.MALFORMED, at);
  }

  incompatible(at = this.at): RowError {
    return new RowError(COLUMN_STATUS.INCOMPATIBLE, at);
  }

  /** Consumes `count` bytes and returns their start. */
  consume(count: number, begun = this.at): number {
    const from = this.at;
    if (!(count >= 0 && count <= this.end - from)) throw this.malformed(begun);
    this.at = from + count;
    return from;
  }

  boolean(): boolean {
    const at = this.consume(1);
    const byte = this.bytes[at] as number;
    if (byte > 1) throw this.malformed(at);
    return byte === 1;
  }

  int(): number {
    let at = this.at;
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      if (at >= this.end) throw this.malformed();
      const byte = this.bytes[at++] as number;
      // The fifth byte holds the last four bits.
      if (shift === 28 && byte > 15) break;
      value |= (byte & 0x7f) << shift;
      if (byte < 128) {
        this.at = at;
        return (value >>> 1) ^ -(value & 1);
      }
    }
    throw this.malformed();
  }

  /** Reads a long into `low` and `high`. */
  long(): void {
    let at = this.at;
    // 28, 28 and 8 bits, so that 32-bit operations can assemble each part.
    let first = 0;
    let second = 0;
    let third = 0;
    for (let i = 0; i < 10; i++) {
      if (at >= this.end) throw this.malformed();
      const byte = this.bytes[at++] as number;
      // The tenth byte holds the last bit.
      if (i === 9 && byte > 1) break;
      const bits = byte & 0x7f;
      if (i < 4) first |= bits << (7 * i);
      else if (i < 8) second |= bits << (7 * (i - 4));
      else third |= bits << (7 * (i - 8));
      if (byte < 128) {
        this.at = at;
        const low = first | (second << 28);
        const high = (second >>> 4) | (third << 24);
        const sign = -(low & 1);
        this.low = ((low >>> 1) | (high << 31)) ^ sign;
        this.high = (high >>> 1) ^ sign;
        return;
      }
    }
    throw this.malformed();
  }

  /** Reads a long as a double, rounded beyond 2^53. */
  longAsDouble(): number {
    this.long();
    return this.high * 0x1_0000_0000 + (this.low >>> 0);
  }

  /** Reads a long as a float, rounded once. */
  longAsFloat(): number {
    const double = this.longAsDouble();
    if (Number.isSafeInteger(double)) return Math.fround(double);
    // A sticky bit for the bits that a double omits keeps the second rounding correct.
    const low = (this.low & 0x7ff) === 0 ? this.low : (this.low & ~0x7ff) | 0x800;
    return Math.fround(this.high * 0x1_0000_0000 + (low >>> 0));
  }

  float(): number {
    const at = this.consume(4);
    return new DataView(this.bytes.buffer, this.bytes.byteOffset).getFloat32(at, true);
  }

  /** Reads a length and consumes so many bytes. @returns their start; their end is `at` */
  blob(): number {
    const begun = this.at;
    return this.consume(this.longAsDouble(), begun);
  }

  /** Reads as `blob` does, and checks that the bytes are UTF-8. */
  text(): number {
    const begun = this.at;
    const from = this.blob();
    if (!isUtf8(this.bytes.subarray(from, this.at))) throw this.malformed(begun);
    return from;
  }

  /** Reads the index of one of `count` symbols or branches. */
  index(count: number): number {
    const begun = this.at;
    const index = this.int();
    if (index >= 0 && index < count) return index;
    throw this.malformed(begun);
  }

  enter(): void {
    if (++this.depth > AVRO_LIMIT.DEPTH) throw this.malformed();
  }

  leave(): void {
    this.depth--;
  }

  countEmpty(values: number): void {
    this.emptyValues += values;
    if (this.emptyValues > AVRO_LIMIT.EMPTY_VALUES) throw this.malformed();
  }

  /** Reads the blocks of an array or a map and calls `item` for each item. */
  blocks(isEmpty: boolean, item: () => void): void {
    this.enter();
    for (let count = this.longAsDouble(); count !== 0; count = this.longAsDouble()) {
      const end = count < 0 ? this.blockEnd() : undefined;
      if (isEmpty) this.countEmpty(Math.abs(count));
      for (let left = Math.abs(count); left > 0; left--) {
        const before = this.at;
        const empties = this.emptyValues;
        item();
        // Bounds programs whose items read nothing; compiled ones count such items before.
        if (!isEmpty && this.at === before && this.emptyValues === empties) this.countEmpty(1);
      }
      if (end !== undefined && this.at !== end) throw this.malformed();
    }
    this.leave();
  }

  private blockEnd(): number {
    const begun = this.at;
    const length = this.longAsDouble();
    if (length >= 0 && length <= this.end - this.at) return this.at + length;
    throw this.malformed(begun);
  }
}
