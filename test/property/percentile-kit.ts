/** Percentiles of a list of numbers as the engine's buckets have them. */

/** Middle of the bucket of the value with the rank of a percentile: buckets divide each power of
 *  two into 64 parts. Fewer than 512 buckets have values here. */
export function percentileOf(ordered: readonly number[], percent: string): (number | null)[] {
  if (ordered.length === 0) return [null, null];
  // Whole numbers: the share of a percentile with one place.
  const rank = Math.max(1, Math.ceil((ordered.length * Math.round(Number(percent) * 10)) / 1000));
  const value = ordered[rank - 1] as number;
  if (value === 0) return [0, 1 / 129];
  let power = 2 ** Math.floor(Math.log2(Math.abs(value)));
  if (power > Math.abs(value)) power /= 2;
  if (power * 2 <= Math.abs(value)) power *= 2;
  const least = power * (1 + Math.floor((Math.abs(value) / power - 1) * 64) / 64);
  const ratio = 1 + 1 / 64 / (least / power);
  return [Math.sign(value) * least * ((2 * ratio) / (1 + ratio)), 1 / 129];
}
