/** Reads request bodies. Ignores unknown properties, because newer clients send properties that
 *  this registry does not know. Checks the type of every property that it reads. */

import type { Json, Reference } from '../../formats/content.ts';
import { readMetadata, readRuleSet } from '../../formats/contract.ts';
import type { HttpRequest } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import type { RegisterInput } from '../store/service.ts';
import { SUBJECT_CHARS_MAX } from '../store/state/names.ts';
import { SCHEMA_ID_MAX, VERSION_MAX } from '../store/state/records.ts';
import { bodyExcess } from './body-bound.ts';
import { bodyMayBeRaw } from './media.ts';

/** Half of a surrogate pair: UTF-8 cannot encode it. */
const LONE_SURROGATE = /\p{Surrogate}/u;

type Body = Readonly<Record<string, unknown>>;

const malformed = (message: string, cause?: unknown) =>
  registryError('malformed_request', message, {
    next: 'see /openapi.json for what is expected',
    ...(cause === undefined ? {} : { cause }),
  });

function textOf(request: HttpRequest): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(request.body);
  } catch (cause) {
    throw malformed('the request body is not UTF-8', cause);
  }
}

const isObject = (value: unknown): value is Body =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Reads the body as a JSON object. @throws unsupported_media_type, malformed_request */
export function readBody(request: HttpRequest): Body {
  bodyMayBeRaw(request);
  const excess = bodyExcess(request.body);
  if (excess !== undefined) throw malformed(excess);
  return objectOf(jsonOf(textOf(request)));
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw malformed('the request body is not JSON', cause);
  }
}

function objectOf(value: unknown): Body {
  if (!isObject(value)) throw malformed('the request body is not a JSON object');
  return value;
}

/** Reads a document about a schema (text, references, metadata, rules), or a body that is the
 *  schema text itself.
 *  A JSON object without `schema` but with `type` is an Avro schema, and so is a list that is not
 *  empty (a union). This holds for each of the JSON content types.
 *  With application/octet-stream, or without a content type, any object that defines a type is an
 *  Avro schema. Any other body that is not a JSON object is a schema text: Avro if it begins like
 *  JSON, else Protobuf.
 *  @throws unsupported_media_type, malformed_request, invalid_schema */
export function readSchemaBody(request: HttpRequest): RegisterInput {
  const raw = bodyMayBeRaw(request);
  const text = textOf(request);
  const excess = bodyExcess(request.body);
  if (excess !== undefined && !raw)
    throw registryError('invalid_schema', `${excess}; send the schema as a string in "schema"`);
  // A raw body over the limits is not inspected, so it is the text of a schema.
  const value = raw ? (excess === undefined ? rawValueOf(text) : undefined) : jsonOf(text);
  if (raw && (!isObject(value) || definesType(value)))
    return { format: /^\s*[{["]/.test(text) ? 'AVRO' : 'PROTOBUF', text: nonEmptyText(text) };
  if (Array.isArray(value) && value.length > 0) return { format: 'AVRO', text };
  const body = objectOf(value);
  if (body['schema'] === undefined && body['type'] !== undefined) return { format: 'AVRO', text };
  return schemaInput(body);
}

/** Property that each kind of type needs in its definition. An object that has it is an Avro
 *  schema, even if it also has a property named `schema`. */
const DEFINED_BY: ReadonlyMap<unknown, string> = new Map([
  ['record', 'fields'],
  ['error', 'fields'],
  ['enum', 'symbols'],
  ['fixed', 'size'],
  ['array', 'items'],
  ['map', 'values'],
]);

function definesType(body: Body): boolean {
  const holds = DEFINED_BY.get(body['type']);
  return holds !== undefined && body[holds] !== undefined;
}

/** Parses JSON; undefined: not JSON. */
function rawValueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function nonEmptyText(text: string): string {
  if (text.trim() === '') throw registryError('invalid_schema', 'Empty schema');
  return textOrNone(text);
}

/** Returns '' for an absent text: such a registration uses the latest text of the subject. */
function textOrNone(text: unknown): string {
  if (text === undefined || text === null) return '';
  if (typeof text !== 'string') throw registryError('invalid_schema', 'schema is not a string');
  if (LONE_SURROGATE.test(text))
    throw registryError('invalid_schema', 'schema holds half of a surrogate pair, which UTF-8 cannot encode');
  return text;
}

function schemaInput(body: Body): RegisterInput {
  const text = textOrNone(body['schema']);
  const format = body['schemaType'] ?? undefined;
  if (format !== undefined && typeof format !== 'string')
    throw registryError('invalid_schema', 'schemaType is not a string');
  const references = readReferences(body['references']);
  const metadata = readDocument(body, 'metadata', readMetadata);
  const ruleSet = readDocument(body, 'ruleSet', readRuleSet);
  const id = readNumber(body, 'id', 1, SCHEMA_ID_MAX);
  // 0 requests the next version.
  const version = readNumber(body, 'version', 0, VERSION_MAX);
  return {
    ...(format === undefined ? {} : { format }),
    text,
    ...(references.length === 0 ? {} : { references }),
    ...(metadata === undefined ? {} : { metadata }),
    ...(ruleSet === undefined ? {} : { ruleSet }),
    ...(id === undefined ? {} : { id }),
    ...(version === undefined ? {} : { version }),
  };
}

/** Reads an optional number; -1 and null mean absent. */
function readNumber(body: Body, name: string, least: number, most: number): number | undefined {
  const value = body[name] ?? -1;
  if (value === -1) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most)
    throw malformed(`${name} is not a whole number from ${least} to 2^31-1`);
  return value;
}

function readReferences(value: unknown): readonly Reference[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw malformed('references is not an array');
  return value.map((item: unknown, index) => {
    if (!isObject(item)) throw malformed(`references[${index}] is not an object`);
    const { name, subject, version } = item;
    if (typeof name !== 'string' || typeof subject !== 'string' || LONE_SURROGATE.test(name))
      throw malformed(`references[${index}] lacks name or subject`);
    if (LONE_SURROGATE.test(subject))
      throw malformed(`references[${index}].subject holds half of a surrogate pair`);
    if (typeof version !== 'number' || !Number.isInteger(version) || version < -1 || version > VERSION_MAX)
      throw malformed(`references[${index}].version is not a whole number`);
    return { name, subject, version };
  });
}

/** Reads an optional document. Undefined: absent; an empty document is present. @throws
 *  malformed_request, invalid_rule_set */
function readDocument(
  body: Body,
  name: string,
  read: (value: unknown, name: string) => Json,
): Json | undefined {
  const value = body[name] ?? undefined;
  return value === undefined ? undefined : read(value, name);
}

type Kind = 'text' | 'switch' | 'metadata' | 'ruleSet';

/** Properties of a config with the kind of their values. */
export const CONFIG_PROPERTIES: Readonly<Record<string, Kind>> = {
  compatibilityLevel: 'text',
  normalize: 'switch',
  validateFields: 'switch',
  validateNewSchemas: 'switch',
  validateRules: 'switch',
  alias: 'text',
  compatibilityGroup: 'text',
  compatibilityPolicy: 'text',
  defaultMetadata: 'metadata',
  overrideMetadata: 'metadata',
  defaultRuleSet: 'ruleSet',
  overrideRuleSet: 'ruleSet',
  verdictPolicy: 'text',
  lossy: 'text',
};

/** Reads the changes that a PUT of a config requests, keyed by the names of the stored config; null
 *  removes a setting.
 *  @throws malformed_request, invalid_level, invalid_rule_set */
export function readConfigBody(request: HttpRequest): Readonly<Record<string, unknown>> {
  const body = readBody(request);
  const update: Record<string, unknown> = {};
  for (const [name, kind] of Object.entries(CONFIG_PROPERTIES)) {
    const sent =
      name === 'compatibilityLevel'
        ? body['compatibility'] === undefined
          ? body[name]
          : body['compatibility']
        : body[name];
    if (sent === undefined) continue;
    update[name] = sent === null ? null : checked(name, kind, sent);
  }
  return update;
}

function checked(name: string, kind: Kind, value: unknown): unknown {
  if (name === 'compatibilityLevel') return typeof value === 'string' ? value.toUpperCase() : value;
  if (kind === 'metadata') return readMetadata(value, name);
  if (kind === 'ruleSet') return readRuleSet(value, name);
  if (kind === 'switch' && typeof value !== 'boolean') throw malformed(`${name} is neither true nor false`);
  if (kind === 'text' && (typeof value !== 'string' || LONE_SURROGATE.test(value)))
    throw malformed(`${name} is not a string, or holds half of a surrogate pair`);
  if (typeof value === 'string' && value.length > SUBJECT_CHARS_MAX)
    throw malformed(`${name} has more than ${SUBJECT_CHARS_MAX} characters`);
  return value;
}
