/** Texts of an Avro schema: canonical, normalized, and with references inlined.
 *
 *  The canonical text is that of Schema.toString() on the JVM, byte for byte. Keys are in its
 *  order, and redundant parts are dropped (a nested namespace that repeats the enclosing one,
 *  `{"type":"int"}` for `"int"`, the order "ascending"). Documentation, aliases and unknown
 *  properties are kept.
 *
 *  The normalized text is the canonical text with sorted aliases, properties and objects inside
 *  them. Empty documentation is dropped, and number defaults are written as their type. Sources,
 *  for facts: Schema.java of apache/avro 1.12.0; AvroSchemaUtils.java of
 *  confluentinc/schema-registry. */

import {
  doubleOf,
  isInteger,
  type JsonNode,
  type JsonObject,
  memberOf,
  printDouble,
  printFloat,
  printJson,
  printString,
} from '../../json/text.ts';
import { floatOfText } from './default.ts';
import { isBuiltInLogical } from './logical.ts';
import type { AvroDefinition, AvroNotes } from './reader.ts';
import { type AvroNode, type AvroRecordNode, isAvroPrimitive } from './tree.ts';

const TYPE_RESERVED = new Set([
  'doc',
  'fields',
  'items',
  'name',
  'namespace',
  'size',
  'symbols',
  'values',
  'type',
  'aliases',
]);
const ENUM_RESERVED = new Set([...TYPE_RESERVED, 'default']);
const FIELD_RESERVED = new Set(['default', 'doc', 'name', 'order', 'type', 'aliases']);
/** Names that force a type to be named in full, even inside its namespace. */
const TYPE_WORDS = new Set([
  'record',
  'enum',
  'array',
  'map',
  'union',
  'fixed',
  'string',
  'bytes',
  'int',
  'long',
  'float',
  'double',
  'boolean',
  'null',
]);

const member = (key: string, printed: string): string => `${printString(key)}:${printed}`;
const byUnits = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const lastPart = (name: string): string => name.slice(name.lastIndexOf('.') + 1);
const namespaceOf = (name: string): string => name.slice(0, Math.max(0, name.lastIndexOf('.')));

/** A full name as it is written inside a namespace. */
function qualified(full: string, enclosing: string): string {
  const namespace = namespaceOf(full);
  const short = lastPart(full);
  return namespace !== '' && namespace === enclosing && !TYPE_WORDS.has(short) ? short : full;
}

export interface AvroPrintOptions {
  /** Names of types that are already defined in another text. */
  readonly known: Iterable<string>;
  /** Definitions of other texts, to be inlined at their first use. */
  readonly inline?: ReadonlyMap<string, AvroDefinition>;
  readonly normalize?: boolean;
  /** True: unknown properties, and objects inside them, are sorted; the rest is canonical. */
  readonly sortProperties?: boolean;
  /** True: only the outermost type is printed in full, all other types by name. */
  readonly shallow?: boolean;
}

export class AvroPrinter {
  private readonly notes: AvroNotes;
  private readonly written: Set<string>;
  private readonly inline: ReadonlyMap<string, AvroDefinition> | undefined;
  private readonly normalize: boolean;
  private readonly sortProperties: boolean;
  private readonly shallow: boolean;
  /** True where sorting the properties may change the text. */
  hasOpenOrder = false;

  constructor(notes: AvroNotes, options: AvroPrintOptions) {
    this.notes = notes;
    this.written = new Set(options.known);
    this.inline = options.inline;
    this.normalize = options.normalize ?? false;
    this.sortProperties = options.sortProperties ?? false;
    this.shallow = options.shallow ?? false;
  }

  /** Prints a schema. @param json accepted by the reader that made these notes */
  print(json: JsonNode, namespace = ''): string {
    const used = this.notes.usedNames.get(json);
    if (used !== undefined) return this.use(used, namespace);
    if (json.kind === 'string') return printString(json.value);
    if (json.kind === 'array') return `[${json.items.map((item) => this.print(item, namespace)).join(',')}]`;
    if (json.kind !== 'object') return printJson(json);
    const definition = this.notes.definitions.get(json);
    if (definition !== undefined) return this.definition(definition, namespace);
    const type = memberOf(json, 'type') as JsonNode;
    if (type.kind !== 'string') return this.print(type, namespace);
    const part = type.value === 'array' ? 'items' : type.value === 'map' ? 'values' : undefined;
    const parts = [member('type', printString(type.value))];
    if (part !== undefined) parts.push(member(part, this.print(memberOf(json, part) as JsonNode, namespace)));
    const props = this.props(json, TYPE_RESERVED, isAvroPrimitive(type.value));
    if (part === undefined && props.length === 0) return printString(type.value);
    return `{${[...parts, ...props].join(',')}}`;
  }

  private use(name: string, namespace: string): string {
    const elsewhere = this.written.has(name) ? undefined : this.inline?.get(name);
    return elsewhere === undefined
      ? printString(qualified(name, namespace))
      : this.definition(elsewhere, namespace);
  }

  private definition({ json, header, node }: AvroDefinition, enclosing: string): string {
    const { name, namespace } = header;
    if (this.written.has(name) || (this.shallow && this.written.size > 0))
      return printString(qualified(name, enclosing));
    this.written.add(name);
    const kind = (memberOf(json, 'type') as { readonly value: string }).value;
    const parts = [
      member('type', printString(kind === 'error' && this.normalize ? 'record' : kind)),
      member('name', printString(lastPart(name))),
    ];
    if (namespace !== enclosing) parts.push(member('namespace', printString(namespace)));
    const doc = memberOf(json, 'doc');
    if (doc?.kind === 'string' && !(this.normalize && doc.value === ''))
      parts.push(member('doc', printString(doc.value)));
    if (node.kind === 'record') parts.push(member('fields', this.fields(json, namespace)));
    else if (node.kind === 'enum') {
      parts.push(member('symbols', `[${node.symbols.map(printString).join(',')}]`));
      if (node.defaultSymbol !== undefined) parts.push(member('default', printString(node.defaultSymbol)));
    } else parts.push(member('size', String(node.size)));
    parts.push(
      ...this.props(json, node.kind === 'enum' ? ENUM_RESERVED : TYPE_RESERVED, node.kind === 'fixed'),
    );
    // Inside a namespace, a leading dot marks an alias without a namespace.
    const aliases = header.aliases.map((alias) =>
      namespace !== '' && !alias.includes('.') ? `.${alias}` : alias,
    );
    if (this.normalize) aliases.sort(byUnits);
    if (aliases.length > 0)
      parts.push(
        member('aliases', `[${aliases.map((alias) => printString(qualified(alias, namespace))).join(',')}]`),
      );
    return `{${parts.join(',')}}`;
  }

  private fields(json: JsonObject, namespace: string): string {
    const list = memberOf(json, 'fields') as Extract<JsonNode, { kind: 'array' }>;
    return `[${list.items.map((item) => this.field(item as JsonObject, namespace)).join(',')}]`;
  }

  private field(json: JsonObject, namespace: string): string {
    const type = this.notes.fieldTypes.get(json) as AvroNode;
    const parts = [
      member('name', printJson(memberOf(json, 'name') as JsonNode)),
      member('type', this.print(memberOf(json, 'type') as JsonNode, namespace)),
    ];
    const doc = memberOf(json, 'doc');
    if (doc?.kind === 'string') parts.push(member('doc', printString(doc.value)));
    const value = memberOf(json, 'default');
    if (value !== undefined) parts.push(member('default', this.fieldDefault(value, type)));
    const order = memberOf(json, 'order');
    if (order?.kind === 'string' && order.value.toLowerCase() !== 'ascending')
      parts.push(member('order', printString(order.value.toLowerCase())));
    const aliases = memberOf(json, 'aliases');
    if (aliases?.kind === 'array' && aliases.items.length > 0) {
      const names = [...new Set(aliases.items.map((item) => (item as { readonly value: string }).value))];
      if (this.normalize) names.sort(byUnits);
      parts.push(member('aliases', `[${names.map(printString).join(',')}]`));
    }
    return `{${[...parts, ...this.props(json, FIELD_RESERVED, false)].join(',')}}`;
  }

  private fieldDefault(value: JsonNode, type: AvroNode): string {
    if (
      value.kind === 'string' &&
      type.kind === 'primitive' &&
      (type.type === 'float' || type.type === 'double')
    ) {
      const number = floatOfText(value.value);
      if (number === undefined) return printString(value.value);
      return this.normalize && type.type === 'float' ? printFloat(number) : printDouble(number);
    }
    return this.normalize ? normalDefault(value, type) : this.value(value);
  }

  private value(json: JsonNode): string {
    this.hasOpenOrder ||= json.kind === 'object' || json.kind === 'array';
    return printJson(json, this.sortProperties);
  }

  /** Prints the properties. @param logicalFirst a valid logical type comes first in the normalized
   *  text */
  private props(json: JsonObject, reserved: ReadonlySet<string>, logicalFirst: boolean): string[] {
    const keys = [...json.members.keys()].filter((key) => !reserved.has(key));
    if (!this.normalize) {
      this.hasOpenOrder ||= keys.length > 1;
      if (this.sortProperties) keys.sort(byUnits);
      return keys.map((key) => member(key, this.value(memberOf(json, key) as JsonNode)));
    }
    keys.sort(byUnits);
    const ahead = logicalFirst && this.notes.logical.has(json) ? logicalKeys(json) : [];
    keys.sort((a, b) => rank(ahead, a) - rank(ahead, b));
    return keys.map((key) => member(key, printJson(memberOf(json, key) as JsonNode, true)));
  }
}

const rank = (ahead: readonly string[], key: string): number => {
  const at = ahead.indexOf(key);
  return at < 0 ? ahead.length : at;
};

/** Keys beside which Java's Avro ignores every logical type. */
const JAVA_CLASS_KEYS = ['avro.java.string', 'java-class', 'java-key-class', 'java-element-class'];

function logicalKeys(json: JsonObject): readonly string[] {
  if (JAVA_CLASS_KEYS.some((key) => memberOf(json, key)?.kind === 'string')) return [];
  const name = memberOf(json, 'logicalType') as { readonly value: string };
  if (!isBuiltInLogical(name.value)) return [];
  if (name.value !== 'decimal') return ['logicalType'];
  const scale = memberOf(json, 'scale');
  const zero = scale?.kind === 'number' && Number(scale.digits) === 0;
  return zero ? ['logicalType', 'precision'] : ['logicalType', 'precision', 'scale'];
}

/** A default in the form of its type; a default that does not fit stays unchanged. */
function normalDefault(json: JsonNode, type: AvroNode): string {
  if (type.kind === 'union') {
    const [first] = type.branches;
    return first === undefined ? printJson(json, true) : normalDefault(json, first);
  }
  if (json.kind === 'number' && type.kind === 'primitive') {
    if (type.type === 'float') return printFloat(doubleOf(json));
    if (type.type === 'double' && isInteger(json)) return printDouble(doubleOf(json));
  }
  if (json.kind === 'array' && type.kind === 'array')
    return `[${json.items.map((item) => normalDefault(item, type.items)).join(',')}]`;
  if (json.kind === 'object' && (type.kind === 'map' || type.kind === 'record')) {
    const fields = type.kind === 'record' ? fieldsOf(type) : undefined;
    const members = [...json.members].sort(([a], [b]) => byUnits(a, b));
    const printed = members.map(([key, { value }]) => {
      const inner = type.kind === 'map' ? type.values : fields?.get(key);
      return member(key, inner === undefined ? printJson(value, true) : normalDefault(value, inner));
    });
    return `{${printed.join(',')}}`;
  }
  return printJson(json, true);
}

const fieldMaps = new WeakMap<AvroRecordNode, ReadonlyMap<string, AvroNode>>();

function fieldsOf(type: AvroRecordNode): ReadonlyMap<string, AvroNode> {
  const fields = fieldMaps.get(type) ?? new Map(type.fields.map((field) => [field.name, field.type]));
  fieldMaps.set(type, fields);
  return fields;
}
