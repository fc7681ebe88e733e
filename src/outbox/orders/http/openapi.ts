/** OpenAPI 3.1 description of the HTTP interface of orders, built from the tables of operations and
 *  problems. */

import { PROBLEM_JSON, RETRY_AFTER_S } from '../../problem-document.ts';
import { BODY_BYTES_MAX } from '../request.ts';
import { PROBLEM_TYPE_PREFIX, PROBLEMS_BY_CODE, PROBLEMS_BY_STATUS, type ProblemRow } from './problems.ts';

type Json = { readonly [name: string]: unknown };
type ProblemCode = keyof typeof PROBLEMS_BY_CODE;

const KEY = '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34';
const ORDER_ID = '019aa5d2-7c40-7a3e-9b51-0c2f6d8e4a17';
/** A key, bare or as a structured field string. */
const KEY_PATTERN = '^([!#-~][!-~]{0,254}|"([!#-\\[\\]-~]|\\\\["\\\\]){1,255}")$';
const REQUEST_ID = '019aa5d2-7c41-7bb0-8d10-3e5a9c7f2b64';

/** Statuses with which the HTTP server itself can answer any request. */
const BY_SERVER: readonly number[] = [400, 403, 408, 431, 500, 503];
const BY_SERVER_WITH_BODY: readonly number[] = [413, 417];

/** Refusals of the access gate. */
const BY_ACCESS: readonly ProblemCode[] = [
  'unauthenticated',
  'forbidden',
  'rate_limited',
  'auth_unavailable',
];
const SECURITY_SCHEMES: Json = {
  basic: { type: 'http', scheme: 'basic', description: 'With -auth-basic.' },
  bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description: 'With -auth-jwks.' },
  certificate: { type: 'mutualTLS', description: 'With -tls-client-ca; a principal with -auth-mtls.' },
};
/** An empty requirement, because access rules may be absent or may allow anonymous requests. */
const SECURITY: readonly Json[] = [{}, ...Object.keys(SECURITY_SCHEMES).map((name) => ({ [name]: [] }))];

export interface OrdersOperation {
  readonly method: 'get' | 'post';
  readonly path: string;
  readonly id: string;
  readonly summary: string;
  readonly tag: 'orders' | 'process';
  /** Problems of this operation. Those of the server are added, and with the tag `orders` those of
   *  the access gate. */
  readonly problems: readonly ProblemCode[];
  readonly parameters: readonly Json[];
  readonly requestBody?: Json;
  /** Successful answers, and for /ready the 503. */
  readonly answers: Readonly<Record<number, Json>>;
}

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` });
const header = (description: string, schema: Json): Json => ({ description, schema });
const REQUEST_ID_HEADER = header(
  'Id of this request in the log: the X-Request-Id of the client, or a generated id.',
  {
    type: 'string',
  },
);
const RETRY_AFTER = header(`Seconds: ${RETRY_AFTER_S}, or more after a rate limit.`, {
  type: 'string',
  pattern: '^[1-9][0-9]*$',
});
const CHALLENGE = header('Accepted authentication schemes.', { type: 'string' });
const NO_STORE = header('Answers are not cached.', { const: 'no-store' });
const text = (type: string): Json => ({ [type]: { schema: { type: 'string' } } });

const ACCEPT: Json = {
  name: 'Accept',
  in: 'header',
  required: false,
  description: 'If present, it must admit application/json; otherwise the answer is 406.',
  schema: { type: 'string', examples: ['application/json'] },
};
const X_REQUEST_ID: Json = {
  name: 'X-Request-Id',
  in: 'header',
  required: false,
  description: 'Id for the request: up to 128 letters, digits and `._~:/+=@-`. Any other value is ignored.',
  schema: { type: 'string' },
};

/** JSON document about the process itself. */
const document = (description: string, cacheControl = 'no-store'): Json => ({
  description,
  headers: { 'Cache-Control': header('Cache policy.', { const: cacheControl }) },
  content: { 'application/json': { schema: { type: 'object' } } },
});

const FIRST = {
  summary: 'The first request with its key',
  value: { order_id: ORDER_ID, status: 'created' },
};

/** All operations, in the order of the reference page. */
export const ORDERS_OPERATIONS: readonly OrdersOperation[] = [
  {
    method: 'post',
    path: '/orders',
    id: 'createOrder',
    summary: 'Create an order once for each key; a repeat gets the stored answer of the first request',
    tag: 'orders',
    problems: [
      'bad_idempotency_key',
      'bad_body',
      'body_too_large',
      'not_acceptable',
      'unsupported_media_type',
      'value_out_of_range',
      'idempotency_key_reused',
      'in_flight',
      'overloaded',
      'deadline_passed',
      'database_unavailable',
      'internal',
    ],
    parameters: [
      {
        name: 'Idempotency-Key',
        in: 'header',
        required: true,
        description:
          'One key of 1 to 255 visible ASCII characters, bare or as a quoted string of RFC 9651; both forms are the same key, and so is a UUID in either case. A gRPC call with the same key is the same request.',
        schema: { type: 'string', pattern: KEY_PATTERN },
        example: KEY,
      },
      {
        name: 'traceparent',
        in: 'header',
        required: false,
        description: 'W3C Trace Context, stored with the event of the order. An invalid value is ignored.',
        schema: { type: 'string' },
        example: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      },
      {
        name: 'tracestate',
        in: 'header',
        required: false,
        description:
          'Data of tracing systems for the traceparent (W3C Trace Context), stored with the event of the order. Without a valid traceparent, and if invalid or over 512 characters, it is ignored.',
        schema: { type: 'string' },
        example: 'rojo=00f067aa0ba902b7',
      },
      ACCEPT,
      X_REQUEST_ID,
    ],
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: ref('CreateOrder'),
          examples: {
            integers: { value: { account_id: 7, amount_cents: 1999 } },
            digits: { value: { account_id: '9007199254740993', amount_cents: '1999' } },
          },
        },
      },
    },
    answers: {
      201: {
        description:
          'The order. A repeat gets the same bytes, even if the order has changed since, and Idempotency-Replayed: true.',
        headers: {
          Location: header('Path of the order.', {
            type: 'string',
            pattern: '^/orders/[0-9a-f-]{36}$',
          }),
          'Idempotency-Replayed': header('True if an earlier request created the order.', {
            enum: ['true', 'false'],
          }),
          'Idempotent-Replayed': header('The same under another name, only on a replay.', {
            const: 'true',
          }),
          'Cache-Control': NO_STORE,
          'X-Request-Id': REQUEST_ID_HEADER,
        },
        content: { 'application/json': { schema: ref('CreatedOrder'), examples: { first: FIRST } } },
      },
    },
  },
  {
    method: 'get',
    path: '/orders/{order_id}',
    id: 'getOrder',
    summary: 'Get the current state of an order; HEAD checks if it exists',
    tag: 'orders',
    problems: [
      'not_acceptable',
      'order_not_found',
      'overloaded',
      'deadline_passed',
      'database_unavailable',
      'internal',
    ],
    parameters: [
      {
        name: 'order_id',
        in: 'path',
        required: true,
        description: 'A UUID in either case.',
        schema: { type: 'string' },
        example: ORDER_ID,
      },
      ACCEPT,
      X_REQUEST_ID,
    ],
    answers: {
      200: {
        description: 'The order. Its integers need a parser that keeps all 64 bits.',
        headers: { 'Cache-Control': NO_STORE, 'X-Request-Id': REQUEST_ID_HEADER },
        content: {
          'application/json': {
            schema: ref('Order'),
            example: {
              order_id: ORDER_ID,
              account_id: 7,
              amount_cents: 1999,
              status: 'created',
              created_at: '2026-11-21T09:30:00.000Z',
            },
          },
        },
      },
    },
  },
  {
    method: 'get',
    path: '/openapi.json',
    id: 'describe',
    summary: 'This description',
    tag: 'process',
    problems: [],
    parameters: [],
    answers: { 200: document('OpenAPI 3.1', 'no-cache') },
  },
  {
    method: 'get',
    path: '/health',
    id: 'health',
    summary: 'Liveness of the process',
    tag: 'process',
    problems: [],
    parameters: [],
    answers: {
      200: document('The process runs.'),
    },
  },
  {
    method: 'get',
    path: '/ready',
    id: 'ready',
    summary: 'Readiness to accept orders',
    tag: 'process',
    problems: [],
    parameters: [],
    answers: {
      200: document('Orders are accepted.'),
      503: document('Orders are not accepted; the body gives the reason.'),
    },
  },
  {
    method: 'get',
    path: '/version',
    id: 'version',
    summary: 'Versions of the package, Node.js and the drivers',
    tag: 'process',
    problems: [],
    parameters: [],
    answers: {
      200: document('The versions'),
    },
  },
  {
    method: 'get',
    path: '/metrics',
    id: 'metrics',
    summary: 'Metrics in the text exposition format of Prometheus',
    tag: 'process',
    problems: [],
    parameters: [],
    answers: { 200: { description: 'One sample on each line', content: text('text/plain') } },
  },
];

/** Returns all problems of an operation, those of the server included, by status. */
export function problemsOf(operation: OrdersOperation): ReadonlyMap<number, readonly ProblemRow[]> {
  const server = [...BY_SERVER, ...(operation.requestBody === undefined ? [] : BY_SERVER_WITH_BODY)];
  const rows = new Set<ProblemRow>([
    ...(operation.tag === 'orders' ? BY_ACCESS : []).map((code) => PROBLEMS_BY_CODE[code]),
    ...operation.problems.map((code) => PROBLEMS_BY_CODE[code]),
    ...server.map((status) => PROBLEMS_BY_STATUS[status] as ProblemRow),
  ]);
  const byStatus = new Map<number, ProblemRow[]>();
  for (const row of [...rows].sort((a, b) => a.status - b.status)) {
    byStatus.set(row.status, [...(byStatus.get(row.status) ?? []), row]);
  }
  return byStatus;
}

function exampleOf(row: ProblemRow, operation: OrdersOperation): Json {
  return {
    summary: row.title,
    value: {
      type: `${PROBLEM_TYPE_PREFIX}${row.type}`,
      title: row.title,
      status: row.status,
      detail: row.title,
      instance: operation.path.replace('{order_id}', ORDER_ID),
      request_id: REQUEST_ID,
      ...(row === PROBLEMS_BY_CODE.idempotency_key_reused
        ? { differs: ['amount_cents'], idempotency_key: KEY }
        : {}),
      ...(row === PROBLEMS_BY_CODE.value_out_of_range ? { field: 'amount_cents' } : {}),
    },
  };
}

function problemAnswer(status: number, rows: readonly ProblemRow[], operation: OrdersOperation): Json {
  const retry = status === 429 || status === 503;
  return {
    description: rows.map((row) => row.when).join(' '),
    headers: {
      'X-Request-Id': REQUEST_ID_HEADER,
      'Cache-Control': NO_STORE,
      ...(retry ? { 'Retry-After': RETRY_AFTER } : {}),
      ...(status === 401 ? { 'WWW-Authenticate': CHALLENGE } : {}),
    },
    content: {
      [PROBLEM_JSON]: {
        schema: {
          allOf: [
            ref('Problem'),
            {
              properties: {
                type: { enum: rows.map((row) => `${PROBLEM_TYPE_PREFIX}${row.type}`) },
                status: { const: status },
              },
            },
          ],
        },
        examples: Object.fromEntries(rows.map((row) => [row.type, exampleOf(row, operation)])),
      },
    },
  };
}

function describe(operation: OrdersOperation): Json {
  const responses: Record<string, unknown> = { ...operation.answers };
  for (const [status, rows] of problemsOf(operation)) {
    const own = operation.answers[status];
    const problem = problemAnswer(status, rows, operation) as {
      readonly content: Json;
      readonly description: string;
    };
    // /ready has its own 503; a stopping server also answers 503.
    responses[status] =
      own === undefined
        ? problem
        : {
            ...own,
            description: `${own['description']} ${problem.description}`,
            content: { ...(own['content'] as Json), ...problem.content },
          };
  }
  return {
    operationId: operation.id,
    summary: operation.summary,
    tags: [operation.tag],
    ...(operation.tag === 'orders' ? { security: SECURITY } : {}),
    parameters: operation.parameters,
    ...(operation.requestBody === undefined ? {} : { requestBody: operation.requestBody }),
    responses,
  };
}

/** The pattern admits numbers above 2^63-1, which the service refuses as value_out_of_range. */
const POSITIVE_TEXT: Json = { type: 'string', pattern: '^[1-9][0-9]{0,18}$' };
const INT64_TEXT: Json = { type: 'string', pattern: '^-?(0|[1-9][0-9]*)$', maxLength: 20 };
const uuid = (description: string): Json => ({ type: 'string', format: 'uuid', description });

const SCHEMAS: Json = {
  CreateOrder: {
    type: 'object',
    required: ['account_id', 'amount_cents'],
    additionalProperties: false,
    properties: {
      account_id: {
        description: '64 bits with a sign, as an integer or its decimal digits.',
        oneOf: [{ type: 'integer', format: 'int64' }, INT64_TEXT],
      },
      amount_cents: {
        description: '64 bits, above zero, as an integer or its decimal digits.',
        oneOf: [{ type: 'integer', format: 'int64', minimum: 1 }, POSITIVE_TEXT],
      },
    },
  },
  CreatedOrder: {
    type: 'object',
    required: ['order_id', 'status'],
    additionalProperties: false,
    properties: { order_id: uuid('Version 7.'), status: { const: 'created' } },
  },
  Order: {
    type: 'object',
    required: ['order_id', 'account_id', 'amount_cents', 'status', 'created_at'],
    additionalProperties: false,
    properties: {
      order_id: uuid('Version 7.'),
      account_id: { type: 'integer', format: 'int64' },
      amount_cents: { type: 'integer', format: 'int64' },
      status: { type: 'string' },
      created_at: { type: 'string', format: 'date-time' },
    },
  },
  Problem: {
    description: 'RFC 9457. Match on `type`; texts are for people and may change.',
    type: 'object',
    required: ['type', 'title', 'status', 'detail', 'instance', 'request_id'],
    properties: {
      type: { type: 'string', pattern: `^${PROBLEM_TYPE_PREFIX}` },
      title: { type: 'string' },
      status: { type: 'integer' },
      detail: { type: 'string' },
      instance: { type: 'string', description: 'Path of the request.' },
      request_id: { type: 'string' },
      field: { type: 'string', description: 'The invalid member of the body.' },
      differs: {
        type: 'array',
        items: { enum: ['account_id', 'amount_cents'] },
        description: 'The members that differ from those of the first request; empty if unknown.',
      },
      idempotency_key: {
        type: 'string',
        minLength: 1,
        maxLength: 255,
        description: 'A UUID in canonical form.',
      },
    },
    additionalProperties: false,
  },
};

/** Builds the OpenAPI document.
 *  @param version version of the package */
export function ordersDescription(version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const operation of ORDERS_OPERATIONS) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: describe(operation) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Millrace orders',
      version,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      description: `One order for each key. A request body has at most ${BODY_BYTES_MAX} bytes. Every refusal is ${PROBLEM_JSON}. A known path answers OPTIONS with 204 and Allow, another method with 405 and Allow; an unknown path is 404.`,
    },
    tags: [{ name: 'orders' }, { name: 'process' }],
    paths,
    components: { schemas: SCHEMAS, securitySchemes: SECURITY_SCHEMES },
  };
}
