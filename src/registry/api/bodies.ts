/** What is read from a request's body. Unknown properties are ignored, because clients send newer ones; what is read
 *  is checked for its type before anything else sees it. */
import type { HttpRequest } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import type { Json, Reference } from '../schemas/content.ts';
import { SCHEMA_ID_MAX, VERSION_MAX } from '../store/records.ts';
import type { RegisterInput } from '../store/service.ts';
import { bodyMayBeRaw } from './media.ts';

/** Values inside values of `metadata` and `ruleSet`. */
const BODY_DEPTH_MAX = 64;
/** Half of a pair is no character, and no UTF-8 text can hold it. */
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

/** The body as an object. @throws unsupported_media_type, malformed_request */
export function readBody(request: HttpRequest): Body {
  bodyMayBeRaw(request);
  return objectOf(textOf(request));
}

function objectOf(text: string): Body {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw malformed('the request body is not JSON', cause);
  }
  if (!isObject(value)) throw malformed('the request body is not a JSON object');
  return value;
}

/** A schema with what belongs to it, or a schema's own text.
 *
 *  A JSON object without `schema` but with `type` is an Avro schema itself, in any of the JSON types. In
 *  application/octet-stream, or without a content type, whatever is no such document is a schema's own text: Avro
 *  where it begins like JSON, else Protobuf.
 *  @throws unsupported_media_type, malformed_request, invalid_schema */
export function readSchemaBody(request: HttpRequest): RegisterInput {
  const raw = bodyMayBeRaw(request);
  const text = textOf(request);
  const body = raw ? documentOf(text) : objectOf(text);
  if (body === undefined) return { format: /^\s*[{["]/.test(text) ? 'AVRO' : 'PROTOBUF', text: filled(text) };
  if (body['schema'] === undefined && body['type'] !== undefined) return { format: 'AVRO', text };
  return schemaInput(body);
}

/** Undefined: no document about a schema. */
function documentOf(text: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function filled(text: unknown): string {
  if (text === undefined || text === null || text === '')
    throw registryError('invalid_schema', 'Empty schema');
  if (typeof text !== 'string') throw registryError('invalid_schema', 'schema is not a string');
  if (text.trim() === '') throw registryError('invalid_schema', 'Empty schema');
  if (LONE_SURROGATE.test(text))
    throw registryError('invalid_schema', 'schema holds half of a surrogate pair, which no UTF-8 text can');
  return text;
}

function schemaInput(body: Body): RegisterInput {
  const text = filled(body['schema']);
  const format = body['schemaType'] ?? undefined;
  if (format !== undefined && typeof format !== 'string')
    throw registryError('invalid_schema', 'schemaType is not a string');
  const references = readReferences(body['references']);
  const metadata = readDocument(body, 'metadata');
  const ruleSet = readDocument(body, 'ruleSet');
  const id = readNumber(body, 'id', 1, SCHEMA_ID_MAX);
  // 0 asks for the next one.
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

/** A number that may be given; -1 and null say that it is not. */
function readNumber(body: Body, name: string, least: number, most: number): number | undefined {
  const value = body[name] ?? -1;
  if (value === -1) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > most)
    throw malformed(`${name} is not a whole number from 1 to 2^31-1`);
  return value;
}

function readReferences(value: unknown): readonly Reference[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw malformed('references is not an array');
  return value.map((one: unknown, index) => {
    if (!isObject(one)) throw malformed(`references[${index}] is not an object`);
    const { name, subject, version } = one;
    if (typeof name !== 'string' || typeof subject !== 'string' || LONE_SURROGATE.test(name))
      throw malformed(`references[${index}] lacks name or subject`);
    if (LONE_SURROGATE.test(subject)) throw malformed(`references[${index}].subject is no text`);
    if (typeof version !== 'number' || !Number.isInteger(version) || version < -1 || version > VERSION_MAX)
      throw malformed(`references[${index}].version is not a whole number`);
    return { name, subject, version };
  });
}

/** An object that is kept as it came. */
function readDocument(body: Body, name: string): Json | undefined {
  const value = body[name] ?? undefined;
  if (value === undefined) return undefined;
  if (!isObject(value)) throw malformed(`${name} is not an object`);
  checkDepth(value, name);
  return value as Json;
}

/** Everything that writes it again walks it by recursion. */
function checkDepth(value: unknown, name: string): void {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > BODY_DEPTH_MAX) throw malformed(`${name} nests deeper than ${BODY_DEPTH_MAX} levels`);
    level = level.flatMap((one) =>
      typeof one === 'object' && one !== null ? Object.values(one as Record<string, unknown>) : [],
    );
  }
}

type Kind = 'text' | 'switch' | 'document';

/** Properties of a config, by what they hold. */
export const CONFIG_PROPERTIES: Readonly<Record<string, Kind>> = {
  compatibilityLevel: 'text',
  normalize: 'switch',
  validateFields: 'switch',
  alias: 'text',
  compatibilityGroup: 'text',
  compatibilityPolicy: 'text',
  defaultMetadata: 'document',
  overrideMetadata: 'document',
  defaultRuleSet: 'document',
  overrideRuleSet: 'document',
  verdictPolicy: 'text',
  lossy: 'text',
};

/** What a PUT of a config sets, by the names of the stored config; null removes. @throws malformed_request,
 *  invalid_level */
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
    update[name] = sent === null ? null : checked(name, kind, sent, body);
  }
  return update;
}

function checked(name: string, kind: Kind, value: unknown, body: Body): unknown {
  if (name === 'compatibilityLevel') return typeof value === 'string' ? value.toUpperCase() : value;
  if (kind === 'document') return readDocument(body, name);
  if (kind === 'switch' && typeof value !== 'boolean') throw malformed(`${name} is neither true nor false`);
  if (kind === 'text' && (typeof value !== 'string' || LONE_SURROGATE.test(value)))
    throw malformed(`${name} is not a text`);
  return value;
}
