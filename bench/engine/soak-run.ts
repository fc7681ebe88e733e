/** Hours of load on the real engine: a source that sends on its own schedule, a broker whose log is
 *  trimmed up to the checkpoints, and an engine whose state exceeds its budget. The engine may be
 *  killed during the run. */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../src/gen/event-options.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { type Child, until, type World } from '../effects/world.ts';
import { EngineRuns, metricIn, type Scrape, scrape } from './engine-run.ts';
import { PARTITIONS, startSource } from './events-topic.ts';
import { freeBytes, requireFreeSpace } from './free-space.ts';
import { FIRST_EVENT_MS_MAX, hasRead, SOURCE_ROWS } from './latencies.ts';
import type { RecountRules } from './recount.ts';
import { Course, type Observation } from './soak-course.ts';
import { registryFor, type SoakLayout } from './soak-layout.ts';
import { deleteRecords, oldestOffsets } from './trim.ts';

const SLICE_MS = 300_000;
const SLICES_MIN = 3;
/** Time limit to read the remaining records after the source has ended. */
const REST_MS_MAX = 600_000;
/** Long enough that a slow shutdown does not lose the whole run. */
const DRAIN = '-drain-timeout=5m';
/** Time in which the source collects a batch of each partition: where both cores are full, small
 *  batches cost the broker as much as the engine takes. */
const LINGER = '-broker-property=linger.ms=50';
/** The source has four batches in flight until they are acknowledged, so at 4,096 rows a batch this
 *  linger would limit it to some 150,000 rows a second. */
const BATCH_ROWS = '-batch-rows=16384';
const SEGMENT_BYTES = 64 * 1024 ** 2;

export interface SoakPlan {
  readonly rate: number;
  readonly durationMs: number;
  /** The engine is killed each time this long after its start. */
  readonly killAfterMs: number | undefined;
  readonly layout: SoakLayout;
  readonly accounts: number;
  readonly rules: RecountRules;
  /** Flags of the engine besides those of the rules. */
  readonly flags: readonly string[];
  readonly sampleMs: number;
  readonly trimMs: number;
}

/** Summary that the engine prints at its end. */
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
  /** Seconds of CPU time by process: engine, source, broker. */
  readonly cpu: ReadonlyMap<string, number>;
  readonly seconds: number;
  /** Time of the restore after each kill. */
  readonly recoverySeconds: readonly number[];
  /** Folder of the store of fired windows. */
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

/** Total size of the files in a folder that match the pattern; files deleted meanwhile count as 0.
 */
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

export class SoakRun {
  private readonly world: World;
  private readonly plan: SoakPlan;
  private readonly runs: EngineRuns;
  private readonly topic: string;
  private readonly folder: string;
  private readonly free: number;
  private registry = '';
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
      // No partition becomes idle, so the results depend only on the stream.
      '-idle-timeout=0',
      DRAIN,
      ...this.plan.flags,
      ...this.plan.layout.engine(this.registry),
    ];
  }

  /** Event time advances with the clock, from the start of a window. */
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
    this.registry = await registryFor(world, plan.layout, topic);
    let engine = await this.startEngine();
    const stream = this.stream();
    const { accounts, zipf, perMs } = stream;
    const source = await startSource(world, topic, { accounts, zipf, perMs }, plan.rate, [
      '-order=delayed',
      `-base=${stream.baseMs}`,
      ...plan.layout.source(this.registry),
      LINGER,
      BATCH_ROWS,
      DRAIN,
      '-json',
    ]);
    // The time before the first event does not count.
    await until('the first event', FIRST_EVENT_MS_MAX, async () => {
      world.context.drain.throwIfAborted();
      return metricIn(await this.scrapeOrThrow(engine), 'engine_events_total') > 0;
    });
    const meter = world.meter([source]);
    this.startMs = performance.now();
    const slices = Math.max(SLICES_MIN, Math.round(plan.durationMs / SLICE_MS));
    let start = await this.observe(engine, source, false);
    const course = new Course(start, plan.durationMs, slices);
    let killAt = plan.killAfterMs ?? Number.POSITIVE_INFINITY;
    let trimAt = plan.trimMs;
    const recoverySeconds: number[] = [];
    // An engine that has read nothing since it started or restarted has no measurements yet:
    // neither the kill nor the end of the run comes before it has read.
    let hasEngineRead = false;
    for (let tick = 1; this.at < plan.durationMs || !hasEngineRead; tick++) {
      const { at } = this;
      if (at > Math.max(plan.durationMs, start.at) + FIRST_EVENT_MS_MAX)
        throw coreError('timeout', 'the engine reads no events', { next: `see ${engine.process.logPath}` });
      const due = Math.min(tick * plan.sampleMs, plan.durationMs);
      await sleep(at < plan.durationMs ? Math.max(0, due - at) : plan.sampleMs);
      world.context.drain.throwIfAborted();
      const now = await this.observe(engine, source, false);
      hasEngineRead ||= hasRead(start.engine, now.engine);
      const endedSlice = course.add(now);
      if (endedSlice !== undefined)
        world.context.say(`by ${Math.round(this.at / 1000)} s: ${endedSlice.text}`);
      if (hasEngineRead && this.at >= killAt) {
        engine = await this.killAndStart(engine);
        killAt = this.at + (plan.killAfterMs as number);
        start = await this.observe(engine, source, true);
        hasEngineRead = false;
        recoverySeconds.push(metricIn(start.engine, 'engine_recovery_seconds'));
        course.add(start);
      }
      if (this.at >= trimAt) {
        trimAt = this.at + plan.trimMs;
        await this.trim();
      }
    }
    const seconds = this.at / 1000;
    const cpu = new Map(['gen', 'broker'].map((name) => [name, meter.seconds(name)]));
    cpu.set('engine', this.engineCpu + cpuSeconds(engine.process.pid));
    await this.stopAndWait(source);
    const { rows: produced } = JSON.parse(source.process.stdout()) as { rows: number };
    const rest = this.at;
    await until('the end of the topic', REST_MS_MAX, async () => {
      world.context.drain.throwIfAborted();
      return metricIn(await this.scrapeOrThrow(engine), 'engine_events_total') >= produced;
    });
    world.context.say(`the rest was read in ${((this.at - rest) / 1000).toFixed(1)} s; firing open windows`);
    await this.stopAndWait(engine);
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
    const { brokers, properties } = this.world;
    const admin = await nodeRdkafkaDriver.admin({ brokers, clientId: 'bench', properties });
    try {
      // The broker can remove a segment that lies before the trimmed offset and is not the newest.
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

  /** Deletes records that no checkpoint needs; a failed attempt is repeated later. */
  private async trim(): Promise<void> {
    const offsets = oldestOffsets(this.folder);
    if (offsets === undefined) return;
    await deleteRecords(this.world, this.topic, offsets).catch((thrown: Error) =>
      this.world.context.say(thrown.message),
    );
  }

  /** @throws unreachable if the process exits with an error */
  private async stopAndWait({ name, process }: Child): Promise<void> {
    process.kill('SIGTERM');
    const { code, signal } = await process.ended;
    if (code !== 0)
      throw coreError('unreachable', `${name} exited with ${signal ?? code}`, {
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

  /** @throws unreachable with the log of a process that does not respond */
  private async scrapeOrThrow(child: Child): Promise<Scrape> {
    try {
      return await scrape(child);
    } catch (cause) {
      throw coreError('unreachable', `${child.name} does not respond`, {
        next: `see ${child.process.logPath}`,
        cause,
      });
    }
  }

  private async observe(engine: Child, source: Child, isRestarted: boolean): Promise<Observation> {
    const { folder, world } = this;
    const sent = metricIn(await this.scrapeOrThrow(source), SOURCE_ROWS);
    const read = await this.scrapeOrThrow(engine);
    const free = world.context.smoke ? freeBytes(world.dir) : requireFreeSpace(world.dir);
    const gauges = {
      rss: residentBytes(engine.process.pid),
      disk: this.free - free,
      changelog: bytesIn(folder, /^changelog-/),
      manifests: bytesIn(folder, /^checkpoint-/),
    };
    return { at: this.at, engine: read, isRestarted, sent, gauges };
  }
}
