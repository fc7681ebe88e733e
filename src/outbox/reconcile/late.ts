/** Condition that an effect may be late, from its own row: the time in its UUIDv7 is that of the
 *  intent, up to the difference of two clocks. It selects candidates; the times of both rows
 *  decide.
 */
import { uuidTimeSql } from './pairs/side.ts';

/** Tolerated difference between the clock that made an id and that of the database. */
const CLOCK_SKEW_MS = 5000;

/** @param id uuid expression. An id without a time is a candidate
 *  @param time timestamptz expression of the effect */
export function maybeLateSql(id: string, time: string, lateAfterMs: number, serverVersion: number): string {
  const bound = `interval '1 millisecond' * ${Math.max(0, Math.trunc(lateAfterMs) - CLOCK_SKEW_MS)}`;
  return `coalesce(${time} > ${uuidTimeSql(id, serverVersion)} + ${bound}, true)`;
}
