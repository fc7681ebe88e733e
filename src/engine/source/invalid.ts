/** Counts of invalid records by reason, with the first of them as a sample. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT, EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { isEventTs } from '../../core/time.ts';
import { engineError } from '../errors.ts';
import type { Totals } from './admission.ts';

export const INVALID_REASONS = ['null_value', 'value_length', 'event_ts'] as const;
export type InvalidReason = (typeof INVALID_REASONS)[number];

/** Shortest interval between two warnings. */
const WARN_MS = 60_000;

export interface InvalidSample {
  readonly partition: number;
  readonly offset: number;
  readonly reason: InvalidReason;
  /** Bytes of the value; -1: null. */
  readonly valueBytes: number;
}

export interface InvalidRecords {
  /** Invalid records that this process read. */
  readonly reasons: Readonly<Record<InvalidReason, number>>;
  /** The first invalid record that this process read; null: none. */
  readonly sample: InvalidSample | null;
}

export class InvalidTally implements InvalidRecords {
  readonly reasons: Record<InvalidReason, number> = { null_value: 0, value_length: 0, event_ts: 0 };
  sample: InvalidSample | null = null;
  private warnAtMs = Number.NEGATIVE_INFINITY;

  /** Counts the invalid records of a batch. `limitOf`: offset of a partition from which on records
   *  are not read. */
  note(records: RecordBatch, events: EventBatch, limitOf: (partition: number) => number): void {
    const { partition, offset, valueLength } = records.columns;
    for (let row = 0; row < records.rowCount; row++) {
      const reason = reasonOf(events, row);
      if (reason === undefined) continue;
      const at = Number(offset[row]);
      const from = partition[row] as number;
      if (at >= limitOf(from)) continue;
      this.reasons[reason]++;
      this.sample ??= { partition: from, offset: at, reason, valueBytes: valueLength[row] as number };
    }
  }

  /** True if a warning is due: at the first invalid record, then at most once a minute. `now`:
   *  monotonic ms. */
  shouldWarn(now: number): boolean {
    if (now < this.warnAtMs) return false;
    this.warnAtMs = now + WARN_MS;
    return true;
  }
}

function reasonOf({ columns }: EventBatch, row: number): InvalidReason | undefined {
  if (columns.status[row] === EVENT_STATUS.NULL) return 'null_value';
  if (columns.status[row] !== EVENT_STATUS.OK) return 'value_length';
  return isEventTs(Number((columns.eventTs[row] as bigint) >> 32n)) ? undefined : 'event_ts';
}

const REASON_TEXT: Readonly<Record<InvalidReason, string>> = {
  null_value: 'a null value',
  value_length: `a value that is not ${EVENT.BYTES} bytes long`,
  event_ts: 'an event_ts out of range',
};

const sampleText = ({ partition, offset, reason, valueBytes }: InvalidSample): string =>
  `partition ${partition} offset ${offset} has ${REASON_TEXT[reason]}${reason === 'value_length' ? ` but ${valueBytes}` : ''}`;

/** Refuses a run that met its end although no record of the topic was ever an event: read by this
 *  process, or before its restore. A restored run whose new records are all invalid only warns:
 *  its earlier results stand.
 *  @throws no_valid_events
 *  @example
 *  demandValidInput('events', { totals, before, invalid });
 */
export function demandValidInput(
  topic: string,
  { totals, before, invalid }: { totals: Totals; before: Totals; invalid: InvalidRecords },
): void {
  const consumed = totals.consumed - before.consumed;
  if (totals.consumed === 0 || totals.consumed > totals.invalid) return;
  const counts = INVALID_REASONS.filter((reason) => invalid.reasons[reason] > 0).map(
    (reason) => `${invalid.reasons[reason]} have ${REASON_TEXT[reason]}`,
  );
  const { sample } = invalid;
  throw engineError(
    'no_valid_events',
    sample !== null
      ? `none of the ${consumed} records read from topic ${topic} is an event: ${counts.join(', ')}; the first: ${sampleText(sample)}`
      : `none of the ${totals.consumed} records that were ever read from topic ${topic} is an event`,
    {
      next: `give a topic of ${EVENT.BYTES}-byte events (-topic), and an empty -state-dir to read these records again`,
      details: { ...totals, reasons: invalid.reasons, sample },
    },
  );
}
