/** Interval of time that a family contains, found in the store itself, so that only the rows must
 *  be durable. */
import { DURATION_MS_MAX, EVENT_TS_LIMIT } from '../../../core/time.ts';
import type { KvStore } from '../../../io/rocksdb/port.ts';
import { placeKey, placeOf, SESSION_KEY_BYTES, VALUE_BYTES } from './keys.ts';

/** Upper bound of window starts and buckets. */
const PLACE_MAX = EVENT_TS_LIMIT + DURATION_MS_MAX;

/** Least and greatest first number of a key. */
export interface Places {
  readonly oldest: number;
  readonly newest: number;
}

const NO_PLACES: Places = { oldest: Number.POSITIVE_INFINITY, newest: Number.NEGATIVE_INFINITY };

export function widened({ oldest, newest }: Places, by: Places): Places {
  return { oldest: Math.min(oldest, by.oldest), newest: Math.max(newest, by.newest) };
}

/** First number at or after a given one; undefined after the last. */
async function firstFrom(store: KvStore, family: string, place: number): Promise<number | undefined> {
  const scan = await store.scan(family, { from: placeKey(place), to: null }, { shape: 'spans' });
  try {
    const bytes = new Uint8Array(SESSION_KEY_BYTES + VALUE_BYTES);
    const found = await scan.next({ bytes, ends: new Uint32Array(2) });
    return found === 0 ? undefined : placeOf(bytes);
  } finally {
    scan.close();
  }
}

/** Finds the last number by binary search, because the port reads forward only: about fifty reads
 *  of one row. */
export async function findPlaces(store: KvStore, family: string): Promise<Places> {
  const oldest = await firstFrom(store, family, -PLACE_MAX);
  if (oldest === undefined) return NO_PLACES;
  let low = oldest;
  let high = PLACE_MAX;
  while (low < high) {
    const middle = low + Math.ceil((high - low) / 2);
    const at = await firstFrom(store, family, middle);
    if (at === undefined) high = middle - 1;
    else low = at;
  }
  return { oldest, newest: low };
}
