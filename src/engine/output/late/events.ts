/** Late events as they are kept for queries: place, key, event time, value, and the watermark that
 *  made them late.
 *
 *  Encoding: partition u32 | reason u32 (REFUSAL.*) | offset i64 | event_ts i64 |
 *  account_id u64 | value i64 | watermark i64 | timestamp of the record i64 (-1: none), all
 *  little-endian. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { REFUSAL, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { RefusedBatch } from '../../../core/layout/refused-batch.ts';
import { isEventTs } from '../../../core/time.ts';
import { type SideBytes, viewOf } from '../side/sections.ts';

/** Bytes of an encoded late event. */
export const LATE_EVENT_BYTES = 56;
const NO_TIMESTAMP = -1n;

export type LateReason = 'late' | 'late_after_idle';

const REASON_OF: Readonly<Record<number, LateReason>> = {
  [REFUSAL.LATE]: 'late',
  [REFUSAL.LATE_AFTER_IDLE]: 'late_after_idle',
};

/** True if a refused row is a late event. */
export const isLate = (reason: number): boolean => REASON_OF[reason] !== undefined;

export interface LateEvent {
  readonly partition: number;
  readonly offset: bigint;
  readonly reason: LateReason;
  readonly accountId: bigint;
  readonly eventTs: number;
  readonly value: bigint;
  /** Watermark that the event was compared with. */
  readonly watermarkMs: number;
  /** Timestamp of the record; undefined: none. */
  readonly timestampMs: bigint | undefined;
}

/** @param picked indexes of the refused rows, at least one, all late
 *  @param latenessMs distance from the watermark to the least event_ts that is in time */
export function encodeLateEvents(
  records: RecordBatch,
  events: EventBatch,
  refused: RefusedBatch,
  picked: readonly number[],
  latenessMs: number,
): SideBytes {
  const into = new Uint8Array(picked.length * LATE_EVENT_BYTES);
  const view = viewOf(into);
  const { partition, offset, timestamp, timestampType } = records.columns;
  const { eventTs, accountId, value } = events.columns;
  picked.forEach((i, nth) => {
    const row = refused.columns.row[i] as number;
    putLateEvent(view, nth * LATE_EVENT_BYTES, {
      partition: partition[row] as number,
      offset: offset[row] as bigint,
      reason: REASON_OF[refused.columns.reason[i] as number] as LateReason,
      eventTs: Number(eventTs[row]),
      accountId: accountId[row] as bigint,
      value: value[row] as bigint,
      watermarkMs: Number(refused.columns.bound[i]) + latenessMs,
      timestampMs: timestampType[row] === TIMESTAMP_TYPE.NONE ? undefined : timestamp[row],
    });
  });
  return { count: picked.length, bytes: into };
}

/** Writes LATE_EVENT_BYTES. */
export function putLateEvent(view: DataView, at: number, event: LateEvent): void {
  view.setUint32(at, event.partition, true);
  view.setUint32(at + 4, event.reason === 'late' ? REFUSAL.LATE : REFUSAL.LATE_AFTER_IDLE, true);
  view.setBigInt64(at + 8, event.offset, true);
  view.setBigInt64(at + 16, BigInt(event.eventTs), true);
  view.setBigUint64(at + 24, event.accountId, true);
  view.setBigInt64(at + 32, event.value, true);
  view.setBigInt64(at + 40, BigInt(event.watermarkMs), true);
  view.setBigInt64(at + 48, event.timestampMs ?? NO_TIMESTAMP, true);
}

/** Decodes late events, or says why they are invalid. Never throws. */
export function decodeLateEvents({
  count,
  bytes,
}: SideBytes): { readonly copies: readonly LateEvent[] } | { readonly fault: string } {
  if (bytes.length !== count * LATE_EVENT_BYTES)
    return { fault: `its ${count} late events have ${bytes.length} bytes` };
  const view = viewOf(bytes);
  const copies: LateEvent[] = [];
  for (let at = 0; at < bytes.length; at += LATE_EVENT_BYTES) {
    const reason = REASON_OF[view.getUint32(at + 4, true)];
    const offset = view.getBigInt64(at + 8, true);
    const isInRange = isEventTs(view.getInt32(at + 20, true));
    if (reason === undefined || offset < 0n || !isInRange)
      return { fault: `late event ${copies.length} is invalid` };
    const timestamp = view.getBigInt64(at + 48, true);
    copies.push({
      partition: view.getUint32(at, true),
      offset,
      reason,
      eventTs: Number(view.getBigInt64(at + 16, true)),
      accountId: view.getBigUint64(at + 24, true),
      value: view.getBigInt64(at + 32, true),
      watermarkMs: Number(view.getBigInt64(at + 40, true)),
      timestampMs: timestamp === NO_TIMESTAMP ? undefined : timestamp,
    });
  }
  return { copies };
}
