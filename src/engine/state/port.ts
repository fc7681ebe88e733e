/** Keyed state: one accumulator a (key, slice), partitioned by shard. Drivers: `mem` here; a spilling one fits behind
 *  the same interface, because nothing in it reads a single key.
 */
import type { EventColumns } from '../columns.ts';

/** Rows of a batch that passed the watermark, in arrival order. */
export interface AcceptedRows {
  readonly columns: EventColumns;
  /** Row numbers, `count` of them. */
  readonly row: Int32Array;
  /** Slice start of each, in the same order. */
  readonly slice: Float64Array;
  readonly count: number;
}

export interface SliceRows {
  readonly sliceStart: number;
  readonly rowCount: number;
  /** Accumulator rows; owned by the receiver. */
  readonly rows: ArrayBuffer;
}

export interface StateBackend {
  readonly name: string;
  readonly shards: number;
  /** Folds the rows in; borrows them until return. @throws state_full */
  accumulate(rows: AcceptedRows): void;
  /** Takes a slice out of the state, of all shards, ascending by account_id (unsigned). */
  take(sliceStart: number): SliceRows;
  /** A copy of every open slice, cut now; order of rows undefined. */
  snapshot(): readonly SliceRows[];
  /** Puts saved rows back, each key to the shard that owns it. */
  load(slice: SliceRows, shardOf: (accountId: BigUint64Array) => Int32Array): void;
  /** Starts of the open slices, ascending. */
  openSlices(): readonly number[];
  openSliceCount(): number;
  keyCount(): number;
  bytes(): number;
}
