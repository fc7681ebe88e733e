/** `millrace consumer`: reads framed records with one reader schema and quarantines unreadable
 *  records. */
import { coreError, EXIT } from '../core/errors.ts';
import type {
  BatchProducer,
  BrokerDriver,
  BrokerOptions,
  ConsumerOptions,
  TopicPartition,
} from '../io/kafka/port.ts';
import { BatchDecoder } from '../registry/consumer/decoder.ts';
import { EndTracker } from '../registry/consumer/ends.ts';
import { consumerMetrics, GroupMember } from '../registry/consumer/member.ts';
import { QUARANTINE_HEADER_BYTES_MAX, Quarantine } from '../registry/consumer/quarantine.ts';
import { type DecodedSink, FileSink, TopicSink } from '../registry/consumer/sink.ts';
import { registryError } from '../registry/errors.ts';
import type { RegistryClient } from '../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../serde/codec-choice.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver, kernels as chooseKernels } from '../shell/drivers.ts';
import {
  CLIENT_SETTINGS,
  connectOptions,
  createTopics,
  formatOf,
  registryClient,
  topicName,
  topicOf,
  type WantedTopic,
} from './registry-clients/shared.ts';

const SETTINGS = {
  ...CLIENT_SETTINGS,
  'reader-version': {
    type: 'string',
    default: 'latest',
    help: 'reader schema: version of the subject; a number or latest',
  },
  group: { type: 'string', help: 'consumer group (default: millrace-TOPIC)' },
  'quarantine-topic': { type: 'string', help: 'where unreadable records go (default: TOPIC.quarantine)' },
  out: {
    type: 'string',
    help: 'where decoded records go as JSON lines: file:PATH or kafka:TOPIC; nowhere when absent',
  },
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    help: 'stop at the end offsets of the partitions at start',
  },
  'session-timeout': {
    type: 'duration',
    default: '10s',
    min: 6000,
    help: 'how long the group waits for a member that died before others get its partitions',
  },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 65_536,
    max: 1_073_741_824,
    help: 'bytes of a batch; a larger record cannot be read',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

type Output =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'kafka'; readonly topic: string };

function outputOf(out: string | undefined): Output | undefined {
  if (out === undefined) return undefined;
  const [, scheme, rest] = /^(file|kafka):(.+)$/s.exec(out) ?? [];
  if (scheme === 'file') return { kind: 'file', path: rest as string };
  if (scheme === 'kafka') return { kind: 'kafka', topic: topicName('-out', rest as string) };
  throw coreError('bad_value', `-out=${out} is not an output`, { next: 'give file:PATH or kafka:TOPIC' });
}

/** Quarantined records are few and need a long retention. */
const QUARANTINE_RETENTION_MS = 28 * 24 * 3_600_000;
/** Largest record that librdkafka may send. The limit of the topic decides. */
const PRODUCER_RECORD_BYTES_MAX = 1_000_000_000;
/** Largest `max.message.bytes` of a topic: a signed 32-bit integer. */
const TOPIC_RECORD_BYTES_MAX = 2_147_483_647;
/** Bytes of JSON per byte of a record: a control character takes six. */
const JSON_GROWTH = 6;

/** @param recordBytesMax largest record that is read */
function quarantineSpec(topic: string, recordBytesMax: number): WantedTopic {
  return {
    topic,
    partitions: 1,
    config: {
      'retention.ms': String(QUARANTINE_RETENTION_MS),
      'max.message.bytes': String(recordBytesMax + QUARANTINE_HEADER_BYTES_MAX),
    },
  };
}

function outputTopic(topic: string, recordBytesMax: number): WantedTopic {
  const bytes = Math.min(TOPIC_RECORD_BYTES_MAX, recordBytesMax * JSON_GROWTH);
  return { topic, config: { 'max.message.bytes': String(bytes) } };
}

async function endsOf(
  driver: BrokerDriver,
  base: BrokerOptions,
  partitions: readonly TopicPartition[],
  timeoutMs: number,
): Promise<EndTracker> {
  const probe = await driver.consumer({ ...base, clientId: 'millrace-consumer-ends' });
  try {
    return new EndTracker(
      await Promise.all(
        partitions.map(async (at) => ({ ...at, ...(await probe.watermarkOffsets(at, timeoutMs)) })),
      ),
    );
  } finally {
    await probe.close();
  }
}

/** Loads the reader schema that the flags name and exports its version as a metric. @throws
 *  invalid_schema if it has another format */
async function readerOf(context: Context, client: RegistryClient) {
  const { settings } = context;
  const reader = await client.version(settings.subject, settings['reader-version']);
  if (reader.schema.format !== formatOf(context)) {
    throw registryError(
      'invalid_schema',
      `version ${reader.version} of ${settings.subject} is ${reader.schema.format}, not ${formatOf(context)}`,
      {
        next: 'give the -format of the subject',
      },
    );
  }
  context.metrics
    .gauge('consumer_reader_schema_version', 'Version of the subject that records are read with.', [
      'subject',
    ])
    .set(
      reader.version,
      context.metrics.gauge('consumer_reader_schema_version', '', ['subject']).series(settings.subject),
    );
  return reader;
}

/** Creates missing topics and returns the partitions of the input topic. */
async function openTopics(
  context: Context,
  driver: BrokerDriver,
  base: BrokerOptions,
  names: {
    readonly topic: string;
    readonly quarantineTopic: string;
    readonly output: Output | undefined;
  },
): Promise<readonly TopicPartition[]> {
  const { topic, quarantineTopic, output } = names;
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  const recordBytesMax = context.settings['batch-bytes'];
  await createTopics(context, admin, [
    { topic },
    ...(output?.kind === 'kafka' ? [outputTopic(output.topic, recordBytesMax)] : []),
    quarantineSpec(quarantineTopic, recordBytesMax),
  ]);
  const info = (await admin.listTopics()).find((one) => one.topic === topic);
  if (info === undefined) {
    throw coreError('unreachable', `topic ${topic} does not exist`, {
      next: 'create it, or leave -create-topics on',
    });
  }
  return info.partitions.map((partition) => ({ topic, partition }));
}

/** Producer for decoded and quarantined records. */
function outputProducer(driver: BrokerDriver, base: BrokerOptions): Promise<BatchProducer> {
  return driver.producer({
    ...base,
    clientId: 'millrace-consumer-out',
    acks: -1,
    idempotence: true,
    properties: {
      ...base.properties,
      'message.max.bytes': PRODUCER_RECORD_BYTES_MAX,
      // Each batch is produced as a whole and awaited before the next one.
      'linger.ms': 1,
    },
  });
}

/** Returns a function that connects members of the group. */
function connector(context: Context, driver: BrokerDriver, base: BrokerOptions & { readonly group: string }) {
  const timeout = { 'session.timeout.ms': context.settings['session-timeout'] };
  return (member: number, hooks: Pick<ConsumerOptions, 'onRebalance'>) =>
    driver.consumer({
      ...base,
      ...hooks,
      clientId: `millrace-consumer-${member}`,
      properties: { ...base.properties, ...timeout },
      autoOffsetReset: 'earliest',
      partitionEof: true,
    });
}

async function runConsumer(context: Context): Promise<number> {
  const { settings } = context;
  const topic = topicOf(context);
  const quarantineTopic = topicName(
    '-quarantine-topic',
    settings['quarantine-topic'] ?? `${topic}.quarantine`,
  );
  const output = outputOf(settings.out);
  const fileSink = output?.kind === 'file' ? await FileSink.open(output.path) : undefined;
  if (fileSink !== undefined) context.onClose(() => fileSink.close());
  const client = registryClient(context);
  const reader = await readerOf(context, client);
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const kernels = await chooseKernels(context);
  const driver = await brokerDriver(context);
  const base = {
    brokers: settings.brokers,
    clientId: 'millrace-consumer',
    ...connectOptions(context),
  };
  const partitions = await openTopics(context, driver, base, { topic, quarantineTopic, output });
  const producer = await outputProducer(driver, base);
  context.onClose(() => producer.close());
  const sink: DecodedSink | undefined =
    output?.kind === 'kafka' ? new TopicSink(producer, output.topic) : fileSink;
  const ends = settings['exit-at-end']
    ? await endsOf(driver, base, partitions, settings['connect-timeout'])
    : undefined;

  const metrics = consumerMetrics(context.metrics);
  const progress = context.progress({ what: `records of ${topic}`, unit: 'records' });
  let read = 0;
  let quarantined = 0;
  const connect = connector(context, driver, { ...base, group: settings.group ?? `millrace-${topic}` });
  const members = Array.from({ length: settings.instances }, (_, i) => {
    const log = context.log.child({ member: i });
    return new GroupMember({
      connect: (hooks) => connect(i, hooks),
      topic,
      subject: settings.subject,
      decoder: new BatchDecoder(client, kernels, reader.schema, settings['batch-rows'], codecs),
      sink,
      quarantine: new Quarantine({ producer, topic: quarantineTopic, readerVersion: reader.version }),
      metrics,
      clock: context.clock,
      log,
      drain: context.drain,
      batchRows: settings['batch-rows'],
      batchBytes: settings['batch-bytes'],
      ends,
      onRows: (rows, failed) => {
        read += rows;
        quarantined += failed;
        progress.add(rows);
        progress.error(failed);
      },
    });
  });
  context.readiness('delivery', () => {
    const reason = members.map((member) => member.heldReason()).find((one) => one !== undefined);
    if (reason !== undefined) throw new Error(reason);
    return true;
  });
  context.setReady();
  await Promise.all(members.map((member) => member.run()));
  progress.done();
  context.print(
    `read ${read} records of ${topic} as version ${reader.version}, ${quarantined} of them to ${quarantineTopic}`,
    {
      topic,
      subject: settings.subject,
      readerVersion: reader.version,
      records: read,
      quarantined,
      quarantineTopic,
    },
  );
  return EXIT.done;
}

export const command = defineCommand({
  name: 'consumer',
  summary: 'Read framed records with one reader schema and quarantine what cannot be read.',
  description:
    'Example: millrace consumer -brokers=localhost:9092 -format=avro -subject=orders-value -reader-version=1 -out=file:orders.jsonl',
  settings: SETTINGS,
  run: runConsumer,
});
