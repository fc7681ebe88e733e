/** Range of event time that a family holds. It is found in the rows themselves, so nothing besides
 *  the rows must be kept durable. */
import { DURATION_MS_MAX, EVENT_TS_LIMIT } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { KEYED_ROW_BYTES_MAX } from './keyed-rows.ts';
import { timeKey, timeOf } from './keys.ts';

/** Upper bound of every window start and every bucket. */
const TIME_MAX = EVENT_TS_LIMIT + DURATION_MS_MAX;

/** Least and greatest leading time of the keys: window start or bucket. */
export interface TimeRange {
  readonly oldest: number;
  readonly newest: number;
}

const EMPTY_RANGE: TimeRange = { oldest: Number.POSITIVE_INFINITY, newest: Number.NEGATIVE_INFINITY };

export function union({ oldest, newest }: TimeRange, other: TimeRange): TimeRange {
  return { oldest: Math.min(oldest, other.oldest), newest: Math.max(newest, other.newest) };
}

/** Least leading time at or after `time`; undefined if there is none. */
async function firstTimeFrom(store: KvStore, family: string, time: number): Promise<number | undefined> {
  const scan = await store.scan(family, { from: timeKey(time), to: null }, { shape: 'spans' });
  try {
    const bytes = new Uint8Array(KEYED_ROW_BYTES_MAX);
    const found = await scan.next({ bytes, ends: new Uint32Array(2) });
    return found === 0 ? undefined : timeOf(bytes);
  } finally {
    scan.close();
  }
}

/** Finds the range. The store scans forward only, so the greatest time is found by binary search,
 *  in about 50 reads of one row each. */
export async function findTimeRange(store: KvStore, family: string): Promise<TimeRange> {
  const oldest = await firstTimeFrom(store, family, -TIME_MAX);
  if (oldest === undefined) return EMPTY_RANGE;
  let low = oldest;
  let high = TIME_MAX;
  while (low < high) {
    const middle = low + Math.ceil((high - low) / 2);
    const at = await firstTimeFrom(store, family, middle);
    if (at === undefined) high = middle - 1;
    else low = at;
  }
  return { oldest, newest: low };
}
