/** Reads elements of the Protobuf wire format, one at a time and never beyond the message that
 *  contains them. Source: protobuf.dev, "Encoding".
 *
 *  Invariants: (1) `at` never exceeds `limit`; (2) nothing is allocated for a length or a count
 *  before that many bytes are known to exist; (3) the nesting of messages and the number of fields
 *  are bounded. */
import { textOf } from '../../binary/text-bytes.ts';

export const WIRE = { VARINT: 0, FIXED64: 1, LENGTH: 2, GROUP: 3, END: 4, FIXED32: 5 } as const;

/** Tags of an item of a message set, an encoding of proto2 for messages that only have extensions:
 *  a group with the extension's number and its message. Source: protobuf's own wire_format.h. */
export const SET_ITEM = { BEGIN: 0x0b, NUMBER: 0x10, MESSAGE: 0x1a, END: 0x0c } as const;

/** Greatest nesting of messages, map entries and groups; equal to the limit of protoc's own
 *  parsers. */
export const PROTO_NESTING_MAX = 100;

/** Greatest number of fields of all messages of one payload, including absent ones: a message of
 *  two bytes may have thousands. */
const FIELDS_MAX = 1 << 20;
const FIELDS_PER_BYTE_MAX = 32;

const VARINT_BYTES_MAX = 10;
/** Greatest number of bytes of a tag and of a length, which are 32 bits wide. */
const SHORT_VARINT_BYTES_MAX = 5;

/** Error of bytes that are no such message. Each enclosing message prepends its step to `path`. */
export class WireFault extends Error {
  readonly at: number;
  path = '';

  /** @param at byte offset inside the payload */
  constructor(why: string, at: number) {
    super(why);
    this.at = at;
  }
}

/** Two words of a 64-bit integer, and views of the same bytes as one integer: many times faster
 *  than the constructor of bigint. */
const words = new Int32Array(2);
const signed = new BigInt64Array(words.buffer);
const unsigned = new BigUint64Array(words.buffer);

export class ProtoInput {
  bytes: Buffer = Buffer.alloc(0);
  at = 0;
  /** End of the current message. */
  limit = 0;
  /** Words of the varint that was read last. */
  low = 0;
  high = 0;
  /** Messages that lacked a required field at their end, with the offset of that end. */
  readonly incomplete = new Map<object, number>();
  private start = 0;
  private depth = 0;
  private fieldsLeft = 0;

  /** Begins a payload. */
  open(bytes: Buffer, start: number, end: number): void {
    this.bytes = bytes;
    this.at = start;
    this.limit = end;
    this.start = start;
    this.depth = 0;
    this.fieldsLeft = Math.max(FIELDS_MAX, (end - start) * FIELDS_PER_BYTE_MAX);
    if (this.incomplete.size > 0) this.incomplete.clear();
  }

  /** Throws an error of the wire format. @param from start of the invalid part */
  fault(why: string, from: number): never {
    throw new WireFault(why, from - this.start);
  }

  /** Offset of `at` inside the payload. */
  get offset(): number {
    return this.at - this.start;
  }

  private consume(count: number): number {
    const from = this.at;
    if (count > this.limit - from)
      this.fault(`${count} bytes are needed, and ${this.limit - from} are left`, from);
    this.at = from + count;
    return from;
  }

  /** Reads up to ten bytes into `low` and `high`; bits beyond 64 are dropped. */
  varint(): void {
    const from = this.at;
    const { bytes, limit } = this;
    if (limit - from >= 4) {
      let bits = bytes[from] as number;
      let at = from + 1;
      if (bits >= 0x80) {
        bits = (bits & 0x7f) | ((bytes[at++] as number) << 7);
        if (bits >= 0x4000) {
          bits = (bits & 0x3fff) | ((bytes[at++] as number) << 14);
          if (bits >= 0x20_0000) bits = (bits & 0x1f_ffff) | ((bytes[at++] as number) << 21);
        }
      }
      if (bits < 0x1000_0000) {
        this.at = at;
        this.low = bits;
        this.high = 0;
        return;
      }
    }
    let low = 0;
    let high = 0;
    for (let i = 0; i < VARINT_BYTES_MAX; i++) {
      if (from + i >= limit) this.fault('the bytes end inside a varint', from);
      const byte = bytes[from + i] as number;
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
    this.fault(`a varint is longer than ${VARINT_BYTES_MAX} bytes`, from);
  }

  private shortVarint(from: number): void {
    this.varint();
    if (this.at - from > SHORT_VARINT_BYTES_MAX)
      this.fault(`a tag or a length is longer than ${SHORT_VARINT_BYTES_MAX} bytes`, from);
  }

  /** Reads a field number and a wire type; the number is from 1 to 2^29 - 1. */
  tag(): number {
    const from = this.at;
    this.shortVarint(from);
    const tag = this.low >>> 0;
    if (this.high !== 0) this.fault('a field number is above 2^29 - 1', from);
    if (tag < 8) this.fault('a field has the number 0', from);
    return tag;
  }

  /** Reads the tag of the next field; 0 at the end of the message. */
  nextTag(): number {
    const { at } = this;
    if (at >= this.limit) return 0;
    const byte = this.bytes[at] as number;
    // Tags of one byte, except those with the field number 0.
    if (byte < 8 || byte > 127) return this.tag();
    this.at = at + 1;
    return byte;
  }

  /** Reads a length and checks that so many bytes are left. */
  private length(): number {
    const from = this.at;
    this.shortVarint(from);
    const length = this.low >>> 0;
    const left = this.limit - this.at;
    if (this.high !== 0 || length > left) {
      this.fault(`a length of ${this.unsigned()} bytes, where ${left} are left`, from);
    }
    return length;
  }

  int32(): number {
    this.varint();
    return this.low;
  }

  uint32(): number {
    this.varint();
    return this.low >>> 0;
  }

  sint32(): number {
    this.varint();
    return (this.low >>> 1) ^ -(this.low & 1);
  }

  bool(): boolean {
    this.varint();
    return (this.low | this.high) !== 0;
  }

  int64(): bigint {
    this.varint();
    words[0] = this.low;
    words[1] = this.high;
    return signed[0] as bigint;
  }

  uint64(): bigint {
    this.varint();
    return this.unsigned();
  }

  private unsigned(): bigint {
    words[0] = this.low;
    words[1] = this.high;
    return unsigned[0] as bigint;
  }

  sint64(): bigint {
    this.varint();
    const sign = -(this.low & 1);
    words[0] = ((this.low >>> 1) | (this.high << 31)) ^ sign;
    words[1] = (this.high >>> 1) ^ sign;
    return signed[0] as bigint;
  }

  fixed32(): number {
    return this.bytes.readUInt32LE(this.consume(4));
  }

  sfixed32(): number {
    return this.bytes.readInt32LE(this.consume(4));
  }

  fixed64(): bigint {
    return this.bytes.readBigUInt64LE(this.consume(8));
  }

  sfixed64(): bigint {
    return this.bytes.readBigInt64LE(this.consume(8));
  }

  float(): number {
    return this.bytes.readFloatLE(this.consume(4));
  }

  double(): number {
    return this.bytes.readDoubleLE(this.consume(8));
  }

  text(): string {
    const from = this.consume(this.length());
    return textOf(this.bytes, from, this.at) ?? this.fault('a text is not UTF-8', from);
  }

  /** Reads bytes as a copy: the owner of the buffer reuses it. */
  blob(): Buffer {
    const from = this.consume(this.length());
    return Buffer.from(this.bytes.subarray(from, this.at));
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

  /** Reads a message behind its length. @param read reads a message up to the limit */
  nested(read: (input: ProtoInput) => unknown): unknown {
    this.descend();
    const outer = this.enter();
    const value = read(this);
    this.leave(outer);
    this.ascend();
    return value;
  }

  /** Reads skipped bytes again: `read` sees only those from `from` to `to`. */
  reread(from: number, to: number, read: () => void): void {
    const { at, limit } = this;
    this.at = from;
    this.limit = to;
    read();
    this.at = at;
    this.limit = limit;
  }

  /** Counts a level of nesting. */
  descend(): void {
    if (++this.depth > PROTO_NESTING_MAX) this.tooDeep(this.at);
  }

  ascend(): void {
    this.depth--;
  }

  private tooDeep(from: number): never {
    this.fault(`messages are nested deeper than ${PROTO_NESTING_MAX} levels`, from);
  }

  /** Counts fields that are produced or read again. */
  spend(fields: number): void {
    this.fieldsLeft -= fields;
    if (this.fieldsLeft < 0) {
      const most = `${FIELDS_MAX} and ${FIELDS_PER_BYTE_MAX} a byte`;
      this.fault(`the messages have more fields together than a payload of this size may: ${most}`, this.at);
    }
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
          this.consume(this.length());
          break;
        case WIRE.FIXED32:
          this.consume(4);
          break;
        case WIRE.GROUP:
          groups.push(next >>> 3);
          if (this.depth + groups.length > PROTO_NESTING_MAX) this.tooDeep(at);
          break;
        case WIRE.END:
          if (groups.pop() !== next >>> 3) this.fault(`group ${next >>> 3} ends, and another is open`, at);
          break;
        default:
          this.fault(`wire type ${next & 7} does not exist`, at);
      }
      if (groups.length === 0) return;
    }
  }
}
