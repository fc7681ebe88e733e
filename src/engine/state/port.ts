/** Keyed state: open windows, and their firing as the frontier advances. Two kinds: slices
 *  (tumbling and sliding windows) and sessions. Every operation takes a batch, never a single
 *  event.
 *
 *  The frontier is the least watermark of the partitions, less the lateness. It never falls;
 *  windows that end at or before it are final.
 */

import type { SortedRun } from '../../addon/window-surface.ts';
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { ValueColumns } from '../../core/layout/value-columns.ts';
import type { SweepEntry } from '../durability/checkpoint/ledger.ts';
import type { LiveState } from '../durability/checkpoint/live.ts';
import type { Spillable } from '../durability/spill/port.ts';
import type { WindowResult } from '../window/accumulator.ts';
import type { Firing } from '../window/firing.ts';

/** Greatest number of windows of one key in an answer; the windows that end first are returned. */
export const OPEN_RESULTS_MAX = 1000;

/** Firing that answers look-ups of one key until it is closed. */
export interface StateFiring extends Firing {
  readonly isClosed: boolean;
  /** Results of the key, ascending by end; none after close. */
  find(accountId: bigint): Promise<readonly WindowResult[]>;
}

/** Receives each removal from the live tables, in the turn of the event loop in which it happens.
 */
export interface StateJournal {
  /** A slice was sealed, because a window that contains it ended by the frontier. */
  sealed(slice: number, frontier: number, run: Promise<SortedRun>): void;
  /** All sessions that ended by the frontier were taken out. */
  tookOut(frontier: number): void;
  /** A sweep of sessions on disk starts. Returns the first of `pieces` consecutive ids for the
   *  remaining rows. */
  sweeping(pieces: number): number;
  /** A sweep is complete: its remaining rows are durable, and its ended sessions are about to
   *  leave. */
  swept(sweep: SweepEntry): void;
}

export interface StateBackend {
  readonly shards: number;
  /** Folds admitted rows into the accumulators, and the values of their events into the cells. It
   *  borrows its arguments until it returns. */
  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void;
  /** Takes out, atomically, all windows that end at or before the frontier, in the order of their
   *  ends. Windows without rows do not fire. Sorting runs off this thread. Infinity fires
   *  everything; no rows may follow it. */
  fire(frontier: number, atMs: number, journal: StateJournal): readonly StateFiring[];
  /** True if `fire` would return a firing although the frontier has not advanced. `atMs`:
   *  monotonic. */
  isDue(atMs: number): boolean;
  /** Frontier up to which all windows have fired; -Infinity before the first firing. */
  readonly firedTo: number;
  /** Next frontier at which admission must stop: the least end of an open window, as of the last
   *  `fire`; Infinity if it need not stop. */
  readonly nextEnd: number;
  /** Live tables, for saving and loading. */
  readonly live: LiveState;
  /** Interface for spilling; undefined for a state that stays in memory. */
  readonly spillable: Spillable | undefined;
  /** Resumes with loaded tables: windows that end at or before `fired` have left the state. Call it
   *  once, before the first event. */
  resume(fired: number): void;
  /** Returns the open windows of a key that end after `after`, with their present results:
   *  ascending by end, at most OPEN_RESULTS_MAX. */
  open(accountId: bigint, after?: number): Promise<readonly WindowResult[]>;
  /** Copies the present rows of keys in the open window that ends at `end`, in the order of the
   *  keys, and returns their number: keys without a row have none. Rows are of one moment. Absent:
   *  the bounds of an open window are not known.
   *  @param into room for a row of each key */
  current?(end: number, accountIds: BigUint64Array, into: Uint8Array): Promise<number>;
  /** Number of open slices or sessions. */
  openCount(): number;
  /** Number of accumulators. */
  keyCount(): number;
  bytes(): number;
  /** Frees the memory. Firings that are not closed keep theirs. */
  close(): void;
}
