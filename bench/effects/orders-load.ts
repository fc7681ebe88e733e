/** The load of the requirements under faults: POST /orders with repeats, relay and payments, each
 *  relay mode with both shares of duplicates, while the processes are killed in turn.
 *
 *  Kills come at fixed times of the load, so that the load generator and the database can leave out
 *  the time after each. After a run the reconciler reads the ledger of the load generator. */
import { createReadStream, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readLedger } from '../../src/outbox/reconcile/client-ledger.ts';
import { reconcile } from '../../src/outbox/reconcile/run.ts';
import { type BenchContext, type BenchReport, type BenchResult, result, seriesOf } from '../harness.ts';
import { keptRuns, type MadeBy, madeHere, storeReport } from '../stored.ts';
import { machineFactor } from '../unit.ts';
import type { FaultTimes, Quantiles } from './load.ts';
import { OrdersRun, type SteadyRun } from './orders-run.ts';
import type { Restartable } from './restartable.ts';
import type { EffectTimes } from './truth.ts';
import type { World } from './world.ts';

const NAME = 'orders-load';
const RELAYS = ['poll', 'wal'] as const;
const DUPLICATES = [0.05, 0.3] as const;
const KILL_EVERY_S = 60;
const SETTLE_S = 15;
/** A run shorter than two kills still kills each process once. */
const KILLS_LEAST = 3;
/** Part of the time between two kills that counts as after a kill, in a short run. */
const SETTLE_SHARE = 0.25;
/** The window after a kill begins with the due time of the kill, so a kill must not come before. */
const KILL_LATE_MS = 200;
/** Requests that wait for a process to start again are sent for this long after the load. */
const GIVE_UP_S = 120;
const SEED = 1;
const PARTS = ['orders', 'relay', 'payments', 'postgres', 'broker'] as const;

/** CPU of a request over all processes on the reference machine, us, by the number of brokers. */
const CPU_GOALS_US: Readonly<Record<number, number>> = { 1: 120, 3: 200 };

export interface LoadCell {
  readonly relay: (typeof RELAYS)[number];
  readonly dupRate: number;
  /** Requests a second, repeats included. */
  readonly rate: number;
  readonly seconds: number;
  readonly warmupSeconds: number;
  readonly brokers: number;
  readonly faults: FaultTimes;
}

/** A finished run; times in ms, CPU in us a request. */
export interface LoadRun extends MadeBy {
  readonly cell: LoadCell;
  /** Time of its machine divided by that of the reference machine, which scales the goal of CPU. */
  readonly factor: number;
  readonly perSecond: number;
  readonly intents: number;
  readonly unanswered: number;
  readonly kills: number;
  readonly deltas: number;
  readonly suppressed: number;
  readonly post: Quantiles;
  /** Latency of the requests that are due outside the time after a kill. */
  readonly calmPost: Quantiles;
  readonly effect: EffectTimes;
  readonly calmEffect: EffectTimes;
  readonly cpuUs: Readonly<Record<(typeof PARTS)[number], number>>;
}

interface LoadReportFile extends BenchReport {
  readonly runs: readonly LoadRun[];
}

export const loadCellName = ({ relay, dupRate }: LoadCell): string =>
  `relay=${relay}, ${Math.round(dupRate * 100)}% duplicates`;

/** Times of the kills: every minute, in a short run so that each process is killed once. */
function faultTimes(seconds: number): FaultTimes {
  const everySeconds = Math.min(KILL_EVERY_S, seconds / (KILLS_LEAST + 1));
  return { everySeconds, forSeconds: Math.min(SETTLE_S, everySeconds * SETTLE_SHARE) };
}

/** Number of kills within a run. */
const killsOf = ({ seconds, faults }: LoadCell): number => Math.ceil(seconds / faults.everySeconds) - 1;

/** Cells of a run, of a smoke run the two that differ in both choices. */
export function loadCells(
  sizes: Pick<LoadCell, 'rate' | 'seconds' | 'warmupSeconds' | 'brokers'>,
  smoke: boolean,
): readonly LoadCell[] {
  const cells = RELAYS.flatMap((relay) =>
    DUPLICATES.map((dupRate) => ({ relay, dupRate, ...sizes, faults: faultTimes(sizes.seconds) })),
  );
  return smoke ? cells.filter((_, index) => index % 3 === 0) : cells;
}

/** Kills the processes in turn, at the times of the cell. Returns the number of kills. */
async function killInTurn(victims: readonly Restartable[], cell: LoadCell): Promise<number> {
  const startedMs = performance.now();
  const planned = killsOf(cell);
  for (let kill = 1; kill <= planned; kill++) {
    const dueMs = 1000 * (cell.warmupSeconds + kill * cell.faults.everySeconds) + KILL_LATE_MS;
    await sleep(Math.max(0, startedMs + dueMs - performance.now()));
    await (victims[kill % victims.length] as Restartable).restart();
  }
  return planned;
}

/** Applies the load of a cell, with the kills. */
async function loadUnderKills(
  run: OrdersRun,
  cell: LoadCell,
  ledger: string,
): Promise<{ readonly steady: SteadyRun; readonly kills: number }> {
  const { rate, seconds, warmupSeconds, faults } = cell;
  let killing: Promise<number> = Promise.resolve(0);
  const steady = await run.steady({
    ...{ rate, seconds, warmupSeconds, faults, ledger, giveUpSeconds: GIVE_UP_S },
    onStart: () => {
      killing = killInTurn([run.orders, ...run.downstream], cell);
      // Its error ends the run below, after the load.
      killing.catch(() => {});
    },
    beforeChecks: () => killing,
  });
  return { steady, kills: await killing };
}

async function runCell(world: World, cell: LoadCell): Promise<LoadRun> {
  const run = await OrdersRun.start(world, {
    relayAndPayments: true,
    relayFlags: [`-relay=${cell.relay}`],
    paymentsFlags: [`-dup-rate=${cell.dupRate}`, `-seed=${SEED}`],
  });
  const ledger = join(world.dir, `${cell.relay}-${cell.dupRate}.jsonl`);
  const { steady, kills } = await loadUnderKills(run, cell, ledger);
  const { report, cpuUs, effect, calmEffect } = steady;
  const { deltas, suppressed } = await reconcile({
    pool: run.database.pool,
    ...{ ordersSchema: 'public', paymentsSchema: 'public', idsMax: 10 },
    ledgers: [() => readLedger(createReadStream(ledger))],
  });
  await run.stop();
  rmSync(ledger);
  return {
    ...{
      cell,
      ...madeHere(),
      factor: machineFactor(),
      kills,
      perSecond: report.per_second,
      intents: report.intents,
      unanswered: report.unknown,
    },
    deltas: deltas.reduce((sum, { count }) => sum + count, 0),
    suppressed: Object.values(suppressed).reduce((sum, count) => sum + count, 0),
    ...{ post: report.latency_ms, calmPost: report.calm_ms },
    effect: effect as EffectTimes,
    calmEffect: calmEffect as EffectTimes,
    cpuUs: Object.fromEntries(PARTS.map((part) => [part, cpuUs(part)])) as LoadRun['cpuUs'],
  };
}

function rowsOf({ cell, ...run }: LoadRun): readonly BenchResult[] {
  const { rate, brokers, faults } = cell;
  const what = `load at ${rate}/s, ${loadCellName(cell)}, ${brokers} broker${brokers === 1 ? '' : 's'}`;
  const outside = `outside the ${faults.forSeconds} s after a kill`;
  const row = (metric: string, unit: string, value: number, goal?: Parameters<typeof result>[0]['goal']) =>
    result({
      ...{ metric: `${what}, ${metric}`, unit, better: unit === 'requests/s' ? 'more' : 'less' },
      ours: seriesOf([value]),
      ...(goal === undefined ? {} : { goal }),
    });
  const total = PARTS.reduce((sum, part) => sum + run.cpuUs[part], 0);
  const goalUs = CPU_GOALS_US[brokers];
  return [
    row('rate reached', 'requests/s', run.perSecond, { valueAtLeast: 0.98 * rate }),
    row('kills', 'processes', run.kills),
    row(`p99 of POST ${outside}`, 'ms', run.calmPost.p99, { valueAtMost: 25 }),
    row('p99 of POST, all', 'ms', run.post.p99),
    row(`commit to effect ${outside}, p99`, 'ms', run.calmEffect.p99, { valueAtMost: 2000 }),
    row('commit to effect, all, p99', 'ms', run.effect.p99),
    row('intents without an answer', 'intents', run.unanswered, { valueAtMost: 0 }),
    row('deltas', 'deltas', run.deltas, { valueAtMost: 0 }),
    row('messages received again and not charged', 'messages', run.suppressed),
    ...PARTS.filter((part) => !Number.isNaN(run.cpuUs[part])).map((part) =>
      row(`CPU of ${part} a request`, 'us', run.cpuUs[part]),
    ),
    ...(Number.isNaN(total)
      ? []
      : [
          row(
            'CPU of all a request',
            'us',
            total,
            goalUs === undefined ? undefined : { onReference: goalUs, factor: run.factor },
          ),
        ]),
  ];
}

const resultsOf = (runs: readonly LoadRun[]): readonly BenchResult[] => runs.flatMap(rowsOf);

function store({ out, smoke }: BenchContext, runs: readonly LoadRun[]): void {
  if (out === undefined) return;
  const flags = smoke ? { flags: ['-only=load', '-smoke'] } : { flags: ['-only=load'] };
  const parts = { bench: NAME, ...madeHere(), ...flags };
  storeReport(out, { ...parts, results: resultsOf(runs), runs } as LoadReportFile);
}

/** True for a run without an error; a missed latency is a result. */
const isExact = ({ deltas, unanswered }: LoadRun): boolean => deltas === 0 && unanswered === 0;

/** Runs the cells. With `out` each finished run is stored immediately, and a further call, of any
 *  build, makes the others. */
export async function loadUnderFaults(
  world: World,
  { rate, seconds, warmupSeconds }: Pick<LoadCell, 'rate' | 'seconds' | 'warmupSeconds'>,
): Promise<readonly BenchResult[]> {
  const { context } = world;
  const brokers = world.brokers.split(',').length;
  const cells = loadCells({ rate, seconds, warmupSeconds, brokers }, context.smoke);
  const runs = keptRuns<LoadCell, LoadRun>(context, NAME, cells, isExact);
  const names = new Set(runs.map(({ cell }) => loadCellName(cell)));
  for (const cell of cells) {
    if (names.has(loadCellName(cell)) || context.drain.aborted) continue;
    context.say(`load: ${loadCellName(cell)}`);
    runs.push(await runCell(world, cell));
    store(context, runs);
  }
  return resultsOf(runs);
}
