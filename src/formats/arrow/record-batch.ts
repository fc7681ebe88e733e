/** Hands the columns of a batch to apache-arrow without a copy.
 *
 *  The caller passes the package, so that this library does not depend on it. The record batch
 *  shows the memory of the column batch, so it is valid until that batch is cleared or decoded
 *  into. */
import type { ColumnBatch } from '../../core/columns/batch.ts';
import type { Column, ColumnLogical } from '../../core/columns/column.ts';
import { COLUMN_SLOT } from '../../core/layout/layouts.gen.ts';

type Make = new (...args: never[]) => object;

/** Parts of the package apache-arrow that are used. */
export interface ArrowModule {
  readonly makeData: (props: never) => object;
  readonly vectorFromArray: (values: never, type: never) => object;
  readonly RecordBatch: Make;
  readonly Schema: Make;
  readonly Field: Make;
}

/** The package as this file calls it: its classes by name. */
type Classes = Readonly<Record<string, new (...args: unknown[]) => object>> & {
  makeData(props: object): object;
  vectorFromArray(values: readonly string[], type: object): object;
};

/** Key of the field metadata that names a logical type for which Arrow has no type. */
const LOGICAL_KEY = 'millrace.logical';

/** Makes a record batch of apache-arrow over the columns of a batch. Rows whose status is not OK
 *  have a null, or where the column is not nullable a zero value.
 *  @param arrow the package apache-arrow, version 14 or newer
 *  @example
 *  const table = new arrow.Table([toArrow(arrow, batch)]);
 */
export function toArrow<M extends ArrowModule>(arrow: M, batch: ColumnBatch): InstanceType<M['RecordBatch']> {
  const classes = arrow as unknown as Classes;
  const { schema } = batch;
  const maker = new Maker(classes, batch);
  const made = schema.topIndex.map((index) => maker.column(index));
  const fields = made.map(({ field }) => field);
  const data = classes.makeData({
    type: make(classes, 'Struct', fields),
    length: batch.rowCount,
    nullCount: 0,
    children: made.map((one) => one.data),
  });
  const arrowSchema = make(classes, 'Schema', fields);
  return make(classes, 'RecordBatch', arrowSchema, data) as InstanceType<M['RecordBatch']>;
}

function make(classes: Classes, name: string, ...args: unknown[]): object {
  const Made = classes[name];
  if (Made === undefined) throw new TypeError(`the package passed as apache-arrow has no class ${name}`);
  return new Made(...args);
}

interface Made {
  readonly field: object;
  readonly type: object;
  readonly data: object;
}

class Maker {
  private readonly arrow: Classes;
  private readonly batch: ColumnBatch;

  constructor(arrow: Classes, batch: ColumnBatch) {
    this.arrow = arrow;
    this.batch = batch;
  }

  column(index: number): Made {
    const { arrow, batch } = this;
    const column = batch.schema.all[index] as Column;
    const children = batch.schema.childrenOf(index).map((child) => this.column(child));
    const type = this.type(column, children);
    const data = arrow.makeData({
      type,
      length: batch.lengthOf(index),
      ...(column.nullable ? { nullBitmap: batch.bytesOf(index, COLUMN_SLOT.VALIDITY) } : {}),
      ...this.buffers(column, index, children),
    });
    // A null column holds nothing but nulls.
    const isNullable = column.nullable || column.kind === 'null';
    const metadata = metadataOf(column);
    const field = make(arrow, 'Field', column.name, type, isNullable, metadata);
    return { field, type, data };
  }

  private buffers(column: Column, index: number, children: readonly Made[]): object {
    const { batch } = this;
    const bytes = batch.bytesOf(index, COLUMN_SLOT.VALUES);
    const offsets = batch.bytesOf(index, COLUMN_SLOT.OFFSETS);
    const valueOffsets = new Int32Array(offsets.buffer, offsets.byteOffset, offsets.length >>> 2);
    switch (column.kind) {
      case 'null':
        return {};
      case 'utf8':
      case 'binary':
        return { valueOffsets, data: bytes };
      case 'list':
      case 'map':
        return { valueOffsets, child: children[0]?.data };
      case 'struct':
        return { children: children.map(({ data }) => data) };
      case 'union':
        return {
          typeIds: new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length),
          valueOffsets,
          children: children.map(({ data }) => data),
        };
      case 'dictionary': {
        const dictionary = this.arrow.vectorFromArray(column.symbols ?? [], make(this.arrow, 'Utf8'));
        return { data: bytes, dictionary };
      }
      default:
        return { data: bytes };
    }
  }

  private type(column: Column, children: readonly Made[]): object {
    const { arrow } = this;
    const fields = children.map(({ field }) => field);
    const { logical } = column;
    switch (column.kind) {
      case 'list':
        return make(arrow, 'List', fields[0]);
      case 'map':
        return make(arrow, 'Map_', fields[0], false);
      case 'struct':
        return make(arrow, 'Struct', fields);
      case 'union':
        return make(
          arrow,
          'DenseUnion',
          fields.map((_, id) => id),
          fields,
        );
      case 'fixed':
        return make(arrow, 'FixedSizeBinary', column.size);
      case 'dictionary':
        return make(arrow, 'Dictionary', make(arrow, 'Utf8'), make(arrow, 'Int32'));
      case 'decimal128':
      case 'decimal256': {
        const { precision, scale } = logical as ColumnLogical & { readonly type: 'decimal' };
        return make(arrow, 'Decimal', scale, precision, column.kind === 'decimal128' ? 128 : 256);
      }
      default:
        return make(arrow, ...classOf(column));
    }
  }
}

const PLAIN: Readonly<Partial<Record<Column['kind'], string>>> = {
  null: 'Null',
  bool: 'Bool',
  int32: 'Int32',
  int64: 'Int64',
  uint32: 'Uint32',
  uint64: 'Uint64',
  float32: 'Float32',
  float64: 'Float64',
  utf8: 'Utf8',
  binary: 'Binary',
};
const UNITS = { millis: 'Millisecond', micros: 'Microsecond', nanos: 'Nanosecond' } as const;

/** Class of a type without children, and the arguments of its constructor. */
function classOf({ kind, logical }: Column): [name: string, ...args: unknown[]] {
  switch (logical?.type) {
    case 'date':
      return ['DateDay'];
    case 'time':
      return [`Time${UNITS[logical.unit]}`];
    case 'timestamp':
      return [`Timestamp${UNITS[logical.unit]}`, logical.isLocal ? null : 'UTC'];
    default:
      return [PLAIN[kind] as string];
  }
}

function metadataOf({ kind, logical }: Column): Map<string, string> {
  const metadata = new Map<string, string>();
  if (logical?.type === 'uuid' || logical?.type === 'duration') metadata.set(LOGICAL_KEY, logical.type);
  if (logical?.type === 'decimal' && kind === 'binary')
    metadata.set(LOGICAL_KEY, `decimal(${logical.precision},${logical.scale})`);
  return metadata;
}
