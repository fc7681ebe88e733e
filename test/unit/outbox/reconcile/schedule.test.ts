/** The schedule of a watch under virtual time, on buckets in memory: every bucket is compared when
 *  it has settled, a bucket that differs until it is equal, and an old one by the next pass. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { MESSAGE_CLASSES } from '../../../../src/outbox/reconcile/pairs/pair.ts';
import type { BucketResult, TimeBuckets } from '../../../../src/outbox/reconcile/watch/bucket.ts';
import type { TimeSpan } from '../../../../src/outbox/reconcile/watch/rows-by-time.ts';
import { watch } from '../../../../src/outbox/reconcile/watch/run.ts';
import { WatchSchedule, type WatchScheduleOptions } from '../../../../src/outbox/reconcile/watch/schedule.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';

const WIDTH_MS = 10_000;
const SETTLE_MS = 15_000;
/** Cost of each comparison. */
const COST_MS = 10;

const OPTIONS: WatchScheduleOptions = {
  widthMs: WIDTH_MS,
  settleMs: SETTLE_MS,
  passEveryMs: 3_600_000,
  share: 0.02,
};

/** Pair in memory: times of messages, and of those that were processed. */
class FakeBuckets implements TimeBuckets {
  readonly clock = new VirtualClock(1_000_000_000_000);
  readonly messages: number[] = [];
  readonly processed = new Set<number>();
  readonly compared: Array<{ readonly fromMs: number; readonly atMs: number }> = [];
  retained: number | undefined;
  late = 0;
  /** Time that a comparison takes. */
  costMs = COST_MS;
  fail: Error | undefined;

  nowMs(): Promise<number> {
    if (this.fail !== undefined) return Promise.reject(this.fail);
    return Promise.resolve(this.clock.wallNowMs());
  }
  async compare({ fromMs, toMs }: TimeSpan): Promise<BucketResult> {
    this.compared.push({ fromMs, atMs: this.clock.wallNowMs() });
    if (this.costMs > 0) await this.clock.advance(this.costMs);
    const inSpan = this.messages.filter((ms) => ms >= fromMs && ms < toMs);
    const lost = inSpan.filter((ms) => !this.processed.has(ms));
    const finding = (name: string, count: number) => ({
      class: name,
      meaning: 'm',
      count,
      ids: lost.map(String),
    });
    return {
      left: inSpan.length,
      right: inSpan.length - lost.length,
      deltas: lost.length > 0 ? [finding('outbox_without_inbox', lost.length)] : [],
      late: { ...finding('late', inSpan.length > 0 && lost.length === 0 ? this.late : 0), ids: [] },
    };
  }
  retainedFromMs(): Promise<number | undefined> {
    return Promise.resolve(this.retained);
  }
  nextMs(ms: number): Promise<number> {
    return Promise.resolve(Math.min(...this.messages.filter((one) => one >= ms), Number.POSITIVE_INFINITY));
  }
}

function scheduleOf(buckets: FakeBuckets, options: Partial<WatchScheduleOptions> = {}) {
  const seen = { changes: [] as string[], late: 0, lagMs: 0, passes: 0 };
  const schedule = new WatchSchedule(
    buckets,
    buckets.clock,
    { ...OPTIONS, ...options },
    {
      compared: () => {},
      changed: (span, before, after) =>
        seen.changes.push(
          `${span.fromMs}: ${before?.deltas[0]?.count ?? 0} to ${after?.deltas[0]?.count ?? 0}`,
        ),
      late: (count) => (seen.late += count),
      lag: (ms) => (seen.lagMs = ms),
      passed: () => (seen.passes += 1),
    },
  );
  /** Runs the schedule for this long. */
  const run = async (ms: number): Promise<void> => {
    const endMs = buckets.clock.monotonicMs() + ms;
    for (;;) {
      const pauseMs = await schedule.step();
      const nowMs = buckets.clock.monotonicMs();
      if (nowMs >= endMs) return;
      if (pauseMs > 0) await buckets.clock.advance(Math.min(pauseMs, endMs - nowMs));
    }
  };
  return { schedule, seen, run };
}

const begin = (buckets: FakeBuckets): number =>
  Math.floor((buckets.clock.wallNowMs() - SETTLE_MS) / WIDTH_MS) * WIDTH_MS;

describe('schedule of a watch', () => {
  it('each bucket is compared once, soon after its last row has settled', async () => {
    const buckets = new FakeBuckets();
    const { seen, run } = scheduleOf(buckets);
    const first = begin(buckets);
    await run(100_000);
    const tail = buckets.compared.filter(({ fromMs }) => fromMs >= first);
    expect(tail.map(({ fromMs }) => fromMs)).toEqual(
      Array.from({ length: tail.length }, (_, n) => first + n * WIDTH_MS),
    );
    expect(tail.length).toBeGreaterThanOrEqual(9);
    for (const { fromMs, atMs } of tail) {
      expect(atMs).toBeGreaterThanOrEqual(fromMs + WIDTH_MS + SETTLE_MS);
      expect(atMs).toBeLessThan(fromMs + 2 * WIDTH_MS + SETTLE_MS);
    }
    expect(seen.lagMs).toBeLessThan(SETTLE_MS + WIDTH_MS + 1000);
    expect(seen.changes).toEqual([]);
  });

  it('a bucket that differs is compared again with growing pauses until it is equal', async () => {
    const buckets = new FakeBuckets();
    const { schedule, seen, run } = scheduleOf(buckets);
    const lost = begin(buckets) + 5;
    buckets.messages.push(lost);
    await run(120_000);
    const bucket = lost - 5;
    const times = (): number[] =>
      buckets.compared.filter(({ fromMs }) => fromMs === bucket).map(({ atMs }) => atMs);
    const pauses = times()
      .slice(1)
      .map((ms, n) => ms - (times()[n] as number));
    expect(pauses.length).toBeGreaterThanOrEqual(3);
    for (const [n, pause] of pauses.entries()) expect(pause).toBeGreaterThanOrEqual(5000 * 2 ** n);
    expect(schedule.openBuckets.size).toBe(1);
    buckets.processed.add(lost);
    await run(120_000);
    expect(schedule.openBuckets.size).toBe(0);
    expect(seen.changes.at(0)).toBe(`${bucket}: 0 to 1`);
    expect(seen.changes.at(-1)).toBe(`${bucket}: 1 to 0`);
    const done = times().length;
    await run(600_000);
    expect(times()).toHaveLength(done);
  });

  it('a pass compares every older bucket with rows, and finds a loss in a bucket that was equal', async () => {
    const buckets = new FakeBuckets();
    const old = begin(buckets) - 1_000_000 * WIDTH_MS;
    for (let n = 0; n < 5; n++) {
      buckets.messages.push(old + n * WIDTH_MS);
      buckets.processed.add(old + n * WIDTH_MS);
    }
    const { seen, run, schedule } = scheduleOf(buckets);
    await run(60_000);
    expect(seen.passes).toBe(1);
    for (let n = 0; n < 5; n++)
      expect(buckets.compared.some(({ fromMs }) => fromMs === old + n * WIDTH_MS)).toBe(true);
    // The empty time after them is skipped.
    expect(buckets.compared.length).toBeLessThan(30);
    buckets.processed.delete(old + 2 * WIDTH_MS);
    await run(OPTIONS.passEveryMs);
    expect(seen.passes).toBe(2);
    expect([...schedule.openBuckets.keys()]).toEqual([old + 2 * WIDTH_MS]);
  });

  it('a pass begins after the rows that have expired, and closes open buckets before them', async () => {
    const buckets = new FakeBuckets();
    const old = begin(buckets) - 100 * WIDTH_MS;
    buckets.messages.push(old, old + 50 * WIDTH_MS);
    const { schedule, run } = scheduleOf(buckets, { passEveryMs: 60_000 });
    await run(50_000);
    expect([...schedule.openBuckets.keys()]).toEqual([old, old + 50 * WIDTH_MS]);
    buckets.retained = old + 10 * WIDTH_MS + 1;
    buckets.compared.length = 0;
    await run(120_000);
    expect([...schedule.openBuckets.keys()]).toEqual([old + 50 * WIDTH_MS]);
    const passed = buckets.compared.filter(({ fromMs }) => fromMs < begin(buckets) - 60 * WIDTH_MS);
    expect(Math.min(...passed.map(({ fromMs }) => fromMs), Number.POSITIVE_INFINITY)).toBeGreaterThanOrEqual(
      old + 11 * WIDTH_MS,
    );
  });

  it('a pass leaves out the buckets that expire while it runs', async () => {
    const buckets = new FakeBuckets();
    const first = begin(buckets);
    for (let n = 1; n <= 100; n++) buckets.messages.push(first - n * WIDTH_MS);
    for (const ms of buckets.messages) buckets.processed.add(ms);
    const { seen, run } = scheduleOf(buckets, { share: 0.1 });
    await run(3000);
    expect(seen.passes).toBe(0);
    // The effects of the old half expire.
    buckets.retained = first - 50 * WIDTH_MS;
    for (const ms of buckets.messages) if (ms < buckets.retained) buckets.processed.delete(ms);
    await run(60_000);
    expect(seen.passes).toBe(1);
    expect(seen.changes).toEqual([]);
  });

  it('a pass takes its share of the time, and the tail does not wait for it', async () => {
    const buckets = new FakeBuckets();
    const first = begin(buckets);
    for (let n = 1; n <= 5000; n++) {
      buckets.messages.push(first - n * WIDTH_MS);
      buckets.processed.add(first - n * WIDTH_MS);
    }
    const { run } = scheduleOf(buckets, { share: 0.1 });
    const spanMs = 200_000;
    await run(spanMs);
    const background = buckets.compared.filter(({ fromMs }) => fromMs < first).length * COST_MS;
    expect(background / spanMs).toBeGreaterThan(0.08);
    expect(background / spanMs).toBeLessThanOrEqual(0.1 + 0.001);
    const tail = buckets.compared.filter(({ fromMs }) => fromMs >= first);
    for (const { fromMs, atMs } of tail) expect(atMs - fromMs).toBeLessThan(2 * WIDTH_MS + SETTLE_MS);
  });

  it('late effects count once, in buckets that settled during the watch', async () => {
    const buckets = new FakeBuckets();
    const first = begin(buckets);
    buckets.messages.push(first - 5 * WIDTH_MS, first + 1);
    buckets.processed.add(first - 5 * WIDTH_MS);
    buckets.late = 1;
    const { seen, run } = scheduleOf(buckets, { passEveryMs: 60_000 });
    await run(50_000);
    expect(seen.late).toBe(0);
    buckets.processed.add(first + 1);
    await run(300_000);
    expect(seen.passes).toBeGreaterThan(2);
    expect(seen.late).toBe(1);
  });

  it('too many differing buckets stop the tail, so that memory is bounded and the lag grows', async () => {
    const buckets = new FakeBuckets();
    const openMax = 50;
    const first = begin(buckets);
    for (let n = 1; n <= openMax; n++) buckets.messages.push(first - n * WIDTH_MS);
    const { schedule, seen, run } = scheduleOf(buckets, { share: 1, openMax });
    await run(50_000);
    expect(schedule.openBuckets.size).toBe(openMax);
    const { lagMs } = seen;
    await run(100_000);
    expect(schedule.openBuckets.size).toBe(openMax);
    expect(seen.lagMs).toBeGreaterThan(lagMs + 50_000);
    buckets.processed.add(first - WIDTH_MS);
    await run(700_000);
    expect(schedule.openBuckets.size).toBe(openMax - 1);
    expect(seen.lagMs).toBeLessThan(2 * WIDTH_MS + SETTLE_MS);
  });

  it('many open buckets do not stop a pass', async () => {
    const buckets = new FakeBuckets();
    buckets.costMs = 1000;
    const first = begin(buckets);
    for (let n = 1; n <= 100; n++) buckets.messages.push(first - n * WIDTH_MS);
    const { seen, run } = scheduleOf(buckets, { share: 1 });
    await run(400_000);
    expect(seen.passes).toBe(1);
  });
});

describe('watch', () => {
  it('a database that does not answer is asked again, and the watch resumes where it stood', async () => {
    const buckets = new FakeBuckets();
    buckets.costMs = 0;
    const { clock } = buckets;
    const drain = new AbortController();
    const metrics = new Metrics();
    const health: Array<string | undefined> = [];
    const ended = watch(
      {
        ...OPTIONS,
        pairs: [{ name: 'shop', classes: MESSAGE_CLASSES, buckets }],
        clock,
        log: silentLogger,
        metrics,
        drain: drain.signal,
        onHealth: (reason) => health.push(reason),
      },
      10,
    );
    const lost = begin(buckets) + 5;
    buckets.messages.push(lost);
    await clock.advance(60_000);
    buckets.fail = coreError('unreachable', 'no answer');
    await clock.advance(100_000);
    expect(health.at(-1)).toBe('no answer');
    buckets.fail = undefined;
    await clock.advance(60_000);
    expect(health.at(-1)).toBeUndefined();
    const sample = (name: string): number | undefined =>
      metrics.snapshot().find((one) => one.name === name)?.samples[0]?.value;
    expect(sample('reconcile_watch_errors_total')).toBeGreaterThan(2);
    expect(sample('reconcile_differing_buckets')).toBe(1);
    expect(sample('reconcile_lag_seconds')).toBeLessThan(40);
    drain.abort();
    const [result] = await ended;
    expect(result).toMatchObject({
      pair: 'shop',
      deltas: [{ class: 'outbox_without_inbox', count: 1, ids: [String(lost)] }],
    });
    const firsts = [...new Set(buckets.compared.map(({ fromMs }) => fromMs))];
    expect(firsts).toEqual([...firsts].sort((a, b) => a - b));
  });

  it('an error that a further attempt would repeat ends the watch', async () => {
    const buckets = new FakeBuckets();
    buckets.fail = new TypeError('a mistake');
    const pairs = [{ name: 'shop', classes: MESSAGE_CLASSES, buckets }];
    const options = { ...OPTIONS, pairs, clock: buckets.clock, log: silentLogger, metrics: new Metrics() };
    await expect(watch({ ...options, drain: new AbortController().signal }, 10)).rejects.toThrow('a mistake');
  });
});
