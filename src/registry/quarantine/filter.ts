/** Selection of quarantined records. A record that is not selected stays quarantined. */
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Quarantined, RedriveReason } from './record.ts';

/** An absent field selects all. */
export interface QuarantineFilter {
  readonly reasons?: readonly RedriveReason[] | undefined;
  /** Partitions of the source topic. */
  readonly partitions?: readonly number[] | undefined;
  /** First timestamp of the record that is selected, ms since the epoch. */
  readonly sinceMs?: number | undefined;
  /** First timestamp behind the selection. */
  readonly untilMs?: number | undefined;
}

export function isSelected(
  { reasons, partitions, sinceMs, untilMs }: QuarantineFilter,
  { reason, source }: Quarantined,
  { columns }: RecordBatch,
  row: number,
): boolean {
  const ms = Number(columns.timestamp[row] as bigint);
  return (
    (reasons?.includes(reason) ?? true) &&
    (partitions?.includes(source.partition) ?? true) &&
    (sinceMs === undefined || ms >= sinceMs) &&
    (untilMs === undefined || ms < untilMs)
  );
}
