/** Quarantines of the redrive tests: framed records whose schema the registry learns later, records
 *  that nothing can read, and an independent reader of committed records. */
import { expect } from 'vitest';
import { RecordBatch, type RecordInput } from '../../src/core/layout/record-batch.ts';
import { ask } from '../../src/demo/contracts/model.ts';
import { append, createTopics } from '../../src/demo/contracts/topic.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { batchOf } from '../../src/registry/consumer/deliver.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { until } from '../wait.ts';

const PARTITIONS = 3;

type Version = 1 | 2;

/** Schema of a topic. Each topic has a namespace of its own, because a registry gives equal schemas
 *  one id. */
function schemaOf(topic: string, version: Version): string {
  const items = {
    name: 'items',
    type: {
      type: 'array',
      items: { type: 'record', name: 'Item', fields: [{ name: 'sku', type: 'string' }] },
    },
    default: [],
  };
  return JSON.stringify({
    type: 'record',
    name: 'Order',
    namespace: `n${topic.replace(/\W/g, '_')}`,
    fields: [
      { name: 'id', type: 'string' },
      { name: 'cents', type: 'long' },
      ...(version === 2 ? [items] : []),
    ],
  });
}

const written = writerCodec(parseSchema('AVRO', schemaOf('any', 2)));

/** Payload of a record of version 2. */
export function payloadOf(n: number, padding = 0): Buffer {
  const payloads = new Payloads(1, 256 + padding);
  written.encode(
    { id: `o-${n}${'x'.repeat(padding)}`, cents: BigInt(n), items: [{ sku: `sku-${n}` }] },
    payloads,
  );
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

export function frame(id: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(id, 1);
  return Buffer.concat([head, payload]);
}

export async function register(
  registry: string,
  subject: string,
  schema: string,
  schemaType = 'AVRO',
): Promise<number> {
  const { status, body } = await ask(registry, 'POST', `/subjects/${subject}/versions`, {
    schema,
    schemaType,
  });
  expect(status).toBe(200);
  return (body as { readonly id: number }).id;
}

/** Appends records whose headers are not text; the driver of `append` cannot. */
export async function appendBinary(
  brokers: string,
  topic: string,
  records: readonly RecordInput[],
): Promise<void> {
  const producer = await librdkafkaDriver.producer({ brokers, clientId: 'test', acks: -1 });
  try {
    expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
  } finally {
    await producer.close();
  }
}

export interface Filled {
  readonly topic: string;
  /** Registers version 2, so that the records with its id can be read. */
  readonly fix: () => Promise<void>;
  readonly id: number;
}

/** Creates a topic with records of version 2, which is not registered, and with records that stay
 *  unreadable. @param garbage values of the latter */
export async function fill(
  brokers: string,
  registry: string,
  topic: string,
  count: number,
  garbage: readonly Uint8Array[] = [],
): Promise<Filled> {
  await createTopics(brokers, [{ topic, partitions: PARTITIONS }]);
  const subject = `${topic}-value`;
  const id = (await register(registry, subject, schemaOf(topic, 1))) + 1;
  const records: RecordInput[] = Array.from({ length: count }, (_, n) => ({
    partition: n % PARTITIONS,
    key: Buffer.from(`k-${n}`),
    value: frame(id, payloadOf(n)),
    headers: [['ce_source', Buffer.from(n % 2 === 0 ? 'till' : 'web')]],
  }));
  await append(brokers, topic, [...records, ...garbage.map((value) => ({ partition: 0, value }))]);
  return {
    topic,
    id,
    fix: async () => expect(await register(registry, subject, schemaOf(topic, 2))).toBe(id),
  };
}

export interface Found {
  readonly partition: number;
  readonly key: string;
  readonly value: Buffer;
  readonly headers: ReadonlyMap<string, string>;
}

/** Reads every committed record of a topic. */
export async function committed(brokers: string, topic: string): Promise<readonly Found[]> {
  const options = { brokers, clientId: 'test', connectTimeoutMs: 60_000 };
  const admin = await nodeRdkafkaDriver.admin(options);
  const info = (await admin.listTopics().finally(() => admin.close())).find((one) => one.topic === topic);
  const consumer = await nodeRdkafkaDriver.consumer({ ...options, partitionEof: true });
  try {
    const open = new Map<number, bigint>();
    for (const partition of info?.partitions ?? []) {
      // Waits for the transactions of processes that were killed.
      const ends = async (): Promise<boolean> => {
        const stable = await consumer.watermarkOffsets({ topic, partition }, 30_000);
        open.set(partition, stable.high);
        return stable.high >= (await writtenEnd(brokers, topic, partition));
      };
      await until(`the end of the transactions in ${topic}/${partition}`, ends);
    }
    await consumer.assign([...open.keys()].map((partition) => ({ topic, partition, offset: 0n })));
    const batch = RecordBatch.create(1000, 8 << 20);
    const found: Found[] = [];
    while (open.size > 0) {
      const { ends } = await consumer.consume(batch, 500);
      for (let row = 0; row < batch.rowCount; row++)
        found.push({
          partition: batch.columns.partition[row] as number,
          key: Buffer.from(batch.key(row) ?? []).toString(),
          value: Buffer.from(batch.value(row) ?? []),
          headers: new Map(
            batch.headers(row).map(([name, value]) => [name, Buffer.from(value ?? []).toString()]),
          ),
        });
      for (const { partition, offset } of ends)
        if (offset >= (open.get(partition) ?? 0n)) open.delete(partition);
    }
    return found;
  } finally {
    await consumer.close();
  }
}

async function writtenEnd(brokers: string, topic: string, partition: number): Promise<bigint> {
  const consumer = await nodeRdkafkaDriver.consumer({ brokers, clientId: 'test', isolation: 'uncommitted' });
  try {
    return (await consumer.watermarkOffsets({ topic, partition }, 30_000)).high;
  } finally {
    await consumer.close();
  }
}
