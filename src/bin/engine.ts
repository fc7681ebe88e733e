/** `millrace engine`: computes event-time windows over a topic. `millrace engine export`: prints
 *  the sink as CSV. */

import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { sleep } from '../core/clock.ts';
import { coreError, EXIT, invariant } from '../core/errors.ts';
import { engineOf, engineRoutes, type NamedEngines } from '../engine/api/routes.ts';
import { savedJob } from '../engine/durability/checkpoint/restore.ts';
import type { MemoryShares } from '../engine/durability/spill/budget.ts';
import type { PieceStore } from '../engine/durability/spill/pieces.ts';
import { type Job, resumedInput, rowFormOf, stateOf, watermarksOf } from '../engine/job.ts';
import type { KeyDictionary } from '../engine/keys/dictionary.ts';
import { type KeyType, keyValues, partNames, typeText, valueText } from '../engine/keys/type.ts';
import { engineMetrics } from '../engine/metrics.ts';
import {
  columnText,
  type ResultColumn,
  type ResultShape,
  resultShape,
  shapeOfKeys,
} from '../engine/output/columns.ts';
import { csvCell } from '../engine/output/csv.ts';
import { Engine } from '../engine/run.ts';
import { BrokerSource, type EventSource } from '../engine/source/events.ts';
import { BINARY256 } from '../engine/source/input/binary256.ts';
import {
  aggregatesIn,
  hasGivenKey,
  hasSignedKeys,
  type InputDefinition,
  keyTypeOf,
} from '../engine/source/input/definition.ts';
import type { EventInput } from '../engine/source/input/port.ts';
import type { TopicInput } from '../engine/source/input/topic-input.ts';
import { demandValidInput } from '../engine/source/invalid.ts';
import { SharedReader } from '../engine/source/shared/reader.ts';
import { limitedText, Stages } from '../engine/stages.ts';
import type { WindowResult } from '../engine/window/accumulator.ts';
import { openDisk } from '../io/disk/node.ts';
import type { Disk } from '../io/disk/port.ts';
import type { BrokerAdmin, BrokerDriver, BrokerEvent } from '../io/kafka/port.ts';
import { BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver, kernels, windowKernels } from '../shell/drivers.ts';
import { settingTableOf } from '../shell/load-settings.ts';
import { packageVersion } from '../shell/package.ts';
import { ACCESS_SETTINGS } from '../shell/servers/access.ts';
import { REPLICATION_FACTOR } from '../shell/topic-settings.ts';
import { engineGate } from './engine/access.ts';
import { CHAOS_SETTING, chaosOf } from './engine/chaos.ts';
import { EMIT_SETTINGS } from './engine/emit.ts';
import { FLINK_FLAGS, FLINK_SETTINGS } from './engine/flink/settings.ts';
import { submitJob } from './engine/flink/submit.ts';
import { INPUT_SETTINGS, openInput } from './engine/input.ts';
import { JOB_SETTINGS, jobOf, shapeOf } from './engine/job.ts';
import { type InferredJob, inferredJob, jobFileText } from './engine/jobfile/inferred.ts';
import { JOB_FILE_SETTING, readJob } from './engine/jobfile/read.ts';
import { VALIDATE_SETTINGS, validateJob } from './engine/jobfile/validate.ts';
import { openKeys } from './engine/keys.ts';
import { LATE_SETTINGS } from './engine/late.ts';
import { keptLateEvents, LATE_EVENTS_SETTINGS, openLateTable } from './engine/late-events.ts';
import { MEMORY_SETTINGS, memoryOf, openSpill } from './engine/memory.ts';
import { progressNote } from './engine/progress.ts';
import { QUARANTINE_SETTINGS } from './engine/quarantine.ts';
import { beginWithSavepoint, savepointsOf, serveSavepoints } from './engine/savepoint/begin.ts';
import { saveState } from './engine/savepoint/save.ts';
import { SAVEPOINT_ACTION_FLAGS, SAVEPOINT_SETTINGS } from './engine/savepoint/settings.ts';
import { openSides, type SideNames, sideCount, sideNames } from './engine/sides.ts';
import { openSink, openSinks, readSink, requireValidSink, SINK_SETTINGS } from './engine/sinks.ts';
import { CLIENT_SETTINGS } from './engine/source/client.ts';
import { groupName, leased, openStateDir, SOURCE_SETTINGS } from './engine/source/group.ts';
import { batchRows, openEvents } from './engine/source/lists.ts';
import { START_SETTINGS, startOf } from './engine/source/start.ts';
import { openTopics } from './engine/source/topics.ts';
import { type OpenedStore, openCheckpointStore } from './engine/store/open.ts';
import { STORE_SETTINGS } from './engine/store/settings.ts';
import { verifyAgainstFlink } from './engine/verify/against.ts';
import { verifyResults } from './engine/verify/recompute.ts';
import { VERIFY_FLAGS, VERIFY_SETTINGS } from './engine/verify/settings.ts';
import { runAll } from './engine/windows/run.ts';
import { demandMovable, exportSettings, settingsOf, verifySettings } from './engine/windows/settings.ts';
import { type WindowSpec, windowSpecs } from './engine/windows/specs.ts';
import { demandNoSet, demandOneState, nextSet, writeSet } from './engine/windows/state.ts';
import { parseStart } from './registry-clients/start.ts';

/** Settings under which the command creates topics: the input and late topic, or a Kafka sink. */
const MAKES_TOPICS = ['create-topics', 'sink=kafka:*'] as const;

const SETTINGS = {
  ...BROKER_SETTINGS,
  job: JOB_FILE_SETTING,
  ...JOB_SETTINGS,
  ...INPUT_SETTINGS,
  ...MEMORY_SETTINGS,
  ...SOURCE_SETTINGS,
  ...CLIENT_SETTINGS,
  ...START_SETTINGS,
  'state-dir': {
    type: 'string',
    default: '.millrace/engine',
    help: 'folder of the checkpoints; one engine at a time',
  },
  ...SAVEPOINT_SETTINGS,
  ...STORE_SETTINGS,
  'idle-timeout': {
    type: 'duration',
    default: '10s',
    excludes: ['watermark=global'],
    help: 'a partition without a valid event for this long does not hold back the watermark until its next event; 0: every partition always holds it back',
  },
  'partition-interval': {
    type: 'duration',
    default: '30s',
    max: 3_600_000,
    excludes: ['exit-at-end', 'bounded'],
    help: 'how often to check the topic for new partitions, which are read from their first record, and for a recreated topic, which ends the run; 0: only at the start',
  },
  'checkpoint-interval': { type: 'duration', default: '5s', min: 10, help: 'time between checkpoints' },
  'snapshot-after': {
    type: 'size',
    default: '16MiB',
    min: 4096,
    help: 'size of the changelog since the last snapshot above which a checkpoint writes a new snapshot, if the changelog is also larger than the state; with -state=disk, above which the oldest state is spilled to disk, if the changelog is also larger than the state in memory',
  },
  shards: { type: 'int', default: '1', min: 1, max: 256, help: 'parts of the state; a key belongs to one' },
  ...SINK_SETTINGS,
  ...EMIT_SETTINGS,
  ...LATE_SETTINGS,
  ...QUARANTINE_SETTINGS,
  ...LATE_EVENTS_SETTINGS,
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    excludes: ['bounded'],
    help: 'stop at the current end offsets; open windows stay in the checkpoint',
  },
  bounded: { type: 'bool', default: 'false', help: 'like -exit-at-end, and fire all open windows' },
  'create-topics': {
    type: 'bool',
    default: 'true',
    help: 'create -topic, -late-topic and -quarantine if they are missing',
  },
  partitions: {
    type: 'int',
    default: '8',
    min: 1,
    max: 100_000,
    needs: MAKES_TOPICS,
    help: 'partitions of a created topic',
  },
  'replication-factor': { ...REPLICATION_FACTOR, needs: MAKES_TOPICS },
  retention: {
    type: 'duration',
    default: '7d',
    min: 0,
    needs: ['create-topics'],
    help: 'retention of a created topic',
  },
  'batch-rows': { type: 'int', default: '16384', min: 1, max: 1_048_576, help: 'events in a batch' },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 4096,
    max: 1_073_741_824,
    help: 'bytes of records in a batch; a larger record stops the engine',
  },
  ...VALIDATE_SETTINGS,
  ...VERIFY_SETTINGS,
  ...FLINK_SETTINGS,
  ...ACCESS_SETTINGS,
  chaos: CHAOS_SETTING,
} as const;

/** Flags of one action alone. */
const ACTION_FLAGS = [
  ['export-wait', 'export'],
  ['export-keys', 'export'],
  ['export-window', 'export'],
  ['offline', 'validate'],
  ...VERIFY_FLAGS.map((flag) => [flag, 'verify'] as const),
  ...SAVEPOINT_ACTION_FLAGS.map((flag) => [flag, 'savepoint'] as const),
  ...FLINK_FLAGS.map((flag) => [flag, flag === 'against' ? 'verify' : 'submit'] as const),
] as const;

type Context = CommandContext<typeof SETTINGS>;

/** Engines of each context by the names of their windows: the routes are built before them. */
const engines = new WeakMap<object, NamedEngines>();
const NO_ENGINES: NamedEngines = new Map();
/** Job of each context that the first records completed. */
const inferred = new WeakMap<object, InferredJob>();

function neededBrokers(context: Context): string {
  const { brokers } = context.settings;
  if (brokers === undefined) {
    throw coreError('usage', '-brokers is required', { next: `give -brokers=… (${SETTINGS.brokers.help})` });
  }
  return brokers;
}

/** Resolves when the operating system has taken the text for the reader of stdout, so that a long
 *  export does not accumulate in memory. */
const writeOut = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

/** Job of the checkpoint in -state-dir; undefined for none. */
async function jobInFolder({ settings }: Context): Promise<Job | undefined> {
  const folder = settings['state-dir'];
  // An export from another machine has no folder, and makes none.
  return existsSync(folder) ? savedJob(await openDisk(folder)) : undefined;
}

/** Returns the text of a result's key, and the head of the key's columns. */
async function keyFormat(
  context: Context,
  found: KeyType | undefined,
): Promise<{ readonly head: string; readonly cells: (row: WindowResult) => string }> {
  const asked = context.settings['export-keys'];
  const input = (await jobInFolder(context))?.input ?? BINARY256;
  if (found === undefined) {
    const isSigned = asked === undefined ? hasSignedKeys(input) : asked === 'signed';
    return {
      head: 'account_id',
      cells: ({ accountId }) => String(isSigned ? BigInt.asIntN(64, accountId) : accountId),
    };
  }
  if (asked !== undefined)
    throw coreError('usage', `-export-keys has no meaning for keys of type ${typeText(found)}`, {
      next: 'leave -export-keys out',
    });
  // A topic of results has no names of the parts.
  const own = keyTypeOf(input);
  const isOwn = own?.map(({ kind }) => kind).join() === found.map(({ kind }) => kind).join();
  const names = context.settings.sink.startsWith('kafka:') && isOwn && own !== undefined ? own : found;
  return {
    head: partNames(names).map(csvCell).join(),
    cells: ({ key }) =>
      keyValues(found, key as Uint8Array)
        .map((value) => csvCell(valueText(value)))
        .join(),
  };
}

/** Columns of an export behind those of the key. The count of the default results is unsigned. */
function exportColumns(aggregate: string | undefined, emit: Job['emit']): readonly ResultColumn[] {
  const { columns } = shapeOfKeys([{ name: 'key', kind: 'i64' }], aggregate, emit);
  return columns
    .filter(({ role }) => role !== 'key')
    .map((column) =>
      aggregate === undefined && column.name === 'count' ? { ...column, read: ({ count }) => count } : column,
    );
}

async function exportSink(context: Context): Promise<number> {
  if (context.settings.json) {
    throw coreError('usage', 'engine export prints CSV, not one JSON document', { next: 'leave -json out' });
  }
  const job = await jobInFolder(context);
  const emit = context.settings.emit === 'updates' ? 'updates' : job?.emit;
  const known = { aggregate: aggregatesIn(context.settings) ?? aggregatesIn(job?.input ?? {}), emit };
  const { pages, keyType, aggregate } = await readSink(context, known);
  const columns = exportColumns(aggregate, emit);
  let cells: ((row: WindowResult) => string) | undefined;
  const begin = async (): Promise<(row: WindowResult) => string> => {
    const format = await keyFormat(context, keyType());
    await writeOut(`${[format.head, ...columns.map(({ name }) => name)].join()}\n`);
    return format.cells;
  };
  for await (const page of pages) {
    cells ??= await begin();
    const keyOf = cells;
    const lines = page.map((row) =>
      [keyOf(row), ...columns.map(({ read }) => csvCell(columnText(read(row))))].join(),
    );
    await writeOut(`${lines.join('\n')}\n`);
  }
  if (cells === undefined) await begin();
  return EXIT.done;
}

/** Returns a function that queries the topic over its own admin connection, opened on first use. */
function topicFinder(
  context: Context,
  driver: BrokerDriver,
): () => Promise<{ readonly partitions: number; readonly id: string | undefined }> {
  const { topic } = context.settings;
  let opening: Promise<BrokerAdmin> | undefined;
  context.onClose(async () => (await opening?.catch(() => undefined))?.close());
  return async () => {
    opening ??= driver.admin({ brokers: neededBrokers(context), clientId: 'millrace-engine-partitions' });
    opening.catch(() => {
      opening = undefined;
    });
    const admin = await opening;
    const topics = await admin.listTopics();
    const found = topics.find((one) => one.topic === topic);
    return { partitions: found?.partitions.length ?? 0, id: await admin.topicId(topic) };
  };
}

async function openSource(
  context: Context,
  driver: BrokerDriver,
  input: TopicInput,
  found: { readonly partitionCount: number; readonly topicId: string | undefined },
  stages: Pick<Stages, 'recordsReady' | 'enter'>,
  shares: MemoryShares | undefined,
) {
  const { settings, log } = context;
  // Half of the share is for the queue (in KiB), half for the fetch in flight. This is a soft
  // limit: each broker has a fetch of its own, and compressed batches grow when they are unpacked.
  // librdkafka refuses a fetch.max.bytes below message.max.bytes, 1,000,000 by default.
  const kilobytes = Math.floor((shares?.fetchBytes ?? 0) / 2048);
  const fetched = shares && {
    'queued.max.messages.kbytes': kilobytes,
    'fetch.max.bytes': Math.max(1_048_576, kilobytes * 1024),
  };
  const consumer = await driver.consumer({
    brokers: neededBrokers(context),
    clientId: 'millrace-engine',
    // Offsets are stored in the checkpoint; nothing is committed.
    group: `millrace-engine-${randomUUID()}`,
    autoOffsetReset: 'error',
    partitionEof: true,
    properties: {
      'enable.auto.commit': false,
      ...fetched,
      // The client can assign a new partition only after its own metadata refresh.
      ...(settings['partition-interval'] === 0
        ? {}
        : { 'topic.metadata.refresh.interval.ms': Math.max(10, settings['partition-interval']) }),
    },
  });
  const parts = {
    ...{ consumer, clock: context.clock, stages, topic: settings.topic, ...found },
    findTopic: topicFinder(context, driver),
    rowCapacity: settings['batch-rows'],
    arenaBytes: settings['batch-bytes'],
    onEvent: (event: BrokerEvent) =>
      log.warn({ event: event.name, message: event.message, partition: event.partition }, 'broker'),
  };
  const source = openEvents(input, settings, stages, (own) => new BrokerSource({ ...parts, input: own }));
  context.onClose(async () => {
    await source.stop();
    await consumer.close();
  });
  return source;
}

/** Progress of a run on the terminal: that of the first window. */
function openProgress(context: Context, { engine, stages, metrics }: OpenWindow) {
  const note = progressNote({
    stages,
    watermark: () => (engine.restored ? engine.watermark() : undefined),
    openKeys: () => metrics.openKeys.value(),
  });
  return context.progress({ what: 'events', unit: 'events', note });
}

/** Adds the parts of a window to the readiness. */
function watchWindow(
  context: Context,
  { name, engine, names: { late, quarantine } }: Pick<OpenWindow, 'name' | 'engine' | 'names'>,
): void {
  const add = (what: string, check: () => boolean): void =>
    context.readiness(name === undefined ? what : `${what} (${name})`, check);
  add('restored', () => engine.restored);
  add('sink', () => engine.sinkReady);
  if (late !== undefined) add('late topic', () => engine.isReady('late'));
  if (quarantine !== undefined) add('quarantine', () => engine.isReady('quarantine'));
}

/** Settings that the first records may decide: format, key and time. */
const INFERRED_MAX = 3;

/** Prints the job file of a run that the first records completed. */
function showInferred(context: Context, definition: InputDefinition): void {
  // A run that names one of the three is no first run over a topic; the log has the rest.
  if (definition.inferred?.length !== INFERRED_MAX) return;
  const job = inferredJob(settingTableOf({ settings: SETTINGS }), context.settings, definition);
  inferred.set(context, job);
  context.print(jobFileText(job), undefined);
}

/** Runs the engine of a window to its end. Returns the summary as text and as a document. */
async function runWindow(context: Context, window: OpenWindow, drain: AbortSignal) {
  const { settings } = context;
  const { engine, job, name, stored } = window;
  const running = engine.run(drain);
  const summary = await (stored === undefined ? running : Promise.race([running, stored.lost]));
  const text = `${name === undefined ? '' : `${name}: `}consumed ${summary.consumed} events: ${summary.accepted} accepted${summary.filtered === 0 ? '' : `, ${summary.filtered} of them filtered`}${summary.duplicates === 0 ? '' : `, ${summary.duplicates} of them duplicates`}, ${summary.droppedLate} dropped late, ${summary.invalid} invalid${summary.empty === 0 ? '' : `; ${summary.empty} records without an element`}; fired ${summary.firedWindows} ${job.window === 'session' ? 'times' : 'windows'}; ${limitedText(summary.limitedBy)}`;
  const { before, ...printed } = summary;
  const hasEnd = settings.bounded || settings['exit-at-end'];
  const demand = (): void => {
    if (hasEnd && !drain.aborted)
      demandValidInput(job.topic, { totals: summary, before, invalid: summary.invalidRecords });
  };
  return { text, document: { ...printed, ...engine.watermark() }, demand };
}

/** Engine options that depend only on flags and memory shares. */
function runOptions({ settings }: Context, shares: MemoryShares | undefined) {
  return {
    ...(shares === undefined ? {} : { sideBytesMax: shares.sideBytes, idBytesMax: shares.idBytes }),
    rowCapacity: batchRows(settings),
    checkpointIntervalMs: settings['checkpoint-interval'],
    emitIntervalMs: settings['emit-interval'],
    checkpointSizes: {
      baseBytesMin: settings['snapshot-after'],
      ...(shares === undefined ? {} : { waitingBytesMax: shares.changelogBytes }),
    },
    idleTimeoutMs: settings['idle-timeout'],
    partitionIntervalMs: settings['partition-interval'],
    stop: settings.bounded
      ? ('bounded' as const)
      : settings['exit-at-end']
        ? ('end' as const)
        : ('never' as const),
  };
}

/** Shape of the results as the checkpoint or the flags have it; undefined: the first records
 *  decide. */
async function knownShape(disk: Parameters<typeof savedJob>[0], job: Job): Promise<ResultShape | undefined> {
  const saved = await savedJob(disk);
  const input = saved === undefined ? undefined : (saved.input ?? BINARY256);
  if (input !== undefined && input.format !== 'undecided')
    return resultShape({ ...job, input: resumedInput(input, job) });
  return hasGivenKey(job.input ?? BINARY256) ? resultShape(job) : undefined;
}

/** Opens what is outside of the engine: the sink, and the table of late events beside it. */
async function openTables(context: Context, job: Job, shape: ResultShape | undefined) {
  const sink = await openSink(context, shape, job);
  return { sink, lateTable: await openLateTable(context, shape) };
}

/** A window of the run, checked by its settings alone. */
interface WindowPlan {
  /** Undefined: the only window, without a name. */
  readonly name: string | undefined;
  /** The context with the settings of this window. */
  readonly context: Context;
  readonly job: Job;
  readonly names: SideNames;
  readonly shares: MemoryShares | undefined;
}

interface OpenWindow extends WindowPlan {
  readonly engine: Engine;
  readonly stored: OpenedStore | undefined;
  readonly stages: Stages;
  readonly metrics: ReturnType<typeof engineMetrics>;
  /** Ends the share of this window in the common read. */
  readonly leave: () => Promise<void>;
}

/** @throws usage, bad_value, bad_setting */
function planOf(context: Context, spec: WindowSpec, windows: number): WindowPlan {
  const { name } = spec;
  const settings = settingsOf(context.settings, spec);
  const log = name === undefined ? context.log : context.log.child({ window: name });
  const own = { ...context, settings, log };
  const job = jobOf(settings);
  const names = sideNames(own, job);
  const shares = memoryOf(own, sideCount(names), job.input?.dedup !== undefined, windows);
  requireValidSink(own, aggregatesIn(job.input ?? {}));
  return { name, context: own, job, names, shares };
}

/** Decides which windows resume in the folder, and writes it down.
 *  @returns the windows; the quarantine is that of one of them, and a function that notes that all
 *  windows have stopped */
async function openSet(root: Disk, plans: readonly WindowPlan[], { log, settings }: Context) {
  const names = plans.flatMap(({ name }) => (name === undefined ? [] : [name]));
  if (names.length === 0) {
    await demandNoSet(root);
    return { windows: plans, started: async () => {}, stopped: async () => {} };
  }
  const hasQuarantine = plans.some(({ names: { quarantine } }) => quarantine !== undefined);
  const { set, removed } = await nextSet(root, { topic: settings.topic, names, hasQuarantine });
  if (removed.length > 0)
    log.warn(
      { removed, folder: root.where },
      'windows of the run before are not continued; their state stays, and they resume if they are given again',
    );
  const windows = plans.map((plan) =>
    plan.name === set.quarantine ? plan : { ...plan, names: { ...plan.names, quarantine: undefined } },
  );
  // A run that cannot start changes nothing.
  const started = (): Promise<void> => writeSet(root, set);
  return { windows, started, stopped: () => writeSet(root, { ...set, isStopped: true }) };
}

/** Opens an empty state, which the run closes. */
function openState(context: Context, job: Job, pieces: PieceStore | undefined) {
  const windows = windowKernels(context, rowFormOf(job));
  const state = stateOf(job, windows, context.settings.shards, pieces);
  context.onClose(() => state.close());
  return state;
}

/** Parts that all windows of a run share. */
interface SharedParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly clusterId: string;
  readonly partitionCount: number;
  readonly topicId: string | undefined;
  readonly source: EventSource;
  readonly input: EventInput;
  /** Present if the windows have names. */
  readonly reader: SharedReader | undefined;
  /** Store of the checkpoints of a window without a name. */
  readonly stored: OpenedStore | undefined;
  readonly chaos: ReturnType<typeof chaosOf>;
  readonly onConsumed: (events: number) => void;
}

/** Opens the state and the store of a window, and its engine. */
async function openWindow(
  plan: WindowPlan & Awaited<ReturnType<typeof openOutside>>,
  { driver, brokers, clusterId, partitionCount, topicId, reader, stored, chaos, ...shared }: SharedParts,
): Promise<OpenWindow> {
  const { name, context, job, names, shares, disk, sink, lateTable, keys } = plan;
  const { settings, log, clock } = context;
  // Create the spill folder only after the broker and the sink were reached.
  const spill = shares && (await openSpill(context, shares, job));
  const { sinks, fired, store } = await openSinks(context, sink, shapeOf(job), shares?.firedStoreBytes);
  const stages = new Stages(clock);
  const metrics = engineMetrics(
    name === undefined ? context.metrics : context.metrics.labelled('window', name),
  );
  const windows = windowKernels(context, rowFormOf(job));
  const watermarks = watermarksOf(job, windows, partitionCount);
  const own = name === undefined ? undefined : reader?.add({ name, watermarks, keys, stages });
  const engine = new Engine({
    ...{
      job,
      clusterId,
      topicId,
      watermarks,
      keys,
      fired,
      disk,
      clock,
      log,
      metrics,
      stages,
    },
    sinks: stored?.guard(sinks) ?? sinks,
    openState: (own, pieces) => openState(context, own, pieces),
    source: own ?? shared.source,
    input: own?.input ?? shared.input,
    ...startOf(parseStart(settings.start), driver, { brokers, topic: job.topic }),
    ...(spill === undefined ? {} : { spill }),
    ...openSides(context, driver, { brokers, job, names }),
    ...keptLateEvents(context, store, lateTable),
    ...runOptions(context, shares),
    onStep: chaos.onStep,
    sleep: (ms) => sleep(clock, ms),
    onConsumed: (events) => {
      shared.onConsumed(events);
      chaos.onConsumed(events);
    },
  });
  return { ...plan, engine, stored, stages, metrics, leave: async () => own?.stop() };
}

/** Opens the folder and the outside of a window, before the broker is reached. */
async function openOutside(plan: WindowPlan, root: Disk) {
  const { name, context, job, shares } = plan;
  const disk = name === undefined ? root : await openDisk(context.settings['state-dir']);
  const tables = await openTables(context, job, await knownShape(disk, job));
  return { ...plan, ...tables, disk, keys: openKeys(context, job, shares) };
}

/** The windows of a run intern keys themselves, each under ids of its own. */
const KEYS_OF_WINDOWS = { open: async (): Promise<void> => {}, intern: (): void => {} };

const openAdmin = (context: Context, driver: BrokerDriver): Promise<BrokerAdmin> =>
  driver.admin({ brokers: neededBrokers(context), clientId: 'millrace-engine-admin' });

/** Opens the reader of all windows of a run. */
async function openReader(
  context: Context,
  plans: readonly (WindowPlan & { readonly keys: KeyDictionary })[],
  driver: BrokerDriver,
  drain: AbortSignal,
) {
  const { log, settings } = context;
  const [first] = plans;
  invariant(first !== undefined, 'a run has a window');
  const { name, job, shares, keys } = first;
  const brokers = neededBrokers(context);
  const group = groupName(context);
  const owner = name === undefined ? keys : KEYS_OF_WINDOWS;
  const input = await openInput({ ...context, drain }, job, kernels(context), owner, (definition) =>
    showInferred(context, definition),
  );
  const admin = await openAdmin(context, driver);
  const clusterId = await admin.clusterId();
  const lateNames = plans.map(({ names }) => names.late);
  const found = await openTopics(context, admin, { topic: settings.topic, lateNames });
  const { partitionCount, topicId } = found;
  log.info(
    { topic: settings.topic, id: topicId, partitions: partitionCount, cluster: clusterId },
    'topic found',
  );
  const stages: { of: SharedReader['stages'] } = { of: { recordsReady: () => {}, enter: () => {} } };
  const timed: SharedReader['stages'] = {
    recordsReady: (askedMs, readyMs) => stages.of.recordsReady(askedMs, readyMs),
    enter: (stage) => stages.of.enter(stage),
  };
  const topicSource = await openSource(context, driver, input, found, timed, shares);
  const { source, lease } =
    group === undefined
      ? { source: topicSource, lease: undefined }
      : leased(context, driver, { brokers, group, source: topicSource });
  log.info({ consumer: driver.name }, 'consumer open');
  const reader = name === undefined ? undefined : new SharedReader({ source, input, drain });
  if (reader !== undefined) stages.of = reader.stages;
  return { brokers, clusterId, partitionCount, topicId, source, input, lease, reader, stages };
}

async function runEngine(context: Context): Promise<number> {
  const specs = windowSpecs(context.settings);
  demandMovable(context.settings, specs);
  const chaos = chaosOf(context.settings.chaos);
  parseStart(context.settings.start);
  neededBrokers(context);
  groupName(context);
  const plans = specs.map((spec) => planOf(context, spec, specs.length));
  const root = await openStateDir(context);
  const stored = root && (await openCheckpointStore(context, root));
  if (root === undefined || stored === 'stopped') {
    context.print('stopped while another engine had the job', { consumed: 0 });
    return EXIT.done;
  }
  const driver = await brokerDriver(context);
  const [plan] = plans;
  if (plan?.name === undefined && plan !== undefined)
    await beginWithSavepoint(context, {
      ...{ disk: root, job: plan.job },
      openAdmin: () => openAdmin(context, driver),
    });
  const set = await openSet(root, plans, context);
  const outside = [];
  for (const one of set.windows) outside.push(await openOutside(one, root));
  const failure = new AbortController();
  const drain = AbortSignal.any([context.drain, failure.signal]);
  const shared = { driver, stored, ...(await openReader(context, outside, driver, drain)) };
  const { lease, reader, input, stages } = shared;
  const windows: OpenWindow[] = [];
  let consumed = 0;
  const onConsumed = (events: number): void => {
    consumed = Math.max(consumed, events);
    progress.set(consumed);
  };
  for (const one of outside) windows.push(await openWindow(one, { ...shared, chaos, onConsumed }));
  const first = windows[0] as OpenWindow;
  if (reader === undefined) stages.of = first.stages;
  const progress = openProgress(context, first);
  engines.set(context, new Map(windows.map(({ name = '', engine }) => [name, engine])));
  if (first.name === undefined) await serveSavepoints(context, root, first.engine);
  context.readiness('registry', () => input.isReady);
  if (lease !== undefined) context.readiness('group', () => lease.isWhole);
  for (const window of windows) {
    watchWindow(context, window);
    await window.engine.restore();
  }
  await set.started();
  lease?.start();
  await stored?.serve(first.engine);
  context.setReady();
  const ended = await runAll(windows, failure, (window) => runWindow(context, window, drain));
  progress.done();
  if (reader?.isTogether !== false) await set.stopped();
  printSummary(context, windows, ended);
  for (const { demand } of ended) demand();
  return EXIT.done;
}

/** Prints the summaries: of one window without a name, or by the names of several. */
function printSummary(
  context: Context,
  windows: readonly OpenWindow[],
  ended: readonly { readonly text: string; readonly document: object }[],
): void {
  const job = inferred.get(context);
  const documents = ended.map(({ document }, at) => [windows[at]?.name, document] as const);
  const document =
    windows[0]?.name === undefined ? documents[0]?.[1] : { windows: Object.fromEntries(documents) };
  context.print(ended.map(({ text }) => text).join('\n'), {
    ...document,
    ...(job === undefined ? {} : { job: job.settings }),
  });
}

export const command = defineCommand({
  name: 'engine',
  summary: 'Compute exact event-time windows over a topic; also: export, savepoint, validate, verify',
  description: `
Reads every partition of -topic from where the changelog in -state-dir ends, or at first from -start, and upserts the
result of each window into the sink once the watermark has passed its end by the lateness. GET /windows/{key}
answers fired windows, with open=true the others too, GET /windows those of all keys, with top=10 the greatest, both
as CSV or as events of the windows that fire if Accept asks for it. GET /late answers the late events, GET /watermark
how far event time has come. With -auth-rules all need the right to read the resource windows,
and savepoints the right to admin it.

engine savepoint writes the state of a job into a folder: of a running engine (-url), or of a stopped one (-state-dir).
A run with -savepoint begins there, on another machine too, with results that continue where the savepoint ends.

With -checkpoint-store the checkpoints are also stored in a folder or in S3, where the job continues when its machine
is lost; with -standby an engine waits there and takes over. A lease with an epoch keeps two engines from one job.

engine verify recomputes the windows from the topic with an oracle of its own, and compares them with the sink. It ends
with 1 if they differ, and prints the first 20 differences.

A job file (-job) holds the flags of a run in YAML. A run without -format, -key and -time prints the job file that it
inferred from the first records; engine validate checks a job file and prints each mistake with file, line and column.

engine submit runs the job on Apache Flink as Flink SQL, and follows it there: status, savepoint-and-stop, cancel, logs.

  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m
  millrace engine export > results.csv
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m -sink=postgres:postgres://me@127.0.0.1/shop -migrate
  millrace engine -brokers=127.0.0.1:9092 -topic=orders -key=country -size=1h -sink=parquet:/data/orders -migrate
  millrace engine -brokers=127.0.0.1:9092 -topic=events -window=sliding -size=5m -slide=1m
  millrace engine -brokers=127.0.0.1:9092 -topic=events -window=session -gap=30s
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1h -mem-budget=512MiB
  millrace engine savepoint -url=http://127.0.0.1:8083 -out=/backup/orders-1
  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m -state-dir=/data/new -savepoint=/backup/orders-1
  millrace engine -job=job.yaml -checkpoint-store=s3://backups/orders -standby
  millrace engine verify -job=job.yaml -verify-from=2026-01-31T00:00:00Z -verify-to=2026-02-01T00:00:00Z
  millrace engine submit -flink=http://flink:8083 -job=job.yaml -flink-table=results_flink -migrate
  millrace engine validate -job=job.yaml && millrace engine -job=job.yaml
`,
  settings: SETTINGS,
  positionalMax: 2,
  positionalHelp: '[export|savepoint|submit|validate|verify]',
  file: { flag: 'job', isRead: ([action]) => action !== 'validate', read: readJob },
  serves: ([action]) => action === undefined,
  // A token may be long.
  httpNeeds: ({ settings }) => (settings['auth-jwks'] === undefined ? [] : ['long_heads']),
  routes: (context) => {
    const gate = engineGate(context);
    const timers = context.clock;
    return engineRoutes((window) => engineOf(engines.get(context) ?? NO_ENGINES, window), packageVersion(), {
      timers,
      savepoints: () => {
        demandOneState(engines.get(context)?.keys() ?? []);
        return savepointsOf(context);
      },
      ...(gate === undefined ? {} : { gate }),
    });
  },
  async run(context) {
    const [action, more] = context.positional;
    if (action === 'submit') return submitJob(context);
    if (more !== undefined)
      throw coreError('usage', `engine ${action} has no ${more}`, { next: 'see -help' });
    if (action === 'export') return exportSink({ ...context, settings: exportSettings(context.settings) });
    if (action === 'savepoint') return saveState(context);
    if (action === 'verify')
      return context.settings.against === undefined
        ? verifyResults({ ...context, settings: verifySettings(context.settings) })
        : verifyAgainstFlink(context);
    if (action === 'validate') return validateJob(context, settingTableOf({ settings: SETTINGS }));
    if (action !== undefined) {
      throw coreError(
        'usage',
        `engine accepts only the arguments export, savepoint, submit, validate and verify, not ${JSON.stringify(action)}`,
        {
          next: 'see -help',
        },
      );
    }
    for (const [flag, other] of ACTION_FLAGS) {
      if (!context.isFlag(flag)) continue;
      throw coreError('usage', `-${flag} changes nothing without ${other}`, {
        next: `leave -${flag} out, or run engine ${other}`,
      });
    }
    return runEngine(context);
  },
});
