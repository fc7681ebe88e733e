/** The orders process over HTTP on each backend: exact keys, its own description, the stored trace
 *  context, and floods of malformed requests. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { certificate } from '../../src/devstack/certificates.ts';
import { nodeHttpClientDriver } from '../../src/io/http/client.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { Described } from '../contract/described.ts';
import { RawClient } from '../contract/raw-client.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  type Ask,
  createdOf,
  newKey,
  ORDER,
  ordersKit,
  post,
  problemOf,
  type Reply,
  rowCounts,
  type Service,
  stop,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);
const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe.each([
  ['auto', 'node:net'],
  ['node', 'node:http'],
])('-http=%s', (backend, driver) => {
  let schema: string;
  let pool: SqlPool;
  let service: Service;
  let described: Described;
  beforeAll(async () => {
    ({ schema, pool } = await kit.schema());
    service = await kit.serve(schema, [`-http=${backend}`]);
    described = new Described(
      JSON.parse((await service.ask({ path: '/openapi.json' })).body.toString('utf8')),
    );
  });

  /** Sends a request and checks the response against the service's OpenAPI description. */
  async function ask(what: Ask): Promise<Reply> {
    const reply = await service.ask(what);
    described.check(what.method ?? 'GET', what.path ?? '/', reply);
    return reply;
  }

  async function raw(bytes: string): Promise<RawClient> {
    const client = await RawClient.open(Number(service.address.split(':')[1]));
    return client.send(Buffer.from(bytes, 'latin1'));
  }

  const order = (key: string, body = JSON.stringify(ORDER)): string =>
    `POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: ${key}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

  it('orders reports which backend serves, and answers as its description states', async () => {
    const version = await ask({ path: '/version' });
    expect(JSON.parse(version.body.toString())).toMatchObject({ command: 'orders', http: driver });
    for (const path of ['/openapi.json', '/health', '/ready', '/metrics'])
      expect((await ask({ path })).status, path).toBe(200);
    const key = newKey();
    const orderId = createdOf(await ask(post(key)), false);
    createdOf(await ask(post(key)), true);
    problemOf(await ask(post(key, { ...ORDER, amount_cents: 1 })), 409, 'idempotency-key-reuse');
    problemOf(await ask(post(key, { ...ORDER, amount_cents: 0 })), 422, 'value-out-of-range');
    problemOf(await ask(post('1 7')), 400, 'bad-idempotency-key');
    const { headers = {}, ...rest } = post(newKey());
    problemOf(await ask({ ...rest, headers: { ...headers, accept: 'text/html' } }), 406, 'not-acceptable');
    problemOf(
      await ask({ ...rest, headers: { ...headers, 'content-type': 'text/html' } }),
      415,
      'unsupported-media-type',
    );
    problemOf(await ask({ ...rest, headers, body: 'x'.repeat(70_000) }), 413, 'body-too-large');
    expect((await ask({ path: `/orders/${orderId}` })).status).toBe(200);
    expect((await ask({ method: 'HEAD', path: `/orders/${orderId}` })).status).toBe(200);
    problemOf(await ask({ path: `/orders/${newKey()}` }), 404, 'order-not-found');
  });

  it('orders never confuses two keys, whatever bytes surround them', async () => {
    const key = newKey();
    createdOf(await service.ask(post(key)), false);
    const before = await rowCounts(pool);
    for (const odd of [
      `\u00e9${key}`,
      `${key}\u00e9`,
      `\u00d0\u00ba${key}\u00d1\u008e`,
      `${key}\u00a0`,
      '\u00e9\u00e9',
    ]) {
      const client = await raw(order(odd));
      const answer = await client.answer();
      expect([answer.status, answer.body.toString()]).toEqual([
        400,
        expect.stringContaining('bad-idempotency-key'),
      ]);
      client.close();
    }
    const twice = await raw(order(`${key}\r\nIdempotency-Key: ${newKey()}`));
    expect((await twice.answer()).status).toBe(400);
    twice.close();
    expect(await rowCounts(pool)).toEqual(before);
  });

  it('orders answers each of many pipelined requests with its own order', async () => {
    const keys = Array.from({ length: 30 }, () => newKey());
    const client = await raw([...keys, ...keys].map((key) => order(key)).join(''));
    const bodies: string[] = [];
    for (let i = 0; i < keys.length * 2; i++) {
      const answer = await client.answer();
      expect([answer.status, answer.headers['idempotency-replayed']]).toEqual([
        201,
        String(i >= keys.length),
      ]);
      bodies.push(answer.body.toString());
    }
    client.close();
    expect(bodies.slice(keys.length)).toEqual(bodies.slice(0, keys.length));
    const { rows } = await pool.query<{ idem_key: string; response_body: string }>(
      'SELECT idem_key, response_body FROM idempotency_keys WHERE idem_key = ANY($1::text[])',
      [keys],
    );
    const stored = new Map(rows.map((row) => [row.idem_key, row.response_body]));
    expect(bodies.slice(0, keys.length)).toEqual(keys.map((key) => stored.get(key)));
  });

  it('orders stores the trace of a request with the event of its order, and ignores an invalid trace', async () => {
    const storedTrace = async (traceparent: string): Promise<unknown> => {
      const what = post(newKey());
      const orderId = createdOf(
        await service.ask({ ...what, headers: { ...what.headers, traceparent } }),
        false,
      );
      const { rows } = await pool.query('SELECT traceparent FROM outbox WHERE aggregate_id = $1', [orderId]);
      return rows[0]?.['traceparent'];
    };
    expect(await storedTrace(TRACE)).toBe(TRACE);
    expect(await storedTrace(TRACE.replace(/^00/, 'ff'))).toBe(null);
  });

  it('orders survives a flood of malformed requests and unfinished uploads', async () => {
    const before = await rowCounts(pool);
    const half = order(newKey()).slice(0, -5);
    const bad = [
      '\x16\x03\x01\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n',
      order('x y'),
      half,
      order(newKey(), '{"a":'),
      'GET /',
    ];
    for (let round = 0; round < 5; round++) {
      const clients = await Promise.all(
        Array.from({ length: 120 }, (_, i) => raw(bad[i % bad.length] as string)),
      );
      expect((await service.ask({ path: '/health' })).status).toBe(200);
      for (const client of clients) client.close();
    }
    expect(await rowCounts(pool)).toEqual(before);
    createdOf(await service.ask(post(newKey())), false);
  });

  it('orders exits with 0 while connections are open', async () => {
    const idle = await Promise.all(Array.from({ length: 10 }, () => raw('')));
    await stop(service);
    await Promise.all(idle.map((one) => one.closed()));
  });
});

it('-hash=raw compares the bytes of the body for a repeated key', async () => {
  const { schema } = await kit.schema();
  const service = await kit.serve(schema, ['-hash=raw']);
  const key = newKey();
  const first = await service.ask(post(key));
  createdOf(first, false);
  expect((await service.ask(post(key))).body.equals(first.body)).toBe(true);
  const spaced = await service.ask({ ...post(key), body: ` ${JSON.stringify(ORDER)}` });
  expect(problemOf(spaced, 409, 'idempotency-key-reuse')['differs']).toEqual([]);
  await stop(service);
});

it('-http=uws is refused, because it could merge two keys', () =>
  kit.fails(2, /the command needs header_bytes/, ['-http=uws']));

it('orders with a certificate serves https by the same parser', async () => {
  const { schema } = await kit.schema();
  const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
  const served = certificate({ subject: [['CN', 'orders']], issuer: authority, ips: ['127.0.0.1'] });
  const file = (name: string, text: string): string => {
    writeFileSync(join(own.dir, name), text);
    return join(own.dir, name);
  };
  const process = kit.start([
    `-schema=${schema}`,
    '-migrate',
    `-tls-cert=${file('orders.pem', served.cert)}`,
    `-tls-key=${file('orders-key.pem', served.key)}`,
  ]);
  const { log } = process;
  const target = await process.origin();
  const client = nodeHttpClientDriver.open({
    target,
    ca: authority.cert,
    connectionsMax: 4,
    timeoutMs: 20_000,
    bodyBytesMax: 1_000_000,
  });
  const send = (method: string, path: string, headers: Record<string, string> = {}, body = '') =>
    client.send({ method, path, headers, body });
  await until('a ready service', async () =>
    (await send('GET', '/ready')).status === 200 ? true : undefined,
  );
  expect(log()).toContain('"driver":"node:net"');
  const headers = { 'content-type': 'application/json', 'idempotency-key': newKey() };
  const replies = [];
  for (let i = 0; i < 2; i++) replies.push(await send('POST', '/orders', headers, JSON.stringify(ORDER)));
  expect(replies.map((reply) => [reply.status, reply.headers['idempotency-replayed']])).toEqual([
    [201, 'false'],
    [201, 'true'],
  ]);
  expect(Buffer.from(replies[0]?.body ?? [])).toEqual(Buffer.from(replies[1]?.body ?? []));
  client.close();
  await process.drain();
});
