/** Where events come from: every partition of one topic, from given offsets, in arrival order.
 *
 *  Two pairs of batches take turns: while the operator works on one, the broker client fills the other. No record is
 *  reordered: what the client hands over is the arrival order.
 */

import type { Clock } from '../core/clock.ts';
import { EventBatch } from '../core/layout/event-batch.ts';
import { RecordBatch } from '../core/layout/record-batch.ts';
import type { BatchConsumer, BrokerEvent, ConsumeResult } from '../io/broker/port.ts';
import type { Kernels } from '../native/surface.ts';
import { columnsOf, type EventColumns } from './columns.ts';
import { engineError } from './errors.ts';

export interface EventSource {
  readonly partitionCount: number;
  /** First and next offset a partition at the broker now. */
  bounds(): Promise<readonly { readonly low: number; readonly high: number }[]>;
  /** Reads on from these offsets, one a partition. */
  start(offsets: readonly number[]): Promise<void>;
  /** The next rows, decoded and with their owners; valid until the next call. Undefined when the wait ended first. */
  next(waitMs: number): Promise<EventColumns | undefined>;
  /** Offset up to which a partition is known to hold nothing more to read, which may lie behind the last record. */
  endOf(partition: number): number;
  /** Monotonic ms at which the rows returned last had arrived in this process. */
  readonly receivedAtMs: number;
  /** Settles when no read is under way; the rows handed out are no longer valid. */
  stop(): Promise<void>;
}

export interface BrokerSourceParts {
  readonly consumer: BatchConsumer;
  readonly kernels: Kernels;
  readonly clock: Clock;
  readonly topic: string;
  readonly partitionCount: number;
  readonly shards: number;
  readonly rowCapacity: number;
  readonly arenaBytes: number;
  readonly onEvent: (event: BrokerEvent) => void;
}

interface Pair {
  readonly records: RecordBatch;
  readonly events: EventBatch;
  readonly columns: EventColumns;
}

interface Filled {
  readonly result: ConsumeResult;
  readonly atMs: number;
}

/** How long the broker is asked for the ends of a partition. */
const BOUNDS_TIMEOUT_MS = 10_000;

export class BrokerSource implements EventSource {
  readonly partitionCount: number;
  receivedAtMs = 0;
  private readonly parts: BrokerSourceParts;
  private readonly pairs: readonly [Pair, Pair];
  private readonly ends: Float64Array;
  private turn: 0 | 1 = 0;
  private filling: Promise<Filled> | undefined;

  constructor(parts: BrokerSourceParts) {
    this.parts = parts;
    this.partitionCount = parts.partitionCount;
    this.ends = new Float64Array(parts.partitionCount);
    const pair = (): Pair => {
      const records = RecordBatch.create(parts.rowCapacity, parts.arenaBytes);
      const events = EventBatch.create(parts.rowCapacity);
      return { records, events, columns: columnsOf(records, events) };
    };
    this.pairs = [pair(), pair()];
  }

  async bounds(): Promise<readonly { readonly low: number; readonly high: number }[]> {
    const all = Array.from({ length: this.partitionCount }, async (_, partition) => {
      const at = await this.parts.consumer.watermarkOffsets(
        { topic: this.parts.topic, partition },
        BOUNDS_TIMEOUT_MS,
      );
      return { low: Number(at.low), high: Number(at.high) };
    });
    return Promise.all(all);
  }

  async start(offsets: readonly number[]): Promise<void> {
    await this.parts.consumer.assign(
      offsets.map((offset, partition) => ({ topic: this.parts.topic, partition, offset: BigInt(offset) })),
    );
  }

  async next(waitMs: number): Promise<EventColumns | undefined> {
    const pair = this.pairs[this.turn];
    const { result, atMs } = await (this.filling ?? this.fill(pair, waitMs));
    this.receivedAtMs = atMs;
    this.turn = this.turn === 0 ? 1 : 0;
    this.filling = this.fill(this.pairs[this.turn], waitMs);
    for (const event of result.events) this.note(event);
    for (const end of result.ends) this.ends[end.partition] = Number(end.offset);
    if (result.rowCount === 0) return undefined;
    const { kernels, shards } = this.parts;
    kernels.decodeEvents(pair.records, pair.events);
    if (shards > 1) kernels.shardOf(pair.events, shards, pair.columns.shard);
    pair.columns.rowCount = result.rowCount;
    return pair.columns;
  }

  endOf(partition: number): number {
    return this.ends[partition] as number;
  }

  async stop(): Promise<void> {
    await this.filling?.catch(() => {});
    this.filling = undefined;
  }

  private fill(pair: Pair, waitMs: number): Promise<Filled> {
    pair.records.clear();
    const { clock, consumer } = this.parts;
    const filling = consumer
      .consume(pair.records, waitMs)
      .then((result) => ({ result, atMs: clock.monotonicMs() }));
    // A failure is met by the call that waits for it; until then it is nobody's.
    filling.catch(() => {});
    return filling;
  }

  private note(event: BrokerEvent): void {
    if (event.name === 'MILLRACE_OVERSIZE') {
      throw engineError(
        'oversize_record',
        `a record of partition ${event.partition ?? '?'} is larger than a batch takes: ${event.message}`,
        {
          next: 'remove the record or raise -batch-bytes',
        },
      );
    }
    if (event.fatal || event.name === 'OFFSET_OUT_OF_RANGE' || event.name === '_AUTO_OFFSET_RESET') {
      throw engineError('source_failed', `reading ${this.parts.topic} failed: ${event.message}`, {
        next: 'check the topic and its retention, then start again',
      });
    }
    this.parts.onEvent(event);
  }
}
