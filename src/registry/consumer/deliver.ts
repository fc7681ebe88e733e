/** Delivers a batch to one topic and distinguishes records that are too large from broker errors.
 */
import { invariant } from '../../core/errors.ts';
import { RECORD_HEADER } from '../../core/layout/layouts.gen.ts';
import { RecordBatch, type RecordInput } from '../../core/layout/record-batch.ts';
import type { BatchProducer } from '../../io/kafka/port.ts';
import { registryError } from '../errors.ts';

/** librdkafka's error names for too large: the limit of the topic or client, and the topic's
 *  segment size. */
export const TOO_LARGE: readonly string[] = ['MSG_SIZE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'];

/** Resolves when every row is acknowledged or refused as too large.
 *  @returns the rows that the topic refuses as too large
 *  @throws not_delivered: a row failed for another reason, so no offset of the batch may be
 *  committed */
export async function deliver(
  producer: BatchProducer,
  batch: RecordBatch,
  topic: string,
): Promise<readonly number[]> {
  const report = await producer.produce(batch, [topic]);
  if (report.failed === 0) return [];
  const others = report.events.filter(({ name }) => !TOO_LARGE.includes(name));
  if (others.length > 0) {
    const why = others.map((event) => `${event.name}: ${event.message}`).join('; ');
    throw registryError('not_delivered', `${report.failed} records were not delivered to ${topic}: ${why}`, {
      next: 'check the broker; the offsets of these records are not committed',
    });
  }
  const refused = [...report.status.keys()].filter((row) => report.status[row] !== 0);
  if (batch.rowCount === 1) return refused;
  // A broker refuses a whole set of records as too large. Each row is sent alone to find those that
  // are too large themselves.
  const tooLarge: number[] = [];
  for (const row of refused)
    if ((await deliver(producer, copyOf(batch, row), topic)).length > 0) tooLarge.push(row);
  return tooLarge;
}

/** Bytes of a row in an arena. */
export function rowBytes({ columns }: RecordBatch, row: number): number {
  const { keyLength, valueLength, headersLength } = columns;
  return (
    Math.max(0, keyLength[row] as number) +
    Math.max(0, valueLength[row] as number) +
    (headersLength[row] as number)
  );
}

/** Builds a batch of exactly these records. */
export function batchOf(records: readonly RecordInput[]): RecordBatch {
  const batch = RecordBatch.create(
    records.length,
    records.reduce((sum, record) => sum + inputBytes(record), 0),
  );
  for (const record of records)
    invariant(batch.append(record), 'a batch has room for the records it is made for');
  return batch;
}

/** Bytes of a record as `append` writes it. A header name that is not UTF-8 grows when it is
 *  written, so the length of the source row is no bound. */
function inputBytes({ key, value, headers }: RecordInput): number {
  const ofHeaders = (headers ?? []).reduce(
    (sum, [name, content]) => sum + RECORD_HEADER.BYTES + Buffer.byteLength(name) + (content?.length ?? 0),
    0,
  );
  return (key?.length ?? 0) + (value?.length ?? 0) + ofHeaders;
}

/** Builds a batch with a copy of one row. */
export function copyOf(batch: RecordBatch, row: number): RecordBatch {
  const { topicIndex, partition, offset, timestamp, timestampType } = batch.columns;
  return batchOf([
    {
      topicIndex: topicIndex[row] as number,
      partition: partition[row] as number,
      offset: offset[row] as bigint,
      timestamp: timestamp[row] as bigint,
      timestampType: timestampType[row] as number,
      key: batch.key(row),
      value: batch.value(row),
      headers: batch.headers(row),
    },
  ]);
}
