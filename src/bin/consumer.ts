/** `millrace consumer`: reads the records of a topic, prints them as JSON lines, and quarantines
 *  unreadable ones. */
import { EXIT } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { BatchProducer, BrokerDriver, BrokerOptions, ConsumerOptions } from '../io/kafka/port.ts';
import type { FailedRow } from '../registry/consumer/decoder.ts';
import { EndTracker } from '../registry/consumer/ends.ts';
import type { LineOptions } from '../registry/consumer/line.ts';
import { type ConsumerMetrics, consumerMetrics, GroupMember } from '../registry/consumer/member.ts';
import { PartitionReader } from '../registry/consumer/partitions.ts';
import { Quarantine } from '../registry/consumer/quarantine.ts';
import {
  budgetCells,
  type RecordBudget,
  recordBudget,
  SelectingDecoder,
} from '../registry/consumer/selection.ts';
import { type DecodedSink, LineFile, TextSink, TopicSink } from '../registry/consumer/sink.ts';
import type { RegistryClient, SubjectVersion } from '../serde/client.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver } from '../shell/drivers.ts';
import { readerOf, recordDecoding } from './consumer/decoding.ts';
import { type ConsumerPlan, consumerPlan } from './consumer/plan.ts';
import { listQuarantine } from './consumer/quarantine/list.ts';
import { redriveQuarantine } from './consumer/quarantine/redrive.ts';
import { CONSUMER_SETTINGS, type ConsumerContext } from './consumer/settings.ts';
import { openTopics, type PartitionRange, rangesOf, seedGroup } from './consumer/topics.ts';
import { connectOptions, registryClient } from './registry-clients/shared.ts';

/** Largest record that librdkafka may send. The limit of the topic decides. */
const PRODUCER_RECORD_BYTES_MAX = 1_000_000_000;
/** Unreadable records that are logged without a quarantine; further ones are only counted. */
const LOGGED_FAILURES_MAX = 100;

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

const writeStdout = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

/** Counts of a run. */
interface Tally {
  read: number;
  failed: number;
  selected: number;
}

/** Parts that the readers of a run share. */
class ConsumerRun {
  readonly plan: ConsumerPlan;
  readonly metrics: ConsumerMetrics;
  readonly budget: RecordBudget;
  readonly tally: Tally = { read: 0, failed: 0, selected: 0 };
  reader: SubjectVersion | undefined;
  ends: EndTracker | undefined;
  private readonly context: ConsumerContext;
  private readonly driver: BrokerDriver;
  private readonly base: BrokerOptions;
  private readonly client: RegistryClient;
  private readonly decoders: SelectingDecoder[] = [];
  private producer: BatchProducer | undefined;
  private file: LineFile | undefined;

  constructor(context: ConsumerContext, plan: ConsumerPlan, driver: BrokerDriver, base: BrokerOptions) {
    this.context = context;
    this.plan = plan;
    this.driver = driver;
    this.base = base;
    this.client = registryClient(context);
    this.metrics = consumerMetrics(context.metrics);
    this.budget = recordBudget(budgetCells(context.settings.count));
  }

  /** Loads the reader schema and opens the outputs. */
  async open(): Promise<void> {
    const { context, plan } = this;
    this.reader = await readerOf(context, this.client);
    if (plan.output?.kind === 'file') {
      const file = await LineFile.open(plan.output.path);
      context.onClose(() => file.close());
      this.file = file;
    }
    if (plan.output?.kind === 'kafka' || plan.quarantineTopic !== undefined) {
      const producer = await outputProducer(this.driver, this.base);
      context.onClose(() => producer.close());
      this.producer = producer;
    }
  }

  /** Offsets at which each partition starts, for `-start`, `-exit-at-end` and reading without a
   *  group. */
  async ranges(): Promise<readonly PartitionRange[]> {
    const { context, driver, base, plan } = this;
    const admin = await driver.admin(base);
    context.onClose(() => admin.close());
    const partitions = await openTopics(context, admin, plan);
    const probe = await driver.consumer({ ...base, clientId: 'millrace-consumer-ends' });
    try {
      return await rangesOf(admin, probe, partitions, plan.start, context.settings['connect-timeout']);
    } finally {
      await probe.close();
    }
  }

  /** Parts of one reader. */
  async parts(): Promise<{ readonly decoder: SelectingDecoder; readonly sink: DecodedSink | undefined }> {
    const { context, plan, client, reader, budget } = this;
    const { decoder: inner, keys } = await recordDecoding(context, client, reader, plan);
    const line: LineOptions = { form: plan.lineForm, keys, topic: plan.topic };
    const decoder = new SelectingDecoder(inner, { filter: plan.filter, budget, line });
    this.decoders.push(decoder);
    return { decoder, sink: this.sinkOf(line) };
  }

  private sinkOf(line: LineOptions): DecodedSink | undefined {
    const { plan, file, producer } = this;
    if (file !== undefined) return new TextSink('the file', line, (text) => file.append(text));
    if (plan.output?.kind === 'stdout') return new TextSink('stdout', line, writeStdout);
    return plan.output?.kind === 'kafka'
      ? new TopicSink(producer as BatchProducer, plan.output.topic, line)
      : undefined;
  }

  /** Undefined without a quarantine topic. */
  quarantine(): Quarantine | undefined {
    const { plan, producer, reader } = this;
    return plan.quarantineTopic === undefined
      ? undefined
      : new Quarantine({
          producer: producer as BatchProducer,
          topic: plan.quarantineTopic,
          readerVersion: reader?.version,
        });
  }

  /** Fields of the filter that no record had. */
  get unseenFields(): readonly string[] {
    const [first = [], ...rest] = this.decoders.map(({ unseenFields }) => unseenFields);
    return first.filter((name) => rest.every((names) => names.includes(name)));
  }
}

/** Returns a function that connects members of the group. */
function connector(context: ConsumerContext, driver: BrokerDriver, base: BrokerOptions & { group: string }) {
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

interface Readers {
  run(): Promise<void>;
  heldReason?(): string | undefined;
}

type OnRows = (rows: number, failed: number, selected: number) => void;

/** Members of the group. */
async function groupReaders(
  context: ConsumerContext,
  run: ConsumerRun,
  driver: BrokerDriver,
  base: BrokerOptions & { readonly group: string },
  onRows: OnRows,
): Promise<readonly Readers[]> {
  const { settings } = context;
  const { plan } = run;
  const connect = connector(context, driver, base);
  return Promise.all(
    Array.from({ length: settings.instances }, async (_, i) => {
      return new GroupMember({
        connect: (hooks) => connect(i, hooks),
        topic: plan.topic,
        subject: plan.subject,
        ...(await run.parts()),
        quarantine: run.quarantine() as Quarantine,
        metrics: run.metrics,
        clock: context.clock,
        log: context.log.child({ member: i }),
        drain: context.drain,
        batchRows: settings['batch-rows'],
        batchBytes: settings['batch-bytes'],
        ends: run.ends,
        isEnough: () => run.budget.isSpent,
        onRows,
      });
    }),
  );
}

/** Logs failed rows, up to LOGGED_FAILURES_MAX. */
function failureLog({ log }: ConsumerContext): (records: RecordBatch, failed: readonly FailedRow[]) => void {
  let left = LOGGED_FAILURES_MAX;
  return (records, failed) => {
    const { partition, offset } = records.columns;
    for (const { row, reason, schemaId, error } of failed) {
      if (left-- <= 0) return;
      log.warn(
        { partition: partition[row], offset: String(offset[row]), reason, schemaId, error: error.message },
        left === 0 ? 'unreadable record; further ones are only counted' : 'unreadable record',
      );
    }
  };
}

/** Readers of parts of the partitions, without a group. */
async function partitionReaders(
  context: ConsumerContext,
  run: ConsumerRun,
  driver: BrokerDriver,
  base: BrokerOptions,
  ranges: readonly PartitionRange[],
  onRows: OnRows,
): Promise<readonly Readers[]> {
  const { settings } = context;
  const { plan } = run;
  const report = failureLog(context);
  const count = Math.min(settings.instances, ranges.length);
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const clientId = `millrace-consumer-${i}`;
      const consumer = await driver.consumer({ ...base, clientId, partitionEof: true });
      context.onClose(() => consumer.close());
      const quarantine = run.quarantine();
      return new PartitionReader({
        consumer,
        from: ranges
          .filter((_range, index) => index % count === i)
          .map(({ topic, partition, from }) => ({ topic, partition, offset: from })),
        subject: plan.subject,
        ...(await run.parts()),
        onFailed: async (records, failed) => {
          if (quarantine === undefined) report(records, failed);
          else await quarantine.write(records, plan.topic, failed);
        },
        metrics: run.metrics,
        clock: context.clock,
        log: context.log.child({ reader: i }),
        drain: context.drain,
        batchRows: settings['batch-rows'],
        batchBytes: settings['batch-bytes'],
        ends: run.ends,
        isEnough: () => run.budget.isSpent,
        onRows,
      });
    }),
  );
}

function summarize(context: ConsumerContext, { plan, tally, reader, unseenFields }: ConsumerRun): void {
  const { topic, quarantineTopic, output } = plan;
  if (tally.read > 0 && tally.selected === 0 && unseenFields.length > 0)
    context.log.warn({ fields: unseenFields }, 'no record has these fields of -filter');
  const schema = reader === undefined ? '' : ` as version ${reader.version}`;
  const unread = `${tally.failed} of them ${quarantineTopic === undefined ? 'unreadable' : `to ${quarantineTopic}`}`;
  const document = {
    topic,
    subject: plan.subject,
    readerVersion: reader?.version ?? null,
    records: tally.read,
    selected: tally.selected,
    quarantined: quarantineTopic === undefined ? 0 : tally.failed,
    unreadable: tally.failed,
    quarantineTopic: quarantineTopic ?? null,
  };
  // Lines of records may be on stdout.
  if (output?.kind === 'stdout') context.log.info(document, 'read');
  else context.print(`read ${tally.read} records of ${topic}${schema}, ${unread}`, document);
}

async function runConsumer(context: ConsumerContext): Promise<number> {
  const { settings } = context;
  if (settings.redrive) return redriveQuarantine(context);
  if (settings.quarantine) return listQuarantine(context);
  const plan = consumerPlan(settings);
  const driver = await brokerDriver(context);
  const base = { brokers: settings.brokers, clientId: 'millrace-consumer', ...connectOptions(context) };
  const run = new ConsumerRun(context, plan, driver, base);
  await run.open();
  const ranges = await run.ranges();
  if (settings['exit-at-end']) run.ends = new EndTracker(ranges);

  const { tally } = run;
  const progress =
    plan.output?.kind === 'stdout'
      ? undefined
      : context.progress({ what: `records of ${plan.topic}`, unit: 'records' });
  const onRows: OnRows = (rows, failed, selected) => {
    tally.read += rows;
    tally.failed += failed;
    tally.selected += selected;
    progress?.add(rows);
    progress?.error(failed);
  };
  const inGroup = plan.group === undefined ? undefined : { ...base, group: plan.group };
  if (inGroup !== undefined && plan.start.kind !== 'earliest') await seedGroup(driver, inGroup, ranges);
  const readers =
    inGroup === undefined
      ? await partitionReaders(context, run, driver, base, ranges, onRows)
      : await groupReaders(context, run, driver, inGroup, onRows);
  context.readiness('delivery', () => {
    const reason = readers.map((reader) => reader.heldReason?.()).find((one) => one !== undefined);
    if (reason !== undefined) throw new Error(reason);
    return true;
  });
  context.setReady();
  await Promise.all(readers.map((reader) => reader.run()));
  progress?.done();
  summarize(context, run);
  return EXIT.done;
}

export const command = defineCommand({
  name: 'consumer',
  summary: 'Print the records of a topic as JSON lines, by schema, and quarantine what cannot be read.',
  description: [
    'Without -subject every record is read with the schema of its writer: framed Avro, Protobuf and JSON, and plain JSON.',
    'Examples: millrace consumer -brokers=localhost:9092 -topic=orders -out=- | jq .value',
    '          millrace consumer -brokers=localhost:9092 -topic=orders -filter=\'status = "PAID"\' -start=2026-01-31T12:00:00Z -count=10',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -reader-version=1 -group=billing -out=file:orders.jsonl',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -quarantine',
    '          millrace consumer -brokers=localhost:9092 -subject=orders-value -redrive -reason=unknown_schema_id -dry-run',
  ].join('\n'),
  settings: CONSUMER_SETTINGS,
  run: runConsumer,
});
