/** Rows of the elements of a list: the columns of a batch in which each element of the list is a
 *  row, with the other values of its record. SQL calls it UNNEST.
 *
 *  The list becomes a column of its elements, under its own name; all other columns keep theirs.
 *  Columns inside further lists, maps and unions cannot be unnested. */
import { invariant } from '../errors.ts';
import { COLUMN_SLOT } from '../layout/layouts.gen.ts';
import { ColumnBatch } from './batch.ts';
import { type Column, cellBytes } from './column.ts';
import { ColumnSchema } from './schema.ts';
import { BatchViews, type ColumnViews } from './views.ts';

/** Column of the unnested rows: the column that it is made from. */
interface Origin {
  /** Preorder index in the schema of the records. */
  readonly index: number;
  /** True: it has a value for each element, else one for each record. */
  readonly isOfElements: boolean;
}

/** A list in a schema, and the schema of its elements. */
export class UnnestedColumns {
  readonly schema: ColumnSchema;
  private readonly views: BatchViews;
  private readonly list: number;
  private readonly origins: readonly Origin[];

  private constructor(from: ColumnSchema, list: number, top: readonly Column[], origins: readonly Origin[]) {
    this.schema = new ColumnSchema(top);
    this.views = new BatchViews(from);
    this.list = list;
    this.origins = origins;
  }

  /** Undefined: the schema has no list at the path.
   *  @param path names of structs, and of the list */
  static of(from: ColumnSchema, path: readonly string[]): UnnestedColumns | undefined {
    const origins: Origin[] = [];
    let list: number | undefined;
    const copy = (index: number, isOfElements: boolean): Column => {
      origins.push({ index, isOfElements });
      const column = from.all[index] as Column;
      return { ...column, children: from.childrenOf(index).map((child) => copy(child, isOfElements)) };
    };
    const visit = (index: number, [name, ...inner]: readonly string[]): Column => {
      const column = from.all[index] as Column;
      if (column.name !== name) return copy(index, false);
      if (inner.length === 0 && column.kind === 'list') {
        list = index;
        return { ...copy(index + 1, true), name };
      }
      if (column.kind !== 'struct') return copy(index, false);
      origins.push({ index, isOfElements: false });
      return { ...column, children: from.childrenOf(index).map((child) => visit(child, inner)) };
    };
    const top = from.topIndex.map((index) => visit(index, path));
    return list === undefined ? undefined : new UnnestedColumns(from, list, top, origins);
  }

  /** Makes the batch that `elements` and `rows` read the given one. */
  attach(batch: ColumnBatch): void {
    this.views.attach(batch);
  }

  /** Number of elements of a record; 0 for null. */
  elements(record: number): number {
    const { offsets } = this.views.columns[this.list] as ColumnViews;
    return (offsets[record + 1] as number) - (offsets[record] as number);
  }

  /** Rows of the elements of records, in their order. @param records rows of the batch
   *  @param total number of their elements @throws out_of_range */
  rows(records: Int32Array, total: number): ColumnBatch {
    const ofRecords = new Int32Array(total);
    const ofElements = new Int32Array(total);
    const { offsets } = this.views.columns[this.list] as ColumnViews;
    let row = 0;
    for (const record of records) {
      const end = offsets[record + 1] as number;
      for (let element = offsets[record] as number; element < end; element++, row++) {
        ofRecords[row] = record;
        ofElements[row] = element;
      }
    }
    invariant(row === total, 'the total is that of the elements of the records');
    const { all } = this.schema;
    const places = this.origins.map(({ isOfElements }) => (isOfElements ? ofElements : ofRecords));
    const capacities = all.flatMap((column, index) => this.bytes(column, index, places[index] as Int32Array));
    const into = ColumnBatch.sized(
      this.schema,
      total,
      all.map(() => total),
      capacities,
    );
    all.forEach((column, index) => {
      this.fill(column, index, places[index] as Int32Array, into);
    });
    return into;
  }

  private viewsOf(index: number): ColumnViews {
    return this.views.columns[(this.origins[index] as Origin).index] as ColumnViews;
  }

  /** Bytes of validity, offsets and values. */
  private bytes(column: Column, index: number, places: Int32Array): readonly number[] {
    const count = places.length;
    const validity = column.nullable ? (count + 7) >>> 3 : 0;
    const isNested = column.kind === 'list' || column.kind === 'map' || column.kind === 'union';
    invariant(!isNested, `a ${column.kind} column is not unnested`);
    switch (column.kind) {
      case 'utf8':
      case 'binary': {
        const { offsets } = this.viewsOf(index);
        let bytes = 0;
        for (const at of places) bytes += (offsets[at + 1] as number) - (offsets[at] as number);
        return [validity, (count + 1) * 4, bytes];
      }
      case 'bool':
        return [validity, 0, (count + 7) >>> 3];
      default:
        return [validity, 0, count * cellBytes(column)];
    }
  }

  private fill(column: Column, index: number, places: Int32Array, into: ColumnBatch): void {
    const from = this.viewsOf(index);
    if (column.nullable) copyBits(from.validity, places, into.bytesOf(index, COLUMN_SLOT.VALIDITY));
    const { buffer } = into;
    const at = into.offsetOf(index, COLUMN_SLOT.VALUES);
    if (column.kind === 'utf8' || column.kind === 'binary') {
      const offsets = new Int32Array(buffer, into.offsetOf(index, COLUMN_SLOT.OFFSETS), places.length + 1);
      copyTexts(
        from,
        places,
        offsets,
        new Uint8Array(buffer, at, into.capacityOf(index, COLUMN_SLOT.VALUES)),
      );
      return;
    }
    if (column.kind === 'bool') {
      copyBits(from.bytes, places, new Uint8Array(buffer, at, (places.length + 7) >>> 3));
      return;
    }
    const size = cellBytes(column);
    if (size > 0) copyCells(valuesOf(from), size, places, new Uint8Array(buffer, at, places.length * size));
  }
}

/** Bytes of the values of a column, whatever its kind. */
function valuesOf(views: ColumnViews): Uint8Array {
  const typed = [views.int32, views.uint32, views.int64, views.uint64, views.float32, views.float64].find(
    ({ length }) => length > 0,
  );
  const { buffer, byteOffset, byteLength } = typed ?? views.bytes;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function copyBits(from: Uint8Array, places: Int32Array, into: Uint8Array): void {
  into.fill(0);
  for (let row = 0; row < places.length; row++) {
    const at = places[row] as number;
    const bit = ((from[at >>> 3] as number) >>> (at & 7)) & 1;
    into[row >>> 3] = (into[row >>> 3] as number) | (bit << (row & 7));
  }
}

function copyTexts(
  { offsets, bytes }: ColumnViews,
  places: Int32Array,
  ends: Int32Array,
  into: Uint8Array,
): void {
  let to = 0;
  ends[0] = 0;
  for (let row = 0; row < places.length; row++) {
    const at = places[row] as number;
    const [start, end] = [offsets[at] as number, offsets[at + 1] as number];
    for (let byte = start; byte < end; byte++) into[to++] = bytes[byte] as number;
    ends[row + 1] = to;
  }
}

function copyCells(from: Uint8Array, size: number, places: Int32Array, into: Uint8Array): void {
  if (size % 4 !== 0) {
    for (let row = 0; row < places.length; row++) {
      const at = (places[row] as number) * size;
      for (let byte = 0; byte < size; byte++) into[row * size + byte] = from[at + byte] as number;
    }
    return;
  }
  // Buffers of columns are aligned, so cells are whole words.
  const words = size / 4;
  const read = new Int32Array(from.buffer, from.byteOffset, from.byteLength >>> 2);
  const written = new Int32Array(into.buffer, into.byteOffset, into.byteLength >>> 2);
  for (let row = 0; row < places.length; row++) {
    const at = (places[row] as number) * words;
    for (let word = 0; word < words; word++) written[row * words + word] = read[at + word] as number;
  }
}
