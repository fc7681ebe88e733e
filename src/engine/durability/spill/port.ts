/** Interface of a state that can be moved out of memory table by table, and of the log that records
 *  it. */
import type { RowRun } from '../../../addon/window-surface.ts';
import type { HeldRun } from '../../state/run.ts';
import type { SpilledRun } from './pieces.ts';

export interface StateMemory {
  /** Bytes of live tables, and of released memory that is kept for the next tables. */
  readonly tables: number;
  /** Bytes of sorted rows, including those of unfinished firings, and of the index of the pieces.
   */
  readonly runs: number;
  /** Rows that are in no piece and do not belong to firings alone. */
  readonly rows: number;
}

export interface Spillable {
  memory(): StateMemory;
  /** Frees memory that is kept for later use. */
  trim(): void;
  /** Bytes of rows on disk. */
  pieceBytes(): number;
  /** Parts that may leave memory, the least needed part first. */
  spillOrder(): readonly number[];
  /** Parts that should leave memory, however much is free. */
  readonly wanted: readonly number[];
  /** True when rows that ended on disk have waited too long for a firing in progress. */
  readonly isBehind: boolean;
  /** Notes the end of the input: rows that ended need not wait for more rows. */
  endOfInput(): void;
  /** Takes out the rows of a part that are in memory, or one run of them; later rows are kept
   *  separately. The state still reads the rows until `replace`. Undefined without rows. The caller
   *  owns the run and must release it. */
  detach(part: number): HeldRun<RowRun> | undefined;
  /** Notes that the piece now has the rows of the run. */
  replace(part: number, run: HeldRun<RowRun>, piece: SpilledRun): void;
}

/** Log of pieces, called in their order. */
export interface SpillLog {
  /** Records that a part was detached in this turn. Returns the id of the piece that will hold it.
   */
  detached(part: number): number;
  /** True when the log may record that the detached part is in its piece. */
  maySpill(): boolean;
  /** Records that the piece is durable; false when it is no longer needed. */
  spilled(piece: SpilledRun): boolean;
  /** Parts whose rows in memory need more than this many bytes of changelog, oldest first. */
  overdue(bytesMax: number): readonly number[];
}
