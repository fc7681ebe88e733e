/** Watch: compares pairs until it is stopped. One comparison runs at a time, so the load on the
 *  databases is that of one session a side. */
import { sleep, type Timers } from '../../../core/clock.ts';
import { MillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Metrics } from '../../../core/metrics.ts';
import type { PairFinding } from '../pairs/findings.ts';
import type { PairClasses } from '../pairs/pair.ts';
import type { BucketResult, TimeBuckets } from './bucket.ts';
import { type PairMetrics, WatchMetrics } from './metrics.ts';
import type { TimeSpan } from './rows-by-time.ts';
import { OPEN_MAX, WatchSchedule, type WatchScheduleOptions } from './schedule.ts';

/** Longest pause between two looks at the time of the database. */
const IDLE_MS_MAX = 1000;
const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 30_000;
/** Errors of a database that may work again. */
const RETRIED: ReadonlySet<string> = new Set([
  'unreachable',
  'sql_failed',
  'sql_unavailable',
  'commit_unknown',
]);

export interface WatchedPair {
  readonly name: string;
  readonly classes: PairClasses;
  readonly buckets: TimeBuckets;
}

export interface WatchOptions extends WatchScheduleOptions {
  readonly pairs: readonly WatchedPair[];
  readonly clock: Timers;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Ends the watch after the comparison in flight. */
  readonly drain: AbortSignal;
  /** Called with the reason when comparisons begin to fail, and with undefined when they work. */
  readonly onHealth?: (reason: string | undefined) => void;
}

export interface WatchedResult {
  readonly pair: string;
  /** Differences of the buckets that are open at the end. */
  readonly deltas: readonly PairFinding[];
  readonly late: number;
  readonly buckets: number;
  readonly rows: number;
  /** Passes over all retained buckets. */
  readonly complete_passes: number;
}

class Watched {
  readonly name: string;
  readonly schedule: WatchSchedule;
  readonly metrics: PairMetrics;
  private readonly log: Logger;
  private readonly openMax: number | undefined;
  private late = 0;
  private buckets = 0;
  private rows = 0;
  failures = 0;
  /** Monotonic time of the next step. */
  nextAtMs = 0;

  constructor({ name, classes, buckets }: WatchedPair, options: WatchOptions, metrics: WatchMetrics) {
    this.name = name;
    this.log = options.log;
    this.openMax = options.openMax;
    this.metrics = metrics.of(
      name,
      Object.values(classes).map((one) => one.name),
    );
    this.metrics.setDeltas(new Map());
    this.metrics.setLastPass(0);
    this.schedule = new WatchSchedule(buckets, options.clock, options, {
      compared: (result) => this.compared(result),
      changed: (span, before, after) => this.changed(span, before, after),
      late: (count, ids) => {
        this.late += count;
        this.metrics.addLate(count);
        this.log.warn({ pair: name, count, ids }, 'effects came late');
      },
      lag: (ms) => this.metrics.setLag(ms),
      passed: (atMs) => {
        this.metrics.setLastPass(atMs);
        this.log.info({ pair: name, rows: this.rows }, 'pass complete');
      },
    });
  }

  private compared(result: BucketResult): void {
    this.buckets++;
    this.rows += result.left + result.right;
    this.metrics.addCompared({ ...result, equal: result.deltas.length === 0 });
  }

  private changed(span: TimeSpan, before: BucketResult | undefined, after: BucketResult | undefined): void {
    const { openBuckets } = this.schedule;
    this.metrics.setOpen(openBuckets.size);
    this.metrics.setDeltas(new Map(this.deltas(0).map(({ class: name, count }) => [name, count])));
    if (openBuckets.size >= (this.openMax ?? OPEN_MAX))
      this.log.error(
        { pair: this.name, buckets: openBuckets.size },
        'too many buckets differ; no further bucket is compared',
      );
    const from = new Date(span.fromMs).toISOString();
    const counts = (result: BucketResult | undefined): string =>
      (result?.deltas ?? []).map(({ class: name, count }) => `${name} ${count}`).join(', ');
    if (counts(before) === counts(after)) return;
    if (after === undefined || after.deltas.length === 0)
      this.log.info({ pair: this.name, from, was: counts(before) }, 'a bucket is equal now');
    for (const { class: name, count, ids } of after?.deltas ?? [])
      this.log.error({ pair: this.name, from, class: name, count, ids }, 'delta');
  }

  /** Differences of all open buckets together. */
  private deltas(idsMax: number): PairFinding[] {
    const all = new Map<string, { meaning: string; count: number; ids: string[] }>();
    for (const { result } of this.schedule.openBuckets.values())
      for (const one of result.deltas) {
        const sum = all.get(one.class) ?? { meaning: one.meaning, count: 0, ids: [] };
        sum.count += one.count;
        sum.ids.push(...one.ids.slice(0, Math.max(0, idsMax - sum.ids.length)));
        all.set(one.class, sum);
      }
    return [...all].map(([name, sum]) => ({ class: name, ...sum }));
  }

  result(idsMax: number): WatchedResult {
    return {
      pair: this.name,
      deltas: this.deltas(idsMax),
      late: this.late,
      buckets: this.buckets,
      rows: this.rows,
      complete_passes: this.schedule.passesDone,
    };
  }
}

/** Runs until `drain` is aborted.
 *  @param idsMax ids listed for each class of a pair in the result
 *  @throws errors that a further attempt would repeat, such as a missing privilege at the start */
export async function watch(options: WatchOptions, idsMax: number): Promise<readonly WatchedResult[]> {
  const { clock, drain, log } = options;
  const metrics = new WatchMetrics(options.metrics);
  const watched = options.pairs.map((pair) => new Watched(pair, options, metrics));
  while (!drain.aborted) {
    for (const one of watched) {
      if (drain.aborted) break;
      if (one.nextAtMs > clock.monotonicMs()) continue;
      let pauseMs: number;
      try {
        pauseMs = Math.min(IDLE_MS_MAX, await one.schedule.step());
        if (one.failures > 0) log.info({ pair: one.name }, 'comparisons work again');
        one.failures = 0;
        options.onHealth?.(
          watched.every(({ failures }) => failures === 0) ? undefined : 'a comparison fails',
        );
      } catch (thrown) {
        if (!(thrown instanceof MillraceError) || !RETRIED.has(thrown.code)) throw thrown;
        pauseMs = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** Math.min(10, one.failures++));
        one.metrics.addError();
        options.onHealth?.(thrown.message);
        log.warn({ pair: one.name, err: thrown.message, retry_ms: pauseMs }, 'comparison failed');
      }
      one.nextAtMs = clock.monotonicMs() + pauseMs;
    }
    const nextMs = Math.min(...watched.map(({ nextAtMs }) => nextAtMs)) - clock.monotonicMs();
    if (nextMs > 0) await sleep(clock, nextMs, drain);
  }
  return watched.map((one) => one.result(idsMax));
}
