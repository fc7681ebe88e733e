/** Parameters of paths and queries: their description and how they are parsed. Routes and OpenAPI
 *  description share one table. */
import type { HttpRequest } from '../../io/http/port.ts';
import { registryError } from '../errors.ts';
import type { Deleted, SchemaTextFormat } from '../store/service.ts';
import { SUBJECT_CHARS_MAX } from '../store/state/names.ts';
import { VERSION_MAX } from '../store/state/records.ts';

export type OpenApiSchema = Readonly<Record<string, unknown>>;

interface Parameter {
  readonly required?: true;
  readonly schema: OpenApiSchema;
  readonly description: string;
}

const FLAG: OpenApiSchema = { type: 'string', examples: ['true', 'false'] };
const TEXT: OpenApiSchema = { type: 'string' };
/** Largest `offset` and `limit`. */
const COUNT_MAX = 9_999_999_999;
const CONTROL = '\\u0000-\\u001f\\u007f-\\u009f';

export const PATH_PARAMETERS = {
  subject: {
    schema: {
      type: 'string',
      minLength: 1,
      maxLength: SUBJECT_CHARS_MAX,
      pattern: `^[^${CONTROL}]+$`,
    },
    description:
      'Name of a subject, percent-encoded, without control characters; `:.context:name` outside the default context. Config and mode also accept `:.context:`, a whole context. `__GLOBAL`, `__EMPTY` and names that begin with `:*:` are refused where something is stored.',
  },
  version: {
    schema: { anyOf: [{ type: 'integer', minimum: 1, maximum: VERSION_MAX }, { enum: ['latest', '-1'] }] },
    description: 'A version from 1 to 2^31-1, or `latest`, or `-1` for it.',
  },
  id: { schema: TEXT, description: 'A schema id, a whole number from 1.' },
  guid: { schema: TEXT, description: 'A guid: the identity of a content, the same in every registry.' },
  context: {
    schema: {
      type: 'string',
      minLength: 1,
      pattern: `^:?[^:${CONTROL}]*:?$`,
      not: { enum: ['*', ':*', '*:', ':*:'] },
    },
    description:
      'Name of a context, with or without its leading dot and the colons around it, without control characters; `.` is the default one.',
  },
  resource: { schema: TEXT, description: 'Id of a resource.' },
  namespace: { schema: TEXT, description: 'Namespace of a resource; `-` for any.' },
  name: { schema: TEXT, description: 'Name of a resource, such as a topic.' },
} as const satisfies Readonly<Record<string, Parameter>>;
export type PathParameter = keyof typeof PATH_PARAMETERS;

export const QUERY_PARAMETERS = {
  deleted: { schema: FLAG, description: '`true`: soft-deleted ones too.' },
  deletedOnly: { schema: FLAG, description: '`true`: soft-deleted ones only.' },
  deletedAsNegative: { schema: FLAG, description: '`true`: a soft-deleted version as a negative number.' },
  subjectPrefix: {
    schema: TEXT,
    description:
      'Prefix of the subjects; `:*:` (the default) matches every context, `:.context:` a single context.',
  },
  offset: {
    schema: { type: 'integer', minimum: 0, maximum: COUNT_MAX },
    description: 'Number of items to skip; default 0.',
  },
  limit: {
    schema: { type: 'integer', minimum: -COUNT_MAX, maximum: COUNT_MAX },
    description: 'Largest number of items; -1 (the default) or less: all.',
  },
  normalize: {
    schema: FLAG,
    description:
      '`true`: normalise the text before it is looked up and stored. This does not find a version that was stored in another spelling.',
  },
  verbose: {
    schema: FLAG,
    description:
      '`true`: return the reasons. A finding of the errorType `UNJUDGED_CHANGE` is a change that no rule covers, hence refused.',
  },
  format: {
    schema: TEXT,
    description:
      'Form of the schema text: `resolved` (Avro, with references inlined), `serialized` (Protobuf, base64 of a FileDescriptorProto), `ignore_extensions` (Protobuf); anything else: as stored.',
  },
  referenceFormat: {
    schema: TEXT,
    description: '`qualified`: subjects of references with their context.',
  },
  fetchMaxId: { schema: FLAG, description: '`true`: the highest id of the context too, as `maxId`.' },
  findTags: { schema: FLAG, description: 'Accepted; has no effect.' },
  subject: {
    schema: TEXT,
    description:
      'Subject whose context the id belongs to; the answer then includes the subject and its version with this id.',
  },
  permanent: { schema: FLAG, description: '`true`: remove what was soft-deleted before, for good.' },
  defaultToGlobal: {
    schema: FLAG,
    description: '`true`: return the inherited value if no value is set here.',
  },
  verdictPolicy: {
    schema: FLAG,
    description: '`true`: include the effective verdict policy even if it is not set.',
  },
  force: { schema: FLAG, description: '`true`: allow mode IMPORT although schemas exist.' },
  recursive: {
    schema: FLAG,
    description: '`true`: remove the modes of all contexts and subjects within it too.',
  },
  latestOnly: { schema: FLAG, description: '`true`: the latest version of each subject only.' },
  aliases: { schema: FLAG, description: 'Accepted; has no effect.' },
  ruleType: { schema: TEXT, description: 'Only schemas that have a rule of this type.' },
  key: {
    required: true,
    schema: TEXT,
    description: 'Key of a metadata property; with a `value` each, any number of times.',
  },
  value: {
    required: true,
    schema: TEXT,
    description: 'Value of the metadata property named by the `key` at the same place.',
  },
  resourceType: { schema: TEXT, description: 'Type of the resource.' },
  associationType: { schema: TEXT, description: 'Type of the association.' },
  lifecycle: { schema: TEXT, description: 'Lifecycle of the association.' },
} as const satisfies Readonly<Record<string, Parameter>>;
export type QueryParameter = keyof typeof QUERY_PARAMETERS;

export function flagOf(request: HttpRequest, name: QueryParameter): boolean {
  return request.query.get(name)?.toLowerCase() === 'true';
}

export function deletedOf(request: HttpRequest): Deleted {
  if (flagOf(request, 'deletedOnly')) return 'only';
  return flagOf(request, 'deleted') ? 'also' : 'no';
}

const TEXT_FORMATS: readonly string[] = ['resolved', 'serialized', 'ignore_extensions'];

/** An unknown format selects the stored text, as in the existing registries. */
export function formatOf(request: HttpRequest): SchemaTextFormat {
  const format = request.query.get('format') ?? '';
  return TEXT_FORMATS.includes(format) ? (format as SchemaTextFormat) : '';
}

/** @throws malformed_request */
function countOf(request: HttpRequest, name: 'offset' | 'limit', absent: number): number {
  const text = request.query.get(name);
  if (text === null || text === '') return absent;
  const value = /^-?\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(value) || (name === 'offset' && value < 0)) {
    throw registryError(
      'malformed_request',
      `${name} is not a whole number${name === 'offset' ? ' from 0' : ''}`,
    );
  }
  return value;
}

/** Returns the requested page of a list.
 *  @param max limit of items in one answer; a larger page is refused
 *  @throws malformed_request, page_too_large */
export function pageOf<T>(request: HttpRequest, all: readonly T[], max: number): readonly T[] {
  const offset = countOf(request, 'offset', 0);
  const limit = countOf(request, 'limit', -1);
  const page = limit < 0 ? (offset === 0 ? all : all.slice(offset)) : all.slice(offset, offset + limit);
  if (page.length > max) throw pageTooLarge(`${page.length} items`, `-page-max=${max}`);
  return page;
}

export function pageTooLarge(what: string, max: string) {
  return registryError(
    'page_too_large',
    `an answer of ${what} is over the limit ${max}; ask for it in pages with offset and limit`,
  );
}
