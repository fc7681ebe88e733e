/** Quarantine: a topic that keeps each record that cannot be read, unchanged, with the reason in
 *  headers. */
import type { RecordBatch, RecordHeader } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import type { FailedRow } from './decoder.ts';
import { batchOf, deliver } from './deliver.ts';

/** Names of the headers that are added behind the record's own headers. */
export const QUARANTINE_HEADER = {
  reason: 'millrace.reason',
  error: 'millrace.error',
  schemaId: 'millrace.schema_id',
  readerVersion: 'millrace.reader_version',
  sourceTopic: 'millrace.source_topic',
  sourcePartition: 'millrace.source_partition',
  sourceOffset: 'millrace.source_offset',
} as const;

/** Most characters of an error text that are kept: a verdict on a large schema can be long. */
const ERROR_CHARS_MAX = 2048;
/** Most bytes that the quarantine adds to a record: an error of three bytes a character, a topic
 *  name, the names of the headers, and the frame of a batch with one record. */
export const QUARANTINE_HEADER_BYTES_MAX = 16 << 10;

export interface QuarantineOptions {
  readonly producer: BatchProducer;
  readonly topic: string;
  /** Absent: records are read with the schemas of their writers. */
  readonly readerVersion?: number | undefined;
}

export class Quarantine {
  private readonly options: QuarantineOptions;

  constructor(options: QuarantineOptions) {
    this.options = options;
  }

  get topic(): string {
    return this.options.topic;
  }

  /** Resolves when every record is acknowledged or refused as too large.
   *  @returns the rows that the topic refuses as too large
   *  @throws not_delivered: no later offset may be committed */
  async write(
    records: RecordBatch,
    sourceTopic: string,
    rows: readonly FailedRow[],
  ): Promise<readonly FailedRow[]> {
    const utf8 = cachedUtf8();
    const batch = batchOf(
      rows.map((failed) => ({
        key: records.key(failed.row),
        value: records.value(failed.row),
        timestamp: records.columns.timestamp[failed.row] as bigint,
        headers: [...records.headers(failed.row), ...this.headers(records, sourceTopic, failed, utf8)],
      })),
    );
    const refused = await deliver(this.options.producer, batch, this.options.topic);
    return refused.map((row) => rows[row] as FailedRow);
  }

  private headers(
    records: RecordBatch,
    sourceTopic: string,
    failed: FailedRow,
    text: (value: string) => Uint8Array,
  ): RecordHeader[] {
    const { partition, offset } = records.columns;
    return [
      [QUARANTINE_HEADER.reason, text(failed.reason)],
      [QUARANTINE_HEADER.error, text(failed.error.message.slice(0, ERROR_CHARS_MAX))],
      [QUARANTINE_HEADER.schemaId, text(failed.schemaId === 0 ? '' : String(failed.schemaId))],
      [QUARANTINE_HEADER.readerVersion, text(String(this.options.readerVersion ?? ''))],
      [QUARANTINE_HEADER.sourceTopic, text(sourceTopic)],
      [QUARANTINE_HEADER.sourcePartition, text(String(partition[failed.row]))],
      [QUARANTINE_HEADER.sourceOffset, text(String(offset[failed.row]))],
    ];
  }
}

/** Caches encoded header values: most header values of a batch are the same. */
function cachedUtf8(): (text: string) => Uint8Array {
  const cache = new Map<string, Uint8Array>();
  return (text) => {
    const known = cache.get(text);
    if (known !== undefined) return known;
    const bytes = Buffer.from(text, 'utf8');
    cache.set(text, bytes);
    return bytes;
  };
}
