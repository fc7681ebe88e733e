/** `millrace producer`: registers a schema and sends framed records, from a file, a pipe or the
 *  generator of orders. */
import { sleep } from '../core/clock.ts';
import { coreError, EXIT } from '../core/errors.ts';
import type { BrokerDriver, BrokerOptions } from '../io/kafka/port.ts';
import { FramedProducer, type ProducerMetrics, producerMetrics } from '../registry/producer/instance.ts';
import { type EncodedRow, rowCodec } from '../registry/producer/row.ts';
import type { RegistryClient } from '../serde/client.ts';
import type { WriterCodec } from '../serde/codec.ts';
import { type CodecChoice, recordCodecs } from '../serde/codec-choice.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver, kernels as chooseKernels } from '../shell/drivers.ts';
import { orderKey, sendOrders } from './producer/generate.ts';
import { type FramedKey, openInput, type ProducerInput } from './producer/input.ts';
import { PRODUCER_SETTINGS, type ProducerContext, producerTopic } from './producer/settings.ts';
import { type GivenSchema, registerSource, schemaFromFile } from './registry-clients/schema-file.ts';
import { connectOptions, createTopics, registryClient } from './registry-clients/shared.ts';

/** Header that names the producer of a record. */
const PRODUCER_HEADER = 'producer';

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
  readonly client: RegistryClient;
  readonly schemaId: number;
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
  const client = registryClient(context);
  if (settings.compat !== undefined) await client.setLevel(subject, settings.compat);
  const schemaId = await registerSource(client, subject, source);
  context.log.info({ subject, schemaId }, 'schema registered');
  if (keySource === undefined) return { client, schemaId, key: undefined };
  const keySubject = settings['key-subject'] ?? `${topic}-key`;
  const id = await registerSource(client, keySubject, keySource);
  context.log.info({ subject: keySubject, schemaId: id }, 'key schema registered');
  return { client, schemaId, key: { schema: keySource.schema, id } };
}

interface Senders {
  readonly driver: BrokerDriver;
  readonly base: BrokerOptions;
  readonly topic: string;
  readonly metrics: ProducerMetrics;
  readonly codec: WriterCodec;
  readonly schemaId: () => Promise<number>;
  readonly keyOf: (value: unknown) => string | Uint8Array | null;
  readonly preparedMs?: (value: unknown) => number;
}

async function openInstances(context: ProducerContext, senders: Senders): Promise<FramedProducer[]> {
  const { settings } = context;
  const { driver, base, ...framed } = senders;
  const kernels = await chooseKernels(context);
  const name = settings['producer-name'];
  const instances: FramedProducer[] = [];
  for (let i = 0; i < settings.instances; i++) {
    const producer = await driver.producer({
      ...base,
      clientId: `millrace-producer-${i}`,
      acks: -1,
      idempotence: true,
      compression: settings.compression as 'none',
    });
    context.onClose(() => producer.close());
    instances.push(
      new FramedProducer({
        ...framed,
        producer,
        kernels,
        clock: context.clock,
        batchRows: settings['batch-rows'],
        headers: name === undefined ? undefined : [[PRODUCER_HEADER, Buffer.from(name, 'utf8')]],
      }),
    );
  }
  return instances;
}

interface Sent {
  readonly sent: number;
  readonly skipped: number;
}

/** Sends the rows of an input in their order. @throws value_refused after the rows before it are
 *  sent; not_delivered */
async function sendInput(
  context: ProducerContext,
  groups: ReturnType<ProducerInput['groups']>,
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

async function run(context: ProducerContext): Promise<number> {
  const { settings } = context;
  const { topic, subject } = producerTopic(context);
  const input = settings.in === undefined ? undefined : await openInput(context, settings.in);
  const source = sourceOf(context, input);
  // A broken schema file is reported before any connection is made.
  const codecs = await recordCodecs(settings.codec as CodecChoice);
  const codec = codecs.writer(source.schema, settings.message);
  const keyOf = input === undefined ? orderKey(context) : (row: unknown) => (row as EncodedRow).key;
  const { client, schemaId, key } = await register(context, subject, topic, source);

  const driver = await brokerDriver(context);
  const base = { brokers: settings.brokers, clientId: 'millrace-producer', ...connectOptions(context) };
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  await createTopics(context, admin, [{ topic }]);
  const metrics = producerMetrics(context.metrics);
  const instances = await openInstances(context, {
    driver,
    base,
    topic,
    metrics,
    keyOf,
    codec: input === undefined ? codec : rowCodec(codec.messageIndexes),
    // Served from the write cache: the registry gets only one request.
    schemaId: () =>
      input === undefined ? registerSource(client, subject, source) : Promise.resolve(schemaId),
    ...(input === undefined ? {} : { preparedMs: (row: unknown) => (row as EncodedRow).tookMs }),
  });
  context.setReady();
  const progress = context.progress({
    what: `records to ${topic}`,
    unit: 'records',
    ...(settings.count === 0 ? {} : { total: settings.count }),
  });
  const startMs = context.clock.monotonicMs();
  const onSent = (rows: number): void => progress.add(rows);
  const { sent, skipped } =
    input === undefined
      ? { sent: await sendOrders(context, instances, source.schema, onSent), skipped: 0 }
      : await sendInput(context, input.groups(source.schema, key), instances[0] as FramedProducer, onSent);
  progress.done();
  const seconds = (context.clock.monotonicMs() - startMs) / 1000;
  const rate = Math.round(sent / Math.max(seconds, 0.001));
  const left = skipped === 0 ? '' : `, ${skipped} rows skipped`;
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
      encodeSecondsP50: metrics.encodeSeconds.quantile(0.5),
      encodeSecondsP99: metrics.encodeSeconds.quantile(0.99),
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
