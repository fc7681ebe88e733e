/** Admission: the addon and the reference implementation give the same bytes for any sequence of
 *  batches, and both match the rules. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Admission } from '../../bench/peers/oracle/admission.ts';
import type { OracleRules } from '../../bench/peers/oracle/rules.ts';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import {
  EVENT_STATUS,
  PARTITION_PROGRESS,
  REFUSAL,
  TIMESTAMP_TYPE,
  WINDOW_CLOCK,
} from '../../src/core/layout/layouts.gen.ts';
import { NO_BOUND } from '../../src/core/layout/refused-batch.ts';
import {
  createClock,
  createProgress,
  PROGRESS_CELLS,
  type WindowTimes,
} from '../../src/core/layout/window-clock.ts';
import { runs } from '../tier.ts';
import { streams } from '../windows/streams.ts';
import { type Course, courses } from './admit-courses.ts';
import { type Batches, batchesOf, hexOf, I64_MAX, I64_MIN, outcome, SIDES } from './window-kit.ts';

/** Refusal codes by the oracle's names. */
const REASONS = new Map<string, number>([
  ['late', REFUSAL.LATE],
  ['late after idle', REFUSAL.LATE_AFTER_IDLE],
  ['invalid', REFUSAL.INVALID],
]);
const NEXT_END = WINDOW_CLOCK.NEXT_END / 8;
const FRONTIER = WINDOW_CLOCK.FRONTIER / 8;
const cell = (at: number): number => at / 8;

/** Runs a sequence and returns every output byte. When the watermark passes the next due end, it
 *  moves that end on, as a firing does. */
function run(
  kernels: WindowKernels,
  course: Course,
): { readonly log: unknown[]; readonly progress: Float64Array } {
  const slideMs = course.isSession ? 0 : course.slideMs;
  const sizeMs = course.isSession ? 0 : slideMs * course.slides + (course.rest % slideMs);
  const clock = createClock({ ...course, slideMs, sizeMs });
  const progress = createProgress(course.partitions);
  course.limits.slice(0, course.partitions).forEach((limit, p) => {
    progress[p * PROGRESS_CELLS + cell(PARTITION_PROGRESS.LIMIT)] = limit;
  });
  const log: unknown[] = [];
  let first = 0;
  for (let batch = 0; first < course.rows.length; batch++) {
    const rows = course.rows.slice(first, first + (course.cuts[batch] ?? 256));
    first += rows.length;
    for (const [before, partition] of course.idle)
      if (before === batch && partition < course.partitions)
        progress[partition * PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 1;
    const batches = batchesOf(rows);
    for (let from = 0; from < rows.length; ) {
      const { records, events, admitted, refused } = batches;
      // Every second batch passes no buffer for refusals.
      const refusals = batch % 2 === 0 ? refused : undefined;
      const taken = kernels.admit(clock, progress, records, events, from, admitted, refusals);
      from += taken;
      const buffers = [clock.buffer, progress.buffer, admitted.buffer, refused.buffer];
      log.push([taken, ...buffers.map(hexOf)]);
      while ((clock[FRONTIER] as number) >= (clock[NEXT_END] as number)) {
        clock[NEXT_END] = Math.max(clock[NEXT_END] as number, clock[FRONTIER] as number) + slideMs;
      }
    }
  }
  return { log, progress };
}

describe('admission', () => {
  it('admission is the same on both sides, byte for byte, for any course', () => {
    fc.assert(
      fc.property(courses, (course) => {
        const [fromReference, addon] = SIDES.map((kernels) => run(kernels, course).log);
        expect(addon).toEqual(fromReference);
      }),
      { numRuns: runs(300) },
    );
  });

  it('admission accounts for every row that it read', () => {
    fc.assert(
      fc.property(courses, (course) => {
        for (const kernels of SIDES) {
          const { progress } = run(kernels, course);
          for (let at = 0; at < progress.length; at += PROGRESS_CELLS) {
            const read = (field: number): number => progress[at + cell(field)] as number;
            expect(
              read(PARTITION_PROGRESS.ACCEPTED) +
                read(PARTITION_PROGRESS.DROPPED_LATE) +
                read(PARTITION_PROGRESS.INVALID),
            ).toBe(read(PARTITION_PROGRESS.CONSUMED));
          }
        }
      }),
      { numRuns: runs(60) },
    );
  });

  it('both sides refuse the same cells and headers and leave the same bytes', () => {
    const numbers = fc.oneof(
      fc.constantFrom(Number.NaN, Infinity, -Infinity, -1, 0.5, 2 ** 53, 2 ** 60, -(2 ** 60), 1e300, 3),
      fc.double({ noNaN: false }).filter((value) => !Object.is(value, -0)),
    );
    // Mostly one corruption at a time, because the first one found hides the others.
    const rarely = <T>(lie: fc.Arbitrary<T>): fc.Arbitrary<T | null> =>
      fc.oneof({ weight: 4, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: lie });
    const lies = fc.record({
      clock: rarely(fc.tuple(fc.nat(8), numbers)),
      progress: rarely(fc.tuple(fc.nat(PROGRESS_CELLS + 9), numbers)),
      cut: rarely(fc.nat(40)),
      header: rarely(
        fc.tuple(
          fc.constantFrom('records', 'events', 'admitted', 'refused'),
          fc.constantFrom(0, 2, 3),
          fc.nat(9),
        ),
      ),
      from: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.nat(9), fc.constantFrom(-1, 0.5, 2 ** 32)),
      partition: rarely(fc.constantFrom(-1, 2, 0x7fff_ffff, -0x8000_0000)),
      offset: rarely(fc.constantFrom(-1n, 0n, 2n ** 53n - 1n, 2n ** 53n, I64_MAX, I64_MIN)),
    });
    fc.assert(
      fc.property(lies, (lie) => {
        const results = SIDES.map((kernels) => {
          const clock = createClock({
            mode: 'partition',
            sizeMs: 100,
            slideMs: 100,
            skewMs: 5,
            latenessMs: 5,
          });
          let progress = createProgress(2);
          const batches: Batches = batchesOf(
            [0, 1, 2, 3].map((i) => ({
              eventTs: BigInt(i * 40),
              offset: BigInt(i + 1),
              ...(i === 2 && lie.partition !== null ? { partition: lie.partition } : {}),
              ...(i === 2 && lie.offset !== null ? { offset: lie.offset } : {}),
            })),
          );
          if (lie.clock !== null) clock[lie.clock[0]] = lie.clock[1];
          if (lie.progress !== null) progress[lie.progress[0]] = lie.progress[1];
          if (lie.cut !== null) progress = progress.slice(0, lie.cut);
          if (lie.header !== null)
            batches[lie.header[0] as keyof Batches].columns.header[lie.header[1]] = lie.header[2];
          const { records, events, admitted, refused } = batches;
          const answer = outcome(() =>
            kernels.admit(clock, progress, records, events, lie.from, admitted, refused),
          );
          const buffers = [clock.buffer, progress.buffer, admitted.buffer, refused.buffer];
          return [answer, ...buffers.map(hexOf)];
        });
        expect(results[1]).toEqual(results[0]);
      }),
      { numRuns: runs(1500) },
    );
  });
});

function timesOf(rules: OracleRules): WindowTimes {
  const sizeMs = rules.window === 'session' ? 0 : Number(rules.sizeMs);
  return {
    mode: rules.watermark ?? 'partition',
    sizeMs,
    slideMs: rules.window === 'sliding' ? Number(rules.slideMs) : sizeMs,
    skewMs: Number(rules.skewMs),
    latenessMs: Number(rules.latenessMs),
    maxFutureMs: rules.maxFutureMs === undefined ? undefined : Number(rules.maxFutureMs),
  };
}

describe.each(SIDES)('admission rules of $name', (kernels) => {
  const times = { mode: 'partition', sizeMs: 100, slideMs: 100, skewMs: 10, latenessMs: 20 } as const;
  const field = (progress: Float64Array, p: number, at: number): number =>
    progress[p * PROGRESS_CELLS + cell(at)] as number;

  it('an event is late exactly when it is below its partition max - skew - lateness', () => {
    const clock = createClock(times);
    const progress = createProgress(1);
    const { records, events, admitted, refused } = batchesOf([
      { eventTs: 0n, status: EVENT_STATUS.NULL, offset: 0n },
      { eventTs: 1000n, offset: 1n },
      { eventTs: 970n, offset: 2n },
      { eventTs: 969n, offset: 3n },
      { eventTs: 2n ** 52n, offset: 4n },
    ]);
    expect(kernels.admit(clock, progress, records, events, 0, admitted, refused)).toBe(5);
    const { row, reason, bound } = refused.columns;
    expect([...row.subarray(0, refused.rowCount)]).toEqual([0, 3, 4]);
    expect([...reason.subarray(0, 3)]).toEqual([REFUSAL.INVALID, REFUSAL.LATE, REFUSAL.INVALID]);
    expect([...bound.subarray(0, 3)]).toEqual([NO_BOUND, 970n, 970n]);
    expect([...admitted.columns.row.subarray(0, admitted.rowCount)]).toEqual([1, 2]);
    expect([...admitted.columns.slice.subarray(0, 2)]).toEqual([1000n, 900n]);
    expect(field(progress, 0, PARTITION_PROGRESS.DROPPED_LATE)).toBe(1);
    expect(clock[NEXT_END]).toBe(1000);
    expect(clock[FRONTIER]).toBe(970);
  });

  it('a filtered event advances the watermark, counts as accepted however late, and opens no window', () => {
    const clock = createClock(times);
    const progress = createProgress(1);
    const { records, events, admitted, refused } = batchesOf([
      { eventTs: 1000n, status: EVENT_STATUS.FILTERED, offset: 0n },
      { eventTs: 5n, status: EVENT_STATUS.FILTERED, offset: 1n },
      { eventTs: 2n ** 52n, status: EVENT_STATUS.FILTERED, offset: 2n },
      { eventTs: 969n, offset: 3n },
    ]);
    expect(kernels.admit(clock, progress, records, events, 0, admitted, refused)).toBe(4);
    expect(admitted.rowCount).toBe(0);
    expect([...refused.columns.row.subarray(0, refused.rowCount)]).toEqual([2, 3]);
    expect(clock[FRONTIER]).toBe(970);
    expect(clock[NEXT_END]).toBe(Infinity);
    expect(field(progress, 0, PARTITION_PROGRESS.ACCEPTED)).toBe(2);
    expect(field(progress, 0, PARTITION_PROGRESS.INVALID)).toBe(1);
    expect(field(progress, 0, PARTITION_PROGRESS.DROPPED_LATE)).toBe(1);
  });

  it('the watermark waits for the slowest partition and for a partition without an event', () => {
    const clock = createClock(times);
    const progress = createProgress(2);
    const fast = batchesOf([{ eventTs: 5n }, { eventTs: 5000n, offset: 1n }]);
    expect(kernels.admit(clock, progress, fast.records, fast.events, 0, fast.admitted)).toBe(2);
    expect(clock[FRONTIER]).toBe(-Infinity);
    const slow = batchesOf([
      { partition: 1, eventTs: 129n },
      { partition: 1, offset: 1n, eventTs: 130n },
      { partition: 1, offset: 2n, eventTs: 131n },
    ]);
    expect(kernels.admit(clock, progress, slow.records, slow.events, 0, slow.admitted)).toBe(2);
    expect(clock[FRONTIER]).toBe(100);
  });

  it('an idle decision alone moves the watermark, and the watermark stays while all partitions are idle', () => {
    const clock = createClock(times);
    const progress = createProgress(2);
    const first = batchesOf([{ eventTs: 90n }, { partition: 1, offset: 0n, eventTs: 60n }]);
    expect(kernels.admit(clock, progress, first.records, first.events, 0, first.admitted)).toBe(2);
    expect(clock[FRONTIER]).toBe(30);
    const nothing = batchesOf([]);
    const look = (): number | undefined => {
      expect(kernels.admit(clock, progress, nothing.records, nothing.events, 0, nothing.admitted)).toBe(0);
      return clock[FRONTIER];
    };
    progress[PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 1;
    expect(look()).toBe(60);
    progress[cell(PARTITION_PROGRESS.IDLE)] = 1;
    expect(look()).toBe(60);
    progress[PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 0;
    expect(look()).toBe(60);
  });

  it('admission stops at the row that makes a window due, however many rows arrive together', () => {
    const clock = createClock(times);
    const progress = createProgress(1);
    const open = batchesOf([{ eventTs: 50n }]);
    expect(kernels.admit(clock, progress, open.records, open.events, 0, open.admitted)).toBe(1);
    expect(clock[NEXT_END]).toBe(100);
    for (const [greatest, taken] of [
      [129n, 500],
      [130n, 11],
    ] as const) {
      const [clockThen, progressThen] = [clock.slice(), progress.slice()];
      const rows = Array.from({ length: 500 }, (_, i) => ({
        offset: BigInt(1 + i),
        eventTs: i === 10 ? greatest : 110n,
      }));
      const { records, events, admitted } = batchesOf(rows);
      expect(kernels.admit(clockThen, progressThen, records, events, 0, admitted)).toBe(taken);
      expect(admitted.rowCount).toBe(taken);
    }
  });

  it('rows of a partition that returns behind the watermark are dropped, however many arrive together', () => {
    const clock = createClock(times);
    const progress = createProgress(2);
    progress[PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 1;
    const ahead = batchesOf([{ eventTs: 9000n }]);
    expect(kernels.admit(clock, progress, ahead.records, ahead.events, 0, ahead.admitted)).toBe(1);
    expect(clock[FRONTIER]).toBe(8970);
    // Enough rows for the block-wise path.
    const ROWS = 500;
    const behind = batchesOf(
      Array.from({ length: ROWS }, (_, i) => ({
        partition: 1,
        offset: BigInt(i),
        eventTs: 8920n + BigInt(i % 5),
      })),
    );
    clock[NEXT_END] = 9100;
    expect(kernels.admit(clock, progress, behind.records, behind.events, 0, behind.admitted)).toBe(ROWS);
    expect(behind.admitted.rowCount).toBe(0);
    expect(field(progress, 1, PARTITION_PROGRESS.DROPPED_LATE)).toBe(ROWS);
    expect(field(progress, 1, PARTITION_PROGRESS.DROPPED_AFTER_IDLE)).toBe(ROWS);
  });

  it('admission of session events makes no window due and puts every row in one slice', () => {
    const clock = createClock({ ...times, sizeMs: 0, slideMs: 0 });
    const progress = createProgress(1);
    const batch = batchesOf([{ eventTs: -(2n ** 52n) }, { eventTs: 2n ** 52n - 1n }, { eventTs: 5n }]);
    expect(kernels.admit(clock, progress, batch.records, batch.events, 0, batch.admitted)).toBe(3);
    expect([...batch.admitted.columns.row.subarray(0, batch.admitted.rowCount)]).toEqual([0, 1]);
    expect([...batch.admitted.columns.slice.subarray(0, 2)]).toEqual([-(2n ** 52n), -(2n ** 52n)]);
    expect(clock[NEXT_END]).toBe(Infinity);
    expect(clock[FRONTIER]).toBe(2 ** 52 - 31);
  });

  it('admission gives the verdicts, counts and watermarks of the oracle, including decisions', () => {
    const options = {
      windows: ['tumbling', 'sliding', 'session'],
      watermarks: ['partition', 'global'],
      decisions: true,
      maxFuture: true,
    } as const;
    fc.assert(
      fc.property(streams(options), ({ rules, partitions, log }) => {
        const oracle = new Admission(rules, partitions, true);
        const clock = createClock(timesOf(rules));
        let progress = createProgress(partitions);
        const offsets = new Array<number>(partitions).fill(0);
        for (const entry of log) {
          let expected: string | undefined;
          let batch = batchesOf([]);
          if (entry.kind === 'added') {
            oracle.add();
            offsets.push(0);
            const more = createProgress(offsets.length);
            more.set(progress);
            more[progress.length + cell(PARTITION_PROGRESS.MAX_SEEN)] =
              (clock[FRONTIER] as number) + Number(rules.skewMs + rules.latenessMs);
            progress = more;
          } else if (entry.kind === 'idle') {
            oracle.idle(entry.partition);
            progress[entry.partition * PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 1;
          } else {
            const { partition } = entry;
            const offset = BigInt(offsets[partition] as number);
            offsets[partition] = Number(offset) + 1;
            if (entry.kind === 'broken') {
              expected = oracle.broken(partition);
              batch = batchesOf([{ partition, offset, eventTs: 0n, status: EVENT_STATUS.BAD_LENGTH }]);
            } else {
              const { eventTs, appendTs } = entry;
              expected = oracle.event(partition, eventTs, appendTs);
              const timestampType = appendTs === undefined ? TIMESTAMP_TYPE.NONE : TIMESTAMP_TYPE.APPEND;
              batch = batchesOf([{ partition, offset, eventTs, timestamp: appendTs ?? 0n, timestampType }]);
            }
          }
          clock[NEXT_END] = Infinity;
          const { records, events, admitted, refused } = batch;
          expect(kernels.admit(clock, progress, records, events, 0, admitted, refused)).toBe(
            records.rowCount,
          );
          expect(admitted.rowCount).toBe(expected === 'accepted' ? 1 : 0);
          const frontier = oracle.frontier === undefined ? -Infinity : Number(oracle.frontier);
          expect(clock[FRONTIER]).toBe(frontier);
          const reasons = [...refused.columns.reason.subarray(0, refused.rowCount)];
          const reason = REASONS.get(expected ?? 'accepted');
          expect(reasons).toEqual(reason === undefined ? [] : [reason]);
          const bound = refused.columns.bound[0] as bigint;
          if (expected === 'late') expect(bound).toBeGreaterThan(events.columns.eventTs[0] as bigint);
          if (expected === 'late after idle') expect(bound).toBe(oracle.frontier);
        }
        oracle.counters.forEach((counters, p) => {
          const count = (at: number): bigint => BigInt(field(progress, p, at));
          expect({
            consumed: count(PARTITION_PROGRESS.CONSUMED),
            accepted: count(PARTITION_PROGRESS.ACCEPTED),
            droppedLate: count(PARTITION_PROGRESS.DROPPED_LATE),
            droppedAfterIdle: count(PARTITION_PROGRESS.DROPPED_AFTER_IDLE),
            invalid: count(PARTITION_PROGRESS.INVALID),
            futureClamped: count(PARTITION_PROGRESS.FUTURE_CLAMPED),
          }).toEqual(counters);
        });
      }),
      { numRuns: runs(150) },
    );
  });

  it('one fast partition moves the watermark of all in global mode', () => {
    const clock = createClock({ ...times, mode: 'global' });
    const progress = createProgress(2);
    const batch = batchesOf([{ eventTs: 5000n }, { partition: 1, offset: 0n, eventTs: 4969n }]);
    expect(kernels.admit(clock, progress, batch.records, batch.events, 0, batch.admitted)).toBe(2);
    expect(batch.admitted.rowCount).toBe(1);
    expect(field(progress, 1, PARTITION_PROGRESS.DROPPED_LATE)).toBe(1);
  });

  it('an idle partition does not hold the watermark back, and the watermark does not fall when the partition returns behind it', () => {
    const clock = createClock(times);
    const progress = createProgress(2);
    progress[PROGRESS_CELLS + cell(PARTITION_PROGRESS.IDLE)] = 1;
    const batch = batchesOf([{ eventTs: 10n }, { eventTs: 140n, offset: 1n }]);
    expect(kernels.admit(clock, progress, batch.records, batch.events, 0, batch.admitted)).toBe(2);
    expect(clock[FRONTIER]).toBe(110);
    clock[NEXT_END] = 200;
    const back = batchesOf([
      { partition: 1, offset: 0n, eventTs: 109n },
      { partition: 1, offset: 1n, eventTs: 110n },
    ]);
    expect(kernels.admit(clock, progress, back.records, back.events, 0, back.admitted)).toBe(2);
    expect([...back.admitted.columns.row.subarray(0, back.admitted.rowCount)]).toEqual([1]);
    expect(field(progress, 1, PARTITION_PROGRESS.DROPPED_AFTER_IDLE)).toBe(1);
    expect(field(progress, 1, PARTITION_PROGRESS.DROPPED_LATE)).toBe(1);
    expect(field(progress, 1, PARTITION_PROGRESS.IDLE)).toBe(0);
    expect(clock[FRONTIER]).toBe(110);
  });

  it('an event from the future is admitted but moves the watermark only up to its limit', () => {
    const clock = createClock({ ...times, maxFutureMs: 50 });
    const progress = createProgress(1);
    const batch = batchesOf([
      { eventTs: 10_000n, timestamp: 100n, timestampType: 1 },
      { eventTs: 120n, timestamp: 100n, timestampType: 1 },
    ]);
    expect(kernels.admit(clock, progress, batch.records, batch.events, 0, batch.admitted)).toBe(2);
    expect(batch.admitted.rowCount).toBe(2);
    expect(field(progress, 0, PARTITION_PROGRESS.MAX_SEEN)).toBe(150);
    expect(field(progress, 0, PARTITION_PROGRESS.FUTURE_CLAMPED)).toBe(1);
  });

  it('rows at a limit are not consumed', () => {
    const clock = createClock(times);
    const progress = createProgress(1);
    progress[cell(PARTITION_PROGRESS.LIMIT)] = 1;
    const batch = batchesOf([{ eventTs: 1n }, { eventTs: 2n }, { eventTs: 3n }]);
    expect(kernels.admit(clock, progress, batch.records, batch.events, 0, batch.admitted)).toBe(3);
    expect(batch.admitted.rowCount).toBe(1);
    expect(field(progress, 0, PARTITION_PROGRESS.NEXT_OFFSET)).toBe(1);
    expect(field(progress, 0, PARTITION_PROGRESS.CONSUMED)).toBe(1);
  });
});
