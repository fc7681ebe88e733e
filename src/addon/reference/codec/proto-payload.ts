/** Position in a Protobuf payload and the checked readers of its elements. The rules and the
 *  reported positions are those of src/formats/protobuf/codec/input.ts. */
import { isUtf8 } from 'node:buffer';
import { COLUMN_STATUS, PROTO_LIMIT } from '../../../core/layout/layouts.gen.ts';
import { RowError } from './avro-input.ts';

export const WIRE = { VARINT: 0, FIXED64: 1, LENGTH: 2, GROUP: 3, END: 4, FIXED32: 5 } as const;

const VARINT_BYTES_MAX = 10;
/** Greatest number of bytes of a tag and of a length. */
const SHORT_VARINT_BYTES_MAX = 5;

export class ProtoPayload {
  bytes: Uint8Array = new Uint8Array(0);
  at = 0;
  /** End of the current message. */
  limit = 0;
  /** Words of the number that was read last. */
  low = 0;
  high = 0;
  private depth = 0;
  private fieldsLeft = 0;

  open(bytes: Uint8Array, start: number, end: number): void {
    this.bytes = bytes;
    this.at = start;
    this.limit = end;
    this.depth = 0;
    this.fieldsLeft = Math.max(PROTO_LIMIT.FIELDS, (end - start) * PROTO_LIMIT.FIELDS_PER_BYTE);
  }

  malformed(at: number): RowError {
    return new RowError(COLUMN_STATUS.MALFORMED, at);
  }

  /** Consumes `count` bytes and returns their start. */
  consume(count: number): number {
    const from = this.at;
    if (count > this.limit - from) throw this.malformed(from);
    this.at = from + count;
    return from;
  }

  /** Reads up to ten bytes into `low` and `high`; bits beyond 64 are dropped. */
  varint(): void {
    const from = this.at;
    let low = 0;
    let high = 0;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (from + i >= this.limit) throw this.malformed(from);
      const byte = this.bytes[from + i] as number;
      const bits = byte & 0x7f;
      if (i < 4) low |= bits << (7 * i);
      else if (i > 4) high |= bits << (7 * i - 32);
      else {
        low |= bits << 28;
        high = bits >>> 4;
      }
      if (byte < 128) {
        this.at = from + i + 1;
        this.low = low;
        this.high = high;
        return;
      }
    }
    throw this.malformed(from);
  }

  /** Reads a field number and a wire type. */
  tag(): number {
    const from = this.at;
    this.varint();
    const isLong = this.at - from > SHORT_VARINT_BYTES_MAX;
    if (isLong || this.high !== 0 || this.low >>> 0 < 8) throw this.malformed(from);
    return this.low >>> 0;
  }

  /** Reads a length of bytes that are left. */
  length(): number {
    const from = this.at;
    this.varint();
    const isLong = this.at - from > SHORT_VARINT_BYTES_MAX;
    if (isLong || this.high !== 0 || this.low >>> 0 > this.limit - this.at) throw this.malformed(from);
    return this.low >>> 0;
  }

  sint32(): void {
    this.varint();
    this.low = (this.low >>> 1) ^ -(this.low & 1);
  }

  sint64(): void {
    this.varint();
    const sign = -(this.low & 1);
    const low = ((this.low >>> 1) | (this.high << 31)) ^ sign;
    this.high = (this.high >>> 1) ^ sign;
    this.low = low;
  }

  fixed32(): void {
    this.low = this.word(this.consume(4));
  }

  fixed64(): void {
    const at = this.consume(8);
    this.low = this.word(at);
    this.high = this.word(at + 4);
  }

  private word(at: number): number {
    const { bytes } = this;
    return (
      (bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24)
    );
  }

  /** Reads a length and consumes so many bytes. @returns their start; their end is `at` */
  blob(): number {
    return this.consume(this.length());
  }

  /** Reads as `blob` does, and checks that the bytes are UTF-8. */
  text(): number {
    const from = this.blob();
    if (!isUtf8(this.bytes.subarray(from, this.at))) throw this.malformed(from);
    return from;
  }

  /** Enters the part behind a length. @returns the outer limit, for `leave` */
  enter(): number {
    const outer = this.limit;
    const length = this.length();
    this.limit = this.at + length;
    return outer;
  }

  leave(outer: number): void {
    this.limit = outer;
  }

  /** Counts a level of nesting. */
  descend(): void {
    if (++this.depth > PROTO_LIMIT.DEPTH) throw this.malformed(this.at);
  }

  ascend(): void {
    this.depth--;
  }

  /** Counts fields that are produced or cleared. */
  spend(fields: number): void {
    this.fieldsLeft -= fields;
    if (this.fieldsLeft < 0) throw this.malformed(this.at);
  }

  /** Skips the value of an unknown field, a group with its content. @param from start of the tag */
  skip(tag: number, from: number): void {
    const groups: number[] = [];
    for (let next = tag, at = from; ; at = this.at, next = this.tag()) {
      switch (next & 7) {
        case WIRE.VARINT:
          this.varint();
          break;
        case WIRE.FIXED64:
          this.consume(8);
          break;
        case WIRE.LENGTH:
          this.blob();
          break;
        case WIRE.FIXED32:
          this.consume(4);
          break;
        case WIRE.GROUP:
          groups.push(next >>> 3);
          if (this.depth + groups.length > PROTO_LIMIT.DEPTH) throw this.malformed(at);
          break;
        case WIRE.END:
          if (groups.pop() !== next >>> 3) throw this.malformed(at);
          break;
        default:
          throw this.malformed(at);
      }
      if (groups.length === 0) return;
    }
  }
}
