/** Sinks of generated batches: a topic, or a sequence of bytes. */
import { coreError } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type { BatchProducer } from '../io/kafka/port.ts';
import type { BatchSink } from './pump.ts';

/** Sends each batch to one topic and requires that every row is acknowledged. */
export class BatchTopicSink implements BatchSink {
  private readonly producer: BatchProducer;
  private readonly topics: readonly string[];

  constructor(producer: BatchProducer, topic: string) {
    this.producer = producer;
    this.topics = [topic];
  }

  /** @throws unreachable if a row was not acknowledged */
  async write(batch: RecordBatch): Promise<void> {
    const report = await this.producer.produce(batch, this.topics);
    if (report.failed === 0) return;
    const why = report.events.map((event) => `${event.name}: ${event.message}`).join('; ');
    throw coreError(
      'unreachable',
      `${report.failed} of ${batch.rowCount} records were not acknowledged by topic ${this.topics[0]}: ${why}`,
      {
        next: 'check the broker, then run again: the same seed gives the same records',
      },
    );
  }
}

/** Writes the values of a batch as in its arena, without keys and separators. */
export class ByteSink implements BatchSink {
  private readonly writeBytes: (bytes: Uint8Array) => Promise<void>;

  constructor(writeBytes: (bytes: Uint8Array) => Promise<void>) {
    this.writeBytes = writeBytes;
  }

  write(batch: RecordBatch): Promise<void> {
    return this.writeBytes(batch.columns.arena.subarray(0, batch.arenaUsed));
  }
}
