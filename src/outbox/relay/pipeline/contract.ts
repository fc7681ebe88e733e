/** Between the places where outbox rows come from (pending rows that were polled, inserts decoded from the write-ahead log, rows found
 *  by a sweep) and what is done with them, which is the same for all: publish, then mark.
 *
 *  What keeps a key in order, whatever fails: the rows of a key are accepted in id order; when one of them is not acknowledged,
 *  it and all rows of that key behind it are left, and the key is held: nothing of it is accepted until a call that covers the
 *  ids that were left.
 */
import type { OutboxRow } from '../store.ts';

export interface Delivered {
  /** Rows the broker has acknowledged; each is marked, or will be found by a sweep. */
  readonly published: number;
  /** Rows that another relay owns now, or that were not acknowledged: they are pending, and whoever owns them finds them. */
  readonly left: readonly bigint[];
  /** Rows of this call that were under way already; the call that brought them first answers for them. */
  readonly known: number;
  /** Settles when every published row of the call is marked, or found to be another relay's to mark. Rejects when that will not be
   *  known any more; nobody has to listen. */
  readonly marked: Promise<void>;
}

/** A range of ids of which a call brings every pending row that is not under way: what was left there is brought again, and what
 *  is not among the rows exists no more. */
export interface Covered {
  readonly from: bigint;
  readonly to: bigint;
  /** `leftSoFar` of CountingPipeline when the rows were asked for: what was left after that may have been under way for that look, and missing in it.
   *  Absent: the rows are all there is at the moment of the call. */
  readonly asOf?: number;
  /** Absent: of every key. Given: only these keys' rows are brought, and the holds of all others stay. */
  readonly keys?: ReadonlySet<string>;
  /** Keys whose rows are not brought. */
  readonly except?: ReadonlySet<string>;
}

export interface Pipeline {
  /** Publishes these rows, of one key in id order, and has them marked. Calls are carried out in the order they were made; several
   *  may be under way. Settles when each row is acknowledged by the broker or left; marking follows within `markWithinMs`.
   *  A source brings what was left again, after a while, with `covered` (lowest to highest id that was left, or more).
   *  Rejects only when the relay can do nothing more. */
  deliver(rows: readonly OutboxRow[], covered?: Covered): Promise<Delivered>;
  /** Whether this relay publishes the events of a key at this moment. */
  owns(aggregateId: string): boolean;
  /** Whether the row was accepted and is not yet marked. */
  isUnderWay(id: bigint): boolean;
  /** Rows accepted and not yet marked or left. */
  underWay(): number;
  /** Resolves when fewer rows and bytes are under way than the pipeline takes at once: a source waits for it before it reads more. */
  room(): Promise<void>;
  /** Resolves when nothing is under way. */
  idle(): Promise<void>;
}

/** For a source that asks for rows while others are under way. */
export interface CountingPipeline extends Pipeline {
  /** Rows left up to now, counted again each time. */
  leftSoFar(): number;
}

/** Where rows come from. Made with the parts it needs (see SourceParts in source.ts). */
export interface Source {
  /** Runs until the drain starts, waits out what is under way and resolves. Rejects only with what another try cannot cure. */
  run(): Promise<void>;
  /** What the source's last look at the database failed with; undefined where it went well. */
  trouble(): string | undefined;
}
