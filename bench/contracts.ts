/** `millrace bench contracts`: the load profile of the registry's requirements on a real broker: 24
 *  producers and 48 consumers in two groups, framed orders of about 512 bytes. It searches the
 *  highest rate at which no group falls behind, holds that rate for -duration, counts every record,
 *  and with -live-rollout upgrades such a fleet at that rate.
 *
 *  Rates and lags come from offsets that plain clients read, CPU from the operating system. */
import { statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { coreError } from '../src/core/errors.ts';
import { formatDuration } from '../src/core/quantity.ts';
import { buildDigest } from '../src/shell/package.ts';
import { type Children, openChildren } from './children.ts';
import { type CodecSeconds, codecSeconds } from './contracts/codec.ts';
import { type Flatness, RateSearch } from './contracts/flat.ts';
import { liveRollout } from './contracts/live-rollout.ts';
import { Fleet } from './contracts/load.ts';
import { type ContractsReport, contractsPage, type FormatRun } from './contracts/page.ts';
import { type ContractsPlan, planOf } from './contracts/plan.ts';
import { minutesOf, resultsOf } from './contracts/results.ts';
import { guessedRate, stageCosts } from './contracts/stages.ts';
import { type Bench, type BenchContext, type BenchResult, machine } from './harness.ts';
import { selectParts } from './parts.ts';
import { storeReport } from './stored.ts';

const FORMATS = ['avro', 'protobuf'] as const;
/** Share of the cores that the load is expected to use at its highest flat rate. */
const BUSY_SHARE = 0.9;
/** Factor of a run after one that was not flat. */
const LOWER = 0.95;

const perSecond = (value: number): string => Math.round(value).toLocaleString('en-US');

function sayTrial(
  context: BenchContext,
  { rate, lagSlope, lagSlopeError, lagMax, isFlat, writtenPerSecond }: Flatness,
): void {
  const verdict = isFlat ? 'flat' : 'not flat';
  context.say(
    `${perSecond(rate)}/s: ${verdict}; ${perSecond(writtenPerSecond)}/s written, lag up to ${perSecond(lagMax)}, rising by ${perSecond(lagSlope)} ± ${perSecond(lagSlopeError)}/s`,
  );
}

/** Searches the highest flat rate with one fleet. */
async function searchRate(
  context: BenchContext,
  children: Children,
  plan: ContractsPlan,
): Promise<{ readonly rate: number; readonly trials: readonly Flatness[] }> {
  context.say('searching the highest flat rate');
  const fleet = await Fleet.open(context, children, plan);
  const probe = await fleet.run(plan.probeRate, plan.trialMs, plan.warmMs);
  const guess = guessedRate(stageCosts(probe), machine().cores, BUSY_SHARE);
  const search = new RateSearch(Number.isFinite(guess) ? guess : plan.probeRate * 2, plan.trialsMax);
  const trials: Flatness[] = [];
  for (let rate = search.next(); rate !== undefined; rate = search.next()) {
    const { flatness } = await fleet.run(rate, plan.trialMs, plan.warmMs);
    sayTrial(context, flatness);
    trials.push(flatness);
    search.report(flatness.isFlat);
  }
  await fleet.end();
  return { rate: search.best, trials };
}

/** Holds a rate with a new fleet, whose start is cold. */
async function hold(
  context: BenchContext,
  children: Children,
  plan: ContractsPlan,
  rate: number,
): Promise<Pick<FormatRun, 'measured' | 'ended'>> {
  context.say(`${perSecond(rate)} events a second for ${Math.round(plan.durationMs / 1000)} s`);
  const fleet = await Fleet.open(context, children, plan);
  const measured = await fleet.run(rate, plan.durationMs, plan.warmMs);
  sayTrial(context, measured.flatness);
  return { measured: minutesOf(measured), ended: await fleet.end() };
}

async function runFormat(
  context: BenchContext,
  children: Children,
  plan: ContractsPlan,
  codec: CodecSeconds,
): Promise<FormatRun> {
  const found =
    plan.rate === undefined
      ? await searchRate(context, children, plan)
      : { rate: plan.rate, trials: [] as readonly Flatness[] };
  let { rate } = found;
  let held = await hold(context, children, plan, rate);
  const missed: Flatness[] = [];
  while (plan.rate === undefined && !held.measured.flatness.isFlat && missed.length + 1 < plan.runsMax) {
    missed.push(held.measured.flatness);
    rate = Math.floor(rate * LOWER);
    held = await hold(context, children, plan, rate);
  }
  const rollout =
    plan.liveRolloutMs === undefined
      ? undefined
      : await liveRollout(context, children, plan, rate, plan.liveRolloutMs);
  return { plan, trials: [...found.trials, ...missed], codec, ...held, ...(rollout && { rollout }) };
}

/** Factor by which a topic may exceed its size between two checks of the broker, with the files of
 *  the topic before it. */
const DISK_FACTOR = 1.25;

/** @throws out_of_range where a broker of this run would fill the disk */
function checkDisk({ smoke, brokers }: BenchContext, { topicBytesMax }: ContractsPlan): void {
  if (smoke || brokers !== undefined) return;
  const { bavail, bsize } = statfsSync(tmpdir());
  const needed = topicBytesMax * DISK_FACTOR;
  if (bavail * bsize >= needed) return;
  throw coreError(
    'out_of_range',
    `${tmpdir()} has ${bavail * bsize} bytes left, and the load needs ${needed}`,
    {
      next: 'free disk space, set TMPDIR to another file system, or give -brokers',
    },
  );
}

export const bench: Bench = {
  name: 'contracts',
  takesBrokerProperties: true,
  storesReport: true,
  summary:
    'The required load: 24 producers and 48 consumers on a real broker, the highest flat rate, and a live rollout.',
  async run(context) {
    const formats = selectParts(context.only ?? ['avro'], FORMATS) as ReadonlyArray<(typeof FORMATS)[number]>;
    for (const format of formats) checkDisk(context, planOf(context, format));
    const codecs = new Map<string, CodecSeconds>();
    // Before any process of the load runs.
    for (const format of formats) codecs.set(format, await codecSeconds(context, format));
    const children = await openChildren(context, 'contracts');
    const runs: FormatRun[] = [];
    const results: BenchResult[] = [];
    for (const format of formats) {
      const plan = planOf(context, format);
      const run = await runFormat(context, children, plan, codecs.get(format) as CodecSeconds);
      runs.push(run);
      results.push(...resultsOf(run));
      if (context.out === undefined) continue;
      const report: ContractsReport = {
        bench: 'contracts',
        build: buildDigest(),
        machine: machine(),
        flags: flagsOf(context),
        results,
        runs,
      };
      storeReport(context.out, report, contractsPage(report));
    }
    return results;
  },
};

/** Flags that repeat the run. */
function flagsOf({ smoke, only, rate, durationMs, liveRolloutMs }: BenchContext): readonly string[] {
  return [
    ...(smoke ? ['-smoke'] : []),
    ...(only === undefined ? [] : [`-only=${only.join()}`]),
    ...(rate === undefined ? [] : [`-rate=${rate}`]),
    ...(durationMs === undefined ? [] : [`-duration=${formatDuration(durationMs)}`]),
    ...(liveRolloutMs === undefined ? [] : [`-live-rollout=${formatDuration(liveRolloutMs)}`]),
  ];
}
