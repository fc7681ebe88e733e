/** `millrace gen`: the seeded generator of events and orders, to a topic, a file or stdout. */

import { type FileHandle, open } from 'node:fs/promises';
import { loadGenKernels } from '../addon/gen.ts';
import type { GenKernels } from '../addon/gen-surface.ts';
import { xxh32Create, xxh32Digest } from '../addon/reference/xxh32.ts';
import type { Kernels } from '../addon/surface.ts';
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { EVENT } from '../core/layout/layouts.gen.ts';
import { RecordBatch } from '../core/layout/record-batch.ts';
import { ZIPF_EXPONENT_MAX, ZIPF_RANKS_MAX } from '../core/random/zipf.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../gen/event-options.ts';
import { EventGenerator } from '../gen/events.ts';
import { DEFAULT_ORDERS, OrderGenerator, type OrderShape } from '../gen/order.ts';
import { OrderSource, orderLine } from '../gen/order-source.ts';
import { orderSchema, orderShapeOf, orderShapesOf, orderVersionOf } from '../gen/order-versions.ts';
import { type BatchSink, type BatchSource, pump } from '../gen/pump.ts';
import { BatchTopicSink, ByteSink } from '../gen/sinks.ts';
import type { BrokerAdmin } from '../io/kafka/port.ts';
import { BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver, kernels } from '../shell/drivers.ts';
import { REPLICATION_FACTOR } from '../shell/topic-settings.ts';
import { makeTopics } from '../shell/topics.ts';
import {
  type AccountType,
  encodedEvents,
  FORMAT_EVENT_BYTES,
  formatEvents,
  framedEvents,
  jsonEvents,
} from './gen/format-events.ts';
import { SCHEMA_EVENT_BYTES, SCHEMA_EVENTS_BYTES_MIN, schemaEvents } from './gen/schema-events.ts';
import { CREDENTIAL_SETTINGS } from './registry-clients/credentials.ts';
import { registryClient } from './registry-clients/shared.ts';

const SETTINGS = {
  kind: {
    type: 'string',
    choices: ['events', 'orders', 'schema'],
    help: 'kind of generated data; schema: random valid events of any registered schema (default: schema with -subject, else events)',
  },
  out: { type: 'string', default: '-', help: 'kafka:TOPIC, file:PATH or - for stdout' },
  seed: { type: 'int', default: '1', min: 0, help: 'the same seed gives the same bytes on every machine' },
  count: { type: 'int', default: '1000000', min: 0, help: 'number of events or orders; 0: until stopped' },
  rate: {
    type: 'rate',
    default: '0',
    min: 0,
    help: 'events or orders a second on a fixed schedule (open model); 0: as fast as the output accepts them',
  },
  accounts: { type: 'int', default: '1000000', min: 1, max: ZIPF_RANKS_MAX, help: 'distinct accounts' },
  zipf: {
    type: 'number',
    default: '1.1',
    min: 0,
    max: ZIPF_EXPONENT_MAX,
    help: 'Zipf exponent of the accounts; 0 is uniform',
  },
  'account-base': {
    type: 'string',
    help: 'account_id of the most frequent account; the others follow it (default 1 for events, 2^53+1 for orders)',
  },
  base: {
    type: 'int',
    default: String(DEFAULT_EVENTS.baseMs),
    min: 0,
    help: 'event time of the first event or order, in ms since the epoch',
  },
  'per-ms': {
    type: 'number',
    default: String(DEFAULT_EVENTS.perMs),
    help: 'events: events in a millisecond of event time; 0.02 is one every 50 ms',
  },
  'value-min': { type: 'int', default: String(DEFAULT_EVENTS.valueMin), help: 'events: least value' },
  'value-max': { type: 'int', default: String(DEFAULT_EVENTS.valueMax), help: 'events: largest value' },
  order: {
    type: 'string',
    choices: ['true', 'delayed'],
    default: 'true',
    help: 'events: true: in the order of event time; delayed: in the order of arrival after a random delay',
  },
  'typical-max': { type: 'duration', default: '3s', help: 'delayed: largest typical delay' },
  tail: {
    type: 'number',
    default: String(DEFAULT_EVENTS.delays.tail),
    min: 0,
    max: 1,
    help: 'delayed: share of events with a longer delay',
  },
  'tail-max': { type: 'duration', default: '4m', help: 'delayed: largest delay of that share' },
  stragglers: {
    type: 'number',
    default: String(DEFAULT_EVENTS.delays.stragglers),
    min: 0,
    max: 1,
    help: 'delayed: share of stragglers, events with a much longer delay',
  },
  'straggler-max': { type: 'duration', default: '2h', help: 'delayed: largest delay of a straggler' },
  versions: {
    type: 'ints',
    help: 'orders: schema versions to mix, for example 1,2,3 (default: -schema-version)',
  },
  'schema-version': {
    type: 'string',
    help: 'orders: schema version to write, 1 to 6, or a candidate such as add-required (default 1; docs/reference/generator.md); several are mixed in each partition: 1,3,6 or 1-6; schema: version of -subject, a number or latest (default latest)',
  },
  format: {
    type: 'string',
    choices: ['json', 'avro', 'protobuf', 'binary256'],
    help: 'orders: json lines for a file or stdout; avro or protobuf for a topic and for -print-schema (default json). events: binary256, the fixed layout of 256 bytes, or json; avro or protobuf for a topic (default binary256)',
  },
  'key-type': {
    type: 'string',
    choices: ['u64', 'string'],
    default: 'u64',
    help: 'events in json, avro or protobuf: account_id as a number, with a record key of 8 bytes, or both as a string of 16 hexadecimal digits',
  },
  'print-schema': {
    type: 'string',
    help: 'orders: print the schema text of this version (1 to 6, a candidate or breaking) in -format and end',
  },
  digest: { type: 'bool', default: 'true', help: 'print the XXH32 of all values' },
  'batch-rows': { type: 'int', default: '4096', min: 1, max: 65_536, help: 'rows in a batch' },
  registry: {
    type: 'string',
    default: 'http://127.0.0.1:8081',
    help: 'orders and framed events in a topic, schema: address of the schema registry',
  },
  ...CREDENTIAL_SETTINGS,
  message: {
    type: 'string',
    needs: ['subject'],
    help: 'schema: full name of the Protobuf message (default: the first of the file)',
  },
  subject: {
    type: 'string',
    help: 'schema: subject of the schema; orders and framed events in a topic: subject of the schemas (default TOPIC-value)',
  },
  'connect-timeout': {
    type: 'duration',
    default: '10s',
    min: 100,
    help: 'how long to try to reach registry and broker',
  },
  ...BROKER_SETTINGS,
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic if it is missing' },
  partitions: { type: 'int', default: '8', min: 1, max: 100_000, help: 'partitions of a created topic' },
  'replication-factor': REPLICATION_FACTOR,
  retention: { type: 'duration', default: '7d', min: 0, help: 'retention of a created topic' },
  compression: {
    type: 'string',
    choices: ['none', 'gzip', 'snappy', 'lz4', 'zstd'],
    default: 'none',
    help: 'compression of the batches sent to the topic',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

/** One batch in the generator, one in flight to the output and two spare, so that neither side
 *  waits for the other. */
const BATCHES_IN_FLIGHT_MAX = 4;
/** Room for one order in a batch; the largest that the generator makes is smaller. */
const ORDER_BYTES_MAX = 2048;

type Output =
  | { readonly kind: 'kafka'; readonly topic: string }
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'stdout' };

function outputOf(text: string): Output {
  if (text === '-') return { kind: 'stdout' };
  const [, scheme, rest] = /^(kafka|file):(.+)$/s.exec(text) ?? [];
  if (scheme === 'kafka' && /^[a-zA-Z0-9._-]{1,249}$/.test(rest as string))
    return { kind: 'kafka', topic: rest as string };
  if (scheme === 'file') return { kind: 'file', path: rest as string };
  throw coreError('bad_value', `-out=${text} is not an output`, { next: 'give kafka:TOPIC, file:PATH or -' });
}

function accountBaseOf(context: Context, fallback: bigint): bigint {
  const text = context.settings['account-base'];
  if (text === undefined) return fallback;
  if (!/^\d{1,20}$/.test(text) || BigInt(text) >= 2n ** 64n) {
    throw coreError('bad_value', `-account-base=${text} is not a 64-bit number`, {
      next: 'give 0 to 18446744073709551615',
    });
  }
  return BigInt(text);
}

function countOf(context: Context): number {
  return context.settings.count === 0 ? Number.POSITIVE_INFINITY : context.settings.count;
}

function eventOptions(context: Context): EventOptions {
  const { settings } = context;
  return {
    seed: BigInt(settings.seed),
    count: countOf(context),
    accounts: settings.accounts,
    zipf: settings.zipf,
    accountBase: accountBaseOf(context, DEFAULT_EVENTS.accountBase),
    valueMin: settings['value-min'],
    valueMax: settings['value-max'],
    baseMs: settings.base,
    perMs: settings['per-ms'],
    order: settings.order as EventOptions['order'],
    delays: {
      tail: settings.tail,
      stragglers: settings.stragglers,
      typicalMaxMs: settings['typical-max'],
      tailMaxMs: settings['tail-max'],
      stragglerMaxMs: settings['straggler-max'],
    },
  };
}

function versionsOf(context: Context): readonly OrderShape[] {
  const asked = context.settings.versions ?? [];
  return asked.length > 0
    ? asked.map(orderVersionOf)
    : orderShapesOf(context.settings['schema-version'] ?? '1');
}

type Kind = 'events' | 'orders' | 'schema';

const kindOf = ({ settings }: Context): Kind =>
  (settings.kind as Kind | undefined) ?? (settings.subject === undefined ? 'events' : 'schema');

/** Source of a registered schema's events. @throws usage, bad_value, subject_not_found,
 *  version_not_found, registry_unavailable */
async function schemaSource(context: Context, output: Output): Promise<BatchSource> {
  const { settings } = context;
  const { subject, 'schema-version': wanted = 'latest' } = settings;
  if (subject === undefined)
    throw coreError('usage', '-kind=schema needs a subject', { next: 'give -subject=SUBJECT' });
  if (wanted !== 'latest' && !/^[1-9]\d{0,9}$/.test(wanted))
    throw coreError('bad_value', `-schema-version=${wanted} is not a version`, {
      next: 'give a number from 1, or latest',
    });
  const version = await registryClient(context).version(subject, wanted);
  context.log.info({ subject, version: version.version, schemaId: version.id }, 'schema loaded');
  return schemaEvents({
    version,
    message: settings.message,
    seed: BigInt(settings.seed),
    count: countOf(context),
    isFramed: output.kind === 'kafka',
  });
}

function printSchema(context: Context, version: string): number {
  const { format } = context.settings;
  if (format !== 'avro' && format !== 'protobuf')
    throw coreError('usage', '-print-schema needs -format=avro or -format=protobuf', {
      next: 'add -format=avro',
    });
  const shape = version === 'breaking' ? version : orderShapeOf(version);
  const text = orderSchema(shape, format);
  context.print(text, { version, format, schema: text });
  return EXIT.done;
}

/** Source of events in the format that -format names. @throws usage, and errors of the registry */
async function eventSource(
  context: Context,
  generator: EventGenerator,
  output: Output,
): Promise<BatchSource> {
  const { format = 'binary256', subject } = context.settings;
  const type = context.settings['key-type'] as AccountType;
  if (format === 'binary256' && type === 'string')
    throw coreError('usage', '-key-type=string has no meaning for events of the fixed layout', {
      next: 'give -format=json, avro or protobuf',
    });
  if (format === 'binary256') return { fill: (into, most) => generator.fillRecords(into, most) };
  const isTopic = output.kind === 'kafka';
  if (format === 'json')
    return formatEvents(
      generator,
      encodedEvents(jsonEvents(isTopic ? '' : '\n', type), isTopic ? type : undefined),
    );
  if (output.kind !== 'kafka')
    throw coreError('usage', `events in ${format} go to a topic only`, {
      next: 'give -out=kafka:TOPIC, or -format=json',
    });
  const client = registryClient(context);
  const append = await framedEvents(client, subject ?? `${output.topic}-value`, format as 'avro', type);
  return formatEvents(generator, append);
}

async function sourceOf(
  context: Context,
  chosen: Kernels,
  gen: GenKernels,
  output: Output,
): Promise<BatchSource> {
  const { settings, clock, metrics } = context;
  const kind = kindOf(context);
  if (kind === 'schema') return schemaSource(context, output);
  if (kind === 'events') {
    return eventSource(context, new EventGenerator(eventOptions(context), gen), output);
  }
  const versions = versionsOf(context);
  const generator = new OrderGenerator({
    seed: BigInt(settings.seed),
    accounts: settings.accounts,
    zipf: settings.zipf,
    accountBase: accountBaseOf(context, DEFAULT_ORDERS.accountBase),
    baseMs: settings.base,
  });
  let encode = orderLine;
  if (output.kind === 'kafka') {
    if (settings.format !== 'avro' && settings.format !== 'protobuf') {
      throw coreError('usage', 'orders in a topic are framed records', {
        next: 'give -format=avro or -format=protobuf',
      });
    }
    // Loads the codecs only when they are needed.
    const { framedOrders } = await import('./gen/framed-orders.ts');
    encode = await framedOrders({
      registry: settings,
      subject: settings.subject ?? `${output.topic}-value`,
      format: settings.format,
      versions,
      timeoutMs: settings['connect-timeout'],
      kernels: chosen,
      clock,
      metrics,
    });
  } else if (settings.format !== undefined && settings.format !== 'json') {
    throw coreError('usage', `orders in ${settings.format} go to a topic only`, {
      next: 'give -out=kafka:TOPIC, or -format=json',
    });
  }
  return new OrderSource(generator, versions, encode, countOf(context));
}

/** Creates the topic, or requires that it exists: a producer would retry an unknown topic for
 *  minutes. */
async function ensureTopic(context: Context, admin: BrokerAdmin, topic: string): Promise<void> {
  const { settings } = context;
  if (settings['create-topics']) {
    const config = { 'retention.ms': String(settings.retention) };
    const replicationFactor = settings['replication-factor'];
    await makeTopics(context.log, admin, [
      { topic, partitions: settings.partitions, replicationFactor, config },
    ]);
    return;
  }
  const topics = await admin.listTopics();
  if (!topics.some((known) => known.topic === topic)) {
    throw (
      (await admin.refusalOf(topic)) ??
      coreError('bad_value', `the topic ${topic} does not exist`, {
        next: 'create it, or leave -create-topics on',
      })
    );
  }
}

async function topicSink(context: Context, topic: string): Promise<BatchSink> {
  const { settings } = context;
  if (settings.brokers === undefined)
    throw coreError('usage', `-out=kafka:${topic} needs -brokers`, { next: 'give -brokers=host:port' });
  const driver = await brokerDriver(context);
  const options = {
    brokers: settings.brokers,
    clientId: 'millrace-gen',
    connectTimeoutMs: settings['connect-timeout'],
    properties: { 'socket.connection.setup.timeout.ms': Math.max(1000, settings['connect-timeout']) },
  };
  const admin = await driver.admin(options);
  try {
    await ensureTopic(context, admin, topic);
  } finally {
    await admin.close();
  }
  const producer = await driver.producer({
    ...options,
    acks: -1,
    idempotence: true,
    compression: settings.compression as 'none',
  });
  context.onClose(() => producer.close());
  return new BatchTopicSink(producer, topic);
}

async function fileSink(context: Context, path: string): Promise<BatchSink> {
  let file: FileHandle;
  try {
    file = await open(path, 'w');
  } catch (cause) {
    throw coreError('not_writable', `cannot write ${path}: ${(cause as Error).message}`, {
      next: 'give a path in a folder that exists and can be written',
      cause,
    });
  }
  context.onClose(() => file.close());
  return chained(async (bytes) => {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += (await file.write(bytes, at)).bytesWritten;
      } catch (cause) {
        throw coreError('not_writable', `cannot write ${path}: ${(cause as Error).message}`, {
          next: 'make room and run again',
          cause,
        });
      }
    }
  });
}

/** Serialises writes. */
function chained(writeBytes: (bytes: Uint8Array) => Promise<void>): BatchSink {
  let last: Promise<void> = Promise.resolve();
  return new ByteSink((bytes) => {
    last = last.then(() => writeBytes(bytes));
    return last;
  });
}

function stdoutSink(): BatchSink {
  return chained(
    (bytes) =>
      new Promise((resolve, reject) =>
        process.stdout.write(bytes, (error) => (error ? reject(error) : resolve())),
      ),
  );
}

async function sinkOf(context: Context, output: Output): Promise<BatchSink> {
  if (output.kind === 'kafka') return topicSink(context, output.topic);
  return output.kind === 'file' ? fileSink(context, output.path) : stdoutSink();
}

function batchesOf({ settings }: Context, kind: Kind): RecordBatch[] {
  const rows = settings['batch-rows'];
  const bytes =
    kind === 'schema'
      ? Math.max(SCHEMA_EVENTS_BYTES_MIN, rows * SCHEMA_EVENT_BYTES)
      : rows * (kind === 'events' ? eventBytesOf(settings.format) : ORDER_BYTES_MAX);
  return Array.from({ length: BATCHES_IN_FLIGHT_MAX }, () => RecordBatch.create(rows, bytes));
}

const eventBytesOf = (format = 'binary256'): number =>
  format === 'binary256' ? EVENT.BYTES : FORMAT_EVENT_BYTES;

/** Generated rows in messages. */
const UNITS: Readonly<Record<Kind, string>> = { events: 'events', orders: 'orders', schema: 'events' };

async function run(context: Context): Promise<number> {
  const { settings, clock, metrics } = context;
  if (settings['print-schema'] !== undefined) return printSchema(context, settings['print-schema']);
  const output = outputOf(settings.out);
  if (output.kind === 'stdout' && settings.json) {
    throw coreError('usage', '-json and -out=- both write to stdout', {
      next: 'give -out=file:PATH or -out=kafka:TOPIC, or leave -json out',
    });
  }
  const chosen = kernels(context);
  const gen = loadGenKernels(chosen.name);
  const source = await sourceOf(context, chosen, gen, output);
  const sink = await sinkOf(context, output);
  const kind = kindOf(context);
  const batches = batchesOf(context, kind);
  const generated = metrics.counter('gen_rows_total', 'Rows generated and taken by the output.', ['kind']);
  const series = generated.series(kind);
  const lag = metrics.gauge('gen_schedule_lag_seconds', 'How far the output is behind the asked rate.');
  const progress = context.progress({
    what: 'gen',
    unit: UNITS[kind],
    ...(settings.count > 0 ? { total: settings.count } : {}),
  });
  const digest = xxh32Create();
  const startMs = clock.monotonicMs();
  context.setReady();
  const rows = await pump({
    source: settings.digest
      ? {
          fill: (into, most) => {
            const filled = source.fill(into, most);
            gen.genDigest(digest, into);
            return filled;
          },
        }
      : source,
    sink,
    batches,
    rate: settings.rate,
    clock,
    sleep: (ms) => sleep(clock, ms, context.drain),
    signal: context.drain,
    onWritten: (count) => {
      generated.add(count, series);
      progress.add(count);
    },
    onLag: (ms) => lag.set(ms / 1000),
  });
  progress.done();
  const seconds = (clock.monotonicMs() - startMs) / 1000;
  const hash = settings.digest ? xxh32Digest(digest).toString(16).padStart(8, '0') : undefined;
  const result = {
    kind,
    rows,
    seconds,
    rows_per_second: rows / seconds,
    xxh32: hash ?? null,
    kernels: gen.name,
    out: settings.out,
  };
  if (output.kind === 'stdout') context.log.info(result, 'generated');
  else
    context.print(
      `${rows} ${UNITS[kind]} in ${seconds.toFixed(2)} s to ${settings.out}${hash === undefined ? '' : `, xxh32 ${hash}`}`,
      result,
    );
  return EXIT.done;
}

export const command = defineCommand({
  name: 'gen',
  summary:
    'Generate events of any schema, orders or window events from a seed, to a topic, a file or stdout.',
  description: [
    'The same seed and flags give the same bytes on every machine, whatever the batch size and with or without the',
    'addon. Events are 256 B each, one after the other in a file, or records of -format; orders are JSON lines, or framed',
    'records in a topic.',
    'Random events of a schema are valid values of it: framed records in a topic, JSON lines elsewhere.',
    'Examples: millrace gen -subject=orders-value -schema-version=latest -seed=7 -count=1000 -out=kafka:orders',
    '          millrace gen -kind=events -format=avro -registry=http://localhost:8081 -brokers=localhost:9092 -out=kafka:payments',
    '          millrace gen -kind=events -order=delayed -count=2000000 -brokers=localhost:9092 -out=kafka:events',
  ].join('\n'),
  settings: SETTINGS,
  run,
});
