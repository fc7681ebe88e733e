/** Parts of a JSON Schema document for the checker: resolved references, types, numbers, equality
 *  of values. */

import type { ResolvedReference } from '../../../formats/content.ts';
import { JSON_TYPES, type JsonType } from '../../../formats/json/shape.ts';
import {
  doubleOf,
  isInteger,
  type JsonNode,
  type JsonNumber,
  type JsonObject,
  memberOf,
} from '../../../formats/json/text.ts';

/** A schema is an object or a boolean; any other value is no schema. */
export type SchemaNode =
  | JsonObject
  | { readonly kind: 'boolean'; readonly value: boolean; readonly at: number };

export interface JsonSchemaTree {
  readonly tree: JsonNode;
  readonly references: readonly ResolvedReference[];
}

/** Most references in a chain of `$ref`. */
const REFERENCES_MAX = 100;

export const isSchemaNode = (node: JsonNode | undefined): node is SchemaNode =>
  node?.kind === 'object' || node?.kind === 'boolean';

export const stringOf = (node: JsonNode | undefined): string | undefined =>
  node?.kind === 'string' ? node.value : undefined;
export const numberOf = (node: JsonNode | undefined): JsonNumber | undefined =>
  node?.kind === 'number' ? node : undefined;
export const itemsOf = (node: JsonNode | undefined): readonly JsonNode[] | undefined =>
  node?.kind === 'array' ? node.items : undefined;

/** Annotation keywords: they restrict no document in any dialect. */
const ANNOTATIONS = new Set([
  'title',
  'description',
  'default',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  '$comment',
  '$schema',
  '$id',
  'id',
  'definitions',
  '$defs',
]);
const isAnnotation = (keyword: string): boolean => ANNOTATIONS.has(keyword);

interface Resolution {
  /** Undefined: a reference leads nowhere, or in a circle. */
  readonly node: SchemaNode | undefined;
  /** Keywords beside the references, which count in some dialects. */
  readonly beside: readonly string[];
}

/** Document with its own root, against which `#/…` is resolved. */
export class JsonDocument {
  readonly root: JsonNode;
  readonly isDraft4: boolean;
  readonly dialect: string;
  /** Names and texts of all schemas that the document refers to. */
  readonly outside: string;
  /** True: no part has its own identifier. Such a part is a root of its own, so the meaning of
   *  `#/…` would be unknown. */
  private readonly isOne: boolean;
  private readonly resolutions = new Map<SchemaNode, Resolution>();

  constructor({ tree, references }: JsonSchemaTree) {
    this.root = tree;
    this.dialect = dialectOf(tree);
    this.isDraft4 = this.dialect === 'draft-04';
    this.outside = outsideOf(references);
    this.isOne = !hasInnerId(tree);
  }

  /** Returns the target of a reference; undefined: the target is unknown. */
  target(reference: string): JsonNode | undefined {
    if (!this.isOne || !reference.startsWith('#')) return undefined;
    let pointer: string;
    try {
      pointer = decodeURIComponent(reference.slice(1));
    } catch {
      return undefined;
    }
    if (pointer === '') return this.root;
    if (!pointer.startsWith('/')) return undefined;
    let node: JsonNode | undefined = this.root;
    for (const token of pointer.slice(1).split('/')) {
      const key = token.replaceAll('~1', '/').replaceAll('~0', '~');
      if (node?.kind === 'object') node = memberOf(node, key);
      else if (node?.kind === 'array') node = /^[0-9]{1,9}$/.test(key) ? node.items[Number(key)] : undefined;
      else return undefined;
    }
    return node;
  }

  /** Returns the schema behind references; each chain is followed once. */
  resolved(from: SchemaNode): Resolution {
    const known = this.resolutions.get(from);
    if (known !== undefined) return known;
    const made = this.follow(from);
    this.resolutions.set(from, made);
    return made;
  }

  private follow(from: SchemaNode): Resolution {
    let at: JsonNode | undefined = from;
    const beside: string[] = [];
    for (let steps = 0; steps < REFERENCES_MAX; steps++) {
      if (!isSchemaNode(at)) return { node: undefined, beside };
      const reference: string | undefined = at.kind === 'object' ? stringOf(memberOf(at, '$ref')) : undefined;
      if (reference === undefined || at.kind !== 'object') return { node: at, beside };
      for (const key of at.members.keys()) if (key !== '$ref' && !isAnnotation(key)) beside.push(key);
      at = this.target(reference);
    }
    return { node: undefined, beside };
  }
}

function dialectOf(tree: JsonNode): string {
  const named = tree.kind === 'object' ? stringOf(memberOf(tree, '$schema')) : undefined;
  if (named === undefined) return 'draft-07';
  return /json-schema\.org\/(?:draft\/)?(draft-0[4-7]|2019-09|2020-12)\/schema/.exec(named)?.[1] ?? named;
}

function outsideOf(references: readonly ResolvedReference[]): string {
  const seen = new Set<ResolvedReference>();
  const parts: string[] = [];
  const open = [...references];
  for (let one = open.pop(); one !== undefined; one = open.pop()) {
    if (seen.has(one)) continue;
    seen.add(one);
    parts.push(JSON.stringify([one.name, one.text]));
    open.push(...one.references);
  }
  return parts.sort().join();
}

function hasInnerId(root: JsonNode): boolean {
  const open: JsonNode[] = [root];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (node.kind === 'array') for (const item of node.items) open.push(item);
    if (node.kind !== 'object') continue;
    for (const [key, { value }] of node.members) {
      if (node !== root && value.kind === 'string' && (key === '$id' || key === 'id')) return true;
      open.push(value);
    }
  }
  return false;
}

interface Decimal {
  readonly digits: bigint;
  /** Power of ten. */
  readonly power: number;
}

const POWER_MAX = 400;

function decimalOf({ digits }: JsonNumber): Decimal | undefined {
  const [, sign, whole = '', fraction = '', power = '0'] =
    /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE](.+))?$/.exec(digits) ?? [];
  const exponent = Number(power) - fraction.length;
  if (sign === undefined || Math.abs(exponent) > POWER_MAX) return undefined;
  return { digits: BigInt(`${sign}${whole}${fraction}`), power: exponent };
}

/** Scales both to integers of one unit. Undefined: the exponents are out of bounds. */
function aligned(a: JsonNumber, b: JsonNumber): readonly [bigint, bigint] | undefined {
  const [one, two] = [decimalOf(a), decimalOf(b)];
  if (one === undefined || two === undefined) return undefined;
  const unit = Math.min(one.power, two.power);
  return [one.digits * 10n ** BigInt(one.power - unit), two.digits * 10n ** BigInt(two.power - unit)];
}

/** Below 0: a is less. Undefined: not known. */
export function compareNumbers(a: JsonNumber, b: JsonNumber): number | undefined {
  const pair = aligned(a, b);
  if (pair === undefined) return a.digits === b.digits ? 0 : undefined;
  return pair[0] < pair[1] ? -1 : pair[0] > pair[1] ? 1 : 0;
}

/** True if every multiple of `a` is a multiple of `b`. */
export function dividesAll(a: JsonNumber, b: JsonNumber): boolean {
  const pair = aligned(a, b);
  return pair !== undefined && pair[1] !== 0n && pair[0] % pair[1] === 0n;
}

/** Returns a key that is equal for equal JSON values only. @cost linear in the value */
export function valueKey(node: JsonNode): string {
  switch (node.kind) {
    case 'number': {
      const decimal = decimalOf(node);
      if (decimal === undefined) return `far ${node.digits}`;
      if (decimal.digits === 0n) return '0';
      const [, digits, zeros = ''] = /^(-?[0-9]*[1-9])(0*)$/.exec(String(decimal.digits)) ?? [];
      return `${digits}e${decimal.power + zeros.length}`;
    }
    case 'string':
      return JSON.stringify(node.value);
    case 'array':
      return `[${node.items.map(valueKey).join()}]`;
    case 'object': {
      const members = [...node.members].map(
        ([key, { value }]) => `${JSON.stringify(key)}:${valueKey(value)}`,
      );
      return `{${members.sort().join()}}`;
    }
    case 'boolean':
      return String(node.value);
    case 'null':
      return 'null';
  }
}

/** Compares JSON values: 1 equals 1.0, and objects have no order. */
export function sameValue(a: JsonNode, b: JsonNode): boolean {
  if (a.kind === 'number' && b.kind === 'number') return compareNumbers(a, b) === 0;
  if (a.kind === 'array' && b.kind === 'array')
    return (
      a.items.length === b.items.length && a.items.every((item, i) => sameValue(item, b.items[i] as JsonNode))
    );
  if (a.kind === 'object' && b.kind === 'object') {
    if (a.members.size !== b.members.size) return false;
    return [...a.members].every(([key, { value }]) => {
      const other = memberOf(b, key);
      return other !== undefined && sameValue(value, other);
    });
  }
  if (a.kind === 'string' && b.kind === 'string') return a.value === b.value;
  if (a.kind === 'boolean' && b.kind === 'boolean') return a.value === b.value;
  return a.kind === 'null' && b.kind === 'null';
}

export function typeOfValue(node: JsonNode): JsonType {
  // 1.0 is an integer in some dialects only.
  if (node.kind === 'number') return isInteger(node) ? 'integer' : 'number';
  return node.kind;
}

export const lengthOf = (text: string): number => [...text].length;

/** Returns the count of a keyword; undefined if the value is no count. */
export function countOf(node: JsonNode | undefined): number | undefined {
  const number = numberOf(node);
  if (number === undefined) return undefined;
  const value = doubleOf(number);
  return Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** Returns the types that the keyword `type` names; all types if it is absent. Undefined: the value
 *  is no list of types. */
export function typesNamed(schema: JsonObject): readonly JsonType[] | undefined {
  const type = memberOf(schema, 'type');
  if (type === undefined) return JSON_TYPES;
  const names = (itemsOf(type) ?? [type]).map(stringOf);
  const known = JSON_TYPES.filter((one) => names.includes(one));
  if (names.length === 0 || names.some((name) => name === undefined || !known.includes(name as JsonType)))
    return undefined;
  return known.includes('number') && !known.includes('integer') ? [...known, 'integer'] : known;
}

export const ANYTHING: SchemaNode = { kind: 'boolean', value: true, at: 0 };
export const EMPTY: JsonObject = { kind: 'object', at: 0, members: new Map() };

export const isEmptyObject = (node: SchemaNode): boolean =>
  node.kind === 'object' && [...node.members.keys()].every(isAnnotation);

export function partsOf(schema: JsonObject, keyword: string): readonly SchemaNode[] | undefined {
  const parts = itemsOf(memberOf(schema, keyword));
  return parts === undefined || parts.length === 0 || !parts.every(isSchemaNode) ? undefined : parts;
}

/** Returns all values of the types, if they are only `null` and `boolean`. */
export function fewOf(types: readonly JsonType[]): readonly JsonNode[] | undefined {
  if (!types.every((type) => type === 'null' || type === 'boolean')) return undefined;
  const booleans = [true, false].map((value): JsonNode => ({ kind: 'boolean', value, at: 0 }));
  return [
    ...(types.includes('null') ? [{ kind: 'null', at: 0 } as const] : []),
    ...(types.includes('boolean') ? booleans : []),
  ];
}

export function membersOf(schema: JsonObject, keyword: string): ReadonlyMap<string, SchemaNode> {
  const node = memberOf(schema, keyword);
  if (node?.kind !== 'object') return new Map();
  return new Map(
    [...node.members].flatMap(([name, { value }]) => (isSchemaNode(value) ? [[name, value]] : [])),
  );
}

export const schemaOf = (node: JsonNode | undefined): SchemaNode => (isSchemaNode(node) ? node : ANYTHING);
