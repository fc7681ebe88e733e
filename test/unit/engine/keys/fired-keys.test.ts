/** The store of fired windows by keys that are no integers, compared with a plain list. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KeyColumn } from '../../../../src/engine/keys/column.ts';
import type { KeyType } from '../../../../src/engine/keys/type.ts';
import type { WindowBounds, WindowQuery } from '../../../../src/engine/output/fired/lookup.ts';
import type { FiredShape } from '../../../../src/engine/output/fired/mark.ts';
import {
  FIRED_FAMILIES,
  FiredStore,
  firedRows,
  RUN_ROWS_MIN,
  readFired,
} from '../../../../src/engine/output/fired/store.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import type { FiredBounds, FiredPage } from '../../../../src/engine/window/firing.ts';
import { KV_BUDGET_MIN_BYTES, type KvStore } from '../../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../../src/sim/kv.ts';
import { pageOf, type RowSpec, sessionBounds, windowBounds } from '../../../contract/fired-kit.ts';
import { runs } from '../../../tier.ts';

const TEXT: KeyType = [{ name: 'name', kind: 'string' }];
const OPTIONS = { budgetBytes: KV_BUDGET_MIN_BYTES, families: FIRED_FAMILIES };
const sim = (): Promise<KvStore> => new SimKv().open('f', OPTIONS);

/** Adds keys to the rows of a page. */
function keyed(bounds: FiredBounds, rows: ReadonlyArray<RowSpec & { readonly key: Buffer }>): FiredPage {
  let end = 0;
  const ends = Uint32Array.from(rows, ({ key }) => (end += key.length));
  const keys = new KeyColumn(new Uint8Array(Buffer.concat(rows.map(({ key }) => key))), ends);
  return { ...pageOf(bounds, rows), keys };
}

async function found(fired: FiredStore, query: Omit<WindowQuery, 'accountId'>): Promise<WindowResult[]> {
  const rows: WindowResult[] = [];
  let after: WindowBounds | undefined;
  do {
    const page = await fired.find({ ...query, accountId: 0n, ...(after === undefined ? {} : { after }) });
    rows.push(...page.rows);
    after = page.next;
  } while (after !== undefined);
  return rows;
}

/** Keys that begin with the same bytes as others, and the longest one. */
const key = fc.oneof(
  fc.constantFrom('', 'a', 'a\x80', 'ab', 'b').map((text) => Buffer.from(text, 'latin1')),
  fc.uint8Array({ maxLength: 12 }).map((bytes) => Buffer.from(bytes)),
  fc.constant(Buffer.alloc(1024, 0xff)),
);

describe.each([
  ['windows', { kind: 'windows', sizeMs: 10, slideMs: 10 }],
  ['sessions', { kind: 'sessions', gapMs: 10 }],
] as const)('fired %s by texts', (kind, shape: FiredShape) => {
  const pagesOf = (starts: ReadonlyMap<number, ReadonlyArray<Buffer>>): FiredPage[] =>
    [...starts].map(([start, keys]) =>
      keyed(
        kind === 'windows' ? windowBounds(start, start + 10) : sessionBounds(10),
        keys.map((one, at) => ({
          ...{ key: one, accountId: BigInt(at + 1), start: BigInt(start), last: BigInt(start + 3) },
        })),
      ),
    );

  it('a large page is written as a run, with the same results as pages of a few rows', async () => {
    const rows = RUN_ROWS_MIN + 1000;
    const bounds = kind === 'windows' ? windowBounds(0, 10) : sessionBounds(10);
    // Neither in the order of their bytes nor of one length.
    const texts = Array.from({ length: rows }, (_, row) => `customer-${(row * 7919) % rows}`);
    const page = keyed(
      bounds,
      texts.map((text, row) => ({
        ...{ key: Buffer.from(text), accountId: BigInt(row + 1), start: 0n, last: BigInt(row % 7) },
      })),
    );
    const written = async (portionRows: number): Promise<readonly [string, number]> => {
      const store = await sim();
      let openedRuns = 0;
      const { openRun } = store;
      store.openRun = (family) => {
        openedRuns++;
        return openRun.call(store, family);
      };
      const fired = await FiredStore.open(store, { shape, role: 'sink' });
      await fired.bind(TEXT);
      for (let from = 0; from < rows; from += portionRows) {
        const rowCount = Math.min(portionRows, rows - from);
        const part = { rows: page.rows.subarray(from * 64), keys: page.keys?.from(from) };
        await fired.write([{ ...page, ...part, rowCount }]);
      }
      const hash = createHash('sha256');
      for await (const some of readFired(store))
        for (const row of some)
          hash
            .update(
              `${row.key?.length},${row.accountId},${row.windowStart},${row.windowEnd},${row.lastUpdateTs};`,
            )
            .update(row.key as Uint8Array);
      return [hash.digest('hex'), openedRuns];
    };
    const [few, noRuns] = await written(RUN_ROWS_MIN / 2);
    expect(noRuns).toBe(0);
    expect(await written(RUN_ROWS_MIN)).toEqual([few, 1]);
    expect(await written(rows)).toEqual([few, 1]);
  });

  it('a look-up finds the windows of the key and of no other, page by page, and a read finds all', async () => {
    const world = fc.array(
      fc.tuple(
        fc.integer({ min: -3, max: 3 }),
        fc.uniqueArray(key, { maxLength: 6, selector: (k) => k.toString('hex') }),
      ),
      { maxLength: 5 },
    );
    await fc.assert(
      fc.asyncProperty(world, fc.integer({ min: 1, max: 3 }), async (batches, limit) => {
        const store = await sim();
        const fired = await FiredStore.open(store, { shape, role: 'sink' });
        await fired.bind(TEXT);
        const starts = new Map(batches.map(([slot, keys]) => [slot * 10, keys]));
        const pages = pagesOf(starts);
        await fired.write(pages);
        await fired.write(pages);
        const end = kind === 'windows' ? 10 : 13;
        const expected = [...starts].flatMap(([start, keys]) =>
          keys.map((one) => `${one.toString('hex')} ${start} ${start + end}`),
        );
        const text = (row: WindowResult): string =>
          `${Buffer.from(row.key ?? []).toString('hex')} ${row.windowStart} ${row.windowEnd}`;
        const all: string[] = [];
        for await (const rows of readFired(store)) all.push(...rows.map(text));
        expect(all.sort()).toEqual([...expected].sort());
        expect((await firedRows(store)).keyType).toEqual(TEXT);
        for (const one of new Set(expected.map((row) => row.split(' ')[0] as string))) {
          const query = { key: new Uint8Array(Buffer.from(one, 'hex')), from: -100, to: 100, limit };
          expect((await found(fired, query)).map(text)).toEqual(
            expected
              .filter((row) => row.startsWith(`${one} `))
              .sort((a, b) => Number(a.split(' ')[1]) - Number(b.split(' ')[1])),
          );
        }
        expect(await found(fired, { key: Uint8Array.of(1, 2, 3), from: -100, to: 100, limit })).toEqual([]);
      }),
      { numRuns: runs(60) },
    );
  });

  it('expired windows are found no more', async () => {
    const store = await sim();
    const fired = await FiredStore.open(store, { shape, role: 'beside', retainMs: 100 });
    await fired.bind(TEXT);
    const a = Buffer.from('a');
    await fired.write(pagesOf(new Map([[0, [a]]])));
    await fired.write(pagesOf(new Map([[200_000, [a]]])));
    const rows = await found(fired, { key: a, from: -1000, to: 1e9, limit: 10 });
    expect(rows.map(({ windowStart }) => windowStart)).toEqual([200_000]);
  });
});

describe('a store of fired windows', () => {
  const shape: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };

  it('a store keeps the type of its keys, and refuses another once it has results', async () => {
    const kv = new SimKv();
    const store = await kv.open('f', OPTIONS);
    const fired = await FiredStore.open(store, { shape, role: 'sink' });
    await fired.bind(undefined);
    await fired.bind(TEXT);
    await fired.write([keyed(windowBounds(0, 10), [{ key: Buffer.from('x'), accountId: 1n }])]);
    const again = await FiredStore.open(store, { shape, role: 'sink' });
    expect(again.keyType).toEqual(TEXT);
    await again.bind(TEXT);
    for (const other of [undefined, [{ name: 'name', kind: 'bytes' }] as const])
      await expect(again.bind(other)).rejects.toMatchObject({
        code: 'job_changed',
        message: expect.stringMatching(/they were name:string, are/),
      });
  });

  it('results by integers are refused for keys that are texts', async () => {
    const fired = await FiredStore.open(await sim(), { shape, role: 'sink' });
    await fired.write([pageOf(windowBounds(0, 10), [{ accountId: 1n }])]);
    await expect(fired.bind(TEXT)).rejects.toMatchObject({ code: 'job_changed' });
  });
});
