/** Accumulator rows, 64 bytes each, laid out as `Accumulator`: in a table, a checkpoint or a
 *  firing. */
import { ACCUMULATOR } from '../../core/layout/layouts.gen.ts';
import type { AggregateValue } from '../aggregate/results.ts';

export const ROW_BYTES = ACCUMULATOR.BYTES;

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
  /** Results of the job's aggregates, in their order; absent: those above are the results. */
  readonly aggregates?: readonly AggregateValue[];
}
