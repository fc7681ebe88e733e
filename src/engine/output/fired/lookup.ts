/** The fired windows of one account, page by page, without a look at any other account.
 *
 *  Windows lie on a grid, so their keys are known and are looked up together. Sessions are read as
 *  one short stretch of keys a bucket. Either way a page does a bounded amount of work: where it
 *  ends before it is full, `next` goes on.
 */
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
  /** On window_start: [from, to). */
  readonly from: number;
  readonly to: number;
  readonly limit: number;
  /** Only what comes behind it. */
  readonly after?: WindowBounds;
}

/** Ascending by window_start, window_end. */
export interface WindowPage {
  readonly rows: readonly WindowResult[];
  /** Where the next page goes on; undefined at the end. */
  readonly next: WindowBounds | undefined;
}

/** Keys that are looked up in one call. */
const PROBES_AT_ONCE = 512;
/** Windows that a page looks at. */
const PROBES_MAX = 20_000;
/** Buckets that are read side by side, and those that a page looks at. */
const BUCKETS_AT_ONCE = 16;
const BUCKETS_MAX = 1_024;
const SCAN_ROWS = 64;

interface Grid {
  readonly sizeMs: number;
  readonly slideMs: number;
}

/** @param held starts of the windows that are there; those that end at or before `forgotten` are
 *  not answered */
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
    const count = Math.min(left, PROBES_AT_ONCE, Math.max(limit - rows.length, SCAN_ROWS));
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

/** @param held buckets that are there; sessions that end at or before `forgotten` are not answered
 */
export async function findSessions(
  store: KvStore,
  bucketMs: number,
  held: Places,
  forgotten: number,
  query: WindowQuery,
): Promise<WindowPage> {
  const { accountId, from, to, limit, after } = query;
  // A session ends behind its start.
  const least = Math.max(from, held.oldest, forgotten, after?.windowEnd ?? Number.NEGATIVE_INFINITY);
  const rows: WindowResult[] = [];
  if (!(floorTo(least, bucketMs) <= held.newest) || from >= to) return { rows, next: undefined };
  let bucket = floorTo(least, bucketMs);
  for (let looked = 0; bucket <= held.newest && looked < BUCKETS_MAX; ) {
    const left = Math.floor((held.newest - bucket) / bucketMs) + 1;
    const count = Math.min(left, BUCKETS_AT_ONCE);
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
  // Behind every session of the buckets that were looked at.
  const next = { windowStart: to, windowEnd: bucket - 1 };
  return { rows, next: bucket <= held.newest ? next : undefined };
}

/** The key that follows. */
function behind(key: Uint8Array): Uint8Array {
  const next = new Uint8Array(key.length + 1);
  next.set(key);
  return next;
}

/** The first rows from one key to another that are wanted; a page of them may come on top of the
 *  number asked for. */
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
