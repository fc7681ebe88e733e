/** Pieces of a replay, and the tally of its threads. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type OffsetRange, piecesOf } from '../../../../src/registry/replay/pieces.ts';
import { ReplayTally } from '../../../../src/registry/replay/tally.ts';

const range = (partition: number, from: number, to: number): OffsetRange => ({
  topic: 't',
  partition,
  from: BigInt(from),
  to: BigInt(to),
});

describe('pieces', () => {
  it('every offset of every partition is in exactly one piece', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(200_000), fc.nat(200_000)), { maxLength: 6 }),
        fc.integer({ min: 1, max: 8 }),
        (sizes, threads) => {
          const ranges = sizes.map(([from, size], partition) => range(partition, from, from + size));
          const pieces = piecesOf(ranges, threads);
          for (const whole of ranges) {
            let next = whole.from;
            for (const part of pieces.flat().filter(({ partition }) => partition === whole.partition)) {
              expect(part.from).toBe(next);
              expect(part.to > part.from).toBe(true);
              next = part.to;
            }
            expect(next).toBe(whole.to);
          }
          for (const piece of pieces)
            expect(new Set(piece.map(({ partition }) => partition)).size).toBe(piece.length);
        },
      ),
    );
  });

  it('one large partition is split over the threads, and small partitions share a piece', () => {
    expect(piecesOf([range(0, 0, 8_000_000)], 2)).toHaveLength(8);
    expect(
      piecesOf(
        Array.from({ length: 50 }, (_, partition) => range(partition, 0, 100)),
        2,
      ),
    ).toHaveLength(1);
    expect(piecesOf([range(0, 5, 5)], 2)).toEqual([]);
  });
});

describe('tally', () => {
  it('tallies of threads merge into the tally of one thread', () => {
    const one = new ReplayTally();
    const parts = [new ReplayTally(), new ReplayTally(), new ReplayTally()];
    for (let offset = 0; offset < 100; offset++) {
      for (const tally of [one, parts[(offset * 7) % 3] as ReplayTally]) {
        tally.records++;
        if (offset % 3 === 0)
          tally.failed('malformed_payload', {
            partition: offset % 2,
            offset: BigInt(offset),
            schemaId: 1,
            error: `broken at ${offset}`,
          });
        else tally.decoded(offset % 5, 1);
      }
    }
    const merged = new ReplayTally();
    for (const part of parts) merged.add(part.data());
    const bySchema = (tally: ReplayTally) => [...tally.data().bySchema].sort();
    expect(merged.data().byReason).toEqual(one.data().byReason);
    expect(bySchema(merged)).toEqual(bySchema(one));
    expect([merged.records, merged.failures]).toEqual([100, 34]);
  });

  it('a report lists the failures with the lowest offsets, however late they are found', () => {
    const tally = new ReplayTally();
    for (let offset = 40; offset > 0; offset--)
      tally.failed('bad_magic', { partition: 0, offset: BigInt(offset), schemaId: 0, error: 'x' });
    const { count, first } = tally.data().byReason.get('bad_magic') ?? { count: 0, first: [] };
    expect(count).toBe(40);
    expect(first.map(({ offset }) => Number(offset))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });
});
