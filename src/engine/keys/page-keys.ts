/** Keys of the rows of a page of results, in portions: a batch of events waits for one portion, not
 *  for a page. */
import type { KeyCopies, KeyIds, KeyKernel } from '../../addon/key-surface.ts';
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import { turn } from '../turn.ts';
import type { KeyCache } from './cache.ts';
import { KeyColumn } from './column.ts';
import { corruptKeys, type FoundKeys, type KeyStore } from './store.ts';
import { KEY_BYTES_MAX } from './type.ts';

/** Rows of a portion, which takes some milliseconds of the event loop. */
export const PORTION_ROWS = 16_384;
/** Bytes of a key that is expected. */
const KEY_BYTES = 16;
/** Room for each byte that is expected. */
const GROWTH = 1.125;
const ID = ACCUMULATOR.ACCOUNT_ID / 4;

export interface KeySources {
  readonly kernel: Pick<KeyKernel, 'copy'>;
  readonly cache: KeyCache;
  readonly store: KeyStore;
  readonly folder: string;
  /** Generations in use, oldest first. A key of a row of the state is in one of them. */
  readonly generations: ReadonlyMap<number, unknown>;
}

/** Returns the keys of rows.
 *  @param rows laid out as accumulators; borrowed until the promise settles
 *  @param rowBytes bytes of a row
 *  @throws state_corrupt if a row has an id without a key */
export async function keysOfPage(
  sources: KeySources,
  rows: Uint8Array,
  rowCount: number,
  rowBytes: number,
): Promise<KeyColumn> {
  const words = new Int32Array(rows.buffer, rows.byteOffset, (rowCount * rowBytes) / 4);
  const ids: KeyIds = { words, first: ID, rowWords: rowBytes / 4 };
  const { cached, missing } = await cachedKeys(sources, ids, rowCount);
  if (missing.length === 0) return cached;
  const found = await sources.store.lookupInParts(idsOf(ids, missing), [...sources.generations.keys()]);
  return filled(cached, missing, found, rowCount, sources.folder);
}

/** Calls `work` for the rows of each portion, each in a turn of the event loop of its own. */
async function inPortions(rowCount: number, work: (from: number, to: number) => void): Promise<void> {
  for (let from = 0; from < rowCount; from += PORTION_ROWS) {
    if (from > 0) await turn();
    work(from, Math.min(rowCount, from + PORTION_ROWS));
  }
}

/** Copies the keys that are cached: the cache may change between two portions. A row that is not
 *  cached has no bytes and is missing. */
async function cachedKeys(
  { kernel, cache, generations }: KeySources,
  ids: KeyIds,
  rowCount: number,
): Promise<{ readonly cached: KeyColumn; readonly missing: Int32Array }> {
  let into: KeyCopies = {
    bytes: new Uint8Array(rowCount * KEY_BYTES),
    ends: new Uint32Array(rowCount),
    missing: new Int32Array(rowCount),
    state: new Float64Array(2),
  };
  await inPortions(rowCount, (from, to) => {
    const used = Int32Array.from(generations.keys());
    for (let row = from; row < to; ) {
      row = kernel.copy(ids, row, to, cache, used, into);
      if (row < to) into = { ...into, bytes: larger(into, row, rowCount) };
    }
  });
  const [count, end] = into.state as unknown as [number, number];
  const cached = new KeyColumn(into.bytes.subarray(0, end), into.ends);
  return { cached, missing: into.missing.subarray(0, count) };
}

/** Copies the bytes of the first rows to as much room as all rows may need by their average. */
function larger({ bytes, state }: KeyCopies, rows: number, rowCount: number): Uint8Array {
  const end = state[1] as number;
  const expected = Math.ceil((end / Math.max(1, rows)) * rowCount * GROWTH);
  const grown = new Uint8Array(Math.max(end + KEY_BYTES_MAX, expected));
  grown.set(bytes.subarray(0, end));
  return grown;
}

/** Low and high word of the id of each row. */
function idsOf({ words, first, rowWords }: KeyIds, rows: Int32Array): Int32Array {
  const ids = new Int32Array(rows.length * 2);
  for (let i = 0; i < rows.length; i++) {
    const at = (rows[i] as number) * rowWords + first;
    ids[i * 2] = words[at] as number;
    ids[i * 2 + 1] = words[at + 1] as number;
  }
  return ids;
}

/** Returns the cached keys with those that were found in place of the missing ones. */
async function filled(
  cached: KeyColumn,
  missing: Int32Array,
  found: FoundKeys,
  rowCount: number,
  folder: string,
): Promise<KeyColumn> {
  let size = cached.end(rowCount);
  for (let i = 0; i < missing.length; i++) {
    if (!found.has(i)) throw corruptKeys(folder);
    size += found.length(i);
  }
  const bytes = new Uint8Array(size);
  const ends = new Uint32Array(rowCount);
  let [end, next] = [0, 0];
  await inPortions(rowCount, (from, to) => {
    for (let row = from; row < to; row++) {
      end = row === missing[next] ? found.copy(next++, bytes, end) : cached.copy(row, bytes, end);
      ends[row] = end;
    }
  });
  return new KeyColumn(bytes, ends);
}
