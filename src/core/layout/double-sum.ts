/** Sum of doubles whose bits do not depend on the order of the additions; the addon's
 *  implementation is native/kernel/rows/double_sum.h, which describes the cells: a head, then
 *  digits of 24 bits at fixed positions, the highest first. */

const DIGIT_BITS = 24;
const DIGITS = 6;
/** Digits that the bits of one value can touch. */
const SPREAD = 4;
const TOP_MASK = 0xffffn;
const POSITIVE_INFINITY = 1n << 16n;
const NEGATIVE_INFINITY = 1n << 17n;
const NOT_A_NUMBER = 1n << 18n;
const FLAGS = POSITIVE_INFINITY | NEGATIVE_INFINITY | NOT_A_NUMBER;
const TOP_MAX = BigInt(Math.floor(2097 / DIGIT_BITS) + SPREAD);
/** Exponent of the weight of bit 0. */
const LEAST_EXPONENT = -1074;
const MANTISSA_BITS = 52;
const PRECISION = 53;

const bits = new BigInt64Array(1);
const double = new Float64Array(bits.buffer);

/** Raises the highest position; digits below the lowest kept position are dropped. */
function raise(sum: BigInt64Array, top: bigint): void {
  const head = sum[0] as bigint;
  const by = Number(top - (head & TOP_MASK));
  if (by <= 0) return;
  for (let i = DIGITS; i >= 1; i--) sum[i] = i > by ? (sum[i - by] as bigint) : 0n;
  sum[0] = (head & FLAGS) | top;
}

/** Adds a value. */
export function addDouble(sum: BigInt64Array, value: number): void {
  if (!Number.isFinite(value)) {
    const flag = Number.isNaN(value) ? NOT_A_NUMBER : value < 0 ? NEGATIVE_INFINITY : POSITIVE_INFINITY;
    sum[0] = (sum[0] as bigint) | flag;
    return;
  }
  if (value === 0) return;
  double[0] = Math.abs(value);
  const exponent = Number((bits[0] as bigint) >> BigInt(MANTISSA_BITS));
  const fraction = (bits[0] as bigint) & ((1n << BigInt(MANTISSA_BITS)) - 1n);
  const mantissa = exponent > 0 ? fraction | (1n << BigInt(MANTISSA_BITS)) : fraction;
  const lowestBit = Math.max(0, exponent - 1);
  const lowest = Math.floor(lowestBit / DIGIT_BITS);
  raise(sum, BigInt(lowest + SPREAD));
  let rest = mantissa << BigInt(lowestBit % DIGIT_BITS);
  let at = Number((sum[0] as bigint) & TOP_MASK) - lowest;
  for (let i = 0; i < SPREAD; i++, at--, rest >>= BigInt(DIGIT_BITS)) {
    if (at > DIGITS) continue;
    const digit = BigInt.asUintN(DIGIT_BITS, rest);
    sum[at] = (sum[at] as bigint) + (value < 0 ? -digit : digit);
  }
}

/** Adds another sum. */
export function mergeDoubleSums(other: BigInt64Array, sum: BigInt64Array): void {
  const head = other[0] as bigint;
  raise(sum, head & TOP_MASK);
  sum[0] = (sum[0] as bigint) | (head & FLAGS);
  const by = Number(((sum[0] as bigint) & TOP_MASK) - (head & TOP_MASK));
  for (let i = 1; i + by <= DIGITS; i++) sum[i + by] = (sum[i + by] as bigint) + (other[i] as bigint);
}

/** True if the head is one that additions can produce. */
export function isDoubleSum(sum: BigInt64Array): boolean {
  const head = sum[0] as bigint;
  return (head & ~(TOP_MASK | FLAGS)) === 0n && (head & TOP_MASK) <= TOP_MAX;
}

/** The sum as the nearest double, ties to even; NaN for infinities of both signs. */
export function doubleOf(sum: BigInt64Array): number {
  const head = sum[0] as bigint;
  const has = (flag: bigint): boolean => (head & flag) !== 0n;
  if (has(NOT_A_NUMBER) || (has(POSITIVE_INFINITY) && has(NEGATIVE_INFINITY))) return Number.NaN;
  if (has(POSITIVE_INFINITY)) return Number.POSITIVE_INFINITY;
  if (has(NEGATIVE_INFINITY)) return Number.NEGATIVE_INFINITY;
  let whole = 0n;
  for (let i = 1; i <= DIGITS; i++) whole = (whole << BigInt(DIGIT_BITS)) + (sum[i] as bigint);
  const isNegative = whole < 0n;
  const lowest = Number(head & TOP_MASK) - DIGITS;
  // Positions below 0 hold zeros only.
  let magnitude = isNegative ? -whole : whole;
  let shift = lowest * DIGIT_BITS;
  if (shift < 0) {
    magnitude >>= BigInt(-shift);
    shift = 0;
  }
  const excess = magnitude.toString(2).length - PRECISION;
  if (excess > 0) {
    const cut = BigInt(excess);
    const rest = BigInt.asUintN(excess, magnitude);
    const half = 1n << (cut - 1n);
    magnitude >>= cut;
    if (rest > half || (rest === half && (magnitude & 1n) === 1n)) magnitude++;
    shift += excess;
  }
  // A power of two is exact down to the least double; a product beyond the largest is infinite.
  const value = Number(magnitude) * 2 ** Math.min(shift + LEAST_EXPONENT, 1023);
  return isNegative ? -value : value;
}
