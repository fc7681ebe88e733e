/** Between the places where outbox rows come from (pending rows that were polled, inserts decoded from the write-ahead log, rows found
 *  by a sweep) and what is done with them, which is the same for all: publish, then mark. */
import type { OutboxRow } from './store.ts';

export interface Delivered {
  /** Rows the broker has acknowledged; each is marked, or will be found by a sweep. */
  readonly published: number;
  /** Rows that another relay owns now, or that were not acknowledged: they are pending, and whoever owns them finds them. */
  readonly left: readonly bigint[];
}

export interface Pipeline {
  /** Publishes these rows, of one key in id order, and has them marked. Calls are carried out in the order they were made; several
   *  may be under way. Settles when each row is acknowledged by the broker or left; marking follows within `markWithinMs`.
   *  Rejects only when the relay can do nothing more. */
  deliver(rows: readonly OutboxRow[]): Promise<Delivered>;
  /** Whether this relay publishes the events of a key. */
  owns(aggregateId: string): boolean;
}
