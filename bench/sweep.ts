/** `millrace bench sweep`: the settings of the requirements, one cell each, for the three kinds of
 *  windows. Drop rate and error of the results are counted from the arrival order; times, recovery
 *  and the results through a SIGKILL are those of a live run, whose results must equal the count.
 *
 *  With -out each finished cell is stored immediately, and a further run with the same flags runs
 *  the other cells. A live cell names the build and the machine that ran it. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadGenKernels } from '../src/addon/gen.ts';
import { chooseNative } from '../src/addon/load.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../src/gen/event-options.ts';
import { buildDigest } from '../src/shell/package.ts';
import { openChildren } from './children.ts';
import { PARTITIONS } from './engine/events-topic.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';
import { selectParts } from './parts.ts';
import { madeHere, storeReport } from './stored.ts';
import { Arrivals } from './sweep/arrivals.ts';
import { AXES, allCells, type Cell, cellName, countName, isOn, KINDS } from './sweep/cells.ts';
import { type Counts, countsOf } from './sweep/counts.ts';
import { type LiveWorld, runLive } from './sweep/live.ts';
import {
  differencesOf,
  isEqual,
  liveOf,
  type SweepCell,
  type SweepReport,
  sweepPage,
  sweepPlots,
} from './sweep/page.ts';

const EVENTS = 20_000_000;
const EVENTS_SMOKE = 20_000;
/** A cell lasts long enough for a checkpoint interval of two minutes and half of the next one. */
const RATE = 100_000;
const RATE_SMOKE = 10_000;
/** Event time of a cell. It is longer than the longest delay, so stragglers are late in every
 *  cell, and it passes faster than the clock. */
const SPAN_MS = 10_000_000;
const KEYS_PART_SMOKE = 100;
const INTERVAL_PART_SMOKE = 60;
/** Cells of a small run that run live: each kind, with another setting each. */
const SMOKE: readonly string[] = [
  'tumbling 1m, skew 5s, lateness 1m, checkpoint 30s, 100k keys',
  'sliding 5m/1m, skew 1s, lateness 0, checkpoint 30s, 1M keys',
  'session 30s, skew 5s, lateness 1m, checkpoint 5s, 1M keys',
];
/** Share of the rate below which a cell has not kept it. */
const RATE_HELD = 0.98;

/** Part that only counts. */
const COUNTS = 'counts';

const eventsOf = ({ events, smoke }: BenchContext): number => events ?? (smoke ? EVENTS_SMOKE : EVENTS);
const rateOf = ({ rate, smoke }: BenchContext): number => rate ?? (smoke ? RATE_SMOKE : RATE);

/** Stream of the cell. */
function streamOf(context: BenchContext, { keys }: Cell): Omit<EventOptions, 'order'> {
  const count = eventsOf(context);
  const accounts = context.smoke ? keys / KEYS_PART_SMOKE : keys;
  return { ...DEFAULT_EVENTS, count, accounts, perMs: count / SPAN_MS };
}

interface Wanted {
  readonly cells: readonly Cell[];
  /** Cells that also run live. */
  readonly live: readonly Cell[];
}

/** @throws bad_value for an unknown part */
function wantedOf({ only, smoke }: BenchContext): Wanted {
  const chosen = only ?? [];
  selectParts(only, [COUNTS, ...KINDS, ...AXES]);
  const kinds = KINDS.filter((kind) => chosen.includes(kind));
  const axes = AXES.filter((axis) => chosen.includes(axis));
  const cells = allCells().filter(
    (cell) =>
      (kinds.length === 0 || kinds.includes(cell.kind)) &&
      (axes.length === 0 || axes.some((axis) => isOn(cell, axis))),
  );
  if (chosen.includes(COUNTS)) return { cells, live: [] };
  return { cells, live: smoke ? cells.filter((cell) => SMOKE.includes(cellName(cell))) : cells };
}

/** Flags that change the cells. */
function flagsOf({ smoke, events, rate }: BenchContext): readonly string[] {
  return [
    ...(smoke ? ['-smoke'] : []),
    ...(events === undefined ? [] : [`-events=${events}`]),
    ...(rate === undefined ? [] : [`-rate=${rate}`]),
  ];
}

/** Cells of earlier runs with these flags, by any build on any machine. A cell whose live run
 *  differs from its count is kept only for the build that ran it, so that a corrected build makes
 *  both again. */
function keptOf(context: BenchContext): Map<string, SweepCell> {
  const path = context.out === undefined ? undefined : join(context.out, 'sweep.json');
  if (path === undefined || !existsSync(path)) return new Map();
  const found = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
  if (JSON.stringify(found.flags ?? []) !== JSON.stringify(flagsOf(context))) return new Map();
  const build = buildDigest();
  const kept = found.cells.filter(
    ({ counts, live }) => live === null || live.build === build || isEqual({ counts, live }),
  );
  context.say(`${kept.length} counts and ${liveOf(kept).length} live cells of earlier runs are kept`);
  return new Map(kept.map((one) => [cellName(one.cell), one]));
}

/** Cells in the order of the sweep, whatever order they were made in. */
function ordered(cells: ReadonlyMap<string, SweepCell>): readonly SweepCell[] {
  return allCells().flatMap((cell) => cells.get(cellName(cell)) ?? []);
}

function store(context: BenchContext, cells: ReadonlyMap<string, SweepCell>): void {
  if (context.out === undefined) return;
  const flags = flagsOf(context);
  const all = ordered(cells);
  const report: SweepReport = {
    bench: 'sweep',
    ...madeHere(),
    ...(flags.length === 0 ? {} : { flags }),
    results: resultsOf(all),
    events: eventsOf(context),
    rate: rateOf(context),
    cells: all,
  };
  storeReport(context.out, report, sweepPage(report), sweepPlots(report));
}

function resultsOf(cells: readonly SweepCell[]): readonly BenchResult[] {
  const row = (metric: string, unit: string, better: 'more' | 'less', value: number, most?: number) =>
    result({
      metric,
      unit,
      better,
      ours: seriesOf([value]),
      ...(most === undefined ? {} : { goal: { valueAtMost: most } }),
    });
  const live = liveOf(cells);
  const different = live.filter((one) => !isEqual(one));
  const slow = live.filter(({ live: one }) => one.read < one.rate * RATE_HELD);
  const most = (of: (cell: (typeof live)[number]) => number): number => Math.max(0, ...live.map(of));
  return [
    row('cells counted', 'cells', 'more', cells.length),
    row('cells run live, each killed once', 'cells', 'more', live.length),
    row('live cells whose results or drops differ from the count', 'cells', 'less', different.length, 0),
    row(`live cells that read less than ${RATE_HELD} of the rate`, 'cells', 'less', slow.length),
    row(
      'longest recovery, from the kill to the position before it',
      's',
      'less',
      most(({ live: one }) => one.recoveryMs / 1000),
    ),
    row(
      'longest restore',
      's',
      'less',
      most(({ live: one }) => one.restoreMs / 1000),
    ),
  ];
}

/** Counts the cells that have no count yet, topic by topic. */
async function countCells(
  context: BenchContext,
  wanted: readonly Cell[],
  cells: Map<string, SweepCell>,
): Promise<void> {
  const open = wanted.filter((cell) => !cells.has(cellName(cell)));
  const kernels = loadGenKernels(chooseNative(context.settings.native).mode);
  for (const keys of new Set(open.map((cell) => cell.keys))) {
    const own = open.filter((cell) => cell.keys === keys);
    const stream = streamOf(context, own[0] as Cell);
    context.say(`counting ${own.length} cells of ${stream.count} events of ${stream.accounts} keys`);
    const arrivals = new Arrivals({ stream, kernels, partitions: PARTITIONS });
    const known = new Map<string, Counts>();
    for (const cell of own) {
      // Counting blocks; a stop is noticed between two cells.
      await new Promise((resolve) => setImmediate(resolve));
      if (context.drain.aborted) return;
      const counts = known.get(countName(cell)) ?? countsOf(arrivals, cell);
      known.set(countName(cell), counts);
      cells.set(cellName(cell), { cell, counts, live: null });
    }
    store(context, cells);
  }
}

/** Runs the cells that have not run live. */
async function runCells(
  context: BenchContext,
  wanted: readonly Cell[],
  cells: Map<string, SweepCell>,
): Promise<void> {
  const open = wanted.filter((cell) => cells.get(cellName(cell))?.live === null);
  if (open.length === 0 || context.drain.aborted) return;
  const children = await openChildren(context, 'sweep');
  const intervalPart = context.smoke ? INTERVAL_PART_SMOKE : 1;
  const world: LiveWorld = { context, children, rate: rateOf(context), intervalPart };
  for (const [index, cell] of open.entries()) {
    const name = cellName(cell);
    context.say(`${index + 1} of ${open.length}: ${name}`);
    try {
      const live = await runLive(world, cell, streamOf(context, cell));
      const { counts } = cells.get(name) as SweepCell;
      for (const difference of differencesOf(counts, live.results)) context.say(`DIFFERS: ${difference}`);
      cells.set(name, { cell, counts, live });
    } catch (thrown) {
      if (!context.drain.aborted) throw thrown;
      return;
    }
    store(context, cells);
  }
}

export const bench: Bench = {
  name: 'sweep',
  takesBrokerProperties: true,
  storesReport: true,
  summary:
    'The engine at each skew, lateness, checkpoint interval, window and key count: drops, errors, latency, recovery.',
  async run(context) {
    const wanted = wantedOf(context);
    const cells = keptOf(context);
    await countCells(context, wanted.cells, cells);
    await runCells(context, wanted.live, cells);
    store(context, cells);
    return resultsOf(ordered(cells));
  },
};
