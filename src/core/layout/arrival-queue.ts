/** Hierarchical timing wheel of delayed events, over a pool of rows that can grow. The buffers are
 *  plain data, so kernels of both languages use them. */
import { coreError } from '../errors.ts';
import {
  ARRIVAL_POOL_ID,
  ARRIVAL_STATE,
  ARRIVAL_WHEEL,
  ARRIVAL_WHEEL_ID,
  type ArrivalPoolViews,
  type ArrivalWheelViews,
  arrivalPoolBytes,
  arrivalPoolViews,
  arrivalWheelBytes,
  arrivalWheelViews,
  BATCH,
  BATCH_HEADER,
} from './layouts.gen.ts';

/** Longest delay that the wheel holds: SLOTS^LEVELS ms less one slot of the highest level. */
export const ARRIVAL_DELAY_MAX_MS =
  (ARRIVAL_WHEEL.SLOTS - 1) * ARRIVAL_WHEEL.SLOTS ** (ARRIVAL_WHEEL.LEVELS - 1);
const ARRIVAL_POOL_ROWS_MAX = 1 << 27;

function stamp(header: Int32Array, id: number, rows: number): void {
  header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
  header[BATCH_HEADER.LAYOUT_ID / 4] = id;
  header[BATCH_HEADER.ROW_CAPACITY / 4] = rows;
}

export class ArrivalQueue {
  /** Cells by ARRIVAL_STATE offsets / 8. */
  readonly state = new Float64Array(ARRIVAL_STATE.BYTES / 8);
  readonly wheelBuffer: ArrayBuffer;
  readonly wheel: ArrivalWheelViews;
  poolBuffer: ArrayBuffer;
  pool: ArrivalPoolViews;
  poolRows: number;

  constructor(poolRows: number) {
    const lists = ARRIVAL_WHEEL.LEVELS * ARRIVAL_WHEEL.SLOTS;
    this.wheelBuffer = new ArrayBuffer(arrivalWheelBytes(lists));
    this.wheel = arrivalWheelViews(this.wheelBuffer, lists);
    stamp(this.wheel.header, ARRIVAL_WHEEL_ID, lists);
    this.wheel.head.fill(-1);
    this.wheel.tail.fill(-1);
    this.poolRows = poolRows;
    this.poolBuffer = new ArrayBuffer(arrivalPoolBytes(poolRows));
    this.pool = arrivalPoolViews(this.poolBuffer, poolRows);
    stamp(this.pool.header, ARRIVAL_POOL_ID, poolRows);
    this.state[ARRIVAL_STATE.FREE_HEAD / 8] = -1;
    this.free(0, poolRows);
  }

  /** Events that are delayed and not yet emitted. */
  get pending(): number {
    return this.state[ARRIVAL_STATE.PENDING / 8] as number;
  }

  get isFull(): boolean {
    return this.state[ARRIVAL_STATE.POOL_FULL / 8] === 1;
  }

  /** Doubles the pool; pending events keep their rows. @throws out_of_range */
  grow(): void {
    const rows = this.poolRows * 2;
    if (rows > ARRIVAL_POOL_ROWS_MAX) {
      throw coreError('out_of_range', `more than ${ARRIVAL_POOL_ROWS_MAX} delayed events are pending`, {
        next: 'give a smaller delay or fewer events a millisecond',
      });
    }
    const buffer = new ArrayBuffer(arrivalPoolBytes(rows));
    const views = arrivalPoolViews(buffer, rows);
    stamp(views.header, ARRIVAL_POOL_ID, rows);
    views.seq.set(this.pool.seq);
    views.arrival.set(this.pool.arrival);
    views.next.set(this.pool.next);
    const from = this.poolRows;
    this.poolBuffer = buffer;
    this.pool = views;
    this.poolRows = rows;
    this.free(from, rows);
  }

  /** Puts rows from..to-1 in front of the free list, lowest first. */
  private free(from: number, to: number): void {
    const { next } = this.pool;
    for (let row = from; row < to - 1; row++) next[row] = row + 1;
    next[to - 1] = this.state[ARRIVAL_STATE.FREE_HEAD / 8] as number;
    this.state[ARRIVAL_STATE.FREE_HEAD / 8] = from;
  }
}
