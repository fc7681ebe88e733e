/** Redrives on a simulated cluster under virtual time: processes that are killed at any step of
 *  the broker client, faults from a seed, and an independent reader of committed records. */
import type { RecordBatch, RecordInput } from '../../../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { BrokerDriver, TransactionalProducer } from '../../../../src/io/kafka/port.ts';
import type {
  DecodedBatch,
  DecodedRow,
  FailedRow,
  RecordDecoder,
} from '../../../../src/registry/consumer/decoder.ts';
import { batchOf } from '../../../../src/registry/consumer/deliver.ts';
import { JSON_FORM, jsonText } from '../../../../src/registry/consumer/json-text.ts';
import { RecordKeys } from '../../../../src/registry/consumer/line.ts';
import { consumerMetrics } from '../../../../src/registry/consumer/member.ts';
import { Quarantine } from '../../../../src/registry/consumer/quarantine.ts';
import { budgetCells, recordBudget, SelectingDecoder } from '../../../../src/registry/consumer/selection.ts';
import type { WriterSchemas } from '../../../../src/registry/consumer/writers.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import type { QuarantineFilter } from '../../../../src/registry/quarantine/filter.ts';
import { lineRecord, sourceRecord } from '../../../../src/registry/quarantine/output.ts';
import { Redrive, type RedriveTally, redriveMetrics } from '../../../../src/registry/quarantine/redrive.ts';
import { Scan, type ScanOptions } from '../../../../src/registry/quarantine/scan.ts';
import { TopicOutput } from '../../../../src/registry/quarantine/topic-output.ts';
import type { QuarantineReason } from '../../../../src/serde/errors.ts';
import { simDriverOf } from '../../../../src/sim/broker.ts';
import { type BrokerFaults, SimCluster } from '../../../../src/sim/broker-cluster.ts';
import { SimLink } from '../../../../src/sim/broker-link.ts';
import { VirtualClock } from '../../../../src/sim/clock.ts';

export const TOPIC = 'orders';
export const QUARANTINE = 'orders.quarantine';
export const PROGRESS = 'orders.quarantine.redriven';
const BROKERS = 'sim:1';
const PARTITIONS = 3;
const BATCH_ROWS = 4;
const BATCH_BYTES = 1 << 20;

/** Step at which a process is killed: before it takes effect at the broker, or after. */
export interface Kill {
  readonly step: number;
  readonly when: 'before' | 'after';
}

/** Client of a process that stops for good at one step. */
class KilledDriver {
  /** Resolves when the process is killed. */
  readonly killed: Promise<void>;
  private readonly inner: BrokerDriver;
  private readonly kill: Kill | undefined;
  private steps = 0;
  private die: () => void = () => {};

  constructor(inner: BrokerDriver, kill: Kill | undefined) {
    this.inner = inner;
    this.kill = kill;
    this.killed = new Promise((resolve) => {
      this.die = resolve;
    });
  }

  get count(): number {
    return this.steps;
  }

  get driver(): BrokerDriver {
    const { inner } = this;
    return {
      name: 'killed',
      consumer: async (options) =>
        this.steppedAll(await inner.consumer(options), ['consume', 'watermarkOffsets']),
      producer: (options) => inner.producer(options),
      admin: (options) => inner.admin(options),
      transactional: async (options) =>
        this.steppedAll<TransactionalProducer>(await inner.transactional(options), [
          'init',
          'begin',
          'produce',
          'commit',
          'abort',
        ]),
    };
  }

  private steppedAll<T extends object>(client: T, names: readonly (keyof T & string)[]): T {
    return new Proxy(client, {
      get: (target, name) => {
        const found = Reflect.get(target, name, target) as unknown;
        if (typeof found !== 'function') return found;
        const call = (...args: unknown[]): unknown => Reflect.apply(found, target, args);
        if (!(names as readonly (string | symbol)[]).includes(name)) return call;
        return (...args: unknown[]) => this.step(() => call(...args) as Promise<unknown>);
      },
    });
  }

  private async step(act: () => Promise<unknown>): Promise<unknown> {
    const { kill } = this;
    if (kill === undefined || ++this.steps !== kill.step) {
      if (kill !== undefined && this.steps > kill.step) return new Promise(() => {});
      return act();
    }
    if (kill.when === 'after') await act();
    this.die();
    return new Promise(() => {});
  }
}

/** Reads JSON values; a value with `bad` is unreadable until the reason is fixed. */
class FixableDecoder implements RecordDecoder {
  readonly fixed: ReadonlySet<string>;

  constructor(fixed: ReadonlySet<string>, absences: number) {
    this.fixed = fixed;
    this.absences = absences;
  }

  /** Attempts that find no registry. */
  private absences: number;

  async prepare(): Promise<void> {
    if (this.absences-- > 0) throw registryError('registry_unavailable', 'ECONNREFUSED');
  }

  decode(records: RecordBatch): DecodedBatch {
    const decoded: DecodedRow[] = [];
    const failed: FailedRow[] = [];
    for (let row = 0; row < records.rowCount; row++) {
      const bytes = Buffer.from(records.value(row) ?? []);
      const { bad } = JSON.parse(bytes.toString()) as { readonly bad: QuarantineReason };
      if (this.fixed.has(bad)) decoded.push({ row, schemaId: 1, value: jsonText(bytes), form: JSON_FORM });
      else failed.push({ row, schemaId: 1, reason: bad, error: registryError(bad, 'not fixed') });
    }
    return { decoded, failed };
  }
}

export interface RunOptions {
  readonly filter?: QuarantineFilter;
  /** Reasons that are fixed. Default: all. */
  readonly fixed?: readonly QuarantineReason[];
  readonly out?: 'source' | `kafka:${string}`;
  readonly kill?: Kill;
  readonly dry?: boolean;
  readonly count?: number;
  readonly drain?: AbortSignal;
  /** Attempts that find no registry. */
  readonly absences?: number;
}

export interface Ran {
  readonly tally: RedriveTally;
  readonly deleted: number;
  readonly isWhole: boolean;
}

export interface Stored {
  readonly partition: number;
  readonly key: string | null;
  readonly value: string;
  readonly timestamp: bigint;
  readonly headers: Readonly<Record<string, string>>;
}

const ALL_REASONS: readonly QuarantineReason[] = [
  'bad_magic',
  'truncated_frame',
  'unknown_schema_id',
  'bad_message_index',
  'incompatible_schema',
  'malformed_payload',
];

/** Source record that was quarantined. */
export interface Bad {
  readonly n: number;
  readonly bad: QuarantineReason;
}

export const textOf = (bad: Bad): string => JSON.stringify(bad);

export class RedriveWorld {
  readonly clock = new VirtualClock();
  readonly cluster: SimCluster;
  readonly metrics = new Metrics();
  private next = 0n;

  constructor(
    options: {
      readonly seed?: number;
      readonly faults?: Partial<BrokerFaults>;
      readonly bytesMax?: number;
    } = {},
  ) {
    this.cluster = new SimCluster({
      brokers: BROKERS,
      seed: options.seed ?? 1,
      clock: this.clock,
      slowMs: 200,
      ...(options.faults === undefined ? {} : { faults: options.faults }),
      ...(options.bytesMax === undefined ? {} : { messageBytesMax: options.bytesMax }),
    });
  }

  /** Creates the topics. @param quarantinePartitions partitions of the quarantine topic */
  async open(quarantinePartitions = 1): Promise<this> {
    const admin = await simDriverOf(this.cluster).admin({ brokers: BROKERS, clientId: 'test' });
    await admin.createTopics([
      { topic: TOPIC, partitions: PARTITIONS },
      { topic: 'lines', partitions: PARTITIONS },
      { topic: QUARANTINE, partitions: quarantinePartitions },
      { topic: PROGRESS, partitions: 1 },
    ]);
    return this;
  }

  private get base() {
    return { brokers: BROKERS, clientId: 'test' };
  }

  /** Appends records to a topic without faults. */
  async append(topic: string, records: readonly RecordInput[]): Promise<void> {
    const cluster = this.cluster.logOf({ topic, partition: 0 });
    if (cluster === undefined) throw new Error(`no topic ${topic}`);
    const before = [...records];
    for (const record of before)
      this.cluster.append(
        { topic, partition: record.partition ?? 0 },
        {
          timestamp: record.timestamp ?? 0n,
          key: record.key ?? null,
          value: record.value ?? null,
          headers: record.headers ?? [],
        },
      );
  }

  /** Quarantines records as a consumer does. @param more: further headers of the records */
  async quarantine(
    records: readonly Bad[],
    more: Partial<RecordInput> & { readonly place?: bigint } = {},
  ): Promise<void> {
    const found: RecordInput[] = [];
    const writer = new Quarantine({
      producer: {
        produce: async (batch) => {
          for (let row = 0; row < batch.rowCount; row++)
            found.push({
              timestamp: batch.columns.timestamp[row] as bigint,
              key: batch.key(row)?.slice() ?? null,
              value: batch.value(row)?.slice() ?? null,
              headers: batch.headers(row).map(([name, value]) => [name, value?.slice() ?? null] as const),
            });
          return {
            delivered: batch.rowCount,
            failed: 0,
            status: new Int32Array(batch.rowCount),
            offset: new BigInt64Array(batch.rowCount),
            events: [],
          };
        },
        queuedBytes: () => 0,
        flush: async () => {},
        close: async () => {},
      },
      topic: QUARANTINE,
    });
    const inputs = records.map(
      (one): RecordInput => ({
        partition: one.n % PARTITIONS,
        offset: more.place ?? this.next++,
        timestamp: BigInt(1000 + one.n),
        key: Buffer.from(`k${one.n}`),
        value: Buffer.from(textOf(one)),
        headers: [['trace', Buffer.from(`t${one.n}`)]],
        ...more,
      }),
    );
    const batch = batchOf(inputs);
    await writer.write(
      batch,
      TOPIC,
      records.map(({ bad }, row) => ({
        row,
        schemaId: 1,
        reason: bad,
        error: registryError(bad, `is ${bad}`),
      })),
    );
    await this.append(QUARANTINE, found);
  }

  scanOptions(driver: BrokerDriver): ScanOptions {
    return {
      driver,
      broker: this.base,
      clock: this.clock,
      log: silentLogger,
      batchRows: BATCH_ROWS,
      batchBytes: BATCH_BYTES,
    };
  }

  /** Starts a redrive. `killed` resolves when it is killed. */
  start(options: RunOptions = {}): {
    readonly ran: Promise<Ran>;
    readonly killed: Promise<void>;
    readonly steps: () => number;
  } {
    const inner = simDriverOf(this.cluster, new SimLink(this.cluster));
    const process = new KilledDriver(
      inner,
      options.kill ?? { step: Number.MAX_SAFE_INTEGER, when: 'before' },
    );
    return { ran: this.redrive(process.driver, options), killed: process.killed, steps: () => process.count };
  }

  /** Runs a redrive until it ends or is killed. */
  async run(options: RunOptions = {}): Promise<Ran | 'killed'> {
    const { ran, killed } = this.start(options);
    return this.clock.run(Promise.race([ran, killed.then(() => 'killed' as const)]));
  }

  async complete(options: RunOptions = {}): Promise<Ran> {
    const ran = await this.run(options);
    if (ran === 'killed') throw new Error('the redrive was killed');
    return ran;
  }

  private async redrive(driver: BrokerDriver, options: RunOptions): Promise<Ran> {
    const { out = 'source', filter = {}, fixed = ALL_REASONS, dry = false } = options;
    const scan = this.scanOptions(driver);
    const budget = recordBudget(budgetCells(options.count ?? 0));
    const line = {
      form: 'record',
      keys: new RecordKeys('text', undefined as unknown as WriterSchemas),
      topic: TOPIC,
    } as const;
    const into = {
      scan,
      clock: this.clock,
      quarantineTopic: QUARANTINE,
      name: out,
      topic: out === 'source' ? TOPIC : out.slice('kafka:'.length),
      record: out === 'source' ? sourceRecord(PARTITIONS) : lineRecord(line),
    };
    const output = dry ? await TopicOutput.dry(into, true) : await TopicOutput.open(into);
    const partitions = (this.cluster.topics.get(QUARANTINE) ?? []).map((_, partition) => partition);
    const opened = await Scan.open(scan, QUARANTINE, partitions);
    const redrive = new Redrive({
      scan: opened,
      topic: TOPIC,
      filter,
      decoder: new SelectingDecoder(new FixableDecoder(new Set(fixed), options.absences ?? 0), {
        filter: undefined,
        budget,
        line,
      }),
      output,
      metrics: redriveMetrics(this.metrics),
      consumerMetrics: consumerMetrics(this.metrics),
      clock: this.clock,
      log: silentLogger,
      drain: options.drain ?? new AbortController().signal,
      isEnough: () => budget.isSpent,
      onRead: () => {},
    });
    try {
      const isWhole = await redrive.run();
      return { tally: redrive.tally, deleted: opened.deleted, isWhole };
    } finally {
      await opened.close();
      await output.close();
    }
  }

  /** Reads the committed records of a topic, after every transaction has ended. */
  async read(topic: string): Promise<readonly Stored[]> {
    const found: Stored[] = [];
    const logs = this.cluster.topics.get(topic) ?? [];
    logs.forEach((log, partition) => {
      for (const { isMark, transaction, key, value, timestamp, headers } of log) {
        if (isMark === true || (transaction !== undefined && transaction.state !== 'committed')) continue;
        found.push({
          partition,
          key: key === null ? null : Buffer.from(key).toString(),
          value: Buffer.from(value ?? []).toString(),
          timestamp,
          headers: Object.fromEntries(
            headers.map(([name, text]) => [name, Buffer.from(text ?? []).toString()]),
          ),
        });
      }
    });
    return found;
  }

  async values(topic: string): Promise<readonly string[]> {
    return (await this.read(topic)).map(({ value }) => value).sort();
  }
}
