/** Where the samples of a profile come from, perf or V8, and how they become a picture. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until, type World } from '../bench/effects/world.ts';
import { coreError } from '../src/core/errors.ts';
import { buildDigest } from '../src/shell/package.ts';
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
const WRITTEN_MS_MAX = 60_000;

/** Samples of one process from now on. */
export interface Recording {
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
export interface Studio {
  readonly into: string;
  record(world: World, pid: number): Recording;
}

/** False, and nothing is drawn, where there are fewer samples than these. */
export async function draw(
  studio: Studio,
  recording: Recording,
  name: string,
  title: string,
  samplesMin = 0,
): Promise<boolean> {
  const folded = await recording.stacks();
  const samples = [...folded.values()].reduce((sum, count) => sum + count, 0);
  if (samples < samplesMin) return false;
  const note = `${samples} samples at ${SAMPLES_A_SECOND} Hz: ${sharesOf(folded)}; build ${buildDigest()}, Node.js ${process.version}`;
  const path = join(studio.into, `${name}.svg`);
  writeFileSync(path, flameSvg(folded, title, note));
  process.stderr.write(`${path}: ${note}\n`);
  return true;
}

/** The studio that draws with this profiler, and what it demands of NODE_OPTIONS of every process in the world. */
export function studioOf(
  by: 'perf' | 'v8',
  into: string,
  world: World,
): { readonly studio: Studio; readonly nodeOptions: string } {
  const record = (from: World, pid: number): Recording =>
    by === 'perf' ? new PerfRecording(from, pid) : new V8Recording(from, pid);
  return { studio: { into, record }, nodeOptions: by === 'perf' ? PERF_OPTIONS : v8Options(world.dir) };
}
