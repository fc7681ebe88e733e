/** Reads quarantine topics. */
import { placeOf } from './decoded.ts';
import type { TopicReader } from './topic.ts';

export interface QuarantinedRecord {
  /** Position in the source topic. */
  readonly place: string;
  readonly reason: string;
  readonly keyHex: string;
  readonly valueHex: string;
}

export interface QuarantineContent {
  readonly records: readonly QuarantinedRecord[];
  /** Records of another source topic, and records without the headers of the demo. */
  readonly faults: readonly string[];
}

export const hex = (bytes: Uint8Array | null): string =>
  bytes === null ? 'null' : Buffer.from(bytes).toString('hex');

/** Reads all records of quarantine topics. @param sources source topic by quarantine topic
 *  @param origin value that the header `origin` of each record must have; undefined: no header */
export async function readQuarantines(
  reader: TopicReader,
  sources: ReadonlyMap<string, string>,
  origin: string | undefined,
): Promise<ReadonlyMap<string, QuarantineContent>> {
  const found = new Map(
    [...sources.keys()].map((topic) => [
      topic,
      { records: [] as QuarantinedRecord[], faults: [] as string[] },
    ]),
  );
  await reader.read([...sources.keys()], (topic, record) => {
    const state = found.get(topic);
    if (state === undefined) return;
    const headers = record.headers();
    if (headers.get('millrace.source_topic') !== sources.get(topic))
      state.faults.push(`a record of ${headers.get('millrace.source_topic')}`);
    if (headers.get('origin') !== origin) state.faults.push('a record without its own headers');
    state.records.push({
      place: placeOf(
        headers.get('millrace.source_partition') ?? '?',
        headers.get('millrace.source_offset') ?? '?',
      ),
      reason: headers.get('millrace.reason') ?? 'none',
      keyHex: hex(record.key),
      valueHex: hex(record.value),
    });
  });
  return found;
}
