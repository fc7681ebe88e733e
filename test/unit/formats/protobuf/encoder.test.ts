/** Output of the two Protobuf encoders, byte by byte, and the values that they refuse. */
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import type { ProtoDatum } from '../../../../src/formats/datum.ts';
import { protoDecoder } from '../../../../src/formats/protobuf/codec/decoder.ts';
import { encodeProto } from '../../../../src/formats/protobuf/codec/encoder.ts';
import { protoEncoder } from '../../../../src/formats/protobuf/codec/value-encoder.ts';
import { protoReferenceEncoder } from '../../../../src/formats/protobuf/reference/codec.ts';
import { type ProtoSchema, parseSchema } from '../../../../src/formats/schema.ts';
import { encodedBy } from '../../../property/payloads-kit.ts';
import { messageOf } from '../../../property/registry-proto-decoder-kit.ts';

const plain = (text: string, value: unknown): string =>
  encodedBy(protoEncoder(messageOf(text, 'M')), value).toString('hex');
const exact = (text: string, fields: ReadonlyArray<readonly [number, unknown]>): string =>
  encodeProto(messageOf(text, 'M'), new Map(fields) as ProtoDatum).toString('hex');
const refusal = (work: () => unknown): string => {
  try {
    return `written: ${String(work())}`;
  } catch (thrown) {
    if (thrown instanceof MillraceError && thrown.code === 'value_refused') return thrown.message;
    throw thrown;
  }
};
const P3 = 'syntax = "proto3";';
const P2 = 'syntax = "proto2";';

describe('plain objects', () => {
  it.each<readonly [string, string, unknown, string]>([
    [
      'defaults without presence are not written',
      `${P3} message M { int32 a = 1; string s = 2; bytes b = 3; float f = 4; E e = 5; int64 l = 6; bool o = 7; enum E { Z = 0; } }`,
      { a: 0, s: '', b: Buffer.alloc(0), f: 0, e: 'Z', l: 0n, o: false },
      '',
    ],
    [
      'defaults with presence are written',
      `${P3} message M { optional int32 a = 1; oneof o { string s = 2; } }`,
      { a: 0, s: '' },
      '08001200',
    ],
    ['a negative zero is not the default', `${P3} message M { float a = 1; }`, { a: -0 }, '0d00000080'],
    [
      'fields are written in the order of their numbers',
      `${P3} message M { int32 b = 2; int32 a = 1; }`,
      { b: 1, a: 2 },
      '08021001',
    ],
    [
      'null, undefined and unknown names are absent',
      `${P3} message M { optional int32 a = 1; int32 b = 2; }`,
      { a: null, b: undefined, c: 5 },
      '',
    ],
    [
      'inherited object properties are absent',
      `${P3} message M { string constructor = 1; string toString = 2; int32 valueOf = 3; }`,
      {},
      '',
    ],
    [
      'fields with the names of object properties are written',
      `${P3} message M { string constructor = 1; }`,
      { constructor: 'x' },
      '0a0178',
    ],
    [
      'a negative int32 has ten bytes',
      `${P3} message M { int32 a = 1; }`,
      { a: -1 },
      '08ffffffffffffffffff01',
    ],
    [
      '64-bit integers are written from safe numbers',
      `${P3} message M { int64 a = 1; sint64 b = 2; uint64 c = 3; sfixed64 d = 4; }`,
      { a: -1, b: -1, c: 300, d: -1 },
      '08ffffffffffffffffff01100118ac0221ffffffffffffffff',
    ],
    [
      'enums by name and by number',
      `${P3} message M { E a = 1; E b = 2; E c = 3; enum E { Z = 0; ONE = 1; } }`,
      { a: 'ONE', b: 1, c: 77 },
      '08011001184d',
    ],
    [
      'keys of 64 bits',
      `${P3} message M { map<int64, int32> a = 1; map<uint64, int32> b = 2; }`,
      { a: { '-9223372036854775808': 1 }, b: { '18446744073709551615': 0 } },
      '0a0d088080808080808080800110011' + '20d08ffffffffffffffffff011000',
    ],
    [
      'keys that are true and false',
      `${P3} message M { map<bool, int32> a = 1; }`,
      { a: { false: 1, true: 2 } },
      '0a04080010010a0408011002',
    ],
    [
      'a length of two bytes',
      `${P3} message M { M m = 1; string s = 2; }`,
      { m: { s: 'x'.repeat(126) } },
      `0a8001127e${'78'.repeat(126)}`,
    ],
    [
      'extensions by bracketed name',
      `${P2} message M { extensions 100; } extend M { optional int32 a = 100; }`,
      { '[a]': 5 },
      'a00605',
    ],
    [
      'empty lists and maps are not written',
      `${P3} message M { repeated int32 a = 1; map<string, int32> b = 2; }`,
      { a: [], b: {} },
      '',
    ],
  ])('a plain object is encoded: %s', (_what, text, value, hex) => {
    expect(plain(text, value)).toBe(hex);
  });

  it.each<readonly [string, string, unknown, RegExp]>([
    [
      'two members of a oneof',
      `${P3} message M { oneof o { int32 a = 1; int32 b = 2; } }`,
      { a: 1, b: 2 },
      /M\.b cannot hold 2: it is in one oneof with a, which is set/,
    ],
    ['half of a surrogate pair', `${P3} message M { string s = 1; }`, { s: '\ud800' }, /M\.s cannot hold/],
    [
      'an unknown number of a closed enum',
      `${P2} message M { optional E e = 1; enum E { ONE = 1; } }`,
      { e: 2 },
      /it is enum M\.E/,
    ],
    [
      'an enum number beyond 32 bits',
      `${P3} message M { E e = 1; enum E { Z = 0; } }`,
      { e: 2 ** 31 },
      /it is enum M\.E/,
    ],
    [
      'a missing required field',
      `${P2} message M { required int32 a = 1; }`,
      {},
      /M\.a cannot hold undefined: it is required/,
    ],
    [
      'a key that is not an integer',
      `${P3} message M { map<int64, int32> a = 1; }`,
      { a: { '01': 1 } },
      /keys of type int64/,
    ],
    [
      'a negative key without a sign',
      `${P3} message M { map<uint64, int32> a = 1; }`,
      { a: { '-1': 1 } },
      /keys of type uint64/,
    ],
    [
      'a key beyond 64 bits',
      `${P3} message M { map<int64, int32> a = 1; }`,
      { a: { '9223372036854775808': 1 } },
      /keys of type int64/,
    ],
    [
      'a key that is neither true nor false',
      `${P3} message M { map<bool, int32> a = 1; }`,
      { a: { 1: 1 } },
      /keys of type bool/,
    ],
    [
      'a Map',
      `${P3} message M { map<string, int32> a = 1; }`,
      { a: new Map([['x', 1]]) },
      /a map, given as an object/,
    ],
    [
      'a list for a message',
      `${P3} message M { M m = 1; }`,
      { m: [] },
      /M\.m cannot hold a list: it is a message/,
    ],
    [
      'bytes for a message',
      `${P3} message M { M m = 1; }`,
      { m: Buffer.alloc(2) },
      /M\.m cannot hold 2 bytes: it is a message/,
    ],
    [
      'an object that JSON cannot represent',
      `${P3} message M { int32 a = 1; }`,
      { a: { b: 1n } },
      /M\.a cannot hold an object: it is int32/,
    ],
    [
      'a symbol',
      `${P3} message M { string a = 1; }`,
      { a: Symbol('x') },
      /M\.a cannot hold Symbol\(x\): it is string/,
    ],
    ['null in a list', `${P3} message M { repeated M m = 1; }`, { m: [null] }, /M\.m\[0\] cannot hold null/],
    ['a fraction', `${P3} message M { int32 a = 1; }`, { a: 0.5 }, /it is int32/],
    ['an unsafe number for 64 bits', `${P3} message M { int64 a = 1; }`, { a: 2 ** 53 }, /it is int64/],
  ])('the plain encoder refuses %s', (_what, text, value, why) => {
    expect(refusal(() => plain(text, value))).toMatch(why);
  });

  it('a value that contains itself is refused, and the next one is encoded', () => {
    const encoder = protoEncoder(messageOf(`${P3} message M { M m = 1; int32 a = 2; }`, 'M'));
    const write = (value: unknown): Buffer => encodedBy(encoder, value);
    const circle: { m?: unknown } = {};
    circle.m = circle;
    expect(refusal(() => write(circle))).toMatch(/nested deeper than 100 levels/);
    expect(write({ a: 1 }).toString('hex')).toBe('1001');
  });

  it('a value of the greatest depth is encoded and decoded again', () => {
    const message = messageOf(`${P3} message M { M m = 1; map<string, int32> e = 2; }`, 'M');
    const nested = (levels: number): unknown =>
      Array.from({ length: levels }).reduce((inner) => ({ m: inner }), { e: { x: 1 } });
    const bytes = encodedBy(protoEncoder(message), nested(99));
    expect(protoDecoder(message)(bytes, 0, bytes.length)).toMatchObject({ m: {} });
    expect(refusal(() => encodedBy(protoEncoder(message), nested(100)))).toMatch(/nested deeper/);
  });

  it('a text of a megabyte in two alphabets is encoded and decoded again', () => {
    const message = messageOf(`${P3} message M { M m = 1; string s = 2; }`, 'M');
    for (const s of [
      'x'.repeat(1 << 20),
      '本'.repeat(1 << 18),
      `${'x'.repeat(125)}ß`,
      `${'x'.repeat(16_382)}🚚`,
    ]) {
      const bytes = encodedBy(protoEncoder(message), { m: { s } });
      expect(protoDecoder(message)(bytes, 0, bytes.length)).toEqual({ m: { m: null, s }, s: '' });
    }
  });
});

describe('exact values', () => {
  it.each<readonly [string, string, ReadonlyArray<readonly [number, unknown]>, string]>([
    [
      'every given field is written, including defaults',
      `${P3} message M { int32 a = 1; string s = 2; }`,
      [
        [1, 0],
        [2, ''],
      ],
      '08001200',
    ],
    [
      'packing follows the schema',
      `${P2} message M { repeated int32 a = 1; repeated int32 b = 2 [packed = true]; }`,
      [
        [1, [1, 2]],
        [2, [1, 2]],
      ],
      '0801080212020102',
    ],
    [
      'groups',
      `${P2} message M { repeated group G = 1 { optional int32 x = 1; } }`,
      [[1, [new Map([[1, 5]]), new Map()]]],
      '0b08050c0b0c',
    ],
    [
      'map entries keep their order and repeated keys',
      `${P3} message M { map<int32, bool> m = 1; }`,
      [
        [
          1,
          [
            [2, true],
            [1, false],
            [2, false],
          ],
        ],
      ],
      '0a04080210010a04080110000a0408021000',
    ],
    // Bytes as protoc 35.1 writes them.
    [
      'a message set',
      `${P2} message M { option message_set_wire_format = true; extensions 4 to max; } message A { extend M { optional A a = 600000000; optional A b = 5; } optional int32 x = 1; }`,
      [
        [600_000_000, new Map([[1, 7]])],
        [5, new Map([[1, 1]])],
      ],
      '0b10051a0208010c0b10808c8d9e021a0208070c',
    ],
    [
      'numbers without a name',
      `${P3} message M { E e = 1; enum E { Z = 0; } }`,
      [[1, -1]],
      '08ffffffffffffffffff01',
    ],
  ])('an exact value is encoded: %s', (_what, text, fields, hex) => {
    expect(exact(text, fields)).toBe(hex);
  });

  it.each<readonly [string, string, ReadonlyArray<readonly [number, unknown]>, RegExp]>([
    [
      'an unknown field',
      `${P3} message M { int32 a = 1; }`,
      [
        [1, 5],
        [2, 5],
      ],
      /fields that the message has not/,
    ],
    ['a number for 64 bits', `${P3} message M { int64 a = 1; }`, [[1, 5]], /it is int64/],
    ['a name for an enum', `${P3} message M { E e = 1; enum E { Z = 0; } }`, [[1, 'Z']], /it is enum M\.E/],
    ['an object for a message', `${P3} message M { M m = 1; }`, [[1, {}]], /it is a message/],
    [
      'a single value for a repeated field',
      `${P3} message M { repeated int32 a = 1; }`,
      [[1, 5]],
      /it is repeated/,
    ],
    ['a list of values for a map', `${P3} message M { map<int32, int32> a = 1; }`, [[1, [5]]], /it is a map/],
    [
      'a text key of a number',
      `${P3} message M { map<int32, int32> a = 1; }`,
      [[1, [['5', 5]]]],
      /keys of type int32/,
    ],
    [
      'two members of a oneof',
      `${P3} message M { oneof o { int32 a = 1; int32 b = 2; } }`,
      [
        [1, 1],
        [2, 2],
      ],
      /in one oneof/,
    ],
    [
      'a missing value for a required field',
      `${P2} message M { required int32 a = 1; }`,
      [],
      /it is required/,
    ],
  ])('the exact encoder refuses %s', (_what, text, fields, why) => {
    expect(refusal(() => exact(text, fields))).toMatch(why);
  });
});

it('every name of a number is accepted for an enum, by the reference codec too', () => {
  const enumeration = 'enum E { option allow_alias = true; NONE = 0; ZERO = 0; PAID = 1; SETTLED = 1; }';
  const text = `${P3} message M { E e = 1; repeated E list = 2; map<string, E> by = 3; } ${enumeration}`;
  const value = { e: 'SETTLED', list: ['ZERO', 'SETTLED'], by: { k: 'SETTLED' } };
  const written = '0801' + '12020001' + '1a050a016b1001';
  expect(plain(text, value)).toBe(written);
  expect(plain(text, { e: 'ZERO' })).toBe('');
  const file = (parseSchema('PROTOBUF', text) as ProtoSchema).tree;
  const reference = protoReferenceEncoder(file, messageOf(text, 'M'));
  expect(encodedBy(reference, value).toString('hex')).toBe(written);
  expect(encodedBy(reference, { e: 'ZERO' }).toString('hex')).toBe('');
});

it('a number that is no safe integer is refused with the need of a bigint', () => {
  for (const type of ['int64', 'uint64', 'sint64', 'fixed64', 'sfixed64'])
    expect(() => plain(`${P3} message M { ${type} a = 1; }`, { a: 2 ** 53 })).toThrow(/give a bigint/);
});
