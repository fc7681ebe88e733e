/** Keyed state, sorted runs, merges and deltas: the addon and the reference implementation store
 *  and write the same bytes, and both equal a plain map. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ENTRY_BYTES } from '../../src/addon/reference/window/table.ts';
import type { WindowKernels, WindowState } from '../../src/addon/window-surface.ts';
import { DELTA_STATUS, WINDOW_DELTAS } from '../../src/core/layout/layouts.gen.ts';
import { runs } from '../tier.ts';
import {
  admitAll,
  batchesOf,
  changed,
  deltasOf,
  type EventRow,
  emptied,
  hexOf,
  I64_MAX,
  I64_MIN,
  native,
  outcome,
  ROW_BYTES,
  reference,
  rowsOf,
  SIDES,
  slicesOf,
} from './window-kit.ts';

const LIMIT = 2n ** 52n;
const keys = fc.oneof(
  { weight: 4, arbitrary: fc.bigInt(0n, 12n) },
  { weight: 2, arbitrary: fc.bigInt(0n, 2n ** 64n - 1n) },
  { weight: 1, arbitrary: fc.constantFrom(0n, 2n ** 32n, 2n ** 63n, 2n ** 64n - 1n) },
);
const values = fc.oneof(
  fc.bigInt(-5n, 5n),
  fc.bigInt(I64_MIN, I64_MAX),
  fc.constantFrom(I64_MIN, I64_MAX, 0n, -1n, 2n ** 32n, -(2n ** 32n)),
);
const stamps = fc.oneof(
  fc.bigInt(-300n, 300n),
  fc.bigInt(-LIMIT, LIMIT - 1n),
  fc.constantFrom(-LIMIT, LIMIT - 1n, 1_750_000_000_000n),
);
const eventRows: fc.Arbitrary<EventRow> = fc.record({ accountId: keys, value: values, eventTs: stamps });
const batchLists = fc.array(fc.array(eventRows, { maxLength: 60 }), { maxLength: 5 });
const sliceWidths = fc.oneof(fc.integer({ min: 1, max: 400 }), fc.constantFrom(1, 60_000, 2 ** 48));
const shardCounts = fc.integer({ min: 1, max: 7 });

function filled(
  kernels: WindowKernels,
  sliceMs: number,
  shards: number,
  batches: readonly (readonly EventRow[])[],
) {
  const state = kernels.open(sliceMs, shards);
  const deltas: Uint8Array[] = [];
  for (const rows of batches) {
    const batch = batchesOf(rows);
    admitAll(batch, BigInt(sliceMs));
    state.accumulate(batch.events, batch.admitted);
    deltas.push(deltasOf(state));
  }
  return { state, deltas };
}

const scalarsOf = (state: WindowState): unknown => [slicesOf(state), state.keyCount(), state.bytes()];

/** Expected content of a state, by a map of BigInts, in the form of `emptied` without the sizes. */
function expectedOf(sliceMs: number, batches: readonly (readonly EventRow[])[]): unknown {
  const slices = new Map<bigint, Map<bigint, bigint[]>>();
  const width = BigInt(sliceMs);
  for (const { accountId = 0n, value = 0n, eventTs } of batches.flat()) {
    const start = eventTs - (((eventTs % width) + width) % width);
    const rows = slices.get(start) ?? new Map<bigint, bigint[]>();
    slices.set(start, rows);
    const [count, sum, min, max, last] = rows.get(accountId) ?? [0n, 0n, I64_MAX, I64_MIN, I64_MIN];
    rows.set(accountId, [
      (count as bigint) + 1n,
      (sum as bigint) + value,
      value < (min as bigint) ? value : (min as bigint),
      value > (max as bigint) ? value : (max as bigint),
      eventTs > (last as bigint) ? eventTs : (last as bigint),
    ]);
  }
  const order = (a: bigint, b: bigint): number => (a < b ? -1 : 1);
  return [...slices.keys()].sort(order).map((start) => {
    const rows = slices.get(start) as Map<bigint, bigint[]>;
    const cells: bigint[] = [];
    for (const key of [...rows.keys()].sort(order)) {
      const [count, sum, min, max, last] = rows.get(key) as [bigint, bigint, bigint, bigint, bigint];
      cells.push(key, count, sum, sum >> 64n, min, max, last, 0n);
    }
    const hex = hexOf(BigUint64Array.from(cells.map((one) => BigInt.asUintN(64, one))).buffer);
    return [Number(start), rows.size, hex];
  });
}

describe('keyed state', () => {
  it('the keyed state stores, reports and encodes the same on both sides for any batches', async () => {
    await fc.assert(
      fc.asyncProperty(
        batchLists,
        sliceWidths,
        shardCounts,
        fc.integer({ min: 1, max: 9 }),
        async (batches, sliceMs, shards, page) => {
          const [fromReference, addon] = SIDES.map((kernels) => filled(kernels, sliceMs, shards, batches));
          if (fromReference === undefined || addon === undefined) throw new Error('two sides');
          expect(addon.deltas.map((one) => hexOf(one.buffer))).toEqual(
            fromReference.deltas.map((one) => hexOf(one.buffer)),
          );
          expect(scalarsOf(addon.state)).toEqual(scalarsOf(fromReference.state));
          const rows = await emptied(addon.state, page);
          expect(rows).toEqual(await emptied(fromReference.state, page));
          expect(rows.map(([start, count, , hex]) => [start, count, hex])).toEqual(
            expectedOf(sliceMs, batches),
          );
          expect(addon.state.bytes()).toBe(0);
        },
      ),
      { numRuns: runs(200) },
    );
  });

  it('the keyed state is rebuilt from its deltas in any number of shards', async () => {
    await fc.assert(
      fc.asyncProperty(
        batchLists,
        sliceWidths,
        shardCounts,
        shardCounts,
        async (batches, sliceMs, shards, others) => {
          const { deltas } = filled(native, sliceMs, shards, batches);
          const replayed = SIDES.map((kernels) => {
            const state = kernels.open(sliceMs, others);
            expect(deltas.map((one) => state.applyDeltas(one))).toEqual(deltas.map(() => DELTA_STATUS.OK));
            return state;
          });
          const [fromReference, addon] = replayed as [WindowState, WindowState];
          expect(scalarsOf(addon)).toEqual(scalarsOf(fromReference));
          const rows = await emptied(addon);
          expect(rows).toEqual(await emptied(fromReference));
          expect(rows.map(([start, count, , hex]) => [start, count, hex])).toEqual(
            expectedOf(sliceMs, batches),
          );
        },
      ),
      { numRuns: runs(100) },
    );
  });

  it('the keyed state grows equally on both sides and reserves for the next slice as many keys as the last one had', async () => {
    const many = (start: bigint, count: number): EventRow[] =>
      Array.from({ length: count }, (_, i) => ({
        accountId: BigInt(i) * 0x9e37n,
        value: 1n,
        eventTs: start,
      }));
    const states = await Promise.all(
      SIDES.map(async (kernels) => {
        const { state } = filled(kernels, 10, 3, [many(0n, 5000)]);
        const sizes = [state.bytes()];
        (await state.seal(0)).close();
        // The next slice, a slice far ahead, a slice far back, and another slice after the first.
        for (const start of [10n, 10_000n, -50n, 20n]) {
          const batch = batchesOf(many(start, 1));
          admitAll(batch, 10n);
          state.accumulate(batch.events, batch.admitted);
          sizes.push(state.bytes());
        }
        return sizes;
      }),
    );
    expect(states[1]).toEqual(states[0]);
    const [first, next, ahead, behind, following] = states[0] as [number, number, number, number, number];
    expect(next).toBe(first);
    const least = 3 * 16 * (ROW_BYTES + ENTRY_BYTES);
    expect(ahead - next).toBe(least);
    expect(behind - ahead).toBe(least);
    expect(following - behind).toBe(first);
  });

  it('the keyed state gives the same result for large batches with threads as with one thread', async () => {
    let word = 7;
    const draw = (): number => {
      word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
      return word;
    };
    const batches = [0, 1, 2].map(() =>
      Array.from({ length: 6000 }, () => ({
        accountId: BigInt(draw() >>> (draw() % 30)),
        value: BigInt(draw()) - 2n ** 31n,
        eventTs: BigInt((draw() >>> 8) % 5000),
      })),
    );
    const results = await Promise.all(
      [1, 2, 3, 8].map(async (shards) => {
        const [fromReference, addon] = SIDES.map((kernels) => filled(kernels, 1000, shards, batches));
        expect(addon?.deltas.map((one) => hexOf(one.buffer))).toEqual(
          fromReference?.deltas.map((one) => hexOf(one.buffer)),
        );
        const rows = await emptied((addon as typeof fromReference & object).state, 500);
        (addon as typeof fromReference & object).state.close();
        return rows.map(([start, count, , hex]) => [start, count, hex]);
      }),
    );
    for (const rows of results) expect(rows).toEqual(expectedOf(1000, batches));
  });

  it('the keyed state is copied and loaded, with rows of equal keys folded and counts saturated', async () => {
    const row = fc.tuple(
      keys,
      fc.oneof(fc.constantFrom(0n, 1n, 2n ** 64n - 1n, 2n ** 63n), fc.bigInt(0n, 2n ** 64n - 1n)),
      ...[0, 1, 2, 3, 4].map(() => fc.oneof(values, fc.constant(-1n))),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(row, { maxLength: 40 }),
        shardCounts,
        shardCounts,
        fc.nat(3),
        async (rows, shards, others, spare) => {
          const cells = BigUint64Array.from(
            rows.flatMap((one) => [...one, 99n].map((cell) => BigInt.asUintN(64, cell))),
          );
          const found = SIDES.map((kernels) => {
            const state = kernels.open(50, shards);
            const loaded = [rows.length, rows.length + (spare === 0 ? 1 : 0)].map((count) =>
              outcome(() => state.load(-100, cells.buffer, count)),
            );
            expect(outcome(() => state.load(-101, cells.buffer, 0))).toBe('out_of_range');
            const copied = kernels.open(50, others);
            const page = new ArrayBuffer(3 * ROW_BYTES);
            const cursor = new Float64Array(1);
            for (;;) {
              const count = state.copy(-100, cursor, page);
              if (count === 0) break;
              copied.load(-100, page, count);
            }
            return { loaded, state, copied };
          });
          const [fromReference, addon] = found as [(typeof found)[0], (typeof found)[0]];
          expect(addon.loaded).toEqual(fromReference.loaded);
          expect(scalarsOf(addon.state)).toEqual(scalarsOf(fromReference.state));
          expect(scalarsOf(addon.copied)).toEqual(scalarsOf(fromReference.copied));
          const all = await emptied(addon.state);
          expect(all).toEqual(await emptied(fromReference.state));
          const hex = (of: readonly (readonly unknown[])[]): unknown => of.map((one) => one[3]);
          expect(hex(await emptied(addon.copied))).toEqual(hex(all));
          expect(hex(await emptied(fromReference.copied))).toEqual(hex(all));
        },
      ),
      { numRuns: runs(120) },
    );
  });

  it('the keyed state refuses invalid rows and stays unchanged', async () => {
    const rarely = <T>(lie: fc.Arbitrary<T>): fc.Arbitrary<T | null> =>
      fc.oneof({ weight: 2, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: lie });
    const lie = fc.record({
      row: rarely(fc.constantFrom(3, 4, 0xffff_ffff)),
      slice: rarely(
        fc.oneof(
          fc.constantFrom(I64_MIN, I64_MAX, 1n, -10n, 10n, 2n ** 53n + 10n),
          fc.bigInt(I64_MIN, I64_MAX),
        ),
      ),
      ts: rarely(fc.oneof(fc.constantFrom(I64_MIN, I64_MAX, -1n, 10n), fc.bigInt(I64_MIN, I64_MAX))),
      rows: rarely(fc.nat(5)),
    });
    await fc.assert(
      fc.asyncProperty(lie, async ({ row, slice, ts, rows }) => {
        const found = await Promise.all(
          SIDES.map(async (kernels) => {
            const { state } = filled(kernels, 10, 2, [[{ eventTs: 5n, value: 3n }]]);
            const batch = batchesOf([{ eventTs: 1n }, { eventTs: 2n }, { eventTs: 3n }]);
            admitAll(batch, 10n);
            if (row !== null) batch.admitted.columns.row[1] = row;
            if (slice !== null) batch.admitted.columns.slice[1] = slice;
            if (ts !== null) batch.events.columns.eventTs[1] = ts;
            if (rows !== null) batch.admitted.rowCount = rows;
            const answer = outcome(() => state.accumulate(batch.events, batch.admitted));
            return [answer, hexOf(deltasOf(state).buffer), await emptied(state)];
          }),
        );
        expect(found[1]).toEqual(found[0]);
      }),
      { numRuns: runs(300) },
    );
  });
});

describe('delta decoder', () => {
  const whole = (): Uint8Array => {
    const rows = Array.from({ length: 9 }, (_, i) => ({
      accountId: BigInt(i % 5) * 700n,
      value: BigInt(i * i * 1000 - 9000),
      eventTs: BigInt((i % 3) * 40 - 40),
    }));
    return filled(native, 60, 2, [rows]).deltas[0] as Uint8Array;
  };

  it('the delta decoder gives the same verdict on both sides for any change, and changes nothing unless it is OK', async () => {
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(changed(whole(), WINDOW_DELTAS.LENGTH), async (bytes) => {
        const found = await Promise.all(
          SIDES.map(async (kernels) => {
            const state = kernels.open(60, 3);
            const status = state.applyDeltas(bytes);
            seen.add(status);
            if (status !== DELTA_STATUS.OK) expect(scalarsOf(state)).toEqual([[], 0, 0]);
            return [status, await emptied(state)];
          }),
        );
        expect(found[1]).toEqual(found[0]);
      }),
      { numRuns: runs(2000) },
    );
    // Guards against an empty property: each verdict occurred.
    expect([...seen].sort()).toEqual(Object.values(DELTA_STATUS).sort());
  });

  it('the delta decoder refuses every prefix', () => {
    const bytes = whole();
    for (const kernels of SIDES)
      for (let length = 0; length < bytes.length; length++)
        expect(kernels.open(60, 1).applyDeltas(bytes.slice(0, length))).toBe(DELTA_STATUS.BAD_HEAD);
  });

  it('a delta of one event needs about ten bytes', () => {
    const rows = Array.from({ length: 1000 }, (_, i) => ({
      accountId: BigInt(i * 997),
      value: BigInt(i * 31 - 9000),
      eventTs: 1_750_000_000_000n + BigInt(i * 37),
    }));
    const bytes = filled(native, 60_000, 1, [rows]).deltas[0] as Uint8Array;
    expect(bytes.length / rows.length).toBeLessThan(10);
  });
});

describe('run merge', () => {
  const plainRow = fc.tuple(keys, fc.bigInt(1n, 2n ** 64n - 1n), values, values, values, values, values);
  const sorted = fc.array(fc.array(plainRow, { maxLength: 30 }), { maxLength: 9 });
  const rowsBytes = (rows: readonly (readonly bigint[])[]): Uint8Array =>
    new Uint8Array(
      BigUint64Array.from(rows.flatMap((one) => [...one, 7n].map((cell) => BigInt.asUintN(64, cell)))).buffer,
    );

  it('the run merge is the same on both sides page by page, and equals loading all runs into one slice', async () => {
    await fc.assert(
      fc.asyncProperty(
        sorted,
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 8 }),
        async (all, pageRows, outRows) => {
          const sorted = all.map((rows) => {
            const mine = new Map(rows.map((one) => [one[0], one]));
            return rowsBytes([...mine.values()].sort((a, b) => (a[0] < b[0] ? -1 : 1)));
          });
          const merged = SIDES.map((kernels) => {
            const cursors = new Uint32Array(sorted.length * 3);
            const next = sorted.map(() => 0);
            const pages = sorted.map(() => new Uint8Array(0));
            const into = new ArrayBuffer(outRows * ROW_BYTES + 8);
            const log: string[] = [];
            for (;;) {
              sorted.forEach((rows, i) => {
                if (cursors[i * 3] !== cursors[i * 3 + 1] || cursors[i * 3 + 2] === 1) return;
                const at = next[i] as number;
                pages[i] = rows.slice(at, at + pageRows * ROW_BYTES);
                next[i] = at + (pages[i] as Uint8Array).length;
                cursors.set(
                  [0, (pages[i] as Uint8Array).length / ROW_BYTES, next[i] === rows.length ? 1 : 0],
                  i * 3,
                );
              });
              const count = kernels.merge(pages, cursors, into);
              log.push(hexOf(into.slice(0, count * ROW_BYTES)));
              const hasMore = count > 0 || sorted.some((_, i) => cursors[i * 3 + 2] === 0);
              if (!hasMore) return log;
            }
          });
          expect(merged[1]).toEqual(merged[0]);
          const state = reference.open(10, 1);
          for (const rows of sorted) state.load(0, rows, rows.length / ROW_BYTES);
          const run = await state.seal(0);
          expect((merged[0] as string[]).join('')).toBe(hexOf(rowsOf(run, 50).buffer));
        },
      ),
      { numRuns: runs(150) },
    );
  });

  /** Merges runs with a page ahead of each. A page is loaded ahead only if `isAhead` says so. */
  async function mergedAhead(
    kernels: WindowKernels,
    runsOf: readonly Uint8Array[],
    pageRows: number,
    outRows: number,
    isAhead: (turn: number) => boolean,
  ): Promise<readonly string[]> {
    const { length } = runsOf;
    const cursors = new Uint32Array(length * 6);
    const cells = (place: number): Uint32Array => cursors.subarray(place * 3, place * 3 + 3);
    const isRead = (place: number): boolean => cells(place)[0] === cells(place)[1] && cells(place)[2] === 0;
    const pages: Uint8Array[] = Array.from({ length: 2 * length }, () => new Uint8Array(0));
    const next = runsOf.map(() => 0);
    const load = (i: number, place: number): void => {
      const rows = runsOf[i] as Uint8Array;
      const page = rows.slice(next[i], (next[i] as number) + pageRows * ROW_BYTES);
      next[i] = (next[i] as number) + page.length;
      pages[place] = page;
      cells(place).set([0, page.length / ROW_BYTES, next[i] === rows.length ? 1 : 0]);
    };
    const into = new ArrayBuffer(outRows * ROW_BYTES + 8);
    const log: string[] = [];
    for (let turn = 0; ; turn++) {
      runsOf.forEach((_, i) => {
        if (isRead(i)) {
          [pages[i], pages[length + i]] = [pages[length + i], pages[i]] as [Uint8Array, Uint8Array];
          cells(i).set(cells(length + i));
          cells(length + i).fill(0);
        }
        if (isRead(i)) load(i, i);
        const isOver = cells(i)[2] === 1 || cells(length + i)[2] === 1;
        if (!isOver && isRead(length + i) && isAhead(turn + i)) load(i, length + i);
      });
      const count = await kernels.mergeAhead(pages, cursors, into);
      log.push(`${hexOf(into.slice(0, count * ROW_BYTES))} ${cursors}`);
      const hasMore = count > 0 || runsOf.some((_, i) => cells(i)[2] === 0 && cells(length + i)[2] === 0);
      if (!hasMore) return log;
    }
  }

  it('a merge with a page ahead of each run is the same on both sides, and equals the merge of whole runs', async () => {
    await fc.assert(
      fc.asyncProperty(
        sorted,
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 60 }),
        fc.array(fc.boolean(), { minLength: 1, maxLength: 7 }),
        async (all, pageRows, outRows, ahead) => {
          const inOrder = all.map((rows) => {
            const mine = new Map(rows.map((one) => [one[0], one]));
            return rowsBytes([...mine.values()].sort((a, b) => (a[0] < b[0] ? -1 : 1)));
          });
          const isAhead = (turn: number): boolean => ahead[turn % ahead.length] === true;
          const [first, second] = await Promise.all(
            SIDES.map((kernels) => mergedAhead(kernels, inOrder, pageRows, outRows, isAhead)),
          );
          expect(second).toEqual(first);
          const cursors = Uint32Array.from(inOrder.flatMap((rows) => [0, rows.length / ROW_BYTES, 1]));
          const whole = new Uint8Array(inOrder.reduce((sum, rows) => sum + rows.length, 0));
          const count = reference.merge(inOrder, cursors, whole);
          const merged = (first as readonly string[])
            .map((line) => line.slice(0, line.indexOf(' ')))
            .join('');
          expect(merged).toBe(hexOf(whole.slice(0, count * ROW_BYTES).buffer));
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('a merge with a page ahead refuses the same cursors, orders and counts on both sides', async () => {
    const cursor = fc.array(fc.constantFrom(0, 1, 2, 3, 9, 0xffff_ffff), { minLength: 0, maxLength: 12 });
    const some = fc.array(
      fc.tuple(fc.bigInt(0n, 3n), fc.bigInt(0n, 2n), values, values, values, values, values),
      { maxLength: 3 },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(some, { maxLength: 4 }), cursor, async (pages, cells) => {
        const answers = await Promise.all(
          SIDES.map(async (kernels) => {
            const cursors = Uint32Array.from(cells);
            const into = new ArrayBuffer(10 * ROW_BYTES);
            return kernels.mergeAhead(pages.map(rowsBytes), cursors, into).then(
              (rows) => [rows, hexOf(into.slice(0, rows * ROW_BYTES)), [...cursors]],
              (thrown: { readonly code?: string }) => thrown.code,
            );
          }),
        );
        expect(answers[1]).toEqual(answers[0]);
      }),
      { numRuns: runs(600) },
    );
  });

  it('rows that are read off the main thread are those of the run, and stay while it is closed', async () => {
    for (const kernels of SIDES) {
      const state = kernels.open(10, 1);
      const rows = Array.from({ length: 20 }, (_, i) => [BigInt(i * 3), 1n, 2n, 0n, 2n, 2n, 5n]);
      state.load(0, rowsBytes(rows), rows.length);
      const run = await state.seal(0);
      const [here, aside] = [new Uint8Array(16 * ROW_BYTES), new Uint8Array(16 * ROW_BYTES)];
      expect(run.read(7, here)).toBe(13);
      const reading = run.readAside(7, aside);
      run.close();
      expect(await reading).toBe(13);
      expect(aside).toEqual(here);
      await expect(run.readAside(0, aside)).rejects.toMatchObject({ code: 'closed' });
      state.close();
    }
  });

  it('the run merge refuses the same cursors, orders and counts on both sides', () => {
    const cursor = fc.array(fc.constantFrom(0, 1, 2, 3, 9, 0xffff_ffff), { minLength: 0, maxLength: 6 });
    const some = fc.array(
      fc.tuple(fc.bigInt(0n, 3n), fc.bigInt(0n, 2n), values, values, values, values, values),
      { maxLength: 3 },
    );
    fc.assert(
      fc.property(some, some, cursor, (first, second, cells) => {
        const answers = SIDES.map((kernels) => {
          const cursors = Uint32Array.from(cells);
          return outcome(() =>
            kernels.merge([rowsBytes(first), rowsBytes(second)], cursors, new ArrayBuffer(10 * ROW_BYTES)),
          );
        });
        expect(answers[1]).toEqual(answers[0]);
      }),
      { numRuns: runs(600) },
    );
  });
});
