/** Every problem document the orders service answers with (RFC 9457): one table for the answers,
 *  the description under /openapi.json and the page in docs. A document never repeats a value of an
 *  order. */

import { ACCESS_ERRORS } from '../../../access/refusal.ts';
import type { HttpResponse } from '../../../io/http/port.ts';
import { OUTBOX_ERRORS } from '../../errors.ts';

export const PROBLEM_TYPE_PREFIX = 'urn:orders:problem:';
export const PROBLEM_JSON = 'application/problem+json';
/** With 429 and 503: the request was not carried out, or it is safe to send again with its key. */
export const RETRY_AFTER_S = '1';

export interface ProblemRow {
  /** After the prefix. */
  readonly type: string;
  readonly status: number;
  readonly title: string;
  /** For whoever reads the page: when it is given, and what to do. */
  readonly when: string;
}

/** Rows of the errors that a client is told of, over HTTP and gRPC. */
export const ORDERS_ERRORS = { ...OUTBOX_ERRORS, ...ACCESS_ERRORS } as const;

const row = (code: keyof typeof ORDERS_ERRORS, type: string, title: string, when: string): ProblemRow => ({
  type,
  status: ORDERS_ERRORS[code].http,
  title,
  when,
});

/** By the code of the error behind it. */
export const PROBLEMS_BY_CODE = {
  unauthenticated: row(
    'unauthenticated',
    'unauthenticated',
    'The request needs credentials',
    'With access rules on: no credentials were sent, or none that are accepted. WWW-Authenticate names the schemes. Nothing of the body was read.',
  ),
  forbidden: row(
    'forbidden',
    'forbidden',
    'The caller is not allowed to do this',
    'The credentials are accepted, and no access rule allows the request.',
  ),
  rate_limited: row(
    'rate_limited',
    'rate-limited',
    'The client sends too many requests',
    'It has passed -client-rate, or tries too many wrong credentials. Retry-After says when to send the request again.',
  ),
  auth_unavailable: row(
    'auth_unavailable',
    'auth-unavailable',
    'Credentials cannot be checked at the moment',
    'The keys of tokens could not be read yet, or too many passwords wait for their check. Retry-After says when to send the request again.',
  ),
  bad_idempotency_key: row(
    'bad_idempotency_key',
    'bad-idempotency-key',
    'Idempotency-Key is missing or malformed',
    'The header is missing, empty, given twice, holds two values, or is no UUID. Send one UUID, bare or in double quotes.',
  ),
  bad_body: row(
    'bad_body',
    'bad-body',
    'The body is not an order',
    'It is no JSON object in UTF-8, lacks a field, has an unknown one or one twice, or a field is no whole number. `field` names it.',
  ),
  body_too_large: row(
    'body_too_large',
    'body-too-large',
    'The body is too large',
    'It is longer than 64 KiB. It is not read on, and the connection closes.',
  ),
  not_acceptable: row(
    'not_acceptable',
    'not-acceptable',
    'The answer would not be acceptable',
    'The Accept header admits no application/json.',
  ),
  unsupported_media_type: row(
    'unsupported_media_type',
    'unsupported-media-type',
    'The body is not declared as JSON',
    'Content-Type is missing, given twice, or not application/json in UTF-8; or the body has a Content-Encoding.',
  ),
  value_out_of_range: row(
    'value_out_of_range',
    'value-out-of-range',
    'A value is out of range',
    'account_id or amount_cents does not fit 64 bits, or amount_cents is not above zero. `field` names it.',
  ),
  idempotency_key_reused: row(
    'idempotency_key_reused',
    'idempotency-key-reuse',
    'Idempotency-Key was used with a different request',
    'The key belongs to another request. `differs` names the fields that differ, without their values. Final: use another key for another order.',
  ),
  order_not_found: row(
    'order_not_found',
    'order-not-found',
    'No such order',
    'No order has this id, or it is no UUID.',
  ),
  in_flight: row(
    'in_flight',
    'idempotency-in-flight',
    'A request with this key is under way',
    'The first request with this key has not finished within -inflight-wait. Send the same request again.',
  ),
  overloaded: row(
    'overloaded',
    'overloaded',
    'Too many requests are under way',
    'The request was shed before any work was done. Send it again.',
  ),
  database_unavailable: row(
    'database_unavailable',
    'database-unavailable',
    'The service cannot reach its database',
    'Nothing is known to be stored, or the outcome of its COMMIT is not known. Send the same request with the same key again.',
  ),
  deadline_passed: row(
    'deadline_passed',
    'deadline-passed',
    'The request took too long to settle',
    'The order may exist by now or come to be: send the same request with the same key, and it is answered.',
  ),
  internal: {
    type: 'internal',
    status: 500,
    title: 'The service failed',
    when: 'A bug: the log has the reason under this request_id. Send the same request with the same key again.',
  },
} as const satisfies Readonly<Record<string, ProblemRow>>;

/** What the HTTP server says by itself, by status. */
export const PROBLEMS_BY_STATUS: Readonly<Record<number, ProblemRow>> = {
  400: {
    type: 'malformed-request',
    status: 400,
    title: 'The request is malformed',
    when: 'It is no HTTP/1.1 that can be read in one way only, and the connection closes; or its path is badly encoded.',
  },
  403: {
    type: 'cross-site',
    status: 403,
    title: 'The request comes from another site',
    when: 'Its Origin is not listed with -allowed-origins; or -listen is a loopback address and Host is no name of this machine.',
  },
  404: {
    type: 'no-such-resource',
    status: 404,
    title: 'No such resource',
    when: 'The path is none of this page.',
  },
  405: {
    type: 'method-not-allowed',
    status: 405,
    title: 'The method is not allowed here',
    when: 'The Allow header names those that are.',
  },
  408: {
    type: 'request-timeout',
    status: 408,
    title: 'The request took too long',
    when: 'It was not whole 30 s after its first byte. The connection closes.',
  },
  413: PROBLEMS_BY_CODE.body_too_large,
  417: {
    type: 'expectation-failed',
    status: 417,
    title: 'The expectation cannot be met',
    when: 'Expect is something other than 100-continue. The connection closes.',
  },
  431: {
    type: 'header-too-large',
    status: 431,
    title: 'The header is too large',
    when: 'The head is longer than 16 KiB. The connection closes.',
  },
  500: PROBLEMS_BY_CODE.internal,
  503: {
    type: 'stopping',
    status: 503,
    title: 'The service takes no request now',
    when: 'It drains, or has as many connections or holds as many bytes as it may. Send the same request again, on another connection.',
  },
};

/** The row of an error that a client may be told of; undefined for those it may not. */
export function problemOfCode(code: string): ProblemRow | undefined {
  return (PROBLEMS_BY_CODE as Readonly<Record<string, ProblemRow>>)[code];
}

export interface Problem {
  readonly row: ProblemRow;
  readonly detail: string;
  /** The path of the request. */
  readonly instance: string;
  readonly requestId: string;
  /** Headers of this problem alone. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Members of this problem alone. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

export function problemResponse({ row, detail, instance, requestId, headers, extra }: Problem): HttpResponse {
  const { status } = row;
  const body = {
    type: `${PROBLEM_TYPE_PREFIX}${row.type}`,
    title: row.title,
    status,
    detail,
    instance,
    request_id: requestId,
    ...extra,
  };
  return {
    status,
    headers: {
      'content-type': PROBLEM_JSON,
      'cache-control': 'no-store',
      'x-request-id': requestId,
      ...(status === 429 || status === 503 ? { 'retry-after': RETRY_AFTER_S } : {}),
      ...headers,
    },
    body: JSON.stringify(body),
  };
}
