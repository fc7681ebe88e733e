/** Slices of tumbling and sliding windows: one accumulator for each (key, slice).
 *
 *  A slice is sealed (taken out of the live tables and sorted) when the first window that contains
 *  it fires. No event can enter it afterwards, and every window that contains it is merged from the
 *  same rows. A spilled slice also has pieces on disk. Invariants: (1) sealed slices start before
 *  all others; (2) all windows that end at or before `firedTo` have fired; (3) a sealed slice has a
 *  window that has not fired, and its runs are freed when its last window has fired and the firing
 *  is closed. */

import type { RowRun, WindowKernels, WindowState } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { type LiveState, liveWindows } from '../durability/checkpoint/live.ts';
import { HeldPiece, type PieceStore, refusePiece, type SpilledRun } from '../durability/spill/pieces.ts';
import type { Spillable, StateMemory } from '../durability/spill/port.ts';
import { ResultRows } from '../output/sink/rows.ts';
import { ROW_BYTES, type WindowResult } from '../window/accumulator.ts';
import { type WindowAssigner, windowsOver } from '../window/definition.ts';
import { rowsOfKey, WindowFiring } from './firings.ts';
import { OPEN_RESULTS_MAX, type StateBackend, type StateFiring, type StateJournal } from './port.ts';
import { foldedRow } from './rows.ts';
import { type HeldRows, type HeldRun, HeldSlice } from './run.ts';

/** Capacity of the first list of starts. */
const STARTS_FIRST = 64;
/** Additional bytes of a row while its run is sorted. */
const SORT_BYTES = 32;

/** Rows of a slice outside its live table. */
interface Settled {
  isSealed: boolean;
  readonly rows: HeldRows[];
}

export class SliceState implements StateBackend, Spillable {
  readonly shards: number;
  firedTo = Number.NEGATIVE_INFINITY;
  nextEnd = Number.POSITIVE_INFINITY;
  private readonly kernels: WindowKernels;
  private readonly assigner: WindowAssigner;
  private readonly pieces: PieceStore | undefined;
  readonly live: LiveState;
  readonly wanted: readonly number[] = [];
  readonly isBehind = false;
  private readonly tables: WindowState;
  /** Slices by start; slices whose rows are all live are absent. */
  private readonly settled = new Map<number, Settled>();
  /** Runs in memory, including those that only firings hold. */
  private readonly runs = new Set<HeldSlice>();
  private starts = new Float64Array(STARTS_FIRST);

  /** @param pieces store of slices that do not fit into memory */
  constructor(kernels: WindowKernels, assigner: WindowAssigner, shards: number, pieces?: PieceStore) {
    this.kernels = kernels;
    this.assigner = assigner;
    this.shards = shards;
    this.pieces = pieces;
    this.tables = kernels.open(assigner.sliceMs, shards);
    const adopt = (piece: SpilledRun): void => {
      this.settledOf(piece.part).rows.push(this.held(piece));
    };
    this.live = liveWindows(this.tables, assigner, pieces === undefined ? refusePiece : adopt);
  }

  get spillable(): Spillable | undefined {
    return this.pieces === undefined ? undefined : this;
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch): void {
    this.tables.accumulate(events, admitted);
  }

  fire(frontier: number, atMs: number, journal: StateJournal): readonly StateFiring[] {
    const { assigner } = this;
    const firings: StateFiring[] = [];
    const starts = this.allStarts();
    let sealedTo = 0;
    this.nextEnd = Number.POSITIVE_INFINITY;
    for (const { end, from, to } of windowsOver(assigner, starts, this.firedTo)) {
      if (end > frontier) {
        this.nextEnd = end;
        break;
      }
      for (; sealedTo < to; sealedTo++) this.seal(starts[sealedTo] as number, frontier, journal);
      const held: HeldRows[] = [];
      for (const start of starts.subarray(from, to))
        for (const one of this.settledOf(start).rows) held.push(one.hold());
      const bounds = { kind: 'window', start: end - assigner.sizeMs, end } as const;
      firings.push(new WindowFiring(this.kernels, bounds, held, atMs));
    }
    this.firedTo = Math.max(this.firedTo, frontier);
    for (const [start, { rows }] of this.settled) {
      if (assigner.lastEndOf(start) > this.firedTo) continue;
      this.settled.delete(start);
      for (const one of rows) one.release();
    }
    return firings;
  }

  /** Windows fire as soon as the watermark reaches their end. */
  isDue(): boolean {
    return false;
  }

  resume(fired: number): void {
    this.firedTo = fired;
  }

  async open(accountId: bigint, after = Number.NEGATIVE_INFINITY): Promise<readonly WindowResult[]> {
    const behind = Math.max(this.firedTo, after);
    // Reads everything in one turn, so that the answer is consistent.
    const slices = Array.from(this.allStarts(), (start) => {
      const live = new Uint8Array(ROW_BYTES);
      const isLive = this.tables.find(start, accountId, live) === 1;
      const held = this.settled.get(start)?.rows.map((one) => one.hold()) ?? [];
      return { start, live: isLive ? [live] : [], held };
    });
    const found: Array<{ readonly start: number; readonly rows: readonly Uint8Array[] }> = [];
    try {
      for (const { start, live, held } of slices) {
        const rows = [...(await rowsOfKey(held, accountId)), ...live];
        if (rows.length > 0) found.push({ start, rows });
      }
    } finally {
      for (const { held } of slices) for (const one of held) one.release();
    }
    const starts = found.map(({ start }) => start);
    const results: WindowResult[] = [];
    for (const { end, from, to } of windowsOver(this.assigner, starts, behind)) {
      if (results.length === OPEN_RESULTS_MAX) break;
      const rows = foldedRow(
        this.kernels,
        found.slice(from, to).flatMap((slice) => slice.rows),
      );
      const bounds = { kind: 'window', start: end - this.assigner.sizeMs, end } as const;
      results.push(new ResultRows({ bounds, rows, rowCount: 1 }).result(0));
    }
    return results;
  }

  openCount(): number {
    return this.allStarts().length;
  }

  keyCount(): number {
    let count = this.tables.keyCount();
    for (const { rows } of this.settled.values()) for (const { rowCount } of rows) count += rowCount;
    return count;
  }

  bytes(): number {
    let bytes = this.tables.bytes();
    for (const { rows } of this.settled.values()) for (const one of rows) bytes += one.bytes;
    return bytes;
  }

  memory(): StateMemory {
    let runs = 0;
    let count = this.tables.keyCount();
    for (const { bytes } of this.runs) runs += bytes;
    for (const { rows } of this.settled.values())
      for (const one of rows) {
        if (one instanceof HeldPiece) runs += one.bytes;
        else count += one.rowCount;
      }
    return { tables: this.tables.bytes(), runs, rows: count };
  }

  trim(): void {
    this.tables.trim();
  }

  pieceBytes(): number {
    let bytes = 0;
    for (const { rows } of this.settled.values())
      for (const one of rows) if (one instanceof HeldPiece) bytes += one.rowCount * ROW_BYTES;
    return bytes;
  }

  /** Sorted runs first, the run that is needed longest first; then tables, oldest first. */
  spillOrder(): readonly number[] {
    const sealed = [...this.settled].filter(([, one]) => runOf(one) !== undefined).map(([start]) => start);
    return [...sealed.sort((a, b) => b - a), ...this.liveStarts()];
  }

  endOfInput(): void {}

  detach(part: number): HeldRun<RowRun> | undefined {
    const settled = this.settled.get(part);
    if (settled?.isSealed === true) return runOf(settled)?.hold();
    return this.takeTable(part)?.hold();
  }

  replace(part: number, run: HeldRun<RowRun>, piece: SpilledRun): void {
    const rows = this.settled.get(part)?.rows ?? [];
    const at = rows.findIndex((one): boolean => (one as unknown) === run);
    // The last window of the slice may have fired meanwhile.
    if (at < 0) return;
    rows[at] = this.held(piece);
    run.release();
  }

  close(): void {
    for (const { rows } of this.settled.values()) for (const one of rows) one.release();
    this.settled.clear();
    this.tables.close();
  }

  private held(piece: SpilledRun): HeldPiece {
    invariant(this.pieces !== undefined, 'state in memory has no pieces');
    return new HeldPiece(this.pieces, piece);
  }

  private settledOf(start: number): Settled {
    let settled = this.settled.get(start);
    if (settled === undefined) {
      settled = { isSealed: false, rows: [] };
      this.settled.set(start, settled);
    }
    return settled;
  }

  /** Starts in ascending order; valid until the next call. */
  private liveStarts(): Float64Array {
    let count = this.tables.slices(this.starts);
    if (count > this.starts.length) {
      this.starts = new Float64Array(2 * count);
      count = this.tables.slices(this.starts);
    }
    return this.starts.subarray(0, count);
  }

  /** Starts of all slices, ascending. */
  private allStarts(): Float64Array {
    const live = this.liveStarts();
    return this.settled.size === 0
      ? live.slice()
      : Float64Array.from(new Set([...this.settled.keys(), ...live])).sort();
  }

  private seal(start: number, frontier: number, journal: StateJournal): void {
    const settled = this.settledOf(start);
    if (settled.isSealed) return;
    settled.isSealed = true;
    const held = this.takeTable(start);
    if (held !== undefined) journal.sealed(start, frontier, held.run);
  }

  /** Takes out the live table of a slice and adds its run to the rows of the slice; undefined
   *  without a table. */
  private takeTable(start: number): HeldSlice | undefined {
    const [keys, bytes] = [this.tables.keyCount(), this.tables.bytes()];
    const run = this.tables.seal(start);
    const rowCount = keys - this.tables.keyCount();
    if (rowCount === 0) {
      run.then(
        (empty) => empty.close(),
        () => {},
      );
      return undefined;
    }
    const taken = Math.max(rowCount * ROW_BYTES, bytes - this.tables.bytes()) + rowCount * SORT_BYTES;
    const held = new HeldSlice(run, rowCount, taken, () => void this.runs.delete(held));
    this.runs.add(held);
    this.settledOf(start).rows.push(held);
    return held;
  }
}

const runOf = ({ isSealed, rows }: Settled): HeldSlice | undefined =>
  isSealed ? rows.find((one) => one instanceof HeldSlice) : undefined;
