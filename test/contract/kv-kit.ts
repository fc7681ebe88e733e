/** Rows for the key-value contract, and results of scans as comparable text. */
import { expect } from 'vitest';
import type { Keys, RecordRows, SpanRows } from '../../src/core/rows.ts';
import type { KvDriver, KvFamilyUse, KvOptions, KvRange, KvStore } from '../../src/io/rocksdb/port.ts';

export const MIB = 1024 * 1024;
export const FAMILIES: Readonly<Record<string, KvFamilyUse>> = { runs: 'runs', rows: 'rows' };
export const OPTIONS: KvOptions = { budgetBytes: 16 * MIB, families: FAMILIES };
export const ALL: KvRange = { from: null, to: null };

export interface KvWorld {
  readonly driver: KvDriver;
  /** Path of a folder that does not exist yet. */
  readonly folder: () => string;
  /** True when the deletion of a range frees disk space before any compaction. */
  readonly dropsFiles: boolean;
}

export type Pair = readonly [key: Uint8Array, value: Uint8Array];
/** Key and value as hexadecimal text, which sorts as the bytes do. */
export type ScanRow = readonly [key: string, value: string];

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
export const unhex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'));
export const text = (word: string): Uint8Array => new TextEncoder().encode(word);
export const pair = (key: string, value: string): Pair => [text(key), text(value)];

export function spans(pairs: readonly Pair[]): SpanRows {
  const bytes = new Uint8Array(pairs.reduce((sum, [key, value]) => sum + key.length + value.length, 0));
  const ends = new Uint32Array(pairs.length * 2);
  let at = 0;
  pairs.forEach((parts, i) => {
    parts.forEach((part, j) => {
      bytes.set(part, at);
      at += part.length;
      ends[i * 2 + j] = at;
    });
  });
  return { shape: 'spans', count: pairs.length, bytes, ends };
}

export function keysOf(keys: readonly Uint8Array[]): Keys {
  const ends = new Uint32Array(keys.length);
  let at = 0;
  keys.forEach((key, i) => {
    at += key.length;
    ends[i] = at;
  });
  return { count: keys.length, bytes: new Uint8Array(Buffer.concat(keys)), ends };
}

/** Records of 64 bytes whose first word is from `words`, ascending; the other bytes derive from the
 *  word. */
export function records(prefix: string, words: readonly bigint[], perValue = 1): RecordRows {
  const bytes = new Uint8Array(words.length * 64);
  const cells = new BigUint64Array(bytes.buffer);
  words.forEach((word, i) => {
    for (let c = 0; c < 8; c++) cells[i * 8 + c] = BigInt.asUintN(64, word + BigInt(c));
  });
  return {
    shape: 'records',
    count: words.length,
    bytes,
    recordBytes: 64,
    prefix: text(prefix),
    wordAt: 0,
    perValue,
  };
}

export async function ingest(store: KvStore, family: string, pages: readonly Pair[][]): Promise<void> {
  const run = store.openRun(family);
  for (const page of pages) await run.append(spans(page));
  await run.finish();
}

export async function scanned(
  store: KvStore,
  family: string,
  range: KvRange = ALL,
  pageBytes = 64 * 1024,
): Promise<ScanRow[]> {
  const scan = await store.scan(family, range, { shape: 'spans' });
  const page = { bytes: new Uint8Array(pageBytes), ends: new Uint32Array(pageBytes) };
  const out: ScanRow[] = [];
  for (let count = await scan.next(page); count > 0; count = await scan.next(page)) {
    for (let i = 0, at = 0; i < count; i++) {
      const keyEnd = page.ends[i * 2] as number;
      const end = page.ends[i * 2 + 1] as number;
      out.push([hex(page.bytes.subarray(at, keyEnd)), hex(page.bytes.subarray(keyEnd, end))]);
      at = end;
    }
  }
  scan.close();
  return out;
}

/** Values as text; null for a missing key. */
export async function lookedUp(store: KvStore, family: string, keys: readonly Uint8Array[]) {
  const { bytes, start, length } = await store.get(family, keysOf(keys));
  return keys.map((_, i) => {
    const size = length[i] as number;
    return size < 0 ? null : hex(bytes.subarray(start[i], (start[i] as number) + size));
  });
}

export const sorted = (rows: readonly ScanRow[]): ScanRow[] =>
  [...rows].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));

export const code = (expected: string) => expect.objectContaining({ name: 'MillraceError', code: expected });
