/** Numbers of events of each value: the addon and the reference implementation have the same cells,
 *  whatever the order, the batches and the merges, and their results are what they state. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { ACCUMULATOR, AGGREGATE, DELTA_STATUS, WINDOW_DELTAS } from '../../src/core/layout/layouts.gen.ts';
import { CELL, PLACE_COLUMNS, RowForm } from '../../src/core/layout/row-form.ts';
import { TOP_CELLS, topOf } from '../../src/core/layout/top.ts';
import { ValueColumns } from '../../src/core/layout/value-columns.ts';
import { IdHash } from '../../src/engine/aggregate/id-hash.ts';
import { runs } from '../tier.ts';
import { admitAll, batchesOf, changed, deltasOf, hexOf } from './window-kit.ts';

const SLICE_MS = 100;
const FORM = new RowForm([
  { kind: AGGREGATE.TOP, column: PLACE_COLUMNS },
  { kind: AGGREGATE.COUNT, column: PLACE_COLUMNS },
]);
const [reference, native] = ['reference', 'native'].map((name) =>
  loadWindowKernels(name as 'native', FORM),
) as [WindowKernels, WindowKernels];

interface Event {
  readonly text: string;
  readonly partition: number;
  readonly offset: number;
}

/** Numbers from 0 to 1. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

const LISTS: Readonly<Record<string, (random: () => number, i: number) => string>> = {
  'one value': () => 'sDE',
  'few values': (random) => `i${Math.floor(random() * 20)}`,
  'texts of many lengths': (random) => `s${'x'.repeat(Math.floor(random() * 254))}`,
  'texts that differ at the end': (random) => `s${'y'.repeat(40)}${Math.floor(random() * 9)}`,
  'skewed values': (random) => `sK${Math.floor(1 / (random() + 0.0005))}`,
  'values that occur once': (_, i) => `s${i}`,
  'long values behind short ones': (random, i) =>
    i < 600 ? `s${i % 450}` : `s${'z'.repeat(60)}${Math.floor(random() * 40)}`,
};

function eventsOf(name: string, count: number, seed: number): readonly Event[] {
  const random = randomOf(seed);
  const list = LISTS[name] as (typeof LISTS)[string];
  return Array.from({ length: count }, (_, i) => ({
    text: list(random, i),
    partition: i % 3,
    offset: Math.floor(i / 3),
  }));
}

const lists = fc
  .record({
    name: fc.constantFrom(...Object.keys(LISTS)),
    // Around the number of values that are exact, and above it.
    count: fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 480, max: 700 }), fc.constant(1200)),
    seed: fc.nat(),
  })
  .map(({ name, count, seed }) => eventsOf(name, count, seed));

const ids = new IdHash();

function fold(kernels: WindowKernels, events: readonly Event[], size: number) {
  const state = kernels.open(SLICE_MS, 1);
  const deltas: Uint8Array[] = [];
  for (let from = 0; from < events.length; from += size) {
    const part = events.slice(from, from + size);
    const batch = batchesOf(part.map(() => ({ accountId: 1n, eventTs: 5n, value: 1n })));
    const values = new ValueColumns(PLACE_COLUMNS + 1, part.length);
    part.forEach(({ text, partition, offset }, i) => {
      values.cells[i] = BigInt(partition);
      values.cells[part.length + i] = BigInt(offset);
      values.cells[2 * part.length + i] = BigInt(values.texts.add(ids.hash(text), text));
    });
    values.valid.fill(1);
    admitAll(batch, BigInt(SLICE_MS));
    state.accumulate(batch.events, batch.admitted, values);
    deltas.push(deltasOf(state));
  }
  return { state, deltas };
}

function rowOf(kernels: WindowKernels, events: readonly Event[], size: number): Uint8Array {
  const { state } = fold(kernels, events, size);
  const row = new Uint8Array(FORM.bytes);
  expect(state.find(0, 1n, row)).toBe(1);
  state.close();
  return row;
}

/** Merges rows as the runs of a spilled slice. */
function merged(kernels: WindowKernels, rows: readonly Uint8Array[]): Uint8Array {
  const into = new Uint8Array(FORM.bytes);
  const cursors = Uint32Array.from(rows.flatMap(() => [0, 1, 1]));
  expect(kernels.merge(rows, cursors, into)).toBe(1);
  return into;
}

const topIn = (row: Uint8Array, limit: number) => {
  const { first } = FORM.places[0] as RowForm['places'][number];
  const cells = new BigInt64Array(row.buffer, row.byteOffset + ACCUMULATOR.BYTES + first * CELL, TOP_CELLS);
  const { values, error } = topOf(cells, limit);
  return {
    values: values.map(({ bytes, count }) => [Buffer.from(bytes).toString('latin1'), Number(count)] as const),
    error,
  };
};

function countsOf(events: readonly Event[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { text } of events) counts.set(text, (counts.get(text) ?? 0) + 1);
  return counts;
}

/** Values in the order of a result. */
const ranked = (counts: ReadonlyMap<string, number>): ReadonlyArray<readonly [string, number]> =>
  [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1));

/** True if the values fit with the room of the longest one. */
function isExact(counts: ReadonlyMap<string, number>): boolean {
  const longest = Math.max(...[...counts.keys()].map(({ length }) => length));
  return counts.size <= Math.floor(2000 / (2 + Math.ceil((1 + longest) / 8)));
}

function shuffled<T>(list: readonly T[], random: () => number): readonly T[] {
  return list
    .map((one) => ({ one, place: random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ one }) => one);
}

describe('frequent values', () => {
  it('the cells are equal on both sides, in any order, in any batches and merged in any parts', () => {
    fc.assert(
      fc.property(
        lists,
        fc.nat(),
        fc.constantFrom(7, 400, 3000),
        fc.integer({ min: 1, max: 5 }),
        (events, seed, size, parts) => {
          const order = shuffled(events, randomOf(seed));
          const expected = hexOf(rowOf(native, events, 3000).buffer);
          expect(hexOf(rowOf(native, order, size).buffer)).toBe(expected);
          const divided = Array.from({ length: parts }, (_, part) =>
            order.filter((__, i) => i % parts === part),
          ).filter((list) => list.length > 0);
          const rows = divided.map((list) => rowOf(native, list, 3000));
          for (const kernels of [reference, native])
            expect(hexOf(merged(kernels, rows).buffer)).toBe(expected);
          // Parts of unequal size merge otherwise than equal ones.
          const [head, tail] = [order.slice(0, 1 + (seed % 40)), order.slice(1 + (seed % 40))];
          if (tail.length > 0)
            for (const pair of [
              [head, tail],
              [tail, head],
            ] as const)
              expect(
                hexOf(
                  merged(
                    native,
                    pair.map((list) => rowOf(native, list, 3000)),
                  ).buffer,
                ),
              ).toBe(expected);
          expect(hexOf(rowOf(reference, order, size).buffer)).toBe(expected);
        },
      ),
      { numRuns: runs(25) },
    );
  });

  it('deltas and loaded rows give the same cells', () => {
    fc.assert(
      fc.property(lists, fc.constantFrom(50, 3000), (events, size) => {
        const { state, deltas } = fold(native, events, size);
        const row = new Uint8Array(FORM.bytes);
        state.find(0, 1n, row);
        for (const kernels of [reference, native]) {
          const replayed = kernels.open(SLICE_MS, 1);
          for (const one of deltas) expect(replayed.applyDeltas(one)).toBe(DELTA_STATUS.OK);
          const loaded = kernels.open(SLICE_MS, 1);
          loaded.load(0, row, 1);
          for (const other of [replayed, loaded]) {
            const found = new Uint8Array(FORM.bytes);
            expect(other.find(0, 1n, found)).toBe(1);
            expect(hexOf(found.buffer)).toBe(hexOf(row.buffer));
            other.close();
          }
        }
        state.close();
      }),
      { numRuns: runs(15) },
    );
  });

  it('numbers are exact as long as the values fit, and the lesser value of equal ones is first', () => {
    fc.assert(
      fc.property(lists, fc.integer({ min: 1, max: 100 }), (events, limit) => {
        const counts = countsOf(events);
        const { values, error } = topIn(rowOf(native, events, 3000), limit);
        expect(error === 0).toBe(isExact(counts));
        if (error === 0) expect(values).toEqual(ranked(counts).slice(0, limit));
      }),
      { numRuns: runs(60) },
    );
  });

  it('500 values of 14 bytes are exact, and one more makes an estimate', () => {
    const events = (count: number): Event[] =>
      Array.from({ length: count }, (_, i) => ({
        ...{ text: `s${String(i).padStart(14, '0')}`, partition: 0, offset: i },
      }));
    expect(topIn(rowOf(native, events(500), 3000), 2)).toEqual({
      values: [
        ['s00000000000000', 1],
        ['s00000000000001', 1],
      ],
      error: 0,
    });
    expect(topIn(rowOf(native, events(501), 3000), 2).error).toBe(Math.ceil((501 * Math.E) / 256));
  });

  it('an estimate is never too low, rarely higher than it states, and has every frequent value', () => {
    const random = randomOf(7);
    const events = Array.from({ length: 60_000 }, (_, i) => ({
      // Zipf with an exponent near 1, over tens of thousands of values.
      ...{ text: `sku-${Math.floor(40_000 ** random())}`, partition: i % 4, offset: i >> 2 },
    }));
    const counts = countsOf(events);
    expect(counts.size).toBeGreaterThan(8000);
    const { values, error } = topIn(rowOf(native, events, 3000), 100);
    expect(error).toBe(Math.ceil((events.length * Math.E) / 256));
    expect(values.length).toBe(100);
    for (const [text, count] of values) expect(count).toBeGreaterThanOrEqual(counts.get(text) as number);
    const high = values.filter(([text, count]) => count > (counts.get(text) as number) + error);
    expect(high.length).toBeLessThanOrEqual(5);
    expect(values.map(([text]) => text)).toEqual(
      expect.arrayContaining(
        [...counts].filter(([, count]) => count > events.length / 50).map(([text]) => text),
      ),
    );
  });

  it('cells that are no value are ignored, and never read beyond the texts', () => {
    for (const kernels of [reference, native]) {
      const state = kernels.open(SLICE_MS, 1);
      const wrong = [-1n, 0n, 1n, 2n ** 40n];
      const batch = batchesOf(wrong.map(() => ({ accountId: 1n, eventTs: 5n, value: 1n })));
      const values = new ValueColumns(PLACE_COLUMNS + 1, wrong.length);
      wrong.forEach((at, i) => {
        values.cells[2 * wrong.length + i] = at;
      });
      values.valid.fill(1);
      // The second cell states a longer text than there is room for.
      values.texts.cells = BigInt64Array.of(5n, 200n);
      admitAll(batch, BigInt(SLICE_MS));
      state.accumulate(batch.events, batch.admitted, values);
      const row = new Uint8Array(FORM.bytes);
      expect(state.find(0, 1n, row)).toBe(1);
      expect(topIn(row, 5)).toEqual({ values: [], error: 0 });
      state.close();
    }
  });

  it('the decoder of deltas gives the same verdict on both sides for any change', () => {
    const few = fold(native, eventsOf('texts that differ at the end', 30, 1), 60).deltas[0] as Uint8Array;
    const many = fold(native, eventsOf('values that occur once', 700, 1), 3000).deltas[0] as Uint8Array;
    const seen = new Set<number>();
    for (const whole of [few, many])
      fc.assert(
        fc.property(changed(whole, WINDOW_DELTAS.LENGTH), (bytes) => {
          const found = [reference, native].map((kernels) => {
            const state = kernels.open(SLICE_MS, 3);
            const status = state.applyDeltas(bytes);
            seen.add(status);
            const row = new Uint8Array(FORM.bytes);
            state.find(0, 1n, row);
            state.close();
            return `${status} ${hexOf(row.buffer)}`;
          });
          expect(found[1]).toBe(found[0]);
        }),
        { numRuns: runs(400) },
      );
    expect(seen.has(DELTA_STATUS.OK) && seen.has(DELTA_STATUS.BAD_DELTA)).toBe(true);
  });
});
