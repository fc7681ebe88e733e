/** Kernels of the event generator: one interface for the addon and the TypeScript reference
 *  implementation.
 *
 *  Event `seq` is a pure function of the parameters. So the step that orders events passes only a
 *  list of numbers to the step that writes them. Buffers belong to the caller and are borrowed
 *  until return. docs/reference/generator.md defines every byte. */
import type { ArrivalQueue } from '../core/layout/arrival-queue.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { ZipfTable } from '../core/random/zipf.ts';

export interface GenKernels {
  readonly name: 'native' | 'reference';

  /** Fills `seqs` with the next events in the order of arrival (event_ts + delay, then seq) and
   *  returns their number. The number is below the length of `seqs` at the end of the stream, or
   *  when `queue.isFull`: then the caller grows the queue and calls again.
   *  @shape params f64[GEN_PARAMS.BYTES / 8], seqs f64[n] */
  genArrivals(params: Float64Array, queue: ArrivalQueue, seqs: Float64Array): number;

  /** Replaces the content of `into` by records of the events `seqs[0..count)`: value 256 B, key its
   *  first 8 bytes (the account_id), timestamp 0, partition -1.
   *  @throws out_of_range when rows or arena are too small
   *  @shape noise u8[GEN.NOISE_BYTES] */
  genRecords(
    params: Float64Array,
    zipf: ZipfTable,
    noise: Uint8Array,
    seqs: Float64Array,
    count: number,
    into: RecordBatch,
  ): void;

  /** Replaces the content of `into` by the same events as columns, each with status OK.
   *  @throws out_of_range when `into` has too few rows */
  genEvents(params: Float64Array, zipf: ZipfTable, seqs: Float64Array, count: number, into: EventBatch): void;

  /** Adds the values of a batch, in row order, to a streaming XXH32.
   *  @shape state u32[XXH32.WORDS] */
  genDigest(state: Uint32Array, records: RecordBatch): void;
}
