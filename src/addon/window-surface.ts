/** The kernels of the window engine, declared once for the addon and the TypeScript twin.
 *
 *  The course of a batch: `admit` takes rows until a window is due, `state.accumulate` folds the admitted ones in,
 *  `state.encodeDeltas` says what changed, and while rows are left the caller fires what is due and goes on with them.
 *  Slices are named by their start, ms, a multiple of the slice width. Rows are 64 B, laid out as Accumulator, in
 *  buffers that begin at a multiple of 8 bytes. Buffers belong to the caller and are borrowed until return.
 *
 *  A snapshot beside ingestion takes one range of the keys after the other, each between two batches, and notes for each
 *  the last record of the changelog that was folded in before; on restore a delta is folded in only when its record came
 *  later. Which range a key is in depends on the key alone.
 */
import type { AdmittedBatch } from '../core/layout/admitted-batch.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { RefusedBatch } from '../core/layout/refused-batch.ts';

/** An ArrayBuffer or a view that holds rows. */
export type RowBytes = ArrayBuffer | Uint8Array;

/** How many ranges the keys are cut into: by the 10 high bits of their spread. */
export const COVER_RANGES = 1024;

export interface WindowKernels {
  readonly name: 'native' | 'reference';

  /** Takes rows of a batch from row `from` on, in order of arrival, up to and with the one that makes the frontier reach
   *  the least end of an open window (`nextEnd` of the clock, lowered by the slices that the rows open). Fills
   *  `admitted` with the rows in time, moves clock and progress, and returns how many rows it looked at; 0 when a window
   *  was due before. Then the caller fires, sets `nextEnd`, and goes on behind them. Of sessions (size 0) it knows no
   *  end, and every row is in the one slice that begins at -EVENT_TS_LIMIT. Without rows it only moves the frontier to
   *  where the progress puts it. `refused` gets the rows that are late or invalid, and why.
   *  @shape clock f64[WINDOW_CLOCK.BYTES / 8], progress f64[partitions * PROGRESS_CELLS]
   *  @throws out_of_range for a cell outside its range, a partition that is not there, an offset that does
   *  not ascend: then the rows before it have been taken */
  admit(
    clock: Float64Array,
    progress: Float64Array,
    records: RecordBatch,
    events: EventBatch,
    from: number,
    admitted: AdmittedBatch,
    refused?: RefusedBatch,
  ): number;

  /** Empty keyed state: one accumulator a (key, slice), each key in the shard that the shard hash names; the addon
   *  works on shards side by side. @throws out_of_range */
  open(sliceMs: number, shards: number): WindowState;

  /** No sessions yet; as `open` otherwise. @throws out_of_range */
  openSessions(gapMs: number, shards: number): SessionState;

  /** Merges sorted runs page by page; rows of equal keys become one. `cursors` has three cells an input: next row of
   *  its page, rows of its page, 1 when the page is its last. Returns the rows written: stops when `into` is full, when
   *  all is done, or when a page is done whose run goes on; then put its next page there and call again.
   *  @throws out_of_range for cursors outside a page, keys that do not ascend, a count of 0 */
  merge(pages: readonly RowBytes[], cursors: Uint32Array, into: RowBytes): number;

  /** Merges runs of sessions that are in parts, each ascending by account_id (unsigned) and start: parts of one key that
   *  steps of less than the gap lead through become one session. Pages, cursors and stops are those of `merge`. What is
   *  written ascends by account_id and start; the last session begun may go on in pages to come and stands in the row
   *  `open`, with a count of 0 when there is none. All is done when every input is and `open` is empty.
   *  @throws out_of_range for cursors outside a page, rows that do not ascend, a row that is no session */
  mergeSessions(
    gapMs: number,
    pages: readonly RowBytes[],
    cursors: Uint32Array,
    open: RowBytes,
    into: RowBytes,
  ): number;
}

export interface WindowState {
  /** Folds admitted rows in, and keeps their deltas until the next batch. @throws out_of_range, and nothing is changed,
   *  for a row that is not one of `events` or not in its slice; internal without memory: the state is then lost */
  accumulate(events: EventBatch, admitted: AdmittedBatch): void;

  /** Room that is enough for the deltas of the last batch. */
  deltaBytesMax(): number;
  /** Writes the deltas of the last batch (layout WindowDeltas); returns their bytes.
   *  @throws out_of_range when `out` is shorter than deltaBytesMax() */
  encodeDeltas(out: Uint8Array): number;
  /** Folds encoded deltas in. Returns DELTA_STATUS.*; unless OK nothing was changed. With `covered`, only those of keys
   *  whose range has a number below `seq`. @shape covered f64[COVER_RANGES] @throws out_of_range */
  applyDeltas(bytes: Uint8Array, seq?: number, covered?: Float64Array): number;

  /** Makes room in a slice that has no rows for so many, which come in the order of their ranges. @throws out_of_range */
  reserve(sliceStart: number, rows: number): void;
  /** Folds `count` rows into a slice. @throws out_of_range for a count of 0 in a row or too few rows */
  load(sliceStart: number, rows: RowBytes, count: number): void;
  /** Copies rows of a slice, in any order, and moves `cursor[0]`, which begins at 0; returns how many, 0 at the end.
   *  The slice must not change between two pages. */
  copy(sliceStart: number, cursor: Float64Array, into: RowBytes): number;
  /** The same for the rows of one range, in [0, COVER_RANGES). @throws out_of_range */
  copyRange(range: number, sliceStart: number, cursor: Float64Array, into: RowBytes): number;
  /** Copies the row of a key; returns how many there are, 0 or 1. @throws out_of_range unless a u64 */
  find(sliceStart: number, accountId: bigint, into: RowBytes): number;

  /** Starts of the open slices, ascending; returns how many there are, which may be more than fit. */
  slices(out: Float64Array): number;
  keyCount(): number;
  /** Bytes of all tables, and of memory that slices left behind and that is kept for the next ones. */
  bytes(): number;
  /** Gives back what is kept. */
  trim(): void;

  /** Forgets a slice. @throws out_of_range */
  drop(sliceStart: number): void;
  /** Takes a slice out of the state at once and sorts it, off the main thread where the addon does it. A run without
   *  rows when the slice is not there. */
  seal(sliceStart: number): Promise<SortedRun>;
  close(): void;
}

/** Open sessions, several of a key among them: rows whose spare cell is the session's start and whose last_update_ts is
 *  its last event. A session is [start, last + gap); what comes less than a gap before its start or behind its last event
 *  is of it, so sessions that only touch stay two. */
export interface SessionState {
  /** Folds admitted rows in, whatever their slice, and keeps the partial sessions they make among themselves until the
   *  next batch. @throws out_of_range, and nothing is changed, for a row that is not one of `events` or a time outside the
   *  limits of events; internal without memory: the state is then lost */
  accumulate(events: EventBatch, admitted: AdmittedBatch): void;

  /** Room that is enough for the partial sessions of the last batch. */
  deltaBytesMax(): number;
  /** Writes them (layout SessionDeltas); returns their bytes. @throws out_of_range when `out` is shorter than that */
  encodeDeltas(out: Uint8Array): number;
  /** As in WindowState. */
  applyDeltas(bytes: Uint8Array, seq?: number, covered?: Float64Array): number;

  /** As in WindowState, while there are no sessions. @throws out_of_range */
  reserve(rows: number): void;
  /** Folds `count` partial sessions in. @throws out_of_range, and nothing is changed, for a count of 0 in a row, a start
   *  behind the last event, a time outside the limits of events, or too few rows */
  load(rows: RowBytes, count: number): void;
  /** As in WindowState, over all sessions. */
  copy(cursor: Float64Array, into: RowBytes): number;
  copyRange(range: number, cursor: Float64Array, into: RowBytes): number;
  /** Copies the open sessions of a key, ascending by start; returns how many there are, which may be more than fit. */
  find(accountId: bigint, into: RowBytes): number;

  /** Takes out, at once, every session that ends at or before the frontier (whole ms, or Infinity for all), and sorts them
   *  by (end, account_id unsigned), off the main thread where the addon does it. No event before the frontier may come
   *  later. @throws out_of_range */
  fire(frontier: number): Promise<RowRun>;
  /** Takes out, at once, every session there is, and sorts them by (account_id unsigned, start), off the main thread where
   *  the addon does it. What comes later begins anew: it may be part of a session that was taken out. */
  detach(): Promise<RowRun>;
  /** No session ends at or before a frontier below this; Infinity when there is none. */
  leastEnd(): number;

  sessionCount(): number;
  /** Open sessions that became part of another one. */
  mergedCount(): number;
  /** Bytes of all tables, and of memory that is kept for the next ones. */
  bytes(): number;
  /** Gives back what is kept. */
  trim(): void;
  close(): void;
}

/** Rows in order. */
export interface RowRun {
  readonly rowCount: number;
  /** Memory held until close. */
  readonly bytes: number;
  /** Copies rows from number `from` on, as many as fit; returns how many. @throws closed */
  read(from: number, into: RowBytes): number;
  /** Gives the memory back; a second time it does nothing. */
  close(): void;
}

/** The rows of a slice ascending by account_id (unsigned), no key twice. */
export interface SortedRun extends RowRun {
  readonly sliceStart: number;
  /** Copies the row of a key; returns how many there are, 0 or 1. @throws closed, out_of_range unless a u64 */
  find(accountId: bigint, into: RowBytes): number;
}
