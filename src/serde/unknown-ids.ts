/** Rate limit of requests for ids and guids that the registry does not know: a negative cache, and
 *  a token bucket for the ids of a batch beyond its first ones.
 *  Invariants: (1) an id in the cache is not requested again until its entry expires;
 *  (2) of the ids beyond the first ones, at most UNKNOWN_IDS_BURST unknown ids are requested in a
 *  burst, and UNKNOWN_IDS_PER_SECOND a second on average. An id that the registry knows returns its
 *  token, so a cold start is not limited. */
import type { Clock } from '../core/clock.ts';
import type { MillraceError } from '../core/errors.ts';

/** Capacity of the token bucket: the longest burst of requests for unknown ids. */
export const UNKNOWN_IDS_BURST = 64;
/** Refill rate of the token bucket, in requests a second. */
const UNKNOWN_IDS_PER_SECOND = 32;
/** Most ids in the negative cache; the oldest entry is evicted first. */
const CACHED_IDS_MAX = 10_000;

export class UnknownIds {
  private readonly clock: Clock;
  private readonly unknownForMs: number;
  private readonly cached = new Map<
    number | string,
    { readonly error: MillraceError; readonly untilMs: number }
  >();
  private readonly burst: number;
  private readonly perSecond: number;
  private tokens: number;
  private filledMs: number;

  /** @param unknownForMs time to live of a cache entry
   *  @param sharers number of instances that share the limits */
  constructor(clock: Clock, unknownForMs: number, sharers = 1) {
    this.burst = Math.max(1, UNKNOWN_IDS_BURST / sharers);
    this.perSecond = UNKNOWN_IDS_PER_SECOND / sharers;
    this.tokens = this.burst;
    this.clock = clock;
    this.unknownForMs = unknownForMs;
    this.filledMs = clock.monotonicMs();
  }

  /** Returns the cached error of an id, until it expires. */
  errorOf(id: number | string): MillraceError | undefined {
    const known = this.cached.get(id);
    if (known === undefined) return undefined;
    if (this.clock.monotonicMs() < known.untilMs) return known.error;
    this.cached.delete(id);
    return undefined;
  }

  /** Takes a token for one request. True: granted. The caller returns the token if the registry
   *  knows the id or does not answer. */
  reserve(): boolean {
    const nowMs = this.clock.monotonicMs();
    const filled = this.tokens + ((nowMs - this.filledMs) / 1000) * this.perSecond;
    this.tokens = Math.min(this.burst, filled);
    this.filledMs = nowMs;
    if (this.tokens < 1) return false;
    this.tokens--;
    return true;
  }

  unreserve(): void {
    this.tokens = Math.min(this.burst, this.tokens + 1);
  }

  remember(id: number | string, error: MillraceError): void {
    if (this.cached.size >= CACHED_IDS_MAX) {
      const [oldest] = this.cached.keys();
      this.cached.delete(oldest as number | string);
    }
    this.cached.set(id, { error, untilMs: this.clock.monotonicMs() + this.unknownForMs });
  }
}
