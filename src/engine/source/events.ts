/** Event source: every partition of one topic, from given offsets, in arrival order.
 *
 *  Double buffering: while the operator works on one pair of batches, the broker client fills the
 *  other. Records keep the order in which the client delivers them. */

import type { Clock } from '../../core/clock.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchConsumer, BrokerEvent, ConsumeResult } from '../../io/kafka/port.ts';
import { engineError, topicChanged } from '../errors.ts';
import type { Stages } from '../stages.ts';
import type { EventInput } from './input/port.ts';

/** Records, and the event decoded from each row. */
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
  /** Current bounds of every partition. */
  bounds(): Promise<readonly Bounds[]>;
  /** First offsets of partitions added since the last read of the topic, in partition order.
   *  @throws topic_changed when the topic was deleted and recreated; errors of the broker client,
   *  after which the caller retries */
  added(): Promise<readonly number[]>;
  /** Reads from these offsets, one for each partition; there may be more partitions than before.
   *  Drops rows that were read ahead. */
  start(offsets: readonly number[]): Promise<void>;
  /** Returns the next rows, decoded; valid until the next call. Undefined if the wait timed out, or
   *  the run is to end while the input waits for its registry. */
  next(waitMs: number): Promise<EventRows | undefined>;
  /** Offset up to which a partition is known to hold nothing more to read. It may lie beyond the
   *  last record; -1 before the end was reached. */
  endOf(partition: number): number;
  /** Receipts of the rows that `next` returned last, in row order. */
  readonly receipts: readonly Receipt[];
  /** Reports that a restart resumes at these offsets, one for each partition, or later. */
  saved?(offsets: readonly number[]): void;
  /** Settles when no read is in flight; rows returned before are no longer valid. */
  stop(): Promise<void>;
}

export interface BrokerSourceParts {
  readonly consumer: BatchConsumer;
  /** Decodes the records. */
  readonly input: Pick<EventInput, 'decode' | 'isReady'>;
  readonly clock: Clock;
  readonly topic: string;
  readonly partitionCount: number;
  /** Undefined: unknown. */
  readonly topicId?: string | undefined;
  /** Reads the current metadata of the topic from the broker. */
  readonly findTopic: () => Promise<{ readonly partitions: number; readonly id: string | undefined }>;
  readonly rowCapacity: number;
  readonly arenaBytes: number;
  readonly onEvent: (event: BrokerEvent) => void;
  /** Receives the arrival and the decoding of records; the consumer of the rows reports the stages
   *  after that. */
  readonly stages: Pick<Stages, 'recordsReady' | 'enter'>;
}

interface Filled {
  readonly result: ConsumeResult;
  readonly askedMs: number;
  readonly readyMs: number;
}

/** Events of a batch that cannot be read: its bytes or their compression are damaged. */
const DAMAGES: ReadonlySet<string> = new Set(['_BAD_MSG', '_BAD_COMPRESSION']);
/** Events after which records would be missing. */
const LOSSES: ReadonlySet<string> = new Set(['OFFSET_OUT_OF_RANGE', '_AUTO_OFFSET_RESET', ...DAMAGES]);

/** Timeout of the query for the bounds of a partition. */
const BOUNDS_TIMEOUT_MS = 10_000;

/** Source of events from a topic: reads a batch ahead while the engine works on the batch before.
 */
export class BrokerSource implements EventSource {
  receipts: readonly Receipt[] = [];
  private readonly parts: BrokerSourceParts;
  private readonly pairs: readonly [EventRows, EventRows];
  /** End offset of each partition. */
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
    // A client without receipt times: the latency of its records starts when the batch is ready.
    this.receipts = (result.receipts ?? [{ rows: result.rowCount, ageMs: 0 }]).map(({ rows, ageMs }) => ({
      ...{ rows, atMs: readyMs - ageMs },
    }));
    this.parts.stages.recordsReady(askedMs, readyMs);
    this.turn = this.turn === 0 ? 1 : 0;
    this.filling = this.fill(this.pairs[this.turn], waitMs);
    for (const event of result.events) this.note(event);
    for (const end of result.ends) this.ends[end.partition] = Number(end.offset);
    if (result.rowCount === 0) return undefined;
    this.parts.stages.enter('decode');
    const { input } = this.parts;
    const loading = input.decode(pair.records, pair.events);
    // Only a batch with a schema that is not loaded yet waits.
    if (loading !== undefined) await loading;
    return input.isReady ? pair : undefined;
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
    // The batch may be ready long before this thread runs the callback, so prefer the client's
    // time.
    const filling = consumer.consume(pair.records, waitMs).then((result) => ({
      result,
      askedMs,
      readyMs: result.tookMs === undefined ? clock.monotonicMs() : askedMs + result.tookMs,
    }));
    // The next call of `next` awaits this promise and throws its error; until then, prevent an
    // unhandled rejection.
    filling.catch(() => {});
    return filling;
  }

  private note(event: BrokerEvent): void {
    if (event.name === 'MILLRACE_OVERSIZE') {
      throw engineError(
        'oversize_record',
        `a record of partition ${event.partition ?? '?'} exceeds the batch size: ${event.message}`,
        {
          next: 'remove the record or raise -batch-bytes',
        },
      );
    }
    if (event.fatal || LOSSES.has(event.name)) {
      throw engineError('source_failed', `reading ${this.parts.topic} failed: ${event.message}`, {
        next: DAMAGES.has(event.name)
          ? 'check the disks of the broker; raise receive.message.max.bytes for a batch that inflates to more'
          : 'check the topic and its retention, then start again',
      });
    }
    this.parts.onEvent(event);
  }
}
