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

interface Encoded {
  readonly bytes: string;
  readonly headers: Readonly<Record<string, string>>;
}
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const mapped = <A, B>(values: Readonly<Record<string, A>>, to: (value: A) => B): Record<string, B> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, to(value)]));
const unbase64 = (headers: Readonly<Record<string, string>>): Record<string, Buffer> =>
  mapped(headers, (text) => Buffer.from(text, 'base64'));

const write = (one: Case, topic: string, header: 'prefix' | 'headers'): Promise<Encoded> => {
  const { format: schemaType, schema, references, message, isKey = false, theirs: value } = one;
  const set = descriptorSet('1');
  const described = { schemaType, schema, references };
  const request = { schemaType, topic, value, schema: described, set, message, isKey };
  return confluent.ask<Encoded>('serialize', { ...request, headers: header === 'headers' });
};

describe.each(['prefix', 'headers'] as const)('schema ids: %s', (header) => {
  it.each(CASES)('the client library reads what @confluentinc/schemaregistry wrote: $name', async (one) => {
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
  });

  it.each(CASES)('@confluentinc/schemaregistry reads what the client library wrote: $name', async (one) => {
    const topic = `ours-${header}-${one.name.replaceAll(' ', '-')}`;
    const { name: _, theirs, ours, ...described } = one;
    const registry = new SchemaRegistry({ url });
    const serializer = registry.serializer({ ...described, topic, header, autoRegister: true });
    await serializer.prefetch();
    const [bytes] = serializer.serializeBatch([ours]);
    const request = { schemaType: one.format, topic, isKey: one.isKey ?? false };
    const sent = { bytes: base64(bytes as Buffer), headers: mapped(serializer.headers, base64) };
    expect(await confluent.ask('deserialize', { ...request, ...sent })).toEqual(theirs);
  });

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
