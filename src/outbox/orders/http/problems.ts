/** All problem documents (RFC 9457) of the orders service: the source of the answers, of
 *  /openapi.json and of the page in docs. A document never contains a value of an order. */

import { ACCESS_ERRORS } from '../../../access/refusal.ts';
import type { HttpResponse } from '../../../io/http/port.ts';
import { OUTBOX_ERRORS } from '../../errors.ts';
import { PROBLEM_JSON, problemText, RETRY_AFTER_S } from '../../problem-document.ts';

export const PROBLEM_TYPE_PREFIX = 'urn:orders:problem:';

export interface ProblemRow {
  /** Suffix after PROBLEM_TYPE_PREFIX. */
  readonly type: string;
  readonly status: number;
  readonly title: string;
  /** Documentation: cause, and next step of the client. */
  readonly when: string;
}

/** Errors that a client may see, over HTTP and gRPC. */
export const ORDERS_ERRORS = { ...OUTBOX_ERRORS, ...ACCESS_ERRORS } as const;

const row = (code: keyof typeof ORDERS_ERRORS, type: string, title: string, when: string): ProblemRow => ({
  type,
  status: ORDERS_ERRORS[code].http,
  title,
  when,
});

/** Problems by error code. */
export const PROBLEMS_BY_CODE = {
  unauthenticated: row(
    'unauthenticated',
    'unauthenticated',
    'The request needs credentials',
    'Access rules are on, and the request has no accepted credentials. WWW-Authenticate names the schemes. The body was not read.',
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
    'The client exceeded -client-rate, or sent too many wrong credentials. Send the request again after Retry-After.',
  ),
  auth_unavailable: row(
    'auth_unavailable',
    'auth-unavailable',
    'Credentials cannot be checked at the moment',
    'The token keys are not loaded yet, or too many passwords wait for their check. Send the request again after Retry-After.',
  ),
  bad_idempotency_key: row(
    'bad_idempotency_key',
    'bad-idempotency-key',
    'Idempotency-Key is missing or malformed',
    'The header is missing, empty or duplicate, has two values, a blank, an invisible character, or more than 255 characters. Send one key of 1 to 255 visible characters, bare or in double quotes.',
  ),
  bad_body: row(
    'bad_body',
    'bad-body',
    'The body is not an order',
    'The body is not a JSON object in UTF-8, lacks a field, or has an unknown, duplicate or non-integer field. `field` names it.',
  ),
  body_too_large: row(
    'body_too_large',
    'body-too-large',
    'The body is too large',
    'The body is longer than 64 KiB. The rest is not read, and the connection closes.',
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
    'No order has this id, or the id is not a UUID.',
  ),
  in_flight: row(
    'in_flight',
    'idempotency-in-flight',
    'A request with this key is in flight',
    'The first request with this key has not finished within -inflight-wait. Send the same request again.',
  ),
  overloaded: row(
    'overloaded',
    'overloaded',
    'Too many requests are in flight',
    'The request was shed before any work was done. Send it again.',
  ),
  database_unavailable: row(
    'database_unavailable',
    'database-unavailable',
    'The service cannot reach its database',
    'The database did not confirm that the order is stored. Send the same request with the same key again.',
  ),
  deadline_passed: row(
    'deadline_passed',
    'deadline-passed',
    'The request took too long to settle',
    'The order may exist or may still be created. Send the same request with the same key to get its answer.',
  ),
  internal: {
    type: 'internal',
    status: 500,
    title: 'The service failed',
    when: 'A bug: the log has the reason under this request_id. Send the same request with the same key again.',
  },
} as const satisfies Readonly<Record<string, ProblemRow>>;

/** Problems that the HTTP server itself reports, by status. */
export const PROBLEMS_BY_STATUS: Readonly<Record<number, ProblemRow>> = {
  400: {
    type: 'malformed-request',
    status: 400,
    title: 'The request is malformed',
    when: 'The request is malformed or ambiguous HTTP/1.1, and the connection closes; or its path is badly encoded.',
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
    when: 'The interface has no such path.',
  },
  405: {
    type: 'method-not-allowed',
    status: 405,
    title: 'The method is not allowed here',
    when: 'The Allow header names the allowed methods.',
  },
  408: {
    type: 'request-timeout',
    status: 408,
    title: 'The request took too long',
    when: 'The request was incomplete 30 s after its first byte. The connection closes.',
  },
  413: PROBLEMS_BY_CODE.body_too_large,
  417: {
    type: 'expectation-failed',
    status: 417,
    title: 'The expectation cannot be met',
    when: 'The Expect header is not 100-continue. The connection closes.',
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
    title: 'The service accepts no request now',
    when: 'The service is draining, or has reached its limit of connections or buffered bytes. Send the same request again, on another connection.',
  },
};

/** Returns the problem of an error code; undefined for an internal error code. */
export function problemOfCode(code: string): ProblemRow | undefined {
  return (PROBLEMS_BY_CODE as Readonly<Record<string, ProblemRow>>)[code];
}

export interface Problem {
  readonly row: ProblemRow;
  readonly detail: string;
  /** Path of the request. */
  readonly instance: string;
  readonly requestId: string;
  /** Additional headers. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Additional members of the body. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

export function problemResponse({ row, detail, instance, requestId, headers, extra }: Problem): HttpResponse {
  const { status, title } = row;
  const type = `${PROBLEM_TYPE_PREFIX}${row.type}`;
  return {
    status,
    headers: {
      'content-type': PROBLEM_JSON,
      'cache-control': 'no-store',
      'x-request-id': requestId,
      ...(status === 429 || status === 503 ? { 'retry-after': RETRY_AFTER_S } : {}),
      ...headers,
    },
    body: problemText({ type, title, status, detail, instance, extra: { request_id: requestId, ...extra } }),
  };
}
