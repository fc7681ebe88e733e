/** Sink of results. A write is an upsert of absolute values keyed (account_id, window_start,
 *  window_end), so a result that is written again after a crash changes nothing. */
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';

export interface WindowSink {
  readonly name: string;
  /** Greatest number of rows of one write. */
  readonly writeRowsMax: number;
  /** Creates the sink's tables or topics. */
  migrate(): Promise<void>;
  /** @throws sink_missing, unreachable */
  check(): Promise<void>;
  /** Settles when the rows are durable. Pages are borrowed until then; a key occurs once in a call.
   *  A row that exists with the same values stays as it is. */
  write(pages: readonly FiredPage[]): Promise<void>;
  /** Reads every key once, in an order of the sink's own that is always the same. */
  read(): AsyncIterable<readonly WindowResult[]>;
}
