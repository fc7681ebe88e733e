/** Encoded payloads one after the other in one growing buffer, as input of the frame kernel. */
import { invariant } from '../core/errors.ts';

import { PAYLOAD_BYTES_MAX, Sink } from './sink.ts';

export class Payloads {
  bytes: Buffer;
  readonly start: Uint32Array;
  readonly length: Int32Array;
  /** Writes the next payload. */
  readonly sink: Sink;
  count = 0;
  used = 0;

  constructor(rows: number, bytes: number) {
    this.bytes = Buffer.allocUnsafeSlow(bytes);
    this.start = new Uint32Array(rows);
    this.length = new Int32Array(rows);
    this.sink = new Sink(this);
  }

  clear(): void {
    this.count = 0;
    this.used = 0;
  }

  /** Makes room for `more` bytes behind the used ones. @param kept bytes that are kept */
  grow(more: number, kept = this.used): void {
    invariant(this.used + more <= PAYLOAD_BYTES_MAX * 2, 'encoded payloads stay below their limit');
    const grown = Buffer.allocUnsafeSlow(Math.max(this.bytes.length * 2, this.used + more));
    this.bytes.copy(grown, 0, 0, kept);
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
