/** `millrace bench chaos`: `millrace chaos` at each crash point, with both relays and both shares
 *  of duplicates, and what the reconciler finds.
 *
 *  With -out each finished run is stored immediately with the build and the machine that made it,
 *  and a further call, of any build, makes the other runs. A run that is stopped is made again, and
 *  so is one that does not hold once there is another build. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { CRASH_POINT_NAMES } from '../src/chaos/faults.ts';
import type { ChaosReport } from '../src/chaos/report.ts';
import { coreError, EXIT } from '../src/core/errors.ts';
import { environmentName } from '../src/core/settings.ts';
import { Processes } from '../src/shell/children/processes.ts';
import { packageRoot } from '../src/shell/package.ts';
import { type CellOverrides, type ChaosCell, cellName, chaosCells } from './chaos/cells.ts';
import { type ChaosBenchReport, type ChaosRun, chaosRunsPage } from './chaos/page.ts';
import { STOP_GRACE_MS } from './children.ts';
import { clientEnv, nativeEnv } from './effects/world.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';
import { selectParts } from './parts.ts';
import { keptRuns, madeHere, storeReport } from './stored.ts';

const NAME = 'chaos';
/** Runs of a smoke run, and its faults: both relays, seconds each. */
const SMOKE: readonly string[] = ['publish poll 5%', 'effect wal 30%'];
const SMOKE_CELLS: CellOverrides = { durationMs: 3000, rate: 60, brokerCount: 1 };
const SMOKE_FLAGS = ['-faults=crash', '-fault-timeout=10m', '-settle-timeout=10m', '-partitions=2'];

/** Cells of the series with these settings, whose stored runs are kept. */
function allCells({ durationMs, rate, brokerCount, smoke }: BenchContext): readonly ChaosCell[] {
  const given = { durationMs, rate, brokerCount };
  if (!smoke) return chaosCells(given);
  return chaosCells({ ...SMOKE_CELLS, ...defined(given) }).filter((cell) => SMOKE.includes(cellName(cell)));
}

const defined = (given: CellOverrides): CellOverrides =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));

function store(context: BenchContext, runs: readonly ChaosRun[]): void {
  if (context.out === undefined) return;
  const { smoke, durationMs, rate, brokerCount } = context;
  const flags = [
    ...(smoke ? ['-smoke'] : []),
    ...(durationMs === undefined ? [] : [`-duration=${durationMs}ms`]),
    ...(rate === undefined ? [] : [`-rate=${rate}`]),
    ...(brokerCount === undefined ? [] : [`-broker-count=${brokerCount}`]),
  ];
  const report: ChaosBenchReport = {
    ...{ bench: NAME, ...madeHere() },
    ...(flags.length === 0 ? {} : { flags }),
    ...{ results: resultsOf(runs), runs },
  };
  storeReport(context.out, report, chaosRunsPage(report));
}

/** Children of the bench, which end with it. */
function openProcesses(context: BenchContext): Processes {
  const root = join(packageRoot(), '.millrace', 'bench');
  mkdirSync(root, { recursive: true });
  const dir = mkdtempSync(join(root, `${NAME}-`));
  const database = context.postgres === undefined ? {} : { [environmentName('postgres')]: context.postgres };
  const processes = new Processes({
    ...{ dir, stay: false },
    env: {
      ...process.env,
      ...nativeEnv(context),
      ...clientEnv(dir, context.brokerProperties ?? {}),
      ...database,
    },
  });
  const killNow = (): void => processes.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await processes.end(STOP_GRACE_MS);
    process.removeListener('exit', killNow);
    rmSync(dir, { recursive: true, force: true });
  });
  return processes;
}

function argsOf(context: BenchContext, cell: ChaosCell): readonly string[] {
  return [
    ...['chaos', '-json', '-log-level=warn', '-listen=127.0.0.1:0'],
    ...[`-crash-point=${cell.point}`, `-relay=${cell.relay}`, `-dup-rate=${cell.dupRate}`],
    ...[`-seed=${cell.seed}`, `-duration=${cell.durationMs}ms`, `-rate=${cell.rate}`],
    ...(context.brokers === undefined
      ? [`-broker-count=${cell.brokerCount}`]
      : [`-brokers=${context.brokers}`]),
    ...(context.smoke ? SMOKE_FLAGS : []),
  ];
}

/** Makes a run. Undefined: a drain ended it. @throws unreachable where it had no verdict */
async function runCell(
  context: BenchContext,
  processes: Processes,
  cell: ChaosCell,
): Promise<ChaosRun | undefined> {
  const child = processes.spawn(NAME, argsOf(context, cell));
  const stop = (): void => child.kill('SIGTERM');
  context.drain.addEventListener('abort', stop, { once: true });
  if (context.drain.aborted) stop();
  const how = await child.ended;
  context.drain.removeEventListener('abort', stop);
  if (context.drain.aborted) return undefined;
  if (how.code !== EXIT.done && how.code !== EXIT.no)
    throw coreError(
      'unreachable',
      `the run ${cellName(cell)} ended with ${how.signal ?? `code ${how.code}`}`,
      {
        next: `see ${child.logPath}: ${readFileSync(child.logPath, 'utf8').trim().split('\n').at(-1)}`,
      },
    );
  return runOf(cell, JSON.parse(child.stdout()) as ChaosReport);
}

function runOf(cell: ChaosCell, report: ChaosReport): ChaosRun {
  const { reconciliation, coverage, outcomes, samples, holds, reasons, replay, seconds } = report;
  const applied = outcomes.filter((one) => one.applied);
  const kinds: Record<string, number> = {};
  for (const { fault } of applied) kinds[fault.kind] = (kinds[fault.kind] ?? 0) + 1;
  return {
    ...{ cell, ...madeHere(), holds, reasons, replay, seconds, kinds },
    intents: reconciliation.produced_intents,
    orders: reconciliation.distinct_orders,
    charges: reconciliation.distinct_charges,
    deltas: reconciliation.deltas.reduce((sum, { count }) => sum + count, 0),
    suppressed: reconciliation.suppressed['seen'] ?? 0,
    planned: outcomes.length,
    applied: applied.length,
    unplannedEnds: report.unplanned_ends.length,
    pendingMax: samples.reduce((most, { pending }) => Math.max(most, pending), 0),
    lagMax: samples.reduce((most, { lag }) => Math.max(most, lag), 0),
    ...(coverage === undefined ? {} : { coverage }),
  };
}

function resultsOf(runs: readonly ChaosRun[]): readonly BenchResult[] {
  const row = (metric: string, unit: string, of: (run: ChaosRun) => number, most?: number): BenchResult =>
    result({
      ...{ metric, unit, better: 'less' },
      ours: seriesOf([runs.reduce((sum, run) => sum + of(run), 0)]),
      ...(most === undefined ? {} : { goal: { valueAtMost: most } }),
    });
  return [
    row('runs under faults', 'runs', () => 1),
    row('runs that do not hold', 'runs', ({ holds }) => (holds ? 0 : 1), 0),
    row('deltas', 'deltas', ({ deltas }) => deltas, 0),
    row('planned faults that were not applied', 'faults', ({ planned, applied }) => planned - applied, 0),
    row('faults applied', 'faults', ({ applied }) => applied),
    row('intents', 'intents', ({ intents }) => intents),
    row('charges', 'charges', ({ charges }) => charges),
    row('messages received again and not charged', 'messages', ({ suppressed }) => suppressed),
  ];
}

export const bench: Bench = {
  name: NAME,
  takesBrokerProperties: true,
  storesReport: true,
  summary:
    'Effects under faults: each crash point, both relays, 5 % and 30 % duplicates, judged by reconcile.',
  async run(context) {
    const points = selectParts(context.only, CRASH_POINT_NAMES);
    const all = allCells(context);
    const runs = keptRuns<ChaosCell, ChaosRun>(context, NAME, all, ({ holds }) => holds);
    const processes = openProcesses(context);
    const isDone = (cell: ChaosCell): boolean => runs.some((run) => cellName(run.cell) === cellName(cell));
    for (const cell of all) {
      if (isDone(cell) || !points.includes(cell.point)) continue;
      const ran = await runCell(context, processes, cell);
      if (ran === undefined) break;
      runs.push(ran);
      runs.sort((a, b) => a.cell.seed - b.cell.seed);
      const verdict = ran.holds ? 'holds' : `BROKEN: ${ran.reasons.join('; ')}`;
      context.say(
        `${runs.length} of ${all.length}: ${cellName(cell)}: ${ran.intents} intents, ${ran.applied} faults, ${ran.deltas} deltas, ${verdict}`,
      );
      store(context, runs);
    }
    return resultsOf(runs);
  },
};
