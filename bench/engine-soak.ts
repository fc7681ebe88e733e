/** `millrace bench engine-soak`: the required load profile for half an hour or longer, on the real
 *  engine and a real broker: a billion events of ten million accounts, some of them hours late, at
 *  a fixed rate, with a state that exceeds its budget. `-kill-after` kills the engine each time it
 *  has run so long. `engine-soak-avro` has registered Avro events whose keys are texts.
 *
 *  At the end every window in the sink is compared with a recount of all sent events. */
import { loadavg } from 'node:os';
import { loadGenKernels } from '../src/addon/gen.ts';
import { chooseNative } from '../src/addon/load.ts';
import { coreError } from '../src/core/errors.ts';
import { formatDuration } from '../src/core/quantity.ts';
import { kvDriver } from '../src/shell/drivers.ts';
import { openParts } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { PARTITIONS } from './engine/events-topic.ts';
import { recount } from './engine/recount.ts';
import { differencesOf, readStored } from './engine/soak-check.ts';
import type { Span } from './engine/soak-course.ts';
import { FIXED } from './engine/soak-layout.ts';
import { type Soaked, type SoakPlan, SoakRun } from './engine/soak-run.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

const MINUTE_MS = 60_000;
const GIB = 1024 ** 3;
const RATE_HELD = 0.98;
const EVENTS_GOAL = 1e9;
const PROFILE_MS = 30 * MINUTE_MS;
const ACCUMULATE_GOAL_MS = 5;
const SINK_GOAL_MS = 1000;
/** Least ratio of the peak size in the first third to the peak size in the last third. */
const STEADY_RATIO = 0.8;
const SAMPLE = { every: 1000, offset: 7 } as const;

type Sizes = Omit<SoakPlan, 'killAfterMs' | 'layout'>;
const FULL: Omit<Sizes, 'rate' | 'durationMs'> = {
  accounts: 10_000_000,
  rules: { sizeMs: MINUTE_MS, skewMs: 5000, latenessMs: MINUTE_MS },
  flags: ['-state=disk', '-mem-budget=384MiB'],
  sampleMs: 2000,
  trimMs: 10_000,
};
const SMOKE: Sizes = {
  rate: 30_000,
  durationMs: 4000,
  accounts: 500_000,
  rules: { sizeMs: 2000, skewMs: 1000, latenessMs: 1000 },
  flags: ['-state=disk', '-batch-rows=2048', '-batch-bytes=1MiB', '-checkpoint-interval=250ms'],
  sampleMs: 250,
  trimMs: 1000,
};

/** @throws bad_value */
function planOf(
  { rate, durationMs, killAfterMs }: BenchContext,
  defaults: Omit<SoakPlan, 'killAfterMs'>,
): SoakPlan {
  const plan = {
    ...defaults,
    killAfterMs,
    rate: rate ?? defaults.rate,
    durationMs: durationMs ?? defaults.durationMs,
  };
  if (killAfterMs !== undefined && killAfterMs >= plan.durationMs) {
    const length = formatDuration(plan.durationMs);
    throw coreError(
      'bad_value',
      `-kill-after=${formatDuration(killAfterMs)} is not before the end, after ${length}`,
      {
        next: 'give a shorter -kill-after, or a longer -duration',
      },
    );
  }
  return plan;
}

/** True if the run is long enough for goals by thirds; in a short run no window fires within a
 *  third. */
const isLong = (plan: SoakPlan): boolean => plan.durationMs >= PROFILE_MS;

type Options = Parameters<typeof result>[0];
type Row = Pick<Options, 'unit' | 'better'>;
const EVENTS_A_SECOND: Row = { unit: 'events/s', better: 'more' };
const MS: Row = { unit: 'ms', better: 'less' };
const BYTES: Row = { unit: 'bytes', better: 'less' };
const EVENTS: Row = { unit: 'events', better: 'less' };
const CORES: Row = { unit: 'cores', better: 'less' };

/** Results of one run. */
class Report {
  readonly results: BenchResult[] = [];
  /** Figures that no row can show: beyond the greatest bucket, or with a goal but without a
   *  measurement. */
  unreported = 0;
  private readonly soaked: Soaked;

  constructor(soaked: Soaked) {
    this.soaked = soaked;
  }

  one(metric: string, row: Row, value: number, extra: Pick<Options, 'goal' | 'against'> = {}): void {
    this.results.push(result({ metric, ...row, ours: seriesOf([value]), ...extra }));
  }

  /** Reports the value of the whole run, with the values of the slices that have one. */
  course(metric: string, row: Row, pick: (span: Span) => number, goal?: Options['goal']): void {
    const { whole, slices, sliceMs } = this.soaked.course;
    const value = pick(whole);
    const all = slices.map(pick);
    this.unreported += [value, ...all].filter((one) => one === Number.POSITIVE_INFINITY).length;
    if (goal !== undefined && Number.isNaN(value)) this.unreported++;
    if (!Number.isFinite(value)) return;
    const { values, spread } = seriesOf(all.filter(Number.isFinite));
    this.results.push(
      result({
        metric: `${metric}, whole and by ${formatDuration(sliceMs)}`,
        ...row,
        ours: { values, spread, median: value },
        list: true,
        ...(goal === undefined ? {} : { goal }),
      }),
    );
  }

  /** Compares the last third with the first third. */
  drift(metric: string, row: Row, pick: (span: Span) => number, goal?: Options['goal']): void {
    const { first, last } = this.soaked.course;
    const [from, to] = [pick(first), pick(last)];
    if (!(from > 0) || !(to > 0)) return;
    this.one(`${metric}, last third of the run`, row, to, {
      against: { name: 'first third', series: seriesOf([from]) },
      ...(goal === undefined ? {} : { goal }),
    });
  }
}

function courseRows(report: Report, plan: SoakPlan, soaked: Soaked): void {
  const { course, cpu, seconds, recoverySeconds } = soaked;
  const { whole } = course;
  report.one('rate sent', EVENTS_A_SECOND, whole.sentPerSecond, {
    against: { name: 'rate asked for', series: seriesOf([plan.rate]) },
    goal: { ratioAtLeast: RATE_HELD },
  });
  report.course('events taken', EVENTS_A_SECOND, (span) => span.perSecond('engine_events_total'));
  report.one('rate taken by the engine', EVENTS_A_SECOND, whole.perSecond('engine_events_total'), {
    against: { name: 'rate sent', series: seriesOf([whole.sentPerSecond]) },
    goal: { ratioAtLeast: RATE_HELD },
  });
  report.course('largest lag of the engine', EVENTS, (span) => span.max('engine_unread_events'));
  for (const [name, q] of [
    ['p50', 0.5],
    ['p99', 0.99],
    ['p999', 0.999],
    ['longest', 1],
  ] as const) {
    report.course(
      `an event to its accumulator, ${name} at most`,
      MS,
      (span) => span.quantileMs('accumulate', q),
      name === 'p99' ? { valueBelow: ACCUMULATE_GOAL_MS } : undefined,
    );
  }
  report.drift('an event to its accumulator, p99 at most', MS, (span) => span.quantileMs('accumulate', 0.99));
  report.course('a firing to durable in the sink, p99 at most', MS, (span) => span.quantileMs('sink', 0.99), {
    valueBelow: SINK_GOAL_MS,
  });
  report.course('a batch through the operator, longest at most', MS, (span) => span.quantileMs('step', 1));
  const resident = (span: Span): number => span.max('rss');
  report.course('resident size of the engine, largest', BYTES, resident, { valueAtMost: 4 * GIB });
  report.drift(
    'resident size of the engine, largest',
    BYTES,
    resident,
    isLong(plan) ? { ratioAtLeast: STEADY_RATIO } : undefined,
  );
  report.course('state in memory, largest', BYTES, (span) => span.max('engine_state_bytes'));
  report.course('state on disk, largest', BYTES, (span) => span.max('engine_spilled_bytes'));
  report.course('accumulators held, most', { unit: 'rows', better: 'less' }, (span) =>
    span.max('engine_open_keys'),
  );
  report.course('spilled', BYTES, (span) => span.increase('engine_spill_bytes_total'), { valueAtLeast: 1 });
  report.course('changelog on disk, largest', BYTES, (span) => span.max('changelog'));
  report.course('checkpoints', { unit: 'checkpoints', better: 'more' }, (span) =>
    span.increase('engine_checkpoints_total'),
  );
  report.course('cut to durable checkpoint, mean', MS, (span) => {
    const [sum, count] = ['sum', 'count'].map((of) =>
      span.increase(`engine_checkpoint_duration_seconds_${of}`),
    ) as [number, number];
    return (sum / count) * 1000;
  });
  report.course(
    'share of events dropped for their lateness',
    { unit: 'of 1', better: 'less' },
    (span) => span.increase('dropped_late') / span.increase('engine_events_total'),
  );
  report.one('store of fired windows, largest', BYTES, whole.max('engine_fired_bytes'));
  report.one('disk that the machine had less at most, the broker included', BYTES, whole.max('disk'));
  for (const [name, label] of [
    ['engine', 'the engine'],
    ['gen', 'the source'],
    ['broker', 'the broker'],
  ] as const) {
    const spent = cpu.get(name) ?? Number.NaN;
    if (Number.isFinite(spent)) report.one(`CPU of ${label}`, CORES, spent / seconds);
  }
  if (recoverySeconds.length > 0)
    report.results.push(
      result({
        ...{ metric: 'restore after a kill', unit: 's', better: 'less', list: true },
        ours: seriesOf(recoverySeconds),
      }),
    );
}

async function checkRows(world: World, report: Report, plan: SoakPlan, soaked: Soaked): Promise<void> {
  const { context } = world;
  const { produced, summary, stream } = soaked;
  context.say('reading the results in the sink');
  const stored = await readStored(await kvDriver(context), soaked.sink, SAMPLE, context.drain);
  context.say(`counting ${produced} events again`);
  const recounted = await recount({
    stream,
    kernels: loadGenKernels(chooseNative(context.settings.native).mode),
    events: produced,
    partitions: PARTITIONS,
    rules: plan.rules,
    sample: SAMPLE,
    keyOf: plan.layout.keyOf,
    signal: context.drain,
  });
  const { windows, rows } = differencesOf(stored, recounted);
  const zero = { goal: { valueAtMost: 0 } } as const;
  const { consumed, accepted, droppedLate, invalid } = summary;
  context.say(
    `${produced} sent; ${consumed} consumed: ${accepted} accepted, ${droppedLate} dropped late, ${invalid} invalid`,
  );
  const unaccounted = Math.abs(produced - consumed) + Math.abs(consumed - accepted - droppedLate - invalid);
  report.one('events sent and not accounted for', EVENTS, unaccounted, zero);
  report.one(
    'events with another verdict than in the recount',
    EVENTS,
    Math.abs(accepted - recounted.accepted) + Math.abs(droppedLate - recounted.droppedLate),
    zero,
  );
  const all = recounted.windows.size;
  report.one(
    `windows of ${all} whose results, count, sum or sum by account differ from the recount`,
    { unit: 'windows', better: 'less' },
    windows,
    zero,
  );
  report.one(
    `results of ${stored.sampled.length} of sampled accounts that differ from the oracle`,
    { unit: 'rows', better: 'less' },
    rows,
    zero,
  );
  report.one('results in the sink', { unit: 'rows', better: 'more' }, stored.rows);
}

async function soak(world: World, plan: SoakPlan, loadBefore: number): Promise<readonly BenchResult[]> {
  const { context } = world;
  context.say(`${plan.rate} events a second for ${formatDuration(plan.durationMs)}`);
  const soaked = await new SoakRun(world, plan).run();
  const report = new Report(soaked);
  report.one(
    'load of the machine before the run, average of a minute',
    { unit: 'processes', better: 'less' },
    loadBefore,
  );
  report.one('events sent', { unit: 'events', better: 'more' }, soaked.produced, {
    ...(isLong(plan) ? { goal: { valueAtLeast: EVENTS_GOAL } } : {}),
  });
  courseRows(report, plan, soaked);
  report.one(
    'figures beyond the greatest bucket, or with a goal and not measured',
    { unit: 'figures', better: 'less' },
    report.unreported,
    { goal: { valueAtMost: 0 } },
  );
  await checkRows(world, report, plan, soaked);
  return report.results;
}

interface SoakBench extends Pick<SoakPlan, 'layout' | 'rate' | 'durationMs'> {
  readonly name: string;
  /** Describes the events. */
  readonly events: string;
}

/** Bench of a layout with its rate and length, which a smoke run replaces. */
export const soakBench = ({ name, events, layout, rate, durationMs }: SoakBench): Bench => ({
  name,
  takesBrokerProperties: true,
  summary: `The window engine under a billion ${events}, state on disk, killed if asked; every window recounted.`,
  async run(context) {
    const smoke = { ...SMOKE, flags: [...SMOKE.flags, `-mem-budget=${layout.smokeBudget}`] };
    const sizes = context.smoke ? smoke : { ...FULL, rate, durationMs };
    const plan = planOf(context, { ...sizes, layout });
    const [loadBefore] = loadavg();
    return openParts(context, { soak: (world) => soak(world, plan, loadBefore as number) });
  },
});

export const bench: Bench = soakBench({
  ...{ name: 'engine-soak', events: 'events of the fixed layout', layout: FIXED },
  ...{ rate: 450_000, durationMs: 40 * MINUTE_MS },
});
