/** Snapshot of the live tables while they change: one range of keys after the other, each between
 *  two batches.
 *
 *  Invariants: (1) all parts of a range are copied at one moment, and their blocks name the last
 *  record of the changelog that was applied before; (2) every range has a block, even without rows;
 *  (3) a slice that is sealed in between is in some ranges only: a restore loads it from its run,
 *  or no longer needs it. */
import { COVER_RANGES } from '../../../addon/window-surface.ts';
import type { LiveState } from './live.ts';
import type { RowsFile } from './rows-file.ts';

/** Bytes that may wait for the disk; while there are more, nothing is copied. */
export const PENDING_BYTES_MAX = 8 * 1024 * 1024;

export class Snapshot {
  private readonly state: LiveState;
  private readonly file: RowsFile;
  /** Slices that a file has already, which are not copied. */
  private readonly excluded: ReadonlySet<number>;
  private readonly rows = new Map<number, number>();
  private readonly cursor = new Float64Array(1);
  private nextRange = 0;
  private coveredTo = 0;

  constructor(state: LiveState, file: RowsFile, excluded: ReadonlySet<number>) {
    this.state = state;
    this.file = file;
    this.excluded = excluded;
  }

  get isCopied(): boolean {
    return this.nextRange === COVER_RANGES;
  }
  /** Last record that is in any row. */
  get covered(): number {
    return this.coveredTo;
  }
  /** Number of copied rows, by part. */
  get parts(): ReadonlyArray<{ readonly part: number; readonly rows: number }> {
    return [...this.rows].map(([part, rows]) => ({ part, rows })).sort((a, b) => a.part - b.part);
  }

  /** Copies at least one range, and more up to about `bytesMax`. All records up to `seq` have been
   *  applied to the state. */
  advance(seq: number, bytesMax: number): void {
    // Empty slots are scanned too.
    const scanned = this.state.bytes() / COVER_RANGES;
    for (let left = bytesMax; left > 0 && !this.isCopied && this.file.pendingBytes < PENDING_BYTES_MAX; )
      left -= Math.max(scanned, this.copyRange(seq)) + this.state.storedBytes;
  }

  private copyRange(seq: number): number {
    const { state, file, cursor } = this;
    const range = this.nextRange++;
    let bytes = 0;
    for (const part of state.parts()) {
      if (this.excluded.has(part)) continue;
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
