/** `millrace producer`: registers a schema and emits framed orders written with it. */
import { readFileSync } from 'node:fs';
import { coreError, EXIT } from '../core/errors.ts';
import { parseSchema, type Schema } from '../formats/schema.ts';
import { DEFAULT_ORDERS, OrderGenerator } from '../gen/order.ts';
import { LEVELS } from '../registry/compatibility/modes.ts';
import { fitOf } from '../registry/producer/fit.ts';
import { FramedProducer, producerMetrics } from '../registry/producer/instance.ts';
import { runProducers } from '../registry/producer/run.ts';
import { type CodecChoice, recordCodecs } from '../serde/codec-choice.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver, kernels as chooseKernels } from '../shell/drivers.ts';
import {
  CLIENT_SETTINGS,
  connectOptions,
  createTopics,
  formatOf,
  registryClient,
  topicOf,
} from './registry-clients/shared.ts';

const SETTINGS = {
  ...CLIENT_SETTINGS,
  schema: { type: 'string', required: true, help: 'schema file of the records' },
  compat: { type: 'string', choices: LEVELS, help: 'set the compatibility level of the subject first' },
  rate: {
    type: 'rate',
    default: '0',
    min: 0,
    help: 'records a second over all instances; 0: as fast as the broker accepts them',
  },
  count: { type: 'int', default: '0', min: 0, help: 'number of records; 0: until stopped' },
  seed: { type: 'int', default: '1', min: 0, help: 'the same seed gives the same orders' },
  key: { type: 'string', default: 'order_id', help: 'field used as the record key; empty for no key' },
  compression: {
    type: 'string',
    choices: ['none', 'gzip', 'snappy', 'lz4', 'zstd'],
    default: 'none',
    help: 'compression of the batches sent to the topic',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

/** @throws bad_file */
function readSchema(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError(
      'bad_file',
      `the schema file ${path} cannot be read (${(cause as NodeJS.ErrnoException).code ?? cause})`,
      {
        next: 'give -schema=PATH of a schema file',
        cause,
      },
    );
  }
}

/** Key of an order: a string as it is, a number in decimal. @throws bad_value */
function keyOf(context: Context): (value: unknown) => string | null {
  const name = context.settings.key;
  if (name === '') return () => null;
  return (value) => {
    const key = (value as Readonly<Record<string, unknown>>)[name];
    if (typeof key !== 'string' && typeof key !== 'bigint' && typeof key !== 'number') {
      throw coreError('bad_value', `-key=${name} is not a string or number field of an order`, {
        next: 'give a field name, or -key= for none',
      });
    }
    return String(key);
  };
}

/** Returns the orders of a seed with the number types of the schema. */
function valuesOf(schema: Schema, seed: number): (index: number) => unknown {
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: BigInt(seed) });
  let sample = generator.order(0);
  for (let index = 1; sample.items.length === 0; index++) sample = generator.order(index);
  const convert = fitOf(schema, sample);
  return (index) => convert?.(generator.order(index)) ?? generator.order(index);
}

export const command = defineCommand({
  name: 'producer',
  summary: 'Register a schema and emit framed orders.',
  description:
    'Example: millrace producer -brokers=localhost:9092 -format=avro -schema=order.avsc -subject=orders-value -count=100000',
  settings: SETTINGS,
  async run(context) {
    const { settings } = context;
    const format = formatOf(context);
    const text = readSchema(settings.schema);
    // A broken schema file is reported before any connection is made.
    const schema = parseSchema(format, text);
    const codecs = await recordCodecs(settings.codec as CodecChoice);
    const codec = codecs.writer(schema);
    const topic = topicOf(context);
    const client = registryClient(context);
    if (settings.compat !== undefined) await client.setLevel(settings.subject, settings.compat);
    const schemaId = await client.register(settings.subject, format, text);
    context.log.info({ subject: settings.subject, schemaId }, 'schema registered');

    const kernels = await chooseKernels(context);
    const driver = await brokerDriver(context);
    const base = { brokers: settings.brokers, clientId: 'millrace-producer', ...connectOptions(context) };
    const admin = await driver.admin(base);
    context.onClose(() => admin.close());
    await createTopics(context, admin, [{ topic }]);

    const metrics = producerMetrics(context.metrics);
    const valueAt = valuesOf(schema, settings.seed);
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
          producer,
          topic,
          codec,
          // Served from the write cache: the registry gets only one request.
          schemaId: () => client.register(settings.subject, format, text),
          kernels,
          clock: context.clock,
          batchRows: settings['batch-rows'],
          keyOf: keyOf(context),
          metrics,
        }),
      );
    }
    context.setReady();
    const progress = context.progress({
      what: `orders to ${topic}`,
      unit: 'records',
      ...(settings.count === 0 ? {} : { total: settings.count }),
    });
    const startMs = context.clock.monotonicMs();
    const sent = await runProducers({
      instances,
      source: (from, count) => Array.from({ length: count }, (_, i) => valueAt(from + i)),
      count: settings.count,
      rate: settings.rate,
      batchRows: settings['batch-rows'],
      clock: context.clock,
      drain: context.drain,
      onSent: (rows) => progress.add(rows),
    });
    progress.done();
    const seconds = (context.clock.monotonicMs() - startMs) / 1000;
    const rate = Math.round(sent / Math.max(seconds, 0.001));
    context.print(
      `produced ${sent} records to ${topic} with schema id ${schemaId} in ${seconds.toFixed(1)} s (${rate} a second)`,
      {
        topic,
        subject: settings.subject,
        schemaId,
        records: sent,
        seconds,
        perSecond: rate,
        encodeSecondsP50: metrics.encodeSeconds.quantile(0.5),
        encodeSecondsP99: metrics.encodeSeconds.quantile(0.99),
      },
    );
    return EXIT.done;
  },
});
