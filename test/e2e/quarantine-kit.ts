/** Independent reader of a topic: every record with its key, its value and its headers as text. */
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';

export interface ReadRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: ReadonlyMap<string, string>;
}

const copyOf = (bytes: Uint8Array | null): Buffer | null => (bytes === null ? null : Buffer.from(bytes));

/** Reads a topic to its present end. */
export async function recordsIn(brokers: string, topic: string): Promise<readonly ReadRecord[]> {
  const options = { brokers, clientId: 'quarantine-test', connectTimeoutMs: 60_000 };
  const admin = await librdkafkaDriver.admin(options);
  const partitions = (await admin.describeTopic(topic))?.partitions ?? 0;
  await admin.close();
  const consumer = await librdkafkaDriver.consumer({ ...options, partitionEof: true });
  try {
    const all = Array.from({ length: partitions }, (_, partition) => ({
      topic,
      partition,
      offset: OFFSET_BEGINNING,
    }));
    await consumer.assign(all);
    const open = new Set(all.map(({ partition }) => partition));
    const batch = RecordBatch.create(1000, 1 << 22);
    const found: ReadRecord[] = [];
    while (open.size > 0) {
      const { rowCount, ends } = await consumer.consume(batch, 1000);
      for (let row = 0; row < rowCount; row++) {
        const headers = batch
          .headers(row)
          .map(([name, value]) => [name, Buffer.from(value ?? []).toString()] as const);
        found.push({
          key: copyOf(batch.key(row)),
          value: copyOf(batch.value(row)),
          headers: new Map(headers),
        });
      }
      for (const { partition } of ends) open.delete(partition);
    }
    return found;
  } finally {
    await consumer.close();
  }
}
