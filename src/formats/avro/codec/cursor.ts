/** Position of a decoder in an Avro payload, and the readers of primitive values.
 *
 *  Invariants: (1) `start <= at <= end`, and no byte outside `[start, end)` is read; (2) every
 *  number of the payload is checked against a limit before it is used: lengths against the
 *  remaining bytes, nesting and values without bytes against limits of their own. Source: Apache
 *  Avro 1.12 specification, "Binary Encoding". */
import { isUtf8 } from 'node:buffer';
import { invariant, type MillraceError } from '../../../core/errors.ts';
import { AVRO_LIMIT } from '../../../core/layout/layouts.gen.ts';
import { textOf } from '../../binary/text-bytes.ts';
import { formatError } from '../../errors.ts';

/** Greatest nesting of records, arrays and maps. */
export const AVRO_PAYLOAD_DEPTH_MAX = AVRO_LIMIT.DEPTH;
/** Greatest number of values without bytes (null outside a union, an empty record) in a payload. */
const AVRO_EMPTY_VALUES_MAX = AVRO_LIMIT.EMPTY_VALUES;
/** Characters of a path that an error shows. */
const PATH_CHARS_MAX = 500;

/** Reason why a payload cannot be read, and the byte where reading failed. Each enclosing value
 *  adds its step to the path. */
export class Unreadable extends Error {
  readonly code: 'malformed_payload' | 'incompatible_schema';
  readonly at: number;
  /** Steps from the innermost outwards: `.field`, `[2]` of an array, `{2}` of a map. */
  private readonly steps: string[] = [];

  constructor(code: Unreadable['code'], why: string, at: number) {
    super(why);
    this.code = code;
    this.at = at;
  }

  /** Adds `step` to an Unreadable error that was thrown while the value at `step` was read. */
  static inside(step: string, thrown: unknown): unknown {
    if (thrown instanceof Unreadable) thrown.steps.push(step);
    return thrown;
  }

  /** Converts to the public error. @param root first part of the path; @param start start of the
   *  payload */
  toError(root: string, start: number): MillraceError {
    let path = '';
    let left = this.steps.length;
    for (const step of this.steps) {
      if (path.length + step.length > PATH_CHARS_MAX) break;
      path = step + path;
      left--;
    }
    path = (left === 0 ? root : '…') + path;
    const at = this.at - start;
    return formatError(this.code, `${this.message}, in ${path} at byte ${at} of the payload`, {
      details: { at, path },
    });
  }
}

/** Two words of a 64-bit integer, and a view of the same bytes as one integer. */
const words = new Int32Array(2);
const wide = new BigInt64Array(words.buffer);

export class AvroCursor {
  private bytes: Buffer = Buffer.alloc(0);
  private end = 0;
  at = 0;
  /** Values without bytes that were read. */
  emptyValues = 0;
  private depth = 0;
  /** Words of the long that was read last. */
  private low = 0;
  private high = 0;

  open(bytes: Buffer, start: number, end: number): void {
    invariant(start >= 0 && start <= end && end <= bytes.length, 'a payload lies inside its buffer');
    this.bytes = bytes;
    this.at = start;
    this.end = end;
    this.depth = 0;
    this.emptyValues = 0;
  }

  /** Checks that the value used the whole payload. Call it when the value has been read. */
  close(): void {
    if (this.at !== this.end)
      throw this.malformed(`${this.end - this.at} bytes are left over behind the value`);
  }

  /** Goes back to a place between two values. @param emptyValues number at that place */
  rewind(at: number, emptyValues: number): void {
    this.at = at;
    this.emptyValues = emptyValues;
    this.depth = 0;
  }

  malformed(why: string, at = this.at): Unreadable {
    return new Unreadable('malformed_payload', why, at);
  }

  unresolved(why: string, at = this.at): Unreadable {
    return new Unreadable('incompatible_schema', why, at);
  }

  /** Consumes the next `count` bytes and returns their start. */
  private consume(count: number, begun = this.at): number {
    const from = this.at;
    if (!(count >= 0 && count <= this.end - from))
      throw this.malformed(
        count < 0
          ? `a length is ${count}`
          : `the payload ends inside a value: ${this.end - from} of ${count} bytes are there`,
        begun,
      );
    this.at = from + count;
    return from;
  }

  boolean(): boolean {
    const at = this.consume(1);
    const byte = this.bytes[at] as number;
    if (byte > 1) throw this.malformed(`a boolean is ${byte}, neither 0 nor 1`, at);
    return byte === 1;
  }

  /** Reads the bits of an integer of up to four bytes; -1, with nothing read, for a longer one and
   *  near the end of the payload. */
  private fewBits(): number {
    const { bytes, at, end } = this;
    if (at >= end) return -1;
    let bits = bytes[at] as number;
    if (bits < 0x80) {
      this.at = at + 1;
      return bits;
    }
    if (end - at < 4) return -1;
    bits = (bits & 0x7f) | ((bytes[at + 1] as number) << 7);
    if (bits < 0x4000) {
      this.at = at + 2;
      return bits;
    }
    bits = (bits & 0x3fff) | ((bytes[at + 2] as number) << 14);
    if (bits < 0x20_0000) {
      this.at = at + 3;
      return bits;
    }
    bits = (bits & 0x1f_ffff) | ((bytes[at + 3] as number) << 21);
    if (bits >= 0x1000_0000) return -1;
    this.at = at + 4;
    return bits;
  }

  int(): number {
    const bits = this.fewBits();
    return bits < 0 ? this.longerInt() : (bits >>> 1) ^ -(bits & 1);
  }

  /** Reads an integer of any number of bytes. */
  private longerInt(): number {
    const { bytes, end } = this;
    let at = this.at;
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      if (at >= end) throw this.malformed('the payload ends inside an integer');
      const byte = bytes[at++] as number;
      // The fifth byte holds the last four bits.
      if (shift === 28 && byte > 15) break;
      value |= (byte & 0x7f) << shift;
      if (byte < 128) {
        this.at = at;
        return (value >>> 1) ^ -(value & 1);
      }
    }
    throw this.malformed('an integer has more than 32 bits');
  }

  /** Reads a long into `low` and `high`. */
  private readLong(): void {
    const { bytes, end } = this;
    let at = this.at;
    // 28, 28 and 8 bits, so that 32-bit operations can assemble each part.
    let first = 0;
    let second = 0;
    let third = 0;
    for (let i = 0; i < 10; i++) {
      if (at >= end) throw this.malformed('the payload ends inside an integer');
      const byte = bytes[at++] as number;
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
    throw this.malformed('an integer has more than 64 bits');
  }

  long(): bigint {
    const bits = this.fewBits();
    if (bits < 0) {
      this.readLong();
      words[0] = this.low;
      words[1] = this.high;
    } else {
      words[0] = (bits >>> 1) ^ -(bits & 1);
      words[1] = -(bits & 1);
    }
    return wide[0] as bigint;
  }

  /** Reads an int as a long. The constructor of bigint takes many times as long as the view. */
  intAsLong(): bigint {
    const value = this.int();
    words[0] = value;
    words[1] = value >> 31;
    return wide[0] as bigint;
  }

  /** Reads a length or a count, which is a long. */
  private length(): number {
    const bits = this.fewBits();
    return bits < 0 ? this.longAsDouble() : (bits >>> 1) ^ -(bits & 1);
  }

  /** Reads a long as a double, rounded beyond 2^53 as a conversion of long to double. */
  longAsDouble(): number {
    this.readLong();
    return this.high * 0x1_0000_0000 + (this.low >>> 0);
  }

  /** Reads a long as a float, rounded once as a conversion of long to float. */
  longAsFloat(): number {
    const double = this.longAsDouble();
    if (Number.isSafeInteger(double)) return Math.fround(double);
    // A double cannot hold all the bits. A sticky bit for the bits that it omits keeps the second
    // rounding correct.
    const low = (this.low & 0x7ff) === 0 ? this.low : (this.low & ~0x7ff) | 0x800;
    return Math.fround(this.high * 0x1_0000_0000 + (low >>> 0));
  }

  float(): number {
    return this.bytes.readFloatLE(this.consume(4));
  }

  double(): number {
    return this.bytes.readDoubleLE(this.consume(8));
  }

  text(): string {
    const begun = this.at;
    const text = textOf(this.bytes, this.consume(this.length(), begun), this.at);
    if (text === undefined) throw this.malformed('a text is not UTF-8', begun);
    return text;
  }

  /** Reads bytes as a copy: the payload's buffer is reused. */
  blob(): Buffer {
    const begun = this.at;
    return Buffer.from(this.bytes.subarray(this.consume(this.length(), begun), this.at));
  }

  /** Reads the bytes of a text, checked to be UTF-8. */
  textBlob(): Buffer {
    const begun = this.at;
    const blob = this.blob();
    if (!isUtf8(blob)) throw this.malformed('a text is not UTF-8', begun);
    return blob;
  }

  fixed(size: number): Buffer {
    return Buffer.from(this.bytes.subarray(this.consume(size), this.at));
  }

  skip(size: number): void {
    this.consume(size);
  }

  skipBlob(): void {
    const begun = this.at;
    this.consume(this.length(), begun);
  }

  skipText(): void {
    const begun = this.at;
    const from = this.consume(this.length(), begun);
    if (!isUtf8(this.bytes.subarray(from, this.at))) throw this.malformed('a text is not UTF-8', begun);
  }

  /** Begins a record, an array or a map. */
  enter(): void {
    if (++this.depth > AVRO_PAYLOAD_DEPTH_MAX)
      throw this.malformed(`values are nested deeper than ${AVRO_PAYLOAD_DEPTH_MAX}`);
  }

  /** Ends a record that began at `begun` and has `nulls` fields that never have bytes. */
  leaveRecord(begun: number, nulls: number): void {
    this.depth--;
    if (nulls > 0) this.countEmpty(nulls);
    if (this.at === begun) this.countEmpty(1);
  }

  /** Ends an array or a map. */
  leave(): void {
    this.depth--;
  }

  /** Counts values that take no byte. */
  countEmpty(values: number): void {
    this.emptyValues += values;
    if (this.emptyValues > AVRO_EMPTY_VALUES_MAX)
      throw this.malformed(`more than ${AVRO_EMPTY_VALUES_MAX} values take no byte`);
  }

  /** Reads the index of one of `count` symbols or branches. */
  index(count: number, what: 'symbol' | 'branch'): number {
    const begun = this.at;
    const index = this.int();
    if (index >= 0 && index < count) return index;
    throw this.malformed(`there is no ${what} ${index}: the writer's schema has ${count}`, begun);
  }

  /** Reads the items of an array or a map: blocks of a count, or of a negative count and the bytes
   *  of the block; a count of 0 ends them.
   *  @param item reads one item and adds it to `into`; @param isEmpty true when items never have
   *  bytes */
  blocks<Into>(
    brackets: '[]' | '{}',
    isEmpty: boolean,
    into: Into,
    item: (from: AvroCursor, into: Into) => void,
  ): void {
    this.enter();
    let done = 0;
    for (let count = this.longAsDouble(); count !== 0; count = this.longAsDouble()) {
      const end = count < 0 ? this.blockEnd() : undefined;
      if (isEmpty) this.countEmpty(Math.abs(count));
      try {
        for (let left = Math.abs(count); left > 0; left--) {
          item(this, into);
          done++;
        }
      } catch (thrown) {
        throw Unreadable.inside(`${brackets[0]}${done}${brackets[1]}`, thrown);
      }
      if (end !== undefined) this.endBlock(end);
    }
    this.leave();
  }

  /** Reads the number of items of a block; negative where the bytes of the block follow; 0 after
   *  the last block. */
  count(): number {
    return this.length();
  }

  /** Checks that a block ended where its bytes end. */
  endBlock(end: number): void {
    if (this.at !== end)
      throw this.malformed(`a block ends ${Math.abs(this.at - end)} bytes off where it says`);
  }

  /** Reads the bytes of a block, and returns its end. */
  blockEnd(): number {
    const begun = this.at;
    const length = this.longAsDouble();
    if (length >= 0 && length <= this.end - this.at) return this.at + length;
    throw this.malformed(`a block says it has ${length} bytes; ${this.end - this.at} are left`, begun);
  }
}
