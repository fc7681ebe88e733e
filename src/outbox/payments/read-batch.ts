/** One batch of parsed records, which is read while the batch before it is written.
 *
 *  A record costs one object here. Its key and value stay in the batch's buffer until they are
 *  read, which happens only for a record that is parked or duplicated.
 */
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { ConsumeResult, TopicPartitionOffset } from '../../io/kafka/port.ts';
import type { Delivery } from './duplicates.ts';
import { type PaymentEvent, readPaymentEvent } from './event.ts';
import { readEventFast } from './fast-event.ts';

/** Delivery whose bytes are in the buffer of its batch. */
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
  /** Partition ends that are reached when this batch is written. */
  ends: readonly TopicPartitionOffset[] = [];
  /** Partitions that were revoked since `begin`; their records belong to the next owner. */
  readonly revoked = new Set<number>();
  private bytes: Buffer;

  constructor(rows: number, arenaBytes: number) {
    this.records = RecordBatch.create(rows, arenaBytes);
    this.bytes = bytesOf(this.records);
  }

  /** Maximum number of rows. */
  get rows(): number {
    return this.records.rowCapacity;
  }

  begin(): void {
    this.revoked.clear();
    this.ends = [];
  }

  /** Replaces the buffer, which must be empty, by a larger one. */
  grow(arenaBytes: number): void {
    this.records = RecordBatch.create(this.rows, arenaBytes);
    this.bytes = bytesOf(this.records);
  }

  /** Parses the records in their order; calls `took` with the next offset of each partition. */
  deliveries(
    topic: string,
    { rowCount }: ConsumeResult,
    took: (partition: number, next: bigint) => void,
  ): Delivery[] {
    const { records, bytes, revoked } = this;
    const { partition } = records.columns;
    const deliveries: Delivery[] = [];
    const last = new Map<number, bigint>();
    for (let row = 0; row < rowCount; row++) {
      if (revoked.has(partition[row] as number)) continue;
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
  const fast = length < 0 ? undefined : readEventFast(bytes, start, start + length);
  return fast ?? readPaymentEvent(records.value(row));
}
