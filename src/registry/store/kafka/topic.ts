/** The topics of the Kafka store: `_schemas`, as the existing registries keep it, and a small one beside it that tells
 *  who may write. The second is apart, because other registries stop at a record of `_schemas` that they do not know.
 */

import { sleep, type Timers } from '../../../core/clock.ts';
import type { Logger } from '../../../core/log.ts';
import { warnOfThinTopic } from '../../../core/topics.ts';
import type { BrokerAdmin } from '../../../io/kafka/port.ts';
import { registryError } from '../../errors.ts';

const REPLICAS_MAX = 3;
/** Room for the largest schema in its JSON, with what belongs to it. */
const RECORD_BYTES_MAX = 8 << 20;
/** What a broker takes where the topic does not say. */
const DEFAULT_RECORD_BYTES_MAX = 1_000_000;
const KNOWN_MS = 15_000;
const POLL_MS = 50;

export const leaderTopicOf = (topic: string): string => `${topic}-leader`;

export interface TopicFacts {
  /** Key and value of the largest record that the topic takes. */
  readonly recordBytesMax: number;
}

function unfit(topic: string, why: string, next: string) {
  return registryError('store_unfit', `topic ${topic} cannot keep schemas: ${why}`, { next });
}

/** A topic that another instance has created a moment ago is not known to every broker yet. */
async function partitionsOf(admin: BrokerAdmin, name: string, clock: Timers): Promise<number> {
  const deadline = clock.monotonicMs() + KNOWN_MS;
  for (;;) {
    const partitions = (await admin.describeTopic(name))?.partitions ?? 0;
    if (partitions > 0 || clock.monotonicMs() >= deadline) return partitions;
    await sleep(clock, POLL_MS);
  }
}

function checkPartitions(name: string, partitions: number): void {
  if (partitions === 1) return;
  throw unfit(
    name,
    `it has ${partitions} partitions, and the order of writes holds within one`,
    'name another topic with -schemas-topic, or create this one anew with 1 partition',
  );
}

function checkPolicy(topic: string, config: ReadonlyMap<string, string> | undefined): void {
  if (config === undefined) return;
  const policy = config.get('cleanup.policy') ?? 'delete';
  if (policy === 'compact') return;
  throw unfit(
    topic,
    `its cleanup.policy is ${policy}, which deletes schemas by age`,
    'set cleanup.policy=compact on it',
  );
}

/** Judges what is there before anything is created. @throws store_unfit, unreachable */
export async function prepareTopics(
  admin: BrokerAdmin,
  topic: string,
  log: Logger,
  clock: Timers,
): Promise<TopicFacts> {
  const leaders = leaderTopicOf(topic);
  const found = { [topic]: await admin.describeTopic(topic), [leaders]: await admin.describeTopic(leaders) };
  for (const [name, facts] of Object.entries(found)) {
    // Without partitions: another instance has created it a moment ago.
    if (facts !== undefined && facts.partitions > 0) checkPartitions(name, facts.partitions);
    warnOfThinTopic(log, name, facts);
  }
  checkPolicy(topic, found[topic]?.config);
  await createMissing(admin, topic, found, log);
  checkPartitions(leaders, await partitionsOf(admin, leaders, clock));
  return factsOf(admin, topic, log, clock);
}

/** As prepareTopics, but for a reader alone: creates nothing. @throws store_unfit, unreachable */
export async function findTopic(
  admin: BrokerAdmin,
  topic: string,
  log: Logger,
  clock: Timers,
): Promise<TopicFacts> {
  if ((await admin.describeTopic(topic)) === undefined) {
    throw registryError('store_unfit', `there is no topic ${topic}`, {
      next: 'give the -schemas-topic of a registry, and in -store the brokers that have it',
    });
  }
  return factsOf(admin, topic, log, clock);
}

async function factsOf(admin: BrokerAdmin, topic: string, log: Logger, clock: Timers): Promise<TopicFacts> {
  checkPartitions(topic, await partitionsOf(admin, topic, clock));
  const config = (await admin.describeTopic(topic))?.config;
  if (config === undefined) {
    log.warn({ topic }, 'whether the topic is compacted cannot be asked of this broker; see that it is');
    return { recordBytesMax: DEFAULT_RECORD_BYTES_MAX };
  }
  checkPolicy(topic, config);
  const limit = Number(config.get('max.message.bytes') ?? DEFAULT_RECORD_BYTES_MAX);
  // A record travels in a batch with a head of its own.
  return { recordBytesMax: Math.max(1, limit - 1024) };
}

async function createMissing(
  admin: BrokerAdmin,
  topic: string,
  found: Readonly<Record<string, unknown>>,
  log: Logger,
): Promise<void> {
  const replicationFactor = Math.min(REPLICAS_MAX, await admin.brokerCount());
  const common = { partitions: 1, replicationFactor };
  const specs = [
    {
      topic,
      ...common,
      config: { 'cleanup.policy': 'compact', 'max.message.bytes': String(RECORD_BYTES_MAX) },
    },
    {
      topic: leaderTopicOf(topic),
      ...common,
      config: { 'cleanup.policy': 'compact', 'segment.ms': '3600000' },
    },
  ];
  const created = await admin.createTopics(specs.filter((spec) => found[spec.topic] === undefined));
  if (created.includes(true))
    log.info({ topic, replicationFactor }, 'created what was missing of the topics');
}
