/** Bodies of the registry's HTTP interface: what is read from a request, and how answers and errors are written.
 *
 *  Unknown properties are ignored, because clients send newer ones; what is read is checked for its type.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { HttpRequest, HttpResponse } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import type { SchemaFormat } from '../schemas/format.ts';

const REGISTRY_CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';
const REQUEST_TYPES = [
  REGISTRY_CONTENT_TYPE,
  'application/vnd.schemaregistry+json',
  'application/json',
  'application/octet-stream',
];
const ANSWER_TYPES = [REGISTRY_CONTENT_TYPE, 'application/vnd.schemaregistry+json', 'application/json'];

const HEADERS = { 'cache-control': 'no-cache, no-store, must-revalidate' };

export function answer(
  status: number,
  document: unknown,
  type: string = REGISTRY_CONTENT_TYPE,
): HttpResponse {
  return { status, headers: { ...HEADERS, 'content-type': type }, body: JSON.stringify(document) };
}

/** The one error shape; a client that does not find both properties treats the answer as foreign. */
export function errorAnswer(status: number, number: number, message: string): HttpResponse {
  return answer(status, { error_code: number, message });
}

export function answerOf(thrown: unknown): HttpResponse | undefined {
  const error = findMillraceError(thrown);
  if (error === undefined || (error.row.http >= 500 && error.row.number === undefined)) return undefined;
  return errorAnswer(error.row.http, error.row.number ?? error.row.http, error.message);
}

const mediaType = (text: string): string => (text.split(';')[0] as string).trim().toLowerCase();

/** The type to answer in. @throws not_acceptable */
export function negotiate(request: HttpRequest): string {
  const accepts = request.header('accept');
  if (accepts.length === 0) return REGISTRY_CONTENT_TYPE;
  for (const part of accepts.join(',').split(',')) {
    const type = mediaType(part);
    if (/;\s*q=0(\.0*)?\s*$/.test(part)) continue;
    if (type === '*/*' || type === 'application/*' || type === '') return REGISTRY_CONTENT_TYPE;
    if (ANSWER_TYPES.includes(type)) return type;
  }
  throw registryError('not_acceptable', 'HTTP 406 Not Acceptable');
}

/** The body as an object. @throws unsupported_media_type, malformed_request */
export function readBody(request: HttpRequest): Readonly<Record<string, unknown>> {
  const types = request.header('content-type');
  if (types.length > 1 || (types.length === 1 && !REQUEST_TYPES.includes(mediaType(types[0] as string)))) {
    throw registryError('unsupported_media_type', 'HTTP 415 Unsupported Media Type');
  }
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(request.body));
  } catch (cause) {
    throw registryError('malformed_request', 'the request body is not JSON', { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw registryError('malformed_request', 'the request body is not a JSON object');
  }
  return value as Record<string, unknown>;
}

export interface SchemaRequest {
  readonly format: string;
  readonly text: string;
}

/** @throws invalid_schema, not_permitted */
export function readSchemaRequest(request: HttpRequest): SchemaRequest {
  const body = readBody(request);
  const { schema, schemaType, references, id, version } = body;
  if (typeof schema !== 'string' || schema === '') throw registryError('invalid_schema', 'Empty schema');
  if (schemaType !== undefined && schemaType !== null && typeof schemaType !== 'string') {
    throw registryError('invalid_schema', 'schemaType is not a string');
  }
  if (Array.isArray(references) && references.length > 0) {
    throw registryError(
      'invalid_schema',
      'schema references are not supported; put the referenced types into the schema',
    );
  }
  if ((typeof id === 'number' && id > 0) || (typeof version === 'number' && version > 0)) {
    throw registryError(
      'not_permitted',
      'an id or a version can be given only in mode IMPORT, which this registry does not have',
    );
  }
  return {
    format: (schemaType as string | null | undefined) ?? ('AVRO' satisfies SchemaFormat),
    text: schema,
  };
}
