/** Observes a topic as a consumer: the broker's append time and the local arrival time of each
 *  key. */
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { type BatchConsumer, OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { World } from './world.ts';

const PARTITIONS = 4;
const BATCH_ROWS = 10_000;
const ARENA_BYTES = 16 << 20;
const WAIT_MS = 50;
const ANSWER_MS = 10_000;

const nowMs = (): number => performance.timeOrigin + performance.now();

export interface Arrival {
  readonly appendedMs: number;
  readonly arrivedMs: number;
}

/** Cluster, and the properties of its clients. */
export type BrokerAt = Pick<World, 'brokers' | 'properties'>;

export async function createTopic({ brokers, properties }: BrokerAt, topic: string): Promise<void> {
  const admin = await nodeRdkafkaDriver.admin({ brokers, clientId: 'bench', properties });
  const copies = brokers.split(',').length;
  try {
    await admin.createTopics([
      {
        topic,
        partitions: PARTITIONS,
        replicationFactor: copies,
        config: {
          'message.timestamp.type': 'LogAppendTime',
          ...(copies >= 3 ? { 'min.insync.replicas': '2' } : {}),
        },
      },
    ]);
  } finally {
    await admin.close();
  }
}

/** Reads a topic from its beginning while it grows. */
export class Arrivals {
  /** First occurrence of each key. */
  readonly first = new Map<string, Arrival>();
  /** Number of records read, including repeats. */
  rows = 0;
  private readonly consumer: BatchConsumer;
  private readonly topic: string;
  private readonly reading: Promise<void>;
  private stopped = false;

  private constructor(consumer: BatchConsumer, topic: string, keyBytes: number) {
    this.consumer = consumer;
    this.topic = topic;
    this.reading = this.read(keyBytes);
    this.reading.catch(() => {});
  }

  /** @param keyBytes keys are cut to this many characters, the length of a UUID by default */
  static async open(at: BrokerAt, topic: string, keyBytes = 36): Promise<Arrivals> {
    const { brokers } = at;
    const properties = { ...at.properties, 'fetch.wait.max.ms': 5 };
    const consumer = await librdkafkaDriver.consumer({ brokers, clientId: 'bench', properties });
    await consumer.assign(
      Array.from({ length: PARTITIONS }, (_, partition) => ({ topic, partition, offset: OFFSET_BEGINNING })),
    );
    return new Arrivals(consumer, topic, keyBytes);
  }

  /** Number of records in the topic, including unread records. */
  async appended(): Promise<number> {
    let sum = 0n;
    for (let partition = 0; partition < PARTITIONS; partition++) {
      const { high, low } = await this.consumer.watermarkOffsets({ topic: this.topic, partition }, ANSWER_MS);
      sum += high - low;
    }
    return Number(sum);
  }

  async close(): Promise<void> {
    this.stopped = true;
    await this.reading;
    await this.consumer.close();
  }

  private async read(keyBytes: number): Promise<void> {
    const batch = RecordBatch.create(BATCH_ROWS, ARENA_BYTES);
    const { keyStart, keyLength, timestamp, arena } = batch.columns;
    const bytes = Buffer.from(arena.buffer, arena.byteOffset, arena.byteLength);
    while (!this.stopped) {
      const { rowCount } = await this.consumer.consume(batch, WAIT_MS);
      const arrivedMs = nowMs();
      this.rows += rowCount;
      for (let row = 0; row < rowCount; row++) {
        const start = keyStart[row] as number;
        const end = start + Math.min(keyBytes, keyLength[row] as number);
        const key = bytes.toString('latin1', start, end);
        if (!this.first.has(key)) this.first.set(key, { appendedMs: Number(timestamp[row]), arrivedMs });
      }
    }
  }
}

/** Nearest-rank quantile of unsorted values; NaN if there are none. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] as number;
}
