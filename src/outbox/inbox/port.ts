/** What an inbox says and what its users hand in; the shapes between inbox/, payments/ and services
 *  that use the library. */
import type { OpenTransaction } from '../database/transaction.ts';

/** What became of the msg_ids of a batch; each id that was asked for is in exactly one of the
 *  three. */
export interface Claim {
  /** Its inbox row is written by this transaction: carry the effect out in the same one. */
  readonly unseen: ReadonlySet<string>;
  /** A committed transaction had it: acknowledge and skip. */
  readonly seen: ReadonlySet<string>;
  /** A UUIDv7 older than the floor of what was dropped, without a row: nobody can say whether its
   *  effect took place. No row is written. Park it; do not carry the effect out. */
  readonly undecidable: ReadonlySet<string>;
}

/** What became of one message. */
export type Once<T> =
  | { readonly kind: 'done'; readonly value: T }
  | { readonly kind: 'seen' }
  | { readonly kind: 'undecidable' };

/** A table of msg_ids whose effects took place (or take place in the transaction that inserted
 *  them). */
export interface InboxPort {
  /** Inserts what is not there, sorted, in one statement. Ids are canonical UUIDs of any version,
   *  each any number of times.
   *  @throws bad_message_id before anything is written */
  claim(tx: OpenTransaction, msgIds: readonly string[]): Promise<Claim>;
  /** Calls `effect` when the id is unseen. An effect that throws spoils the transaction: it can
   *  only be rolled back, so that the inbox row never commits without the effect. @throws
   *  bad_message_id before anything is written; what the effect throws */
  once<T>(tx: OpenTransaction, msgId: string, effect: () => Promise<T>): Promise<Once<T>>;
}

/** Where a record stands in the log. */
export interface RecordPlace {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
}

/** One record of a batch. Bytes are borrowed until the handler settles. */
export interface InboxRecord extends RecordPlace {
  /** Canonical UUID. */
  readonly msgId: string;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  /** As the topic has it: of the append or of the producer, ms since the epoch. */
  readonly timestampMs: number;
  readonly headers: ReadonlyArray<readonly [name: string, value: Uint8Array | null]>;
}

/** A record, or one that is parked for the lack of an id. */
export type UnreadRecord = Omit<InboxRecord, 'msgId'> & { readonly msgId: string | null };

/** Why a record is set aside instead of having its effect. */
export type ParkReason = 'malformed_payload' | 'refused' | 'undecidable';

export interface Parked<D> {
  readonly delivery: D;
  readonly reason: ParkReason;
  readonly detail: string;
}

/** What is known of a transaction whose COMMIT got no answer. */
export type CommitState = 'committed' | 'absent' | 'in_progress';
