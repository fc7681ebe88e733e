/** Incremental reader of a call's messages, however frames split them.
 *
 *      message = flag (0: not compressed) length (32 bits, big endian) bytes
 *  Source: the gRPC documentation, PROTOCOL-HTTP2.
 */

export const PREFIX_BYTES = 5;
const GROWTH_MIN_BYTES = 64;
const EMPTY = Buffer.alloc(0);

export type ReadResult = 'more' | 'message' | 'too_long' | 'compressed' | 'malformed';

export class MessageReader {
  /** Last complete message; its owner is the caller of `accept`. */
  message: Buffer = EMPTY;
  /** Position at which `accept` stopped. */
  at = 0;
  private readonly max: number;
  /** Bytes of the prefix that have arrived. */
  private prefix = 0;
  private flag = 0;
  private length = 0;
  private kept: Buffer = EMPTY;
  private size = 0;

  constructor(max: number) {
    this.max = max;
  }

  /** True while a message is incomplete. */
  get isWithin(): boolean {
    return this.prefix > 0;
  }

  /** Memory of an incomplete message, in bytes. */
  get heldBytes(): number {
    return this.kept.length;
  }

  /** Reads up to the end of a message, or of the bytes. @cost O(to - from) */
  accept(bytes: Buffer, from: number, to: number): ReadResult {
    let at = from;
    while (this.prefix < PREFIX_BYTES && at < to) {
      const byte = bytes[at++] as number;
      if (this.prefix === 0) {
        this.flag = byte;
        this.length = 0;
      } else this.length = this.length * 256 + byte;
      this.prefix++;
    }
    this.at = at;
    if (this.prefix > 0 && this.flag !== 0) return this.flag === 1 ? 'compressed' : 'malformed';
    if (this.prefix < PREFIX_BYTES) return 'more';
    if (this.length > this.max) return 'too_long';
    const count = Math.min(this.length - this.size, to - at);
    this.keep(bytes, at, count);
    this.at = at + count;
    if (this.size < this.length) return 'more';
    this.message = this.kept.length === this.size ? this.kept : this.kept.subarray(0, this.size);
    this.kept = EMPTY;
    this.size = 0;
    this.prefix = 0;
    return 'message';
  }

  /** Copies the bytes, so that a message does not keep the socket's chunk in memory. The buffer
   *  grows by received bytes, never by announced ones. */
  private keep(bytes: Buffer, at: number, count: number): void {
    const size = this.size + count;
    if (size > this.kept.length) {
      const grown =
        size === this.length
          ? Buffer.allocUnsafe(size)
          : Buffer.allocUnsafeSlow(Math.min(this.length, Math.max(GROWTH_MIN_BYTES, 2 * size)));
      this.kept.copy(grown, 0, 0, this.size);
      this.kept = grown;
    }
    bytes.copy(this.kept, this.size, at, at + count);
    this.size = size;
  }
}
