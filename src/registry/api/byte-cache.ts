/** Answers made before, bounded by their bytes. */

/** Bytes of all kept answers. */
const BYTES_MAX = 16 << 20;

export class ByteCache {
  private readonly kept = new Map<string, Uint8Array>();
  private bytes = 0;
  private readonly bytesMax: number;

  constructor(bytesMax: number = BYTES_MAX) {
    this.bytesMax = bytesMax;
  }

  get(key: string): Uint8Array | undefined {
    return this.kept.get(key);
  }

  /** The oldest leave first. */
  set(key: string, body: Uint8Array): void {
    if (body.length > this.bytesMax / 8) return;
    this.bytes += body.length - (this.kept.get(key)?.length ?? 0);
    this.kept.set(key, body);
    for (const [old, { length }] of this.kept) {
      if (this.bytes <= this.bytesMax) break;
      this.kept.delete(old);
      this.bytes -= length;
    }
  }
}
