/** A minimal engine loop over the window kernels and the checkpointer. It reads an arrival log in
 *  batches, fires, delivers results to a slower sink, makes checkpoints, and dies at a given
 *  place. */
import type { LogEntry, OracleRules } from '../../bench/peers/oracle/rules.ts';
import type {
  RowRun,
  SessionState,
  SortedRun,
  WindowKernels,
  WindowState,
} from '../../src/addon/window-surface.ts';
import { PARTITION_PROGRESS, TIMESTAMP_TYPE, WINDOW_CLOCK } from '../../src/core/layout/layouts.gen.ts';
import { createClock, createProgress, PROGRESS_CELLS } from '../../src/core/layout/window-clock.ts';
import { silentLogger } from '../../src/core/log.ts';
import { SAVED_CELLS } from '../../src/engine/durability/changelog/cells.ts';
import { arrivalsOf } from '../../src/engine/durability/changelog/records.ts';
import {
  Checkpointer,
  type CheckpointSizes,
  initialRecoveryPoint,
} from '../../src/engine/durability/checkpoint/checkpointer.ts';
import { type LiveState, liveSessions, liveWindows } from '../../src/engine/durability/checkpoint/live.ts';
import { type Restored, restoreState } from '../../src/engine/durability/checkpoint/restore.ts';
import type { CheckpointStep } from '../../src/engine/durability/checkpoint/steps.ts';
import type { Job } from '../../src/engine/job.ts';
import {
  SlidingWindows,
  TumblingWindows,
  type WindowAssigner,
  windowsOver,
} from '../../src/engine/window/definition.ts';
import type { Disk } from '../../src/io/disk/port.ts';
import { batchesOf, type EventRow, hexOf, ROW_BYTES } from '../differential/window-kit.ts';
import type { Stream } from '../windows/streams.ts';

export interface Course {
  /** Rows of a batch; the batches have the same bounds in every life. */
  readonly batchRows: number;
  /** Batches between two checkpoints. */
  readonly checkpointEvery: number;
  /** Batches between two deliveries of fired results to the sink. */
  readonly deliverEvery: number;
  /** Shards of each life; the last life runs to the end. */
  readonly shards: readonly number[];
  readonly sizes: Partial<CheckpointSizes>;
}

export interface Life {
  /** Row of the log before which the process dies. */
  readonly beforeRow?: number;
  /** Checkpoint step at which the process dies, counted from 0. */
  readonly atStep?: number;
}

/** Ends, ascending, of the windows that contain one of the slices and end in (fired, frontier]. */
export function endsDue(
  slices: readonly number[],
  assigner: WindowAssigner,
  fired: number,
  frontier: number,
): readonly number[] {
  const ends: number[] = [];
  for (const { end } of windowsOver(assigner, slices, fired)) {
    if (end > frontier) break;
    ends.push(end);
  }
  return ends;
}

export class Killed extends Error {}

/** Result of a run. */
export interface Outcome {
  /** Rows of the sink, one line each. */
  readonly sink: readonly string[];
  /** Open rows, one line each. */
  readonly open: readonly string[];
  readonly progress: readonly number[];
  readonly frontier: number;
  readonly maxSeen: number;
}

const FRONTIER = WINDOW_CLOCK.FRONTIER / 8;
const NEXT_END = WINDOW_CLOCK.NEXT_END / 8;
const IDLE = PARTITION_PROGRESS.IDLE / 8;
const SEEN = PARTITION_PROGRESS.MAX_SEEN / 8;
const CONSUMED = PARTITION_PROGRESS.CONSUMED / 8;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Results by key. A repeated row must have the same value. */
export class Results {
  readonly rows = new Map<string, string>();

  put(key: string, row: string): void {
    const before = this.rows.get(key);
    if (before !== undefined && before !== row) throw new Error(`${key} was ${before} and became ${row}`);
    this.rows.set(key, row);
  }
}

function assignerOf(rules: OracleRules): WindowAssigner | undefined {
  if (rules.window === 'session') return undefined;
  const sizeMs = Number(rules.sizeMs);
  return rules.window === 'sliding'
    ? new SlidingWindows(sizeMs, Number(rules.slideMs))
    : new TumblingWindows(sizeMs);
}

export interface LoopParts {
  readonly kernels: WindowKernels;
  readonly stream: Stream;
  readonly course: Course;
  readonly disk: Disk;
  readonly results: Results;
  readonly shards: number;
  readonly onStep: (step: CheckpointStep) => void;
}

export class Loop {
  restored: Restored | undefined;
  private readonly parts: LoopParts;
  private readonly assigner: WindowAssigner | undefined;
  private readonly clock: Float64Array;
  private readonly delayMs: number;
  private progress: Float64Array;
  private windows: WindowState | undefined;
  private sessions: SessionState | undefined;
  private checkpointer: Checkpointer | undefined;
  private sealed = new Map<number, SortedRun>();
  private firedTo = Number.NEGATIVE_INFINITY;
  private pending: Array<readonly [string, string]> = [];
  private background: Promise<void> = Promise.resolve();
  private failure: unknown;

  constructor(parts: LoopParts) {
    this.parts = parts;
    const { rules, partitions } = parts.stream;
    this.assigner = assignerOf(rules);
    const sizeMs = Number(rules.window === 'session' ? rules.gapMs : rules.sizeMs);
    const slideMs = rules.window === 'sliding' ? Number(rules.slideMs) : sizeMs;
    const [skewMs, latenessMs] = [Number(rules.skewMs), Number(rules.latenessMs)];
    const maxFutureMs = rules.maxFutureMs === undefined ? undefined : Number(rules.maxFutureMs);
    this.delayMs = skewMs + latenessMs;
    const mode = rules.watermark ?? 'partition';
    this.clock = createClock({ mode, sizeMs, slideMs, skewMs, latenessMs, maxFutureMs });
    this.progress = createProgress(partitions);
  }

  async start(): Promise<void> {
    const { disk, shards, course, onStep } = this.parts;
    this.restored = await restoreState({ disk, log: silentLogger, open: () => this.openState() });
    const standing = this.restored ?? initialRecoveryPoint(this.progress);
    this.progress = standing.progress.slice();
    this.clock[FRONTIER] = standing.frontier;
    this.clock[WINDOW_CLOCK.MAX_SEEN / 8] = standing.maxSeen;
    this.firedTo = standing.fired;
    this.checkpointer = await Checkpointer.start(
      {
        disk,
        clock: { wallNowMs: () => 1_000_000, monotonicMs: () => 0 },
        job: jobOf(this.parts.stream.rules),
        clusterId: 'test-cluster',
        shards,
        state: this.restored?.state ?? this.openState(),
        sizes: course.sizes,
        onStep,
      },
      standing,
    );
    await this.fire();
  }

  /** Runs to the end of the log, or to a row before which the process dies. */
  async run(beforeRow = Number.POSITIVE_INFINITY): Promise<Outcome> {
    const { log, partitions } = this.parts.stream;
    const { batchRows, checkpointEvery, deliverEvery } = this.parts.course;
    const offsets: number[] = [];
    let known = partitions;
    let row = 0;
    const batch: EventRow[] = [];
    const done = this.consumed();
    for (const entry of log) {
      if (entry.kind === 'added') known++;
      if (entry.kind === 'added' || entry.kind === 'idle') {
        if (row < done) continue;
        await this.apply(batch.splice(0));
        await this.decide(entry, known);
        continue;
      }
      if (row >= beforeRow) throw new Killed();
      const offset = offsets[entry.partition] ?? 0;
      offsets[entry.partition] = offset + 1;
      if (row >= done) batch.push(rowOf(entry, offset));
      row++;
      if (row <= done || row % batchRows !== 0) continue;
      await this.apply(batch.splice(0));
      const number = row / batchRows;
      if (number % deliverEvery === 0) await this.deliver();
      if (number % checkpointEvery === 0) await this.startCheckpoint();
      await turn();
      if (this.failure !== undefined) throw this.failure;
    }
    await this.apply(batch);
    await this.deliver();
    await this.background;
    if (this.failure !== undefined) throw this.failure;
    await this.liveCheckpointer.checkpoint();
    return this.outcome();
  }

  /** Releases the state that a dead process would no longer hold. */
  async releaseState(): Promise<void> {
    await this.background;
    for (const run of this.sealed.values()) run.close();
    this.windows?.close();
    this.sessions?.close();
  }

  async close(): Promise<void> {
    await this.liveCheckpointer.close();
    await this.releaseState();
  }

  private get liveCheckpointer(): Checkpointer {
    return this.checkpointer as Checkpointer;
  }

  private openState(): LiveState {
    const { kernels, shards, stream } = this.parts;
    const { rules } = stream;
    if (rules.window === 'session') {
      this.sessions = kernels.openSessions(Number(rules.gapMs), shards);
      return liveSessions(this.sessions);
    }
    this.windows = kernels.open(this.windowAssigner.sliceMs, shards);
    return liveWindows(this.windows, this.windowAssigner);
  }

  private get windowAssigner(): WindowAssigner {
    return this.assigner as WindowAssigner;
  }

  private consumed(): number {
    let sum = 0;
    for (let at = CONSUMED; at < this.progress.length; at += PROGRESS_CELLS)
      sum += this.progress[at] as number;
    return sum;
  }

  /** Applies a decision once, even if a restored process finds it in the changelog. */
  private async decide(entry: LogEntry, known: number): Promise<void> {
    if (entry.kind === 'idle') {
      const cell = entry.partition * PROGRESS_CELLS + IDLE;
      if (this.progress[cell] === 1) return;
      this.progress[cell] = 1;
      this.admit([], 0);
      this.liveCheckpointer.idle(entry.partition, this.progress, this.clock);
    } else {
      const have = this.progress.length / PROGRESS_CELLS;
      if (have >= known) return;
      const wider = createProgress(known);
      wider.set(this.progress);
      const frontier = this.clock[FRONTIER] as number;
      for (let p = have; p < known; p++) wider[p * PROGRESS_CELLS + SEEN] = frontier + this.delayMs;
      this.progress = wider;
      this.liveCheckpointer.added(this.progress, this.clock);
    }
    await this.fire();
  }

  private admit(rows: readonly EventRow[], from: number) {
    const batches = batchesOf(rows);
    const { records, events, admitted } = batches;
    if (this.assigner === undefined) this.clock[NEXT_END] = Number.POSITIVE_INFINITY;
    const taken = this.parts.kernels.admit(this.clock, this.progress, records, events, from, admitted);
    return { ...batches, taken };
  }

  private async apply(rows: readonly EventRow[]): Promise<void> {
    const isGlobal = this.parts.stream.rules.watermark === 'global';
    for (let from = 0; from < rows.length; ) {
      const { taken, records, events, admitted } = this.admit(rows, from);
      const count = admitted.rowCount;
      if (count > 0) (this.windows ?? (this.sessions as SessionState)).accumulate(events, admitted);
      const arrivals = isGlobal ? arrivalsOf(records.columns.partition, from, from + taken) : undefined;
      this.liveCheckpointer.afterBatch(this.progress, this.clock, count, arrivals);
      from += taken;
      await this.fire();
      this.liveCheckpointer.advance();
    }
  }

  private async fire(): Promise<void> {
    const frontier = this.clock[FRONTIER] as number;
    if (this.windows !== undefined) await this.fireWindows(this.windows, frontier);
    else if (this.sessions !== undefined && this.sessions.leastEnd() <= frontier) {
      const run = this.sessions.fire(frontier);
      this.liveCheckpointer.tookOut(frontier);
      this.queueResults(await run, '');
    }
    this.firedTo = Math.max(this.firedTo, frontier);
  }

  private async fireWindows(windows: WindowState, frontier: number): Promise<void> {
    const assigner = this.windowAssigner;
    for (const end of endsDue(this.slices(), assigner, this.firedTo, frontier)) {
      const start = end - assigner.sizeMs;
      const runs: SortedRun[] = [];
      for (const slice of this.slices()) {
        if (slice < start || slice >= end) continue;
        let run = this.sealed.get(slice);
        if (run === undefined) {
          const sorting = windows.seal(slice);
          this.liveCheckpointer.sealed(slice, frontier, sorting);
          run = await sorting;
          this.sealed.set(slice, run);
        }
        runs.push(run);
      }
      this.queueResults(this.merged(runs), `${start},${end}`);
      for (const [slice, run] of this.sealed) {
        if (assigner.lastEndOf(slice) > end) continue;
        run.close();
        this.sealed.delete(slice);
      }
    }
    const [next] = endsDue(this.slices(), assigner, frontier, Number.POSITIVE_INFINITY);
    this.clock[NEXT_END] = next ?? Number.POSITIVE_INFINITY;
  }

  private slices(): number[] {
    const windows = this.windows as WindowState;
    const out = new Float64Array(windows.slices(new Float64Array(0)));
    windows.slices(out);
    return [...new Set([...out, ...this.sealed.keys()])].sort((a, b) => a - b);
  }

  private merged(runs: readonly SortedRun[]): Pick<RowRun, 'rowCount' | 'read'> {
    const pages = runs.map((run) => new ArrayBuffer(run.rowCount * ROW_BYTES));
    const cursors = new Uint32Array(runs.length * 3);
    runs.forEach((run, i) => {
      run.read(0, pages[i] as ArrayBuffer);
      cursors.set([0, run.rowCount, 1], i * 3);
    });
    const all = new ArrayBuffer(runs.reduce((sum, run) => sum + run.rowCount, 0) * ROW_BYTES);
    const rowCount = this.parts.kernels.merge(pages, cursors, all);
    return {
      rowCount,
      read: (_, into) => {
        new Uint8Array(into as ArrayBuffer).set(new Uint8Array(all, 0, rowCount * ROW_BYTES));
        return rowCount;
      },
    };
  }

  /** Queues the results of a firing for the sink. */
  private queueResults(run: Pick<RowRun, 'rowCount' | 'read'>, window: string): void {
    const rows = new ArrayBuffer(run.rowCount * ROW_BYTES);
    run.read(0, rows);
    for (const line of linesOf(new Uint8Array(rows), run.rowCount))
      this.pending.push([`${window},${line.slice(0, 16)},${window === '' ? line.slice(112) : ''}`, line]);
  }

  private async deliver(): Promise<void> {
    const { pending, firedTo } = this;
    this.pending = [];
    await this.liveCheckpointer.durable();
    for (const [key, row] of pending) this.parts.results.put(key, row);
    if (Number.isFinite(firedTo)) this.liveCheckpointer.fired(firedTo);
  }

  private async startCheckpoint(): Promise<void> {
    await this.background;
    this.background = this.liveCheckpointer.checkpoint().then(
      () => {},
      (thrown) => {
        this.failure ??= thrown;
      },
    );
  }

  private outcome(): Outcome {
    const open: string[] = [];
    const add = (part: string, rows: Uint8Array, count: number): void => {
      for (const line of linesOf(rows, count)) open.push(`${part},${line}`);
    };
    const page = new Uint8Array(4096 * ROW_BYTES);
    if (this.sessions !== undefined) add('', page, this.sessions.copy(new Float64Array(1), page));
    for (const slice of this.windows === undefined ? [] : this.slices()) {
      const count =
        this.sealed.get(slice)?.read(0, page) ??
        (this.windows as WindowState).copy(slice, new Float64Array(1), page);
      add(`${slice}`, page, count);
    }
    const progress: number[] = [];
    for (let at = 0; at < this.progress.length; at += PROGRESS_CELLS)
      for (const [, cell] of SAVED_CELLS) progress.push(this.progress[at + cell] as number);
    return {
      sink: [...this.parts.results.rows].map(([key, row]) => `${key}: ${row}`).sort(),
      open: open.sort(),
      progress,
      frontier: this.clock[FRONTIER] as number,
      maxSeen: this.clock[WINDOW_CLOCK.MAX_SEEN / 8] as number,
    };
  }
}

/** Formats rows as text, 16 hex digits per field, in byte order. */
function linesOf(rows: Uint8Array, count: number): string[] {
  return Array.from({ length: count }, (_, i) =>
    hexOf(rows.slice(i * ROW_BYTES, (i + 1) * ROW_BYTES).buffer),
  );
}

function rowOf(entry: LogEntry, offset: number): EventRow {
  if (entry.kind === 'broken')
    return { partition: entry.partition, offset: BigInt(offset), eventTs: 0n, status: 1 };
  if (entry.kind !== 'event') throw new Error(`a decision (${entry.kind}) has no row`);
  const { partition, accountId, value, eventTs, appendTs } = entry;
  const row = { partition, offset: BigInt(offset), accountId, value, eventTs };
  return appendTs === undefined
    ? { ...row, timestampType: TIMESTAMP_TYPE.NONE }
    : { ...row, timestamp: appendTs, timestampType: TIMESTAMP_TYPE.APPEND };
}

function jobOf(rules: OracleRules): Job {
  return {
    topic: 'events',
    window: 'tumbling',
    sizeMs: Number(rules.window === 'session' ? rules.gapMs : rules.sizeMs),
    skewMs: Number(rules.skewMs),
    latenessMs: Number(rules.latenessMs),
    watermark: 'partition',
  };
}
