/** Topics of the Kafka store: `_schemas`, in the form of the existing registries, and a small side
 *  topic with the announcements of the leader. The side topic is separate, because other registries
 *  stop at an unknown record of `_schemas`.
 */

import { sleep, type Timers } from '../../../core/clock.ts';
import type { Logger } from '../../../core/log.ts';
import { warnOfThinTopic } from '../../../core/topics.ts';
import type { BrokerAdmin } from '../../../io/kafka/port.ts';
import { registryError } from '../../errors.ts';

const REPLICAS_MAX = 3;
/** Record limit of a new topic: room for the largest schema in JSON, with its references, metadata
 *  and rules.
 */
const RECORD_BYTES_MAX = 8 << 20;
/** Record limit of a broker, where the topic has none of its own. */
const DEFAULT_RECORD_BYTES_MAX = 1_000_000;
const KNOWN_MS = 15_000;
const POLL_MS = 50;

export const leaderTopicOf = (topic: string): string => `${topic}-leader`;

export interface TopicFacts {
  /** Maximum bytes of a record, key and value, that the topic accepts. */
  readonly recordBytesMax: number;
}

function unfit(topic: string, why: string, next: string) {
  return registryError('store_unfit', `topic ${topic} cannot keep schemas: ${why}`, { next });
}

/** Number of partitions, 0 for an unknown topic. Waits, because not every broker knows a topic that
 *  was just created.
 */
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

/** Checks the existing topics, then creates the missing ones. @throws store_unfit, unreachable */
export async function prepareTopics(
  admin: BrokerAdmin,
  topic: string,
  log: Logger,
  clock: Timers,
): Promise<TopicFacts> {
  const leaders = leaderTopicOf(topic);
  const found = { [topic]: await admin.describeTopic(topic), [leaders]: await admin.describeTopic(leaders) };
  for (const [name, facts] of Object.entries(found)) {
    // A topic without partitions was just created by another instance.
    if (facts !== undefined && facts.partitions > 0) checkPartitions(name, facts.partitions);
    warnOfThinTopic(log, name, facts);
  }
  checkPolicy(topic, found[topic]?.config);
  await createMissing(admin, topic, found, log);
  checkPartitions(leaders, await partitionsOf(admin, leaders, clock));
  return factsOf(admin, topic, log, clock);
}

/** Variant of `prepareTopics` for a reader: creates nothing. @throws store_unfit, unreachable */
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
    log.warn(
      { topic },
      'this broker does not report the configuration of the topic; check that cleanup.policy is compact',
    );
    return { recordBytesMax: DEFAULT_RECORD_BYTES_MAX };
  }
  checkPolicy(topic, config);
  const limit = Number(config.get('max.message.bytes') ?? DEFAULT_RECORD_BYTES_MAX);
  // A record is sent in a batch, which has a header.
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
  if (created.includes(true)) log.info({ topic, replicationFactor }, 'created missing topics');
}
