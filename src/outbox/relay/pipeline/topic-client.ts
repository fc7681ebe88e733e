/** Client of the relay's topic: creates the topic, opens the producer that publishes to it, and
 *  fences producers of former owners. */

import { createHash } from 'node:crypto';
import type { Clock } from '../../../core/clock.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import { warnOfThinTopic } from '../../../core/topics.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { eventTopicConfig } from '../../event-topic.ts';
import type { OutboxTable } from '../store.ts';
import { PLAIN_PROPERTIES, PlainSender, type Sender, TransactionalSender } from './sender.ts';

const FLIGHTS = 4;
const RECORD_BYTES_DEFAULT = 1_048_588;
/** Range of message.max.bytes in librdkafka. */
const RECORD_BYTES_LEAST = 1000;
export const RECORD_BYTES_MOST = 1_000_000_000;
/** Room for the batch header, which the broker counts and the client does not. */
const BATCH_SLACK_BYTES = 1024;
const TOPIC_AGAIN_MS = 2000;
const TOPIC_WAIT_MS = 3000;
const FENCE_TIMEOUT_MS = 30_000;

export interface TopicClientOptions {
  readonly broker: BrokerDriver;
  readonly clock: Clock;
  readonly log: Logger;
  readonly settings: {
    readonly brokers: string;
    readonly topic: string;
    readonly name: string;
    readonly fence: 'mark' | 'broker';
    readonly createTopic: TopicSettings | undefined;
  };
}

/** Settings of a topic that the relay creates. */
export interface TopicSettings {
  readonly partitions: number;
  /** Number of replicas; 0: three, or the number of brokers when it is lower. */
  readonly replicationFactor: number;
  /** Retention, ms; -1: without limit. */
  readonly retentionMs: number;
}

export class TopicClient {
  private readonly options: TopicClientOptions;
  private readonly sleep: (ms: number) => Promise<void>;
  private readonly drain: AbortSignal;
  private topicAskedMs = Number.NEGATIVE_INFINITY;
  /** Topics that the sender publishes to. */
  private inUse: readonly string[];

  constructor(options: TopicClientOptions, sleep: (ms: number) => Promise<void>, drain: AbortSignal) {
    this.options = options;
    this.inUse = [options.settings.topic];
    this.sleep = sleep;
    this.drain = drain;
  }

  /** Transactional id prefix of this outbox. */
  transactionalId(table: OutboxTable): string {
    const outbox = createHash('sha256')
      .update(`${table.fullName} ${this.options.settings.topic}`)
      .digest('hex');
    return `millrace-relay-${outbox.slice(0, 8)}-${this.options.settings.name}`;
  }

  /** Opens a sender with its first producer. @throws unreachable */
  async sender(table: OutboxTable, recordBytesMax: number, topics: readonly string[]): Promise<Sender> {
    const { broker, settings, log } = this.options;
    this.inUse = topics;
    const recordBytes = Math.min(RECORD_BYTES_MOST, Math.max(RECORD_BYTES_LEAST, recordBytesMax));
    const shared = {
      topics,
      log,
      sleep: this.sleep,
      drain: this.drain,
    };
    const client = { brokers: settings.brokers, clientId: 'millrace-relay' };
    const properties = {
      // Without a linger, librdkafka's thread spins while a request is in flight and more rows
      // wait. On a busy machine that used most of a core, ten times the cost with this linger.
      'linger.ms': 1,
      // Time that librdkafka waits for a topic that the broker does not know. Then its rows fail
      // and stay pending, and the topic is created again.
      'topic.metadata.propagation.max.ms': TOPIC_WAIT_MS,
      'message.max.bytes': recordBytes,
      'batch.size': Math.max(1, recordBytes - BATCH_SLACK_BYTES),
    };
    const sender =
      settings.fence === 'broker'
        ? new TransactionalSender(
            () =>
              broker.transactional({ ...client, transactionalId: this.transactionalId(table), properties }),
            shared,
          )
        : new PlainSender(
            () =>
              broker.producer({
                ...client,
                acks: -1,
                idempotence: true,
                properties: { ...properties, ...PLAIN_PROPERTIES },
              }),
            FLIGHTS,
            shared,
          );
    await sender.open();
    return sender;
  }

  /** Fences the producers of relays whose leases expired. */
  async fence(transactionalIds: readonly string[]): Promise<void> {
    const { broker, settings, log } = this.options;
    for (const transactionalId of transactionalIds) {
      const producer = await broker.transactional({
        brokers: settings.brokers,
        clientId: 'millrace-relay-fence',
        transactionalId,
      });
      try {
        const failure = await producer.init(FENCE_TIMEOUT_MS);
        if (failure !== undefined)
          throw coreError('unreachable', `${transactionalId} was not fenced: ${failure.event.message}`);
        log.info({ transactional_id: transactionalId }, 'fenced the producer of a silent relay');
      } finally {
        await producer.close(0);
      }
    }
  }

  /** Creates the topic when it is missing. Returns the largest record in bytes.
   *  @throws unreachable */
  async ensureTopic(topic = this.options.settings.topic): Promise<number> {
    const { broker, settings, log } = this.options;
    const admin = await broker.admin({ brokers: settings.brokers, clientId: 'millrace-relay' });
    try {
      if (settings.createTopic !== undefined) {
        const { partitions, replicationFactor, retentionMs } = settings.createTopic;
        const [created] = await admin.createTopics([
          {
            topic,
            partitions,
            replicationFactor,
            config: eventTopicConfig(retentionMs),
          },
        ]);
        if (created === true) log.info({ topic }, 'topic created');
      }
      const found = await admin.describeTopic(topic);
      if (found === undefined && settings.createTopic === undefined) {
        throw coreError('unreachable', `the topic ${topic} does not exist`, {
          next: 'create it, or leave -create-topics on',
        });
      }
      warnOfThinTopic(log, topic, found, await admin.brokerCount());
      return Number(found?.config?.get('max.message.bytes') ?? RECORD_BYTES_DEFAULT);
    } finally {
      await admin.close();
    }
  }

  /** Asks a new client whether each partition of the topics has a leader. */
  async isLed(): Promise<boolean> {
    const { broker, settings } = this.options;
    const admin = await broker.admin({ brokers: settings.brokers, clientId: 'millrace-relay' });
    try {
      for (const topic of this.inUse) if (!(await admin.isLed(topic))) return false;
      return true;
    } finally {
      await admin.close();
    }
  }

  private async recreate(): Promise<void> {
    for (const topic of this.inUse)
      await this.ensureTopic(topic).catch((thrown: unknown) => {
        this.options.log.warn({ topic, error: findMillraceError(thrown)?.message }, 'the topic is missing');
      });
  }

  /** Recreates the topics that the broker reports as deleted, once for many rows. */
  topicMissing(): void {
    const { clock, settings } = this.options;
    const nowMs = clock.monotonicMs();
    if (settings.createTopic === undefined || nowMs - this.topicAskedMs < TOPIC_AGAIN_MS) return;
    this.topicAskedMs = nowMs;
    void this.recreate();
  }
}
