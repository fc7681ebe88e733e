/** Windows of all keys: pages and the greatest, compared with a plain list. */
import { describe, expect, it } from 'vitest';
import { ACCUMULATOR, AGGREGATE } from '../../../../src/core/layout/layouts.gen.ts';
import { CELL } from '../../../../src/core/layout/row-form.ts';
import { Aggregates } from '../../../../src/engine/aggregate/definition.ts';
import { KeyColumn } from '../../../../src/engine/keys/column.ts';
import { keyOfText } from '../../../../src/engine/keys/type.ts';
import { isRanked, type ResultColumn, rankOf, resultShape } from '../../../../src/engine/output/columns.ts';
import type { FiredShape } from '../../../../src/engine/output/fired/mark.ts';
import { findTop, TOP_VISITS_MAX } from '../../../../src/engine/output/fired/range.ts';
import { FIRED_FAMILIES, FiredStore } from '../../../../src/engine/output/fired/store.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import type { FiredPage } from '../../../../src/engine/window/firing.ts';
import { SimKv } from '../../../../src/sim/kv.ts';
import { pageOf, resultText, sessionBounds, windowBounds } from '../../../contract/fired-kit.ts';

const TUMBLING: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };
const SESSIONS: FiredShape = { kind: 'sessions', gapMs: 30 };
const TEXT = resultShape({ input: { format: 'json', key: 'k:string' } });
const EVER = { from: -(2 ** 40), to: 2 ** 40 };

const open = async (shape: FiredShape, retainMs?: number): Promise<FiredStore> => {
  const store = await new SimKv().open('f', { budgetBytes: 1 << 24, families: FIRED_FAMILIES });
  return FiredStore.open(store, { shape, role: 'sink', retainMs });
};
const column = (name: string): ResultColumn =>
  resultShape({}).columns.find((one) => one.name === name) as ResultColumn;

/** Reads all pages of a range. */
async function pagesOf(fired: FiredStore, limit: number, { from, to } = EVER): Promise<WindowResult[]> {
  const all: WindowResult[] = [];
  let after: Uint8Array | undefined;
  do {
    const { rows, next } = await fired.range({ from, to, limit, after });
    expect(rows.length).toBeLessThanOrEqual(limit);
    all.push(...rows);
    after = next;
  } while (after !== undefined);
  return all;
}

const page = (start: number, counts: readonly bigint[]): FiredPage =>
  pageOf(
    windowBounds(start, start + 10),
    counts.map((count, at) => ({ accountId: BigInt(at + 1), count, last: BigInt(start) })),
  );

describe('ranks of decimals', () => {
  it('decimals are ranked as numbers, not as texts, and a row without a value is the least', () => {
    const aggregate = 'sum(p:decimal2) as total';
    const { columns } = resultShape({ input: { format: 'json', key: 'k', aggregate } });
    const total = columns.find(({ name }) => name === 'total') as ResultColumn;
    expect(isRanked(total)).toBe(true);
    const ranks = ['-0.05', '9.99', '10.00', '-10.00', '0.00', null].map((value) =>
      rankOf(total, { aggregates: [value] } as unknown as WindowResult),
    );
    expect(ranks).toEqual([-5n, 999n, 1000n, -1000n, 0n, null]);
  });
});

const LAST = 'last(d:double) as d';
const DOUBLE = { path: ['d'], kind: 'double' } as const;

/** Page with a row for each value of `last(d:double)`; null: none. */
function doublesPage(start: number, values: readonly (number | null)[]): FiredPage {
  const form = Aggregates.of(LAST);
  const rows = new Uint8Array(values.length * form.bytes);
  const view = new DataView(rows.buffer);
  values.forEach((value, row) => {
    const at = row * form.bytes;
    const cell = (kind: number): number => at + ACCUMULATOR.BYTES + form.cellOf(kind, DOUBLE) * CELL;
    view.setBigInt64(at + ACCUMULATOR.ACCOUNT_ID, BigInt(row), true);
    view.setBigInt64(cell(AGGREGATE.COUNT), value === null ? 0n : 1n, true);
    view.setFloat64(cell(AGGREGATE.LAST) + 3 * CELL, value ?? 0, true);
  });
  return { bounds: windowBounds(start, start + 10), form, rows, rowCount: values.length };
}

/** All orders of the values. */
const ordersOf = <T>(values: readonly T[]): readonly (readonly T[])[] =>
  values.length === 0
    ? [[]]
    : values.flatMap((value, at) =>
        ordersOf(values.toSpliced(at, 1)).map((others): readonly T[] => [value, ...others]),
      );

describe('windows of all keys', () => {
  it('pages of any size have every window of the range once, ascending by time and key', async () => {
    const fired = await open(TUMBLING);
    await fired.write([page(-20, [5n, 1n]), page(0, [3n, 9n, 4n]), page(10, [7n])]);
    const texts = (rows: readonly WindowResult[]): string[] =>
      rows.map(({ windowStart, accountId, count }) => `${windowStart} ${accountId} ${count}`);
    const whole = ['-20 1 5', '-20 2 1', '0 1 3', '0 2 9', '0 3 4', '10 1 7'];
    for (const limit of [1, 2, 3, 6, 100]) expect(texts(await pagesOf(fired, limit))).toEqual(whole);
    expect(texts(await pagesOf(fired, 2, { from: -19, to: 10 }))).toEqual(whole.slice(2, 5));
    expect(await pagesOf(fired, 2, { from: 5, to: 5 })).toEqual([]);
    expect(await pagesOf(fired, 2, { from: 50, to: 60 })).toEqual([]);
  });

  it('the greatest windows by a column come first, and equal ones in the order of time and key', async () => {
    const fired = await open(TUMBLING);
    await fired.write([page(-20, [5n, 1n]), page(0, [3n, 9n, 5n]), page(10, [7n])]);
    const top = async (count: number, by = 'count', { from, to } = EVER): Promise<string[]> =>
      (await fired.top({ from, to, top: count, by: column(by) })).map(
        ({ windowStart, accountId, count: value }) => `${windowStart} ${accountId} ${value}`,
      );
    expect(await top(2)).toEqual(['0 2 9', '10 1 7']);
    expect(await top(4)).toEqual(['0 2 9', '10 1 7', '-20 1 5', '0 3 5']);
    expect(await top(100)).toHaveLength(6);
    expect(await top(2, 'window_start')).toEqual(['10 1 7', '0 1 3']);
    expect(await top(1, 'count', { from: -20, to: 0 })).toEqual(['-20 1 5']);
  });

  it('windows with NaN come first and those without a value last, in whatever order they are stored', async () => {
    const shape: FiredShape = { ...TUMBLING, aggregates: LAST };
    const input = { format: 'json', key: 'k', aggregate: LAST } as const;
    const by = resultShape({ input }).columns.find(({ name }) => name === 'd') as ResultColumn;
    const fired = await open(shape);
    await fired.bind(undefined, { aggregate: LAST });
    const greatest = [Number.NaN, Number.NaN, Number.POSITIVE_INFINITY, 1, null];
    const orders = ordersOf(greatest);
    await fired.write(orders.map((values, at) => doublesPage(at * 10, values)));
    for (const [at] of orders.entries())
      for (let top = 1; top <= greatest.length; top++) {
        const found = await fired.top({ from: at * 10, to: at * 10 + 10, top, by });
        expect(found.map(({ aggregates }) => aggregates?.[0])).toEqual(greatest.slice(0, top));
      }
  });

  it('a search for the greatest that visits too many windows is refused', async () => {
    const fired = await open(TUMBLING);
    const rows = Array.from({ length: 1000 }, (_, at) => ({ accountId: BigInt(at) }));
    await fired.write([pageOf(windowBounds(0, 10), rows)]);
    const real = (fired as unknown as { visible: Parameters<typeof findTop>[0] }).visible;
    // The scan repeats its page, so that the test needs no million windows.
    const store = {
      ...{
        scan: async (...args: Parameters<typeof real.store.scan>) => {
          const bytesOf = (await real.store.scan(...args)).next;
          let turns = 0;
          return {
            next: async (into: Parameters<typeof bytesOf>[0]) => {
              if (turns++ > TOP_VISITS_MAX / 1000) return 0;
              return (await real.store.scan(...args)).next(into);
            },
            close: () => {},
          };
        },
      },
    } as unknown as typeof real.store;
    await expect(findTop({ ...real, store }, { ...EVER, top: 1, by: column('count') })).rejects.toMatchObject(
      { code: 'range_too_wide', next: expect.stringContaining('from and to') },
    );
  });

  it('sessions of all keys are found by their start, and expired windows are not', async () => {
    const fired = await open(SESSIONS);
    const row = (accountId: bigint, start: bigint, last: bigint) => ({ accountId, start, last });
    await fired.write([
      pageOf(sessionBounds(30), [row(2n, -500n, -400n), row(1n, 0n, 5n), row(2n, 3n, 500_000n)]),
    ]);
    const starts = async (limit: number, range = EVER) =>
      (await pagesOf(fired, limit, range)).map(({ accountId, windowStart }) => `${accountId} ${windowStart}`);
    for (const limit of [1, 2, 10]) expect(await starts(limit)).toEqual(['2 -500', '1 0', '2 3']);
    expect(await starts(1, { from: 1, to: 100 })).toEqual(['2 3']);
    const kept = await open(TUMBLING, 20);
    await kept.write([page(0, [1n]), page(100, [2n])]);
    expect((await pagesOf(kept, 10)).map(({ windowStart }) => windowStart)).toEqual([100]);
  });

  it.each([TUMBLING, SESSIONS])('windows by texts are listed with their keys: $kind', async (shape) => {
    const fired = await open(shape);
    await fired.bind(TEXT.keyType);
    const keys = ['b', 'a', 'ab'].map((text) => keyOfText(TEXT.keyType ?? [], text) as Uint8Array);
    const ends = Uint32Array.from(keys, (_, at) =>
      keys.slice(0, at + 1).reduce((n, key) => n + key.length, 0),
    );
    const bounds = shape.kind === 'windows' ? windowBounds(0, 10) : sessionBounds(30);
    const rows = pageOf(
      bounds,
      [1n, 2n, 3n].map((count, at) => ({ accountId: BigInt(at), count, last: 5n, start: 1n })),
    );
    await fired.write([{ ...rows, keys: new KeyColumn(new Uint8Array(Buffer.concat(keys)), ends) }]);
    for (const limit of [1, 10]) {
      const found = await pagesOf(fired, limit);
      const texts = found.map(({ key, count }) => `${Buffer.from(key ?? []).toString()} ${count}`);
      // Sessions are ordered by the length of their key first.
      expect(texts.sort()).toEqual(['a 2', 'ab 3', 'b 1']);
      expect(found.every((row) => resultText(row).length > 0)).toBe(true);
    }
  });
});
