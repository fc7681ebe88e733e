/** Values that the program of a reader gets for an unwritten field. */
import { describe, expect, it } from 'vitest';
import { avroDecoder } from '../../../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import { decodeBytes, enumOf, errorOf, fields, fixed, read, record, tree } from './decoder-kit.ts';

describe('reader defaults', () => {
  const empty = record('R');
  const of = (type: unknown, value: unknown): unknown =>
    (read(empty, record('R', ['f', type, { default: value }]), fields()) as { f: unknown }).f;

  it.each<readonly [unknown, unknown, unknown]>([
    ['null', null, null],
    ['boolean', true, true],
    ['int', -7, -7],
    ['long', 7, 7n],
    ['float', 0.1, Math.fround(0.1)],
    ['double', 0.1, 0.1],
    ['float', 'NaN', Number.NaN],
    ['double', '-Infinity', Number.NEGATIVE_INFINITY],
    ['bytes', '\u0001\u00ff', Buffer.of(1, 255)],
    ['string', 'größe', 'größe'],
    [enumOf('E', ['A', 'B']), 'B', 'B'],
    [fixed('F', 2), '\u0000\u00fe', Buffer.of(0, 254)],
    [{ type: 'array', items: 'long' }, [1, 2], [1n, 2n]],
    [{ type: 'map', values: 'bytes' }, { a: 'x' }, { a: Buffer.from('x') }],
    [['long', 'null'], 5, 5n],
    [['null', 'long'], null, null],
    [['int', 'double'], 5, 5],
    [[enumOf('E', ['A']), 'string'], 'A', { E: 'A' }],
    [record('I', ['a', 'int'], ['b', 'long', { default: 2 }]), { a: 1 }, { a: 1, b: 2n }],
    [record('I', ['b', ['null', 'I'], { default: null }]), {}, { b: null }],
  ])('the default of type %j is decoded: %j', (type, value, expected) => {
    expect(of(type, value)).toEqual(expected);
  });

  it('defaults keep 64-bit integers and keys that are JavaScript properties', () => {
    const reader =
      '{"type":"record","name":"R","fields":[{"name":"l","type":"long","default":9007199254740993},{"name":"m","type":{"type":"map","values":"int"},"default":{"__proto__":1}}]}';
    const value = read(empty, reader, fields()) as { l: bigint; m: object };
    expect(value.l).toBe(9007199254740993n);
    expect(Object.entries(value.m)).toEqual([['__proto__', 1]]);
    expect(Object.getPrototypeOf(value.m)).toBe(Object.prototype);
  });

  it('defaults are created anew for each event', () => {
    const decode = avroDecoder(
      tree(
        record(
          'R',
          ['a', { type: 'array', items: 'int' }, { default: [1] }],
          ['b', 'bytes', { default: 'x' }],
          ['r', record('I', ['m', { type: 'map', values: 'int' }, { default: {} }]), { default: {} }],
        ),
      ),
      tree(empty),
    );
    const next = () =>
      decode(Buffer.alloc(0), 0, 0) as { a: number[]; b: Buffer; r: { m: Record<string, number> } };
    const one = next();
    one.a.push(2);
    one.b[0] = 0;
    one.r.m['x'] = 1;
    expect(next()).toEqual({ a: [1], b: Buffer.from('x'), r: { m: {} } });
  });

  it('defaults that do not fit are an error only where they are needed', () => {
    const reader = tree(record('R', ['f', 'int', { default: 'x' }]), true);
    expect(errorOf(() => decodeBytes(reader, tree(empty), Buffer.alloc(0))).message).toMatch(
      /R: field f is not written, and its default does not fit its type: "x" is not an int/,
    );
    const writer = tree(record('R', ['f', 'int']));
    expect(decodeBytes(reader, writer, encodeAvro(writer, fields(1)))).toEqual({ f: 1 });
    // Default of a field inside another default.
    const inner = tree(
      record('R', ['r', record('I', ['f', 'int', { default: 'x' }]), { default: {} }]),
      true,
    );
    expect(errorOf(() => decodeBytes(inner, tree(empty), Buffer.alloc(0))).code).toBe('incompatible_schema');
  });

  it('defaults with endless recursion are an error', () => {
    const never = tree(record('R', ['n', record('N', ['n', 'N', { default: {} }]), { default: {} }]));
    expect(errorOf(() => decodeBytes(never, tree(empty), Buffer.alloc(0))).message).toMatch(/has no end/);
    let type: unknown = 'int';
    for (let i = 0; i < 25; i++)
      type = record(
        `N${i}`,
        ['a', type, { default: i === 0 ? 0 : {} }],
        ['b', i === 0 ? 'int' : `N${i - 1}`, { default: i === 0 ? 0 : {} }],
      );
    const wide = tree(record('R', ['n', type, { default: {} }]));
    expect(errorOf(() => decodeBytes(wide, tree(empty), Buffer.alloc(0))).message).toMatch(/too many values/);
  });
});
