/** LRU cache of finished answers by key, so that a repeat needs no database. A stored answer never
 *  changes, so a cached one is valid while its key is kept.
 *
 *  Invariants: (1) the estimated bytes never exceed bytesMax; (2) the least recently used entry is
 *  evicted first; (3) no answer is returned after its key's expiry, because another process may
 *  have deleted the key.
 */
import { LruMap } from '../../../core/lru-map.ts';

/** Answer stored under a key. */
export interface StoredAnswer {
  /** SHA-256 of the canonical request, 64 hex digits. */
  readonly requestHash: string;
  readonly orderId: string;
  readonly responseCode: number;
  /** JSON text, served as it is. */
  readonly responseBody: string;
  /** Wall time from which the key may be deleted, ms since the epoch. */
  readonly expiresMs: number;
}

/** Estimated bytes of an entry beside the characters of its texts. */
const ENTRY_BYTES = 248;

const bytesOf = (key: string, answer: StoredAnswer): number =>
  ENTRY_BYTES + key.length + answer.requestHash.length + answer.orderId.length + answer.responseBody.length;

export class ReplayCache {
  private readonly bytesMax: number;
  private answers = new LruMap<string, StoredAnswer>();
  private held = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get(key: string, nowMs: number): StoredAnswer | undefined {
    const answer = this.answers.get(key);
    if (answer === undefined || nowMs < answer.expiresMs) return answer;
    this.answers.delete(key);
    this.held -= bytesOf(key, answer);
    return undefined;
  }

  put(key: string, answer: StoredAnswer): void {
    const bytes = bytesOf(key, answer);
    const known = bytes > this.bytesMax ? this.answers.delete(key) : this.answers.set(key, answer);
    if (known !== undefined) this.held -= bytesOf(key, known);
    if (bytes > this.bytesMax) return;
    this.held += bytes;
    while (this.held > this.bytesMax) {
      const [oldest, gone] = this.answers.shift() as readonly [string, StoredAnswer];
      this.held -= bytesOf(oldest, gone);
    }
  }

  /** Drops all entries, after a change of the TTL: their expiry depends on it. */
  clear(): void {
    this.answers = new LruMap();
    this.held = 0;
  }

  bytes(): number {
    return this.held;
  }

  size(): number {
    return this.answers.size;
  }
}
