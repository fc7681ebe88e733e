/** The stage strip: which time counts as busy, blocked and idle, and which stage limits the
 *  engine. */
import { describe, expect, it } from 'vitest';
import { progressNote } from '../../../src/bin/engine/progress.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { engineMetrics } from '../../../src/engine/metrics.ts';
import { LagWatch } from '../../../src/engine/source/lag.ts';
import {
  LIMITS,
  limitedBy,
  limitedText,
  STAGES,
  Stages,
  type StageTimes,
  stageShares,
} from '../../../src/engine/stages.ts';

function manualStages() {
  const clock = { now: 0, monotonicMs: () => clock.now };
  const stages = new Stages(clock);
  /** Advances the clock. */
  const pass = (ms: number): void => {
    clock.now += ms;
  };
  return { clock, stages, pass };
}

const shareOf = (times: StageTimes, stage: string) => stageShares(times).find((one) => one.stage === stage);

describe('stage strip', () => {
  it('the stage strip counts every moment of the loop for one stage, from the start to the end', () => {
    const { stages, pass } = manualStages();
    pass(1000);
    stages.start();
    stages.enter('decode');
    pass(1);
    stages.enter('route');
    pass(2);
    stages.enter('update');
    pass(4);
    stages.enter('changelog');
    pass(8);
    stages.leave();
    pass(16);
    stages.awaitRecords('fetch');
    pass(32);
    stages.stop();
    pass(1000);
    const { wallMs, limitMs } = stages.times();
    expect(limitMs).toEqual({
      ...{ fetch: 32, decode: 1, route: 2, update: 4, spill: 0, changelog: 8, sink: 0 },
      ...{ input: 0, other: 16 },
    });
    expect(wallMs).toBe(63);
    expect(LIMITS.reduce((sum, limit) => sum + limitMs[limit], 0)).toBe(wallMs);
  });

  it('the stage strip contains the work in flight', () => {
    const { stages, pass } = manualStages();
    stages.enter('update');
    pass(5);
    expect(stages.times()).toMatchObject({ wallMs: 5, busyMs: { update: 5 }, limitMs: { update: 5 } });
  });

  it('the stage strip divides the wait for records between the source and the stage that had the thread', async () => {
    const { clock, stages, pass } = manualStages();
    stages.awaitRecords('fetch');
    pass(10);
    stages.recordsReady(0, 4);
    expect(stages.times().limitMs).toMatchObject({ fetch: 4, sink: 0, other: 6 });
    const written = stages.during('sink', async () => {});
    stages.awaitRecords('fetch');
    pass(10);
    // Ready before they were waited for: the loop never waited for the source.
    stages.recordsReady(8, 9);
    expect(stages.times().limitMs).toMatchObject({ fetch: 4, sink: 10, other: 6 });
    await written;
    stages.awaitRecords('input');
    pass(30);
    stages.recordsReady(clock.now - 30, clock.now);
    const times = stages.times();
    expect(times.limitMs).toMatchObject({ fetch: 4, input: 30 });
    // During 5 of 50 ms records could be fetched, and during 30 ms none existed. The rest of the
    // time, fetched records waited for the loop.
    expect(shareOf(times, 'fetch')).toMatchObject({ busy: 0.1, blocked: 0.3 });
  });

  it('the stage strip counts overlapping work of a stage once, and waits for another stage as blocked', async () => {
    const { stages, pass } = manualStages();
    const ends: Array<() => void> = [];
    const wait = (): Promise<void> => new Promise((resolve) => ends.push(resolve));
    stages.taskQueued('sink');
    pass(10);
    const first = stages.during('sink', wait);
    pass(10);
    const second = stages.during('sink', wait);
    pass(10);
    ends[0]?.();
    await first;
    pass(10);
    ends[1]?.();
    await second;
    stages.taskDone('sink');
    pass(60);
    expect(shareOf(stages.times(), 'sink')).toEqual({ stage: 'sink', busy: 0.3, blocked: 0.1, idle: 0.6 });
  });

  it('the stages of the loop are idle while it waits for records, and blocked while it does other work', () => {
    const { clock, stages, pass } = manualStages();
    stages.awaitRecords('fetch');
    pass(40);
    stages.recordsReady(0, clock.now);
    stages.enter('decode');
    pass(10);
    stages.enter('update');
    pass(50);
    stages.leave();
    const times = stages.times();
    expect(shareOf(times, 'decode')).toEqual({ stage: 'decode', busy: 0.1, blocked: 0.5, idle: 0.4 });
    expect(shareOf(times, 'update')).toEqual({ stage: 'update', busy: 0.5, blocked: 0.1, idle: 0.4 });
    expect(shareOf(times, 'spill')).toEqual({ stage: 'spill', busy: 0, blocked: 0, idle: 1 });
  });

  it('the stage strip ends work that fails', async () => {
    const { stages, pass } = manualStages();
    const failing = stages.during('changelog', () => Promise.reject(new Error('no disk')));
    pass(10);
    await expect(failing).rejects.toThrow('no disk');
    await expect(stages.waiting('spill', () => Promise.reject(new Error('no room')))).rejects.toThrow(
      'no room',
    );
    pass(10);
    expect(stages.times().busyMs).toMatchObject({ spill: 0, changelog: 10 });
    expect(stages.times().limitMs).toMatchObject({ spill: 0, other: 20 });
  });

  it('the stage strip is in the metrics, with the quantiles of every stage', async () => {
    const { stages, pass } = manualStages();
    const metrics = new Metrics();
    engineMetrics(metrics).watch(stages);
    stages.enter('update');
    pass(2000);
    stages.leave();
    await stages.during('changelog', async () => pass(1000));
    const samplesOf = (name: string) => metrics.snapshot().find((one) => one.name === name)?.samples ?? [];
    const sampleOf = (name: string, label: string) =>
      samplesOf(name).find(({ labels }) => Object.values(labels).join() === label)?.value;
    expect(sampleOf('engine_stage_busy_seconds_total', 'update')).toBe(2);
    expect(sampleOf('engine_stage_blocked_seconds_total', 'update')).toBe(1);
    expect(sampleOf('engine_stage_idle_seconds_total', 'changelog')).toBe(2);
    expect(sampleOf('engine_limited_seconds_total', 'update')).toBe(2);
    expect(sampleOf('engine_limited_seconds_total', 'other')).toBe(1);
    expect(samplesOf('engine_stage_busy_seconds_total')).toHaveLength(STAGES.length);
    for (const quantile of ['0.5', '0.99', '0.999']) {
      expect(sampleOf('engine_stage_quantile_seconds', `update,${quantile}`)).toBe(2);
      expect(sampleOf('engine_stage_quantile_seconds', `changelog,${quantile}`)).toBe(1);
    }
  });
});

describe('limiting stage', () => {
  it('the limiting stage is the stage in which the loop spent most time between two samples', () => {
    const { stages, pass } = manualStages();
    expect(limitedText(limitedBy(stages.times()))).toBe('limited by: nothing yet');
    stages.enter('update');
    pass(60);
    stages.enter('route');
    pass(20);
    const before = stages.times();
    expect(limitedText(limitedBy(before))).toBe('limited by: update (75%)');
    stages.enter('changelog');
    pass(15);
    stages.enter('route');
    pass(5);
    expect(limitedText(limitedBy(stages.times(), before))).toBe('limited by: changelog (75%)');
    expect(limitedBy(stages.times())).toEqual({ by: 'update', share: 0.6 });
  });

  it('the progress line names the limit of the last seconds, and the final line the limit of the whole run', () => {
    const { stages, pass } = manualStages();
    let report: { watermark_ms: number | null; lag_ms: number | null; dropped_late: number } | undefined;
    const note = progressNote({ stages, watermark: () => report, openKeys: () => 1_200_000 });
    expect(note('last')).toBe('watermark lag -, 1.20M keys open, 0 late, limited by: nothing yet');
    report = { watermark_ms: 5, lag_ms: 12_400, dropped_late: 3 };
    stages.enter('update');
    pass(20_000);
    expect(note('last')).toBe('watermark lag 12s, 1.20M keys open, 3 late, limited by: update (100%)');
    stages.enter('route');
    pass(10_000);
    expect(note('last')).toMatch(/limited by: route \(100%\)$/);
    for (let i = 0; i < 50; i++) {
      stages.enter('decode');
      pass(200);
      note('last');
    }
    expect(note('last')).toMatch(/limited by: decode \(100%\)$/);
    expect(note('whole')).toMatch(/limited by: update \(50%\)$/);
  });
});

describe('unread events', () => {
  const world = (high: number) => {
    const at = { position: 0, end: -1, high, nowMs: 0 };
    const clock = { monotonicMs: () => at.nowMs };
    const watch = new LagWatch({
      clock,
      source: {
        bounds: async () => [
          { low: 0, high: at.high },
          { low: 0, high: 0 },
        ],
        endOf: (partition) => (partition === 0 ? at.end : 0),
      },
      positions: { partitionCount: 2, position: (partition) => (partition === 0 ? at.position : 0) },
      rowCapacity: 10,
    });
    const look = async (nowMs: number, intervalMs?: number) => {
      watch.poll(nowMs, intervalMs);
      at.nowMs = nowMs + 30;
      await new Promise((resolve) => setImmediate(resolve));
      return watch;
    };
    return { at, watch, look };
  };

  it('the end of the input is known from the reported partition ends, before the broker answers', () => {
    const { at, watch } = world(100);
    expect(watch.isAtEnd).toBe(false);
    expect(watch.unread).toBeNaN();
    at.end = 0;
    expect(watch.isAtEnd).toBe(true);
  });

  it('the broker is asked every second, and records in transit are no backlog', async () => {
    const { at, look } = world(100_000);
    expect((await look(0)).unread).toBe(100_000);
    at.position = 50_000;
    expect((await look(999)).unread).toBe(100_000);
    expect(await look(1000)).toMatchObject({ unread: 50_000, isAtEnd: false });
    // The position is within a tenth of the 48,000 records since the last query.
    at.position = 98_000;
    expect(await look(2000)).toMatchObject({ unread: 2000, isAtEnd: true });
    at.position = 98_100;
    expect(await look(3000)).toMatchObject({ unread: 1900, isAtEnd: false });
    at.position = 99_995;
    expect(await look(4000)).toMatchObject({ unread: 5, isAtEnd: true });
  });

  it('an answer has the ends of all partitions and the times of its query and its arrival', async () => {
    const { at, watch, look } = world(7);
    expect(watch.answer).toBeUndefined();
    expect((await look(500)).answer).toEqual({ askedMs: 500, answeredMs: 530, highs: [7, 0] });
    at.high = 8;
    expect((await look(600)).answer?.askedMs).toBe(500);
    expect((await look(600, 100)).answer).toEqual({ askedMs: 600, answeredMs: 630, highs: [8, 0] });
    // A longer interval does not delay the query of each second.
    expect((await look(1600, 60_000)).answer?.askedMs).toBe(1600);
  });

  it('the backlog stays unknown while the broker does not answer', async () => {
    let queries = 0;
    const bounds = (): Promise<never> => {
      queries++;
      return Promise.reject(new Error('no broker'));
    };
    const watch = new LagWatch({
      clock: { monotonicMs: () => 0 },
      source: { bounds, endOf: () => -1 },
      positions: { partitionCount: 1, position: () => 0 },
      rowCapacity: 10,
    });
    // After a failure the broker is asked once a second, whatever the caller needs.
    for (const nowMs of [0, 100, 999, 1000]) {
      watch.poll(nowMs, 100);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(queries).toBe(2);
    expect(watch.isAtEnd).toBe(false);
    expect(watch.unread).toBeNaN();
    expect(watch.answer).toBeUndefined();
  });
});
