/** Rows that admission refused, each with its reason. */
import { coreError } from '../errors.ts';
import {
  BATCH,
  BATCH_HEADER,
  REFUSED_BATCH_ID,
  type RefusedBatchViews,
  refusedBatchBytes,
  refusedBatchViews,
} from './layouts.gen.ts';
import { BATCH_ROWS_MAX } from './record-batch.ts';

/** Value of `bound` when no event had moved the watermark: any event time would have been in time.
 */
export const NO_BOUND = -(2n ** 62n);

export class RefusedBatch {
  readonly buffer: ArrayBufferLike;
  readonly columns: RefusedBatchViews;
  readonly rowCapacity: number;

  private constructor(buffer: ArrayBufferLike, rowCapacity: number) {
    this.buffer = buffer;
    this.columns = refusedBatchViews(buffer, rowCapacity);
    this.rowCapacity = rowCapacity;
  }

  /** @throws out_of_range */
  static create(rowCapacity: number, shared = false): RefusedBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX) {
      throw coreError(
        'out_of_range',
        `a refused batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`,
      );
    }
    const bytes = refusedBatchBytes(rowCapacity);
    const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
    const header = new Int32Array(buffer, 0, BATCH_HEADER.BYTES / 4);
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = REFUSED_BATCH_ID;
    header[BATCH_HEADER.ROW_CAPACITY / 4] = rowCapacity;
    return new RefusedBatch(buffer, rowCapacity);
  }

  get rowCount(): number {
    return this.columns.header[BATCH_HEADER.ROW_COUNT / 4] as number;
  }
  set rowCount(count: number) {
    this.columns.header[BATCH_HEADER.ROW_COUNT / 4] = count;
  }
}
