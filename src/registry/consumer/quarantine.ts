/** The quarantine: a topic that keeps each record that cannot be read, untouched, with the reason beside it. */
import { RecordBatch, type RecordHeader } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/broker/port.ts';
import { registryError } from '../errors.ts';
import type { FailedRow } from './decoder.ts';

/** Names of the headers that are added behind the record's own. */
export const QUARANTINE_HEADER = {
  reason: 'millrace.reason',
  error: 'millrace.error',
  schemaId: 'millrace.schema_id',
  readerVersion: 'millrace.reader_version',
  sourceTopic: 'millrace.source_topic',
  sourcePartition: 'millrace.source_partition',
  sourceOffset: 'millrace.source_offset',
} as const;

/** Characters of an error that are kept: a verdict on a large schema can be long. */
const ERROR_CHARS_MAX = 2048;
const BATCH_ROWS = 256;
const BATCH_BYTES = 1 << 20;

export interface QuarantineOptions {
  readonly producer: BatchProducer;
  readonly topic: string;
  readonly readerVersion: number;
}

export class Quarantine {
  private readonly options: QuarantineOptions;
  private readonly topics: readonly string[];
  private readonly batch = RecordBatch.create(BATCH_ROWS, BATCH_BYTES);

  constructor(options: QuarantineOptions) {
    this.options = options;
    this.topics = [options.topic];
  }

  /** Settles when every record is acknowledged. @throws not_delivered: nothing after it may be committed */
  async write(records: RecordBatch, sourceTopic: string, rows: readonly FailedRow[]): Promise<void> {
    this.batch.clear();
    for (const failed of rows) {
      const input = {
        key: records.key(failed.row),
        value: records.value(failed.row),
        timestamp: records.columns.timestamp[failed.row] as bigint,
        headers: [...records.headers(failed.row), ...this.headers(records, sourceTopic, failed)],
      };
      if (this.batch.append(input)) continue;
      await this.flush(this.batch);
      if (this.batch.append(input)) continue;
      // A record larger than the batch gets one of its own.
      const bytes = input.headers.reduce(
        (sum, [name, value]) => sum + 16 + name.length * 4 + (value?.length ?? 0),
        0,
      );
      const single = RecordBatch.create(1, bytes + (input.key?.length ?? 0) + (input.value?.length ?? 0));
      single.append(input);
      await this.flush(single);
    }
    await this.flush(this.batch);
  }

  private headers(records: RecordBatch, sourceTopic: string, failed: FailedRow): RecordHeader[] {
    const text = (value: string): Uint8Array => Buffer.from(value, 'utf8');
    const { partition, offset } = records.columns;
    return [
      [QUARANTINE_HEADER.reason, text(failed.reason)],
      [QUARANTINE_HEADER.error, text(failed.error.message.slice(0, ERROR_CHARS_MAX))],
      [QUARANTINE_HEADER.schemaId, text(failed.schemaId === 0 ? '' : String(failed.schemaId))],
      [QUARANTINE_HEADER.readerVersion, text(String(this.options.readerVersion))],
      [QUARANTINE_HEADER.sourceTopic, text(sourceTopic)],
      [QUARANTINE_HEADER.sourcePartition, text(String(partition[failed.row]))],
      [QUARANTINE_HEADER.sourceOffset, text(String(offset[failed.row]))],
    ];
  }

  private async flush(batch: RecordBatch): Promise<void> {
    if (batch.rowCount === 0) return;
    const report = await this.options.producer.produce(batch, this.topics);
    if (report.failed > 0) {
      const why = report.events.map((event) => `${event.name}: ${event.message}`).join('; ');
      throw registryError(
        'not_delivered',
        `${report.failed} records could not be parked in ${this.options.topic}: ${why}`,
        {
          next: 'check the broker and that the quarantine topic takes records this large; their offsets are not committed',
        },
      );
    }
    batch.clear();
  }
}
