/** Bounds the requests for ids that the registry has no schema for: a negative cache, and a token bucket for what a batch
 *  asks beyond its first ids.
 *
 *  Invariants: (1) an id in the cache is not asked for again until its time is over; (2) of the ids beyond the first ones
 *  that the registry turned out not to know, at most UNKNOWN_IDS_BURST were asked for at once and UNKNOWN_IDS_PER_SECOND a
 *  second on average. An id that the registry knows costs nothing, so a cold start is not limited.
 */
import type { Clock } from '../core/clock.ts';
import type { MillraceError } from '../core/errors.ts';

/** Requests for unknown ids that a process may make at once, after a time without any. */
export const UNKNOWN_IDS_BURST = 64;
/** Requests for unknown ids a second, on average, of a process. */
const UNKNOWN_IDS_PER_SECOND = 32;
/** Ids in the negative cache; the oldest is forgotten first. */
const CACHED_IDS_MAX = 10_000;

export class UnknownIds {
  private readonly clock: Clock;
  private readonly unknownForMs: number;
  private readonly cached = new Map<number, { readonly error: MillraceError; readonly untilMs: number }>();
  private tokens = UNKNOWN_IDS_BURST;
  private filledMs: number;

  /** @param unknownForMs how long an answer is kept */
  constructor(clock: Clock, unknownForMs: number) {
    this.clock = clock;
    this.unknownForMs = unknownForMs;
    this.filledMs = clock.monotonicMs();
  }

  /** Why the id has no schema, if that was answered recently. */
  errorOf(id: number): MillraceError | undefined {
    const known = this.cached.get(id);
    if (known === undefined) return undefined;
    if (this.clock.monotonicMs() < known.untilMs) return known.error;
    this.cached.delete(id);
    return undefined;
  }

  /** Reserves one request. True: granted; return it if the registry knows the id or does not answer. */
  reserve(): boolean {
    const nowMs = this.clock.monotonicMs();
    const filled = this.tokens + ((nowMs - this.filledMs) / 1000) * UNKNOWN_IDS_PER_SECOND;
    this.tokens = Math.min(UNKNOWN_IDS_BURST, filled);
    this.filledMs = nowMs;
    if (this.tokens < 1) return false;
    this.tokens--;
    return true;
  }

  unreserve(): void {
    this.tokens = Math.min(UNKNOWN_IDS_BURST, this.tokens + 1);
  }

  remember(id: number, error: MillraceError): void {
    if (this.cached.size >= CACHED_IDS_MAX) {
      const [oldest] = this.cached.keys();
      this.cached.delete(oldest as number);
    }
    this.cached.set(id, { error, untilMs: this.clock.monotonicMs() + this.unknownForMs });
  }
}
