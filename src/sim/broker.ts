/** The broker port in memory, with the faults of a seed; the same contract as the real drivers. */

import { sleep } from '../core/clock.ts';
import { coreError } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import { newTopicConfig } from '../core/topics.ts';
import type {
  BatchProducer,
  BrokerAdmin,
  BrokerDriver,
  BrokerEvent,
  DeliveryReport,
  ProducerOptions,
  TopicSpec,
} from '../io/broker/port.ts';
import { SimCluster, type SimOptions, simError, simEvent } from './broker-cluster.ts';
import { SimConsumer } from './broker-consumer.ts';
import { partitionOfKey } from './murmur2.ts';

const QUEUE_BYTES_MAX = 64 * 1024 * 1024;
const NO_OFFSET = -1001n;

class SimProducer implements BatchProducer {
  private readonly cluster: SimCluster;
  private readonly queueBytesMax: number;
  private turn: Promise<unknown> = Promise.resolve();
  private bytes = 0;
  private unkeyed = 0;
  private closed = false;

  constructor(cluster: SimCluster, options: ProducerOptions) {
    this.cluster = cluster;
    this.queueBytesMax = options.queueBytesMax ?? QUEUE_BYTES_MAX;
  }

  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    this.checkOpen();
    for (let row = 0; row < batch.rowCount; row++) {
      if (topics[batch.columns.topicIndex[row] as number] === undefined) {
        throw coreError(
          'out_of_range',
          `row ${row} names topic ${batch.columns.topicIndex[row]} of ${topics.length}`,
        );
      }
    }
    const bytes = batch.arenaUsed;
    const sending = this.turn.then(async () => {
      while (this.bytes >= this.queueBytesMax) await sleep(this.cluster.options.clock, 1);
      this.bytes += bytes;
    });
    this.turn = sending;
    await sending;
    const report = this.append(batch, topics);
    this.cluster.changed();
    await sleep(this.cluster.options.clock, 0);
    this.bytes -= bytes;
    return report;
  }

  queuedBytes(): number {
    return this.bytes;
  }

  async flush(_timeoutMs: number): Promise<void> {
    this.checkOpen();
    await this.turn;
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.turn;
  }

  private checkOpen(): void {
    if (this.closed) throw coreError('closed', 'the producer is closed');
  }

  private append(batch: RecordBatch, topics: readonly string[]): DeliveryReport {
    const rows = batch.rowCount;
    const report = { status: new Int32Array(rows), offset: new BigInt64Array(rows).fill(NO_OFFSET) };
    const events = new Map<number, BrokerEvent>();
    let failed = 0;
    for (let row = 0; row < rows; row++) {
      const event = this.appendRow(
        batch,
        row,
        topics[batch.columns.topicIndex[row] as number] as string,
        report.offset,
      );
      if (event === undefined) continue;
      report.status[row] = event.code;
      report.offset[row] = NO_OFFSET;
      events.set(event.code, event);
      failed++;
    }
    return { delivered: rows - failed, failed, ...report, events: [...events.values()] };
  }

  private appendRow(
    batch: RecordBatch,
    row: number,
    topic: string,
    offset: BigInt64Array,
  ): BrokerEvent | undefined {
    const { columns } = batch;
    const key = batch.key(row);
    const value = batch.value(row);
    const bytes = (key?.length ?? 0) + (value?.length ?? 0) + (columns.headersLength[row] as number);
    if (bytes > this.cluster.messageBytesMax) return simEvent('MSG_SIZE_TOO_LARGE');
    const partitions = this.cluster.topics.get(topic) ?? [];
    const asked = columns.partition[row] as number;
    const chosen =
      key === null
        ? this.unkeyed++ % Math.max(1, partitions.length)
        : partitionOfKey(key, Math.max(1, partitions.length));
    const log = partitions[asked < 0 ? chosen : asked];
    if (log === undefined) return simEvent('_UNKNOWN_PARTITION');
    if (this.cluster.strikes('lostRow')) return simEvent('_MSG_TIMED_OUT');
    const at = columns.timestamp[row] as bigint;
    offset[row] = BigInt(log.length);
    log.push({
      timestamp: at === 0n ? BigInt(Math.trunc(this.cluster.options.clock.wallNowMs())) : at,
      key: key?.slice() ?? null,
      value: value?.slice() ?? null,
      headers: batch.headers(row).map(([name, content]) => [name, content?.slice() ?? null] as const),
    });
    return this.cluster.strikes('lostReport') ? simEvent('_MSG_TIMED_OUT') : undefined;
  }
}

class SimAdmin implements BrokerAdmin {
  private readonly cluster: SimCluster;
  private closed = false;

  constructor(cluster: SimCluster) {
    this.cluster = cluster;
  }

  async clusterId(): Promise<string> {
    this.checkOpen();
    return `simulated-${this.cluster.options.seed}`;
  }

  async createTopics(specs: readonly TopicSpec[]): Promise<readonly boolean[]> {
    this.checkOpen();
    return specs.map(({ topic, partitions, replicationFactor, config }) => {
      if (!/^[\w.-]{1,249}$/.test(topic))
        throw simError('broker_refused', `create topic ${topic}: invalid topic`);
      if (this.cluster.topics.has(topic)) return false;
      this.cluster.topicIds.set(topic, `id-${++this.cluster.lastTopicId}`);
      this.cluster.topics.set(
        topic,
        Array.from({ length: partitions }, () => []),
      );
      const replicas = replicationFactor || 1;
      this.cluster.replicas.set(topic, replicas);
      this.cluster.configs.set(topic, new Map(Object.entries(newTopicConfig(replicas, config))));
      this.cluster.changed();
      return true;
    });
  }

  async deleteTopics(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    for (const topic of topics) {
      this.cluster.topics.delete(topic);
      this.cluster.topicIds.delete(topic);
    }
  }

  async listTopics() {
    this.checkOpen();
    return [...this.cluster.topics]
      .map(([topic, logs]) => ({ topic, partitions: logs.map((_, partition) => partition) }))
      .sort((a, b) => (a.topic < b.topic ? -1 : 1));
  }

  async describeTopic(topic: string) {
    this.checkOpen();
    const partitions = this.cluster.topics.get(topic)?.length;
    return partitions === undefined
      ? undefined
      : {
          partitions,
          replicas: this.cluster.replicas.get(topic) ?? 1,
          config: this.cluster.configs.get(topic) ?? new Map(),
        };
  }

  async topicId(topic: string): Promise<string | undefined> {
    this.checkOpen();
    return this.cluster.topicIds.get(topic);
  }

  async isLed(topic: string): Promise<boolean> {
    this.checkOpen();
    return this.cluster.topics.has(topic);
  }

  async brokerCount(): Promise<number> {
    this.checkOpen();
    return 1;
  }

  async close(): Promise<void> {
    this.closed = true;
  }

  private checkOpen(): void {
    if (this.closed) throw coreError('closed', 'the admin client is closed');
  }
}

/** A driver over a cluster of its own. */
export function simBrokerDriver(options: SimOptions): BrokerDriver {
  const cluster = new SimCluster(options);
  return {
    name: 'simulated',
    async consumer(given) {
      cluster.admit(given.brokers);
      cluster.checkProperties(given.properties);
      return new SimConsumer(cluster, given);
    },
    async producer(given) {
      cluster.admit(given.brokers);
      cluster.checkProperties(given.properties);
      return new SimProducer(cluster, given);
    },
    // The simulation keeps no transactions: what needs them is tested against a real broker.
    async transactional() {
      throw simError('bad_broker_property', 'the simulated broker has no transactions', {
        next: 'use a real broker',
      });
    },
    async admin(given) {
      cluster.admit(given.brokers);
      return new SimAdmin(cluster);
    },
  };
}
