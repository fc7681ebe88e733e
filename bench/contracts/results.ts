/** Results of a load in one format. */
import { type BenchResult, machine, result, seriesOf } from '../harness.ts';
import type { CodecSeconds } from './codec.ts';
import { type Flatness, type LagSample, lagsOf, SLOPE_SHARE_MAX } from './flat.ts';
import type { LiveRollout } from './live-rollout.ts';
import { type Ended, type Measured, SCHEMAS } from './load.ts';
import type { ContractsPlan } from './plan.ts';
import { carriedBy, codecShares, coresFor, stageCosts } from './stages.ts';

/** Limits that the requirements state; they are not scaled by the speed of the machine. */
const EVENTS_A_SECOND = 200_000;
const LOAD_SECONDS = 20 * 60;
const ROLLOUT_SECONDS = 15 * 60;
const MISS_SHARE = 0.0001;
/** Sizes of machines for which the results have the arithmetic. */
const OTHER_CORES = [4, 8] as const;

const MINUTE_MS = 60_000;

/** Part of a run. */
export interface Minute {
  readonly fromSeconds: number;
  readonly seconds: number;
  readonly writtenPerSecond: number;
  /** Rate of each group. */
  readonly readPerSecond: readonly number[];
  /** Largest lag of a group, events. */
  readonly lagMax: number;
}

/** Run at one rate, without its single samples. */
export interface HeldRun {
  readonly flatness: Flatness;
  readonly cpu: Measured['cpu'];
  readonly minutes: readonly Minute[];
  /** Lookups in the schema caches of all processes, and those among them that missed. */
  readonly lookups: number;
  readonly misses: number;
  /** Mean size of a framed value, bytes. */
  readonly valueBytes: number;
}

/** Everything that was measured in one format. */
export interface FormatRun {
  readonly plan: ContractsPlan;
  /** Trials of the search in their order, then the long runs that were not flat. */
  readonly trials: readonly Flatness[];
  readonly codec: CodecSeconds;
  readonly measured: HeldRun;
  readonly ended: Ended;
  readonly rollout?: LiveRollout;
}

/** Rates and lags between two samples that are at least a minute apart. */
function minuteOf(samples: readonly LagSample[]): Minute {
  const [first, last] = [samples[0] as LagSample, samples.at(-1) as LagSample];
  const seconds = (last.atMs - first.atMs) / 1000;
  return {
    fromSeconds: first.atMs / 1000,
    seconds,
    writtenPerSecond: (last.written - first.written) / seconds,
    readPerSecond: last.read.map((done, group) => (done - (first.read[group] as number)) / seconds),
    lagMax: Math.max(...samples.flatMap(lagsOf)),
  };
}

export function minutesOf({ flatness, samples, cpu, counts }: Measured): HeldRun {
  const minutes: Minute[] = [];
  let from = 0;
  for (let at = 1; at < samples.length; at++) {
    const tookMs = (samples[at] as LagSample).atMs - (samples[from] as LagSample).atMs;
    if (tookMs < MINUTE_MS && at < samples.length - 1) continue;
    minutes.push(minuteOf(samples.slice(from, at + 1)));
    from = at;
  }
  const records = counts.total('produced_records_total');
  return {
    flatness,
    cpu,
    minutes,
    lookups: counts.total('schema_cache_lookups_total'),
    misses: counts.total('schema_cache_lookups_total', (labels) => labels['result'] === 'miss'),
    valueBytes: records === 0 ? 0 : counts.total('produced_bytes_total') / records,
  };
}

type Options = Parameters<typeof result>[0];
type Row = Pick<Options, 'unit' | 'better'>;
const RATE: Row = { unit: 'events/s', better: 'more' };
const RECORDS: Row = { unit: 'records', better: 'less' };
const CPU: Row = { unit: 's CPU/million events', better: 'less' };
const CORES: Row = { unit: 'cores', better: 'less' };
const SECONDS: Row = { unit: 's', better: 'more' };

type Add = (metric: string, row: Row, value: number, goal?: Options['goal']) => void;

/** Processes that ask the registry: the producers, and one for each group. */
export const askingProcesses = ({ groups }: Pick<ContractsPlan, 'groups'>): number => 1 + groups;

function loadRows(add: Add, { plan, measured, ended }: FormatRun): void {
  const { flatness, lookups, misses, valueBytes } = measured;
  const atLeast = (value: number): Options['goal'] => (plan.isProfile ? { valueAtLeast: value } : undefined);
  const nothing = { valueAtMost: 0 } as const;
  add('events end to end, slowest group', RATE, flatness.readPerSecond, atLeast(EVENTS_A_SECOND));
  add('events written', RATE, flatness.writtenPerSecond);
  add('length of the load', SECONDS, flatness.seconds, atLeast(LOAD_SECONDS));
  add(
    'growth of the lag, as a share of the rate',
    { unit: 'of 1', better: 'less' },
    flatness.lagSlope / flatness.rate,
    plan.isProfile ? { valueAtMost: SLOPE_SHARE_MAX } : undefined,
  );
  add('largest lag of a group', RECORDS, flatness.lagMax);
  add('size of a framed value, mean', { unit: 'bytes', better: 'less' }, valueBytes);
  add(
    `requests that the registry answered to ${askingProcesses(plan)} processes with ${SCHEMAS} schemas`,
    { unit: 'requests', better: 'less' },
    ended.registryCalls,
    { valueAtMost: askingProcesses(plan) * SCHEMAS },
  );
  add(
    'lookups of a schema that missed the cache, under load',
    { unit: 'of 1', better: 'less' },
    lookups === 0 ? 1 : misses / lookups,
    { valueBelow: MISS_SHARE },
  );
  add('records acknowledged', { unit: 'records', better: 'more' }, ended.produced);
  add(
    'records acknowledged and not written, or written twice',
    RECORDS,
    Math.abs(ended.produced - ended.written),
    nothing,
  );
  const differences = ended.consumed.map((read) => read - ended.written);
  add('records that a group did not read', RECORDS, Math.max(0, ...differences.map((one) => -one)), nothing);
  add('records that a group read again', RECORDS, Math.max(0, ...differences));
  add('records unreadable', RECORDS, ended.unreadable, nothing);
}

function stageRows(add: Add, { plan, measured, codec }: FormatRun): void {
  const { process, total, busyCores } = stageCosts(measured);
  const { cores } = machine();
  const shares = codecShares(codec, plan.groups);
  const measuredBy = 'by process';
  const apart = 'measured apart';
  add(`producers, ${measuredBy}`, CPU, process.producer);
  add(`of these the generator of orders, ${apart}`, CPU, shares.generate);
  add(`of these the codec: encode and frame, ${apart}`, CPU, shares.encode);
  add(`broker, ${measuredBy}`, CPU, process.broker);
  add(`consumers of ${plan.groups} groups, ${measuredBy}`, CPU, process.consumer);
  add(`of these the codec: scan and decode in ${plan.groups} groups, ${apart}`, CPU, shares.decode);
  add(`registry, ${measuredBy}`, CPU, process.registry);
  add('all stages', CPU, total);
  add(`cores of ${cores} that the load kept busy`, CORES, busyCores);
  // Without the broker's CPU nothing follows for other machines.
  if (Number.isNaN(total)) return;
  const rate = measured.flatness.readPerSecond;
  for (const others of OTHER_CORES)
    add(`a machine of ${others} cores would carry, by arithmetic`, RATE, carriedBy(rate, cores, others));
  add(`cores for ${EVENTS_A_SECOND} events/s, by arithmetic`, CORES, coresFor(EVENTS_A_SECOND, rate, cores));
}

function rolloutRows(add: Add, { plan, rollout }: FormatRun): void {
  if (rollout === undefined) return;
  const { rate, durationMs, errors, upgraded, produced, lagMax } = rollout;
  const wanted = plan.rolloutProcesses * (1 + plan.groups);
  const atLeast = (value: number): Options['goal'] => (plan.isProfile ? { valueAtLeast: value } : undefined);
  add('live rollout: rate', RATE, rate, atLeast(EVENTS_A_SECOND));
  add('live rollout: time under load', SECONDS, durationMs / 1000, atLeast(ROLLOUT_SECONDS));
  add('live rollout: records written', { unit: 'records', better: 'more' }, produced);
  add('live rollout: records unreadable', RECORDS, errors, { valueAtMost: 0 });
  add(
    `live rollout: processes of ${wanted} not upgraded`,
    { unit: 'processes', better: 'less' },
    wanted - upgraded.length,
    { valueAtMost: 0 },
  );
  add('live rollout: largest lag of all groups', RECORDS, lagMax);
}

export function resultsOf(run: FormatRun): readonly BenchResult[] {
  const results: BenchResult[] = [];
  const add: Add = (metric, row, value, goal) => {
    // A broker on another machine has no CPU here.
    if (Number.isNaN(value)) return;
    results.push(
      result({
        metric: `${run.plan.format}: ${metric}`,
        ...row,
        ours: seriesOf([value]),
        ...(goal === undefined ? {} : { goal }),
      }),
    );
  };
  loadRows(add, run);
  stageRows(add, run);
  rolloutRows(add, run);
  return results;
}
