/** Snapshots during ingestion: ranges are copied in pages between batches, and later changes are
 *  applied from the deltas. The result equals the state, on both sides and across them. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { COVER_RANGES, type RowBytes, type WindowKernels } from '../../src/addon/window-surface.ts';
import { DELTA_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { runs } from '../tier.ts';
import { admittedOf, readOut, sessionDeltasOf } from './session-kit.ts';
import {
  admitAll,
  type Batches,
  batchesOf,
  deltasOf,
  type EventRow,
  emptied,
  hexOf,
  native,
  outcome,
  ROW_BYTES,
  reference,
  rowsOf,
  SIDES,
} from './window-kit.ts';

const SLICE_MS = 1000;

/** Common interface of both states; sessions count as one slice. */
interface StateUnderTest {
  take(batch: Batches): Uint8Array;
  parts(): readonly number[];
  copyRange(part: number, range: number, cursor: Float64Array, into: RowBytes): number;
  load(part: number, rows: RowBytes, count: number): void;
  apply(bytes: Uint8Array, seq: number, covered: Float64Array): number;
  rest(): Promise<unknown>;
}

function windows(kernels: WindowKernels, shards: number): StateUnderTest {
  const state = kernels.open(SLICE_MS, shards);
  return {
    take(batch) {
      admitAll(batch, BigInt(SLICE_MS));
      state.accumulate(batch.events, batch.admitted);
      return deltasOf(state);
    },
    parts() {
      const out = new Float64Array(state.slices(new Float64Array(0)));
      state.slices(out);
      return [...out];
    },
    copyRange: (part, range, cursor, into) => state.copyRange(range, part, cursor, into),
    load: (part, rows, count) => state.load(part, rows, count),
    apply: (bytes, seq, covered) => state.applyDeltas(bytes, seq, covered),
    rest: async () => (await emptied(state)).map((one) => [one[0], one[1], one[3]]),
  };
}

function sessions(kernels: WindowKernels, shards: number): StateUnderTest {
  const state = kernels.openSessions(300, shards);
  return {
    take(batch) {
      state.accumulate(batch.events, batch.admitted);
      return sessionDeltasOf(state);
    },
    parts: () => [0],
    copyRange: (_, range, cursor, into) => state.copyRange(range, cursor, into),
    load: (_, rows, count) => state.load(rows, count),
    apply: (bytes, seq, covered) => state.applyDeltas(bytes, seq, covered),
    rest: async () => hexOf(readOut(await state.fire(Number.POSITIVE_INFINITY)).buffer),
  };
}

const draws = (seed: number): ((below: number) => number) => {
  let word = seed;
  return (below) => {
    word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
    return (word >>> 8) % below;
  };
};

/** Batches over few or many keys, so that a table grows while it is copied. */
function batchOf(draw: (below: number) => number, keyCount: number): EventRow[] {
  return Array.from({ length: 1 + draw(120) }, () => ({
    accountId: BigInt(draw(keyCount)) * 0x9e37_79b9n,
    value: BigInt(draw(1000)) - 500n,
    eventTs: BigInt(draw(2500)),
  }));
}

const KINDS = { windows, sessions } as const;
const worlds = fc.record({
  seed: fc.nat(),
  keyCount: fc.constantFrom(3, 60, 5000),
  batches: fc.integer({ min: 1, max: 12 }),
  shards: fc.integer({ min: 1, max: 3 }),
  others: fc.integer({ min: 1, max: 3 }),
  pageRows: fc.constantFrom(1, 3, 1000),
});

describe.each(['windows', 'sessions'] as const)('snapshot of %s', (kind) => {
  it.each([
    ['reference kernels', 'addon', reference, native],
    ['addon', 'reference kernels', native, reference],
    ['addon', 'addon', native, native],
  ] as const)(
    'a snapshot taken while events are ingested by the %s is restored by the %s',
    async (_, __, writer, reader) => {
      await fc.assert(
        fc.asyncProperty(worlds, async ({ seed, keyCount, batches, shards, others, pageRows }) => {
          const draw = draws(seed);
          const live = KINDS[kind](writer, shards);
          const restored = KINDS[kind](reader, others);
          const covered = new Float64Array(COVER_RANGES);
          const page = new ArrayBuffer(pageRows * ROW_BYTES);
          const deltas: Uint8Array[] = [];
          for (let seq = 1; seq <= batches; seq++) {
            deltas.push(live.take(admittedOf(batchOf(draw, keyCount))));
            // Copies an equal part of the ranges after each batch; the last part after the last
            // batch but one.
            const [from, to] = [seq - 1, seq].map((done) => Math.ceil((done * COVER_RANGES) / batches));
            for (let range = from as number; range < (to as number); range++) {
              covered[range] = seq;
              for (const part of live.parts()) {
                const cursor = new Float64Array(1);
                for (;;) {
                  const count = live.copyRange(part, range, cursor, page);
                  if (count === 0) break;
                  restored.load(part, page, count);
                }
              }
            }
          }
          deltas.push(live.take(admittedOf(batchOf(draw, keyCount))));
          deltas.forEach((bytes, i) => {
            expect(restored.apply(bytes, i + 1, covered)).toBe(DELTA_STATUS.OK);
          });
          expect(await restored.rest()).toEqual(await live.rest());
        }),
        { numRuns: runs(40) },
      );
    },
  );

  it.each(SIDES)('the state of $name refuses invalid ranges, cursors and covers', (kernels) => {
    const held = KINDS[kind](kernels, 2);
    const bytes = held.take(batchesOf([]));
    const page = new ArrayBuffer(ROW_BYTES);
    for (const range of [-1, COVER_RANGES, 0.5, Number.NaN])
      expect(outcome(() => held.copyRange(0, range, new Float64Array(1), page))).toBe('out_of_range');
    for (const cursor of [[], [-1], [Number.NaN], [2 ** 54]])
      expect(outcome(() => held.copyRange(0, 0, Float64Array.from(cursor), page))).toBe('out_of_range');
    for (const far of [2 ** 32 - 1, 2 ** 40, 2 ** 53])
      expect(held.copyRange(0, 7, Float64Array.of(far), page)).toBe(0);
    expect(outcome(() => held.apply(bytes, -1, new Float64Array(COVER_RANGES)))).toBe('out_of_range');
    expect(outcome(() => held.apply(bytes, 1.5, new Float64Array(COVER_RANGES)))).toBe('out_of_range');
    expect(outcome(() => held.apply(bytes, 1, new Float64Array(COVER_RANGES - 1)))).toBe('out_of_range');
  });
});

describe('covered deltas', () => {
  it.each(SIDES)('a slice whose deltas are all covered is not opened by them: $name', (kernels) => {
    const live = kernels.open(SLICE_MS, 1);
    const batch = batchesOf([{ eventTs: 5n, accountId: 9n }]);
    admitAll(batch, BigInt(SLICE_MS));
    live.accumulate(batch.events, batch.admitted);
    const state = kernels.open(SLICE_MS, 1);
    expect(state.applyDeltas(deltasOf(live), 4, new Float64Array(COVER_RANGES).fill(4))).toBe(
      DELTA_STATUS.OK,
    );
    expect([state.slices(new Float64Array(1)), state.keyCount(), state.bytes()]).toEqual([0, 0, 0]);
    expect(state.applyDeltas(deltasOf(live), 5, new Float64Array(COVER_RANGES).fill(4))).toBe(
      DELTA_STATUS.OK,
    );
    expect(state.keyCount()).toBe(1);
  });
});

describe('key look-up', () => {
  it('a look-up returns the row of a key in a slice and in a run on both sides, and nothing for a missing key', async () => {
    const draw = draws(5);
    const rows = [...batchOf(draw, 70), ...batchOf(draw, 5000)];
    const ids = [...new Set([...rows.map((row) => row.accountId as bigint), 0n, 1n, 2n ** 64n - 1n])];
    const answers = await Promise.all(
      SIDES.map(async (kernels) => {
        const state = kernels.open(SLICE_MS, 3);
        const batch = batchesOf(rows);
        admitAll(batch, BigInt(SLICE_MS));
        state.accumulate(batch.events, batch.admitted);
        const page = new ArrayBuffer(ROW_BYTES);
        const ask = (find: (id: bigint, into: RowBytes) => number): string[] =>
          ids.map((id) => {
            new Uint8Array(page).fill(0);
            const count = find(id, page);
            expect(find(id, new ArrayBuffer(0))).toBe(count);
            return `${count} ${hexOf(page)}`;
          });
        const open = ask((id, into) => state.find(0, id, into));
        expect(outcome(() => state.find(0, -1n, page))).toBe('out_of_range');
        expect(state.find(10 * SLICE_MS, 0n, page)).toBe(0);
        const run = await state.seal(0);
        const sealed = ask((id, into) => run.find(id, into));
        expect(sealed).toEqual(open);
        expect(sealed.filter((one) => one.startsWith('1')).length).toBe(run.rowCount);
        expect(hexOf(rowsOf(run, 9).buffer).length).toBe(run.rowCount * ROW_BYTES * 2);
        expect(outcome(() => run.find(2n ** 64n, page))).toBe('out_of_range');
        run.close();
        expect(outcome(() => run.find(0n, page))).toBe('closed');
        return sealed;
      }),
    );
    expect(answers[1]).toEqual(answers[0]);
  });
});
