/** The HTTP surface of the orders service: parse, call, answer. Every refusal is an RFC 9457 problem document. */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Counter } from '../../core/metrics.ts';
import type { HttpFallbacks, HttpRequest, HttpResponse, HttpRoute } from '../../io/http/port.ts';
import { outboxError } from '../errors.ts';
import { canonicalUuid } from '../ids.ts';
import { readCreateBody, readIdempotencyKey, requireJson } from './request.ts';
import type { Orders } from './service.ts';

const PROBLEM_JSON = 'application/problem+json';

export interface OrdersHttpOptions {
  /** Undefined until the database answered at start. */
  readonly orders: () => Orders | undefined;
  readonly requestId: () => string;
  readonly log: Logger;
  /** By outcome: created, replayed, or the error's code. */
  readonly outcomes: Counter;
}

const TITLES: Readonly<Record<string, string>> = {
  bad_idempotency_key: 'Idempotency-Key is missing or malformed',
  bad_body: 'The body is not an order',
  body_too_large: 'The body is too large',
  unsupported_media_type: 'The body is not JSON',
  value_out_of_range: 'A value is out of range',
  idempotency_key_reused: 'Idempotency-Key was used with a different request',
  order_not_found: 'No such order',
  in_flight: 'A request with this key is under way',
  overloaded: 'Too many requests are under way',
  database_unavailable: 'The service cannot reach its database',
};

const STATUS_TITLES: Readonly<Record<number, string>> = {
  400: 'The request is malformed',
  404: 'No such resource',
  405: 'The method is not allowed here',
  408: 'The request took too long',
  413: 'The request is too large',
  431: 'The header is too large',
  500: 'The service failed',
  503: 'The service is stopping',
};

interface Problem {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly instance: string;
  readonly requestId: string;
  readonly extra?: Readonly<Record<string, unknown>>;
}

function problem(p: Problem): HttpResponse {
  const body = {
    type: `urn:millrace:problem:${p.code.replaceAll('_', '-')}`,
    title: p.title,
    status: p.status,
    detail: p.detail,
    instance: p.instance,
    request_id: p.requestId,
    ...p.extra,
  };
  const retry = p.status === 429 || p.status === 503;
  return {
    status: p.status,
    headers: {
      'content-type': PROBLEM_JSON,
      'cache-control': 'no-store',
      'x-request-id': p.requestId,
      ...(retry ? { 'retry-after': '1' } : {}),
    },
    body: JSON.stringify(body),
  };
}

/** The error a client sees: ours as it is, a lost database as 503, anything else without its inner words. */
function publicError(thrown: unknown): {
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly error: MillraceError | undefined;
} {
  const error = findMillraceError(thrown);
  if (error !== undefined && TITLES[error.code] !== undefined) {
    const detail = error.next === undefined ? error.message : `${error.message}; ${error.next}`;
    return { code: error.code, status: error.row.http, detail, error };
  }
  if (error?.kind === 'unavailable') {
    return {
      code: 'database_unavailable',
      status: 503,
      detail: 'the database is not reachable; send the same request with the same key again',
      error: undefined,
    };
  }
  return {
    code: 'internal',
    status: 500,
    detail: 'the request could not be handled; the log has the reason under this request_id',
    error: undefined,
  };
}

const LOCATION = '/orders/';

export function ordersRoutes(options: OrdersHttpOptions): readonly HttpRoute[] {
  const count = (outcome: string): void => options.outcomes.add(1, options.outcomes.series(outcome));
  const service = (): Orders => {
    const orders = options.orders();
    if (orders === undefined) throw outboxError('database_unavailable', 'the service is starting');
    return orders;
  };
  const guarded =
    (handle: (request: HttpRequest) => Promise<HttpResponse>) =>
    async (request: HttpRequest): Promise<HttpResponse> => {
      try {
        return await handle(request);
      } catch (thrown) {
        const requestId = options.requestId();
        const { code, status, detail, error } = publicError(thrown);
        count(code);
        if (status >= 500) options.log.error({ requestId, code, cause: describe(thrown) }, 'request failed');
        const { differs, field, idempotency_key: key } = error?.details ?? {};
        return problem({
          status,
          code,
          title: TITLES[code] ?? (STATUS_TITLES[status] as string),
          detail,
          instance: request.path,
          requestId,
          extra: {
            ...(differs === undefined ? {} : { differs, idempotency_key: key }),
            ...(field === undefined ? {} : { field }),
          },
        });
      }
    };
  return [
    {
      method: 'POST',
      path: '/orders',
      handler: guarded(async (request) => {
        const key = readIdempotencyKey(request.header('idempotency-key'));
        requireJson(request.header('content-type'));
        const answer = await service().create(key, readCreateBody(request.body));
        count(answer.replayed ? 'replayed' : 'created');
        return {
          status: answer.code,
          headers: {
            'content-type': 'application/json',
            location: `${LOCATION}${answer.orderId}`,
            'idempotency-replayed': String(answer.replayed),
            'cache-control': 'no-store',
          },
          body: answer.body,
        };
      }),
    },
    {
      method: 'GET',
      path: '/orders/{order_id}',
      handler: guarded(async (request) => {
        const orderId = canonicalUuid(request.params['order_id'] ?? '');
        const order = orderId === undefined ? undefined : await service().find(orderId);
        if (order === undefined) throw outboxError('order_not_found', 'there is no order with this id');
        return {
          status: 200,
          headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
          body: orderJson(order),
        };
      }),
    },
  ];
}

/** Numbers keep all their digits: int64 as JSON integers, as the request takes them. */
function orderJson(order: NonNullable<Awaited<ReturnType<Orders['find']>>>): string {
  return (
    `{"order_id":"${order.orderId}","account_id":${order.accountId},"amount_cents":${order.amountCents},` +
    `"status":${JSON.stringify(order.status)},"created_at":"${order.createdAt.toISOString()}"}`
  );
}

const describe = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

/** The answers the server gives without a handler, in the same shape. */
export function ordersFallbacks(requestId: () => string): HttpFallbacks {
  return {
    error(status, request) {
      const title = STATUS_TITLES[status] ?? 'The request failed';
      return problem({
        status,
        code: `http_${status}`,
        title,
        detail: title,
        instance: request.path,
        requestId: requestId(),
      });
    },
  };
}
