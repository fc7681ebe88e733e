/** Interoperability of the client library with @confluentinc/schemaregistry: each reads what the
 *  other wrote, in both formats and both framings. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { type Client, clientsFolder, descriptorSet, schemaText, startClient } from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
let confluent: Client;
let url = '';

beforeAll(async () => {
  const dir = await clientsFolder();
  url = `http://${await startRegistry(own, ['-store=memory', '-wire=8']).ready()}`;
  confluent = startClient('confluent', dir, url);
  for (const [subject, schemaType, name] of [
    ['avro-money', 'AVRO', 'money.avsc'],
    ['shop/money.proto', 'PROTOBUF', 'shop/money.proto'],
  ] as const)
    await confluent.ask('register', { subject, schemaType, schema: schemaText(name) });
});
afterAll(() => confluent?.close());

const order = (cents: (value: number) => unknown) => ({
  id: 'o-1',
  total: { cents: cents(2 ** 40 + 1), currency: 'EUR' },
  lines: [
    { sku: 'pen', qty: 1, price: { cents: cents(120), currency: 'EUR' } },
    { sku: 'ключ 🔑', qty: -7, price: { cents: cents(-5), currency: 'USD' } },
  ],
});
const AVRO_REFERENCES = [{ name: 'shop.common.Money', subject: 'avro-money', version: 1 }];
const PROTO_REFERENCES = [{ name: 'shop/money.proto', subject: 'shop/money.proto', version: 1 }];

interface Case {
  readonly name: string;
  readonly format: 'AVRO' | 'PROTOBUF';
  readonly schema: string;
  readonly references: typeof AVRO_REFERENCES;
  readonly message?: string;
  readonly isKey?: boolean;
  /** Value in the JSON form of the other client, and as the client library returns it. */
  readonly theirs: unknown;
  readonly ours: unknown;
}
const proto = {
  format: 'PROTOBUF',
  schema: schemaText('shop/order-1.proto'),
  references: PROTO_REFERENCES,
} as const;

const CASES: readonly Case[] = [
  {
    name: 'Avro value with a reference',
    format: 'AVRO',
    schema: schemaText('order-1.avsc'),
    references: AVRO_REFERENCES,
    theirs: order(Number),
    ours: order(BigInt),
  },
  {
    name: 'Avro key that is a text',
    format: 'AVRO',
    schema: '"string"',
    references: [],
    isKey: true,
    theirs: 'o-1',
    ours: 'o-1',
  },
  {
    name: 'Protobuf value with an import',
    ...proto,
    message: 'shop.orders.Order',
    theirs: { ...order(String), status: 'STATUS_PAID' },
    ours: { ...order(BigInt), status: 'STATUS_PAID' },
  },
  {
    name: 'Protobuf message that is the second of its file',
    ...proto,
    message: 'shop.orders.Receipt',
    theirs: {
      order: 'o-1',
      paid: { cents: '99', currency: 'EUR' },
      at: '2026-11-21T08:00:00.125Z',
    },
    ours: {
      order: 'o-1',
      paid: { cents: 99n, currency: 'EUR' },
      at: { seconds: 1_795_248_000n, nanos: 125_000_000 },
    },
  },
  {
    name: 'Protobuf key that is a nested message',
    ...proto,
    message: 'shop.orders.Order.Line',
    isKey: true,
    theirs: { sku: 'pen', qty: 3, price: { cents: '9', currency: 'EUR' } },
    ours: { sku: 'pen', qty: 3, price: { cents: 9n, currency: 'EUR' } },
  },
];

const AVRO_ALL = JSON.stringify({
  type: 'record',
  name: 'All',
  namespace: 'shop.all',
  fields: [
    { name: 'flag', type: 'boolean' },
    { name: 'small', type: 'int' },
    { name: 'large', type: 'long' },
    { name: 'single', type: 'float' },
    { name: 'double', type: 'double' },
    { name: 'raw', type: 'bytes' },
    { name: 'state', type: { type: 'enum', name: 'State', symbols: ['OPEN', 'CLOSED'] } },
    { name: 'code', type: { type: 'fixed', name: 'Code', size: 3 } },
    { name: 'counts', type: { type: 'map', values: 'int' } },
    { name: 'maybe', type: ['null', 'string'] },
    { name: 'several', type: ['null', 'long', 'string', { type: 'array', items: 'string' }] },
    { name: 'at', type: { type: 'long', logicalType: 'timestamp-micros' } },
    { name: 'next', type: ['null', 'All'], default: null },
  ],
});
const avroAll = (long: (value: number) => unknown) => {
  const last = {
    flag: true,
    small: -2_147_483_648,
    large: long(-(2 ** 52)),
    single: 1.5,
    double: 1e300,
    raw: Buffer.from([0, 255, 1]),
    state: 'CLOSED',
    code: Buffer.from('abc'),
    counts: { one: 1, zwölf: 12 },
    maybe: null,
    several: ['a', ''],
    at: long(1_795_248_000_125_000),
    next: null,
  };
  return { ...last, maybe: '', several: long(7), counts: {}, raw: Buffer.alloc(0), next: last };
};
const PROTO_ALL = `syntax = "proto3";
package shop.all;
import "google/protobuf/wrappers.proto";
message All {
  enum State { STATE_OPEN = 0; STATE_CLOSED = 1; }
  message Part { uint64 n = 1; }
  bool flag = 1;
  sint32 small = 2;
  sfixed64 large = 3;
  float single = 4;
  double double = 5;
  bytes raw = 6;
  State state = 7;
  repeated int32 counts = 8;
  map<string, int64> by_name = 9;
  map<uint32, Part> by_number = 10;
  oneof choice { string text = 11; Part part = 12; }
  optional int32 present = 13;
  optional string absent = 14;
  google.protobuf.StringValue wrapped = 15;
  All next = 100;
}`;
const ALL_CASES: readonly Case[] = [
  {
    name: 'Avro record of all types',
    format: 'AVRO',
    schema: AVRO_ALL,
    references: [],
    theirs: JSON.parse(JSON.stringify(avroAll(Number))),
    ours: avroAll(BigInt),
  },
  {
    name: 'Protobuf message of all types',
    format: 'PROTOBUF',
    schema: PROTO_ALL,
    references: [],
    message: 'shop.all.All',
    theirs: {
      flag: true,
      small: -3,
      large: '-9007199254740993',
      single: 1.5,
      double: 1e300,
      raw: 'AP8B',
      state: 'STATE_CLOSED',
      counts: [1, -1],
      byName: { a: '9007199254740993', zwölf: '12' },
      byNumber: { 7: { n: '18446744073709551615' } },
      part: { n: '1' },
      present: 0,
      wrapped: '',
      next: { text: '' },
    },
    ours: {
      flag: true,
      small: -3,
      large: -9_007_199_254_740_993n,
      single: 1.5,
      double: 1e300,
      raw: Buffer.from([0, 255, 1]),
      state: 'STATE_CLOSED',
      counts: [1, -1],
      by_name: { a: 9_007_199_254_740_993n, zwölf: 12n },
      by_number: { 7: { n: 2n ** 64n - 1n } },
      text: null,
      part: { n: 1n },
      present: 0,
      absent: null,
      wrapped: { value: '' },
      next: {
        flag: false,
        small: 0,
        large: 0n,
        single: 0,
        double: 0,
        raw: Buffer.alloc(0),
        state: 'STATE_OPEN',
        counts: [],
        by_name: {},
        by_number: {},
        text: '',
        part: null,
        present: null,
        absent: null,
        wrapped: null,
        next: null,
      },
    },
  },
];

interface Encoded {
  readonly bytes: string;
  readonly headers: Readonly<Record<string, string>>;
}
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const mapped = <A, B>(values: Readonly<Record<string, A>>, to: (value: A) => B): Record<string, B> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, to(value)]));
const unbase64 = (headers: Readonly<Record<string, string>>): Record<string, Buffer> =>
  mapped(headers, (text) => Buffer.from(text, 'base64'));

/** Descriptor of a schema, as the registry compiled it. */
async function descriptorOf(one: Case): Promise<unknown> {
  if (one.references.length > 0) return descriptorSet('1');
  const { format: schemaType, schema } = one;
  await confluent.ask('register', { subject: 'all.proto', schemaType, schema });
  const answer = await fetch(`${url}/subjects/all.proto/versions/latest?format=serialized`);
  return ((await answer.json()) as { readonly schema: string }).schema;
}

async function write(one: Case, topic: string, header: 'prefix' | 'headers'): Promise<Encoded> {
  const { format: schemaType, schema, references, message, isKey = false, theirs: value } = one;
  const set = schemaType === 'PROTOBUF' ? await descriptorOf(one) : undefined;
  const described = { schemaType, schema, references };
  const request = { schemaType, topic, value, schema: described, set, message, isKey };
  return confluent.ask<Encoded>('serialize', { ...request, headers: header === 'headers' });
}

describe.each(['prefix', 'headers'] as const)('schema ids: %s', (header) => {
  it.each([...CASES, ...ALL_CASES])(
    'the client library reads what @confluentinc/schemaregistry wrote: $name',
    async (one) => {
      const topic = `theirs-${header}-${one.name.replaceAll(' ', '-')}`;
      const { isKey = false } = one;
      const sent = await write(one, topic, header);
      const headers = unbase64(sent.headers);
      expect(Object.keys(headers)).toEqual(
        header === 'prefix' ? [] : [isKey ? '__key_schema_id' : '__value_schema_id'],
      );
      const bytes = Buffer.from(sent.bytes, 'base64');
      const registry = new SchemaRegistry({ url });
      expect(await registry.deserializer({ isKey }).deserialize(bytes, headers)).toEqual(one.ours);
      const subject = `${topic}-${isKey ? 'key' : 'value'}`;
      const pinned = registry.deserializer({ isKey, readerVersion: { subject, version: 1 } });
      expect(await pinned.deserializeBatch([{ bytes, headers }])).toEqual([{ value: one.ours }]);

      // With the schema that the other client registered, the bytes are the same.
      const { message } = one;
      const options = { topic, isKey, header, version: 'latest' as const };
      const serializer = registry.serializer({ ...options, ...(message === undefined ? {} : { message }) });
      await serializer.prefetch();
      expect(base64(serializer.serialize(one.ours))).toBe(sent.bytes);
      expect(mapped(serializer.headers, base64)).toEqual(sent.headers);
    },
  );

  it.each([...CASES, ...ALL_CASES])(
    '@confluentinc/schemaregistry reads what the client library wrote: $name',
    async (one) => {
      const topic = `ours-${header}-${one.name.replaceAll(' ', '-')}`;
      const { name: _, theirs, ours, ...described } = one;
      const registry = new SchemaRegistry({ url });
      const serializer = registry.serializer({ ...described, topic, header, autoRegister: true });
      await serializer.prefetch();
      const [bytes] = serializer.serializeBatch([ours]);
      const request = { schemaType: one.format, topic, isKey: one.isKey ?? false };
      const sent = { bytes: base64(bytes as Buffer), headers: mapped(serializer.headers, base64) };
      expect(await confluent.ask('deserialize', { ...request, ...sent })).toEqual(theirs);
    },
  );

  it.each([
    { format: 'AVRO', next: 'order-2.avsc', place: 0 },
    { format: 'PROTOBUF', next: 'shop/order-2.proto', place: 2 },
  ] as const)(
    'a reader schema adds its default to what @confluentinc/schemaregistry wrote: $format',
    async (it) => {
      const { format, next, place } = it;
      const one = CASES[place] as Case;
      const sent = await write(one, `evolved-${header}-${format}`, header);
      const { references } = one;
      const options = { format, readerSchema: schemaText(next), references };
      const deserializer = new SchemaRegistry({ url }).deserializer(options);
      const value = await deserializer.deserialize(Buffer.from(sent.bytes, 'base64'), unbase64(sent.headers));
      expect(value).toEqual({ ...(one.ours as object), note: '' });
    },
  );
});
