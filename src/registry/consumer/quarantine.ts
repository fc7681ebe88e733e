/** Quarantine: a topic that keeps each record that cannot be read, unchanged, with the reason in
 *  headers. */
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import { cachedUtf8, quarantineHeaders } from '../../serde/quarantine.ts';
import type { FailedRow } from './decoder.ts';
import { batchOf, deliver } from './deliver.ts';

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
        headers: [
          ...records.headers(failed.row),
          ...quarantineHeaders(
            {
              ...{ reason: failed.reason, error: failed.error.message, schemaId: failed.schemaId },
              readerVersion: this.options.readerVersion,
              topic: sourceTopic,
              partition: records.columns.partition[failed.row] as number,
              offset: records.columns.offset[failed.row] as bigint,
            },
            utf8,
          ),
        ],
      })),
    );
    const refused = await deliver(this.options.producer, batch, this.options.topic);
    return refused.map((row) => rows[row] as FailedRow);
  }
}
