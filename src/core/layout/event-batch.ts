/** Events as columns, filled by the source or the generator and read by the window operator. */
import { coreError } from '../errors.ts';
import {
  BATCH,
  BATCH_HEADER,
  EVENT_BATCH_ID,
  type EventBatchViews,
  eventBatchBytes,
  eventBatchViews,
} from './layouts.gen.ts';
import { BATCH_ROWS_MAX } from './record-batch.ts';

export class EventBatch {
  readonly buffer: ArrayBufferLike;
  readonly columns: EventBatchViews;
  readonly rowCapacity: number;

  private constructor(buffer: ArrayBufferLike, rowCapacity: number) {
    this.buffer = buffer;
    this.columns = eventBatchViews(buffer, rowCapacity);
    this.rowCapacity = rowCapacity;
  }

  /** @throws out_of_range */
  static create(rowCapacity: number, shared = false): EventBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX) {
      throw coreError('out_of_range', `an event batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`);
    }
    const bytes = eventBatchBytes(rowCapacity);
    const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
    const header = new Int32Array(buffer, 0, BATCH_HEADER.BYTES / 4);
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = EVENT_BATCH_ID;
    header[BATCH_HEADER.ROW_CAPACITY / 4] = rowCapacity;
    return new EventBatch(buffer, rowCapacity);
  }

  get rowCount(): number {
    return this.columns.header[BATCH_HEADER.ROW_COUNT / 4] as number;
  }
  set rowCount(count: number) {
    this.columns.header[BATCH_HEADER.ROW_COUNT / 4] = count;
  }
}
