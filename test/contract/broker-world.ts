/** Kit of the broker contract: opens clients of a driver, makes unique names, and produces and
 *  reads records. */
import { randomBytes } from 'node:crypto';
import { afterEach } from 'vitest';
import { RecordBatch, type RecordInput } from '../../src/core/layout/record-batch.ts';
import {
  type BatchConsumer,
  type BatchProducer,
  type BrokerAdmin,
  type BrokerDriver,
  type BrokerEvent,
  type ConsumerOptions,
  OFFSET_BEGINNING,
  type ProducerOptions,
  type TopicPartitionOffset,
  type TransactionalOptions,
  type TransactionalProducer,
} from '../../src/io/kafka/port.ts';
import { until } from '../wait.ts';

/** Second member of a group of two, which gets no partition but delays a rebalance. */
export interface SlowMember {
  /** Joins before the other member. */
  enter(): Promise<void>;
  /** Resolves when both members have joined and the other member has its partitions; the other
   *  member must read meanwhile. */
  gather(): Promise<void>;
  /** Begins a rebalance; resolves in the middle of it. */
  stall(): Promise<void>;
  /** Does this member's part of the rebalance, so that the rebalance can end. */
  complete(): Promise<void>;
  close(): Promise<void>;
}

export interface BrokerSubject {
  readonly driver: BrokerDriver;
  brokers(): string;
  /** True when header values may be any bytes and null; otherwise UTF-8 text without zero bytes. */
  readonly anyHeaders: boolean;
  /** True when the driver reports the origin of a timestamp. */
  readonly timestampTypes: boolean;
  slowMember(group: string, topic: string, partitions: number): SlowMember;
}

export interface Row {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly timestamp: bigint;
  readonly timestampType: number;
  readonly key: string | null;
  readonly value: string | null;
  readonly headers: ReadonlyArray<readonly [string, string | null]>;
}

const run = randomBytes(6).toString('hex');
let names = 0;
/** Returns a name that no other test of any run uses. */
export const fresh = (what: string): string => `${what}-${run}-${names++}`;

export const utf8 = new TextEncoder();
export const text = (bytes: Uint8Array | null): string | null =>
  bytes === null ? null : Buffer.from(bytes).toString('latin1');

export function batchOf(records: readonly RecordInput[], arenaBytes = 1 << 20): RecordBatch {
  const batch = RecordBatch.create(Math.max(1, records.length), arenaBytes);
  for (const record of records) if (!batch.append(record)) throw new Error('the test batch is too small');
  return batch;
}

export function rowsOf(batch: RecordBatch, topics: readonly string[]): Row[] {
  const { columns } = batch;
  return Array.from({ length: batch.rowCount }, (_, row) => ({
    topic: topics[columns.topicIndex[row] as number] as string,
    partition: columns.partition[row] as number,
    offset: columns.offset[row] as bigint,
    timestamp: columns.timestamp[row] as bigint,
    timestampType: columns.timestampType[row] as number,
    key: text(batch.key(row)),
    value: text(batch.value(row)),
    headers: batch.headers(row).map(([name, value]) => [name, text(value)] as const),
  }));
}

/** Opens clients and closes them when the test ends. */
export class World {
  readonly subject: BrokerSubject;
  private readonly open: Array<{ close(): Promise<void> }> = [];

  constructor(subject: BrokerSubject) {
    this.subject = subject;
    afterEach(async () => {
      for (const client of this.open.splice(0).reverse()) await client.close();
    });
  }

  private async keep<C extends { close(): Promise<void> }>(client: Promise<C>): Promise<C> {
    const made = await client;
    this.open.push(made);
    return made;
  }

  private get common() {
    return { brokers: this.subject.brokers(), clientId: 'contract', connectTimeoutMs: 60_000 };
  }

  consumer(options: Partial<ConsumerOptions> = {}): Promise<BatchConsumer> {
    return this.keep(this.subject.driver.consumer({ ...this.common, ...options }));
  }

  producer(options: Partial<ProducerOptions> = {}): Promise<BatchProducer> {
    return this.keep(this.subject.driver.producer({ ...this.common, ...options }));
  }

  transactional(options: Partial<TransactionalOptions> & { transactionalId: string }) {
    return this.keep<TransactionalProducer>(
      this.subject.driver.transactional({ ...this.common, ...options }),
    );
  }

  slowMember(group: string, topic: string, partitions: number): Promise<SlowMember> {
    return this.keep(Promise.resolve(this.subject.slowMember(group, topic, partitions)));
  }

  admin(): Promise<BrokerAdmin> {
    return this.keep(this.subject.driver.admin(this.common));
  }

  async topic(partitions: number, config?: Readonly<Record<string, string>>): Promise<string> {
    const topic = fresh('contract');
    const admin = await this.admin();
    await admin.createTopics([{ topic, partitions, ...(config === undefined ? {} : { config }) }]);
    return topic;
  }

  /** Produces `count` rows `0`, `1`, … in one partition. */
  async numbered(topic: string, count: number, partition = 0): Promise<void> {
    const producer = await this.producer();
    const rows = Array.from({ length: count }, (_, i) => ({ partition, value: utf8.encode(String(i)) }));
    const report = await producer.produce(batchOf(rows), [topic]);
    if (report.failed > 0) throw new Error(JSON.stringify(report.events));
  }
}

export const allOf = (topic: string, partitions: number): TopicPartitionOffset[] =>
  Array.from({ length: partitions }, (_, partition) => ({ topic, partition, offset: OFFSET_BEGINNING }));

export interface Reading {
  readonly rows: Row[];
  readonly ends: TopicPartitionOffset[];
  readonly events: BrokerEvent[];
}

/** Consumes until `enough` returns true. */
export async function readUntil(
  consumer: BatchConsumer,
  enough: (so: Reading) => boolean,
  { into = RecordBatch.create(500, 1 << 18) }: { into?: RecordBatch } = {},
): Promise<Reading> {
  const reading: Reading = { rows: [], ends: [], events: [] };
  await until('a reading that is enough', async () => {
    while (!enough(reading)) {
      const { rowCount, ends, events } = await consumer.consume(into, 200);
      reading.rows.push(...rowsOf(into, consumer.topics));
      reading.ends.push(...ends);
      reading.events.push(...events);
      if (rowCount === 0 && !enough(reading))
        throw new Error(`${reading.rows.length} rows so far: ${JSON.stringify(reading.events)}`);
    }
    return true;
  });
  return reading;
}

export const rowCount =
  (count: number) =>
  (so: Reading): boolean =>
    so.rows.length >= count;
