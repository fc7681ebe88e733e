/** Port of an embedded key-value store: families of rows sorted by key, all operations in batches.
 *
 *  Ownership: rows, keys and pages belong to the caller; a call borrows them until its promise
 *  settles. Calls run concurrently; a caller that needs an order awaits the first call before the
 *  second.
 *  Order: keys compare by unsigned bytes, a prefix before its extensions.
 *  Errors: MillraceErrors with a code of KV_ERRORS; `closed` after close; wrong calls are
 *  `out_of_range`.
 */
import { coreError, type ErrorOptions, errorRow, errorsOf, type MillraceError } from '../../core/errors.ts';
import { KEY_BYTES_MAX, type Keys, type Rows, type SortableRows } from '../../core/rows.ts';

export const KV_ERRORS = {
  /** A file is damaged, truncated or missing; the message names it. */
  kv_corrupt: errorRow('corrupt'),
  kv_full: errorRow('unavailable'),
  kv_locked: errorRow('unavailable'),
  /** The store was made by another version, or has families that the caller did not name. */
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
  kv_exists: 'use a folder that does not exist yet',
  kv_unsorted: 'sort the rows of a run by their keys, no key twice',
  kv_row_too_large: 'read it into a larger page',
};

const make = errorsOf(KV_ERRORS);

export const kvError = (code: KvErrorCode, message: string, options: ErrorOptions = {}): MillraceError =>
  make(code, message, { next: NEXT[code], ...options });

/** Use of a family. `runs`: sorted runs that are ingested, scanned and dropped by range; never
 *  compacted, and slow to search for a single key. `rows`: put or ingested, searched by key,
 *  compacted when overwritten. */
export type KvFamilyUse = 'runs' | 'rows';

export interface KvOptions {
  /** Most bytes of cached blocks, indexes and filters and of rows that wait to be written, over all
   *  families. At least KV_BUDGET_MIN_BYTES. */
  readonly budgetBytes: number;
  /** All families of the folder; new families are created. */
  readonly families: Readonly<Record<string, KvFamilyUse>>;
  /** Reaction to a folder without a store: create an empty store (the default), or kv_missing. */
  readonly missing?: 'make' | 'refuse';
}

export const KV_BUDGET_MIN_BYTES = 8 * 1024 * 1024;
const KV_FAMILIES_MAX = 16;

/** Durability of a change before the next flush. `off`: lost when the process ends (the caller has
 *  its own log). `on`: lost only when the machine fails too. `sync`: durable. */
export type KvLog = 'off' | 'on' | 'sync';

/** Keys from `from` (inclusive) to `to` (exclusive); null: no edge. */
export interface KvRange {
  readonly from: Uint8Array | null;
  readonly to: Uint8Array | null;
}

/** Content of a scan's page. `spans`: keys and values with their ends. `fixed`: rows that all have
 *  one size. `records`: values without keys, one after the other, with any number of records each.
 */
export type KvScanShape =
  | { readonly shape: 'spans' }
  | { readonly shape: 'fixed'; readonly keyBytes: number; readonly valueBytes: number }
  | { readonly shape: 'records'; readonly recordBytes: number };

export interface KvPage {
  readonly bytes: Uint8Array;
  /** Two cells a row; only `spans` needs it. */
  readonly ends?: Uint32Array;
}

/** Scan of a range as of its beginning, page by page. One `next` at a time. */
export interface KvScan {
  /** Fills the page and returns its number of rows or records; 0 at the end.
   *  @throws kv_row_too_large when the page cannot hold the next row alone; kv_corrupt */
  next(page: KvPage): Promise<number>;
  /** Releases the snapshot. Further calls have no effect. */
  close(): void;
}

/** Sorted run that is being written. The first failure ends it. */
export interface KvRun {
  /** Appends rows whose keys are above all earlier keys. @throws kv_unsorted, kv_full, kv_io */
  append(rows: Rows): Promise<void>;
  /** Appends rows in any order whose keys are above all earlier keys; of rows with equal keys only
   *  the last. Needs memory of 48 bytes a row meanwhile. @throws kv_unsorted, kv_full, kv_io */
  appendUnsorted(rows: SortableRows): Promise<void>;
  /** Makes all rows visible and durable atomically. They replace rows with the same keys. */
  finish(): Promise<KvRunReport>;
  /** Discards an unfinished run. Further calls, also after finish, have no effect. */
  close(): void;
}

export interface KvRunReport {
  /** Number of rows, or of records when the rows are records. */
  readonly rows: number;
  /** Bytes on disk. */
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

/** Sizes are in bytes unless stated otherwise. */
export interface KvStats {
  readonly cacheBytes: number;
  /** Part of the cache that cannot be evicted now. */
  readonly pinnedBytes: number;
  readonly memtableBytes: number;
  /** Memory of open files outside the cache. */
  readonly tableReaderBytes: number;
  readonly diskBytes: number;
  readonly pendingCompactionBytes: number;
  readonly fileCount: number;
}

export interface KvStore {
  readonly folder: string;
  /** Writes rows; later rows of a batch win over earlier ones. @throws kv_full, kv_io */
  put(family: string, rows: Rows, log: KvLog): Promise<void>;
  get(family: string, keys: Keys): Promise<KvValues>;
  openRun(family: string): KvRun;
  /** Starts a scan; rejects when the first row cannot be read. `keepBlocks`: scanned blocks enter
   *  the cache; default false. */
  scan(
    family: string,
    range: KvRange,
    shape: KvScanShape,
    options?: { readonly keepBlocks?: boolean },
  ): Promise<KvScan>;
  /** Removes the rows of a range: files inside the range immediately, the rest by a tombstone.
   *  `log` is the durability of the tombstone. */
  deleteRange(family: string, range: KvRange, log: KvLog): Promise<void>;
  /** Makes all puts and deletes durable. */
  flush(): Promise<void>;
  /** Creates a durable, independent copy of the store in a folder that does not exist yet; shares
   *  immutable files.
   *  @throws kv_exists */
  checkpoint(folder: string): Promise<readonly KvFile[]>;
  stats(): Promise<KvStats>;
  /** Ends scans and runs, waits for the calls in flight, makes puts durable and releases the
   *  folder. */
  close(): Promise<void>;
}

export interface KvDriver {
  readonly name: string;
  /** @throws kv_corrupt, kv_locked, kv_version, kv_missing, kv_io, not_writable */
  open(folder: string, options: KvOptions): Promise<KvStore>;
}

/** Checks the options that every driver accepts. @throws out_of_range */
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
  // An edge may have one byte more than a key: the successor of the longest key.
  for (const edge of [from, to])
    if (edge !== null && edge.length > KEY_BYTES_MAX + 1)
      throw coreError('out_of_range', `an edge of ${edge.length} bytes is longer than a key`);
}
