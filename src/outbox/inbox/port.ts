/** Interface of an inbox and the types shared by inbox/, payments/ and services that use the
 *  library. */
import type { OpenTransaction } from '../database/transaction.ts';

/** Result of a claim; each requested id is in exactly one of the three sets. */
export interface Claim {
  /** This transaction wrote the inbox row: apply the effect in the same transaction. */
  readonly unseen: ReadonlySet<string>;
  /** A committed transaction had the effect: skip the message and commit its offset. */
  readonly seen: ReadonlySet<string>;
  /** A UUIDv7 below the floor of dropped ids, without a row: it is unknown if the effect took
   *  place. No row is written. Park the record; do not apply the effect. */
  readonly undecidable: ReadonlySet<string>;
}

/** Outcome of one message. */
export type Once<T> =
  | { readonly kind: 'done'; readonly value: T }
  | { readonly kind: 'seen' }
  | { readonly kind: 'undecidable' };

/** Table of the msg_ids whose effects took place, or take place in the inserting transaction. */
export interface InboxPort {
  /** Inserts the missing ids, sorted, in one statement. Ids are canonical UUIDs of any version;
   *  duplicates are allowed.
   *  @throws bad_message_id before anything is written */
  claim(tx: OpenTransaction, msgIds: readonly string[]): Promise<Claim>;
  /** Calls `effect` if the id is unseen. An effect that throws aborts the transaction, so that the
   *  inbox row never commits without the effect.
   *  @throws bad_message_id before anything is written; errors of the effect */
  once<T>(tx: OpenTransaction, msgId: string, effect: () => Promise<T>): Promise<Once<T>>;
}

/** Position of a record in the log. */
export interface RecordPlace {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
}

/** Record of a batch. Its bytes are valid until the handler settles. */
export interface InboxRecord extends RecordPlace {
  /** Canonical UUID. */
  readonly msgId: string;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  /** Timestamp of the topic: append time or producer time, ms since the epoch. */
  readonly timestampMs: number;
  readonly headers: ReadonlyArray<readonly [name: string, value: Uint8Array | null]>;
}

/** A record, which may lack an id and then is parked. */
export type UnreadRecord = Omit<InboxRecord, 'msgId'> & { readonly msgId: string | null };

/** Reason that a record is parked instead of having its effect. */
export const PARK_REASONS = ['malformed_payload', 'refused', 'undecidable'] as const;
export type ParkReason = (typeof PARK_REASONS)[number];

export interface Parked<D> {
  readonly delivery: D;
  readonly reason: ParkReason;
  readonly detail: string;
}

/** State of a transaction whose COMMIT got no answer. */
export type CommitState = 'committed' | 'absent' | 'in_progress';
