/** Settings, registry client and topic creation that the producer and consumer commands share. */

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { coreError } from '../../core/errors.ts';
import type { SettingTable } from '../../core/settings.ts';
import { parseSubject } from '../../core/subject.ts';
import type { BrokerAdmin, BrokerOptions, TopicSpec } from '../../io/kafka/port.ts';
import { RegistryClient } from '../../serde/client.ts';
import { CODEC_CHOICES } from '../../serde/codec-choice.ts';
import { RetriedRequests } from '../../serde/requests.ts';
import { SharedRequests } from '../../serde/shared-client.ts';
import { fetchTransport } from '../../serde/transport.ts';
import { REQUIRED_BROKER_SETTINGS } from '../../shell/broker-settings.ts';
import { systemRandom } from '../../shell/clock.ts';
import type { CommandContext } from '../../shell/command.ts';
import { THREAD_SETTINGS } from '../../shell/threads/count.ts';
import { REPLICATION_FACTOR } from '../../shell/topic-settings.ts';
import { makeTopics } from '../../shell/topics.ts';
import { CREDENTIAL_SETTINGS, credentialsOf } from './credentials.ts';

export const CLIENT_SETTINGS = {
  ...REQUIRED_BROKER_SETTINGS,
  registry: { type: 'string', default: 'http://127.0.0.1:8081', help: 'address of the schema registry' },
  ...CREDENTIAL_SETTINGS,
  format: {
    type: 'string',
    choices: ['avro', 'protobuf'],
    required: true,
    help: 'serialization format of the records',
  },
  codec: {
    type: 'string',
    choices: CODEC_CHOICES,
    default: 'compiled',
    help: "codec of the records: Millrace's own, or avsc and protobufjs for comparison",
  },
  subject: { type: 'string', required: true, help: 'subject of the schemas' },
  topic: { type: 'string', help: 'topic of the records (default: the subject without -value)' },
  instances: {
    type: 'int',
    default: '1',
    min: 1,
    max: 256,
    help: 'producers or group members in this process',
  },
  ...THREAD_SETTINGS,
  'create-topics': { type: 'bool', default: 'true', help: 'create missing topics' },
  partitions: { type: 'int', default: '8', min: 1, max: 100_000, help: 'partitions of a created topic' },
  'replication-factor': REPLICATION_FACTOR,
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    help: 'how long to try to reach registry and broker',
  },
  'batch-rows': { type: 'int', default: '1024', min: 1, max: 65_536, help: 'records in a batch' },
} as const satisfies SettingTable;

type Context = CommandContext<typeof CLIENT_SETTINGS>;

/** Time for which an unknown id is not requested again. */
export const UNKNOWN_ID_MS = 10_000;
const RETRIES = 2;
const RETRY_DELAY_MS = 100;

/** Context of a command that calls a registry. */
type ClientContext = Pick<Context, 'clock' | 'metrics'> & {
  readonly settings: Pick<
    Context['settings'],
    'registry' | 'registry-user' | 'registry-token-file' | 'connect-timeout'
  >;
};

/** Requests of all registry clients of this process.
 *  @throws bad_value if -registry is not an http address */
export function registryRequests(context: ClientContext): SharedRequests {
  const { registry } = context.settings;
  if (!URL.canParse(registry) || !/^https?:$/.test(new URL(registry).protocol)) {
    throw coreError('bad_value', `-registry=${registry} is not an address`, {
      next: 'give http://host:port',
    });
  }
  const { url, authorization } = credentialsOf(context.settings);
  const { clock, metrics } = context;
  const requests = new RetriedRequests({
    transport: fetchTransport({
      url,
      timeoutMs: context.settings['connect-timeout'],
      clock,
      authorization,
    }),
    clock,
    random: systemRandom,
    metrics,
    retries: RETRIES,
    retryDelayMs: RETRY_DELAY_MS,
  });
  return new SharedRequests({ requests, clock, unknownForMs: UNKNOWN_ID_MS });
}

/** @throws bad_value if -registry is not an http address */
export function registryClient(
  context: ClientContext,
  requests: SharedRequests = registryRequests(context),
): RegistryClient {
  const { clock, metrics } = context;
  return new RegistryClient({ requests, clock, metrics, unknownForMs: UNKNOWN_ID_MS });
}

/** Makes the port of a thread whose registry client sends its requests through these. */
export function threadPort(requests: SharedRequests): MessagePort {
  const { port1, port2 } = new MessageChannel();
  requests.serve(port1);
  return port2;
}

/** Topic of a subject without -topic: its name in its context, without `-value`. */
export const topicOfSubject = (subject: string): string => parseSubject(subject).name.replace(/-value$/, '');

const TOPIC = /^[a-zA-Z0-9._-]{1,249}$/;

/** @throws bad_value */
export function topicName(flag: string, name: string): string {
  if (!TOPIC.test(name) || name === '.' || name === '..') {
    throw coreError('bad_value', `${flag}=${name} is not a topic name`, {
      next: 'use 1 to 249 letters, digits, dots, underscores and dashes',
    });
  }
  return name;
}

/** Topic to create if it is missing; absent settings are those of the command. */
export type WantedTopic = Pick<TopicSpec, 'topic' | 'config'> & Partial<Pick<TopicSpec, 'partitions'>>;

export async function createTopics(
  context: Pick<Context, 'log'> & {
    readonly settings: Pick<Context['settings'], 'create-topics' | 'partitions' | 'replication-factor'>;
  },
  admin: BrokerAdmin,
  topics: readonly WantedTopic[],
): Promise<void> {
  if (!context.settings['create-topics']) return;
  const { partitions } = context.settings;
  const replicationFactor = context.settings['replication-factor'];
  await makeTopics(
    context.log,
    admin,
    topics.map((wanted) => ({ partitions, replicationFactor, ...wanted })),
  );
}

/** By default librdkafka retries an unreachable broker for minutes; a command fails sooner. */
export function connectOptions(context: {
  readonly settings: Pick<Context['settings'], 'connect-timeout'>;
}): Pick<BrokerOptions, 'connectTimeoutMs' | 'properties'> {
  const connectTimeoutMs = context.settings['connect-timeout'];
  return {
    connectTimeoutMs,
    properties: { 'socket.connection.setup.timeout.ms': Math.max(1000, connectTimeoutMs) },
  };
}
