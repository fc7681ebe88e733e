/** The late topic: a copy of each refused event, with the reason in its headers.
 *
 *  Key and value are those of the event, up to PAYLOAD_BYTES_MAX each; the record timestamp is that
 *  of the copy. A copy may occur more than once after a crash or a failed write; source partition
 *  and offset identify duplicates. */
import { REFUSAL } from '../../../core/layout/layouts.gen.ts';
import { RecordBatch, type RecordHeader } from '../../../core/layout/record-batch.ts';
import type { BatchProducer, BrokerDriver, BrokerEvent } from '../../../io/kafka/port.ts';
import { engineError } from '../../errors.ts';
import { PERMANENT_ERRORS } from '../sink/kafka.ts';
import { type LateCopy, PAYLOAD_BYTES_MAX } from './rows.ts';
import type { LateTopic } from './side-output.ts';

const BATCH_ROWS = 4096;
/** Space for the largest copy, or for a few thousand usual copies. */
const BATCH_BYTES = 4 * 1024 * 1024;
/** Delivery timeout: a copy without acknowledgement after this time counts as not written. */
const DELIVERY_MS = 15_000;

const LATE_HEADER = {
  reason: 'millrace.reason',
  sourceTopic: 'millrace.source_topic',
  sourcePartition: 'millrace.source_partition',
  sourceOffset: 'millrace.source_offset',
  /** Watermark in ms that the event was compared with; absent before there was one. */
  watermark: 'millrace.watermark_ms',
  /** Timestamp of the source record; absent if it has none. */
  timestamp: 'millrace.timestamp_ms',
  /** Length of the original value, if the copy is truncated. */
  valueBytes: 'millrace.value_bytes',
} as const;

export const LATE_REASONS = new Map<number, string>([
  [REFUSAL.LATE, 'late'],
  [REFUSAL.LATE_AFTER_IDLE, 'late_after_idle'],
  [REFUSAL.INVALID, 'invalid'],
]);

export interface KafkaLateTopicParts {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly topic: string;
  readonly sourceTopic: string;
  /** Distance from the watermark to the least timestamp that is in time. */
  readonly latenessMs: number;
}

/** Side output in Kafka: copies of refused events with the reason in headers. A copy may be
 *  repeated after a crash or a failed write; its partition and offset identify it.
 */
export class KafkaLateTopic implements LateTopic {
  private readonly parts: KafkaLateTopicParts;
  private readonly batch = RecordBatch.create(BATCH_ROWS, BATCH_BYTES);
  private producer: BatchProducer | undefined;

  constructor(parts: KafkaLateTopicParts) {
    this.parts = parts;
  }

  async send(copies: readonly LateCopy[]): Promise<void> {
    this.batch.clear();
    for (const copy of copies) {
      const { key, value } = copy;
      const record = { key, value, headers: this.headers(copy) };
      if (this.batch.append(record)) continue;
      await this.write();
      this.batch.append(record);
    }
    await this.write();
  }

  async close(): Promise<void> {
    const { producer } = this;
    this.producer = undefined;
    await producer?.close(0);
  }

  private headers(copy: LateCopy): RecordHeader[] {
    const { sourceTopic, latenessMs } = this.parts;
    const watermark = copy.boundMs === undefined ? undefined : copy.boundMs + BigInt(latenessMs);
    const isTruncated = copy.valueBytes > PAYLOAD_BYTES_MAX;
    const values: ReadonlyArray<readonly [string, string | number | bigint | undefined]> = [
      [LATE_HEADER.reason, LATE_REASONS.get(copy.reason)],
      [LATE_HEADER.sourceTopic, sourceTopic],
      [LATE_HEADER.sourcePartition, copy.partition],
      [LATE_HEADER.sourceOffset, copy.offset],
      [LATE_HEADER.watermark, watermark],
      [LATE_HEADER.timestamp, copy.timestampMs],
      [LATE_HEADER.valueBytes, isTruncated ? copy.valueBytes : undefined],
    ];
    return values.flatMap(([name, value]): RecordHeader[] =>
      value === undefined ? [] : [[name, Buffer.from(String(value), 'utf8')]],
    );
  }

  /** @throws late_failed, late_refused, and errors of the client */
  private async write(): Promise<void> {
    if (this.batch.rowCount === 0) return;
    const { driver, brokers, topic } = this.parts;
    this.producer ??= await driver.producer({
      brokers,
      clientId: 'millrace-engine-late',
      acks: -1,
      idempotence: true,
      compression: 'lz4',
      properties: { 'message.timeout.ms': DELIVERY_MS, 'linger.ms': 5 },
    });
    let failed: number;
    let events: readonly BrokerEvent[];
    try {
      ({ failed, events } = await this.producer.produce(this.batch, [topic]));
    } catch (thrown) {
      await this.close();
      throw thrown;
    }
    this.batch.clear();
    if (failed === 0) return;
    // A producer that has dropped records may refuse all later ones, so the next write opens a new
    // one.
    await this.close();
    const permanent = events.find((event) => PERMANENT_ERRORS.has(event.name));
    const event = permanent ?? (events[0] as BrokerEvent);
    const line = `${failed} late events were not written to topic ${topic}: ${event.message}`;
    if (permanent === undefined) throw engineError('late_failed', line, { details: { event } });
    throw engineError('late_refused', line, {
      next: 'fix the cause that the broker reports and restart; the copies are sent then',
      details: { event },
    });
  }
}
