import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import { readerCodec } from '../../../src/registry/proof/reader.ts';
import { writerCodec } from '../../../src/serde/codec.ts';
import { messagePath } from '../../../src/serde/frame.ts';
import { runs } from '../../tier.ts';

const avro = (...fields: readonly unknown[]): Schema =>
  parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'Order', fields }));
const proto = (text: string): Schema => parseSchema('PROTOBUF', `syntax = "proto3"; ${text}`);

function encode(schema: Schema, value: unknown, message?: string): Buffer {
  const payloads = new Payloads(1, 16);
  writerCodec(schema, message).encode(value, payloads);
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

/** Decodes a payload that is surrounded by other bytes, which must not matter. */
function decode(reader: Schema, writer: Schema, payload: Buffer, path: readonly number[] = [0]): unknown {
  const around = Buffer.concat([Buffer.alloc(3, 0x7f), payload, Buffer.alloc(20, 0x01)]);
  return readerCodec(reader, writer, path)(around, 3, 3 + payload.length);
}
const outcome = (work: () => unknown): unknown => {
  try {
    return JSON.parse(
      JSON.stringify(work(), (_key, value: unknown) => (typeof value === 'bigint' ? `${value}n` : value)),
    );
  } catch (thrown) {
    return (thrown as { code?: string }).code ?? String(thrown);
  }
};

const ORDER = avro(
  { name: 'id', type: 'string' },
  { name: 'account', type: 'long' },
  { name: 'ratio', type: 'double' },
  { name: 'ok', type: 'boolean' },
  { name: 'status', type: { type: 'enum', name: 'S', symbols: ['A', 'B'] } },
  {
    name: 'items',
    type: { type: 'array', items: { type: 'record', name: 'I', fields: [{ name: 'n', type: 'int' }] } },
  },
  { name: 'tags', type: { type: 'map', values: 'string' } },
  { name: 'coupon', type: ['null', 'string'] },
  { name: 'hash', type: { type: 'fixed', name: 'F', size: 2 } },
);
const VALUE = {
  id: 'größe',
  account: 2n ** 63n - 1n,
  ratio: 0.5,
  ok: true,
  status: 'B',
  items: [{ n: -1 }, { n: 2 ** 31 - 1 }],
  tags: { a: 'ü' },
  coupon: 'x',
  hash: Buffer.from([1, 2]),
};

const PROTO =
  proto(`message Order { string id = 1; int64 account = 2; uint64 big = 3; sint64 zig = 4; fixed64 fix = 5; bool ok = 6; S status = 7;
  repeated I items = 8; map<string, string> tags = 9; optional string coupon = 10; bytes hash = 11; double ratio = 12; message I { int32 n = 1; } enum S { A = 0; B = 1; } }`);
const PROTO_VALUE = {
  id: 'größe',
  account: -(2n ** 63n),
  big: 2n ** 64n - 1n,
  zig: -(2n ** 63n),
  fix: 2n ** 63n,
  ok: true,
  status: 'B',
  items: [{ n: -1 }, { n: 7 }],
  tags: { a: 'ü' },
  coupon: 'x',
  hash: Buffer.from([1, 2]),
  ratio: 0.5,
};

describe('round trips', () => {
  it('a round trip keeps every value, 64 bits wide', () => {
    expect(decode(ORDER, ORDER, encode(ORDER, VALUE))).toEqual(
      expect.objectContaining({ ...VALUE, items: VALUE.items.map((item) => expect.objectContaining(item)) }),
    );
    expect(decode(PROTO, PROTO, encode(PROTO, PROTO_VALUE))).toEqual({ ...PROTO_VALUE });
  });

  it('any 64-bit integer survives a round trip in both formats', () => {
    const long = avro({ name: 'n', type: 'long' });
    const wide = proto('message M { int64 n = 1; uint64 u = 2; sint64 z = 3; sfixed64 f = 4; }');
    fc.assert(
      fc.property(fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n), fc.bigInt(0n, 2n ** 64n - 1n), (n, u) => {
        expect((decode(long, long, encode(long, { n })) as { n: bigint }).n).toBe(n);
        expect(decode(wide, wide, encode(wide, { n, u, z: n, f: n }))).toEqual({ n, u, z: n, f: n });
      }),
    );
    for (const n of [
      0n,
      -1n,
      63n,
      64n,
      -64n,
      -65n,
      2n ** 48n,
      -(2n ** 48n),
      2n ** 48n + 1n,
      -(2n ** 48n) - 1n,
      2n ** 53n + 1n,
    ]) {
      expect((decode(long, long, encode(long, { n })) as { n: bigint }).n).toBe(n);
      expect(decode(wide, wide, encode(wide, { n, u: 0n, z: n, f: n }))).toMatchObject({ n, z: n, f: n });
    }
  });

  it('a long read as double keeps its sign at every size', () => {
    const wide = avro({ name: 'n', type: 'long' });
    const double = avro({ name: 'n', type: 'double' });
    for (const n of [-(2n ** 63n), -(2n ** 53n) - 1n, 2n ** 63n - 1n, -1n, 0n])
      expect(decode(double, wide, encode(wide, { n }))).toMatchObject({ n: Number(n) });
  });

  it('a reader fills defaults and drops fields that it does not know', () => {
    const v1 = avro({ name: 'a', type: 'int' }, { name: 'gone', type: 'string' });
    const v2 = avro(
      { name: 'a', type: 'long' },
      { name: 'added', type: 'long', default: 7 },
      { name: 'c', type: ['null', 'string'], default: null },
    );
    expect(decode(v2, v1, encode(v1, { a: 5, gone: 'x' }))).toMatchObject({ a: 5n, added: 7n, c: null });
    const p1 = proto('message M { int32 a = 1; string gone = 2; }');
    const p2 = proto(
      'message M { int64 b = 1; int64 added = 3; optional string c = 4; repeated int32 r = 5; }',
    );
    expect(decode(p2, p1, encode(p1, { a: -5, gone: 'x' }))).toEqual({ b: -5n, added: 0n, c: null, r: [] });
  });
});

describe('unencodable values', () => {
  it.each<readonly [string, Schema, unknown]>([
    ['a fraction for a long', ORDER, { ...VALUE, account: 0.5 }],
    ['a long beyond 64 bits', ORDER, { ...VALUE, account: 2n ** 63n }],
    ['an unknown symbol', ORDER, { ...VALUE, status: 'C' }],
    ['a missing field', ORDER, { ...VALUE, id: undefined }],
    ['an int64 beyond 64 bits', PROTO, { ...PROTO_VALUE, account: 2n ** 63n }],
    ['a negative uint64', PROTO, { ...PROTO_VALUE, big: -1n }],
    ['a fraction for an int64', PROTO, { ...PROTO_VALUE, account: 0.5 }],
    ['a text for a bool', PROTO, { ...PROTO_VALUE, ok: 'true' }],
    ['an unknown enum name', PROTO, { ...PROTO_VALUE, status: 'C' }],
    ['a single value for a repeated field', PROTO, { ...PROTO_VALUE, items: { n: 1 } }],
    ['no object', PROTO, 5],
  ])('the value with %s is refused, and nothing is appended', (_what, schema, value) => {
    const payloads = new Payloads(4, 1024);
    expect(outcome(() => writerCodec(schema).encode(value, payloads))).toBe('value_refused');
    expect([payloads.count, payloads.used]).toEqual([0, 0]);
  });
});

describe('hostile bytes', () => {
  it('every truncated Avro payload and every surplus byte is malformed', () => {
    const whole = encode(ORDER, VALUE);
    for (let length = 0; length < whole.length; length++)
      expect(outcome(() => decode(ORDER, ORDER, whole.subarray(0, length)))).toBe('malformed_payload');
    expect(outcome(() => decode(ORDER, ORDER, Buffer.concat([whole, Buffer.from([0])])))).toBe(
      'malformed_payload',
    );
  });

  it('a truncated Protobuf payload is malformed or a message with fewer fields', () => {
    const whole = encode(PROTO, PROTO_VALUE);
    for (let length = 0; length < whole.length; length++) {
      const result = outcome(() => decode(PROTO, PROTO, whole.subarray(0, length)));
      if (typeof result === 'string') expect(result).toBe('malformed_payload');
    }
  });

  it('any bytes decode to a value or are malformed, within a bounded time', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        for (const schema of [ORDER, PROTO]) {
          const result = outcome(() => decode(schema, schema, Buffer.from(bytes)));
          if (typeof result === 'string') expect(result).toBe('malformed_payload');
        }
      }),
      { numRuns: runs(500) },
    );
  });

  const list = avro({ name: 'a', type: { type: 'array', items: 'null' } });
  const texts = avro({ name: 'a', type: { type: 'array', items: 'string' } });
  const varint = (value: bigint): number[] => {
    const out: number[] = [];
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    for (; rest >= 128n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
    return [...out, Number(rest)];
  };
  it.each<readonly [string, Schema, readonly number[]]>([
    ['a count of billions of nothing', list, [...varint(4_000_000_000n), 0]],
    ['a count beyond 2^53', list, [...varint(2n ** 62n), 0]],
    ['a count of billions of texts', texts, [...varint(4_000_000_000n), 0]],
    ['a negative count with a false length', texts, [...varint(-1n), ...varint(50n), 2, 65, 0]],
    ['a negative length of a text', texts, [2, ...varint(-5n), 0]],
    ['a text that is not UTF-8', texts, [2, 4, 0xc3, 0x28, 0]],
    ['a boolean of 2', avro({ name: 'a', type: 'boolean' }), [2]],
    [
      'an enum index out of range',
      avro({ name: 'a', type: { type: 'enum', name: 'E', symbols: ['A'] } }),
      [2],
    ],
    ['a union index out of range', avro({ name: 'a', type: ['null', 'int'] }), [4]],
    ['a long of eleven bytes', avro({ name: 'a', type: 'long' }), [...Array(10).fill(0xff), 1]],
    ['an int of six bytes', avro({ name: 'a', type: 'int' }), [...Array(5).fill(0xff), 1]],
  ])('an Avro payload with %s is malformed', (_what, schema, bytes) => {
    expect(outcome(() => decode(schema, schema, Buffer.from(bytes)))).toBe('malformed_payload');
  });

  it('an Avro recursion as deep as its payload is long is malformed', () => {
    const nested = parseSchema(
      'AVRO',
      JSON.stringify({ type: 'record', name: 'N', fields: [{ name: 'next', type: ['null', 'N'] }] }),
    );
    expect(
      outcome(() => decode(nested, nested, Buffer.concat([Buffer.alloc(100_000, 2), Buffer.from([0])]))),
    ).toBe('malformed_payload');
    expect(outcome(() => decode(nested, nested, Buffer.from([2, 2, 0])))).toEqual({
      next: { next: { next: null } },
    });
  });

  it('a Protobuf text that is not UTF-8 is malformed', () => {
    expect(outcome(() => decode(PROTO, PROTO, Buffer.from([0x0a, 2, 0xc3, 0x28])))).toBe('malformed_payload');
  });
});

describe('writer and reader', () => {
  it('an unreadable Avro event is incompatible, and other events of its writer are read', () => {
    const wide = avro({ name: 'a', type: ['null', 'string'] });
    const narrow = avro({ name: 'a', type: 'string' });
    const decodeNarrow = readerCodec(narrow, wide, [0]);
    const some = Buffer.from([2, 2, 0x78]);
    expect(decodeNarrow(some, 0, some.length)).toEqual({ a: 'x' });
    expect(outcome(() => decodeNarrow(Buffer.from([0]), 0, 1))).toBe('incompatible_schema');
    const number = readerCodec(avro({ name: 'a', type: 'int' }), narrow, [0]);
    expect(outcome(() => number(Buffer.from([2, 0x78]), 0, 2))).toBe('incompatible_schema');
  });

  it('a reader and a writer of two formats are incompatible', () => {
    const number = avro({ name: 'a', type: 'int' });
    expect(outcome(() => readerCodec(number, PROTO, [0]))).toBe('incompatible_schema');
    expect(outcome(() => readerCodec(PROTO, number, [0]))).toBe('incompatible_schema');
  });

  it('a Protobuf record that is decoded differently is incompatible, and other records of its writer are read', () => {
    const writer = proto(
      'message M { int32 a = 1; string s = 2; repeated M more = 3; optional bool b = 4; }',
    );
    const reader = proto('message M { sint32 a = 1; string s = 2; repeated M more = 3; string b = 4; }');
    const read = (value: object): unknown =>
      outcome(() => decode(reader, writer, encode(writer, value, 'M')));
    expect(read({ s: 'x' })).toEqual({ a: 0, s: 'x', more: [], b: '' });
    expect(read({ a: 5, s: 'x' })).toBe('incompatible_schema');
    expect(read({ more: [{ s: 'y' }, { a: 1 }] })).toBe('incompatible_schema');
    expect(read({ b: true })).toBe('incompatible_schema');
    expect(outcome(() => decode(reader, writer, Buffer.from([0x0a])))).toBe('malformed_payload');
  });

  it('a message is found by its name through the path in the writer', () => {
    const writer = proto('message A { message X { int32 n = 1; } } message B { string s = 1; }');
    const reader = proto('message B { string s = 1; } message A { message X { int32 n = 1; } }');
    expect(decode(reader, writer, encode(writer, { s: 'b' }, 'B'), [1])).toEqual({ s: 'b' });
    expect(decode(reader, writer, encode(writer, { n: 5 }, 'A.X'), [0, 0])).toEqual({ n: 5 });
    expect([...(writerCodec(writer, 'A.X').messageIndexes ?? [])]).toEqual([0, 0]);
    for (const path of [[2], [0, 1], [0, 0, 0], []])
      expect(outcome(() => readerCodec(reader, writer, path))).toBe('bad_message_index');
  });

  it.each<readonly [readonly number[], readonly number[] | string]>([
    [[0], [0]],
    [[2, 0], [0]],
    [[2, 2], [1]],
    [
      [4, 0, 0],
      [0, 0],
    ],
    [
      [6, 4, 2, 0],
      [2, 1, 0],
    ],
    [[], 'bad_message_index'],
    [[2], 'bad_message_index'],
    [[1], 'bad_message_index'],
    [[2, 1], 'bad_message_index'],
    [[0x7e, 0], 'bad_message_index'],
    [[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 'bad_message_index'],
  ])('the message indexes %j are decoded or refused', (bytes, expected) => {
    expect(outcome(() => messagePath(Uint8Array.from(bytes), 0, bytes.length))).toEqual(expected);
  });
});
