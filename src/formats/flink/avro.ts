/** Columns of a Flink SQL table over records of an Avro schema, and the reader's schema with which
 *  Flink decodes them.
 *
 *  Flink compares the types of the columns with those that it derives from the reader's schema, and
 *  refuses a table where they differ. A type that it derives wrongly, or cannot derive, is read by
 *  its plain form: the annotation is left out of the reader's schema, which Avro's schema
 *  resolution allows. Source: AvroSchemaConverter and AvroToRowDataConverters of Apache Flink. */

import {
  type AvroField,
  type AvroLogical,
  type AvroNamedNode,
  type AvroNode,
  type AvroPrimitive,
  type AvroPrimitiveNode,
  type AvroRecordNode,
  avroTypeName,
} from '../avro/syntax/tree.ts';
import { printJson } from '../json/text.ts';
import { quotedName } from './sql.ts';

/** Most digits of a DECIMAL. */
const DECIMAL_DIGITS_MAX = 38;

export interface FlinkColumn {
  readonly name: string;
  /** SQL type, with NOT NULL where the schema has no null. */
  readonly type: string;
  /** Path of names that a value of the column is not: its annotation is lost. */
  readonly notes: readonly string[];
}

/** A part of the schema that no column can have. */
export interface FlinkObstacle {
  /** Path of the field. */
  readonly path: string;
  readonly why: string;
}

export interface FlinkAvro {
  readonly columns: readonly FlinkColumn[];
  readonly obstacles: readonly FlinkObstacle[];
  /** Schema of the reader; undefined: the schema itself serves. */
  readonly reader: string | undefined;
  /** Reasons why Flink cannot write records of the schema. */
  readonly unwritable: readonly string[];
}

export interface FlinkAvroOptions {
  /** Top-level fields that become columns; absent: all. */
  readonly only?: ReadonlySet<string>;
  /** True: values keep their plain forms, an Avro timestamp is a BIGINT. */
  readonly isPlain?: boolean;
}

const PRIMITIVES: Readonly<Record<Exclude<AvroPrimitive, 'null'>, string>> = {
  boolean: 'BOOLEAN',
  int: 'INT',
  long: 'BIGINT',
  float: 'FLOAT',
  double: 'DOUBLE',
  bytes: 'BYTES',
  string: 'STRING',
};

/** Annotations whose type Flink derives and reads as they mean. */
const DERIVED: Readonly<Record<string, string>> = {
  'int date': 'DATE',
  'int time-millis': 'TIME(3)',
  'long timestamp-millis': 'TIMESTAMP(3)',
};
/** Annotations that Flink derives a type from and misreads, with the meaning of the value. */
const MISREAD: Readonly<Record<string, string>> = {
  'long timestamp-micros': 'microseconds since the epoch',
  'long time-micros': 'microseconds of the day',
};

/** Columns and reader's schema of a record type. @throws RangeError if the type is no record */
export function flinkAvro(root: AvroNode, options: FlinkAvroOptions = {}): FlinkAvro {
  if (root.kind !== 'record') throw new RangeError(`${avroTypeName(root)} is no record`);
  return new Converter(options.isPlain === true).table(root, options.only);
}

class Converter {
  private readonly isPlain: boolean;
  private readonly obstacles: FlinkObstacle[] = [];
  private readonly unwritable: string[] = [];
  /** Notes of the column that is converted. */
  private notes: string[] = [];
  private readonly open = new Set<AvroNode>();
  private readonly stripped = new Set<AvroNode>();

  constructor(isPlain: boolean) {
    this.isPlain = isPlain;
  }

  table(root: AvroRecordNode, only: ReadonlySet<string> | undefined): FlinkAvro {
    this.open.add(root);
    const fields = root.fields.filter(({ name }) => only?.has(name) ?? true);
    const columns = fields.map(({ name, type }): FlinkColumn => {
      this.notes = [];
      return { name, type: this.type(type, name), notes: this.notes };
    });
    if (fields.length === 0) this.obstacles.push({ path: '', why: 'it has no fields' });
    const isWhole = fields.length === root.fields.length && this.stripped.size === 0;
    const reader = isWhole ? undefined : new ReaderText(this.stripped).of({ ...root, fields });
    return { columns, obstacles: this.obstacles, reader, unwritable: this.unwritable };
  }

  private refuse(path: string, why: string): string {
    this.obstacles.push({ path, why });
    return 'STRING';
  }

  private type(node: AvroNode, path: string): string {
    if (node.kind !== 'union') return `${this.present(node, path)} NOT NULL`;
    const rest = node.branches.filter((one) => one.kind !== 'primitive' || one.type !== 'null');
    const hasNull = rest.length < node.branches.length;
    const [only, more] = rest;
    if (only === undefined || more !== undefined)
      return this.refuse(path, 'it is a union of several types, which no column of Flink SQL has');
    return `${this.present(only, path)}${hasNull ? '' : ' NOT NULL'}`;
  }

  private present(node: AvroNode, path: string): string {
    switch (node.kind) {
      case 'primitive':
        return this.primitive(node, path);
      case 'enum':
        this.cannotWrite(`${path} is an enum, which Flink reads as a text and cannot write`);
        return 'STRING';
      case 'fixed':
        this.cannotWrite(`${path} is of the fixed type ${node.name}, which Flink cannot write`);
        return this.decimal(node, path) ?? `VARBINARY(${node.size})`;
      case 'array':
        return `ARRAY<${this.type(node.items, `${path}[]`)}>`;
      case 'map':
        return `MAP<STRING NOT NULL, ${this.type(node.values, `${path}{}`)}>`;
      case 'record':
        return this.record(node, path);
      case 'union':
        return this.refuse(path, 'it is a union in a union');
    }
  }

  private record(node: AvroRecordNode, path: string): string {
    if (this.open.has(node))
      return this.refuse(path, `its type ${node.name} contains itself, and columns are finite`);
    if (node.fields.length === 0)
      return this.refuse(path, `its type ${node.name} has no fields, and a row has at least one`);
    this.open.add(node);
    const fields = node.fields.map(
      ({ name, type }) => `${quotedName(name)} ${this.type(type, `${path}.${name}`)}`,
    );
    this.open.delete(node);
    return `ROW<${fields.join(', ')}>`;
  }

  private primitive(node: AvroPrimitiveNode, path: string): string {
    const { type, logical } = node;
    if (type === 'null') return this.refuse(path, 'it is always null');
    if (logical === undefined) return PRIMITIVES[type];
    if (logical.logicalType === 'decimal') return this.decimal(node, path) ?? PRIMITIVES[type];
    const name = `${type} ${logical.logicalType}`;
    const derived = DERIVED[name];
    if (derived !== undefined && !this.isPlain) return derived;
    const meaning = MISREAD[name];
    if (derived !== undefined || meaning !== undefined) this.strip(node, path, meaning);
    return PRIMITIVES[type];
  }

  /** Undefined: the type is no decimal that a column can have. */
  private decimal(node: AvroNode, path: string): string | undefined {
    const { logicalType, precision = 0, scale = 0 }: Partial<AvroLogical> = node.logical ?? {};
    if (logicalType !== 'decimal') return undefined;
    if (!this.isPlain && precision <= DECIMAL_DIGITS_MAX) return `DECIMAL(${precision}, ${scale})`;
    this.strip(
      node,
      path,
      `unscaled two's complement of a decimal of ${precision} digits, ${scale} behind the point`,
    );
    return undefined;
  }

  private strip(node: AvroNode, path: string, meaning: string | undefined): void {
    this.stripped.add(node);
    if (meaning === undefined) return;
    this.notes.push(`${path}: ${meaning}`);
    this.cannotWrite(`${path} (${node.logical?.logicalType}) is read in its plain form`);
  }

  private cannotWrite(why: string): void {
    if (!this.unwritable.includes(why)) this.unwritable.push(why);
  }
}

/** An object of JSON, from the texts of its members; undefined members are left out. */
const object = (members: Readonly<Record<string, string | undefined>>): string =>
  `{${Object.entries(members)
    .flatMap(([name, text]) => (text === undefined ? [] : [`${JSON.stringify(name)}:${text}`]))
    .join()}}`;
const list = (texts: readonly string[]): string => `[${texts.join()}]`;
const names = (texts: readonly string[]): string => list(texts.map((text) => JSON.stringify(text)));

/** Text of a reader's schema without the annotations of some types. */
class ReaderText {
  private readonly stripped: ReadonlySet<AvroNode>;
  private readonly defined = new Set<string>();

  constructor(stripped: ReadonlySet<AvroNode>) {
    this.stripped = stripped;
  }

  of(node: AvroNode): string {
    switch (node.kind) {
      case 'primitive':
        return node.logical === undefined || this.stripped.has(node)
          ? JSON.stringify(node.type)
          : object({ type: JSON.stringify(node.type), ...this.annotation(node) });
      case 'array':
        return object({ type: '"array"', items: this.of(node.items) });
      case 'map':
        return object({ type: '"map"', values: this.of(node.values) });
      case 'union':
        return list(node.branches.map((branch) => this.of(branch)));
      default:
        return this.named(node);
    }
  }

  private annotation(node: AvroNode): Readonly<Record<string, string>> {
    if (this.stripped.has(node)) return {};
    return Object.fromEntries(
      Object.entries(node.logical ?? {}).map(([name, value]) => [name, JSON.stringify(value)]),
    );
  }

  private named(node: AvroNamedNode): string {
    if (this.defined.has(node.name)) return JSON.stringify(node.name);
    this.defined.add(node.name);
    const dot = node.name.lastIndexOf('.');
    const head = {
      type: JSON.stringify(node.kind),
      name: JSON.stringify(node.name.slice(dot + 1)),
      namespace: JSON.stringify(node.name.slice(0, Math.max(0, dot))),
      aliases: node.aliases.length === 0 ? undefined : names(node.aliases),
    };
    if (node.kind === 'record')
      return object({ ...head, fields: list(node.fields.map((field) => this.field(field))) });
    if (node.kind === 'fixed') return object({ ...head, size: String(node.size), ...this.annotation(node) });
    const { symbols, defaultSymbol } = node;
    return object({
      ...head,
      symbols: names(symbols),
      default: defaultSymbol === undefined ? undefined : JSON.stringify(defaultSymbol),
    });
  }

  private field({ name, aliases, type, defaultJson }: AvroField): string {
    return object({
      name: JSON.stringify(name),
      type: this.of(type),
      aliases: aliases.length === 0 ? undefined : names(aliases),
      default: defaultJson === undefined ? undefined : printJson(defaultJson),
    });
  }
}
