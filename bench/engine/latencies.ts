/** The engine's latencies beside a source that keeps to its own schedule: of an event to its
 *  accumulator, of a firing to the sink. Both from the engine's own histograms, over the measured
 *  part alone. */
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
/** Of the ceiling. */
const SHARE = 0.8;
/** A source that falls behind by more is no source of that rate. */
const RATE_HELD = 0.98;
export const FIRST_EVENT_MS_MAX = 60_000;
const ACCUMULATE_GOAL_MS = 5;
const SINK_GOAL_MS = 1000;
/** Event time passes at about the time of the clock. */
const RUNNING: Omit<EventsSpec, 'events'> = { accounts: 1_000_000, zipf: 1.1, perMs: 1000 };
/** A firing of so many windows every few seconds: five seconds of event time hold five events an
 *  account. */
const FIRING = { rows: 100_000, accounts: 101_000, perMs: 100, rate: 200_000, sizeMs: 5000 } as const;
/** Sessions of which some thousand end a second. The smallest budget sends them to disk, and in a
 *  small run the changelog. */
const SESSIONS = {
  ...{ rate: 20_000, accounts: 400_000, zipf: 1.1, gapMs: 30_000, gapMsSmoke: 2000 },
  flags: [
    ...['-state=disk', '-mem-budget=90MiB', '-batch-rows=2048', '-batch-bytes=1MiB', '-snapshot-after=64KiB'],
    ...['-allowed-skew=1s', '-allowed-lateness=0'],
  ],
} as const;
const FIRINGS_MS_MAX = 120_000;
const FIRINGS_MIN = 3;

export const SOURCE_ROWS = 'gen_rows_total{kind="events"}';

/** Upper bounds of quantiles of one stage between two looks, ms, as the engine itself tells them
 *  since its start. */
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
  invariant(total > 0, `the stage ${stage} was measured`);
  return quantiles.map(
    (q) => (buckets.find(([, count]) => count >= q * total)?.[0] ?? Number.POSITIVE_INFINITY) * 1000,
  );
}

/** Whether the engine has read anything between two looks. */
export const hasRead = (before: Scrape, now: Scrape): boolean =>
  metricIn(now, 'engine_events_total') > metricIn(before, 'engine_events_total');

interface Steady {
  /** Events a second that the engine took, and that the source sent. */
  readonly taken: number;
  readonly sent: number;
  readonly before: Scrape;
  readonly after: Scrape;
  /** CPU of all threads of the engine between the two. */
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

  /** An engine on a topic that a source of this rate writes to. @param isOver whether a look,
   *  beside that at the begin of what is measured, shows enough of it */
  private async steady(
    shape: Omit<EventsSpec, 'events'>,
    rate: number,
    flags: readonly string[],
    isOver: (before: Scrape, now: Scrape) => boolean = hasRead,
    warmUpMs = WARMUP_SECONDS * 1000,
  ): Promise<Steady> {
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
      const looked = async () => ({
        at: performance.now(),
        cpu: cpuSeconds(engine.process.pid),
        engine: await scrape(engine),
        source: await scrape(source),
      });
      const before = await looked();
      await sleep(this.seconds * 1000);
      await until('what is measured', FIRINGS_MS_MAX, async () =>
        isOver(before.engine, await scrape(engine)),
      );
      const after = await looked();
      await source.stop();
      await engine.stop();
      drain.throwIfAborted();
      const seconds = (after.at - before.at) / 1000;
      const grown = (of: 'engine' | 'source', name: string): number =>
        (metricIn(after[of], name) - metricIn(before[of], name)) / seconds;
      return {
        taken: grown('engine', 'engine_events_total'),
        sent: grown('source', SOURCE_ROWS),
        before: before.engine,
        after: after.engine,
        cpuSeconds: after.cpu - before.cpu,
      };
    } finally {
      engine.process.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** @param alone the engine's ceiling on a filled topic, events a second */
  async accumulate(alone: number): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { context } = world;
    context.say('the ceiling beside a source');
    const flags = ['-window=tumbling', '-size=1m'];
    const beside = await this.steady(RUNNING, 0, flags);
    const rate = context.rate ?? Math.floor(SHARE * Math.min(alone, beside.taken));
    const found: Steady[] = [];
    for (let turn = 0; turn < Math.min(context.repeats, REPEATS_MAX); turn++) {
      context.say(`${rate} events a second`);
      found.push(await this.steady(RUNNING, rate, flags));
    }
    const quantiles = found.map(({ before, after }) =>
      quantilesMs(before, after, 'accumulate', [0.5, 0.99, 0.999]),
    );
    const what =
      context.rate === undefined ? `at ${Math.round(SHARE * 100)}% of the ceiling` : `at ${rate} events/s`;
    const latency = (name: string, at: number, goal?: number): BenchResult =>
      result({
        metric: `an event to its accumulator, ${what}, ${name} at most`,
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
        ours: seriesOf([beside.taken]),
        against: { name: 'filled topic, no source', series: seriesOf([alone]) },
      }),
      result({
        ...perSecond,
        metric: `rate reached, ${what}`,
        ours: seriesOf(found.map(({ taken }) => taken)),
        against: { name: 'rate asked for', series: seriesOf([rate]) },
        goal: { ratioAtLeast: RATE_HELD },
      }),
      latency('p50', 0),
      latency('p99', 1, ACCUMULATE_GOAL_MS),
      latency('p999', 2),
    ];
  }

  /** Sessions on disk, from the watermark's crossing to durable. */
  async sessionFiring(): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { smoke } = world.context;
    const { rate, accounts, zipf, flags } = SESSIONS;
    const gapMs = smoke ? SESSIONS.gapMsSmoke : SESSIONS.gapMs;
    world.context.say(`sessions on disk, a gap of ${gapMs} ms`);
    const more = ['-window=session', `-gap=${gapMs}ms`, ...flags];
    const hasFired = (then: Scrape, now: Scrape): boolean =>
      metricIn(now, 'engine_sink_rows_total') > metricIn(then, 'engine_sink_rows_total') + rate / 10;
    // The first sessions end a gap behind the first event.
    const warmUpMs = WARMUP_SECONDS * 1000 + gapMs;
    const shape = { accounts, zipf, perMs: rate / 1000 };
    const { before, after, cpuSeconds: cpu } = await this.steady(shape, rate, more, hasFired, warmUpMs);
    const grown = (name: string): number => metricIn(after, name) - metricIn(before, name);
    // A small run may be over before they are.
    invariant(smoke || grown('engine_spill_bytes_total') > 0, 'sessions are on disk');
    const events = grown('engine_events_total');
    const quantiles = quantilesMs(before, after, 'sink', [0.5, 0.99, 0.999]);
    const load = `${rate} events/s, a gap of ${gapMs} ms`;
    const latency = (name: string, at: number): BenchResult =>
      result({
        metric: `a session on disk from its end to durable in the sink, ${load}, ${name} at most`,
        unit: 'ms',
        better: 'less',
        ours: seriesOf([quantiles[at] as number]),
        ...(name === 'p99' ? { goal: { valueBelow: SINK_GOAL_MS } } : {}),
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
        ours: seriesOf([grown('engine_spill_bytes_total') / events]),
      }),
    ];
  }

  async firing(): Promise<readonly BenchResult[]> {
    const { world } = this;
    const { smoke } = world.context;
    const part = smoke ? 50 : 1;
    const shape = { accounts: FIRING.accounts / part, zipf: 0, perMs: FIRING.perMs / part };
    world.context.say(`firings of ${FIRING.rows / part} windows`);
    const flags = ['-window=tumbling', `-size=${FIRING.sizeMs}ms`];
    const firingsIn = (look: Scrape): number =>
      metricIn(look, 'engine_sink_rows_total') / (FIRING.rows / part);
    const hasFired = (then: Scrape, now: Scrape): boolean =>
      firingsIn(now) >= Math.max(FIRINGS_MIN, firingsIn(then) + 1);
    const { before, after, taken } = await this.steady(shape, FIRING.rate / part, flags, hasFired);
    const fired =
      metricIn(after, 'engine_fired_windows_total') - metricIn(before, 'engine_fired_windows_total');
    const rows = metricIn(after, 'engine_sink_rows_total') - metricIn(before, 'engine_sink_rows_total');
    world.context.say(`${rows} results of ${fired} windows at ${Math.round(taken)} events a second`);
    const quantiles = quantilesMs(before, after, 'sink', [0.5, 0.99, 0.999]);
    return ['p50', 'p99', 'p999'].map((name, at) =>
      result({
        metric: `a firing of ${FIRING.rows / part} windows to durable in the sink, ${name} at most`,
        unit: 'ms',
        better: 'less',
        ours: seriesOf([quantiles[at] as number]),
        ...(name === 'p99' ? { goal: { valueBelow: SINK_GOAL_MS } } : {}),
      }),
    );
  }
}
