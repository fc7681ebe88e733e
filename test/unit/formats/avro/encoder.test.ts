/** Encoded bytes of Avro data, and refusals of data that do not fit. */
import { describe, expect, it } from 'vitest';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import { branch, enumOf, errorOf, fields, fixed, read, record, tree } from './decoder-kit.ts';

const hexOf = (schema: unknown, datum: unknown): string =>
  encodeAvro(tree(schema), datum as AvroDatum).toString('hex');

describe('Avro encoder', () => {
  // Includes the examples of the Apache Avro 1.12 specification, "Binary Encoding".
  it.each<readonly [unknown, AvroDatum, string]>([
    ['null', null, ''],
    ['boolean', true, '01'],
    ['boolean', false, '00'],
    ['int', 0, '00'],
    ['int', -1, '01'],
    ['int', 1, '02'],
    ['int', -64, '7f'],
    ['int', 64, '8001'],
    ['int', -(2 ** 31), 'ffffffff0f'],
    ['long', 2n ** 63n - 1n, 'feffffffffffffffff01'],
    ['long', -(2n ** 63n), 'ffffffffffffffffff01'],
    ['float', 1.5, '0000c03f'],
    ['float', -0, '00000080'],
    ['double', 0.1, '9a9999999999b93f'],
    ['bytes', Buffer.of(1, 255), '0401ff'],
    ['string', 'foo', '06666f6f'],
    ['string', 'größe', '0e6772c3b6c39f65'],
    [fixed('F', 2), Buffer.of(1, 2), '0102'],
    [enumOf('E', ['A', 'B', 'C']), 'C', '04'],
    [record('test', ['a', 'long'], ['b', 'string']), fields(27n, 'foo'), '3606666f6f'],
    [{ type: 'array', items: 'long' }, [3n, 27n], '04063600'],
    [{ type: 'array', items: 'long' }, [], '00'],
    [{ type: 'map', values: 'int' }, new Map([['a', 1]]), '0202610200'],
    [{ type: 'map', values: 'int' }, new Map(), '00'],
    [['null', 'string'], branch(0, null), '00'],
    [['null', 'string'], branch(1, 'a'), '020261'],
    [['int', 'float'], branch(1, 5), '020000a040'],
  ])('a datum of type %o with the value %o is encoded to its bytes', (schema, datum, hex) => {
    expect(hexOf(schema, datum)).toBe(hex);
  });

  it.each<readonly [string, unknown, unknown]>([
    ['a number for null', 'null', 0],
    ['undefined for null', 'null', undefined],
    ['a number for a boolean', 'boolean', 1],
    ['a fraction for an int', 'int', 0.5],
    ['33 bits for an int', 'int', 2 ** 31],
    ['a bigint for an int', 'int', 1n],
    ['a number for a long', 'long', 1],
    ['65 bits for a long', 'long', 2n ** 63n],
    ['a number that no float can represent', 'float', 0.1],
    ['a bigint for a double', 'double', 1n],
    ['a text for bytes', 'bytes', 'x'],
    ['bytes for a text', 'string', Buffer.of(1)],
    ['half a pair', 'string', 'a\ud800'],
    ['half a pair as a key', { type: 'map', values: 'int' }, new Map([['\udc00', 1]])],
    ['a fixed of another size', fixed('F', 2), Buffer.of(1)],
    ['an unknown symbol', enumOf('E', ['A']), 'B'],
    ['the index of a symbol', enumOf('E', ['A']), 0],
    ['a plain value for a union', ['null', 'int'], 5],
    ['an unknown branch', ['null', 'int'], branch(2, 5)],
    ['the wrong branch', ['null', 'int'], branch(0, 5)],
    ['a set for an array', { type: 'array', items: 'int' }, new Set([1])],
    ['an object for a map', { type: 'map', values: 'int' }, { a: 1 }],
    ['an object for a record', record('R', ['a', 'int']), { a: 1 }],
    ['a list for a record', record('R', ['a', 'int']), [1]],
    ['a field too few', record('R', ['a', 'int'], ['b', 'null']), fields(1)],
    ['a field too many', record('R', ['a', 'int']), fields(1, 2)],
    ['a nested value that does not fit', record('R', ['a', { type: 'array', items: 'int' }]), fields(['x'])],
  ])('the encoder refuses %s', (_what, schema, datum) => {
    const error = errorOf(() => hexOf(schema, datum));
    expect(error.code).toBe('value_refused');
    expect(error.message).toMatch(/^a datum does not fit its Avro type \w+: /);
  });

  it("a datum as deep as the decoder's limit is encoded, and no deeper one", () => {
    const schema = record('N', ['n', ['null', 'N']]);
    const nested = (depth: number): AvroDatum => {
      let datum: AvroDatum = fields(branch(0, null));
      for (let i = 1; i < depth; i++) datum = fields(branch(1, datum));
      return datum;
    };
    expect(() => read(schema, schema, nested(256))).not.toThrow();
    expect(errorOf(() => hexOf(schema, nested(257))).message).toMatch(/nested deeper than 256/);
  });

  it('the output grows beyond its first buffer', () => {
    const text = 'x'.repeat(100_000);
    expect(
      read({ type: 'array', items: 'string' }, { type: 'array', items: 'string' }, [text, text]),
    ).toEqual([text, text]);
  });
});
