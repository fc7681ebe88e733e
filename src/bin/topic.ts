/** `millrace topic create|list|delete`: creates, lists and deletes topics of a cluster. */

import { coreError, EXIT } from '../core/errors.ts';
import type { BrokerAdmin } from '../io/kafka/port.ts';
import { REQUIRED_BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver } from '../shell/drivers.ts';
import { REPLICATION_FACTOR } from '../shell/topic-settings.ts';
import { makeTopics } from '../shell/topics.ts';

const SETTINGS = {
  ...REQUIRED_BROKER_SETTINGS,
  topic: { type: 'list', help: 'names, with commas between' },
  partitions: { type: 'int', default: '1', min: 1, max: 100_000, help: 'partitions of a created topic' },
  'replication-factor': REPLICATION_FACTOR,
  'config-entry': {
    type: 'list',
    help: 'name=value settings of a created topic, e.g. retention.ms=86400000',
  },
  timeout: { type: 'duration', default: '5s', min: 100, help: 'how long to try to reach a broker' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

const ACTIONS = ['create', 'list', 'delete'] as const;

/** Parses name=value entries. An entry without `=` continues the value before it, as in
 *  `cleanup.policy=compact,delete`. */
function configEntries(entries: readonly string[]): Record<string, string> {
  const config: Record<string, string> = {};
  let last: string | undefined;
  for (const entry of entries) {
    const equals = entry.indexOf('=');
    if (equals > 0) {
      last = entry.slice(0, equals);
      config[last] = entry.slice(equals + 1);
    } else if (equals < 0 && last !== undefined) {
      config[last] = `${config[last]},${entry}`;
    } else {
      throw coreError('bad_value', `-config-entry=${entry} has no name=value`, { next: 'write name=value' });
    }
  }
  return config;
}

/** Validates the topic names as a broker does. */
function topicNames(context: Context, action: string): readonly string[] {
  const names = context.settings.topic ?? [];
  if (names.length === 0)
    throw coreError('usage', `topic ${action} needs -topic`, { next: 'give -topic=name' });
  for (const name of names) {
    if (!/^[a-zA-Z0-9._-]{1,249}$/.test(name) || name === '.' || name === '..') {
      throw coreError('bad_value', `-topic=${name} is not a topic name`, {
        next: 'use 1 to 249 letters, digits, dots, underscores and dashes',
      });
    }
  }
  return names;
}

async function create(context: Context, admin: BrokerAdmin): Promise<void> {
  const config = configEntries(context.settings['config-entry'] ?? []);
  const names = topicNames(context, 'create');
  const { partitions } = context.settings;
  const replicationFactor = context.settings['replication-factor'];
  const made = await makeTopics(
    context.log,
    admin,
    names.map((topic) => ({ topic, partitions, replicationFactor, config })),
  );
  const results = names.map((topic, index) => ({ topic, created: made[index] === true }));
  const lines = results.map(({ topic, created }) =>
    created ? `created ${topic} with ${partitions} partitions` : `${topic} exists`,
  );
  context.print(lines.join('\n'), { topics: results });
}

async function list(context: Context, admin: BrokerAdmin): Promise<void> {
  const wanted = context.settings.topic;
  const all = await admin.listTopics();
  const topics = all
    .filter(({ topic }) => wanted === undefined || wanted.includes(topic))
    .map(({ topic, partitions }) => ({ topic, partitions: partitions.length }))
    .sort((a, b) => (a.topic < b.topic ? -1 : 1));
  context.print(topics.map(({ topic, partitions }) => `${topic} ${partitions}`).join('\n'), { topics });
}

async function remove(context: Context, admin: BrokerAdmin): Promise<void> {
  const named = topicNames(context, 'delete');
  const existing = new Set((await admin.listTopics()).map(({ topic }) => topic));
  const topics = named.filter((topic) => existing.has(topic));
  const missing = named.filter((topic) => !existing.has(topic));
  await admin.deleteTopics(topics);
  const lines = [
    ...topics.map((topic) => `deleted ${topic}`),
    ...missing.map((topic) => `${topic} does not exist`),
  ];
  context.print(lines.join('\n'), { deleted: topics, missing });
}

export const command = defineCommand({
  name: 'topic',
  summary: 'Create, list and delete topics.',
  description: 'Example: millrace topic create -brokers=localhost:9092 -topic=orders -partitions=6',
  settings: SETTINGS,
  positionalMax: 1,
  positionalHelp: 'create|list|delete',
  listens: false,
  async run(context) {
    const action = ACTIONS.find((known) => known === context.positional[0]);
    if (action === undefined) {
      throw coreError(
        'usage',
        `topic accepts create, list or delete, not ${JSON.stringify(context.positional[0] ?? '')}`,
        {
          next: 'for example millrace topic list -brokers=host:port',
        },
      );
    }
    if (action !== 'list') topicNames(context, action);
    configEntries(context.settings['config-entry'] ?? []);
    const driver = await brokerDriver(context);
    const admin = await driver.admin({
      brokers: context.settings.brokers,
      clientId: 'millrace-topic',
      connectTimeoutMs: context.settings.timeout,
    });
    context.onClose(() => admin.close());
    if (action === 'create') await create(context, admin);
    else if (action === 'list') await list(context, admin);
    else await remove(context, admin);
    return EXIT.done;
  },
});
