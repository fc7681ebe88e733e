/** Sorts sessions by their keys, reading only the 32-bit words of the rows. Rows arrive ascending
 *  by end, so the rows of a bucket are adjacent, and only the accounts within a bucket are out of
 *  order. */
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import { floorTo } from '../../../core/time.ts';
import type { ResultRows } from '../sink/rows.ts';

const KEY = ACCUMULATOR.ACCOUNT_ID / 4;
const DIGIT_BITS = 16;
const DIGITS = 2 ** DIGIT_BITS;
/** Below this number of rows a comparison sort is cheaper than a radix sort. */
const RADIX_ROWS_MIN = 4096;

/** Row numbers by bucket, then unsigned account_id, then end, which is the order of the rows. */
export function sessionOrder(rows: ResultRows, bucketMs: number): Uint32Array {
  const { rowCount } = rows;
  const order = Uint32Array.from({ length: rowCount }, (_, row) => row);
  const spare = new Uint32Array(rowCount);
  for (let from = 0; from < rowCount; ) {
    const next = floorTo(rows.windowEnd(from), bucketMs) + bucketMs;
    let to = from + 1;
    while (to < rowCount && rows.windowEnd(to) < next) to++;
    const bucket = order.subarray(from, to);
    if (to - from < RADIX_ROWS_MIN) bucket.sort((a, b) => byAccount(rows, a, b));
    else radixSort(rows, bucket, spare.subarray(from, to));
    from = to;
  }
  return order;
}

/** Stable comparison: rows of one account keep their order. */
function byAccount({ words, rowWords }: ResultRows, a: number, b: number): number {
  for (const word of [KEY + 1, KEY]) {
    const difference =
      ((words[a * rowWords + word] as number) >>> 0) - ((words[b * rowWords + word] as number) >>> 0);
    if (difference !== 0) return difference;
  }
  return a - b;
}

/** LSD radix sort by the 16-bit digits of the account; each pass is stable. */
function radixSort({ words, rowWords }: ResultRows, order: Uint32Array, spare: Uint32Array): void {
  let from = order;
  let into = spare;
  const next = new Uint32Array(DIGITS);
  for (let pass = 0; pass < 4; pass++) {
    const word = KEY + (pass >> 1);
    const shift = (pass & 1) * DIGIT_BITS;
    const digitOf = (row: number): number =>
      ((words[row * rowWords + word] as number) >>> shift) & (DIGITS - 1);
    next.fill(0);
    for (const row of from) {
      const digit = digitOf(row);
      next[digit] = (next[digit] as number) + 1;
    }
    // All rows have the same digit, so the pass would change nothing.
    if (next[digitOf(from[0] as number)] === from.length) continue;
    let at = 0;
    for (let digit = 0; digit < DIGITS; digit++) {
      const count = next[digit] as number;
      next[digit] = at;
      at += count;
    }
    for (const row of from) {
      const digit = digitOf(row);
      into[next[digit] as number] = row;
      next[digit] = (next[digit] as number) + 1;
    }
    [from, into] = [into, from];
  }
  if (from !== order) order.set(from);
}
