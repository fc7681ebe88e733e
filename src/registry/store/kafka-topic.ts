/** The topics of the Kafka store: `_schemas`, as the existing registries keep it, and a small one beside it that tells
 *  who may write. The second is apart, because other registries stop at a record of `_schemas` that they do not know.
 */
import type { Logger } from '../../core/log.ts';
import type { BrokerAdmin } from '../../io/broker/port.ts';
import { registryError } from '../errors.ts';

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
async function partitionsOf(admin: BrokerAdmin, name: string): Promise<number> {
  const deadline = performance.now() + KNOWN_MS;
  for (;;) {
    const partitions = (await admin.describeTopic(name))?.partitions ?? 0;
    if (partitions > 0 || performance.now() >= deadline) return partitions;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Creates what is missing. @throws store_unfit, unreachable */
export async function prepareTopics(admin: BrokerAdmin, topic: string, log: Logger): Promise<TopicFacts> {
  const replicationFactor = Math.min(REPLICAS_MAX, await admin.brokerCount());
  const leaders = leaderTopicOf(topic);
  const created = await admin.createTopics([
    ...((await admin.describeTopic(topic)) === undefined
      ? [
          {
            topic,
            partitions: 1,
            replicationFactor,
            config: { 'cleanup.policy': 'compact', 'max.message.bytes': String(RECORD_BYTES_MAX) },
          },
        ]
      : []),
    ...((await admin.describeTopic(leaders)) === undefined
      ? [
          {
            topic: leaders,
            partitions: 1,
            replicationFactor,
            config: { 'cleanup.policy': 'compact', 'segment.ms': '3600000' },
          },
        ]
      : []),
  ]);
  if (created.includes(true))
    log.info({ topic, replicationFactor }, 'created what was missing of the topics');
  for (const name of [topic, leaders]) {
    const partitions = await partitionsOf(admin, name);
    if (partitions !== 1) {
      throw unfit(
        name,
        `it has ${partitions} partitions, and the order of writes holds within one`,
        'name another topic with -store-topic, or create this one anew with 1 partition',
      );
    }
  }
  const config = (await admin.describeTopic(topic))?.config;
  if (config === undefined) {
    log.warn({ topic }, 'whether the topic is compacted cannot be asked of this broker; see that it is');
    return { recordBytesMax: DEFAULT_RECORD_BYTES_MAX };
  }
  const policy = config.get('cleanup.policy') ?? 'delete';
  if (policy !== 'compact') {
    throw unfit(
      topic,
      `its cleanup.policy is ${policy}, which deletes schemas by age`,
      'set cleanup.policy=compact on it',
    );
  }
  const limit = Number(config.get('max.message.bytes') ?? DEFAULT_RECORD_BYTES_MAX);
  // A record travels in a batch with a head of its own.
  return { recordBytesMax: Math.max(1, limit - 1024) };
}
