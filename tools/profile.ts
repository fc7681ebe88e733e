/** Draws where the time of a process goes, under the load of its bench: profiles/NAME.svg by perf.
 *
 *    node dist/tools/profile.js orders [relay-poll] [relay-wal] [payments] [-seconds=20] [-rate=5000] [-rows=1000000]
 *      [-with=perf|v8] [-into=profiles] [-brokers=… -postgres=…]
 *
 *  Only samples on a processor are counted, while the load runs: with perf of all threads of the process and of the kernel,
 *  with v8 of the main thread's JavaScript.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createTopic } from '../bench/effects/arrivals.ts';
import { publishBacklog } from '../bench/effects/backlog.ts';
import { OrdersRun } from '../bench/effects/orders-run.ts';
import { drain } from '../bench/effects/relay-course.ts';
import { ourRelay, type RelaySide } from '../bench/effects/relay-side.ts';
import { metric, openWorld, until, type World } from '../bench/effects/world.ts';
import { type BenchContext, commitOf } from '../bench/harness.ts';
import { packageRoot } from '../src/bin/shell/package.ts';
import { coreError } from '../src/core/errors.ts';
import { silentLogger } from '../src/core/log.ts';
import { Metrics } from '../src/core/metrics.ts';
import {
  type CpuProfile,
  type Folded,
  flameSvg,
  foldCpuProfile,
  foldPerf,
  latestNames,
  sharesOf,
} from './flame.ts';

const SAMPLES_A_SECOND = 499;
const SCRIPT_BYTES_MAX = 1 << 30;
const CATCH_UP_MS_MAX = 600_000;
const WRITTEN_MS_MAX = 60_000;

interface Sizes {
  readonly seconds: number;
  readonly rate: number;
  readonly rows: number;
}

/** Samples of one process from now on. */
interface Recording {
  /** Ends it. */
  stacks(): Promise<Folded>;
}

/** perf: all threads, native frames and the kernel. */
class PerfRecording implements Recording {
  private readonly child: ChildProcess;
  private readonly file: string;
  private readonly pid: number;
  private readonly ended: Promise<void>;

  constructor(world: World, pid: number) {
    this.pid = pid;
    this.file = join(world.dir, `${pid}.perf`);
    const flags = ['record', '-q', '-F', String(SAMPLES_A_SECOND), '-g', '-o', this.file, '-p', String(pid)];
    this.child = spawn('perf', flags, { stdio: ['ignore', 'ignore', 'inherit'] });
    this.ended = new Promise((resolve, reject) => {
      this.child.once('close', () => resolve());
      this.child.once('error', (cause) =>
        reject(
          coreError('unreachable', 'perf does not run', {
            next: 'install linux-perf, or give -with=v8',
            cause,
          }),
        ),
      );
    });
    this.ended.catch(() => {});
  }

  async stacks(): Promise<Folded> {
    this.child.kill('SIGINT');
    await this.ended;
    const map = join('/tmp', `perf-${this.pid}.map`);
    writeFileSync(map, latestNames(readFileSync(map, 'utf8')));
    const text = execFileSync('perf', ['script', '-i', this.file], {
      encoding: 'utf8',
      maxBuffer: SCRIPT_BYTES_MAX,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    rmSync(map, { force: true });
    return foldPerf(text);
  }
}

/** V8's own profiler: the main thread's JavaScript, wherever Node.js runs. */
class V8Recording implements Recording {
  private readonly pid: number;
  private readonly file: string;

  constructor(world: World, pid: number) {
    this.pid = pid;
    this.file = join(world.dir, `${pid}.cpuprofile`);
    process.kill(pid, 'SIGUSR2');
  }

  async stacks(): Promise<Folded> {
    process.kill(this.pid, 'SIGUSR2');
    await until('the profile', WRITTEN_MS_MAX, async () => existsSync(this.file), 50);
    return foldCpuProfile(JSON.parse(readFileSync(this.file, 'utf8')) as CpuProfile);
  }
}

/** perf asks the process itself for the names of its JavaScript; they hold where compiled code neither moves nor makes room
 *  for other code. */
const PERF_OPTIONS = [
  '--perf-basic-prof-only-functions',
  '--interpreted-frames-native-stack',
  "--import=data:text/javascript,import{setFlagsFromString}from'node:v8';setFlagsFromString('--no-compact-code-space');setFlagsFromString('--no-flush-bytecode')",
].join(' ');

/** Begins at the first SIGUSR2, and at the second writes what it has, whole at once, into `dir`. */
function v8Options(dir: string): string {
  const code = `
    import { Session } from 'node:inspector';
    import { renameSync, writeFileSync } from 'node:fs';
    const session = new Session();
    session.connect();
    session.post('Profiler.enable');
    session.post('Profiler.setSamplingInterval', { interval: ${Math.round(1e6 / SAMPLES_A_SECOND)} });
    let runs = false;
    process.on('SIGUSR2', () => {
      if (!runs) session.post('Profiler.start');
      else session.post('Profiler.stop', (error, { profile }) => {
        const path = ${JSON.stringify(dir)} + '/' + process.pid + '.cpuprofile';
        writeFileSync(path + '.part', JSON.stringify(profile));
        renameSync(path + '.part', path);
      });
      runs = !runs;
    });`;
  return `--import=data:text/javascript,${encodeURIComponent(code)}`;
}

/** Where samples come from and pictures go. */
interface Studio {
  readonly into: string;
  record(world: World, pid: number): Recording;
}

async function draw(studio: Studio, recording: Recording, name: string, title: string): Promise<void> {
  const folded = await recording.stacks();
  const samples = [...folded.values()].reduce((sum, count) => sum + count, 0);
  const note = `${samples} samples at ${SAMPLES_A_SECOND} Hz: ${sharesOf(folded)}; commit ${commitOf(packageRoot())}, Node.js ${process.version}`;
  const path = join(studio.into, `${name}.svg`);
  writeFileSync(path, flameSvg(folded, title, note));
  process.stderr.write(`${path}: ${note}\n`);
}

type Profile = (world: World, sizes: Sizes, studio: Studio) => Promise<void>;

const orders: Profile = async (world, { seconds, rate }, studio) => {
  const run = await OrdersRun.start(world);
  await run.send({ rate, seconds: Math.min(5, seconds) });
  const recording = studio.record(world, run.orders.process.pid);
  await run.send({ rate, seconds });
  await draw(studio, recording, 'orders', `millrace orders: POST /orders at ${rate}/s`);
  await run.stop();
};

const relay =
  (mode: 'poll' | 'wal'): Profile =>
  async (world, { rows }, studio) => {
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
        const recording = studio.record(world, running.pids[0] as number);
        return {
          ...running,
          async stop() {
            await draw(
              studio,
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

const payments: Profile = async (world, { rows }, studio) => {
  const database = await world.database();
  const topic = world.topic();
  await createTopic(world.brokers, topic);
  await publishBacklog(world.brokers, topic, rows);
  const place = [
    `-postgres=${database.url}`,
    `-brokers=${world.brokers}`,
    `-topic=${topic}`,
    `-group=${topic}`,
  ];
  const child = await world.start('payments', ['payments', ...place, '-migrate', '-listen=127.0.0.1:0']);
  const recording = studio.record(world, child.process.pid);
  await until(
    'every charge',
    CATCH_UP_MS_MAX,
    async () => ((await metric(child, 'payments_charges_total')) ?? 0) >= rows,
  );
  await draw(studio, recording, 'payments', `millrace payments: a backlog of ${rows} messages`);
  await child.stop();
  await database.drop();
};

const PROFILES: Readonly<Record<string, Profile>> = {
  orders,
  'relay-poll': relay('poll'),
  'relay-wal': relay('wal'),
  payments,
};

/** Draws the profiles of these names, or all. */
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
  const names = positionals.length > 0 ? positionals : Object.keys(PROFILES);
  if (values.with !== 'perf' && values.with !== 'v8')
    throw coreError('usage', `-with=${values.with} is no profiler`, { next: 'choose perf or v8' });
  const stranger = names.find((name) => !Object.hasOwn(PROFILES, name));
  if (stranger !== undefined)
    throw coreError('usage', `there is no profile ${stranger}`, {
      next: `choose of ${Object.keys(PROFILES).join(', ')}`,
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
  const world = await openWorld(context);
  const byPerf = values.with === 'perf';
  const studio: Studio = {
    into: values.into,
    record: (from, pid) => (byPerf ? new PerfRecording(from, pid) : new V8Recording(from, pid)),
  };
  const options = process.env['NODE_OPTIONS'];
  process.env['NODE_OPTIONS'] = byPerf ? PERF_OPTIONS : v8Options(world.dir);
  try {
    for (const name of names) await (PROFILES[name] as Profile)(world, sizes, studio);
  } finally {
    if (options === undefined) delete process.env['NODE_OPTIONS'];
    else process.env['NODE_OPTIONS'] = options;
    await world.close();
    for (const close of closes.reverse()) await close();
  }
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1])
  await profile(process.argv.slice(2));
