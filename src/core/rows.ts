/** Batches of key-value rows, in four shapes. Stores read and write rows as batches.
 *
 *  `spans`    rows of any sizes: row i begins where row i - 1 ends (row 0 at 0); `ends` has the end
 *             of its key and the end of its value.
 *  `fixed`    rows of one size: key and value of row i are at i * (keyBytes + valueBytes), one
 *             after the other.
 *  `records`  values that contain their own key: the key is `prefix` and then, big-endian, the
 *             little-endian 64-bit word at `wordAt` of the record. Records ascend by that word
 *             (unsigned). With `perValue` above 1 a value is that many records (the last value of
 *             a batch may have fewer) under the key of its first record. Runs that are only
 *             scanned avoid the work for each row that way.
 *  `keyed`    records whose keys are apart: key i is `prefix` and then the bytes of `keys` from
 *             where key i - 1 ends (key 0 at 0) to ends[i]. The first `zeroBytes` bytes of a value
 *             are zeros, whatever the record has there.
 */
import { coreError } from './errors.ts';

export const KEY_BYTES_MAX = 4096;
/** Longer spans are copied by one call, which costs as much as this many bytes. */
const LOOP_BYTES_MAX = 96;
const VALUE_BYTES_MAX = 64 * 1024 * 1024;
const WORD_BYTES = 8;

/** Copies the bytes [from, to) to `at`, without an object for a short span. Returns the end. */
export function copySpan(bytes: Uint8Array, from: number, to: number, into: Uint8Array, at: number): number {
  if (to - from > LOOP_BYTES_MAX) into.set(bytes.subarray(from, to), at);
  else for (let i = from, end = at; i < to; i++, end++) into[end] = bytes[i] as number;
  return at + to - from;
}

interface Memory {
  readonly count: number;
  readonly bytes: Uint8Array;
}

export interface SpanRows extends Memory {
  readonly shape: 'spans';
  /** Two cells a row. */
  readonly ends: Uint32Array;
}

export interface FixedRows extends Memory {
  readonly shape: 'fixed';
  readonly keyBytes: number;
  readonly valueBytes: number;
}

export interface RecordRows extends Memory {
  readonly shape: 'records';
  readonly recordBytes: number;
  readonly prefix: Uint8Array;
  readonly wordAt: number;
  /** Records in a value; absent: 1. */
  readonly perValue?: number;
}

export interface KeyedRows extends Memory {
  readonly shape: 'keyed';
  readonly recordBytes: number;
  readonly prefix: Uint8Array;
  readonly keys: Uint8Array;
  /** One cell a row. */
  readonly ends: Uint32Array;
  readonly zeroBytes: number;
}

export type Rows = SpanRows | FixedRows | RecordRows | KeyedRows;

/** Rows that a store can sort by their keys. */
export type SortableRows = SpanRows | KeyedRows;

/** Keys without values: all of `keyBytes` bytes, or with one cell of `ends` a key. */
export interface Keys extends Memory {
  readonly keyBytes?: number;
  readonly ends?: Uint32Array;
}

const bad = (why: string): Error => coreError('out_of_range', why);

function demandCount(count: number, bytes: Uint8Array, stride: number): void {
  if (!Number.isInteger(count) || count < 0 || count > 0xffff_ffff) throw bad(`count: ${count} is no count`);
  if (count * stride > bytes.length)
    throw bad(`bytes: ${bytes.length}, fewer than ${count} of ${stride} bytes need`);
}

function demandSize(name: string, size: number, least: number, most: number): void {
  if (!Number.isInteger(size) || size < least || size > most)
    throw bad(`${name}: from ${least} to ${most}, not ${size}`);
}

/** Checks that the spans of `ends` lie inside the buffer, and the sizes of keys and values inside
 *  their bounds. */
function demandSpans(rows: SpanRows): void {
  demandCount(rows.count, rows.bytes, 0);
  if (rows.ends.length < rows.count * 2)
    throw bad(`ends: ${rows.ends.length} cells, two are needed for each row`);
  let at = 0;
  for (let i = 0; i < rows.count; i++) {
    const keyEnd = rows.ends[i * 2] as number;
    const end = rows.ends[i * 2 + 1] as number;
    if (keyEnd <= at || keyEnd - at > KEY_BYTES_MAX)
      throw bad(`row ${i}: a key has from 1 to ${KEY_BYTES_MAX} bytes`);
    if (end < keyEnd || end - keyEnd > VALUE_BYTES_MAX || end > rows.bytes.length)
      throw bad(`row ${i}: its value leaves the buffer or its bounds`);
    at = end;
  }
}

function demandKeyed(rows: KeyedRows): void {
  const { count, keys, ends, prefix, recordBytes } = rows;
  demandSize('recordBytes', recordBytes, 0, VALUE_BYTES_MAX);
  demandSize('zeroBytes', rows.zeroBytes, 0, recordBytes);
  demandCount(count, rows.bytes, recordBytes);
  if (ends.length < count) throw bad(`ends: ${ends.length} cells, one is needed for each row`);
  for (let i = 0, at = 0; i < count; i++) {
    const end = ends[i] as number;
    const length = prefix.length + end - at;
    if (end < at || end > keys.length || length < 1 || length > KEY_BYTES_MAX)
      throw bad(`row ${i}: its key leaves the buffer or has not from 1 to ${KEY_BYTES_MAX} bytes`);
    at = end;
  }
}

/** Checks rows. @throws out_of_range for a count, a size or a span that the shape does not allow */
export function demandRows(rows: Rows): void {
  switch (rows.shape) {
    case 'spans':
      demandSpans(rows);
      break;
    case 'fixed':
      demandSize('keyBytes', rows.keyBytes, 1, KEY_BYTES_MAX);
      demandSize('valueBytes', rows.valueBytes, 0, VALUE_BYTES_MAX);
      demandCount(rows.count, rows.bytes, rows.keyBytes + rows.valueBytes);
      break;
    case 'records':
      demandSize('recordBytes', rows.recordBytes, WORD_BYTES, VALUE_BYTES_MAX);
      demandSize('wordAt', rows.wordAt, 0, rows.recordBytes - WORD_BYTES);
      demandSize('perValue', rows.perValue ?? 1, 1, Math.floor(VALUE_BYTES_MAX / rows.recordBytes));
      demandSize('the length of prefix', rows.prefix.length, 0, KEY_BYTES_MAX - WORD_BYTES);
      demandCount(rows.count, rows.bytes, rows.recordBytes);
      break;
    case 'keyed':
      demandKeyed(rows);
      break;
  }
}

/** @throws out_of_range */
export function demandKeys(keys: Keys): void {
  if (keys.ends === undefined) {
    demandSize('keyBytes', keys.keyBytes ?? 0, 1, KEY_BYTES_MAX);
    demandCount(keys.count, keys.bytes, keys.keyBytes ?? 0);
    return;
  }
  demandCount(keys.count, keys.bytes, 0);
  if (keys.ends.length < keys.count) throw bad(`ends: ${keys.ends.length} cells, one is needed for each key`);
  for (let i = 0, at = 0; i < keys.count; i++) {
    const end = keys.ends[i] as number;
    if (end <= at || end - at > KEY_BYTES_MAX || end > keys.bytes.length)
      throw bad(`key ${i}: it has from 1 to ${KEY_BYTES_MAX} bytes and stays inside its buffer`);
    at = end;
  }
}

/** Yields each key and value in order, as views of the rows' memory; the key of a record and both
 *  of a keyed record are copies. Allocates one object a row, for drivers without a batch interface.
 *  `rows` has passed demandRows. */
export function* eachRow(rows: Rows): Generator<readonly [key: Uint8Array, value: Uint8Array]> {
  const { bytes, count } = rows;
  if (rows.shape === 'spans') {
    for (let i = 0, at = 0; i < count; i++) {
      const keyEnd = rows.ends[i * 2] as number;
      const end = rows.ends[i * 2 + 1] as number;
      yield [bytes.subarray(at, keyEnd), bytes.subarray(keyEnd, end)];
      at = end;
    }
  } else if (rows.shape === 'fixed') {
    const stride = rows.keyBytes + rows.valueBytes;
    for (let i = 0; i < count; i++) {
      const at = i * stride;
      yield [bytes.subarray(at, at + rows.keyBytes), bytes.subarray(at + rows.keyBytes, at + stride)];
    }
  } else if (rows.shape === 'keyed') {
    const { recordBytes, prefix, keys, ends, zeroBytes } = rows;
    for (let i = 0, at = 0; i < count; i++) {
      const end = ends[i] as number;
      const key = new Uint8Array(prefix.length + end - at);
      key.set(prefix);
      key.set(keys.subarray(at, end), prefix.length);
      const value = bytes.slice(i * recordBytes, (i + 1) * recordBytes);
      yield [key, value.fill(0, 0, zeroBytes)];
      at = end;
    }
  } else {
    const { recordBytes, prefix, wordAt, perValue = 1 } = rows;
    for (let i = 0; i < count; i += perValue) {
      const at = i * recordBytes;
      const key = new Uint8Array(prefix.length + WORD_BYTES);
      key.set(prefix);
      for (let b = 0; b < WORD_BYTES; b++)
        key[prefix.length + b] = bytes[at + wordAt + WORD_BYTES - 1 - b] as number;
      yield [key, bytes.subarray(at, Math.min(count, i + perValue) * recordBytes)];
    }
  }
}

/** Index of the first record whose word does not exceed the word before it, or -1. */
export function firstUnsorted(rows: RecordRows): number {
  const view = new DataView(rows.bytes.buffer, rows.bytes.byteOffset, rows.bytes.byteLength);
  let high = -1;
  let low = 0;
  for (let i = 0; i < rows.count; i++) {
    const at = i * rows.recordBytes + rows.wordAt;
    const nextLow = view.getUint32(at, true);
    const nextHigh = view.getUint32(at + 4, true);
    if (nextHigh < high || (nextHigh === high && nextLow <= low)) return i;
    high = nextHigh;
    low = nextLow;
  }
  return -1;
}

/** Returns copies of the rows, ascending by their keys; of rows with equal keys the last. `rows`
 *  has passed demandRows. */
export function sortedRows(rows: SortableRows): ReadonlyArray<readonly [Uint8Array, Uint8Array]> {
  const all = Array.from(eachRow(rows), ([key, value]) => [key.slice(), value.slice()] as const);
  // The sort is stable.
  all.sort(([a], [b]) => compareKeys(a, b));
  return all.filter(([key], at) => {
    const next = all[at + 1];
    return next === undefined || compareKeys(key, next[0]) !== 0;
  });
}

/** Yields each key as a view. `keys` has passed demandKeys. */
export function* eachKey(keys: Keys): Generator<Uint8Array> {
  for (let i = 0, at = 0; i < keys.count; i++) {
    const end = keys.ends === undefined ? at + (keys.keyBytes as number) : (keys.ends[i] as number);
    yield keys.bytes.subarray(at, end);
    at = end;
  }
}

/** Compares keys by unsigned bytes; a prefix sorts before its extensions. */
export function compareKeys(a: Uint8Array, b: Uint8Array): number {
  const shared = Math.min(a.length, b.length);
  for (let i = 0; i < shared; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
