/** Kernels of the window engine: one interface for the addon and the TypeScript reference
 *  implementation.
 *
 *  Steps of a batch: `admit` processes rows until a window is due, `state.accumulate` folds the
 *  admitted rows in, and `state.encodeDeltas` encodes the changes. While rows are left, the caller
 *  fires the due windows and admits the rest. A slice is named by its start in ms, a multiple of
 *  the slice width. Rows are laid out as Accumulator, with the cells of the form behind it, in
 *  buffers aligned to 8 bytes. Buffers belong to the caller and are borrowed until return.
 *
 *  A snapshot during ingestion copies the keys range by range, each between two batches. For each
 *  range it notes the last changelog record that was folded in before. On restore a delta is folded
 *  in only when its record is later. The range of a key depends on the key alone. */
import type { AdmittedBatch } from '../core/layout/admitted-batch.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { RefusedBatch } from '../core/layout/refused-batch.ts';
import type { RowForm } from '../core/layout/row-form.ts';
import type { ValueColumns } from '../core/layout/value-columns.ts';

/** ArrayBuffer or view that holds rows. */
export type RowBytes = ArrayBuffer | Uint8Array;

/** Number of ranges of a snapshot; the 10 high bits of a key's hash select its range. */
export const COVER_RANGES = 1024;

export interface WindowKernels {
  readonly name: 'native' | 'reference';
  /** Form of the rows of all states and merges. */
  readonly form: RowForm;

  /** Admits rows of a batch from row `from` on, in order of arrival. Stops behind the row that lets
   *  the watermark reach the least end of an open window: `nextEnd` of the clock, lowered by the
   *  slices that the rows open. Fills `admitted` with the rows in time, updates clock and progress,
   *  and returns the number of processed rows; 0 when a window was due before. The caller then
   *  fires, sets `nextEnd`, and admits the rows behind them.
   *
   *  For session windows (size 0) no window becomes due, and every row is in the one slice that
   *  starts at -EVENT_TS_LIMIT. Without rows the call only recomputes the watermark from the
   *  progress. `refused` gets the late and invalid rows with their reasons.
   *
   *  @shape clock f64[WINDOW_CLOCK.BYTES / 8], progress f64[partitions * PROGRESS_CELLS]
   *  @throws out_of_range for a cell outside its range, an unknown partition, or an offset that
   *  does not ascend; then the rows before it have been processed */
  admit(
    clock: Float64Array,
    progress: Float64Array,
    records: RecordBatch,
    events: EventBatch,
    from: number,
    admitted: AdmittedBatch,
    refused?: RefusedBatch,
  ): number;

  /** Opens an empty keyed state: one accumulator for each (key, slice), each key in the shard that
   *  the shard hash selects. The addon processes shards in parallel.
   *  @throws out_of_range */
  open(sliceMs: number, shards: number): WindowState;

  /** Opens an empty state of sessions; as `open` otherwise. @throws out_of_range */
  openSessions(gapMs: number, shards: number): SessionState;

  /** Merges sorted runs page by page; rows of equal keys become one row. `cursors` has three cells
   *  for each input: next row of its page, rows of its page, and 1 when the page is its last.
   *  Returns the number of rows written. It stops when `into` is full, or when all inputs are at
   *  their end. It also stops when a page ends that is not the last of its run; then load its next
   *  page and call again.
   *  @throws out_of_range for cursors outside a page, keys that do not ascend, a count of 0 */
  merge(pages: readonly RowBytes[], cursors: Uint32Array, into: RowBytes): number;

  /** Merges as `merge`, off the main thread, with a page ahead of each input. Page n + i follows
   *  page i of n inputs, and `cursors` has the cells of all 2n pages; a following page without rows
   *  that is not the last is not loaded yet. It stops when `into` is full, or when an input is at
   *  the end of its loaded pages and has more. It borrows its arguments until the promise settles.
   *  @throws out_of_range as `merge` */
  mergeAhead(pages: readonly RowBytes[], cursors: Uint32Array, into: RowBytes): Promise<number>;

  /** Merges runs of session parts, each ascending by account_id (unsigned) and start. Parts of one
   *  key that lie less than the gap apart become one session. Pages, cursors and stops are those of
   *  `merge`. The output ascends by account_id and start. The last session begun may continue in
   *  later pages; it is kept in the row `open`, with a count of 0 when there is none. The merge is
   *  complete when every input is at its end and `open` is empty.
   *  @throws out_of_range for cursors outside a page, rows that do not ascend, a row that is no
   *  session */
  mergeSessions(
    gapMs: number,
    pages: readonly RowBytes[],
    cursors: Uint32Array,
    open: RowBytes,
    into: RowBytes,
  ): number;
}

export interface WindowState {
  /** Form of its rows. */
  readonly form: RowForm;
  /** Folds admitted rows in, and keeps their deltas until the next batch. `values` has the values
   *  of the events for the cells of the form.
   *  @throws out_of_range, with nothing changed, for a row that is not in `events` or not in its
   *  slice, or values that lack a column or an event
   *  @throws internal without memory: the state is then lost */
  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void;

  /** Upper bound of the bytes of the last batch's deltas. */
  deltaBytesMax(): number;
  /** Writes the deltas of the last batch (layout WindowDeltas); returns their bytes.
   *  @throws out_of_range when `out` is shorter than deltaBytesMax() */
  encodeDeltas(out: Uint8Array): number;
  /** Folds encoded deltas in. Returns DELTA_STATUS.*; nothing is changed unless it is OK. With
   *  `covered`, only deltas of keys whose range has a number below `seq` are folded in.
   *  @shape covered f64[COVER_RANGES]
   *  @throws out_of_range */
  applyDeltas(bytes: Uint8Array, seq?: number, covered?: Float64Array): number;

  /** Makes room in an empty slice for `rows` rows that arrive in the order of their ranges.
   *  @throws out_of_range */
  reserve(sliceStart: number, rows: number): void;
  /** Folds `count` rows into a slice.
   *  @throws out_of_range for a row with a count of 0, or for too few rows */
  load(sliceStart: number, rows: RowBytes, count: number): void;
  /** Copies rows of a slice in any order and advances `cursor[0]`, which starts at 0. Returns the
   *  number copied, 0 at the end. The slice must not change between two pages. */
  copy(sliceStart: number, cursor: Float64Array, into: RowBytes): number;
  /** Copies the rows of one range, in [0, COVER_RANGES), as `copy` does. @throws out_of_range */
  copyRange(range: number, sliceStart: number, cursor: Float64Array, into: RowBytes): number;
  /** Copies the row of a key; returns the number of rows, 0 or 1. @throws out_of_range unless a u64
   */
  find(sliceStart: number, accountId: bigint, into: RowBytes): number;

  /** Writes the starts of the open slices, ascending; returns their number, which may exceed `out`.
   */
  slices(out: Float64Array): number;
  keyCount(): number;
  /** Bytes of all tables, and of memory of dropped slices that is kept for the next ones. */
  bytes(): number;
  /** Frees the kept memory. */
  trim(): void;

  /** Drops a slice with its rows. @throws out_of_range */
  drop(sliceStart: number): void;
  /** Removes a slice from the state immediately and sorts it; the addon sorts off the main thread.
   *  The run is empty where there is no such slice. */
  seal(sliceStart: number): Promise<SortedRun>;
  close(): void;
}

/** Open sessions, of which a key may have several. The spare cell of a row is the session's start,
 *  and last_update_ts its last event. A session is [start, last + gap). An event less than a gap
 *  before its start or behind its last event belongs to it, so sessions that only touch stay
 *  separate. */
export interface SessionState {
  /** Form of its rows. */
  readonly form: RowForm;
  /** Folds admitted rows in, whatever their slice, and keeps the partial sessions that they form
   *  until the next batch.
   *  @throws out_of_range, with nothing changed, for a row that is not in `events`, a time outside
   *  the limits of events, or values that lack a column or an event
   *  @throws internal without memory: the state is then lost */
  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void;

  /** Upper bound of the bytes of the last batch's partial sessions. */
  deltaBytesMax(): number;
  /** Writes the partial sessions of the last batch (layout SessionDeltas); returns their bytes.
   *  @throws out_of_range when `out` is shorter than deltaBytesMax() */
  encodeDeltas(out: Uint8Array): number;
  /** Folds encoded partial sessions in, as WindowState.applyDeltas. */
  applyDeltas(bytes: Uint8Array, seq?: number, covered?: Float64Array): number;

  /** Makes room, as WindowState.reserve; has no effect once there are sessions.
   *  @throws out_of_range */
  reserve(rows: number): void;
  /** Folds `count` partial sessions in.
   *  @throws out_of_range, with nothing changed, for a count of 0 in a row, a start behind the last
   *  event, a time outside the limits of events, or too few rows */
  load(rows: RowBytes, count: number): void;
  /** Copies sessions, as WindowState.copy, over all sessions. */
  copy(cursor: Float64Array, into: RowBytes): number;
  copyRange(range: number, cursor: Float64Array, into: RowBytes): number;
  /** Copies the open sessions of a key, ascending by start; returns their number, which may exceed
   *  `into`. */
  find(accountId: bigint, into: RowBytes): number;

  /** Removes immediately every session that ends at or before the watermark (whole ms, or Infinity
   *  for all). Sorts them by (end, account_id unsigned); the addon sorts off the main thread. No
   *  event before the watermark may be folded in later.
   *  @throws out_of_range */
  fire(watermark: number): Promise<RowRun>;
  /** Removes all sessions immediately and sorts them by (account_id unsigned, start); the addon
   *  sorts off the main thread. Later events start new sessions, which may be parts of removed
   *  ones. */
  detach(): Promise<RowRun>;
  /** No session ends at or before a watermark below this; Infinity when there is no session. */
  leastEnd(): number;

  sessionCount(): number;
  /** Number of open sessions that were merged into another. */
  mergedCount(): number;
  /** Bytes of all tables, and of memory that is kept for the next ones. */
  bytes(): number;
  /** Frees the kept memory. */
  trim(): void;
  close(): void;
}

/** Rows in order. */
export interface RowRun {
  readonly rowCount: number;
  /** Memory that is held until close. */
  readonly bytes: number;
  /** Copies rows from number `from` on, as many as fit; returns their number. @throws closed */
  read(from: number, into: RowBytes): number;
  /** Copies rows as `read`, off the main thread; borrows `into` until the promise settles. The rows
   *  stay until then, also when the run is closed. @throws closed */
  readAside(from: number, into: RowBytes): Promise<number>;
  /** Frees the memory; has no effect when repeated. */
  close(): void;
}

/** Rows of a slice, ascending by account_id (unsigned), with unique keys. */
export interface SortedRun extends RowRun {
  readonly sliceStart: number;
  /** Copies the row of a key; returns the number of rows, 0 or 1.
   *  @throws closed, out_of_range unless a u64 */
  find(accountId: bigint, into: RowBytes): number;
}
