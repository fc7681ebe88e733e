/** Typed views of the buffers of a batch, one set for each column. */
import { COLUMN_SLOT } from '../layout/layouts.gen.ts';
import type { ColumnBatch } from './batch.ts';
import type { ColumnSchema } from './schema.ts';

/** Views of one column. A view that the column's kind does not use is empty. */
export class ColumnViews {
  validity = new Uint8Array(0);
  offsets = new Int32Array(0);
  /** Values as bytes: texts, binary and fixed values, decimals, bits, type ids. */
  bytes: Buffer = Buffer.alloc(0);
  int32 = new Int32Array(0);
  uint32 = new Uint32Array(0);
  int64 = new BigInt64Array(0);
  uint64 = new BigUint64Array(0);
  float32 = new Float32Array(0);
  float64 = new Float64Array(0);

  /** True where the value at `at` is not null. REQUIRES: the column is nullable. */
  isValid(at: number): boolean {
    return (((this.validity[at >>> 3] as number) >>> (at & 7)) & 1) === 1;
  }
}

/** Views of all columns of a schema. They follow a batch that grows, after `attach`. */
export class BatchViews {
  readonly columns: readonly ColumnViews[];
  private readonly schema: ColumnSchema;
  private buffer: ArrayBuffer | undefined;

  constructor(schema: ColumnSchema) {
    this.schema = schema;
    this.columns = schema.all.map(() => new ColumnViews());
  }

  /** Makes the views show `batch`. Cheap when its buffer is the same as before. */
  attach(batch: ColumnBatch): void {
    if (batch.buffer === this.buffer) return;
    this.buffer = batch.buffer;
    this.schema.all.forEach((column, index) => {
      const views = this.columns[index] as ColumnViews;
      const { VALIDITY, OFFSETS, VALUES } = COLUMN_SLOT;
      const at = batch.offsetOf(index, VALUES);
      const bytes = batch.capacityOf(index, VALUES);
      if (column.nullable)
        views.validity = new Uint8Array(
          batch.buffer,
          batch.offsetOf(index, VALIDITY),
          batch.capacityOf(index, VALIDITY),
        );
      views.offsets = new Int32Array(
        batch.buffer,
        batch.offsetOf(index, OFFSETS),
        batch.capacityOf(index, OFFSETS) >>> 2,
      );
      switch (column.kind) {
        case 'int32':
        case 'dictionary':
          views.int32 = new Int32Array(batch.buffer, at, bytes >>> 2);
          break;
        case 'uint32':
          views.uint32 = new Uint32Array(batch.buffer, at, bytes >>> 2);
          break;
        case 'int64':
          views.int64 = new BigInt64Array(batch.buffer, at, bytes >>> 3);
          break;
        case 'uint64':
          views.uint64 = new BigUint64Array(batch.buffer, at, bytes >>> 3);
          break;
        case 'float32':
          views.float32 = new Float32Array(batch.buffer, at, bytes >>> 2);
          break;
        case 'float64':
          views.float64 = new Float64Array(batch.buffer, at, bytes >>> 3);
          break;
        default:
          views.bytes = Buffer.from(batch.buffer, at, bytes);
      }
    });
  }
}
