/** Sketches of many values: the addon and the reference implementation have the same cells,
 *  whatever the order, the batches and the merges, and their results are as exact as they state. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { ACCUMULATOR, AGGREGATE, DELTA_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { CELL, RowForm } from '../../src/core/layout/row-form.ts';
import { distinctOf, quantileOf, SKETCH_CELLS } from '../../src/core/layout/sketch.ts';
import { ValueColumns } from '../../src/core/layout/value-columns.ts';
import { runs } from '../tier.ts';
import { admitAll, batchesOf, deltasOf, hexOf } from './window-kit.ts';

const SLICE_MS = 100;
const INTEGERS = new RowForm([
  { kind: AGGREGATE.BUCKETS, column: 0 },
  { kind: AGGREGATE.DISTINCT, column: 0 },
]);
const DOUBLES = new RowForm([
  { kind: AGGREGATE.BUCKETS_DOUBLE, column: 0 },
  { kind: AGGREGATE.DISTINCT_DOUBLE, column: 0 },
]);

/** Numbers from 0 to 1. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

const LISTS: Readonly<Record<string, (random: () => number, i: number) => number>> = {
  'one value': () => 7,
  'a narrow range': (random) => 100 + Math.floor(random() * 50),
  latencies: (random) => Math.round(10 ** (random() * 5)),
  'signed numbers': (random) => Math.round((random() - 0.5) * 2e6),
  'every magnitude': (random) => (random() - 0.5) * 10 ** (random() * 600 - 300),
  'consecutive numbers': (_, i) => i,
};

const lists = fc
  .record({
    name: fc.constantFrom(...Object.keys(LISTS)),
    // Around the number of cells, and far above it.
    count: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 500, max: 530 }), fc.constant(3000)),
    seed: fc.nat(),
  })
  .map(({ name, count, seed }) => {
    const random = randomOf(seed);
    const list = LISTS[name] as (random: () => number, i: number) => number;
    return Array.from({ length: count }, (_, i) => list(random, i));
  });

function fold(kernels: WindowKernels, values: readonly number[], size: number) {
  const state = kernels.open(SLICE_MS, 1);
  const deltas: Uint8Array[] = [];
  for (let from = 0; from < values.length; from += size) {
    const part = values.slice(from, from + size);
    const batch = batchesOf(part.map(() => ({ accountId: 1n, eventTs: 5n, value: 1n })));
    const columns = new ValueColumns(1, part.length);
    part.forEach((value, i) => {
      columns.valid[i] = 1;
      if (kernels.form === DOUBLES) columns.doubles[i] = value;
      else columns.cells[i] = BigInt(Math.trunc(Math.max(-9e18, Math.min(9e18, value))));
    });
    admitAll(batch, BigInt(SLICE_MS));
    state.accumulate(batch.events, batch.admitted, columns);
    deltas.push(deltasOf(state));
  }
  return { state, deltas };
}

async function rowOf(kernels: WindowKernels, values: readonly number[], size: number): Promise<Uint8Array> {
  const { state } = fold(kernels, values, size);
  const row = new Uint8Array(kernels.form.bytes);
  expect(state.find(0, 1n, row)).toBe(1);
  const run = await state.seal(0);
  const sealed = new Uint8Array(kernels.form.bytes);
  expect(run.read(0, sealed)).toBe(1);
  expect(hexOf(sealed.buffer)).toBe(hexOf(row.buffer));
  run.close();
  return row;
}

const sketchOf = (form: RowForm, row: Uint8Array, step: number): BigInt64Array => {
  const { first } = form.places[step] as RowForm['places'][number];
  return new BigInt64Array(row.buffer, row.byteOffset + ACCUMULATOR.BYTES + first * CELL, SKETCH_CELLS);
};

/** Merges rows as the runs of a spilled slice. */
function merged(kernels: WindowKernels, rows: readonly Uint8Array[]): Uint8Array {
  const into = new Uint8Array(kernels.form.bytes);
  const cursors = Uint32Array.from(rows.flatMap(() => [0, 1, 1]));
  expect(kernels.merge(rows, cursors, into)).toBe(1);
  return into;
}

describe.each([
  ['integers', INTEGERS],
  ['doubles', DOUBLES],
] as const)('sketches of %s', (_, form) => {
  const sides = ['reference', 'native'].map((name) => loadWindowKernels(name as 'native', form));

  it('the cells are equal on both sides, in any order, in any batches and merged in any parts', async () => {
    await fc.assert(
      fc.asyncProperty(
        lists,
        fc.nat(),
        fc.constantFrom(7, 400, 3000),
        fc.integer({ min: 1, max: 5 }),
        async (values, seed, size, parts) => {
          const random = randomOf(seed);
          const shuffled = values
            .map((value) => ({ value, place: random() }))
            .sort((a, b) => a.place - b.place)
            .map(({ value }) => value);
          const [, native] = sides as [WindowKernels, WindowKernels];
          const expected = hexOf((await rowOf(native, values, 3000)).buffer);
          expect(hexOf((await rowOf(native, shuffled, size)).buffer)).toBe(expected);
          const divided = Array.from({ length: parts }, (__, part) =>
            shuffled.filter((___, i) => i % parts === part),
          ).filter((list) => list.length > 0);
          const rows = await Promise.all(divided.map((list) => rowOf(native, list, 3000)));
          for (const kernels of sides) expect(hexOf(merged(kernels, rows).buffer)).toBe(expected);
          expect(hexOf((await rowOf(sides[0] as WindowKernels, shuffled, size)).buffer)).toBe(expected);
        },
      ),
      { numRuns: runs(60) },
    );
  });

  it('deltas and loaded rows give the same cells', () => {
    fc.assert(
      fc.property(lists, fc.constantFrom(50, 3000), (values, size) => {
        const [reference, native] = sides as [WindowKernels, WindowKernels];
        const { state, deltas } = fold(native, values, size);
        const row = new Uint8Array(form.bytes);
        state.find(0, 1n, row);
        for (const kernels of sides) {
          const replayed = kernels.open(SLICE_MS, 1);
          for (const delta of deltas) expect(replayed.applyDeltas(delta)).toBe(DELTA_STATUS.OK);
          const loaded = kernels.open(SLICE_MS, 1);
          loaded.load(0, row, 1);
          for (const one of [replayed, loaded]) {
            const found = new Uint8Array(form.bytes);
            one.find(0, 1n, found);
            expect(hexOf(found.buffer)).toBe(hexOf(row.buffer));
          }
        }
        expect(fold(reference, values, size).deltas.map((one) => hexOf(one.slice().buffer))).toEqual(
          deltas.map((one) => hexOf(one.slice().buffer)),
        );
      }),
      { numRuns: runs(40) },
    );
  });

  it('a percentile has at most the stated error, and the error is below 1 % for up to 512 buckets', async () => {
    let coarse = 0;
    await fc.assert(
      fc.asyncProperty(lists, fc.constantFrom(1n, 500n, 900n, 990n, 999n), async (values, share) => {
        const row = await rowOf(sides[1] as WindowKernels, values, 3000);
        const exact = values
          .map((value) => (form === DOUBLES ? value : Math.trunc(Math.max(-9e18, Math.min(9e18, value)))))
          .sort((a, b) => a - b);
        const rank = Math.max(1, Math.ceil((exact.length * Number(share)) / 1000));
        const { value, error } = quantileOf(sketchOf(form, row, 0), share, 1000n);
        const wanted = exact[rank - 1] as number;
        expect(Math.abs(value - wanted)).toBeLessThanOrEqual(Math.abs(wanted) * error * (1 + 1e-12));
        if (error > 0.01) coarse++;
        if (new Set(exact).size <= 512) expect(error).toBe(1 / 129);
      }),
      { numRuns: runs(100) },
    );
    expect(coarse).toBeGreaterThan(0);
  });

  it('up to 512 distinct values are exact, more are estimated with the stated error', async () => {
    let estimated = 0;
    await fc.assert(
      fc.asyncProperty(lists, async (values) => {
        const row = await rowOf(sides[1] as WindowKernels, values, 3000);
        const exact = new Set(
          values.map((value) =>
            form === DOUBLES ? value : Math.trunc(Math.max(-9e18, Math.min(9e18, value))),
          ),
        ).size;
        const { value, error } = distinctOf(sketchOf(form, row, 1));
        if (exact <= 512) {
          expect([value, error]).toEqual([BigInt(exact), 0]);
        } else {
          estimated++;
          expect(error).toBeCloseTo(0.01625, 5);
          expect(Math.abs(Number(value) - exact)).toBeLessThan(5 * error * exact);
        }
      }),
      { numRuns: runs(100) },
    );
    expect(estimated).toBeGreaterThan(0);
  });
});

describe('memory', () => {
  const [KEYS, DISTINCT] = [200, 500];
  const columnsOf = (rows: number, from: number): ValueColumns => {
    const columns = new ValueColumns(1, rows);
    columns.valid.fill(1);
    for (let i = 0; i < rows; i++) columns.cells[i] = BigInt(from + i);
    return columns;
  };

  it('blocks of sketches count as memory of the state until their rows leave it', async () => {
    const kernels = loadWindowKernels('native', INTEGERS);
    const slices = kernels.open(SLICE_MS, 2);
    const sessions = kernels.openSessions(30, 2);
    const accounts = Array.from({ length: KEYS }, (_, i) => ({
      accountId: BigInt(i),
      eventTs: 5n,
      value: 1n,
    }));
    const sizes: number[][] = [];
    for (let from = 0; from < DISTINCT * KEYS; from += KEYS) {
      const batch = batchesOf(accounts);
      const values = columnsOf(KEYS, from);
      admitAll(batch, BigInt(SLICE_MS));
      slices.accumulate(batch.events, batch.admitted, values);
      admitAll(batch, 1n);
      sessions.accumulate(batch.events, batch.admitted, values);
      if (from === 0 || from === (DISTINCT - 1) * KEYS) sizes.push([slices.bytes(), sessions.bytes()]);
    }
    const [few, many] = sizes as [number[], number[]];
    const hashes = KEYS * DISTINCT * 8;
    // At first a sketch is inside its row, and 4 KiB of a page are never taken.
    for (const side of [0, 1]) {
      expect(few[side]).toBeLessThan(KEYS * 2500);
      expect(many[side]).toBeGreaterThan((few[side] as number) + hashes);
      expect(many[side]).toBeLessThan((few[side] as number) + 4 * hashes);
    }
    (await slices.seal(0)).close();
    (await sessions.detach()).close();
    slices.trim();
    sessions.trim();
    expect(slices.bytes()).toBeLessThan(hashes);
    expect(sessions.bytes()).toBeLessThan(hashes);
  });
});

describe('special values', () => {
  const kernels = loadWindowKernels('native', DOUBLES);
  const p = async (values: readonly number[], share: bigint): Promise<number> =>
    quantileOf(sketchOf(DOUBLES, await rowOf(kernels, values, 100), 0), share, 100n).value;

  it('infinities are the least and the greatest, NaN is above them, and -0 is 0', async () => {
    const { POSITIVE_INFINITY: more, NEGATIVE_INFINITY: less, NaN: none } = Number;
    const values = [more, 1, none, -0, less, 5e-324];
    expect(await p(values, 1n)).toBe(less);
    expect(await p(values, 40n)).toBe(0);
    expect(await p(values, 60n)).toBeCloseTo(1, 1);
    expect(await p(values, 80n)).toBe(more);
    expect(await p(values, 99n)).toBe(none);
    const row = await rowOf(kernels, [0, -0, none, none, more], 100);
    expect(distinctOf(sketchOf(DOUBLES, row, 1))).toEqual({ value: 3n, error: 0 });
  });

  it('a row whose sketch no values can have is not loaded', async () => {
    const row = await rowOf(kernels, [1, 2, 3], 100);
    const changes: ReadonlyArray<(cells: BigInt64Array) => void> = [
      (cells) => (cells[0] = 513n),
      (cells) => (cells[0] = 2n),
      (cells) => (cells[0] = (19n << 16n) | 3n),
      (cells) => (cells[0] = (1n << 24n) | 3n),
      (cells) => (cells[1] = cells[2] as bigint),
      (cells) => (cells[4] = 1n),
    ];
    for (const step of [0, 1])
      for (const [i, change] of changes.entries())
        for (const name of ['reference', 'native'] as const) {
          const copy = row.slice();
          change(sketchOf(DOUBLES, copy, step));
          const state = loadWindowKernels(name, DOUBLES).open(SLICE_MS, 1);
          expect(() => state.load(0, copy, 1), `${step} ${i} ${name}`).toThrow();
        }
  });
});
