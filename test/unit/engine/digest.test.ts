/** Digest of rows: equal for the same rows in any order. */
import { expect, it } from 'vitest';
import { RowsDigest } from '../../../src/engine/verify/digest.ts';

function digestOf(...rows: readonly string[]): string {
  const digest = new RowsDigest();
  for (const row of rows) digest.add(row);
  return digest.text;
}

it('the order of the rows does not change the digest', () => {
  expect(digestOf('a', 'b', 'c')).toBe(digestOf('c', 'a', 'b'));
});

it('another value, a repeated row and a missing row change it', () => {
  const all = [digestOf('a', 'b'), digestOf('a', 'c'), digestOf('a', 'b', 'b'), digestOf('a')];
  expect(new Set(all).size).toBe(4);
});

it('a digest has 32 digits, of no rows too', () => {
  expect(digestOf()).toBe('0'.repeat(32));
  expect(digestOf('a')).toMatch(/^[0-9a-f]{32}$/);
});
