/** Interoperability of clients: each reads from the embedded Kafka what the others wrote, in Avro
 *  and Protobuf, with references.
 *
 *  The tests leave out the gaps of a client: @kafkajs writes no message indexes, reads only the
 *  first message of a file (its issue 248), and has no well-known types. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { append, createTopics, TopicReader } from '../../src/demo/contracts/topic.ts';
import {
  type Client,
  type ClientName,
  clientsFolder,
  descriptorSet,
  schemaText,
  startClient,
} from '../clients/kit.ts';
import { OwnCodec } from '../clients/own.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const MONEY = { AVRO: schemaText('money.avsc'), PROTOBUF: schemaText('shop/money.proto') } as const;
const ORDER = { AVRO: schemaText('order-1.avsc'), PROTOBUF: schemaText('shop/order-1.proto') } as const;

const order = (n: number, cents: (value: number) => unknown) => ({
  id: `o-${n}`,
  total: { cents: cents(2 ** 40 + n), currency: 'EUR' },
  lines: [
    { sku: 'pen', qty: n + 1, price: { cents: cents(120), currency: 'EUR' } },
    { sku: 'ключ 🔑', qty: -7, price: { cents: cents(-5), currency: 'USD' } },
  ],
});
/** JSON has 64-bit integers as numbers for Avro, as text for Protobuf. */
const VALUES = {
  AVRO: [0, 1, 2].map((n) => order(n, (value) => value)),
  PROTOBUF: [0, 1, 2].map((n) => ({ ...order(n, String), status: 'STATUS_PAID' })),
} as const;

interface Encoded {
  readonly bytes: string;
  readonly headers: Readonly<Record<string, string>>;
}

let brokers: string;
let url: string;
let codec: OwnCodec;
const clients = new Map<ClientName, Client>();
const client = (name: ClientName): Client => clients.get(name) as Client;

beforeAll(async () => {
  const [stack, dir] = await Promise.all([sharedStack(), clientsFolder()]);
  brokers = stack.brokers;
  const settings = [
    `-store=kafka:${brokers}`,
    `-schemas-topic=_schemas_clients_${own.suffix}`,
    '-listen=127.0.0.1:0',
    '-wire=8',
    // If the broker is silent for a second, a read waits instead of answering that a schema does
    // not exist.
    '-stale-reads=refuse',
  ];
  url = `http://${await startRegistry(own, [...settings]).ready()}`;
  codec = new OwnCodec(url);
  for (const name of ['confluent', 'kafkajs', 'python'] as const)
    clients.set(name, startClient(name, dir, url));
});
afterAll(() => Promise.all([...clients.values()].map((one) => one.close())));

/** Sends values through Kafka and returns the values that were read there. */
async function viaKafka(topic: string, values: readonly Encoded[]): Promise<Buffer[]> {
  await append(
    brokers,
    topic,
    values.map(({ bytes }) => ({ key: null, value: Buffer.from(bytes, 'base64') })),
  );
  const reader = await TopicReader.open(brokers);
  const read: Buffer[] = [];
  try {
    await reader.read([topic], (_, { value }) => {
      read.push(Buffer.from(value as Uint8Array));
    });
  } finally {
    await reader.close();
  }
  return read;
}

const topicOf = async (name: string): Promise<string> => {
  const topic = `clients-${own.suffix}-${name}`;
  await createTopics(brokers, [{ topic, partitions: 1 }]);
  return topic;
};

describe('Avro with a reference', () => {
  const schemaType = 'AVRO';
  const references = [{ name: 'shop.common.Money', subject: 'avro-money', version: 1 }];
  const schema = { schemaType, schema: ORDER.AVRO, references };

  it('every client reads the records of every client', async () => {
    await client('python').ask('register', { subject: 'avro-money', schemaType, schema: MONEY.AVRO });
    const topic = await topicOf('avro');
    const written: Encoded[] = [];
    const expected: unknown[] = [];
    for (const writer of ['confluent', 'kafkajs', 'python', 'millrace'] as const) {
      for (const value of VALUES.AVRO) {
        const request = { schemaType, topic, schema, value };
        written.push(
          writer === 'millrace'
            ? await codec.serialize(request)
            : await client(writer).ask<Encoded>('serialize', request),
        );
        expected.push(value);
      }
    }
    // Equal content has one id and one encoding.
    const bytes = written.map((one) => one.bytes);
    expect(new Set(bytes).size).toBe(VALUES.AVRO.length);
    const records = await viaKafka(topic, written);
    expect(records.map((record) => record.toString('base64'))).toEqual(bytes);
    for (const reader of ['confluent', 'kafkajs', 'python', 'millrace'] as const) {
      const values: unknown[] = [];
      for (const record of records) {
        const request = { schemaType, topic, bytes: record.toString('base64'), schema };
        values.push(
          reader === 'millrace'
            ? await codec.deserialize(request)
            : await client(reader).ask('deserialize', request),
        );
      }
      expect(values, reader).toEqual(expected);
    }
  });

  it('a reader with the next version fills in fields that the writer did not have', async () => {
    const topic = await topicOf('avro-evolved');
    const value = VALUES.AVRO[0];
    const { bytes } = await client('confluent').ask<Encoded>('serialize', {
      schemaType,
      topic,
      schema,
      value,
    });
    // The readers of these two clients need one self-contained text.
    const readerSchema = schemaText('order-2.avsc').replace('"shop.common.Money"', MONEY.AVRO);
    const evolved = { schemaType, schema: schemaText('order-2.avsc'), references };
    const read = { ...value, note: '' };
    expect(await client('kafkajs').ask('deserialize', { schemaType, topic, bytes, readerSchema })).toEqual(
      read,
    );
    expect(await client('python').ask('deserialize', { schemaType, topic, bytes, readerSchema })).toEqual(
      read,
    );
    expect(await codec.deserialize({ schemaType, topic, bytes, schema: evolved })).toEqual(read);
  });

  it("Python's own producer and consumer exchange the Avro values through Kafka", async () => {
    const topic = await topicOf('avro-python');
    const request = { schemaType, topic, schema, brokers };
    expect(await client('python').ask('send', { ...request, values: VALUES.AVRO })).toBe(3);
    expect(await client('python').ask('receive', { ...request, count: 3 })).toEqual(VALUES.AVRO);
  });

  it('a client can name the schema in a header by its guid', async () => {
    const topic = await topicOf('avro-header');
    const value = VALUES.AVRO[1];
    const request = { schemaType, topic, schema, value, headers: true };
    const sent = await client('confluent').ask<Encoded>('serialize', request);
    const named = Buffer.from(sent.headers['__value_schema_id'] as string, 'base64');
    expect([named[0], named.length]).toEqual([1, 17]);
    expect(await client('confluent').ask('deserialize', { schemaType, topic, ...sent })).toEqual(value);
    const guid = named.toString('hex', 1).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
    const found = await client('python').ask<{ schema: string }>('byGuid', { guid });
    expect(found.schema).toContain('shop.orders');
  });
});

describe('Protobuf with an import', () => {
  const schemaType = 'PROTOBUF';
  const set = descriptorSet('1');
  const references = [{ name: 'shop/money.proto', subject: 'shop/money.proto', version: 1 }];
  const schema = { schemaType, schema: ORDER.PROTOBUF, references };
  const shared = { schemaType, set, schema };

  async function readBy(
    reader: ClientName | 'millrace',
    topic: string,
    message: string,
    records: readonly Buffer[],
  ): Promise<unknown[]> {
    const values: unknown[] = [];
    for (const record of records) {
      const request = { ...shared, topic, message, bytes: record.toString('base64') };
      values.push(
        reader === 'millrace'
          ? await codec.deserialize(request)
          : await client(reader).ask('deserialize', request),
      );
    }
    return values;
  }

  it('every client reads the records of every client that writes message indexes', async () => {
    const topic = await topicOf('proto');
    const message = 'shop.orders.Order';
    const written: Encoded[] = [];
    const expected: unknown[] = [];
    for (const writer of ['confluent', 'python', 'millrace'] as const) {
      for (const value of VALUES.PROTOBUF) {
        const request = { ...shared, topic, message, value };
        written.push(
          writer === 'millrace'
            ? await codec.serialize(request)
            : await client(writer).ask<Encoded>('serialize', request),
        );
        expected.push(value);
      }
    }
    // A compiled descriptor has one id; our own client registered its source text.
    const ids = written.map(({ bytes }) => Buffer.from(bytes, 'base64').readUInt32BE(1));
    expect(new Set(ids.slice(0, 2 * VALUES.PROTOBUF.length)).size).toBe(1);
    const records = await viaKafka(topic, written);
    for (const reader of ['confluent', 'kafkajs', 'python', 'millrace'] as const)
      expect(await readBy(reader, topic, message, records), reader).toEqual(expected);
  });

  it('@kafkajs reads its own records, and the other clients read the same bytes with an index', async () => {
    const topic = await topicOf('proto-kafkajs');
    const message = 'shop.orders.Order';
    const value = VALUES.PROTOBUF[0];
    const sent = await client('kafkajs').ask<Encoded>('serialize', { ...shared, topic, message, value });
    const bare = Buffer.from(sent.bytes, 'base64');
    expect(await readBy('kafkajs', topic, message, [bare])).toEqual([value]);
    const indexed = Buffer.concat([bare.subarray(0, 5), Buffer.of(0), bare.subarray(5)]);
    for (const reader of ['confluent', 'python', 'millrace'] as const)
      expect(await readBy(reader, topic, message, [indexed]), reader).toEqual([value]);
  });

  it.each([
    {
      message: 'shop.orders.Receipt',
      path: [2, 2],
      value: {
        order: 'o-1',
        paid: { cents: '99', currency: 'EUR' },
        at: '2026-11-21T08:00:00.125Z',
      },
    },
    {
      message: 'shop.orders.Order.Line',
      path: [4, 0, 0],
      value: { sku: 'pen', qty: 3, price: { cents: '9', currency: 'EUR' } },
    },
  ])('clients find a message that is not the first of its file by its path: $message', async (one) => {
    const { message, path, value } = one;
    const topic = await topicOf(`proto-${message.split('.').at(-1)}`);
    const records: Buffer[] = [];
    for (const writer of ['confluent', 'python'] as const) {
      const { bytes } = await client(writer).ask<Encoded>('serialize', { ...shared, topic, message, value });
      records.push(Buffer.from(bytes, 'base64'));
    }
    for (const record of records) expect([...record.subarray(5, 5 + path.length)]).toEqual(path);
    for (const reader of ['confluent', 'python'] as const)
      expect(await readBy(reader, topic, message, records), reader).toEqual([value, value]);
  });

  it("Python's own producer and consumer exchange the Protobuf values through Kafka", async () => {
    const topic = await topicOf('proto-python');
    const request = { ...shared, topic, message: 'shop.orders.Order', brokers };
    expect(await client('python').ask('send', { ...request, values: VALUES.PROTOBUF })).toBe(3);
    expect(await client('python').ask('receive', { ...request, count: 3 })).toEqual(VALUES.PROTOBUF);
  });
});
