/** Runs an engine over a topic and observes its progress, CPU time and memory from outside. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import type { BenchContext } from '../harness.ts';
import type { Drain, Recovery, Task } from './contestant.ts';

/** Time without progress after which an engine counts as stuck. */
const STUCK_MS_MAX = 240_000;
/** Progress is read so often near the kill, and after it. */
const KILL_POLL_MS = 25;
const KILL_SHARE = 0.5;
const WARM_SHARE = 1 / 3;

/** Progress of an engine. Times are of the wall clock, ms; null: not yet, or not reported. */
export interface Progress {
  /** Events read from the topic, those before a restart included. */
  readonly events: number;
  /** Results written by this process. */
  readonly rows: number;
  readonly firstEventAt: number | null;
  readonly firstRowAt: number | null;
  readonly lastRowAt: number | null;
}

export interface RunningEngine {
  readonly pid: number;
  /** Wall clock before the process was started, ms. */
  readonly startedAt: number;
  readonly logPath: string;
  readonly ended: Promise<unknown>;
  progress(): Promise<Progress>;
  kill(): void;
}

export interface Engine<R extends RunningEngine = RunningEngine> {
  /** Time between two readings of the progress. */
  readonly pollMs: number;
  start(task: Task): Promise<R>;
  /** Waits until every result is written, ends the engine, and returns the differences. */
  finish(task: Task, running: R): Promise<readonly string[]>;
}

interface Sample extends Progress {
  readonly at: number;
  readonly cpu: number;
  readonly peakBytes: number;
}

/** Peak resident set size of a process; 0 if it has ended. */
export function peakBytesOf(pid: number): number {
  try {
    const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kilobytes ?? 0) * 1024;
  } catch {
    return 0;
  }
}

async function sampleOf(running: RunningEngine): Promise<Sample> {
  const progress = await running.progress();
  const { pid } = running;
  return { ...progress, at: Date.now(), cpu: cpuSeconds(pid, true), peakBytes: peakBytesOf(pid) };
}

/** Last lines of a log, for an error. */
function tailOfLog(path: string): string {
  const lines = readFileSync(path, 'utf8').trim().split('\n');
  return (lines.find((line) => /exception|error/i.test(line)) ?? lines.at(-1) ?? '').slice(0, 300);
}

/** Reads the progress until the condition holds. @throws unreachable if the process ends; timeout
 *  if it makes no progress */
export async function untilProgress<P extends Progress>(
  context: BenchContext,
  running: RunningEngine,
  read: () => Promise<P>,
  holds: (now: P) => boolean,
  everyMs: number,
): Promise<P> {
  let hasEnded = false;
  void running.ended.then(() => {
    hasEnded = true;
  });
  let [seen, movedAt] = ['', performance.now()];
  for (;;) {
    context.drain.throwIfAborted();
    if (hasEnded)
      throw coreError('unreachable', `the process ended: ${tailOfLog(running.logPath)}`, {
        next: `see ${running.logPath}`,
      });
    const now = await read();
    if (holds(now)) return now;
    const state = `${now.events} ${now.rows}`;
    if (state !== seen) [seen, movedAt] = [state, performance.now()];
    if (performance.now() - movedAt > STUCK_MS_MAX)
      throw coreError('timeout', `no progress after ${now.events} events and ${now.rows} results`, {
        next: `see ${running.logPath}`,
      });
    await sleep(everyMs);
  }
}

function drainOf(startedAt: number, samples: readonly Sample[], events: number): Omit<Drain, 'problems'> {
  const last = samples.at(-1) as Sample;
  const firstAt = (time: (one: Sample) => number | null, count: (one: Sample) => number): number | null => {
    const found = samples.find((one) => count(one) > 0);
    return found === undefined ? null : (time(last) ?? found.at);
  };
  const firstEventAt = firstAt(
    (one) => one.firstEventAt,
    (one) => one.events,
  );
  const firstRowAt = firstAt(
    (one) => one.firstRowAt,
    (one) => one.rows,
  );
  const since = (at: number | null): number | null => (at === null ? null : at - startedAt);
  const warm = samples.find((one) => one.events >= events * WARM_SHARE && one.events < events);
  const from = warm ?? { events: 0, cpu: 0 };
  const ms = (last.lastRowAt ?? last.at) - (firstEventAt ?? startedAt);
  return {
    rate: (events / Math.max(1, ms)) * 1000,
    cpuUs: ((last.cpu - from.cpu) / (events - from.events)) * 1e6,
    cpuAllUs: (last.cpu / events) * 1e6,
    peakBytes: Math.max(...samples.map((one) => one.peakBytes)),
    firstEventMs: since(firstEventAt),
    firstResultMs: since(firstRowAt),
  };
}

/** Drains the topic. */
export async function drainEngine<R extends RunningEngine>(
  context: BenchContext,
  engine: Engine<R>,
  task: Task,
): Promise<Drain> {
  const running = await engine.start(task);
  try {
    const samples: Sample[] = [];
    const read = async (): Promise<Sample> => {
      const now = await sampleOf(running);
      samples.push(now);
      return now;
    };
    await untilProgress(context, running, read, ({ rows }) => rows >= task.expected.rows, engine.pollMs);
    const measured = drainOf(running.startedAt, samples, task.events);
    return { ...measured, problems: await engine.finish(task, running) };
  } finally {
    running.kill();
    await running.ended;
  }
}

/** Kills the engine at half of the events and starts it again. */
export async function recoverEngine<R extends RunningEngine>(
  context: BenchContext,
  engine: Engine<R>,
  task: Task,
): Promise<Recovery> {
  const first = await engine.start(task);
  let killed: Progress;
  let killedAt: number;
  try {
    const half = task.events * KILL_SHARE;
    killed = await untilProgress(
      context,
      first,
      () => first.progress(),
      (now) => now.events >= half,
      KILL_POLL_MS,
    );
    killedAt = Date.now();
  } finally {
    first.kill();
    await first.ended;
  }
  const next = await engine.start(task);
  try {
    await untilProgress(
      context,
      next,
      () => next.progress(),
      ({ events }) => events >= killed.events,
      KILL_POLL_MS,
    );
    const recoveryMs = Date.now() - killedAt;
    const problems = await engine.finish(task, next);
    return { share: killed.events / task.events, recoveryMs, problems };
  } finally {
    next.kill();
    await next.ended;
  }
}
