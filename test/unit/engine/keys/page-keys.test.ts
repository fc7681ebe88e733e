/** Keys of a page of results: read in portions, between which batches of events have their turn. */
import { describe, expect, it } from 'vitest';
import { loadKeyKernels } from '../../../../src/addon/keys.ts';
import { ACCUMULATOR } from '../../../../src/core/layout/layouts.gen.ts';
import { KeyCache } from '../../../../src/engine/keys/cache.ts';
import { keysOfPage, PORTION_ROWS } from '../../../../src/engine/keys/page-keys.ts';
import { KEY_FAMILIES, KeyRows, KeyStore, LOOKUP_IDS } from '../../../../src/engine/keys/store.ts';
import { KV_BUDGET_MIN_BYTES, type KvStore, type KvValues } from '../../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../../src/sim/kv.ts';
import { turns } from '../../../wait.ts';

const ROWS = 40_000;
const SIDES = [loadKeyKernels('native'), loadKeyKernels('reference')];
const HIGH = 7;
const encoder = new TextEncoder();
/** Some keys are longer than a whole entry of the shortest ones. */
const keyOf = (id: number): Uint8Array => encoder.encode(`customer-${'x'.repeat((id * 31) % 60)}-${id}`);

/** Rows of the ids 1 to `count`. */
function rowsOf(count: number): Uint8Array {
  const rows = new Uint8Array(count * ACCUMULATOR.BYTES);
  const view = new DataView(rows.buffer);
  for (let row = 0; row < count; row++) {
    view.setInt32(row * ACCUMULATOR.BYTES + ACCUMULATOR.ACCOUNT_ID, row + 1, true);
    view.setInt32(row * ACCUMULATOR.BYTES + ACCUMULATOR.ACCOUNT_ID + 4, HIGH, true);
  }
  return rows;
}

function insert(cache: KeyCache, id: number): void {
  const key = keyOf(id);
  const words = new Int32Array(64);
  new Uint8Array(words.buffer).set(key);
  cache.insert(id, HIGH, 1, 0, words, 0, key.length);
}

/** Store whose reads settle one after the other, each in a turn of the event loop of its own, as a
 *  store with one read thread answers.
 *  @param failsAt number of a read that fails, from 1; 0: none */
function oneByOne(store: KvStore, reads: number[], failsAt: number): KvStore {
  let last: Promise<unknown> = Promise.resolve();
  const get = (family: string, keys: Parameters<KvStore['get']>[1]): Promise<KvValues> => {
    reads.push(keys.count);
    const place = reads.length;
    const read = last
      .then(() => turns(1))
      .then(() => {
        if (place === failsAt) throw new Error('the disk is gone');
        return store.get(family, keys);
      });
    last = read.catch(() => {});
    return read;
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'get') return get;
      const found: unknown = Reflect.get(target, name);
      return typeof found === 'function' ? found.bind(target) : found;
    },
  });
}

/** Store with the keys of the ids 1 to ROWS; even ones are in an older generation only. */
async function storeWith(reads: number[], failsAt = 0): Promise<KeyStore> {
  const kv = await new SimKv().open('keys', { budgetBytes: KV_BUDGET_MIN_BYTES, families: KEY_FAMILIES });
  const store = new KeyStore(oneByOne(kv, reads, failsAt));
  const rows = new KeyRows();
  for (let id = 1; id <= ROWS; id++) rows.add(id % 2 === 0 ? 1 : 2, id, HIGH, keyOf(id));
  await store.write(rows);
  return store;
}

const generations = new Map([
  [1, 0],
  [2, 0],
]);

describe.each(SIDES)('keys of a page, $name', ({ open }) => {
  const kernel = open(new Uint8Array(8));

  it('the keys of cached, of stored and of mixed rows are those of their ids', async () => {
    const store = await storeWith([]);
    for (const isCached of [() => true, () => false, (id: number) => id % 3 === 0]) {
      const cache = new KeyCache(16 * 1024 * 1024);
      for (let id = 1; id <= ROWS; id++) if (isCached(id)) insert(cache, id);
      const sources = { kernel, cache, store, folder: 'keys', generations };
      for (const count of [0, 1, PORTION_ROWS, PORTION_ROWS + 1, ROWS]) {
        const column = await keysOfPage(sources, rowsOf(count), count, ACCUMULATOR.BYTES);
        for (let row = 0; row < count; row++) expect(Buffer.compare(column.key(row), keyOf(row + 1))).toBe(0);
        expect(column.spans(count).bytes.length).toBe(column.end(count));
      }
    }
  });

  it('a cached key of a generation that is no longer in use does not count', async () => {
    const cache = new KeyCache(1024 * 1024);
    insert(cache, 1);
    const store = await storeWith([]);
    const sources = { kernel, cache, store, folder: 'keys', generations: new Map([[2, 0]]) };
    expect(Buffer.compare((await keysOfPage(sources, rowsOf(1), 1, 64)).key(0), keyOf(1))).toBe(0);
    await expect(keysOfPage(sources, rowsOf(2), 2, 64)).rejects.toThrow('does not have a key of the state');
  });

  it('other work has its turn between any two portions of a page', async () => {
    const cache = new KeyCache(16 * 1024 * 1024);
    for (let id = 1; id <= ROWS; id++) insert(cache, id);
    let [turn, isOver] = [0, false];
    const tick = (): void => {
      turn++;
      if (!isOver) setImmediate(tick);
    };
    /** Portions by their end: a portion whose keys have no room takes several calls. */
    const portions = new Map<number, { readonly turn: number; readonly rows: number }>();
    const counted: typeof kernel = {
      ...kernel,
      copy: (ids, from, to, ...rest) => {
        if (!portions.has(to)) portions.set(to, { turn, rows: to - from });
        return kernel.copy(ids, from, to, ...rest);
      },
    };
    tick();
    await keysOfPage(
      { kernel: counted, cache, store: await storeWith([]), folder: 'keys', generations },
      rowsOf(ROWS),
      ROWS,
      64,
    );
    isOver = true;
    const all = [...portions.values()];
    expect(all.reduce((sum, { rows }) => sum + rows, 0)).toBe(ROWS);
    expect(Math.max(...all.map(({ rows }) => rows))).toBe(PORTION_ROWS);
    expect(new Set(all.map((portion) => portion.turn)).size).toBe(all.length);
  });

  it('the look-up of a batch of events waits for two reads of a page, not for all of its keys', async () => {
    const reads: number[] = [];
    const store = await storeWith(reads);
    const cache = new KeyCache(1024 * 1024);
    let isPageRead = false;
    const sources = { kernel, cache, store, folder: 'keys', generations };
    const page = keysOfPage(sources, rowsOf(ROWS), ROWS, 64).then(() => {
      isPageRead = true;
    });
    while (reads.length === 0) await turns(1);
    expect(reads).toEqual([LOOKUP_IDS, LOOKUP_IDS]);
    const ids = Int32Array.from({ length: 6 * LOOKUP_IDS }, (_, at) => (at % 2 === 0 ? 1 + at : HIGH));
    const found = await store.lookup(ids, [2]);
    expect(found.has(3 * LOOKUP_IDS - 1)).toBe(true);
    expect(isPageRead).toBe(false);
    // One read of all ids of the batch, behind the two that were there.
    expect(reads[2]).toBe(3 * LOOKUP_IDS);
    await page;
    expect(Math.max(...reads.slice(3))).toBe(LOOKUP_IDS);
  });

  it('a read that fails ends the look-up of a page without further reads', async () => {
    const reads: number[] = [];
    const store = await storeWith(reads, 3);
    const sources = { kernel, cache: new KeyCache(1024 * 1024), store, folder: 'keys', generations };
    await expect(keysOfPage(sources, rowsOf(ROWS), ROWS, 64)).rejects.toThrow('the disk is gone');
    const { length } = reads;
    await turns(20);
    expect(reads.length).toBeLessThanOrEqual(length + 1);
    expect(reads.length).toBeLessThan(8);
  });
});
