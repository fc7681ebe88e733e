/** Live run of a cell: a source on its own schedule, a broker and the engine as processes. The
 *  engine is killed with SIGKILL between two checkpoints and restarted; its results are then held
 *  against the count of the cell. */
import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../src/core/errors.ts';
import { FIRED_FAMILIES, readFired } from '../../src/engine/output/fired/store.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { ready } from '../../src/shell/children/ready.ts';
import type { StartedCommand } from '../../src/shell/children/started-command.ts';
import { kvDriver } from '../../src/shell/drivers.ts';
import type { Children } from '../children.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { metricIn, type Scrape, scrape } from '../engine/engine-run.ts';
import { PARTITIONS } from '../engine/events-topic.ts';
import { requireFreeSpace } from '../engine/free-space.ts';
import { quantilesMs } from '../engine/latencies.ts';
import type { BenchContext } from '../harness.ts';
import { type MadeBy, madeHere } from '../stored.ts';
import { type Cell, windowFlags } from './cells.ts';
import { RowsDigest } from './digest.ts';

/** Time without a further event after which the engine counts as stuck. */
const STUCK_MS_MAX = 180_000;
const SAMPLE_MS = 500;
const SAMPLE_MS_SMOKE = 50;
const RESTART_SAMPLE_MS = 50;
/** Shares of the events: end of the warm-up; the kill comes between the other two. */
const WARM_SHARE = 0.1;
const KILL_SHARE = 0.5;
const KILL_SHARE_MAX = 0.9;
/** The kill comes after this part of the time between two checkpoints. */
const KILL_PART = 0.5;
const STORE_BUDGET_BYTES = 64 * 1024 * 1024;
const QUANTILES = [0.5, 0.99, 0.999] as const;

/** Upper bound in ms; null: beyond the greatest bucket. */
type Bound = number | null;
/** p50, p99, p999; null: no observation. */
export type Quantiles = readonly [Bound, Bound, Bound] | null;

/** Counters and results of the engine, through the kill. */
export interface LiveResults {
  readonly events: number;
  readonly dropped: number;
  readonly rows: number;
  readonly rowsCount: number;
  readonly digest: string;
}

export interface LiveRun extends MadeBy {
  /** Events per second that the source was asked for, and that the engine read before the kill. */
  readonly rate: number;
  readonly read: number;
  /** From the receipt of an event to its accumulator, before the kill. */
  readonly accumulateMs: Quantiles;
  /** From the watermark reaching the end of a window to its durable result, before the kill. */
  readonly sinkMs: Quantiles;
  /** Checkpoints before the kill, their mean time, and the bucket of the longest one. */
  readonly checkpoints: number;
  readonly checkpointMeanMs: number | null;
  readonly checkpointMaxMs: Bound;
  /** Age of the newest checkpoint at the kill; null: there was none. */
  readonly ageMs: number | null;
  /** From the start of the restore to the first request for records. */
  readonly restoreMs: number;
  /** From the kill until the engine has read as many events as before. */
  readonly recoveryMs: number;
  /** CPU time of the engine per event, in µs, before the kill. */
  readonly cpuUs: number;
  readonly results: LiveResults;
}

export interface LiveWorld {
  readonly context: BenchContext;
  readonly children: Children;
  readonly rate: number;
  /** Divisor of the time between checkpoints in a small run. */
  readonly intervalPart: number;
}

interface Child {
  readonly process: StartedCommand;
  readonly address: string;
}

interface Sample {
  readonly at: number;
  readonly cpu: number;
  readonly engine: Scrape;
}

const events = ({ engine }: Sample): number => metricIn(engine, 'engine_events_total');

function stageOf(before: Scrape, after: Scrape, stage: string): Quantiles {
  const name = `engine_stage_seconds_count{stage="${stage}"}`;
  if ((after.get(name) ?? 0) === (before.get(name) ?? 0)) return null;
  const bounds = quantilesMs(before, after, stage, QUANTILES);
  return bounds.map((bound) => (Number.isFinite(bound) ? bound : null)) as unknown as Quantiles;
}

/** Bound of the bucket of the greatest observation; null: beyond the greatest, or none. */
function greatestMs(values: Scrape, name: string): Bound {
  const count = values.get(`${name}_count`) ?? 0;
  if (count === 0) return null;
  const bounds = [...values]
    .filter(([line, value]) => line.startsWith(`${name}_bucket{`) && value >= count)
    .map(([line]) => Number(/le="([^"]+)"/.exec(line)?.[1]))
    .filter(Number.isFinite);
  return bounds.length === 0 ? null : Math.min(...bounds) * 1000;
}

class CellRun {
  private readonly world: LiveWorld;
  private readonly cell: Cell;
  private readonly stream: Omit<EventOptions, 'order'>;
  private readonly topic = `sweep-${randomBytes(5).toString('hex')}`;
  private readonly folder: string;
  private readonly started: StartedCommand[] = [];
  /** Error of the source; undefined while it has none. */
  private sourceError: Error | undefined;

  constructor(world: LiveWorld, cell: Cell, stream: Omit<EventOptions, 'order'>) {
    this.world = world;
    this.cell = cell;
    this.stream = stream;
    this.folder = join(world.children.dir, this.topic);
  }

  async run(): Promise<LiveRun> {
    const { world, stream } = this;
    const engine = await this.startEngine();
    const source = this.startSource();
    const warm = await this.until(engine, (now) => events(now) >= stream.count * WARM_SHARE);
    const last = await this.until(engine, (now) => events(now) > events(warm) && this.isKillTime(now));
    const killedAt = performance.now();
    engine.process.kill('SIGKILL');
    await engine.process.ended;
    const next = await this.startEngine();
    await this.until(next, (now) => events(now) >= events(last), RESTART_SAMPLE_MS);
    const recoveryMs = performance.now() - killedAt;
    const end = await this.until(next, (now) => events(now) >= stream.count);
    await source;
    next.process.kill('SIGTERM');
    await requireEnd('engine', next.process);
    const readEvents = events(last) - events(warm);
    return {
      ...madeHere(),
      rate: world.rate,
      read: (readEvents / (last.at - warm.at)) * 1000,
      accumulateMs: stageOf(warm.engine, last.engine, 'accumulate'),
      sinkMs: stageOf(warm.engine, last.engine, 'sink'),
      ...checkpointsOf(last.engine),
      restoreMs: metricIn(end.engine, 'engine_recovery_seconds') * 1000,
      recoveryMs,
      cpuUs: ((last.cpu - warm.cpu) / readEvents) * 1e6,
      results: await this.results(),
    };
  }

  /** Ends the processes of the cell and deletes what they wrote. */
  async close(): Promise<void> {
    for (const process of this.started) process.kill('SIGKILL');
    await Promise.all(this.started.map(({ ended }) => ended));
    rmSync(this.folder, { recursive: true, force: true });
    const { brokers } = this.world.children;
    const properties = this.world.context.brokerProperties ?? {};
    const admin = await nodeRdkafkaDriver.admin({ brokers, clientId: 'bench', properties });
    try {
      await admin.deleteTopics([this.topic]);
    } finally {
      await admin.close();
    }
  }

  private get intervalMs(): number {
    return Math.round(this.cell.intervalMs / this.world.intervalPart);
  }

  private engineFlags(more: readonly string[]): readonly string[] {
    return [
      `-brokers=${this.world.children.brokers}`,
      `-topic=${this.topic}`,
      `-state-dir=${this.folder}`,
      `-partitions=${PARTITIONS}`,
      '-format=binary256',
      // No partition becomes idle, so the results depend only on the stream.
      '-idle-timeout=0',
      `-checkpoint-interval=${this.intervalMs}ms`,
      ...windowFlags(this.cell),
      ...more,
    ];
  }

  private sourceFlags(): readonly string[] {
    const { stream, world, topic } = this;
    const { count, accounts, zipf, perMs, baseMs, seed } = stream;
    return [
      `-brokers=${world.children.brokers}`,
      `-out=kafka:${topic}`,
      `-partitions=${PARTITIONS}`,
      ...['-kind=events', '-order=delayed', '-compression=lz4', '-digest=false'],
      ...[`-count=${count}`, `-accounts=${accounts}`, `-zipf=${zipf}`, `-per-ms=${perMs}`],
      ...[`-base=${baseMs}`, `-seed=${seed}`, `-rate=${world.rate}`],
    ];
  }

  /** Half a checkpoint interval after a checkpoint, or when few events are left. */
  private isKillTime(now: Sample): boolean {
    const share = events(now) / this.stream.count;
    if (share < KILL_SHARE) return false;
    if (share >= KILL_SHARE_MAX) return true;
    const hasCheckpoint = metricIn(now.engine, 'engine_checkpoints_total') > 0;
    return hasCheckpoint && ageMs(now.engine) >= this.intervalMs * KILL_PART;
  }

  private spawn(name: string, args: readonly string[]): StartedCommand {
    const process = this.world.children.processes.spawn(name, [name, ...args, '-log-level=warn']);
    this.started.push(process);
    return process;
  }

  private async startEngine(): Promise<Child> {
    const process = this.spawn('engine', this.engineFlags(['-listen=127.0.0.1:0']));
    return { process, address: await ready('engine', process) };
  }

  /** Starts the source. The promise settles with its end; an error of it ends the cell sooner. */
  private async startSource(): Promise<void> {
    await requireEnd('gen', this.spawn('gen', this.sourceFlags())).catch((thrown: Error) => {
      this.sourceError = thrown;
    });
  }

  /** Samples until the condition holds. @throws unreachable if the process ends; timeout if no
   *  further event is read */
  private async until(
    child: Child,
    holds: (now: Sample) => boolean,
    everyMs = this.world.context.smoke ? SAMPLE_MS_SMOKE : SAMPLE_MS,
  ): Promise<Sample> {
    let hasEnded = false;
    void child.process.ended.then(() => {
      hasEnded = true;
    });
    let seen = -1;
    let movedAt = performance.now();
    for (;;) {
      this.world.context.drain.throwIfAborted();
      if (this.sourceError !== undefined) throw this.sourceError;
      if (hasEnded) throw coreError('unreachable', `the engine exited; see ${child.process.logPath}`);
      if (!this.world.context.smoke) requireFreeSpace(this.world.children.dir);
      const engine = await scrape(child);
      const now = { at: performance.now(), cpu: cpuSeconds(child.process.pid), engine };
      if (holds(now)) return now;
      if (events(now) !== seen) [seen, movedAt] = [events(now), now.at];
      if (now.at - movedAt > STUCK_MS_MAX)
        throw coreError('timeout', `the engine read ${seen} of ${this.stream.count} events`, {
          next: `see ${child.process.logPath}`,
        });
      await sleep(everyMs);
    }
  }

  /** Fires the open windows and reads every result. */
  private async results(): Promise<LiveResults> {
    const { context } = this.world;
    const process = this.spawn('engine', this.engineFlags(['-bounded', '-json']));
    await requireEnd('engine', process);
    const summary = JSON.parse(process.stdout()) as { consumed: number; droppedLate: number };
    const options = {
      budgetBytes: STORE_BUDGET_BYTES,
      families: FIRED_FAMILIES,
      missing: 'refuse',
    } as const;
    const store = await (await kvDriver(context)).open(join(this.folder, 'fired'), options);
    const digest = new RowsDigest();
    let rowsCount = 0;
    try {
      for await (const page of readFired(store)) {
        context.drain.throwIfAborted();
        for (const { accountId, windowStart, windowEnd, count } of page) {
          digest.add(Number(accountId), windowStart, windowEnd, Number(count));
          rowsCount += Number(count);
        }
      }
    } finally {
      await store.close();
    }
    const { consumed, droppedLate } = summary;
    return { events: consumed, dropped: droppedLate, rows: digest.rows, rowsCount, digest: digest.text() };
  }
}

const ageMs = (engine: Scrape): number => metricIn(engine, 'engine_checkpoint_age_seconds') * 1000;

function checkpointsOf(
  engine: Scrape,
): Pick<LiveRun, 'checkpoints' | 'checkpointMeanMs' | 'checkpointMaxMs' | 'ageMs'> {
  const name = 'engine_checkpoint_duration_seconds';
  const checkpoints = engine.get(`${name}_count`) ?? 0;
  return {
    checkpoints,
    checkpointMeanMs: checkpoints === 0 ? null : (metricIn(engine, `${name}_sum`) / checkpoints) * 1000,
    checkpointMaxMs: greatestMs(engine, name),
    ageMs: checkpoints === 0 ? null : ageMs(engine),
  };
}

/** @throws unreachable if the process ends with an error */
async function requireEnd(name: string, process: StartedCommand): Promise<void> {
  const { code, signal } = await process.ended;
  if (code !== 0)
    throw coreError('unreachable', `${name} ended with ${signal ?? code}`, {
      next: `see ${process.logPath}`,
    });
}

/** Runs a cell live. Its topic and folder are deleted at the end. */
export async function runLive(
  world: LiveWorld,
  cell: Cell,
  stream: Omit<EventOptions, 'order'>,
): Promise<LiveRun> {
  const run = new CellRun(world, cell, stream);
  try {
    return await run.run();
  } finally {
    await run.close();
  }
}
