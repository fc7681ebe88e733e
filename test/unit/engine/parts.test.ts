/** Single parts of the engine: time, watermarks, windows over slices, job checks. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AdmittedBatch } from '../../../src/core/layout/admitted-batch.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT, floorTo, fromWords, isEventTs } from '../../../src/core/time.ts';
import { checkJob, jobChanges } from '../../../src/engine/job.ts';
import {
  GlobalWatermarks,
  PartitionWatermarks,
  type WatermarkGenerator,
} from '../../../src/engine/source/admission.ts';
import { SlidingWindows, windowsOver } from '../../../src/engine/window/definition.ts';
import { batchOf, KERNELS } from '../../property/engine-kit.ts';
import { runs } from '../../tier.ts';

const low = (n: bigint): number => Number(BigInt.asIntN(32, n));
const high = (n: bigint): number => Number(BigInt.asIntN(32, n >> 32n));

describe('event time', () => {
  it('event times are floored to steps on both sides of zero, exactly', () => {
    const ts = fc.oneof(
      fc.integer({ min: -100, max: 100 }),
      fc.bigInt({ min: -(1n << 52n), max: (1n << 52n) - 1n }).map(Number),
    );
    const step = fc.oneof(
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 2 ** 31 - 1 }),
      fc.constant(DURATION_MS_MAX),
    );
    fc.assert(
      fc.property(ts, step, (at, ms) => {
        const [t, s] = [BigInt(at), BigInt(ms)];
        const quotient = t / s - (t % s < 0n ? 1n : 0n);
        expect(BigInt(floorTo(at, ms))).toBe(quotient * s);
      }),
      { numRuns: runs(2000) },
    );
  });

  it('event times inside the limits are valid, and no others', () => {
    for (const ts of [0n, -1n, BigInt(EVENT_TS_LIMIT) - 1n, -BigInt(EVENT_TS_LIMIT)]) {
      expect(isEventTs(high(ts))).toBe(true);
      expect(BigInt(fromWords(low(ts), high(ts)))).toBe(ts);
    }
    for (const ts of [BigInt(EVENT_TS_LIMIT), -BigInt(EVENT_TS_LIMIT) - 1n, (1n << 63n) - 1n, -(1n << 63n)]) {
      expect(isEventTs(high(ts))).toBe(false);
    }
  });
});

describe('watermarks', () => {
  const times = { sizeMs: 10, slideMs: 10, skewMs: 5, latenessMs: 10 };
  const take = (watermarks: WatermarkGenerator, ...rows: ReadonlyArray<readonly [number, number]>) => {
    const next = watermarks.progress().map(({ offset }) => offset);
    const events = rows.map(([partition, eventTs]) => ({
      partition,
      accountId: 1n,
      value: 1n,
      eventTs: BigInt(eventTs),
    }));
    const offsets = rows.map(([partition]) => {
      const offset = next[partition] as number;
      next[partition] = offset + 1;
      return offset;
    });
    const batch = batchOf(events, offsets);
    const admitted = AdmittedBatch.create(Math.max(1, rows.length));
    watermarks.nextEnd = Number.POSITIVE_INFINITY;
    let from = 0;
    const taken: number[] = [];
    while (from < rows.length) {
      from += watermarks.admit(batch.records, batch.events, from, admitted);
      taken.push(...admitted.columns.row.subarray(0, admitted.rowCount));
      watermarks.nextEnd = Number.POSITIVE_INFINITY;
    }
    return taken;
  };

  it('the watermark does not move until every partition has had an event', () => {
    const watermarks = new PartitionWatermarks(KERNELS, times, 2);
    expect(watermarks.dependsOnOrder).toBe(false);
    expect(take(watermarks, [0, 100])).toEqual([0]);
    expect([watermarks.frontier, watermarks.watermark]).toEqual([-Infinity, -Infinity]);
    expect(take(watermarks, [1, 50])).toEqual([0]);
    expect([watermarks.frontier, watermarks.watermark]).toEqual([35, 45]);
  });

  it('a global watermark serves all partitions and depends on the order of arrival', () => {
    const watermarks = new GlobalWatermarks(KERNELS, times, 2);
    expect(watermarks.dependsOnOrder).toBe(true);
    expect(new GlobalWatermarks(KERNELS, times, 1).dependsOnOrder).toBe(false);
    expect(take(watermarks, [0, 100], [1, 84], [1, 85])).toEqual([0, 2]);
    expect([watermarks.frontier, watermarks.watermark]).toEqual([85, 95]);
  });

  it('watermarks handle idle and added partitions, also after a restore', () => {
    const watermarks = new PartitionWatermarks(KERNELS, times, 2);
    take(watermarks, [0, 100], [1, 50]);
    watermarks.idle(1);
    expect(watermarks.frontier).toBe(85);
    watermarks.added(7);
    expect(watermarks.progress()[2]).toMatchObject({ partition: 2, offset: 7, maxSeenTs: 100, idle: false });
    const restored = new PartitionWatermarks(KERNELS, times, 1);
    restored.restore(watermarks.cells, watermarks.frontier, 100);
    for (const one of [watermarks, restored]) {
      expect(take(one, [1, 84], [1, 85], [2, 84])).toEqual([1]);
      expect(one.frontier).toBe(85);
      expect(one.progress()[1]).toMatchObject({
        consumed: 3,
        droppedLate: 1,
        droppedAfterIdle: 1,
        idle: false,
      });
      expect(one.totals()).toMatchObject({ consumed: 5, accepted: 3, droppedLate: 2, droppedAfterIdle: 1 });
    }
    expect(() => watermarks.idle(3)).toThrow(/partition number must exist/);
  });

  it.each([
    ['each partition', PartitionWatermarks],
    ['all partitions', GlobalWatermarks],
  ] as const)(
    'a partition that is added after a raise of the lateness has no greater time than the others, with a watermark for %s',
    (_, Watermarks) => {
      const before = new Watermarks(KERNELS, times, 1);
      take(before, [0, 100]);
      const raised = new Watermarks(KERNELS, { ...times, latenessMs: times.latenessMs + 40 }, 1);
      raised.restore(before.cells, before.frontier, 100);
      raised.added(0);
      raised.refresh();
      expect(raised.progress().map(({ maxSeenTs }) => maxSeenTs)).toEqual([100, 100]);
      expect(raised.frontier).toBe(85);
    },
  );

  it.each([
    ['lateness', { latenessMs: 3_600_000 }, 95],
    ['skew', { skewMs: 30 }, 70],
  ])(
    'a raised %s does not move the watermark beyond the greatest time less the skew',
    (_, over, expected) => {
      for (const Watermarks of [PartitionWatermarks, GlobalWatermarks]) {
        const before = new Watermarks(KERNELS, times, 1);
        take(before, [0, 100]);
        expect(before.watermark).toBe(95);
        const raised = new Watermarks(KERNELS, { ...times, ...over }, 1);
        raised.restore(before.cells, before.frontier, 100);
        expect([raised.frontier, raised.watermark]).toEqual([85, expected]);
        take(raised, [0, 101]);
        expect([raised.frontier, raised.watermark]).toEqual([85, expected + 1]);
      }
    },
  );

  it('watermarks ignore rows at a limit', () => {
    const watermarks = new PartitionWatermarks(KERNELS, times, 1);
    watermarks.setLimit(0, 1);
    expect(take(watermarks, [0, 5], [0, 6])).toEqual([0]);
    expect(watermarks.position(0)).toBe(1);
  });
});

describe('windows over slices', () => {
  it('the windows over a slice are the windows that contain it, each with its slices', () => {
    const lengths = fc
      .tuple(fc.integer({ min: 1, max: 20 }), fc.nat())
      .map(([size, any]) => ({ size, slide: 1 + (any % size) }));
    const marks = fc.uniqueArray(fc.integer({ min: -40, max: 40 }), { maxLength: 12 });
    const after = fc.oneof(fc.constant(Number.NEGATIVE_INFINITY), fc.integer({ min: -60, max: 60 }));
    fc.assert(
      fc.property(lengths, marks, after, ({ size, slide }, some, time) => {
        const assigner = new SlidingWindows(size, slide);
        const starts = [...new Set(some.map((mark) => assigner.sliceOf(mark)))].sort((a, b) => a - b);
        const found = [...windowsOver(assigner, starts, time)].map(({ end, from, to }) => [
          end,
          ...starts.slice(from, to),
        ]);
        const expected: number[][] = [];
        for (let k = -100; k <= 100; k++) {
          const [first, end] = [k * slide, k * slide + size];
          const held = starts.filter((start) => start >= first && start < end);
          if (held.length > 0 && end > time) expected.push([end, ...held]);
        }
        expect(found).toEqual(expected);
      }),
      { numRuns: runs(500) },
    );
  });
});

describe('job', () => {
  const job = {
    topic: 't',
    window: 'tumbling',
    sizeMs: 1000,
    skewMs: 0,
    latenessMs: 0,
    watermark: 'partition',
  } as const;
  it('a job refuses sizes that are not whole milliseconds in range', () => {
    expect(checkJob(job)).toBe(job);
    for (const sizeMs of [0, -1, 0.5, DURATION_MS_MAX + 1, Number.NaN]) {
      expect(() => checkJob({ ...job, sizeMs })).toThrow(/-size/);
    }
    expect(() => checkJob({ ...job, skewMs: -1 })).toThrow(/-allowed-skew/);
    expect(() => checkJob({ ...job, latenessMs: 1.5 })).toThrow(/-allowed-lateness/);
  });
  it('a job refuses slides and gaps that no window can have', () => {
    const sliding = { ...job, window: 'sliding', sizeMs: 10, slideMs: 7 } as const;
    expect(checkJob(sliding)).toBe(sliding);
    expect(() => checkJob({ ...sliding, slideMs: 11 })).toThrow(
      /-slide of 11 ms is longer than -size of 10 ms/,
    );
    expect(() => checkJob({ ...sliding, slideMs: 0 })).toThrow(/-slide of 0 ms/);
    expect(() => checkJob({ ...sliding, sizeMs: 3_600_000, slideMs: 3_599_999 })).toThrow(/3600000 slices/);
    const session = { ...job, window: 'session', gapMs: 1 } as const;
    expect(checkJob(session)).toBe(session);
    expect(() => checkJob({ ...session, gapMs: 0 })).toThrow(/-gap of 0 ms/);
    expect(() => checkJob({ ...session, maxFutureMs: -1 })).toThrow(/-max-future/);
  });
  it('a job comparison names every flag that differs, and whether it may change', () => {
    expect(jobChanges(job, job)).toEqual([]);
    const { sizeMs: _, ...rest } = job;
    const other = { ...rest, window: 'session', gapMs: 5, maxFutureMs: 7, skewMs: 3, latenessMs: 4 } as const;
    expect(jobChanges(job, other)).toEqual([
      { flag: 'window', was: 'tumbling', is: 'session', isSafe: false },
      { flag: 'size', was: '1000ms', is: undefined, isSafe: false },
      { flag: 'gap', was: undefined, is: '5ms', isSafe: false },
      { flag: 'allowed-skew', was: '0ms', is: '3ms', isSafe: true },
      { flag: 'allowed-lateness', was: '0ms', is: '4ms', isSafe: true },
      { flag: 'max-future', was: undefined, is: '7ms', isSafe: true },
    ]);
    expect(jobChanges(job, { ...job, watermark: 'global', topic: 'u' })).toEqual([
      { flag: 'topic', was: 't', is: 'u', isSafe: false },
      { flag: 'watermark', was: 'partition', is: 'global', isSafe: false },
    ]);
  });
});
