/** The changelog's records: they are decoded unchanged; other bytes are refused with the reason,
 *  and nothing throws. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PARTITION_PROGRESS, WINDOW_CLOCK } from '../../../src/core/layout/layouts.gen.ts';
import { createProgress, PROGRESS_CELLS } from '../../../src/core/layout/window-clock.ts';
import { SAVED_CELLS } from '../../../src/engine/durability/changelog/cells.ts';
import {
  arrivalsOf,
  type ChangelogRecord,
  decodeRecord,
  encodeChanged,
  encodeDetached,
  encodeFired,
  encodeMove,
  encodeSpilled,
  encodeSwept,
  RECORD,
} from '../../../src/engine/durability/changelog/records.ts';
import { runs } from '../../tier.ts';

const NEVER = Number.NEGATIVE_INFINITY;
const count = fc.integer({ min: 0, max: 1e12 });
const time = fc.oneof(fc.constant(NEVER), fc.integer({ min: -(2 ** 40), max: 2 ** 40 }));

const partition = fc
  .record({
    offset: count,
    seen: time,
    accepted: count,
    late: count,
    idle: fc.nat(1),
    invalid: count,
    clamped: count,
  })
  .chain((one) => fc.nat(one.late).map((afterIdle) => ({ ...one, afterIdle })));

const progresses = fc.array(partition, { minLength: 1, maxLength: 6 }).map((all) => {
  const progress = createProgress(all.length);
  all.forEach((one, i) => {
    const put = (byte: number, value: number): void => {
      progress[i * PROGRESS_CELLS + byte / 8] = value;
    };
    put(PARTITION_PROGRESS.NEXT_OFFSET, one.offset);
    put(PARTITION_PROGRESS.MAX_SEEN, one.seen);
    put(PARTITION_PROGRESS.CONSUMED, one.accepted + one.late + one.invalid);
    put(PARTITION_PROGRESS.ACCEPTED, one.accepted);
    put(PARTITION_PROGRESS.DROPPED_LATE, one.late);
    put(PARTITION_PROGRESS.DROPPED_AFTER_IDLE, one.afterIdle);
    put(PARTITION_PROGRESS.INVALID, one.invalid);
    put(PARTITION_PROGRESS.FUTURE_CLAMPED, one.clamped);
    put(PARTITION_PROGRESS.IDLE, one.idle);
  });
  return progress;
});

const clockOf = (frontier: number, maxSeen: number): Float64Array => {
  const clock = new Float64Array(WINDOW_CLOCK.BYTES / 8);
  clock[WINDOW_CLOCK.FRONTIER / 8] = frontier;
  clock[WINDOW_CLOCK.MAX_SEEN / 8] = maxSeen;
  return clock;
};

const moves = fc
  .record({
    progress: progresses,
    frontier: time,
    maxSeen: time,
    arrivals: fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 0xffff_ffff })), { maxLength: 4 }),
    deltas: fc.uint8Array({ maxLength: 40 }),
    skip: fc.nat(63),
  })
  .map(({ arrivals, skip, progress, ...rest }) => {
    const partitions = progress.length / PROGRESS_CELLS;
    const listed = Array.from({ length: partitions }, (_, p) => p).filter((p) => ((skip >> p) & 1) === 0);
    const pairs = Uint32Array.from(arrivals.flatMap(([p, rows]) => [p % partitions, rows]));
    return { ...rest, progress, partitions, listed, arrivals: pairs };
  });

const whole = (parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

function recordOf(kind: number, body: Uint8Array): ChangelogRecord {
  const decoded = decodeRecord(kind, body);
  if ('fault' in decoded) throw new Error(decoded.fault);
  return decoded.record;
}
const faultOf = (kind: number, body: Uint8Array): string => {
  const decoded = decodeRecord(kind, body);
  return 'fault' in decoded ? decoded.fault : 'none';
};

const moveBody = (at: typeof moves extends fc.Arbitrary<infer T> ? T : never): Uint8Array =>
  whole([encodeMove(at.progress, clockOf(at.frontier, at.maxSeen), at.listed, at.arrivals), at.deltas]);

const PIECE = { id: 2 ** 40, part: -60_000, rows: 2 ** 33, crc32: 0xffff_fffe };

describe('BATCH record', () => {
  it('a BATCH is decoded unchanged from a buffer that begins anywhere', () => {
    fc.assert(
      fc.property(moves, fc.nat(7), (at, shift) => {
        const body = whole([new Uint8Array(shift), moveBody(at)]).subarray(shift);
        const record = recordOf(RECORD.BATCH, body);
        if (record.kind !== 'batch') throw new Error(record.kind);
        expect(record.partitions).toBe(at.partitions);
        expect([record.frontier, record.maxSeen]).toEqual([at.frontier, at.maxSeen]);
        expect([...record.listed]).toEqual(at.listed);
        expect(record.arrivals).toEqual(at.arrivals);
        expect(Buffer.from(record.deltas)).toEqual(Buffer.from(at.deltas));
        record.listed.forEach((p, i) => {
          for (const [, cell] of SAVED_CELLS)
            expect(record.cells[i * PROGRESS_CELLS + cell]).toBe(at.progress[p * PROGRESS_CELLS + cell]);
        });
      }),
    );
  });

  it('a damaged BATCH is refused, whatever its bytes are', () => {
    const bodies = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      moves.map(moveBody),
      fc.constantFrom(encodeFired(3), encodeDetached(4, -10), encodeSpilled(PIECE)),
    );
    const flips = fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 });
    fc.assert(
      fc.property(bodies, flips, fc.nat(10), fc.nat(), (original, changes, kind, cut) => {
        const body = original.slice(0, cut % 3 === 0 ? cut % (original.length + 1) : original.length);
        for (const [at, by] of changes) if (body.length > 0) body[at % body.length] = by;
        const decoded = decodeRecord(kind, body);
        if ('fault' in decoded) expect(decoded.fault).toMatch(/^(is|has) .+/);
        else if ('listed' in decoded.record) {
          const { listed, partitions, arrivals } = decoded.record;
          expect(
            [...listed].every((p, i) => p < partitions && (i === 0 || p > (listed[i - 1] as number))),
          ).toBe(true);
          expect([...arrivals].every((word, i) => (i % 2 === 0 ? word < partitions : word > 0))).toBe(true);
        }
      }),
      { numRuns: runs(2000) },
    );
  });

  it('the refusal of a BATCH names the invalid part', () => {
    const progress = createProgress(2);
    progress[PARTITION_PROGRESS.CONSUMED / 8] = 3;
    const bad = encodeMove(progress, clockOf(1, 2), [0], new Uint32Array(0));
    expect(faultOf(RECORD.BATCH, bad)).toBe(
      'is not a valid BATCH: partition 0 has 3 consumed events that are neither accepted, dropped nor invalid',
    );
    const good = encodeMove(createProgress(2), clockOf(1, 2), [0, 1], new Uint32Array(0));
    expect(faultOf(RECORD.BATCH, good.slice(0, 40))).toBe('is not a valid BATCH: it is cut short');
    expect(faultOf(RECORD.BATCH, good.slice(0, 31))).toBe('is not a valid BATCH: it has 31 bytes');
    expect(faultOf(99, good)).toBe('is of kind 99, which this build does not know');
    expect(faultOf(RECORD.BATCH, whole([Uint8Array.of(7), good.slice(1)]))).toBe(
      'has form 7, this build reads 1',
    );
    const nan = encodeMove(createProgress(2), clockOf(Number.NaN, 2), [], new Uint32Array(0));
    expect(faultOf(RECORD.BATCH, nan)).toBe(
      'is not a valid BATCH: its frontier is NaN, its greatest time is 2',
    );
  });
});

describe('decision record', () => {
  const idle = createProgress(3);
  idle[PROGRESS_CELLS + PARTITION_PROGRESS.IDLE / 8] = 1;
  const none = new Uint32Array(0);

  it('an IDLE record lists the idle partition and nothing else', () => {
    const body = encodeMove(idle, clockOf(5, 9), [1], none);
    expect(recordOf(RECORD.IDLE, body)).toMatchObject({
      kind: 'idle',
      partitions: 3,
      frontier: 5,
      maxSeen: 9,
    });
    const fault = 'is not a valid IDLE: it does not list exactly one idle partition';
    expect(faultOf(RECORD.IDLE, encodeMove(idle, clockOf(5, 9), [0], none))).toBe(fault);
    expect(faultOf(RECORD.IDLE, encodeMove(idle, clockOf(5, 9), [0, 1], none))).toBe(fault);
    expect(faultOf(RECORD.IDLE, whole([body, Uint8Array.of(1)]))).toBe('is not a valid IDLE: it has rows');
  });

  it('an ADDED record lists the last partitions', () => {
    const record = recordOf(RECORD.ADDED, encodeMove(idle, clockOf(5, 9), [1, 2], none));
    expect(record).toMatchObject({ kind: 'added', partitions: 3 });
    const fault = 'is not a valid ADDED: it does not list the last partitions';
    expect(faultOf(RECORD.ADDED, encodeMove(idle, clockOf(5, 9), [0, 1], none))).toBe(fault);
    expect(faultOf(RECORD.ADDED, encodeMove(idle, clockOf(5, 9), [], none))).toBe(fault);
  });
});

describe('FIRED record', () => {
  it('a FIRED record contains one time', () => {
    expect(recordOf(RECORD.FIRED, encodeFired(-5))).toEqual({ kind: 'fired', frontier: -5 });
    expect(faultOf(RECORD.FIRED, encodeFired(NEVER))).toBe('is not a valid FIRED: its frontier is -Infinity');
    expect(faultOf(RECORD.FIRED, encodeFired(1.5))).toBe('is not a valid FIRED: its frontier is 1.5');
    expect(faultOf(RECORD.FIRED, new Uint8Array(3))).toBe('is not a valid FIRED: it has 3 bytes');
  });
});

describe('DETACHED and SPILLED records', () => {
  it('a DETACHED or SPILLED record names a sorted run', () => {
    const { id, part } = PIECE;
    expect(recordOf(RECORD.DETACHED, encodeDetached(id, part))).toEqual({ kind: 'detached', id, part });
    expect(recordOf(RECORD.SPILLED, encodeSpilled(PIECE))).toEqual({ kind: 'spilled', piece: PIECE });
    expect(faultOf(RECORD.DETACHED, encodeDetached(0, part))).toBe(
      'is not a valid DETACHED: it names piece 0 of part -60000',
    );
    expect(faultOf(RECORD.DETACHED, encodeDetached(1, Number.NaN))).toBe(
      'is not a valid DETACHED: it names piece 1 of part NaN',
    );
    expect(faultOf(RECORD.SPILLED, encodeSpilled({ ...PIECE, id: 3, rows: 0 }))).toBe(
      'is not a valid SPILLED: it names piece 3 of part -60000, 0 rows',
    );
    expect(faultOf(RECORD.DETACHED, new Uint8Array(8))).toBe('has form 0, this build reads 1');
    expect(faultOf(RECORD.SPILLED, encodeDetached(id, part))).toBe('is not a valid SPILLED: it has 24 bytes');
    expect(faultOf(RECORD.DETACHED, encodeFired(3))).toBe('is not a valid DETACHED: it has 16 bytes');
  });
});

describe('arrivals', () => {
  it('a CHANGED record has nothing but its form', () => {
    expect(recordOf(RECORD.CHANGED, encodeChanged())).toEqual({ kind: 'changed' });
    expect(faultOf(RECORD.CHANGED, encodeFired(3))).toBe('is not a valid CHANGED: it has 16 bytes');
  });

  it('arrivals are encoded as runs of one partition', () => {
    const partition = Int32Array.of(0, 0, 1, 1, 1, 0);
    expect([...arrivalsOf(partition, 0, 6)]).toEqual([0, 2, 1, 3, 0, 1]);
    expect([...arrivalsOf(partition, 1, 3)]).toEqual([0, 1, 1, 1]);
    expect([...arrivalsOf(partition, 2, 2)]).toEqual([]);
  });

  it('a SWEPT record is decoded unchanged, with and without remaining runs, and an invalid one is refused with the reason', () => {
    const left = { id: 9, part: 0, rows: 7, crc32: 0xdead_beef };
    const more = { id: 2 ** 40 + 1, part: 0, rows: 2 ** 33, crc32: 0 };
    const sweep = { frontier: -5, gone: [3, 2 ** 40], lastId: 2 ** 41, left: [left, more] };
    const none = { frontier: 1_750_000_000_000, gone: [1], lastId: 4, left: [] };
    expect(recordOf(RECORD.SWEPT, encodeSwept(sweep))).toEqual({ kind: 'swept', ...sweep });
    expect(recordOf(RECORD.SWEPT, encodeSwept(none))).toEqual({ kind: 'swept', ...none });
    const withLeft = (one: typeof left) => encodeSwept({ ...sweep, lastId: 9, left: [one] });
    const spoiled = withLeft(left);
    spoiled[spoiled.length - 1] = 1;
    for (const [body, why] of [
      [encodeSwept({ ...none, gone: [] }), 'it names pieces  and '],
      [
        encodeSwept({ ...sweep, gone: [0] }),
        `it names pieces 0 and 9 of 7 rows,${more.id} of ${more.rows} rows`,
      ],
      [encodeSwept({ ...none, lastId: 0 }), 'it names pieces 1 and '],
      [withLeft({ ...left, rows: 0 }), 'it names pieces 3,1099511627776 and 9 of 0 rows'],
      [withLeft({ ...left, id: 10 }), 'it names pieces 3,1099511627776 and 10 of 7 rows'],
      [spoiled, 'it names pieces 3,1099511627776 and 9 of 7 rows'],
      [encodeSwept({ ...none, frontier: Number.NEGATIVE_INFINITY }), 'its frontier is -Infinity'],
      [encodeSwept(none).slice(0, 36), 'it has 36 bytes'],
      [encodeSwept(none).slice(0, 24), 'it has 24 bytes'],
    ] as const)
      expect(faultOf(RECORD.SWEPT, body)).toBe(`is not a valid SWEPT: ${why}`);
    expect(faultOf(RECORD.SWEPT, encodeSpilled(PIECE))).toBe('has form 1, this build reads 2');
  });
});
