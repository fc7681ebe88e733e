/** Schedule of a watched pair: which bucket is compared next.
 *
 *  A bucket is a span of `widthMs`. It is compared once when its last row has settled (the tail). A
 *  bucket that differs stays open and is compared again, with growing pauses, until it is equal.
 *  Passes compare all older buckets, from the oldest retained row to the tail, so a change of a
 *  bucket that was equal is found too. Passes and repeated comparisons are background work: its
 *  share of the time is bounded, the tail's is not.
 *
 *  Invariants: (1) each bucket from the tail of the start on is compared at least once; (2) a pass
 *  is complete when every bucket from its first to the tail of its begin was compared; (3) at most
 *  `openMax` buckets are open: then nothing but repeated comparisons runs, and the lag grows.
 *  Memory: `openMax` open buckets with `idsMax` ids a class.
 */
import type { Clock } from '../../../core/clock.ts';
import type { BucketResult, TimeBuckets } from './bucket.ts';
import type { TimeSpan } from './rows-by-time.ts';

export const OPEN_MAX = 10_000;
/** First pause before an open bucket is compared again; it doubles up to the greatest. */
const REPEAT_FIRST_MS = 5000;
const REPEAT_MAX_MS = 600_000;

export interface WatchScheduleOptions {
  readonly widthMs: number;
  /** Age at which a row has its effect, ms. */
  readonly settleMs: number;
  /** Time from the begin of a pass to the begin of the next, ms. */
  readonly passEveryMs: number;
  /** Share of the time that background work may take, above 0, at most 1. */
  readonly share: number;
  /** Limit of open buckets; default OPEN_MAX. */
  readonly openMax?: number;
}

/** Events of a schedule, for metrics and the log. */
export interface ScheduleEvents {
  compared(result: BucketResult): void;
  /** The findings of a bucket changed. */
  changed(span: TimeSpan, before: BucketResult | undefined, after: BucketResult | undefined): void;
  /** Further late effects of buckets since the start. */
  late(count: number, ids: readonly string[]): void;
  /** All buckets up to this time are compared. */
  lag(ms: number): void;
  passed(atMs: number): void;
}

interface OpenBucket {
  readonly span: TimeSpan;
  attempts: number;
  /** Monotonic time. */
  nextAtMs: number;
  result: BucketResult;
  /** True if the watch compared the bucket when it settled, so its late effects count. */
  readonly ofTail: boolean;
  /** Late effects that were counted. */
  late: number;
}

interface Pass {
  next: number;
  readonly end: number;
}

export class WatchSchedule {
  private readonly buckets: TimeBuckets;
  private readonly clock: Clock;
  private readonly options: WatchScheduleOptions;
  private readonly events: ScheduleEvents;
  private readonly open = new Map<number, OpenBucket>();
  /** Begin of the first bucket that was not compared. */
  private tail: number | undefined;
  private pass: Pass | undefined;
  private nextPassAtMs = Number.NEGATIVE_INFINITY;
  private backgroundAtMs = Number.NEGATIVE_INFINITY;
  private passes = 0;
  /** True if the last background work was a repeated comparison: where both are due, they take
   *  turns, so that many open buckets do not stop a pass. */
  private repeated = false;

  constructor(buckets: TimeBuckets, clock: Clock, options: WatchScheduleOptions, events: ScheduleEvents) {
    this.buckets = buckets;
    this.clock = clock;
    this.options = options;
    this.events = events;
  }

  get openBuckets(): ReadonlyMap<number, { readonly span: TimeSpan; readonly result: BucketResult }> {
    return this.open;
  }

  get passesDone(): number {
    return this.passes;
  }

  /** Compares at most one bucket. @returns time until the next call has work, ms */
  async step(): Promise<number> {
    const nowMs = await this.buckets.nowMs();
    const { widthMs, settleMs } = this.options;
    this.tail ??= Math.floor((nowMs - settleMs) / widthMs) * widthMs;
    const dueInMs = this.tail + widthMs + settleMs - nowMs;
    const isFull = this.open.size >= (this.options.openMax ?? OPEN_MAX);
    if (dueInMs <= 0 && !isFull) {
      const span = { fromMs: this.tail, toMs: this.tail + widthMs };
      await this.compare(span, nowMs, 'tail');
      this.tail = span.toMs;
      this.events.lag(nowMs - this.tail);
      return 0;
    }
    this.events.lag(nowMs - this.tail);
    const backgroundInMs = await this.background(nowMs, isFull);
    return Math.max(0, Math.min(isFull ? Number.POSITIVE_INFINITY : dueInMs, backgroundInMs));
  }

  /** Runs background work if it is due. @returns time until it is due, ms */
  private async background(nowMs: number, isFull: boolean): Promise<number> {
    const beganMs = this.clock.monotonicMs();
    if (beganMs < this.backgroundAtMs) return this.backgroundAtMs - beganMs;
    const open = this.nextOpen();
    const repeats = open !== undefined && open.nextAtMs <= beganMs;
    const sweeps = !isFull && (this.pass !== undefined || this.nextPassAtMs <= beganMs);
    if (!repeats && !sweeps)
      return Math.min(open?.nextAtMs ?? Number.POSITIVE_INFINITY, this.nextPassAtMs) - beganMs;
    this.repeated = repeats && !(sweeps && this.repeated);
    if (this.repeated) await this.repeat(open as OpenBucket, nowMs);
    else await this.sweep(nowMs);
    const tookMs = this.clock.monotonicMs() - beganMs;
    this.backgroundAtMs = beganMs + tookMs / this.options.share;
    return 0;
  }

  private nextOpen(): OpenBucket | undefined {
    let next: OpenBucket | undefined;
    for (const one of this.open.values()) if (next === undefined || one.nextAtMs < next.nextAtMs) next = one;
    return next;
  }

  private async repeat({ span }: OpenBucket, nowMs: number): Promise<void> {
    const retainedFromMs = await this.buckets.retainedFromMs(nowMs);
    if (retainedFromMs !== undefined && span.fromMs < retainedFromMs) this.close(span);
    else await this.compare(span, nowMs, 'again');
  }

  /** Compares the next bucket of the pass, or begins or ends a pass. */
  private async sweep(nowMs: number): Promise<void> {
    const { widthMs, passEveryMs } = this.options;
    const align = (ms: number): number => Math.floor(ms / widthMs) * widthMs;
    // The bucket at the edge has rows that have expired.
    const retainedFromMs = align(((await this.buckets.retainedFromMs(nowMs)) ?? 0) + widthMs - 1);
    if (this.pass === undefined) {
      const first = await this.buckets.nextMs(retainedFromMs);
      const end = this.tail as number;
      this.pass = { next: Math.min(end, align(first)), end };
      for (const { span } of [...this.open.values()]) if (span.fromMs < retainedFromMs) this.close(span);
      this.nextPassAtMs = this.clock.monotonicMs() + passEveryMs;
    }
    const { pass } = this;
    // Rows expire while a pass runs.
    pass.next = Math.min(pass.end, Math.max(pass.next, retainedFromMs));
    if (pass.next < pass.end) {
      const span = { fromMs: pass.next, toMs: pass.next + widthMs };
      const result = await this.compare(span, nowMs, 'pass');
      pass.next = span.toMs;
      if (result.left + result.right === 0)
        pass.next = Math.max(span.toMs, Math.min(pass.end, align(await this.buckets.nextMs(span.toMs))));
    }
    if (pass.next < pass.end) return;
    this.pass = undefined;
    this.passes++;
    this.events.passed(nowMs);
  }

  private async compare(span: TimeSpan, nowMs: number, by: 'tail' | 'again' | 'pass'): Promise<BucketResult> {
    const result = await this.buckets.compare(span, nowMs);
    this.events.compared(result);
    const known = this.open.get(span.fromMs);
    const ofTail = known?.ofTail ?? by === 'tail';
    const counted = known?.late ?? 0;
    if (ofTail && result.late.count > counted) this.events.late(result.late.count - counted, result.late.ids);
    if (result.deltas.length === 0) {
      this.close(span, result);
      return result;
    }
    const attempts = (known?.attempts ?? 0) + 1;
    const pauseMs = Math.min(REPEAT_MAX_MS, REPEAT_FIRST_MS * 2 ** Math.min(20, attempts - 1));
    this.open.set(span.fromMs, {
      span,
      attempts,
      nextAtMs: this.clock.monotonicMs() + pauseMs,
      result,
      ofTail,
      late: Math.max(counted, result.late.count),
    });
    this.events.changed(span, known?.result, result);
    return result;
  }

  private close(span: TimeSpan, result?: BucketResult): void {
    const known = this.open.get(span.fromMs);
    if (known === undefined) return;
    this.open.delete(span.fromMs);
    this.events.changed(span, known.result, result);
  }
}
