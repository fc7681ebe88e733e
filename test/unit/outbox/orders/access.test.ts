/** Access control of the orders service: the same rules and the same refusals over HTTP and
 *  gRPC. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { Gate } from '../../../../src/access/gate.ts';
import { BadCredentials } from '../../../../src/access/refusal.ts';
import type { CredentialCheck } from '../../../../src/access/request.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import type { GrpcCall, GrpcReply } from '../../../../src/io/grpc/port.ts';
import type { HttpRequest, HttpResponse } from '../../../../src/io/http/port.ts';
import { ordersMethods } from '../../../../src/outbox/orders/grpc/methods.ts';
import { ordersRoutes } from '../../../../src/outbox/orders/http/routes.ts';
import type { Orders } from '../../../../src/outbox/orders/service.ts';
import { gateOf, logLines, requestOf } from '../../access/access-kit.ts';

const RULES = ['basic:shop write orders', 'basic:support read orders', 'mtls:CN=till write orders'].join(
  '\n',
);
const KEY = '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34';
const ORDER_ID = '019aa5d2-7c40-7a3e-9b51-000000000001';
const ORDER = '{"account_id":7,"amount_cents":1999}';
/** account_id 7, amount_cents 1999 */
const MESSAGE = Buffer.of(0x08, 0x07, 0x10, 0xcf, 0x0f);

/** Replaces the password check: accepts the credentials `USER:right`. */
const basic = {
  identify(encoded: string): CredentialCheck {
    const [user = '', password] = Buffer.from(encoded, 'base64').toString().split(':');
    return {
      holdsGuess: true,
      run: async () => {
        if (password === 'right') return user;
        throw new BadCredentials('wrong user or password');
      },
    };
  },
} as unknown as NonNullable<Parameters<typeof gateOf>[1]>['basic'];

const header = (user: string, password = 'right'): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;

let created: number;
let bodiesRead: number;
let log: ReturnType<typeof logLines>;
beforeEach(() => {
  created = 0;
  bodiesRead = 0;
  log = logLines();
});

const orders = {
  create: async () => {
    created++;
    return {
      orderId: ORDER_ID,
      code: 201,
      body: `{"order_id":"${ORDER_ID}","status":"created"}`,
      replayed: false,
    };
  },
  find: async () => ({
    orderId: ORDER_ID,
    accountId: 7n,
    amountCents: 1999n,
    status: 'created',
    createdAt: new Date(0),
  }),
} as unknown as Orders;

const optionsOf = (gate: Gate) => ({
  orders: () => orders,
  requestId: () => 'request',
  log,
  outcomes: new Metrics().counter('outcomes', 'Outcomes.', ['outcome']),
  gate,
});

const gateWith = (over: Parameters<typeof gateOf>[1] = {}) =>
  gateOf(RULES, { logsAllowed: false, basic, mtls: true, ...over });

interface OrderCall {
  readonly authorization?: string | readonly string[];
  readonly peer?: string;
  readonly body?: string;
  readonly path?: string;
}

async function overHttp(gate: Gate, call: OrderCall): Promise<HttpResponse> {
  const { path = '/orders', body = ORDER, authorization = [], peer } = call;
  const route = ordersRoutes(optionsOf(gate)).find((one) => one.path === path);
  const base = requestOf({
    authorization,
    path,
    ...(peer === undefined ? {} : { peer: { subject: peer, altNames: [], fingerprint256: '' } }),
  });
  const request: HttpRequest = {
    ...base,
    params: { order_id: ORDER_ID },
    get body() {
      bodiesRead++;
      return Buffer.from(body);
    },
    header: (name) =>
      ({ 'idempotency-key': [KEY], 'content-type': ['application/json'] })[name.toLowerCase()] ??
      base.header(name),
  };
  return ((await route?.admit?.(request)) ?? (await route?.handler(request))) as HttpResponse;
}

async function overGrpc(gate: Gate, order: OrderCall & { readonly method?: string }): Promise<GrpcReply> {
  const { method = 'Create', authorization = [], peer } = order;
  const values = typeof authorization === 'string' ? [authorization] : authorization;
  const found = ordersMethods(optionsOf(gate)).find((one) => one.name === method);
  const call: GrpcCall = {
    metadata: (name) => (name === 'authorization' ? values : name === 'idempotency-key' ? [KEY] : []),
    message: order.body === undefined ? MESSAGE : Buffer.from(order.body),
    remoteAddress: '192.0.2.1',
    peer: peer === undefined ? undefined : { subject: peer },
    cancelled: () => false,
  };
  return (await found?.handler(call)) as GrpcReply;
}

const problem = ({ status, headers, body }: HttpResponse) => ({
  status,
  type: (JSON.parse(String(body)) as { type: string }).type,
  challenge: headers?.['www-authenticate'],
  retry: headers?.['retry-after'],
});

describe('orders over HTTP with access rules', () => {
  it('an HTTP request without credentials gets a 401 problem that names the schemes, and its body is not read', async () => {
    const { gate } = gateWith();
    const refused = problem(await overHttp(gate, { body: 'no JSON at all' }));
    expect(refused).toEqual({
      status: 401,
      type: 'urn:orders:problem:unauthenticated',
      challenge: 'Basic realm="millrace", charset="UTF-8"',
      retry: undefined,
    });
    expect([bodiesRead, created]).toEqual([0, 0]);
  });

  it('wrong credentials get 401, and a caller without a matching rule gets 403', async () => {
    const { gate } = gateWith();
    expect(problem(await overHttp(gate, { authorization: header('shop', 'wrong') })).status).toBe(401);
    expect(problem(await overHttp(gate, { authorization: header('support') }))).toMatchObject({
      status: 403,
      type: 'urn:orders:problem:forbidden',
    });
    const path = '/orders/{order_id}';
    expect(problem(await overHttp(gate, { authorization: header('shop'), path })).status).toBe(403);
    expect(created).toBe(0);
  });

  it('a caller with a matching rule is admitted by password or certificate, without a log line per order', async () => {
    const { gate, log: audit } = gateWith();
    expect((await overHttp(gate, { authorization: header('shop') })).status).toBe(201);
    expect((await overHttp(gate, { peer: 'CN=till' })).status).toBe(201);
    const path = '/orders/{order_id}';
    expect((await overHttp(gate, { authorization: header('support'), path })).status).toBe(200);
    expect(created).toBe(2);
    expect(audit.lines).toEqual([]);
  });

  it('a client over its rate gets 429 and the seconds until the next call', async () => {
    const { gate } = gateWith({ clientRate: 0.1 });
    expect((await overHttp(gate, { authorization: header('shop') })).status).toBe(201);
    expect(problem(await overHttp(gate, { authorization: header('shop') }))).toMatchObject({
      status: 429,
      type: 'urn:orders:problem:rate-limited',
      retry: '10',
    });
  });

  it('every caller can read the OpenAPI description', async () => {
    const { gate } = gateWith();
    expect((await overHttp(gate, { path: '/openapi.json' })).status).toBe(200);
  });
});

describe('orders over gRPC with access rules', () => {
  it('a gRPC call without accepted credentials gets UNAUTHENTICATED, and its message is not read', async () => {
    const { gate } = gateWith();
    const refused = await overGrpc(gate, { body: 'no message at all' });
    expect(refused.code).toBe('UNAUTHENTICATED');
    expect(refused.details).toContainEqual({
      kind: 'error_info',
      reason: 'UNAUTHENTICATED',
      domain: 'orders.millrace',
      metadata: {},
    });
    const wrong = await overGrpc(gate, { authorization: header('shop', 'wrong') });
    const twice = await overGrpc(gate, { authorization: [header('shop'), header('shop')] });
    expect([wrong.code, twice.code, created]).toEqual(['UNAUTHENTICATED', 'UNAUTHENTICATED', 0]);
  });

  it('a gRPC caller without a matching rule gets PERMISSION_DENIED', async () => {
    const { gate } = gateWith();
    const refused = await overGrpc(gate, { authorization: header('support') });
    expect([refused.code, created]).toEqual(['PERMISSION_DENIED', 0]);
  });

  it('a gRPC caller with a matching rule is admitted by password or certificate', async () => {
    const { gate } = gateWith();
    expect((await overGrpc(gate, { authorization: header('shop') })).code).toBe('OK');
    expect((await overGrpc(gate, { peer: 'CN=till' })).code).toBe('OK');
    expect(created).toBe(2);
  });

  it('a client over its rate on both transports together gets RESOURCE_EXHAUSTED and a delay', async () => {
    const { gate } = gateWith({ clientRate: 0.1 });
    expect((await overHttp(gate, { authorization: header('shop') })).status).toBe(201);
    const refused = await overGrpc(gate, { authorization: header('shop') });
    expect(refused.code).toBe('RESOURCE_EXHAUSTED');
    expect(refused.details).toContainEqual({ kind: 'retry_info', delayMs: 10_000 });
  });
});
