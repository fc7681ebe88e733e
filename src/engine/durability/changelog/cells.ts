/** Saved cells of a partition: its progress except the limit of a run, which is not saved. */
import { PARTITION_PROGRESS as CELL } from '../../../core/layout/layouts.gen.ts';
import { createProgress, PROGRESS_CELLS } from '../../../core/layout/window-clock.ts';
import { EVENT_TS_LIMIT } from '../../../core/time.ts';

/** Greatest number of partitions of a topic. */
export const PARTITIONS_MAX = 100_000;

/** Saved cells in the order of a record: the name in a manifest, and the cell number. */
export const SAVED_CELLS = [
  ['offset', CELL.NEXT_OFFSET / 8],
  ['max_seen_ts', CELL.MAX_SEEN / 8],
  ['consumed', CELL.CONSUMED / 8],
  ['accepted', CELL.ACCEPTED / 8],
  ['dropped_late', CELL.DROPPED_LATE / 8],
  ['dropped_after_idle', CELL.DROPPED_AFTER_IDLE / 8],
  ['invalid', CELL.INVALID / 8],
  ['future_clamped', CELL.FUTURE_CLAMPED / 8],
  ['idle', CELL.IDLE / 8],
] as const;

export const OFFSET_CELL = CELL.NEXT_OFFSET / 8;
const SEEN = CELL.MAX_SEEN / 8;
const IDLE = CELL.IDLE / 8;
const COUNTS = SAVED_CELLS.filter(([, cell]) => cell !== SEEN && cell !== IDLE);

/** True for a time in ms that is a safe integer, and for -Infinity (nothing has happened yet). */
export const isTime = (time: number): boolean =>
  time === Number.NEGATIVE_INFINITY || Number.isSafeInteger(time);

/** Returns a reason if the cells of a partition are impossible; undefined if they are valid. */
export function cellsFault(progress: Float64Array, partition: number): string | undefined {
  const cell = (number: number): number => progress[partition * PROGRESS_CELLS + number] as number;
  for (const [name, number] of COUNTS) {
    const value = cell(number);
    if (!Number.isSafeInteger(value) || value < 0) return `${name} of ${value}`;
  }
  const seen = cell(SEEN);
  if (!isTime(seen) || (Number.isFinite(seen) && Math.abs(seen) > EVENT_TS_LIMIT))
    return `max_seen_ts of ${seen}`;
  if (cell(IDLE) !== 0 && cell(IDLE) !== 1) return `idle of ${cell(IDLE)}`;
  // In this order no sum is rounded: each operand is below 2^53, and so is each difference.
  const left =
    cell(CELL.CONSUMED / 8) - cell(CELL.ACCEPTED / 8) - cell(CELL.DROPPED_LATE / 8) - cell(CELL.INVALID / 8);
  if (left !== 0) return `${left} consumed events that are neither accepted, dropped nor invalid`;
  if (cell(CELL.DROPPED_AFTER_IDLE / 8) > cell(CELL.DROPPED_LATE / 8))
    return 'more events dropped after idleness than dropped';
  return undefined;
}

/** Returns a copy of the progress with more partitions, whose cells are empty. */
export function widened(progress: Float64Array, partitions: number): Float64Array {
  const wider = createProgress(partitions);
  wider.set(progress);
  return wider;
}

/** Copies the saved cells of a partition. */
export function copyCells(
  from: Float64Array,
  fromPartition: number,
  to: Float64Array,
  toPartition: number,
): void {
  for (const [, cell] of SAVED_CELLS)
    to[toPartition * PROGRESS_CELLS + cell] = from[fromPartition * PROGRESS_CELLS + cell] as number;
}

export function haveSameCells(a: Float64Array, b: Float64Array, partition: number): boolean {
  const from = partition * PROGRESS_CELLS;
  return SAVED_CELLS.every(([, cell]) => a[from + cell] === b[from + cell]);
}
