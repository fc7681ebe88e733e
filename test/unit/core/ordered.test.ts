/** Order-preserving encoding: numbers are decoded unchanged, and their bytes sort like the
 *  numbers. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { getOrdered, putOrdered } from '../../../src/core/ordered.ts';
import { compareKeys } from '../../../src/core/rows.ts';

function bytesOf(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  putOrdered(new DataView(bytes.buffer), 0, value);
  return bytes;
}

it('an ordered number is its big-endian signed 64 bits with the sign flipped', () => {
  for (const [value, bytes] of [
    [0, '8000000000000000'],
    [1, '8000000000000001'],
    [-1, '7fffffffffffffff'],
    [4_294_967_296, '8000000100000000'],
    [-4_294_967_297, '7ffffffeffffffff'],
    [Number.MAX_SAFE_INTEGER, '801fffffffffffff'],
    [Number.MIN_SAFE_INTEGER, '7fe0000000000001'],
  ] as const)
    expect(Buffer.from(bytesOf(value)).toString('hex'), String(value)).toBe(bytes);
});

it('ordered numbers are decoded unchanged and compare as the numbers do', () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), fc.maxSafeInteger(), (a, b) => {
      const bytes = bytesOf(a);
      expect(getOrdered(new DataView(bytes.buffer), 0)).toBe(a);
      expect(Math.sign(compareKeys(bytes, bytesOf(b)))).toBe(Math.sign(a - b));
    }),
  );
});
