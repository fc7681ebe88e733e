/** Converts our schema tree to avsc types, so that references, exact defaults and namespaces mean
 *  the same to both. */
import avsc from 'avsc';
import { doubleOf, isInteger, type JsonNode, type JsonNumber } from '../../json/text.ts';
import { escapedName } from '../codec/branch.ts';
import { defaultBranch, floatOfText, misfitOf } from '../syntax/default.ts';
import type { AvroField, AvroNamedNode, AvroNode } from '../syntax/tree.ts';
import { avroTypeHook } from './long.ts';
import { isNumberUnion, numberUnion } from './number-union.ts';

/** A number in the form that avsc expects in a default: a long as its digits where a double would
 *  round it. */
function numberOf(number: JsonNumber): number | string {
  const value = doubleOf(number);
  return isInteger(number) && !Number.isSafeInteger(value) ? number.digits : value;
}

function plain(json: JsonNode): unknown {
  switch (json.kind) {
    case 'null':
      return null;
    case 'number':
      return numberOf(json);
    case 'boolean':
    case 'string':
      return json.value;
    case 'array':
      return json.items.map(plain);
    case 'object':
      return Object.fromEntries([...json.members].map(([key, { value }]) => [key, plain(value)]));
  }
}

/** Signals a default that avsc cannot hold: avsc assigns a union's default to the first branch
 *  only. */
class OtherBranch extends Error {}

/** Converts a default as `plain` does, with digits only for a long. @throws OtherBranch */
function defaultOf(json: JsonNode, type: AvroNode): unknown {
  if (type.kind === 'union') {
    if (defaultBranch(json, type) !== 0) throw new OtherBranch();
    return defaultOf(json, type.branches[0] as AvroNode);
  }
  if (json.kind === 'number')
    return type.kind === 'primitive' && type.type === 'long' ? numberOf(json) : doubleOf(json);
  if (json.kind === 'array' && type.kind === 'array')
    return json.items.map((item) => defaultOf(item, type.items));
  if (json.kind === 'object' && type.kind === 'map')
    return Object.fromEntries(
      [...json.members].map(([key, { value }]) => [key, defaultOf(value, type.values)]),
    );
  if (json.kind === 'object' && type.kind === 'record') {
    const fields = new Map(type.fields.map((field) => [field.name, field.type]));
    return Object.fromEntries(
      [...json.members].map(([key, { value }]) => {
        const field = fields.get(key);
        return [key, field === undefined ? plain(value) : defaultOf(value, field)];
      }),
    );
  }
  return plain(json);
}

class Builder {
  private readonly written = new Set<AvroNamedNode>();

  schema(node: AvroNode): unknown {
    switch (node.kind) {
      case 'primitive':
        return node.type;
      case 'array':
        return { type: 'array', items: this.schema(node.items) };
      case 'map':
        return { type: 'map', values: this.schema(node.values) };
      case 'union':
        return node.branches.map((branch) => this.schema(branch));
      default:
        return this.named(node);
    }
  }

  private named(node: AvroNamedNode): unknown {
    const name = escapedName(node.name);
    if (this.written.has(node)) return name;
    this.written.add(node);
    const head = { name, namespace: '', aliases: node.aliases.map(escapedName) };
    switch (node.kind) {
      case 'record':
        return { ...head, type: 'record', fields: node.fields.map((field) => this.field(field)) };
      case 'enum':
        return {
          ...head,
          type: 'enum',
          symbols: node.symbols,
          ...(node.defaultSymbol === undefined ? {} : { default: node.defaultSymbol }),
        };
      case 'fixed':
        return { ...head, type: 'fixed', size: node.size };
    }
  }

  private field(field: AvroField): unknown {
    const { name, aliases, type } = field;
    return { name, aliases, type: this.schema(type), ...writtenDefault(field) };
  }
}

/** Default that the encoder writes where a program omits the field; without one the encoder
 *  requires the value. */
function writtenDefault({ type, defaultJson }: AvroField): { readonly default?: unknown } {
  // A default that does not fit, in a schema from another registry, can never be read.
  if (defaultJson === undefined || misfitOf(defaultJson, type) !== undefined) return {};
  if (defaultJson.kind === 'string' && type.kind === 'primitive' && /^(float|double)$/.test(type.type))
    return { default: floatOfText(defaultJson.value) };
  try {
    return { default: defaultOf(defaultJson, type) };
  } catch (thrown) {
    if (thrown instanceof OtherBranch) return {};
    throw thrown;
  }
}

interface HookOptions {
  readonly registry: Readonly<Record<string, avsc.Type>>;
}

/** Makes the avsc type of a schema tree.
 *  @throws avsc's own errors for a schema that avsc cannot hold */
export function avscType(tree: AvroNode): avsc.Type {
  const schema = new Builder().schema(tree) as avsc.Schema;
  return avsc.Type.forSchema(schema, {
    omitRecordMethods: true,
    typeHook: (part: unknown, options: unknown) => {
      const { registry } = options as HookOptions;
      // Names are full already; avsc would resolve them in the enclosing namespace.
      if (typeof part === 'string' && Object.hasOwn(registry, part)) return registry[part];
      if (isNumberUnion(part, registry)) return numberUnion(part, options);
      return avroTypeHook(part);
    },
  } as Parameters<typeof avsc.Type.forSchema>[1]);
}
