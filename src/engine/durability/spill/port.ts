/** Interface of a state that can be moved out of memory table by table, and of the log that records
 *  it. */
import type { RowRun } from '../../../addon/window-surface.ts';
import type { HeldRun } from '../../state/run.ts';
import type { SpilledRun } from './pieces.ts';

export interface StateMemory {
  /** Bytes of live tables, and of released memory that is kept for the next tables. */
  readonly tables: number;
  /** Bytes of sorted rows, including the rows of firings that are not closed, and of the indexes of
   *  pieces. */
  readonly runs: number;
  /** Number of rows that belong to the state and are in no piece. */
  readonly rows: number;
}

export interface Spillable {
  memory(): StateMemory;
  /** Frees memory that is kept for later use. */
  trim(): void;
  /** Bytes of rows on disk. */
  pieceBytes(): number;
  /** Parts that may leave memory, the part that is needed least first. */
  spillOrder(): readonly number[];
  /** Parts that must leave memory, however much is free. */
  readonly mustSpill: readonly number[];
  /** True if the sweep in progress lags so far behind the frontier that reading must pause. */
  readonly isBehind: boolean;
  /** Notes the end of the input, so that ended rows need not wait for more rows. */
  endOfInput(): void;
  /** Takes out the rows of a part that are in memory, or one run of them; later rows are kept
   *  separately. The state reads the rows from the run until `replace`. Undefined if there are no
   *  rows. The caller owns a hold of the run and must release it. */
  detach(part: number): HeldRun<RowRun> | undefined;
  /** Notes that the state must read the rows of the run from the piece. */
  replace(part: number, run: HeldRun<RowRun>, piece: SpilledRun): void;
}

/** Log of spills, called in the order of the pieces. */
export interface SpillLog {
  /** Records that a part was detached in this turn. Returns the id of the piece for its rows. */
  detached(part: number): number;
  /** True if the log may record that the rows of the detached part are in its piece. */
  maySpill(): boolean;
  /** Records that the piece is durable. Returns false if it is no longer needed. */
  spilled(piece: SpilledRun): boolean;
  /** Parts whose rows in memory need more than `bytesMax` bytes of changelog, oldest first. */
  overdue(bytesMax: number): readonly number[];
}
