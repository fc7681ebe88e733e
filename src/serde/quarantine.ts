/** Form of a quarantined record: the original record unchanged, and headers behind its own that say
 *  why and where it was refused. Every program that quarantines records writes this form, so that
 *  one command lists and redrives them. */
import type { RecordHeader } from '../core/layout/record-batch.ts';

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
export const QUARANTINE_ERROR_CHARS_MAX = 2048;
/** Most bytes that the quarantine adds to a record: an error of three bytes a character, a topic
 *  name, the names of the headers, and the frame of a batch with one record. */
export const QUARANTINE_HEADER_BYTES_MAX = 16 << 10;
/** Retention of a quarantine topic: its records are few, and a person looks at them. */
const QUARANTINE_RETENTION_MS = 28 * 24 * 3_600_000;
/** Largest record that a producer of quarantined records may send. The limit of the topic decides.
 */
export const QUARANTINE_RECORD_BYTES_MAX = 1_000_000_000;

/** Name of the quarantine topic of a topic, unless a setting names another one. */
export const quarantineTopicOf = (topic: string): string => `${topic}.quarantine`;

/** Configuration of a created quarantine topic, which has one partition.
 *  @param recordBytesMax largest record that is read */
export const quarantineConfig = (recordBytesMax: number): Readonly<Record<string, string>> => ({
  'retention.ms': String(QUARANTINE_RETENTION_MS),
  'max.message.bytes': String(recordBytesMax + QUARANTINE_HEADER_BYTES_MAX),
});

export interface QuarantineFacts {
  readonly reason: string;
  readonly error: string;
  /** Id or guid; 0 or empty: none. */
  readonly schemaId: number | string;
  /** Undefined: the record is read with the schema of its writer. */
  readonly readerVersion?: number | undefined;
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
}

/** Headers that the quarantine adds to a record.
 *  @param text encodes a value as UTF-8; a cache of it pays off, because most values repeat */
export function quarantineHeaders(
  facts: QuarantineFacts,
  text: (value: string) => Uint8Array,
): readonly RecordHeader[] {
  const { schemaId } = facts;
  return [
    [QUARANTINE_HEADER.reason, text(facts.reason)],
    [QUARANTINE_HEADER.error, text(facts.error.slice(0, QUARANTINE_ERROR_CHARS_MAX))],
    [QUARANTINE_HEADER.schemaId, text(schemaId === 0 ? '' : String(schemaId))],
    [QUARANTINE_HEADER.readerVersion, text(String(facts.readerVersion ?? ''))],
    [QUARANTINE_HEADER.sourceTopic, text(facts.topic)],
    [QUARANTINE_HEADER.sourcePartition, text(String(facts.partition))],
    [QUARANTINE_HEADER.sourceOffset, text(String(facts.offset))],
  ];
}

/** Caches encoded header values. */
export function cachedUtf8(): (text: string) => Uint8Array {
  const cache = new Map<string, Uint8Array>();
  return (text) => {
    const known = cache.get(text);
    if (known !== undefined) return known;
    const bytes = Buffer.from(text, 'utf8');
    cache.set(text, bytes);
    return bytes;
  };
}
