/** Simulated driver of the broker port, with faults drawn from a seed; fulfils the contract of the
 *  real drivers. */

import { coreError } from '../core/errors.ts';
import { newTopicConfig } from '../core/topics.ts';
import {
  type BrokerAdmin,
  type BrokerDriver,
  type BrokerOptions,
  OFFSET_END,
  type TopicPartition,
  type TopicPartitionOffset,
  type TopicSpec,
} from '../io/kafka/port.ts';
import { SimCluster, type SimOptions, simError } from './broker-cluster.ts';
import { SimConsumer } from './broker-consumer.ts';
import { SimLink } from './broker-link.ts';
import { SimProducer } from './broker-producer.ts';
import { SimTransactionalProducer } from './broker-transactional.ts';

/** Default of the time that a new client waits for the broker, in ms. */
const CONNECT_TIMEOUT_MS = 30_000;

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
      this.cluster.topicsChanged();
      return true;
    });
  }

  async deleteTopics(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    for (const topic of topics) {
      this.cluster.topics.delete(topic);
      this.cluster.topicIds.delete(topic);
    }
    this.cluster.topicsChanged();
  }

  async listTopics() {
    this.checkOpen();
    return [...this.cluster.topics]
      .map(([topic, logs]) => ({ topic, partitions: logs.map((_, partition) => partition) }))
      .sort((a, b) => (a.topic < b.topic ? -1 : 1));
  }

  /** The simulated cluster has no access rules. */
  async refusalOf() {
    this.checkOpen();
    return undefined;
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

  async offsetsForTime(
    partitions: readonly TopicPartition[],
    timestampMs: number,
  ): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    return partitions.map(({ topic, partition }) => {
      const log = this.cluster.topics.get(topic)?.[partition] ?? [];
      const at = log.findIndex(({ timestamp }) => timestamp >= BigInt(timestampMs));
      return { topic, partition, offset: at < 0 ? OFFSET_END : BigInt(at) };
    });
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

/** Creates a driver with a cluster of its own. */
export const simBrokerDriver = (options: SimOptions): BrokerDriver => simDriverOf(new SimCluster(options));

/** Creates the driver of one process. Each process of a shared cluster has its own link. */
export function simDriverOf(cluster: SimCluster, link: SimLink = new SimLink(cluster)): BrokerDriver {
  const connect = async (given: BrokerOptions): Promise<void> => {
    cluster.admit(given.brokers);
    cluster.checkProperties(given.properties);
    const timeoutMs = given.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    if ((await link.ask(timeoutMs, () => true)) === undefined)
      throw coreError('unreachable', `no broker answers at ${given.brokers}`);
  };
  return {
    name: 'simulated',
    async consumer(given) {
      await connect(given);
      return new SimConsumer(cluster, link, given);
    },
    async producer(given) {
      await connect(given);
      return new SimProducer(cluster, link, given);
    },
    async transactional(given) {
      await connect(given);
      return new SimTransactionalProducer(cluster, link, given);
    },
    async admin(given) {
      await connect({ brokers: given.brokers, clientId: given.clientId });
      return new SimAdmin(cluster);
    },
  };
}
