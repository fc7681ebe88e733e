/** Parts of the engine on their own: the table against BigInt arithmetic, time, watermarks, kept windows, job checks. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DURATION_MS_MAX, EVENT_TS_LIMIT, floorTo, fromWords, isEventTs } from '../../src/core/time.ts';
import { PartitionWatermarks } from '../../src/core/watermark.ts';
import { AccumulatorRows, type FiredWindow } from '../../src/engine/accumulator.ts';
import { checkJob, type Job, jobDifferences } from '../../src/engine/job.ts';
import { RetainedWindows } from '../../src/engine/retained.ts';
import { AccumulatorTable } from '../../src/engine/state/table.ts';
import { values } from '../property/engine-kit.ts';

const low = (n: bigint): number => Number(BigInt.asIntN(32, n));
const high = (n: bigint): number => Number(BigInt.asIntN(32, n >> 32n));

describe('event time', () => {
  it('floors to steps on both sides of zero, exactly', () => {
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
      { numRuns: 2000 },
    );
  });

  it('takes timestamps inside the limits and no others', () => {
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
  it('hold the frontier until every partition has had an event', () => {
    const watermarks = new PartitionWatermarks(2, 5, 10);
    expect(watermarks.admit(0, 100)).toBe(true);
    expect(watermarks.frontier).toBe(Number.NEGATIVE_INFINITY);
    expect(watermarks.watermark()).toBe(Number.NEGATIVE_INFINITY);
    expect(watermarks.admit(1, 50)).toBe(true);
    expect(watermarks.watermark()).toBe(45);
    expect(watermarks.frontier).toBe(35);
  });

  it('admit at the frontier of the partition and drop below it', () => {
    const watermarks = new PartitionWatermarks(2, 5, 10);
    watermarks.admit(0, 100);
    expect(watermarks.admit(0, 85)).toBe(true);
    expect(watermarks.admit(0, 84)).toBe(false);
    expect(watermarks.admit(1, 84)).toBe(true);
  });
});

describe('accumulator table', () => {
  it('counts, sums to 128 bits, and keeps min, max and last as BigInt arithmetic does', () => {
    const event = fc.tuple(
      fc.bigInt({ min: 0n, max: 400n }),
      values,
      fc.bigInt({ min: -(1n << 52n), max: 1n << 51n }),
    );
    fc.assert(
      fc.property(fc.array(event, { maxLength: 600, size: 'max' }), (events) => {
        const table = new AccumulatorTable(0);
        const expected = new Map<bigint, [bigint, bigint, bigint, bigint, bigint]>();
        for (const [key, value, ts] of events) {
          // Keys that differ in the high word alone.
          const id = key % 2n === 0n ? key : BigInt.asUintN(64, key << 40n);
          table.add(low(id), high(id), low(value), high(value), low(ts), high(ts));
          const [count, sum, min, max, last] = expected.get(id) ?? [0n, 0n, value, value, ts];
          expected.set(id, [
            count + 1n,
            sum + value,
            value < min ? value : min,
            value > max ? value : max,
            ts > last ? ts : last,
          ]);
        }
        expect(table.keyCount).toBe(expected.size);
        const rows = new ArrayBuffer(table.keyCount * 64);
        expect(table.copyTo(new Int32Array(rows), 0)).toBe(table.keyCount * 16);
        const cells = new BigInt64Array(rows);
        const view = new AccumulatorRows(rows, table.keyCount);
        for (let row = 0; row < table.keyCount; row++) {
          const exact =
            ((cells[row * 8 + 3] as bigint) << 64n) + BigInt.asUintN(64, cells[row * 8 + 2] as bigint);
          expect([view.count(row), exact, view.min(row), view.max(row), view.lastUpdateTs(row)]).toEqual(
            expected.get(view.accountId(row)),
          );
          expect(view.overflow(row)).toBe(BigInt.asIntN(64, exact) !== exact);
          expect(view.sum(row)).toBe(BigInt.asIntN(64, exact));
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe('kept windows', () => {
  const fired = (windowStart: number, ids: readonly bigint[]): FiredWindow => {
    const cells = new BigUint64Array(ids.length * 8);
    ids.forEach((id, row) => {
      cells[row * 8] = id;
      cells[row * 8 + 1] = 1n;
    });
    return { windowStart, windowEnd: windowStart + 10, rowCount: ids.length, rows: cells.buffer };
  };
  const all = { from: -1e9, to: 1e9, limit: 100 };

  it('answers by key and by window start, from inclusive, to exclusive', () => {
    const kept = new RetainedWindows({ retainMs: 1000, bytesMax: 1e6 });
    kept.add([fired(-10, [1n, 7n]), fired(0, [7n, (1n << 64n) - 1n]), fired(10, [7n])]);
    expect(kept.query({ ...all, accountId: 7n }).map((one) => one.windowStart)).toEqual([-10, 0, 10]);
    expect(kept.query({ ...all, accountId: 7n, from: 0, to: 10 }).map((one) => one.windowStart)).toEqual([0]);
    expect(kept.query({ ...all, accountId: 7n, limit: 2 })).toHaveLength(2);
    expect(kept.query({ ...all, accountId: (1n << 64n) - 1n })).toHaveLength(1);
    expect(kept.query({ ...all, accountId: 2n })).toEqual([]);
  });

  it('forgets by event time, and the oldest first beyond the bytes', () => {
    const byTime = new RetainedWindows({ retainMs: 15, bytesMax: 1e6 });
    byTime.add([fired(0, [1n]), fired(10, [1n]), fired(20, [1n])]);
    expect(byTime.query({ ...all, accountId: 1n }).map((one) => one.windowStart)).toEqual([10, 20]);
    expect(byTime.forgetBefore).toBe(15);
    const byBytes = new RetainedWindows({ retainMs: 1e6, bytesMax: 128 });
    byBytes.add([fired(0, [1n]), fired(10, [1n]), fired(20, [1n])]);
    expect(byBytes.query({ ...all, accountId: 1n }).map((one) => one.windowStart)).toEqual([10, 20]);
    expect(byBytes.bytes).toBe(128);
    expect(byBytes.forgetBefore).toBe(10);
  });
});

describe('job', () => {
  const job: Job = {
    topic: 't',
    window: 'tumbling',
    sizeMs: 1000,
    skewMs: 0,
    latenessMs: 0,
    watermark: 'partition',
  };
  it('refuses sizes that are not whole milliseconds in range', () => {
    expect(checkJob(job)).toBe(job);
    for (const sizeMs of [0, -1, 0.5, DURATION_MS_MAX + 1, Number.NaN]) {
      expect(() => checkJob({ ...job, sizeMs })).toThrow(/-size/);
    }
    expect(() => checkJob({ ...job, skewMs: -1 })).toThrow(/-allowed-skew/);
    expect(() => checkJob({ ...job, latenessMs: 1.5 })).toThrow(/-allowed-lateness/);
  });
  it('names every setting in which a checkpoint differs', () => {
    expect(jobDifferences(job, job)).toEqual([]);
    expect(jobDifferences(job, { ...job, sizeMs: 2000, topic: 'u' })).toEqual([
      '-topic was t, is u',
      '-size was 1000 ms, is 2000 ms',
    ]);
  });
});
