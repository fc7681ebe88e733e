/** State that can be moved out of memory, table by table, and the log that is told of it. */
import type { RowRun } from '../../../addon/window-surface.ts';
import type { HeldRun } from '../../state/run.ts';
import type { SpilledRun } from './pieces.ts';

export interface StateMemory {
  /** Bytes of live tables, and of what they left and is kept for the next ones. */
  readonly tables: number;
  /** Of rows in order, those of firings that are not let go among them, and of what finds a row in
   *  a piece. */
  readonly runs: number;
  /** Rows that are in no piece and not of firings alone. */
  readonly rows: number;
}

export interface Spillable {
  memory(): StateMemory;
  /** Gives back what is kept for later. */
  trim(): void;
  /** Bytes of rows that are on disk. */
  pieceBytes(): number;
  /** Parts that may leave memory, the one that is missed least first. */
  spillOrder(): readonly number[];
  /** Parts that should, whatever memory there is. */
  readonly wanted: readonly number[];
  /** What ended on disk waits longer than it should for a firing that is under way. */
  readonly isBehind: boolean;
  /** Nothing more will come, so what ended need not wait for company. */
  endOfInput(): void;
  /** Takes the rows of a part that are in memory, or one run of them; what comes later is kept
   *  apart. The state reads them as before until `replace`. undefined where there are none. Whoever
   *  takes it lets go of it. */
  detach(part: number): HeldRun<RowRun> | undefined;
  /** The piece has the rows of the run from here on. */
  replace(part: number, run: HeldRun<RowRun>, piece: SpilledRun): void;
}

/** Is told of pieces in their order. */
export interface SpillLog {
  /** A part was detached, in this moment: the id of the piece that will hold it. */
  detached(part: number): number;
  /** Whether the part that was detached may be said to be in its piece. */
  maySpill(): boolean;
  /** The piece is durable; false when it is of no use any more. */
  spilled(piece: SpilledRun): boolean;
  /** Parts whose rows in memory hold more of the changelog back than this many bytes, the oldest
   *  first. */
  overdue(bytesMax: number): readonly number[];
}
