/** The kernels of the event generator, declared once for the addon and the TypeScript twin.
 *
 *  Event `seq` is a pure function of the parameters, so a list of numbers is all that crosses between the step that
 *  orders events and the step that writes them. Buffers belong to the caller and are borrowed until return.
 *  The definition of every byte is docs/generator.md.
 */
import type { ArrivalQueue } from '../core/layout/arrival-queue.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { ZipfTable } from '../core/random/zipf.ts';

export interface GenKernels {
  readonly name: 'native' | 'reference';

  /** Next events in the order of arrival (event_ts + delay, then seq): fills `seqs` and returns how many, fewer than
   *  its length at the end of the stream or when `queue.isFull`: then the caller grows the queue and calls again.
   *  @shape params f64[GEN_PARAMS.BYTES / 8], seqs f64[n] */
  genArrivals(params: Float64Array, queue: ArrivalQueue, seqs: Float64Array): number;

  /** Replaces the content of `into` by records of the events `seqs[0..count)`: value 256 B, key its first 8 bytes
   *  (the account_id), timestamp 0, partition -1. @throws out_of_range when rows or arena do not hold them
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
   *  @throws out_of_range when it has too few rows */
  genEvents(params: Float64Array, zipf: ZipfTable, seqs: Float64Array, count: number, into: EventBatch): void;

  /** Adds the values of a batch, in row order, to a streaming XXH32. @shape state u32[XXH32.WORDS] */
  genDigest(state: Uint32Array, records: RecordBatch): void;
}
