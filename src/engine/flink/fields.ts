/** Fields of the events as columns of a Flink SQL table: of an Avro schema, or of JSON objects,
 *  whose types are those that the job needs. */

import type { Filter, FilterNode } from '../../core/filter/compile.ts';
import { type AvroNode, avroTypeName } from '../../formats/avro/syntax/tree.ts';
import { flinkAvro } from '../../formats/flink/avro.ts';
import { quotedName } from '../../formats/flink/sql.ts';
import { type AvroSchema, schemaText } from '../../formats/schema.ts';
import type { InputFields, TimeSpec } from '../source/input/definition.ts';
import { avroField } from '../verify/values.ts';
import { unsayable } from './error.ts';

/** A field as SQL reads it. */
export interface FlinkField {
  readonly sql: string;
  readonly type: FieldType;
  /** Annotation of the Avro type. */
  readonly logical?: string;
}

/** SQL types of fields; `other`: a field that is compared with null alone. */
export type FieldType =
  | 'BIGINT'
  | 'INT'
  | 'DECIMAL(20, 0)'
  | 'DOUBLE'
  | 'FLOAT'
  | 'STRING'
  | 'BOOLEAN'
  | 'BYTES'
  | 'other';

export interface FlinkFields {
  /** Definitions of the columns. */
  readonly columns: readonly string[];
  /** Top-level names, which other columns must not have. */
  readonly names: ReadonlySet<string>;
  /** Schema of the reader; undefined for JSON. */
  readonly reader: string | undefined;
  of(path: readonly string[]): FlinkField;
}

/** Settings that name fields, with the type that each needs. */
interface Demand {
  readonly setting: string;
  readonly path: readonly string[];
  /** Undefined: any. */
  readonly type: FieldType | undefined;
}

const access = (path: readonly string[]): string => path.map(quotedName).join('.');

/** Paths of all fields of a job. */
function pathsOf({ key, time, value, where, aggregates }: InputFields): ReadonlyArray<readonly string[]> {
  return [
    ...(key.from === 'fields' ? key.fields.map(({ path }) => path) : []),
    ...(time.from === 'field' ? [time.path] : []),
    ...(value === undefined ? [] : [value]),
    ...(aggregates?.fields ?? []).map(({ path }) => path),
    ...(where?.fields ?? []).map(({ steps }) => steps as readonly string[]),
  ];
}

/** Fields of an Avro schema. @throws flink_unsupported */
export function avroFields(fields: InputFields, schema: AvroSchema): FlinkFields {
  const { tree } = schema;
  if (tree.kind !== 'record')
    throw unsayable(
      'format',
      'avro',
      `has values of type ${avroTypeName(tree)}, and a table has records`,
      NEXT,
    );
  const paths = pathsOf(fields);
  const known = paths.filter((path) => avroField(tree, path) !== undefined);
  const only = new Set(known.map(([name]) => name as string));
  const { columns, obstacles, reader } = flinkAvro(tree, { only, isPlain: true });
  const [first] = obstacles;
  if (first !== undefined)
    throw unsayable('format', 'avro', `has the field ${first.path}, and ${first.why}`, NEXT);
  return {
    columns: columns.map(({ name, type }) => `${quotedName(name)} ${type}`),
    names: only,
    // Flink knows no references: the text defines every type that it names.
    reader: reader ?? schemaText(schema, 'resolved'),
    of: (path) => {
      const node = avroField(tree, path);
      // A filter may name a field that no schema has: it is null.
      if (node === undefined) return { sql: 'CAST(NULL AS STRING)', type: 'STRING' };
      const { logical } = node;
      return {
        sql: presentAccess(tree, path),
        type: avroType(node),
        ...(logical === undefined ? {} : { logical: logical.logicalType }),
      };
    },
  };
}

/** Access of a field in records that may be null. Flink takes a field for NOT NULL where its own
 *  type has no null, and leaves out tests for null, although the record around it is null. */
function presentAccess(tree: AvroNode, path: readonly string[]): string {
  const outer = path.slice(1).map((_, at) => path.slice(0, at + 1));
  const present = outer.filter((one) => isNullable(tree, one)).map((one) => `${access(one)} IS NOT NULL`);
  return present.length === 0
    ? access(path)
    : `(CASE WHEN ${present.join(' AND ')} THEN ${access(path)} END)`;
}

/** True if the type of a record's field is a union with null. */
function isNullable(tree: AvroNode, path: readonly string[]): boolean {
  const outer = path.length === 1 ? tree : avroField(tree, path.slice(0, -1));
  const field = outer?.kind === 'record' ? outer.fields.find(({ name }) => name === path.at(-1)) : undefined;
  return field?.type.kind === 'union';
}

const NEXT = 'keep this job here, or give -key, -time and -aggregate of fields that Flink SQL can read';

function avroType(node: AvroNode): FieldType {
  if (node.kind === 'enum') return 'STRING';
  if (node.kind === 'fixed') return 'BYTES';
  if (node.kind !== 'primitive') return 'other';
  switch (node.type) {
    case 'int':
      return 'INT';
    case 'long':
      return 'BIGINT';
    case 'null':
      return 'other';
    case 'bytes':
      return node.logical === undefined ? 'BYTES' : 'other';
    default:
      return node.type.toUpperCase() as FieldType;
  }
}

/** Fields of JSON objects. @throws flink_unsupported for a field whose type the job leaves open */
export function jsonFields(fields: InputFields): FlinkFields {
  const root: JsonRecord = new Map();
  const types = new Map<string, FieldType>();
  for (const demand of merged(jsonDemands(fields))) {
    place(root, demand);
    types.set(demand.path.join('.'), demand.type ?? 'STRING');
  }
  return {
    columns: [...root].map(([name, type]) => `${quotedName(name)} ${jsonType(type)}`),
    names: new Set(root.keys()),
    reader: undefined,
    of: (path) => ({ sql: access(path), type: types.get(path.join('.')) ?? 'STRING' }),
  };
}

type JsonRecord = Map<string, JsonRecord | FieldType>;

const jsonType = (type: JsonRecord | FieldType): string =>
  typeof type === 'string'
    ? type
    : `ROW<${[...type].map(([name, inner]) => `${quotedName(name)} ${jsonType(inner)}`).join(', ')}>`;

function place(root: JsonRecord, { setting, path, type = 'STRING' }: Demand): void {
  let at = root;
  const mixed = (): Error =>
    unsayable(setting, path.join('.'), 'is a value for one setting and an object for another', NEXT);
  for (const name of path.slice(0, -1)) {
    const inner = at.get(name) ?? new Map();
    if (typeof inner === 'string') throw mixed();
    at.set(name, inner);
    at = inner;
  }
  const last = path.at(-1) as string;
  if (typeof (at.get(last) ?? type) !== 'string') throw mixed();
  at.set(last, type);
}

const KEY_TYPES = {
  i64: 'BIGINT',
  u64: 'DECIMAL(20, 0)',
  string: 'STRING',
  uuid: 'STRING',
  bytes: 'BYTES',
} as const;

function jsonDemands(fields: InputFields): readonly Demand[] {
  const { key, time, value, where, aggregates } = fields;
  const keys = key.from === 'record' ? [] : key.fields;
  return [
    ...keys.map(({ path, kind }): Demand => {
      if (kind !== undefined) return { setting: 'key', path, type: KEY_TYPES[kind] };
      const name = path.join('.');
      throw unsayable(
        'key',
        name,
        'leaves its type open, and a table of Flink SQL declares it',
        `give -key=${name}:string, or :i64, :u64, :uuid, :bytes`,
      );
    }),
    ...(time.from === 'record' ? [] : [{ setting: 'time', path: time.path, type: jsonTime(time) }]),
    ...(value === undefined ? [] : [{ setting: 'value', path: value, type: 'BIGINT' as const }]),
    ...(aggregates?.fields ?? []).map(
      ({ path, kind }): Demand => ({
        setting: 'aggregate',
        path,
        type: kind === 'double' ? 'DOUBLE' : 'BIGINT',
      }),
    ),
    ...(where?.fields ?? []).map(
      ({ steps }, field): Demand => ({
        setting: 'where',
        path: steps as readonly string[],
        type: comparedType((where as Filter).tree, field, steps.join('.')),
      }),
    ),
  ];
}

function jsonTime({ path, unit }: Extract<TimeSpec, { from: 'field' }>): FieldType {
  if (unit !== undefined) return unit === 'iso' ? 'STRING' : 'BIGINT';
  const name = path.join('.');
  throw unsayable(
    'time',
    name,
    'leaves its form open, and a table of Flink SQL declares it',
    `give -time=${name}:iso, or with its unit :s, :ms, :us, :ns`,
  );
}

/** Type of the literals that a field is compared with. */
function comparedType(tree: FilterNode, field: number, name: string): FieldType | undefined {
  const types = new Set(literalsOf(tree, field).map((literal) => LITERAL_TYPES[typeof literal]));
  if (types.size > 1)
    throw unsayable(
      'where',
      name,
      'compares the field with values of several types',
      'compare it with values of one type',
    );
  return [...types][0];
}

const LITERAL_TYPES: Readonly<Record<string, FieldType>> = {
  string: 'STRING',
  object: 'DOUBLE',
  boolean: 'BOOLEAN',
};

function literalsOf(node: FilterNode, field: number): readonly unknown[] {
  switch (node.kind) {
    case 'and':
    case 'or':
      return node.parts.flatMap((part) => literalsOf(part, field));
    case 'not':
      return literalsOf(node.part, field);
    case 'null':
      return [];
    case 'compare':
      return node.field === field ? [node.literal] : [];
    case 'in':
      return node.field === field ? node.literals : [];
  }
}

/** One demand for each field. A number that two settings read is an integer if one demands it. */
function merged(demands: readonly Demand[]): readonly Demand[] {
  const found = new Map<string, Demand>();
  for (const demand of demands) {
    const name = demand.path.join('.');
    const before = found.get(name);
    const types = [before?.type, demand.type].filter((type) => type !== undefined);
    const [first, second = first] = types;
    const isOne = first === second || (types.every(isNumeric) && types.includes('DOUBLE'));
    if (!isOne)
      throw unsayable(
        demand.setting,
        name,
        `needs the type ${demand.type}, and -${before?.setting} needs ${before?.type}`,
        NEXT,
      );
    found.set(name, { ...(before ?? demand), type: first === 'DOUBLE' ? second : first });
  }
  return [...found.values()];
}

const isNumeric = (type: FieldType | undefined): boolean =>
  type === 'BIGINT' || type === 'DECIMAL(20, 0)' || type === 'DOUBLE';
