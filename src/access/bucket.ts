/** Token buckets, one for each client: `burst` tokens, refilled at `perSecond`.
 *  Invariant: at most `bucketsMax` are kept; the least recently used bucket is evicted. It would
 *  soon be full again, so a client gains no more by evicting its bucket than by waiting. */
import type { Clock } from '../core/clock.ts';
import { LruMap } from '../core/lru-map.ts';

interface Bucket {
  tokens: number;
  atMs: number;
}

export interface BucketOptions {
  readonly perSecond: number;
  readonly burst: number;
  readonly bucketsMax: number;
  readonly clock: Clock;
}

export class Buckets {
  private readonly options: BucketOptions;
  private readonly buckets = new LruMap<string, Bucket>();

  constructor(options: BucketOptions) {
    this.options = options;
  }

  get size(): number {
    return this.buckets.size;
  }

  /** Takes a token. Returns 0 if it was taken; else nothing was taken, and a token is available
   *  after this many seconds. */
  take(key: string): number {
    const { perSecond, burst } = this.options;
    const bucket = this.bucket(key);
    if (bucket.tokens >= 1) {
      bucket.tokens--;
      return 0;
    }
    return Math.min((1 - bucket.tokens) / perSecond, burst / perSecond + 1);
  }

  refund(key: string): void {
    const bucket = this.buckets.get(key);
    if (bucket !== undefined) bucket.tokens = Math.min(this.options.burst, bucket.tokens + 1);
  }

  private bucket(key: string): Bucket {
    const { perSecond, burst, bucketsMax, clock } = this.options;
    const nowMs = clock.monotonicMs();
    const known = this.buckets.get(key);
    if (known === undefined) {
      if (this.buckets.size >= bucketsMax) this.buckets.shift();
      const created = { tokens: burst, atMs: nowMs };
      this.buckets.set(key, created);
      return created;
    }
    known.tokens = Math.min(burst, known.tokens + (Math.max(0, nowMs - known.atMs) / 1000) * perSecond);
    known.atMs = nowMs;
    return known;
  }
}
