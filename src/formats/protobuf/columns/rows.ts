/** Rows of a batch as values of a program: those of codec/decoder.ts; bytes are copies. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import { BatchViews, type ColumnViews } from '../../../core/columns/views.ts';
import { type Get, objectGet, type PropertyGet } from '../../binary/object-reader.ts';
import { textOf } from '../../binary/text-bytes.ts';
import { protoDecoder } from '../codec/decoder.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import type { CompiledProto } from './compile.ts';
import type { FieldPlan, MessagePlan } from './plan.ts';

type RowView = Readonly<Record<string, unknown>>;

/** Rows of batches of one program. */
export class ProtoRows {
  private readonly views: BatchViews;
  private readonly root: Get;
  private readonly Row: new (
    at: number,
  ) => object;

  constructor({ plan, program }: CompiledProto, isWhole: boolean) {
    this.views = new BatchViews(program.schema);
    const fields = new Getters(this.views.columns).fields(plan, isWhole);
    this.root = objectGet(fields);
    this.Row = rowClass(fields);
  }

  /** Makes the rows of `batch` those that `at` and `value` read. Call it again after the batch has
   *  been decoded into. */
  attach(batch: ColumnBatch): void {
    this.views.attach(batch);
  }

  /** View of a row: a property for each field, read anew at each access. REQUIRES: the row has
   *  status OK. */
  at(row: number): RowView {
    return new this.Row(row) as RowView;
  }

  /** Value of a row as a plain object of its own. REQUIRES: the row has status OK. */
  value(row: number): unknown {
    return this.root(row);
  }
}

function rowClass(fields: readonly PropertyGet[]): new (at: number) => object {
  class Row {
    readonly #at: number;

    constructor(at: number) {
      this.#at = at;
    }

    static define({ name, get }: PropertyGet): void {
      Object.defineProperty(Row.prototype, name, {
        get(this: Row) {
          return get(this.#at);
        },
        enumerable: true,
        configurable: true,
      });
    }
  }
  for (const field of fields) Row.define(field);
  return Row;
}

/** Makes the reader of each column. */
class Getters {
  private readonly columns: readonly ColumnViews[];

  constructor(columns: readonly ColumnViews[]) {
    this.columns = columns;
  }

  /** @param isWhole true adds fields of unknown types, which have no column */
  fields({ message, fields }: MessagePlan, isWhole: boolean): readonly PropertyGet[] {
    const plans = new Map(fields.map((plan) => [plan.field, plan]));
    return message.fields.flatMap((field): readonly PropertyGet[] => {
      const plan = plans.get(field);
      if (plan !== undefined) return [{ name: field.name, get: this.field(plan, isWhole) }];
      return isWhole ? [{ name: field.name, get: absent(field) }] : [];
    });
  }

  private field(plan: FieldPlan, isWhole: boolean): Get {
    const { field, index, column } = plan;
    const views = this.columns[index] as ColumnViews;
    if (field.mapKey !== undefined)
      return map(views, this.key(field.mapKey, index + 2), this.value(plan, index + 3, isWhole));
    if (field.repeated) return list(views, this.value(plan, index + 1, isWhole));
    const get = this.value(plan, index, isWhole);
    return column.nullable ? (at) => (views.isValid(at) ? get(at) : null) : get;
  }

  private value({ field, inner, isRaw }: FieldPlan, index: number, isWhole: boolean): Get {
    const views = this.columns[index] as ColumnViews;
    const { enumeration } = field;
    if (isRaw) {
      const decode = protoDecoder(field.message as ProtoMessage);
      return (at) => decode(views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
    }
    if (inner !== undefined) {
      return objectGet(this.fields(inner, isWhole));
    }
    if (enumeration === undefined) return scalar(field.type, views);
    const { closed, values } = enumeration;
    const symbols = [...values.values()];
    if (closed) return (at) => symbols[views.int32[at] as number];
    return (at) => values.get(views.int32[at] as number) ?? views.int32[at];
  }

  private key(type: string, index: number): (at: number) => string {
    const get = scalar(type, this.columns[index] as ColumnViews);
    return (at) => String(get(at));
  }
}

/** Value of a field of an unknown type. */
function absent({ mapKey, repeated }: ProtoField): Get {
  if (mapKey !== undefined) return () => Object.create(null) as unknown;
  return repeated ? () => [] : () => null;
}

function scalar(type: string, views: ColumnViews): Get {
  switch (type) {
    case 'string':
      return (at) => textOf(views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
    case 'bytes':
      return (at) => Buffer.from(views.bytes.subarray(views.offsets[at], views.offsets[at + 1]));
    case 'bool':
      return (at) => (((views.bytes[at >>> 3] as number) >>> (at & 7)) & 1) === 1;
    case 'float':
      return (at) => views.float32[at];
    case 'double':
      return (at) => views.float64[at];
    case 'uint32':
    case 'fixed32':
      return (at) => views.uint32[at];
    case 'uint64':
    case 'fixed64':
      return (at) => views.uint64[at];
    default:
      return type.endsWith('64') ? (at) => views.int64[at] : (at) => views.int32[at];
  }
}

function list(views: ColumnViews, item: Get): Get {
  return (at) => {
    const items: unknown[] = [];
    const end = views.offsets[at + 1] as number;
    for (let i = views.offsets[at] as number; i < end; i++) items.push(item(i));
    return items;
  };
}

/** The last entry of a key wins, as the format requires. */
function map(views: ColumnViews, key: (at: number) => string, value: Get): Get {
  return (at) => {
    const entries = Object.create(null) as Record<string, unknown>;
    const end = views.offsets[at + 1] as number;
    for (let i = views.offsets[at] as number; i < end; i++) entries[key(i)] = value(i);
    return entries;
  };
}
