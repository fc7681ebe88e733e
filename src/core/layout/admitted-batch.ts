/** Rows of events in time, passed from admission to accumulation. */
import { coreError } from '../errors.ts';
import {
  ADMITTED_BATCH_ID,
  type AdmittedBatchViews,
  admittedBatchBytes,
  admittedBatchViews,
  BATCH,
  BATCH_HEADER,
} from './layouts.gen.ts';
import { BATCH_ROWS_MAX } from './record-batch.ts';

export class AdmittedBatch {
  readonly buffer: ArrayBufferLike;
  readonly columns: AdmittedBatchViews;
  readonly rowCapacity: number;

  private constructor(buffer: ArrayBufferLike, rowCapacity: number) {
    this.buffer = buffer;
    this.columns = admittedBatchViews(buffer, rowCapacity);
    this.rowCapacity = rowCapacity;
  }

  /** @throws out_of_range */
  static create(rowCapacity: number, shared = false): AdmittedBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX) {
      throw coreError(
        'out_of_range',
        `an admitted batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`,
      );
    }
    const bytes = admittedBatchBytes(rowCapacity);
    const buffer = shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes);
    const header = new Int32Array(buffer, 0, BATCH_HEADER.BYTES / 4);
    header[BATCH_HEADER.MAGIC / 4] = BATCH.MAGIC;
    header[BATCH_HEADER.LAYOUT_ID / 4] = ADMITTED_BATCH_ID;
    header[BATCH_HEADER.ROW_CAPACITY / 4] = rowCapacity;
    return new AdmittedBatch(buffer, rowCapacity);
  }

  get rowCount(): number {
    return this.columns.header[BATCH_HEADER.ROW_COUNT / 4] as number;
  }
  set rowCount(count: number) {
    this.columns.header[BATCH_HEADER.ROW_COUNT / 4] = count;
  }
}
