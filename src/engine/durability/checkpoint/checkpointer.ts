/** Keeps the state of a run durable beside its loop: a write-ahead log (the changelog) of every
 *  mutation, and checkpoints that name the position where a restart resumes.
 *
 *  The loop calls these methods on its thread. `afterBatch` follows each part of a batch that
 *  admission accepted, and `idle` and `added` follow each decision. `sealed` or `tookOut` runs when
 *  a firing takes rows out of the state, and `fired` when these rows are durable in the sink.
 *  `advance` runs between batches. Results may leave once `durable()` has settled. A state on disk
 *  has no base: the changelog rebuilds the rows that are in no piece, as the ledger records.
 *  Invariants: (1) a checkpoint names only durable data; (2) rows that a base lacks are durable in
 *  the sink or in a file of their own before the base is used; (3) a new base starts only when the
 *  changelog since the last base is longer than the state, so bytes written follow the rate of
 *  change; (4) none of the calls waits for the disk.
 *
 *  The frontier is the least watermark of the partitions, less the lateness: windows that end at or
 *  before it are final.
 */

import type { SortedRun } from '../../../addon/window-surface.ts';
import type { Clock } from '../../../core/clock.ts';
import { invariant } from '../../../core/errors.ts';
import { PARTITION_PROGRESS, WINDOW_CLOCK } from '../../../core/layout/layouts.gen.ts';
import { PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { DuplicateFilter } from '../../dedup/filter.ts';
import { IdLog } from '../../dedup/log.ts';
import type { Job } from '../../job.ts';
import type { KeyDictionary } from '../../keys/dictionary.ts';
import {
  encodeSections,
  noneUnsent,
  type Sections,
  SIDES,
  type SideBytes,
  type SideName,
  type Unsent,
} from '../../output/side/sections.ts';
import { copyCells, haveSameCells, widened } from '../changelog/cells.ts';
import { frameBytes } from '../changelog/frame.ts';
import { Changelog } from '../changelog/log.ts';
import {
  encodeChanged,
  encodeDetached,
  encodeFired,
  encodeIdsRecord,
  encodeMove,
  encodeSent,
  encodeSpilled,
  encodeSwept,
  RECORD,
} from '../changelog/records.ts';
import type { PieceStore, SpilledRun } from '../spill/pieces.ts';
import type { SpillLog } from '../spill/port.ts';
import { BaseInProgress, type SealedSlice } from './base.ts';
import { checkpointsToKeep, prune } from './kept.ts';
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
  /** Least ratio of the changelog since the last base to the state, both in bytes, at which a new
   *  base starts. */
  readonly baseFactor: number;
  /** Least bytes of the changelog since the last base at which a new base starts. */
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
  /** Identifiers of open windows; absent: none are compared. */
  readonly ids?: DuplicateFilter | undefined;
  /** Ids of keys that are no integers. */
  readonly keys?: Pick<KeyDictionary, 'takeUnlogged' | 'flush' | 'expire'> | undefined;
  readonly sizes?: Partial<CheckpointSizes>;
  /** Called at each step; it may end the process. */
  readonly onStep?: StepHook;
}

/** Position of a run, after a restore or before its first event. */
export interface RecoveryPoint {
  readonly progress: Float64Array;
  readonly frontier: number;
  readonly maxSeen: number;
  readonly fired: number;
  /** Copies of refused rows that the side outputs may not have acknowledged. */
  readonly unsent: Unsent;
  /** Number of the next record of the changelog. */
  readonly nextSeq: number;
  /** Bytes of the records after the base, or of all records without a base. */
  readonly changelogBytes: number;
  readonly base: BaseEntry | undefined;
  readonly replayFrom: number;
  /** Record from which on rows have the form of the job; 0: all have it. */
  readonly formFrom: number;
  /** Present for a state on disk. */
  readonly ledger: Ledger | undefined;
  /** Pieces of the state before its rows were converted: until a checkpoint has the converted rows,
   *  a restart needs these. */
  readonly converted?: readonly number[];
  /** Kept checkpoints, oldest first. */
  readonly kept: readonly StateManifest[];
}

export function initialRecoveryPoint(progress: Float64Array): RecoveryPoint {
  const never = Number.NEGATIVE_INFINITY;
  const clock = { frontier: never, maxSeen: never, fired: never };
  const nothing = { base: undefined, ledger: undefined, kept: [], unsent: noneUnsent() };
  return { ...clock, ...nothing, progress, nextSeq: 1, changelogBytes: 0, replayFrom: 1, formFrom: 0 };
}

export interface CheckpointReport {
  readonly id: number;
  /** Bytes written since the previous checkpoint. */
  readonly changelogBytes: number;
  readonly manifestBytes: number;
  /** Undefined if the checkpoint names the base of the previous checkpoint. */
  readonly newBaseBytes: number | undefined;
  readonly seconds: number;
}

const NO_ARRIVALS = new Uint32Array(0);
const NO_DELTAS = new Uint8Array(0);

export class Checkpointer implements SpillLog {
  private readonly parts: CheckpointerParts;
  private job: Job;
  private readonly sizes: CheckpointSizes;
  private readonly hook: StepHook;
  private readonly changelog: Changelog;
  /** Progress after the last record. */
  private saved: Float64Array;
  private frontier: number;
  private maxSeen: number;
  private firedTo: number;
  private tookOutTo = Number.NEGATIVE_INFINITY;
  /** Value of `tookOutTo` when the newest part was detached. */
  private tookOutAtDetach = Number.NEGATIVE_INFINITY;
  private scratch = new Uint8Array(0);
  /** Numbers of the records with copies that a side output may not have acknowledged, ascending. */
  private readonly unsentSeqs: Record<SideName, number[]>;
  private readonly ids: IdLog | undefined;
  private readonly sealedSlices = new Set<SealedSlice>();
  /** Run files of slices that a restore loaded into the live tables. */
  private readonly savedSlices = new Map<number, RunEntry>();
  private readonly ledger: Ledger | undefined;
  /** Sweeps whose results may not be durable in the sink, in the order of their frontiers. */
  private readonly sweeps: SweepEntry[] = [];
  private base: { readonly entry: BaseEntry | undefined; readonly firstSeq: number };
  /** Bytes of all records of this process and of the replayed records. */
  private appended: number;
  /** Value of `appended` at the start of the current base. */
  private appendedAtBase = 0;
  /** Value of `appended` at the newest checkpoint. */
  private appendedAtLast: number;
  private current: { readonly base: BaseInProgress; readonly appended: number } | undefined;
  private kept: readonly StateManifest[];
  private lastId: number;
  private formFrom: number;
  private working: Promise<unknown> = Promise.resolve();

  private constructor(parts: CheckpointerParts, from: RecoveryPoint, lastId: number) {
    this.parts = parts;
    this.job = parts.job;
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
    this.formFrom = from.formFrom;
    const seqsOf = (name: SideName): number[] => from.unsent[name].map(({ seq }) => seq);
    this.unsentSeqs = {
      ...{ late: seqsOf('late'), quarantine: seqsOf('quarantine'), events: seqsOf('events') },
    };
    this.ids = parts.ids && this.idLog(parts.ids, from);
    for (const run of from.base?.runs ?? [])
      if (parts.state.lastEndOf(run.slice) > from.fired) this.savedSlices.set(run.slice, run);
  }

  /** Resumes from a recovery point. A run without a checkpoint gets its first checkpoint. @throws
   *  not_writable */
  static async start(parts: CheckpointerParts, from: RecoveryPoint): Promise<Checkpointer> {
    // Skips the numbers of all existing files, including those that a crash left.
    const ids = (await parts.disk.list()).flatMap((name) => ownFile(name)?.id ?? []);
    const checkpointer = new Checkpointer(parts, from, Math.max(0, ...ids));
    await parts.pieces?.dropOthers([...checkpointer.pieceIds(), ...(from.converted ?? [])]);
    // A process ended between the checkpoint and the record.
    if (from.formFrom === from.nextSeq) checkpointer.appendRecord(RECORD.CHANGED, [encodeChanged()]);
    if (from.kept.length === 0) await checkpointer.checkpoint();
    return checkpointer;
  }

  /** Saves the job as it is now, in a checkpoint of its own. No event may have been accumulated
   *  before. */
  async define(job: Job): Promise<void> {
    this.job = job;
    await this.checkpoint();
  }

  /** Saves the job with rows of another form, of which the recovery point has no base: in a
   *  checkpoint that has all rows, and a record behind it. Earlier checkpoints cannot be used any
   *  more and are removed. Call it before any other record is appended.
   *  @param turn lets the disk continue */
  async changeForm(turn: () => Promise<void>): Promise<void> {
    this.formFrom = this.changelog.lastSeq + 1;
    this.kept = [];
    if (this.ledger === undefined) {
      this.beginBase();
      while (this.current?.base.ready(this.firedTo) === undefined) {
        this.advance();
        await turn();
      }
    }
    await this.checkpoint();
    this.appendRecord(RECORD.CHANGED, [encodeChanged()]);
  }

  /** Frontier up to which every window is durable in the sink, according to the changelog. */
  get durableInSinkTo(): number {
    return this.firedTo;
  }
  /** True while a base is being written. */
  get isCopying(): boolean {
    return this.current !== undefined;
  }

  /** Appends the effect of admission and accumulation: `admitted` rows have deltas in the state,
   *  `sections` have copies of the refused rows. Returns the number of the record, or of the last
   *  record if nothing changed. @throws the error of an earlier write */
  afterBatch(
    progress: Float64Array,
    clock: Float64Array,
    admitted: number,
    arrivals: Uint32Array = NO_ARRIVALS,
    sections: Sections = {},
  ): number {
    const listed = this.changedPartitions(progress);
    const isFurther = (clock[WINDOW_CLOCK.FRONTIER / 8] as number) > this.frontier;
    if (listed.length === 0 && admitted === 0 && !isFurther) return this.changelog.lastSeq;
    // A restart needs the keys of the ids in the deltas.
    for (const keys of this.parts.keys?.takeUnlogged() ?? []) this.appendRecord(RECORD.KEYS, [keys]);
    const before = this.appended;
    const deltas = admitted > 0 ? this.deltas() : NO_DELTAS;
    const copies = encodeSections(sections);
    const kind = copies === undefined ? RECORD.BATCH : RECORD.REFUSED_BATCH;
    const seq = this.appendMove(kind, progress, clock, listed, arrivals, deltas, copies);
    if (admitted > 0) this.ledger?.applied(seq, before, this.parts.state.parts());
    for (const name of SIDES) if (sections[name] !== undefined) this.unsentSeqs[name].push(seq);
    if (sections.ids !== undefined) this.ids?.applied(seq, before);
    return seq;
  }

  /** Records that a side output has acknowledged the copies in all records up to `seq`. */
  sent(side: SideName, seq: number): void {
    this.appendRecord(RECORD.SENT, [encodeSent(side, seq)]);
    this.unsentSeqs[side] = this.unsentSeqs[side].filter((unsent) => unsent > seq);
  }

  /** Appends the decision that a partition is idle, which its cell in `progress` already shows.
   *  Returns the number of the record. */
  idle(partition: number, progress: Float64Array, clock: Float64Array): number {
    const cell = progress[partition * PROGRESS_CELLS + PARTITION_PROGRESS.IDLE / 8];
    invariant(cell === 1, 'the cell of an idle partition is 1');
    return this.appendMove(RECORD.IDLE, progress, clock, [partition], NO_ARRIVALS, NO_DELTAS);
  }

  /** Appends the decision that the topic has more partitions. Returns the number of the record. */
  added(progress: Float64Array, clock: Float64Array): number {
    const before = this.saved.length / PROGRESS_CELLS;
    const count = progress.length / PROGRESS_CELLS;
    invariant(count > before, 'partitions are never removed');
    const listed = Array.from({ length: count - before }, (_, i) => before + i);
    this.saved = widened(this.saved, count);
    return this.appendMove(RECORD.ADDED, progress, clock, listed, NO_ARRIVALS, NO_DELTAS);
  }

  /** Notes that a slice leaves the live tables, because a window that contains it ended by the
   *  frontier. Call it in the turn of the event loop in which the slice is taken out. */
  sealed(slice: number, frontier: number, run: Promise<SortedRun>): void {
    invariant(frontier <= this.frontier, 'a frontier is in the changelog before it fires');
    // The ledger of a state on disk keeps the first record of the slice until its results are
    // durable in the sink.
    if (this.ledger !== undefined) return;
    const { state } = this.parts;
    const entry = this.savedSlices.get(slice);
    const lastEnd = state.lastEndOf(slice);
    const seq = this.changelog.lastSeq;
    const sealedSlice: SealedSlice = { slice, lastEnd, seq, run: undefined, isGone: false, entry };
    this.sealedSlices.add(sealedSlice);
    this.current?.base.sealed(sealedSlice);
    run.then(
      (sorted) => {
        sealedSlice.run = sorted;
      },
      // The code that awaits the run reports the failure.
      () => {
        sealedSlice.isGone = true;
      },
    );
  }

  /** Notes that the sessions that ended by the frontier leave the live tables. Call it in the turn
   *  of the event loop in which they are taken out. */
  tookOut(frontier: number): void {
    invariant(frontier <= this.frontier, 'a frontier is in the changelog before it fires');
    this.tookOutTo = Math.max(this.tookOutTo, frontier);
    this.current?.base.tookOut(frontier);
  }

  /** Notes that a sweep starts. Reserves `pieces` consecutive ids for the remaining rows and
   *  returns the first. */
  sweeping(pieces: number): number {
    return this.diskLedger.reserve(pieces);
  }

  /** Notes that the remaining rows of a sweep are durable. They replace the swept pieces as soon as
   *  the sessions that ended by its frontier are durable in the sink. */
  swept(sweep: SweepEntry): void {
    this.sweeps.push(sweep);
  }

  /** Records that every window that ends at or before the frontier is durable in the sink. */
  fired(frontier: number): void {
    while (this.sweeps[0] !== undefined && this.sweeps[0].frontier <= frontier) {
      const sweep = this.sweeps.shift() as SweepEntry;
      this.appendRecord(RECORD.SWEPT, [encodeSwept(sweep)]);
      this.diskLedger.swept(sweep);
    }
    if (frontier <= this.firedTo) return;
    invariant(Number.isSafeInteger(frontier), 'a fired frontier is a whole number of ms');
    this.appendRecord(RECORD.FIRED, [encodeFired(frontier)]);
    this.firedTo = frontier;
    this.frontier = Math.max(this.frontier, frontier);
    this.ledger?.fired(frontier, (part) => this.parts.state.lastEndOf(part));
    for (const sealedSlice of this.sealedSlices)
      if (sealedSlice.lastEnd <= frontier) this.sealedSlices.delete(sealedSlice);
    for (const slice of this.savedSlices.keys())
      if (this.parts.state.lastEndOf(slice) <= frontier) this.savedSlices.delete(slice);
  }

  /** Records that a part leaves the live tables to become a piece. Returns the id of the piece.
   *  Call it in the turn of the event loop in which the part is taken out. */
  detached(part: number): number {
    const ledger = this.diskLedger;
    const id = ledger.lastId + 1;
    const before = this.appended;
    ledger.detached(id, part, this.appendRecord(RECORD.DETACHED, [encodeDetached(id, part)]), before);
    this.tookOutAtDetach = this.tookOutTo;
    return id;
  }

  spilled(piece: SpilledRun): boolean {
    const ledger = this.diskLedger;
    // The results of the part are durable in the sink, so the piece is not needed.
    if (ledger.detachedId !== piece.id) return false;
    const { id, part, rows, crc32 } = piece;
    this.appendRecord(RECORD.SPILLED, [encodeSpilled(piece)]);
    ledger.spilled({ id, part, rows, crc32 });
    return true;
  }

  /** False while rows that left the part before it was detached are in flight to the sink: only the
   *  changelog has them. */
  maySpill(): boolean {
    return this.tookOutAtDetach <= this.firedTo;
  }

  overdue(bytesMax: number): readonly number[] {
    return this.diskLedger.olderThan(this.appended - Math.max(this.sizes.baseBytesMin, bytesMax));
  }

  private get diskLedger(): Ledger {
    invariant(this.ledger !== undefined, 'a state on disk has a ledger');
    return this.ledger;
  }

  /** Ids of the pieces that a kept checkpoint or the state needs. */
  private pieceIds(): Set<number> {
    const ids = this.kept.flatMap(({ spill }) => spill?.pieces.map(({ id }) => id) ?? []);
    return new Set([...ids, ...(this.ledger?.pieces.map(({ id }) => id) ?? [])]);
  }

  /** Copies some bytes of the base in progress. Call it between two batches, and while no batch
   *  arrives. @throws the error of an earlier write */
  advance(): void {
    this.current?.base.advance(this.changelog.lastSeq, this.frontier, this.firedTo, this.sizes.stepBytes);
    this.ids?.advance(this.changelog.lastSeq + 1, this.appended);
  }

  /** Settles when all records appended so far are durable: results that depend on them may leave.
   *  @throws not_writable */
  durable(): Promise<void> {
    return stepped(this.hook, 'changelog sync', () => this.changelog.durable());
  }

  /** Waits for the disk if the pending bytes of the changelog exceed their limit. @throws
   *  not_writable */
  async room(): Promise<void> {
    if (this.changelog.pendingBytes > this.sizes.waitingBytesMax) await this.changelog.durable();
  }

  /** Makes a checkpoint of all records appended so far; the checkpoint exists when this settles.
   *  Calls run one after the other. @throws not_writable */
  checkpoint(): Promise<CheckpointReport> {
    const next = this.working.then(() => this.makeCheckpoint());
    this.working = next.catch(() => {});
    return next;
  }

  /** Makes a checkpoint whose records are in segments that do not change any more, and passes it to
   *  `use` with the last of these records. No file that it names is removed before `use` settles;
   *  later checkpoints wait. @throws not_writable */
  pinned<T>(use: (manifest: StateManifest, lastSeq: number) => Promise<T>): Promise<T> {
    const next = this.working.then(async () => {
      await this.makeCheckpoint();
      const lastSeq = await this.changelog.seal();
      return use(this.kept.at(-1) as StateManifest, lastSeq);
    });
    this.working = next.catch(() => {});
    return next;
  }

  /** Makes all records durable and abandons a base in progress. */
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

  private idLog(filter: DuplicateFilter, { replayFrom }: RecoveryPoint): IdLog {
    const append = (ids: SideBytes): number => this.appendRecord(RECORD.IDS, [encodeIdsRecord(ids)]);
    const parts = { filter, append, bytesMin: this.sizes.baseBytesMin };
    return new IdLog(parts, filter.count > 0 ? replayFrom : undefined, 0);
  }

  private changedPartitions(progress: Float64Array): number[] {
    invariant(progress.length === this.saved.length, 'new partitions have an ADDED record');
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

  private appendMove(
    kind: number,
    progress: Float64Array,
    clock: Float64Array,
    listed: readonly number[],
    arrivals: Uint32Array,
    deltas: Uint8Array,
    copies: Uint8Array = NO_DELTAS,
  ): number {
    const seq = this.appendRecord(kind, [encodeMove(progress, clock, listed, arrivals), copies, deltas]);
    for (const partition of listed) copyCells(progress, partition, this.saved, partition);
    this.frontier = Math.max(this.frontier, clock[WINDOW_CLOCK.FRONTIER / 8] as number);
    this.maxSeen = Math.max(this.maxSeen, clock[WINDOW_CLOCK.MAX_SEEN / 8] as number);
    return seq;
  }

  private appendRecord(kind: number, parts: readonly Uint8Array[]): number {
    const seq = this.changelog.append(kind, parts);
    this.appended += frameBytes(parts.reduce((sum, part) => sum + part.length, 0));
    return seq;
  }

  private async makeCheckpoint(): Promise<CheckpointReport> {
    const { disk, clock, clusterId, topicId, shards, keys } = this.parts;
    const { job } = this;
    const startedMs = clock.monotonicMs();
    const isNewBase = this.adoptBase();
    if (this.current === undefined && this.isBaseDue()) this.beginBase();
    // If this run moved a state from memory to disk, the rows of the old base are in pieces by now.
    const entry = this.ledger === undefined ? this.base.entry : undefined;
    const runs = (entry?.runs ?? []).filter(({ slice }) => this.parts.state.lastEndOf(slice) > this.firedTo);
    const { ledger } = this;
    const next = this.changelog.lastSeq + 1;
    const changelogBytes = this.appended - this.appendedAtLast;
    this.appendedAtLast = this.appended;
    const manifest: StateManifest = {
      id: this.nextFileId(),
      ts: clock.wallNowMs(),
      job,
      clusterId,
      topicId,
      shards,
      base: entry === undefined ? undefined : { ...entry, runs },
      spill: ledger && { lastId: ledger.lastId, pieces: ledger.pieces },
      // Copies that may not have been acknowledged, and the identifiers of open windows, must be in
      // the replayed records. The restore skips records that the base covers.
      replayFrom: Math.min(
        ledger?.replayFrom(next) ?? this.base.firstSeq + 1,
        ...SIDES.map((name) => this.unsentSeqs[name][0] ?? next),
        this.ids?.replayFrom(next) ?? next,
      ),
      formFrom: this.formFrom,
      durable: this.changelog.lastSeq,
      frontier: this.frontier,
      maxSeen: this.maxSeen,
      fired: this.firedTo,
      progress: this.saved.slice(),
    };
    // The records of assigned keys may be removed once the store has the keys.
    await keys?.flush();
    await this.durable();
    const file = await WholeFile.create(disk, 'manifest', stateManifestName(manifest.id), this.hook);
    await file.write(encodeStateManifest(manifest));
    const written = await file.finish();
    const seconds = (clock.monotonicMs() - startedMs) / 1000;
    this.kept = checkpointsToKeep([...this.kept, manifest]);
    await prune(disk, this.changelog, this.kept, (name) => this.current?.base.owns(name) === true, this.hook);
    await keys?.expire(Math.min(...this.kept.map(({ fired }) => fired)));
    const named = this.pieceIds();
    const isNeeded = (id: number): boolean => named.has(id) || ledger?.has(id) === true;
    // The changelog must be durable first: otherwise a restart would look for a removed piece.
    await this.parts.pieces?.keepOnly(isNeeded, () => this.durable());
    const newBaseBytes = isNewBase ? entry?.bytes : undefined;
    return { id: manifest.id, changelogBytes, manifestBytes: written.bytes, newBaseBytes, seconds };
  }

  /** Makes the base in progress the current base if it is complete. Returns true if it did. */
  private adoptBase(): boolean {
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
    const { state } = this.parts;
    let rows = state.rowCount();
    for (const { run } of this.sealedSlices) rows += run?.rowCount ?? 0;
    const { baseFactor, baseBytesMin } = this.sizes;
    return (
      this.appended - this.appendedAtBase > Math.max(baseBytesMin, baseFactor * rows * state.storedBytes)
    );
  }

  private beginBase(): void {
    const { disk, state } = this.parts;
    const base = new BaseInProgress({
      disk,
      state,
      hook: this.hook,
      nextId: () => this.nextFileId(),
      savedSlices: new Map(this.savedSlices),
      sealed: this.sealedSlices,
      firstSeq: this.changelog.lastSeq,
      fired: this.firedTo,
      tookOut: this.tookOutTo,
    });
    this.current = { base, appended: this.appended };
  }

  private nextFileId(): number {
    return ++this.lastId;
  }
}
