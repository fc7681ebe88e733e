/** `millrace producer`: registers a schema and sends framed records, from a file, a pipe or the
 *  generator of orders. */
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import { namedContext, subjectWithin } from '../core/subject.ts';
import type { Reference } from '../formats/content.ts';
import { type FramedProducer, producerMetrics } from '../registry/producer/instance.ts';
import { type EncodedRow, rowCodec } from '../registry/producer/row.ts';
import { Sequence, sequenceCells } from '../registry/producer/sequence.ts';
import type { RegistryClient } from '../serde/client.ts';
import { type CodecChoice, recordCodecs } from '../serde/codec-choice.ts';
import type { SharedRequests } from '../serde/shared-client.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver } from '../shell/drivers.ts';
import { partsName, shares, threadCount } from '../shell/threads/count.ts';
import { ThreadPool } from '../shell/threads/pool.ts';
import { orderKey, sendOrders } from './producer/generate.ts';
import { type FramedKey, type InputGroup, openInput, type ProducerInput } from './producer/input.ts';
import { openInstances, producerBase, type Senders } from './producer/senders.ts';
import { keyPath, PRODUCER_SETTINGS, type ProducerContext, producerTopic } from './producer/settings.ts';
import type { ProducerJob, ProducerState } from './producer/thread.ts';
import {
  type GivenSchema,
  registerReferences,
  registerSource,
  schemaFromFile,
} from './registry-clients/schema-file.ts';
import { createTopics, registryClient, registryRequests, threadPort } from './registry-clients/shared.ts';

/** Schema of the records: from -schema, else that of a container file. @throws usage, bad_file,
 *  invalid_schema */
function sourceOf({ settings }: ProducerContext, input: ProducerInput | undefined): GivenSchema {
  if (settings.schema !== undefined)
    return schemaFromFile(settings.schema, 'schema', settings.format, settings.reference);
  const own = input?.ownSchema;
  if (own === undefined) throw coreError('usage', 'producer needs a schema', { next: 'give -schema=FILE' });
  return { schema: own, format: 'AVRO', name: settings.in ?? '', references: [] };
}

interface Registered {
  readonly requests: SharedRequests;
  readonly client: RegistryClient;
  readonly schemaId: number;
  readonly references: readonly Reference[];
  readonly key: FramedKey | undefined;
}

async function register(
  context: ProducerContext,
  subject: string,
  topic: string,
  source: GivenSchema,
): Promise<Registered> {
  const { settings } = context;
  const keyFile = settings['key-schema'];
  const keySource =
    keyFile === undefined ? undefined : schemaFromFile(keyFile, 'key-schema', undefined, undefined);
  const requests = registryRequests(context);
  const client = registryClient(context, requests);
  if (settings.compat !== undefined) await client.setLevel(subject, settings.compat);
  const references = await registerReferences(client, subject, source);
  const schemaId = await client.register(subject, source.format, source.schema.source, references);
  context.log.info({ subject, schemaId }, 'schema registered');
  if (keySource === undefined) return { requests, client, schemaId, references, key: undefined };
  // A consumer looks up the ids of keys and values in one context.
  const keySubject = settings['key-subject'] ?? subjectWithin(namedContext(subject), `${topic}-key`);
  const id = await registerSource(client, keySubject, keySource);
  context.log.info({ subject: keySubject, schemaId: id }, 'key schema registered');
  return { requests, client, schemaId, references, key: { schema: keySource.schema, id } };
}

interface Sent {
  readonly sent: number;
  readonly skipped: number;
}

/** Sends the rows of an input in their order. @throws value_refused after the rows before it are
 *  sent; not_delivered */
async function sendInput(
  context: ProducerContext,
  groups: AsyncGenerator<InputGroup, void>,
  producer: FramedProducer,
  onSent: (rows: number) => void,
): Promise<Sent> {
  const { settings, clock, drain } = context;
  const skips = context.metrics.counter('producer_skipped_rows_total', 'Rows of -in that were left out.');
  const startMs = clock.monotonicMs();
  let sent = 0;
  let skipped = 0;
  for await (const { rows, skipped: more, error } of groups) {
    if (drain.aborted) break;
    skipped += more;
    skips.add(more);
    const left = settings.count === 0 ? rows.length : settings.count - sent;
    const some = rows.slice(0, left);
    if (settings.rate > 0) {
      const waitMs = startMs + (sent / settings.rate) * 1000 - clock.monotonicMs();
      if (waitMs > 0) await sleep(clock, waitMs, drain);
    }
    await producer.send(some);
    sent += some.length;
    onSent(some.length);
    if (settings.count > 0 && sent >= settings.count) break;
    if (error !== undefined) {
      await producer.finish();
      context.log.info({ records: sent, skipped }, 'the rows before the refused one are sent');
      throw error;
    }
  }
  await producer.finish();
  return { sent, skipped };
}

/** Parts of a run before its instances. */
interface Opened extends Registered {
  readonly topic: string;
  readonly subject: string;
  readonly source: GivenSchema;
  readonly senders: Senders;
  /** Call it when the instances are connected. */
  readonly onConnected: () => void;
  readonly onSent: (rows: number) => void;
}

/** Sends generated orders from the main thread. */
async function generateHere(context: ProducerContext, opened: Opened): Promise<number> {
  const { settings } = context;
  const numbers = Array.from({ length: settings.instances }, (_, number) => number);
  const instances = await openInstances(context, numbers, opened.senders);
  opened.onConnected();
  const sequence = new Sequence(settings.count);
  return sendOrders(context, instances, opened.source.schema, sequence, opened.onSent);
}

/** Sends generated orders from worker threads. */
async function generateThreads(context: ProducerContext, opened: Opened, threads: number): Promise<number> {
  const { settings } = context;
  const { topic, subject, source, references, requests, onSent } = opened;
  const sent = new Map<number, number>();
  const job: Omit<ProducerJob, 'instances'> = {
    topic,
    subject,
    format: source.format,
    source: source.schema.source,
    resolved: source.schema.references,
    references,
    keyPath: keyPath(context, 'order_id'),
    sequence: sequenceCells(),
  };
  const pool = new ThreadPool({
    context,
    entry: new URL('./producer/thread.js', import.meta.url),
    jobs: shares(settings.instances, threads).map((instances) => ({
      part: partsName('instance', instances),
      job: { ...job, instances } satisfies ProducerJob,
    })),
    registryPort: () => threadPort(requests),
    onState: (thread, state) => {
      const now = (state as ProducerState | undefined)?.sent ?? 0;
      onSent(now - (sent.get(thread) ?? 0));
      sent.set(thread, now);
    },
  });
  await pool.ready;
  opened.onConnected();
  return (await pool.run<number>()).reduce((sum, count) => sum + count, 0);
}

/** Sends the rows of an input from one instance, in their order. */
async function sendFromInput(
  context: ProducerContext,
  opened: Opened,
  groups: AsyncGenerator<InputGroup, void>,
): Promise<Sent> {
  const instances = await openInstances(context, [0], opened.senders);
  opened.onConnected();
  return sendInput(context, groups, instances[0] as FramedProducer, opened.onSent);
}

async function sendAll(
  context: ProducerContext,
  opened: Opened,
  input: ProducerInput | undefined,
): Promise<Sent> {
  if (input !== undefined)
    return sendFromInput(context, opened, input.groups(opened.source.schema, opened.key));
  const threads = threadCount(context, context.settings.instances);
  const sent =
    threads === 1 ? await generateHere(context, opened) : await generateThreads(context, opened, threads);
  return { sent, skipped: 0 };
}

async function openRun(
  context: ProducerContext,
  input: ProducerInput | undefined,
): Promise<Omit<Opened, 'onSent' | 'onConnected'>> {
  const { settings } = context;
  const { topic, subject } = producerTopic(context);
  const source = sourceOf(context, input);
  // A broken schema file is reported before any connection is made.
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const codec = codecs.writer(source.schema, settings.message);
  const keyOf =
    input === undefined ? orderKey(keyPath(context, 'order_id')) : (row: unknown) => (row as EncodedRow).key;
  const registered = await register(context, subject, topic, source);
  const { client, schemaId, references } = registered;
  const driver = await brokerDriver(context);
  const admin = await driver.admin(producerBase(context));
  context.onClose(() => admin.close());
  await createTopics(context, admin, [{ topic }]);
  const senders: Senders = {
    topic,
    metrics: producerMetrics(context.metrics),
    keyOf,
    codec: input === undefined ? codec : rowCodec(codec.messageIndexes),
    // Served from the write cache: the registry gets only one request.
    schemaId: () =>
      input === undefined
        ? client.register(subject, source.format, source.schema.source, references)
        : Promise.resolve(schemaId),
    ...(input === undefined ? {} : { preparedMs: (row: unknown) => (row as EncodedRow).tookMs }),
  };
  return { ...registered, topic, subject, source, senders };
}

async function run(context: ProducerContext): Promise<number> {
  const { settings } = context;
  const input = settings.in === undefined ? undefined : await openInput(context, settings.in);
  const opened = await openRun(context, input);
  const { topic, subject, schemaId, senders } = opened;
  const progress = context.progress({
    what: `records to ${topic}`,
    unit: 'records',
    ...(settings.count === 0 ? {} : { total: settings.count }),
  });
  let startMs = context.clock.monotonicMs();
  const onConnected = (): void => {
    startMs = context.clock.monotonicMs();
    context.setReady();
  };
  const onSent = (rows: number): void => progress.add(rows);
  const { sent, skipped } = await sendAll(context, { ...opened, onConnected, onSent }, input);
  progress.done();
  const seconds = (context.clock.monotonicMs() - startMs) / 1000;
  const rate = Math.round(sent / Math.max(seconds, 0.001));
  const left = skipped === 0 ? '' : `, ${skipped} rows skipped`;
  const { encodeSeconds } = senders.metrics;
  context.print(
    `produced ${sent} records to ${topic} with schema id ${schemaId} in ${seconds.toFixed(1)} s (${rate} a second)${left}`,
    {
      topic,
      subject,
      schemaId,
      records: sent,
      skipped,
      seconds,
      perSecond: rate,
      encodeSecondsP50: encodeSeconds.quantile(0.5),
      encodeSecondsP99: encodeSeconds.quantile(0.99),
    },
  );
  return EXIT.done;
}

export const command = defineCommand({
  name: 'producer',
  summary: 'Register a schema and send framed records from a file, a pipe or a generator.',
  description: [
    'JSON lines are in the JSON encoding of Avro, where a value of a union may be plain, or in ProtoJSON.',
    'Examples: millrace producer -brokers=localhost:9092 -topic=orders -schema=order.avsc -in=orders.jsonl -key-field=order_id',
    '          millrace consumer -topic=orders -lines=record -exit-at-end | millrace producer -topic=copy -schema=order.avsc -in=- -lines=record',
    '          millrace producer -brokers=localhost:9092 -format=avro -schema=order.avsc -subject=orders-value -count=100000',
  ].join('\n'),
  settings: PRODUCER_SETTINGS,
  run,
});
