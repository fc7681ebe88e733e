/** Division of -mem-budget. Every consumer of memory that grows with load has a limit of its own;
 *  the state gets the remainder.
 *
 *  The budget excludes the memory that a run without state needs too: code, and the heap of objects
 *  that do not grow with state.
 */
import { formatSize } from '../../../core/quantity.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import { SIDE_BYTES_MAX } from '../../output/side/sender.ts';
import { MERGE_PAGES_BYTES } from '../../state/rows.ts';

const MIB = 1024 * 1024;

export interface BatchSizes {
  readonly rows: number;
  readonly bytes: number;
}

export interface MemoryShares {
  /** Limit of live tables and sorted runs. */
  readonly stateBytes: number;
  /** Limits of the cache and memtables of the store of pieces, and of the store of fired windows.
   */
  readonly spillStoreBytes: number;
  readonly firedStoreBytes: number;
  /** Limit of changelog bytes that wait for the disk. */
  readonly changelogBytes: number;
  /** Limit of records that are read ahead. */
  readonly fetchBytes: number;
  /** Limit of the copies of refused rows that wait for one side output; 0 without side outputs. */
  readonly sideBytes: number;
  /** Limit of the identifiers of open windows; 0 without -dedup. */
  readonly idBytes: number;
}

/** Share of the budget for each consumer except the state. */
const SHARE = 1 / 16;
/** Share of the identifiers of open windows: they stay in memory. */
const ID_SHARE = 1 / 4;
const STORE_BYTES_MAX = 64 * MIB;
const CHANGELOG_BYTES_MIN = 2 * MIB;
const CHANGELOG_BYTES_MAX = 64 * MIB;
const FETCH_BYTES_MIN = 4 * MIB;
const FETCH_BYTES_MAX = 128 * MIB;
const SIDE_BYTES_MIN = 4 * MIB;
/** Copies of one side output in flight, as records and in the broker client. */
const SIDE_SEND_BYTES = 8 * MIB;
/** Late events that wait for their store, and those that are being written. */
const LATE_EVENTS_BYTES = MIB;
/** Rows of one write to a sink, with their copy in the sink's format. */
const SINK_WRITE_BYTES = 32 * MIB;
/** Least bytes of the state: with fewer, a state is spilled as fast as it grows. */
const STATE_BYTES_MIN = 16 * MIB;
/** Share of the state's memory for the store of keys: filters of its keys, so that a new key costs
 *  no read, and blocks. */
const KEY_STORE_SHARE = 1 / 8;
/** Share of the rest for the cache of keys. */
const KEY_CACHE_SHARE = 2 / 3;
const KEY_CACHE_BYTES_MAX = 256 * MIB;
/** Columns, admission and deltas of a row of a batch. Deltas count twice: as rows and encoded. */
const BATCH_ROW_BYTES = 512;

const between = (least: number, value: number, most: number): number =>
  Math.floor(Math.min(Math.max(least, value), most));

/** Divides a memory budget among window state, batches, changelog and stores, all in bytes.
 *  @param sides number of side outputs; each needs a share
 *  @param hasIds true: identifiers of open windows need a share
 *  @param windows number of windows over one reader; each gets an equal part of what the reader
 *  leaves, and the shares of the answer are those of one window
 *  @throws bad_setting where the budget is too small; the error names the least budget
 *  @example
 *  const { stateBytes } = sharesOf(512 * 2 ** 20, { rows: 10_000, bytes: 4 << 20 }, 0);
 */
export function sharesOf(
  budgetBytes: number,
  batch: BatchSizes,
  sides: number,
  hasIds = false,
  windows = 1,
): MemoryShares {
  const shares = sharesAt(budgetBytes, batch, sides, hasIds, windows);
  if (shares.stateBytes >= STATE_BYTES_MIN) return shares;
  let least = Math.ceil(budgetBytes / MIB) * MIB;
  while (sharesAt(least, batch, sides, hasIds, windows).stateBytes < STATE_BYTES_MIN) least += MIB;
  throw engineError(
    'bad_setting',
    `-mem-budget of ${formatSize(budgetBytes)} leaves no memory for ${windows === 1 ? 'state' : `the state of ${windows} windows`} beside batches of ${batch.rows} rows and ${formatSize(batch.bytes)}, changelog and stores`,
    { next: `give -mem-budget=${formatSize(least)} or more, or smaller batches (-batch-rows, -batch-bytes)` },
  );
}

/** Divides the memory of the state of a job whose keys are no integers. The cache of keys gets
 *  twice as much as tables and runs: a key that is not cached costs a random read, a row that is
 *  not in memory a sequential one.
 *  @param stateBytes of MemoryShares
 *  @returns memory of the cache of keys and of their store, in bytes */
export function keySharesOf(stateBytes: number): {
  readonly cacheBytes: number;
  readonly storeBytes: number;
} {
  const storeBytes = between(KV_BUDGET_MIN_BYTES, stateBytes * KEY_STORE_SHARE, STORE_BYTES_MAX);
  return {
    cacheBytes: between(0, (stateBytes - storeBytes) * KEY_CACHE_SHARE, KEY_CACHE_BYTES_MAX),
    storeBytes,
  };
}

function sharesAt(
  budgetBytes: number,
  batch: BatchSizes,
  sides: number,
  hasIds: boolean,
  windows: number,
): MemoryShares {
  const ownBytes = budgetBytes / windows;
  const share = ownBytes * SHARE;
  const storeBytes = between(KV_BUDGET_MIN_BYTES, share, STORE_BYTES_MAX);
  const changelogBytes = between(CHANGELOG_BYTES_MIN, share, CHANGELOG_BYTES_MAX);
  const fetchBytes = between(FETCH_BYTES_MIN, budgetBytes * SHARE, FETCH_BYTES_MAX);
  const firingBytes = MERGE_PAGES_BYTES + SINK_WRITE_BYTES;
  const readerBytes = fetchBytes + 2 * batch.bytes;
  const rowBytes = batch.rows * BATCH_ROW_BYTES;
  const sideBytes = sides > 0 ? between(SIDE_BYTES_MIN, share / sides, SIDE_BYTES_MAX) : 0;
  // The copies of one more batch may exceed the limits; a row has one whole copy.
  const sideMemory = sides > 0 ? sides * (sideBytes + SIDE_SEND_BYTES) + batch.bytes : 0;
  const idBytes = hasIds ? Math.floor(ownBytes * ID_SHARE) : 0;
  const fixedBytes = firingBytes + rowBytes + LATE_EVENTS_BYTES + idBytes;
  const others = 2 * storeBytes + changelogBytes + fixedBytes + sideMemory;
  return {
    stateBytes: Math.floor((budgetBytes - readerBytes) / windows) - others,
    ...{ spillStoreBytes: storeBytes, firedStoreBytes: storeBytes, changelogBytes, fetchBytes },
    ...{ sideBytes, idBytes },
  };
}
