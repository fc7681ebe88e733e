/** Writes the elements of a payload behind the ones that a Payloads holds.
 *
 *  Invariants: (1) `at <= end`, and every element reserves its room before it is written; (2) the
 *  bytes of a value that is refused are not part of any payload, because only `push` appends; (3)
 *  one value is written at a time: a getter of a value cannot write into the same payloads. */
import { ValueRefusal } from './value-refusal.ts';

/** Greatest number of bytes of one payload, below the limit of a broker record. */
export const PAYLOAD_BYTES_MAX = 64 << 20;

declare global {
  interface Buffer {
    /** `write` without the selection of an encoding; undocumented, in every version of Node. */
    utf8Write(text: string, offset: number): number;
  }
}

const VARINT_BYTES_MAX = 10;
/** Greatest number of UTF-8 bytes of one UTF-16 unit. */
const UTF8_BYTES_MAX = 3;
/** Up to this length a loop over the characters is faster than a call into the runtime. */
const LOOP_CHARS_MAX = 20;
/** Texts beyond this length are measured before they are written: three bytes for each character
 *  would waste memory. */
const UNMEASURED_CHARS_MAX = 1 << 16;
const TWO_32 = 0x1_0000_0000;

/** Two words of a 64-bit integer, and a view of the same bytes as one integer. */
const words = new Int32Array(2);
const wide = new BigInt64Array(words.buffer);

/** Buffer that grows, with payloads one after the other. */
export interface PayloadBuffer {
  readonly bytes: Buffer;
  /** Bytes of the complete payloads. */
  readonly used: number;
  /** Makes room for `more` bytes behind the used ones; keeps the first `kept` bytes. */
  grow(more: number, kept: number): void;
  /** Appends the bytes from `used` to `end` as a payload. */
  push(end: number): void;
}

export class Sink {
  bytes: Buffer;
  at = 0;
  /** Records, lists and maps around the current value. */
  depth = 0;
  private end: number;
  private view: DataView;
  private readonly payloads: PayloadBuffer;
  private isOpen = false;

  constructor(payloads: PayloadBuffer) {
    this.payloads = payloads;
    this.bytes = payloads.bytes;
    this.end = this.bytes.length;
    this.view = viewOf(this.bytes);
  }

  /** Begins a payload. @throws ValueRefusal while another value is written */
  open(): void {
    if (this.isOpen)
      throw new ValueRefusal('writes another value into the same payloads by one of its properties');
    const { payloads } = this;
    if (this.bytes !== payloads.bytes) this.follow();
    this.at = payloads.used;
    this.depth = 0;
    this.isOpen = true;
  }

  /** Ends the payload and appends it. */
  close(): void {
    this.isOpen = false;
    this.payloads.push(this.at);
  }

  /** Ends a payload that is not appended. */
  abandon(): void {
    this.isOpen = false;
  }

  private follow(): void {
    this.bytes = this.payloads.bytes;
    this.end = this.bytes.length;
    this.view = viewOf(this.bytes);
  }

  /** Makes room for `more` bytes. @throws ValueRefusal for a payload above its limit */
  reserve(more: number): void {
    if (this.at + more > this.end) this.grow(more);
  }

  private grow(more: number): void {
    const { payloads, at } = this;
    if (at - payloads.used + more > PAYLOAD_BYTES_MAX)
      throw new ValueRefusal(`makes the payload longer than ${PAYLOAD_BYTES_MAX} bytes`);
    payloads.grow(at - payloads.used + more, at);
    this.follow();
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.at++] = value;
  }

  /** Writes an unsigned number of 32 bits as a varint. */
  varint(value: number): void {
    this.reserve(VARINT_BYTES_MAX);
    const { bytes } = this;
    let at = this.at;
    if (value >= 0 && value < 128) {
      bytes[at] = value;
      this.at = at + 1;
      return;
    }
    let rest = value >>> 0;
    for (; rest > 127; rest >>>= 7) bytes[at++] = rest | 128;
    bytes[at++] = rest;
    this.at = at;
  }

  /** Writes two words as a varint of 64 bits. */
  varintWords(low: number, high: number): void {
    this.reserve(VARINT_BYTES_MAX);
    const { bytes } = this;
    let at = this.at;
    let rest = low >>> 0;
    let upper = high >>> 0;
    while (upper > 0) {
      bytes[at++] = rest | 128;
      rest = ((rest >>> 7) | (upper << 25)) >>> 0;
      upper >>>= 7;
    }
    for (; rest > 127; rest >>>= 7) bytes[at++] = rest | 128;
    bytes[at++] = rest;
    this.at = at;
  }

  zigzag(value: number): void {
    this.varint((value << 1) ^ (value >> 31));
  }

  /** Writes two words of a signed integer of 64 bits as a zigzag varint. */
  zigzagWords(low: number, high: number): void {
    const sign = high >> 31;
    this.varintWords((low << 1) ^ sign, ((high << 1) | (low >>> 31)) ^ sign);
  }

  /** Writes a signed integer of 64 bits as a zigzag varint. */
  zigzagWide(value: bigint): void {
    wide[0] = value;
    this.zigzagWords(words[0] as number, words[1] as number);
  }

  /** Writes a safe integer as a zigzag varint. */
  zigzagSafe(value: number): void {
    if (value === (value | 0) && value !== -0x8000_0000) this.zigzag(value);
    else this.zigzagWords(value >>> 0, Math.floor(value / TWO_32));
  }

  varintWide(value: bigint): void {
    wide[0] = value;
    this.varintWords(words[0] as number, words[1] as number);
  }

  /** Writes a safe integer as a varint of 64 bits. */
  varintSafe(value: number): void {
    if (value >= 0 && value < TWO_32) this.varint(value);
    else this.varintWords(value >>> 0, Math.floor(value / TWO_32));
  }

  fixed32(value: number): void {
    this.reserve(4);
    this.view.setInt32(this.at, value, true);
    this.at += 4;
  }

  fixed64(value: bigint): void {
    this.reserve(8);
    this.view.setBigInt64(this.at, value, true);
    this.at += 8;
  }

  float(value: number): void {
    this.reserve(4);
    this.view.setFloat32(this.at, value, true);
    this.at += 4;
  }

  double(value: number): void {
    this.reserve(8);
    this.view.setFloat64(this.at, value, true);
    this.at += 8;
  }

  raw(value: Uint8Array): void {
    this.reserve(value.length);
    this.bytes.set(value, this.at);
    this.at += value.length;
  }

  /** Writes a text behind its length in bytes. @param shift bits by which the length is shifted: 1
   *  for a zigzag varint. @returns false for a text with a lone surrogate, which has no encoding */
  text(value: string, shift: 0 | 1): boolean {
    const { length } = value;
    if (length > LOOP_CHARS_MAX) return this.longText(value, shift);
    this.reserve(length + 1);
    const { bytes } = this;
    const start = this.at;
    let at = start + 1;
    for (let i = 0; i < length; i++) {
      const code = value.charCodeAt(i);
      if (code > 127) return this.longText(value, shift);
      bytes[at++] = code;
    }
    bytes[start] = length << shift;
    this.at = at;
    return true;
  }

  private longText(value: string, shift: 0 | 1): boolean {
    const { length } = value;
    const isMeasured = length > UNMEASURED_CHARS_MAX;
    const most = isMeasured ? Buffer.byteLength(value) : length * UTF8_BYTES_MAX;
    this.reserve(most + VARINT_BYTES_MAX);
    const start = this.at;
    const head = varintLength((isMeasured ? most : length) << shift);
    const written = this.bytes.utf8Write(value, start + head);
    // Only a text beyond ASCII has more bytes than characters.
    if (written !== length && !value.isWellFormed()) return false;
    const needed = varintLength(written << shift);
    if (needed !== head) this.bytes.copyWithin(start + needed, start + head, start + head + written);
    this.varint(written << shift);
    this.at += written;
    return true;
  }

  /** Begins a part behind its length in bytes; `end` writes the length. */
  begin(): number {
    this.reserve(1);
    return this.at++;
  }

  /** Ends a part. @param start result of `begin` */
  finish(start: number): void {
    const from = start + 1;
    const length = this.at - from;
    if (length < 128) {
      this.bytes[start] = length;
      return;
    }
    // One byte was reserved, which is enough for most lengths.
    const more = varintLength(length) - 1;
    this.reserve(more);
    this.bytes.copyWithin(from + more, from, this.at);
    const end = this.at + more;
    this.at = start;
    this.varint(length);
    this.at = end;
  }
}

export const viewOf = (bytes: Uint8Array): DataView =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** Bytes of the varint of a number below 2^32. */
function varintLength(value: number): number {
  let length = 1;
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) length++;
  return length;
}
