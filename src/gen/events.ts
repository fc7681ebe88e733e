/** Generates the stream of events of a seed, in order of event time or in the order in which
 *  delayed events arrive.
 *  Invariants: (1) Event n is a pure function of the options and n. (2) The delayed order is the
 *  order of event time, stably sorted by event_ts + delay. (3) Neither order depends on the batch
 *  sizes or on the kernels. Memory: none in order of event time; in the delayed order 20 bytes per
 *  event that has not arrived. */

import type { GenKernels } from '../addon/gen-surface.ts';
import { invariant } from '../core/errors.ts';
import { ArrivalQueue } from '../core/layout/arrival-queue.ts';
import type { EventBatch } from '../core/layout/event-batch.ts';
import { EVENT, GEN, GEN_STREAM } from '../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import { RandomStream, seedOf } from '../core/random/threefry.ts';
import { ZipfTable } from '../core/random/zipf.ts';
import { checkEventOptions, type EventOptions, eventParams } from './event-options.ts';

const POOL_ROWS_FIRST = 4096;

/** Returns the filler bytes of a seed; the padding of each event is a slice of them. */
export function noiseOf(seed: bigint): Uint8Array {
  const stream = new RandomStream(seedOf(seed), GEN_STREAM.NOISE);
  const noise = new Uint8Array(GEN.NOISE_BYTES);
  const view = new DataView(noise.buffer);
  for (let at = 0; at < noise.length; at += 16) {
    const words = stream.at(at / 16);
    for (let i = 0; i < 4; i++) view.setUint32(at + 4 * i, words[i] as number, true);
  }
  return noise;
}

export class EventGenerator {
  readonly options: EventOptions;
  private readonly kernels: GenKernels;
  private readonly zipf: ZipfTable;
  private readonly noise: Uint8Array;
  private readonly params: Float64Array;
  private readonly queue: ArrivalQueue | undefined;
  private seqs = new Float64Array(0);
  private position = 0;

  /** @throws out_of_range */
  constructor(options: EventOptions, kernels: GenKernels) {
    checkEventOptions(options);
    this.options = options;
    this.kernels = kernels;
    this.zipf = new ZipfTable(options.accounts, options.zipf);
    this.noise = noiseOf(options.seed);
    this.params = eventParams(options, this.zipf);
    this.queue = options.order === 'delayed' ? new ArrivalQueue(POOL_ROWS_FIRST) : undefined;
  }

  /** Number of events returned so far. */
  get generated(): number {
    return this.position;
  }

  /** Number of events that have not arrived yet in the delayed order. */
  get pending(): number {
    return this.queue?.pending ?? 0;
  }

  /** Replaces the content of the batch with the next events as records: the value is the 256 B
   *  event, the key its account_id. Returns their number, at most `most`; 0 at the end of the
   *  stream. */
  fillRecords(into: RecordBatch, most = Infinity): number {
    const count = this.nextSeqs(
      Math.min(into.rowCapacity, Math.floor(into.arenaCapacity / EVENT.BYTES), most),
    );
    this.kernels.genRecords(this.params, this.zipf, this.noise, this.seqs, count, into);
    return count;
  }

  /** Like `fillRecords`, as columns. Both methods advance one position. */
  fillEvents(into: EventBatch, most = Infinity): number {
    const count = this.nextSeqs(Math.min(into.rowCapacity, most));
    this.kernels.genEvents(this.params, this.zipf, this.seqs, count, into);
    return count;
  }

  /** Sets `seqs` to the numbers of the next events in stream order, and returns their count. */
  private nextSeqs(room: number): number {
    if (this.seqs.length < room) this.seqs = new Float64Array(room);
    const queue = this.queue;
    let count = 0;
    if (queue === undefined) {
      count = Math.min(room, this.options.count - this.position);
      for (let i = 0; i < count; i++) this.seqs[i] = this.position + i;
    } else {
      for (;;) {
        count += this.kernels.genArrivals(this.params, queue, this.seqs.subarray(count, room));
        if (!queue.isFull || count === room) break;
        queue.grow();
      }
    }
    this.position += count;
    invariant(this.position <= this.options.count, 'the generator returned more events than requested');
    return count;
  }
}
