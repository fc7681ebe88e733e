/** Cost of durability for the loop of the window engine: the duration of each call while a snapshot
 *  of all keys is copied during ingestion, the size of a checkpoint after one key in a hundred
 *  changed, and the duration of a restart. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { WindowState } from '../src/addon/window-surface.ts';
import { loadWindowKernels } from '../src/addon/windows.ts';
import { invariant } from '../src/core/errors.ts';
import { AdmittedBatch } from '../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { PARTITION_PROGRESS, WINDOW_CLOCK } from '../src/core/layout/layouts.gen.ts';
import { createClock, createProgress } from '../src/core/layout/window-clock.ts';
import { silentLogger } from '../src/core/log.ts';
import {
  Checkpointer,
  type CheckpointReport,
  initialRecoveryPoint,
} from '../src/engine/durability/checkpoint/checkpointer.ts';
import { type LiveState, liveWindows } from '../src/engine/durability/checkpoint/live.ts';
import { restoreState } from '../src/engine/durability/checkpoint/restore.ts';
import { TumblingWindows } from '../src/engine/window/definition.ts';
import { openDisk } from '../src/io/disk/node.ts';
import { packageRoot } from '../src/shell/package.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';

const BATCH_ROWS = 16_384;
const SIZE_MS = 60_000;
/** Permutes row numbers into distinct accounts without locality; coprime to every count. */
const STRIDE = 7_368_787;
/** Batches between two checkpoints. */
const CHECKPOINT_BATCHES = 64;
/** Starts a snapshot when the changelog has a tenth of the size of the state, so that one is copied
 *  after all keys exist. */
const BASE_FACTOR = 0.1;
const PAUSE_GOAL_MS = 50;
const RESTORE_GOAL_S = 5;

const TIMES = { mode: 'partition', sizeMs: SIZE_MS, slideMs: SIZE_MS, skewMs: 0, latenessMs: 0 } as const;
const JOB = {
  topic: 'events',
  window: 'tumbling',
  sizeMs: SIZE_MS,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
} as const;

/** Wall time and CPU time of the process, in ms. Other load on the machine extends only the wall
 *  time; file writes count in the CPU time. */
interface Span {
  readonly wall: number;
  readonly cpu: number;
}

const now = (): number => performance.now();
function stamp(): Span {
  const { user, system } = process.cpuUsage();
  return { wall: now(), cpu: (user + system) / 1000 };
}
const since = (from: Span, to = stamp()): Span => ({ wall: to.wall - from.wall, cpu: to.cpu - from.cpu });
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

class Loop {
  readonly times = { afterBatch: [] as Span[], advance: [] as Span[], between: [] as Span[] };
  readonly reports: CheckpointReport[] = [];
  private readonly state: WindowState;
  private readonly checkpointer: Checkpointer;
  private readonly events = EventBatch.create(BATCH_ROWS);
  private readonly admitted = AdmittedBatch.create(BATCH_ROWS);
  private readonly progress = createProgress(1);
  private readonly clock = createClock(TIMES);
  private batches = 0;
  private background: Promise<void> = Promise.resolve();

  constructor(state: WindowState, checkpointer: Checkpointer) {
    this.state = state;
    this.checkpointer = checkpointer;
    this.clock[WINDOW_CLOCK.FRONTIER / 8] = 0;
    for (let row = 0; row < BATCH_ROWS; row++) this.admitted.columns.row[row] = row;
  }

  /** Adds one event for each of `count` accounts, from number `from` on. */
  async feed(from: number, count: number, accounts: number): Promise<void> {
    const { events, admitted, progress, times, checkpointer } = this;
    const words = (column: BigInt64Array | BigUint64Array): Uint32Array =>
      new Uint32Array(events.buffer, column.byteOffset, BATCH_ROWS * 2);
    const ids = words(events.columns.accountId);
    const values = words(events.columns.value);
    const eventTs = words(events.columns.eventTs);
    for (let at = from; at < from + count; at += BATCH_ROWS) {
      const rows = Math.min(BATCH_ROWS, from + count - at);
      for (let row = 0; row < rows; row++) {
        const permuted = (at + row) * STRIDE;
        ids[row * 2] = permuted % accounts;
        values[row * 2] = permuted % 100_000;
        eventTs[row * 2] = permuted % SIZE_MS;
      }
      events.rowCount = rows;
      admitted.rowCount = rows;
      this.state.accumulate(events, admitted);
      for (const cell of [
        PARTITION_PROGRESS.NEXT_OFFSET,
        PARTITION_PROGRESS.CONSUMED,
        PARTITION_PROGRESS.ACCEPTED,
      ])
        progress[cell / 8] = (progress[cell / 8] as number) + rows;
      const before = stamp();
      checkpointer.afterBatch(progress, this.clock, rows);
      const appended = stamp();
      checkpointer.advance();
      const advanced = stamp();
      await nextTurn();
      times.afterBatch.push(since(before, appended));
      times.advance.push(since(appended, advanced));
      times.between.push(since(advanced));
      if (++this.batches % CHECKPOINT_BATCHES === 0) await this.checkpoint();
      await checkpointer.room();
    }
  }

  /** Starts a checkpoint concurrently with the loop; waits only for the previous one. */
  async checkpoint(): Promise<void> {
    await this.background;
    this.background = this.checkpointer.checkpoint().then((report) => {
      this.reports.push(report);
    });
  }
  checkpointDone(): Promise<void> {
    return this.background;
  }
}

const quantile = (values: readonly number[], part: number): number =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * part))] as number;

const row = (metric: string, unit: string, value: number, goal?: number): BenchResult =>
  result({
    metric,
    unit,
    ours: seriesOf([value]),
    better: 'less',
    ...(goal === undefined ? {} : { goal: { valueAtMost: goal } }),
  });

async function measure(context: BenchContext, accounts: number): Promise<BenchResult[]> {
  const where = join(packageRoot(), '.millrace', 'bench', `engine-checkpoint-${process.pid}`);
  const kernels = loadWindowKernels('native');
  const assigner = new TumblingWindows(SIZE_MS);
  mkdirSync(where, { recursive: true });
  const disk = await openDisk(where);
  try {
    const state = kernels.open(SIZE_MS, 1);
    const live = liveWindows(state, assigner);
    const parts = {
      disk,
      clusterId: 'bench',
      shards: 1,
      state: live,
      clock: { wallNowMs: () => Date.now(), monotonicMs: now },
      job: JOB,
      sizes: { baseFactor: BASE_FACTOR, ...(context.smoke ? { baseBytesMin: 100_000 } : {}) },
    };
    const checkpointer = await Checkpointer.start(parts, initialRecoveryPoint(createProgress(1)));
    const loop = new Loop(state, checkpointer);
    await loop.feed(0, accounts, accounts);
    context.say(`${accounts} keys inserted, ${loop.reports.length} checkpoints written`);

    // The snapshot in progress started before all keys existed; the next one is measured from start
    // to end.
    let fed = 0;
    for (let bases = 0; bases < 2 && !context.drain.aborted; bases++) {
      for (const times of Object.values(loop.times)) times.length = 0;
      const before = loop.reports.length;
      const hasBase = (): boolean =>
        loop.reports.slice(before).some((report) => report.newBaseBytes !== undefined);
      for (; !hasBase() && !context.drain.aborted; fed += BATCH_ROWS)
        await loop.feed(fed, BATCH_ROWS, accounts);
    }
    await loop.checkpointDone();
    const { afterBatch, advance, between } = loop.times;
    const baseBytes = loop.reports.findLast((report) => report.newBaseBytes !== undefined)?.newBaseBytes ?? 0;

    await checkpointer.checkpoint();
    await loop.feed(fed, Math.floor(accounts / 100), accounts);
    await loop.checkpointDone();
    const changed = await checkpointer.checkpoint();
    invariant(state.keyCount() === accounts, 'every account must exist');
    await checkpointer.close();
    state.close();

    const from = stamp();
    const open = (): LiveState => liveWindows(kernels.open(SIZE_MS, 1), assigner);
    const found = await restoreState({ disk, log: silentLogger, open });
    const restored = since(from);
    invariant(found?.state.rowCount() === accounts, 'every account must be restored');
    found.state.close();
    const name = `${accounts / 1e6}M keys`;
    const rowsOf = (label: string, times: readonly Span[]): BenchResult[] => {
      const wall = times.map((span) => span.wall);
      const cpu = times.map((span) => span.cpu);
      return [
        row(`${label}, ${name}, p99`, 'ms', quantile(wall, 0.99)),
        row(`${label}, ${name}, longest`, 'ms', Math.max(...wall), PAUSE_GOAL_MS),
        row(`${label}, ${name}, p99`, 'CPU-ms', quantile(cpu, 0.99)),
        row(`${label}, ${name}, longest`, 'CPU-ms', Math.max(...cpu)),
      ];
    };
    return [
      ...rowsOf('append a batch of 16,384 distinct keys', afterBatch),
      ...rowsOf('copy a piece of the base', advance),
      ...rowsOf('work between two batches', between),
      row(`base, ${name}`, 'bytes', baseBytes),
      row(`checkpoint with 1% of ${name} changed: changelog`, 'bytes', changed.changelogBytes),
      row(`checkpoint with 1% of ${name} changed: manifest`, 'bytes', changed.manifestBytes),
      row(`restore, ${name}`, 's', restored.wall / 1000, RESTORE_GOAL_S),
      row(`restore, ${name}`, 'CPU-s', restored.cpu / 1000),
    ];
  } finally {
    rmSync(where, { recursive: true, force: true });
  }
}

export const bench: Bench = {
  name: 'engine-checkpoint',
  summary: 'Pauses and bytes of checkpoints beside ingestion, and the time of a restart, at 10M keys.',
  run: (context) => measure(context, context.smoke ? 100_000 : 10_000_000),
};
