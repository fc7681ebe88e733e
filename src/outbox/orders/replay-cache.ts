/** Finished answers by key, so that a repeat needs no database: a stored answer never changes, so one that was seen is right
 *  for as long as its key is kept.
 *
 *  Invariants: (1) the bytes of what is held, as estimated here, never exceed bytesMax; (2) the least recently asked goes
 *  first; (3) nothing is answered past its key's expiry, which another process may have carried out.
 */

/** What is stored under a key. */
export interface StoredAnswer {
  /** SHA-256 of the canonical request, 64 hex digits. */
  readonly requestHash: string;
  readonly orderId: string;
  readonly responseCode: number;
  /** JSON text, served as it is. */
  readonly responseBody: string;
  /** Wall time at which the key may be gone. */
  readonly expiresMs: number;
}

/** Objects and the map's own cells of an entry, beside the characters of its texts. */
const ENTRY_BYTES = 248;

const bytesOf = (key: string, answer: StoredAnswer): number =>
  ENTRY_BYTES + key.length + answer.requestHash.length + answer.orderId.length + answer.responseBody.length;

export class ReplayCache {
  private readonly bytesMax: number;
  /** In the order of their last use. */
  private readonly answers = new Map<string, StoredAnswer>();
  private held = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  get(key: string, nowMs: number): StoredAnswer | undefined {
    const answer = this.answers.get(key);
    if (answer === undefined) return undefined;
    this.answers.delete(key);
    if (nowMs >= answer.expiresMs) {
      this.held -= bytesOf(key, answer);
      return undefined;
    }
    this.answers.set(key, answer);
    return answer;
  }

  put(key: string, answer: StoredAnswer): void {
    const known = this.answers.get(key);
    if (known !== undefined) {
      this.answers.delete(key);
      this.held -= bytesOf(key, known);
    }
    const bytes = bytesOf(key, answer);
    if (bytes > this.bytesMax) return;
    this.answers.set(key, answer);
    this.held += bytes;
    while (this.held > this.bytesMax) {
      const [oldest, gone] = this.answers.entries().next().value as [string, StoredAnswer];
      this.answers.delete(oldest);
      this.held -= bytesOf(oldest, gone);
    }
  }

  bytes(): number {
    return this.held;
  }

  size(): number {
    return this.answers.size;
  }
}
