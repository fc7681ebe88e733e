/** Snapshot of the live tables while they change: one range of keys after the other, each between
 *  two batches.
 *
 *  Invariants: (1) all slices of a range are copied at one moment, and the file names the last
 *  record of the changelog that was folded in before; (2) every range has a part in the file, even
 *  without rows; (3) a slice that is sealed in between is in some ranges only: a restore takes it
 *  from its run, or no longer needs it. */
import { COVER_RANGES } from '../../../addon/window-surface.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import type { LiveState } from './live.ts';
import type { PieceFile } from './pieces.ts';

/** Bytes that may wait for the disk; while there are more, nothing is copied. */
export const PENDING_BYTES_MAX = 8 * 1024 * 1024;

export class Snapshot {
  private readonly state: LiveState;
  private readonly file: PieceFile;
  /** Slices that a file has already. */
  private readonly without: ReadonlySet<number>;
  private readonly rows = new Map<number, number>();
  private readonly cursor = new Float64Array(1);
  private next = 0;
  private coveredTo = 0;

  constructor(state: LiveState, file: PieceFile, without: ReadonlySet<number>) {
    this.state = state;
    this.file = file;
    this.without = without;
  }

  get isCopied(): boolean {
    return this.next === COVER_RANGES;
  }
  /** Last record that is in any row. */
  get covered(): number {
    return this.coveredTo;
  }
  /** Number of copied rows, by slice. */
  get parts(): ReadonlyArray<{ readonly part: number; readonly rows: number }> {
    return [...this.rows].map(([part, rows]) => ({ part, rows })).sort((a, b) => a.part - b.part);
  }

  /** Copies ranges of about `bytesMax` together, at least one. All records up to `seq` are in the
   *  state. */
  advance(seq: number, bytesMax: number): void {
    // Empty slots are scanned too.
    const scanned = this.state.bytes() / COVER_RANGES;
    for (let left = bytesMax; left > 0 && !this.isCopied && this.file.pendingBytes < PENDING_BYTES_MAX; )
      left -= Math.max(scanned, this.copyRange(seq)) + ROW_BYTES;
  }

  private copyRange(seq: number): number {
    const { state, file, cursor } = this;
    const range = this.next++;
    let bytes = 0;
    for (const part of state.parts()) {
      if (this.without.has(part)) continue;
      cursor[0] = 0;
      for (;;) {
        const rows = state.copyRange(range, part, cursor, file.room());
        if (rows === 0) break;
        bytes += file.commit(range, part, seq, rows);
        this.rows.set(part, (this.rows.get(part) ?? 0) + rows);
      }
    }
    if (bytes === 0) {
      file.room();
      bytes = file.commit(range, 0, seq, 0);
    }
    this.coveredTo = seq;
    return bytes;
  }
}
