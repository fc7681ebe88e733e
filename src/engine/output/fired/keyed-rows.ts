/** Layout of fired rows whose keys are no integers. Values are the accumulators with their cells,
 *  with zeros instead of the id; keys sort by bytes.
 *
 *      windows   window_start | window_end | bytes of the key
 *      sessions  bucket | length of the key u16 | bytes of the key | window_start | window_end
 *
 *  Times are as in keys.ts. The length keeps the sessions of a key adjacent when another key begins
 *  with the same bytes. */
import { ROW_BYTES_MAX, RowForm } from '../../../core/layout/row-form.ts';
import { getOrdered, putOrdered } from '../../../core/ordered.ts';
import { copySpan, type KeyedRows, type SpanRows } from '../../../core/rows.ts';
import { floorTo } from '../../../core/time.ts';
import type { KvPage } from '../../../io/rocksdb/port.ts';
import type { RowEras } from '../../aggregate/eras.ts';
import { KEY_BYTES_MAX } from '../../keys/type.ts';
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';
import { ResultRows } from '../sink/rows.ts';
import { resultAt, windowPrefix } from './keys.ts';

const BOUNDS_BYTES = 16;
const LENGTH_BYTES = 2;
const BUCKET_BYTES = 8;
const SESSION_BYTES = BUCKET_BYTES + LENGTH_BYTES + BOUNDS_BYTES;
/** Bytes of the longest row. */
export const KEYED_ROW_BYTES_MAX = SESSION_BYTES + KEY_BYTES_MAX + ROW_BYTES_MAX;
const ID_BYTES = 8;

/** Key of a window. */
export function keyedWindowKey(start: number, end: number, key: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(BOUNDS_BYTES + key.length);
  const view = new DataView(bytes.buffer);
  putOrdered(view, 0, start);
  putOrdered(view, 8, end);
  bytes.set(key, BOUNDS_BYTES);
  return bytes;
}

/** Lower bound of the sessions of a key in a bucket that start at `start` or later. */
export function keyedSessionKey(bucket: number, key: Uint8Array, start: number, end?: number): Uint8Array {
  const bytes = new Uint8Array(SESSION_BYTES + key.length - (end === undefined ? 8 : 0));
  const view = new DataView(bytes.buffer);
  putOrdered(view, 0, bucket);
  view.setUint16(BUCKET_BYTES, key.length);
  bytes.set(key, BUCKET_BYTES + LENGTH_BYTES);
  const at = BUCKET_BYTES + LENGTH_BYTES + key.length;
  putOrdered(view, at, start);
  if (end !== undefined) putOrdered(view, at + 8, end);
  return bytes;
}

/** Rows of one window, in page order. REQUIRES: the page has keys */
export function windowRows(page: FiredPage): KeyedRows {
  const { bounds, rows, rowCount, keys, form = RowForm.HEADS } = page;
  if (bounds.kind !== 'window' || keys === undefined) throw new RangeError('the page is no window by keys');
  const { bytes, ends } = keys.spans(rowCount);
  const prefix = windowPrefix(bounds.start, bounds.end);
  const values = { bytes: rows, recordBytes: form.bytes, zeroBytes: ID_BYTES };
  return { shape: 'keyed', count: rowCount, prefix, keys: bytes, ends, ...values };
}

/** Encodes rows in page order. @param bucketMs length of a bucket of sessions; absent: windows */
export function keyedRows(pages: readonly FiredPage[], bucketMs?: number): SpanRows {
  const all = pages.map((page) => new ResultRows(page));
  const headBytes = bucketMs === undefined ? BOUNDS_BYTES : SESSION_BYTES;
  let [count, size] = [0, 0];
  for (const rows of all) {
    count += rows.rowCount;
    for (let row = 0; row < rows.rowCount; row++) size += headBytes + rows.keyLength(row) + rows.rowWords * 4;
  }
  const bytes = new Uint8Array(size);
  const ends = new Uint32Array(2 * count);
  const view = new DataView(bytes.buffer);
  let [end, cell] = [0, 0];
  for (const [index, rows] of all.entries()) {
    const values = (pages[index] as FiredPage).rows;
    const rowBytes = rows.rowWords * 4;
    for (let row = 0; row < rows.rowCount; row++) {
      end =
        bucketMs === undefined
          ? putWindowKey(view, bytes, end, rows, row)
          : putSessionKey(view, bytes, end, rows, row, bucketMs);
      ends[cell++] = end;
      // The id of a key is a matter of the state alone, so its bytes stay zero.
      end = copySpan(values, row * rowBytes + ID_BYTES, (row + 1) * rowBytes, bytes, end + ID_BYTES);
      ends[cell++] = end;
    }
  }
  return { shape: 'spans', count, bytes, ends };
}

/** Writes the key of a row at `at`; returns its end. The same for sessions below. */
function putWindowKey(view: DataView, into: Uint8Array, at: number, rows: ResultRows, row: number): number {
  putOrdered(view, at, rows.windowStart(row));
  putOrdered(view, at + 8, rows.windowEnd(row));
  return rows.copyKey(row, into, at + BOUNDS_BYTES);
}

function putSessionKey(
  view: DataView,
  into: Uint8Array,
  at: number,
  rows: ResultRows,
  row: number,
  bucketMs: number,
): number {
  const [start, end] = [rows.windowStart(row), rows.windowEnd(row)];
  putOrdered(view, at, floorTo(end, bucketMs));
  view.setUint16(at + BUCKET_BYTES, rows.keyLength(row));
  const boundsAt = rows.copyKey(row, into, at + BUCKET_BYTES + LENGTH_BYTES);
  putOrdered(view, boundsAt, start);
  putOrdered(view, boundsAt + 8, end);
  return boundsAt + BOUNDS_BYTES;
}

/** Page for scans of keyed rows. */
export const keyedPage = (rows: number): Required<KvPage> => ({
  bytes: new Uint8Array(Math.max(KEYED_ROW_BYTES_MAX, rows * 256)),
  ends: new Uint32Array(2 * rows),
});

/** Decodes the rows of a scan page of a family. */
export function keyedResults(
  { bytes, ends }: Required<KvPage>,
  count: number,
  family: 'windows' | 'sessions',
  eras: RowEras,
): WindowResult[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isWindow = family === 'windows';
  return Array.from({ length: count }, (_, row) => {
    const from = row === 0 ? 0 : (ends[row * 2 - 1] as number);
    const keyEnd = ends[row * 2] as number;
    const boundsAt = isWindow ? from : keyEnd - BOUNDS_BYTES;
    const key = isWindow
      ? bytes.slice(from + BOUNDS_BYTES, keyEnd)
      : bytes.slice(from + BUCKET_BYTES + LENGTH_BYTES, keyEnd - BOUNDS_BYTES);
    const [start, end] = [getOrdered(view, boundsAt), getOrdered(view, boundsAt + 8)];
    return { ...resultAt(view, keyEnd, start, end, eras), key };
  });
}
