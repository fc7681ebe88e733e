/** Readers of one thread of `millrace consumer`: group members, or readers of partitions without a
 *  group. Readers of several threads share the budget of -count and the ends of -exit-at-end. */
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchProducer, BrokerDriver, BrokerOptions, ConsumerOptions } from '../../io/kafka/port.ts';
import type { FailedRow } from '../../registry/consumer/decoder.ts';
import { type EndCells, EndTracker } from '../../registry/consumer/ends.ts';
import type { LineOptions } from '../../registry/consumer/line.ts';
import { type ConsumerMetrics, consumerMetrics, GroupMember } from '../../registry/consumer/member.ts';
import { PartitionReader } from '../../registry/consumer/partitions.ts';
import { Quarantine } from '../../registry/consumer/quarantine.ts';
import { RegistryWait } from '../../registry/consumer/registry-wait.ts';
import {
  type BudgetCells,
  type RecordBudget,
  recordBudget,
  SelectingDecoder,
} from '../../registry/consumer/selection.ts';
import { type DecodedSink, TextSink, TopicSink } from '../../registry/consumer/sink.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import { brokerDriver } from '../../shell/drivers.ts';
import { brokerBase, outputProducer } from './broker.ts';
import { recordDecoding } from './decoding.ts';
import type { ConsumerPlan } from './plan.ts';
import type { ConsumerContext } from './settings.ts';
import type { PartitionRange } from './topics.ts';

/** Unreadable records that are logged without a quarantine; further ones are only counted. */
const LOGGED_FAILURES_MAX = 100;

/** Context of a command, or of one of its threads. */
export type ReaderContext = Pick<
  ConsumerContext,
  'settings' | 'log' | 'metrics' | 'clock' | 'drain' | 'onClose'
>;

/** State of a run that the readers of all threads share. */
export interface SharedRun {
  readonly ranges: readonly PartitionRange[];
  /** Undefined without -exit-at-end. */
  readonly ends: EndCells | undefined;
  /** Undefined without -count. */
  readonly budget: BudgetCells | undefined;
}

/** Part of a run. */
export interface ReaderPart {
  readonly context: ReaderContext;
  readonly plan: ConsumerPlan;
  readonly client: RegistryClient;
  /** Undefined: each record is read with the schema of its writer. */
  readonly reader: SubjectVersion | undefined;
  readonly shared: SharedRun;
  /** Numbers of the instances that this part runs. */
  readonly instances: readonly number[];
  /** Number of the instances of all parts. */
  readonly instancesAll: number;
  /** Writes lines to stdout or to the file of -out. Resolves when they are written. */
  readonly writeText: (text: string) => Promise<void>;
  readonly onRows: (rows: number, failed: number, selected: number) => void;
}

/** Readers of one part. */
export class Readers {
  private readonly part: ReaderPart;
  private readonly driver: BrokerDriver;
  private readonly base: BrokerOptions;
  private readonly producer: BatchProducer | undefined;
  private readonly metrics: ConsumerMetrics;
  private readonly budget: RecordBudget;
  private readonly ends: EndTracker | undefined;
  private readonly decoders: SelectingDecoder[] = [];
  private readers: ReadonlyArray<{ run(): Promise<void>; heldReason?(): string | undefined }> = [];

  private constructor(part: ReaderPart, driver: BrokerDriver, producer: BatchProducer | undefined) {
    const { shared, context } = part;
    this.part = part;
    this.driver = driver;
    this.base = brokerBase(context);
    this.producer = producer;
    this.metrics = consumerMetrics(context.metrics);
    this.budget = recordBudget(shared.budget);
    this.ends = shared.ends === undefined ? undefined : new EndTracker(shared.ranges, shared.ends);
  }

  /** Connects the outputs and the readers. @throws unreachable */
  static async open(part: ReaderPart): Promise<Readers> {
    const { context, plan } = part;
    const driver = await brokerDriver(context);
    let producer: BatchProducer | undefined;
    if (plan.output?.kind === 'kafka' || plan.quarantineTopic !== undefined) {
      const opened = await outputProducer(driver, brokerBase(context));
      context.onClose(() => opened.close());
      producer = opened;
    }
    const made = new Readers(part, driver, producer);
    made.readers = await (plan.group === undefined ? made.ofPartitions() : made.ofGroup(plan.group));
    return made;
  }

  async run(): Promise<void> {
    await Promise.all(this.readers.map((reader) => reader.run()));
  }

  /** Reason why a partition is held; undefined if no partition is held. */
  heldReason(): string | undefined {
    return this.readers.map((reader) => reader.heldReason?.()).find((reason) => reason !== undefined);
  }

  /** Fields of the filter that no record had. */
  get unseenFields(): readonly string[] {
    return inAll(this.decoders.map(({ unseenFields }) => unseenFields));
  }

  /** Members of the group. */
  private ofGroup(group: string): Promise<readonly GroupMember[]> {
    const { part, budget } = this;
    const { context, plan } = part;
    const { settings } = context;
    return Promise.all(
      part.instances.map(
        async (member) =>
          new GroupMember({
            connect: (hooks) => this.connect(member, group, hooks),
            topic: plan.topic,
            subject: plan.subject,
            ...(await this.parts()),
            quarantine: this.quarantine() as Quarantine,
            metrics: this.metrics,
            clock: context.clock,
            log: context.log.child({ member }),
            drain: context.drain,
            batchRows: settings['batch-rows'],
            batchBytes: settings['batch-bytes'],
            ends: this.ends,
            registryWait: this.registryWait(),
            isEnough: () => budget.isSpent,
            onRows: part.onRows,
          }),
      ),
    );
  }

  private connect(member: number, group: string, hooks: Pick<ConsumerOptions, 'onRebalance'>) {
    const { base, part, driver } = this;
    const timeout = { 'session.timeout.ms': part.context.settings['session-timeout'] };
    return driver.consumer({
      ...base,
      group,
      ...hooks,
      clientId: `millrace-consumer-${member}`,
      properties: { ...base.properties, ...timeout },
      autoOffsetReset: 'earliest',
      partitionEof: true,
    });
  }

  /** Readers of parts of the partitions, without a group. */
  private ofPartitions(): Promise<readonly PartitionReader[]> {
    const { part, budget, driver, base } = this;
    const { context, plan, shared } = part;
    const { settings } = context;
    const report = failureLog(context);
    return Promise.all(
      part.instances.map(async (instance) => {
        const clientId = `millrace-consumer-${instance}`;
        const consumer = await driver.consumer({ ...base, clientId, partitionEof: true });
        context.onClose(() => consumer.close());
        const quarantine = this.quarantine();
        return new PartitionReader({
          consumer,
          from: shared.ranges
            .filter((_range, index) => index % part.instancesAll === instance)
            .map(({ topic, partition, from }) => ({ topic, partition, offset: from })),
          subject: plan.subject,
          ...(await this.parts()),
          onFailed: async (records, failed) => {
            if (quarantine === undefined) report(records, failed);
            else await quarantine.write(records, plan.topic, failed);
          },
          metrics: this.metrics,
          clock: context.clock,
          log: context.log.child({ reader: instance }),
          drain: context.drain,
          batchRows: settings['batch-rows'],
          batchBytes: settings['batch-bytes'],
          ends: this.ends,
          registryWait: this.registryWait(),
          isEnough: () => budget.isSpent,
          onRows: part.onRows,
        });
      }),
    );
  }

  /** Parts of one reader. */
  private async parts(): Promise<{
    readonly decoder: SelectingDecoder;
    readonly sink: DecodedSink | undefined;
  }> {
    const { context, plan, client, reader } = this.part;
    const { decoder: inner, keys } = await recordDecoding(context, client, reader, plan);
    const line: LineOptions = { form: plan.lineForm, keys, topic: plan.topic };
    const decoder = new SelectingDecoder(inner, { filter: plan.filter, budget: this.budget, line });
    this.decoders.push(decoder);
    return { decoder, sink: this.sinkOf(line) };
  }

  private sinkOf(line: LineOptions): DecodedSink | undefined {
    const { output } = this.part.plan;
    switch (output?.kind) {
      case 'file':
        return new TextSink('the file', line, this.part.writeText);
      case 'stdout':
        return new TextSink('stdout', line, this.part.writeText);
      case 'kafka':
        return new TopicSink(this.producer as BatchProducer, output.topic, line);
      default:
        return undefined;
    }
  }

  /** Wait of one reader; undefined without an end. A run with a reader schema has loaded it. */
  private registryWait(): RegistryWait | undefined {
    const { context, reader, shared } = this.part;
    if (shared.ends === undefined) return undefined;
    return new RegistryWait(context.clock, context.settings['connect-timeout'], reader !== undefined);
  }

  /** Undefined without a quarantine topic. */
  private quarantine(): Quarantine | undefined {
    const { plan, reader } = this.part;
    return plan.quarantineTopic === undefined
      ? undefined
      : new Quarantine({
          producer: this.producer as BatchProducer,
          topic: plan.quarantineTopic,
          readerVersion: reader?.version,
        });
  }
}

/** Names that are in every list. */
export function inAll([first = [], ...rest]: readonly (readonly string[])[]): readonly string[] {
  return first.filter((name) => rest.every((names) => names.includes(name)));
}

/** Logs failed rows, up to LOGGED_FAILURES_MAX. */
function failureLog({
  log,
}: Pick<ReaderContext, 'log'>): (records: RecordBatch, failed: readonly FailedRow[]) => void {
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
