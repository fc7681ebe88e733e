/** Sums of doubles: exact where the digits hold all bits, and equal in any order everywhere. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addDouble, doubleOf, isDoubleSum, mergeDoubleSums } from '../../../src/core/layout/double-sum.ts';
import { runs } from '../../tier.ts';

const CELLS = 7;

function sumOf(values: readonly number[]): BigInt64Array {
  const sum = new BigInt64Array(CELLS);
  for (const value of values) addDouble(sum, value);
  return sum;
}

/** Exact sum in units of the least double, as the nearest double. */
function nearest(values: readonly number[]): number {
  const units = (value: number): bigint => {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, Math.abs(value));
    const bits = view.getBigUint64(0);
    const exponent = bits >> 52n;
    const fraction = bits & (2n ** 52n - 1n);
    const whole = exponent === 0n ? fraction : (fraction | (2n ** 52n)) << (exponent - 1n);
    return value < 0 ? -whole : whole;
  };
  const sum = values.reduce((total, value) => total + units(value), 0n);
  const magnitude = sum < 0n ? -sum : sum;
  // Binary search over all positive doubles by their bits.
  const view = new DataView(new ArrayBuffer(8));
  const ofBits = (bits: bigint): number => {
    view.setBigUint64(0, bits);
    return view.getFloat64(0);
  };
  let [low, high] = [0n, 0x7ff0_0000_0000_0000n];
  while (low < high) {
    const middle = (low + high + 1n) >> 1n;
    if (middle < 0x7ff0_0000_0000_0000n && units(ofBits(middle)) <= magnitude) low = middle;
    else high = middle - 1n;
  }
  const below = magnitude - units(ofBits(low));
  const next = low + 1n;
  const gap =
    next < 0x7ff0_0000_0000_0000n
      ? units(ofBits(next)) - units(ofBits(low))
      : units(ofBits(low)) - units(ofBits(low - 1n));
  const isUp = 2n * below > gap || (2n * below === gap && (low & 1n) === 1n);
  const result = ofBits(isUp ? next : low);
  return sum < 0n ? -result : result;
}

describe('sum of doubles', () => {
  it.each([
    [[0.1, 0.2, 0.3], 0.6],
    [[1e16, 1, -1e16], 1],
    [[1e100, 1e84, -1e100], 1e84],
    [[], 0],
    [[-0, -0], 0],
    [[5e-324, 5e-324], 1e-323],
    [[Number.MAX_VALUE, Number.MAX_VALUE], Number.POSITIVE_INFINITY],
    [[Number.MAX_VALUE, Number.MAX_VALUE, -Number.MAX_VALUE], Number.MAX_VALUE],
    [[Number.POSITIVE_INFINITY, 1], Number.POSITIVE_INFINITY],
    [[Number.NEGATIVE_INFINITY, 1], Number.NEGATIVE_INFINITY],
    [[Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY], Number.NaN],
    [[1, Number.NaN], Number.NaN],
  ])('the sum of %j is %d', (values, expected) => {
    expect(doubleOf(sumOf(values))).toBe(expected);
  });

  it('the sum is the nearest double of the exact sum while all bits are within reach', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc
            .double({ min: -(2 ** 40), max: 2 ** 40, noNaN: true })
            .filter((value) => value === 0 || Math.abs(value) > 2 ** -20),
          { maxLength: 40 },
        ),
        (values) => {
          expect(doubleOf(sumOf(values))).toBe(nearest(values) + 0);
        },
      ),
      { numRuns: runs(300) },
    );
  });

  it('the bits of the sum are the same in any order and any division into parts', () => {
    fc.assert(
      fc.property(
        fc
          .array(fc.double(), { maxLength: 40 })
          .chain((values) =>
            fc.tuple(
              fc.constant(values),
              fc.shuffledSubarray(values, { minLength: values.length }),
              fc.nat(40),
            ),
          ),
        ([values, shuffled, cut]) => {
          const whole = sumOf(values);
          expect(sumOf(shuffled)).toEqual(whole);
          const merged = sumOf(shuffled.slice(0, cut));
          mergeDoubleSums(sumOf(shuffled.slice(cut)), merged);
          expect(merged).toEqual(whole);
          expect(isDoubleSum(whole)).toBe(true);
        },
      ),
      { numRuns: runs(500) },
    );
  });

  it('a head that no additions produce is refused', () => {
    for (const head of [1n << 20n, -1n, 0xffffn, 92n]) {
      const sum = new BigInt64Array(CELLS);
      sum[0] = head;
      expect(isDoubleSum(sum)).toBe(false);
    }
  });
});
