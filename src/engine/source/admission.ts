/** Event time: watermarks, and which events are in time. The admission kernel implements the rules;
 *  this module owns its cells, the decisions about partitions, and the counters.
 *
 *  The watermark of partition p is its greatest event_ts - skew; an event is late iff event_ts <
 *  watermark
 *  - lateness. The frontier is the running maximum of the least (watermark - lateness) over the
 *  partitions that are not idle. Invariants: (1) neither ever falls; (2) both advance row by row,
 *  so a verdict does not depend on batch boundaries; (3) a partition without an event holds the
 *  frontier at -Infinity; (4) an admitted event has event_ts >= frontier, so it cannot fall into a
 *  window that ended at or before the frontier; (5) accepted + dropped + invalid = consumed, for
 *  each partition. */

import type { WindowKernels } from '../../addon/window-surface.ts';
import { invariant } from '../../core/errors.ts';
import { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import { EventBatch } from '../../core/layout/event-batch.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { RefusedBatch } from '../../core/layout/refused-batch.ts';
import {
  CLOCK_AT,
  createClock,
  createProgress,
  PROGRESS_AT,
  PROGRESS_CELLS,
  type WindowTimes,
  watermarkOf,
} from '../../core/layout/window-clock.ts';
import { copyCells } from '../durability/changelog/cells.ts';

/** Position, watermark and counts of one partition. */
export interface PartitionProgress {
  readonly partition: number;
  /** Next offset to read. */
  readonly offset: number;
  /** Greatest event_ts that moved the watermark; -Infinity: none. */
  readonly maxSeenTs: number;
  readonly consumed: number;
  readonly accepted: number;
  readonly droppedLate: number;
  /** Dropped events that the partition's own watermark would have admitted. */
  readonly droppedAfterIdle: number;
  readonly invalid: number;
  /** Events beyond their append time + max-future, accepted or not. */
  readonly futureClamped: number;
  readonly idle: boolean;
}

export type Totals = Pick<
  PartitionProgress,
  'consumed' | 'accepted' | 'droppedLate' | 'droppedAfterIdle' | 'invalid' | 'futureClamped'
>;

export interface WatermarkGenerator {
  readonly mode: 'partition' | 'global';
  readonly partitionCount: number;
  /** True if results depend on the interleaving of partitions, so that the changelog must record
   *  it. */
  readonly dependsOnOrder: boolean;
  /** Cells of the layouts WindowClock and PartitionProgress, for the changelog. Borrowed; every
   *  call changes them. */
  readonly clock: Float64Array;
  readonly cells: Float64Array;
  /** Every window that ends at or before the frontier is final; -Infinity: no window is final. */
  readonly frontier: number;
  /** Least watermark, at most the greatest event_ts - skew; -Infinity before every partition has
   *  one. */
  readonly watermark: number;
  /** Least end of an open window, lowered by admitted rows; Infinity: none. Admission stops when
   *  the frontier reaches it. */
  nextEnd: number;
  /** Admits rows in arrival order, from row `from` up to and including the first row that makes a
   *  window due. Returns the number of rows; 0 if a window was due before. `admitted` then holds
   *  the rows in time, and `refused` the late and invalid rows. Rows at or beyond a partition's
   *  limit are skipped and not counted. */
  admit(
    records: RecordBatch,
    events: EventBatch,
    from: number,
    admitted: AdmittedBatch,
    refused?: RefusedBatch,
  ): number;
  /** Marks the partition idle: it does not hold the frontier back until its next valid event. */
  idle(partition: number): void;
  /** Recomputes the frontier from partitions and rules; it may be beyond the saved frontier. */
  refresh(): void;
  isIdle(partition: number): boolean;
  /** Adds a partition that starts at the frontier: earlier events would fall into fired windows. */
  added(offset: number): void;
  /** Rows of the partition from this offset on are not admitted. */
  setLimit(partition: number, offset: number): void;
  /** Limit of a partition; Infinity: none. */
  limitOf(partition: number): number;
  position(partition: number): number;
  /** Number of valid events of the partition so far, late ones included. */
  validCount(partition: number): number;
  progress(): readonly PartitionProgress[];
  totals(): Totals;
  /** Resumes from saved cells; clears all limits. */
  restore(cells: Float64Array, frontier: number, maxSeen: number): void;
}

const { NEXT_OFFSET: OFFSET, LIMIT, MAX_SEEN, IDLE } = PROGRESS_AT;
const { CONSUMED, ACCEPTED, DROPPED_LATE, DROPPED_AFTER_IDLE, INVALID, FUTURE_CLAMPED } = PROGRESS_AT;
const { FRONTIER, NEXT_END, MAX_SEEN: CLOCK_MAX_SEEN } = CLOCK_AT;

/** Progress of partitions that start at these offsets. */
export function freshCells(offsets: readonly number[]): Float64Array {
  const cells = createProgress(offsets.length);
  offsets.forEach((offset, partition) => {
    cells[partition * PROGRESS_CELLS + OFFSET] = offset;
  });
  return cells;
}

/** Next offset of a partition in saved cells. */
export const offsetIn = (cells: Float64Array, partition: number): number =>
  cells[partition * PROGRESS_CELLS + OFFSET] as number;

type Admit = Pick<WindowKernels, 'admit'>;

class KernelWatermarks {
  private readonly kernels: Admit;
  private readonly times: WindowTimes;
  readonly clock: Float64Array;
  cells: Float64Array;
  private readonly noRows = {
    records: RecordBatch.create(1, 0),
    events: EventBatch.create(1),
    admitted: AdmittedBatch.create(1),
  };

  constructor(kernels: Admit, times: WindowTimes, partitionCount: number) {
    invariant(partitionCount > 0, 'watermarks need at least one partition');
    this.kernels = kernels;
    this.times = times;
    this.clock = createClock(times);
    this.cells = createProgress(partitionCount);
  }

  get partitionCount(): number {
    return this.cells.length / PROGRESS_CELLS;
  }
  get frontier(): number {
    return this.clock[FRONTIER] as number;
  }
  get watermark(): number {
    return watermarkOf(this.times, this.frontier, this.clock[CLOCK_MAX_SEEN] as number);
  }
  get nextEnd(): number {
    return this.clock[NEXT_END] as number;
  }
  set nextEnd(end: number) {
    this.clock[NEXT_END] = end;
  }

  admit(
    records: RecordBatch,
    events: EventBatch,
    from: number,
    admitted: AdmittedBatch,
    refused?: RefusedBatch,
  ): number {
    return this.kernels.admit(this.clock, this.cells, records, events, from, admitted, refused);
  }

  idle(partition: number): void {
    this.put(partition, IDLE, 1);
    this.refresh();
  }

  refresh(): void {
    const { records, events, admitted } = this.noRows;
    this.admit(records, events, 0, admitted);
  }

  isIdle(partition: number): boolean {
    return this.read(partition, IDLE) === 1;
  }

  added(offset: number): void {
    const partition = this.partitionCount;
    let greatest = Number.NEGATIVE_INFINITY;
    for (let p = 0; p < partition; p++) greatest = Math.max(greatest, this.read(p, MAX_SEEN));
    const cells = createProgress(partition + 1);
    cells.set(this.cells);
    this.cells = cells;
    this.put(partition, OFFSET, offset);
    // After a raised skew or lateness, the frontier is closer to the greatest time than the delay.
    const { skewMs, latenessMs } = this.times;
    this.put(partition, MAX_SEEN, Math.min(greatest, this.frontier + skewMs + latenessMs));
  }

  setLimit(partition: number, offset: number): void {
    this.put(partition, LIMIT, offset);
  }

  limitOf(partition: number): number {
    return this.read(partition, LIMIT);
  }

  position(partition: number): number {
    return this.read(partition, OFFSET);
  }

  validCount(partition: number): number {
    return this.read(partition, CONSUMED) - this.read(partition, INVALID);
  }

  progress(): readonly PartitionProgress[] {
    return Array.from({ length: this.partitionCount }, (_, partition) => this.progressOf(partition));
  }

  totals(): Totals {
    const sum = (cell: number): number => {
      let total = 0;
      for (let p = 0; p < this.partitionCount; p++) total += this.read(p, cell);
      return total;
    };
    return {
      consumed: sum(CONSUMED),
      accepted: sum(ACCEPTED),
      droppedLate: sum(DROPPED_LATE),
      droppedAfterIdle: sum(DROPPED_AFTER_IDLE),
      invalid: sum(INVALID),
      futureClamped: sum(FUTURE_CLAMPED),
    };
  }

  restore(cells: Float64Array, frontier: number, maxSeen: number): void {
    const partitions = cells.length / PROGRESS_CELLS;
    invariant(partitions > 0, 'watermarks are restored for at least one partition');
    this.cells = createProgress(partitions);
    for (let partition = 0; partition < partitions; partition++)
      copyCells(cells, partition, this.cells, partition);
    this.clock[FRONTIER] = frontier;
    this.clock[CLOCK_MAX_SEEN] = maxSeen;
  }

  private progressOf(partition: number): PartitionProgress {
    const read = (cell: number): number => this.read(partition, cell);
    const [consumed, accepted, droppedLate] = [read(CONSUMED), read(ACCEPTED), read(DROPPED_LATE)];
    const [droppedAfterIdle, invalid] = [read(DROPPED_AFTER_IDLE), read(INVALID)];
    invariant(accepted + droppedLate + invalid === consumed, 'accepted + dropped + invalid = consumed');
    invariant(droppedAfterIdle <= droppedLate, 'drops after idleness are a part of the drops');
    return {
      partition,
      offset: read(OFFSET),
      maxSeenTs: read(MAX_SEEN),
      consumed,
      accepted,
      droppedLate,
      droppedAfterIdle,
      invalid,
      futureClamped: read(FUTURE_CLAMPED),
      idle: this.isIdle(partition),
    };
  }

  private read(partition: number, cell: number): number {
    return this.cells[partition * PROGRESS_CELLS + cell] as number;
  }

  private put(partition: number, cell: number, value: number): void {
    invariant(partition >= 0 && partition < this.partitionCount, 'a partition number must exist');
    this.cells[partition * PROGRESS_CELLS + cell] = value;
  }
}

type Times = Omit<WindowTimes, 'mode'>;

/** One watermark for each partition; the least of them fires. Results do not depend on how
 *  partitions interleave. */
export class PartitionWatermarks extends KernelWatermarks implements WatermarkGenerator {
  readonly mode = 'partition';
  readonly dependsOnOrder = false;

  constructor(kernels: Admit, times: Times, partitionCount: number) {
    super(kernels, { ...times, mode: 'partition' }, partitionCount);
  }
}

/** One watermark for all partitions, from the greatest event_ts of any partition. */
export class GlobalWatermarks extends KernelWatermarks implements WatermarkGenerator {
  readonly mode = 'global';

  constructor(kernels: Admit, times: Times, partitionCount: number) {
    super(kernels, { ...times, mode: 'global' }, partitionCount);
  }

  get dependsOnOrder(): boolean {
    return this.partitionCount > 1;
  }
}
