/** Admission, row by row; the addon's implementation is native/kernel/window/admit.cc. */
import type { AdmittedBatch } from '../../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS, REFUSAL, TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { NO_BOUND, type RefusedBatch } from '../../../core/layout/refused-batch.ts';
import { CLOCK_AT, PROGRESS_AT, PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import { DURATION_MS_MAX, EVENT_TS_LIMIT, floorTo, fromWords, isEventTs } from '../../../core/time.ts';
import { demandInteger, demandRows, rowsOf } from '../check.ts';

const EXACT_MAX = 2 ** 53;
const NEVER = Number.NEGATIVE_INFINITY;
const FOREVER = Number.POSITIVE_INFINITY;

const { NEXT_OFFSET: NEXT, LIMIT, MAX_SEEN: SEEN, IDLE } = PROGRESS_AT;
const { CONSUMED, ACCEPTED, INVALID, FUTURE_CLAMPED: CLAMPED } = PROGRESS_AT;
const { DROPPED_LATE: LATE, DROPPED_AFTER_IDLE: AFTER_IDLE } = PROGRESS_AT;
const { FRONTIER, NEXT_END, MAX_SEEN } = CLOCK_AT;

interface Rules {
  readonly global: boolean;
  readonly sliceMs: number;
  readonly slideMs: number;
  readonly sizeMs: number;
  readonly delayMs: number;
  /** -1: unbounded. */
  readonly maxFutureMs: number;
  /** False for session windows, which have no slices. */
  readonly isSliced: boolean;
}

const halves = (column: BigInt64Array, rows: number): Int32Array =>
  new Int32Array(column.buffer, column.byteOffset, rows * 2);

/** Checks a time that may also be `otherwise`. @throws out_of_range */
function demandTime(time: number, otherwise: number, name: string): number {
  if (time !== otherwise) demandInteger(time, -EXACT_MAX, EXACT_MAX, name);
  return time;
}

/** Reads the rules from the cells of the clock. @throws out_of_range */
function rulesOf(clock: Float64Array): Rules {
  demandRows(clock.length, CLOCK_AT.BYTES, 'clock');
  const cell = (at: number, least: number, greatest: number, name: string): number => {
    const value = clock[at] as number;
    demandInteger(value, least, greatest, name);
    return value;
  };
  const isSliced = clock[CLOCK_AT.SIZE_MS] !== 0;
  const [least, most] = isSliced ? [1, DURATION_MS_MAX] : [0, 0];
  const global = cell(CLOCK_AT.GLOBAL, 0, 1, 'global') === 1;
  const sliceMs = cell(CLOCK_AT.SLICE_MS, least, most, 'sliceMs');
  const slideMs = cell(CLOCK_AT.SLIDE_MS, least, most, 'slideMs');
  const sizeMs = cell(CLOCK_AT.SIZE_MS, slideMs, most, 'sizeMs');
  if (isSliced) {
    demandInteger(slideMs % sliceMs, 0, 0, 'slideMs modulo sliceMs');
    demandInteger(sizeMs % sliceMs, 0, 0, 'sizeMs modulo sliceMs');
  }
  const delayMs = cell(CLOCK_AT.DELAY_MS, 0, 2 * DURATION_MS_MAX, 'delayMs');
  const maxFutureMs = cell(CLOCK_AT.MAX_FUTURE_MS, -1, DURATION_MS_MAX, 'maxFutureMs');
  demandTime(clock[NEXT_END] as number, FOREVER, 'nextEnd');
  demandTime(clock[FRONTIER] as number, NEVER, 'frontier');
  return { global, sliceMs, slideMs, sizeMs, delayMs, maxFutureMs, isSliced };
}

/** Checks the cells of all partitions. @throws out_of_range */
function demandProgress(progress: Float64Array): void {
  demandRows(progress.length, PROGRESS_CELLS, 'progress');
  demandInteger(progress.length % PROGRESS_CELLS, 0, 0, 'cells of a partition left over');
  for (let at = 0; at < progress.length; at += PROGRESS_CELLS) {
    const cell = (number: number): number => progress[at + number] as number;
    for (const number of [NEXT, CONSUMED, ACCEPTED, LATE, AFTER_IDLE, INVALID, CLAMPED])
      demandInteger(cell(number), 0, EXACT_MAX, 'progress');
    if (cell(LIMIT) !== FOREVER) demandInteger(cell(LIMIT), 0, EXACT_MAX, 'limit');
    if (cell(SEEN) !== NEVER) demandInteger(cell(SEEN), -EVENT_TS_LIMIT, EVENT_TS_LIMIT, 'maxSeen');
    demandInteger(cell(IDLE), 0, 1, 'idle');
    // In this order no difference is rounded: each operand is below 2^53, and so is each remainder.
    demandInteger(cell(CONSUMED) - cell(ACCEPTED) - cell(LATE) - cell(INVALID), 0, 0, 'unaccounted rows');
  }
}

/** Earliest end of a window that holds the slice: ends are a slide apart, and one of them is
 *  `sizeMs`. */
function firstEndOf(start: number, { sliceMs, slideMs, sizeMs }: Rules): number {
  return sizeMs - floorTo(sizeMs - (start + sliceMs), slideMs);
}

/** Returns the number of records. @throws out_of_range where the batches do not fit each other */
function demandBatches(
  records: RecordBatch,
  events: EventBatch,
  from: number,
  admitted: AdmittedBatch,
  refused: RefusedBatch | undefined,
): number {
  const rows = rowsOf(records, 'records');
  const eventRows = rowsOf(events, 'events');
  rowsOf(admitted, 'admitted');
  if (refused !== undefined) rowsOf(refused, 'refused');
  demandInteger(from, 0, 0xffff_ffff, 'from');
  demandInteger(eventRows - rows, 0, 0, 'rows of events without a record');
  demandInteger(from, 0, rows, 'from');
  demandRows(admitted.rowCapacity, rows - from, 'admitted');
  if (refused !== undefined) demandRows(refused.rowCapacity, rows - from, 'refused');
  return rows;
}

/** Recomputes the clock's watermark from the greatest event times of the partitions. */
function findWatermark(clock: Float64Array, progress: Float64Array, { global, delayMs }: Rules): void {
  let seen = NEVER;
  let least = FOREVER;
  for (let at = 0; at < progress.length; at += PROGRESS_CELLS) {
    const one = progress[at + SEEN] as number;
    if (one > seen) seen = one;
    if (progress[at + IDLE] === 0 && one < least) least = one;
  }
  clock[MAX_SEEN] = seen;
  const time = global ? seen : least;
  // The watermark never decreases, and stays while every partition is idle.
  if (time !== FOREVER) clock[FRONTIER] = Math.max(clock[FRONTIER] as number, time - delayMs);
}

/** Raises the greatest event time of the partition at cell `at`, at most to `bound`, and ends its
 *  idleness. */
function raiseSeen(
  clock: Float64Array,
  progress: Float64Array,
  rules: Rules,
  at: number,
  ts: number,
  bound: number,
): void {
  const seen = Math.min(ts, bound);
  if (seen < ts) progress[at + CLAMPED] = (progress[at + CLAMPED] as number) + 1;
  if (progress[at + IDLE] !== 1 && seen <= (progress[at + SEEN] as number)) return;
  progress[at + IDLE] = 0;
  progress[at + SEEN] = Math.max(progress[at + SEEN] as number, seen);
  findWatermark(clock, progress, rules);
}

/** Collects the rows that were not admitted, where the caller wants them. */
class Refusals {
  private readonly into: RefusedBatch | undefined;
  private count = 0;

  constructor(into: RefusedBatch | undefined) {
    this.into = into;
  }

  add(row: number, reason: number, bound: number): void {
    if (this.into === undefined) return;
    const { columns } = this.into;
    columns.row[this.count] = row;
    columns.reason[this.count] = reason;
    columns.bound[this.count] = bound === NEVER ? NO_BOUND : BigInt(bound);
    this.count++;
    this.into.rowCount = this.count;
  }
}

/** Greatest time to which the event of a record may raise its partition's event time, from the
 *  record's append time. */
function futureBoundOf(timestamp: Int32Array, row: number, maxFutureMs: number): number {
  if (maxFutureMs < 0) return FOREVER;
  const appended = fromWords(timestamp[row * 2] as number, timestamp[row * 2 + 1] as number);
  return Math.min(Math.max(appended, -EVENT_TS_LIMIT), EVENT_TS_LIMIT) + maxFutureMs;
}

/** True for a row of the same record as the row before it: neighbours with one partition and offset
 *  are the events of one record. @shape offset words, two a row */
const continues = (partition: Int32Array, offset: Int32Array, row: number): boolean =>
  row > 0 &&
  partition[row] === partition[row - 1] &&
  offset[row * 2] === offset[row * 2 - 2] &&
  offset[row * 2 + 1] === offset[row * 2 - 1];

/** WindowKernels.admit. */
export function admit(
  clock: Float64Array,
  progress: Float64Array,
  records: RecordBatch,
  events: EventBatch,
  from: number,
  admitted: AdmittedBatch,
  refused?: RefusedBatch,
): number {
  const rows = demandBatches(records, events, from, admitted, refused);
  const rules = rulesOf(clock);
  demandProgress(progress);
  const { global, delayMs, maxFutureMs, isSliced } = rules;
  // Session windows: one slice holds every event, so that no event opens another slice.
  const sliceMs = isSliced ? rules.sliceMs : 2 * EVENT_TS_LIMIT;

  const offset = halves(records.columns.offset, rows);
  const timestamp = halves(records.columns.timestamp, rows);
  const eventTs = halves(events.columns.eventTs, rows);
  const { partition, timestampType } = records.columns;
  const { status } = events.columns;
  const outSlice = halves(admitted.columns.slice, admitted.rowCapacity);
  const outRow = admitted.columns.row;

  const count1 = (cell: number): void => {
    progress[cell] = (progress[cell] as number) + 1;
  };
  if (refused !== undefined) refused.rowCount = 0;
  const refusals = new Refusals(refused);
  const isDue = (): boolean => (clock[FRONTIER] as number) >= (clock[NEXT_END] as number);

  findWatermark(clock, progress, rules);
  let [count, row] = [0, from];
  let start = isSliced ? Number.NaN : -EVENT_TS_LIMIT;
  let isSound = true;
  for (; row < rows && (!isDue() || continues(partition, offset, row)); row++) {
    const p = partition[row] as number;
    const at = p * PROGRESS_CELLS;
    isSound = p >= 0 && at < progress.length;
    if (!isSound) break;
    const position = fromWords(offset[row * 2] as number, offset[row * 2 + 1] as number);
    if (position >= (progress[at + LIMIT] as number)) {
      progress[at + NEXT] = progress[at + LIMIT] as number;
      continue;
    }
    const least = (progress[at + NEXT] as number) - (continues(partition, offset, row) ? 1 : 0);
    isSound = position >= least && position < EXACT_MAX;
    if (!isSound) break;
    progress[at + NEXT] = position + 1;
    if (status[row] === EVENT_STATUS.NO_EVENT) continue;
    count1(at + CONSUMED);
    const high = eventTs[row * 2 + 1] as number;
    const isFiltered = status[row] === EVENT_STATUS.FILTERED;
    if ((status[row] !== EVENT_STATUS.OK && !isFiltered) || !isEventTs(high)) {
      count1(at + INVALID);
      const seen = global ? (clock[MAX_SEEN] as number) : (progress[at + SEEN] as number);
      refusals.add(row, REFUSAL.INVALID, seen - delayMs);
      continue;
    }
    const ts = fromWords(eventTs[row * 2] as number, high);
    const hasTime = timestampType[row] !== TIMESTAMP_TYPE.NONE;
    raiseSeen(clock, progress, rules, at, ts, hasTime ? futureBoundOf(timestamp, row, maxFutureMs) : FOREVER);
    if (isFiltered) {
      count1(at + ACCEPTED);
      continue;
    }
    const reference = global ? (clock[MAX_SEEN] as number) : (progress[at + SEEN] as number);
    if (ts < reference - delayMs) {
      count1(at + LATE);
      refusals.add(row, REFUSAL.LATE, reference - delayMs);
      continue;
    }
    if (ts < (clock[FRONTIER] as number)) {
      count1(at + LATE);
      count1(at + AFTER_IDLE);
      refusals.add(row, REFUSAL.LATE_AFTER_IDLE, clock[FRONTIER] as number);
      continue;
    }
    count1(at + ACCEPTED);
    if (!(ts >= start && ts < start + sliceMs)) {
      start = floorTo(ts, sliceMs);
      clock[NEXT_END] = Math.min(clock[NEXT_END] as number, firstEndOf(start, rules));
    }
    outRow[count] = row;
    outSlice[count * 2] = start;
    outSlice[count * 2 + 1] = Math.floor(start / 2 ** 32);
    count++;
  }
  admitted.rowCount = count;
  demandInteger(isSound ? 0 : 1, 0, 0, 'rows out of place');
  return row - from;
}
