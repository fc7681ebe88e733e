/** Values that the Avro encoder refuses, and those that it fills in. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { avroEncoder } from '../../../../src/formats/avro/codec/value-encoder.ts';
import { avroReferenceWriter } from '../../../../src/formats/avro/reference/codec.ts';
import { Payloads } from '../../../../src/formats/payloads.ts';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';
import { encodedBy } from '../../../property/payloads-kit.ts';

const encoder = (schema: unknown) =>
  avroEncoder((parseSchema('AVRO', JSON.stringify(schema)) as AvroSchema).tree);
const record = (...fields: readonly unknown[]): unknown => ({ type: 'record', name: 'R', fields });
const hex = (schema: unknown, value: unknown): string => encodedBy(encoder(schema), value).toString('hex');
function refusal(schema: unknown, value: unknown): unknown {
  try {
    return `written: ${hex(schema, value)}`;
  } catch (thrown) {
    const error = findMillraceError(thrown);
    return error?.code === 'value_refused' ? error.details['path'] : thrown;
  }
}

const OPTIONAL = record({ name: 'a', type: 'int', default: 7 }, { name: 'b', type: 'string', default: 'x' });

describe('a record whose fields all have defaults', () => {
  it('a record takes an object without fields that have defaults', () => {
    expect(hex(OPTIONAL, {})).toBe('0e0278');
    expect(hex(OPTIONAL, { a: undefined, b: 'y' })).toBe('0e0279');
    expect(hex(OPTIONAL, Object.create(null))).toBe('0e0278');
    class Order {
      readonly a = 1;
    }
    expect(hex(OPTIONAL, new Order())).toBe('020278');
  });

  it.each<readonly [string, unknown]>([
    ['true', true],
    ['a number', 5],
    ['a text', 'x'],
    ['null', null],
    ['a list', []],
    ['bytes', Buffer.alloc(2)],
    ['a Map', new Map([['a', 1]])],
    ['a date', new Date(0)],
    ['a promise', Promise.resolve({})],
    ['a function', () => ({})],
  ])('a record refuses %s', (_what, value) => {
    expect(refusal(OPTIONAL, value)).toBe('R');
  });
});

it.each<readonly [string, unknown, unknown]>([
  ['bytes', 'bytes', '040700'],
  ['a fixed', { type: 'fixed', name: 'F', size: 2 }, '0700'],
  ['a branch of a union', ['null', 'bytes'], '02040700'],
])(
  'the type %s accepts any Uint8Array, and the reference codec writes the same',
  (_what, schema, written) => {
    const value = new Uint8Array([9, 7, 0]).subarray(1);
    const bytes = { v: value };
    const whole = record({ name: 'v', type: schema });
    expect(hex(whole, bytes)).toBe(written);
    const reference = avroReferenceWriter(parseSchema('AVRO', JSON.stringify(whole)) as AvroSchema);
    expect(encodedBy(reference, bytes).toString('hex')).toBe(written);
  },
);

it.each<readonly [string, unknown, unknown, RegExp]>([
  [
    'the sizes of bytes and fixed',
    { type: 'fixed', name: 'F', size: 4 },
    Buffer.alloc(3),
    /3 bytes: it is fixed F of 4 bytes/,
  ],
  ['the need of a bigint', 'long', 2 ** 53, /9007199254740992: it is long, and .* give a bigint/],
  [
    'the form of a named branch',
    ['null', 'string', { type: 'enum', name: 'E', symbols: ['A'] }],
    'A',
    /\{"string": …\}/,
  ],
])('a refusal states %s', (_what, schema, value, message) => {
  expect(() => hex(schema, value)).toThrow(message);
});

it.each<readonly [string, unknown]>([
  ['a Uint8Array', new Uint8Array(2)],
  ['a buffer', Buffer.alloc(2)],
  ['a list', [1]],
  ['a Map', new Map([['a', 1]])],
  ['a set', new Set([1])],
])('a map refuses %s', (_what, value) => {
  expect(refusal(record({ name: 'm', type: { type: 'map', values: 'int' } }), { m: value })).toBe('R.m');
});

it('a text with a lone surrogate is refused, short or long', () => {
  for (const text of ['\ud800', `${'x'.repeat(100)}\udc00`])
    expect(refusal(record({ name: 's', type: 'string' }), { s: text })).toBe('R.s');
  const map = record({ name: 'm', type: { type: 'map', values: 'int' } });
  expect(refusal(map, { m: { '\ud800': 1 } })).toBe('R.m["\\ud800"]');
});

it('texts of every length and alphabet are written behind their number of bytes', () => {
  const schema = record({ name: 's', type: 'string' });
  for (const char of ['x', 'é', '本', '🚚'])
    for (const count of [0, 1, 19, 20, 21, 31, 32, 62, 63, 64, 65, 8191, 8192, 70_000]) {
      const utf8 = Buffer.from(char.repeat(count));
      const text = encodedBy(encoder(schema), { s: char.repeat(count) });
      expect(text.subarray(text.length - utf8.length).equals(utf8)).toBe(true);
      const head = [...text.subarray(0, text.length - utf8.length)];
      const length = head.reduceRight((sum, byte) => sum * 128 + (byte & 127), 0);
      expect(length).toBe(utf8.length * 2);
    }
});

it('fields with the names of object properties are required like any others', () => {
  const schema = record(
    { name: 'constructor', type: 'string' },
    { name: 'toString', type: 'int', default: 1 },
  );
  expect(refusal(schema, {})).toBe('R.constructor');
  expect(hex(schema, { constructor: 'x' })).toBe('027802');
});

it('a default of a branch, a record or a list is written as its own bytes', () => {
  const inner = { type: 'record', name: 'I', fields: [{ name: 'n', type: 'long', default: 2 ** 40 }] };
  const schema = record(
    { name: 'u', type: ['double', 'int'], default: 5 },
    { name: 'r', type: inner, default: {} },
    { name: 'l', type: { type: 'array', items: 'string' }, default: ['a'] },
    { name: 'm', type: { type: 'map', values: 'int' }, default: { k: 1 } },
  );
  expect(hex(schema, {})).toBe('000000000000001440' + '808080808040' + '02026100' + '02026b0200');
});

it('a default of a later branch must be given', () => {
  const schema = record({ name: 'u', type: ['null', 'string'], default: 'x' });
  expect(refusal(schema, {})).toBe('R.u');
});

it('a value that is nested too deeply is refused, and the next one is written', () => {
  const schema = record({ name: 'next', type: ['null', 'R'] });
  const encode = encoder(schema);
  const circle: { next?: unknown } = {};
  circle.next = circle;
  expect(() => encodedBy(encode, circle)).toThrow('is nested deeper than 256 values');
  expect(encodedBy(encode, { next: null }).toString('hex')).toBe('00');
});

it('a property that throws, or writes another value, refuses its value only', () => {
  const schema = record({ name: 'a', type: 'int' });
  const encode = encoder(schema);
  const payloads = new Payloads(4, 16);
  const throwing = {
    get a(): number {
      throw new Error('no number');
    },
  };
  expect(() => encode(throwing, payloads)).toThrow('no number');
  const nesting = {
    get a(): number {
      encode({ a: 5 }, payloads);
      return 6;
    },
  };
  expect(() => encode(nesting, payloads)).toThrow('another value into the same payloads');
  encode({ a: 1 }, payloads);
  expect([payloads.count, payloads.used, payloads.bytes[0]]).toEqual([1, 1, 2]);
});

it('payloads follow each other while their buffer grows', () => {
  const encode = encoder(record({ name: 's', type: 'string' }));
  const payloads = new Payloads(100, 8);
  for (let i = 0; i < 100; i++) encode({ s: 'x'.repeat(i) }, payloads);
  for (let i = 0; i < 100; i++) expect(payloads.length[i]).toBe(i + (i < 64 ? 1 : 2));
});
