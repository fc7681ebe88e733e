/** Port of the event input: turns the records of a topic into events.
 *
 *  Invariants: (1) every row of the records becomes the row of the same number with a status; the
 *  other columns of a row are 0 unless its status is OK or FILTERED; (2) the status of a row
 *  depends on the record, its writer's schema and the definition alone, never on other rows. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { ListRows } from '../list/rows.ts';
import type { InputDefinition } from './definition.ts';

/** Decoder of one format with known fields. */
export interface EventDecoder {
  /** Fills `into`. Returns a promise only where a schema must be loaded first: the caller must not
   *  touch the batches before it settles. */
  decode(records: RecordBatch, into: EventBatch): void | Promise<void>;
  /** Says why the row of the batch that was decoded last is no event; undefined if its status says
   *  it all. */
  describe(records: RecordBatch, row: number): string | undefined;
}

/** Decoder of a job that folds the elements of a list. `decode` then reads a batch that `split` has
 *  filled: each of its rows is an element, or a record without one. */
export interface ListDecoder extends EventDecoder {
  /** Fills `into` with the elements of whole records, from record `from` on: as many records as
   *  fit, at least one. Returns the record behind the last; undefined if the run is to end while a
   *  schema is loaded. REQUIRES: the first call for a batch has `from` 0, and calls ascend */
  split(records: RecordBatch, from: number, into: ListRows): number | undefined | Promise<number | undefined>;
}

export interface EventInput extends EventDecoder {
  /** Definition as far as it is decided: the format is `undecided` until a record decides it.
   *  Replaced by another object when it is decided. */
  readonly definition: InputDefinition;
  /** Continues with the definition of a checkpoint. Call it before the first batch. */
  resume(saved: InputDefinition): void;
  /** False while the input waits for its registry. */
  readonly isReady: boolean;
  /** Returns the ms that `decode` waited for a registry since the last call. */
  takeWaitedMs(): number;
}

/** Input of a job that folds the elements of a list. */
export interface ListInput extends EventInput, ListDecoder {}
