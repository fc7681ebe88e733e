/** Quarantined record: the original record, and the facts that the quarantine added as headers.
 *
 *  Invariants: (1) only the last header of each quarantine name is removed, so a record whose own
 *  headers have such names comes back unchanged; (2) the id depends on the source position, the key
 *  and the value alone, so it is the same in every run and for every copy in the quarantine. */
import { createHash } from 'node:crypto';
import type { RecordBatch, RecordHeader, RecordInput } from '../../core/layout/record-batch.ts';
import {
  EVENT_REASONS,
  type EventReason,
  QUARANTINE_REASONS,
  type QuarantineReason,
} from '../../serde/errors.ts';
import { QUARANTINE_HEADER } from '../../serde/quarantine.ts';
import { headersOf } from '../consumer/any.ts';

/** Header of a redriven record: id of the record that was quarantined first. */
export const RECORD_ID_HEADER = 'millrace.record_id';

/** Reasons that Millrace writes. */
const KNOWN_REASONS = [...QUARANTINE_REASONS, ...EVENT_REASONS] as const;

/** Reasons of quarantined records. `other`: a reason of another program. */
export const REDRIVE_REASONS = [...KNOWN_REASONS, 'other'] as const;
export type RedriveReason = QuarantineReason | EventReason | 'other';

/** Hex digits of the digest in an id. The digest distinguishes records with the same position in a
 *  topic that was deleted and created again. */
const DIGEST_DIGITS = 16;

/** Most characters of a text header that is shown. */
const TEXT_CHARS_MAX = 4096;

/** Most characters of a schema id or guid. */
const ID_CHARS_MAX = 36;

const ADDED: ReadonlySet<string> = new Set(Object.values(QUARANTINE_HEADER));
const PARTITION = /^\d{1,10}$/;
const OFFSET = /^\d{1,18}$/;
const RECORD_ID = /^[\w.-]{1,249}\/\d{1,10}\/\d{1,18}\/([\da-f]{16})$/;

export interface SourcePlace {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
}

export interface Quarantined {
  readonly kind: 'quarantined';
  /** `TOPIC/PARTITION/OFFSET/DIGEST` of the source record. */
  readonly id: string;
  readonly reason: RedriveReason;
  readonly source: SourcePlace;
  /** Error when the record was quarantined. */
  readonly error: string;
  /** Schema id or guid; empty without one. */
  readonly schemaId: string;
  /** Empty: the record was read with the schema of its writer. */
  readonly readerVersion: string;
  /** Headers of the original record. */
  readonly headers: readonly RecordHeader[];
}

/** Record of the quarantine topic that the quarantine did not write. */
interface Foreign {
  readonly kind: 'foreign';
  /** Missing or invalid header. */
  readonly why: string;
}

const textOf = (value: Uint8Array | null | undefined): string =>
  value === null || value === undefined
    ? ''
    : Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('utf8', 0, TEXT_CHARS_MAX);

/** Reads a record of the quarantine topic. Headers are borrowed from the batch. */
export function readQuarantined(records: RecordBatch, row: number): Quarantined | Foreign {
  const all = headersOf(records, row);
  const last = new Map<string, number>();
  all.forEach(([name], index) => {
    if (ADDED.has(name)) last.set(name, index);
  });
  const text = (name: string): string => textOf(all[last.get(name) ?? -1]?.[1]);
  const topic = text(QUARANTINE_HEADER.sourceTopic);
  const partition = text(QUARANTINE_HEADER.sourcePartition);
  const offset = text(QUARANTINE_HEADER.sourceOffset);
  const missing = [
    [QUARANTINE_HEADER.reason, text(QUARANTINE_HEADER.reason) !== ''],
    [QUARANTINE_HEADER.sourceTopic, topic !== ''],
    [QUARANTINE_HEADER.sourcePartition, PARTITION.test(partition)],
    [QUARANTINE_HEADER.sourceOffset, OFFSET.test(offset)],
  ].find(([, isValid]) => !isValid);
  if (missing !== undefined) return { kind: 'foreign', why: `no valid header ${missing[0]}` };
  const added = new Set(last.values());
  const source = { topic, partition: Number(partition), offset: BigInt(offset) };
  return {
    kind: 'quarantined',
    id: `${topic}/${source.partition}/${source.offset}/${digestOf(records.key(row), records.value(row))}`,
    reason: reasonOf(text(QUARANTINE_HEADER.reason)),
    source,
    error: text(QUARANTINE_HEADER.error),
    schemaId: text(QUARANTINE_HEADER.schemaId).slice(0, ID_CHARS_MAX),
    readerVersion: text(QUARANTINE_HEADER.readerVersion),
    headers: all.filter((_, index) => !added.has(index)),
  };
}

/** The label set of the metrics is closed. */
const reasonOf = (text: string): RedriveReason => KNOWN_REASONS.find((one) => one === text) ?? 'other';

function digestOf(key: Uint8Array | null, value: Uint8Array | null): string {
  const hash = createHash('sha256');
  for (const bytes of [key, value]) {
    const length = Buffer.alloc(4);
    length.writeInt32BE(bytes?.length ?? -1);
    hash.update(length);
    if (bytes !== null) hash.update(bytes);
  }
  return hash.digest('hex').slice(0, DIGEST_DIGITS);
}

/** The record as it was in its source topic. */
export function restored(records: RecordBatch, row: number, one: Quarantined): RecordInput {
  const { timestamp, timestampType } = records.columns;
  return {
    partition: one.source.partition,
    offset: one.source.offset,
    timestamp: timestamp[row] as bigint,
    timestampType: timestampType[row] as number,
    key: records.key(row),
    value: records.value(row),
    headers: one.headers,
  };
}

/** Id that a redriven record carries: that of its first redrive if it still has the same content,
 *  else its own. A program that copies headers to other records makes no false id. */
export function recordIdOf({ id, headers }: Quarantined): string {
  const carried = textOf(headers.findLast(([name]) => name === RECORD_ID_HEADER)?.[1]);
  return RECORD_ID.exec(carried)?.[1] === id.slice(-DIGEST_DIGITS) ? carried : id;
}

/** Headers of a redriven record: its own, and its id. */
export function redrivenHeaders(one: Quarantined): readonly RecordHeader[] {
  return [
    ...one.headers.filter(([name]) => name !== RECORD_ID_HEADER),
    [RECORD_ID_HEADER, Buffer.from(recordIdOf(one), 'utf8')],
  ];
}
