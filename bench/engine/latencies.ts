/** Latencies of the engine with a source that sends on its own schedule: from the receipt of an
 *  event to its accumulator, and from a firing to the sink. Both come from the engine's own
 *  histograms, over the measured interval only. */
import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../../src/core/errors.ts';
import { cpuSeconds } from '../effects/cpu.ts';
import { until, type World } from '../effects/world.ts';
import { type BenchResult, result, seriesOf } from '../harness.ts';
import { EngineRuns, metricIn, type Scrape, scrape } from './engine-run.ts';
import { type EventsSpec, PARTITIONS, startSource } from './events-topic.ts';

const SECONDS = 20;
const SECONDS_SMOKE = 2;
const WARMUP_SECONDS = 5;
const SMOKE_WARMUP_MS_MAX = 500;
const REPEATS_MAX = 3;
/** Fraction of the ceiling. */
const SHARE = 0.8;
/** Least share of the requested rate at which a source counts as keeping it. */
const RATE_HELD = 0.98;
export const FIRST_EVENT_MS_MAX = 60_000;
const ACCUMULATE_GOAL_MS = 5;
/** Compared with the upper bound of the bucket of a quantile. */
const SINK_GOAL_MS = 1000;
/** Event time advances about as fast as the clock. */
const RUNNING: Omit<EventsSpec, 'events'> = { accounts: 1_000_000, zipf: 1.1, perMs: 1000 };
/** Fires this number of windows every few seconds: five seconds of event time hold five events for
 *  each account. */
const FIRING = { rows: 100_000, accounts: 101_000, perMs: 100, rate: 200_000, sizeMs: 5000 } as const;
/** Sessions of which some thousand end each second. The minimum budget forces them to disk; in a
 *  small run the size of the changelog does. */
const SESSIONS = {
  ...{ rate: 20_000, accounts: 400_000, zipf: 1.1, gapMs: 30_000, gapMsSmoke: 2000 },
  flags: [
    ...[
      '-state=disk',
      '-format=binary256',
      '-mem-budget=90MiB',
      '-batch-rows=2048',
      '-batch-bytes=1MiB',
      '-snapshot-after=64KiB',
    ],
    ...['-allowed-skew=1s', '-allowed-lateness=0'],
  ],
} as const;
/** Firings whose size doubles until one is no longer durable within a second, and one of the size
 *  of a window of the soak. Half as many events again as accounts reach 77.7 % of the accounts. A
 *  budget that is smaller than the state makes firings read it from disk. */
const SIZES = {
  ...{ first: 100_000, most: 3_200_000, large: 2_200_000, rate: 300_000, sizeMs: 5000 },
  ...{ eventsPerAccount: 1.5, reached: 0.777, largeGoalMs: 3000, besideGoalMs: 25 },
  flags: ['-window=tumbling', '-size=5s', '-allowed-skew=100ms', '-allowed-lateness=0'],
  onDisk: ['-state=disk', '-mem-budget=384MiB', '-format=binary256'],
} as const;
const FIRINGS_MS_MAX = 600_000;
const FIRINGS_MIN = 3;

export const SOURCE_ROWS = 'gen_rows_total{kind="events"}';

/** Upper bounds of the quantiles of one stage between two scrapes, in ms, from the engine's
 *  histogram. */
export function quantilesMs(
  before: Scrape,
  after: Scrape,
  stage: string,
  quantiles: readonly number[],
): readonly number[] {
  const buckets: Array<readonly [number, number]> = [];
  for (const [line, value] of after) {
    if (!line.startsWith('engine_stage_seconds_bucket{') || !line.includes(`stage="${stage}"`)) continue;
    const bound = /le="([^"]+)"/.exec(line)?.[1];
    const seconds = bound === '+Inf' ? Number.POSITIVE_INFINITY : Number(bound);
    buckets.push([seconds, value - (before.get(line) ?? 0)]);
  }
  buckets.sort(([a], [b]) => a - b);
  const total = buckets.at(-1)?.[1] ?? 0;
  invariant(total > 0, `the stage ${stage} must have observations`);
  return quantiles.map(
    (q) => (buckets.find(([, count]) => count >= q * total)?.[0] ?? Number.POSITIVE_INFINITY) * 1000,
  );
}

/** True if the engine has read events between two scrapes. */
export const hasRead = (before: Scrape, now: Scrape): boolean =>
  metricIn(now, 'engine_events_total') > metricIn(before, 'engine_events_total');

interface LoadRun {
  /** Events per second that the engine consumed, and that the source sent. */
  readonly consumed: number;
  readonly sent: number;
  readonly before: Scrape;
  readonly after: Scrape;
  /** CPU time of all threads of the engine between the two scrapes. */
  readonly cpuSeconds: number;
}

export class Latencies {
  private readonly world: World;
  private readonly runs: EngineRuns;

  constructor(world: World) {
    this.world = world;
    this.runs = new EngineRuns(world);
  }

  private get seconds(): number {
    const { smoke, durationMs } = this.world.context;
    return durationMs === undefined ? (smoke ? SECONDS_SMOKE : SECONDS) : durationMs / 1000;
  }

  /** Measures an engine on a topic to which a source writes at this rate. @param isOver true if the
   *  measured interval has enough observations */
  private async measureLoad(
    shape: Omit<EventsSpec, 'events'>,
    rate: number,
    flags: readonly string[],
    isOver: (before: Scrape, now: Scrape) => boolean = hasRead,
    warmUpMs = WARMUP_SECONDS * 1000,
  ): Promise<LoadRun> {
    const { world, runs } = this;
    const { smoke, drain } = world.context;
    const topic = world.topic();
    const folder = runs.folder();
    const engine = await runs.start(topic, folder, [...flags, `-partitions=${PARTITIONS}`]);
    try {
      const source = await startSource(world, topic, shape, rate);
      const events = async (): Promise<number> => metricIn(await scrape(engine), 'engine_events_total');
      await until('the first event', FIRST_EVENT_MS_MAX, async () => (await events()) > 0);
      await sleep(smoke ? Math.min(warmUpMs, SMOKE_WARMUP_MS_MAX) : warmUpMs);
      drain.throwIfAborted();
      const sample = async () => ({
        at: performance.now(),
        cpu: cpuSeconds(engine.process.pid),
        engine: await scrape(engine),
        source: await scrape(source),
      });
      const before = await sample();
      await sleep(this.seconds * 1000);
      await until('the observations', FIRINGS_MS_MAX, async () =>
        isOver(before.engine, await scrape(engine)),
      );
      const after = await sample();
      await source.stop();
      await engine.stop();
      drain.throwIfAborted();
      const seconds = (after.at - before.at) / 1000;
      const increase = (of: 'engine' | 'source', name: string): number =>
        (metricIn(after[of], name) - metricIn(before[of], name)) / seconds;
      return {
        consumed: increase('engine', 'engine_events_total'),
        sent: increase('source', SOURCE_ROWS),
        before: before.engine,
        after: after.engine,
        cpuSeconds: after.cpu - before.cpu,
      };
    } finally {
      engine.process.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** @param alone maximum rate of the engine on a filled topic, in events per second */
  async accumulate(alone: number): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { context } = world;
    context.say('the ceiling with a source');
    const flags = ['-window=tumbling', '-size=1m'];
    const beside = await this.measureLoad(RUNNING, 0, flags);
    const rate = context.rate ?? Math.floor(SHARE * Math.min(alone, beside.consumed));
    const found: LoadRun[] = [];
    for (let turn = 0; turn < Math.min(context.repeats, REPEATS_MAX); turn++) {
      context.say(`${rate} events a second`);
      found.push(await this.measureLoad(RUNNING, rate, flags));
    }
    const quantiles = found.map(({ before, after }) =>
      quantilesMs(before, after, 'accumulate', [0.5, 0.99, 0.999]),
    );
    const load =
      context.rate === undefined ? `at ${Math.round(SHARE * 100)}% of the ceiling` : `at ${rate} events/s`;
    const latency = (name: string, at: number, goal?: number): BenchResult =>
      result({
        metric: `an event to its accumulator, ${load}, ${name} at most`,
        unit: 'ms',
        better: 'less',
        list: true,
        ours: seriesOf(quantiles.map((one) => one[at] as number)),
        ...(goal === undefined ? {} : { goal: { valueBelow: goal } }),
      });
    const perSecond = { unit: 'events/s', better: 'more' } as const;
    return [
      result({
        ...perSecond,
        metric: 'ceiling beside a source on the same machine',
        ours: seriesOf([beside.consumed]),
        against: { name: 'filled topic, no source', series: seriesOf([alone]) },
      }),
      result({
        ...perSecond,
        metric: `rate reached, ${load}`,
        ours: seriesOf(found.map(({ consumed }) => consumed)),
        against: { name: 'rate asked for', series: seriesOf([rate]) },
        goal: { ratioAtLeast: RATE_HELD },
      }),
      latency('p50', 0),
      latency('p99', 1, ACCUMULATE_GOAL_MS),
      latency('p999', 2),
    ];
  }

  /** Sessions on disk, from the time at which the watermark reaches their end until durable. */
  async sessionFiring(): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { smoke } = world.context;
    const { rate, accounts, zipf, flags } = SESSIONS;
    const gapMs = smoke ? SESSIONS.gapMsSmoke : SESSIONS.gapMs;
    world.context.say(`sessions on disk, a gap of ${gapMs} ms`);
    const more = ['-window=session', `-gap=${gapMs}ms`, ...flags];
    const hasFired = (earlier: Scrape, now: Scrape): boolean =>
      metricIn(now, 'engine_sink_rows_total') > metricIn(earlier, 'engine_sink_rows_total') + rate / 10;
    // The first sessions end one gap after the first event.
    const warmUpMs = WARMUP_SECONDS * 1000 + gapMs;
    const shape = { accounts, zipf, perMs: rate / 1000 };
    const { before, after, cpuSeconds: cpu } = await this.measureLoad(shape, rate, more, hasFired, warmUpMs);
    const increase = (name: string): number => metricIn(after, name) - metricIn(before, name);
    // A small run may end before sessions spill.
    invariant(smoke || increase('engine_spill_bytes_total') > 0, 'sessions must be on disk');
    const events = increase('engine_events_total');
    const quantiles = quantilesMs(before, after, 'sink', [0.5, 0.99, 0.999]);
    const load = `${rate} events/s, a gap of ${gapMs} ms`;
    const latency = (name: string, at: number): BenchResult =>
      result({
        metric: `a session on disk from its end to durable in the sink, ${load}, ${name} at most`,
        unit: 'ms',
        better: 'less',
        ours: seriesOf([quantiles[at] as number]),
        ...(name === 'p99' ? { goal: { valueAtMost: SINK_GOAL_MS } } : {}),
      });
    return [
      ...['p50', 'p99', 'p999'].map(latency),
      result({
        metric: `sessions on disk, ${load}: CPU`,
        unit: 'us CPU/event',
        better: 'less',
        ours: seriesOf([(cpu / events) * 1e6]),
      }),
      result({
        metric: `sessions on disk, ${load}: spilled`,
        unit: 'bytes/event',
        better: 'less',
        ours: seriesOf([increase('engine_spill_bytes_total') / events]),
      }),
    ];
  }

  /** Largest firing that is durable within a second, and one of a large window with the events
   *  beside it. */
  async firingSizes(): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { smoke } = world.context;
    const part = smoke ? 50 : 1;
    const results: BenchResult[] = [];
    for (const [name, flags] of [
      ['in memory', ['-state=mem']],
      ['on disk', SIZES.onDisk],
    ] as const) {
      const rows = SIZES.large / part;
      const { sinkMs, eventMs, spilledBytes } = await this.firingOf(rows, flags);
      // The state of a small run may fit into the budget.
      invariant(smoke || name === 'in memory' || spilledBytes > 0, 'windows must be on disk');
      const row = { unit: 'ms', better: 'less' } as const;
      results.push(
        result({
          ...row,
          metric: `a firing of ${rows} windows ${name} to durable in the sink, p99 at most`,
          ours: seriesOf([sinkMs]),
          goal: { valueAtMost: SIZES.largeGoalMs },
        }),
        result({
          ...row,
          metric: `an event to its accumulator beside firings of ${rows} windows ${name}, p99 at most`,
          ours: seriesOf([eventMs]),
          goal: { valueBelow: SIZES.besideGoalMs },
        }),
      );
    }
    const largest = await this.largestFiring(SIZES.first / part, (smoke ? SIZES.first : SIZES.most) / part);
    if (largest === undefined) return results;
    const metric = 'the largest firing that is durable in the sink within 1 s, p99';
    return [...results, result({ metric, unit: 'windows', better: 'more', ours: seriesOf([largest]) })];
  }

  /** @returns undefined if the first size takes longer */
  private async largestFiring(first: number, most: number): Promise<number | undefined> {
    let largest: number | undefined;
    for (let rows = first; rows <= most; rows *= 2) {
      const { sinkMs } = await this.firingOf(rows, []);
      if (sinkMs > SINK_GOAL_MS) break;
      largest = rows;
    }
    return largest;
  }

  /** Measures firings of about `rows` windows each. @returns upper bounds of the p99 of a result
   *  until it is durable, and of an event until it is in its accumulator, and the spilled bytes */
  private async firingOf(
    rows: number,
    flags: readonly string[],
  ): Promise<{ readonly sinkMs: number; readonly eventMs: number; readonly spilledBytes: number }> {
    const { context } = this.world;
    const accounts = Math.round(rows / SIZES.reached);
    const perMs = (accounts * SIZES.eventsPerAccount) / SIZES.sizeMs;
    const rate = (context.rate ?? SIZES.rate) / (context.smoke ? 10 : 1);
    context.say(`firings of ${rows} windows at ${rate} events a second`);
    const rowsIn = (values: Scrape): number => metricIn(values, 'engine_sink_rows_total');
    const hasFired = (earlier: Scrape, now: Scrape): boolean => rowsIn(now) >= rowsIn(earlier) + 1.9 * rows;
    const shape = { accounts, zipf: 0, perMs: Math.max(1, Math.round(perMs)) };
    const run = await this.measureLoad(shape, rate, [...SIZES.flags, ...flags], hasFired);
    const p99 = (stage: string): number => quantilesMs(run.before, run.after, stage, [0.99])[0] as number;
    const spilledBytes = metricIn(run.after, 'engine_spill_bytes_total');
    const found = { sinkMs: p99('sink'), eventMs: p99('accumulate'), spilledBytes };
    const results = rowsIn(run.after) - rowsIn(run.before);
    context.say(
      `${results} results at ${Math.round(run.consumed)} events a second; p99 at most: ${found.sinkMs} ms until durable, ${found.eventMs} ms of an event`,
    );
    return found;
  }

  async firing(): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { smoke } = world.context;
    const part = smoke ? 50 : 1;
    const shape = { accounts: FIRING.accounts / part, zipf: 0, perMs: FIRING.perMs / part };
    world.context.say(`firings of ${FIRING.rows / part} windows`);
    const flags = ['-window=tumbling', `-size=${FIRING.sizeMs}ms`];
    const firingsIn = (values: Scrape): number =>
      metricIn(values, 'engine_sink_rows_total') / (FIRING.rows / part);
    const hasFired = (earlier: Scrape, now: Scrape): boolean =>
      firingsIn(now) >= Math.max(FIRINGS_MIN, firingsIn(earlier) + 1);
    const { before, after, consumed } = await this.measureLoad(shape, FIRING.rate / part, flags, hasFired);
    const fired =
      metricIn(after, 'engine_fired_windows_total') - metricIn(before, 'engine_fired_windows_total');
    const rows = metricIn(after, 'engine_sink_rows_total') - metricIn(before, 'engine_sink_rows_total');
    world.context.say(`${rows} results of ${fired} windows at ${Math.round(consumed)} events a second`);
    const quantiles = quantilesMs(before, after, 'sink', [0.5, 0.99, 0.999]);
    return ['p50', 'p99', 'p999'].map((name, at) =>
      result({
        metric: `a firing of ${FIRING.rows / part} windows to durable in the sink, ${name} at most`,
        unit: 'ms',
        better: 'less',
        ours: seriesOf([quantiles[at] as number]),
        ...(name === 'p99' ? { goal: { valueAtMost: SINK_GOAL_MS } } : {}),
      }),
    );
  }
}
