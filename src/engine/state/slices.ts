/** Slices of tumbling and sliding windows: one accumulator for each (key, slice).
 *
 *  A slice is sealed (taken out of the live tables and sorted) when the first window that contains
 *  it fires. No event can enter it afterwards, and every window that contains it is merged from the
 *  same rows. A spilled slice also has pieces on disk. Invariants: (1) sealed slices start before
 *  all others; (2) all windows that end at or before `firedTo` have fired; (3) a sealed slice has a
 *  window that has not fired; its runs are freed when its last window has fired and that firing is
 *  closed.
 */

import type { RowRun, WindowKernels, WindowState } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { ValueColumns } from '../../core/layout/value-columns.ts';
import { type LiveState, liveWindows } from '../durability/checkpoint/live.ts';
import { type PieceStore, refusePiece, SlicePiece, type SpilledRun } from '../durability/spill/pieces.ts';
import type { Spillable, StateMemory } from '../durability/spill/port.ts';
import { ResultRows } from '../output/sink/rows.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { type WindowAssigner, windowsOver } from '../window/definition.ts';
import { rowsOfKey, WindowFiring } from './firings.ts';
import { OPEN_RESULTS_MAX, type StateBackend, type StateFiring, type StateJournal } from './port.ts';
import { foldedRow } from './rows.ts';
import { type HeldRows, type HeldRun, HeldSlice } from './run.ts';

/** Initial capacity of the list of starts. */
const STARTS_FIRST = 64;
/** Additional bytes of a row while its run is sorted. */
const SORT_BYTES = 32;

/** Rows of a slice outside its live table. */
interface SliceRows {
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
  readonly mustSpill: readonly number[] = [];
  readonly isBehind = false;
  private readonly tables: WindowState;
  /** Rows by start of the slice; a slice whose rows are all live has no entry. */
  private readonly sliceRows = new Map<number, SliceRows>();
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
      this.rowsOf(piece.part).rows.push(this.pieceOf(piece));
    };
    this.live = liveWindows(this.tables, assigner, pieces === undefined ? refusePiece : adopt);
  }

  get spillable(): Spillable | undefined {
    return this.pieces === undefined ? undefined : this;
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void {
    this.tables.accumulate(events, admitted, values);
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
        for (const input of this.rowsOf(start).rows) held.push(input.hold());
      const bounds = { kind: 'window', start: end - assigner.sizeMs, end } as const;
      firings.push(new WindowFiring(this.kernels, bounds, held, atMs));
    }
    this.firedTo = Math.max(this.firedTo, frontier);
    for (const [start, { rows }] of this.sliceRows) {
      if (assigner.lastEndOf(start) > this.firedTo) continue;
      this.sliceRows.delete(start);
      for (const input of rows) input.release();
    }
    return firings;
  }

  /** False: windows fire as soon as the frontier reaches their end. */
  isDue(): boolean {
    return false;
  }

  resume(fired: number): void {
    this.firedTo = fired;
  }

  async open(accountId: bigint, after = Number.NEGATIVE_INFINITY): Promise<readonly WindowResult[]> {
    const behind = Math.max(this.firedTo, after);
    // Reads the state in one turn of the event loop, so that the answer is consistent.
    const slices = Array.from(this.allStarts(), (start) => {
      const live = new Uint8Array(this.kernels.form.bytes);
      const isLive = this.tables.find(start, accountId, live) === 1;
      const held = this.holdRows(start);
      return { start, live: isLive ? [live] : [], held };
    });
    const found: Array<{ readonly start: number; readonly rows: readonly Uint8Array[] }> = [];
    try {
      for (const { start, live, held } of slices) {
        const rows = [...(await rowsOfKey(held, accountId, this.kernels.form.bytes)), ...live];
        if (rows.length > 0) found.push({ start, rows });
      }
    } finally {
      for (const { held } of slices) for (const input of held) input.release();
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
      results.push(new ResultRows({ bounds, form: this.kernels.form, rows, rowCount: 1 }).result(0));
    }
    return results;
  }

  async current(end: number, accountIds: BigUint64Array, into: Uint8Array): Promise<number> {
    const { bytes } = this.kernels.form;
    const from = end - this.assigner.sizeMs;
    const starts = this.allStarts().filter((start) => start >= from && start < end);
    // Reads the state in one turn of the event loop.
    const live = Array.from(accountIds, (accountId) => this.liveRows(starts, accountId));
    const held = Array.from(starts).flatMap((start) => this.holdRows(start));
    let count = 0;
    try {
      for (const [at, accountId] of accountIds.entries()) {
        const stored = held.length === 0 ? [] : await rowsOfKey(held, accountId, bytes);
        const rows = [...stored, ...(live[at] as readonly Uint8Array[])];
        if (rows.length > 0) into.set(foldedRow(this.kernels, rows), count++ * bytes);
      }
    } finally {
      for (const input of held) input.release();
    }
    return count;
  }

  private liveRows(starts: Float64Array, accountId: bigint): readonly Uint8Array[] {
    const rows: Uint8Array[] = [];
    for (const start of starts) {
      const row = new Uint8Array(this.kernels.form.bytes);
      if (this.tables.find(start, accountId, row) === 1) rows.push(row);
    }
    return rows;
  }

  private holdRows(start: number): HeldRows[] {
    return this.sliceRows.get(start)?.rows.map((input) => input.hold()) ?? [];
  }

  openCount(): number {
    return this.allStarts().length;
  }

  keyCount(): number {
    let count = this.tables.keyCount();
    for (const { rows } of this.sliceRows.values()) for (const { rowCount } of rows) count += rowCount;
    return count;
  }

  bytes(): number {
    let bytes = this.tables.bytes();
    for (const { rows } of this.sliceRows.values()) for (const input of rows) bytes += input.bytes;
    return bytes;
  }

  memory(): StateMemory {
    let runs = 0;
    let count = this.tables.keyCount();
    for (const { bytes } of this.runs) runs += bytes;
    for (const { rows } of this.sliceRows.values())
      for (const input of rows) {
        if (input instanceof SlicePiece) runs += input.bytes;
        else count += input.rowCount;
      }
    return { tables: this.tables.bytes(), runs, rows: count };
  }

  trim(): void {
    this.tables.trim();
  }

  pieceBytes(): number {
    let bytes = 0;
    for (const { rows } of this.sliceRows.values())
      for (const input of rows)
        if (input instanceof SlicePiece) bytes += input.rowCount * this.kernels.form.bytes;
    return bytes;
  }

  /** Sealed runs first, the run that is needed longest first; then live tables, the oldest first.
   */
  spillOrder(): readonly number[] {
    const sealed = [...this.sliceRows]
      .filter(([, input]) => runOf(input) !== undefined)
      .map(([start]) => start);
    return [...sealed.sort((a, b) => b - a), ...this.liveStarts()];
  }

  endOfInput(): void {}

  detach(part: number): HeldRun<RowRun> | undefined {
    const sliceRows = this.sliceRows.get(part);
    if (sliceRows?.isSealed === true) return runOf(sliceRows)?.hold();
    return this.detachTable(part)?.hold();
  }

  replace(part: number, run: HeldRun<RowRun>, piece: SpilledRun): void {
    const rows = this.sliceRows.get(part)?.rows ?? [];
    const at = rows.findIndex((input): boolean => (input as unknown) === run);
    // The last window of the slice may have fired meanwhile.
    if (at < 0) return;
    rows[at] = this.pieceOf(piece);
    run.release();
  }

  close(): void {
    for (const { rows } of this.sliceRows.values()) for (const input of rows) input.release();
    this.sliceRows.clear();
    this.tables.close();
  }

  private pieceOf(piece: SpilledRun): SlicePiece {
    invariant(this.pieces !== undefined, 'state in memory has no pieces');
    return new SlicePiece(this.pieces, piece);
  }

  private rowsOf(start: number): SliceRows {
    let sliceRows = this.sliceRows.get(start);
    if (sliceRows === undefined) {
      sliceRows = { isSealed: false, rows: [] };
      this.sliceRows.set(start, sliceRows);
    }
    return sliceRows;
  }

  /** Returns the starts of the live tables, ascending; valid until the next call. */
  private liveStarts(): Float64Array {
    let count = this.tables.slices(this.starts);
    if (count > this.starts.length) {
      this.starts = new Float64Array(2 * count);
      count = this.tables.slices(this.starts);
    }
    return this.starts.subarray(0, count);
  }

  /** Returns the starts of all slices, ascending. */
  private allStarts(): Float64Array {
    const live = this.liveStarts();
    return this.sliceRows.size === 0
      ? live.slice()
      : Float64Array.from(new Set([...this.sliceRows.keys(), ...live])).sort();
  }

  private seal(start: number, frontier: number, journal: StateJournal): void {
    const sliceRows = this.rowsOf(start);
    if (sliceRows.isSealed) return;
    sliceRows.isSealed = true;
    const held = this.detachTable(start);
    if (held !== undefined) journal.sealed(start, frontier, held.run);
  }

  /** Takes out the live table of a slice, and adds its run to the rows of the slice. Undefined if
   *  there is no table. */
  private detachTable(start: number): HeldSlice | undefined {
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
    const taken =
      Math.max(rowCount * this.kernels.form.storedBytes, bytes - this.tables.bytes()) + rowCount * SORT_BYTES;
    const held = new HeldSlice(
      run,
      this.kernels.form.bytes,
      rowCount,
      taken,
      () => void this.runs.delete(held),
    );
    this.runs.add(held);
    this.rowsOf(start).rows.push(held);
    return held;
  }
}

const runOf = ({ isSealed, rows }: SliceRows): HeldSlice | undefined =>
  isSealed ? rows.find((input) => input instanceof HeldSlice) : undefined;
