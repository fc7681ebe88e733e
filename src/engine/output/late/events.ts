/** Late events as they are kept for queries: place, key, event time, value, and the watermark that
 *  made them late.
 *
 *  Encoding, each padded to 8: partition u32 | reason u32 (REFUSAL.*) | offset i64 | event_ts i64 |
 *  account_id u64 | value i64 | watermark i64 | timestamp of the record i64 (-1: none) | bytes of
 *  the key i32 (-1: account_id is the key) | number of the list's element from 1 u32 (0: the event
 *  is a record) | key, all little-endian. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { REFUSAL, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { RefusedBatch } from '../../../core/layout/refused-batch.ts';
import { isEventTs } from '../../../core/time.ts';
import type { KeySpans } from '../../keys/spans.ts';
import { KEY_BYTES_MAX } from '../../keys/type.ts';
import { elementOf, LIST_ELEMENTS_MAX } from '../../source/list/rows.ts';
import { padded, type SideBytes, viewOf } from '../side/sections.ts';

const HEAD_BYTES = 64;
/** Greatest length of an encoded late event, in bytes. */
export const LATE_EVENT_BYTES_MAX = HEAD_BYTES + KEY_BYTES_MAX;
const NO_TIMESTAMP = -1n;
const NO_BYTES = new Uint8Array(0);

export type LateReason = 'late' | 'late_after_idle';

const REASON_OF: Readonly<Record<number, LateReason>> = {
  [REFUSAL.LATE]: 'late',
  [REFUSAL.LATE_AFTER_IDLE]: 'late_after_idle',
};

/** True if a refused row is a late event. */
export const isLate = (reason: number): boolean => REASON_OF[reason] !== undefined;

/** Key of a late event. */
export interface LateKey {
  /** 64 bits of an integer key, else 0. */
  readonly accountId: bigint;
  /** Canonical bytes of a key that is no integer; absent: `accountId` is the key. */
  readonly key?: Uint8Array | undefined;
}

export interface LateEvent extends LateKey {
  readonly partition: number;
  readonly offset: bigint;
  /** Element of the record's list, from 0; absent: the event is a record. */
  readonly element?: number | undefined;
  readonly reason: LateReason;
  readonly eventTs: number;
  readonly value: bigint;
  /** Watermark that the event was compared with. */
  readonly watermarkMs: number;
  /** Timestamp of the record; undefined: none. */
  readonly timestampMs: bigint | undefined;
}

export const isSameKey = (a: LateKey, b: LateKey): boolean =>
  a.accountId === b.accountId && Buffer.compare(a.key ?? NO_BYTES, b.key ?? NO_BYTES) === 0;

/** Rows of a batch that was decoded last. */
export interface LateRows {
  readonly records: RecordBatch;
  readonly events: EventBatch;
  readonly refused: RefusedBatch;
  /** Keys of the rows; undefined: they are integers. Ids of keys never leave the process. */
  readonly keys: Pick<KeySpans, 'key' | 'length'> | undefined;
}

/** @param picked indexes of the refused rows, at least one, all late
 *  @param latenessMs distance from the watermark to the least event_ts that is in time */
export function encodeLateEvents(
  { records, events, refused, keys }: LateRows,
  picked: readonly number[],
  latenessMs: number,
): SideBytes {
  const { partition, offset, timestamp, timestampType } = records.columns;
  const { eventTs, accountId, value } = events.columns;
  const { row: rows, reason, bound } = refused.columns;
  const bytesOf = (i: number): number => padded(HEAD_BYTES + (keys?.length[rows[i] as number] ?? 0));
  const bytes = new Uint8Array(picked.reduce((sum, i) => sum + bytesOf(i), 0));
  const view = viewOf(bytes);
  let at = 0;
  for (const i of picked) {
    const row = rows[i] as number;
    putLateEvent(view, bytes, at, {
      accountId: keys === undefined ? (accountId[row] as bigint) : 0n,
      key: keys?.key(row),
      partition: partition[row] as number,
      offset: offset[row] as bigint,
      element: elementOf(records, row),
      reason: REASON_OF[reason[i] as number] as LateReason,
      eventTs: Number(eventTs[row]),
      value: value[row] as bigint,
      watermarkMs: Number(bound[i]) + latenessMs,
      timestampMs: timestampType[row] === TIMESTAMP_TYPE.NONE ? undefined : timestamp[row],
    });
    at += bytesOf(i);
  }
  return { count: picked.length, bytes };
}

/** Bytes of the encoded event. */
export const lateEventBytes = ({ key }: LateKey): number => padded(HEAD_BYTES + (key?.length ?? 0));

/** Writes `lateEventBytes` of the event. `view`: of all the bytes. REQUIRES: zeros there */
export function putLateEvent(view: DataView, bytes: Uint8Array, at: number, event: LateEvent): void {
  view.setUint32(at, event.partition, true);
  view.setUint32(at + 4, event.reason === 'late' ? REFUSAL.LATE : REFUSAL.LATE_AFTER_IDLE, true);
  view.setBigInt64(at + 8, event.offset, true);
  view.setBigInt64(at + 16, BigInt(event.eventTs), true);
  view.setBigUint64(at + 24, event.accountId, true);
  view.setBigInt64(at + 32, event.value, true);
  view.setBigInt64(at + 40, BigInt(event.watermarkMs), true);
  view.setBigInt64(at + 48, event.timestampMs ?? NO_TIMESTAMP, true);
  view.setInt32(at + 56, event.key?.length ?? -1, true);
  view.setUint32(at + 60, event.element === undefined ? 0 : event.element + 1, true);
  if (event.key !== undefined) bytes.set(event.key, at + HEAD_BYTES);
}

/** Decodes late events, whose keys borrow the bytes, or says why they are invalid. Never throws. */
export function decodeLateEvents({
  count,
  bytes,
}: SideBytes): { readonly copies: readonly LateEvent[] } | { readonly fault: string } {
  const view = viewOf(bytes);
  const copies: LateEvent[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (bytes.length - at < HEAD_BYTES) return { fault: `its late event ${i} is cut short` };
    const reason = REASON_OF[view.getUint32(at + 4, true)];
    const offset = view.getBigInt64(at + 8, true);
    const isInRange = isEventTs(view.getInt32(at + 20, true));
    const keyLength = view.getInt32(at + 56, true);
    const keyEnd = at + HEAD_BYTES + Math.max(0, keyLength);
    const isKey = keyLength >= -1 && keyLength <= KEY_BYTES_MAX && keyEnd <= bytes.length;
    const element = view.getUint32(at + 60, true);
    if (reason === undefined || offset < 0n || !isInRange || !isKey || element > LIST_ELEMENTS_MAX)
      return { fault: `late event ${i} is invalid` };
    const timestamp = view.getBigInt64(at + 48, true);
    // All copies have the same properties: objects of several shapes cost three times as much.
    copies.push({
      partition: view.getUint32(at, true),
      offset,
      element: element === 0 ? undefined : element - 1,
      reason,
      eventTs: Number(view.getBigInt64(at + 16, true)),
      accountId: view.getBigUint64(at + 24, true),
      key: keyLength < 0 ? undefined : bytes.subarray(at + HEAD_BYTES, keyEnd),
      value: view.getBigInt64(at + 32, true),
      watermarkMs: Number(view.getBigInt64(at + 40, true)),
      timestampMs: timestamp === NO_TIMESTAMP ? undefined : timestamp,
    });
    at += padded(keyEnd - at);
  }
  return at === bytes.length
    ? { copies }
    : { fault: `its ${count} late events end at byte ${at}, not ${bytes.length}` };
}
