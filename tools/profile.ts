/** Records CPU profiles of processes under their benchmark load, as files for speedscope.
 *
 *    node dist/tools/profile.js orders [relay-poll] [relay-wal] [payments] [engine-ingest]
 *      [engine-checkpoint] [engine-firing] [engine-spill] [serde-decode] [serde-encode]
 *      [-seconds=20] [-rate=5000] [-rows=1000000]
 *      [-with=perf|v8] [-into=profiles] [-brokers=… -postgres=…]
 *
 *  perf samples all threads of the process and the kernel, v8 the JavaScript of the main thread;
 *  both only during the load. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createTopic } from '../bench/effects/arrivals.ts';
import { publishBacklog } from '../bench/effects/backlog.ts';
import { OrdersRun } from '../bench/effects/orders-run.ts';
import { drain } from '../bench/effects/relay-course.ts';
import { ourRelay, type RelaySide } from '../bench/effects/relay-side.ts';
import { metric, openWorld, until, type World } from '../bench/effects/world.ts';
import type { BenchContext } from '../bench/harness.ts';
import { coreError } from '../src/core/errors.ts';
import { silentLogger } from '../src/core/log.ts';
import { Metrics } from '../src/core/metrics.ts';
import { packageRoot } from '../src/shell/package.ts';
import { ENGINE_PROFILES } from './profile-engine.ts';
import { type Recorder, recorderOf, save } from './profile-recorder.ts';
import { SERDE_PROFILES } from './profile-serde.ts';

const CATCH_UP_MS_MAX = 600_000;

export interface Sizes {
  readonly seconds: number;
  readonly rate: number;
  readonly rows: number;
}

export type Profile = (world: World, sizes: Sizes, recorder: Recorder) => Promise<void>;

const orders: Profile = async (world, { seconds, rate }, recorder) => {
  const run = await OrdersRun.start(world);
  await run.send({ rate, seconds: Math.min(5, seconds) });
  const recording = recorder.record(run.orders.current().process.pid);
  await run.send({ rate, seconds });
  await save(recorder, recording, 'orders', `millrace orders: POST /orders at ${rate}/s`);
  await run.stop();
};

const relay =
  (mode: 'poll' | 'wal'): Profile =>
  async (world, { rows }, recorder) => {
    const inner = ourRelay(world, mode);
    let prepared = false;
    const side: RelaySide = {
      ...inner,
      async prepare(database, topic) {
        await inner.prepare(database, topic);
        prepared = true;
      },
      async start(database, topic) {
        const running = await inner.start(database, topic);
        if (!prepared) return running;
        const recording = recorder.record(running.pids[0] as number);
        return {
          ...running,
          async stop() {
            await save(
              recorder,
              recording,
              `relay-${mode}`,
              `millrace relay -relay=${mode}: drain of ${rows} rows`,
            );
            await running.stop();
          },
        };
      },
    };
    await drain(world, side, rows);
  };

const payments: Profile = async (world, { rows }, recorder) => {
  const database = await world.database();
  const topic = world.topic();
  await createTopic(world, topic);
  await publishBacklog(world, topic, rows);
  const place = [
    `-postgres=${database.url}`,
    `-brokers=${world.brokers}`,
    `-topic=${topic}`,
    `-group=${topic}`,
  ];
  const child = await world.start('payments', ['payments', ...place, '-migrate', '-listen=127.0.0.1:0']);
  const recording = recorder.record(child.process.pid);
  await until(
    'every charge',
    CATCH_UP_MS_MAX,
    async () => ((await metric(child, 'payments_charges_total')) ?? 0) >= rows,
  );
  await save(recorder, recording, 'payments', `millrace payments: a backlog of ${rows} messages`);
  await child.stop();
  await database.drop();
};

const PROFILES: Readonly<Record<string, Profile>> = {
  orders,
  'relay-poll': relay('poll'),
  'relay-wal': relay('wal'),
  payments,
  ...ENGINE_PROFILES,
};

/** Records the named profiles, or all. */
export async function profile(args: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: args.map((one) => one.replace(/^-(?=[a-z])/, '--')),
    allowPositionals: true,
    options: {
      seconds: { type: 'string', default: '20' },
      rate: { type: 'string', default: '5000' },
      rows: { type: 'string', default: '1000000' },
      with: { type: 'string', default: 'perf' },
      into: { type: 'string', default: join(packageRoot(), 'profiles') },
      brokers: { type: 'string' },
      postgres: { type: 'string' },
    },
  });
  const known = [...Object.keys(PROFILES), ...Object.keys(SERDE_PROFILES)];
  const names = positionals.length > 0 ? positionals : known;
  if (values.with !== 'perf' && values.with !== 'v8')
    throw coreError('usage', `-with=${values.with} is not a profiler`, { next: 'choose perf or v8' });
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw coreError('usage', `there is no profile ${unknown}`, {
      next: `choose from ${known.join(', ')}`,
    });
  const closes: Array<() => Promise<void> | void> = [];
  const context: BenchContext = {
    smoke: false,
    repeats: 1,
    log: silentLogger,
    metrics: new Metrics(),
    settings: { native: 'auto' },
    brokers: values.brokers,
    postgres: values.postgres,
    drain: new AbortController().signal,
    say: (line) => void process.stderr.write(`${line}\n`),
    onClose: (close) => void closes.push(close),
  };
  const sizes = { seconds: Number(values.seconds), rate: Number(values.rate), rows: Number(values.rows) };
  mkdirSync(values.into, { recursive: true });
  const place = { dir: mkdtempSync(join(tmpdir(), 'millrace-profile-')) };
  closes.push(() => rmSync(place.dir, { recursive: true, force: true }));
  const { recorder, nodeOptions } = recorderOf(values.with, values.into, place);
  const served = names.filter((name) => !Object.hasOwn(SERDE_PROFILES, name));
  try {
    // The environment of bench children is that of the moment when their world opens.
    await withNodeOptions(nodeOptions, async () => {
      for (const name of names) await SERDE_PROFILES[name]?.(sizes, recorder);
      if (served.length > 0) await recordServed(context, served, sizes, recorder);
    });
  } finally {
    for (const close of closes.reverse()) await close();
  }
}

/** Records profiles that need a broker and a database. */
async function recordServed(
  context: BenchContext,
  names: readonly string[],
  sizes: Sizes,
  recorder: Recorder,
): Promise<void> {
  const world = await openWorld(context);
  try {
    for (const name of names) await (PROFILES[name] as Profile)(world, sizes, recorder);
  } finally {
    await world.close();
  }
}

/** Runs `work`, whose child processes get these NODE_OPTIONS. */
async function withNodeOptions(nodeOptions: string, work: () => Promise<void>): Promise<void> {
  const before = process.env['NODE_OPTIONS'];
  process.env['NODE_OPTIONS'] = nodeOptions;
  try {
    await work();
  } finally {
    if (before === undefined) delete process.env['NODE_OPTIONS'];
    else process.env['NODE_OPTIONS'] = before;
  }
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1])
  await profile(process.argv.slice(2));
