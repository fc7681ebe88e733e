/** One batch of records with what they say: read while the batch before it is written, then written
 *  itself.
 *
 *  A record costs one object here; its key and value stay in the batch's buffer until somebody
 *  asks, which only a record that is parked or copied makes happen.
 */
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { ConsumeResult, TopicPartitionOffset } from '../../io/kafka/port.ts';
import type { Delivery } from './duplicates.ts';
import { type PaymentEvent, readPaymentEvent } from './event.ts';
import { readUsualEvent } from './usual-event.ts';

/** A record where it was read to. */
class RecordDelivery implements Delivery {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly event: PaymentEvent;
  readonly injected = false;
  private readonly records: RecordBatch;
  private readonly row: number;

  constructor(topic: string, records: RecordBatch, row: number, event: PaymentEvent) {
    this.topic = topic;
    this.partition = records.columns.partition[row] as number;
    this.offset = records.columns.offset[row] as bigint;
    this.event = event;
    this.records = records;
    this.row = row;
  }

  get key(): Uint8Array | null {
    return this.records.key(this.row);
  }
  get value(): Uint8Array | null {
    return this.records.value(this.row);
  }
}

export class ReadBatch {
  records: RecordBatch;
  /** Partition ends that are reached once this batch is written. */
  ends: readonly TopicPartitionOffset[] = [];
  /** Partitions that were taken away since this batch was begun: what it holds of them is their
   *  next owner's. */
  readonly left = new Set<number>();
  private bytes: Buffer;

  constructor(rows: number, arenaBytes: number) {
    this.records = RecordBatch.create(rows, arenaBytes);
    this.bytes = bytesOf(this.records);
  }

  /** The rows it holds at most. */
  get rows(): number {
    return this.records.rowCapacity;
  }

  begin(): void {
    this.left.clear();
    this.ends = [];
  }

  /** Makes room for a larger record; the batch must be empty. */
  grow(arenaBytes: number): void {
    this.records = RecordBatch.create(this.rows, arenaBytes);
    this.bytes = bytesOf(this.records);
  }

  /** What the records say, in their order; `took` is told the next offset of each partition. */
  deliveries(
    topic: string,
    { rowCount }: ConsumeResult,
    took: (partition: number, next: bigint) => void,
  ): Delivery[] {
    const { records, bytes, left } = this;
    const { partition } = records.columns;
    const deliveries: Delivery[] = [];
    const last = new Map<number, bigint>();
    for (let row = 0; row < rowCount; row++) {
      if (left.has(partition[row] as number)) continue;
      const delivery = new RecordDelivery(topic, records, row, eventOf(records, bytes, row));
      last.set(delivery.partition, delivery.offset);
      deliveries.push(delivery);
    }
    for (const [place, offset] of last) took(place, offset + 1n);
    return deliveries;
  }
}

function bytesOf({ columns: { arena } }: RecordBatch): Buffer {
  return Buffer.from(arena.buffer as ArrayBuffer, arena.byteOffset, arena.byteLength);
}

function eventOf(records: RecordBatch, bytes: Buffer, row: number): PaymentEvent {
  const start = records.columns.valueStart[row] as number;
  const length = records.columns.valueLength[row] as number;
  const usual = length < 0 ? undefined : readUsualEvent(bytes, start, start + length);
  return usual ?? readPaymentEvent(records.value(row));
}
