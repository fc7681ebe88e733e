/** Plans of Avro schemas.
 *
 *  A schema that has the fields of the job is read as it is, so units and types are the writer's.
 *  Otherwise the reader's schema resolves the fields by their aliases and defaults. */
import type { ColumnKernels } from '../../../core/columns/kernel.ts';
import type { BatchViews, ColumnViews } from '../../../core/columns/views.ts';
import type { FilterField } from '../../../core/filter/compile.ts';
import { avroColumnDecoder } from '../../../formats/avro/columns/decoder.ts';
import {
  type AvroField,
  type AvroNode,
  type AvroPrimitiveNode,
  avroTypeName,
} from '../../../formats/avro/syntax/tree.ts';
import type { AvroSchema } from '../../../formats/schema.ts';
import type { FieldColumn } from '../../aggregate/definition.ts';
import { isOfKind, valueReader } from '../../aggregate/field-columns.ts';
import { idReader, isIdentifier } from '../../dedup/ids.ts';
import { isVariable, type KeyKind } from '../../keys/type.ts';
import { isListName, plainName, plainPath } from '../list/path.ts';
import {
  type ColumnReader,
  type FieldGet,
  integerReader,
  isoReader,
  nullReader,
  type Place,
  placeAt,
  signOf,
  timeReader,
  timestampUnit,
} from './columns.ts';
import { conditionGet, decimalGet, decimalReader, isDecimalColumn } from './decimal/columns.ts';
import type { InputFields, KeyField, Sign, TimeSpec, TimeUnit } from './definition.ts';
import { keyGet, keyReader } from './key/columns.ts';
import {
  decimalNext,
  demandList,
  type InputFlag,
  missingField,
  type PlanReaders,
  unsupported,
  WriterPlan,
} from './plan.ts';

type Path = readonly string[];

/** The type itself, or the one beside null in a union. */
function present(node: AvroNode): AvroNode {
  if (node.kind !== 'union') return node;
  const [only, more] = node.branches.filter(
    (branch) => branch.kind !== 'primitive' || branch.type !== 'null',
  );
  return only !== undefined && more === undefined ? only : node;
}

/** Type of a field, or of the elements of a list; undefined: there is none at the path. */
function fieldIn(node: AvroNode, path: Path): AvroNode | undefined {
  let at: AvroNode = node;
  for (const name of path) {
    const record = present(at);
    const field =
      record.kind === 'record' ? record.fields.find((one) => one.name === plainName(name)) : undefined;
    if (field === undefined) return undefined;
    at = field.type;
    if (!isListName(name)) continue;
    const list = present(at);
    if (list.kind !== 'array') return undefined;
    at = list.items;
  }
  return present(at);
}

/** True if the reader's field at a path has a value in every record of the writer: written under
 *  its name or an alias, or with a default. */
function isResolved(reader: AvroNode, writer: AvroNode, path: Path): boolean {
  let [read, written] = [reader, writer];
  for (const name of path) {
    const [into, from] = [present(read), present(written)];
    if (into.kind !== 'record' || from.kind !== 'record') return false;
    const field: AvroField | undefined = into.fields.find((one) => one.name === plainName(name));
    if (field === undefined) return false;
    const names = [field.name, ...field.aliases];
    const match = from.fields.find((one) => names.includes(one.name));
    if (match === undefined) return field.hasDefault && fieldIn(reader, path) !== undefined;
    [read, written] = [field.type, match.type];
    if (!isListName(name)) continue;
    const [list, source] = [present(read), present(written)];
    if (list.kind !== 'array' || source.kind !== 'array') return false;
    [read, written] = [list.items, source.items];
  }
  return true;
}

/** Type of a field for messages. */
function typeText(node: AvroNode): string {
  const name = avroTypeName(node);
  const { logical } = node;
  const kind = node.kind === 'enum' || node.kind === 'fixed' || node.kind === 'record' ? `${node.kind} ` : '';
  return `the ${kind}type ${name}${logical === undefined ? '' : ` (${logical.logicalType})`}`;
}

/** Error of a field of numbers whose type is another one. */
function notNumber(flag: 'value' | 'aggregate', path: Path, node: AvroNode): Error {
  const { logical } = node;
  return logical?.logicalType === 'decimal'
    ? unsupported(flag, path, typeText(node), decimalNext(flag, path, logical.scale))
    : unsupported(flag, path, typeText(node));
}

/** Paths that the job reads, by the flag that names each. */
function pathsOf({
  key,
  time,
  value,
  dedup,
  aggregates,
  needsValues,
}: InputFields): ReadonlyArray<readonly [Exclude<InputFlag, 'where'>, Path]> {
  return [
    ...(time.from === 'field' ? [['time', time.path] as const] : []),
    ...(key.from === 'fields' ? key.fields.map(({ path }) => ['key', path] as const) : []),
    ...(value === undefined ? [] : [['value', value] as const]),
    ...(dedup === undefined ? [] : [['dedup', dedup] as const]),
    ...(aggregates?.fields ?? []).map(({ path }) => [aggregateFlag(needsValues), path] as const),
  ];
}

/** Flag that names the aggregated fields. */
const aggregateFlag = (needsValues: boolean): 'value' | 'aggregate' => (needsValues ? 'value' : 'aggregate');

/** Makes the plan of a writer's schema.
 *  @param reader schema of the subject; undefined: there is none
 *  @throws SchemaFault if none of the writer's records is an event; unsupported_field */
export function avroPlan(
  kernels: ColumnKernels,
  fields: InputFields,
  reader: AvroSchema | undefined,
  writer: AvroSchema,
): WriterPlan {
  const needed = pathsOf(fields);
  const lacking = needed.find(([, path]) => fieldIn(writer.tree, path) === undefined);
  let schema = writer;
  if (lacking !== undefined) {
    const unresolved =
      reader === undefined ? lacking : needed.find(([, path]) => !isResolved(reader.tree, writer.tree, path));
    if (unresolved !== undefined) throw missingField(...unresolved);
    schema = reader as AvroSchema;
  }
  const filtered = fields.where?.fields ?? [];
  const known = filtered
    .map(({ steps }) => steps as Path)
    .filter((path) => fieldIn(schema.tree, path) !== undefined);
  const all = [...needed.map(([, path]) => path), ...known];
  demandList(
    fields.list,
    all,
    filtered.map(({ steps }) => steps as Path),
  );
  const paths = all.map((path) => plainPath(path).join('.'));
  const decoder = avroColumnDecoder(kernels, schema, writer, [...new Set(paths)]);
  return new WriterPlan(decoder, fields.list, (columns, views) => {
    const at = (flag: InputFlag, path: Path): Place => {
      const place = placeAt(columns, plainPath(path));
      if (place === undefined) throw unsupported(flag, path, 'inside a union of several types');
      return place;
    };
    const integer = (flag: 'key' | 'value', path: Path, sign: Sign): readonly ColumnReader[] => {
      const place = at(flag, path);
      const node = fieldIn(schema.tree, path) as AvroNode;
      if (signOf(place.column) === undefined)
        throw flag === 'value' ? notNumber(flag, path, node) : unsupported(flag, path, typeText(node));
      return withNulls(views, place, integerReader(views, place, sign, flag));
    };
    const keys = (parts: readonly KeyField[]): readonly ColumnReader[] => {
      const type = parts.map(({ path, kind = 'i64' }) => ({ path, kind }));
      const [only] = type;
      if (!isVariable(type) && only !== undefined) return integer('key', only.path, only.kind as Sign);
      const gets = type.map(({ path, kind }) => {
        const get = keyGet(views, at('key', path), kind, type.length === 1);
        if (get !== undefined) return get;
        throw unsupported(
          'key',
          path,
          `${typeText(fieldIn(schema.tree, path) as AvroNode)} instead of ${kind}`,
        );
      });
      const nulls = type.flatMap(({ path }) => nullReader(views, at('key', path)) ?? []);
      return [...nulls, keyReader(gets)];
    };
    const { key, time, value, where, dedup } = fields;
    return {
      time: time.from === 'record' ? [] : timeReaders(views, at('time', time.path), time, schema.tree),
      where: where && {
        filter: where,
        gets: filtered.map((field) => filterGet(views, schema.tree, field, at)),
      },
      fields: [
        ...(key.from === 'record' ? [] : keys(key.fields)),
        ...(value === undefined ? [] : integer('value', value, 'i64')),
        ...(dedup === undefined ? [] : identifier(views, at('dedup', dedup), dedup, schema.tree)),
        ...aggregated(views, schema.tree, fields, at),
      ],
    } satisfies PlanReaders;
  });
}

/** Readers of the aggregated fields. */
function aggregated(
  batch: BatchViews,
  tree: AvroNode,
  { aggregates, needsValues }: InputFields,
  at: (flag: InputFlag, path: Path) => Place,
): readonly ColumnReader[] {
  const flag = aggregateFlag(needsValues);
  const readerOf = (field: FieldColumn, columns: number): readonly ColumnReader[] => {
    const place = at(flag, field.path);
    const { index, column, nullable } = place;
    const isDecimal = field.kind === 'decimal';
    if (!(isDecimal ? isDecimalColumn(column) : isOfKind(column, field.kind)))
      throw notNumber(flag, field.path, fieldIn(tree, field.path) as AvroNode);
    const views = batch.columns[index] as ColumnViews;
    const reader = isDecimal
      ? decimalReader(batch, nullable, decimalGet({ column, views }), {
          field,
          columns,
          isValue: needsValues,
        })
      : valueReader(batch, place, field, columns);
    return needsValues ? withNulls(batch, place, reader) : [reader];
  };
  return (aggregates?.fields ?? []).flatMap((field) => readerOf(field, aggregates?.columns ?? 0));
}

function identifier(views: BatchViews, place: Place, path: Path, tree: AvroNode): readonly ColumnReader[] {
  if (!isIdentifier(place.column))
    throw unsupported('dedup', path, typeText(fieldIn(tree, path) as AvroNode));
  return withNulls(views, place, idReader(views, place));
}

function withNulls(views: BatchViews, place: Place, read: ColumnReader): readonly ColumnReader[] {
  const nulls = nullReader(views, place);
  return nulls === undefined ? [read] : [nulls, read];
}

function filterGet(
  views: BatchViews,
  tree: AvroNode,
  { steps, isDecimal }: FilterField,
  at: (flag: 'where', path: Path) => Place,
): FieldGet | undefined {
  const path = steps as Path;
  const node = fieldIn(tree, path);
  if (node === undefined) return undefined;
  const get = conditionGet(views, at('where', path), isDecimal);
  if (get === undefined) throw unsupported('where', path, typeText(node));
  return get;
}

function timeReaders(
  views: BatchViews,
  place: Place,
  { path, unit }: Extract<TimeSpec, { readonly from: 'field' }>,
  tree: AvroNode,
): readonly ColumnReader[] {
  const node = fieldIn(tree, path) as AvroNode;
  const { column } = place;
  if (column.kind === 'utf8') {
    if (unit !== undefined && unit !== 'iso') throw unsupported('time', path, `${typeText(node)} in ${unit}`);
    return withNulls(views, place, isoReader(views, place));
  }
  if (signOf(column) === undefined || unit === 'iso') throw unsupported('time', path, typeText(node));
  return withNulls(views, place, timeReader(views, place, unitOf(place, path, unit, node)));
}

/** A logical type states the unit; a plain integer needs one. */
function unitOf({ column }: Place, path: Path, given: TimeUnit | undefined, node: AvroNode): TimeUnit {
  const { logical } = column;
  const own = timestampUnit(logical);
  if (own !== undefined && given !== undefined && own !== given)
    throw unsupported('time', path, `${typeText(node)}, so its unit is ${own} and not ${given},`);
  const isOther = logical !== undefined && logical.type !== 'timestamp';
  const unit = own ?? given;
  if (unit === undefined || isOther)
    throw unsupported('time', path, `${typeText(node)}${isOther ? '' : ' without a unit'}`);
  return unit;
}

/** Kind of the key at a path, in the first schema that has it; undefined: no field, an integer, or
 *  a type that is no key. */
export function avroKind(trees: readonly AvroNode[], path: Path): KeyKind | undefined {
  const node = trees.map((tree) => fieldIn(tree, path)).find((one) => one !== undefined);
  const logical = node?.logical?.logicalType;
  if (node?.kind === 'fixed')
    return logical === 'uuid' ? 'uuid' : logical === undefined ? 'bytes' : undefined;
  if (node?.kind !== 'primitive') return undefined;
  if (node.type === 'string') return logical === 'uuid' ? 'uuid' : 'string';
  return node.type === 'bytes' && logical === undefined ? 'bytes' : undefined;
}

/** Fields that a search visits: types may combine without a bound. */
const SEARCHED_FIELDS_MAX = 10_000;

/** Paths of the fields of a timestamp type in UTC, outside of lists, maps and wider unions. */
export const avroTimestamps = (tree: AvroNode): readonly Path[] =>
  pathsWhere(tree, ({ logical }) => logical?.logicalType.startsWith('timestamp-') === true);

/** Names of the fields that may be a key. */
export const avroKeys = (tree: AvroNode): readonly string[] =>
  pathsWhere(tree, ({ type }) => ['long', 'int', 'string', 'bytes'].includes(type)).map((path) =>
    path.join('.'),
  );

function pathsWhere(tree: AvroNode, matches: (node: AvroPrimitiveNode) => boolean): readonly Path[] {
  const found: Path[] = [];
  const open = new Set<AvroNode>();
  let left = SEARCHED_FIELDS_MAX;
  const visit = (node: AvroNode, path: Path): void => {
    if (left-- <= 0) return;
    const type = present(node);
    if (type.kind === 'primitive' && matches(type)) found.push(path);
    if (type.kind !== 'record' || open.has(type)) return;
    open.add(type);
    for (const field of type.fields) visit(field.type, [...path, field.name]);
    open.delete(type);
  };
  visit(tree, []);
  return found;
}
