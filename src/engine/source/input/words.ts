/** Columns of an event batch as 32-bit words, two a cell. */
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../core/layout/layouts.gen.ts';
import { EVENT_TS_LIMIT, isEventTs } from '../../../core/time.ts';
import { KeySpans } from '../../keys/spans.ts';

const TWO_32 = 2 ** 32;

export class EventWords {
  readonly batch: EventBatch;
  readonly status: Uint8Array;
  readonly key: Int32Array;
  readonly value: Int32Array;
  /** Faults of rows whose status does not say it all. */
  readonly faults = new Map<number, string>();
  private readonly time: Int32Array;
  private spans: KeySpans | undefined;

  private constructor(batch: EventBatch) {
    const { accountId, value, eventTs, status } = batch.columns;
    const words = (column: BigInt64Array | BigUint64Array): Int32Array =>
      new Int32Array(batch.buffer, column.byteOffset, batch.rowCapacity * 2);
    this.batch = batch;
    this.status = status;
    this.key = words(accountId);
    this.value = words(value);
    this.time = words(eventTs);
  }

  private static readonly made = new WeakMap<EventBatch, EventWords>();

  static of(batch: EventBatch): EventWords {
    const made = EventWords.made.get(batch) ?? new EventWords(batch);
    EventWords.made.set(batch, made);
    return made;
  }

  /** Keys of variable length of the rows with status OK. */
  get keys(): KeySpans {
    if (this.spans === undefined) {
      this.spans = new KeySpans();
      this.spans.reset(this.batch.rowCapacity);
    }
    return this.spans;
  }

  /** Sets every row to status OK with zeros. */
  reset(rows: number): void {
    const { batch } = this;
    this.spans?.reset(batch.rowCapacity);
    batch.columns.seq.fill(0n, 0, rows);
    for (const column of [this.key, this.value, this.time]) column.fill(0, 0, rows * 2);
    this.status.fill(EVENT_STATUS.OK, 0, rows);
    this.faults.clear();
    batch.rowCount = rows;
  }

  /** Sets the time of a row, or BAD_TIME for a time outside the limits and for NaN. */
  setTime(row: number, ms: number): void {
    if (!(ms >= -EVENT_TS_LIMIT && ms < EVENT_TS_LIMIT)) {
      this.status[row] = EVENT_STATUS.BAD_TIME;
      return;
    }
    this.time[row * 2] = ms | 0;
    this.time[row * 2 + 1] = Math.floor(ms / TWO_32);
  }

  /** Sets the times of rows from `first` on that have status OK; those of other rows are
   *  meaningless. @shape cells i32[2 * rows], low and high word of an i64 in ms */
  setTimes(first: number, cells: Int32Array): void {
    const { status } = this;
    this.time.set(cells, first * 2);
    for (let i = 1, row = first; i < cells.length; i += 2, row++)
      if (!isEventTs(cells[i] as number) && status[row] === EVENT_STATUS.OK)
        status[row] = EVENT_STATUS.BAD_TIME;
  }

  /** Clears the cells of the rows that are no event. */
  clearInvalid(): void {
    const { status, batch } = this;
    for (let row = 0; row < batch.rowCount; row++) {
      if (status[row] === EVENT_STATUS.OK || status[row] === EVENT_STATUS.FILTERED) continue;
      for (const column of [this.key, this.value, this.time]) {
        column[row * 2] = 0;
        column[row * 2 + 1] = 0;
      }
    }
  }
}
