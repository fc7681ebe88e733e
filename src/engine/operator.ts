/** The window operator: a synchronous step over a batch. No clock, randomness, socket or disk.
 *
 *  Each row, in arrival order: validate -> advance its partition's watermark -> drop it if it is late, else accumulate
 *  -> fire every window that ends at or before the frontier, in (end, account_id) order.
 *  Invariants: (1) the results and the counts depend on the rows of each partition alone, not on where batches are cut,
 *  how partitions interleave, or how many shards there are; (2) an accepted event never meets a fired window; (3)
 *  accepted + dropped + invalid = consumed, a partition.
 */
import { invariant } from '../core/errors.ts';
import { EVENT_STATUS } from '../core/layout/layouts.gen.ts';
import { fromWords, isEventTs } from '../core/time.ts';
import type { WatermarkGenerator } from '../core/watermark.ts';
import type { FiredWindow } from './accumulator.ts';
import type { EventColumns } from './columns.ts';
import type { StateBackend } from './state/port.ts';
import type { WindowAssigner } from './windows.ts';

/** Counts and positions of one partition. */
export interface PartitionProgress {
  readonly partition: number;
  /** Next offset to read. */
  readonly offset: number;
  readonly maxSeenTs: number;
  readonly consumed: number;
  readonly accepted: number;
  readonly droppedLate: number;
  readonly invalid: number;
}

export interface OperatorParts {
  readonly watermarks: WatermarkGenerator;
  readonly assigner: WindowAssigner;
  readonly state: StateBackend;
  /** Rows the largest batch has. */
  readonly rowCapacity: number;
}

export class WindowOperator {
  private readonly watermarks: WatermarkGenerator;
  private readonly assigner: WindowAssigner;
  private readonly state: StateBackend;
  private readonly row: Int32Array;
  private readonly slice: Float64Array;
  private readonly next: Float64Array;
  private readonly limit: Float64Array;
  private readonly consumed: Float64Array;
  private readonly accepted: Float64Array;
  private readonly dropped: Float64Array;
  private readonly invalid: Float64Array;
  /** Least end of an open window. */
  private nextEnd = Number.POSITIVE_INFINITY;
  /** Every window that ends at or before it has fired. */
  private fired = Number.NEGATIVE_INFINITY;

  constructor(parts: OperatorParts) {
    this.watermarks = parts.watermarks;
    this.assigner = parts.assigner;
    this.state = parts.state;
    this.row = new Int32Array(parts.rowCapacity);
    this.slice = new Float64Array(parts.rowCapacity);
    const count = parts.watermarks.partitionCount;
    this.next = new Float64Array(count);
    this.limit = new Float64Array(count).fill(Number.POSITIVE_INFINITY);
    this.consumed = new Float64Array(count);
    this.accepted = new Float64Array(count);
    this.dropped = new Float64Array(count);
    this.invalid = new Float64Array(count);
  }

  /** Takes a batch; returns the windows that fired, in order of their end. Rows at or behind a partition's limit are
   *  left alone and not counted. */
  step(columns: EventColumns): readonly FiredWindow[] {
    const { partition, offset, eventTs, status, rowCount } = columns;
    const { watermarks, assigner, row, slice, next, limit } = this;
    const out: FiredWindow[] = [];
    const sliceMs = assigner.sliceMs;
    let count = 0;
    let start = Number.NaN;
    for (let r = 0; r < rowCount; r++) {
      const p = partition[r] as number;
      const position = fromWords(offset[r * 2] as number, offset[r * 2 + 1] as number);
      if (position >= (limit[p] as number)) {
        next[p] = limit[p] as number;
        continue;
      }
      invariant(position >= (next[p] as number), 'records of a partition come once and in offset order');
      next[p] = position + 1;
      this.consumed[p] = (this.consumed[p] as number) + 1;
      const high = eventTs[r * 2 + 1] as number;
      if (status[r] !== EVENT_STATUS.OK || !isEventTs(high)) {
        this.invalid[p] = (this.invalid[p] as number) + 1;
        continue;
      }
      const ts = fromWords(eventTs[r * 2] as number, high);
      if (!watermarks.admit(p, ts)) {
        this.dropped[p] = (this.dropped[p] as number) + 1;
        continue;
      }
      this.accepted[p] = (this.accepted[p] as number) + 1;
      if (!(ts >= start && ts < start + sliceMs)) {
        start = assigner.sliceOf(ts);
        const end = assigner.firstEndOf(start);
        invariant(end > this.fired, 'an accepted event never meets a fired window');
        if (end < this.nextEnd) this.nextEnd = end;
      }
      row[count] = r;
      slice[count++] = start;
      if (watermarks.frontier >= this.nextEnd) {
        this.state.accumulate({ columns, row, slice, count });
        count = 0;
        start = Number.NaN;
        this.fire(watermarks.frontier, out);
      }
    }
    if (count > 0) this.state.accumulate({ columns, row, slice, count });
    return out;
  }

  /** Fires everything that is open: the end of a bounded input. Watermarks stay as they are. */
  drain(): readonly FiredWindow[] {
    const out: FiredWindow[] = [];
    this.fire(Number.POSITIVE_INFINITY, out);
    return out;
  }

  /** Rows of the partition from this offset on are not taken. */
  setLimit(partition: number, offset: number): void {
    this.limit[partition] = offset;
  }

  get firedFrontier(): number {
    return this.fired;
  }

  position(partition: number): number {
    return this.next[partition] as number;
  }

  /** Positions and counts now. Asserts that nothing went missing. */
  progress(): readonly PartitionProgress[] {
    const maxSeen = this.watermarks.maxSeen();
    return Array.from(this.next, (offset, partition) => {
      const consumed = this.consumed[partition] as number;
      const accepted = this.accepted[partition] as number;
      const droppedLate = this.dropped[partition] as number;
      const invalid = this.invalid[partition] as number;
      invariant(accepted + droppedLate + invalid === consumed, 'accepted + dropped + invalid = consumed');
      return {
        partition,
        offset,
        maxSeenTs: maxSeen[partition] as number,
        consumed,
        accepted,
        droppedLate,
        invalid,
      };
    });
  }

  totals(): {
    readonly consumed: number;
    readonly accepted: number;
    readonly droppedLate: number;
    readonly invalid: number;
  } {
    const sum = (of: Float64Array): number => of.reduce((total, one) => total + one, 0);
    return {
      consumed: sum(this.consumed),
      accepted: sum(this.accepted),
      droppedLate: sum(this.dropped),
      invalid: sum(this.invalid),
    };
  }

  /** Continues where a checkpoint was cut; the state has been loaded. */
  restore(progress: readonly PartitionProgress[], fired: number): void {
    for (const one of progress) {
      this.next[one.partition] = one.offset;
      this.consumed[one.partition] = one.consumed;
      this.accepted[one.partition] = one.accepted;
      this.dropped[one.partition] = one.droppedLate;
      this.invalid[one.partition] = one.invalid;
    }
    this.watermarks.restore(progress.map((one) => one.maxSeenTs));
    this.fired = fired;
    this.findNextEnd();
  }

  private fire(frontier: number, out: FiredWindow[]): void {
    for (const sliceStart of this.state.openSlices()) {
      const windowEnd = this.assigner.firstEndOf(sliceStart);
      if (windowEnd > frontier) break;
      const { rowCount, rows } = this.state.take(sliceStart);
      out.push({ windowStart: sliceStart, windowEnd, rowCount, rows });
    }
    if (frontier > this.fired) this.fired = frontier;
    this.findNextEnd();
  }

  private findNextEnd(): void {
    const [first] = this.state.openSlices();
    this.nextEnd = first === undefined ? Number.POSITIVE_INFINITY : this.assigner.firstEndOf(first);
  }
}
