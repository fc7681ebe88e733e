/** Where fired windows go. A write is an upsert of absolute values keyed (account_id, window_start, window_end), so a
 *  result that is written again after a crash changes nothing.
 */
import type { FiredWindow, WindowResult } from '../accumulator.ts';

/** Rows `from` to `to` of a fired window. */
export interface FiredRows {
  readonly window: FiredWindow;
  readonly from: number;
  readonly to: number;
}

export interface WindowSink {
  readonly name: string;
  /** Makes the tables or topics it owns. */
  migrate(): Promise<void>;
  /** @throws sink_missing, unreachable */
  check(): Promise<void>;
  /** Settles when the rows are durable. No key comes twice in one call. */
  write(rows: readonly FiredRows[]): Promise<void>;
  /** Every row, ascending by (account_id unsigned, window_start, window_end). */
  read(): AsyncIterable<readonly WindowResult[]>;
}
