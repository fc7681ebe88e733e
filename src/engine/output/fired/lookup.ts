/** Look-up of the fired windows of one account, page by page, without reading any other account.
 *
 *  Windows lie on a grid, so their keys are known and are read with multi-gets. Sessions are read
 *  as one short range of keys for each bucket. The work of a page is bounded: a page may end before
 *  it is full, and `next` continues. */
import { floorTo } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import {
  putWindowKey,
  resultAt,
  resultsOf,
  SESSION_KEY_BYTES,
  sessionKey,
  VALUE_BYTES,
  WINDOW_KEY_BYTES,
} from './keys.ts';
import type { Places } from './places.ts';

export interface WindowBounds {
  readonly windowStart: number;
  readonly windowEnd: number;
}

export interface WindowQuery {
  readonly accountId: bigint;
  /** Range of window_start: [from, to). */
  readonly from: number;
  readonly to: number;
  readonly limit: number;
  /** Returns only windows after this one. */
  readonly after?: WindowBounds;
}

/** Ascending by window_start, window_end. */
export interface WindowPage {
  readonly rows: readonly WindowResult[];
  /** Start of the next page; undefined at the end. */
  readonly next: WindowBounds | undefined;
}

/** Keys of one multi-get. */
const PROBES_A_CALL = 512;
/** Greatest number of windows that a page looks up. */
const PROBES_MAX = 20_000;
/** Buckets that are read in parallel, and greatest number of buckets of a page. */
const BUCKETS_IN_PARALLEL = 16;
const BUCKETS_MAX = 1_024;
const SCAN_ROWS = 64;

interface Grid {
  readonly sizeMs: number;
  readonly slideMs: number;
}

/** @param held starts of the stored windows; windows that end at or before `forgotten` are not
 *  returned */
export async function findWindows(
  store: KvStore,
  grid: Grid,
  held: Places,
  forgotten: number,
  query: WindowQuery,
): Promise<WindowPage> {
  const { sizeMs, slideMs } = grid;
  const { accountId, limit, after } = query;
  const least = Math.max(
    query.from,
    held.oldest,
    forgotten - sizeMs + 1,
    after === undefined ? Number.NEGATIVE_INFINITY : after.windowStart + 1,
  );
  const last = Math.min(query.to - 1, held.newest);
  const rows: WindowResult[] = [];
  if (!(least <= last)) return { rows, next: undefined };
  let start = floorTo(least, slideMs);
  if (start < least) start += slideMs;
  for (let probes = 0; start <= last && probes < PROBES_MAX; ) {
    const left = Math.floor((last - start) / slideMs) + 1;
    const count = Math.min(left, PROBES_A_CALL, Math.max(limit - rows.length, SCAN_ROWS));
    const bytes = new Uint8Array(count * WINDOW_KEY_BYTES);
    const keys = new DataView(bytes.buffer);
    for (let i = 0; i < count; i++) {
      const at = start + i * slideMs;
      putWindowKey(keys, i * WINDOW_KEY_BYTES, at, at + sizeMs, accountId);
    }
    const found = await store.get('windows', { count, bytes, keyBytes: WINDOW_KEY_BYTES });
    const values = new DataView(found.bytes.buffer, found.bytes.byteOffset, found.bytes.byteLength);
    for (let i = 0; i < count; i++) {
      const length = found.length[i] as number;
      if (length < 0) continue;
      const windowStart = start + i * slideMs;
      const windowEnd = windowStart + sizeMs;
      if (length !== VALUE_BYTES) throw damaged(`a window's row of ${length} bytes`);
      rows.push(resultAt(values, found.start[i] as number, windowStart, windowEnd));
      if (rows.length === limit) return { rows, next: { windowStart, windowEnd } };
    }
    start += count * slideMs;
    probes += count;
  }
  const done = start - slideMs;
  return { rows, next: start <= last ? { windowStart: done, windowEnd: done + sizeMs } : undefined };
}

/** @param held stored buckets; sessions that end at or before `forgotten` are not returned */
export async function findSessions(
  store: KvStore,
  bucketMs: number,
  held: Places,
  forgotten: number,
  query: WindowQuery,
): Promise<WindowPage> {
  const { accountId, from, to, limit, after } = query;
  // A session ends after its start.
  const least = Math.max(from, held.oldest, forgotten, after?.windowEnd ?? Number.NEGATIVE_INFINITY);
  const rows: WindowResult[] = [];
  if (!(floorTo(least, bucketMs) <= held.newest) || from >= to) return { rows, next: undefined };
  let bucket = floorTo(least, bucketMs);
  for (let looked = 0; bucket <= held.newest && looked < BUCKETS_MAX; ) {
    const left = Math.floor((held.newest - bucket) / bucketMs) + 1;
    const count = Math.min(left, BUCKETS_IN_PARALLEL);
    const accept = ({ windowStart, windowEnd }: WindowResult): boolean =>
      windowStart >= from && windowEnd > forgotten;
    const reads = Array.from({ length: count }, (_, i) => {
      const one = bucket + i * bucketMs;
      const isBegun = after !== undefined && one === floorTo(after.windowEnd, bucketMs);
      if (isBegun && after.windowStart >= to) return [];
      const first = isBegun
        ? behind(sessionKey(one, accountId, after.windowStart, after.windowEnd))
        : sessionKey(one, accountId, from);
      return readBucket(store, first, sessionKey(one, accountId, to), limit - rows.length, accept);
    });
    for (const found of await Promise.all(reads)) {
      for (const row of found) {
        rows.push(row);
        if (rows.length === limit) return { rows, next: row };
      }
    }
    bucket += count * bucketMs;
    looked += count;
  }
  // Greater than every session of the buckets that were read.
  const next = { windowStart: to, windowEnd: bucket - 1 };
  return { rows, next: bucket <= held.newest ? next : undefined };
}

/** Returns the next key in byte order. */
function behind(key: Uint8Array): Uint8Array {
  const next = new Uint8Array(key.length + 1);
  next.set(key);
  return next;
}

/** Reads the first matching rows between two keys; up to a page more than requested. */
async function readBucket(
  store: KvStore,
  from: Uint8Array,
  to: Uint8Array,
  rowsMax: number,
  accept: (row: WindowResult) => boolean,
): Promise<readonly WindowResult[]> {
  const shape = { shape: 'fixed', keyBytes: SESSION_KEY_BYTES, valueBytes: VALUE_BYTES } as const;
  const scan = await store.scan('sessions', { from, to }, shape, { keepBlocks: true });
  try {
    const rows: WindowResult[] = [];
    const page = { bytes: new Uint8Array(SCAN_ROWS * (SESSION_KEY_BYTES + VALUE_BYTES)) };
    while (rows.length < rowsMax) {
      const count = await scan.next(page);
      if (count === 0) break;
      rows.push(...resultsOf(page.bytes, count, SESSION_KEY_BYTES).filter(accept));
    }
    return rows;
  } finally {
    scan.close();
  }
}

const damaged = (what: string): Error =>
  engineError('state_corrupt', `the store of fired windows holds ${what}`, {
    next: 'move its folder away; it fills again as windows fire',
  });
