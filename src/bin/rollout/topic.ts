/** Topic and consumer groups of a rollout. */
import { coreError } from '../../core/errors.ts';
import type { BatchConsumer, BrokerAdmin, TopicPartition } from '../../io/kafka/port.ts';
import type { CommandContext } from '../../shell/command.ts';
import { brokerDriver } from '../../shell/drivers.ts';
import { sizeRetention } from '../../shell/topic-settings.ts';
import { makeTopics } from '../../shell/topics.ts';
import type { ROLLOUT_SETTINGS } from './settings.ts';

type Context = CommandContext<typeof ROLLOUT_SETTINGS>;

/** Kafka deletes records of a run that did not delete its topic. */
const RETENTION_MS = 3_600_000;

export interface OpenTopic {
  readonly partitions: readonly TopicPartition[];
  readonly groups: ReadonlyMap<string, BatchConsumer>;
}

/** Creates the topic or finds the existing one, and opens a client of each group that reads its
 *  committed offsets.
 *  @param isOwn true: the topic belongs to this run and is deleted at its end
 *  @throws bad_value where an existing topic is missing */
export async function openTopic(
  context: Context,
  brokers: string,
  topic: string,
  isOwn: boolean,
  groups: readonly string[],
): Promise<OpenTopic> {
  const { settings } = context;
  const driver = await brokerDriver(context);
  const base = { brokers, clientId: 'millrace-rollout', connectTimeoutMs: settings['connect-timeout'] };
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  const numbers = isOwn ? await createTopic(context, admin, topic) : await partitionsOf(admin, topic);
  const clients = new Map<string, BatchConsumer>();
  for (const group of groups) {
    const client = await driver.consumer({ ...base, group });
    context.onClose(() => client.close());
    clients.set(group, client);
  }
  return { partitions: numbers.map((partition) => ({ topic, partition })), groups: clients };
}

async function createTopic(context: Context, admin: BrokerAdmin, topic: string): Promise<readonly number[]> {
  const { partitions, 'retention-bytes': bytesMax } = context.settings;
  const config = {
    'retention.ms': String(RETENTION_MS),
    ...(bytesMax === undefined ? {} : sizeRetention(bytesMax, partitions)),
  };
  await makeTopics(context.log, admin, [{ topic, partitions, config }]);
  context.onClose(() => admin.deleteTopics([topic, `${topic}.quarantine`]));
  return Array.from({ length: partitions }, (_, partition) => partition);
}

async function partitionsOf(admin: BrokerAdmin, topic: string): Promise<readonly number[]> {
  const found = (await admin.listTopics()).find((one) => one.topic === topic);
  if (found === undefined)
    throw (
      (await admin.refusalOf(topic)) ??
      coreError('bad_value', `-topic=${topic} does not exist`, {
        next: 'create it, or leave -topic out for a new topic',
      })
    );
  return found.partitions;
}
