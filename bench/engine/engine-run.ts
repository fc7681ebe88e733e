/** Runs the real engine over a topic and observes it from outside: its metrics, and its CPU time
 *  and memory from /proc. */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError, invariant } from '../../src/core/errors.ts';
import { FIRED_FAMILIES, readFired } from '../../src/engine/output/fired/store.ts';
import type { WindowResult } from '../../src/engine/window/accumulator.ts';
import { kvDriver } from '../../src/shell/drivers.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { type Child, until, type World } from '../effects/world.ts';
import type { BenchContext } from '../harness.ts';
import type { EventsTopic } from './events-topic.ts';

/** Sampling interval; a scrape costs the engine about 3 ms of CPU. */
const SAMPLE_MS = 500;
const SAMPLE_MS_SMOKE = 10;
const LEFT_SAMPLE_MS = 100;
const DRAIN_MS_MAX = 600_000;
const RESTART_MS_MAX = 120_000;
/** Wait until the gauges of the state, which refresh once a second, are current. */
const GAUGES_MS = 1500;
const STORE_BUDGET_BYTES = 64 * 1024 * 1024;

/** Values of /metrics by the text of their line without the value. */
export type Scrape = ReadonlyMap<string, number>;

export async function scrape(child: Pick<Child, 'address'>): Promise<Scrape> {
  const text = await (await fetch(`http://${child.address}/metrics`)).text();
  const values = new Map<string, number>();
  for (const line of text.split('\n')) {
    const at = line.lastIndexOf(' ');
    if (line !== '' && !line.startsWith('#')) values.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return values;
}

/** @throws bad_file if the process does not export the metric */
export function metricIn(from: Scrape, name: string): number {
  const value = from.get(name);
  if (value === undefined) throw coreError('bad_file', `the process has no metric ${name}`);
  return value;
}

/** Digest of the results; equal for all sides that fold the same events into the same windows. */
export interface ResultsDigest {
  readonly rows: string;
  readonly count: string;
  /** Sum finish all rows of sum * (account_id + window_start), modulo 2^64. */
  readonly sum: string;
}

export interface Drained {
  readonly perSecond: number;
  /** CPU time of all threads per event, in µs. */
  readonly cpuUs: number;
  /** Metrics after the last event. */
  readonly end: Scrape;
  readonly peakBytes: number;
  readonly digest: ResultsDigest | undefined;
  /** Time of the restore after the restart, if one was requested. */
  readonly restoreSeconds: number | undefined;
}

interface Sample {
  readonly at: number;
  readonly events: number;
  readonly cpu: number;
}

interface DrainOptions {
  /** Flags besides topic and folder. */
  readonly flags: readonly string[];
  /** Fires open windows at the end and reads every result. */
  readonly digest?: boolean;
  /** Waits until the gauges of the state are current. */
  readonly gauges?: boolean;
  /** Kills the engine after the last event and restarts it; the restarted engine must restore this
   *  number of keys. Excludes `answer`. */
  readonly restart?: number;
  /** Waits after the last event until this number of results is durable, or all; the rate is
   *  measured up to that point. */
  readonly results?: number | 'all';
  /** Called when the engine begins to read; the returned function is called when everything is
   *  read. */
  readonly concurrently?: (pid: number) => () => Promise<void>;
}

/** Peak resident set size of a process. */
function peakBytesOf(pid: number): number {
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kilobytes ?? Number.NaN) * 1024;
}

/** Account of a result; a key that is a text has its hexadecimal digits. */
export const accountOf = ({ accountId, key }: WindowResult): bigint =>
  key === undefined ? accountId : BigInt(`0x${Buffer.from(key).toString('latin1')}`);

async function digestIn(context: BenchContext, folder: string): Promise<ResultsDigest> {
  const options = { budgetBytes: STORE_BUDGET_BYTES, families: FIRED_FAMILIES, missing: 'refuse' } as const;
  const store = await (await kvDriver(context)).open(folder, options);
  let rows = 0;
  let count = 0n;
  let sum = 0n;
  try {
    for await (const page of readFired(store)) {
      for (const row of page) {
        count += row.count;
        sum = BigInt.asUintN(64, sum + row.sum * (accountOf(row) + BigInt(row.windowStart)));
      }
      rows += page.length;
    }
  } finally {
    await store.close();
  }
  return { rows: `${rows}`, count: `${count}`, sum: `${sum}` };
}

export class EngineRuns {
  private readonly world: World;
  private count = 0;

  constructor(world: World) {
    this.world = world;
  }

  /** A new folder. */
  folder(): string {
    return join(this.world.dir, `engine-${this.count++}`);
  }

  flags(topic: string, folder: string, more: readonly string[]): readonly string[] {
    const { brokers } = this.world;
    return ['engine', `-brokers=${brokers}`, `-topic=${topic}`, `-state-dir=${folder}`, ...more];
  }

  start(topic: string, folder: string, more: readonly string[]): Promise<Child> {
    return this.world.start('engine', [...this.flags(topic, folder, more), '-listen=127.0.0.1:0']);
  }

  /** Reads a filled topic to its end. */
  async drain(topic: EventsTopic, options: DrainOptions): Promise<Drained> {
    const { context } = this.world;
    const folder = this.folder();
    const start = { at: performance.now(), events: 0, cpu: 0 };
    const child = await this.start(topic.name, folder, options.flags);
    try {
      const finish = options.concurrently?.(child.process.pid);
      const samples = [start, ...(await this.samples(child, topic.events))];
      const last =
        options.results === undefined ? undefined : await this.untilWritten(child, options.results);
      await finish?.();
      if (options.gauges === true) await sleep(GAUGES_MS);
      const end = await scrape(child);
      const peakBytes = peakBytesOf(child.process.pid);
      invariant(metricIn(end, 'dropped_late') === 0, 'no event may be late in the true order');
      invariant(metricIn(end, 'engine_invalid_events_total') === 0, 'every event must be read');
      const restoreSeconds =
        options.restart === undefined
          ? undefined
          : await this.restart(child, topic.name, folder, options.flags, options.restart);
      if (options.restart === undefined) await child.stop();
      context.drain.throwIfAborted();
      const digest =
        options.digest === true ? await this.digest(topic.name, folder, options.flags) : undefined;
      const speed = last === undefined ? speedOf(samples, topic.events) : speedBetween(start, last);
      return { ...speed, end, peakBytes, digest, restoreSeconds };
    } finally {
      child.process.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** @returns the seconds that the next run took to restore the state of this run */
  private async restart(
    child: Child,
    topic: string,
    folder: string,
    flags: readonly string[],
    keys: number,
  ): Promise<number> {
    child.process.kill('SIGKILL');
    await child.process.ended;
    const restarted = await this.start(topic, folder, flags);
    try {
      await until(
        `${keys} keys`,
        RESTART_MS_MAX,
        async () => metricIn(await scrape(restarted), 'engine_open_keys') >= keys,
      );
      return metricIn(await scrape(restarted), 'engine_recovery_seconds');
    } finally {
      restarted.process.kill('SIGKILL');
      await restarted.process.ended;
    }
  }

  private async samples(child: Child, events: number): Promise<readonly Sample[]> {
    const { context } = this.world;
    const samples: Sample[] = [];
    const deadline = performance.now() + DRAIN_MS_MAX;
    let hasExited = false;
    void child.process.ended.then(() => {
      hasExited = true;
    });
    for (;;) {
      if (hasExited) throw coreError('unreachable', `the engine exited; see ${child.process.logPath}`);
      const read = await scrape(child);
      const seen = metricIn(read, 'engine_events_total');
      samples.push({ at: performance.now(), events: seen, cpu: cpuSeconds(child.process.pid) });
      if (seen >= events) return samples;
      context.drain.throwIfAborted();
      if (performance.now() > deadline)
        throw coreError('timeout', `${seen} of ${events} events in ${DRAIN_MS_MAX / 1000} s`);
      await sleep(context.smoke ? SAMPLE_MS_SMOKE : SAMPLE_MS);
    }
  }

  /** The sample at which the last result became durable, after the last event. */
  private async untilWritten(child: Child, results: number | 'all'): Promise<Sample> {
    const deadline = performance.now() + DRAIN_MS_MAX;
    let rows = -1;
    for (let last: Sample | undefined; ; await sleep(LEFT_SAMPLE_MS)) {
      const read = await scrape(child);
      const at = performance.now();
      const found = metricIn(read, 'engine_sink_rows_total');
      if (last === undefined || found > rows) {
        const events = metricIn(read, 'engine_events_total');
        last = { at, events, cpu: cpuSeconds(child.process.pid) };
        rows = found;
      }
      const isQuiet = at - last.at > GAUGES_MS && metricIn(read, 'engine_sink_waiting_rows') === 0;
      if (results === 'all' ? isQuiet : rows >= results) return last;
      this.world.context.drain.throwIfAborted();
      if (at > deadline)
        throw coreError('timeout', `${rows} of ${results} results in ${DRAIN_MS_MAX / 1000} s`);
    }
  }

  /** A second run resumes at the end of the topic and fires open windows. */
  private async digest(topic: string, folder: string, flags: readonly string[]): Promise<ResultsDigest> {
    await this.world.run('engine', this.flags(topic, folder, [...flags, '-bounded']));
    return digestIn(this.world.context, join(folder, 'fired'));
  }
}

/** Speed from a third of the events, when the code is compiled, to the last sample before the end;
 *  of the whole process if the run is too short. */
function speedOf(samples: readonly Sample[], events: number): Pick<Drained, 'perSecond' | 'cpuUs'> {
  let from = samples.find((sample) => sample.events >= events / 3);
  let to = samples.findLast((sample) => sample.events < events);
  if (from === undefined || to === undefined || to.events - from.events < events / 4) {
    from = samples[0] as Sample;
    to = samples.at(-1) as Sample;
  }
  return speedBetween(from, to);
}

function speedBetween(from: Sample, to: Sample): Pick<Drained, 'perSecond' | 'cpuUs'> {
  const events = to.events - from.events;
  return { perSecond: (events / (to.at - from.at)) * 1000, cpuUs: ((to.cpu - from.cpu) / events) * 1e6 };
}
