/** Hours of a load on the real engine: a source that keeps to its own schedule, a broker whose log
 *  is cut behind the checkpoints, and an engine whose state does not fit into its budget. It may be
 *  killed once in between.
 */
import { readdirSync, readFileSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../src/gen/event-options.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { type Child, until, type World } from '../effects/world.ts';
import { EngineRuns, metricIn, type Scrape, scrape } from './engine-run.ts';
import { PARTITIONS, startSource } from './events-topic.ts';
import { FIRST_EVENT_MS_MAX, hasRead, SOURCE_ROWS } from './latencies.ts';
import type { RecountRules } from './recount.ts';
import { Course, type Look } from './soak-course.ts';
import { deleteRecords, oldestOffsets } from './trim.ts';

const SLICE_MS = 300_000;
const SLICES_MIN = 3;
/** What is left to read when the source has ended. */
const REST_MS_MAX = 600_000;
/** Below this the disk would fill before anybody looks. */
const FREE_BYTES_MIN = 3 * 1024 ** 3;
/** An end that took too long would cost the whole run. */
const DRAIN = '-drain-timeout=5m';
const SEGMENT_BYTES = 64 * 1024 ** 2;

export interface SoakPlan {
  readonly rate: number;
  readonly durationMs: number;
  /** The engine is killed so long after the start. */
  readonly killAfterMs: number | undefined;
  readonly accounts: number;
  readonly rules: RecountRules;
  /** Of the engine, beside those of the rules. */
  readonly flags: readonly string[];
  readonly lookMs: number;
  readonly trimMs: number;
}

/** What the engine says at its end. */
export interface Summary {
  readonly consumed: number;
  readonly accepted: number;
  readonly droppedLate: number;
  readonly invalid: number;
}

export interface Soaked {
  readonly course: Course;
  readonly stream: EventOptions;
  readonly produced: number;
  readonly summary: Summary;
  /** Seconds of CPU by process: engine, source, broker. */
  readonly cpu: ReadonlyMap<string, number>;
  readonly seconds: number;
  /** Of the restart; undefined where nobody was killed. */
  readonly recoverySeconds: number | undefined;
  /** The store of fired windows. */
  readonly sink: string;
}

function residentBytes(pid: number): number {
  try {
    const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kilobytes ?? Number.NaN) * 1024;
  } catch {
    return Number.NaN;
  }
}

/** Bytes of the files of a folder that the pattern names; a file that goes meanwhile counts
 *  nothing. */
function bytesIn(folder: string, names: RegExp): number {
  let bytes = 0;
  for (const name of readdirSync(folder)) {
    if (!names.test(name)) continue;
    try {
      bytes += statSync(join(folder, name)).size;
    } catch {}
  }
  return bytes;
}

const freeBytes = (folder: string): number => {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
};

export class SoakRun {
  private readonly world: World;
  private readonly plan: SoakPlan;
  private readonly runs: EngineRuns;
  private readonly topic: string;
  private readonly folder: string;
  private readonly free: number;
  private startMs = 0;
  private engineCpu = 0;

  constructor(world: World, plan: SoakPlan) {
    this.world = world;
    this.plan = plan;
    this.runs = new EngineRuns(world);
    this.topic = world.topic();
    this.folder = this.runs.folder();
    this.free = freeBytes(world.dir);
  }

  private get flags(): readonly string[] {
    const { sizeMs, skewMs, latenessMs } = this.plan.rules;
    return [
      '-window=tumbling',
      `-size=${sizeMs}ms`,
      `-allowed-skew=${skewMs}ms`,
      `-allowed-lateness=${latenessMs}ms`,
      // What counts depends on the stream alone: a partition that is slow for a while is waited
      // for.
      '-idle-timeout=0',
      DRAIN,
      ...this.plan.flags,
    ];
  }

  /** Event time passes as the clock does, from the begin of a window on. */
  private stream(): EventOptions {
    const { rate, accounts, rules } = this.plan;
    return {
      ...DEFAULT_EVENTS,
      count: Number.POSITIVE_INFINITY,
      accounts,
      perMs: rate / 1000,
      order: 'delayed',
      baseMs: Math.floor(Date.now() / rules.sizeMs) * rules.sizeMs,
    };
  }

  async run(): Promise<Soaked> {
    const { world, plan, topic } = this;
    await this.createTopic();
    let engine = await this.startEngine();
    const stream = this.stream();
    const { accounts, zipf, perMs } = stream;
    const source = await startSource(world, topic, { accounts, zipf, perMs }, plan.rate, [
      '-order=delayed',
      `-base=${stream.baseMs}`,
      DRAIN,
      '-json',
    ]);
    // What passes until then says nothing of the rate.
    await until('the first event', FIRST_EVENT_MS_MAX, async () => {
      world.context.drain.throwIfAborted();
      return metricIn(await this.scraped(engine), 'engine_events_total') > 0;
    });
    const meter = world.meter([source]);
    this.startMs = performance.now();
    const slices = Math.max(SLICES_MIN, Math.round(plan.durationMs / SLICE_MS));
    let begin = await this.look(engine, source, false);
    const course = new Course(begin, plan.durationMs, slices);
    let killAt = plan.killAfterMs ?? Number.POSITIVE_INFINITY;
    let trimAt = plan.trimMs;
    let recoverySeconds: number | undefined;
    // An engine that stood still since it began, or since it came back, has nothing to tell yet:
    // neither its kill nor the end comes before it has read.
    let reads = false;
    for (let tick = 1; this.at < plan.durationMs || !reads; tick++) {
      const { at } = this;
      if (at > Math.max(plan.durationMs, begin.at) + FIRST_EVENT_MS_MAX)
        throw coreError('timeout', 'the engine reads nothing', { next: `see ${engine.process.logPath}` });
      const due = Math.min(tick * plan.lookMs, plan.durationMs);
      await sleep(at < plan.durationMs ? Math.max(0, due - at) : plan.lookMs);
      world.context.drain.throwIfAborted();
      const now = await this.look(engine, source, false);
      reads ||= hasRead(begin.engine, now.engine);
      const over = course.add(now);
      if (over !== undefined) world.context.say(`by ${Math.round(this.at / 1000)} s: ${over.text}`);
      if (reads && this.at >= killAt) {
        killAt = Number.POSITIVE_INFINITY;
        engine = await this.killAndStart(engine);
        begin = await this.look(engine, source, true);
        reads = false;
        recoverySeconds = metricIn(begin.engine, 'engine_recovery_seconds');
        course.add(begin);
      }
      if (this.at >= trimAt) {
        trimAt = this.at + plan.trimMs;
        await this.trim();
      }
    }
    const seconds = this.at / 1000;
    const cpu = new Map(['gen', 'broker'].map((name) => [name, meter.seconds(name)]));
    cpu.set('engine', this.engineCpu + cpuSeconds(engine.process.pid));
    await this.end(source);
    const { rows: produced } = JSON.parse(source.process.stdout()) as { rows: number };
    const rest = this.at;
    await until('the end of the topic', REST_MS_MAX, async () => {
      world.context.drain.throwIfAborted();
      return metricIn(await this.scraped(engine), 'engine_events_total') >= produced;
    });
    world.context.say(`the rest was read in ${((this.at - rest) / 1000).toFixed(1)} s; firing what is open`);
    await this.end(engine);
    const args = this.runs.flags(topic, this.folder, [...this.flags, '-bounded', '-json']);
    const summary = JSON.parse(await world.run('engine', args)) as Summary;
    const sink = join(this.folder, 'fired');
    return { course, stream, produced, summary, cpu, seconds, recoverySeconds, sink };
  }

  private get at(): number {
    return performance.now() - this.startMs;
  }

  private startEngine(): Promise<Child> {
    return this.runs.start(this.topic, this.folder, this.flags);
  }

  private async createTopic(): Promise<void> {
    const admin = await nodeRdkafkaDriver.admin({ brokers: this.world.brokers, clientId: 'bench' });
    try {
      // A segment can be removed when it is behind the cut and is not the newest.
      const config = {
        'retention.ms': '-1',
        'segment.bytes': String(SEGMENT_BYTES),
        'file.delete.delay.ms': '1000',
      };
      await admin.createTopics([{ topic: this.topic, partitions: PARTITIONS, config }]);
    } finally {
      await admin.close();
    }
  }

  /** What is not deleted this time is next time. */
  private async trim(): Promise<void> {
    const offsets = oldestOffsets(this.folder);
    if (offsets === undefined) return;
    await deleteRecords(this.world.brokers, this.topic, offsets).catch((thrown: Error) =>
      this.world.context.say(thrown.message),
    );
  }

  /** @throws unreachable when it ends with an error */
  private async end({ name, process }: Child): Promise<void> {
    process.kill('SIGTERM');
    const { code, signal } = await process.ended;
    if (code !== 0)
      throw coreError('unreachable', `${name} ended with ${signal ?? code}`, {
        next: `see ${process.logPath}`,
      });
  }

  private async killAndStart(engine: Child): Promise<Child> {
    this.world.context.say(`killing the engine after ${Math.round(this.at / 1000)} s`);
    this.engineCpu += cpuSeconds(engine.process.pid);
    engine.process.kill('SIGKILL');
    await engine.process.ended;
    return this.startEngine();
  }

  /** @throws unreachable with the log of a process that does not answer */
  private async scraped(child: Child): Promise<Scrape> {
    try {
      return await scrape(child);
    } catch (cause) {
      throw coreError('unreachable', `${child.name} does not answer`, {
        next: `see ${child.process.logPath}`,
        cause,
      });
    }
  }

  private async look(engine: Child, source: Child, isFresh: boolean): Promise<Look> {
    const { folder, world } = this;
    const sent = metricIn(await this.scraped(source), SOURCE_ROWS);
    const read = await this.scraped(engine);
    const free = freeBytes(world.dir);
    if (!world.context.smoke && free < FREE_BYTES_MIN) {
      throw coreError('out_of_range', `the disk has ${free} bytes left`, {
        next: `make room, or give a lower -rate; ${FREE_BYTES_MIN} are not touched`,
      });
    }
    const shown = {
      rss: residentBytes(engine.process.pid),
      disk: this.free - free,
      changelog: bytesIn(folder, /^changelog-/),
      manifests: bytesIn(folder, /^checkpoint-/),
    };
    return { at: this.at, engine: read, isFresh, sent, shown };
  }
}
