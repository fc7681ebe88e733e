/** An embedded key-value store in our words: families of rows in the order of their keys, everything in batches.
 *
 *  Ownership: rows, keys and pages belong to the caller and are lent until the promise of the call settles. Calls run
 *  side by side; who needs an order waits for the first before the second.
 *  Order: keys compare by unsigned bytes, a prefix before what it begins.
 *  Errors: MillraceErrors with a code of KV_ERRORS; `closed` after close; wrong calls are `out_of_range`.
 */
import { coreError, type ErrorOptions, errorRow, errorsOf, type MillraceError } from '../../core/errors.ts';
import { KEY_BYTES_MAX, type Keys, type Rows } from '../../core/rows.ts';

export const KV_ERRORS = {
  /** A file is damaged, cut or gone; the message names it. */
  kv_corrupt: errorRow('corrupt'),
  kv_full: errorRow('unavailable'),
  kv_locked: errorRow('unavailable'),
  /** Made by another version, or with families that are not asked for. */
  kv_version: errorRow('invalid'),
  kv_io: errorRow('unavailable'),
  kv_missing: errorRow('not_found'),
  kv_exists: errorRow('conflict'),
  kv_unsorted: errorRow('invalid'),
  kv_row_too_large: errorRow('invalid'),
} as const;

export type KvErrorCode = keyof typeof KV_ERRORS;

const NEXT: Readonly<Record<KvErrorCode, string>> = {
  kv_corrupt: 'restore the folder from a checkpoint',
  kv_full: 'free space on the disk of the folder, then open it again',
  kv_locked: 'stop the process that has the folder open, or use another folder',
  kv_version: 'open it with the version that made it, or use an empty folder',
  kv_io: 'check the folder, its owner and its disk',
  kv_missing: 'check the path, or let the store be made',
  kv_exists: 'use a folder that is not there yet',
  kv_unsorted: 'sort the rows of a run by their keys, no key twice',
  kv_row_too_large: 'read it into a larger page',
};

const make = errorsOf(KV_ERRORS);

export const kvError = (code: KvErrorCode, message: string, options: ErrorOptions = {}): MillraceError =>
  make(code, message, { next: NEXT[code], ...options });

/** `runs`: sorted runs that are ingested, scanned and dropped by range; never compacted, and a single key is slow to
 *  find. `rows`: put or ingested, looked up by key, compacted as they are overwritten. */
export type KvFamilyUse = 'runs' | 'rows';

export interface KvOptions {
  /** Bound of blocks, indexes and filters that are cached and of rows that wait to be written, all families together.
   *  At least KV_BUDGET_MIN_BYTES. */
  readonly budgetBytes: number;
  /** All families that the folder has; new ones are made. */
  readonly families: Readonly<Record<string, KvFamilyUse>>;
  /** What a folder without a store means: start an empty one (the default), or kv_missing. */
  readonly missing?: 'make' | 'refuse';
}

export const KV_BUDGET_MIN_BYTES = 8 * 1024 * 1024;
const KV_FAMILIES_MAX = 16;

/** What a change leaves behind when the process dies before the next flush: `off` nothing (the caller has a log of its
 *  own), `on` everything unless the machine dies too, `sync` everything. */
export type KvLog = 'off' | 'on' | 'sync';

/** Keys from `from` on and below `to`; null is no edge. */
export interface KvRange {
  readonly from: Uint8Array | null;
  readonly to: Uint8Array | null;
}

/** What a scan puts into a page: `spans` keys and values with their ends; `fixed` rows that all have one size; `records`
 *  the values alone, one after the other, whatever number of records each holds. */
export type KvScanShape =
  | { readonly shape: 'spans' }
  | { readonly shape: 'fixed'; readonly keyBytes: number; readonly valueBytes: number }
  | { readonly shape: 'records'; readonly recordBytes: number };

export interface KvPage {
  readonly bytes: Uint8Array;
  /** Two cells a row; only `spans` needs it. */
  readonly ends?: Uint32Array;
}

/** A range as it was when the scan began, page by page. One `next` at a time. */
export interface KvScan {
  /** Fills the page; the number of rows or records in it, 0 at the end.
   *  @throws kv_row_too_large when the page cannot hold the next row alone; kv_corrupt */
  next(page: KvPage): Promise<number>;
  /** Lets go of the snapshot; more than once is fine. */
  close(): void;
}

/** A run that is being written. The first failure ends it. */
export interface KvRun {
  /** Rows above all those before. @throws kv_unsorted, kv_full, kv_io */
  append(rows: Rows): Promise<void>;
  /** Every row is visible and durable once this settles, and none before; over rows with the same keys they win. */
  finish(): Promise<KvRunReport>;
  /** Gives up what is not finished; more than once, and after finish, is fine. */
  close(): void;
}

export interface KvRunReport {
  /** Rows, or records where the rows were records. */
  readonly rows: number;
  /** On disk. */
  readonly bytes: number;
  readonly files: number;
}

/** Values in the order of their keys. */
export interface KvValues {
  readonly bytes: Uint8Array;
  readonly start: Uint32Array;
  /** -1: no such key. */
  readonly length: Int32Array;
}

export interface KvFile {
  /** Path inside the folder. */
  readonly name: string;
  readonly bytes: number;
}

/** Bytes unless said otherwise. */
export interface KvStats {
  readonly cacheBytes: number;
  /** Part of the cache that cannot be evicted now. */
  readonly pinnedBytes: number;
  readonly memtableBytes: number;
  /** Held by open files outside the cache. */
  readonly tableReaderBytes: number;
  readonly diskBytes: number;
  readonly pendingCompactionBytes: number;
  readonly fileCount: number;
}

export interface KvStore {
  readonly folder: string;
  /** Later rows of a batch win over earlier ones. @throws kv_full, kv_io */
  put(family: string, rows: Rows, log: KvLog): Promise<void>;
  get(family: string, keys: Keys): Promise<KvValues>;
  openRun(family: string): KvRun;
  /** Fails when the first row cannot be read. `keepBlocks`: what is read goes into the cache; left out: false. */
  scan(
    family: string,
    range: KvRange,
    shape: KvScanShape,
    options?: { readonly keepBlocks?: boolean },
  ): Promise<KvScan>;
  /** Removes the rows: files that lie in the range as a whole at once, the rest by a mark that `log` is about. */
  deleteRange(family: string, range: KvRange, log: KvLog): Promise<void>;
  /** What was put or deleted is durable once this settles. */
  flush(): Promise<void>;
  /** A durable store of its own in a folder that is not there yet, sharing files that never change.
   *  @throws kv_exists */
  checkpoint(folder: string): Promise<readonly KvFile[]>;
  stats(): Promise<KvStats>;
  /** Ends scans and runs, waits for the calls under way, makes durable what was put, lets go of the folder. */
  close(): Promise<void>;
}

export interface KvDriver {
  readonly name: string;
  /** @throws kv_corrupt, kv_locked, kv_version, kv_missing, kv_io, not_writable */
  open(folder: string, options: KvOptions): Promise<KvStore>;
}

/** What every driver asks of its options. @throws out_of_range */
export function demandOptions(options: KvOptions): void {
  const names = Object.keys(options.families);
  if (names.length < 1 || names.length > KV_FAMILIES_MAX)
    throw coreError('out_of_range', `families: from 1 to ${KV_FAMILIES_MAX}, not ${names.length}`);
  const wrong = names.find((name) => !/^[a-z][a-z0-9_-]{0,62}$/.test(name) || name === 'default');
  if (wrong !== undefined)
    throw coreError(
      'out_of_range',
      `${JSON.stringify(wrong)} is no name of a family: small letters, digits, - and _`,
    );
  if (!Number.isSafeInteger(options.budgetBytes) || options.budgetBytes < KV_BUDGET_MIN_BYTES)
    throw coreError(
      'out_of_range',
      `budgetBytes: at least ${KV_BUDGET_MIN_BYTES}, not ${options.budgetBytes}`,
    );
}

/** @throws out_of_range */
export function demandRange({ from, to }: KvRange): void {
  // One more than a key may have: the key that follows the longest.
  for (const edge of [from, to])
    if (edge !== null && edge.length > KEY_BYTES_MAX + 1)
      throw coreError('out_of_range', `an edge of ${edge.length} bytes is longer than a key`);
}
