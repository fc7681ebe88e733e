/** Topic access of the demo: appends records, and reads whole topics from the first record to the
 *  last. */
import { coreError } from '../../core/errors.ts';
import { RecordBatch, type RecordInput } from '../../core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../io/kafka/node-rdkafka/driver.ts';
import type { BatchConsumer, TopicPartitionOffset, TopicSpec } from '../../io/kafka/port.ts';

const WAIT_MS = 500;
const OFFSETS_MS_MAX = 10_000;
const BATCH_ROWS = 2000;
const BATCH_BYTES = 16 << 20;
/** A topic that does not deliver its records within this time fails the read. */
const READ_MS_MAX = 120_000;

export interface TopicRecord {
  readonly partition: number;
  readonly offset: bigint;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: () => ReadonlyMap<string, string>;
}

/** Long connect timeout: the broker is known to run. */
const clientOf = (brokers: string) => ({ brokers, clientId: 'millrace-demo', connectTimeoutMs: 60_000 });

export async function createTopics(brokers: string, specs: readonly TopicSpec[]): Promise<void> {
  const admin = await nodeRdkafkaDriver.admin(clientOf(brokers));
  try {
    await admin.createTopics(specs);
  } finally {
    await admin.close();
  }
}

/** Appends records and returns the position of each. @throws unreachable */
export async function append(
  brokers: string,
  topic: string,
  records: readonly RecordInput[],
): Promise<ReadonlyArray<{ readonly partition: number; readonly offset: bigint }>> {
  const producer = await nodeRdkafkaDriver.producer({
    ...clientOf(brokers),
    acks: -1,
    properties: { 'message.max.bytes': BATCH_BYTES },
  });
  try {
    const batch = RecordBatch.create(records.length, BATCH_BYTES);
    for (const record of records) batch.append(record);
    const report = await producer.produce(batch, [topic]);
    if (report.failed > 0)
      throw coreError('unreachable', `${report.failed} records were not accepted by ${topic}`);
    return records.map((record, row) => ({
      partition: record.partition ?? -1,
      offset: report.offset[row] as bigint,
    }));
  } finally {
    await producer.close();
  }
}

/** Reads whole topics, one after the other, through one client. It sees committed records only. */
export class TopicReader {
  private readonly consumer: BatchConsumer;
  private readonly partitions: ReadonlyMap<string, readonly number[]>;
  private readonly batch = RecordBatch.create(BATCH_ROWS, BATCH_BYTES);

  private constructor(consumer: BatchConsumer, partitions: ReadonlyMap<string, readonly number[]>) {
    this.consumer = consumer;
    this.partitions = partitions;
  }

  /** Opens a reader of the topics that exist now. */
  static async open(brokers: string): Promise<TopicReader> {
    const admin = await nodeRdkafkaDriver.admin(clientOf(brokers));
    const topics = await admin.listTopics().finally(() => admin.close());
    const consumer = await nodeRdkafkaDriver.consumer({ ...clientOf(brokers), partitionEof: true });
    return new TopicReader(consumer, new Map(topics.map(({ topic, partitions }) => [topic, partitions])));
  }

  close(): Promise<void> {
    return this.consumer.close();
  }

  /** Calls `each` for every record that the topics hold now; key and value are borrowed for the
   *  call. Returns the number of records by topic. @throws timeout */
  async read(
    topics: readonly string[],
    each: (topic: string, record: TopicRecord) => void,
  ): Promise<ReadonlyMap<string, number>> {
    const counts = new Map(topics.map((topic) => [topic, 0]));
    const open = new Map<string, bigint>();
    const from: TopicPartitionOffset[] = [];
    for (const topic of topics) {
      for (const partition of this.partitions.get(topic) ?? []) {
        const { low, high } = await this.consumer.watermarkOffsets({ topic, partition }, OFFSETS_MS_MAX);
        if (high <= low) continue;
        open.set(`${topic}/${partition}`, high);
        from.push({ topic, partition, offset: low });
      }
    }
    if (from.length === 0) return counts;
    await this.consumer.assign(from);
    const { batch } = this;
    const deadline = Date.now() + READ_MS_MAX;
    while (open.size > 0) {
      if (Date.now() > deadline)
        throw coreError('timeout', `${[...open.keys()].join(', ')} did not deliver all their records`);
      const { rowCount, ends } = await this.consumer.consume(batch, WAIT_MS);
      const { topicIndex, partition, offset } = batch.columns;
      for (let row = 0; row < rowCount; row++) {
        const topic = this.consumer.topics[topicIndex[row] as number] as string;
        const at = { partition: partition[row] as number, offset: offset[row] as bigint };
        const place = `${topic}/${at.partition}`;
        const end = open.get(place);
        if (end === undefined || at.offset >= end) continue;
        counts.set(topic, (counts.get(topic) ?? 0) + 1);
        if (at.offset + 1n >= end) open.delete(place);
        const headers = (): ReadonlyMap<string, string> =>
          new Map(
            batch.headers(row).map(([name, value]) => [name, Buffer.from(value ?? []).toString('utf8')]),
          );
        each(topic, { ...at, key: batch.key(row), value: batch.value(row), headers });
      }
      // The last offset of a partition may be the marker of a transaction, which is no record.
      for (const { topic, partition, offset } of ends) {
        const place = `${topic}/${partition}`;
        if (offset >= (open.get(place) ?? 0n)) open.delete(place);
      }
    }
    return counts;
  }
}
