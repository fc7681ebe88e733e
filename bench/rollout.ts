/** `millrace bench rollout`: a rolling upgrade of a real fleet in every cell of step, mode, order
 *  and format. The records that the consumers cannot read are compared with live decode.
 *
 *  With -out each finished cell is stored immediately, and a further run of the same build runs the
 *  other cells. */

import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ready } from '../src/shell/children/ready.ts';
import { buildDigest } from '../src/shell/package.ts';
import { openChildren, STOP_GRACE_MS } from './children.ts';
import { type Bench, type BenchContext, type BenchResult, machine, result, seriesOf } from './harness.ts';
import { selectParts } from './parts.ts';
import { CELL_FORMATS, type Cell, cellName, cellsOf, changesOf } from './rollout/cells.ts';
import { type Damage, damageOf } from './rollout/damage.ts';
import { agrees, breaks, type CellResult, type CellWorld, isFinished, runCell } from './rollout/fleet.ts';
import { type RolloutReport, rolloutPage } from './rollout/page.ts';
import { storeReport } from './stored.ts';

/** Cells at the same time. A cell ends by states, so its result does not depend on others. */
const CONCURRENT = 4;
/** Cells of a smoke run: both orders of a step that only one order survives, and a change that NONE
 *  refuses too. */
const SMOKE: readonly string[] = [
  'avro 3 to 4 BACKWARD consumers-first',
  'avro 3 to 4 BACKWARD producers-first',
  'protobuf 4 to retype-int-string FULL producers-first',
];

/** Cells and damages of earlier runs of this build on this machine. */
interface Kept {
  readonly cells: CellResult[];
  readonly damages: Damage[];
}

const pathOf = (folder: string): string => join(folder, 'rollout.json');

function keptOf(context: BenchContext): Kept {
  const none = { cells: [], damages: [] };
  if (context.out === undefined || !existsSync(pathOf(context.out))) return none;
  const {
    build,
    machine: ran,
    cells,
    damages,
  } = JSON.parse(readFileSync(pathOf(context.out), 'utf8')) as RolloutReport;
  const isOwn = build === buildDigest() && JSON.stringify(ran) === JSON.stringify(machine());
  if (!isOwn) return none;
  const finished = cells.filter(isFinished);
  context.say(`${finished.length} cells of an earlier run of this build are kept`);
  return { cells: [...finished], damages: [...damages] };
}

function store(context: BenchContext, kept: Kept): void {
  if (context.out === undefined) return;
  const flags = [
    ...(context.smoke ? ['-smoke'] : []),
    ...(context.only === undefined ? [] : [`-only=${context.only.join()}`]),
  ];
  const report: RolloutReport = {
    bench: 'rollout',
    build: buildDigest(),
    machine: machine(),
    ...(flags.length === 0 ? {} : { flags }),
    results: resultsOf(kept),
    ...kept,
  };
  storeReport(context.out, report, rolloutPage(report));
}

/** Starts the registry of all cells. Everything ends with the benchmark. */
async function openWorld(context: BenchContext): Promise<CellWorld> {
  const { brokers, processes } = await openChildren(context, 'rollout');
  const args = ['registry', '-store=memory', '-listen=127.0.0.1:0', '-log-level=warn'];
  const registry = `http://${await ready('registry', processes.spawn('registry', args))}`;
  return { processes, brokers, registry };
}

/** Runs a cell. Undefined: a drain ended its rollout. */
async function runOne(context: BenchContext, world: CellWorld, cell: Cell): Promise<CellResult | undefined> {
  const end = (): void => void world.processes.end(STOP_GRACE_MS);
  context.drain.addEventListener('abort', end, { once: true });
  try {
    const ran = await runCell(world, cell);
    return context.drain.aborted ? undefined : ran;
  } catch (thrown) {
    if (context.drain.aborted) return undefined;
    throw thrown;
  } finally {
    context.drain.removeEventListener('abort', end);
  }
}

function wantedCells(context: BenchContext): readonly Cell[] {
  const all = selectParts(context.only, CELL_FORMATS).flatMap((format) => cellsOf(format as 'avro'));
  return context.smoke ? all.filter((cell) => SMOKE.includes(cellName(cell))) : all;
}

async function findDamages(
  context: BenchContext,
  world: CellWorld,
  cells: readonly Cell[],
): Promise<Damage[]> {
  const damages: Damage[] = [];
  for (const change of changesOf('protobuf')) {
    if (!cells.some((cell) => cell.format === 'protobuf' && cell.to === change.to)) continue;
    const subject = `damage-${change.to}-${randomBytes(4).toString('hex')}`;
    const damage = await damageOf(world.registry, subject, change);
    if (damage !== undefined) damages.push(damage);
  }
  context.say(`${damages.length} changes are refused even under NONE`);
  return damages;
}

function resultsOf({ cells, damages }: Kept): readonly BenchResult[] {
  const finished = cells.filter(isFinished);
  const counted = (metric: string, unit: string, value: number, most?: number): BenchResult =>
    result({
      metric,
      unit,
      better: 'less',
      ours: seriesOf([value]),
      ...(most === undefined ? {} : { goal: { valueAtMost: most } }),
    });
  const total = (of: (cell: CellResult) => number): number => cells.reduce((sum, cell) => sum + of(cell), 0);
  return [
    counted('rolling upgrades of a real fleet', 'cells', cells.length),
    counted('upgrades that did not finish', 'cells', cells.length - finished.length, 0),
    counted('counter and live decode disagree', 'cells', finished.filter((cell) => !agrees(cell)).length, 0),
    counted(
      'safe by the plan, but with unreadable records',
      'cells',
      finished.filter(({ safe, errors }) => safe && errors > 0).length,
      0,
    ),
    counted('unreadable by live decode, and counted', 'cells', finished.filter(breaks).length),
    counted('changes that NONE refuses too', 'changes', damages.length),
    counted(
      'records written',
      'records',
      total(({ produced }) => produced),
    ),
    counted(
      'records unreadable',
      'records',
      total(({ errors }) => errors),
    ),
  ];
}

function sayCell(context: BenchContext, cell: CellResult, count: number, wanted: number): void {
  const judged = agrees(cell) ? 'as live decode says' : 'NOT as live decode says';
  context.say(
    `${count} of ${wanted}: ${cellName(cell)}: ${cell.verdict}, ${cell.errors} unreadable, ${judged}`,
  );
}

export const bench: Bench = {
  name: 'rollout',
  takesBrokerProperties: true,
  storesReport: true,
  summary: 'Rolling upgrades of a real fleet beside live decode: every step, mode, order and format.',
  async run(context) {
    const wanted = wantedCells(context);
    const kept = keptOf(context);
    const world = await openWorld(context);
    const open = wanted.filter((cell) => !kept.cells.some((one) => cellName(one) === cellName(cell)));
    const work = async (): Promise<void> => {
      for (let cell = open.shift(); cell !== undefined; cell = open.shift()) {
        const ran = await runOne(context, world, cell);
        if (ran === undefined) return;
        kept.cells.push(ran);
        sayCell(context, ran, kept.cells.length, wanted.length);
        store(context, kept);
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT }, work));
    if (kept.damages.length === 0 && !context.drain.aborted)
      kept.damages.push(...(await findDamages(context, world, wanted)));
    store(context, kept);
    return resultsOf(kept);
  },
};
