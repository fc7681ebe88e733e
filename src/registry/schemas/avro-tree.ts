/** An Avro schema as a tree: the JSON is checked against the specification and every name is resolved.
 *
 *  Invariants: (1) a named type is one object, however often it is used, so recursion is a cycle of objects; (2) each
 *  default fits its type; (3) names, symbols and fields are unique where the specification says so.
 *  Source: Apache Avro 1.11 specification, "Schema Declaration".
 */
import { registryError } from '../errors.ts';
import { SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX, SCHEMA_TEXT_CHARS_MAX } from './format.ts';

export const AVRO_PRIMITIVES = [
  'null',
  'boolean',
  'int',
  'long',
  'float',
  'double',
  'bytes',
  'string',
] as const;
export type AvroPrimitive = (typeof AVRO_PRIMITIVES)[number];

export interface AvroLogical {
  readonly logicalType: string;
  readonly precision?: number;
  readonly scale?: number;
}

interface Node {
  readonly logical?: AvroLogical;
}
export interface AvroPrimitiveNode extends Node {
  readonly kind: 'primitive';
  readonly type: AvroPrimitive;
}
export interface AvroField {
  readonly name: string;
  readonly aliases: readonly string[];
  readonly type: AvroNode;
  readonly hasDefault: boolean;
  readonly defaultValue: unknown;
}
export interface AvroRecordNode extends Node {
  readonly kind: 'record';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly fields: AvroField[];
}
export interface AvroEnumNode extends Node {
  readonly kind: 'enum';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly symbols: readonly string[];
  readonly defaultSymbol: string | undefined;
}
export interface AvroFixedNode extends Node {
  readonly kind: 'fixed';
  readonly name: string;
  readonly aliases: readonly string[];
  readonly size: number;
}
export interface AvroArrayNode extends Node {
  readonly kind: 'array';
  readonly items: AvroNode;
}
export interface AvroMapNode extends Node {
  readonly kind: 'map';
  readonly values: AvroNode;
}
export interface AvroUnionNode extends Node {
  readonly kind: 'union';
  readonly branches: readonly AvroNode[];
}
export type AvroNode =
  | AvroPrimitiveNode
  | AvroRecordNode
  | AvroEnumNode
  | AvroFixedNode
  | AvroArrayNode
  | AvroMapNode
  | AvroUnionNode;

type Json = Readonly<Record<string, unknown>>;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const FULL_NAME = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$/;
const FIXED_BYTES_MAX = 1 << 20;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isPrimitive = (name: string): name is AvroPrimitive =>
  (AVRO_PRIMITIVES as readonly string[]).includes(name);

function fail(where: string, why: string): never {
  throw registryError('invalid_schema', `invalid Avro schema: ${where} ${why}`, {
    next: 'correct the schema',
  });
}

/** The name that tells a union's branches apart, and the name of a type in messages. */
export function avroTypeName(node: AvroNode): string {
  if (node.kind === 'primitive') return node.type;
  if (node.kind === 'record' || node.kind === 'enum' || node.kind === 'fixed') return node.name;
  return node.kind;
}

class Reader {
  private readonly named = new Map<string, AvroNode>();
  private readonly defaults: Array<{ where: string; value: unknown; type: AvroNode }> = [];
  private nodes = 0;

  read(schema: unknown): AvroNode {
    const root = this.type(schema, '', 'the schema', 0);
    for (const { where, value, type } of this.defaults) {
      const why = misfit(value, type, 0);
      if (why !== undefined) fail(where, `has a default that does not fit its type: ${why}`);
    }
    return root;
  }

  private type(schema: unknown, namespace: string, where: string, depth: number): AvroNode {
    if (depth > SCHEMA_DEPTH_MAX) fail(where, `is nested deeper than ${SCHEMA_DEPTH_MAX} types`);
    if (++this.nodes > SCHEMA_NODES_MAX) fail(where, `makes more than ${SCHEMA_NODES_MAX} types`);
    if (typeof schema === 'string') return this.reference(schema, namespace, where);
    if (Array.isArray(schema)) return this.union(schema, namespace, where, depth);
    if (!isObject(schema)) fail(where, `is ${JSON.stringify(schema) ?? 'nothing'}, not a type`);
    const type = schema['type'];
    if (typeof type !== 'string') {
      if (type === undefined) fail(where, 'has no type');
      return this.type(type, namespace, where, depth + 1);
    }
    const logical = this.logical(schema);
    if (isPrimitive(type)) return { kind: 'primitive', type, ...logical };
    switch (type) {
      case 'record':
      case 'error':
        return this.record(schema, namespace, depth, logical);
      case 'enum':
        return this.enumeration(schema, namespace, logical);
      case 'fixed':
        return this.fixed(schema, namespace, logical);
      case 'array':
        if (schema['items'] === undefined) fail(where, 'is an array without items');
        return {
          kind: 'array',
          items: this.type(schema['items'], namespace, `${where}[]`, depth + 1),
          ...logical,
        };
      case 'map':
        if (schema['values'] === undefined) fail(where, 'is a map without values');
        return {
          kind: 'map',
          values: this.type(schema['values'], namespace, `${where}{}`, depth + 1),
          ...logical,
        };
      default:
        return this.reference(type, namespace, where);
    }
  }

  private logical(schema: Json): { logical?: AvroLogical } {
    if (typeof schema['logicalType'] !== 'string') return {};
    const logical: { logicalType: string; precision?: number; scale?: number } = {
      logicalType: schema['logicalType'],
    };
    if (typeof schema['precision'] === 'number') logical.precision = schema['precision'];
    if (typeof schema['scale'] === 'number') logical.scale = schema['scale'];
    return { logical };
  }

  private reference(name: string, namespace: string, where: string): AvroNode {
    if (isPrimitive(name)) return { kind: 'primitive', type: name };
    const full = name.includes('.') || namespace === '' ? name : `${namespace}.${name}`;
    const known = this.named.get(full) ?? this.named.get(name);
    if (known === undefined)
      fail(where, `names the type ${JSON.stringify(name)}, which is not defined before it`);
    return known;
  }

  private union(branches: readonly unknown[], namespace: string, where: string, depth: number): AvroNode {
    const nodes = branches.map((branch, i) => this.type(branch, namespace, `${where}|${i}`, depth + 1));
    if (nodes.length === 0) fail(where, 'is an empty union');
    const seen = new Set<string>();
    for (const node of nodes) {
      if (node.kind === 'union') fail(where, 'is a union directly inside a union');
      const name = avroTypeName(node);
      if (seen.has(name)) fail(where, `is a union with ${name} twice`);
      seen.add(name);
    }
    return { kind: 'union', branches: nodes };
  }

  private header(schema: Json, enclosing: string): { name: string; namespace: string; aliases: string[] } {
    const given = schema['name'];
    if (typeof given !== 'string') fail(`a ${String(schema['type'])}`, 'has no name');
    if (!FULL_NAME.test(given)) fail(`name ${JSON.stringify(given)}`, 'is not an Avro name');
    const own = schema['namespace'];
    if (own !== undefined && (typeof own !== 'string' || (own !== '' && !FULL_NAME.test(own)))) {
      fail(given, `has the namespace ${JSON.stringify(own)}, which is not an Avro name`);
    }
    const dot = given.lastIndexOf('.');
    const namespace = dot >= 0 ? given.slice(0, dot) : ((own as string | undefined) ?? enclosing);
    const name = dot >= 0 || namespace === '' ? given : `${namespace}.${given}`;
    if (isPrimitive(name)) fail(name, 'renames a primitive type');
    const aliases = this.names(schema['aliases'], `aliases of ${name}`, FULL_NAME).map((alias) =>
      alias.includes('.') || namespace === '' ? alias : `${namespace}.${alias}`,
    );
    return { name, namespace, aliases };
  }

  private names(value: unknown, where: string, form: RegExp): string[] {
    if (value === undefined) return [];
    if (!Array.isArray(value)) fail(where, 'is not a list of names');
    for (const name of value) {
      if (typeof name !== 'string' || !form.test(name))
        fail(where, `has ${JSON.stringify(name)}, not an Avro name`);
    }
    if (new Set(value).size !== value.length) fail(where, 'has a name twice');
    return [...(value as string[])];
  }

  private define<N extends AvroNode & { name: string }>(node: N): N {
    if (this.named.has(node.name)) fail(node.name, 'is defined twice');
    this.named.set(node.name, node);
    return node;
  }

  private record(
    schema: Json,
    enclosing: string,
    depth: number,
    logical: { logical?: AvroLogical },
  ): AvroNode {
    const { name, namespace, aliases } = this.header(schema, enclosing);
    const fields: AvroField[] = [];
    const node = this.define({ kind: 'record' as const, name, aliases, fields, ...logical });
    if (!Array.isArray(schema['fields'])) fail(name, 'has no list of fields');
    const seen = new Set<string>();
    for (const item of schema['fields'] as readonly unknown[]) {
      if (!isObject(item) || typeof item['name'] !== 'string') fail(name, 'has a field without a name');
      const fieldName = item['name'] as string;
      const where = `field ${name}.${fieldName}`;
      if (!NAME.test(fieldName)) fail(where, 'is not an Avro name');
      if (fieldName === '__proto__') fail(where, 'has a name that JavaScript objects cannot hold');
      if (seen.has(fieldName)) fail(where, 'stands twice');
      seen.add(fieldName);
      if (item['type'] === undefined) fail(where, 'has no type');
      const type = this.type(item['type'], namespace, where, depth + 1);
      const hasDefault = Object.hasOwn(item, 'default');
      if (hasDefault) this.defaults.push({ where, value: item['default'], type });
      const fieldAliases = this.names(item['aliases'], `aliases of ${where}`, NAME);
      fields.push({
        name: fieldName,
        aliases: fieldAliases,
        type,
        hasDefault,
        defaultValue: item['default'],
      });
    }
    return node;
  }

  private enumeration(schema: Json, enclosing: string, logical: { logical?: AvroLogical }): AvroNode {
    const { name, aliases } = this.header(schema, enclosing);
    const symbols = this.names(schema['symbols'], `symbols of ${name}`, NAME);
    if (symbols.length === 0) fail(name, 'is an enum without symbols');
    const defaultSymbol = schema['default'];
    if (defaultSymbol !== undefined && !symbols.includes(defaultSymbol as string)) {
      fail(name, `has the default ${JSON.stringify(defaultSymbol)}, which is none of its symbols`);
    }
    const fallback = defaultSymbol as string | undefined;
    return this.define({
      kind: 'enum' as const,
      name,
      aliases,
      symbols,
      defaultSymbol: fallback,
      ...logical,
    });
  }

  private fixed(schema: Json, enclosing: string, logical: { logical?: AvroLogical }): AvroNode {
    const { name, aliases } = this.header(schema, enclosing);
    const size = schema['size'];
    if (!Number.isInteger(size) || (size as number) < 1 || (size as number) > FIXED_BYTES_MAX) {
      fail(name, `has the size ${JSON.stringify(size)}; a fixed takes 1 to ${FIXED_BYTES_MAX} bytes`);
    }
    return this.define({ kind: 'fixed' as const, name, aliases, size: size as number, ...logical });
  }
}

/** Why a JSON default does not fit, or undefined. A union's default belongs to its first branch. */
function misfit(value: unknown, type: AvroNode, depth: number): string | undefined {
  if (depth > SCHEMA_DEPTH_MAX) return 'it is nested too deep';
  const not = (what: string): string => `${JSON.stringify(value)} is not ${what}`;
  switch (type.kind) {
    case 'primitive':
      return misfitPrimitive(value, type.type, not);
    case 'enum':
      return typeof value === 'string' && type.symbols.includes(value)
        ? undefined
        : not(`a symbol of ${type.name}`);
    case 'fixed':
      return typeof value === 'string' && value.length === type.size && isLatin1(value)
        ? undefined
        : not(`${type.size} bytes`);
    case 'union':
      return misfit(value, type.branches[0] as AvroNode, depth + 1);
    case 'array': {
      if (!Array.isArray(value)) return not('an array');
      return value.map((item) => misfit(item, type.items, depth + 1)).find((why) => why !== undefined);
    }
    case 'map': {
      if (!isObject(value)) return not('a map');
      return Object.values(value)
        .map((item) => misfit(item, type.values, depth + 1))
        .find((why) => why !== undefined);
    }
    case 'record': {
      if (!isObject(value)) return not(`a record ${type.name}`);
      for (const field of type.fields) {
        if (!Object.hasOwn(value, field.name)) {
          if (field.hasDefault) continue;
          return `it lacks ${type.name}.${field.name}`;
        }
        const why = misfit(value[field.name], field.type, depth + 1);
        if (why !== undefined) return why;
      }
      return undefined;
    }
  }
}

const isLatin1 = (text: string): boolean => !/[^\p{ASCII}\u0080-\u00ff]/u.test(text);

function misfitPrimitive(
  value: unknown,
  type: AvroPrimitive,
  not: (what: string) => string,
): string | undefined {
  switch (type) {
    case 'null':
      return value === null ? undefined : not('null');
    case 'boolean':
      return typeof value === 'boolean' ? undefined : not('a boolean');
    case 'int':
      return typeof value === 'number' && value === (value | 0) ? undefined : not('an int');
    case 'long':
      // Larger integers are already rounded when the JSON text was parsed.
      return Number.isSafeInteger(value) ? undefined : not('a long within 2^53');
    case 'float':
    case 'double':
      return typeof value === 'number' ? undefined : not('a number');
    case 'bytes':
      return typeof value === 'string' && isLatin1(value)
        ? undefined
        : not('bytes as a text of U+0000 to U+00FF');
    case 'string':
      return typeof value === 'string' ? undefined : not('a string');
  }
}

/** Parses and checks a schema text. @throws invalid_schema */
export function parseAvro(text: string): { readonly json: unknown; readonly tree: AvroNode } {
  if (text.length > SCHEMA_TEXT_CHARS_MAX) {
    throw registryError(
      'schema_too_large',
      `the schema has ${text.length} characters; the most is ${SCHEMA_TEXT_CHARS_MAX}`,
    );
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    // The short form of a primitive schema may come unquoted.
    if (isPrimitive(text.trim())) json = text.trim();
    else fail('the text', `is not JSON: ${(cause as Error).message}`);
  }
  return { json, tree: new Reader().read(json) };
}
