/** Encoded payloads one after the other in one growing buffer, as input of the frame kernel. */
import { invariant } from '../core/errors.ts';

/** Greatest number of bytes of a payload, below the limit of a broker record. */
const PAYLOAD_BYTES_MAX = 64 << 20;

export class Payloads {
  bytes: Buffer;
  readonly start: Uint32Array;
  readonly length: Int32Array;
  count = 0;
  used = 0;

  constructor(rows: number, bytes: number) {
    this.bytes = Buffer.allocUnsafeSlow(bytes);
    this.start = new Uint32Array(rows);
    this.length = new Int32Array(rows);
  }

  clear(): void {
    this.count = 0;
    this.used = 0;
  }

  /** Makes room for `more` bytes behind the used ones, which are kept. */
  grow(more: number): void {
    invariant(this.used + more <= PAYLOAD_BYTES_MAX * 2, 'encoded payloads stay below their limit');
    const grown = Buffer.allocUnsafeSlow(Math.max(this.bytes.length * 2, this.used + more));
    this.bytes.copy(grown, 0, 0, this.used);
    this.bytes = grown;
  }

  /** Appends a tombstone: a row without a payload. */
  pushNull(): void {
    this.start[this.count] = this.used;
    this.length[this.count] = -1;
    this.count++;
  }

  /** Appends the bytes from `used` to `end` as the next payload. */
  push(end: number): void {
    this.start[this.count] = this.used;
    this.length[this.count] = end - this.used;
    this.count++;
    this.used = end;
  }
}
