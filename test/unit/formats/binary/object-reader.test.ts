/** Objects whose properties are read from columns, before and after the reader has code of its
 *  own. */
import { afterEach, expect, it, vi } from 'vitest';
import { objectGet } from '../../../../src/formats/binary/object-reader.ts';

const READS = 250;
const properties = ['id', '__proto__', 'constructor', '10', 'a "b"\u2028'].map((name, index) => ({
  name,
  get: (at: number) => at * 10 + index,
}));

afterEach(() => void vi.unstubAllGlobals());

it('an object has the same properties, order and prototype after many reads as before', () => {
  const made = vi.fn();
  const Real = Function;
  vi.stubGlobal(
    'Function',
    class extends Real {
      constructor(...words: string[]) {
        made();
        super(...words);
      }
    },
  );
  const read = objectGet(properties);
  const first = read(7) as object;
  for (let at = 0; at < READS; at++) read(at);
  const later = read(7) as object;
  expect(made).toHaveBeenCalledOnce();
  expect(Object.entries(later)).toEqual(Object.entries(first));
  expect(Object.entries(first)).toContainEqual(['__proto__', 71]);
  for (const object of [first, later]) {
    expect(Object.getPrototypeOf(object)).toBe(Object.prototype);
    expect(Object.getOwnPropertyDescriptor(object, '__proto__')).toEqual({
      value: 71,
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
});

it('a process without code generation from strings reads the same objects', () => {
  const expected = Object.entries(objectGet(properties)(3) as object);
  const refused = vi.fn();
  vi.stubGlobal(
    'Function',
    class {
      constructor() {
        refused();
        throw new EvalError('Code generation from strings disallowed for this context');
      }
    },
  );
  const read = objectGet(properties);
  for (let at = 0; at < READS; at++) read(at);
  expect(Object.entries(read(3) as object)).toEqual(expected);
  expect(refused).toHaveBeenCalledOnce();
});
