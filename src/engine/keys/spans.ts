/** Canonical keys of the rows of an event batch, one after the other in one buffer.
 *
 *  Each key begins at a multiple of 4 and is followed by zeros up to the next one, so that it can
 *  be hashed and compared as words of 32 bits. */
import { KEY_BYTES_MAX, UUID_BYTES } from './type.ts';

/** Room for the longest key with the lengths of its parts, plus padding. */
const SPARE_BYTES = 2 * KEY_BYTES_MAX + 8;
const BYTES_MIN = 64 * 1024;
/** Longer spans are copied by one call. */
const LOOP_BYTES_MAX = 48;
const UUID_CHARS = 36;
const DASH = 0x2d;

/** Value of a hexadecimal digit; -1 for any other character. */
function hexDigit(char: number): number {
  if (char >= 0x30 && char <= 0x39) return char - 0x30;
  const letter = char | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

export class KeySpans {
  /** First word of each row's key. */
  at = new Int32Array(0);
  length = new Int32Array(0);
  bytes = new Uint8Array(BYTES_MIN);
  words = new Int32Array(this.bytes.buffer);
  /** Bytes in use; a multiple of 4 between two keys. */
  private used = 0;
  private from = 0;

  reset(rowCapacity: number): void {
    this.used = 0;
    if (this.at.length >= rowCapacity) return;
    this.at = new Int32Array(rowCapacity);
    this.length = new Int32Array(rowCapacity);
  }

  /** Begins a key; an unfinished key before it is forgotten. */
  begin(): void {
    this.used = (this.used + 3) & ~3;
    this.from = this.used;
    if (this.used + SPARE_BYTES > this.bytes.length) this.grow();
  }

  /** Appends a span. False: the key would be longer than its limit. */
  put(bytes: Uint8Array, from: number, to: number): boolean {
    if (this.used - this.from + to - from > KEY_BYTES_MAX) return false;
    if (to - from > LOOP_BYTES_MAX) this.bytes.set(bytes.subarray(from, to), this.used);
    else {
      const into = this.bytes;
      for (let i = from, at = this.used; i < to; i++, at++) into[at] = bytes[i] as number;
    }
    this.used += to - from;
    return true;
  }

  /** Appends a span without the byte 0. False: it has one, or the key would be too long. */
  putText(bytes: Uint8Array, from: number, to: number): boolean {
    if (to - from > LOOP_BYTES_MAX) {
      const at = this.used;
      return this.put(bytes, from, to) && !this.bytes.subarray(at, this.used).includes(0);
    }
    if (this.used - this.from + to - from > KEY_BYTES_MAX) return false;
    const into = this.bytes;
    let least = 0;
    for (let i = from, at = this.used; i < to; i++, at++) {
      const byte = bytes[i] as number;
      into[at] = byte;
      // Negative once a byte is 0.
      least |= byte - 1;
    }
    this.used += to - from;
    return least >= 0;
  }

  /** Appends the length of a span that follows. */
  putLength(length: number): boolean {
    if (this.used - this.from + length + 2 > KEY_BYTES_MAX) return false;
    this.bytes[this.used++] = length >> 8;
    this.bytes[this.used++] = length & 255;
    return true;
  }

  /** Appends the 16 bytes of a uuid in its text form. False: the span is no uuid. */
  putUuid(bytes: Uint8Array, from: number, to: number): boolean {
    if (to - from !== UUID_CHARS || this.used - this.from + UUID_BYTES > KEY_BYTES_MAX) return false;
    let high = -1;
    for (let i = 0; i < UUID_CHARS; i++) {
      const char = bytes[from + i] as number;
      if (i === 8 || i === 13 || i === 18 || i === 23) {
        if (char !== DASH) return false;
        continue;
      }
      const digit = hexDigit(char);
      if (digit < 0) return false;
      if (high < 0) high = digit;
      else {
        this.bytes[this.used++] = (high << 4) | digit;
        high = -1;
      }
    }
    return true;
  }

  /** Appends 64 bits, big-endian. */
  putWord(low: number, high: number): boolean {
    if (this.used - this.from + 8 > KEY_BYTES_MAX) return false;
    const { bytes, used } = this;
    for (let b = 0; b < 4; b++) {
      bytes[used + b] = high >>> (24 - 8 * b);
      bytes[used + 4 + b] = low >>> (24 - 8 * b);
    }
    this.used += 8;
    return true;
  }

  /** Ends the key, which is that of the row. */
  end(row: number): void {
    const { used } = this;
    for (let at = used; (at & 3) !== 0; at++) this.bytes[at] = 0;
    this.at[row] = this.from >> 2;
    this.length[row] = used - this.from;
  }

  key(row: number): Uint8Array {
    const from = (this.at[row] as number) * 4;
    return this.bytes.subarray(from, from + (this.length[row] as number));
  }

  private grow(): void {
    const bytes = new Uint8Array(2 * this.bytes.length);
    bytes.set(this.bytes);
    this.bytes = bytes;
    this.words = new Int32Array(bytes.buffer);
  }
}
