/** The events of a generated stream in the order of their arrival, and the events that each
 *  watermark drops. It shares no module with the engine.
 *
 *  Memory: 12 bytes an event, one more for each set of marks, and 4 more while it is made. */
import type { GenKernels } from '../../src/addon/gen-surface.ts';
import { invariant } from '../../src/core/errors.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import type { EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { partitionsOf } from '../engine/recount.ts';

const ROWS = 4096;
const TWO_32 = 4_294_967_296;

export interface ArrivalOptions {
  /** A finite stream whose accounts are below 2^32. */
  readonly stream: Omit<EventOptions, 'order'>;
  readonly kernels: GenKernels;
  readonly partitions: number;
  /** Partition of each account, by its distance from the first one; absent: that of the broker's
   *  clients. @shape u8[stream.accounts] */
  readonly partitionOf?: Uint8Array;
}

export class Arrivals {
  readonly stream: ArrivalOptions['stream'];
  /** Account of each event, as the distance from the first one. @shape u32[events] */
  readonly accounts: Uint32Array;
  /** Event time in ms since the first event of the stream. @shape u32[events] */
  readonly times: Uint32Array;
  /** Positions of the events in order of account, then event time. @shape u32[events] */
  readonly byAccount: Uint32Array;
  private readonly partitionOf: Uint8Array;
  private readonly partitions: number;

  constructor({ stream, kernels, partitions, partitionOf }: ArrivalOptions) {
    const delayed: EventOptions = { ...stream, order: 'delayed' };
    invariant(Number.isFinite(stream.count), 'the stream must end');
    this.stream = stream;
    this.partitions = partitions;
    this.partitionOf = partitionOf ?? partitionsOf(delayed, partitions);
    this.accounts = new Uint32Array(stream.count);
    this.times = new Uint32Array(stream.count);
    this.fill(new EventGenerator(delayed, kernels));
    const inTime = sortedBy(this.times, undefined);
    this.byAccount = sortedBy(this.accounts, inTime);
  }

  /** Marks each event, in order of arrival, that is older than the greatest event time of its
   *  partition by more than `delayMs`. @returns u8[events], 1: dropped */
  dropped(delayMs: number): Uint8Array {
    const { accounts, times, partitionOf } = this;
    const marks = new Uint8Array(times.length);
    const seen = new Float64Array(this.partitions).fill(Number.NEGATIVE_INFINITY);
    for (let at = 0; at < times.length; at++) {
      const partition = partitionOf[accounts[at] as number] as number;
      const time = times[at] as number;
      if (time > (seen[partition] as number)) seen[partition] = time;
      else if (time < (seen[partition] as number) - delayMs) marks[at] = 1;
    }
    return marks;
  }

  private fill(generator: EventGenerator): void {
    const { accounts, times, stream } = this;
    const batch = EventBatch.create(ROWS);
    const { accountId, eventTs } = batch.columns;
    // Words of the columns, so that no row makes a bigint.
    const ids = new Uint32Array(accountId.buffer, accountId.byteOffset, ROWS * 2);
    const words = new Uint32Array(eventTs.buffer, eventTs.byteOffset, ROWS * 2);
    const first = Number(stream.accountBase);
    let at = 0;
    for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch)) {
      for (let row = 0; row < rows; row++, at++) {
        accounts[at] = (ids[2 * row] as number) - first;
        const time = (words[2 * row + 1] as number) * TWO_32 + (words[2 * row] as number) - stream.baseMs;
        invariant(time < TWO_32, 'the stream must be shorter than 49 days');
        times[at] = time;
      }
    }
    invariant(at === stream.count, 'the generator must return every event');
  }
}

/** Counting sort of positions by a key; stable. @param order positions in the order to start from;
 *  undefined: ascending @shape keys u32[n], order u32[n] */
function sortedBy(keys: Uint32Array, order: Uint32Array | undefined): Uint32Array {
  let most = 0;
  for (let at = 0; at < keys.length; at++) most = Math.max(most, keys[at] as number);
  const starts = new Uint32Array(most + 2);
  for (let at = 0; at < keys.length; at++) {
    const next = (keys[at] as number) + 1;
    starts[next] = (starts[next] as number) + 1;
  }
  for (let key = 1; key < starts.length; key++)
    starts[key] = (starts[key] as number) + (starts[key - 1] as number);
  const sorted = new Uint32Array(keys.length);
  for (let at = 0; at < keys.length; at++) {
    const position = order === undefined ? at : (order[at] as number);
    const key = keys[position] as number;
    const to = starts[key] as number;
    sorted[to] = position;
    starts[key] = to + 1;
  }
  return sorted;
}
