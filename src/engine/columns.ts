/** A decoded batch as the window operator reads it: the columns of the records and of the events as 32-bit words.
 *
 *  64-bit cells are read as word pairs (low, high), so that no BigInt is made a row. Views are built once a pair of
 *  batches and stay valid while the batches live.
 */
import { invariant } from '../core/errors.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';

export interface EventColumns {
  /** Rows to read now; set by whoever filled the batches. */
  rowCount: number;
  readonly partition: Int32Array;
  /** i64 as words, as are all below. */
  readonly offset: Int32Array;
  readonly accountId: Int32Array;
  readonly value: Int32Array;
  readonly eventTs: Int32Array;
  /** EVENT_STATUS.* */
  readonly status: Uint8Array;
  /** Owner of the key, 0 to shards - 1. */
  readonly shard: Int32Array;
}

const words = (column: BigInt64Array | BigUint64Array): Int32Array =>
  new Int32Array(column.buffer, column.byteOffset, column.length * 2);

export function columnsOf(records: RecordBatch, events: EventBatch): EventColumns {
  invariant(events.rowCapacity >= records.rowCapacity, 'an event batch has a row for every record');
  return {
    rowCount: 0,
    partition: records.columns.partition,
    offset: words(records.columns.offset),
    accountId: words(events.columns.accountId),
    value: words(events.columns.value),
    eventTs: words(events.columns.eventTs),
    status: events.columns.status,
    shard: new Int32Array(events.rowCapacity),
  };
}
