/** Aggregate of one window and key. The sum is exact and wraps to 64 bits only in the row. */
import type { OracleRow } from './rules.ts';

export interface Aggregate {
  count: bigint;
  sum: bigint;
  min: bigint;
  max: bigint;
  /** Greatest event_ts. */
  last: bigint;
}

export const aggregateOf = (value: bigint, eventTs: bigint): Aggregate => ({
  count: 1n,
  sum: value,
  min: value,
  max: value,
  last: eventTs,
});

export function fold(into: Aggregate, value: bigint, eventTs: bigint): void {
  into.count += 1n;
  into.sum += value;
  if (value < into.min) into.min = value;
  if (value > into.max) into.max = value;
  if (eventTs > into.last) into.last = eventTs;
}

export function rowOf(
  accountId: bigint,
  windowStart: bigint,
  windowEnd: bigint,
  { count, sum, min, max, last }: Aggregate,
): OracleRow {
  const wrapped = BigInt.asIntN(64, sum);
  const overflow = wrapped !== sum;
  return {
    accountId,
    windowStart,
    windowEnd,
    count,
    sum: wrapped,
    min,
    max,
    lastUpdateTs: last,
    overflow,
  };
}
