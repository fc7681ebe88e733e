/** Appends values to the columns of a batch, a row at a time.
 *
 *  Invariants: (1) a value is appended only where all its buffers have room, else `NeedRoom` is
 *  thrown; (2) `rollback` restores the state behind the last complete row; (3) the bits behind the
 *  last value of a bitmap's last byte are zero. The addon's implementation is
 *  native/kernel/codec/columns.h; both ask for the same room in the same order. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import { type ColumnKind, cellBytes } from '../../../core/columns/column.ts';
import type { ColumnSchema } from '../../../core/columns/schema.ts';
import { COLUMN_LIMIT, COLUMN_SLOT, COLUMN_STATE } from '../../../core/layout/layouts.gen.ts';

/** Reports that a buffer lacks room for the next value. */
export class NeedRoom extends Error {
  readonly slot: number;
  readonly bytes: number;

  constructor(slot: number, bytes: number) {
    super(`slot ${slot} needs ${bytes} bytes`);
    this.slot = slot;
    this.bytes = bytes;
  }
}

/** Bytes that no buffer has: the column has its greatest number of elements. */
const MORE_THAN_ANY = 0xffff_ffff;

export class ColumnWriter {
  private readonly schema: ColumnSchema;
  private readonly kinds: readonly ColumnKind[];
  private readonly sizes: readonly number[];
  private readonly children: ReadonlyArray<readonly number[]>;
  /** Elements of each column, and behind them the used bytes of each values buffer. */
  private readonly counts: Uint32Array;
  private readonly committed: Uint32Array;
  private slots: Uint32Array = new Uint32Array(0);
  private bytes: Uint8Array = new Uint8Array(0);
  private view = new DataView(new ArrayBuffer(0));

  constructor(schema: ColumnSchema) {
    this.schema = schema;
    this.kinds = schema.all.map(({ kind }) => kind);
    this.sizes = schema.all.map(cellBytes);
    this.children = schema.all.map((_, index) => schema.childrenOf(index));
    this.counts = new Uint32Array(schema.all.length * 2);
    this.committed = new Uint32Array(schema.all.length * 2);
  }

  open(batch: ColumnBatch): void {
    const columns = this.schema.all.length;
    this.slots = batch.state.subarray(COLUMN_STATE.HEAD + columns);
    this.bytes = new Uint8Array(batch.buffer);
    this.view = new DataView(batch.buffer);
    this.counts.set(batch.state.subarray(COLUMN_STATE.HEAD, COLUMN_STATE.HEAD + columns));
    for (let column = 0; column < columns; column++)
      if (this.isText(column))
        this.counts[columns + column] = this.view.getInt32(
          this.place(column, COLUMN_SLOT.OFFSETS) + this.lengthOf(column) * 4,
          true,
        );
    this.committed.set(this.counts);
  }

  /** Makes the appended values a row. */
  commit(): void {
    this.committed.set(this.counts);
  }

  /** Removes the values behind the last complete row. */
  rollback(): void {
    this.counts.set(this.committed);
    this.kinds.forEach((kind, column) => {
      const length = this.lengthOf(column);
      if (this.schema.all[column]?.nullable) this.clearBits(this.place(column, COLUMN_SLOT.VALIDITY), length);
      if (kind === 'bool') this.clearBits(this.place(column, COLUMN_SLOT.VALUES), length);
    });
  }

  /** Writes the lengths of the columns to the batch. */
  save(batch: ColumnBatch): void {
    batch.state.set(this.committed.subarray(0, this.schema.all.length), COLUMN_STATE.HEAD);
  }

  int32(column: number, value: number): void {
    this.view.setInt32(this.cell(column), value, true);
  }

  /** Appends the low and the high word of a 64-bit integer. */
  words(column: number, low: number, high: number): void {
    const at = this.cell(column);
    this.view.setInt32(at, low, true);
    this.view.setInt32(at + 4, high, true);
  }

  float32(column: number, value: number): void {
    this.view.setFloat32(this.cell(column), value, true);
  }

  float64(column: number, value: number): void {
    this.view.setFloat64(this.cell(column), value, true);
  }

  bool(column: number, value: boolean): void {
    const at = this.reserve(column);
    this.setBit(this.place(column, COLUMN_SLOT.VALUES), at, value);
    this.finish(column, at);
  }

  /** Appends a value of fixed size from its bytes. */
  fixed(column: number, from: Uint8Array, start: number): void {
    const size = this.sizes[column] as number;
    const at = this.cell(column);
    for (let i = 0; i < size; i++) this.bytes[at + i] = from[start + i] as number;
  }

  /** Appends a decimal from `size` bytes of a big-endian two's complement number. */
  decimal(column: number, from: Uint8Array, start: number, size: number): void {
    const width = this.sizes[column] as number;
    const sign = size > 0 && (from[start] as number) >= 0x80 ? 0xff : 0;
    const at = this.cell(column);
    for (let i = 0; i < width; i++)
      this.bytes[at + i] = i < size ? (from[start + size - 1 - i] as number) : sign;
  }

  /** Appends a text or binary value. @param tag byte before the value, or -1 for none */
  text(column: number, from: Uint8Array, start: number, length: number, tag = -1): void {
    const at = this.reserve(column);
    const usedAt = this.schema.all.length + column;
    const used = this.counts[usedAt] as number;
    const more = tag < 0 ? length : length + 1;
    const slot = column * COLUMN_SLOT.COUNT + COLUMN_SLOT.VALUES;
    if (used + more > this.capacity(slot)) throw new NeedRoom(slot, used + more);
    let to = this.place(column, COLUMN_SLOT.VALUES) + used;
    if (tag >= 0) this.bytes[to++] = tag;
    this.bytes.set(from.subarray(start, start + length), to);
    this.counts[usedAt] = used + more;
    this.setOffset(column, at, used + more);
    this.finish(column, at);
  }

  /** Selects the branch of a union: the next element of that branch is the union's value. */
  pick(column: number, branch: number): void {
    const at = this.reserve(column);
    const child = (this.children[column] as readonly number[])[branch] as number;
    this.bytes[this.place(column, COLUMN_SLOT.VALUES) + at] = branch;
    this.view.setInt32(this.place(column, COLUMN_SLOT.OFFSETS) + at * 4, this.lengthOf(child), true);
    this.counts[column] = at + 1;
  }

  /** Appends an element of a list, map or struct, whose children have been appended. */
  close(column: number): void {
    const at = this.reserve(column);
    if (this.kinds[column] !== 'struct') this.setOffset(column, at, this.lengthOf(column + 1));
    this.finish(column, at);
  }

  /** Appends null, or the zero value of a column that is not nullable. */
  empty(column: number): void {
    const kind = this.kinds[column] as ColumnKind;
    if (kind === 'union') {
      this.pick(column, 0);
      this.empty((this.children[column] as readonly number[])[0] as number);
      return;
    }
    if (kind === 'struct') for (const child of this.children[column] as readonly number[]) this.empty(child);
    const at = this.reserve(column);
    const values = this.place(column, COLUMN_SLOT.VALUES);
    const size = this.sizes[column] as number;
    if (kind === 'bool') this.setBit(values, at, false);
    else if (this.isText(column))
      this.setOffset(column, at, this.counts[this.schema.all.length + column] as number);
    else if (kind === 'list' || kind === 'map') this.setOffset(column, at, this.lengthOf(column + 1));
    else this.bytes.fill(0, values + at * size, values + (at + 1) * size);
    this.finish(column, at, false);
  }

  /** Removes the elements of lists and maps that are not closed yet, in the fields of the struct
   *  `column`, whose own element is not closed either. */
  truncateOpen(column: number): void {
    for (const child of this.children[column] as readonly number[]) {
      const kind = this.kinds[child];
      if (kind === 'struct') this.truncateOpen(child);
      else if (kind === 'list' || kind === 'map') this.truncate(child + 1, this.openStart(child));
    }
  }

  /** Elements of the child that belong to the closed elements of a list or map. */
  private openStart(column: number): number {
    return this.view.getInt32(this.place(column, COLUMN_SLOT.OFFSETS) + this.lengthOf(column) * 4, true);
  }

  private truncate(column: number, length: number): void {
    if (this.lengthOf(column) === length) return;
    const kind = this.kinds[column];
    this.counts[column] = length;
    if (this.schema.all[column]?.nullable) this.clearBits(this.place(column, COLUMN_SLOT.VALIDITY), length);
    if (kind === 'bool') this.clearBits(this.place(column, COLUMN_SLOT.VALUES), length);
    else if (kind === 'list' || kind === 'map') this.truncate(column + 1, this.openStart(column));
    else if (this.isText(column)) this.counts[this.schema.all.length + column] = this.openStart(column);
    else if (kind === 'struct')
      for (const child of this.children[column] as readonly number[]) this.truncate(child, length);
  }

  /** Bytes of a value of fixed size. */
  sizeOf(column: number): number {
    return this.sizes[column] as number;
  }

  /** True for utf8 and binary columns. */
  isText(column: number): boolean {
    return this.kinds[column] === 'utf8' || this.kinds[column] === 'binary';
  }

  private lengthOf(column: number): number {
    return this.counts[column] as number;
  }

  private place(column: number, slot: number): number {
    return this.slots[2 * (column * COLUMN_SLOT.COUNT + slot)] as number;
  }

  private capacity(slot: number): number {
    return this.slots[2 * slot + 1] as number;
  }

  private setBit(bitmap: number, at: number, value: boolean): void {
    const byte = bitmap + (at >>> 3);
    const kept = (this.bytes[byte] as number) & ((1 << (at & 7)) - 1);
    this.bytes[byte] = value ? kept | (1 << (at & 7)) : kept;
  }

  /** Clears the bits behind the first `length` in their byte. */
  private clearBits(bitmap: number, length: number): void {
    const bit = length & 7;
    const byte = bitmap + (length >>> 3);
    if (bit !== 0) this.bytes[byte] = (this.bytes[byte] as number) & ((1 << bit) - 1);
  }

  private setOffset(column: number, at: number, value: number): void {
    this.view.setInt32(this.place(column, COLUMN_SLOT.OFFSETS) + (at + 1) * 4, value, true);
  }

  /** Appends a valid cell and returns the place of its bytes. */
  private cell(column: number): number {
    const at = this.reserve(column);
    this.finish(column, at);
    return this.place(column, COLUMN_SLOT.VALUES) + at * (this.sizes[column] as number);
  }

  private finish(column: number, at: number, valid = true): void {
    if (this.schema.all[column]?.nullable) this.setBit(this.place(column, COLUMN_SLOT.VALIDITY), at, valid);
    this.counts[column] = at + 1;
  }

  /** Checks that one more element fits, apart from the bytes of a text, and returns its index. */
  private reserve(column: number): number {
    const at = this.lengthOf(column);
    const first = column * COLUMN_SLOT.COUNT;
    const demand = (slot: number, bytes: number): void => {
      if (bytes > this.capacity(first + slot)) throw new NeedRoom(first + slot, bytes);
    };
    const kind = this.kinds[column] as ColumnKind;
    if (at >= COLUMN_LIMIT.ELEMENTS) throw new NeedRoom(first + COLUMN_SLOT.VALUES, MORE_THAN_ANY);
    if (this.schema.all[column]?.nullable) demand(COLUMN_SLOT.VALIDITY, (at >>> 3) + 1);
    if (kind === 'union') demand(COLUMN_SLOT.OFFSETS, (at + 1) * 4);
    else if (this.isText(column) || kind === 'list' || kind === 'map')
      demand(COLUMN_SLOT.OFFSETS, (at + 2) * 4);
    if (kind === 'bool') demand(COLUMN_SLOT.VALUES, (at >>> 3) + 1);
    else if (kind === 'union') demand(COLUMN_SLOT.VALUES, at + 1);
    else demand(COLUMN_SLOT.VALUES, (at + 1) * (this.sizes[column] as number));
    return at;
  }
}
