/** Exact decimals: texts, order, rounding and bytes, beside plain arithmetic of big integers. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  bytesOfInteger,
  DECIMAL_CHARS_MAX,
  Decimal,
  decimalText,
  dividedHalfEven,
  integerOfBytes,
  powerOfTen,
  unscaledOf,
} from '../../../../src/core/decimal/exact.ts';

const wide = fc.bigInt({ min: -(2n ** 130n), max: 2n ** 130n });
const scales = fc.integer({ min: 0, max: 24 });

describe('texts of decimals', () => {
  it.each([
    ['12.50', 1250n, 2],
    ['-0.05', -5n, 2],
    ['.5', 5n, 1],
    ['5.', 5n, 0],
    ['+7', 7n, 0],
    ['1.2e-3', 12n, 4],
    ['1.25E2', 125n, 0],
    ['1e3', 1000n, 0],
    ['-0', 0n, 0],
    ['0e999999999', 0n, 0],
    ['1e-1000', 1n, 1000],
  ])('the text %s is read exactly', (text, unscaled, scale) => {
    expect(Decimal.parse(text)).toEqual(new Decimal(unscaled, scale));
  });

  it.each([
    '',
    '.',
    '-',
    'e5',
    '1e',
    '1e+',
    '--1',
    '1.2.3',
    ' 1',
    '1 ',
    '1,5',
    '0x10',
    'NaN',
    'Infinity',
    '١',
  ])('the text "%s" is no number', (text) => {
    expect(Decimal.parse(text)).toBeUndefined();
  });

  it('a text is read up to its limits, and not beyond them', () => {
    expect(Decimal.parse('1'.repeat(DECIMAL_CHARS_MAX))?.scale).toBe(0);
    expect(Decimal.parse('1'.repeat(DECIMAL_CHARS_MAX + 1))).toBeUndefined();
    expect(Decimal.parse('1e1000')?.unscaled).toBe(10n ** 1000n);
    for (const text of ['1e1001', '1e-1001', '1e999999999', '1e-9999999999999'])
      expect(Decimal.parse(text), text).toBeUndefined();
  });

  it('a printed decimal has all its places and is read as the same number', () => {
    expect(['1250', '-5', '0'].map((one) => decimalText(BigInt(one), 2))).toEqual(['12.50', '-0.05', '0.00']);
    fc.assert(
      fc.property(wide, scales, (unscaled, scale) => {
        const text = decimalText(unscaled, scale);
        expect(text).toMatch(scale === 0 ? /^-?\d+$/ : new RegExp(`^-?\\d+\\.\\d{${scale}}$`));
        expect(unscaledOf(text)).toBe(unscaled);
        expect(Decimal.parse(text)?.compare(new Decimal(unscaled, scale))).toBe(0);
      }),
    );
  });
});

describe('order and arithmetic of decimals', () => {
  it('the order of two decimals is that of their cross products', () => {
    fc.assert(
      fc.property(wide, scales, wide, scales, (a, i, b, j) => {
        const [one, two] = [a * powerOfTen(j), b * powerOfTen(i)];
        const order = one < two ? -1 : one > two ? 1 : 0;
        expect(Math.sign(new Decimal(a, i).compare(new Decimal(b, j)))).toBe(order);
      }),
    );
    expect(new Decimal(10n, 1).compare(new Decimal(100n, 2))).toBe(0);
  });

  it('a quotient is the nearest integer, and the even one of two', () => {
    const cases = [
      [5n, 2n, 2n],
      [7n, 2n, 4n],
      [-5n, 2n, -2n],
      [-7n, 2n, -4n],
      [1n, 3n, 0n],
      [2n, 3n, 1n],
      [-2n, 3n, -1n],
    ] as const;
    for (const [a, b, expected] of cases) expect(dividedHalfEven(a, b), `${a} / ${b}`).toBe(expected);
    fc.assert(
      fc.property(wide, fc.bigInt({ min: 1n, max: 2n ** 40n }), (a, b) => {
        const rest = 2n * (a - dividedHalfEven(a, b) * b);
        expect(rest <= b && rest >= -b).toBe(true);
        if (rest === b || rest === -b) expect(dividedHalfEven(a, b) % 2n).toBe(0n);
      }),
    );
  });

  it('bytes of an integer are the shortest in two’s complement, and are read back', () => {
    const bytes = (value: bigint): string => Buffer.from(bytesOfInteger(value)).toString('hex');
    expect([0n, 127n, 128n, -1n, -128n, -129n, 256n].map(bytes)).toEqual([
      ...['00', '7f', '0080', 'ff', '80', 'ff7f', '0100'],
    ]);
    fc.assert(
      fc.property(wide, fc.nat(3), (value, fill) => {
        const shortest = bytesOfInteger(value);
        expect(integerOfBytes(shortest)).toBe(value);
        const filler = Buffer.alloc(fill, value < 0n ? 0xff : 0);
        expect(integerOfBytes(Buffer.concat([filler, shortest]))).toBe(value);
      }),
    );
    expect(integerOfBytes(new Uint8Array(0))).toBe(0n);
  });
});
