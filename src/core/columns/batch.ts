/** Decoded rows as columns in one growable buffer.
 *
 *  The buffer starts with the error byte of each row (u32) and its status (u8); the buffers of the
 *  columns follow, each at a multiple of ALIGN bytes. `state` has the lengths of the columns and
 *  the place of each buffer, so a kernel gets the whole batch as two arguments.
 *
 *  Invariants: (1) a row keeps its number; a row that cannot be read has a null, or where the
 *  column is not nullable a zero value, in every top column; (2) kernels change the batch only
 *  within the capacities and never grow it; (3) growing moves all buffers, so views are made anew.
 *  Ownership: the batch belongs to its creator; views made by a reader are valid until the batch is
 *  cleared. */
import { coreError, invariant } from '../errors.ts';
import { ALIGN } from '../layout/define.ts';
import { COLUMN_SLOT, COLUMN_STATE } from '../layout/layouts.gen.ts';
import { BATCH_ROWS_MAX } from '../layout/record-batch.ts';
import { type Column, cellBytes } from './column.ts';
import type { ColumnSchema } from './schema.ts';

/** Greatest number of bytes of one batch, unless its creator chooses fewer. */
const COLUMN_BATCH_BYTES_MAX = 1 << 30;
/** Least number of bytes of the buffer for texts and binary values. */
const VALUE_BYTES_MIN = 256;
/** Elements of a list, and bytes of a text, that the first buffers have room for in each row. */
const LIST_ELEMENTS_ASSUMED = 4;
const TEXT_BYTES_ASSUMED = 16;
/** Growths for one row after which every buffer of variable size doubles: otherwise a short payload
 *  that fills many columns would be decoded again for each of them. */
const SINGLE_GROWTHS_MAX = 4;

/** Part of the buffers of a similar batch that a new one gets. */
const SPARE_SHARE = 1.1;

const aligned = (bytes: number): number => Math.ceil(bytes / ALIGN) * ALIGN;
/** Bytes of the errors and statuses of rows. */
const rowBytes = (rows: number): number => aligned(rows * 4) + aligned(rows);
const slotsAt = (schema: ColumnSchema): number => COLUMN_STATE.HEAD + schema.all.length;

/** Bytes that `length` values of a column use in each slot except values of variable size. */
function slotBytes(column: Column, slot: number, length: number): number {
  switch (slot) {
    case COLUMN_SLOT.VALIDITY:
      return column.nullable ? (length + 7) >>> 3 : 0;
    case COLUMN_SLOT.OFFSETS:
      if (column.kind === 'union') return length * 4;
      return hasOffsets(column) ? (length + 1) * 4 : 0;
    default:
      if (column.kind === 'bool') return (length + 7) >>> 3;
      return column.kind === 'union' ? length : length * cellBytes(column);
  }
}

const isText = (column: Column): boolean => column.kind === 'utf8' || column.kind === 'binary';
const hasOffsets = (column: Column): boolean =>
  isText(column) || column.kind === 'list' || column.kind === 'map';

/** Columns below a list or a map. */
function columnsInLists(schema: ColumnSchema): ReadonlySet<number> {
  const found = new Set<number>();
  const visit = (index: number, isInside: boolean): void => {
    if (isInside) found.add(index);
    const { kind } = schema.all[index] as Column;
    for (const child of schema.childrenOf(index)) visit(child, isInside || kind === 'list' || kind === 'map');
  };
  for (const index of schema.topIndex) visit(index, false);
  return found;
}

export class ColumnBatch {
  readonly schema: ColumnSchema;
  readonly rowCapacity: number;
  readonly bytesMax: number;
  /** Memory of the batch; replaced when the batch grows. */
  buffer: ArrayBuffer;
  /** Head, lengths and slots. @shape u32[COLUMN_STATE.HEAD + columns * 7] */
  readonly state: Uint32Array;
  /** Number of the last row that lacked room, and how often the batch grew for it. */
  private grownRow = -1;
  private growths = 0;
  private readonly inLists: ReadonlySet<number>;

  private constructor(
    schema: ColumnSchema,
    rowCapacity: number,
    bytesMax: number,
    capacities?: readonly number[],
  ) {
    this.schema = schema;
    this.rowCapacity = rowCapacity;
    this.bytesMax = bytesMax;
    this.state = new Uint32Array(slotsAt(schema) + schema.all.length * COLUMN_SLOT.COUNT * 2);
    this.state[COLUMN_STATE.ROW_CAPACITY] = rowCapacity;
    this.inLists = columnsInLists(schema);
    const bytes = this.place(capacities ?? this.firstCapacities());
    if (bytes > bytesMax)
      throw coreError(
        'out_of_range',
        `${rowCapacity} rows of ${schema.all.length} columns need ${bytes} bytes, more than ${bytesMax}`,
      );
    this.buffer = new ArrayBuffer(bytes);
  }

  /** Creates an empty batch. @param rowCapacity rows, 1 to BATCH_ROWS_MAX; @param bytesMax limit
   *  of the buffer's bytes
   *  @throws out_of_range */
  static create(schema: ColumnSchema, rowCapacity: number, bytesMax = COLUMN_BATCH_BYTES_MAX): ColumnBatch {
    if (!Number.isInteger(rowCapacity) || rowCapacity < 1 || rowCapacity > BATCH_ROWS_MAX)
      throw coreError('out_of_range', `a column batch takes 1 to ${BATCH_ROWS_MAX} rows, not ${rowCapacity}`);
    if (!(bytesMax > 0 && bytesMax <= COLUMN_BATCH_BYTES_MAX))
      throw coreError(
        'out_of_range',
        `a column batch takes at most ${COLUMN_BATCH_BYTES_MAX} bytes, not ${bytesMax}`,
      );
    return new ColumnBatch(schema, rowCapacity, bytesMax);
  }

  /** Creates a batch of columns that are already there: the caller fills the buffers.
   *  @param lengths values of each column; @param capacities bytes of each slot of each column
   *  @throws out_of_range */
  static sized(
    schema: ColumnSchema,
    rows: number,
    lengths: readonly number[],
    capacities: readonly number[],
  ): ColumnBatch {
    const batch = new ColumnBatch(schema, Math.max(1, rows), COLUMN_BATCH_BYTES_MAX, capacities);
    batch.state.set(lengths, COLUMN_STATE.HEAD);
    batch.state[COLUMN_STATE.ROW_COUNT] = rows;
    return batch;
  }

  /** Creates an empty batch with room for rows like those of `other`, as far as its limit allows.
   *  @throws out_of_range as create */
  static like(other: ColumnBatch, rowCapacity: number): ColumnBatch {
    const { schema, bytesMax } = other;
    const share = (rowCapacity / Math.max(1, other.rowCount)) * SPARE_SHARE;
    const capacities = schema.all.flatMap((column, index) =>
      [COLUMN_SLOT.VALIDITY, COLUMN_SLOT.OFFSETS, COLUMN_SLOT.VALUES].map((slot) => {
        if (!other.isVariable(index * COLUMN_SLOT.COUNT + slot)) return slotBytes(column, slot, rowCapacity);
        const least = slot === COLUMN_SLOT.VALUES && isText(column) ? VALUE_BYTES_MIN : ALIGN;
        return Math.max(least, Math.ceil(other.usedOf(index, slot) * share));
      }),
    );
    const bytes = capacities.reduce((sum, capacity) => sum + aligned(capacity), rowBytes(rowCapacity));
    if (bytes > bytesMax) return ColumnBatch.create(schema, rowCapacity, bytesMax);
    return new ColumnBatch(schema, rowCapacity, bytesMax, capacities);
  }

  get rowCount(): number {
    return this.state[COLUMN_STATE.ROW_COUNT] as number;
  }

  /** Error byte of each row: offset in its payload; meaningless for rows with status OK. */
  get errorAt(): Uint32Array {
    return new Uint32Array(this.buffer, 0, this.rowCapacity);
  }

  /** COLUMN_STATUS.* of each row. */
  get status(): Uint8Array {
    return new Uint8Array(this.buffer, aligned(this.rowCapacity * 4), this.rowCapacity);
  }

  /** Number of values of column `index`. */
  lengthOf(index: number): number {
    return this.state[COLUMN_STATE.HEAD + index] as number;
  }

  /** Used bytes of one buffer. @param slot COLUMN_SLOT.* */
  bytesOf(index: number, slot: number): Uint8Array {
    const at = this.slotAt(index, slot);
    return new Uint8Array(this.buffer, this.state[at] as number, this.usedOf(index, slot));
  }

  /** Byte offset of one buffer in `buffer`. @param slot COLUMN_SLOT.* */
  offsetOf(index: number, slot: number): number {
    return this.state[this.slotAt(index, slot)] as number;
  }

  /** Bytes that one buffer has room for. @param slot COLUMN_SLOT.* */
  capacityOf(index: number, slot: number): number {
    return this.state[this.slotAt(index, slot) + 1] as number;
  }

  /** Removes all rows and keeps the memory. */
  clear(): void {
    this.growths = 0;
    this.grownRow = -1;
    this.state[COLUMN_STATE.ROW_COUNT] = 0;
    this.state.fill(0, COLUMN_STATE.HEAD, COLUMN_STATE.HEAD + this.schema.all.length);
  }

  /** Grows the buffer that a kernel lacked room in, and others that are likely to follow.
   *  @returns false if the batch would exceed its limit; then it is unchanged */
  grow(): boolean {
    const slot = this.state[COLUMN_STATE.NEED_SLOT] as number;
    const need = this.state[COLUMN_STATE.NEED_BYTES] as number;
    invariant(slot < this.schema.all.length * COLUMN_SLOT.COUNT, 'a kernel names an existing buffer');
    const first = slotsAt(this.schema);
    const least = this.capacities();
    const own = this.state[first + 2 * slot + 1] as number;
    invariant(need > own, 'a kernel asks for more than the buffer has');
    least[slot] = need;
    this.growths = this.grownRow === this.rowCount ? this.growths + 1 : 1;
    this.grownRow = this.rowCount;
    const isStuck = this.growths > SINGLE_GROWTHS_MAX;
    const ample = least.map((capacity, i) => {
      const expected = this.expected(i, capacity);
      return isStuck && this.isVariable(i) ? Math.max(expected, capacity * 2) : expected;
    });
    ample[slot] = Math.max(ample[slot] as number, need, own * 2);
    for (const capacities of [ample, least]) if (this.move(capacities)) return true;
    return false;
  }

  /** True for a buffer whose bytes one row does not bound: of a text, or inside a list or map. */
  private isVariable(slot: number): boolean {
    const column = Math.floor(slot / COLUMN_SLOT.COUNT);
    const isValues = slot % COLUMN_SLOT.COUNT === COLUMN_SLOT.VALUES;
    return this.inLists.has(column) || (isValues && isText(this.schema.all[column] as Column));
  }

  private slotAt(index: number, slot: number): number {
    return slotsAt(this.schema) + 2 * (index * COLUMN_SLOT.COUNT + slot);
  }

  private usedOf(index: number, slot: number): number {
    const column = this.schema.all[index] as Column;
    const length = this.lengthOf(index);
    if (slot !== COLUMN_SLOT.VALUES || !isText(column)) return slotBytes(column, slot, length);
    const offsets = this.offsetOf(index, COLUMN_SLOT.OFFSETS);
    return new Int32Array(this.buffer, offsets, length + 1)[length] as number;
  }

  private capacities(): number[] {
    const first = slotsAt(this.schema);
    return this.schema.all.flatMap((_, i) =>
      [0, 1, 2].map((slot) => this.state[first + 2 * (COLUMN_SLOT.COUNT * i + slot) + 1] as number),
    );
  }

  /** Capacity that a slot is likely to need for a full batch, from the rows so far: at least
   *  `capacity`, at most eight times as much. */
  private expected(slot: number, capacity: number): number {
    const rows = Math.max(1, this.rowCount);
    const used = this.usedOf(Math.floor(slot / COLUMN_SLOT.COUNT), slot % COLUMN_SLOT.COUNT);
    const projected = Math.ceil((used / rows) * this.rowCapacity * 1.25);
    return Math.max(capacity, Math.min(projected, capacity * 8));
  }

  private firstCapacities(): number[] {
    const { schema } = this;
    const elements = new Float64Array(schema.all.length);
    const capacities: number[] = [];
    const visit = (index: number, count: number): void => {
      const column = schema.all[index] as Column;
      elements[index] = count;
      const isList = column.kind === 'list' || column.kind === 'map';
      const most = this.bytesMax / 4;
      const inside = isList ? Math.min(count * LIST_ELEMENTS_ASSUMED, Math.max(count, most / 64)) : count;
      for (const child of schema.childrenOf(index)) visit(child, inside);
    };
    for (const index of schema.topIndex) visit(index, this.rowCapacity);
    schema.all.forEach((column, index) => {
      const count = elements[index] as number;
      for (let slot = 0; slot < COLUMN_SLOT.COUNT; slot++)
        capacities.push(
          slot === COLUMN_SLOT.VALUES && isText(column)
            ? Math.max(VALUE_BYTES_MIN, count * TEXT_BYTES_ASSUMED)
            : slotBytes(column, slot, count),
        );
    });
    return capacities;
  }

  /** Writes the place of each slot to the state and returns the bytes of the whole buffer. */
  private place(capacities: readonly number[]): number {
    const first = slotsAt(this.schema);
    let at = rowBytes(this.rowCapacity);
    capacities.forEach((capacity, slot) => {
      this.state[first + 2 * slot] = at;
      this.state[first + 2 * slot + 1] = aligned(capacity);
      at += aligned(capacity);
    });
    return at;
  }

  /** Moves the batch to a buffer with these capacities; false if it would exceed the limit. */
  private move(capacities: readonly number[]): boolean {
    const rows = rowBytes(this.rowCapacity);
    const bytes = capacities.reduce((sum, capacity) => sum + aligned(capacity), rows);
    if (bytes > this.bytesMax) return false;
    const held = this.schema.all.flatMap((_, i) => [0, 1, 2].map((slot) => this.bytesOf(i, slot)));
    const head = new Uint8Array(this.buffer, 0, rows);
    this.buffer = new ArrayBuffer(this.place(capacities));
    new Uint8Array(this.buffer).set(head);
    const first = slotsAt(this.schema);
    held.forEach((bytes, slot) => {
      new Uint8Array(this.buffer).set(bytes, this.state[first + 2 * slot] as number);
    });
    return true;
  }
}
