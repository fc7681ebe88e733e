/** Place of the first difference of two plain values. */
import { expect, it } from 'vitest';
import { differenceOf } from '../../../../src/registry/proof/same.ts';

it('the path of the first difference of two values is found', () => {
  for (const [one, other, path] of [
    [{ a: [1n, Buffer.of(1)] }, { a: [1n, Buffer.of(1)] }, undefined],
    [1, 1n, ''],
    [[], {}, ''],
    [Buffer.of(1), Buffer.of(2), ''],
    [{ a: 1, b: { c: 0 } }, { a: 1, b: { c: -0 } }, '.b.c'],
    [{ a: 1 }, { a: 1, b: 2 }, '.b'],
    [{ a: [{ b: 1 }, { b: 2 }] }, { a: [{ b: 1 }, { b: 3 }] }, '.a[1].b'],
    [[1], [1, 2], '[1]'],
  ])
    expect(differenceOf(one, other)).toBe(path);
});
