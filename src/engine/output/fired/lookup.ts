/** Lookup of the fired windows of one account, page by page, without reading other accounts.
 *
 *  Aligned windows have computable keys, which are looked up together. Sessions are read as one
 *  short key range for each bucket. A page does a bounded amount of work: if it ends before it is
 *  full, `next` continues. */

import type { Keys } from '../../../core/rows.ts';
import { floorTo } from '../../../core/time.ts';
import type { KvRange, KvStore } from '../../../io/rocksdb/port.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import { keyedSessionKey, keyedWindowKey } from './keyed-rows.ts';
import { corrupt, putWindowKey, resultAt, sessionKey, WINDOW_KEY_BYTES } from './keys.ts';
import { openFiredScan } from './scan.ts';
import type { TimeRange } from './time-range.ts';

export interface WindowBounds {
  readonly windowStart: number;
  readonly windowEnd: number;
}

export interface WindowQuery {
  readonly accountId: bigint;
  /** Canonical bytes of a key that is no integer; absent: `accountId` is the key. */
  readonly key?: Uint8Array;
  /** Bounds of window_start: [from, to). */
  readonly from: number;
  readonly to: number;
  readonly limit: number;
  /** Only windows after this one. */
  readonly after?: WindowBounds;
}

/** Ascending by window_start, window_end. */
export interface WindowPage {
  readonly rows: readonly WindowResult[];
  /** Position at which the next page continues; undefined at the end. */
  readonly next: WindowBounds | undefined;
}

/** Keys of one lookup call. */
const PROBES_PER_CALL = 512;
/** Most keys that a page looks up. */
const PROBES_MAX = 20_000;
/** Buckets that are read in parallel, and the most buckets that a page reads. */
const PARALLEL_BUCKETS = 16;
const BUCKETS_MAX = 1_024;
const SCAN_ROWS = 64;

interface Grid {
  readonly sizeMs: number;
  readonly slideMs: number;
}

/** @param held range of the window starts in the store. Windows that end at or before `expiredTo`
 *  are not returned */
export async function findWindows(
  store: KvStore,
  grid: Grid,
  held: TimeRange,
  expiredTo: number,
  query: WindowQuery,
  eras: RowEras,
): Promise<WindowPage> {
  const { sizeMs, slideMs } = grid;
  const { accountId, limit, after } = query;
  const least = Math.max(
    query.from,
    held.oldest,
    expiredTo - sizeMs + 1,
    after === undefined ? Number.NEGATIVE_INFINITY : after.windowStart + 1,
  );
  const last = Math.min(query.to - 1, held.newest);
  const rows: WindowResult[] = [];
  if (!(least <= last)) return { rows, next: undefined };
  let start = floorTo(least, slideMs);
  if (start < least) start += slideMs;
  for (let probes = 0; start <= last && probes < PROBES_MAX; ) {
    const left = Math.floor((last - start) / slideMs) + 1;
    const count = Math.min(left, PROBES_PER_CALL, Math.max(limit - rows.length, SCAN_ROWS));
    const first = start;
    const startOf = (i: number): number => first + i * slideMs;
    const found = await store.get(
      'windows',
      query.key === undefined
        ? windowKeys(count, sizeMs, startOf, accountId)
        : keyedWindowKeys(count, sizeMs, startOf, query.key),
    );
    const values = new DataView(found.bytes.buffer, found.bytes.byteOffset, found.bytes.byteLength);
    for (let i = 0; i < count; i++) {
      const length = found.length[i] as number;
      if (length < 0) continue;
      const windowStart = start + i * slideMs;
      const windowEnd = windowStart + sizeMs;
      if (length !== eras.formAt(windowStart).bytes) throw corrupt(`a window's row of ${length} bytes`);
      const row = resultAt(values, found.start[i] as number, windowStart, windowEnd, eras);
      rows.push(query.key === undefined ? row : { ...row, key: query.key });
      if (rows.length === limit) return { rows, next: { windowStart, windowEnd } };
    }
    start += count * slideMs;
    probes += count;
  }
  const done = start - slideMs;
  return { rows, next: start <= last ? { windowStart: done, windowEnd: done + sizeMs } : undefined };
}

function windowKeys(count: number, sizeMs: number, startOf: (i: number) => number, accountId: bigint): Keys {
  const bytes = new Uint8Array(count * WINDOW_KEY_BYTES);
  const keys = new DataView(bytes.buffer);
  for (let i = 0; i < count; i++)
    putWindowKey(keys, i * WINDOW_KEY_BYTES, startOf(i), startOf(i) + sizeMs, accountId);
  return { count, bytes, keyBytes: WINDOW_KEY_BYTES };
}

function keyedWindowKeys(
  count: number,
  sizeMs: number,
  startOf: (i: number) => number,
  key: Uint8Array,
): Keys {
  const keys = Array.from({ length: count }, (_, i) => keyedWindowKey(startOf(i), startOf(i) + sizeMs, key));
  return { count, bytes: new Uint8Array(Buffer.concat(keys)), keyBytes: keys[0]?.length ?? 0 };
}

/** @param held range of the buckets in the store. Sessions that end at or before `expiredTo` are
 *  not returned */
export async function findSessions(
  store: KvStore,
  bucketMs: number,
  held: TimeRange,
  expiredTo: number,
  query: WindowQuery,
  eras: RowEras,
): Promise<WindowPage> {
  const { accountId, key, from, to, limit, after } = query;
  const sessionAt = (bucket: number, start: number, end?: number): Uint8Array =>
    key === undefined ? sessionKey(bucket, accountId, start, end) : keyedSessionKey(bucket, key, start, end);
  // A session ends after its start, so `from` also bounds its end.
  const least = Math.max(from, held.oldest, expiredTo, after?.windowEnd ?? Number.NEGATIVE_INFINITY);
  const rows: WindowResult[] = [];
  if (!(floorTo(least, bucketMs) <= held.newest) || from >= to) return { rows, next: undefined };
  let bucket = floorTo(least, bucketMs);
  for (let visited = 0; bucket <= held.newest && visited < BUCKETS_MAX; ) {
    const left = Math.floor((held.newest - bucket) / bucketMs) + 1;
    const count = Math.min(left, PARALLEL_BUCKETS);
    const accept = ({ windowStart, windowEnd }: WindowResult): boolean =>
      windowStart >= from && windowEnd > expiredTo;
    const reads = Array.from({ length: count }, (_, i) => {
      const start = bucket + i * bucketMs;
      const isResumed = after !== undefined && start === floorTo(after.windowEnd, bucketMs);
      if (isResumed && after.windowStart >= to) return [];
      const first = isResumed
        ? keyAfter(sessionAt(start, after.windowStart, after.windowEnd))
        : sessionAt(start, from);
      const range = { from: first, to: sessionAt(start, to) };
      return readBucket(store, eras, range, key !== undefined, limit - rows.length, accept);
    });
    for (const found of await Promise.all(reads)) {
      for (const row of found) {
        rows.push(row);
        if (rows.length === limit) return { rows, next: row };
      }
    }
    bucket += count * bucketMs;
    visited += count;
  }
  // A position after every session of the buckets that were read.
  const next = { windowStart: to, windowEnd: bucket - 1 };
  return { rows, next: bucket <= held.newest ? next : undefined };
}

/** The next key in byte order. */
function keyAfter(key: Uint8Array): Uint8Array {
  const next = new Uint8Array(key.length + 1);
  next.set(key);
  return next;
}

/** Returns the first accepted rows of a range; at most one scan page more than `rowsMax`. */
async function readBucket(
  store: KvStore,
  eras: RowEras,
  range: KvRange,
  isKeyed: boolean,
  rowsMax: number,
  accept: (row: WindowResult) => boolean,
): Promise<readonly WindowResult[]> {
  const scan = await openFiredScan(store, 'sessions', range, {
    ...{ eras, isKeyed, rows: SCAN_ROWS, keepBlocks: true },
  });
  try {
    const rows: WindowResult[] = [];
    while (rows.length < rowsMax) {
      const read = await scan.next();
      if (read.length === 0) break;
      rows.push(...read.filter(accept));
    }
    return rows;
  } finally {
    scan.close();
  }
}
