/** Copies a record batch of apache-arrow into a column batch of a schema.
 *
 *  Columns are found by their names; their types must be those of the schema's columns, as
 *  record-batch.ts makes them. A text column is also accepted for an enum. A null in a top column
 *  that is not nullable costs its row: the row counts as not decoded. Sources of the layout: Arrow
 *  columnar format 1.5; the properties of apache-arrow's Data, versions 14 to 21. */
import { ColumnBatch } from '../../core/columns/batch.ts';
import type { Column } from '../../core/columns/column.ts';
import type { ColumnSchema } from '../../core/columns/schema.ts';
import { COLUMN_SLOT, COLUMN_STATUS } from '../../core/layout/layouts.gen.ts';
import { formatError } from '../errors.ts';

type Typed = ArrayBufferView & { readonly length: number; readonly BYTES_PER_ELEMENT: number };

/** Type of apache-arrow, by the properties that are used. */
interface ArrowType {
  readonly typeId: number;
  readonly bitWidth?: number;
  readonly isSigned?: boolean;
  readonly precision?: number;
  readonly unit?: number;
  readonly byteWidth?: number;
  readonly mode?: number;
  readonly children?: ReadonlyArray<{ readonly name: string }> | null;
  readonly dictionary?: ArrowType;
  readonly typeIdToChildIndex?: Readonly<Record<number, number>>;
}

/** Data of apache-arrow. `values`, `valueOffsets` and `typeIds` begin with the first element, but
 *  bits begin at the bit `offset`. */
interface ArrowData {
  readonly type: ArrowType;
  readonly offset: number;
  readonly length: number;
  readonly nullCount: number;
  readonly nullBitmap?: Uint8Array | null;
  readonly values?: Typed;
  readonly valueOffsets?: Int32Array | BigInt64Array;
  readonly typeIds?: Int8Array;
  readonly children: readonly ArrowData[];
  readonly dictionary?: { readonly length: number; get(index: number): unknown };
}

/** Record batch of apache-arrow. */
export interface ArrowBatch {
  readonly numRows: number;
  readonly data: unknown;
}

/** Numbers of apache-arrow's enum Type. */
const TYPE = {
  Dictionary: -1,
  Null: 1,
  Int: 2,
  Float: 3,
  Binary: 4,
  Utf8: 5,
  Bool: 6,
  Decimal: 7,
  Date: 8,
  Time: 9,
  Timestamp: 10,
  List: 12,
  Struct: 13,
  Union: 14,
  FixedSizeBinary: 15,
  Map: 17,
} as const;
const UNITS = { millis: 1, micros: 2, nanos: 3 } as const;
const DOUBLE = 2;
const SINGLE = 1;
const DENSE = 1;

/** Copies a record batch. @throws value_refused for a batch without one of the columns, for a
 *  column of another type, and for a null inside a value that has none */
export function columnsFromArrow(batch: ArrowBatch, schema: ColumnSchema): ColumnBatch {
  const root = batch.data as ArrowData;
  const reader = new Reader(schema);
  const parts = childrenByName(root);
  schema.topIndex.forEach((index) => {
    reader.measure(index, named(parts, schema, index), root.length);
  });
  return reader.copy(batch.numRows);
}

const childrenByName = ({ type, children }: ArrowData): ReadonlyMap<string, ArrowData> =>
  new Map((type.children ?? []).map(({ name }, i) => [name, children[i] as ArrowData]));

function badColumns(schema: ColumnSchema, index: number, why: string): Error {
  const path = schema.pathOf(index).join('.');
  return formatError('value_refused', `the column ${path} ${why}`, {
    next: 'give the columns that toArrow returns for this schema',
    details: { path },
  });
}

function named(parts: ReadonlyMap<string, ArrowData>, schema: ColumnSchema, index: number): ArrowData {
  const data = parts.get((schema.all[index] as Column).name);
  if (data === undefined) throw badColumns(schema, index, 'is missing');
  return data;
}

/** True where values of `type` have the layout and the meaning of the column. */
function fits({ kind, size, logical }: Column, type: ArrowType): boolean {
  const { typeId, bitWidth, isSigned, unit } = type;
  const isInt = (bits: number, signed: boolean): boolean =>
    typeId === TYPE.Int && bitWidth === bits && isSigned === signed;
  switch (kind) {
    case 'null':
      return typeId === TYPE.Null;
    case 'bool':
      return typeId === TYPE.Bool;
    case 'int32':
      if (logical?.type === 'date' && typeId === TYPE.Date) return unit === 0;
      if (logical?.type === 'time' && typeId === TYPE.Time) return bitWidth === 32 && unit === UNITS.millis;
      return isInt(32, true);
    case 'int64':
      if (logical?.type === 'time' && typeId === TYPE.Time) return bitWidth === 64 && unit === UNITS.micros;
      if (logical?.type === 'timestamp' && typeId === TYPE.Timestamp) return unit === UNITS[logical.unit];
      return isInt(64, true);
    case 'uint32':
      return isInt(32, false);
    case 'uint64':
      return isInt(64, false);
    case 'float32':
      return typeId === TYPE.Float && type.precision === SINGLE;
    case 'float64':
      return typeId === TYPE.Float && type.precision === DOUBLE;
    case 'utf8':
      return typeId === TYPE.Utf8;
    case 'binary':
      return typeId === TYPE.Binary;
    case 'fixed':
      return typeId === TYPE.FixedSizeBinary && type.byteWidth === size;
    case 'decimal128':
      return typeId === TYPE.Decimal && bitWidth === 128;
    case 'decimal256':
      return typeId === TYPE.Decimal && bitWidth === 256;
    case 'dictionary':
      return typeId === TYPE.Utf8 || (typeId === TYPE.Dictionary && type.dictionary?.typeId === TYPE.Utf8);
    case 'list':
      return typeId === TYPE.List;
    case 'map':
      return typeId === TYPE.Map;
    case 'struct':
      return typeId === TYPE.Struct;
    case 'union':
      return typeId === TYPE.Union && type.mode === DENSE;
  }
}

const bitAt = (bits: Uint8Array, at: number): boolean =>
  (((bits[at >>> 3] as number) >>> (at & 7)) & 1) === 1;

/** True where the element of `data` is null. */
const isNullAt = ({ nullBitmap, nullCount, offset }: ArrowData, at: number): boolean =>
  nullCount !== 0 &&
  nullBitmap !== undefined &&
  nullBitmap !== null &&
  nullBitmap.length > 0 &&
  !bitAt(nullBitmap, offset + at);

const bytesOf = (view: ArrayBufferView): Uint8Array =>
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

class Reader {
  private readonly schema: ColumnSchema;
  private readonly data: ArrowData[] = [];
  private readonly lengths: number[] = [];
  private readonly capacities: number[] = [];
  /** Rows with a null in a column that is not nullable. */
  private readonly nullRows = new Set<number>();

  constructor(schema: ColumnSchema) {
    this.schema = schema;
  }

  /** Checks a column and those in it, and measures their buffers. @param length of the elements
   *  that are used */
  measure(index: number, data: ArrowData, length: number, around?: ArrowData): void {
    const column = this.schema.all[index] as Column;
    if (!fits(column, data.type))
      throw badColumns(this.schema, index, `has another type than ${column.kind}`);
    if (data.length < length) throw badColumns(this.schema, index, `has fewer than ${length} values`);
    this.checkNulls(index, data, length, around);
    this.data[index] = data;
    this.lengths[index] = length;
    const { VALIDITY, OFFSETS, VALUES, COUNT } = COLUMN_SLOT;
    const slot = index * COUNT;
    const hasOffsets = ['utf8', 'binary', 'list', 'map'].includes(column.kind);
    this.capacities[slot + VALIDITY] = column.nullable ? (length + 7) >>> 3 : 0;
    this.capacities[slot + OFFSETS] = hasOffsets
      ? (length + 1) * 4
      : column.kind === 'union'
        ? length * 4
        : 0;
    this.capacities[slot + VALUES] = this.valueBytes(index, data, length);
    this.measureChildren(index, data, length);
  }

  /** Fills a batch with the measured columns. */
  copy(rows: number): ColumnBatch {
    const batch = ColumnBatch.sized(this.schema, rows, this.lengths, this.capacities);
    this.schema.all.forEach((_, index) => {
      this.copyColumn(batch, index);
    });
    for (const row of this.nullRows) batch.status[row] = COLUMN_STATUS.INCOMPATIBLE;
    return batch;
  }

  private checkNulls(index: number, data: ArrowData, length: number, around: ArrowData | undefined): void {
    const column = this.schema.all[index] as Column;
    if (column.nullable || column.kind === 'null' || column.kind === 'union' || data.nullCount === 0) return;
    const isTop = this.schema.topIndex.includes(index);
    for (let at = 0; at < length; at++) {
      if (!isNullAt(data, at)) continue;
      if (isTop) this.nullRows.add(at);
      else if (around === undefined || !isNullAt(around, at))
        throw badColumns(this.schema, index, `has a null at ${at}, which the schema does not allow`);
    }
  }

  private valueBytes(index: number, data: ArrowData, length: number): number {
    const { kind } = this.schema.all[index] as Column;
    switch (kind) {
      case 'utf8':
      case 'binary':
        return Number(data.valueOffsets?.[length] ?? 0) - Number(data.valueOffsets?.[0] ?? 0);
      case 'bool':
        return (length + 7) >>> 3;
      case 'union':
        return length;
      default:
        return length * this.schema.sizeOf(index);
    }
  }

  private measureChildren(index: number, data: ArrowData, length: number): void {
    const { kind } = this.schema.all[index] as Column;
    const children = this.schema.childrenOf(index);
    const demand = (child: ArrowData | undefined): ArrowData => {
      if (child === undefined) throw badColumns(this.schema, index, 'lacks a child');
      return child;
    };
    switch (kind) {
      case 'struct': {
        const isEntries = index > 0 && this.schema.all[index - 1]?.kind === 'map';
        const parts = childrenByName(data);
        children.forEach((child, i) => {
          const found = isEntries ? demand(data.children[i]) : named(parts, this.schema, child);
          this.measure(child, found, length, data);
        });
        return;
      }
      case 'list':
      case 'map':
        this.measure(
          children[0] as number,
          demand(data.children[0]),
          Number(data.valueOffsets?.[length] ?? 0),
        );
        return;
      case 'union':
        children.forEach((child, i) => {
          const found = demand(data.children[i]);
          this.measure(child, found, found.length);
        });
    }
  }

  private copyColumn(batch: ColumnBatch, index: number): void {
    const column = this.schema.all[index] as Column;
    const data = this.data[index] as ArrowData;
    const length = this.lengths[index] as number;
    if (column.nullable) {
      const validity = batch.bytesOf(index, COLUMN_SLOT.VALIDITY);
      for (let at = 0; at < length; at++)
        if (!isNullAt(data, at)) validity[at >>> 3] = (validity[at >>> 3] as number) | (1 << (at & 7));
    }
    switch (column.kind) {
      case 'null':
      case 'struct':
        return;
      case 'bool':
        copyBits(data, length, this.slot(batch, index, COLUMN_SLOT.VALUES));
        return;
      case 'utf8':
      case 'binary':
        this.copyTexts(batch, index, data, length);
        return;
      case 'list':
      case 'map':
        this.copyOffsets(batch, index, data, length, 0);
        return;
      case 'union':
        this.copyUnion(batch, index, data, length);
        return;
      case 'dictionary':
        this.copySymbols(batch, index, data, length);
        return;
      default: {
        const bytes = length * this.schema.sizeOf(index);
        if (bytes > 0)
          this.slot(batch, index, COLUMN_SLOT.VALUES).set(bytesOf(data.values as Typed).subarray(0, bytes));
      }
    }
  }

  /** The whole buffer of a slot. */
  private slot(batch: ColumnBatch, index: number, slot: number): Uint8Array {
    return new Uint8Array(batch.buffer, batch.offsetOf(index, slot), batch.capacityOf(index, slot));
  }

  private copyOffsets(
    batch: ColumnBatch,
    index: number,
    { valueOffsets }: ArrowData,
    length: number,
    base: number,
  ): void {
    const offsets = new Int32Array(batch.buffer, batch.offsetOf(index, COLUMN_SLOT.OFFSETS), length + 1);
    for (let at = 0; at <= length; at++) offsets[at] = Number(valueOffsets?.[at] ?? 0) - base;
  }

  private copyTexts(batch: ColumnBatch, index: number, data: ArrowData, length: number): void {
    const base = Number(data.valueOffsets?.[0] ?? 0);
    this.copyOffsets(batch, index, data, length, base);
    const end = Number(data.valueOffsets?.[length] ?? 0);
    if (end > base)
      this.slot(batch, index, COLUMN_SLOT.VALUES).set(bytesOf(data.values as Typed).subarray(base, end));
  }

  private copyUnion(batch: ColumnBatch, index: number, data: ArrowData, length: number): void {
    const ids = this.slot(batch, index, COLUMN_SLOT.VALUES);
    const { typeIdToChildIndex } = data.type;
    for (let at = 0; at < length; at++) {
      const id = data.typeIds?.[at] as number;
      ids[at] = typeIdToChildIndex?.[id] ?? id;
    }
    const offsets = new Int32Array(batch.buffer, batch.offsetOf(index, COLUMN_SLOT.OFFSETS), length);
    for (let at = 0; at < length; at++) offsets[at] = Number(data.valueOffsets?.[at]);
  }

  /** Indexes of the schema's symbols; -1 for a text that is none of them. */
  private copySymbols(batch: ColumnBatch, index: number, data: ArrowData, length: number): void {
    const into = new Int32Array(batch.buffer, batch.offsetOf(index, COLUMN_SLOT.VALUES), length);
    const { symbols = [] } = this.schema.all[index] as Column;
    const known = new Map<unknown, number>(symbols.map((symbol, at) => [symbol, at]));
    if (data.type.typeId === TYPE.Utf8) {
      const bytes = data.values === undefined ? Buffer.alloc(0) : Buffer.from(bytesOf(data.values));
      for (let at = 0; at < length; at++) {
        const text = bytes.toString(
          'utf8',
          Number(data.valueOffsets?.[at]),
          Number(data.valueOffsets?.[at + 1]),
        );
        into[at] = known.get(text) ?? -1;
      }
      return;
    }
    const { dictionary } = data;
    const table = Array.from(
      { length: dictionary?.length ?? 0 },
      (_, at) => known.get(dictionary?.get(at)) ?? -1,
    );
    const indexes = data.values as unknown as ArrayLike<number | bigint> | undefined;
    for (let at = 0; at < length; at++) into[at] = table[Number(indexes?.[at])] ?? -1;
  }
}

function copyBits({ values, offset }: ArrowData, length: number, into: Uint8Array): void {
  if (values === undefined) return;
  const bits = bytesOf(values);
  for (let at = 0; at < length; at++)
    if (bitAt(bits, offset + at)) into[at >>> 3] = (into[at >>> 3] as number) | (1 << (at & 7));
}
