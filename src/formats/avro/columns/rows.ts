/** Rows of a batch as values of a program: views that read a column when a field is asked for, and
 *  plain values. Both are those of codec/decoder.ts; bytes are copies. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import { BatchViews, type ColumnViews } from '../../../core/columns/views.ts';
import { type Get, objectGet, type PropertyGet } from '../../binary/object-reader.ts';
import { textOf } from '../../binary/text-bytes.ts';
import type { Decode } from '../../decode.ts';
import { branchKey, isWrapped } from '../codec/branch.ts';
import { avroDecoder } from '../codec/decoder.ts';
import type { AvroFixedNode, AvroNode, AvroUnionNode } from '../syntax/tree.ts';
import type { CompiledColumns, LazyColumn } from './compile.ts';
import type { Plan } from './plan.ts';

type RowView = Readonly<Record<string, unknown>>;

/** Rows of batches of one program. */
export class AvroRows {
  private readonly views: BatchViews;
  private readonly root: Get;
  private readonly Row: (new (at: number) => object) | undefined;

  constructor({ plan, program, lazies }: CompiledColumns) {
    this.views = new BatchViews(program.schema);
    const getters = new Getters(this.views.columns, lazies);
    if (plan.index >= 0) {
      this.root = getters.get(plan);
      return;
    }
    const fields = plan.parts.map((part) => ({ name: part.column.name, get: getters.get(part) }));
    this.root = objectGet(fields);
    this.Row = rowClass(fields);
  }

  /** Makes the rows of `batch` those that `at` and `value` read. Call it again after the batch has
   *  been decoded into. */
  attach(batch: ColumnBatch): void {
    this.views.attach(batch);
  }

  /** View of a row: a property for each field of the reader's record, read anew at each access.
   *  REQUIRES: the reader's schema is a record, and the row has status OK. */
  at(row: number): RowView {
    const { Row } = this;
    if (Row === undefined) throw new TypeError('rows of a schema that is no record have no fields');
    return new Row(row) as RowView;
  }

  /** Value of a row as a plain object of its own. REQUIRES: the row has status OK. */
  value(row: number): unknown {
    return this.root(row);
  }
}

/** Makes a class whose prototype has a getter for each field. */
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

function define(into: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(into, key, { value, writable: true, enumerable: true, configurable: true });
}

/** Makes the reader of each column. */
class Getters {
  private readonly columns: readonly ColumnViews[];
  private readonly lazies: ReadonlyMap<number, LazyColumn>;

  constructor(columns: readonly ColumnViews[], lazies: ReadonlyMap<number, LazyColumn>) {
    this.columns = columns;
    this.lazies = lazies;
  }

  get(plan: Plan): Get {
    const get = this.valid(plan);
    if (!plan.column.nullable) return get;
    const views = this.columns[plan.index] as ColumnViews;
    return (at) => (views.isValid(at) ? get(at) : null);
  }

  /** Reader of values that are not null. */
  private valid(plan: Plan): Get {
    const { column, index } = plan;
    const views = this.columns[index] as ColumnViews;
    if (plan.isLazy) return this.lazy(plan, views);
    switch (column.kind) {
      case 'null':
        return () => null;
      case 'bool':
        return (at) => (((views.bytes[at >>> 3] as number) >>> (at & 7)) & 1) === 1;
      case 'int32':
        return (at) => views.int32[at];
      case 'int64':
        return (at) => views.int64[at];
      case 'float32':
        return (at) => views.float32[at];
      case 'float64':
        return (at) => views.float64[at];
      case 'utf8':
        return (at) => textOf(views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
      case 'binary':
        return (at) => Buffer.from(views.bytes.subarray(views.offsets[at], views.offsets[at + 1]));
      case 'dictionary':
        return (at) => column.symbols?.[views.int32[at] as number];
      default:
        return this.composite(plan, views);
    }
  }

  private composite(plan: Plan, views: ColumnViews): Get {
    const { column, type } = plan;
    switch (column.kind) {
      case 'list':
        return list(views, this.get(plan.parts[0] as Plan));
      case 'map': {
        const keys = this.columns[plan.index + 2] as ColumnViews;
        return map(views, keys, this.get(plan.parts[0] as Plan));
      }
      case 'struct':
        return objectGet(plan.parts.map((part) => ({ name: part.column.name, get: this.get(part) })));
      case 'union':
        return union(
          views,
          type as AvroUnionNode,
          plan.parts.map((part) => this.get(part)),
        );
      default:
        return fixed(views, type as AvroFixedNode, column.kind);
    }
  }

  private lazy(plan: Plan, views: ColumnViews): Get {
    const lazy = this.lazies.get(plan.index);
    // A column that no row of this writer can fill has no decoder.
    const decoders: Decode[] = (lazy?.writers ?? []).map((writer: AvroNode) =>
      avroDecoder(plan.type, writer),
    );
    const [only] = decoders;
    if (decoders.length === 1)
      return (at) =>
        (only as Decode)(views.bytes, views.offsets[at] as number, views.offsets[at + 1] as number);
    return (at) => {
      const start = views.offsets[at] as number;
      const decode = decoders[views.bytes[start] as number] as Decode;
      return decode(views.bytes, start + 1, views.offsets[at + 1] as number);
    };
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

function map(views: ColumnViews, keys: ColumnViews, value: Get): Get {
  return (at) => {
    const entries: Record<string, unknown> = {};
    const end = views.offsets[at + 1] as number;
    for (let i = views.offsets[at] as number; i < end; i++) {
      const key = textOf(keys.bytes, keys.offsets[i] as number, keys.offsets[i + 1] as number) as string;
      // An assignment to `__proto__` would change the object's prototype.
      if (key === '__proto__') define(entries, key, value(i));
      else entries[key] = value(i);
    }
    return entries;
  };
}

function union(views: ColumnViews, node: AvroUnionNode, branches: readonly Get[]): Get {
  const keys = node.branches.map(branchKey);
  const wraps = isWrapped(node);
  return (at) => {
    const branch = views.bytes[at] as number;
    const value = (branches[branch] as Get)(views.offsets[at] as number);
    return wraps && value !== null ? { [keys[branch] as string]: value } : value;
  };
}

function fixed(views: ColumnViews, { size }: AvroFixedNode, kind: string): Get {
  if (kind === 'fixed') return (at) => Buffer.from(views.bytes.subarray(at * size, (at + 1) * size));
  const width = kind === 'decimal128' ? 16 : 32;
  return (at) => Buffer.from(views.bytes.subarray(at * width, at * width + size)).reverse();
}
