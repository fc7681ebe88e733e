/** Layout of fired rows in a store. Values are the accumulators with their cells; keys sort by
 *  bytes.
 *
 *      windows   window_start | window_end | account_id
 *      sessions  bucket | account_id | window_start | window_end
 *
 *  Times are 64 bits big-endian with the sign bit flipped; account_id is an unsigned 64-bit
 *  big-endian number. A window is one contiguous key range that ascends like its rows, so a large
 *  window is ingested as a sorted run after the earlier windows. A single key of a known window is
 *  looked up directly.
 *  A bucket is an interval of event time that contains the ends of its sessions. The sessions of an
 *  account are adjacent within a bucket, and a bucket is deleted as a whole. */
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import { RowForm } from '../../../core/layout/row-form.ts';
import { getOrdered, putOrdered } from '../../../core/ordered.ts';
import type { FixedRows } from '../../../core/rows.ts';
import { floorTo } from '../../../core/time.ts';
import type { KvPage } from '../../../io/rocksdb/port.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import { engineError } from '../../errors.ts';
import { isEarlyRow, type WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import { ResultRows } from '../sink/rows.ts';
import { sessionOrder } from './session-order.ts';

export const WINDOW_KEY_BYTES = 24;
export const SESSION_KEY_BYTES = 32;
/** Bytes of a window key before the account. */
const WINDOW_PREFIX_BYTES = 16;

/** Encodes the leading time of a key: a lower bound of all keys with this time or a later one. */
export function timeKey(time: number): Uint8Array {
  const key = new Uint8Array(8);
  putOrdered(new DataView(key.buffer), 0, time);
  return key;
}

export const timeOf = (key: Uint8Array): number => getOrdered(new DataView(key.buffer, key.byteOffset, 8), 0);

export function windowPrefix(start: number, end: number): Uint8Array {
  const prefix = new Uint8Array(WINDOW_PREFIX_BYTES);
  const view = new DataView(prefix.buffer);
  putOrdered(view, 0, start);
  putOrdered(view, 8, end);
  return prefix;
}

export function putWindowKey(
  view: DataView,
  at: number,
  start: number,
  end: number,
  accountId: bigint,
): void {
  putOrdered(view, at, start);
  putOrdered(view, at + 8, end);
  view.setBigUint64(at + 16, accountId);
}

/** Lower bound of the keys of the account's sessions in a bucket that start at `start` or later. */
export function sessionKey(bucket: number, accountId: bigint, start: number, end?: number): Uint8Array {
  const key = new Uint8Array(end === undefined ? 24 : SESSION_KEY_BYTES);
  const view = new DataView(key.buffer);
  putOrdered(view, 0, bucket);
  view.setBigUint64(8, accountId);
  putOrdered(view, 16, start);
  if (end !== undefined) putOrdered(view, 24, end);
  return key;
}

/** Rows of a portion, which are encoded in one turn of the event loop. */
const SORTED_ROWS = 4096;

type PutKey = (view: DataView, at: number, rows: ResultRows, row: number) => void;

/** Encodes rows, each after its key: those of `order`, or all in page order. */
function keyed(
  pages: readonly FiredPage[],
  keyBytes: number,
  putKey: PutKey,
  order?: Uint32Array,
): FixedRows {
  const valueBytes = (pages[0]?.form ?? RowForm.HEADS).bytes;
  const stride = keyBytes + valueBytes;
  const count = order?.length ?? pages.reduce((sum, page) => sum + page.rowCount, 0);
  const bytes = new Uint8Array(count * stride);
  const view = new DataView(bytes.buffer);
  const words = new Int32Array(bytes.buffer);
  let at = 0;
  for (const page of pages) {
    const rows = new ResultRows(page);
    const rowCount = order?.length ?? page.rowCount;
    for (let i = 0; i < rowCount; i++) {
      const row = order === undefined ? i : (order[i] as number);
      putKey(view, at, rows, row);
      const to = (at + keyBytes) / 4;
      const from = row * rows.rowWords;
      for (let word = 0; word < rows.rowWords; word++) words[to + word] = rows.words[from + word] as number;
      at += stride;
    }
  }
  return { shape: 'fixed', count, bytes, keyBytes, valueBytes };
}

/** Writes the account_id of a row without creating a bigint. */
function putAccount(view: DataView, at: number, rows: ResultRows, row: number): void {
  view.setInt32(at, rows.words[row * rows.rowWords + 1] as number);
  view.setInt32(at + 4, rows.words[row * rows.rowWords] as number);
}

export const keyedWindows = (pages: readonly FiredPage[]): FixedRows =>
  keyed(pages, WINDOW_KEY_BYTES, (view, at, rows, row) => {
    putOrdered(view, at, rows.windowStart(row));
    putOrdered(view, at + 8, rows.windowEnd(row));
    putAccount(view, at + 16, rows, row);
  });

const sessionKeys =
  (bucketMs: number): PutKey =>
  (view, at, rows, row) => {
    const end = rows.windowEnd(row);
    putOrdered(view, at, floorTo(end, bucketMs));
    putAccount(view, at + 8, rows, row);
    putOrdered(view, at + 16, rows.windowStart(row));
    putOrdered(view, at + 24, end);
  };

export const keyedSessions = (pages: readonly FiredPage[], bucketMs: number): FixedRows =>
  keyed(pages, SESSION_KEY_BYTES, sessionKeys(bucketMs));

/** Yields the sessions of a page for a sorted run, whose keys ascend, in portions. */
export function* sortedSessions(page: FiredPage, bucketMs: number): Iterable<FixedRows> {
  const order = sessionOrder(new ResultRows(page), bucketMs);
  for (let from = 0; from < order.length; from += SORTED_ROWS)
    yield keyed([page], SESSION_KEY_BYTES, sessionKeys(bucketMs), order.subarray(from, from + SORTED_ROWS));
}

/** Decodes a value, with the bounds from its key. */
export function resultAt(
  view: DataView,
  at: number,
  start: number,
  end: number,
  eras: RowEras,
): WindowResult {
  const aggregated = eras.read(view, at, start);
  const sum = view.getBigInt64(at + ACCUMULATOR.SUM_LOW, true);
  return {
    ...(aggregated === undefined ? {} : { aggregates: aggregated.values }),
    ...(isEarlyRow(view, at) ? { isEarly: true as const } : {}),
    accountId: view.getBigUint64(at + ACCUMULATOR.ACCOUNT_ID, true),
    windowStart: start,
    windowEnd: end,
    count: view.getBigUint64(at + ACCUMULATOR.COUNT, true),
    sum,
    min: view.getBigInt64(at + ACCUMULATOR.MIN, true),
    max: view.getBigInt64(at + ACCUMULATOR.MAX, true),
    lastUpdateTs: view.getBigInt64(at + ACCUMULATOR.LAST_UPDATE_TS, true),
    overflow:
      aggregated?.overflow ?? view.getBigInt64(at + ACCUMULATOR.SUM_HIGH, true) !== (sum < 0n ? -1n : 0n),
  };
}

/** Decodes the rows of a scan page of a family. */
export function resultsOf(page: Uint8Array, count: number, keyBytes: number, eras: RowEras): WindowResult[] {
  const view = new DataView(page.buffer, page.byteOffset, page.byteLength);
  const rowBytes = keyBytes + eras.current.bytes;
  return Array.from({ length: count }, (_, row) => resultBehind(view, row * rowBytes, keyBytes, eras));
}

/** Decodes the rows of a scan page whose rows have several forms. @throws state_corrupt */
export function spanResults(
  { bytes, ends }: Required<KvPage>,
  count: number,
  keyBytes: number,
  eras: RowEras,
): WindowResult[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: count }, (_, row) => {
    const from = row === 0 ? 0 : (ends[row * 2 - 1] as number);
    const length = (ends[row * 2 + 1] as number) - (ends[row * 2] as number);
    const start = getOrdered(view, from + boundsAt(keyBytes));
    if (length !== eras.formAt(start).bytes) throw corrupt(`a row of ${length} bytes`);
    return resultBehind(view, from, keyBytes, eras);
  });
}

const boundsAt = (keyBytes: number): number => (keyBytes === WINDOW_KEY_BYTES ? 0 : 16);

/** Decodes a row whose key is at a byte offset. */
function resultBehind(view: DataView, at: number, keyBytes: number, eras: RowEras): WindowResult {
  const bounds = at + boundsAt(keyBytes);
  return resultAt(view, at + keyBytes, getOrdered(view, bounds), getOrdered(view, bounds + 8), eras);
}

export const corrupt = (what: string): Error =>
  engineError('state_corrupt', `the store of fired windows holds ${what}`, {
    next: 'move its folder away; a new store fills as windows fire',
  });
