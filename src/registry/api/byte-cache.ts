/** FIFO cache of serialised answers, limited by its total bytes. An answer about a content is keyed
 *  by the number of the content: a guid may have several contents. */

/** Limit of all cached answers together, in bytes. */
const BYTES_MAX = 16 << 20;

type Key = number | string;

export class ByteCache {
  private readonly entries = new Map<Key, Uint8Array>();
  private readonly numbers = new WeakMap<object, number>();
  private lastNumber = 0;
  private bytes = 0;
  private readonly bytesMax: number;

  constructor(bytesMax: number = BYTES_MAX) {
    this.bytesMax = bytesMax;
  }

  /** Number of a content object, which no other content object ever gets. */
  numberOf(content: object): number {
    const known = this.numbers.get(content);
    if (known !== undefined) return known;
    this.numbers.set(content, ++this.lastNumber);
    return this.lastNumber;
  }

  get(key: Key): Uint8Array | undefined {
    return this.entries.get(key);
  }

  /** Evicts the oldest entries first. Does not store a body larger than an eighth of the limit. */
  set(key: Key, body: Uint8Array): void {
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
