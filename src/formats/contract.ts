/** Metadata and rules of a schema, in the normal form that is stored, answered and compared.
 *
 *  Unknown, null and empty properties are dropped, and a rule's defaults are written explicitly:
 *  two documents with one meaning are equal. Lists of words are sets, so they are sorted, as are
 *  the keys of maps. An empty document is kept: it states that there are no rules, whereas an
 *  absent document states nothing. Source:
 *  client/src/main/java/.../rest/entities/{Metadata,RuleSet,Rule,RuleMode}.java of
 *  confluentinc/schema-registry (facts only). */

import type { Json } from './content.ts';
import { formatError } from './errors.ts';

const RULE_NAME_CHARS_MAX = 64;
const RULE_NAME = /^[\p{L}_][\p{L}\p{Nd}_-]*$/u;
const RULE_KINDS = ['TRANSFORM', 'CONDITION'];
const MIGRATION_MODES = ['UPGRADE', 'DOWNGRADE', 'UPDOWN'];
const DATA_MODES = ['WRITE', 'READ', 'WRITEREAD'];
/** Lists of a rule set, and the modes of their rules. */
const RULE_LISTS: ReadonlyArray<readonly [name: string, modes: readonly string[]]> = [
  ['migrationRules', MIGRATION_MODES],
  ['domainRules', DATA_MODES],
  ['encodingRules', DATA_MODES],
];
/** Modes with two sides, which may have two actions. */
const TWO_SIDED = ['WRITEREAD', 'UPDOWN'];

const LONE_SURROGATE = /\p{Surrogate}/u;
/** Characters of a client's text in a message. */
const SHOWN_CHARS_MAX = 64;

type Fields = Readonly<Record<string, unknown>>;
type Refuse = (why: string) => never;

const badMetadata: Refuse = (why) => {
  throw formatError('malformed_request', why, { next: 'see /openapi.json for what is expected' });
};
const badRuleSet: Refuse = (why) => {
  throw formatError('invalid_rule_set', `Invalid rule set: ${why}`, {
    next: 'see /openapi.json for what is expected',
  });
};

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const shown = (text: string): string => JSON.stringify(text.slice(0, SHOWN_CHARS_MAX));

function textOf(value: unknown, where: string, refuse: Refuse): string {
  if (typeof value !== 'string') refuse(`${where} is not a string`);
  if (LONE_SURROGATE.test(value)) refuse(`${where} holds half of a surrogate pair, which no UTF-8 text can`);
  return value;
}

function objectOf(value: unknown, where: string, refuse: Refuse): Fields {
  return isObject(value) ? value : refuse(`${where} is not a JSON object`);
}

function listOf(value: unknown, where: string, refuse: Refuse): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : refuse(`${where} is not a list`);
}

/** Words, sorted by UTF-16 units, without duplicates. */
function wordsOf(value: unknown, where: string, refuse: Refuse): string[] {
  const words = listOf(value, where, refuse).map((word, i) => textOf(word, `${where}[${i}]`, refuse));
  return [...new Set(words)].sort();
}

function mapOf<T extends Json>(
  value: unknown,
  where: string,
  refuse: Refuse,
  read: (value: unknown, where: string) => T,
): Readonly<Record<string, T>> {
  const map = objectOf(value, where, refuse);
  const entries = Object.keys(map)
    .sort()
    .map((key) => {
      textOf(key, `a key of ${where}`, refuse);
      return [key, read(map[key], `${where}[${shown(key)}]`)] as const;
    });
  return Object.fromEntries(entries);
}

const isEmpty = (value: Json): boolean =>
  value === '' || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);

/** Adds a property unless its value is empty. */
function put(
  into: Record<string, Json>,
  from: Fields,
  name: string,
  where: string,
  read: (value: unknown, where: string) => Json,
): void {
  const value = from[name] ?? undefined;
  if (value === undefined) return;
  const known = read(value, `${where}.${name}`);
  if (!isEmpty(known)) into[name] = known;
}

/** Reads metadata. @param name of the document in the request
 *  @throws malformed_request */
export function readMetadata(value: unknown, name = 'metadata'): Json {
  const from = objectOf(value, name, badMetadata);
  const metadata: Record<string, Json> = {};
  const words = (list: unknown, where: string): Json => wordsOf(list, where, badMetadata);
  const text = (value: unknown, where: string): string => textOf(value, where, badMetadata);
  put(metadata, from, 'tags', name, (map, where) => mapOf(map, where, badMetadata, words));
  put(metadata, from, 'properties', name, (map, where) => mapOf(map, where, badMetadata, text));
  put(metadata, from, 'sensitive', name, words);
  return metadata;
}

/** Reads a rule set. @param name of the document in the request
 *  @throws invalid_rule_set */
export function readRuleSet(value: unknown, name = 'ruleSet'): Json {
  const from = objectOf(value, name, badRuleSet);
  const ruleSet: Record<string, Json> = {};
  const names = new Set<string>();
  for (const [list, modes] of RULE_LISTS) {
    put(ruleSet, from, list, name, (rules, where) =>
      listOf(rules, where, badRuleSet).map((rule, i) => {
        const made = readRule(rule, `${where}[${i}]`, modes);
        const ruleName = made['name'] as string;
        if (names.has(ruleName)) badRuleSet(`two rules are named ${shown(ruleName)}`);
        names.add(ruleName);
        return made;
      }),
    );
  }
  put(ruleSet, from, 'enableAt', name, (text, where) => textOf(text, where, badRuleSet));
  return ruleSet;
}

function readRule(value: unknown, where: string, modes: readonly string[]): { readonly [key: string]: Json } {
  const from = objectOf(value, where, badRuleSet);
  const text = (value: unknown, at: string): string => textOf(value, at, badRuleSet);
  const word = (name: string, otherwise: string, known: readonly string[]): string => {
    const said = text(from[name] ?? otherwise, `${where}.${name}`);
    if (!known.includes(said))
      badRuleSet(`${where}.${name} is ${shown(said)}; it must be one of ${known.join(', ')}`);
    return said;
  };
  const rule: Record<string, Json> = { name: ruleName(from['name'], where) };
  put(rule, from, 'doc', where, text);
  rule['kind'] = word('kind', 'TRANSFORM', RULE_KINDS);
  const mode = word('mode', 'WRITEREAD', modes);
  rule['mode'] = mode;
  rule['type'] = text(from['type'] ?? badRuleSet(`${where} has no type`), `${where}.type`);
  put(rule, from, 'tags', where, (list, at) => wordsOf(list, at, badRuleSet));
  put(rule, from, 'params', where, (map, at) => mapOf(map, at, badRuleSet, text));
  put(rule, from, 'expr', where, text);
  for (const name of ['onSuccess', 'onFailure']) {
    put(rule, from, name, where, text);
    const action = rule[name];
    if (typeof action === 'string' && action.includes(',') && !TWO_SIDED.includes(mode))
      badRuleSet(`${where}.${name} names two actions, which mode ${mode} has no use for`);
  }
  const disabled = from['disabled'] ?? false;
  if (typeof disabled !== 'boolean') badRuleSet(`${where}.disabled is neither true nor false`);
  rule['disabled'] = disabled;
  return rule;
}

function ruleName(value: unknown, where: string): string {
  const name = textOf(value ?? badRuleSet(`${where} has no name`), `${where}.name`, badRuleSet);
  if (name.length > RULE_NAME_CHARS_MAX || !RULE_NAME.test(name))
    badRuleSet(
      `${where}.name is ${shown(name)}; it must be at most ${RULE_NAME_CHARS_MAX} letters, digits, "_" and "-", the first a letter or "_"`,
    );
  return name;
}

/** Normal form of a document; unchanged where it has none, because another registry wrote it. */
export function sameForm(value: Json | undefined, read: (value: unknown) => Json): Json | undefined {
  if (value === undefined) return undefined;
  try {
    return read(value);
  } catch {
    return value;
  }
}

const sizeOf = (value: Json | undefined): number =>
  typeof value === 'object' && value !== null ? Object.keys(value).length : 0;
const valuesOf = (value: Json | undefined): readonly Json[] =>
  typeof value === 'object' && value !== null ? Object.values(value) : [];

/** Number of entries of metadata or a rule set: tags and their words, properties, sensitive names,
 *  rules with their tags and parameters. The cost of comparing a document grows with it. */
export function contractEntries(document: Json | undefined): number {
  if (typeof document !== 'object' || document === null || Array.isArray(document)) return 0;
  const { tags, properties, sensitive, ...others } = document as { readonly [name: string]: Json };
  let count = sizeOf(tags) + sizeOf(properties) + sizeOf(sensitive);
  for (const words of valuesOf(tags)) count += sizeOf(words);
  for (const [list] of RULE_LISTS) {
    for (const rule of valuesOf(others[list])) {
      const { tags: words, params } = (rule ?? {}) as { readonly [name: string]: Json };
      count += 1 + sizeOf(words) + sizeOf(params);
    }
  }
  return count;
}
