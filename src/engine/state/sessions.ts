/** Session windows: intervals of a key. An event that is less than a gap from two sessions merges
 *  them. Sessions fire between parts of a batch: an event that is accepted at a frontier cannot
 *  join a session that ended by it, so admission need not stop for them.
 *
 *  While all sessions are in the live table, they fire from it. Once some are on disk, a session
 *  may be divided among parts, so a row that seems to have ended may continue elsewhere. Then a
 *  sweep fires the sessions that the frontier has passed, a little later. It rewrites the parts in
 *  which sessions may have ended, divided by end, and only reads the others. Invariants: (1) all
 *  sessions that ended by `firedTo` have fired, and no later event can join them; (2) a sweep takes
 *  pieces only, and its frontier is one at which the live table was empty, so later rows do not
 *  belong to its firing.
 */

import type { RowRun, SessionState, WindowKernels } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { ValueColumns } from '../../core/layout/value-columns.ts';
import { type LiveState, liveSessions } from '../durability/checkpoint/live.ts';
import { type PieceStore, refusePiece, type SpilledRun } from '../durability/spill/pieces.ts';
import type { Spillable, StateMemory } from '../durability/spill/port.ts';
import { ResultRows } from '../output/sink/rows.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { SessionFiring } from './firings.ts';
import { OPEN_RESULTS_MAX, type StateBackend, type StateFiring, type StateJournal } from './port.ts';
import { FrontierTimes } from './reached.ts';
import { HeldRun } from './run.ts';
import { type SessionPart, SessionPiece, SessionRun } from './session-parts.ts';
import { wholeSessions } from './session-rows.ts';
import {
  REMAINING_PIECES_MAX,
  type RemainingPiece,
  Sweeper,
  type SweepRequest,
  SweptFiring,
} from './sweeper.ts';

/** Event time after the least end at which a sweep starts. A sweep also starts when the frontier
 *  has not advanced for this time and a session has ended. */
const DUE_MS = 400;
/** Multiple of the last sweep's duration during which the next sweep waits longer, so that sweeps
 *  take at most about half of the time. */
const REST_FACTOR = 1;
/** Longer waits in a gap. A longer wait is event time after the least end, like DUE_MS, and it is
 *  the upper limit of both. */
const SWEEPS_A_GAP = 8;
/** Greatest number of parts on disk; above it, a sweep starts without waiting. */
const PARTS_MAX = 64;
/** Reading pauses while a sweep lags by this fraction of a gap: otherwise ended sessions would
 *  accumulate on disk. */
const AHEAD_GAPS = 1 / 2;
/** Additional bytes of a row while its run is sorted. */
const SORT_BYTES = 32;
const PART = 0;

export class SessionsState implements StateBackend, Spillable {
  readonly shards: number;
  firedTo = Number.NEGATIVE_INFINITY;
  readonly nextEnd = Number.POSITIVE_INFINITY;
  readonly live: LiveState;
  private readonly kernels: WindowKernels;
  private readonly gapMs: number;
  private readonly grainMs: number;
  private readonly pieces: PieceStore | undefined;
  private readonly sweeper: Sweeper | undefined;
  private readonly table: SessionState;
  /** Parts outside the live table; the list is never changed in place. */
  private parts: readonly SessionPart[] = [];
  /** Runs in memory, including those that only firings hold. */
  private readonly runs = new Set<HeldRun>();
  /** Frontier of the last `fire`, and the monotonic time of its last advance. */
  private frontier = Number.NEGATIVE_INFINITY;
  private frontierAtMs = 0;
  private readonly times = new FrontierTimes();
  private nowMs = 0;
  /** Frontier at which the live table was last empty; all its rows arrived at or after it. */
  private cutTo = Number.NEGATIVE_INFINITY;
  private isSweeping = false;
  /** Start of the newest sweep in monotonic ms. */
  private sweptFromMs = Number.NEGATIVE_INFINITY;
  /** Duration of the newest sweep in ms; undefined while it runs. */
  private sweepMs: number | undefined = 0;
  /** True after the end of the input: sweeps start without waiting. */
  private isInputOver = false;
  /** Frontier of the sweep in progress; undefined without a sweep. */
  private sweepTo: number | undefined;

  /** @param pieces store of sessions that do not fit into memory */
  constructor(kernels: WindowKernels, gapMs: number, shards: number, pieces?: PieceStore) {
    this.kernels = kernels;
    this.gapMs = gapMs;
    this.grainMs = Math.floor(gapMs / SWEEPS_A_GAP);
    this.shards = shards;
    this.pieces = pieces;
    this.sweeper = pieces && new Sweeper({ kernels, gapMs, pieces });
    this.table = kernels.openSessions(gapMs, shards);
    const adopt = (piece: SpilledRun): void => {
      this.parts = [...this.parts, this.pieceOf(piece, Number.NEGATIVE_INFINITY)];
    };
    this.live = liveSessions(this.table, pieces === undefined ? refusePiece : adopt);
  }

  get spillable(): Spillable | undefined {
    return this.pieces === undefined ? undefined : this;
  }

  private get rowBytes(): number {
    return this.kernels.form.bytes;
  }
  private get storedBytes(): number {
    return this.kernels.form.storedBytes;
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void {
    this.table.accumulate(events, admitted, values);
  }

  fire(frontier: number, atMs: number, journal: StateJournal): readonly StateFiring[] {
    if (frontier > this.frontier) {
      this.frontierAtMs = atMs;
      this.times.note(frontier, atMs);
    }
    this.frontier = Math.max(this.frontier, frontier);
    if (this.parts.length === 0 && !this.isSweeping) return this.fireTable(frontier, atMs, journal);
    if (frontier === Number.POSITIVE_INFINITY) return [this.sweepAll(atMs)];
    this.cut();
    return this.isDue(atMs) ? [this.sweep(atMs, journal)] : [];
  }

  /** True if `fire` would return a firing: from a sweep of the parts on disk, or from the live
   *  table if there are no parts. */
  isDue(atMs: number): boolean {
    this.nowMs = atMs;
    if (!this.isSweeping) this.sweepMs ??= atMs - this.sweptFromMs;
    if (this.parts.length === 0 && !this.isSweeping) return this.table.leastEnd() <= this.frontier;
    const { parts, cut } = this.sweepable();
    if (parts.length === 0 || this.isSweeping || !Number.isFinite(cut)) return false;
    return leastEndOf(parts) + this.waitMs <= cut || parts.length > PARTS_MAX;
  }

  /** The live table, if it must go to disk so that a sweep can fire its ended sessions. */
  get mustSpill(): readonly number[] {
    if (this.parts.length === 0 || this.isSweeping || this.table.sessionCount() === 0) return [];
    // A due sweep of the parts on disk comes first: otherwise it might never start.
    if (this.isDue(this.nowMs)) return [];
    const least = Math.min(leastEndOf(this.parts), this.table.leastEnd());
    return least + this.waitMs <= this.frontier && this.cutTo < this.frontier ? [PART] : [];
  }

  resume(fired: number): void {
    this.firedTo = fired;
  }

  async open(accountId: bigint, after = Number.NEGATIVE_INFINITY): Promise<readonly WindowResult[]> {
    // Reads the state in one turn of the event loop, so that the answer is consistent.
    const behind = Math.max(this.firedTo, after);
    const live = new Uint8Array(this.table.find(accountId, new Uint8Array(0)) * this.rowBytes);
    this.table.find(accountId, live);
    return (await this.resultsOf(accountId, this.parts, live, (end) => end > behind)).slice(
      0,
      OPEN_RESULTS_MAX,
    );
  }

  openCount(): number {
    return this.keyCount();
  }

  keyCount(): number {
    return this.parts.reduce((sum, { rowCount }) => sum + rowCount, this.table.sessionCount());
  }

  bytes(): number {
    return this.parts.reduce((sum, { bytes }) => sum + bytes, this.table.bytes());
  }

  memory(): StateMemory {
    let runs = this.sweeper?.bytes ?? 0;
    let rows = this.table.sessionCount();
    for (const { bytes } of this.runs) runs += bytes;
    for (const part of this.parts) {
      if (part instanceof SessionPiece) runs += part.bytes;
      else rows += part.rowCount;
    }
    return { tables: this.table.bytes(), runs, rows };
  }

  trim(): void {
    this.table.trim();
  }

  pieceBytes(): number {
    let bytes = 0;
    for (const part of this.parts) if (part instanceof SessionPiece) bytes += part.rowCount * this.rowBytes;
    return bytes;
  }

  spillOrder(): readonly number[] {
    return this.table.sessionCount() > 0 ? [PART] : [];
  }

  get isBehind(): boolean {
    return this.sweepTo !== undefined && this.frontier - this.sweepTo >= AHEAD_GAPS * this.gapMs;
  }

  endOfInput(): void {
    this.isInputOver = true;
  }

  detach(): HeldRun<RowRun> | undefined {
    return this.detachTable()?.hold();
  }

  replace(_: number, run: HeldRun<RowRun>, piece: SpilledRun): void {
    this.parts = this.parts.map((part) => ((part as unknown) === run ? this.pieceOf(piece, part.cut) : part));
    run.release();
  }

  close(): void {
    this.sweeper?.close();
    for (const part of this.parts) part.release();
    this.parts = [];
    this.table.close();
  }

  /** Event time that must pass after the least end before a sweep starts. */
  private get waitMs(): number {
    if (this.isInputOver) return 0;
    const sweepMs = this.sweepMs ?? 0;
    const isRested = this.nowMs - this.sweptFromMs >= (1 + REST_FACTOR) * sweepMs;
    if (!isRested) return this.grainMs;
    return this.nowMs - this.frontierAtMs >= DUE_MS ? 0 : Math.min(DUE_MS, this.grainMs);
  }

  private pieceOf(piece: SpilledRun, cut: number, leastEnd?: number): SessionPiece {
    invariant(this.pieces !== undefined, 'state in memory has no pieces');
    return new SessionPiece(this.pieces, piece, this.gapMs, cut, leastEnd);
  }

  /** Returns the parts on disk before the first part in memory, and a frontier: no session that
   *  ended by it has a row elsewhere. */
  private sweepable(): { readonly parts: readonly SessionPart[]; readonly cut: number } {
    const inMemory = this.parts.findIndex((part) => !(part instanceof SessionPiece));
    if (inMemory < 0) return { parts: this.parts, cut: this.cutTo };
    const parts = this.parts.slice(0, inMemory);
    // Pieces that a sweep wrote come first, and have a later cut than the pieces that it did not
    // rewrite.
    return { parts, cut: Math.max(Number.NEGATIVE_INFINITY, ...parts.map(({ cut }) => cut)) };
  }

  private fireTable(frontier: number, atMs: number, journal: StateJournal): readonly StateFiring[] {
    this.firedTo = Math.max(this.firedTo, frontier);
    const least = this.table.leastEnd();
    if (least > frontier || least === Number.POSITIVE_INFINITY) return [];
    const [before, bytesBefore] = [this.table.sessionCount(), this.table.bytes()];
    const run = this.table.fire(frontier);
    const rowCount = before - this.table.sessionCount();
    const taken = Math.max(rowCount * this.storedBytes, bytesBefore - this.table.bytes());
    const bytes = taken + rowCount * SORT_BYTES;
    const held: HeldRun = new HeldRun(run, this.rowBytes, rowCount, bytes, () => void this.runs.delete(held));
    if (rowCount === 0) {
      held.release();
      return [];
    }
    this.runs.add(held);
    journal.tookOut(frontier);
    const bounds = { kind: 'sessions', gapMs: this.gapMs } as const;
    return [new SessionFiring(this.kernels, bounds, [held], atMs, this.times.take(frontier, atMs))];
  }

  /** Advances `cutTo` if the live table is empty, and `firedTo` if no session has ended. */
  private cut(): void {
    if (this.table.sessionCount() === 0) this.cutTo = this.frontier;
    const least = Math.min(leastEndOf(this.parts), this.table.leastEnd());
    if (!this.isSweeping && least > this.frontier) this.firedTo = Math.max(this.firedTo, this.frontier);
  }

  /** Moves the rows of the live table into a part of their own; undefined if it is empty. */
  private detachTable(): SessionRun | undefined {
    const rowCount = this.table.sessionCount();
    if (rowCount === 0) return undefined;
    const [leastEnd, before] = [this.table.leastEnd(), this.table.bytes()];
    const run = this.table.detach();
    const bytes = Math.max(rowCount * this.storedBytes, before - this.table.bytes()) + rowCount * SORT_BYTES;
    const onFreed = (): void => void this.runs.delete(part);
    const part: SessionRun = new SessionRun(
      run,
      this.rowBytes,
      rowCount,
      bytes,
      { leastEnd, cut: this.frontier },
      onFreed,
    );
    this.runs.add(part);
    this.parts = [...this.parts, part];
    this.cutTo = this.frontier;
    return part;
  }

  private sweep(atMs: number, journal: StateJournal): StateFiring {
    const { parts, cut: frontier } = this.sweepable();
    const swept = partsToRewrite(parts, frontier);
    // Sessions that start after the frontier cannot join those that ended by it.
    const unswept = parts.filter((part) => !swept.includes(part) && leastStartOf(part) < frontier);
    const ids = journal.sweeping(REMAINING_PIECES_MAX);
    this.isSweeping = true;
    this.sweptFromMs = atMs;
    this.sweepMs = undefined;
    const onDone = (left: readonly RemainingPiece[]): void => {
      const gone = swept.map((part) => (part as SessionPiece).piece.id);
      this.parts = [
        ...left.map(({ piece, leastEnd }) => this.pieceOf(piece, frontier, leastEnd)),
        ...this.parts.filter((part) => !swept.includes(part)),
      ];
      this.isSweeping = false;
      const entries = left.map(({ piece: { id, rows, crc32 } }) => ({ id, part: PART, rows, crc32 }));
      journal.swept({ frontier, gone, lastId: ids + REMAINING_PIECES_MAX - 1, left: entries });
    };
    return this.beginSweep(atMs, parts, { inputs: () => swept, unswept, frontier, ids, onDone });
  }

  /** Fires all sessions, after a sweep in progress. */
  private sweepAll(atMs: number): StateFiring {
    this.detachTable();
    const onDone = (): void => {
      for (const part of this.parts) part.release();
      this.parts = [];
    };
    const frontier = Number.POSITIVE_INFINITY;
    const everything = { inputs: () => this.parts, unswept: [], ids: undefined };
    return this.beginSweep(atMs, this.parts, { ...everything, frontier, onDone });
  }

  /** @param parts all parts in which the swept sessions may continue */
  private beginSweep(atMs: number, parts: readonly SessionPart[], request: SweepRequest): StateFiring {
    const { sweeper, gapMs } = this;
    invariant(sweeper !== undefined, 'sessions in memory are not swept');
    const before = this.firedTo;
    this.firedTo = Math.max(this.firedTo, request.frontier);
    // The firing reads the parts until it is closed.
    const held = parts.map((part) => part.hold());
    const ended = sweeper.begin(request);
    this.sweepTo = request.frontier;
    const onEnd = (): void => {
      if (this.sweepTo === request.frontier) this.sweepTo = undefined;
    };
    ended.then(onEnd, onEnd);
    const accepts = (end: number): boolean => end > before && end <= request.frontier;
    return new SweptFiring({
      bounds: { kind: 'sessions', gapMs },
      form: this.kernels.form,
      rowsMax: request.inputs().reduce((sum, { rowCount }) => sum + rowCount, 0),
      firedAtMs: atMs,
      reached: this.times.take(request.frontier, atMs),
      ended,
      release: (rows) => {
        for (const part of held) part.release();
        if (rows !== undefined) sweeper.release(rows);
      },
      find: (accountId) => this.resultsOf(accountId, held, new Uint8Array(0), accepts),
    });
  }

  /** Returns the whole sessions of a key whose ends are accepted, ascending by end. */
  private async resultsOf(
    accountId: bigint,
    parts: readonly SessionPart[],
    live: Uint8Array,
    accepts: (end: number) => boolean,
  ): Promise<readonly WindowResult[]> {
    const { kernels, gapMs } = this;
    const { form } = kernels;
    const found = await Promise.all(parts.map((part) => part.ofKey(accountId)));
    const rows = wholeSessions(kernels, gapMs, [...found, live]);
    const bounds = { kind: 'sessions', gapMs } as const;
    const results = new ResultRows({ bounds, form, rows, rowCount: rows.length / form.bytes });
    return Array.from({ length: results.rowCount }, (_, row) => results.result(row)).filter(({ windowEnd }) =>
      accepts(windowEnd),
    );
  }
}

/** Returns the parts that a sweep rewrites: those in which a session may have ended by the
 *  frontier. If there are too many parts, it adds the smallest, which reduces the number of parts
 *  at the least cost. */
function partsToRewrite(parts: readonly SessionPart[], frontier: number): readonly SessionPart[] {
  const due = parts.filter(({ leastEnd }) => leastEnd <= frontier);
  if (parts.length <= PARTS_MAX) return due;
  const others = parts.filter(({ leastEnd }) => leastEnd > frontier);
  others.sort((a, b) => a.rowCount - b.rowCount);
  return [...due, ...others.slice(0, Math.max(0, PARTS_MAX / 2 - due.length))];
}

const leastStartOf = (part: SessionPart): number =>
  part instanceof SessionPiece ? part.leastStart : Number.NEGATIVE_INFINITY;

const leastEndOf = (parts: readonly SessionPart[]): number =>
  parts.reduce((least, part) => Math.min(least, part.leastEnd), Number.POSITIVE_INFINITY);
