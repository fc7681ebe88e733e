/** FIFO cache of serialised answers, limited by its total bytes. */

/** Limit of all cached answers together, in bytes. */
const BYTES_MAX = 16 << 20;

export class ByteCache {
  private readonly entries = new Map<string, Uint8Array>();
  private bytes = 0;
  private readonly bytesMax: number;

  constructor(bytesMax: number = BYTES_MAX) {
    this.bytesMax = bytesMax;
  }

  get(key: string): Uint8Array | undefined {
    return this.entries.get(key);
  }

  /** Evicts the oldest entries first. Does not store a body larger than an eighth of the limit. */
  set(key: string, body: Uint8Array): void {
    if (body.length > this.bytesMax / 8) return;
    this.bytes += body.length - (this.entries.get(key)?.length ?? 0);
    this.entries.set(key, body);
    for (const [old, { length }] of this.entries) {
      if (this.bytes <= this.bytesMax) break;
      this.entries.delete(old);
      this.bytes -= length;
    }
  }
}
