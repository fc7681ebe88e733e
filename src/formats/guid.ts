/** Guid of a schema: a name for its content that is the same in every registry.
 *
 *  It is the MD5 of the text, references, metadata and rules, printed as a UUID. The schema type is
 *  not hashed. Strings are hashed as UTF-8 one after the other, maps and sets by their sorted keys.
 *  A byte 1 precedes metadata and rule set, so that an empty one differs from an absent one.
 *  Source: client/src/main/java/.../rest/entities/{Schema,Metadata,RuleSet,Rule}.java of
 *  confluentinc/schema-registry. */
import { createHash, type Hash } from 'node:crypto';
import type { Json, SchemaContent } from './content.ts';

const ONE = Buffer.from([1]);

type JsonObject = { readonly [key: string]: Json };

const objectOf = (value: Json | undefined): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};
const listOf = (value: Json | undefined): readonly Json[] =>
  Array.isArray(value) ? (value as readonly Json[]) : [];
/** Sorted by UTF-16 units, as Java's sorted sets and maps. */
const sorted = (values: Iterable<string>): string[] => [...new Set(values)].sort();

const LONE_SURROGATE = /\p{Surrogate}/gu;

function put(hash: Hash, value: Json | undefined): void {
  if (value === undefined || value === null || typeof value === 'object') return;
  // A lone surrogate has no UTF-8 encoding; Java writes a question mark for it.
  hash.update(String(value).replace(LONE_SURROGATE, '?'), 'utf8');
}

function putSet(hash: Hash, value: Json | undefined): void {
  for (const item of sorted(listOf(value).filter((item) => typeof item === 'string'))) put(hash, item);
}

function putMap(hash: Hash, value: Json | undefined): void {
  const map = objectOf(value);
  for (const key of sorted(Object.keys(map))) {
    put(hash, key);
    if (Array.isArray(map[key])) putSet(hash, map[key]);
    else put(hash, map[key]);
  }
}

function putMetadata(hash: Hash, metadata: JsonObject): void {
  putMap(hash, metadata['tags']);
  putMap(hash, metadata['properties']);
  putSet(hash, metadata['sensitive']);
}

function putRule(hash: Hash, rule: JsonObject): void {
  put(hash, rule['name']);
  put(hash, rule['doc']);
  put(hash, rule['kind'] ?? 'TRANSFORM');
  put(hash, rule['mode'] ?? 'WRITEREAD');
  put(hash, rule['type']);
  putSet(hash, rule['tags']);
  putMap(hash, rule['params']);
  for (const key of ['expr', 'onSuccess', 'onFailure']) put(hash, rule[key]);
  if (rule['disabled'] === true) hash.update(ONE);
}

/** Guid of a content: 32 hex digits in the grouping of a UUID. */
export function guidOf(content: SchemaContent): string {
  const hash = createHash('md5');
  put(hash, content.text);
  const version = Buffer.alloc(4);
  for (const reference of content.references) {
    version.writeInt32BE(reference.version);
    put(hash, reference.name);
    put(hash, reference.subject);
    hash.update(version);
  }
  if (content.metadata !== undefined && content.metadata !== null) {
    hash.update(ONE);
    putMetadata(hash, objectOf(content.metadata));
  }
  if (content.ruleSet !== undefined && content.ruleSet !== null) {
    hash.update(ONE);
    const ruleSet = objectOf(content.ruleSet);
    for (const kind of ['migrationRules', 'domainRules', 'encodingRules'])
      for (const rule of listOf(ruleSet[kind])) putRule(hash, objectOf(rule));
  }
  return hash.digest('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
