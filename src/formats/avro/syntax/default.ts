/** Checks a field's default against its type. A union's default may fit any of its branches, and
 *  belongs to the first one that it fits. Source: Apache Avro 1.12 specification, "Unions". */

import { DEPTH_LIMIT, SCHEMA_DEPTH_MAX } from '../../format.ts';
import { isInteger, type JsonNode, type JsonNumber, printJson } from '../../json/text.ts';
import {
  type AvroEnumNode,
  type AvroField,
  type AvroNode,
  type AvroPrimitive,
  type AvroRecordNode,
  type AvroUnionNode,
  avroTypeName,
} from './tree.ts';

export interface Misfit {
  readonly why: string;
  readonly at: number;
}

/** Greatest nesting of a default when it is filled in, including the defaults that it requires. A
 *  default that requires itself exceeds any limit. */
export const FILL_DEPTH_MAX = 256;
/** Greatest number of values of one default when it is filled in. */
export const FILL_VALUES_MAX = 65_536;

/** Characters of a value that a message shows. */
const SHOWN_CHARS_MAX = 80;

const INT_LEAST = -(2n ** 31n);
const INT_MOST = 2n ** 31n - 1n;
const LONG_LEAST = -(2n ** 63n);
const LONG_MOST = 2n ** 63n - 1n;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the range of a byte begins with them
const isLatin1 = (text: string): boolean => !/[^\u0000-\u00ff]/.test(text);
/** Java writes NaN and infinity as a string, and accepts a string where the field itself is a float
 *  or a double. */
const FLOAT_TEXT = /^[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)$/;

/** Number of a string default of a float or double field. */
export function floatOfText(text: string): number | undefined {
  if (!FLOAT_TEXT.test(text)) return undefined;
  return Number(text.endsWith('NaN') ? 'NaN' : text);
}

function not(json: JsonNode, what: string): Misfit {
  const shown = printJson(json);
  const cut = shown.length > SHOWN_CHARS_MAX ? `${shown.slice(0, SHOWN_CHARS_MAX)}…` : shown;
  return { why: `${cut} is not ${what}`, at: json.at };
}

function isWithin(number: JsonNumber, least: bigint, most: bigint): boolean {
  // Longer integers exceed every range, and are slow to convert.
  if (!isInteger(number) || number.digits.length > 20) return false;
  const value = BigInt(number.digits);
  return value >= least && value <= most;
}

function misfitPrimitive(json: JsonNode, type: AvroPrimitive): Misfit | undefined {
  switch (type) {
    case 'null':
      return json.kind === 'null' ? undefined : not(json, 'null');
    case 'boolean':
      return json.kind === 'boolean' ? undefined : not(json, 'a boolean');
    case 'int':
      return json.kind === 'number' && isWithin(json, INT_LEAST, INT_MOST) ? undefined : not(json, 'an int');
    case 'long':
      return json.kind === 'number' && isWithin(json, LONG_LEAST, LONG_MOST)
        ? undefined
        : not(json, 'a long');
    case 'float':
    case 'double':
      return json.kind === 'number' && Number.isFinite(Number(json.digits))
        ? undefined
        : not(json, `a ${type}`);
    case 'bytes':
      return json.kind === 'string' && isLatin1(json.value)
        ? undefined
        : not(json, 'bytes as a text of U+0000 to U+00FF');
    case 'string':
      return json.kind === 'string' ? undefined : not(json, 'a string');
  }
}

/** Caches of facts about types, so that the time of a check is bounded by the length of the default
 *  alone. */
const symbolSets = new WeakMap<AvroEnumNode, ReadonlySet<string>>();
const recordFacts = new WeakMap<
  AvroRecordNode,
  { readonly byName: ReadonlyMap<string, AvroField>; readonly required: readonly string[] }
>();

function symbolsOf(type: AvroEnumNode): ReadonlySet<string> {
  const symbols = symbolSets.get(type) ?? new Set(type.symbols);
  symbolSets.set(type, symbols);
  return symbols;
}

function factsOf(type: AvroRecordNode) {
  const facts = recordFacts.get(type) ?? {
    byName: new Map(type.fields.map((field) => [field.name, field])),
    required: type.fields.filter((field) => !field.hasDefault).map((field) => field.name),
  };
  recordFacts.set(type, facts);
  return facts;
}

function firstMisfit(nodes: Iterable<JsonNode>, type: AvroNode, depth: number): Misfit | undefined {
  for (const node of nodes) {
    const found = inside(node, type, depth + 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

function inside(json: JsonNode, type: AvroNode, depth: number): Misfit | undefined {
  if (depth > SCHEMA_DEPTH_MAX)
    return {
      why: `it is nested deeper than ${SCHEMA_DEPTH_MAX} values ${DEPTH_LIMIT}`,
      at: json.at,
    };
  switch (type.kind) {
    case 'primitive':
      return misfitPrimitive(json, type.type);
    case 'enum':
      return json.kind === 'string' && symbolsOf(type).has(json.value)
        ? undefined
        : not(json, `a symbol of ${type.name}`);
    case 'fixed':
      return json.kind === 'string' && json.value.length === type.size && isLatin1(json.value)
        ? undefined
        : not(json, `${type.size} bytes`);
    case 'union':
      return misfitUnion(json, type, depth);
    case 'array':
      return json.kind === 'array' ? firstMisfit(json.items, type.items, depth) : not(json, 'an array');
    case 'map':
      return json.kind === 'object'
        ? firstMisfit(
            [...json.members.values()].map(({ value }) => value),
            type.values,
            depth,
          )
        : not(json, 'a map');
    case 'record': {
      if (json.kind !== 'object') return not(json, `a record ${type.name}`);
      const { byName, required } = factsOf(type);
      const missing = required.find((name) => !json.members.has(name));
      if (missing !== undefined) return { why: `it lacks ${type.name}.${missing}`, at: json.at };
      for (const [name, { value }] of json.members) {
        const field = byName.get(name);
        const found = field && inside(value, field.type, depth + 1);
        if (found !== undefined) return found;
      }
      return undefined;
    }
  }
}

/** Index of the fitting branch, or the misfit. Cached for each value: with unions inside unions, a
 *  walk would otherwise visit the innermost value once for each path to it. */
const unionFits = new WeakMap<JsonNode, Map<AvroUnionNode, number | Misfit>>();

function unionFit(json: JsonNode, type: AvroUnionNode, depth: number): number | Misfit {
  const known = unionFits.get(json) ?? new Map<AvroUnionNode, number | Misfit>();
  unionFits.set(json, known);
  const held = known.get(type);
  if (held !== undefined) return held;
  let inner: Misfit | undefined;
  let fit: number | Misfit | undefined;
  for (const [at, branch] of type.branches.entries()) {
    const misfit = inside(json, branch, depth);
    if (misfit === undefined) {
      fit = at;
      break;
    }
    // A misfit inside the value is more precise than the kind of the value.
    if (misfit.at !== json.at) inner ??= misfit;
  }
  fit ??= inner ?? not(json, `of a branch of its union (${type.branches.map(avroTypeName).join(', ')})`);
  known.set(type, fit);
  return fit;
}

function misfitUnion(json: JsonNode, type: AvroUnionNode, depth: number): Misfit | undefined {
  const fit = unionFit(json, type, depth);
  return typeof fit === 'number' ? undefined : fit;
}

/** Index of the branch that a default belongs to: the first one that it fits; undefined where it
 *  fits none. */
export function defaultBranch(json: JsonNode, type: AvroUnionNode): number | undefined {
  const fit = unionFit(json, type, 0);
  return typeof fit === 'number' ? fit : undefined;
}

/** Reason and position where a field's default does not fit; undefined when it fits. */
export function misfitOf(json: JsonNode, type: AvroNode): Misfit | undefined {
  if (
    json.kind === 'string' &&
    type.kind === 'primitive' &&
    (type.type === 'float' || type.type === 'double')
  )
    return floatOfText(json.value) === undefined ? not(json, `a ${type.type}`) : undefined;
  return inside(json, type, 0);
}
