/** Counts of invalid records by reason, with the first of them as a sample, of events that a
 *  condition excludes, and of records whose list has no element. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { EVENT, EVENT_STATUS } from '../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { isEventTs } from '../../core/time.ts';
import { engineError } from '../errors.ts';
import type { Totals } from './admission.ts';
import type { EventDecoder } from './input/port.ts';
import { LIST_ELEMENTS_MAX, ListRows } from './list/rows.ts';

/** Reason of each status that is no event. `event_ts` has no status: the fixed layout stores any
 *  number, and admission refuses one out of range. */
const REASON_OF = {
  [EVENT_STATUS.NULL]: 'null_value',
  [EVENT_STATUS.BAD_LENGTH]: 'value_length',
  [EVENT_STATUS.BAD_MAGIC]: 'bad_magic',
  [EVENT_STATUS.TRUNCATED_FRAME]: 'truncated_frame',
  [EVENT_STATUS.UNKNOWN_SCHEMA_ID]: 'unknown_schema_id',
  [EVENT_STATUS.BAD_MESSAGE_INDEX]: 'bad_message_index',
  [EVENT_STATUS.INCOMPATIBLE_SCHEMA]: 'incompatible_schema',
  [EVENT_STATUS.MALFORMED_PAYLOAD]: 'malformed_payload',
  [EVENT_STATUS.MISSING_FIELD]: 'missing_field',
  [EVENT_STATUS.BAD_KEY]: 'bad_key',
  [EVENT_STATUS.BAD_TIME]: 'bad_time',
  [EVENT_STATUS.BAD_VALUE]: 'bad_value',
  [EVENT_STATUS.BAD_LIST]: 'bad_list',
} as const;

export const INVALID_REASONS = [...Object.values(REASON_OF), 'event_ts'] as const;
export type InvalidReason = (typeof INVALID_REASONS)[number];

/** Number of first records that may all be invalid before a run stops. */
export const FIRST_RECORDS = 1000;

/** Shortest interval between two warnings. */
const WARN_MS = 60_000;

export interface InvalidSample {
  readonly partition: number;
  readonly offset: number;
  readonly reason: InvalidReason;
  /** Bytes of the value; -1: null. */
  readonly valueBytes: number;
  /** Fault of this record, where its reason does not say it all. */
  readonly fault?: string;
}

export interface InvalidRecords {
  /** Invalid records that this process read, by reason; reasons that did not occur are absent. */
  readonly reasons: Readonly<Partial<Record<InvalidReason, number>>>;
  /** The first invalid record that this process read; null: none. */
  readonly sample: InvalidSample | null;
}

export class InvalidTally implements InvalidRecords {
  readonly reasons: Partial<Record<InvalidReason, number>> = {};
  sample: InvalidSample | null = null;
  private readonly input: Pick<EventDecoder, 'describe'> | undefined;
  private warnAtMs = Number.NEGATIVE_INFINITY;

  /** @param input decoder of the batches, which describes the sample */
  constructor(input?: Pick<EventDecoder, 'describe'>) {
    this.input = input;
  }

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
      this.reasons[reason] = (this.reasons[reason] ?? 0) + 1;
      if (this.sample !== null) continue;
      const fault = this.input?.describe(records, row);
      const sample = { partition: from, offset: at, reason, valueBytes: valueLength[row] as number };
      this.sample = fault === undefined ? sample : { ...sample, fault };
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

/** Number of events of a batch that a condition excludes. `limitOf`: as in `InvalidTally.note`. */
export function filteredCount(
  { columns: { partition, offset }, rowCount }: RecordBatch,
  { columns: { status } }: EventBatch,
  limitOf: (partition: number) => number,
): number {
  let count = 0;
  for (let row = 0; row < rowCount; row++)
    if (status[row] === EVENT_STATUS.FILTERED && Number(offset[row]) < limitOf(partition[row] as number))
      count++;
  return count;
}

/** Number of records of a batch whose list has no element. `limitOf`: as in `InvalidTally.note`. */
export function emptyCount(records: RecordBatch, limitOf: (partition: number) => number): number {
  const lists = ListRows.of(records);
  if (lists === undefined) return 0;
  const { partition, offset } = records.columns;
  let count = 0;
  for (let row = 0; row < records.rowCount; row++)
    if (lists.isEmpty(row) && Number(offset[row]) < limitOf(partition[row] as number)) count++;
  return count;
}

function reasonOf({ columns }: EventBatch, row: number): InvalidReason | undefined {
  const status = columns.status[row] as number;
  if (status !== EVENT_STATUS.OK && status !== EVENT_STATUS.FILTERED)
    return REASON_OF[status as keyof typeof REASON_OF];
  return isEventTs(Number((columns.eventTs[row] as bigint) >> 32n)) ? undefined : 'event_ts';
}

const REASON_TEXT: Readonly<Record<InvalidReason, string>> = {
  null_value: 'a null value',
  value_length: `a value that is not ${EVENT.BYTES} bytes long`,
  event_ts: 'an event_ts out of range',
  bad_magic: 'a value without the magic byte of a frame',
  truncated_frame: 'a value too short for a frame',
  unknown_schema_id: 'a schema id that the registry does not know',
  bad_message_index: 'bad message indexes',
  incompatible_schema: 'a schema that cannot be read',
  malformed_payload: 'a malformed payload',
  missing_field: 'no value of a field that the job reads',
  bad_key: 'a key that is no 64-bit integer',
  bad_time: 'no valid event time',
  bad_value: 'a value field that is no 64-bit integer, or no decimal of the stated places',
  bad_list: `a list field that is no list, or has more than ${LIST_ELEMENTS_MAX} elements`,
};

/** Why a record with this status is no event. `fault`: more about the record. */
export function faultText(status: number, fault: string | undefined): string {
  const reason = REASON_OF[status as keyof typeof REASON_OF];
  return `the record has ${REASON_TEXT[reason]}${fault === undefined ? '' : `: ${fault}`}`;
}

function sampleText({ partition, offset, reason, valueBytes, fault }: InvalidSample): string {
  const length = reason === 'value_length' ? ` but ${valueBytes}` : '';
  const more = fault === undefined ? '' : `: ${fault}`;
  return `partition ${partition} offset ${offset} has ${REASON_TEXT[reason]}${length}${more}`;
}

/** Refuses a run although no record of the topic was ever an event: read by this process, or before
 *  its restore. A restored run whose new records are all invalid only warns: its earlier results
 *  stand.
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
  const counts = INVALID_REASONS.flatMap((reason) => {
    const count = invalid.reasons[reason] ?? 0;
    return count === 0 ? [] : [`${count} have ${REASON_TEXT[reason]}`];
  });
  const { sample } = invalid;
  throw engineError(
    'no_valid_events',
    sample !== null
      ? `none of the ${consumed} records read from topic ${topic} is an event: ${counts.join(', ')}; the first: ${sampleText(sample)}`
      : `none of the ${totals.consumed} records that were ever read from topic ${topic} is an event`,
    {
      next: 'name the format and the fields of its events (-format, -key, -time, -value) or another -topic, and give an empty -state-dir to read these records again',
      details: { ...totals, reasons: invalid.reasons, sample },
    },
  );
}
