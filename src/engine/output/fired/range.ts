/** Fired windows of all keys in a range of time: in pages, and the first by a column.
 *
 *  Rows are visited in the order of the store: windows by (window_start, window_end, key), sessions
 *  by (bucket of window_end, key, window_start, window_end). Every scan page is a turn of the event
 *  loop. */
import { floorTo } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import { engineError } from '../../errors.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import { type ColumnValue, type ResultColumn, rankOf } from '../columns.ts';
import { keyedSessionKey, keyedWindowKey } from './keyed-rows.ts';
import { putWindowKey, sessionKey, timeKey, WINDOW_KEY_BYTES } from './keys.ts';
import type { Mark } from './mark.ts';
import { openFiredScan } from './scan.ts';

export interface RangeQuery {
  /** Bounds of window_start: [from, to). */
  readonly from: number;
  readonly to: number;
  readonly limit: number;
  /** Key in the store of the last row of the page before. */
  readonly after?: Uint8Array | undefined;
}

export interface RangePage {
  readonly rows: readonly WindowResult[];
  /** Key behind which the next page continues; undefined at the end. */
  readonly next: Uint8Array | undefined;
}

export interface TopQuery extends Pick<RangeQuery, 'from' | 'to'> {
  /** Number of windows, at most TOP_LIMIT_MAX. */
  readonly top: number;
  /** Column of numbers or times whose greatest values are wanted. */
  readonly by: ResultColumn;
}

/** Windows of one answer of the greatest. */
export const TOP_LIMIT_MAX = 1_000;
/** Most windows that a search for the greatest visits, some seconds of work. */
export const TOP_VISITS_MAX = 1_000_000;
/** Most windows that a page visits. */
const PAGE_VISITS_MAX = 20_000;
/** Rows of one scan page: decoding them takes a few ms. */
const SCAN_ROWS = 2_048;

/** Store of fired windows, and what of it is visible. */
export interface RangeSource {
  readonly store: KvStore;
  readonly mark: Mark;
  readonly eras: RowEras;
  /** Windows that end at or before this time have expired. */
  readonly expiredTo: number;
}

/** Rows of a scan page that are in the range. */
interface VisitedPage {
  readonly rows: readonly WindowResult[];
  /** Number of rows of the page, and the last of them, in the range or not. */
  readonly visited: number;
  readonly last: WindowResult;
}

/** Visits the rows from a key or time on, page by page. */
async function* visit(
  { store, mark, eras, expiredTo }: RangeSource,
  { from, to, after }: Pick<RangeQuery, 'from' | 'to' | 'after'>,
): AsyncIterable<VisitedPage> {
  if (from >= to) return;
  const family = mark.shape.kind;
  // A session ends after its start, so its bucket is not before that of `from`; it may be long.
  const first = timeKey(family === 'windows' ? from : floorTo(from, mark.bucketMs));
  const range = {
    from: after === undefined ? first : later(first, keyAfter(after)),
    to: family === 'windows' ? timeKey(to) : null,
  };
  if (range.to !== null && Buffer.compare(range.from, range.to) >= 0) return;
  const isKeyed = mark.key !== undefined;
  const scan = await openFiredScan(store, family, range, { eras, isKeyed, rows: SCAN_ROWS });
  try {
    for (let read = await scan.next(); read.length > 0; read = await scan.next()) {
      const rows = read.filter(
        ({ windowStart, windowEnd }) => windowStart >= from && windowStart < to && windowEnd > expiredTo,
      );
      yield { rows, visited: read.length, last: read.at(-1) as WindowResult };
    }
  } finally {
    scan.close();
  }
}

/** Finds a page of the windows in a range, in the order of the store. A page may be empty and have
 *  a next one. */
export async function findRange(source: RangeSource, query: RangeQuery): Promise<RangePage> {
  const rows: WindowResult[] = [];
  let visited = 0;
  for await (const page of visit(source, query)) {
    for (const row of page.rows) {
      if (rows.length === query.limit) return { rows, next: keyOf(source.mark, rows.at(-1) as WindowResult) };
      rows.push(row);
    }
    visited += page.visited;
    if (visited >= PAGE_VISITS_MAX) return { rows, next: keyOf(source.mark, page.last) };
  }
  return { rows, next: undefined };
}

/** Finds the windows of a range with the greatest values of a column, the greatest first; of equal
 *  ones the first in the order of the store.
 *  @throws range_too_wide beyond TOP_VISITS_MAX windows */
export async function findTop(
  source: RangeSource,
  { from, to, top, by }: TopQuery,
): Promise<readonly WindowResult[]> {
  const greatest = new Greatest(top, by);
  let visited = 0;
  for await (const page of visit(source, { from, to })) {
    visited += page.visited;
    if (visited > TOP_VISITS_MAX) throw tooWide();
    for (const row of page.rows) greatest.add(row);
  }
  return greatest.rows();
}

const tooWide = (): Error =>
  engineError('range_too_wide', `more than ${TOP_VISITS_MAX} windows are in this range of time`, {
    next: 'give from and to that are nearer to each other',
  });

interface Ranked {
  readonly value: ColumnValue;
  readonly place: number;
  readonly row: WindowResult;
}

/** The rows with the greatest values, as a binary heap with the least of them at the root. */
class Greatest {
  private readonly most: number;
  private readonly by: ResultColumn;
  private readonly heap: Ranked[] = [];
  private added = 0;

  constructor(most: number, by: ResultColumn) {
    this.most = most;
    this.by = by;
  }

  add(row: WindowResult): void {
    const one = { value: rankOf(this.by, row), place: this.added++, row };
    const { heap } = this;
    if (heap.length < this.most) {
      heap.push(one);
      this.rise(heap.length - 1);
    } else if (isLess(heap[0] as Ranked, one)) {
      heap[0] = one;
      this.sink();
    }
  }

  rows(): readonly WindowResult[] {
    return this.heap.toSorted((a, b) => (a === b ? 0 : isLess(a, b) ? 1 : -1)).map(({ row }) => row);
  }

  private rise(from: number): void {
    const { heap } = this;
    for (let at = from; at > 0; ) {
      const parent = (at - 1) >> 1;
      if (!isLess(heap[at] as Ranked, heap[parent] as Ranked)) return;
      this.swap(at, parent);
      at = parent;
    }
  }

  private sink(): void {
    const { heap } = this;
    for (let at = 0; ; ) {
      const left = 2 * at + 1;
      let least = at;
      for (const child of [left, left + 1])
        if (child < heap.length && isLess(heap[child] as Ranked, heap[least] as Ranked)) least = child;
      if (least === at) return;
      this.swap(at, least);
      at = least;
    }
  }

  private swap(a: number, b: number): void {
    const { heap } = this;
    [heap[a], heap[b]] = [heap[b] as Ranked, heap[a] as Ranked];
  }
}

/** Order of the ranks: a row without a value is the least, NaN is greater than every number as it
 *  is for max, and of equal values the later row is the lesser one. */
function isLess(a: Ranked, b: Ranked): boolean {
  if (Object.is(a.value, b.value) || a.value === b.value) return a.place > b.place;
  if (a.value === null || b.value === null) return a.value === null;
  if (Number.isNaN(a.value) || Number.isNaN(b.value)) return Number.isNaN(b.value);
  return a.value < b.value;
}

/** Key of a row in the store. */
function keyOf({ shape, bucketMs }: Mark, { key, accountId, windowStart, windowEnd }: WindowResult) {
  if (shape.kind === 'sessions') {
    const bucket = floorTo(windowEnd, bucketMs);
    return key === undefined
      ? sessionKey(bucket, accountId, windowStart, windowEnd)
      : keyedSessionKey(bucket, key, windowStart, windowEnd);
  }
  if (key !== undefined) return keyedWindowKey(windowStart, windowEnd, key);
  const bytes = new Uint8Array(WINDOW_KEY_BYTES);
  putWindowKey(new DataView(bytes.buffer), 0, windowStart, windowEnd, accountId);
  return bytes;
}

/** The next key in byte order. */
function keyAfter(key: Uint8Array): Uint8Array {
  const next = new Uint8Array(key.length + 1);
  next.set(key);
  return next;
}

const later = (a: Uint8Array, b: Uint8Array): Uint8Array => (Buffer.compare(a, b) >= 0 ? a : b);
