/** Sinks of `millrace engine`: the sink that -sink names, and the engine's own store of fired
 *  windows. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import type { Job } from '../../engine/job.ts';
import type { KeyType } from '../../engine/keys/type.ts';
import type { ResultShape } from '../../engine/output/columns.ts';
import type { FiredShape } from '../../engine/output/fired/mark.ts';
import { ReopeningStore } from '../../engine/output/fired/reopening-store.ts';
import { FIRED_FAMILIES, FiredStore, firedRows, readFired } from '../../engine/output/fired/store.ts';
import { ParquetSink } from '../../engine/output/parquet/sink.ts';
import {
  RECORD_FORMATS,
  type RecordFormat,
  RegisteredRecords,
} from '../../engine/output/registered/records.ts';
import { KafkaSink, SCRATCH_FAMILIES, SINK_TOPIC_NAME } from '../../engine/output/sink/kafka.ts';
import type { SinkLease, WindowSink } from '../../engine/output/sink/port.ts';
import { PostgresSink, SINK_TABLE_NAME } from '../../engine/output/sink/postgres.ts';
import { aggregatesIn } from '../../engine/source/input/definition.ts';
import type { WindowResult } from '../../engine/window/accumulator.ts';
import type { FiredBounds, FiredPage } from '../../engine/window/firing.ts';
import { existingDisk, openDisk } from '../../io/disk/node.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { KvStore } from '../../io/rocksdb/port.ts';
import type { CommandContext } from '../../shell/command.ts';
import { brokerDriver, kvDriver, lockDriver, sqlDriver } from '../../shell/drivers.ts';
import { openOrCopy, serveCopies } from './copies.ts';
import { registryOf } from './input.ts';
import { shapeOf } from './job.ts';
import { openStoresOf } from './stores.ts';

/** Sinks outside the engine; next to them the engine keeps its own store of fired windows. */
const EXTERNAL_SINKS = ['sink=postgres*', 'sink=kafka:*', 'sink=parquet:*'] as const;

export const SINK_SETTINGS = {
  sink: {
    type: 'string',
    secret: true,
    plain: /^((rocksdb|parquet)(:[^@]*)?|kafka:[\w.-]*)$/,
    default: 'rocksdb',
    help: 'where results go: rocksdb (the folder fired in -state-dir) or rocksdb:FOLDER; postgres:URL with URL like postgres://user:password@host:port/name; kafka:TOPIC, compacted, on -brokers; parquet:FOLDER, a file for each closed window',
  },
  'sink-table': {
    type: 'string',
    default: 'window_results',
    needs: ['sink=postgres*'],
    help: 'table of a postgres sink',
  },
  'sink-format': {
    type: 'string',
    choices: ['binary', ...RECORD_FORMATS],
    default: 'binary',
    needs: ['sink=kafka:*'],
    help: 'form of the records of a kafka sink: binary, of this engine alone; avro, protobuf or json, framed with schemas that are in -registry under TOPIC-key and TOPIC-value',
  },
  migrate: {
    type: 'bool',
    default: 'false',
    needs: EXTERNAL_SINKS,
    help: 'create the tables, the topic or the folder of the sink if they are missing, add columns that a table lacks, register the schemas of -sink-format, then run',
  },
  retain: {
    type: 'duration',
    min: 1,
    help: 'event time, back from the newest window, for which results are kept in the store of fired windows. The store is the rocksdb sink (default: keeps all results) or, next to another sink, the store behind GET /windows (default 1h)',
  },
  'export-wait': {
    type: 'duration',
    default: '1m',
    min: 0,
    needs: ['sink=rocksdb*'],
    help: 'how long engine export waits for a copy from the engine that has the rocksdb sink open',
  },
  'export-window': {
    type: 'string',
    help: 'window that engine export prints, of a run with several',
  },
  'export-keys': {
    type: 'string',
    choices: ['signed', 'unsigned'],
    help: 'range in which engine export prints the keys (default: that of the job in -state-dir, else unsigned)',
  },
} as const satisfies SettingTable;

/** Settings of other tables that this module reads. */
interface OtherSettings {
  readonly brokers: string | undefined;
  readonly topic: string;
  readonly 'state-dir': string;
  readonly emit: string;
  readonly partitions: number;
  readonly 'replication-factor': number;
  readonly registry: string | undefined;
  readonly 'registry-user': string | undefined;
  readonly 'registry-token-file': string | undefined;
}
type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: SettingsOf<typeof SINK_SETTINGS> & OtherSettings & { readonly native: string };
};

const CONNECT_TIMEOUT_MS = 5000;
/** Timeout of a server that does not answer; one COPY and upsert take far less. */
const ANSWER_TIMEOUT_MS = 120_000;
/** Default retention of the store next to another sink. */
const RETAIN_MS_BESIDE = 3_600_000;
/** Cache and memtables of the store of fired windows. */
const FIRED_BUDGET_BYTES = 64 * 1024 * 1024;
/** Budget of the temporary store in which an export of a topic finds the newest value of each
 *  key. */
const SCRATCH_BUDGET_BYTES = 64 * 1024 * 1024;
const KINDS = 'rocksdb, rocksdb:FOLDER, postgres:URL, kafka:TOPIC, parquet:FOLDER';

type ChosenSink =
  | { readonly kind: 'rocksdb'; readonly folder: string }
  | { readonly kind: 'postgres'; readonly url: string }
  | { readonly kind: 'kafka'; readonly topic: string }
  | { readonly kind: 'parquet'; readonly folder: string };

const firedFolder = (context: Context): string => join(context.settings['state-dir'], 'fired');

/** @throws bad_value, usage */
export function requireValidSink(context: Context, aggregate: string | undefined): void {
  const { kind } = chosenSink(context);
  if (kind === 'postgres') sinkTable(context);
  const format = recordFormat(context);
  if (kind === 'kafka') demandPlace(format, aggregate);
}

/** @throws usage for results that the records of a Kafka sink cannot hold */
function demandPlace(format: RecordFormat | undefined, aggregate: string | undefined): void {
  if (format !== undefined || aggregate === undefined) return;
  throw coreError(
    'usage',
    'the binary records of -sink=kafka:TOPIC have no place for the results of -aggregate',
    {
      next: `give -sink-format=${RECORD_FORMATS.join('|')} with -registry`,
      details: { setting: 'sink' },
    },
  );
}

/** Form of the records that the registry describes; undefined: binary. @throws usage */
function recordFormat({ settings }: Context): RecordFormat | undefined {
  const format = RECORD_FORMATS.find((one) => one === settings['sink-format']);
  if (format !== undefined && settings.registry === undefined)
    throw coreError('usage', `-sink-format=${format} needs -registry`, {
      next: 'give -registry=http://host:port of the registry that gets the schemas of the results',
      details: { setting: 'sink-format' },
    });
  return format;
}

function chosenSink(context: Context): ChosenSink {
  const { settings } = context;
  const url = /^(?:postgres:)?(postgres(?:ql)?:\/\/.+)$/s.exec(settings.sink)?.[1];
  if (url !== undefined) return { kind: 'postgres', url };
  const [, kind, rest] = /^([a-z]{1,20})(?::(.*))?$/s.exec(settings.sink) ?? [];
  if (kind === 'rocksdb' && rest !== '') return { kind, folder: rest ?? firedFolder(context) };
  if (kind === 'parquet') {
    if (rest !== undefined && rest !== '') return { kind, folder: rest };
    throw coreError('bad_value', '-sink=parquet:… has no folder after the colon', {
      next: 'give -sink=parquet:FOLDER',
      details: { setting: 'sink' },
    });
  }
  if (kind === 'kafka' && rest !== undefined) {
    if (!SINK_TOPIC_NAME.test(rest)) {
      throw coreError('bad_value', `-sink=kafka:${rest.slice(0, 260)} is not the name of a topic`, {
        next: 'use up to 249 letters, digits, dots, underscores and dashes',
        details: { setting: 'sink' },
      });
    }
    if (rest === settings.topic) {
      throw coreError('bad_value', `-sink=kafka:${rest} is the topic that is read`, {
        next: 'give the results a topic of their own',
        details: { setting: 'sink' },
      });
    }
    return { kind, topic: rest };
  }
  // The rest of the value may hold a password, so it is not shown.
  if (kind === 'postgres' || kind === 'postgresql') {
    throw coreError('bad_value', '-sink=postgres:… has no database URL after the colon', {
      next: 'give -sink=postgres:postgres://user:password@host:port/name',
      details: { setting: 'sink' },
    });
  }
  throw coreError('bad_value', `-sink of kind ${kind ?? 'this'} is not a choice`, {
    next: `choose from ${KINDS}`,
    details: { setting: 'sink' },
  });
}

async function openStore(
  context: Context,
  folder: string,
  missing: 'make' | 'refuse',
  budgetBytes = FIRED_BUDGET_BYTES,
): Promise<KvStore> {
  const driver = await kvDriver(context);
  const options = { budgetBytes, families: FIRED_FAMILIES, missing };
  const store = await ReopeningStore.open(() => driver.open(folder, options));
  context.onClose(() => store.close());
  return store;
}

/** @throws bad_value */
function sinkTable({ settings }: Context): string {
  const table = settings['sink-table'];
  if (!SINK_TABLE_NAME.test(table)) {
    throw coreError('bad_value', `-sink-table=${table} is not a table name`, {
      next: 'use up to 48 small letters, digits and underscores',
      details: { setting: 'sink-table' },
    });
  }
  return table;
}

/** Database and table of a postgres sink; undefined for other sinks. @throws bad_value */
export function postgresSink(context: Context): { readonly url: string; readonly table: string } | undefined {
  const what = chosenSink(context);
  return what.kind === 'postgres' ? { url: what.url, table: sinkTable(context) } : undefined;
}

export async function openPostgresPool(
  context: Context,
  url: string,
  connectionsMax: number,
): Promise<SqlPool> {
  const driver = await sqlDriver(context);
  const pool = await driver.connect({
    url,
    flag: '-sink',
    connectionsMax,
    applicationName: 'millrace engine',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    answerTimeoutMs: ANSWER_TIMEOUT_MS,
  });
  context.onClose(() => pool.close());
  return pool;
}

/** Columns of the results, for a sink that is read alone. */
interface KnownResults {
  readonly aggregate: string | undefined;
  readonly emit: Job['emit'] | undefined;
}

async function openPostgres(context: Context, url: string, known: KnownResults): Promise<WindowSink> {
  const table = sinkTable(context);
  return new PostgresSink(await openPostgresPool(context, url, 2), table, {
    shape: 'later',
    ...known,
    log: context.log,
  });
}

/** Temporary store, removed after the read. */
async function openScratch(context: Context) {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-export-'));
  const driver = await kvDriver(context);
  const options = { budgetBytes: SCRATCH_BUDGET_BYTES, families: SCRATCH_FAMILIES };
  const store = await driver.open(join(folder, 'store'), options);
  return {
    store,
    done: async () => {
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function openKafka(
  context: Context,
  topic: string,
  known: KnownResults,
  lease: SinkLease | undefined,
): Promise<WindowSink> {
  const { settings } = context;
  if (settings.brokers === undefined) {
    throw coreError('usage', '-brokers is required for -sink=kafka:TOPIC', {
      next: 'give -brokers=host:port of the cluster that has the topic',
    });
  }
  const format = recordFormat(context);
  const client = registryOf(context);
  demandPlace(format, known.aggregate);
  const sink = new KafkaSink({
    ...(format === undefined || client === undefined
      ? {}
      : { records: new RegisteredRecords({ client, format, topic, ...known }) }),
    driver: await brokerDriver(context),
    brokers: settings.brokers,
    topic,
    partitions: settings.partitions,
    replicationFactor: settings['replication-factor'],
    log: context.log,
    lease,
    scratch: () => openScratch(context),
  });
  context.onClose(() => sink.close());
  return sink;
}

export interface OpenSinks {
  readonly sinks: readonly WindowSink[];
  /** Where fired windows are looked up; one of the sinks. */
  readonly fired: FiredStore;
  /** Store of `fired`. */
  readonly store: KvStore;
}

/** Sink whose keys are known only after the first records: it is migrated and checked then. */
class DeferredSink implements WindowSink {
  readonly name: string;
  readonly writeRowsMax: number;
  private readonly sink: WindowSink;
  private readonly migrates: boolean;

  constructor(sink: WindowSink, migrates: boolean) {
    this.name = sink.name;
    this.writeRowsMax = sink.writeRowsMax;
    this.sink = sink;
    this.migrates = migrates;
  }

  async bind(type: KeyType | undefined, shape: ResultShape): Promise<void> {
    await this.sink.bind?.(type, shape);
    if (this.migrates) await this.sink.migrate();
    await this.sink.check();
  }
  migrate(): Promise<void> {
    return this.sink.migrate();
  }
  check(): Promise<void> {
    return this.sink.check();
  }
  write(pages: readonly FiredPage[]): Promise<void> {
    return this.sink.write(pages);
  }
  async finish(ended: readonly FiredBounds[]): Promise<void> {
    await this.sink.finish?.(ended);
  }
  read(): ReturnType<WindowSink['read']> {
    return this.sink.read();
  }
}

/** Writer of a sink. */
interface SinkJob {
  readonly job: Job;
  /** Absent: no other engine writes the sink. */
  readonly lease?: SinkLease | undefined;
}

/** @param writer absent: the sink is read alone */
function openExternal(
  context: Context,
  what: Exclude<ChosenSink, { kind: 'rocksdb' }>,
  known: KnownResults,
  writer?: SinkJob,
): Promise<WindowSink> {
  switch (what.kind) {
    case 'postgres':
      return openPostgres(context, what.url, known);
    case 'kafka':
      return openKafka(context, what.topic, known, writer?.lease);
    case 'parquet':
      return Promise.resolve(openParquet(what.folder, writer));
  }
}

function openParquet(folder: string, writer: SinkJob | undefined): WindowSink {
  return new ParquetSink({
    folder,
    open: (missing) => (missing === 'make' ? openDisk(folder) : existingDisk(folder)),
    ...(writer === undefined
      ? {}
      : { job: { topic: writer.job.topic, windows: shapeOf(writer.job) }, lease: writer.lease }),
  });
}

/** Opens and checks an external sink, and migrates it if -migrate is on. Undefined for rocksdb: the
 *  store of fired windows is the sink. Creates nothing in the state folder.
 *  @param shape shape of the results; undefined: the first records decide it
 *  @throws sink_missing, store_fenced, unreachable */
export async function openSink(
  context: Context,
  shape: ResultShape | undefined,
  writer: SinkJob,
): Promise<WindowSink | undefined> {
  const what = chosenSink(context);
  if (what.kind === 'rocksdb') return undefined;
  const { job } = writer;
  const known = { aggregate: aggregatesIn(job.input ?? {}), emit: job.emit };
  const sink = await openExternal(context, what, known, writer);
  const { migrate } = context.settings;
  if (shape !== undefined) await sink.bind?.(shape.keyType, shape);
  if (migrate) await sink.migrate();
  if (shape !== undefined || !migrate) await sink.check();
  return shape === undefined ? new DeferredSink(sink, migrate) : sink;
}

/** Opens the store of fired windows, which is the sink or stands next to it. `budgetBytes` is its
 *  memory if memory is bounded. */
export async function openSinks(
  context: Context,
  sink: WindowSink | undefined,
  shape: FiredShape,
  budgetBytes: number | undefined,
): Promise<OpenSinks> {
  const what = chosenSink(context);
  const folder = what.kind === 'rocksdb' ? what.folder : firedFolder(context);
  const store = await openStore(context, folder, 'make', budgetBytes);
  if (folder === firedFolder(context)) openStoresOf(context).set('fired', store);
  const role = sink === undefined ? 'sink' : 'beside';
  const hasEarly = context.settings.emit === 'updates';
  const retainMs = context.settings.retain ?? (sink === undefined ? undefined : RETAIN_MS_BESIDE);
  const fired = await FiredStore.open(store, { shape, role, retainMs, hasEarly });
  if (sink !== undefined) return { sinks: [sink, fired], fired, store };
  context.onClose(serveCopies(store, await lockDriver(context), context));
  return { sinks: [fired], fired, store };
}

export interface SinkResults {
  readonly pages: AsyncIterable<readonly WindowResult[]>;
  /** Type of the keys, once the first page was read; undefined: they are integers. */
  readonly keyType: () => KeyType | undefined;
  /** Aggregates of the results; undefined: count, sum, min and max. */
  readonly aggregate: string | undefined;
}

/** Reads all results of the sink. @param known what is known of the job's results
 *  @throws sink_missing, kv_missing, kv_locked */
export async function readSink(context: Context, known: KnownResults): Promise<SinkResults> {
  const what = chosenSink(context);
  if (what.kind === 'rocksdb') {
    const { store, done } = await openOrCopy({
      folder: what.folder,
      open: (folder) => openStore(context, folder, 'refuse'),
      locks: await lockDriver(context),
      clock: context.clock,
      waitMs: context.settings['export-wait'],
      signal: context.drain,
    });
    context.onClose(done);
    const { keyType, aggregates } = await firedRows(store);
    return { pages: readFired(store), keyType: () => keyType, aggregate: aggregates };
  }
  const sink = await openExternal(context, what, known);
  await sink.check();
  return { pages: sink.read(), keyType: () => sink.keyType, aggregate: known.aggregate };
}
