/** Contract between the sources of outbox rows and the pipeline that publishes and then marks them.
 *  Sources are polled pending rows, inserts decoded from the write-ahead log, and rows found by a
 *  sweep.
 *
 *  Order of a key under failures: the rows of a key are accepted in id order. When the broker does
 *  not acknowledge one of them, that row and all later rows of the key are left pending, and the
 *  key is blocked. The pipeline accepts no further row of a blocked key until a call covers the ids
 *  that were left.
 */
import type { OutboxRow } from '../store.ts';

export interface Delivered {
  /** Number of rows that the broker acknowledged; each is marked, or found by a later sweep. */
  readonly published: number;
  /** Ids of rows that another relay owns now, or that were not acknowledged: they stay pending. */
  readonly left: readonly bigint[];
  /** Number of rows of this call that were in flight already; the result of the earlier call
   *  reports them. */
  readonly known: number;
  /** Resolves when every published row of the call is marked, or belongs to another relay now.
   *  Rejects when the outcome will never be known; a caller may ignore it. */
  readonly marked: Promise<void>;
}

/** Range of ids for which a call delivers every pending row that is not in flight. Rows that were
 *  left in the range are delivered again; those that the call does not name are no longer
 *  pending. */
export interface Covered {
  readonly from: bigint;
  readonly to: bigint;
  /** Value of `leftSoFar` of CountingPipeline when the rows were read: a row that was left later
   *  may have been in flight then, and so is missing from the rows. Absent: the rows are all
   *  pending rows at the moment of the call. */
  readonly asOf?: number;
  /** Keys whose rows are delivered; all other keys stay blocked. Absent: every key. */
  readonly keys?: ReadonlySet<string>;
  /** Keys whose rows are not delivered. */
  readonly except?: ReadonlySet<string>;
}

export interface Pipeline {
  /** Publishes rows and has them marked; rows of one key are in id order. Calls are handled in
   *  their order, and several may be in flight. Resolves when each row is acknowledged by the
   *  broker or left; the marks follow (MarkerOptions.withinMs). After a while the source delivers
   *  the rows that were left once more, with `covered`: the range from the lowest to the highest id
   *  that was left, or a larger one. Rejects only when the pipeline has failed for good. */
  deliver(rows: readonly OutboxRow[], covered?: Covered): Promise<Delivered>;
  /** True when this relay publishes the events of the key now. */
  owns(aggregateId: string): boolean;
  /** True when a row with this id was accepted and is not yet marked. */
  isInFlight(id: bigint): boolean;
  /** Number of rows accepted and neither marked nor left. */
  inFlight(): number;
  /** Back-pressure: resolves when the rows and bytes in flight are below their limits. A source
   *  waits for it before it reads more. */
  room(): Promise<void>;
  /** Resolves when no row is in flight. */
  idle(): Promise<void>;
}

/** Pipeline for a source that reads rows while others are in flight. */
export interface CountingPipeline extends Pipeline {
  /** Number of rows left up to now; a row counts again each time it is left. */
  leftSoFar(): number;
  /** Shortest time between two batches for the broker that are not full, ms: rows that are read
   *  sooner wait. */
  paceMs(): number;
}

/** Source of rows. It is constructed with SourceParts (source.ts). */
export interface RowSource {
  /** Runs until the drain starts, waits for the rows in flight and resolves. Rejects only with an
   *  error that a retry cannot fix. */
  run(): Promise<void>;
  /** Error of the last read of the database; undefined after a success. */
  failureReason(): string | undefined;
}
