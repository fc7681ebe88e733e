/** Accumulator rows, 64 bytes each, laid out as `Accumulator`: in a table, a checkpoint or a
 *  firing. */
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import type { AggregateValue } from '../aggregate/results.ts';

export const ROW_BYTES = ACCUMULATOR.BYTES;

const SPARE_HIGH = ACCUMULATOR.SPARE + 4;
/** High half of the spare cell of an early result. The cell of a final result is 0, or the start of
 *  a session, which is never so small. */
const EARLY = -(2 ** 31);

/** Marks a row as an early result. */
export function markEarly(rows: Uint8Array, at: number): void {
  new DataView(rows.buffer, rows.byteOffset + at).setInt32(SPARE_HIGH, EARLY, true);
}

/** True if the row is an early result. */
export const isEarlyRow = (view: DataView, at: number): boolean =>
  view.getInt32(at + SPARE_HIGH, true) === EARLY;

/** Result of one window: absolute values, so that writing them twice changes nothing. */
export interface WindowResult {
  /** Unsigned; the id of the key, if the keys are no integers. */
  readonly accountId: bigint;
  /** Canonical bytes of a key that is no integer; absent: `accountId` is the key. */
  readonly key?: Uint8Array;
  readonly windowStart: number;
  readonly windowEnd: number;
  readonly count: bigint;
  /** Low 64 bits, two's complement; exact unless `overflow`. */
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
  readonly lastUpdateTs: bigint;
  /** True when an exact sum does not fit into 64 bits. */
  readonly overflow: boolean;
  /** True for the result of a window that is still open; absent: it is final. */
  readonly isEarly?: true;
  /** Results of the job's aggregates, in their order; absent: those above are the results. */
  readonly aggregates?: readonly AggregateValue[];
}
