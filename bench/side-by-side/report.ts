/** Stored runs of the comparison, and the rows of results that are made from them. */
import { type BenchReport, type BenchResult, result, type Series, seriesOf } from '../harness.ts';
import type { MadeBy } from '../stored.ts';
import { allCells, BASE, type Cell, cellName, isBase, isWide } from './cells.ts';
import { BARE, CONTESTANTS, type Drain, type Name, OURS, type Recovery } from './contestant.ts';

/** throughput: the topic is drained; recovery: the same with a kill. */
export const MODES = ['throughput', 'recovery'] as const;
export type Mode = (typeof MODES)[number];

/** One finished run of a contestant. */
export interface Run extends MadeBy {
  readonly cell: Cell;
  readonly contestant: Name;
  readonly mode: Mode;
  readonly repeat: number;
  /** Absent in mode `recovery`. */
  readonly drain?: Drain;
  /** Absent in mode `throughput`. */
  readonly recovery?: Recovery;
  /** Why there is no measurement; a further run of the bench tries again. */
  readonly failed?: string;
}

export interface ContestantInfo {
  readonly name: Name;
  readonly title: string;
  readonly settings: string;
  /** Why it takes no part; absent if it does. */
  readonly absent?: string;
}

export interface PeersReport extends BenchReport {
  /** Events of a cell. */
  readonly events: number;
  readonly contestants: readonly ContestantInfo[];
  readonly runs: readonly Run[];
}

/** Unique name of a run. */
export const runKey = ({
  cell,
  contestant,
  mode,
  repeat,
}: Pick<Run, 'cell' | 'contestant' | 'mode' | 'repeat'>): string =>
  `${cellName(cell)} | ${contestant} | ${mode} | ${repeat}`;

/** Runs that a further call keeps: those of the same build and machine, and those of cells that it
 *  does not make. So a cell compares runs of one build. @param cells those that it makes */
export function keptWithin(runs: readonly Run[], cells: readonly Cell[], here: MadeBy): readonly Run[] {
  const made = new Set(cells.map(cellName));
  const text = ({ build, machine }: MadeBy): string => JSON.stringify([build, machine]);
  return runs.filter((run) => text(run) === text(here) || !made.has(cellName(run.cell)));
}

/** Goals in the base cell: least events per CPU second of each of our clients, as a multiple. */
const CPU_GOALS: Readonly<Partial<Record<Name, Readonly<Partial<Record<Name, number>>>>>> = {
  millrace: { 'flink-heap': 4, 'flink-rocksdb': 12, 'kafka-streams': 12 },
  'millrace-direct': { 'flink-heap': 10, 'flink-rocksdb': 30, 'kafka-streams': 30 },
};
const RECOVERY_GOALS: Readonly<Partial<Record<Name, number>>> = { 'flink-heap': 3, 'flink-rocksdb': 3 };

export class Runs {
  private readonly report: Pick<PeersReport, 'runs' | 'contestants'>;

  constructor(report: Pick<PeersReport, 'runs' | 'contestants'>) {
    this.report = report;
  }

  title(name: Name): string {
    return this.report.contestants.find((one) => one.name === name)?.title ?? name;
  }

  /** Finished runs in the order of their repeats. */
  of(cell: Cell, contestant: Name): readonly Run[] {
    return this.report.runs
      .filter((run) => run.contestant === contestant && cellName(run.cell) === cellName(cell))
      .sort((a, b) => a.repeat - b.repeat);
  }

  /** Values of the runs; undefined: none. */
  series(
    cell: Cell,
    contestant: Name,
    pick: (run: { readonly drain?: Drain; readonly recovery?: Recovery }) => number | null | undefined,
  ): Series | undefined {
    const values = this.of(cell, contestant).flatMap((run) => pick(run) ?? []);
    return values.length === 0 ? undefined : seriesOf(values);
  }

  cpu(cell: Cell, contestant: Name): Series | undefined {
    return this.series(cell, contestant, ({ drain }) => drain?.cpuUs);
  }

  peak(cell: Cell, contestant: Name): Series | undefined {
    return this.series(cell, contestant, ({ drain }) => drain?.peakBytes);
  }

  recoveryMs(cell: Cell, contestant: Name): Series | undefined {
    return this.series(cell, contestant, ({ recovery }) => recovery?.recoveryMs);
  }

  firstEventMs(cell: Cell, contestant: Name): Series | undefined {
    return this.series(cell, contestant, ({ drain }) => drain?.firstEventMs);
  }

  firstResultMs(cell: Cell, contestant: Name): Series | undefined {
    return this.series(cell, contestant, ({ drain }) => drain?.firstResultMs);
  }
}

const PEERS: readonly Name[] = CONTESTANTS.filter((name) => !OURS.includes(name));
const ENGINES: readonly Name[] = PEERS.filter((name) => !BARE.includes(name));

interface Comparison {
  readonly metric: string;
  readonly unit: string;
  readonly ours: Series | undefined;
  readonly against: string;
  readonly theirs: Series | undefined;
  readonly ratioAtLeast?: number | undefined;
  readonly factor?: number;
}

const scaled = ({ values }: Series, factor: number): Series => seriesOf(values.map((one) => one * factor));

/** A row if both sides have a value. */
function compared(one: Comparison): readonly BenchResult[] {
  const { metric, unit, ours, theirs, against, ratioAtLeast, factor = 1 } = one;
  if (ours === undefined || theirs === undefined) return [];
  return [
    result({
      ...{ metric, unit, better: 'less', list: true },
      ours: scaled(ours, factor),
      against: { name: against, series: scaled(theirs, factor) },
      ...(ratioAtLeast === undefined ? {} : { goal: { ratioAtLeast } }),
    }),
  ];
}

/** CPU rows of a cell: each of our clients beside each other contestant. */
function cpuRows(runs: Runs, cell: Cell): readonly BenchResult[] {
  return OURS.flatMap((own) =>
    PEERS.filter((peer) => !BARE.includes(peer) || BARE.indexOf(peer) === OURS.indexOf(own)).flatMap((peer) =>
      compared({
        metric: `${runs.title(own)}: CPU, ${cellName(cell)}`,
        unit: 'us CPU/event',
        ours: runs.cpu(cell, own),
        against: runs.title(peer),
        theirs: runs.cpu(cell, peer),
        ratioAtLeast: isBase(cell) ? CPU_GOALS[own]?.[peer] : undefined,
      }),
    ),
  );
}

/** Our peak memory beside the least of all other engines. */
function memoryRows(runs: Runs, cell: Cell): readonly BenchResult[] {
  const others = ENGINES.flatMap((name) => {
    const series = runs.peak(cell, name);
    return series === undefined ? [] : [{ name, series }];
  }).sort((a, b) => a.series.median - b.series.median);
  const [least] = others;
  if (least === undefined) return [];
  return OURS.flatMap((own) =>
    compared({
      metric: `${runs.title(own)}: peak RSS, ${cellName(cell)}`,
      unit: 'MiB',
      ours: runs.peak(cell, own),
      against: `${runs.title(least.name)}, the least of ${others.length} engines`,
      theirs: least.series,
      ratioAtLeast: isWide(cell) ? 1 : undefined,
      factor: 1 / 1024 ** 2,
    }),
  );
}

function timeRows(runs: Runs, cell: Cell): readonly BenchResult[] {
  return OURS.flatMap((own) =>
    ENGINES.flatMap((peer) => [
      ...compared({
        metric: `${runs.title(own)}: start to the first event read, ${cellName(cell)}`,
        unit: 's',
        ours: runs.firstEventMs(cell, own),
        against: runs.title(peer),
        theirs: runs.firstEventMs(cell, peer),
        factor: 1e-3,
      }),
      ...compared({
        metric: `${runs.title(own)}: start to first result, ${cellName(cell)}`,
        unit: 's',
        ours: runs.firstResultMs(cell, own),
        against: runs.title(peer),
        theirs: runs.firstResultMs(cell, peer),
        factor: 1e-3,
      }),
      ...compared({
        metric: `${runs.title(own)}: recovery after SIGKILL, ${cellName(cell)}`,
        unit: 's',
        ours: runs.recoveryMs(cell, own),
        against: runs.title(peer),
        theirs: runs.recoveryMs(cell, peer),
        ratioAtLeast: isBase(cell) ? RECOVERY_GOALS[peer] : undefined,
        factor: 1e-3,
      }),
    ]),
  );
}

export const problemsOf = ({ drain, recovery }: Run): readonly string[] => [
  ...(drain?.problems ?? []),
  ...(recovery?.problems ?? []),
];

/** Rows of all stored runs. */
export function resultsOf(report: Pick<PeersReport, 'runs' | 'contestants'>): readonly BenchResult[] {
  const runs = new Runs(report);
  const finished = report.runs.filter(({ failed }) => failed === undefined);
  const isWrong = (run: Run): boolean => problemsOf(run).length > 0;
  const count = (metric: string, value: number, most?: number): BenchResult =>
    result({
      ...{ metric, unit: 'runs', better: 'less', ours: seriesOf([value]) },
      ...(most === undefined ? {} : { goal: { valueAtMost: most } }),
    });
  const own = finished.filter(({ contestant }) => OURS.includes(contestant));
  return [
    count('runs measured', finished.length),
    count('runs of Millrace whose results differ from the oracle', own.filter(isWrong).length, 0),
    count(
      'runs of the others whose results differ from the oracle',
      finished.filter(isWrong).length - own.filter(isWrong).length,
    ),
    ...allCells().flatMap((cell) => [
      ...cpuRows(runs, cell),
      ...memoryRows(runs, cell),
      ...(isBase(cell) || isWide(cell) ? timeRows(runs, cell) : []),
    ]),
  ];
}

/** Base cell of the plot and the README. */
export const SHOWN: Cell = BASE;
