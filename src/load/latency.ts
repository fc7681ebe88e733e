/** Log-linear histogram of latencies from 1 us to 100 minutes. The width of a bucket is at most
 *  1/64 of its values. */

const SUB_BITS = 6;
const SUB = 1 << SUB_BITS;
const BITS_MAX = 33;
const BUCKETS = (BITS_MAX - SUB_BITS + 1) * SUB;

function bucketOf(us: number): number {
  if (us < SUB) return us;
  const bits = us < 2 ** 32 ? 31 - Math.clz32(us) : 32;
  const shift = 2 ** (bits - SUB_BITS);
  return Math.min(BUCKETS - 1, (bits - SUB_BITS + 1) * SUB + Math.min(SUB - 1, Math.floor(us / shift) - SUB));
}

/** Returns the largest value of a bucket. */
function boundOf(bucket: number): number {
  if (bucket < SUB) return bucket;
  const shift = 2 ** (Math.floor(bucket / SUB) - 1);
  return (SUB + (bucket % SUB) + 1) * shift - 1;
}

export class LatencyHistogram {
  private readonly counts = new Float64Array(BUCKETS);
  private total = 0;
  private largestUs = 0;

  record(ms: number): void {
    const us = Math.max(0, Math.round(ms * 1000));
    const bucket = bucketOf(us);
    this.counts[bucket] = (this.counts[bucket] as number) + 1;
    this.total++;
    this.largestUs = Math.max(this.largestUs, us);
  }

  get count(): number {
    return this.total;
  }

  /** Returns an upper bound of quantile q in ms, at most 1/64 too large; NaN if nothing was
   *  recorded. */
  quantileMs(q: number): number {
    if (this.total === 0) return Number.NaN;
    const rank = Math.max(1, Math.ceil(q * this.total));
    let seen = 0;
    for (let bucket = 0; bucket < BUCKETS; bucket++) {
      seen += this.counts[bucket] as number;
      if (seen >= rank) return Math.min(boundOf(bucket), this.largestUs) / 1000;
    }
    return this.largestUs / 1000;
  }

  get maxMs(): number {
    return this.total === 0 ? Number.NaN : this.largestUs / 1000;
  }
}
