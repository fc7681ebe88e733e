/** Records CPU profiles of running processes with perf or V8 as files for speedscope. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../bench/effects/world.ts';
import { coreError } from '../src/core/errors.ts';
import { buildDigest } from '../src/shell/package.ts';

const SAMPLES_A_SECOND = 499;
const SCRIPT_BYTES_MAX = 1 << 30;
const WRITTEN_MS_MAX = 60_000;

/** Folder for the files of a recording. */
export interface Place {
  readonly dir: string;
}

/** A finished recording. */
interface Samples {
  /** Contents of the file: output of `perf script`, or a .cpuprofile of V8. */
  readonly text: string;
  /** File extension, with its dot. */
  readonly extension: string;
  /** Samples taken while the process ran on a processor. */
  readonly count: number;
}

/** Recording of a process, which runs from its construction on. */
export interface Recording {
  /** Stops the recording. @throws unreachable if perf does not run */
  stop(): Promise<Samples>;
}

/** Keeps the last name of each address: V8 reuses the addresses of discarded code, and perf uses
 *  the first name that it finds. */
function latestNames(map: string): string {
  const byAddress = new Map<string, string>();
  for (const line of map.split('\n')) {
    const address = line.slice(0, line.indexOf(' '));
    byAddress.delete(address);
    byAddress.set(address, line);
  }
  return [...byAddress.values()].join('\n');
}

/** perf: all threads, native frames and the kernel. */
class PerfRecording implements Recording {
  private readonly child: ChildProcess;
  private readonly file: string;
  private readonly pid: number;
  private readonly ended: Promise<void>;

  constructor(place: Place, pid: number) {
    this.pid = pid;
    this.file = join(place.dir, `${pid}.perf`);
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

  async stop(): Promise<Samples> {
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
    // perf separates samples by an empty line.
    return { text, extension: '.perf.txt', count: text.split('\n\n').length - 1 };
  }
}

/** The part of a .cpuprofile that is used here. */
interface CpuProfile {
  readonly nodes: ReadonlyArray<{
    readonly id: number;
    readonly callFrame: { readonly functionName: string };
  }>;
  readonly samples: readonly number[];
}

/** V8's own profiler: JavaScript of the main thread, on any platform of Node.js. */
class V8Recording implements Recording {
  private readonly pid: number;
  private readonly file: string;

  constructor(place: Place, pid: number) {
    this.pid = pid;
    this.file = join(place.dir, `${pid}.cpuprofile`);
    process.kill(pid, 'SIGUSR2');
  }

  async stop(): Promise<Samples> {
    process.kill(this.pid, 'SIGUSR2');
    await until('the profile', WRITTEN_MS_MAX, async () => existsSync(this.file), 50);
    const text = readFileSync(this.file, 'utf8');
    rmSync(this.file);
    const { nodes, samples } = JSON.parse(text) as CpuProfile;
    const idle = nodes.find(({ callFrame }) => callFrame.functionName === '(idle)')?.id;
    return { text, extension: '.cpuprofile', count: samples.filter((id) => id !== idle).length };
  }
}

/** Node options for perf. The process writes the names of its JavaScript functions to a map file.
 *  The names stay valid while compiled code is neither moved nor freed. */
const PERF_OPTIONS = [
  '--perf-basic-prof-only-functions',
  '--interpreted-frames-native-stack',
  "--import=data:text/javascript,import{setFlagsFromString}from'node:v8';setFlagsFromString('--no-compact-code-space');setFlagsFromString('--no-flush-bytecode')",
].join(' ');

/** Node options for V8's profiler: it starts at the first SIGUSR2; at the second it writes the
 *  profile into `dir` and renames it, so that a reader never sees a part of it. */
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

/** The profiler, and the folder of its profiles. */
export interface Recorder {
  readonly into: string;
  record(pid: number): Recording;
}

/** Stops a recording and writes it as `name` into the recorder's folder.
 *  @returns false, with nothing written, if it has fewer samples than `samplesMin` */
export async function save(
  recorder: Recorder,
  recording: Recording,
  name: string,
  title: string,
  samplesMin = 0,
): Promise<boolean> {
  const { text, extension, count } = await recording.stop();
  if (count < samplesMin) return false;
  const path = join(recorder.into, `${name}${extension}`);
  writeFileSync(path, text);
  process.stderr.write(
    `${path}: ${title}; ${count} samples at ${SAMPLES_A_SECOND} Hz, build ${buildDigest()}, Node.js ${process.version}\n`,
  );
  return true;
}

/** Creates a recorder with the given profiler, and the NODE_OPTIONS that every profiled
 *  process needs. */
export function recorderOf(
  by: 'perf' | 'v8',
  into: string,
  place: Place,
): { readonly recorder: Recorder; readonly nodeOptions: string } {
  const record = (pid: number): Recording =>
    by === 'perf' ? new PerfRecording(place, pid) : new V8Recording(place, pid);
  return { recorder: { into, record }, nodeOptions: by === 'perf' ? PERF_OPTIONS : v8Options(place.dir) };
}
