/** OpenAPI description of the interface, made from the operations that also make its routes. */
import { REGISTRY_ERRORS } from '../../errors.ts';
import { numberOf, type Wire } from '../answers.ts';
import { JSON_BODY_TYPES, RAW_BODY_TYPE } from '../media.ts';
import type { ApiSettings, Operation, RegistryErrorCode } from '../operation.ts';
import { type OpenApiSchema, PATH_PARAMETERS, type PathParameter, QUERY_PARAMETERS } from '../parameters.ts';
import { bodySchemas, ref } from './schemas.ts';

const CONTEXT_PATH = '/contexts/{context}';

/** Errors of every operation. The lists below add those of operations with a right, a name, a body,
 *  a fresh read or a write.
 */
const ALWAYS: readonly RegistryErrorCode[] = ['malformed_request', 'not_acceptable', 'starting'];
const WITH_RIGHT: readonly RegistryErrorCode[] = [
  'unauthenticated',
  'forbidden',
  'rate_limited',
  'auth_unavailable',
];
/** Errors of names in the path. */
const WITH_NAME: readonly RegistryErrorCode[] = ['invalid_subject'];
const WITH_BODY: readonly RegistryErrorCode[] = ['unsupported_media_type'];
/** Errors of bodies that may hold rules. */
const WITH_RULES: Readonly<Record<string, readonly RegistryErrorCode[]>> = {
  SchemaRequest: ['invalid_rule_set'],
  ConfigRequest: ['invalid_rule_set'],
};
const WHEN_FRESH: readonly RegistryErrorCode[] = ['store_timeout', 'store_failed'];
const WHEN_WRITING: readonly RegistryErrorCode[] = [
  'store_failed',
  'store_unknown',
  'store_timeout',
  'forwarding_failed',
  'leader_untrusted',
  'leader_unknown',
  'not_leader',
];
/** Descriptions of the statuses that the server itself answers with. */
const BY_SERVER: Readonly<Record<number, string>> = {
  403: 'The Origin of the request is another site; or no rule allows it.',
  408: 'The request did not arrive in time.',
  413: 'The body is over the limit.',
  431: 'The head is over the limit.',
  500: 'A failure of the registry.',
  503: 'The registry starts or ends.',
};

/** Error codes of an operation, by status. */
function errorsOf(operation: Operation, path: string, wire: Wire): ReadonlyMap<number, readonly number[]> {
  const codes = new Set<RegistryErrorCode>([
    ...operation.errors,
    ...ALWAYS,
    ...(/\{(subject|context)\}/.test(path) ? WITH_NAME : []),
    ...(operation.right === undefined ? [] : WITH_RIGHT),
    ...(operation.body === undefined ? [] : [...WITH_BODY, ...(WITH_RULES[operation.body] ?? [])]),
    ...(operation.settled === true && operation.write !== true ? [] : WHEN_FRESH),
    ...(operation.write === true ? WHEN_WRITING : []),
  ]);
  const byStatus = new Map<number, Set<number>>();
  const add = (status: number, number: number): void => {
    byStatus.set(status, (byStatus.get(status) ?? new Set()).add(number));
  };
  for (const code of codes) {
    const row = REGISTRY_ERRORS[code];
    add(row.http, numberOf({ code, row }, wire));
  }
  for (const status of Object.keys(BY_SERVER))
    add(Number(status), Number(status) === 500 ? 50001 : Number(status));
  return new Map(
    [...byStatus].sort(([a], [b]) => a - b).map(([status, numbers]) => [status, [...numbers].sort()]),
  );
}

function contentOf(schema: OpenApiSchema, types: readonly string[]): OpenApiSchema {
  return Object.fromEntries(types.map((type) => [type, { schema }]));
}

const ACCEPT: OpenApiSchema = {
  name: 'Accept',
  in: 'header',
  required: false,
  description: 'If it is sent, it must accept one of the types of the answer; otherwise the answer is 406.',
  schema: { type: 'string', examples: JSON_BODY_TYPES },
};

function parametersOf(operation: Operation, path: string): OpenApiSchema[] {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] as PathParameter);
  return [
    ...inPath.map((name) => ({ name, in: 'path', required: true, ...PATH_PARAMETERS[name] })),
    ...(operation.query ?? []).map((name) => ({
      name,
      in: 'query',
      required: false,
      ...QUERY_PARAMETERS[name],
    })),
    ACCEPT,
  ];
}

function describe(operation: Operation, path: string, wire: Wire): OpenApiSchema {
  const answer = typeof operation.answer === 'function' ? operation.answer(wire) : operation.answer;
  const refusals: Record<string, OpenApiSchema> = {};
  for (const [status, numbers] of errorsOf(operation, path, wire)) {
    refusals[status] = {
      description: BY_SERVER[status] ?? `error_code ${numbers.join(', ')}`,
      'x-error-codes': numbers,
      content: contentOf(ref('Error'), JSON_BODY_TYPES),
    };
  }
  const below = path.startsWith(CONTEXT_PATH);
  return {
    operationId: below ? `${operation.id}InContext` : operation.id,
    summary: operation.summary,
    tags: [operation.tag],
    'x-right': operation.right ?? 'none',
    parameters: parametersOf(operation, path),
    ...(operation.body === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            content: {
              ...contentOf(ref(operation.body), JSON_BODY_TYPES),
              [RAW_BODY_TYPE]: { schema: operation.body === 'SchemaRequest' ? {} : ref(operation.body) },
            },
          },
        }),
    responses: {
      200: {
        description: operation.summary,
        headers: { 'Cache-Control': { schema: { type: 'string' } } },
        content: contentOf(answer === 'text' ? { type: 'string' } : answer, JSON_BODY_TYPES),
      },
      ...refusals,
    },
  };
}

/** Paths of an operation: its own, and the same path below a context. */
export function pathsOf(operation: Operation): readonly string[] {
  return operation.everywhere === true ? [operation.path] : [operation.path, CONTEXT_PATH + operation.path];
}

export function openApi(
  operations: readonly Operation[],
  api: Pick<ApiSettings, 'wire' | 'version' | 'bodyBytesMax' | 'pageMax' | 'limits'>,
): OpenApiSchema {
  const paths: Record<string, Record<string, OpenApiSchema>> = {};
  for (const operation of operations) {
    for (const path of pathsOf(operation)) {
      paths[path] = {
        ...paths[path],
        [operation.method.toLowerCase()]: describe(operation, path, api.wire),
      };
    }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Millrace schema registry',
      version: api.version,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      description: `Bodies as -wire=${api.wire} has them. A request body has at most ${api.bodyBytesMax} bytes, a schema at most ${api.limits.schemaMax} bytes, ${api.limits.nestingMax} brackets inside brackets and ${api.limits.referencesMax} references inside references, a list at most ${api.pageMax} items. What a browser sends from the page of another site is answered 403. Every error is {"error_code", "message"}.`,
    },
    tags: [...new Set(operations.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      schemas: bodySchemas(api.wire),
      securitySchemes: {
        basic: { type: 'http', scheme: 'basic' },
        bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' },
        mtls: { type: 'mutualTLS' },
      },
    },
    security: [{}, { basic: [] }, { bearer: [] }, { mtls: [] }],
  };
}
