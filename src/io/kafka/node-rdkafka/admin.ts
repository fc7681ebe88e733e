/** Topic and cluster administration through node-rdkafka, for both data drivers. */
import type { IAdminClient, KafkaConsumer, LibrdKafkaError, Metadata, Producer } from 'node-rdkafka';
import { coreError, type MillraceError } from '../../../core/errors.ts';
import { newTopicConfig } from '../../../core/topics.ts';
import { closedError, ERR, errorOfEvent, thrownEvent, unreachable } from '../errors.ts';
import {
  type BrokerAdmin,
  type BrokerOptions,
  OFFSET_END,
  type TopicDescription,
  type TopicInfo,
  type TopicPartition,
  type TopicPartitionOffset,
  type TopicSpec,
} from '../port.ts';
import { topicConfig } from '../topic-config.ts';
import { topicRefusal } from '../topic-refusal.ts';

const ANSWER_TIMEOUT_MS = 15_000;
/** Time in which each partition of a new topic must get a leader; the topic is usable then. */
const LEADERS_TIMEOUT_MS = 15_000;
/** Replicas of a topic whose specification has no number. */
const DEFAULT_REPLICAS = 3;
const CLUSTER_ID_TIMEOUT_MS = 5000;
/** Wait for the log line with the id of a topic: the line and the metadata response arrive
 *  independently. */
const TOPIC_ID_TIMEOUT_MS = 2000;
const TOPIC_ID_CHANGE_MS = 100;
/** Timeout of a check for leaders; callers repeat the check. */
const LED_TIMEOUT_MS = 5000;
const POLL_MS = 20;

const isGiven = (copies: number | undefined): copies is number => copies !== undefined && copies > 0;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export class NodeAdmin implements BrokerAdmin {
  private readonly client: Producer;
  private readonly openControl: () => IAdminClient;
  private control: IAdminClient | undefined;
  private readonly openLogging: (seen: (clusterId: string) => void) => Promise<Producer>;
  private readonly openTopicLog: (seen: (topic: string, id: string) => void) => Promise<Producer>;
  private readonly openConsumer: () => Promise<KafkaConsumer>;
  private readonly options: BrokerOptions;
  private topicLog: Promise<Producer> | undefined;
  private readonly topicIds = new Map<string, string>();
  private closing: Promise<void> | undefined;

  constructor(
    client: Producer,
    openControl: () => IAdminClient,
    openLogging: (seen: (clusterId: string) => void) => Promise<Producer>,
    openTopicLog: (seen: (topic: string, id: string) => void) => Promise<Producer>,
    openConsumer: () => Promise<KafkaConsumer>,
    options: BrokerOptions,
  ) {
    this.client = client;
    this.openControl = openControl;
    this.openLogging = openLogging;
    this.openTopicLog = openTopicLog;
    this.openConsumer = openConsumer;
    this.options = options;
  }

  async clusterId(): Promise<string> {
    this.checkOpen();
    let seen: string | undefined;
    const client = await this.openLogging((clusterId) => {
      seen = clusterId;
    });
    try {
      for (let waited = 0; waited < CLUSTER_ID_TIMEOUT_MS; waited += POLL_MS) {
        if (seen !== undefined) return seen;
        client.poll();
        await sleep(POLL_MS);
      }
    } finally {
      await new Promise<void>((resolve) => client.disconnect(1, () => resolve()));
    }
    throw unreachable(this.options, 'it did not report its cluster id');
  }

  async createTopics(specs: readonly TopicSpec[]): Promise<readonly boolean[]> {
    this.checkOpen();
    const created: boolean[] = [];
    // The broker checks the right to create a topic before it checks that the topic exists. A user
    // of existing topics may lack that right.
    const { brokers, topics } = await this.metadata({ allTopics: true, timeout: ANSWER_TIMEOUT_MS });
    const existing = new Set(topics.map(({ name }) => name));
    // A topic with fewer replicas than the cluster's min.insync.replicas would refuse every record.
    const defaultReplicas = Math.min(DEFAULT_REPLICAS, brokers.length);
    for (const spec of specs) {
      if (existing.has(spec.topic)) {
        created.push(false);
        continue;
      }
      const copies = isGiven(spec.replicationFactor) ? spec.replicationFactor : defaultReplicas;
      const error = await this.ask((control, done) =>
        control.createTopic(
          {
            topic: spec.topic,
            num_partitions: spec.partitions,
            replication_factor: copies,
            config: newTopicConfig(copies, spec.config),
          },
          ANSWER_TIMEOUT_MS,
          done,
        ),
      );
      if (error !== undefined && error.code !== ERR.TOPIC_ALREADY_EXISTS) {
        throw errorOfEvent(`create topic ${spec.topic}`, thrownEvent(error));
      }
      created.push(error === undefined);
    }
    for (const [i, spec] of specs.entries()) if (created[i] === true) await this.waitForLeaders(spec);
    return created;
  }

  async deleteTopics(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    for (const topic of topics) {
      const error = await this.ask((control, done) => control.deleteTopic(topic, ANSWER_TIMEOUT_MS, done));
      if (error !== undefined && error.code !== ERR.UNKNOWN_TOPIC_OR_PART)
        throw errorOfEvent(`delete topic ${topic}`, thrownEvent(error));
    }
  }

  async listTopics(): Promise<readonly TopicInfo[]> {
    this.checkOpen();
    const metadata = await this.metadata({ allTopics: true, timeout: ANSWER_TIMEOUT_MS });
    return metadata.topics
      .map((topic) => ({
        topic: topic.name,
        partitions: topic.partitions.map((item) => item.id).sort((a, b) => a - b),
      }))
      .sort((a, b) => (a.topic < b.topic ? -1 : 1));
  }

  refusalOf(topic: string): Promise<MillraceError | undefined> {
    this.checkOpen();
    return topicRefusal(this.options, topic);
  }

  async describeTopic(topic: string): Promise<TopicDescription | undefined> {
    // A request by name would create the topic at a broker with automatic topic creation.
    this.checkOpen();
    const { topics } = await this.metadata({ allTopics: true, timeout: ANSWER_TIMEOUT_MS });
    const found = topics.find((item) => item.name === topic);
    if (found === undefined) return undefined;
    return {
      partitions: found.partitions.length,
      replicas: found.partitions.reduce(
        (least, { replicas }) => Math.min(least, replicas.length),
        found.partitions[0]?.replicas.length ?? 0,
      ),
      config: await topicConfig(this.options, topic, ANSWER_TIMEOUT_MS),
    };
  }

  async topicId(topic: string): Promise<string | undefined> {
    // A request by name would create the topic at a broker with automatic topic creation.
    if ((await this.listTopics()).every((item) => item.topic !== topic)) return undefined;
    this.topicLog ??= this.openTopicLog((name, id) => void this.topicIds.set(name, id));
    this.topicLog.catch(() => {
      this.topicLog = undefined;
    });
    const client = await this.topicLog;
    const isFirst = !this.topicIds.has(topic);
    await this.metadata({ topic, allTopics: false, timeout: ANSWER_TIMEOUT_MS }, client);
    // librdkafka logs changes only: a known id is valid unless a line follows.
    for (let waited = 0; waited < (isFirst ? TOPIC_ID_TIMEOUT_MS : TOPIC_ID_CHANGE_MS); waited += POLL_MS) {
      client.poll();
      await sleep(POLL_MS);
      if (isFirst && this.topicIds.has(topic)) break;
    }
    return this.topicIds.get(topic);
  }

  async isLed(topic: string): Promise<boolean> {
    this.checkOpen();
    const { topics } = await this.metadata({ allTopics: true, timeout: LED_TIMEOUT_MS });
    const partitions = topics.find((item) => item.name === topic)?.partitions ?? [];
    return partitions.length > 0 && partitions.every((item) => item.leader >= 0);
  }

  async offsetsForTime(
    partitions: readonly TopicPartition[],
    timestampMs: number,
  ): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    // Only the consumer of node-rdkafka has this call.
    const consumer = await this.openConsumer();
    try {
      const wanted = partitions.map((at) => ({ ...at, offset: timestampMs }));
      const found = await new Promise<readonly (TopicPartition & { readonly offset: number })[]>(
        (resolve, reject) =>
          consumer.offsetsForTimes(wanted, ANSWER_TIMEOUT_MS, (error, offsets) =>
            error ? reject(errorOfEvent('offsets of a time', thrownEvent(error))) : resolve(offsets),
          ),
      );
      return found.map(({ topic, partition, offset }) => {
        return { topic, partition, offset: offset < 0 ? OFFSET_END : BigInt(offset) };
      });
    } finally {
      await new Promise<void>((resolve) => consumer.disconnect(() => resolve()));
    }
  }

  async brokerCount(): Promise<number> {
    this.checkOpen();
    return (await this.metadata({ allTopics: true, timeout: ANSWER_TIMEOUT_MS })).brokers.length;
  }

  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async end(): Promise<void> {
    this.control?.disconnect();
    const topicLog = await this.topicLog?.catch(() => undefined);
    for (const client of [this.client, topicLog])
      if (client !== undefined) await new Promise<void>((resolve) => client.disconnect(1, () => resolve()));
  }

  private checkOpen(): void {
    if (this.closing !== undefined) throw closedError('admin client');
  }

  private ask(
    act: (control: IAdminClient, done: (error: LibrdKafkaError | undefined) => void) => void,
  ): Promise<LibrdKafkaError | undefined> {
    this.control ??= this.openControl();
    const control = this.control;
    return new Promise((resolve) => act(control, (error) => resolve(error ?? undefined)));
  }

  private metadata(
    what: { topic?: string; allTopics?: boolean; timeout: number },
    client = this.client,
  ): Promise<Metadata> {
    return new Promise((resolve, reject) => {
      client.getMetadata(what, (error, metadata) =>
        error ? reject(unreachable(this.options, thrownEvent(error).message)) : resolve(metadata),
      );
    });
  }

  private async waitForLeaders(spec: TopicSpec): Promise<void> {
    const deadline = performance.now() + LEADERS_TIMEOUT_MS;
    while (performance.now() < deadline) {
      const metadata = await this.metadata({
        topic: spec.topic,
        allTopics: false,
        timeout: ANSWER_TIMEOUT_MS,
      });
      const partitions = metadata.topics.find((item) => item.name === spec.topic)?.partitions ?? [];
      if (partitions.length === spec.partitions && partitions.every((item) => item.leader >= 0)) return;
      await sleep(POLL_MS);
    }
    throw coreError('timeout', `topic ${spec.topic} has no leader for every partition`, {
      next: 'check that all brokers run',
    });
  }
}
