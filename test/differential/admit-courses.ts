/** Sequences of batches for admission: any rows of any partitions in batches of any size, with
 *  invalid rows, limits and idle decisions. */
import fc from 'fast-check';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { type EventRow, I64_MAX, I64_MIN } from './window-kit.ts';

export interface Course {
  readonly partitions: number;
  /** True for sessions, which have no slices. */
  readonly isSession: boolean;
  readonly mode: 'global' | 'partition';
  readonly slideMs: number;
  readonly slides: number;
  readonly rest: number;
  readonly skewMs: number;
  readonly latenessMs: number;
  readonly maxFutureMs: number | undefined;
  readonly rows: readonly EventRow[];
  readonly cuts: readonly number[];
  readonly limits: readonly number[];
  /** Partitions that become idle, each with the number of the batch before which it does. */
  readonly idle: ReadonlyArray<readonly [batch: number, partition: number]>;
}

export const courses: fc.Arbitrary<Course> = fc
  .record({
    partitions: fc.integer({ min: 1, max: 5 }),
    isSession: fc.constantFrom(false, false, true),
    mode: fc.constantFrom('global' as const, 'partition' as const),
    slideMs: fc.integer({ min: 1, max: 60 }),
    slides: fc.integer({ min: 1, max: 4 }),
    rest: fc.nat(10),
    skewMs: fc.nat(40),
    latenessMs: fc.nat(40),
    maxFutureMs: fc.option(fc.nat(200), { nil: undefined }),
    base: fc.constantFrom(0, -500, 1_750_000_000_000, -(2 ** 52), 2 ** 52 - 400),
    spread: fc.integer({ min: 1, max: 120 }),
    runs: fc.array(
      fc.record({
        partition: fc.nat(4),
        length: fc.integer({ min: 1, max: 150 }),
        seed: fc.nat(0xffff),
        pace: fc.constantFrom(0, 0, 0.2, 1, 5),
      }),
      { maxLength: 12 },
    ),
    odd: fc.array(
      fc.record({
        at: fc.nat(800),
        eventTs: fc.option(
          fc.oneof(fc.bigInt(I64_MIN, I64_MAX), fc.constantFrom(I64_MIN, I64_MAX, -(2n ** 52n), 2n ** 52n)),
        ),
        status: fc.constantFrom(0, 0, 1, 2, EVENT_STATUS.FILTERED, EVENT_STATUS.BAD_TIME),
        timestamp: fc.oneof(fc.constantFrom(I64_MIN, I64_MAX, -1n), fc.bigInt(I64_MIN, I64_MAX)),
      }),
      { maxLength: 6 },
    ),
    cuts: fc.array(fc.integer({ min: 1, max: 400 }), { maxLength: 8 }),
    limits: fc.array(fc.oneof(fc.nat(300), fc.constant(Number.POSITIVE_INFINITY)), { maxLength: 5 }),
    idle: fc.array(fc.tuple(fc.nat(8), fc.nat(4)), { maxLength: 6 }),
  })
  .map(({ runs, odd, base, spread, ...course }) => {
    const rows: EventRow[] = [];
    const next = new Array<number>(course.partitions).fill(0);
    let time = 0;
    for (const { partition: any, length, seed, pace } of runs) {
      const partition = any % course.partitions;
      let word = seed + 1;
      for (let i = 0; i < length; i++) {
        word = (Math.imul(word, 1_103_515_245) + 12_345) >>> 0;
        const ts = Math.floor(base + time - ((word >>> 8) % spread));
        time += pace;
        const offset = next[partition] as number;
        next[partition] = offset + 1 + ((word >>> 4) % 7 === 0 ? 1 : 0);
        rows.push({
          partition,
          offset: BigInt(offset),
          eventTs: BigInt(ts),
          timestamp: BigInt(Math.floor(base + time) - 50),
          timestampType: (word >>> 5) % 3,
        });
      }
    }
    for (const { at, eventTs, status, timestamp } of odd) {
      const row = rows[at];
      if (row !== undefined) rows[at] = { ...row, eventTs: eventTs ?? row.eventTs, status, timestamp };
    }
    return { ...course, rows };
  });
