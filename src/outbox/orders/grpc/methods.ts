/** gRPC interface of the orders service. It accepts and refuses the same requests as HTTP. */

import { refusalHeaders } from '../../../access/refusal.ts';
import { type Caller, type Need, openGate, type RequestGate } from '../../../access/request.ts';
import { findMillraceError, type MillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Counter } from '../../../core/metrics.ts';
import {
  GRPC_CODES,
  type GrpcCall,
  type GrpcDetail,
  type GrpcMethod,
  type GrpcReply,
} from '../../../io/grpc/port.ts';
import { outboxError } from '../../errors.ts';
import { KEY_NAME } from '../../idempotency/key.ts';
import { canonicalUuid } from '../../ids.ts';
import { CREATE_NEED, READ_NEED } from '../access.ts';
import { readIdempotencyKey, readTraceparent, readTracestate } from '../http/headers.ts';
import { ORDERS_ERRORS } from '../http/problems.ts';
import type { Orders } from '../service.ts';
import { readCreateMessage, readGetMessage, writeCreateMessage, writeOrderMessage } from './messages.ts';

export const ORDERS_SERVICE = 'orders.v1.Orders';
/** Largest message: valid ones hold two numbers or one id. */
export const MESSAGE_BYTES_MAX = 64 * 1024;

const REPLAYED = 'idempotency-replayed';
const ERROR_DOMAIN = 'orders.millrace';
const RETRY_DELAY_MS = 1000;
const EMPTY = new Uint8Array(0);
const TRAILERS_FIRST = { [REPLAYED]: 'false' } as const;
const TRAILERS_REPLAYED = { [REPLAYED]: 'true' } as const;

export interface OrdersGrpcOptions {
  /** Undefined until the database has answered at start. */
  readonly orders: () => Orders | undefined;
  readonly requestId: () => string;
  /** Absent: no access control. */
  readonly gate?: RequestGate | undefined;
  readonly log: Logger;
  /** Calls by outcome: created, replayed, or the error code. */
  readonly outcomes: Counter;
}

interface Failure {
  readonly code: string;
  readonly grpc: number;
  readonly text: string;
  readonly error: MillraceError | undefined;
}

/** Maps an error to the error for the client: public errors unchanged, an unreachable database as
 *  UNAVAILABLE, all others without their message. */
function publicError(thrown: unknown): Failure {
  const error = findMillraceError(thrown);
  if (error !== undefined && error.code in ORDERS_ERRORS) {
    const text = error.next === undefined ? error.message : `${error.message}; ${error.next}`;
    return { code: error.code, grpc: error.row.grpc, text, error };
  }
  if (error?.kind === 'unavailable') {
    return {
      code: 'database_unavailable',
      grpc: ORDERS_ERRORS.database_unavailable.grpc,
      text: 'the database is not reachable; make the same call with the same key again',
      error: undefined,
    };
  }
  return {
    code: 'internal',
    grpc: GRPC_CODES.indexOf('INTERNAL'),
    text: 'the call could not be handled; the log has the reason under the request id',
    error: undefined,
  };
}

/** Delay of RetryInfo, equal to Retry-After over HTTP. */
function retryDelayMs(error: MillraceError | undefined): number {
  const seconds = refusalHeaders(error)['retry-after'];
  return seconds === undefined ? RETRY_DELAY_MS : Number(seconds) * 1000;
}

const callerOf = (call: GrpcCall, method: string): Caller => ({
  method: 'gRPC',
  path: `/${ORDERS_SERVICE}/${method}`,
  header: (name) => call.metadata(name),
  remoteAddress: call.remoteAddress,
  peer: call.peer,
});

function detailsOf(failure: Failure, requestId: string): readonly GrpcDetail[] {
  const { field, differs } = failure.error?.details ?? {};
  const details: GrpcDetail[] = [];
  const code = GRPC_CODES[failure.grpc];
  if (code === 'INVALID_ARGUMENT') {
    const description = failure.error?.message ?? failure.text;
    details.push({
      kind: 'bad_request',
      violations: [{ field: typeof field === 'string' ? field : '', description }],
    });
  }
  details.push({
    kind: 'error_info',
    reason: failure.code.toUpperCase(),
    domain: ERROR_DOMAIN,
    metadata: Array.isArray(differs) ? { differs: differs.join(',') } : {},
  });
  if (code === 'UNAVAILABLE' || code === 'RESOURCE_EXHAUSTED')
    details.push({ kind: 'retry_info', delayMs: retryDelayMs(failure.error) });
  details.push({ kind: 'request_info', requestId });
  return details;
}

const describe = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

export function ordersMethods(options: OrdersGrpcOptions): readonly GrpcMethod[] {
  const count = (outcome: string): void => options.outcomes.add(1, options.outcomes.series(outcome));
  const service = (): Orders => {
    const orders = options.orders();
    if (orders === undefined) throw outboxError('database_unavailable', 'the service is starting');
    return orders;
  };
  const refuse = (thrown: unknown): GrpcReply => {
    const requestId = options.requestId();
    const failure = publicError(thrown);
    count(failure.code);
    const code = GRPC_CODES[failure.grpc] ?? 'INTERNAL';
    if (code === 'INTERNAL' || code === 'UNAVAILABLE')
      options.log.error({ requestId, code: failure.code, cause: describe(thrown) }, 'call failed');
    return { code, message: EMPTY, text: failure.text, details: detailsOf(failure, requestId) };
  };
  const { gate = openGate } = options;
  /** Checks access before the message is decoded. */
  const guarded = (name: string, need: Need, handle: (call: GrpcCall) => Promise<GrpcReply>): GrpcMethod => ({
    service: ORDERS_SERVICE,
    name,
    handler: async (call) => {
      try {
        if (gate !== openGate) await gate.authorise(callerOf(call, name), need);
        return await handle(call);
      } catch (thrown) {
        return refuse(thrown);
      }
    },
  });
  return [
    guarded('Create', CREATE_NEED, async (call) => {
      const key = readIdempotencyKey(call.metadata(KEY_NAME), 'metadata');
      const request = readCreateMessage(call.message);
      const traceparent = readTraceparent(call.metadata('traceparent'));
      const tracestate = traceparent === undefined ? undefined : readTracestate(call.metadata('tracestate'));
      const answer = await service().create(key, request, { traceparent, tracestate });
      count(answer.replayed ? 'replayed' : 'created');
      return {
        code: 'OK',
        message: writeCreateMessage(answer.body),
        trailers: answer.replayed ? TRAILERS_REPLAYED : TRAILERS_FIRST,
      };
    }),
    guarded('Get', READ_NEED, async (call) => {
      const given = readGetMessage(call.message);
      const orderId = canonicalUuid(given);
      if (orderId === undefined) {
        throw outboxError('bad_body', 'order_id is not a UUID', { details: { field: 'order_id' } });
      }
      const order = await service().find(orderId);
      if (order === undefined) throw outboxError('order_not_found', 'there is no order with this id');
      return { code: 'OK', message: writeOrderMessage(order) };
    }),
  ];
}
