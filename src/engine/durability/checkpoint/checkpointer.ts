/** Keeps the state of a run durable beside its loop: a write-ahead log (the changelog) of every
 *  mutation, and checkpoints that say where a restart resumes.
 *
 *  The loop calls, on its thread: `afterBatch` after each part of a batch that admission accepted,
 *  `idle` and `added` after each decision, `sealed` or `tookOut` when a firing takes rows out of
 *  the state, `fired` when these rows are durable in the sink, and `advance` between batches.
 *  Results may leave once `durable()` has settled. A state on disk has no base: the rows that are
 *  not in its pieces are rebuilt from the changelog, as the ledger records. Invariants: (1) a
 *  checkpoint names only durable data; (2) a base is used only when all that it lacks is durable in
 *  the sink or in a file of its own; (3) a new base starts only when the changelog since the last
 *  one is longer than the state, so the bytes that a checkpoint writes follow the rate of change;
 *  (4) none of the calls waits for the disk. */

import type { SortedRun } from '../../../addon/window-surface.ts';
import type { Clock } from '../../../core/clock.ts';
import { invariant } from '../../../core/errors.ts';
import { PARTITION_PROGRESS, WINDOW_CLOCK } from '../../../core/layout/layouts.gen.ts';
import { PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { Job } from '../../job.ts';
import type { LateRows } from '../../output/late/rows.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import { copyCells, haveSameCells, widened } from '../changelog/cells.ts';
import { frameBytes } from '../changelog/frame.ts';
import { Changelog } from '../changelog/log.ts';
import {
  encodeDetached,
  encodeFired,
  encodeLateSent,
  encodeMove,
  encodeSpilled,
  encodeSwept,
  RECORD,
} from '../changelog/records.ts';
import type { PieceStore, SpilledRun } from '../spill/pieces.ts';
import type { SpillLog } from '../spill/port.ts';
import { BaseInProgress, type SealedSlice } from './base.ts';
import { keptOf, prune } from './kept.ts';
import { Ledger, type SweepEntry } from './ledger.ts';
import type { LiveState } from './live.ts';
import {
  type BaseEntry,
  encodeStateManifest,
  ownFile,
  type RunEntry,
  type StateManifest,
  stateManifestName,
} from './state-manifest.ts';
import { type StepHook, stepped } from './steps.ts';
import { WholeFile } from './whole-file.ts';

export interface CheckpointSizes {
  /** Length at which a segment of the changelog accepts no more records. */
  readonly segmentBytes: number;
  /** Approximate number of bytes that one call of `advance` copies. */
  readonly stepBytes: number;
  /** A new base starts when the changelog since the last base is this many times as long as the
   *  state … */
  readonly baseFactor: number;
  /** … and at least this long. */
  readonly baseBytesMin: number;
  /** Bytes of the changelog that may wait for the disk before `room` waits. */
  readonly waitingBytesMax: number;
}

const CHECKPOINT_SIZES: CheckpointSizes = {
  segmentBytes: 64 * 1024 * 1024,
  stepBytes: 1024 * 1024,
  baseFactor: 1,
  baseBytesMin: 16 * 1024 * 1024,
  waitingBytesMax: 64 * 1024 * 1024,
};

export interface CheckpointerParts {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly job: Job;
  readonly clusterId: string;
  readonly topicId?: string | undefined;
  readonly shards: number;
  readonly state: LiveState;
  /** Store of a state on disk. */
  readonly pieces?: PieceStore;
  readonly sizes?: Partial<CheckpointSizes>;
  /** Called at each step; it may end the process. */
  readonly onStep?: StepHook;
}

/** Position of a run: after a restore, or before its first event. */
export interface RecoveryPoint {
  readonly progress: Float64Array;
  readonly frontier: number;
  readonly maxSeen: number;
  readonly fired: number;
  /** Copies of refused rows whose acknowledgement is unknown, in order. */
  readonly late: readonly LateRows[];
  /** Number of the next record of the changelog. */
  readonly nextSeq: number;
  /** Bytes of the records after the base. */
  readonly changelogBytes: number;
  readonly base: BaseEntry | undefined;
  readonly replayFrom: number;
  /** Present for a state on disk. */
  readonly ledger: Ledger | undefined;
  /** Kept checkpoints, oldest first. */
  readonly kept: readonly StateManifest[];
}

export function freshStanding(progress: Float64Array): RecoveryPoint {
  const never = Number.NEGATIVE_INFINITY;
  const clock = { frontier: never, maxSeen: never, fired: never };
  const nothing = { base: undefined, ledger: undefined, kept: [], late: [] };
  return { ...clock, ...nothing, progress, nextSeq: 1, changelogBytes: 0, replayFrom: 1 };
}

export interface CheckpointReport {
  readonly id: number;
  /** Bytes written since the previous checkpoint. */
  readonly changelogBytes: number;
  readonly manifestBytes: number;
  /** Undefined: the checkpoint uses the base of the previous one. */
  readonly newBaseBytes: number | undefined;
  readonly seconds: number;
}

const NO_ARRIVALS = new Uint32Array(0);
const NO_DELTAS = new Uint8Array(0);

export class Checkpointer implements SpillLog {
  private readonly parts: CheckpointerParts;
  private readonly sizes: CheckpointSizes;
  private readonly hook: StepHook;
  private readonly changelog: Changelog;
  /** Progress after the last record. */
  private saved: Float64Array;
  private frontier: number;
  private maxSeen: number;
  private firedTo: number;
  private tookOutTo = Number.NEGATIVE_INFINITY;
  /** Value of `left` when the part that is aside was detached. */
  private leftAside = Number.NEGATIVE_INFINITY;
  private scratch = new Uint8Array(0);
  /** Records with copies whose acknowledgement is unknown, ascending. */
  private lateSeqs: number[];
  private readonly sealedSlices = new Set<SealedSlice>();
  /** Files of slices that a restore loaded into the live tables. */
  private readonly filed = new Map<number, RunEntry>();
  private readonly ledger: Ledger | undefined;
  /** Sweeps whose results may not be durable in the sink yet, in their order. */
  private readonly sweeps: SweepEntry[] = [];
  private base: { readonly entry: BaseEntry | undefined; readonly firstSeq: number };
  /** Bytes of all records of this process and of the replayed ones, and of the records before the
   *  base. */
  private appended: number;
  private appendedAtBase = 0;
  private appendedAtLast: number;
  private current: { readonly base: BaseInProgress; readonly appended: number } | undefined;
  private kept: readonly StateManifest[];
  private lastId: number;
  private working: Promise<unknown> = Promise.resolve();

  private constructor(parts: CheckpointerParts, from: RecoveryPoint, lastId: number) {
    this.parts = parts;
    this.sizes = { ...CHECKPOINT_SIZES, ...parts.sizes };
    this.hook = parts.onStep ?? (() => {});
    const { disk } = parts;
    this.changelog = new Changelog({ disk, segmentBytes: this.sizes.segmentBytes, nextSeq: from.nextSeq });
    this.saved = from.progress.slice();
    this.frontier = from.frontier;
    this.maxSeen = from.maxSeen;
    this.firedTo = from.fired;
    this.base = { entry: from.base, firstSeq: from.replayFrom - 1 };
    this.appended = from.changelogBytes;
    this.appendedAtLast = from.changelogBytes;
    this.ledger = parts.pieces === undefined ? undefined : (from.ledger ?? new Ledger());
    this.kept = from.kept;
    this.lastId = lastId;
    this.lateSeqs = from.late.map(({ seq }) => seq);
    for (const run of from.base?.runs ?? [])
      if (parts.state.lastEndOf(run.slice) > from.fired) this.filed.set(run.slice, run);
  }

  /** Resumes from a recovery point. A run without a checkpoint gets its first one. @throws
   *  not_writable */
  static async start(parts: CheckpointerParts, from: RecoveryPoint): Promise<Checkpointer> {
    // Skips the numbers of files that a crash left.
    const ids = (await parts.disk.list()).flatMap((name) => ownFile(name)?.id ?? []);
    const checkpointer = new Checkpointer(parts, from, Math.max(0, ...ids));
    await parts.pieces?.dropOthers(checkpointer.pieceIds());
    if (from.kept.length === 0) await checkpointer.checkpoint();
    return checkpointer;
  }

  /** Watermark up to which every window is durable in the sink, according to the changelog. */
  get goneTo(): number {
    return this.firedTo;
  }
  /** True while a base is being written. */
  get isCopying(): boolean {
    return this.current !== undefined;
  }

  /** Appends the effect of admission and accumulation: `admitted` rows have deltas in the state,
   *  `late` has copies of the refused rows. Returns the number of the record, or of the last record
   *  when nothing advanced. @throws errors of an earlier write */
  afterBatch(
    progress: Float64Array,
    clock: Float64Array,
    admitted: number,
    arrivals: Uint32Array = NO_ARRIVALS,
    late?: Uint8Array,
  ): number {
    const listed = this.movedIn(progress);
    const isFurther = (clock[WINDOW_CLOCK.FRONTIER / 8] as number) > this.frontier;
    if (listed.length === 0 && admitted === 0 && !isFurther) return this.changelog.lastSeq;
    const before = this.appended;
    const deltas = admitted > 0 ? this.deltas() : NO_DELTAS;
    const kind = late === undefined ? RECORD.BATCH : RECORD.LATE_BATCH;
    const seq = this.append(kind, progress, clock, listed, arrivals, deltas, late);
    if (admitted > 0) this.ledger?.grew(seq, before, this.parts.state.parts());
    if (late !== undefined) this.lateSeqs.push(seq);
    return seq;
  }

  /** Records that the late topic has acknowledged the copies in all records up to `seq`. */
  lateSent(seq: number): void {
    this.put(RECORD.LATE_SENT, [encodeLateSent(seq)]);
    this.lateSeqs = this.lateSeqs.filter((one) => one > seq);
  }

  /** Appends the decision that a partition is idle; its cell has the value. */
  idle(partition: number, progress: Float64Array, clock: Float64Array): number {
    const cell = progress[partition * PROGRESS_CELLS + PARTITION_PROGRESS.IDLE / 8];
    invariant(cell === 1, 'a partition is idle when that is logged');
    return this.append(RECORD.IDLE, progress, clock, [partition], NO_ARRIVALS, NO_DELTAS);
  }

  /** Appends the decision that the topic has more partitions. */
  added(progress: Float64Array, clock: Float64Array): number {
    const before = this.saved.length / PROGRESS_CELLS;
    const count = progress.length / PROGRESS_CELLS;
    invariant(count > before, 'partitions are added, never taken');
    const listed = Array.from({ length: count - before }, (_, i) => before + i);
    this.saved = widened(this.saved, count);
    return this.append(RECORD.ADDED, progress, clock, listed, NO_ARRIVALS, NO_DELTAS);
  }

  /** Notes that a slice leaves the live tables, because a window that contains it ended by the
   *  watermark. Call it in the same turn in which the slice is taken out. */
  sealed(slice: number, frontier: number, run: Promise<SortedRun>): void {
    invariant(frontier <= this.frontier, 'a frontier is in the changelog before it fires');
    // The ledger keeps the slice as it was until its results are durable in the sink.
    if (this.ledger !== undefined) return;
    const { state } = this.parts;
    const entry = this.filed.get(slice);
    const lastEnd = state.lastEndOf(slice);
    const seq = this.changelog.lastSeq;
    const one: SealedSlice = { slice, lastEnd, seq, run: undefined, isGone: false, entry };
    this.sealedSlices.add(one);
    this.current?.base.sealed(one);
    run.then(
      (sorted) => {
        one.run = sorted;
      },
      // The code that awaits the run reports the failure.
      () => {
        one.isGone = true;
      },
    );
  }

  /** Notes that the sessions that ended by the watermark leave the live tables. Call it in the same
   *  turn in which they are taken out. */
  tookOut(frontier: number): void {
    invariant(frontier <= this.frontier, 'a frontier is in the changelog before it fires');
    this.tookOutTo = Math.max(this.tookOutTo, frontier);
    this.current?.base.tookOut(frontier);
  }

  /** Starts a sweep over pieces. Returns the first id for the pieces with the remaining rows. */
  sweeping(pieces: number): number {
    return this.onDisk.reserve(pieces);
  }

  /** Records that the remaining rows of a sweep are durable. They replace the swept pieces as soon
   *  as the windows that ended by its watermark are durable in the sink. */
  swept(sweep: SweepEntry): void {
    this.sweeps.push(sweep);
  }

  /** Records that every window that ends at or before the watermark is durable in the sink. */
  fired(frontier: number): void {
    while (this.sweeps[0] !== undefined && this.sweeps[0].frontier <= frontier) {
      const sweep = this.sweeps.shift() as SweepEntry;
      this.put(RECORD.SWEPT, [encodeSwept(sweep)]);
      this.onDisk.swept(sweep);
    }
    if (frontier <= this.firedTo) return;
    invariant(Number.isSafeInteger(frontier), 'what has fired for good ended at a time');
    this.put(RECORD.FIRED, [encodeFired(frontier)]);
    this.firedTo = frontier;
    this.frontier = Math.max(this.frontier, frontier);
    this.ledger?.fired(frontier, (part) => this.parts.state.lastEndOf(part));
    for (const one of this.sealedSlices) if (one.lastEnd <= frontier) this.sealedSlices.delete(one);
    for (const slice of this.filed.keys())
      if (this.parts.state.lastEndOf(slice) <= frontier) this.filed.delete(slice);
  }

  /** Records that a part leaves the live tables to become a piece. Call it in the same turn in
   *  which it is taken out. */
  detached(part: number): number {
    const ledger = this.onDisk;
    const id = ledger.lastId + 1;
    const before = this.appended;
    ledger.detached(id, part, this.put(RECORD.DETACHED, [encodeDetached(id, part)]), before);
    this.leftAside = this.tookOutTo;
    return id;
  }

  spilled(piece: SpilledRun): boolean {
    const ledger = this.onDisk;
    // The results of the piece are durable in the sink.
    if (ledger.asideId !== piece.id) return false;
    const { id, part, rows, crc32 } = piece;
    this.put(RECORD.SPILLED, [encodeSpilled(piece)]);
    ledger.spilled({ id, part, rows, crc32 });
    return true;
  }

  /** False while rows that left the part before it was detached are on their way to the sink: only
   *  the changelog has them. */
  maySpill(): boolean {
    return this.leftAside <= this.firedTo;
  }

  overdue(bytesMax: number): readonly number[] {
    return this.onDisk.olderThan(this.appended - Math.max(this.sizes.baseBytesMin, bytesMax));
  }

  private get onDisk(): Ledger {
    invariant(this.ledger !== undefined, 'a state on disk has a ledger');
    return this.ledger;
  }

  /** Ids of the pieces that a kept checkpoint or the state needs. */
  private pieceIds(): Set<number> {
    const ids = this.kept.flatMap(({ spill }) => spill?.pieces.map(({ id }) => id) ?? []);
    return new Set([...ids, ...(this.ledger?.pieces.map(({ id }) => id) ?? [])]);
  }

  /** Copies some bytes of the base in progress. Call it between two batches, and while there is no
   *  batch.
   *  @throws errors of a write */
  advance(): void {
    this.current?.base.advance(this.changelog.lastSeq, this.frontier, this.firedTo, this.sizes.stepBytes);
  }

  /** Settles when all records appended so far are durable: results that depend on them may leave.
   *  @throws not_writable */
  durable(): Promise<void> {
    return stepped(this.hook, 'changelog sync', () => this.changelog.durable());
  }

  /** Waits while the bytes that wait for the disk exceed their limit. @throws not_writable */
  async room(): Promise<void> {
    if (this.changelog.pendingBytes > this.sizes.waitingBytesMax) await this.changelog.durable();
  }

  /** Makes a checkpoint of all records appended so far; it exists when this settles. One at a time.
   *  @throws not_writable */
  checkpoint(): Promise<CheckpointReport> {
    const next = this.working.then(() => this.makeCheckpoint());
    this.working = next.catch(() => {});
    return next;
  }

  /** Makes all records durable and drops a base in progress. */
  async close(): Promise<void> {
    await this.working;
    const { current } = this;
    this.current = undefined;
    try {
      await current?.base.abandon();
    } finally {
      await this.changelog.close();
    }
  }

  private movedIn(progress: Float64Array): number[] {
    invariant(progress.length === this.saved.length, 'partitions are added by a record of their own');
    const listed: number[] = [];
    for (let partition = 0; partition * PROGRESS_CELLS < progress.length; partition++)
      if (!haveSameCells(progress, this.saved, partition)) listed.push(partition);
    return listed;
  }

  private deltas(): Uint8Array {
    const { state } = this.parts;
    const bytes = state.deltaBytesMax();
    if (this.scratch.length < bytes) this.scratch = new Uint8Array(2 * bytes);
    return this.scratch.subarray(0, state.encodeDeltas(this.scratch));
  }

  private append(
    kind: number,
    progress: Float64Array,
    clock: Float64Array,
    listed: readonly number[],
    arrivals: Uint32Array,
    deltas: Uint8Array,
    late: Uint8Array = NO_DELTAS,
  ): number {
    const seq = this.put(kind, [encodeMove(progress, clock, listed, arrivals), late, deltas]);
    for (const partition of listed) copyCells(progress, partition, this.saved, partition);
    this.frontier = Math.max(this.frontier, clock[WINDOW_CLOCK.FRONTIER / 8] as number);
    this.maxSeen = Math.max(this.maxSeen, clock[WINDOW_CLOCK.MAX_SEEN / 8] as number);
    return seq;
  }

  private put(kind: number, parts: readonly Uint8Array[]): number {
    const seq = this.changelog.append(kind, parts);
    this.appended += frameBytes(parts.reduce((sum, part) => sum + part.length, 0));
    return seq;
  }

  private async makeCheckpoint(): Promise<CheckpointReport> {
    const { disk, clock, job, clusterId, topicId, shards } = this.parts;
    const startedMs = clock.monotonicMs();
    const isNewBase = this.takeBase();
    if (this.current === undefined && this.isBaseDue()) this.beginBase();
    // Rows that a base held in memory are in pieces by the first checkpoint on disk.
    const entry = this.ledger === undefined ? this.base.entry : undefined;
    const runs = (entry?.runs ?? []).filter(({ slice }) => this.parts.state.lastEndOf(slice) > this.firedTo);
    const { ledger } = this;
    const next = this.changelog.lastSeq + 1;
    const changelogBytes = this.appended - this.appendedAtLast;
    this.appendedAtLast = this.appended;
    const manifest: StateManifest = {
      id: this.takeId(),
      ts: clock.wallNowMs(),
      job,
      clusterId,
      topicId,
      shards,
      base: entry === undefined ? undefined : { ...entry, runs },
      spill: ledger && { lastId: ledger.lastId, pieces: ledger.pieces },
      // Records that will not be replayed must not be the only ones with copies; records that the
      // base covers are not applied again.
      replayFrom: Math.min(ledger?.replayFrom(next) ?? this.base.firstSeq + 1, this.lateSeqs[0] ?? next),
      durable: this.changelog.lastSeq,
      frontier: this.frontier,
      maxSeen: this.maxSeen,
      fired: this.firedTo,
      progress: this.saved.slice(),
    };
    await this.durable();
    const file = await WholeFile.create(disk, 'manifest', stateManifestName(manifest.id), this.hook);
    await file.write(encodeStateManifest(manifest));
    const written = await file.finish();
    const seconds = (clock.monotonicMs() - startedMs) / 1000;
    this.kept = keptOf([...this.kept, manifest]);
    await prune(disk, this.changelog, this.kept, (name) => this.current?.base.owns(name) === true, this.hook);
    const named = this.pieceIds();
    const isNeeded = (id: number): boolean => named.has(id) || ledger?.has(id) === true;
    // A restart would treat pieces as state that only this process knows to be superfluous.
    await this.parts.pieces?.keepOnly(isNeeded, () => this.durable());
    const newBaseBytes = isNewBase ? entry?.bytes : undefined;
    return { id: manifest.id, changelogBytes, manifestBytes: written.bytes, newBaseBytes, seconds };
  }

  /** Replaces the last base by the base in progress, when that one is complete. */
  private takeBase(): boolean {
    const { current } = this;
    const entry = current?.base.ready(this.firedTo);
    if (current === undefined || entry === undefined) return false;
    this.base = { entry, firstSeq: current.base.firstSeq };
    this.appendedAtBase = current.appended;
    this.current = undefined;
    return true;
  }

  private isBaseDue(): boolean {
    if (this.ledger !== undefined) return false;
    let rows = this.parts.state.rowCount();
    for (const { run } of this.sealedSlices) rows += run?.rowCount ?? 0;
    const { baseFactor, baseBytesMin } = this.sizes;
    return this.appended - this.appendedAtBase > Math.max(baseBytesMin, baseFactor * rows * ROW_BYTES);
  }

  private beginBase(): void {
    const { disk, state } = this.parts;
    const base = new BaseInProgress({
      disk,
      state,
      hook: this.hook,
      takeId: () => this.takeId(),
      filed: new Map(this.filed),
      sealed: this.sealedSlices,
      firstSeq: this.changelog.lastSeq,
      fired: this.firedTo,
      tookOut: this.tookOutTo,
    });
    this.current = { base, appended: this.appended };
  }

  private takeId(): number {
    return ++this.lastId;
  }
}
