/** Results that an advancing frontier made final, on their way to the sinks and to the engine's own
 *  store of fired windows.
 *
 *  Firings leave in the order of their ends. Rows of a firing ascend by (window_end, unsigned
 *  account_id), and no key (account_id, window_start, window_end) occurs twice. */

import type { RowForm } from '../../core/layout/row-form.ts';
import type { KeyColumn } from '../keys/column.ts';
import type { ReachedTimes } from '../state/reached.ts';

/** Location of the bounds of a row: one window for all rows, or sessions, whose start is in the
 *  spare cell of the row and whose end is last_update_ts + gap. */
export type FiredBounds =
  | { readonly kind: 'window'; readonly start: number; readonly end: number }
  | { readonly kind: 'sessions'; readonly gapMs: number };

/** Some rows of a firing, laid out as Accumulator and cells, in the buffer that the caller of
 *  `read` gave: its next use of the buffer overwrites them. */
export interface FiredPage {
  readonly bounds: FiredBounds;
  /** Form of the rows; absent: rows with only a head. */
  readonly form?: RowForm | undefined;
  /** Starts at a multiple of 8; at least `rowCount` rows. */
  readonly rows: Uint8Array;
  readonly rowCount: number;
  /** Keys of the rows that are no integers; absent: the account_id of a row is its key. */
  readonly keys?: KeyColumn | undefined;
}

/** One window, or the sessions that ended up to a watermark. */
export interface Firing {
  readonly bounds: FiredBounds;
  /** Form of the rows; absent: rows with only a head. */
  readonly form?: RowForm | undefined;
  /** Number of the round of early results; absent: the results are final. Two firings of one window
   *  have distinct keys only if they are of one round. */
  readonly round?: number | undefined;
  /** Upper bound of the number of rows. */
  readonly rowsMax: number;
  /** Monotonic ms at which it fired. */
  readonly firedAtMs: number;
  /** Monotonic ms at which the frontier reached the end of each row, if that was earlier; rows
   *  ascend by end. */
  readonly reached?: ReachedTimes | undefined;
  /** Copies the next rows, as many as fit; 0 at the end. Calls must not overlap. */
  read(into: Uint8Array): Promise<number>;
  /** Releases the rows, which the state keeps until then. Idempotent. */
  close(): void;
}
