/** Encoding of the copies of refused events in a changelog record, which keeps them until the late
 *  topic has acknowledged them.
 *
 *      each, padded to 8: partition u32 | reason u32 (REFUSAL.*) | offset i64 |
 *        timestamp i64 (-1: none) | bound i64 |
 *        bytes of the key i32 (-1: null) | of the value i32 (-1: null) |
 *        original value bytes u32 | bytes of the elements u32 | key | value | numbers of the late
 *        elements of the record's list, as text
 *
 *  All little-endian. A valid event is 256 bytes; longer payloads are cut to PAYLOAD_BYTES_MAX. */
import { REFUSAL, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { NO_BOUND, type RefusedBatch } from '../../../core/layout/refused-batch.ts';
import { elementOf, LIST_ELEMENTS_MAX } from '../../source/list/rows.ts';
import { padded, type SideBytes, viewOf } from '../side/sections.ts';

/** Most bytes of a key, and of a value, that a copy keeps. */
export const PAYLOAD_BYTES_MAX = 65_536;
const COPY_BYTES = 48;
/** Bytes of the numbers of all elements of a record. */
const ELEMENTS_BYTES_MAX = LIST_ELEMENTS_MAX * `${LIST_ELEMENTS_MAX},`.length;
const NO_TIMESTAMP = -1n;

export interface LateCopy {
  readonly partition: number;
  readonly offset: bigint;
  /** REFUSAL.* */
  readonly reason: number;
  /** Timestamp of the record; undefined: none. */
  readonly timestampMs: bigint | undefined;
  /** Least event_ts that would have been in time; undefined: any. */
  readonly boundMs: bigint | undefined;
  /** Borrowed. */
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  /** Length of the original value, in bytes. */
  readonly valueBytes: number;
  /** Elements of the record's list that the copy is about, from 0, with commas; undefined: the
   *  event is the record. */
  readonly elements?: string | undefined;
}

const truncated = (bytes: Uint8Array | null): Uint8Array | null =>
  bytes === null || bytes.length <= PAYLOAD_BYTES_MAX ? bytes : bytes.subarray(0, PAYLOAD_BYTES_MAX);

/** A copy of a record: the refused rows that it is about. */
interface Copied {
  /** Index of the first of the refused rows. */
  readonly first: number;
  /** Text of their elements; empty: the event is the record. */
  elements: string;
}

/** One copy for each record and reason. The rows of a record are neighbours. */
function copiesOf(records: RecordBatch, refused: RefusedBatch, picked: readonly number[]): readonly Copied[] {
  const { row: rows, reason } = refused.columns;
  const { partition, offset } = records.columns;
  const copies: Copied[] = [];
  let last: Copied | undefined;
  for (const i of picked) {
    const row = rows[i] as number;
    const element = elementOf(records, row);
    const of = last === undefined ? -1 : (rows[last.first] as number);
    const isSame =
      element !== undefined &&
      last !== undefined &&
      last.elements !== '' &&
      reason[i] === reason[last.first] &&
      partition[row] === partition[of] &&
      offset[row] === offset[of];
    if (isSame && last !== undefined) last.elements += `,${element}`;
    else {
      last = { first: i, elements: element === undefined ? '' : String(element) };
      copies.push(last);
    }
  }
  return copies;
}

/** @param picked indexes of the refused rows that are copied, at least one. The late elements of a
 *  record share one copy. */
export function encodeLate(
  records: RecordBatch,
  refused: RefusedBatch,
  picked: readonly number[] = [...Array(refused.rowCount).keys()],
): SideBytes {
  const { row: rows, reason, bound } = refused.columns;
  const copies = copiesOf(records, refused, picked);
  let bytes = 0;
  for (const { first, elements } of copies) {
    const row = rows[first] as number;
    const key = records.columns.keyLength[row] as number;
    const value = records.columns.valueLength[row] as number;
    const keyBytes = Math.min(Math.max(0, key), PAYLOAD_BYTES_MAX);
    const valueBytes = Math.min(Math.max(0, value), PAYLOAD_BYTES_MAX);
    bytes += padded(COPY_BYTES + keyBytes + valueBytes + elements.length);
  }
  const into = new Uint8Array(bytes);
  const view = viewOf(into);
  let at = 0;
  for (const { first: i, elements } of copies) {
    const row = rows[i] as number;
    const { partition, offset, timestamp, timestampType } = records.columns;
    const key = truncated(records.key(row));
    const value = truncated(records.value(row));
    const hasTime = timestampType[row] !== TIMESTAMP_TYPE.NONE;
    view.setUint32(at, partition[row] as number, true);
    view.setUint32(at + 4, reason[i] as number, true);
    view.setBigInt64(at + 8, offset[row] as bigint, true);
    view.setBigInt64(at + 16, hasTime ? (timestamp[row] as bigint) : NO_TIMESTAMP, true);
    view.setBigInt64(at + 24, bound[i] as bigint, true);
    view.setInt32(at + 32, key === null ? -1 : key.length, true);
    view.setInt32(at + 36, value === null ? -1 : value.length, true);
    view.setUint32(at + 40, Math.max(0, records.columns.valueLength[row] as number), true);
    view.setUint32(at + 44, elements.length, true);
    if (key !== null) into.set(key, at + COPY_BYTES);
    if (value !== null) into.set(value, at + COPY_BYTES + (key?.length ?? 0));
    const payload = COPY_BYTES + (key?.length ?? 0) + (value?.length ?? 0);
    into.set(Buffer.from(elements, 'latin1'), at + payload);
    at += padded(payload + elements.length);
  }
  return { count: copies.length, bytes: into };
}

/** Decodes the copies, which borrow the bytes, or says why they are invalid. Never throws. */
export function decodeLate({
  count,
  bytes,
}: SideBytes): { readonly copies: readonly LateCopy[] } | { readonly fault: string } {
  const view = viewOf(bytes);
  const end = bytes.length;
  if (count < 1 || count * COPY_BYTES > end) return { fault: `it has ${count} late copies in ${end} bytes` };
  const copies: LateCopy[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (end - at < COPY_BYTES) return { fault: 'its late copies are truncated' };
    const reason = view.getUint32(at + 4, true);
    const offset = view.getBigInt64(at + 8, true);
    const timestamp = view.getBigInt64(at + 16, true);
    const bound = view.getBigInt64(at + 24, true);
    const keyLength = view.getInt32(at + 32, true);
    const valueLength = view.getInt32(at + 36, true);
    const isSound =
      reason >= REFUSAL.LATE &&
      reason <= REFUSAL.INVALID &&
      offset >= 0n &&
      [keyLength, valueLength].every((length) => length >= -1 && length <= PAYLOAD_BYTES_MAX);
    const elementBytes = view.getUint32(at + 44, true);
    const keyEnd = at + COPY_BYTES + Math.max(0, keyLength);
    const valueEnd = keyEnd + Math.max(0, valueLength);
    const copyEnd = valueEnd + elementBytes;
    if (!isSound || elementBytes > ELEMENTS_BYTES_MAX || copyEnd > end)
      return { fault: `late copy ${i} is invalid` };
    copies.push({
      partition: view.getUint32(at, true),
      offset,
      reason,
      timestampMs: timestamp === NO_TIMESTAMP ? undefined : timestamp,
      boundMs: bound === NO_BOUND ? undefined : bound,
      key: keyLength < 0 ? null : bytes.subarray(at + COPY_BYTES, keyEnd),
      value: valueLength < 0 ? null : bytes.subarray(keyEnd, valueEnd),
      valueBytes: view.getUint32(at + 40, true),
      ...(elementBytes === 0
        ? {}
        : { elements: Buffer.from(bytes.subarray(valueEnd, copyEnd)).toString('latin1') }),
    });
    at += padded(copyEnd - at);
  }
  return at === end ? { copies } : { fault: `its late copies end at byte ${at}, not ${end}` };
}
