/** Source of events: all partitions of one topic, from given offsets, in arrival order.
 *
 *  Two pairs of batches alternate (double buffering): while the operator processes one, the broker
 *  client fills the other. No record is reordered: the order of the client's batches is the arrival
 *  order. */

import type { Kernels } from '../../addon/surface.ts';
import type { Clock } from '../../core/clock.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchConsumer, BrokerEvent, ConsumeResult } from '../../io/kafka/port.ts';
import { engineError, topicChanged } from '../errors.ts';
import type { Stages } from '../stages.ts';

/** Records, and the event of each row. */
export interface EventRows {
  readonly records: RecordBatch;
  readonly events: EventBatch;
}

/** Rows that this process received from the broker together. */
export interface Receipt {
  readonly rows: number;
  /** Monotonic ms. */
  readonly atMs: number;
}

/** First and next offset of a partition at the broker. */
export interface Bounds {
  readonly low: number;
  readonly high: number;
}

export interface EventSource {
  readonly partitionCount: number;
  /** Present bounds of every partition. */
  bounds(): Promise<readonly Bounds[]>;
  /** First offsets of partitions that were added to the topic, in order after those that are read.
   *  @throws topic_changed when the topic was deleted and created again; errors of the broker
   *  client, after which a later call may succeed */
  added(): Promise<readonly number[]>;
  /** Reads from these offsets, one for each partition; there may be more partitions than before.
   *  Rows that were read ahead are dropped. */
  start(offsets: readonly number[]): Promise<void>;
  /** Returns the next rows, decoded; valid until the next call. Undefined when the wait ended
   *  first. */
  next(waitMs: number): Promise<EventRows | undefined>;
  /** Offset before which a partition has no more to read, which may be after the last record; -1
   *  before its end was reached. */
  endOf(partition: number): number;
  /** All rows that were returned last, in their order. */
  readonly receipts: readonly Receipt[];
  /** Reports that a restart resumes at or after these offsets, one for each partition. */
  saved?(offsets: readonly number[]): void;
  /** Settles when no read is in progress; returned rows are then invalid. */
  stop(): Promise<void>;
}

export interface BrokerSourceParts {
  readonly consumer: BatchConsumer;
  readonly kernels: Pick<Kernels, 'decodeEvents'>;
  readonly clock: Clock;
  readonly topic: string;
  readonly partitionCount: number;
  /** Undefined: unknown. */
  readonly topicId?: string | undefined;
  /** Present state of the topic at the broker. */
  readonly findTopic: () => Promise<{ readonly partitions: number; readonly id: string | undefined }>;
  readonly rowCapacity: number;
  readonly arenaBytes: number;
  readonly onEvent: (event: BrokerEvent) => void;
  /** Receives the times of arrival and decoding; the caller of `next` reports the following stage.
   */
  readonly stages: Pick<Stages, 'arrived' | 'works'>;
}

interface Filled {
  readonly result: ConsumeResult;
  readonly askedMs: number;
  readonly readyMs: number;
}

/** Timeout of the query for the bounds of a partition. */
const BOUNDS_TIMEOUT_MS = 10_000;

/** Source of events from a topic: reads a batch ahead while the engine works on the batch before.
 */
export class BrokerSource implements EventSource {
  receipts: readonly Receipt[] = [];
  private readonly parts: BrokerSourceParts;
  private readonly pairs: readonly [EventRows, EventRows];
  /** One for each partition. */
  private ends: Float64Array;
  private turn: 0 | 1 = 0;
  private filling: Promise<Filled> | undefined;

  constructor(parts: BrokerSourceParts) {
    this.parts = parts;
    this.ends = new Float64Array(parts.partitionCount).fill(-1);
    const pair = (): EventRows => ({
      records: RecordBatch.create(parts.rowCapacity, parts.arenaBytes),
      events: EventBatch.create(parts.rowCapacity),
    });
    this.pairs = [pair(), pair()];
  }

  get partitionCount(): number {
    return this.ends.length;
  }

  bounds(): Promise<readonly Bounds[]> {
    return Promise.all(Array.from(this.ends, (_, partition) => this.boundsOf(partition)));
  }

  async added(): Promise<readonly number[]> {
    const known = this.partitionCount;
    const { topic, topicId, findTopic } = this.parts;
    const { partitions: count, id } = await findTopic();
    if (topicId !== undefined && id !== undefined && id !== topicId) throw topicChanged(topic, topicId, id);
    const more = Array.from({ length: Math.max(0, count - known) }, (_, i) => this.boundsOf(known + i));
    return (await Promise.all(more)).map(({ low }) => low);
  }

  async start(offsets: readonly number[]): Promise<void> {
    const ahead = await this.filling;
    this.filling = undefined;
    for (const event of ahead?.result.events ?? []) this.note(event);
    const ends = new Float64Array(offsets.length).fill(-1);
    ends.set(this.ends);
    this.ends = ends;
    await this.parts.consumer.assign(
      offsets.map((offset, partition) => ({ topic: this.parts.topic, partition, offset: BigInt(offset) })),
    );
  }

  async next(waitMs: number): Promise<EventRows | undefined> {
    const pair = this.pairs[this.turn];
    const { result, askedMs, readyMs } = await (this.filling ?? this.fill(pair, waitMs));
    // A client without receive times counts from the batch that was ready.
    this.receipts = (result.receipts ?? [{ rows: result.rowCount, ageMs: 0 }]).map(({ rows, ageMs }) => ({
      ...{ rows, atMs: readyMs - ageMs },
    }));
    this.parts.stages.arrived(askedMs, readyMs);
    this.turn = this.turn === 0 ? 1 : 0;
    this.filling = this.fill(this.pairs[this.turn], waitMs);
    for (const event of result.events) this.note(event);
    for (const end of result.ends) this.ends[end.partition] = Number(end.offset);
    if (result.rowCount === 0) return undefined;
    this.parts.stages.works('decode');
    this.parts.kernels.decodeEvents(pair.records, pair.events);
    return pair;
  }

  endOf(partition: number): number {
    return this.ends[partition] as number;
  }

  async stop(): Promise<void> {
    await this.filling?.catch(() => {});
    this.filling = undefined;
  }

  private async boundsOf(partition: number): Promise<Bounds> {
    const { consumer, topic } = this.parts;
    const { low, high } = await consumer.watermarkOffsets({ topic, partition }, BOUNDS_TIMEOUT_MS);
    return { low: Number(low), high: Number(high) };
  }

  private fill(pair: EventRows, waitMs: number): Promise<Filled> {
    pair.records.clear();
    const { clock, consumer } = this.parts;
    const askedMs = clock.monotonicMs();
    // The batch may be ready long before the thread can run its callback.
    const filling = consumer.consume(pair.records, waitMs).then((result) => ({
      result,
      askedMs,
      readyMs: result.tookMs === undefined ? clock.monotonicMs() : askedMs + result.tookMs,
    }));
    // The call that awaits the batch reports a failure; this prevents an unhandled rejection.
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
