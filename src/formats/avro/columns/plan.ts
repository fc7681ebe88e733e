/** Columns of a reader's Avro schema.
 *
 *  A union of null and one type is that type, nullable; any other union is a dense union whose
 *  branches keep their order. Arrow has no recursive types: where a record contains itself, and
 *  where columns become too many or too deep, the column is binary. It holds the bytes that the
 *  writer wrote for the value, and rows decode them on demand. */
import { type Column, type ColumnLogical, column, mapColumn } from '../../../core/columns/column.ts';
import { COLUMN_LIMIT } from '../../../core/layout/layouts.gen.ts';
import { branchKey } from '../codec/branch.ts';
import type {
  AvroEnumNode,
  AvroFixedNode,
  AvroNode,
  AvroPrimitive,
  AvroRecordNode,
  AvroUnionNode,
} from '../syntax/tree.ts';

/** Number of columns from which records, arrays, maps and unions are not divided any more. */
const DIVIDED_COLUMNS_MAX = 8_192;
/** Nesting from which they are not: a map takes three levels, and its values one more. */
const DIVIDED_DEPTH_MAX = COLUMN_LIMIT.DEPTH - 4;
/** Greatest number of branches of a dense union: its type ids are of type i8. */
const UNION_BRANCHES_MAX = 127;
/** Greatest number of bytes of a fixed that is a decimal128, and a decimal256. */
const DECIMAL128_BYTES = 16;
const DECIMAL256_BYTES = 32;

/** Name of the only column where the schema is no record. */
const ROOT_NAME = 'value';

/** Type of a union's branch: a union contains no union. */
type BranchType = Exclude<AvroNode, AvroUnionNode>;

/** Column with the reader's type that it holds. */
export interface Plan {
  readonly column: Column;
  /** Preorder index; -1 for the record whose fields are the top columns. */
  readonly index: number;
  /** Type of the values; for a nullable column the type beside null. */
  readonly type: AvroNode;
  /** True: the column holds bytes that are decoded on demand. */
  readonly isLazy: boolean;
  /** Children that hold Avro values: the items, the values of a map, fields, or branches. */
  readonly parts: readonly Plan[];
}

/** Columns of a reader's schema.
 *  @returns the plan of the root; its top columns are its parts where `index` is -1 */
export function planOf(reader: AvroNode): Plan {
  return new Planner().root(reader);
}

class Planner {
  /** Records that contain the current column. */
  private readonly open = new Set<AvroNode>();
  private count = 0;

  root(reader: AvroNode): Plan {
    if (reader.kind !== 'record') return this.plan(ROOT_NAME, reader, 1);
    this.open.add(reader);
    const parts = reader.fields.map((field) => this.plan(field.name, field.type, 1));
    const top = column('struct', '', false, { children: parts.map((part) => part.column) });
    return { column: top, index: -1, type: reader, isLazy: false, parts };
  }

  private plan(name: string, node: AvroNode, depth: number): Plan {
    if (node.kind !== 'union') return this.typed(name, node, false, depth);
    const branches = node.branches as readonly BranchType[];
    const types = branches.filter((branch) => !isNull(branch));
    const [only, more] = types;
    if (only === undefined) return this.leaf(node, column('null', name, false));
    if (more === undefined) return this.typed(name, only, types.length < node.branches.length, depth);
    if (this.isFull(depth) || node.branches.length > UNION_BRANCHES_MAX) return this.lazy(name, node, false);
    const index = this.count++;
    const parts = branches.map((branch) => this.typed(branchKey(branch), branch, false, depth + 1));
    const children = parts.map((part) => part.column);
    return { column: column('union', name, false, { children }), index, type: node, isLazy: false, parts };
  }

  private isFull(depth: number): boolean {
    return this.count >= DIVIDED_COLUMNS_MAX || depth > DIVIDED_DEPTH_MAX;
  }

  private leaf(type: AvroNode, made: Column): Plan {
    return { column: made, index: this.count++, type, isLazy: false, parts: [] };
  }

  private lazy(name: string, type: AvroNode, nullable: boolean): Plan {
    return {
      column: column('binary', name, nullable),
      index: this.count++,
      type,
      isLazy: true,
      parts: [],
    };
  }

  /** Plan of a type that is no union. */
  private typed(name: string, node: BranchType, nullable: boolean, depth: number): Plan {
    switch (node.kind) {
      case 'primitive':
        return this.leaf(node, primitive(name, node.type, nullable, logicalOf(node)));
      case 'enum':
        return this.leaf(node, column('dictionary', name, nullable, { symbols: symbolsOf(node) }));
      case 'fixed':
        return this.leaf(node, fixed(name, node, nullable));
      case 'array': {
        if (this.isFull(depth)) return this.lazy(name, node, nullable);
        const index = this.count++;
        const item = this.plan('item', node.items, depth + 1);
        const made = column('list', name, nullable, { children: [item.column] });
        return { column: made, index, type: node, isLazy: false, parts: [item] };
      }
      case 'map': {
        if (this.isFull(depth)) return this.lazy(name, node, nullable);
        const index = this.count;
        // The map, the struct of its entries, and the key.
        this.count += 3;
        const value = this.plan('value', node.values, depth + 2);
        const made = mapColumn(name, nullable, column('utf8', 'key', false), value.column);
        return { column: made, index, type: node, isLazy: false, parts: [value] };
      }
      case 'record':
        return this.record(name, node, nullable, depth);
    }
  }

  private record(name: string, node: AvroRecordNode, nullable: boolean, depth: number): Plan {
    if (this.open.has(node) || this.isFull(depth)) return this.lazy(name, node, nullable);
    this.open.add(node);
    const index = this.count++;
    const parts = node.fields.map((field) => this.plan(field.name, field.type, depth + 1));
    this.open.delete(node);
    const made = column('struct', name, nullable, { children: parts.map((part) => part.column) });
    return { column: made, index, type: node, isLazy: false, parts };
  }
}

const isNull = (node: AvroNode): boolean => node.kind === 'primitive' && node.type === 'null';

/** Symbols of the dictionary: a default that is no symbol, which old texts have, is one more. */
function symbolsOf({ symbols, defaultSymbol }: AvroEnumNode): readonly string[] {
  return defaultSymbol === undefined || symbols.includes(defaultSymbol)
    ? symbols
    : [...symbols, defaultSymbol];
}

const symbolIndexes = new WeakMap<AvroEnumNode, ReadonlyMap<string, number>>();

/** Index of each symbol in the dictionary. Cached, because one enum may be the type of thousands of
 *  fields. */
export function indexesOf(type: AvroEnumNode): ReadonlyMap<string, number> {
  const indexes = symbolIndexes.get(type) ?? new Map(symbolsOf(type).map((symbol, at) => [symbol, at]));
  symbolIndexes.set(type, indexes);
  return indexes;
}

function primitive(
  name: string,
  type: AvroPrimitive,
  nullable: boolean,
  logical: ColumnLogical | undefined,
): Column {
  const more = logical === undefined ? {} : { logical };
  switch (type) {
    case 'null':
      return column('null', name, false);
    case 'boolean':
      return column('bool', name, nullable);
    case 'int':
      return column('int32', name, nullable, more);
    case 'long':
      return column('int64', name, nullable, more);
    case 'float':
      return column('float32', name, nullable);
    case 'double':
      return column('float64', name, nullable);
    case 'bytes':
      return column('binary', name, nullable, more);
    case 'string':
      return column('utf8', name, nullable, more);
  }
}

function fixed(name: string, node: AvroFixedNode, nullable: boolean): Column {
  const logical = logicalOf(node);
  const more = logical === undefined ? {} : { logical };
  if (logical?.type === 'decimal' && node.size <= DECIMAL256_BYTES)
    return column(node.size <= DECIMAL128_BYTES ? 'decimal128' : 'decimal256', name, nullable, more);
  return column('fixed', name, nullable, { size: node.size, ...more });
}

/** Annotation of a column; undefined for a logical type that only its users know. */
function logicalOf(node: AvroNode): ColumnLogical | undefined {
  const { logical } = node;
  switch (logical?.logicalType) {
    case 'date':
      return { type: 'date' };
    case 'time-millis':
      return { type: 'time', unit: 'millis' };
    case 'time-micros':
      return { type: 'time', unit: 'micros' };
    case 'timestamp-millis':
      return { type: 'timestamp', unit: 'millis', isLocal: false };
    case 'timestamp-micros':
      return { type: 'timestamp', unit: 'micros', isLocal: false };
    case 'timestamp-nanos':
      return { type: 'timestamp', unit: 'nanos', isLocal: false };
    case 'local-timestamp-millis':
      return { type: 'timestamp', unit: 'millis', isLocal: true };
    case 'local-timestamp-micros':
      return { type: 'timestamp', unit: 'micros', isLocal: true };
    case 'local-timestamp-nanos':
      return { type: 'timestamp', unit: 'nanos', isLocal: true };
    case 'uuid':
      return { type: 'uuid' };
    case 'duration':
      return { type: 'duration' };
    case 'decimal':
      return { type: 'decimal', precision: logical?.precision ?? 0, scale: logical?.scale ?? 0 };
    default:
      return undefined;
  }
}
