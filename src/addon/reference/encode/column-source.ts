/** Columns of a batch that are read. The addon's implementation is native/kernel/encode/encoder.h:
 *  both check a length, an offset and a type id before it is used. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import type { ColumnKind } from '../../../core/columns/column.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import { coreError } from '../../../core/errors.ts';
import { COLUMN_SLOT } from '../../../core/layout/layouts.gen.ts';

/** Elements of a list, map or text. */
export interface Elements {
  readonly start: number;
  readonly end: number;
}

export class ColumnSource {
  readonly schema: ColumnSchema;
  readonly kinds: readonly ColumnKind[];
  readonly children: ReadonlyArray<readonly number[]>;
  bytes: Uint8Array = new Uint8Array(0);
  view = new DataView(new ArrayBuffer(0));
  private batch: ColumnBatch | undefined;

  constructor(schema: ColumnSchema) {
    this.schema = schema;
    this.kinds = schema.all.map(({ kind }) => kind);
    this.children = schema.all.map((_, index) => schema.childrenOf(index));
  }

  /** @throws layout_mismatch for columns that have fewer values than the column around them */
  open(batch: ColumnBatch): void {
    this.batch = batch;
    this.bytes = new Uint8Array(batch.buffer);
    this.view = new DataView(batch.buffer);
    const lacks = (column: number, length: number): boolean => this.lengthOf(column) < length;
    const isShort =
      this.schema.topIndex.some((column) => lacks(column, batch.rowCount)) ||
      this.kinds.some(
        (kind, index) =>
          kind === 'struct' &&
          (this.children[index] as readonly number[]).some((child) => lacks(child, this.lengthOf(index))),
      );
    if (isShort) throw coreError('layout_mismatch', 'columns: not a batch of this layout');
  }

  lengthOf(column: number): number {
    return (this.batch as ColumnBatch).lengthOf(column);
  }

  isNull(column: number, at: number): boolean {
    return this.schema.all[column]?.nullable === true && !this.bit(column, COLUMN_SLOT.VALIDITY, at);
  }

  bool(column: number, at: number): boolean {
    return this.bit(column, COLUMN_SLOT.VALUES, at);
  }

  /** Byte of the batch's buffer where a value of fixed size begins. */
  cell(column: number, at: number): number {
    return this.place(column, COLUMN_SLOT.VALUES) + at * this.schema.sizeOf(column);
  }

  /** Type id of a union's value, and the element of its branch. */
  typeId(column: number, at: number): number {
    return this.bytes[this.place(column, COLUMN_SLOT.VALUES) + at] as number;
  }
  element(column: number, at: number): number {
    return this.view.getUint32(this.place(column, COLUMN_SLOT.OFFSETS) + at * 4, true);
  }

  /** Elements of a list or map, or bytes of a text; undefined where they are not among the first
   *  `most`. */
  elements(column: number, at: number, most: number): Elements | undefined {
    const place = this.place(column, COLUMN_SLOT.OFFSETS) + at * 4;
    const start = this.view.getInt32(place, true);
    const end = this.view.getInt32(place + 4, true);
    return start < 0 || end < start || end > most ? undefined : { start, end };
  }

  /** Bytes of a text or binary value; undefined where they leave the column. */
  text(column: number, at: number): Uint8Array | undefined {
    const most = (this.batch as ColumnBatch).capacityOf(column, COLUMN_SLOT.VALUES);
    const found = this.elements(column, at, most);
    const values = this.place(column, COLUMN_SLOT.VALUES);
    return found && this.bytes.subarray(values + found.start, values + found.end);
  }

  private place(column: number, slot: number): number {
    return (this.batch as ColumnBatch).offsetOf(column, slot);
  }

  private bit(column: number, slot: number, at: number): boolean {
    return (((this.bytes[this.place(column, slot) + (at >>> 3)] as number) >>> (at & 7)) & 1) === 1;
  }
}
