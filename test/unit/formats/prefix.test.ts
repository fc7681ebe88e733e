/** Fields before the byte where an Avro or Protobuf payload breaks. */
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../src/core/errors.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { avroPrefix } from '../../../src/formats/prefix/avro.ts';
import { PrefixFields } from '../../../src/formats/prefix/fields.ts';
import { protoPrefix } from '../../../src/formats/prefix/protobuf.ts';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import { readerUnjudged, writerCodec } from '../../../src/serde/codec.ts';

const AVRO = parseSchema(
  'AVRO',
  JSON.stringify({
    type: 'record',
    name: 'Order',
    fields: [
      { name: 'id', type: 'string' },
      { name: 'cents', type: 'long' },
      { name: 'ratio', type: 'double' },
      { name: 'paid', type: 'boolean' },
      { name: 'note', type: ['null', 'string'] },
      { name: 'state', type: { type: 'enum', name: 'State', symbols: ['NEW', 'PAID'] } },
      { name: 'raw', type: 'bytes' },
      { name: 'hash', type: { type: 'fixed', name: 'Hash', size: 2 } },
      { name: 'tags', type: { type: 'map', values: 'int' } },
      {
        name: 'items',
        type: {
          type: 'array',
          items: { type: 'record', name: 'Item', fields: [{ name: 'sku', type: 'string' }] },
        },
      },
    ],
  }),
);
const AVRO_VALUE = {
  id: 'o-1',
  cents: 9_007_199_254_740_993n,
  ratio: 0.5,
  paid: true,
  note: 'x"y',
  state: 'PAID',
  raw: Buffer.from([1, 255]),
  hash: Buffer.from([0xab, 0xcd]),
  tags: { a: 7 },
  items: [{ sku: 's-0' }, { sku: 's-1' }],
};
const AVRO_FIELDS = [
  'id="o-1"',
  'cents=9007199254740993',
  'ratio=0.5',
  'paid=true',
  'note="x\\"y"',
  'state="PAID"',
  'raw=0x01ff',
  'hash=0xabcd',
  'tags["a"]=7',
  'items[0].sku="s-0"',
  'items[1].sku="s-1"',
];

const PROTO = parseSchema(
  'PROTOBUF',
  `syntax = "proto3";
   message Order {
     string id = 1; sint64 cents = 2; repeated int32 sizes = 3; State state = 4; bytes raw = 5;
     map<string, Item> lines = 6; repeated Item items = 7; double ratio = 8;
     enum State { NEW = 0; PAID = 1; }
     message Item { string sku = 1; }
   }`,
);
const PROTO_VALUE = {
  id: 'o-1',
  cents: -3n,
  sizes: [1, 300],
  state: 'PAID',
  raw: Buffer.from([7]),
  lines: { a: { sku: 'l' } },
  items: [{ sku: 's-0' }, { sku: 's-1' }],
  ratio: 1.5,
};
const PROTO_FIELDS = [
  'id="o-1"',
  'cents=-3',
  'sizes[0]=1',
  'sizes[1]=300',
  'state="PAID"',
  'raw=0x07',
  'lines["a"].sku="l"',
  'items[0].sku="s-0"',
  'items[1].sku="s-1"',
  'ratio=1.5',
];

function payloadOf(schema: Schema, value: unknown): Buffer {
  const payloads = new Payloads(1, 512);
  writerCodec(schema).encode(value, payloads);
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

function prefixOf(
  schema: Schema,
  bytes: Buffer,
): { readonly at: number | undefined; readonly fields: PrefixFields } {
  const fields = new PrefixFields();
  // The payload does not begin at 0 of its buffer.
  const buffer = Buffer.concat([Buffer.alloc(5), bytes]);
  const at =
    schema.format === 'AVRO'
      ? avroPrefix(schema.tree, buffer, 5, buffer.length, fields)
      : schema.format === 'PROTOBUF'
        ? protoPrefix(schema.tree.messages[0] as never, buffer, 5, buffer.length, fields)
        : undefined;
  return { at, fields };
}

/** Byte where the decoder fails; undefined where it does not. */
function failedAt(schema: Schema, bytes: Buffer): unknown {
  try {
    readerUnjudged(schema, schema, [0])(bytes, 0, bytes.length);
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.details['at'];
  }
}

describe.each([
  { name: 'Avro', schema: AVRO, value: AVRO_VALUE, fields: AVRO_FIELDS },
  { name: 'Protobuf', schema: PROTO, value: PROTO_VALUE, fields: PROTO_FIELDS },
])('$name', ({ schema, value, fields }) => {
  const whole = payloadOf(schema, value);

  it('all fields of a valid payload are read', () => {
    const { at, fields: read } = prefixOf(schema, whole);
    expect(at).toBeUndefined();
    expect(read.texts).toEqual(fields);
    expect(read.isFull).toBe(false);
  });

  it('a payload that is cut anywhere shows the fields before the cut, and breaks where the decoder breaks', () => {
    for (let length = 0; length < whole.length; length++) {
      const bytes = whole.subarray(0, length);
      const { at, fields: read } = prefixOf(schema, bytes);
      expect(at, `cut at ${length}`).toBe(failedAt(schema, bytes));
      expect(read.texts, `cut at ${length}`).toEqual(fields.slice(0, read.texts.length));
    }
    const { fields: most } = prefixOf(schema, whole.subarray(0, -1));
    expect(most.texts.length).toBeGreaterThanOrEqual(fields.length - 2);
  });

  it('a payload with any changed byte breaks where the decoder breaks', () => {
    for (let at = 0; at < whole.length; at++) {
      for (const byte of [0x00, 0x7f, 0x80, 0xff]) {
        const bytes = Buffer.from(whole);
        bytes[at] = byte;
        expect(prefixOf(schema, bytes).at, `byte ${at} is ${byte}`).toBe(failedAt(schema, bytes));
      }
    }
  });
});

describe('limits', () => {
  it('a payload with many fields shows the first ones only', () => {
    const schema = parseSchema('AVRO', '{"type":"array","items":"int"}');
    const { at, fields } = prefixOf(
      schema,
      payloadOf(
        schema,
        Array.from({ length: 10_000 }, (_, n) => n),
      ),
    );
    expect(at).toBeUndefined();
    expect(fields.texts).toHaveLength(64);
    expect(fields.texts[63]).toBe('[63]=63');
    expect(fields.isFull).toBe(true);
  });

  it('a payload of a million empty messages is left after a bounded number of steps', () => {
    const schema = parseSchema(
      'PROTOBUF',
      'syntax = "proto3"; message Order { repeated Item items = 1; message Item { string sku = 1; } }',
    );
    const { at, fields } = prefixOf(schema, Buffer.alloc(2_000_000, Buffer.from([0x0a, 0x00])));
    expect(at).toBeUndefined();
    expect(fields.texts).toEqual([]);
    expect(fields.isFull).toBe(true);
  });

  it('long texts and bytes are shortened', () => {
    const schema = parseSchema('AVRO', '"string"');
    const [text] = prefixOf(schema, payloadOf(schema, 'x'.repeat(500))).fields.texts;
    expect(text).toBe(`"${'x'.repeat(79)}…`);
  });
});
