/** Keyed state: what is open, and what a frontier makes of it. Two kinds: slices (tumbling and
 *  sliding windows) and sessions. Nothing in here reads a single event.
 */

import type { SortedRun } from '../../addon/window-surface.ts';
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import type { SweepEntry } from '../durability/checkpoint/ledger.ts';
import type { LiveState } from '../durability/checkpoint/live.ts';
import type { Spillable } from '../durability/spill/port.ts';
import type { WindowResult } from '../window/accumulator.ts';
import type { Firing } from '../window/firing.ts';

/** Windows of one key that are answered at once, those that end first. */
export const OPEN_RESULTS_MAX = 1000;

/** A firing that can be asked for one key until it is let go. */
export interface StateFiring extends Firing {
  readonly isClosed: boolean;
  /** What it has of the key, ascending by end; nothing once it was let go. */
  find(accountId: bigint): Promise<readonly WindowResult[]>;
}

/** Is told of what leaves the live tables, in the moment in which it does. */
export interface StateJournal {
  /** A slice, because a window that holds it ended by the frontier. */
  sealed(slice: number, frontier: number, run: Promise<SortedRun>): void;
  /** All sessions that ended by the frontier. */
  tookOut(frontier: number): void;
  /** A sweep over sessions on disk begins: the first of so many ids, for the pieces that will have
   *  what is left. */
  sweeping(pieces: number): number;
  /** It is done; what ended is about to leave. */
  swept(sweep: SweepEntry): void;
}

export interface StateBackend {
  readonly shards: number;
  /** Folds admitted rows in; borrows them until return. */
  accumulate(events: EventBatch, admitted: AdmittedBatch): void;
  /** Takes out, at once, what ends at or before the frontier, in the order of the ends; whatever
   *  has no rows does not fire. Rows are sorted beside. Infinity fires everything; after it nothing
   *  may come. */
  fire(frontier: number, atMs: number, journal: StateJournal): readonly StateFiring[];
  /** Whether `fire` would give something though the frontier stands still. `atMs`: monotonic. */
  isDue(atMs: number): boolean;
  /** Everything that ends at or before it has fired; -Infinity before the first. */
  readonly firedTo: number;
  /** Where admission has to stop next: least end of an open window, known since the last `fire`;
   *  Infinity where it need not stop. */
  readonly nextEnd: number;
  /** The live tables, for whoever saves and loads them. */
  readonly live: LiveState;
  /** Where it may go to disk; undefined for state that stays in memory. */
  readonly spillable: Spillable | undefined;
  /** Goes on with tables that were loaded: what ended at or before `fired` is gone. Once, before
   *  the first event. */
  resume(fired: number): void;
  /** What is open of a key and ends behind `after`, as it would fire now: ascending by end, at most
   *  OPEN_RESULTS_MAX. */
  open(accountId: bigint, after?: number): Promise<readonly WindowResult[]>;
  /** Slices or sessions that are open. */
  openCount(): number;
  /** Accumulators held. */
  keyCount(): number;
  bytes(): number;
  /** Gives the memory back; firings that are not closed keep theirs. */
  close(): void;
}
