import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../src/core/errors.ts';
import type { ResolvedReference } from '../../../src/formats/content.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import { readerCodec } from '../../../src/registry/proof/reader.ts';
import { writerCodec } from '../../../src/serde/codec.ts';

const avro = (schema: unknown, references: readonly ResolvedReference[] = [], lenient = false): Schema =>
  parseSchema('AVRO', typeof schema === 'string' ? schema : JSON.stringify(schema), { references, lenient });
const record = (name: string, ...fields: readonly unknown[]): unknown => ({ type: 'record', name, fields });
const reference = (name: string, schema: unknown, ...references: ResolvedReference[]): ResolvedReference => ({
  name,
  subject: `${name}-value`,
  version: 1,
  format: 'AVRO',
  text: JSON.stringify(schema),
  references,
});

function encoded(schema: Schema, value: unknown): Buffer {
  const into = new Payloads(1, 64);
  writerCodec(schema).encode(value, into);
  return Buffer.from(into.bytes.subarray(0, into.used));
}
function decoded(reader: Schema, writer: Schema, bytes: Buffer): unknown {
  return readerCodec(reader, writer, [])(bytes, 0, bytes.length);
}
const roundTrip = (schema: Schema, value: unknown): unknown =>
  decoded(schema, schema, encoded(schema, value));
const codeOf = (run: () => unknown): string | undefined => {
  try {
    run();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.code ?? String(thrown);
  }
};

describe('unions of several number types', () => {
  it.each<readonly [readonly string[], unknown, string]>([
    [['int', 'long'], 5, '000a'],
    [['int', 'long'], 5n, '020a'],
    [['int', 'double'], 5, '000a'],
    [['double', 'int'], 5, '020a'],
    [['int', 'double'], 2.5, '020000000000000440'],
    [['int', 'double'], -0, '020000000000000080'],
    [['int', 'double'], 2 ** 31, '02000000000000e041'],
    [['int', 'float'], 2.5, '0200002040'],
    [['float', 'double'], 0.5, '000000003f'],
    [['float', 'double'], 0.1, '029a9999999999b93f'],
    [['double', 'float'], 0.5, '020000003f'],
    [['null', 'int', 'long', 'float', 'double'], null, '00'],
    [['null', 'int', 'long', 'float', 'double'], 7n, '040e'],
    [['null', 'int', 'float', 'string'], 'x', '060278'],
    [['boolean', 'int', 'double'], true, '0001'],
    [['long', 'double'], 5, '020000000000001440'],
    [['long', 'double'], 5n, '000a'],
  ])('a union of %j encodes %s in its exact branch', (branches, value, hex) => {
    const schema = avro(record('R', { name: 'a', type: branches }));
    const bytes = encoded(schema, { a: value });
    expect(bytes.toString('hex')).toBe(hex);
    const { a } = decoded(schema, schema, bytes) as { a: unknown };
    expect(Object.is(a, value)).toBe(true);
  });

  it.each<readonly [readonly string[], number, string, bigint]>([
    [['null', 'long'], 5, '020a', 5n],
    [['long', 'string'], -5, '0009', -5n],
    [['int', 'long'], 2 ** 31, '028080808010', 2n ** 31n],
    [['float', 'long'], 2 ** 24 + 1, '0282808010', 2n ** 24n + 1n],
  ])(
    'a union of %j encodes the number %d as a long if no other branch can contain it',
    (branches, value, hex, read) => {
      const schema = avro(record('R', { name: 'a', type: branches }));
      expect(encoded(schema, { a: value }).toString('hex')).toBe(hex);
      expect(roundTrip(schema, { a: value })).toEqual({ a: read });
    },
  );

  it('a union accepts a wrapped value, which names its branch', () => {
    const schema = avro(record('R', { name: 'a', type: ['int', 'double'] }));
    expect(encoded(schema, { a: { double: 5 } }).toString('hex')).toBe('020000000000001440');
    expect(roundTrip(schema, { a: { double: 5 } })).toEqual({ a: 5 });
  });

  it('unions with several number types may also contain named types, records and themselves', () => {
    const schema = avro(
      record(
        'n.R',
        { name: 'e', type: { type: 'enum', name: 'E', symbols: ['A', 'B'] } },
        { name: 'a', type: ['int', 'double', 'E', 'R'] },
        { name: 'l', type: { type: 'array', items: ['null', 'float', 'int'] } },
      ),
    );
    const inner = { e: 'A', a: 'B', l: [] };
    expect(roundTrip(schema, { e: 'B', a: inner, l: [null, 1, 1.5] })).toEqual({
      e: 'B',
      a: inner,
      l: [null, 1, 1.5],
    });
  });

  it('a value that no branch accepts is refused, and nothing is appended', () => {
    const schema = avro(record('R', { name: 'a', type: ['null', 'int', 'float'] }));
    const into = new Payloads(1, 64);
    for (const a of ['x', 5n, undefined, { long: 5n }, { int: 'x' }, [], {}])
      expect(codeOf(() => writerCodec(schema).encode({ a }, into))).toBe('value_refused');
    expect(into.count).toBe(0);
  });

  it('a default is filled from the first branch that it fits', () => {
    const writer = avro(record('R', { name: 'b', type: 'int' }));
    for (const [type, value] of [
      [['int', 'double'], 7],
      [['int', 'double'], 7.5],
      [['null', 'string'], ''],
      [
        ['null', { type: 'array', items: ['null', 'string'] }],
        ['x', null],
      ],
    ]) {
      const reader = avro(record('R', { name: 'b', type: 'int' }, { name: 'a', type, default: value }));
      expect(decoded(reader, writer, encoded(writer, { b: 1 }))).toEqual({ b: 1, a: value });
    }
  });

  it('values of each branch are written if the default belongs to a later branch', () => {
    const schema = avro(record('R', { name: 'a', type: ['null', 'string'], default: 'x' }));
    for (const a of [null, 'y']) expect(decoded(schema, schema, encoded(schema, { a }))).toEqual({ a });
  });
});

describe('Avro long', () => {
  const schema = avro(record('R', { name: 'a', type: 'long' }));

  it.each([5, -1, 0, 2 ** 48, 2 ** 48 + 1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER])(
    'an Avro long encodes the safe integer %d as the bigint of the same value',
    (value) => {
      expect(encoded(schema, { a: value })).toEqual(encoded(schema, { a: BigInt(value) }));
      expect(roundTrip(schema, { a: value })).toEqual({ a: BigInt(value) });
    },
  );

  it.each([2 ** 53, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2n ** 63n, '5'])(
    'an Avro long refuses %s, which it cannot represent exactly',
    (value) => {
      expect(codeOf(() => encoded(schema, { a: value }))).toBe('value_refused');
    },
  );
});

describe('errors of Avro values', () => {
  const schema = avro(
    record(
      'shop.Order',
      {
        name: 'items',
        type: {
          type: 'array',
          items: record(
            'Item',
            { name: 'price', type: 'long' },
            { name: 'kind', type: ['null', { type: 'enum', name: 'Kind', symbols: ['A'] }] },
          ),
        },
      },
      { name: 'labels', type: { type: 'map', values: ['int', 'double'] } },
    ),
  );
  const item = { price: 1n, kind: null };

  it.each<readonly [string, unknown, string]>([
    [
      'in a list',
      { items: [item, { ...item, price: 1.5 }], labels: {} },
      'shop.Order.items[1].price cannot hold 1.5: it is long',
    ],
    [
      'that is missing',
      { items: [{ price: 1n }], labels: {} },
      'shop.Order.items[0].kind cannot hold undefined: it is one of null, enum shop.Kind',
    ],
    [
      'in a union',
      { items: [{ ...item, kind: 'B' }], labels: {} },
      'shop.Order.items[0].kind cannot hold "B": it is enum shop.Kind',
    ],
    [
      'in a map',
      { items: [], labels: { 'a b': 'x' } },
      'shop.Order.labels["a b"] cannot hold "x": it is one of int, double',
    ],
    ['of another kind', { items: 5n, labels: {} }, 'shop.Order.items cannot hold 5n: it is array'],
    ['that is the whole value', null, 'shop.Order cannot hold null: it is record shop.Order'],
  ])('the error names the path of a field %s', (_where, value, message) => {
    expect(() => encoded(schema, value)).toThrow(message);
  });
});

it('a value that contains itself is refused', () => {
  const list = avro(record('N', { name: 'next', type: ['null', 'N'] }));
  const circular: Record<string, unknown> = {};
  circular['next'] = circular;
  expect(codeOf(() => encoded(list, circular))).toBe('value_refused');
});

describe('references', () => {
  const money = reference('shop.Money', record('shop.Money', { name: 'cents', type: 'long' }));
  const line = reference(
    'shop.Line',
    record('shop.Line', { name: 'price', type: 'shop.Money' }, { name: 'qty', type: 'int' }),
    money,
  );
  const order = record(
    'shop.Order',
    { name: 'lines', type: { type: 'array', items: 'Line' } },
    { name: 'total', type: 'Money' },
  );
  const value = { lines: [{ price: { cents: 5n }, qty: 2 }], total: { cents: 10n } };

  it('references encode and decode as if their types were in the schema', () => {
    const schema = avro(order, [line, money]);
    expect(roundTrip(schema, value)).toEqual(value);
    const whole = avro(
      record(
        'shop.Order',
        {
          name: 'lines',
          type: {
            type: 'array',
            items: record(
              'Line',
              { name: 'price', type: record('Money', { name: 'cents', type: 'long' }) },
              { name: 'qty', type: 'int' },
            ),
          },
        },
        { name: 'total', type: 'Money' },
      ),
    );
    expect(encoded(schema, value)).toEqual(encoded(whole, value));
    expect(decoded(whole, schema, encoded(schema, value))).toEqual(value);
  });

  it('references evolve with the schema they belong to', () => {
    const wider = reference(
      'shop.Money',
      record(
        'shop.Money',
        { name: 'cents', type: 'long' },
        { name: 'currency', type: 'string', default: 'EUR' },
      ),
    );
    const writer = avro(order, [line, money]);
    const reader = avro(order, [{ ...line, references: [wider] }, wider]);
    expect(reader.identity).not.toBe(writer.identity);
    expect(decoded(reader, writer, encoded(writer, value))).toEqual({
      lines: [{ price: { cents: 5n, currency: 'EUR' }, qty: 2 }],
      total: { cents: 10n, currency: 'EUR' },
    });
  });
});

describe('unusual names and defaults', () => {
  it('a long default stays exact', () => {
    const writer = avro(record('R', { name: 'b', type: 'int' }));
    const reader = avro(
      '{"type":"record","name":"R","fields":[{"name":"b","type":"int"},{"name":"a","type":"long","default":9007199254740993},{"name":"u","type":["long","null"],"default":-9223372036854775808}]}',
    );
    expect(decoded(reader, writer, encoded(writer, { b: 1 }))).toEqual({
      b: 1,
      a: 9007199254740993n,
      u: -9223372036854775808n,
    });
  });

  it('a float default that is written as a text is filled in', () => {
    const writer = avro(record('R', { name: 'b', type: 'int' }));
    const reader = avro(
      record(
        'R',
        { name: 'b', type: 'int' },
        { name: 'f', type: 'float', default: 'NaN' },
        { name: 'd', type: 'double', default: '-Infinity' },
      ),
    );
    expect(decoded(reader, writer, encoded(writer, { b: 1 }))).toEqual({
      b: 1,
      f: Number.NaN,
      d: Number.NEGATIVE_INFINITY,
    });
  });

  it('a type of the null namespace is resolved inside a namespace', () => {
    const schema = avro(
      record(
        'n.R',
        { name: 'x', type: { type: 'fixed', name: 'F', namespace: '', size: 1 } },
        { name: 'y', type: { type: 'fixed', name: 'F', size: 2 } },
        { name: 'z', type: 'n.F' },
      ),
    );
    const value = { x: Buffer.from([1]), y: Buffer.from([2, 3]), z: Buffer.from([4, 5]) };
    expect(roundTrip(schema, value)).toEqual(value);
  });

  it('records of a stored schema with invalid type names are read', () => {
    const odd = {
      type: 'record',
      name: 'my-app.2.Ereignis-Größe',
      fields: [{ name: 'a', type: { type: 'fixed', name: '__proto__', size: 1 } }],
    };
    const schema = avro(odd, [], true);
    expect(roundTrip(schema, { a: Buffer.from([7]) })).toEqual({ a: Buffer.from([7]) });
  });

  it('records of a stored schema with a misfit default are read', () => {
    const odd = record('R', { name: 'a', type: 'int', default: 'x' });
    expect(roundTrip(avro(odd, [], true), { a: 1 })).toEqual({ a: 1 });
  });
});

describe('JSON Schema', () => {
  const json = parseSchema('JSON', '{"type":"object"}');
  it('a JSON Schema has no codec, and the error states it', () => {
    expect(codeOf(() => writerCodec(json))).toBe('invalid_schema');
    expect(codeOf(() => readerCodec(json, json, []))).toBe('incompatible_schema');
    expect(codeOf(() => readerCodec(avro('"int"'), json, []))).toBe('incompatible_schema');
  });
});
