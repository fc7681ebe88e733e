/** Builds the tree of an Avro schema from its JSON: resolves every name and checks every rule of
 *  the specification.
 *
 *  Invariants: (1) a type is defined before it is used; (2) each default fits its type; (3) names,
 *  symbols, fields and branches are unique where the specification requires it. An unvalidated
 *  reader skips defaults and namespaces. A lenient reader, for texts that a registry accepted
 *  earlier, only checks what decides which bytes belong to the schema. Source: Apache Avro 1.12
 *  specification; for leniency and resolution of names: Schema.java of apache/avro 1.12.0. */
import type { MillraceError } from '../../../core/errors.ts';
import { formatError } from '../../errors.ts';
import { DEPTH_LIMIT, NODES_LIMIT, SCHEMA_DEPTH_MAX, SCHEMA_NODES_MAX } from '../../format.ts';
import {
  isInteger,
  type JsonNode,
  type JsonObject,
  memberOf,
  positionOf,
  printJson,
} from '../../json/text.ts';
import { misfitOf } from './default.ts';
import { logicalOf } from './logical.ts';
import { type AvroField, type AvroNamedNode, type AvroNode, avroTypeName, isAvroPrimitive } from './tree.ts';

/** Full names of a type and of its aliases. */
export interface AvroHeader {
  readonly name: string;
  /** Empty: no namespace. */
  readonly namespace: string;
  readonly aliases: readonly string[];
}

export interface AvroDefinition {
  readonly json: JsonObject;
  readonly header: AvroHeader;
  readonly node: AvroNamedNode;
  /** Name of the reference whose text defines the type. */
  readonly from: string | undefined;
}

/** Findings of the reader about places of the JSON, for the printer. */
export interface AvroNotes {
  /** Full name for each JSON value that names a type that is not primitive. */
  readonly usedNames: Map<JsonNode, string>;
  readonly definitions: Map<JsonObject, AvroDefinition>;
  readonly fieldTypes: Map<JsonObject, AvroNode>;
  /** JSON objects whose logical type is valid. */
  readonly logical: Set<JsonObject>;
}

/** Definitions and notes that all texts of one schema and its references share. */
export interface AvroScope {
  readonly named: Map<string, AvroDefinition>;
  readonly notes: AvroNotes;
}

export const emptyScope = (): AvroScope => ({
  named: new Map(),
  notes: { usedNames: new Map(), definitions: new Map(), fieldTypes: new Map(), logical: new Set() },
});

export interface AvroReadOptions {
  readonly lenient: boolean;
  /** True: neither defaults nor namespaces are checked. */
  readonly unvalidated: boolean;
  readonly from: string | undefined;
  /** Text in which a message lists the references that could define a missing name. */
  readonly references: string;
  /** True when two definitions of one name are equal. */
  readonly isSame: (one: AvroDefinition, other: AvroDefinition) => boolean;
}

/** Greatest number of nodes of a tree that is read leniently. */
const LENIENT_NODES_MAX = 1_000_000;
/** Greatest nesting of types of a tree that is read leniently; equal to the limit of the JVM's JSON
 *  reader. */
const LENIENT_DEPTH_MAX = 330;
/** Greatest number of bytes of a fixed: the limit of an array on the JVM. */
const FIXED_BYTES_MAX = 2 ** 31 - 9;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const FULL_NAME = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$/;
/** A name in a namespace that may contain any character. */
const NAME_OF_ANY_SPACE = /^(?:.*\.)?[A-Za-z_][A-Za-z0-9_]*$/s;
const HALF_PAIR = /\p{Surrogate}/u;
const SHOWN_CHARS_MAX = 80;

function shown(node: JsonNode): string {
  const text = printJson(node);
  return text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX)}…` : text;
}

/** Error with its place in the text. @param from the reference whose text it is */
export function avroError(
  text: string,
  at: number,
  why: string,
  from?: string | undefined,
  cause?: unknown,
): MillraceError {
  const { line, column } = positionOf(text, at);
  const where = `at line ${line}, column ${column}${from === undefined ? '' : ` of the reference ${JSON.stringify(from)}`}`;
  return formatError('invalid_schema', `invalid Avro schema: ${why}, ${where}`, {
    next: 'correct the schema',
    details: { line, column },
    ...(cause === undefined ? {} : { cause }),
  });
}

function docOf(json: JsonObject): { readonly doc?: string } {
  const doc = memberOf(json, 'doc');
  return doc?.kind === 'string' ? { doc: doc.value } : {};
}

/** Splits a name that may be qualified into its parts. */
function split(name: string, namespace: string): { readonly name: string; readonly namespace: string } {
  const dot = name.lastIndexOf('.');
  if (dot >= 0) return { namespace: name.slice(0, dot), name: dot === 0 ? name.slice(1) : name };
  return { namespace, name: namespace === '' ? name : `${namespace}.${name}` };
}

export class AvroReader {
  private readonly text: string;
  private readonly scope: AvroScope;
  private readonly options: AvroReadOptions;
  private readonly defaults: Array<{ where: string; json: JsonNode; type: AvroNode }> = [];
  private nodes = 0;

  constructor(text: string, scope: AvroScope, options: AvroReadOptions) {
    this.text = text;
    this.scope = scope;
    this.options = options;
  }

  /** Reads a schema. @throws invalid_schema */
  read(json: JsonNode): AvroNode {
    const root = this.type(json, '', 'the schema', 0);
    if (this.options.lenient || this.options.unvalidated) return root;
    for (const { where, json: value, type } of this.defaults) {
      const misfit = misfitOf(value, type);
      if (misfit !== undefined)
        this.fail(misfit.at, `${where} has a default that does not fit its type: ${misfit.why}`);
    }
    return root;
  }

  private fail(at: number, why: string): never {
    throw avroError(this.text, at, why, this.options.from);
  }

  private place(at: number): { readonly at: number; readonly from?: string } {
    return this.options.from === undefined ? { at } : { at, from: this.options.from };
  }

  private type(json: JsonNode, namespace: string, where: string, depth: number): AvroNode {
    const { lenient } = this.options;
    const deepest = lenient ? LENIENT_DEPTH_MAX : SCHEMA_DEPTH_MAX;
    const most = lenient ? LENIENT_NODES_MAX : SCHEMA_NODES_MAX;
    if (depth > deepest) this.fail(json.at, `${where} is nested deeper than ${deepest} types ${DEPTH_LIMIT}`);
    if (++this.nodes > most) this.fail(json.at, `${where} makes more than ${most} types ${NODES_LIMIT}`);
    if (json.kind === 'string') return this.reference(json, json.value, namespace, where);
    if (json.kind === 'array') return this.union(json, namespace, where, depth);
    if (json.kind !== 'object') this.fail(json.at, `${where} is ${shown(json)}, not a type`);
    const type = memberOf(json, 'type');
    if (type === undefined) this.fail(json.at, `${where} has no type`);
    if (type.kind !== 'string') {
      if (!lenient) this.fail(type.at, `${where} has the type ${shown(type)}, not the name of one`);
      return this.type(type, namespace, where, depth + 1);
    }
    const name = type.value;
    const place = this.place(json.at);
    if (isAvroPrimitive(name))
      return { kind: 'primitive', type: name, ...place, ...this.logical(json, name) };
    switch (name) {
      case 'record':
      case 'error':
        return this.record(json, namespace, depth);
      case 'enum':
        return this.enumeration(json, namespace);
      case 'fixed':
        return this.fixed(json, namespace);
      case 'array': {
        const items = this.part(json, 'items', namespace, `${where}[]`, 'is an array without items', depth);
        return { kind: 'array', items, ...place, ...this.logical(json, name) };
      }
      case 'map': {
        const values = this.part(json, 'values', namespace, `${where}{}`, 'is a map without values', depth);
        return { kind: 'map', values, ...place, ...this.logical(json, name) };
      }
      default:
        return this.reference(json, name, namespace, where);
    }
  }

  private part(
    json: JsonObject,
    key: string,
    namespace: string,
    where: string,
    absent: string,
    depth: number,
  ): AvroNode {
    const part = memberOf(json, key);
    if (part === undefined) this.fail(json.at, `${where.slice(0, -2)} ${absent}`);
    return this.type(part, namespace, where, depth + 1);
  }

  private logical(json: JsonObject, type: string, size?: number) {
    const logical = logicalOf(json, type, size);
    if (logical === undefined) return {};
    this.scope.notes.logical.add(json);
    return { logical };
  }

  private reference(json: JsonNode, name: string, namespace: string, where: string): AvroNode {
    if (isAvroPrimitive(name)) return { kind: 'primitive', type: name, ...this.place(json.at) };
    const { named, notes } = this.scope;
    const full = split(name, namespace).name;
    const known = named.has(full) ? full : name;
    const definition = named.get(known);
    if (definition === undefined) {
      const wanted = full === name ? '' : `, in full ${JSON.stringify(full)}`;
      this.fail(
        json.at,
        `${where} names the type ${JSON.stringify(name)}${wanted}, which is not defined before it; ${this.options.references}`,
      );
    }
    notes.usedNames.set(json, known);
    return definition.node;
  }

  private union(
    json: Extract<JsonNode, { kind: 'array' }>,
    namespace: string,
    where: string,
    depth: number,
  ): AvroNode {
    if (json.items.length === 0 && !this.options.lenient) this.fail(json.at, `${where} is an empty union`);
    const seen = new Set<string>();
    const branches = json.items.map((item, i) => {
      const branch = this.type(item, namespace, `${where}|${i}`, depth + 1);
      if (branch.kind === 'union') this.fail(item.at, `${where} is a union directly inside a union`);
      const name = avroTypeName(branch);
      if (seen.has(name)) this.fail(item.at, `${where} is a union with ${name} twice`);
      seen.add(name);
      return branch;
    });
    return { kind: 'union', branches, ...this.place(json.at) };
  }

  private header(json: JsonObject, enclosing: string): AvroHeader {
    const { lenient, unvalidated } = this.options;
    const given = memberOf(json, 'name');
    const type = memberOf(json, 'type') as Extract<JsonNode, { kind: 'string' }>;
    if (given?.kind !== 'string') this.fail((given ?? json).at, `a ${type.value} has no name`);
    const form = unvalidated ? NAME_OF_ANY_SPACE : FULL_NAME;
    if (!lenient && !form.test(given.value)) this.fail(given.at, `name ${shown(given)} is not an Avro name`);
    const own = memberOf(json, 'namespace');
    if (
      !lenient &&
      own !== undefined &&
      (own.kind !== 'string' || !(unvalidated || own.value === '' || FULL_NAME.test(own.value)))
    )
      this.fail(own.at, `${given.value} has the namespace ${shown(own)}, which is not an Avro name`);
    const { name, namespace } = split(given.value, own?.kind === 'string' ? own.value : enclosing);
    if (isAvroPrimitive(name)) this.fail(given.at, `${name} renames a primitive type`);
    const aliases = this.names(json, 'aliases', `aliases of ${name}`, form, false);
    return { name, namespace, aliases: [...new Set(aliases.map((alias) => split(alias, namespace).name))] };
  }

  private names(json: JsonObject, key: string, where: string, form: RegExp, unique: boolean): string[] {
    const list = memberOf(json, key);
    if (list === undefined) return [];
    if (list.kind !== 'array') this.fail(list.at, `${where} is not a list of names`);
    const names = new Set<string>();
    for (const item of list.items) {
      if (item.kind !== 'string' || !(this.options.lenient || form.test(item.value)))
        this.fail(item.at, `${where} has ${shown(item)}, not an Avro name`);
      if (unique && names.has(item.value)) this.fail(item.at, `${where} has a name twice: ${item.value}`);
      names.add(item.value);
    }
    return [...names];
  }

  /** Defines a named type. A second definition of a name is allowed where it equals that of a
   *  reference. */
  private define<N extends AvroNamedNode>(json: JsonObject, header: AvroHeader, node: N): AvroNode {
    const definition = { json, header, node, from: this.options.from };
    const { named, notes } = this.scope;
    notes.definitions.set(json, definition);
    if (!named.has(node.name)) named.set(node.name, definition);
    return node;
  }

  /** Resolves a second definition of a name. Call it when the whole type has been read. */
  private merge(json: JsonObject): AvroNode {
    const { named, notes } = this.scope;
    const own = notes.definitions.get(json) as AvroDefinition;
    const first = named.get(own.node.name) as AvroDefinition;
    if (first === own) return own.node;
    const elsewhere = first.from !== own.from;
    if (!(elsewhere || this.options.lenient)) this.fail(json.at, `${own.node.name} is defined twice`);
    if (!this.options.isSame(first, own)) {
      const other = first.from === undefined ? '' : ` in the reference ${JSON.stringify(first.from)}`;
      this.fail(json.at, `${own.node.name} is defined otherwise${other}`);
    }
    return first.node;
  }

  private record(json: JsonObject, enclosing: string, depth: number): AvroNode {
    const header = this.header(json, enclosing);
    const { name, aliases, namespace } = header;
    const fields: AvroField[] = [];
    const logical = this.logical(json, 'record');
    this.define(json, header, {
      kind: 'record' as const,
      name,
      aliases,
      ...docOf(json),
      fields,
      ...this.place(json.at),
      ...logical,
    });
    const list = memberOf(json, 'fields');
    if (list?.kind !== 'array') this.fail((list ?? json).at, `${name} has no list of fields`);
    const seen = new Set<string>();
    for (const item of list.items) {
      const field = this.field(item, name, namespace, depth);
      if (seen.has(field.name)) this.fail(item.at, `field ${name}.${field.name} stands twice`);
      seen.add(field.name);
      fields.push(field);
    }
    return this.merge(json);
  }

  private field(json: JsonNode, record: string, namespace: string, depth: number): AvroField {
    const given = json.kind === 'object' ? memberOf(json, 'name') : undefined;
    if (json.kind !== 'object' || given?.kind !== 'string')
      this.fail(json.at, `${record} has a field without a name`);
    const name = given.value;
    const where = `field ${record}.${name}`;
    if (!this.options.lenient) {
      if (!NAME.test(name)) this.fail(given.at, `${where} is not an Avro name`);
      if (name === '__proto__')
        this.fail(given.at, `${where} has a name that JavaScript objects cannot hold`);
    }
    const typeJson = memberOf(json, 'type');
    if (typeJson === undefined) this.fail(json.at, `${where} has no type`);
    const type = this.type(typeJson, namespace, where, depth + 1);
    this.scope.notes.fieldTypes.set(json, type);
    const order = memberOf(json, 'order');
    if (order !== undefined && !this.options.lenient) {
      const words = ['ascending', 'descending', 'ignore'];
      if (order.kind !== 'string' || !words.includes(order.value.toLowerCase()))
        this.fail(order.at, `${where} has the order ${shown(order)}; it is one of ${words.join(', ')}`);
    }
    const defaultJson = memberOf(json, 'default');
    if (defaultJson !== undefined) this.defaults.push({ where, json: defaultJson, type });
    return {
      name,
      aliases: this.names(json, 'aliases', `aliases of ${where}`, NAME, false),
      type,
      ...docOf(json),
      hasDefault: defaultJson !== undefined,
      defaultJson,
      at: json.at,
    };
  }

  private enumeration(json: JsonObject, enclosing: string): AvroNode {
    const { lenient } = this.options;
    const header = this.header(json, enclosing);
    const { name, aliases } = header;
    if (memberOf(json, 'symbols')?.kind !== 'array') this.fail(json.at, `${name} has no list of symbols`);
    const symbols = this.names(json, 'symbols', `symbols of ${name}`, NAME, true);
    if (symbols.length === 0 && !lenient) this.fail(json.at, `${name} is an enum without symbols`);
    const fallback = memberOf(json, 'default');
    let defaultSymbol: string | undefined;
    if (fallback?.kind === 'string' && symbols.includes(fallback.value)) defaultSymbol = fallback.value;
    else if (fallback !== undefined && !lenient)
      this.fail(fallback.at, `${name} has the default ${shown(fallback)}, which is none of its symbols`);
    const place = this.place(json.at);
    const logical = this.logical(json, 'enum');
    this.define(json, header, {
      kind: 'enum' as const,
      name,
      aliases,
      ...docOf(json),
      symbols,
      defaultSymbol,
      ...place,
      ...logical,
    });
    return this.merge(json);
  }

  private fixed(json: JsonObject, enclosing: string): AvroNode {
    const header = this.header(json, enclosing);
    const { name, aliases } = header;
    const given = memberOf(json, 'size');
    const size = given?.kind === 'number' && isInteger(given) ? Number(given.digits) : Number.NaN;
    const least = this.options.lenient ? 0 : 1;
    if (!(size >= least && size <= FIXED_BYTES_MAX)) {
      const what = given === undefined ? 'no size' : `the size ${shown(given)}`;
      this.fail(
        (given ?? json).at,
        `${name} has ${what}; a fixed takes ${least} to ${FIXED_BYTES_MAX} bytes`,
      );
    }
    const place = this.place(json.at);
    const logical = this.logical(json, 'fixed', size);
    this.define(json, header, {
      kind: 'fixed' as const,
      name,
      aliases,
      ...docOf(json),
      size,
      ...place,
      ...logical,
    });
    return this.merge(json);
  }
}

/** Position of the first lone surrogate in any string of the JSON; such a string has no UTF-8
 *  encoding. */
export function halfPairAt(json: JsonNode): number | undefined {
  switch (json.kind) {
    case 'string':
      return HALF_PAIR.test(json.value) ? json.at : undefined;
    case 'array':
      for (const item of json.items) {
        const at = halfPairAt(item);
        if (at !== undefined) return at;
      }
      return undefined;
    case 'object':
      for (const [key, { keyAt, value }] of json.members) {
        const at = HALF_PAIR.test(key) ? keyAt : halfPairAt(value);
        if (at !== undefined) return at;
      }
      return undefined;
    default:
      return undefined;
  }
}
