/** Kernels of the window engine on events in memory, one core: admission and accumulation together,
 *  compared with a bare C++ loop that folds the same admitted events into a presized table, and
 *  with the TypeScript reference implementation. Rates use CPU time, which other load on the
 *  machine affects least. The first window starts with empty tables that grow, in pages that the
 *  kernel has to zero; the bare loop is also measured with a table in fresh memory, to show that
 *  cost. The second window has the same events one window later; it starts with the memory of the
 *  first and an index of the right size. Sessions use the same events. */
import { execFile } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { loadGenKernels } from '../src/addon/gen.ts';
import type { RowRun, SessionState, WindowKernels, WindowState } from '../src/addon/window-surface.ts';
import { loadWindowKernels } from '../src/addon/windows.ts';
import { invariant } from '../src/core/errors.ts';
import { AdmittedBatch } from '../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { WINDOW_CLOCK } from '../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import { createClock, createProgress } from '../src/core/layout/window-clock.ts';
import { fromWords } from '../src/core/time.ts';
import { DEFAULT_EVENTS } from '../src/gen/event-options.ts';
import { EventGenerator } from '../src/gen/events.ts';
import { packageRoot } from '../src/shell/package.ts';
import { compilePeer } from './compile.ts';
import { addRun, type Digest, digestOf, drainState, textOf } from './engine/state-digest.ts';
import {
  type Bench,
  type BenchContext,
  type BenchResult,
  result,
  type Series,
  seriesOf,
  takeTurns,
} from './harness.ts';
import { machineFactor } from './unit.ts';

const BATCH_ROWS = 16_384;
const PARTITIONS = 8;
/** Consecutive rows of one partition, as a broker's fetch delivers them. */
const RUN_ROWS = 512;
const SIZE_MS = 60_000;
const SKEW_MS = 5_000;
const LATENESS_MS = 10_000;
const GAP_MS = 30_000;
/** Permutes row numbers into distinct accounts without locality; coprime to every count. */
const STRIDE = 7_368_787;
const EVENT_BYTES = 32;
const REFERENCE_GAIN_GOAL = 1.5;
const REFERENCE_REPEATS_MAX = 1;

interface Workload {
  readonly name: string;
  readonly events: number;
  readonly accounts: number;
  readonly isDistinct: boolean;
  readonly baseMs: number;
  /** Slots of the table of the bare loop. */
  readonly slots: number;
  /** Events per CPU-second on the reference machine. */
  readonly goal: number;
}

const WORKLOADS: readonly Workload[] = [
  {
    name: '1M accounts, Zipf 1.1',
    events: 10_000_000,
    accounts: 1_000_000,
    isDistinct: false,
    baseMs: 1_749_999_995_000,
    slots: 2 ** 21,
    goal: 40e6,
  },
  {
    name: '10M distinct accounts',
    events: 10_000_000,
    accounts: 10_000_000,
    isDistinct: true,
    baseMs: 1_750_000_020_000,
    slots: 2 ** 24,
    goal: 18e6,
  },
];

interface Input {
  readonly records: RecordBatch;
  readonly events: EventBatch;
}

function inputsOf(load: Workload): readonly Input[] {
  const options = {
    ...DEFAULT_EVENTS,
    count: load.events,
    accounts: load.accounts,
    perMs: 200,
    baseMs: load.baseMs,
    order: 'delayed' as const,
  };
  const generator = new EventGenerator(options, loadGenKernels('native'));
  const next = new Array<number>(PARTITIONS).fill(0);
  const inputs: Input[] = [];
  for (let at = 0; at < load.events; at += BATCH_ROWS) {
    const records = RecordBatch.create(BATCH_ROWS, 0);
    const events = EventBatch.create(BATCH_ROWS);
    const count = generator.fillEvents(events);
    const ids = new Uint32Array(events.buffer, events.columns.accountId.byteOffset, count * 2);
    const offsets = new Uint32Array(records.buffer, records.columns.offset.byteOffset, count * 2);
    for (let row = 0; row < count; row++) {
      const partition = Math.floor((at + row) / RUN_ROWS) % PARTITIONS;
      records.columns.partition[row] = partition;
      offsets[row * 2] = next[partition] as number;
      next[partition] = (next[partition] as number) + 1;
      if (load.isDistinct) {
        ids[row * 2] = ((at + row) * STRIDE) % load.accounts;
        ids[row * 2 + 1] = 0;
      }
    }
    records.rowCount = count;
    inputs.push({ records, events });
  }
  return inputs;
}

/** Moves the time of every event. */
function shift(inputs: readonly Input[], ms: number): void {
  for (const { events } of inputs) {
    const words = new Int32Array(events.buffer, events.columns.eventTs.byteOffset, events.rowCount * 2);
    for (let at = 0; at < words.length; at += 2) {
      const time = fromWords(words[at] as number, words[at + 1] as number) + ms;
      words[at] = time;
      words[at + 1] = Math.floor(time / 2 ** 32);
    }
  }
}

type Visit = (input: Input, admitted: AdmittedBatch, frontier: number) => void;

/** Admits every batch and passes the admitted rows to `visit`. Windows that become due do not fire;
 *  their rows are checked at the end. */
function admitAll(
  kernels: WindowKernels,
  inputs: readonly Input[],
  admitted: AdmittedBatch,
  visit: Visit,
): void {
  const times = { mode: 'partition', sizeMs: SIZE_MS, slideMs: SIZE_MS, skewMs: SKEW_MS } as const;
  const clock = createClock({ ...times, latenessMs: LATENESS_MS });
  const progress = createProgress(PARTITIONS);
  for (const input of inputs) {
    const { records, events } = input;
    for (let from = 0; from < events.rowCount; ) {
      from += kernels.admit(clock, progress, records, events, from, admitted);
      const frontier = clock[WINDOW_CLOCK.FRONTIER / 8] as number;
      visit(input, admitted, frontier);
      if (frontier >= (clock[WINDOW_CLOCK.NEXT_END / 8] as number))
        clock[WINDOW_CLOCK.NEXT_END / 8] = Number.POSITIVE_INFINITY;
    }
  }
}

/** Work of one run in addition to admission. */
type Work = 'admit' | 'accumulate' | 'deltas';

interface Ran {
  readonly rate: number;
  readonly deltaBytes: number;
}

function run(
  kernels: WindowKernels,
  load: Workload,
  inputs: readonly Input[],
  work: Work,
  state: WindowState,
): Ran {
  const admitted = AdmittedBatch.create(BATCH_ROWS);
  const out = new Uint8Array(BATCH_ROWS * 80);
  let deltaBytes = 0;
  const before = process.cpuUsage();
  admitAll(kernels, inputs, admitted, ({ events }) => {
    if (work !== 'admit') state.accumulate(events, admitted);
    if (work === 'deltas') deltaBytes += state.encodeDeltas(out);
  });
  return { rate: load.events / cpuSeconds(before), deltaBytes };
}

function cpuSeconds(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

/** Wall time in ms of the longest call; wall time, because the thread that prepares memory shares
 *  the CPU time of the process. */
function longest(kernels: WindowKernels, inputs: readonly Input[], state: WindowState): number {
  const admitted = AdmittedBatch.create(BATCH_ROWS);
  let longestMs = 0;
  admitAll(kernels, inputs, admitted, ({ events }) => {
    const before = performance.now();
    state.accumulate(events, admitted);
    longestMs = Math.max(longestMs, performance.now() - before);
  });
  return longestMs;
}

/** Sessions of the same events; they fire in key order when the frontier reaches their ends. */
async function runSessions(
  kernels: WindowKernels,
  load: Workload,
  inputs: readonly Input[],
  state: SessionState,
  checksResult: boolean,
): Promise<{ readonly rate: number; readonly digest: Digest }> {
  const admitted = AdmittedBatch.create(BATCH_ROWS);
  const fired: Promise<RowRun>[] = [];
  const before = process.cpuUsage();
  admitAll(kernels, inputs, admitted, ({ events }, _, frontier) => {
    state.accumulate(events, admitted);
    if (frontier >= state.leastEnd()) fired.push(state.fire(frontier));
  });
  const runs = await Promise.all(fired);
  const rate = load.events / cpuSeconds(before);
  const total = { rows: 0, count: 0n, sum: 0n };
  const all = checksResult ? [...runs, await state.fire(Number.POSITIVE_INFINITY)] : [];
  for (const run of all) addRun(total, run, 0n);
  if (!checksResult) for (const run of runs) run.close();
  return { rate, digest: textOf(total) };
}

/** Total size of the session deltas of all batches. */
function sessionDeltaBytes(kernels: WindowKernels, inputs: readonly Input[]): number {
  const admitted = AdmittedBatch.create(BATCH_ROWS);
  const state = kernels.openSessions(GAP_MS, 1);
  const out = new Uint8Array(BATCH_ROWS * 80);
  let bytes = 0;
  admitAll(kernels, inputs, admitted, ({ events }) => {
    state.accumulate(events, admitted);
    bytes += state.encodeDeltas(out);
  });
  state.close();
  return bytes;
}

/** Writes the admitted events for the bare loop. */
function writeAdmitted(path: string, inputs: readonly Input[]): void {
  mkdirSync(dirname(path), { recursive: true });
  const file = openSync(path, 'w');
  const cells = new BigUint64Array((BATCH_ROWS * EVENT_BYTES) / 8);
  try {
    admitAll(
      loadWindowKernels('native'),
      inputs,
      AdmittedBatch.create(BATCH_ROWS),
      ({ events }, admitted) => {
        const signed = new BigInt64Array(cells.buffer);
        for (let i = 0; i < admitted.rowCount; i++) {
          const row = admitted.columns.row[i] as number;
          cells[i * 4] = events.columns.accountId[row] as bigint;
          signed[i * 4 + 1] = events.columns.value[row] as bigint;
          signed[i * 4 + 2] = events.columns.eventTs[row] as bigint;
          signed[i * 4 + 3] = admitted.columns.slice[i] as bigint;
        }
        writeSync(file, new Uint8Array(cells.buffer, 0, admitted.rowCount * EVENT_BYTES));
      },
    );
  } finally {
    closeSync(file);
  }
}

const call = promisify(execFile);

/** Sides of one workload, which must all have the same results. */
class Comparison {
  private readonly load: Workload;
  private readonly binary: string;
  private readonly path: string;
  private readonly native = loadWindowKernels('native');
  private readonly reference = loadWindowKernels('reference');
  private readonly inputs: readonly Input[];
  private expected: Digest | undefined;
  private sessionsExpected: Digest | undefined;
  /** Sides whose results were checked: the check takes longer than the side itself, so it runs once
   *  for each. */
  private readonly checked = new Set<string>();
  /** Longest calls of the first window and of the next one, ms. */
  private readonly pauses: Array<readonly [number, number]> = [];

  constructor(load: Workload, binary: string, path: string) {
    this.load = load;
    this.binary = binary;
    this.path = path;
    this.inputs = inputsOf(load);
    writeAdmitted(path, this.inputs);
  }

  private isFirstRun(side: string): boolean {
    return !this.checked.has(side) && this.checked.add(side) !== undefined;
  }

  private demandSame(digest: Digest, wanted: Digest | undefined): void {
    invariant(
      wanted === undefined || JSON.stringify(digest) === JSON.stringify(wanted),
      `all sides must have the same results: ${JSON.stringify(digest)}, not ${JSON.stringify(wanted)}`,
    );
  }

  private async raw(...options: readonly string[]): Promise<number> {
    const { stdout } = await call(this.binary, [this.path, `${this.load.slots}`, '1', ...options]);
    const { events, seconds, ...digest } = JSON.parse(stdout) as Digest & {
      events: number;
      seconds: number[];
    };
    this.expected ??= digest;
    return events / (seconds[0] as number);
  }

  private async timed(kernels: WindowKernels, work: Work): Promise<number> {
    const state = kernels.open(SIZE_MS, 1);
    const { rate } = run(kernels, this.load, this.inputs, work, state);
    if (work !== 'admit' && this.isFirstRun(`${kernels.name} ${work}`))
      this.demandSame(await digestOf(state, 0), this.expected);
    state.close();
    return rate;
  }

  /** Measures the first window and the window after it. */
  private async twice<T>(side: string, measure: (state: WindowState) => T): Promise<readonly [T, T]> {
    const { inputs } = this;
    const state = this.native.open(SIZE_MS, 1);
    const checksResult = this.isFirstRun(side);
    const first = measure(state);
    if (checksResult) this.demandSame(await digestOf(state, 0), this.expected);
    else await drainState(state);
    shift(inputs, SIZE_MS);
    try {
      const next = measure(state);
      if (checksResult) this.demandSame(await digestOf(state, SIZE_MS), this.expected);
      return [first, next];
    } finally {
      shift(inputs, -SIZE_MS);
      state.close();
    }
  }

  private async sessions(kernels: WindowKernels): Promise<number> {
    const state = kernels.openSessions(GAP_MS, 1);
    const checksResult = this.isFirstRun(`${kernels.name} sessions`);
    const { rate, digest } = await runSessions(kernels, this.load, this.inputs, state, checksResult);
    if (checksResult) this.demandSame(digest, this.sessionsExpected);
    this.sessionsExpected ??= digest;
    state.close();
    return rate;
  }

  /** Runs the sides in turns. */
  async run(context: BenchContext): Promise<BenchResult[]> {
    const { load, native, reference, inputs } = this;
    await this.raw();
    context.say(`${load.name}: ${JSON.stringify(this.expected)}`);
    const state = native.open(SIZE_MS, 1);
    const { deltaBytes } = run(native, load, inputs, 'deltas', state);
    state.close();
    const accumulate = (next: WindowState): number => run(native, load, inputs, 'accumulate', next).rate;
    const sides = await takeTurns(
      {
        raw: () => this.raw(),
        fresh: () => this.raw('fresh'),
        ours: () => this.timed(native, 'accumulate'),
        next: async () => (await this.twice('next', accumulate))[1],
        pause: async () => {
          this.pauses.push(await this.twice('pause', (paused) => longest(native, inputs, paused)));
          return 0;
        },
        sessions: () => this.sessions(native),
        deltas: () => this.timed(native, 'deltas'),
        admit: () => this.timed(native, 'admit'),
      },
      context.repeats,
    );
    // They take most of the time, and their ratio is far from its goal.
    const references = await takeTurns(
      {
        sessions: () => this.sessions(reference),
        ours: () => this.timed(reference, 'accumulate'),
        admit: () => this.timed(reference, 'admit'),
      },
      Math.min(context.repeats, REFERENCE_REPEATS_MAX),
    );
    return [
      ...againstBareLoop(load, sides),
      ...this.pauseResults(),
      ...againstReference(load, sides, references),
      ...changelogResults(load, deltaBytes, sessionDeltaBytes(native, inputs)),
    ];
  }

  private pauseResults(): BenchResult[] {
    return ['first', 'next'].map((which, i) =>
      result({
        metric: `longest call of accumulate, ${this.load.name}: the ${which} window`,
        unit: 'ms',
        ours: seriesOf(this.pauses.map((pause) => pause[i] as number)),
        better: 'less',
      }),
    );
  }
}

const RATE = { unit: 'events/CPU-s', better: 'more' } as const;

type Sides = Readonly<Record<'raw' | 'fresh' | 'ours' | 'next' | 'sessions' | 'deltas' | 'admit', Series>>;

function againstBareLoop(load: Workload, sides: Sides): BenchResult[] {
  const bare = { name: 'bare C++ loop, no admission', series: sides.raw };
  const goal = { onReference: load.goal, factor: machineFactor() };
  const name = `admit and accumulate, ${load.name}`;
  const fresh = { name: 'bare C++ loop, its table in fresh memory', series: sides.fresh };
  return [
    result({ ...RATE, metric: name, ours: sides.ours, against: bare, goal }),
    result({ ...RATE, metric: `${name}: beside what fresh memory costs`, ours: sides.ours, against: fresh }),
    result({ ...RATE, metric: `${name}: the next window`, ours: sides.next, against: bare, goal }),
    result({
      ...RATE,
      metric: `the same with encoded deltas, ${load.name}`,
      ours: sides.deltas,
      against: bare,
    }),
  ];
}

function againstReference(
  load: Workload,
  sides: Sides,
  references: Readonly<Record<'sessions' | 'ours' | 'admit', Series>>,
): BenchResult[] {
  const goal = { ratioAtLeast: REFERENCE_GAIN_GOAL };
  const against = (series: Series) => ({ name: 'TypeScript twin', series });
  const sessions = `admit, accumulate and fire sessions, ${load.name}`;
  return [
    result({
      ...RATE,
      metric: sessions,
      ours: sides.sessions,
      against: { name: 'tumbling windows', series: sides.ours },
    }),
    result({
      ...RATE,
      metric: `${sessions}: addon beside twin`,
      ours: sides.sessions,
      against: against(references.sessions),
      goal,
    }),
    result({
      ...RATE,
      metric: `admit and accumulate, ${load.name}: addon beside twin`,
      ours: sides.ours,
      against: against(references.ours),
      goal,
    }),
    result({
      ...RATE,
      metric: `admit alone, ${load.name}`,
      ours: sides.admit,
      against: against(references.admit),
      goal,
    }),
  ];
}

function changelogResults(load: Workload, deltaBytes: number, sessionBytes: number): BenchResult[] {
  const perEvent = (metric: string, bytes: number): BenchResult =>
    result({ metric, unit: 'B/event', ours: seriesOf([bytes / load.events]), better: 'less' });
  return [
    perEvent(`changelog, ${load.name}`, deltaBytes),
    perEvent(`changelog, sessions, ${load.name}`, sessionBytes),
  ];
}

async function compare(context: BenchContext, load: Workload, binary: string): Promise<BenchResult[]> {
  const path = join(packageRoot(), '.millrace', 'bench', `raw-window-${process.pid}`);
  try {
    return await new Comparison(load, binary, path).run(context);
  } finally {
    rmSync(path, { force: true });
  }
}

export const bench: Bench = {
  name: 'engine-kernel',
  summary:
    'Admission and accumulation of events from memory, against a bare C++ loop and the TypeScript reference implementation.',
  async run(context) {
    const binary = await compilePeer('raw-window');
    const results: BenchResult[] = [];
    for (const load of WORKLOADS) {
      if (context.drain.aborted) break;
      const few = { ...load, events: 100_000, accounts: Math.min(load.accounts, 100_000) };
      results.push(...(await compare(context, context.smoke ? few : load, binary)));
    }
    return results;
  },
};
