/** Where results go. A write is an upsert of absolute values keyed (account_id, window_start,
 *  window_end), so a result that is written again after a crash changes nothing.
 */
import type { WindowResult } from '../../window/accumulator.ts';
import type { FiredPage } from '../../window/firing.ts';

export interface WindowSink {
  readonly name: string;
  /** Rows that one write is given, at most. */
  readonly writeRowsMax: number;
  /** Makes the tables or topics it owns. */
  migrate(): Promise<void>;
  /** @throws sink_missing, unreachable */
  check(): Promise<void>;
  /** Settles when the rows are durable. The pages are borrowed until then; no key comes twice in
   *  one call. A row that stands there with the same values stays as it is. */
  write(pages: readonly FiredPage[]): Promise<void>;
  /** Every key once, in an order of the sink's own that is the same each time. */
  read(): AsyncIterable<readonly WindowResult[]>;
}
