/** `millrace engine`: event-time windows over a topic, and `millrace engine export`: the sink as CSV. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError, EXIT } from '../core/errors.ts';
import { EventBatch } from '../core/layout/event-batch.ts';
import { PartitionWatermarks } from '../core/watermark.ts';
import { engineError } from '../engine/errors.ts';
import {
  BrokerSource,
  CheckpointStore,
  checkJob,
  Engine,
  engineMetrics,
  engineRoutes,
  type Job,
  MemState,
  PostgresSink,
  SINK_TABLE_NAME,
  type WindowSink,
} from '../engine/index.ts';
import type { BrokerAdmin, BrokerDriver } from '../io/broker/port.ts';
import { openDisk } from '../io/disk/node.ts';
import type { Kernels } from '../native/surface.ts';
import { type CommandContext, defineCommand } from './shell/command.ts';
import { brokerDriver, kernels, sqlDriver } from './shell/drivers.ts';

const SETTINGS = {
  brokers: { type: 'string', help: 'host:port of the brokers, with commas between' },
  topic: { type: 'string', default: 'events', help: 'topic of 256-byte events' },
  window: { type: 'string', choices: ['tumbling'], default: 'tumbling', help: 'kind of window' },
  size: { type: 'duration', default: '1m', min: 1, help: 'window size' },
  'allowed-skew': {
    type: 'duration',
    default: '5s',
    help: 'how far the watermark lies behind the greatest event time seen',
  },
  'allowed-lateness': {
    type: 'duration',
    default: '10s',
    help: 'how long a window stays open after the watermark passed its end',
  },
  watermark: {
    type: 'string',
    choices: ['partition'],
    default: 'partition',
    help: 'partition: a watermark each, the least one fires; results do not depend on how partitions interleave',
  },
  state: { type: 'string', choices: ['mem'], default: 'mem', help: 'where open windows are held' },
  'state-dir': {
    type: 'string',
    default: '.millrace/engine',
    help: 'folder of the checkpoints; one engine at a time',
  },
  'checkpoint-interval': { type: 'duration', default: '5s', min: 10, help: 'time between checkpoints' },
  shards: { type: 'int', default: '1', min: 1, max: 256, help: 'parts of the state; a key belongs to one' },
  sink: {
    type: 'string',
    secret: true,
    help: 'where results go: postgres:URL with URL like postgres://user:password@host:port/name',
  },
  'sink-table': { type: 'string', default: 'window_results', help: 'table of the sink' },
  migrate: {
    type: 'bool',
    default: 'false',
    help: 'create the table of the sink where it is missing, then go on',
  },
  'exit-at-end': {
    type: 'bool',
    default: 'false',
    help: 'stop at the offsets that are the end now; what is still open stays in the checkpoint',
  },
  bounded: { type: 'bool', default: 'false', help: 'like -exit-at-end, and fire everything that is open' },
  retain: {
    type: 'duration',
    default: '1h',
    help: 'stretch of event time whose fired windows GET /windows answers',
  },
  'retain-bytes': { type: 'size', default: '256MiB', help: 'memory for them; the oldest go first' },
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic when it is missing' },
  partitions: { type: 'int', default: '8', min: 1, max: 100_000, help: 'partitions of a created topic' },
  'replication-factor': {
    type: 'int',
    default: '0',
    min: 0,
    max: 32_767,
    help: 'copies of a created topic; 0 is three, or as many as there are brokers where they are fewer',
  },
  retention: { type: 'duration', default: '7d', min: 0, help: 'retention of a created topic' },
  'batch-rows': { type: 'int', default: '16384', min: 1, max: 1_048_576, help: 'events taken at once' },
  'batch-bytes': {
    type: 'size',
    default: '8MiB',
    min: 4096,
    max: 1_073_741_824,
    help: 'bytes of records taken at once; a larger record stops the engine',
  },
  chaos: { type: 'string', help: 'kill-after=N: the process kills itself after N events' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

const HEADER = 'account_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow';
/** Keys whose owner is asked for at once. */
const OWNER_ROWS = 65_536;
const CONNECT_TIMEOUT_MS = 5000;

/** Routes are asked for before there is an engine. */
const engines = new WeakMap<object, Engine>();

/** Events after which the process kills itself, as the flag says. */
function killAfter(text: string | undefined): number {
  if (text === undefined) return Number.POSITIVE_INFINITY;
  const match = /^kill-after=(\d{1,15})$/.exec(text);
  if (match === null) {
    throw coreError('bad_value', `-chaos=${text} is not a fault`, {
      next: 'give kill-after=N with N events',
    });
  }
  return Number(match[1]);
}

function needed(context: Context, name: 'brokers' | 'sink'): string {
  const value = context.settings[name];
  if (value === undefined) {
    throw coreError('usage', `-${name} is required`, { next: `give -${name}=… (${SETTINGS[name].help})` });
  }
  return value;
}

async function openSink(context: Context): Promise<WindowSink> {
  const { settings } = context;
  const text = needed(context, 'sink');
  const url = /^(?:postgres:)?(postgres(?:ql)?:\/\/.+)$/s.exec(text)?.[1];
  if (url === undefined) {
    const kind = /^[a-z]{1,20}(?=:)/.exec(text)?.[0] ?? 'this';
    throw coreError('bad_value', `-sink of kind ${kind} is not a choice`, {
      next: 'choose from postgres:URL',
    });
  }
  if (!SINK_TABLE_NAME.test(settings['sink-table'])) {
    throw coreError('bad_value', `-sink-table=${settings['sink-table']} is not a table name`, {
      next: 'use up to 48 small letters, digits and underscores',
    });
  }
  const driver = await sqlDriver(context);
  const pool = await driver.connect({
    url,
    connectionsMax: 2,
    applicationName: 'millrace engine',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  });
  context.onClose(() => pool.close());
  return new PostgresSink(pool, settings['sink-table']);
}

/** Waits for the reader, so that a long export never piles up in memory. */
const writeOut = (text: string): Promise<void> =>
  new Promise((resolve) => process.stdout.write(text, () => resolve()));

async function exportSink(context: Context): Promise<number> {
  if (context.settings.json) {
    throw coreError('usage', 'engine export prints CSV, not one JSON document', { next: 'leave -json out' });
  }
  const sink = await openSink(context);
  await sink.check();
  await writeOut(`${HEADER}\n`);
  for await (const page of sink.read()) {
    const lines = page.map((row) =>
      [
        row.accountId,
        row.windowStart,
        row.windowEnd,
        row.count,
        row.sum,
        row.min,
        row.max,
        row.lastUpdateTs,
        row.overflow,
      ].join(','),
    );
    await writeOut(`${lines.join('\n')}\n`);
  }
  return EXIT.done;
}

/** Partitions of the topic, which is created where that is asked for. */
async function partitionsOf(context: Context, admin: BrokerAdmin): Promise<number> {
  const { settings } = context;
  const { topic } = settings;
  const find = async () => (await admin.listTopics()).find((one) => one.topic === topic);
  let found = await find();
  if (found === undefined && settings['create-topics']) {
    const spec = {
      topic,
      partitions: settings.partitions,
      replicationFactor: settings['replication-factor'],
      config: { 'retention.ms': String(settings.retention) },
    };
    await admin.createTopics([spec]);
    context.log.info(spec, 'topic created');
    for (let tries = 0; found === undefined && tries < 50; tries++) {
      await sleep(100);
      found = await find();
    }
  }
  if (found === undefined) {
    throw engineError('topic_missing', `there is no topic ${topic}`, {
      next: 'create it, or leave -create-topics on',
    });
  }
  return found.partitions.length;
}

/** Owners of any number of keys, by the shard kernel. */
function owners(kernel: Kernels, shards: number): (keys: BigUint64Array) => Int32Array {
  return (keys) => {
    const owner = new Int32Array(keys.length);
    const events = EventBatch.create(Math.max(1, Math.min(keys.length, OWNER_ROWS)));
    for (let at = 0; at < keys.length; at += OWNER_ROWS) {
      const some = keys.subarray(at, at + OWNER_ROWS);
      events.columns.accountId.set(some);
      events.rowCount = some.length;
      kernel.shardOf(events, shards, owner.subarray(at, at + some.length));
    }
    return owner;
  };
}

function jobOf(context: Context): Job {
  const { settings } = context;
  return checkJob({
    topic: settings.topic,
    window: 'tumbling',
    sizeMs: settings.size,
    skewMs: settings['allowed-skew'],
    latenessMs: settings['allowed-lateness'],
    watermark: 'partition',
  });
}

async function openCheckpoints(context: Context): Promise<CheckpointStore> {
  const disk = await openDisk(context.settings['state-dir']);
  const { release, holder } = await disk.lock();
  if (release === undefined) {
    throw engineError('state_locked', `${disk.where} is in use by ${holder}`, {
      next: 'stop that engine, or give another -state-dir',
    });
  }
  context.onClose(release);
  return new CheckpointStore(disk, context.log);
}

async function openSource(context: Context, driver: BrokerDriver, kernel: Kernels, partitionCount: number) {
  const { settings, log } = context;
  const consumer = await driver.consumer({
    brokers: needed(context, 'brokers'),
    clientId: 'millrace-engine',
    // Nothing is committed: the offsets stand in the checkpoint.
    group: `millrace-engine-${randomUUID()}`,
    autoOffsetReset: 'error',
    partitionEof: true,
    properties: { 'enable.auto.commit': false },
  });
  const source = new BrokerSource({
    consumer,
    kernels: kernel,
    clock: context.clock,
    topic: settings.topic,
    partitionCount,
    shards: settings.shards,
    rowCapacity: settings['batch-rows'],
    arenaBytes: settings['batch-bytes'],
    onEvent: (event) =>
      log.warn({ event: event.name, message: event.message, partition: event.partition }, 'broker'),
  });
  context.onClose(async () => {
    await source.stop();
    await consumer.close();
  });
  return source;
}

async function runEngine(context: Context): Promise<number> {
  const { settings, log, clock } = context;
  const job = jobOf(context);
  const killAt = killAfter(settings.chaos);
  const brokers = needed(context, 'brokers');
  needed(context, 'sink');
  const checkpoints = await openCheckpoints(context);
  const sink = await openSink(context);
  if (settings.migrate) await sink.migrate();
  await sink.check();
  const driver = await brokerDriver(context);
  const kernel = await kernels(context);
  const admin = await driver.admin({ brokers, clientId: 'millrace-engine-admin' });
  const clusterId = await admin.clusterId();
  const partitionCount = await partitionsOf(context, admin).finally(() => admin.close());
  log.info({ topic: job.topic, partitions: partitionCount, cluster: clusterId }, 'topic found');
  const source = await openSource(context, driver, kernel, partitionCount);
  log.info({ consumer: driver.name }, 'consumer open');
  const progress = context.progress({ what: 'events', unit: 'events' });
  const engine = new Engine({
    job,
    clusterId,
    source,
    watermarks: new PartitionWatermarks(partitionCount, job.skewMs, job.latenessMs),
    state: new MemState(settings.shards, job.sizeMs),
    shardOf: owners(kernel, settings.shards),
    sink,
    checkpoints,
    retain: { retainMs: settings.retain, bytesMax: settings['retain-bytes'] },
    rowCapacity: settings['batch-rows'],
    checkpointIntervalMs: settings['checkpoint-interval'],
    stop: settings.bounded ? 'bounded' : settings['exit-at-end'] ? 'end' : 'never',
    clock,
    sleep: (ms) => sleep(ms),
    log,
    metrics: engineMetrics(context.metrics),
    onConsumed: (events) => {
      progress.set(events);
      if (events >= killAt) process.kill(process.pid, 'SIGKILL');
    },
  });
  engines.set(context, engine);
  context.readiness('restored', () => engine.restored);
  context.readiness('sink', () => engine.sinkReady);
  await engine.restore();
  context.setReady();
  const summary = await engine.run(context.drain);
  progress.done();
  const text = `consumed ${summary.consumed} events: ${summary.accepted} accepted, ${summary.droppedLate} dropped late, ${summary.invalid} invalid; fired ${summary.firedWindows} windows`;
  context.print(text, { ...summary, ...engine.watermark() });
  return EXIT.done;
}

export const command = defineCommand({
  name: 'engine',
  summary: 'Compute event-time windows over a topic, exact through a crash; export prints the sink as CSV',
  description: `
Reads every partition of -topic from the newest checkpoint in -state-dir, or from its first record, and upserts the
result of each window into the sink once the watermark has passed its end by the lateness. GET /windows/{account_id}
answers fired windows, GET /watermark how far event time has come.

  millrace engine -brokers=127.0.0.1:9092 -topic=events -size=1m -sink=postgres:postgres://me@127.0.0.1/shop -migrate
  millrace engine export -sink=postgres:postgres://me@127.0.0.1/shop
`,
  settings: SETTINGS,
  positionalMax: 1,
  positionalHelp: '[export]',
  routes: (context) => engineRoutes(() => engines.get(context)),
  async run(context) {
    const [action] = context.positional;
    if (action === 'export') return exportSink(context);
    if (action !== undefined) {
      throw coreError('usage', `engine takes export or nothing, not ${JSON.stringify(action)}`, {
        next: 'see -help',
      });
    }
    return runEngine(context);
  },
});
