/** Projection of Avro values, with expectations written by hand from "Schema Resolution", "Aliases"
 *  and "Schema Declaration" of Apache Avro 1.12. The tests use neither the checker nor the
 *  decoder. */
import { describe, expect, it } from 'vitest';
import type { AvroNode } from '../../../../src/formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { defaultOf, NO_DEFAULT } from '../../../../src/registry/proof/avro/default.ts';
import { avroJson } from '../../../../src/registry/proof/avro/json.ts';
import { projectAvro } from '../../../../src/registry/proof/avro/projection.ts';
import { sameValue } from '../../../../src/registry/proof/same.ts';
import type { Projection } from '../../../../src/registry/proof/trial.ts';

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

function tree(json: Json): AvroNode {
  const schema = parseSchema('AVRO', JSON.stringify(json), { lenient: true });
  if (schema.format !== 'AVRO') throw new Error('not Avro');
  return schema.tree;
}
const project = (datum: AvroDatum, writer: Json, reader: Json): Projection =>
  projectAvro(datum, tree(writer), tree(reader));
const ok = (value: unknown): Projection => ({ kind: 'value', value, lossless: true });
const lossy = (value: unknown): Projection => ({ kind: 'value', value, lossless: false });
function expectNone(projection: Projection, why: RegExp): void {
  expect(projection.kind).toBe('none');
  if (projection.kind === 'none') expect(projection.why).toMatch(why);
}
function expectSame(got: Projection, wanted: Projection): void {
  expect(sameValue(got, wanted), `${show(got)} is not ${show(wanted)}`).toBe(true);
}
const show = (value: unknown): string =>
  JSON.stringify(value, (_key, one: unknown) => (typeof one === 'bigint' ? `${one}n` : one));

const record = (...fields: readonly Json[]): Json => ({ type: 'record', name: 'R', fields });
const enumeration = (symbols: readonly string[], more: { readonly [key: string]: Json } = {}): Json => ({
  type: 'enum',
  name: 'E',
  symbols,
  ...more,
});

describe('promoted numbers', () => {
  it.each<[AvroDatum, string, string, Projection]>([
    [7, 'int', 'int', ok(7)],
    [-1, 'int', 'long', ok(-1n)],
    [2 ** 24, 'int', 'float', ok(2 ** 24)],
    [2 ** 24 + 1, 'int', 'float', lossy(2 ** 24)],
    [2 ** 24 + 3, 'int', 'float', lossy(2 ** 24 + 4)],
    [-(2 ** 31), 'int', 'float', ok(-(2 ** 31))],
    [2 ** 31 - 1, 'int', 'double', ok(2 ** 31 - 1)],
    [2n ** 53n, 'long', 'double', ok(2 ** 53)],
    [2n ** 53n + 1n, 'long', 'double', lossy(2 ** 53)],
    [2n ** 63n - 1n, 'long', 'double', lossy(2 ** 63)],
    [-(2n ** 63n), 'long', 'double', ok(-(2 ** 63))],
    // Slightly above the midpoint of two floats. Rounding to a double first would give the
    // midpoint, which rounds down.
    [2n ** 60n + 2n ** 36n + 1n, 'long', 'float', lossy(2 ** 60 + 2 ** 37)],
    [2n ** 60n + 2n ** 36n, 'long', 'float', lossy(2 ** 60)],
    [2n ** 60n + 3n * 2n ** 36n, 'long', 'float', lossy(2 ** 60 + 2 ** 38)],
    [-(2n ** 60n) - 2n ** 36n - 1n, 'long', 'float', lossy(-(2 ** 60) - 2 ** 37)],
    [2n ** 63n - 1n, 'long', 'float', lossy(2 ** 63)],
    [0n, 'long', 'float', ok(0)],
    [-0, 'float', 'double', ok(-0)],
    [Number.NaN, 'float', 'double', ok(Number.NaN)],
    [Math.fround(0.1), 'float', 'double', ok(Math.fround(0.1))],
  ])('the value %s of %s is projected as %s', (datum, writer, reader, wanted) => {
    expectSame(project(datum, writer, reader), wanted);
  });

  it.each([
    ['long', 'int', 1n],
    ['float', 'int', 1],
    ['float', 'long', 1],
    ['double', 'float', 1],
    ['double', 'long', 1],
    ['boolean', 'int', true],
    ['int', 'string', 1],
    ['null', 'int', null],
  ] as const)('a written %s is not read as %s', (writer, reader, datum) => {
    expectNone(project(datum, writer, reader), /is not promoted to/);
  });
});

describe('texts and bytes', () => {
  it('a text is projected to its UTF-8 bytes and back, including a byte order mark', () => {
    expectSame(project('\ufeffgröße🚚', 'string', 'bytes'), ok(Buffer.from('\ufeffgröße🚚', 'utf8')));
    expectSame(project(Buffer.from('\ufeffx'), 'bytes', 'string'), ok('\ufeffx'));
    // A written U+FFFD is valid.
    expectSame(project(Buffer.from('\ufffd'), 'bytes', 'string'), ok('\ufffd'));
  });

  it.each([[[0xff]], [[0xc0, 0x80]], [[0xed, 0xa0, 0x80]], [[0xf4, 0x90, 0x80, 0x80]], [[0xe2, 0x82]]])(
    'the bytes %j are not projected to a text',
    (bytes) => {
      expectNone(project(Uint8Array.from(bytes), 'bytes', 'string'), /not UTF-8/);
    },
  );
});

describe('named types', () => {
  const fixed = (name: string, size: number, aliases: readonly string[] = []): Json => ({
    type: 'fixed',
    name,
    size,
    aliases,
  });

  it('named types are matched by the last part of their names', () => {
    expectSame(project(Buffer.from([1, 2]), fixed('a.F', 2), fixed('b.F', 2)), ok(Buffer.from([1, 2])));
    expectNone(project(Buffer.from([1, 2]), fixed('a.F', 2), fixed('a.G', 2)), /a\.F is not a\.G/);
  });

  it("a reader's alias is matched with the full name of the writer", () => {
    expectSame(project(Buffer.from([1]), fixed('a.F', 1), fixed('b.G', 1, ['a.F'])), ok(Buffer.from([1])));
    expectNone(project(Buffer.from([1]), fixed('a.F', 1), fixed('b.G', 1, ['F'])), /a\.F is not b\.G/);
    // Aliases of the writer have no effect.
    expectNone(project(Buffer.from([1]), fixed('b.G', 1, ['a.F']), fixed('a.F', 1)), /b\.G is not a\.F/);
  });

  it('fixed types must have equal sizes', () => {
    expectNone(project(Buffer.from([1]), fixed('F', 1), fixed('F', 2)), /1 bytes are not 2/);
  });

  it('records are matched by name too', () => {
    const one = { type: 'record', name: 'a.R', fields: [] };
    expectNone(project({ fields: [] }, one, { ...one, name: 'a.S' }), /a\.R is not a\.S/);
    expectSame(project({ fields: [] }, one, { ...one, name: 'b.R' }), ok({}));
  });

  it('a missing symbol is projected to the default of the enum, or has no projection', () => {
    const writer = enumeration(['A', 'B']);
    expectSame(project('A', writer, enumeration(['A'])), ok('A'));
    expectNone(project('B', writer, enumeration(['A'])), /neither B nor a default/);
    expectSame(project('B', writer, enumeration(['A'], { default: 'A' })), lossy('A'));
    // The writer's default is not the reader's.
    expectNone(project('B', enumeration(['A', 'B'], { default: 'A' }), enumeration(['A'])), /neither B/);
  });
});

describe('records', () => {
  const written = record({ name: 'a', type: 'int' }, { name: 'b', type: 'string' });
  const datum: AvroDatum = { fields: [5, 'x'] };

  it('fields are matched by name, in the order of the reader', () => {
    const got = project(datum, written, record({ name: 'b', type: 'string' }, { name: 'a', type: 'long' }));
    expectSame(got, ok({ b: 'x', a: 5n }));
    expectSame(project(datum, written, record()), ok({}));
  });

  it('an unwritten field has the default, and is an error without a default', () => {
    const note = { name: 'note', type: 'string' };
    expectSame(project(datum, written, record({ ...note, default: 'n' })), ok({ note: 'n' }));
    expectNone(project(datum, written, record(note)), /"note" is not written/);
    expectNone(project(datum, written, record({ ...note, default: 7 })), /"note" is not written/);
  });

  it('an alias reads the written field, and two matches or two readers of one field are errors', () => {
    expectSame(project(datum, written, record({ name: 'c', type: 'int', aliases: ['a'] })), ok({ c: 5 }));
    expectNone(
      project(datum, written, record({ name: 'b', type: 'string', aliases: ['a'] })),
      /names more than one/,
    );
    const both = record({ name: 'a', type: 'int' }, { name: 'c', type: 'int', aliases: ['a'] });
    expectNone(project(datum, written, both), /"a" and "c" read one written field/);
  });

  it('a value that was renamed away from the reader is lossy', () => {
    const renamed = record({ name: 'memo', type: 'string', aliases: ['note'] });
    const reader = record({ name: 'note', type: 'string', default: '' });
    expectSame(project({ fields: ['x'] }, renamed, reader), lossy({ note: '' }));
    const knowsBoth = record({ name: 'memo', type: 'string' }, { name: 'note', type: 'string', default: '' });
    expectSame(project({ fields: ['x'] }, renamed, knowsBoth), ok({ memo: 'x', note: '' }));
  });

  it('nested values are resolved too, however deep, and recursion ends with the event', () => {
    const list = (type: string): Json =>
      record(
        { name: 'n', type },
        { name: 'next', type: ['null', 'R'] },
        { name: 'm', type: { type: 'map', values: 'R' } },
      );
    const leaf: AvroDatum = { fields: [1, { branch: 0, value: null }, new Map()] };
    const two: AvroDatum = { fields: [2, { branch: 1, value: leaf }, new Map([['__proto__', leaf]])] };
    const got = project(two, list('int'), list('long'));
    const plain = { n: 1n, next: null, m: {} };
    expectSame(got, ok({ n: 2n, next: plain, m: own('__proto__', plain) }));
  });
});

const own = (key: string, value: unknown): unknown =>
  Object.defineProperty({}, key, { value, enumerable: true });

describe('unions', () => {
  const at = (branch: number, value: AvroDatum): AvroDatum => ({ branch, value });

  it('each event is projected by the union branch that it uses', () => {
    expectSame(project(at(0, null), ['null', 'int'], 'null'), ok(null));
    expectNone(project(at(1, 5), ['null', 'int'], 'null'), /int is not promoted to null/);
    expectNone(project(at(1, 5), ['null', 'int'], ['null', 'string']), /no branch .* takes int/);
  });

  it('a branch of the same type precedes the first branch of a promotion', () => {
    // A program can distinguish long from double.
    expectSame(project(at(0, 5n), ['long'], ['double', 'long']), ok(5n));
    expectSame(project(5, 'int', ['double', 'long']), ok(5));
    expectSame(project(5, 'int', ['long', 'double']), ok(5n));
    expectSame(project(at(0, 2n ** 53n + 1n), ['long'], ['string', 'double']), lossy(2 ** 53));
    expectSame(project(at(0, 1), ['float'], ['float', 'int']), ok(1));
    expectNone(project(5n, 'long', ['int', 'null']), /no branch/);
  });

  it('a named branch is matched by the full name, an alias, and the last part of the name', () => {
    const one = (name: string, aliases: readonly string[] = []): Json => ({
      type: 'enum',
      name,
      symbols: ['A'],
      aliases,
    });
    const wrapped = (name: string): unknown => ({ [name]: 'A' });
    expectSame(project('A', one('n.E'), [one('m.E'), one('n.E')]), ok(wrapped('n.E')));
    expectSame(project('A', one('n.E'), [one('m.E'), one('n.F', ['n.E'])]), ok(wrapped('n.F')));
    expectSame(project('A', one('n.E'), [one('n.F', ['n.E']), one('n.E')]), ok(wrapped('n.E')));
    expectSame(project('A', one('n.E'), [one('n.F'), one('m.E'), one('k.E')]), ok(wrapped('m.E')));
    // A record of that name is another kind of type.
    expectNone(project('A', one('n.E'), [{ type: 'record', name: 'm.E', fields: [] }]), /no branch/);
  });

  it('a chosen branch that cannot be read is an error and does not lead to the next branch', () => {
    const of = (name: string, type: string): Json => ({
      type: 'record',
      name,
      fields: [{ name: 'a', type }],
    });
    const union = [of('n.R', 'string'), of('m.R', 'int')];
    expectNone(project({ fields: [1] }, of('n.R', 'int'), union), /int is not promoted to string/);
  });

  it('values are wrapped if JavaScript could not distinguish the branches', () => {
    const bytes = Buffer.from([1]);
    expectSame(project(at(0, bytes), ['bytes', 'string'], ['bytes', 'string']), ok(bytes));
    const alike = ['bytes', { type: 'fixed', name: 'F', size: 1 }];
    expectSame(project(at(0, bytes), alike, alike), ok({ bytes }));
    expectSame(project(at(1, bytes), alike, ['null', ...alike]), ok({ F: bytes }));
    expectSame(project(null, 'null', ['null', ...alike]), ok(null));
  });
});

describe('logical types', () => {
  const logical = (type: string, logicalType: string, more: { readonly [key: string]: Json } = {}): Json => ({
    type,
    logicalType,
    ...more,
  });

  it('two differing logical types are an error, and a single one is its base type', () => {
    const millis = logical('long', 'timestamp-millis');
    expectSame(project(5n, millis, millis), ok(5n));
    expectSame(project(5n, millis, 'long'), ok(5n));
    expectSame(project(5n, 'long', millis), ok(5n));
    expectNone(project(5n, millis, logical('long', 'timestamp-micros')), /timestamp-millis is not/);
    expectNone(project(5, logical('int', 'date'), millis), /date is not/);
    expectSame(project(5, 'int', millis), ok(5n));
  });

  it('decimals must have the same precision and scale', () => {
    const decimal = (precision: number, scale?: number): Json =>
      logical('bytes', 'decimal', scale === undefined ? { precision } : { precision, scale });
    const bytes = Buffer.from([4, 210]);
    expectSame(project(bytes, decimal(9), decimal(9, 0)), ok(bytes));
    expectNone(project(bytes, decimal(9, 2), decimal(9, 4)), /decimal is not decimal/);
    expectNone(project(bytes, decimal(9, 2), decimal(8, 2)), /decimal is not decimal/);
  });
});

describe('defaults', () => {
  const of = (type: Json, value: Json): unknown => {
    const node = tree(record({ name: 'f', type, default: value }));
    return node.kind === 'record' && node.fields[0] !== undefined ? defaultOf(node.fields[0]) : undefined;
  };

  it.each<[Json, Json, unknown]>([
    ['null', null, null],
    ['int', -5, -5],
    ['long', 5, 5n],
    ['float', 0.1, Math.fround(0.1)],
    ['double', 0.1, 0.1],
    ['double', 'NaN', Number.NaN],
    ['float', '-Infinity', Number.NEGATIVE_INFINITY],
    ['bytes', '\u00ff\u0000', Buffer.from([255, 0])],
    ['string', 'größe', 'größe'],
    [['long', 'null'], 1, 1n],
    [['bytes', { type: 'fixed', name: 'F', size: 1 }], 'a', { bytes: Buffer.from('a') }],
    [{ type: 'fixed', name: 'F', size: 2 }, 'ab', Buffer.from('ab')],
    [enumeration(['A', 'B']), 'B', 'B'],
    [{ type: 'array', items: 'long' }, [1, 2], [1n, 2n]],
    [{ type: 'map', values: 'float' }, { k: 1 }, { k: 1 }],
    [
      {
        type: 'record',
        name: 'I',
        fields: [
          { name: 'a', type: 'long' },
          { name: 'b', type: 'int', default: 3 },
        ],
      },
      { a: 1, other: 'ignored' },
      { a: 1n, b: 3 },
    ],
  ])('the default of type %j is projected: %j', (type, value, wanted) => {
    const got = of(type, value);
    expect(sameValue(got, wanted), `${show(got)} is not ${show(wanted)}`).toBe(true);
  });

  it.each<[Json, Json]>([
    ['null', 'null'],
    ['int', 2 ** 31],
    ['int', 1.5],
    ['long', '1'],
    ['float', 'one'],
    [['null', 'double'], 'NaN'],
    ['bytes', 'Ā'],
    ['boolean', 0],
    [{ type: 'fixed', name: 'F', size: 2 }, 'abc'],
    [enumeration(['A']), 'B'],
    [['null', 'int'], 'x'],
    [{ type: 'array', items: 'int' }, [1, null]],
    [{ type: 'map', values: 'int' }, { k: 'x' }],
    [{ type: 'record', name: 'I', fields: [{ name: 'a', type: 'long' }] }, {}],
    [{ type: 'record', name: 'I', fields: [{ name: 'a', type: 'long', default: null }] }, {}],
    // Each value needs another value of its own type.
    [{ type: 'record', name: 'I', fields: [{ name: 'a', type: 'I', default: {} }] }, {}],
  ])('the type %j has no such default: %j', (type, value) => {
    expect(of(type, value)).toBe(NO_DEFAULT);
  });

  it('a default keeps digits beyond a double', () => {
    const schema = parseSchema(
      'AVRO',
      '{"type":"record","name":"R","fields":[{"name":"f","type":"long","default":9223372036854775807}]}',
    );
    const node = (schema as { readonly tree: AvroNode }).tree;
    expect(node.kind === 'record' && node.fields[0] && defaultOf(node.fields[0])).toBe(2n ** 63n - 1n);
  });
});

describe('JSON form of an event', () => {
  it('the JSON form keeps digits, names branches and shows bytes', () => {
    const type = tree(
      record(
        { name: 'l', type: 'long' },
        { name: 'u', type: ['null', 'string', enumeration(['A'])] },
        { name: 'n', type: ['null', 'int'] },
        { name: 'b', type: 'bytes' },
        { name: 'd', type: { type: 'array', items: 'double' } },
        { name: 'm', type: { type: 'map', values: 'boolean' } },
      ),
    );
    const datum: AvroDatum = {
      fields: [
        2n ** 63n - 1n,
        { branch: 2, value: 'A' },
        { branch: 0, value: null },
        Uint8Array.from([0xff, 0x22, 0x5c, 0x41]),
        [-0, Number.NaN, 1.5],
        new Map([['k"', true]]),
      ],
    };
    expect(avroJson(datum, type)).toBe(
      '{"l":9223372036854775807,"u":{"E":"A"},"n":null,"b":"\\u00ff\\u0022\\u005cA","d":[-0.0,"NaN",1.5],"m":{"k\\"":true}}',
    );
  });
});
