/** Encoding of invalid records in a changelog record, which keeps them whole until the quarantine
 *  topic has acknowledged them.
 *
 *      each, padded to 8: partition u32 | reason u32 (EVENT_STATUS.*) | offset i64 |
 *        timestamp i64 | has timestamp u32 | schema id u32 (0: none) | bytes of the key i32 (-1:
 *        null) | of the value i32 (-1: null) | of the headers u32 | of the error u32 |
 *        key | value | headers, as a record batch has them | error, UTF-8
 *
 *  All little-endian. */
import { EVENT_STATUS, RECORD_HEADER, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch, RecordHeader } from '../../../core/layout/record-batch.ts';
import {
  EVENT_REASONS,
  type EventReason,
  QUARANTINE_REASONS,
  type QuarantineReason,
} from '../../../serde/errors.ts';
import { QUARANTINE_ERROR_CHARS_MAX } from '../../../serde/quarantine.ts';
import { padded, payloadBytes, type SideBytes, viewOf } from '../side/sections.ts';

const COPY_BYTES = 48;

/** Reasons of the records that are quarantined, by status. Other invalid records are tombstones, or
 *  belong to the fixed layout, whose invalid records are only counted. */
const REASON_OF: Readonly<Record<number, QuarantineReason | EventReason>> = Object.fromEntries(
  [...QUARANTINE_REASONS, ...EVENT_REASONS].map((reason) => [
    EVENT_STATUS[reason.toUpperCase() as Uppercase<QuarantineReason | EventReason>],
    reason,
  ]),
);

/** True if a record with this status is quarantined. */
export const isQuarantined = (status: number): boolean => REASON_OF[status] !== undefined;

export interface QuarantineCopy {
  readonly partition: number;
  readonly offset: bigint;
  readonly reason: QuarantineReason | EventReason;
  /** Undefined: the record has none. */
  readonly timestampMs: bigint | undefined;
  /** 0: none. */
  readonly schemaId: number;
  readonly error: string;
  /** Borrowed, as the value and the values of the headers. */
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

/** Invalid row of a batch. */
export interface InvalidRow {
  readonly row: number;
  /** EVENT_STATUS.* */
  readonly status: number;
  readonly schemaId: number;
  readonly error: string;
}

/** REQUIRES: at least one row, each with a status of a quarantined record. */
export function encodeQuarantine(records: RecordBatch, rows: readonly InvalidRow[]): SideBytes {
  const { columns } = records;
  const errors = rows.map(({ error }) => Buffer.from(error.slice(0, QUARANTINE_ERROR_CHARS_MAX), 'utf8'));
  const bytesOf = (i: number): number => {
    const { row } = rows[i] as InvalidRow;
    const headers = Math.max(0, columns.headersLength[row] as number);
    return padded(COPY_BYTES + payloadBytes(records, row) + headers + (errors[i] as Buffer).length);
  };
  const into = new Uint8Array(rows.reduce((sum, _, i) => sum + bytesOf(i), 0));
  const view = viewOf(into);
  let at = 0;
  rows.forEach(({ row, status, schemaId }, i) => {
    const headersStart = columns.headersStart[row] as number;
    const headersLength = Math.max(0, columns.headersLength[row] as number);
    const [key, value, error] = [records.key(row), records.value(row), errors[i] as Buffer];
    view.setUint32(at, columns.partition[row] as number, true);
    view.setUint32(at + 4, status, true);
    view.setBigInt64(at + 8, columns.offset[row] as bigint, true);
    view.setBigInt64(at + 16, columns.timestamp[row] as bigint, true);
    view.setUint32(at + 24, columns.timestampType[row] === TIMESTAMP_TYPE.NONE ? 0 : 1, true);
    view.setUint32(at + 28, schemaId, true);
    view.setInt32(at + 32, key?.length ?? -1, true);
    view.setInt32(at + 36, value?.length ?? -1, true);
    view.setUint32(at + 40, headersLength, true);
    view.setUint32(at + 44, error.length, true);
    let to = at + COPY_BYTES;
    for (const part of [
      key,
      value,
      columns.arena.subarray(headersStart, headersStart + headersLength),
      error,
    ]) {
      if (part !== null) into.set(part, to);
      to += part?.length ?? 0;
    }
    at += bytesOf(i);
  });
  return { count: rows.length, bytes: into };
}

/** Decodes the copies, which borrow the bytes, or says why they are invalid. Never throws. */
export function decodeQuarantine({
  count,
  bytes,
}: SideBytes): { readonly copies: readonly QuarantineCopy[] } | { readonly fault: string } {
  const view = viewOf(bytes);
  const copies: QuarantineCopy[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (bytes.length - at < COPY_BYTES) return { fault: 'its quarantined records are cut short' };
    const reason = REASON_OF[view.getUint32(at + 4, true)];
    const offset = view.getBigInt64(at + 8, true);
    const hasTime = view.getUint32(at + 24, true);
    const [keyLength, valueLength] = [view.getInt32(at + 32, true), view.getInt32(at + 36, true)];
    const keyEnd = at + COPY_BYTES + Math.max(0, keyLength);
    const valueEnd = keyEnd + Math.max(0, valueLength);
    const headersEnd = valueEnd + view.getUint32(at + 40, true);
    const end = headersEnd + view.getUint32(at + 44, true);
    const headers = end <= bytes.length ? readHeaders(bytes.subarray(valueEnd, headersEnd)) : undefined;
    const isSound = offset >= 0n && hasTime <= 1 && keyLength >= -1 && valueLength >= -1;
    if (reason === undefined || headers === undefined || !isSound)
      return { fault: `quarantined record ${i} is invalid` };
    copies.push({
      partition: view.getUint32(at, true),
      offset,
      reason,
      timestampMs: hasTime === 0 ? undefined : view.getBigInt64(at + 16, true),
      schemaId: view.getUint32(at + 28, true),
      error: Buffer.from(bytes.buffer, bytes.byteOffset + headersEnd, end - headersEnd).toString('utf8'),
      key: keyLength < 0 ? null : bytes.subarray(at + COPY_BYTES, keyEnd),
      value: valueLength < 0 ? null : bytes.subarray(keyEnd, valueEnd),
      headers,
    });
    at += padded(end - at);
  }
  return at === bytes.length
    ? { copies }
    : { fault: `its quarantined records end at byte ${at}, not ${bytes.length}` };
}

/** Reads the headers of a record batch; undefined if they are invalid. */
function readHeaders(bytes: Uint8Array): readonly RecordHeader[] | undefined {
  const view = viewOf(bytes);
  const headers: RecordHeader[] = [];
  for (let at = 0; at < bytes.length; ) {
    if (bytes.length - at < RECORD_HEADER.BYTES) return undefined;
    const nameEnd = at + RECORD_HEADER.BYTES + view.getUint32(at + RECORD_HEADER.NAME_LENGTH, true);
    const valueLength = view.getInt32(at + RECORD_HEADER.VALUE_LENGTH, true);
    const end = nameEnd + Math.max(0, valueLength);
    if (end > bytes.length) return undefined;
    const nameStart = bytes.byteOffset + at + RECORD_HEADER.BYTES;
    const name = Buffer.from(bytes.buffer, nameStart, nameEnd - at - RECORD_HEADER.BYTES).toString('utf8');
    headers.push([name, valueLength < 0 ? null : bytes.subarray(nameEnd, end)]);
    at = end;
  }
  return headers;
}
