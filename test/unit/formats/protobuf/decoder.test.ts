/** Rules of the wire format, one for each case: bytes, and their decoded values. */
import { describe, expect, it } from 'vitest';
import { protoDecoder } from '../../../../src/formats/protobuf/codec/decoder.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { all, LONGEST, read, refusal } from './decoder-bytes.ts';

describe('varints', () => {
  all([
    ['int32 keeps the low 32 bits', 3, 'message M { int32 a = 1; }', '08 8180808010', { a: 1 }],
    ['int32 of ten bytes', 3, 'message M { int32 a = 1; }', `08 ${LONGEST}01`, { a: -1 }],
    ['int32 of five bytes is negative too', 3, 'message M { int32 a = 1; }', '08 ffffffff0f', { a: -1 }],
    ['uint32 keeps the low 32 bits', 3, 'message M { uint32 a = 1; }', `08 ${LONGEST}01`, { a: 2 ** 32 - 1 }],
    ['sint32 keeps the low 32 bits', 3, 'message M { sint32 a = 1; }', `08 ${LONGEST}01`, { a: -(2 ** 31) }],
    ['int64 of ten bytes', 3, 'message M { int64 a = 1; }', `08 ${LONGEST}01`, { a: -1n }],
    ['uint64 of ten bytes', 3, 'message M { uint64 a = 1; }', `08 ${LONGEST}01`, { a: 2n ** 64n - 1n }],
    ['sint64 of ten bytes', 3, 'message M { sint64 a = 1; }', `08 ${LONGEST}01`, { a: -(2n ** 63n) }],
    [
      'bits beyond the 64th are dropped',
      3,
      'message M { uint64 a = 1; }',
      '08 8080808080808080807e',
      { a: 0n },
    ],
    [
      'bool is any bit of 64',
      3,
      'message M { bool a = 1; bool b = 2; }',
      '08 80808080808001 10 808000',
      { a: true, b: false },
    ],
    ['zeros may lengthen a value', 3, 'message M { int32 a = 1; }', '08 85808000', { a: 5 }],
    [
      'zeros may lengthen a tag and a length',
      3,
      'message M { string a = 1; }',
      '8a8000 8180808000 78',
      { a: 'x' },
    ],
  ]);
});

describe('fixed and other scalars', () => {
  all([
    [
      'each type',
      3,
      'message M { fixed32 a = 1; sfixed32 b = 2; fixed64 c = 3; sfixed64 d = 4; float e = 5; double f = 6; bytes g = 7; }',
      '0d ffffffff 15 ffffffff 19 ffffffffffffffff 21 ffffffffffffffff 2d 0000c03f 31 000000000000f8bf 3a 02 00ff',
      { a: 2 ** 32 - 1, b: -1, c: 2n ** 64n - 1n, d: -1n, e: 1.5, f: -1.5, g: Buffer.from([0, 255]) },
    ],
    ['a negative zero stays a negative zero', 3, 'message M { float a = 1; }', '0d 00000080', { a: -0 }],
    ['U+FFFD is text', 3, 'message M { string a = 1; }', '0a 03 efbfbd', { a: '\ufffd' }],
  ]);

  it('decoded bytes are a copy', () => {
    const schema = parseSchema('PROTOBUF', 'syntax = "proto3"; message M { bytes a = 1; }');
    const message = schema.format === 'PROTOBUF' ? schema.tree.messages[0] : undefined;
    const payload = Buffer.from('0a0100', 'hex');
    const value = message === undefined ? undefined : protoDecoder(message)(payload, 0, 3);
    payload.fill(0xff);
    expect(value).toStrictEqual({ a: Buffer.from([0]) });
  });
});

describe('absent fields', () => {
  all([
    [
      'fields without presence have the default',
      3,
      'message M { int32 a = 1; int64 b = 2; string c = 3; bytes d = 4; bool e = 5; E f = 6; float g = 7; enum E { ZERO = 0; } }',
      '',
      { a: 0, b: 0n, c: '', d: Buffer.alloc(0), e: false, f: 'ZERO', g: 0 },
    ],
    [
      'fields with presence are null',
      3,
      'message M { optional int32 a = 1; M b = 2; oneof o { string c = 3; } repeated int32 d = 4; map<string, int32> e = 5; }',
      '',
      { a: null, b: null, c: null, d: [], e: Object.create(null) },
    ],
    [
      'fields of proto2 are null, whatever their default',
      2,
      'message M { optional int32 a = 1 [default = 7]; }',
      '',
      { a: null },
    ],
    [
      'fields with presence and a written default have the default',
      3,
      'message M { optional int32 a = 1; }',
      '0800',
      { a: 0 },
    ],
    [
      'fields of an edition follow field_presence',
      'e',
      'message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; }',
      '',
      { a: null, b: 0 },
    ],
  ]);
});

describe('repeated fields', () => {
  const packed = '0a 04 01 ac02 03';
  const text = 'message M { repeated int32 a = 1; }';
  all([
    ['a packed run', 3, text, packed, { a: [1, 300, 3] }],
    ['single values', 3, text, '0801 08ac02 0803', { a: [1, 300, 3] }],
    [
      'a mixture of packed runs and single values',
      3,
      text,
      `0809 ${packed} 0807 0a00`,
      { a: [9, 1, 300, 3, 7] },
    ],
    ['a packed run for an unpacked field', 2, text, packed, { a: [1, 300, 3] }],
    [
      'a packed run for a proto3 field with packed = false',
      3,
      'message M { repeated int32 a = 1 [packed = false]; }',
      packed,
      { a: [1, 300, 3] },
    ],
    [
      'packed runs of every packable type',
      3,
      'message M { repeated fixed32 a = 1; repeated fixed64 b = 2; repeated bool c = 3; repeated sint64 d = 4; repeated double e = 5; }',
      '0a 08 0100000002000000 12 08 0300000000000000 1a 02 0100 22 02 0102 2a 08 000000000000f03f 0d 09000000',
      { a: [1, 2, 9], b: [3n], c: [true, false], d: [-1n, 1n], e: [1] },
    ],
    ['single texts', 3, 'message M { repeated string a = 1; }', '0a0178 0a00', { a: ['x', ''] }],
    [
      'repeated messages do not merge',
      3,
      'message M { repeated N a = 1; message N { int32 x = 1; int32 y = 2; } }',
      '0a020801 0a021002',
      {
        a: [
          { x: 1, y: 0 },
          { x: 0, y: 2 },
        ],
      },
    ],
  ]);
});

describe('singular fields', () => {
  const inner =
    'message N { int32 x = 1; int32 y = 2; repeated int32 r = 3; map<string, int32> m = 4; optional N n = 5; }';
  const empty = Object.create(null) as object;
  all([
    [
      'the last of a scalar wins',
      3,
      'message M { int32 a = 1; string b = 2; }',
      '0801 120178 0802 120179',
      { a: 2, b: 'y' },
    ],
    ['a written zero wins too', 3, 'message M { int32 a = 1; }', '0801 0800', { a: 0 }],
    [
      'parts of a message merge',
      3,
      `message M { N a = 1; } ${inner}`,
      '0a 08 0801 1001 1801 2a00 0a 04 1002 1802',
      { a: { x: 1, y: 2, r: [1, 2], m: empty, n: { x: 0, y: 0, r: [], m: empty, n: null } } },
    ],
    [
      'a packed run has another wire type than a singular number',
      3,
      'message M { int32 a = 1; }',
      '0a020102 0803',
      { a: 3 },
    ],
  ]);
});

describe('oneofs', () => {
  const text =
    'message M { oneof o { int32 a = 1; N b = 2; N c = 3; E d = 4; } message N { int32 x = 1; int32 y = 2; } enum E { Z = 0; ONE = 1; } }';
  const none = { a: null, b: null, c: null, d: null };
  all([
    ['the last member wins', 3, text, '0801 12020801', { ...none, b: { x: 1, y: 0 } }],
    ['a default counts as set', 3, text, '12020801 0800', { ...none, a: 0 }],
    ['one member merges with itself', 3, text, '12020801 12021002', { ...none, b: { x: 1, y: 2 } }],
    [
      'a member does not merge across another member',
      3,
      text,
      '12020801 0801 12021002',
      { ...none, b: { x: 0, y: 2 } },
    ],
    [
      'members of one type are not the same member',
      3,
      text,
      '12020801 1a021002',
      { ...none, c: { x: 0, y: 2 } },
    ],
    [
      'a field with an unknown wire type clears no member',
      3,
      text,
      '12020801 0a0101',
      { ...none, b: { x: 1, y: 0 } },
    ],
    [
      'an unknown number of a closed enum clears no member',
      2,
      'message M { oneof o { int32 a = 1; E b = 2; } enum E { ONE = 1; } }',
      '0805 1007',
      { a: 5, b: null },
    ],
  ]);
});

describe('enums', () => {
  const open =
    'message M { optional E a = 1; repeated E b = 2; map<string, E> c = 3; enum E { Z = 0; ONE = 1; } }';
  const closed =
    'message M { optional E a = 1; repeated E b = 2; map<string, E> c = 3; enum E { Z = 0; ONE = 1; TWO = 2; } }';
  const bytes = '0801 0807 1001 1007 1203010702 1a050a01781001 1a050a01781007 1a050a01791007';
  const map = (entries: object): object => Object.assign(Object.create(null) as object, entries);
  all([
    [
      'open: a number without a name stays a number',
      3,
      open,
      bytes,
      { a: 7, b: ['ONE', 7, 'ONE', 7, 2], c: map({ x: 7, y: 7 }) },
    ],
    [
      'closed: an unknown number is dropped, and a map entry with it',
      2,
      closed,
      bytes,
      { a: 'ONE', b: ['ONE', 'ONE', 'TWO'], c: map({ x: 'ONE' }) },
    ],
    [
      'closed by an edition',
      'e',
      'message M { E a = 1; enum E { option features.enum_type = CLOSED; ONE = 1; } }',
      '0807',
      { a: null },
    ],
    ['open by an edition', 'e', 'message M { E a = 1; enum E { ZERO = 0; } }', '0807', { a: 7 }],
    ['the low 32 bits decide', 3, open, `08 8180808010`, { a: 'ONE', b: [], c: map({}) }],
    [
      'a negative number',
      2,
      'message M { optional E a = 1; enum E { MINUS = -1; } }',
      `08 ${LONGEST}01`,
      { a: 'MINUS' },
    ],
    [
      'the first of two names for a number',
      3,
      'message M { E a = 1; enum E { option allow_alias = true; Z = 0; FIRST = 1; SECOND = 1; } }',
      '0801',
      { a: 'FIRST' },
    ],
    [
      'an entry without a value has the first number',
      2,
      closed,
      '1a 03 0a0178',
      { a: null, b: [], c: map({ x: 'Z' }) },
    ],
  ]);
});

describe('maps', () => {
  const map = (entries: object): object => Object.assign(Object.create(null) as object, entries);
  const text = 'message M { map<string, int32> a = 1; }';
  all([
    ['absent key and value are defaults', 3, text, '0a00 0a03 0a0178 0a02 1005', { a: map({ '': 5, x: 0 }) }],
    ['the last entry of a key wins', 3, text, '0a05 0a0178 1001 0a05 0a0178 1002', { a: map({ x: 2 }) }],
    ['the last key and value in an entry win', 3, text, '0a0a 0a0178 1001 1002 0a0179', { a: map({ y: 2 }) }],
    ['value before key', 3, text, '0a05 1001 0a0178', { a: map({ x: 1 }) }],
    ['unknown fields of an entry are skipped', 3, text, '0a0a 0a0178 1801 1201ff 1001', { a: map({ x: 1 }) }],
    [
      'keys are text',
      3,
      'message M { map<bool, int32> a = 1; map<sint32, int32> b = 2; map<uint32, int32> c = 3; }',
      '0a04 08011001 0a04 08001002 1204 08011001 1a08 08ffffffff0f1001',
      { a: map({ true: 1, false: 2 }), b: map({ '-1': 1 }), c: map({ '4294967295': 1 }) },
    ],
    [
      '64-bit keys are decimal text',
      3,
      'message M { map<int64, int32> a = 1; map<uint64, int32> b = 2; map<fixed64, int32> c = 3; map<sint64, int32> d = 4; map<sfixed64, int32> e = 5; }',
      `0a0d 08${LONGEST}01 1001 120d 08${LONGEST}01 1001 1a0b 09ffffffffffffffff1001 2204 0801 1001 2a0b 09ffffffffffffffff1001`,
      {
        a: map({ '-1': 1 }),
        b: map({ '18446744073709551615': 1 }),
        c: map({ '18446744073709551615': 1 }),
        d: map({ '-1': 1 }),
        e: map({ '-1': 1 }),
      },
    ],
    [
      'a message of an entry merges in it, and is replaced by another entry',
      3,
      'message M { map<string, N> a = 1; message N { int32 x = 1; int32 y = 2; } }',
      '0a08 12020801 12021002 0a07 0a0178 12020801 0a07 0a0178 12021002',
      { a: map({ '': { x: 1, y: 2 }, x: { x: 0, y: 2 } }) },
    ],
    [
      'a message of an entry may be absent',
      3,
      'message M { map<string, N> a = 1; message N { int32 x = 1; } }',
      '0a03 0a0178',
      { a: map({ x: { x: 0 } }) },
    ],
    [
      'a key may be any text',
      3,
      text,
      '0a0d 0a095f5f70726f746f5f5f 1001',
      { a: map(JSON.parse('{"__proto__":1}')) },
    ],
  ]);

  it('a map key __proto__ is kept as a key', () => {
    const { a } = read(3, text, '0a0d 0a095f5f70726f746f5f5f 1001') as { a: object };
    expect(Object.entries(a)).toEqual([['__proto__', 1]]);
  });
});

describe('groups and delimited messages', () => {
  const text =
    'message M { optional group G = 1 { optional int32 x = 1; optional int32 y = 2; } repeated group R = 2 { optional int32 x = 1; } }';
  all([
    [
      'groups are read up to their end tag',
      2,
      text,
      '0b 0801 0c 13 0801 14 13 14',
      { g: { x: 1, y: null }, r: [{ x: 1 }, { x: null }] },
    ],
    ['groups merge like messages', 2, text, '0b 0801 0c 0b 1002 0c', { g: { x: 1, y: 2 }, r: [] }],
    ['groups with a length are unknown fields', 2, text, '0a 02 0801', { g: null, r: [] }],
    [
      'delimited messages of an edition',
      'e',
      'message M { N n = 1 [features.message_encoding = DELIMITED]; message N { int32 x = 1; } }',
      '0b 0801 0c',
      { n: { x: 1 } },
    ],
    [
      'delimited encoding of a file does not apply to map entries',
      'e',
      'option features.message_encoding = DELIMITED; message M { map<string, N> m = 1; message N { int32 x = 1; } }',
      '0a 07 0a0178 12020801',
      { m: Object.assign(Object.create(null) as object, { x: { x: 1 } }) },
    ],
  ]);
  it('a message between group tags is unknown to a length-delimited field', () => {
    expect(
      read(3, 'message M { N n = 1; int32 a = 2; message N { int32 x = 1; } }', '0b 0801 0c 1005'),
    ).toEqual({ n: null, a: 5 });
  });
});

describe('extensions', () => {
  it('extensions of the file are decoded as fields named in brackets', () => {
    const text =
      'package p; message M { extensions 100 to 200; } extend M { optional int32 a = 100; repeated N n = 101; } message N { extend M { optional string b = 102; } optional int32 x = 1; }';
    expect(read(2, text, 'a006 05 aa06 02 0801 b206 01 78', 'p.M')).toEqual({
      '[p.a]': 5,
      '[p.n]': [{ x: 1 }],
      '[p.N.b]': 'x',
    });
    expect(read(2, text, '', 'p.M')).toEqual({ '[p.a]': null, '[p.n]': [], '[p.N.b]': null });
  });
});

describe('message sets', () => {
  const text =
    'message M { optional S s = 1; } message S { option message_set_wire_format = true; extensions 4 to max; } message A { extend S { optional A a = 600000000; optional A b = 5; } optional int32 x = 1; optional M m = 2; }';
  const empty = { '[A.b]': null, '[A.a]': null };
  all([
    // Bytes written by protoc 35.1.
    [
      'an item is a number and a message',
      2,
      text,
      '0a14 0b 1005 1a020801 0c 0b 10808c8d9e02 1a020807 0c',
      { s: { '[A.b]': { x: 1, m: null }, '[A.a]': { x: 7, m: null } } },
    ],
    [
      'the message may come first',
      2,
      text,
      '0a08 0b 1a020801 1005 0c',
      { s: { ...empty, '[A.b]': { x: 1, m: null } } },
    ],
    ['an unknown number is skipped', 2, text, '0a08 0b 1006 1a020801 0c', { s: empty }],
    ['an incomplete item is dropped', 2, text, '0a08 0b 1005 0c 0b 1a00 0c', { s: empty }],
  ]);

  it('a damaged message set is refused at its place', () => {
    expect(refusal(2, text, '0a08 0b 1005 1a0208ff 0c')).toMatchObject({ at: 8, path: 'M.s.[A.b].x' });
    expect(refusal(2, text, '0a08 0b 1005 1a020801 14')).toMatchObject({ at: 9, path: 'M.s' });
  });
});

describe('unknown fields', () => {
  const text = 'message M { int32 a = 1; }';
  all([
    [
      'fields of every wire type',
      3,
      text,
      '1001 1100000000 00000000 120178 15 00000000 13 0801 1b 1c 14 0805',
      { a: 5 },
    ],
    [
      'a known number with another wire type',
      3,
      text,
      '0d 00000000 09 0000000000000000 0a 00 0b 0c 0805',
      { a: 5 },
    ],
    ['the highest number', 3, text, 'f8ffffff0f 01 0805', { a: 5 }],
    ['the content of a length-delimited field is not parsed', 3, text, '12 02 ffff 0805', { a: 5 }],
  ]);
});
