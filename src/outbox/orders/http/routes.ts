/** HTTP interface of the orders service. Every refusal is an RFC 9457 problem document.
 *
 *  Budget: a few microseconds for a handler, so requests share all objects that do not depend on
 *  them.
 */

import { refusalHeaders } from '../../../access/refusal.ts';
import { type Caller, type Need, openGate, type RequestGate } from '../../../access/request.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Counter } from '../../../core/metrics.ts';
import type {
  HttpAdmission,
  HttpFallbacks,
  HttpRequest,
  HttpRequestHead,
  HttpResponse,
  HttpRoute,
} from '../../../io/http/port.ts';
import { outboxError } from '../../errors.ts';
import { canonicalUuid } from '../../ids.ts';
import { CREATE_NEED, READ_NEED } from '../access.ts';
import { type CallFacts, type CreateRequest, rawRequestHash, readCreateBody } from '../request.ts';
import type { CreateAnswer } from '../service.ts';
import type { OrderView } from '../write/store.ts';
import {
  readIdempotencyKey,
  readRequestId,
  readTraceparent,
  readTracestate,
  requireAcceptsJson,
  requireJson,
} from './headers.ts';
import { ordersDescription } from './openapi.ts';
import {
  PROBLEMS_BY_CODE,
  PROBLEMS_BY_STATUS,
  type ProblemRow,
  problemOfCode,
  problemResponse,
} from './problems.ts';

/** Part of the service that the HTTP interface uses. */
export interface OrdersPort {
  create(key: string, request: CreateRequest, call: CallFacts): Promise<CreateAnswer>;
  find(orderId: string): Promise<OrderView | undefined>;
}

export interface OrdersHttpOptions {
  /** Undefined until the database has answered at start. */
  readonly orders: () => OrdersPort | undefined;
  readonly requestId: () => string;
  readonly log: Logger;
  /** Requests by outcome: created, replayed, or the error code. */
  readonly outcomes: Counter;
  /** Input of the hash that guards a key: `canonical`: the values of the fields; `raw`: the bytes
   *  of the body. */
  readonly hash?: 'canonical' | 'raw';
  /** Absent: no access control. */
  readonly gate?: RequestGate;
  /** Package version for the OpenAPI document. */
  readonly version?: string;
}

const JSON_TYPE = 'application/json';
const LOCATION = '/orders/';
const NO_FACTS: CallFacts = {};

/** Maps an error to the error for the client: public errors unchanged, an unreachable database as
 *  503, all others without their message. */
function publicError(thrown: unknown): {
  readonly code: string;
  readonly row: ProblemRow;
  readonly detail: string;
  readonly extra: Readonly<Record<string, unknown>>;
} {
  const error = findMillraceError(thrown);
  const row = error === undefined || error.code === 'internal' ? undefined : problemOfCode(error.code);
  if (error !== undefined && row !== undefined) {
    const { differs, field, idempotency_key: key } = error.details;
    return {
      code: error.code,
      row,
      detail: error.next === undefined ? error.message : `${error.message}; ${error.next}`,
      extra: {
        ...(differs === undefined ? {} : { differs, idempotency_key: key }),
        ...(field === undefined ? {} : { field }),
      },
    };
  }
  if (error?.kind === 'unavailable') {
    return {
      code: 'database_unavailable',
      row: PROBLEMS_BY_CODE.database_unavailable,
      detail: 'the database is not reachable; send the same request with the same key again',
      extra: {},
    };
  }
  return {
    code: 'internal',
    row: PROBLEMS_BY_CODE.internal,
    detail: 'the request could not be handled; the log has the reason under this request_id',
    extra: {},
  };
}

const describe = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

class OrdersHttp {
  private readonly options: OrdersHttpOptions;
  private readonly raw: boolean;
  private readonly seriesByOutcome = new Map<string, number>();

  constructor(options: OrdersHttpOptions) {
    this.options = options;
    this.raw = options.hash === 'raw';
  }

  private count(outcome: string): void {
    const { outcomes } = this.options;
    let series = this.seriesByOutcome.get(outcome);
    if (series === undefined) {
      series = outcomes.series(outcome);
      this.seriesByOutcome.set(outcome, series);
    }
    outcomes.add(1, series);
  }

  private orders(): OrdersPort {
    const orders = this.options.orders();
    if (orders === undefined) throw outboxError('database_unavailable', 'the service is starting');
    return orders;
  }

  /** Returns the `admit` of a route: checks access by the head, so that a refused body is never
   *  read. */
  admission(need: Need, gate: RequestGate) {
    return (head: HttpRequestHead): HttpAdmission | Promise<HttpAdmission> => {
      try {
        const access = gate.authorise(head, need);
        if (!(access instanceof Promise)) return undefined;
        return access.then(
          () => undefined,
          (thrown: unknown) => this.refused(head, thrown),
        );
      } catch (thrown) {
        return this.refused(head, thrown);
      }
    };
  }

  /** POST /orders. The service is called only after the whole request was checked. */
  readonly create = (request: HttpRequest): HttpResponse | Promise<HttpResponse> => {
    try {
      const key = readIdempotencyKey(request.header('idempotency-key'));
      requireAcceptsJson(request.header('accept'));
      requireJson(request.header('content-type'), request.header('content-encoding'));
      const order = readCreateBody(request.body);
      return this.orders()
        .create(key, order, this.factsOf(request))
        .then(
          (answer) => this.created(request, answer),
          (thrown: unknown) => this.refused(request, thrown),
        );
    } catch (thrown) {
      return this.refused(request, thrown);
    }
  };

  private factsOf(request: HttpRequest): CallFacts {
    const traceparent = readTraceparent(request.header('traceparent'));
    if (traceparent === undefined && !this.raw) return NO_FACTS;
    return {
      ...(traceparent === undefined
        ? {}
        : { traceparent, tracestate: readTracestate(request.header('tracestate')) }),
      ...(this.raw ? { hash: rawRequestHash(request.body) } : {}),
    };
  }

  private created(request: HttpRequest, answer: CreateAnswer): HttpResponse {
    const { replayed } = answer;
    this.count(replayed ? 'replayed' : 'created');
    const headers: Record<string, string> = {
      'content-type': JSON_TYPE,
      location: LOCATION + answer.orderId,
      'idempotency-replayed': replayed ? 'true' : 'false',
      'cache-control': 'no-store',
    };
    // Another common name of the header; by its convention present only on a replay.
    if (replayed) headers['idempotent-replayed'] = 'true';
    this.echoRequestId(request, headers);
    return { status: answer.code, headers, body: answer.body };
  }

  /** Returns the client's request id in the answer. */
  private echoRequestId(request: HttpRequest, headers: Record<string, string>): void {
    const requestId = readRequestId(request.header('x-request-id'));
    if (requestId !== undefined) headers['x-request-id'] = requestId;
  }

  private refused(request: Caller, thrown: unknown): HttpResponse {
    const { log, requestId: next } = this.options;
    const requestId = readRequestId(request.header('x-request-id')) ?? next();
    const { code, row, detail, extra } = publicError(thrown);
    this.count(code);
    if (row.status >= 500) log.error({ requestId, code, cause: describe(thrown) }, 'request failed');
    const headers = refusalHeaders(thrown);
    return problemResponse({ row, detail, instance: request.path, requestId, headers, extra });
  }

  /** GET /orders/{order_id} */
  readonly show = async (request: HttpRequest): Promise<HttpResponse> => {
    try {
      requireAcceptsJson(request.header('accept'));
      const orderId = canonicalUuid(request.params['order_id'] ?? '');
      const order = orderId === undefined ? undefined : await this.orders().find(orderId);
      if (order === undefined) throw outboxError('order_not_found', 'there is no order with this id');
      const headers: Record<string, string> = { 'content-type': JSON_TYPE, 'cache-control': 'no-store' };
      this.echoRequestId(request, headers);
      return { status: 200, headers, body: orderJson(order) };
    } catch (thrown) {
      return this.refused(request, thrown);
    }
  };
}

export function ordersRoutes(options: OrdersHttpOptions): readonly HttpRoute[] {
  const surface = new OrdersHttp(options);
  const description = {
    status: 200,
    headers: { 'content-type': JSON_TYPE, 'cache-control': 'no-cache' },
    body: `${JSON.stringify(ordersDescription(options.version ?? '0'))}\n`,
  };
  const { gate = openGate } = options;
  const admits = (need: Need): Pick<HttpRoute, 'admit'> =>
    gate === openGate ? {} : { admit: surface.admission(need, gate) };
  return [
    { method: 'POST', path: '/orders', ...admits(CREATE_NEED), handler: surface.create },
    { method: 'GET', path: '/orders/{order_id}', ...admits(READ_NEED), handler: surface.show },
    { method: 'GET', path: '/openapi.json', handler: () => description },
  ];
}

/** int64 as JSON integers with all digits, as in the request. */
function orderJson(order: OrderView): string {
  return (
    `{"order_id":"${order.orderId}","account_id":${order.accountId},"amount_cents":${order.amountCents},` +
    `"status":${JSON.stringify(order.status)},"created_at":"${order.createdAt.toISOString()}"}`
  );
}

/** Returns the problem documents for answers that the server gives without a handler. */
export function ordersFallbacks(requestId: () => string): HttpFallbacks {
  return {
    error(status, request, detail) {
      const row = PROBLEMS_BY_STATUS[status] ?? { ...PROBLEMS_BY_CODE.internal, status };
      return problemResponse({
        row,
        detail: detail ?? row.title,
        instance: request.path,
        requestId: requestId(),
      });
    },
  };
}
