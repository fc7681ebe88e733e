/** Result of a frame scan over a record batch: where each payload starts and which schema wrote it.
 */
import { coreError } from '../errors.ts';
import {
  BATCH,
  BATCH_HEADER,
  FRAME_BATCH_ID,
  type FrameBatchViews,
  frameBatchBytes,
  frameBatchViews,
} from './layouts.gen.ts';
import { BATCH_ROWS_MAX } from './record-batch.ts';

export class FrameBatch {
  readonly buffer: ArrayBufferLike;
  readonly columns: FrameBatchViews;
  readonly rowCapacity: number;

  private constructor(buffer: ArrayBufferLike, rowCapacity: number) {
    this.buffer = buffer;
    this.columns = frameBatchViews(buffer, rowCapacity);
    this.rowCapacity = rowCapacity;
  }

  /** @throws out_of_range */
  static create(rowCapacity: number): FrameBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX) {
      throw coreError('out_of_range', `a frame batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`);
    }
    const buffer = new ArrayBuffer(frameBatchBytes(rowCapacity));
    const header = new Int32Array(buffer, 0, BATCH_HEADER.BYTES / 4);
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = FRAME_BATCH_ID;
    header[BATCH_HEADER.ROW_CAPACITY / 4] = rowCapacity;
    return new FrameBatch(buffer, rowCapacity);
  }

  get rowCount(): number {
    return this.columns.header[BATCH_HEADER.ROW_COUNT / 4] as number;
  }
  set rowCount(count: number) {
    this.columns.header[BATCH_HEADER.ROW_COUNT / 4] = count;
  }
}
