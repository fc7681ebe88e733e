/** `millrace bench engine-peers`: the engine with both broker clients beside two bare C++ loops,
 *  Apache Flink, Kafka Streams and Hazelcast Jet, over one filled topic a cell. Each contestant's
 *  results are compared with the expected ones.
 *
 *  With -out each finished run is stored immediately, and a further run with the same flags makes
 *  the other ones. The runs of a cell are of one build and machine; those of other cells are kept.
 *  The peers speak plaintext to the broker. */
import { existsSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { openChildren } from './children.ts';
import type { Bench, BenchContext } from './harness.ts';
import { selectParts } from './parts.ts';
import { bareContestants } from './side-by-side/bare.ts';
import {
  AXES,
  allCells,
  BASE,
  BASE_PART,
  type Cell,
  cellName,
  cellsOn,
  hasKill,
  topicName,
} from './side-by-side/cells.ts';
import { BARE, CONTESTANTS, type Contestant, type Name, OURS, type Task } from './side-by-side/contestant.ts';
import { internalTopics, jvmContestants } from './side-by-side/jvm.ts';
import { ourContestants } from './side-by-side/ours.ts';
import { peersPage } from './side-by-side/page.ts';
import { peersPlots } from './side-by-side/plot.ts';
import {
  type ContestantInfo,
  keptWithin,
  MODES,
  type Mode,
  type PeersReport,
  type Run,
  resultsOf,
  runKey,
} from './side-by-side/report.ts';
import { Topics } from './side-by-side/topics.ts';
import { madeHere, storeReport } from './stored.ts';

const EVENTS = 10_000_000;
const EVENTS_SMOKE = 100_000;
const REPEATS_MAX = 3;

interface Wanted {
  readonly names: readonly Name[];
  readonly cells: readonly Cell[];
  readonly modes: readonly Mode[];
}

/** A small run has the base cell and the contestants that need no download, unless others are
 *  named. @throws bad_value for an unknown part */
export function wantedOf({ only, smoke }: Pick<BenchContext, 'only' | 'smoke'>): Wanted {
  selectParts(only, [...CONTESTANTS, BASE_PART, ...AXES, ...MODES]);
  const chosen = only ?? [];
  const pick = <T extends string>(all: readonly T[], none: readonly T[]): readonly T[] => {
    const found = all.filter((one) => chosen.includes(one));
    return found.length === 0 ? none : found;
  };
  const axes = AXES.filter((axis) => chosen.includes(axis));
  const named = [...(chosen.includes(BASE_PART) ? [BASE] : []), ...axes.flatMap(cellsOn)].map(cellName);
  const cells = named.length > 0 ? allCells().filter((cell) => named.includes(cellName(cell))) : undefined;
  return {
    names: pick(CONTESTANTS, smoke ? [...OURS, ...BARE] : CONTESTANTS),
    cells: cells ?? (smoke ? [BASE] : allCells()),
    modes: pick(MODES, MODES),
  };
}

const eventsOf = ({ events, smoke }: BenchContext): number => events ?? (smoke ? EVENTS_SMOKE : EVENTS);

/** Flags that change a run. */
const flagsOf = ({ smoke, events }: BenchContext): readonly string[] => [
  ...(smoke ? ['-smoke'] : []),
  ...(events === undefined ? [] : [`-events=${events}`]),
];

/** Finished runs and contestants by their keys. */
class Store {
  private readonly context: BenchContext;
  private readonly runs = new Map<string, Run>();
  private readonly contestants = new Map<Name, ContestantInfo>();

  /** @param cells whose runs by another build or machine are made again */
  constructor(context: BenchContext, cells: readonly Cell[]) {
    this.context = context;
    const path = context.out === undefined ? undefined : join(context.out, 'engine-peers.json');
    if (path === undefined || !existsSync(path)) return;
    const found = JSON.parse(readFileSync(path, 'utf8')) as PeersReport;
    if (JSON.stringify(found.flags ?? []) !== JSON.stringify(flagsOf(context))) return;
    for (const run of keptWithin(found.runs, cells, madeHere())) this.add(run);
    for (const one of found.contestants) this.contestants.set(one.name, one);
    context.say(`${this.runs.size} runs of earlier calls are kept`);
  }

  /** True for a run that has a measurement. */
  has(run: Parameters<typeof runKey>[0]): boolean {
    const found = this.runs.get(runKey(run));
    return found !== undefined && found.failed === undefined;
  }

  add(run: Run): void {
    this.runs.set(runKey(run), run);
  }

  enter(one: ContestantInfo): void {
    this.contestants.set(one.name, one);
  }

  report(): PeersReport {
    const flags = flagsOf(this.context);
    const runs = [...this.runs.values()];
    const contestants = CONTESTANTS.flatMap((name) => this.contestants.get(name) ?? []);
    return {
      bench: 'engine-peers',
      ...madeHere(),
      ...(flags.length === 0 ? {} : { flags }),
      results: resultsOf({ runs, contestants }),
      events: eventsOf(this.context),
      contestants,
      runs,
    };
  }

  save(): void {
    if (this.context.out === undefined) return;
    const report = this.report();
    storeReport(this.context.out, report, peersPage(report), peersPlots(report));
  }
}

/** Sets the contestants up; one that cannot be had is entered with its reason and left out. */
async function openContestants(
  context: BenchContext,
  all: readonly Contestant[],
  names: readonly Name[],
  store: Store,
): Promise<readonly Contestant[]> {
  const present: Contestant[] = [];
  for (const one of all.filter(({ name }) => names.includes(name))) {
    const { name, title, settings } = one;
    try {
      await one.open();
      present.push(one);
      store.enter({ name, title, settings });
    } catch (thrown) {
      const absent = (thrown as Error).message;
      context.say(`${title} is absent: ${absent}`);
      store.enter({ name, title, settings, absent });
    }
  }
  store.save();
  return present;
}

interface Turn {
  readonly cell: Cell;
  readonly one: Contestant;
  readonly mode: Mode;
  readonly repeat: number;
}

/** Open runs of a topic: repeat by repeat, every second one in reverse order. */
function turnsOf(
  context: BenchContext,
  { cells, modes }: Pick<Wanted, 'cells' | 'modes'>,
  contestants: readonly Contestant[],
  store: Store,
): readonly Turn[] {
  const repeats = Math.min(context.repeats, REPEATS_MAX);
  return Array.from({ length: repeats }, (_, at) => at + 1).flatMap((repeat) => {
    const order = repeat % 2 === 1 ? contestants : [...contestants].reverse();
    return cells.flatMap((cell) =>
      modes.flatMap((mode) =>
        order
          .filter((one) => one.does(cell) && (mode === 'throughput' || (one.recover && hasKill(cell))))
          .filter((one) => !store.has({ cell, contestant: one.name, mode, repeat }))
          .map((one) => ({ cell, one, mode, repeat })),
      ),
    );
  });
}

/** Runs a contestant once; an error of it is stored in place of the measurement. */
async function measured({ cell, one, mode, repeat }: Turn, task: Task): Promise<Run> {
  const run = { ...madeHere(), cell, contestant: one.name, mode, repeat };
  if (mode === 'throughput') return { ...run, drain: await one.drain(task) };
  return { ...run, recovery: await (one.recover as NonNullable<Contestant['recover']>)(task) };
}

async function runTurns(
  context: BenchContext,
  turns: readonly Turn[],
  store: Store,
  taskOf: (cell: Cell, at: number) => Task,
): Promise<void> {
  for (const [at, turn] of turns.entries()) {
    const { cell, one, mode, repeat } = turn;
    context.say(`${at + 1} of ${turns.length}: ${one.title}, ${mode}, ${cellName(cell)}, repeat ${repeat}`);
    const task = taskOf(cell, at);
    try {
      const run = await measured(turn, task);
      for (const problem of [...(run.drain?.problems ?? []), ...(run.recovery?.problems ?? [])])
        context.say(`DIFFERS: ${one.title}: ${problem}`);
      store.add(run);
    } catch (thrown) {
      if (context.drain.aborted) return;
      const failed = (thrown as Error).message;
      context.say(`FAILED: ${one.title}: ${failed}`);
      store.add({ ...madeHere(), cell, contestant: one.name, mode, repeat, failed });
    } finally {
      await rm(task.folder, { recursive: true, force: true });
    }
    store.save();
  }
}

async function runBench(context: BenchContext): Promise<PeersReport> {
  const wanted = wantedOf(context);
  const store = new Store(context, wanted.cells);
  const children = await openChildren(context, 'engine-peers');
  const all = [...ourContestants(context, children), ...bareContestants(context), ...jvmContestants(context)];
  const contestants = await openContestants(context, all, wanted.names, store);
  const topics = new Topics(context, children, eventsOf(context));
  for (const name of new Set(wanted.cells.map(topicName))) {
    const cells = wanted.cells.filter((cell) => topicName(cell) === name);
    const turns = turnsOf(context, { ...wanted, cells }, contestants, store);
    if (turns.length === 0 || context.drain.aborted) continue;
    const filled = await topics.fill(cells[0] as Cell);
    const expected = new Map(cells.map((cell) => [cellName(cell), topics.expected(cell)]));
    const tasks: Task[] = [];
    const taskOf = (cell: Cell, at: number): Task => {
      const folder = join(children.dir, `${filled.topic}-${at}`);
      const found = expected.get(cellName(cell)) as ReturnType<Topics['expected']>;
      const task = { ...filled, ...found, cell, brokers: children.brokers, folder };
      tasks.push(task);
      return task;
    };
    try {
      await runTurns(context, turns, store, taskOf);
    } finally {
      await topics.delete(tasks.flatMap(internalTopics));
    }
  }
  return store.report();
}

export const bench: Bench = {
  name: 'engine-peers',
  storesReport: true,
  summary:
    'The engine beside bare C++ loops, Apache Flink, Kafka Streams and Hazelcast Jet: CPU, rate, memory, start and recovery.',
  run: async (context) => (await runBench(context)).results,
};
