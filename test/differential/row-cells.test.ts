/** Aggregates of further fields in the cells of rows: the addon and the reference implementation
 *  store, encode and merge the same bytes, and both equal what a list of the events gives. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { SessionState, WindowKernels, WindowState } from '../../src/addon/window-surface.ts';
import { loadWindowKernels } from '../../src/addon/windows.ts';
import { doubleOf } from '../../src/core/layout/double-sum.ts';
import { ACCUMULATOR, AGGREGATE, DELTA_STATUS, WINDOW_DELTAS } from '../../src/core/layout/layouts.gen.ts';
import { type AggregateStep, CELL, PLACE_COLUMNS, RowForm } from '../../src/core/layout/row-form.ts';
import { isSketch } from '../../src/core/layout/sketch.ts';
import { ValueColumns } from '../../src/core/layout/value-columns.ts';
import { runs } from '../tier.ts';
import { sessionDeltasOf } from './session-kit.ts';
import {
  admitAll,
  type Batches,
  batchesOf,
  changed,
  deltasOf,
  hexOf,
  I64_MAX,
  I64_MIN,
  outcome,
  slicesOf,
} from './window-kit.ts';

const SLICE_MS = 100;
const GAP_MS = 30;
const INTEGER = PLACE_COLUMNS;
const DOUBLE = PLACE_COLUMNS + 1;

interface Event {
  readonly key: bigint;
  readonly ts: bigint;
  readonly partition: bigint;
  readonly offset: bigint;
  readonly integer: bigint | null;
  readonly double: number | null;
}

const OF_INTEGERS = [
  AGGREGATE.COUNT,
  AGGREGATE.SUM,
  AGGREGATE.MIN,
  AGGREGATE.MAX,
  AGGREGATE.FIRST,
  AGGREGATE.LAST,
  AGGREGATE.BUCKETS,
  AGGREGATE.DISTINCT,
];
const OF_DOUBLES = [
  AGGREGATE.COUNT,
  AGGREGATE.SUM_DOUBLE,
  AGGREGATE.MIN_DOUBLE,
  AGGREGATE.MAX_DOUBLE,
  AGGREGATE.BUCKETS_DOUBLE,
  AGGREGATE.DISTINCT_DOUBLE,
];

const steps: fc.Arbitrary<AggregateStep[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constantFrom(...OF_INTEGERS), column: fc.constant(INTEGER) }),
    fc.record({ kind: fc.constantFrom(...OF_DOUBLES), column: fc.constant(DOUBLE) }),
  ),
  { minLength: 1, maxLength: 8 },
);
const integers = fc.oneof(fc.bigInt(-5n, 5n), fc.bigInt(I64_MIN, I64_MAX), fc.constantFrom(I64_MIN, I64_MAX));
const doubles = fc.oneof(
  fc.double({ min: -1e6, max: 1e6, noNaN: true }),
  fc.double(),
  fc.constantFrom(0, -0, 5e-324, -5e-324, Number.MAX_VALUE, -Number.MAX_VALUE),
);
/** Events with places of their own, because no two records of a log share one. */
const eventLists = (values: fc.Arbitrary<number>): fc.Arbitrary<Event[]> =>
  fc
    .array(
      fc.record({
        key: fc.bigInt(0n, 4n),
        ts: fc.bigInt(-200n, 200n),
        partition: fc.bigInt(0n, 2n),
        integer: fc.option(integers),
        double: fc.option(values),
      }),
      { maxLength: 60 },
    )
    .map((list) => list.map((one, i) => ({ ...one, offset: BigInt(i) })));

function batchOf(events: readonly Event[]): Batches & { readonly values: ValueColumns } {
  const batches = batchesOf(events.map(({ key, ts }) => ({ accountId: key, eventTs: ts, value: 1n })));
  const capacity = events.length + 1;
  const values = new ValueColumns(DOUBLE + 1, capacity);
  events.forEach(({ partition, offset, integer, double }, i) => {
    values.cells[i] = partition;
    values.cells[capacity + i] = offset;
    values.valid[i] = 1;
    values.valid[capacity + i] = 1;
    // A null has any value.
    values.cells[INTEGER * capacity + i] = integer ?? 77n;
    values.valid[INTEGER * capacity + i] = integer === null ? 0 : 1;
    values.doubles[DOUBLE * capacity + i] = double ?? 77;
    values.valid[DOUBLE * capacity + i] = double === null ? 0 : 1;
  });
  return { ...batches, values };
}

const sidesOf = (form: RowForm): readonly [WindowKernels, WindowKernels] => [
  loadWindowKernels('reference', form),
  loadWindowKernels('native', form),
];

/** Folds events in batches of a size into a state, and returns the deltas. */
function fold(state: WindowState, events: readonly Event[], size: number): Uint8Array[] {
  const deltas: Uint8Array[] = [];
  for (let from = 0; from < events.length; from += size) {
    const batch = batchOf(events.slice(from, from + size));
    admitAll(batch, BigInt(SLICE_MS));
    state.accumulate(batch.events, batch.admitted, batch.values);
    deltas.push(deltasOf(state));
  }
  return deltas;
}

function foldSessions(state: SessionState, events: readonly Event[], size: number): Uint8Array[] {
  const deltas: Uint8Array[] = [];
  for (let from = 0; from < events.length; from += size) {
    const batch = batchOf(events.slice(from, from + size));
    admitAll(batch, 1n);
    state.accumulate(batch.events, batch.admitted, batch.values);
    deltas.push(sessionDeltasOf(state));
  }
  return deltas;
}

/** Rows of a run, read in pages of a few rows. */
function readRows(
  run: { readonly rowCount: number; read(from: number, into: ArrayBuffer): number; close(): void },
  form: RowForm,
): Uint8Array {
  const rows = new Uint8Array(run.rowCount * form.bytes);
  const page = new ArrayBuffer(3 * form.bytes + 8);
  for (let from = 0; from < run.rowCount; ) {
    const count = run.read(from, page);
    rows.set(new Uint8Array(page, 0, count * form.bytes), from * form.bytes);
    from += count;
  }
  run.close();
  return rows;
}

async function emptied(state: WindowState, form: RowForm): Promise<ReadonlyArray<readonly [number, string]>> {
  const found: Array<readonly [number, string]> = [];
  for (const start of slicesOf(state))
    found.push([start, hexOf(readRows(await state.seal(start), form).buffer)]);
  return found;
}

/** Number with the order of the doubles. */
const orderOf = (value: number): bigint => {
  if (Number.isNaN(value)) return I64_MAX;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigInt64(0);
  return bits >= 0n ? bits : -(bits & I64_MAX) - 1n;
};

const least = (values: readonly bigint[]): bigint =>
  values.reduce((one, other) => (other < one ? other : one), I64_MAX);
const most = (values: readonly bigint[]): bigint =>
  values.reduce((one, other) => (other > one ? other : one), I64_MIN);

/** Exact sum in units of the least double. */
function exactSum(values: readonly number[]): bigint {
  let sum = 0n;
  for (const value of values) {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, Math.abs(value));
    const bits = view.getBigUint64(0);
    const exponent = bits >> 52n;
    const fraction = bits & (2n ** 52n - 1n);
    const units = exponent === 0n ? fraction : (fraction | (2n ** 52n)) << (exponent - 1n);
    sum += value < 0 ? -units : units;
  }
  return sum;
}

/** Cells that an aggregate of some events has, except for sums of doubles. */
function expectedCells({ kind, column }: AggregateStep, events: readonly Event[]): readonly bigint[] {
  const valid = events.filter(({ integer, double }) => (column === INTEGER ? integer : double) !== null);
  const values = valid.map(({ integer, double }) =>
    column === INTEGER ? (integer as bigint) : orderOf(double as number),
  );
  if (kind === AGGREGATE.COUNT) return [BigInt(valid.length)];
  if (kind === AGGREGATE.SUM) {
    const sum = values.reduce((one, other) => one + other, 0n);
    return [BigInt.asIntN(64, sum), sum >> 64n];
  }
  if (kind === AGGREGATE.MIN || kind === AGGREGATE.MIN_DOUBLE) return [least(values)];
  if (kind === AGGREGATE.MAX || kind === AGGREGATE.MAX_DOUBLE) return [most(values)];
  const ordered = [...valid].sort((a, b) =>
    Number(a.ts - b.ts || a.partition - b.partition || a.offset - b.offset),
  );
  const isFirst = kind === AGGREGATE.FIRST;
  const one = isFirst ? ordered[0] : ordered.at(-1);
  return one === undefined
    ? [isFirst ? I64_MAX : I64_MIN, 0n, 0n, 0n]
    : [one.ts, one.partition, one.offset, one.integer as bigint];
}

/** Cells of a sketch that are in use, with its header. */
function expectSketch(
  { kind, column }: AggregateStep,
  cells: readonly bigint[],
  events: readonly Event[],
): void {
  const isOfBuckets = kind === AGGREGATE.BUCKETS || kind === AGGREGATE.BUCKETS_DOUBLE;
  const values = events.flatMap(({ integer, double }) => (column === INTEGER ? integer : double) ?? []);
  const view = new DataView(new ArrayBuffer(8));
  const bucketOf = (value: number): bigint => {
    if (!Number.isNaN(value) && Math.abs(value) < 2 ** -1022) return 0n;
    view.setFloat64(0, Math.abs(value));
    const bucket = view.getBigUint64(0) >> 46n;
    return value < 0 ? ~bucket : bucket;
  };
  // One zero; a set has one NaN.
  const groups = values.map((value) =>
    isOfBuckets ? bucketOf(Number(value)) : Object.is(value, -0) ? 0 : value,
  );
  const counts = new Map<unknown, bigint>();
  for (const group of groups) counts.set(group, (counts.get(group) ?? 0n) + 1n);
  expect(cells[0]).toBe(BigInt(counts.size));
  expect(cells.slice(1 + counts.size).every((cell) => cell === 0n)).toBe(true);
  const used = cells.slice(1, 1 + counts.size);
  if (isOfBuckets) {
    const expected = [...counts].map(([bucket, count]) => [bucket as bigint, count] as const);
    const found = used.map((cell) => [cell >> 46n, cell & (2n ** 46n - 1n)] as const);
    expect(found).toEqual(expected.sort(([a], [b]) => (a < b ? -1 : 1)));
  } else {
    expect(used.every((hash, i) => i === 0 || hash > (used[i - 1] as bigint))).toBe(true);
  }
}

function expectRow(form: RowForm, row: Uint8Array, events: readonly Event[], exactDoubles: boolean): void {
  const cells = new BigInt64Array(row.buffer, row.byteOffset, form.bytes / CELL);
  expect(cells[ACCUMULATOR.COUNT / CELL]).toBe(BigInt(events.length));
  form.steps.forEach((step, i) => {
    const { first, count } = form.places[i] as RowForm['places'][number];
    const from = ACCUMULATOR.BYTES / CELL + first;
    const found = cells.slice(from, from + count);
    if (isSketch(step.kind)) expectSketch(step, [...found], events);
    else if (step.kind !== AGGREGATE.SUM_DOUBLE) expect([...found]).toEqual(expectedCells(step, events));
    else if (exactDoubles) {
      const values = events.flatMap(({ double }) => (double === null ? [] : [double]));
      // The nearest double of the exact sum: no other is nearer.
      const sum = doubleOf(found);
      const error = (value: number): bigint => {
        const difference = exactSum([value]) - exactSum(values);
        return difference < 0n ? -difference : difference;
      };
      const view = new DataView(new ArrayBuffer(8));
      for (const step of [-1n, 1n]) {
        view.setFloat64(0, sum);
        view.setBigInt64(0, view.getBigInt64(0) + step);
        const other = view.getFloat64(0);
        if (sum !== 0) expect(error(sum)).toBeLessThanOrEqual(error(other) as unknown as number);
      }
    }
  });
}

/** Events of each key and slice, in the order of `emptied`. */
function slicesOfEvents(events: readonly Event[]): ReadonlyArray<readonly [number, readonly Event[][]]> {
  const slices = new Map<number, Map<bigint, Event[]>>();
  for (const event of events) {
    const start = Math.floor(Number(event.ts) / SLICE_MS) * SLICE_MS;
    const keys = slices.get(start) ?? new Map<bigint, Event[]>();
    slices.set(start, keys);
    keys.set(event.key, [...(keys.get(event.key) ?? []), event]);
  }
  return [...slices]
    .sort(([a], [b]) => a - b)
    .map(([start, keys]) => [start, [...keys].sort(([a], [b]) => Number(a - b)).map(([, list]) => list)]);
}

const bytesOf = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));

describe('cells of slices', () => {
  it('the cells have the aggregates of the events, on both sides, whatever the batches and shards', async () => {
    const moderate = fc.double({ min: -1e9, max: 1e9, noNaN: true });
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(moderate),
        fc.integer({ min: 1, max: 60 }),
        fc.integer({ min: 1, max: 5 }),
        async (list, events, size, shards) => {
          const form = new RowForm(list);
          const states = sidesOf(form).map((kernels) => kernels.open(SLICE_MS, shards));
          const deltas = states.map((state) => fold(state, events, size).map((one) => hexOf(one.buffer)));
          expect(deltas[1]).toEqual(deltas[0]);
          // The addon stores small sketches in less room.
          if (!list.some(({ kind }) => isSketch(kind))) expect(states[1]?.bytes()).toBe(states[0]?.bytes());
          const [reference, native] = await Promise.all(states.map((state) => emptied(state, form)));
          expect(native).toEqual(reference);
          const expected = slicesOfEvents(events);
          expect(native?.map(([start]) => start)).toEqual(expected.map(([start]) => start));
          native?.forEach(([, hex], i) => {
            const lists = expected[i]?.[1] as readonly Event[][];
            const rows = bytesOf(hex);
            expect(rows.length).toBe(lists.length * form.bytes);
            lists.forEach((of, at) => {
              expectRow(form, rows.slice(at * form.bytes, (at + 1) * form.bytes), of, true);
            });
          });
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('the cells do not depend on the order of the events, whatever their doubles', async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(doubles).chain((events) =>
          fc.tuple(
            fc.constant(events),
            fc.shuffledSubarray(events, { minLength: events.length }),
            fc.integer({ min: 1, max: 20 }),
          ),
        ),
        async (list, [events, shuffled, size]) => {
          const form = new RowForm(list);
          const found = await Promise.all(
            sidesOf(form).flatMap((kernels) =>
              [events, shuffled].map((order, i) => {
                const state = kernels.open(SLICE_MS, 2);
                fold(state, order, i === 0 ? 60 : size);
                return emptied(state, form);
              }),
            ),
          );
          for (const one of found) expect(one).toEqual(found[0]);
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('deltas and copied rows build the same cells in any number of shards', async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(doubles),
        fc.integer({ min: 1, max: 9 }),
        async (list, events, size) => {
          const form = new RowForm(list);
          for (const kernels of sidesOf(form)) {
            const state = kernels.open(SLICE_MS, 3);
            const deltas = fold(state, events, size);
            const replayed = kernels.open(SLICE_MS, 2);
            expect(deltas.map((one) => replayed.applyDeltas(one))).toEqual(deltas.map(() => DELTA_STATUS.OK));
            const copied = kernels.open(SLICE_MS, 1);
            const page = new ArrayBuffer(2 * form.bytes + 64);
            for (const start of slicesOf(state)) {
              const cursor = new Float64Array(1);
              for (let count = -1; count !== 0; ) {
                count = state.copy(start, cursor, page);
                copied.load(start, page, count);
              }
            }
            const ranged = kernels.open(SLICE_MS, 1);
            for (const start of slicesOf(state))
              for (let range = 0; range < 1024; range++) {
                const cursor = new Float64Array(1);
                for (let count = -1; count !== 0; ) {
                  count = state.copyRange(range, start, cursor, page);
                  ranged.load(start, page, count);
                }
              }
            const whole = await emptied(state, form);
            for (const other of [replayed, copied, ranged]) expect(await emptied(other, form)).toEqual(whole);
          }
        },
      ),
      { numRuns: runs(40) },
    );
  });

  it('a merge of runs has the cells of all events', async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(doubles),
        fc.integer({ min: 1, max: 4 }),
        async (list, events, runs) => {
          const form = new RowForm(list);
          const inOne = events.map((one) => ({ ...one, ts: ((one.ts % 100n) + 100n) % 100n }));
          const merged = await Promise.all(
            sidesOf(form).map(async (kernels) => {
              const pages = await Promise.all(
                Array.from({ length: runs }, async (_, run) => {
                  const state = kernels.open(SLICE_MS, 1);
                  fold(
                    state,
                    inOne.filter((__, i) => i % runs === run),
                    60,
                  );
                  return readRows(await state.seal(0), form);
                }),
              );
              const cursors = Uint32Array.from(pages.flatMap((page) => [0, page.length / form.bytes, 1]));
              const into = new Uint8Array(10 * form.bytes);
              const rows = kernels.merge(pages, cursors, into);
              return hexOf(into.slice(0, rows * form.bytes).buffer);
            }),
          );
          expect(merged[1]).toBe(merged[0]);
          const state = sidesOf(form)[0].open(SLICE_MS, 1);
          fold(state, inOne, 60);
          expect(merged[0]).toBe(hexOf(readRows(await state.seal(0), form).buffer));
        },
      ),
      { numRuns: runs(80) },
    );
  });
});

describe('cells of sessions', () => {
  it('the cells of sessions have the aggregates of their events, on both sides', async () => {
    const moderate = fc.double({ min: -1e9, max: 1e9, noNaN: true });
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(moderate),
        fc.integer({ min: 1, max: 60 }),
        fc.integer({ min: 1, max: 4 }),
        async (list, events, size, shards) => {
          const form = new RowForm(list);
          const kernels = sidesOf(form);
          const states = kernels.map((side) => side.openSessions(GAP_MS, shards));
          const deltas = states.map((state) => foldSessions(state, events, size));
          expect(deltas[1]?.map((one) => hexOf(one.buffer))).toEqual(
            deltas[0]?.map((one) => hexOf(one.buffer)),
          );
          const replayed = kernels.map((side, i) => {
            const state = side.openSessions(GAP_MS, 2);
            for (const one of deltas[i] as Uint8Array[]) expect(state.applyDeltas(one)).toBe(DELTA_STATUS.OK);
            return state;
          });
          const fired = await Promise.all(
            [...states, ...replayed].map(async (state) =>
              hexOf(readRows(await state.fire(Number.POSITIVE_INFINITY), form).buffer),
            ),
          );
          for (const one of fired) expect(one).toBe(fired[0]);
          const rows = bytesOf(fired[0] as string);
          for (let at = 0; at < rows.length; at += form.bytes) {
            const row = rows.slice(at, at + form.bytes);
            const cell = (of: number): bigint => new DataView(row.buffer).getBigInt64(of, true);
            const [key, first, last] = [
              cell(ACCUMULATOR.ACCOUNT_ID),
              cell(ACCUMULATOR.SPARE),
              cell(ACCUMULATOR.LAST_UPDATE_TS),
            ];
            expectRow(
              form,
              row,
              events.filter((one) => one.key === key && one.ts >= first && one.ts <= last),
              true,
            );
          }
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('parts of sessions merge with their cells', async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        eventLists(doubles),
        fc.integer({ min: 1, max: 4 }),
        async (list, events, runs) => {
          const form = new RowForm(list);
          const merged = await Promise.all(
            sidesOf(form).map(async (kernels) => {
              const pages = await Promise.all(
                Array.from({ length: runs }, async (_, run) => {
                  const state = kernels.openSessions(GAP_MS, 1);
                  foldSessions(
                    state,
                    events.filter((__, i) => i % runs === run),
                    60,
                  );
                  return readRows(await state.detach(), form);
                }),
              );
              const cursors = Uint32Array.from(pages.flatMap((page) => [0, page.length / form.bytes, 1]));
              const open = new Uint8Array(form.bytes);
              const into = new Uint8Array(3 * form.bytes);
              const rows: string[] = [];
              for (let count = -1; count !== 0; ) {
                count = kernels.mergeSessions(GAP_MS, pages, cursors, open, into);
                rows.push(hexOf(into.slice(0, count * form.bytes).buffer));
              }
              return rows.join('');
            }),
          );
          expect(merged[1]).toBe(merged[0]);
          const state = sidesOf(form)[0].openSessions(GAP_MS, 1);
          foldSessions(state, events, 60);
          expect(merged[0]).toBe(hexOf(readRows(await state.detach(), form).buffer));
        },
      ),
      { numRuns: runs(80) },
    );
  });
});

describe('refusals', () => {
  const form = new RowForm([
    { kind: AGGREGATE.SUM, column: INTEGER },
    { kind: AGGREGATE.FIRST, column: INTEGER },
    { kind: AGGREGATE.SUM_DOUBLE, column: DOUBLE },
    { kind: AGGREGATE.BUCKETS_DOUBLE, column: DOUBLE },
    { kind: AGGREGATE.DISTINCT, column: INTEGER },
  ]);
  const events = Array.from({ length: 9 }, (_, i) => ({
    key: BigInt(i % 4),
    ts: BigInt(i * 20 - 50),
    partition: 0n,
    offset: BigInt(i),
    integer: BigInt(i * i),
    double: i / 3,
  }));

  it('values that lack a column or an event are refused with nothing changed', () => {
    for (const kernels of sidesOf(form)) {
      const batch = batchOf(events);
      admitAll(batch, BigInt(SLICE_MS));
      const state = kernels.open(SLICE_MS, 1);
      const sessions = kernels.openSessions(GAP_MS, 1);
      const lacking = [
        new ValueColumns(DOUBLE, 20),
        new ValueColumns(DOUBLE + 1, events.length - 1),
        undefined,
      ];
      for (const values of lacking)
        for (const one of [state, sessions])
          expect(outcome(() => one.accumulate(batch.events, batch.admitted, values))).toBe('out_of_range');
      expect([state.keyCount(), sessions.sessionCount()]).toEqual([0, 0]);
    }
  });

  it.each([
    ['an unknown aggregate', [{ kind: 15, column: 0 }]],
    ['no aggregate', [{ kind: 0, column: 0 }]],
    ['a column above the limit', [{ kind: AGGREGATE.SUM, column: 256 }]],
    ['a row above 32 KiB', Array.from({ length: 8 }, () => ({ kind: AGGREGATE.BUCKETS, column: 0 }))],
  ] as const)('a form with %s is refused', (_, list) => {
    expect(outcome(() => new RowForm(list))).toBe('out_of_range');
  });

  it('the decoder of deltas gives the same verdict on both sides for any change', async () => {
    const whole = fold(sidesOf(form)[1].open(SLICE_MS, 2), events, 60)[0] as Uint8Array;
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(changed(whole, WINDOW_DELTAS.LENGTH), async (bytes) => {
        const found = await Promise.all(
          sidesOf(form).map(async (kernels) => {
            const state = kernels.open(SLICE_MS, 3);
            const status = state.applyDeltas(bytes);
            seen.add(status);
            return [status, await emptied(state, form)];
          }),
        );
        expect(found[1]).toEqual(found[0]);
      }),
      { numRuns: Math.max(300, runs(1000)) },
    );
    expect(seen.has(DELTA_STATUS.OK) && seen.has(DELTA_STATUS.BAD_DELTA)).toBe(true);
  });
});
