/** Writes the elements of a payload into the buffer of encoded frames.
 *
 *  Invariant: a variable number of bytes is written only where they fit with the spare bytes of all
 *  columns behind them, else `NeedFrameRoom` is thrown; other values need no check. Both kernels
 *  check at the same elements, so they ask for the same room. */
import { isUtf8 } from 'node:buffer';
import { ENCODE_LIMIT, ENCODE_STATUS } from '../../../core/layout/layouts.gen.ts';

/** Verdict that ends a row. */
export class RowRefusal extends Error {
  /** ENCODE_STATUS.* */
  readonly status: number;
  readonly column: number;

  constructor(status: number, column: number) {
    super(`status ${status} at column ${column}`);
    this.status = status;
    this.column = column;
  }
}

/** Reports that the buffer must hold `bytes` for the row. */
export class NeedFrameRoom extends Error {
  readonly bytes: number;

  constructor(bytes: number) {
    super(`the frames need ${bytes} bytes`);
    this.bytes = bytes;
  }
}

export const refused = (column: number): RowRefusal => new RowRefusal(ENCODE_STATUS.REFUSED, column);
export const broken = (column: number): RowRefusal => new RowRefusal(ENCODE_STATUS.BROKEN, column);

export class PayloadSink {
  at = 0;
  private bytes: Uint8Array = new Uint8Array(0);
  private payload = 0;
  private readonly spare: number;

  constructor(columns: number) {
    this.spare = (columns + 1) * ENCODE_LIMIT.SPARE_BYTES;
  }

  /** Begins a frame. @throws NeedFrameRoom */
  open(buffer: ArrayBuffer, at: number, prefix: Uint8Array): void {
    this.bytes = new Uint8Array(buffer);
    this.at = at;
    this.payload = at;
    this.reserve(prefix.length);
    this.raw(prefix);
    this.payload = this.at;
  }

  /** Ends a frame. @throws RowRefusal for a payload that is too large */
  close(): void {
    if (this.at - this.payload > ENCODE_LIMIT.PAYLOAD_BYTES) throw new RowRefusal(ENCODE_STATUS.TOO_LARGE, 0);
  }

  /** Demands room for `more` bytes. @throws NeedFrameRoom, RowRefusal */
  reserve(more: number): void {
    if (this.at + more + this.spare <= this.bytes.length) return;
    if (this.at + more - this.payload > ENCODE_LIMIT.PAYLOAD_BYTES)
      throw new RowRefusal(ENCODE_STATUS.TOO_LARGE, 0);
    throw new NeedFrameRoom(this.at + more + this.spare);
  }

  byte(value: number): void {
    this.bytes[this.at++] = value;
  }

  raw(value: Uint8Array): void {
    this.bytes.set(value, this.at);
    this.at += value.length;
  }

  varint(value: bigint): void {
    let rest = BigInt.asUintN(64, value);
    for (; rest >= 128n; rest >>= 7n) this.byte(Number(rest & 127n) | 128);
    this.byte(Number(rest));
  }

  zigzag(value: bigint): void {
    this.varint((value << 1n) ^ (value >> 63n));
  }

  /** Writes a text or binary value of `column` behind its length. @param shift bits by which the
   *  length is shifted. @throws RowRefusal, NeedFrameRoom */
  text(value: Uint8Array | undefined, column: number, shift: bigint, isText: boolean): void {
    if (value === undefined) throw broken(column);
    this.reserve(value.length);
    this.varint(BigInt(value.length) << shift);
    if (isText && !isUtf8(value)) throw refused(column);
    this.raw(value);
  }

  /** Begins a part behind its length in bytes. @returns the position for `finish` */
  begin(): number {
    return this.at++;
  }

  /** Ends a part: a length of more than one byte moves it. */
  finish(start: number): void {
    const part = this.bytes.slice(start + 1, this.at);
    this.at = start;
    this.varint(BigInt(part.length));
    this.raw(part);
  }
}
