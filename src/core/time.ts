/** Event time in milliseconds since the epoch, which a double holds exactly inside the limits.
 *
 *  The limits leave room to add a window size, a skew and a lateness to any valid timestamp and
 *  stay exact. So no step of the window engine has to handle overflow. A timestamp outside of the
 *  limits is invalid and counted.
 */

/** Bound of event timestamps: valid ones lie in [-EVENT_TS_LIMIT, EVENT_TS_LIMIT), about 142,000
 *  years either side of 1970. */
export const EVENT_TS_LIMIT = 2 ** 52;
/** Longest size, skew or lateness in ms. */
export const DURATION_MS_MAX = 2 ** 48;

const HIGH_LIMIT = EVENT_TS_LIMIT / 2 ** 32;

/** True when an i64 timestamp, given by its high word, lies inside the limits. */
export function isEventTs(high: number): boolean {
  return high >= -HIGH_LIMIT && high < HIGH_LIMIT;
}

/** Returns the number of an i64 given by its words; exact inside the limits. */
export function fromWords(low: number, high: number): number {
  return high * 2 ** 32 + (low >>> 0);
}

/** Returns the start of the step that contains `ts`: the greatest multiple of `stepMs` not above
 *  it, also for negative times. */
export function floorTo(ts: number, stepMs: number): number {
  const start = Math.floor(ts / stepMs) * stepMs;
  // The quotient is rounded to a double, so it can be off by one step next to a boundary.
  if (start > ts) return start - stepMs;
  return ts - start >= stepMs ? start + stepMs : start;
}
