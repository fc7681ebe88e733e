/** Schemas of results in a topic: of the record keys, which have the columns of the key and the
 *  bounds of the window, and of the values, which have all columns.
 *
 *  A schema of values that has an aggregate more, or less, reads the records of the other one: an
 *  aggregate is optional, with null as its default. In Protobuf a field keeps the number that it
 *  had in the subject's latest version, and no number or name of a removed field is used again. In
 *  JSON a double keeps the type that it had there. */
import type { AvroNode } from '../../../formats/avro/syntax/tree.ts';
import type { SchemaFormat } from '../../../formats/format.ts';
import type { ProtoMessage } from '../../../formats/protobuf/tree.ts';
import type { Schema } from '../../../formats/schema.ts';
import { isKeyType, type KeyKind, type KeyType } from '../../keys/type.ts';
import { type ColumnType, DECIMAL_PRECISION, type ResultColumn } from '../columns.ts';

/** Part of a record that a schema describes. */
export type RecordPart = 'key' | 'value';

const NAMESPACE = 'millrace.windows';
const RECORD_NAME: Readonly<Record<RecordPart, string>> = { key: 'WindowKey', value: 'WindowResult' };

const isOptional = ({ role, nullable }: ResultColumn): boolean => role === 'aggregate' || nullable;

/** Columns of a part. */
export const columnsOfPart = (part: RecordPart, columns: readonly ResultColumn[]): readonly ResultColumn[] =>
  part === 'value' ? columns : columns.filter(({ role }) => role !== 'aggregate');

/** Text of the schema of a part.
 *  @param latest latest version of the subject; undefined: it has none */
export function schemaTextOf(
  format: SchemaFormat,
  part: RecordPart,
  columns: readonly ResultColumn[],
  latest: Schema | undefined,
): string {
  const wanted = columnsOfPart(part, columns);
  if (format === 'AVRO') return avroText(part, wanted);
  if (format === 'JSON') return jsonText(part, wanted, plainNumbers(latest));
  return protoText(part, wanted, latest?.format === 'PROTOBUF' ? latest.tree.messages[0] : undefined);
}

const AVRO_TYPE: Readonly<Record<Exclude<ColumnType, 'decimal'>, unknown>> = {
  // Exact for 64 bits without a sign, which Avro's long cannot hold.
  u64: { type: 'bytes', logicalType: 'decimal', precision: 20, scale: 0 },
  i64: 'long',
  f64: 'double',
  string: 'string',
  bytes: 'bytes',
  uuid: { type: 'string', logicalType: 'uuid' },
  timestamp: { type: 'long', logicalType: 'timestamp-millis' },
  bool: 'boolean',
  top: {
    type: 'array',
    items: {
      type: 'record',
      name: 'TopValue',
      fields: [
        { name: 'value', type: 'string' },
        { name: 'count', type: 'long' },
      ],
    },
  },
};

const avroType = ({ type, scale }: ResultColumn): unknown =>
  type === 'decimal'
    ? { type: 'bytes', logicalType: 'decimal', precision: DECIMAL_PRECISION, scale }
    : AVRO_TYPE[type];

function avroText(part: RecordPart, columns: readonly ResultColumn[]): string {
  let isDefined = false;
  const fields = columns.map((column) => {
    // A named type is defined once.
    const again = column.type === 'top' && isDefined;
    isDefined ||= column.type === 'top';
    const type = again ? { type: 'array', items: 'TopValue' } : avroType(column);
    return isOptional(column)
      ? { name: column.name, type: ['null', type], default: null }
      : { name: column.name, type };
  });
  return JSON.stringify({ type: 'record', name: RECORD_NAME[part], namespace: NAMESPACE, fields });
}

const PROTO_TYPE: Readonly<Record<ColumnType, string>> = {
  u64: 'uint64',
  i64: 'int64',
  f64: 'double',
  decimal: 'string',
  string: 'string',
  bytes: 'bytes',
  uuid: 'string',
  timestamp: 'int64',
  bool: 'bool',
  top: 'TopValue',
};

/** Message of a value of a list. */
const PROTO_TOP = ['message TopValue {', '  string value = 1;', '  int64 count = 2;', '}', ''];

function protoText(
  part: RecordPart,
  columns: readonly ResultColumn[],
  latest: ProtoMessage | undefined,
): string {
  const numbers = new Map(latest?.fields.map(({ name, number }) => [name, number]));
  const names = new Set(columns.map(({ name }) => name));
  const removed = [...numbers].filter(([name]) => !names.has(name));
  const reservedNumbers = [
    ...(latest?.reserved.numbers ?? []),
    ...removed.map(([, number]) => ({ from: number, to: number })),
  ];
  const reservedNames = [...(latest?.reserved.names ?? []), ...removed.map(([name]) => name)].filter(
    (name) => !names.has(name),
  );
  let next = 1 + Math.max(0, ...numbers.values(), ...reservedNumbers.map(({ to }) => to));
  const fields = columns.map((column) => {
    const number = numbers.get(column.name) ?? next++;
    const label = column.type === 'top' ? 'repeated ' : isOptional(column) ? 'optional ' : '';
    return `  ${label}${PROTO_TYPE[column.type]} ${column.name} = ${number};`;
  });
  const reserved = [
    ...reservedNumbers.map(({ from, to }) => `  reserved ${from === to ? from : `${from} to ${to}`};`),
    ...[...new Set(reservedNames)].map((name) => `  reserved "${name}";`),
  ];
  return [
    'syntax = "proto3";',
    `package ${NAMESPACE};`,
    '',
    '// Times are milliseconds since the epoch.',
    `message ${RECORD_NAME[part]} {`,
    ...reserved,
    ...fields,
    '}',
    '',
    ...(columns.some(({ type }) => type === 'top') ? PROTO_TOP : []),
  ].join('\n');
}

/** `connect.type` keeps the width of integers in consumers that know it. */
const JSON_TYPE: Readonly<Record<ColumnType, object>> = {
  u64: { type: 'integer', minimum: 0 },
  i64: { type: 'integer', 'connect.type': 'int64' },
  f64: { type: 'number' },
  decimal: { type: 'string', pattern: '^-?[0-9]+(\\.[0-9]+)?$' },
  string: { type: 'string' },
  bytes: { type: 'string', contentEncoding: 'base64' },
  uuid: { type: 'string', format: 'uuid' },
  timestamp: { type: 'integer', 'connect.type': 'int64', description: 'Milliseconds since the epoch.' },
  bool: { type: 'boolean' },
  top: {
    type: 'array',
    items: {
      type: 'object',
      properties: { value: { type: 'string' }, count: { type: 'integer', 'connect.type': 'int64' } },
      required: ['value', 'count'],
      additionalProperties: false,
    },
  },
};

/** Texts of the doubles that JSON has no number for, as ProtoJSON has them. */
export const NON_FINITE: ReadonlySet<string> = new Set(['NaN', 'Infinity', '-Infinity']);

const JSON_DOUBLE = { oneOf: [JSON_TYPE.f64, { type: 'string', enum: [...NON_FINITE] }] };

/** Names of the properties of a JSON Schema that are numbers and no texts. */
export function plainNumbers(schema: Schema | undefined): ReadonlySet<string> {
  if (schema?.format !== 'JSON') return new Set();
  const properties = Object.entries(propertiesOf(schema));
  return new Set(properties.flatMap(([name, { type }]) => (type === 'number' ? [name] : [])));
}

/** The object is closed: a property more is then a compatible change for readers.
 *  @param numbers doubles that have no texts, because the subject's latest version has none */
function jsonText(part: RecordPart, columns: readonly ResultColumn[], numbers: ReadonlySet<string>): string {
  const properties = columns.map(({ name, type, mayBeNonFinite }) => {
    const hasTexts = mayBeNonFinite === true && !numbers.has(name);
    return [name, hasTexts ? JSON_DOUBLE : JSON_TYPE[type]] as const;
  });
  return JSON.stringify({
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: RECORD_NAME[part],
    type: 'object',
    properties: Object.fromEntries(properties),
    required: columns.filter((column) => !isOptional(column)).map(({ name }) => name),
    additionalProperties: false,
  });
}

/** Parts of the keys of results, from the schema of their values; undefined: it is no schema of
 *  results. */
export function partsOfSchema(schema: Schema): KeyType | undefined {
  const fields = fieldsOf(schema);
  const end = fields?.findIndex(({ name }) => name === 'window_start') ?? -1;
  if (fields === undefined || end < 1) return undefined;
  const parts = fields.slice(0, end);
  return isKeyType(parts) ? parts : undefined;
}

type FoundField = { readonly name: string; readonly kind: KeyKind | undefined };

function fieldsOf(schema: Schema): readonly FoundField[] | undefined {
  if (schema.format === 'AVRO') {
    const { tree } = schema;
    if (tree.kind !== 'record') return undefined;
    return tree.fields.map(({ name, type }) => ({ name, kind: avroKind(type) }));
  }
  if (schema.format === 'PROTOBUF')
    // The order of the numbers is that of the columns of the first version, keys first.
    return schema.tree.messages[0]?.fields.map(({ name, type }) => ({ name, kind: PROTO_KIND[type] }));
  return Object.entries(propertiesOf(schema)).map(([name, property]) => ({ name, kind: jsonKind(property) }));
}

/** Properties of a JSON Schema, which may be one of other records. */
function propertiesOf(schema: Schema): Readonly<Record<string, JsonProperty>> {
  const parsed = JSON.parse(schema.text) as {
    readonly properties?: Readonly<Record<string, JsonProperty>>;
  };
  return parsed.properties ?? {};
}

function avroKind(node: AvroNode): KeyKind | undefined {
  if (node.kind !== 'primitive') return undefined;
  if (node.type === 'long') return 'i64';
  if (node.type === 'bytes') return node.logical?.logicalType === 'decimal' ? 'u64' : 'bytes';
  if (node.type === 'string') return node.logical?.logicalType === 'uuid' ? 'uuid' : 'string';
  return undefined;
}

/** Protobuf has no type for uuids: they are texts. */
const PROTO_KIND: Readonly<Record<string, KeyKind | undefined>> = {
  int64: 'i64',
  uint64: 'u64',
  string: 'string',
  bytes: 'bytes',
};

interface JsonProperty {
  readonly type?: unknown;
  readonly format?: unknown;
  readonly minimum?: unknown;
  readonly contentEncoding?: unknown;
}

function jsonKind({ type, format, minimum, contentEncoding }: JsonProperty): KeyKind | undefined {
  if (type === 'integer') return minimum === 0 ? 'u64' : 'i64';
  if (type !== 'string') return undefined;
  if (contentEncoding === 'base64') return 'bytes';
  return format === 'uuid' ? 'uuid' : 'string';
}
