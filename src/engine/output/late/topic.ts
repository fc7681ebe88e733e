/** The late topic: a copy of each refused event, with the reason in its headers. Late elements of a
 *  record's list share a copy of the record.
 *
 *  Key and value are those of the event, up to PAYLOAD_BYTES_MAX each; the record timestamp is that
 *  of the copy. A copy may occur more than once after a crash or a failed write; source partition
 *  and offset identify duplicates. */
import { REFUSAL } from '../../../core/layout/layouts.gen.ts';
import type { RecordHeader } from '../../../core/layout/record-batch.ts';
import type { BrokerDriver } from '../../../io/kafka/port.ts';
import { engineError } from '../../errors.ts';
import { CopyProducer } from '../side/copies.ts';
import type { SideTopic } from '../side/sender.ts';
import { type LateCopy, PAYLOAD_BYTES_MAX } from './rows.ts';

/** Space for the largest copy, or for a few thousand usual copies. */
const BATCH_BYTES = 4 * 1024 * 1024;

const LATE_HEADER = {
  reason: 'millrace.reason',
  sourceTopic: 'millrace.source_topic',
  sourcePartition: 'millrace.source_partition',
  sourceOffset: 'millrace.source_offset',
  /** Elements of the record's list that are late, from 0, with commas; absent if the event is the
   *  record. */
  sourceElements: 'millrace.source_elements',
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
 *  repeated after a crash or a failed write; the partition and offset of its source record identify
 *  it. */
export class KafkaLateTopic implements SideTopic<LateCopy> {
  private readonly parts: KafkaLateTopicParts;
  private readonly producer: CopyProducer;

  constructor(parts: KafkaLateTopicParts) {
    this.parts = parts;
    const { driver, brokers, topic } = parts;
    this.producer = new CopyProducer({
      ...{ driver, brokers, topic, clientId: 'millrace-engine-late', batchBytes: BATCH_BYTES },
      failed: (failed, event, isPermanent) => {
        const line = `${failed} late events were not written to topic ${topic}: ${event.message}`;
        if (!isPermanent) return engineError('late_failed', line, { details: { event } });
        return engineError('late_refused', line, {
          next: 'fix the cause that the broker reports and restart; the copies are sent then',
          details: { event },
        });
      },
    });
  }

  /** @throws late_failed, late_refused, and errors of the client */
  send(copies: readonly LateCopy[]): Promise<void> {
    return this.producer.send(
      copies.map((copy) => ({ key: copy.key, value: copy.value, headers: this.headers(copy) })),
    );
  }

  close(): Promise<void> {
    return this.producer.close();
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
      [LATE_HEADER.sourceElements, copy.elements],
      [LATE_HEADER.watermark, watermark],
      [LATE_HEADER.timestamp, copy.timestampMs],
      [LATE_HEADER.valueBytes, isTruncated ? copy.valueBytes : undefined],
    ];
    return values.flatMap(([name, value]): RecordHeader[] =>
      value === undefined ? [] : [[name, Buffer.from(String(value), 'utf8')]],
    );
  }
}
