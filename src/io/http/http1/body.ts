/** Incremental reader of a request body, by length or in chunks, within bounds.
 *
 *      chunk  = size [ ";" name [ "=" value ] ]* CRLF data CRLF        size: up to 8 hex digits
 *      body   = chunk* "0" extensions CRLF ( name ":" value CRLF )* CRLF
 *  Extensions and trailers are checked, counted and dropped; a bare line feed is malformed.
 *  Source: RFC 9112 section 7.1.
 */
import { EMPTY } from '../request.ts';
import { CHUNKED } from './head.ts';

export type BodyState = 'more' | 'done' | 'malformed' | 'too_large' | 'overhead_too_large';

const LF = 10;
const CR = 13;
const GROWTH_MIN_BYTES = 1024;

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const QUOTED = '"(?:[\\t \\x21\\x23-\\x5b\\x5d-\\x7e\\x80-\\xff]|\\\\[\\t\\x20-\\x7e\\x80-\\xff])*"';
/** Alternatives begin with different characters, so matching takes one pass. */
const SIZE_LINE = new RegExp(`^([0-9A-Fa-f]{1,8})(?:;${TOKEN}(?:=(?:${TOKEN}|${QUOTED}))?)*\\r\\n$`);
const TRAILER_LINE = new RegExp(`^${TOKEN}:[\\t\\x20-\\x7e\\x80-\\xff]*\\r\\n$`);

type Part = 'size' | 'data' | 'data_end' | 'trailer';

export class WireBody {
  state: BodyState = 'more';
  private readonly max: number;
  private readonly overheadMax: number;
  private readonly chunked: boolean;
  private readonly discards: boolean;
  /** Bytes of the body, or of the chunk, that have not arrived. */
  private left: number;
  private kept: Buffer | undefined;
  private size = 0;
  private part: Part = 'size';
  /** Part of a size line or trailer line that has arrived. */
  private line = '';
  /** Bytes of extensions and trailers. */
  private overhead = 0;

  /** @param length bytes of the body, or CHUNKED
   *  @param overheadMax most bytes of all extensions and trailers
   *  @param discards true: bytes are checked and counted, not kept */
  constructor(length: number, max: number, overheadMax: number, discards = false) {
    this.chunked = length === CHUNKED;
    this.discards = discards;
    this.left = this.chunked ? 0 : length;
    this.max = max;
    this.overheadMax = overheadMax;
    if (this.left > max) this.state = 'too_large';
  }

  /** Bytes in memory. */
  get heldBytes(): number {
    return (this.kept?.length ?? 0) + this.line.length;
  }

  /** Whole body, once the state is `done`. */
  get bytes(): Uint8Array {
    return this.kept === undefined ? EMPTY : this.kept.subarray(0, this.size);
  }

  /** Reads from `bytes`; returns the start of the next request, or the length of `bytes`. */
  consume(bytes: Buffer, from: number): number {
    if (!this.chunked) return this.readData(bytes, from);
    let at = from;
    while (at < bytes.length && this.state === 'more') {
      if (this.part === 'data') at = this.readData(bytes, at);
      else if (this.part === 'data_end') at = this.readDataEnd(bytes, at);
      else at = this.readLine(bytes, at);
    }
    return at;
  }

  private readData(bytes: Buffer, at: number): number {
    const count = Math.min(this.left, bytes.length - at);
    // A body in one chunk of bytes is not copied.
    if (this.size === 0 && count === this.left && !this.chunked && !this.discards) {
      this.kept = bytes.subarray(at, at + count);
      this.size = count;
    } else this.keep(bytes, at, count);
    this.left -= count;
    if (this.left === 0) {
      if (this.chunked) this.part = 'data_end';
      else this.state = 'done';
    }
    return at + count;
  }

  /** Grows by received bytes, never by announced ones. */
  private keep(bytes: Buffer, at: number, count: number): void {
    const needed = this.size + count;
    if (this.discards) {
      this.size = needed;
      return;
    }
    if (this.kept === undefined || needed > this.kept.length) {
      const grown = Buffer.allocUnsafeSlow(
        Math.max(needed, GROWTH_MIN_BYTES, Math.min(this.max, needed * 2)),
      );
      this.kept?.copy(grown, 0, 0, this.size);
      this.kept = grown;
    }
    bytes.copy(this.kept, this.size, at, at + count);
    this.size = needed;
  }

  private readDataEnd(bytes: Buffer, at: number): number {
    // `left` counts the bytes of the line end that have arrived.
    if (bytes[at] !== (this.left === 0 ? CR : LF)) {
      this.state = 'malformed';
      return at;
    }
    this.left++;
    if (this.left === 2) {
      this.left = 0;
      this.part = 'size';
    }
    return at + 1;
  }

  private readLine(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(LF, at);
    const to = end < 0 ? bytes.length : end + 1;
    if (this.line.length + to - at > this.overheadMax) {
      this.state = 'overhead_too_large';
      return to;
    }
    this.line += bytes.toString('latin1', at, to);
    if (end >= 0) {
      const { line } = this;
      this.line = '';
      if (this.part === 'size') this.endSize(line);
      else this.endTrailer(line);
    }
    return to;
  }

  private endSize(line: string): void {
    const digits = SIZE_LINE.exec(line)?.[1];
    if (digits === undefined) {
      this.state = 'malformed';
      return;
    }
    this.count(line.length - digits.length - 2);
    this.left = Number.parseInt(digits, 16);
    this.part = this.left === 0 ? 'trailer' : 'data';
    if (this.size + this.left > this.max) this.state = 'too_large';
  }

  private endTrailer(line: string): void {
    if (line === '\r\n') this.state = 'done';
    else if (!TRAILER_LINE.test(line)) this.state = 'malformed';
    else this.count(line.length);
  }

  private count(bytes: number): void {
    this.overhead += bytes;
    if (this.overhead > this.overheadMax) this.state = 'overhead_too_large';
  }
}
