/** The HTTP interface of orders over each backend that may serve it: valid and invalid requests,
 *  their answers, and that /openapi.json describes every answer. The service is in memory. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LogFields, Logger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { wireDriver } from '../../../../src/io/http/http1/server.ts';
import { nodeHttpDriver } from '../../../../src/io/http/node/server.ts';
import type { HttpServer } from '../../../../src/io/http/port.ts';
import { uwsDriver } from '../../../../src/io/http/uws/server.ts';
import { outboxError } from '../../../../src/outbox/errors.ts';
import { type OrdersPort, ordersFallbacks, ordersRoutes } from '../../../../src/outbox/orders/http/routes.ts';
import {
  BODY_BYTES_MAX,
  type CallFacts,
  type CreateRequest,
  requestHash,
} from '../../../../src/outbox/orders/request.ts';
import type { CreateAnswer } from '../../../../src/outbox/orders/service.ts';
import type { OrderView } from '../../../../src/outbox/orders/write/store.ts';
import { Described } from '../../../contract/described.ts';
import { type RawAnswer, RawClient } from '../../../contract/raw-client.ts';

const KEY = '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34';
const ORDER = '{"account_id":7,"amount_cents":1999}';
const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** Service in memory: keys and their orders. */
class MemoryOrders implements OrdersPort {
  readonly calls: Array<{ readonly key: string; readonly request: CreateRequest; readonly call: CallFacts }> =
    [];
  readonly known = new Map<
    string,
    { readonly hash: string; readonly answer: CreateAnswer; readonly order: OrderView }
  >();
  /** Error that the next call throws. */
  fault: unknown;

  async create(key: string, request: CreateRequest, call: CallFacts): Promise<CreateAnswer> {
    this.calls.push({ key, request, call });
    // Answer in a later turn of the event loop, as a database does.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.fault !== undefined) throw this.fault;
    const hash = Buffer.from(call.hash ?? requestHash(request)).toString('hex');
    const known = this.known.get(key);
    if (known !== undefined) {
      if (known.hash === hash) return { ...known.answer, replayed: true };
      const differs = known.order.amountCents === request.amountCents ? [] : ['amount_cents'];
      throw outboxError('idempotency_key_reused', 'the key was used before with another request', {
        details: { differs, idempotency_key: key },
      });
    }
    const orderId = `019aa5d2-7c40-7a3e-9b51-${String(this.known.size).padStart(12, '0')}`;
    const answer = {
      orderId,
      code: 201,
      body: `{"order_id":"${orderId}","status":"created"}`,
      replayed: false,
    };
    const order = { ...request, orderId, status: 'created', createdAt: new Date(1_763_000_000_000) };
    this.known.set(key, { hash, answer, order });
    return answer;
  }

  async find(orderId: string): Promise<OrderView | undefined> {
    if (this.fault !== undefined) throw this.fault;
    return [...this.known.values()].map(({ order }) => order).find((order) => order.orderId === orderId);
  }
}

interface OrderRequest {
  readonly head?: string;
  readonly body?: string | Uint8Array;
}

const lines: LogFields[] = [];
const log: Logger = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: (fields) => void lines.push(fields),
  child: () => log,
};

describe.each([wireDriver, nodeHttpDriver])('orders over $name', (driver) => {
  let service: MemoryOrders;
  let server: HttpServer;
  let described: Described;
  let metrics: Metrics;
  const clients: RawClient[] = [];
  let requests = 0;

  async function start(hash: 'canonical' | 'raw' = 'canonical', requestTimeoutMs = 30_000): Promise<void> {
    service = new MemoryOrders();
    metrics = new Metrics();
    requests = 0;
    const requestId = (): string => `019aa5d2-7c41-7bb0-8d10-${String(++requests).padStart(12, '0')}`;
    server = await driver.listen({
      host: '127.0.0.1',
      port: 0,
      routes: ordersRoutes({
        orders: () => service,
        requestId,
        log,
        outcomes: metrics.counter('orders_requests_total', '', ['outcome']),
        hash,
        version: '1.2.3',
      }),
      fallbacks: ordersFallbacks(requestId),
      bodyBytesMax: BODY_BYTES_MAX,
      headerBytesMax: 16 * 1024,
      requestTimeoutMs,
      keepAliveTimeoutMs: 30_000,
      log,
    });
    described = new Described(JSON.parse((await ask('GET', '/openapi.json')).body.toString('utf8')));
  }

  beforeEach(() => start());
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    await server.drain(0);
  });

  async function raw(bytes: string | Uint8Array): Promise<RawClient> {
    const client = await RawClient.open(server.port);
    clients.push(client);
    return client.send(bytes);
  }

  async function ask(
    method: string,
    path: string,
    { head = '', body = '' }: OrderRequest = {},
  ): Promise<RawAnswer> {
    const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body;
    const length = method === 'POST' || bytes.length > 0 ? `Content-Length: ${bytes.length}\r\n` : '';
    const text = `${method} ${path} HTTP/1.1\r\nHost: test\r\n${head}${length}\r\n`;
    const client = await raw(Buffer.concat([Buffer.from(text, 'latin1'), bytes]));
    const answer = await client.answer({ head: method === 'HEAD' });
    client.close();
    described?.check(method, path, answer);
    return answer;
  }

  const JSON_TYPE = 'Content-Type: application/json\r\n';
  const keyed = (key: string, more = ''): string => `${JSON_TYPE}Idempotency-Key: ${key}\r\n${more}`;
  const order = (key: string, body: string | Uint8Array = ORDER, more = ''): Promise<RawAnswer> =>
    ask('POST', '/orders', { head: keyed(key, more), body });

  function problem(answer: RawAnswer, status: number, type: string): Record<string, unknown> {
    const text = answer.body.toString('utf8');
    expect([answer.status, text]).toEqual([status, expect.stringContaining(`"urn:orders:problem:${type}"`)]);
    expect(answer.headers['content-type']).toBe('application/problem+json');
    const document = JSON.parse(text) as Record<string, unknown>;
    expect(document['request_id']).toBe(answer.headers['x-request-id']);
    expect(answer.headers['retry-after']).toBe(status === 429 || status === 503 ? '1' : undefined);
    return document;
  }

  describe('idempotency key', () => {
    it('a key is the same key in every form, and its answer has the same bytes', async () => {
      const first = await order(KEY);
      expect([
        first.status,
        first.headers['idempotency-replayed'],
        first.headers['idempotent-replayed'],
      ]).toEqual([201, 'false', undefined]);
      expect(first.headers['location']).toMatch(/^\/orders\/019aa5d2-/);
      for (const [key, body] of [
        [KEY.toUpperCase(), ORDER],
        [`"${KEY}"`, ' {"amount_cents":"1999",\n"account_id":"7"}'],
        [`\t ${KEY} `, '{"account_\\u0069d":7,"amount_cents":1999}'],
      ] as const) {
        const again = await order(key, body);
        expect([
          again.status,
          again.headers['idempotency-replayed'],
          again.headers['idempotent-replayed'],
        ]).toEqual([201, 'true', 'true']);
        expect(again.body.equals(first.body)).toBe(true);
      }
      expect(service.known.size).toBe(1);
    });

    it('a key may be a UUID of any version and variant', async () => {
      for (const key of [
        '00000000-0000-0000-0000-000000000000',
        'ffffffff-ffff-ffff-ffff-ffffffffffff',
        '3f2b8c1e-9d4a-0b6f-0e21-7a5c0d9e1f34',
        '3f2b8c1e-9d4a-fb6f-fe21-7a5c0d9e1f34',
      ])
        expect((await order(key)).status).toBe(201);
    });

    // The three hard cases: bytes that a backend drops at the ends of a value, two lines, and
    // requests after a request that waits.
    it.each<[string, string]>([
      ['bytes above ASCII before it', `Idempotency-Key: \u00e9${KEY}\r\n`],
      ['bytes above ASCII after it', `Idempotency-Key: ${KEY}\u00e9\r\n`],
      ['bytes above ASCII around it', `Idempotency-Key: \u00d0\u00ba${KEY}\u00d1\u008e\r\n`],
      ['a no-break space after it', `Idempotency-Key: ${KEY}\u00a0\r\n`],
      ['bytes above ASCII alone', 'Idempotency-Key: \u00e9\u00e9\r\n'],
      ['two lines', `Idempotency-Key: ${KEY}\r\nIdempotency-Key: ${KEY}\r\n`],
      ['two lines, one empty', `Idempotency-Key: ${KEY}\r\nidempotency-key:\r\n`],
      ['two lines far apart', `Idempotency-Key: ${KEY}\r\nX-A: b\r\nIDEMPOTENCY-KEY: other\r\n`],
      ['two values in one line', `Idempotency-Key: ${KEY}, ${KEY}\r\n`],
      ['none', ''],
      ['an empty key', 'Idempotency-Key:\r\n'],
    ])('a key is refused with %s, and the service is not called', async (_, line) => {
      problem(
        await ask('POST', '/orders', { head: JSON_TYPE + line, body: ORDER }),
        400,
        'bad-idempotency-key',
      );
      expect(service.calls).toEqual([]);
    });

    it('pipelined requests keep their keys, and each gets its own answer in order', async () => {
      const keys = Array.from(
        { length: 20 },
        (_, i) => `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`,
      );
      const bytes = keys.map(
        (key, i) =>
          `POST /orders HTTP/1.1\r\nHost: test\r\n${keyed(key)}Content-Length: 36\r\n\r\n{"account_id":${10 + i},"amount_cents":${100 + i}}`,
      );
      const client = await raw(bytes.join(''));
      for (const key of keys) {
        const answer = await client.answer();
        expect([answer.status, answer.body.toString()]).toEqual([201, service.known.get(key)?.answer.body]);
      }
      expect(service.calls.map(({ key, request }) => [key, request.accountId])).toEqual(
        keys.map((key, i) => [key, BigInt(10 + i)]),
      );
    });

    it('a key that was used with another request gets 409, which names fields and no values', async () => {
      await order(KEY);
      const answer = await order(KEY, '{"account_id":7,"amount_cents":424242}');
      const document = problem(answer, 409, 'idempotency-key-reuse');
      expect(document).toMatchObject({
        differs: ['amount_cents'],
        idempotency_key: KEY,
        instance: '/orders',
      });
      expect(answer.body.toString()).not.toMatch(/1999|424242/);
      expect(answer.headers['idempotency-replayed']).toBeUndefined();
    });
  });

  describe('order body', () => {
    it.each<[string, string | Uint8Array, number, string]>([
      ['nothing', '', 400, 'bad-body'],
      ['a byte order mark', `\ufeff${ORDER}`, 400, 'bad-body'],
      ['no UTF-8', Uint8Array.of(0x7b, 0xff, 0x7d), 400, 'bad-body'],
      ['half a surrogate pair as a name', '{"\\ud800":1,"account_id":1,"amount_cents":1}', 400, 'bad-body'],
      ['half a surrogate pair as a value', '{"account_id":"\\udc00","amount_cents":1}', 400, 'bad-body'],
      ['a nested value', '{"account_id":{"a":1},"amount_cents":1}', 400, 'bad-body'],
      ['60,000 brackets', `{"account_id":${'['.repeat(60_000)}`, 400, 'bad-body'],
      ['an exponent', '{"account_id":1e3,"amount_cents":1}', 400, 'bad-body'],
      ['an unknown name', '{"account_id":1,"amount_cents":1,"currency":"EUR"}', 400, 'bad-body'],
      ['a name twice', '{"account_id":1,"amount_cents":1,"amount_cents":2}', 400, 'bad-body'],
      ['a null', '{"account_id":null,"amount_cents":1}', 400, 'bad-body'],
      ['more than 64 bits', '{"account_id":9223372036854775808,"amount_cents":1}', 422, 'value-out-of-range'],
      ['an amount of zero', '{"account_id":1,"amount_cents":0}', 422, 'value-out-of-range'],
      ['one byte too many', ORDER + ' '.repeat(BODY_BYTES_MAX + 1 - ORDER.length), 413, 'body-too-large'],
    ])('a body is refused with %s', async (_, body, status, type) => {
      problem(await order(KEY, body), status, type);
      expect(service.calls).toEqual([]);
    });

    it('a body may be as long as the limit and arrive in chunks', async () => {
      expect((await order(KEY, ORDER + ' '.repeat(BODY_BYTES_MAX - ORDER.length))).status).toBe(201);
      const chunks = `${ORDER.slice(0, 9).length.toString(16)};a=b\r\n${ORDER.slice(0, 9)}\r\n${ORDER.slice(9).length.toString(16)}\r\n${ORDER.slice(9)}\r\n0\r\n\r\n`;
      const client = await raw(
        `POST /orders HTTP/1.1\r\nHost: test\r\n${keyed(KEY)}Transfer-Encoding: chunked\r\n\r\n${chunks}`,
      );
      expect((await client.answer()).headers['idempotency-replayed']).toBe('true');
    });

    it('a body protects its key by its bytes with -hash=raw', async () => {
      await server.drain(0);
      await start('raw');
      const first = await order(KEY);
      expect((await order(KEY)).body.equals(first.body)).toBe(true);
      const spaced = await order(KEY, ` ${ORDER}`);
      expect(problem(spaced, 409, 'idempotency-key-reuse')['differs']).toEqual([]);
    });

    it('a body that never completes does not reach the service', async () => {
      const client = await raw(
        `POST /orders HTTP/1.1\r\nHost: test\r\n${keyed(KEY)}Content-Length: 36\r\n\r\n{"account`,
      );
      await expect.poll(() => server.inFlight()).toBe(1);
      client.close();
      await expect.poll(() => server.inFlight()).toBe(0);
      expect(service.calls).toEqual([]);
    });
  });

  describe('media types', () => {
    const POSTED = `Idempotency-Key: ${KEY}\r\n`;
    it.each<[string, number]>([
      ['Content-Type: application/json; charset=utf-8\r\n', 201],
      ['Content-Type: APPLICATION/JSON;charset="UTF-8"\r\n', 201],
      ['Content-Type: application/json\r\nContent-Encoding: identity\r\n', 201],
      ['', 415],
      ['Content-Type: text/plain\r\n', 415],
      ['Content-Type: application/json; charset=latin1\r\n', 415],
      ['Content-Type: application/json\r\nContent-Type: application/json\r\n', 415],
      ['Content-Type: application/json\r\nContent-Encoding: gzip\r\n', 415],
    ])('a request with %j gets %i', async (head, status) => {
      const answer = await ask('POST', '/orders', { head: POSTED + head, body: ORDER });
      if (status === 415) problem(answer, 415, 'unsupported-media-type');
      else expect(answer.status).toBe(status);
    });

    it.each<[string, boolean]>([
      ['*/*', true],
      ['application/json', true],
      ['text/html, application/*;q=0.1', true],
      ['application/json;q=0.5, */*;q=0', true],
      ['', true],
      [' , ,', true],
      ['application/json;q=oops', true],
      ['text/html', false],
      ['application/json;q=0', false],
      ['*/*, application/json;q=0.0', false],
      ['application/*;q=0, text/*', false],
      ['application/problem+json', false],
    ])('the service negotiates Accept: %s', async (accept, taken) => {
      const answer = await order(KEY, ORDER, `Accept: ${accept}\r\n`);
      if (taken) expect(answer.status).toBe(201);
      else {
        problem(answer, 406, 'not-acceptable');
        expect(service.calls).toEqual([]);
      }
    });
  });

  describe('trace context', () => {
    it.each<[string, string | undefined]>([
      [TRACE, TRACE],
      [TRACE.replace(/01$/, '00'), TRACE.replace(/01$/, '00')],
      [TRACE.replace(/^00/, 'cc'), TRACE],
      [`${TRACE.replace(/^00/, 'cc')}-what-may-come`, TRACE],
      [`${TRACE}-more`, undefined],
      [`${TRACE.replace(/^00/, 'cc')}more`, undefined],
      [TRACE.replace(/^00/, 'ff'), undefined],
      [TRACE.toUpperCase(), undefined],
      [TRACE.replace(/-[0-9a-f]{32}-/, `-${'0'.repeat(32)}-`), undefined],
      [TRACE.replace(/-[0-9a-f]{16}-/, `-${'0'.repeat(16)}-`), undefined],
      ['', undefined],
      ['garbage', undefined],
      [`${TRACE}\u00e9`, undefined],
    ])('a traceparent of %j is forwarded as %j', async (given, kept) => {
      expect((await order(KEY, ORDER, `traceparent: ${given}\r\n`)).status).toBe(201);
      expect(service.calls[0]?.call.traceparent).toBe(kept);
    });

    it.each<[string, string | undefined]>([
      ['tracestate: rojo=1,congo=2\r\n', 'rojo=1,congo=2'],
      ['tracestate: rojo=1\r\ntracestate: congo=2\r\n', 'rojo=1,congo=2'],
      ['', undefined],
      ['tracestate: \r\n', undefined],
      ['tracestate: no list\r\n', undefined],
      [`tracestate: rojo=${'x'.repeat(508)}\r\n`, undefined],
    ])('the tracestate of a traced request with %j is forwarded as %j', async (given, kept) => {
      expect((await order(KEY, ORDER, `traceparent: ${TRACE}\r\n${given}`)).status).toBe(201);
      expect(service.calls[0]?.call.tracestate).toBe(kept);
    });

    it.each(['', 'traceparent: garbage\r\n'])(
      'a tracestate is ignored without a valid traceparent: %j',
      async (trace) => {
        expect((await order(KEY, ORDER, `${trace}tracestate: rojo=1\r\n`)).status).toBe(201);
        expect(service.calls[0]?.call.tracestate).toBeUndefined();
      },
    );

    it('a traceparent given twice is ignored', async () => {
      await order(KEY, ORDER, `traceparent: ${TRACE}\r\ntraceparent: ${TRACE}\r\n`);
      expect(service.calls[0]?.call.traceparent).toBeUndefined();
    });
  });

  describe('service errors', () => {
    it.each<[Parameters<typeof outboxError>[0], number, string]>([
      ['overloaded', 429, 'overloaded'],
      ['in_flight', 503, 'idempotency-in-flight'],
      ['database_unavailable', 503, 'database-unavailable'],
      ['deadline_passed', 504, 'deadline-passed'],
    ])('the service error %s is answered with %i', async (code, status, type) => {
      service.fault = outboxError(code, 'why', { next: 'what next' });
      expect(problem(await order(KEY), status, type)['detail']).toBe('why; what next');
      const outcomes = metrics.counter('orders_requests_total', '', ['outcome']);
      expect(outcomes.value(outcomes.series(code))).toBe(1);
    });

    it('an internal error is answered with 500, and its reason is only in the log', async () => {
      service.fault = new Error('a secret');
      const answer = await order(KEY, ORDER, 'X-Request-Id: mine-17\r\n');
      expect(problem(answer, 500, 'internal')['request_id']).toBe('mine-17');
      expect(answer.body.toString()).not.toContain('secret');
      expect(lines.at(-1)).toMatchObject({ requestId: 'mine-17', cause: 'a secret' });
    });
  });

  describe('order resource', () => {
    it('GET and HEAD show an order with all its digits', async () => {
      const big = '9223372036854775807';
      const created = await order(KEY, `{"account_id":"-${big}","amount_cents":${big}}`);
      const path = created.headers['location'] as string;
      const shown = await ask('GET', path);
      expect(shown.body.toString()).toContain(`"account_id":-${big},"amount_cents":${big}`);
      const head = await ask('HEAD', path);
      expect([head.status, head.headers['content-length'], head.body.length]).toEqual([
        200,
        String(shown.body.length),
        0,
      ]);
      expect((await ask('GET', path.toUpperCase().replace('/ORDERS', '/orders'))).status).toBe(200);
    });

    it('the resource answers 404 for another id, 405 with Allow for another method, and 204 for OPTIONS', async () => {
      problem(await ask('GET', `/orders/${KEY}`), 404, 'order-not-found');
      problem(await ask('GET', '/orders/seventeen'), 404, 'order-not-found');
      problem(await ask('GET', '/nowhere'), 404, 'no-such-resource');
      for (const [method, path, allow] of [
        ['PUT', '/orders', 'OPTIONS, POST'],
        ['GET', '/orders', 'OPTIONS, POST'],
        ['DELETE', `/orders/${KEY}`, 'GET, HEAD, OPTIONS'],
      ] as const) {
        const answer = await ask(method, path, { body: method === 'GET' ? '' : 'x' });
        problem(answer, 405, 'method-not-allowed');
        expect(answer.headers['allow']).toBe(allow);
        const options = await ask('OPTIONS', path);
        expect([options.status, options.headers['allow']]).toEqual([204, allow]);
      }
      expect((await ask('HEAD', '/orders')).status).toBe(405);
    });
  });

  it('a request has the id of its client if the id can be logged, and a problem always has an id', async () => {
    expect((await order(KEY, ORDER, 'X-Request-Id: req/17:a=b\r\n')).headers['x-request-id']).toBe(
      'req/17:a=b',
    );
    expect((await order(KEY)).headers['x-request-id']).toBeUndefined();
    for (const bad of ['two words', 'x'.repeat(129), '"quoted"', 'caf\u00e9', ''])
      expect((await order('two words', ORDER, `X-Request-Id: ${bad}\r\n`)).headers['x-request-id']).toMatch(
        /^019aa5d2-/,
      );
  });

  it('a body or a head that does not arrive in time gets 408 and does not reach the service', async () => {
    await server.drain(0);
    await start('canonical', 2000);
    const heads = `POST /orders HTTP/1.1\r\nHost: test\r\n${keyed(KEY)}`;
    for (const bytes of [heads, `${heads}Content-Length: 36\r\n\r\n{"account`]) {
      const client = await raw(bytes);
      problem(await client.answer(), 408, 'request-timeout');
      await client.closed();
    }
    expect(service.calls).toEqual([]);
  });

  it('malformed heads and an expectation are problems too', async () => {
    for (const [bytes, status, type] of [
      ['POST /orders HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n', 400, 'malformed-request'],
      ['GET /orders/%zz HTTP/1.1\r\nHost: a\r\n\r\n', 400, 'malformed-request'],
      ['\x16\x03\x01\r\n\r\n', 400, 'malformed-request'],
      [`GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`, 431, 'header-too-large'],
      ['POST /orders HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n', 417, 'expectation-failed'],
    ] as const) {
      const client = await raw(bytes);
      problem(await client.answer(), status, type);
      client.close();
    }
  });
});

describe('OpenAPI description', () => {
  it('the description of an amount admits positive amounts alone, as numbers and as texts', async () => {
    const { ordersDescription } = await import('../../../../src/outbox/orders/http/openapi.ts');
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(JSON.parse(JSON.stringify(ordersDescription('1.2.3'))), 'api');
    const admits = ajv.compile({ $ref: 'api#/components/schemas/CreateOrder' });
    const amounts = [1, '1', '9223372036854775807', 0, -1, '0', '-1', '01', '', '1.5'];
    expect(amounts.filter((amount) => admits({ account_id: 7, amount_cents: amount }))).toEqual([
      1,
      '1',
      '9223372036854775807',
    ]);
  });

  it('the description has examples that fit their schemas, and every reference resolves', async () => {
    const { ordersDescription } = await import('../../../../src/outbox/orders/http/openapi.ts');
    const document = JSON.parse(JSON.stringify(ordersDescription('1.2.3'))) as Record<string, unknown>;
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(document, 'api');
    let examples = 0;
    const walk = (node: unknown, path: readonly string[]): void => {
      if (typeof node !== 'object' || node === null) return;
      const one = node as Record<string, unknown>;
      const reference = one['$ref'];
      if (typeof reference === 'string') expect(ajv.getSchema(`api${reference}`), reference).toBeDefined();
      if (one['schema'] !== undefined) {
        const pointer = [...path, 'schema'].map((part) =>
          encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')),
        );
        const validate = ajv.compile({ $ref: `api#/${pointer.join('/')}` });
        const named = Object.values((one['examples'] ?? {}) as Record<string, { readonly value: unknown }>);
        for (const value of [
          ...(one['example'] === undefined ? [] : [one['example']]),
          ...named.map((each) => each.value),
        ]) {
          examples++;
          expect(validate(value) ? [] : validate.errors, JSON.stringify(value)).toEqual([]);
        }
      }
      for (const [name, value] of Object.entries(one)) if (name !== 'value') walk(value, [...path, name]);
    };
    walk(document, []);
    expect(examples).toBeGreaterThan(20);
  });
});

it('a backend that cannot distinguish two keys declares it and is not offered for orders', () => {
  expect(uwsDriver.limits.header_bytes).toBeDefined();
  expect([wireDriver.limits.header_bytes, wireDriver.limits.pipeline_waits]).toEqual([undefined, undefined]);
});
