/** Orders over gRPC on a real database: its responses, the exact rows it writes, and the
 *  equivalence of both transports. */
import { beforeAll, describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  bareCall,
  bareSession,
  framed,
  grpcAddress,
  ORDER_MESSAGE,
  type OrdersClient,
  type Outcome,
  ordersClient,
} from './orders-grpc-kit.ts';
import { createdOf, newKey, ORDER, ordersKit, pageOf, rowCounts, type Service } from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

let pool: SqlPool;
let service: Service;
let address: string;
let otherAddress: string;
let client: OrdersClient;
let other: OrdersClient;
beforeAll(async () => {
  const world = await kit.schema();
  pool = world.pool;
  // Two instances share the keys. -grpc is deprecated and accepted for one more version.
  const two = await Promise.all([kit.serve(world.schema, ['-grpc=net']), kit.serve(world.schema)]);
  service = two[0];
  address = await grpcAddress(two[0]);
  otherAddress = await grpcAddress(two[1]);
  client = ordersClient(address);
  other = ordersClient(otherAddress);
});

function created(outcome: Outcome, replayed: boolean): string {
  expect(outcome).toMatchObject({ code: 'OK', value: { status: 'created' }, replayed: String(replayed) });
  const orderId = String(outcome.value?.['order_id']);
  expect(orderId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/);
  return orderId;
}

describe('order over gRPC', () => {
  it('an order over gRPC is created once and read back with all its digits', async () => {
    const before = await rowCounts(pool);
    const sent = { account_id: '-9223372036854775808', amount_cents: '9223372036854775807' };
    const key = newKey();
    const orderId = created(await client.create(key, sent), false);
    expect(created(await client.create(key, sent), true)).toBe(orderId);
    expect(created(await other.create(key.toUpperCase(), sent), true)).toBe(orderId);
    expect(created(await other.create(`"${key}"`, sent), true)).toBe(orderId);
    expect(await rowCounts(pool)).toEqual(before.map((count) => count + 1));
    const read = await client.get(orderId);
    expect(read).toMatchObject({ code: 'OK', value: { order_id: orderId, status: 'created', ...sent } });
    const overHttp = await service.ask({ path: `/orders/${orderId}` });
    expect(JSON.parse(overHttp.body.toString('utf8'))).toMatchObject({
      created_at: read.value?.['created_at'],
    });
  });

  it('an order over gRPC accepts account 0, which proto3 does not send', async () => {
    const key = newKey();
    const orderId = created(await client.create(key, { account_id: '0', amount_cents: '5' }), false);
    expect(createdOf(await service.order(key, { account_id: 0, amount_cents: 5 }), true)).toBe(orderId);
  });

  it('an order over gRPC stores its trace context in the outbox', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const tracestate = 'rojo=00f067aa0ba902b7';
    const metadata = { traceparent, tracestate };
    const orderId = created(await client.create(newKey(), undefined, { metadata }), false);
    const other = { metadata: { traceparent: 'x', tracestate } };
    const bad = created(await client.create(newKey(), undefined, other), false);
    const { rows } = await pool.query(
      'SELECT traceparent, headers::text AS headers FROM outbox WHERE aggregate_id = ANY($1::uuid[]) ORDER BY id',
      [[orderId, bad]],
    );
    expect(rows).toEqual([
      { traceparent, headers: JSON.stringify({ tracestate }) },
      { traceparent: null, headers: null },
    ]);
  });

  it('a key means the same order over both transports', async () => {
    const first = newKey();
    const orderId = createdOf(await service.order(first), false);
    expect(created(await other.create(first), true)).toBe(orderId);
    const second = newKey();
    const otherId = created(await client.create(second), false);
    const replay = await service.order(second);
    expect(createdOf(replay, true)).toBe(otherId);
    const mismatch = await service.order(second, { ...ORDER, amount_cents: 1 });
    expect(mismatch.status).toBe(409);
  });

  it('fifty concurrent calls and requests on two processes create one order', async () => {
    const before = await rowCounts(pool);
    const key = newKey();
    const ids = await Promise.all(
      Array.from({ length: 50 }, async (_, i) => {
        if (i % 2 === 0)
          return String((await (i % 4 === 0 ? client : other).create(key)).value?.['order_id']);
        return (JSON.parse((await service.order(key)).body.toString('utf8')) as { order_id: string })
          .order_id;
      }),
    );
    expect(new Set(ids).size).toBe(1);
    expect(ids[0]).toMatch(/-7/);
    expect(await rowCounts(pool)).toEqual(before.map((count) => count + 1));
  });

  it('a key that was used with other values is refused permanently', async () => {
    const key = newKey();
    created(await client.create(key), false);
    const before = await rowCounts(pool);
    const outcome = await client.create(key, { account_id: '8', amount_cents: '1999' });
    expect(outcome).toMatchObject({
      code: 'ALREADY_EXISTS',
      text: expect.stringContaining('account_id'),
      details: [
        {
          type: 'ErrorInfo',
          reason: 'IDEMPOTENCY_KEY_REUSED',
          domain: 'orders.millrace',
          metadata: { differs: 'account_id' },
        },
        { type: 'RequestInfo', requestId: expect.stringMatching(/-7/) },
      ],
    });
    expect(await rowCounts(pool)).toEqual(before);
  });

  it('an unknown order and an invalid order id are refused with their codes', async () => {
    expect(await client.get(newKey())).toMatchObject({
      code: 'NOT_FOUND',
      details: [{ type: 'ErrorInfo', reason: 'ORDER_NOT_FOUND' }, { type: 'RequestInfo' }],
    });
    for (const orderId of ['', 'x', 'ä'.repeat(18)])
      expect(await client.get(orderId)).toMatchObject({
        code: 'INVALID_ARGUMENT',
        details: [{ type: 'BadRequest', fieldViolations: [{ field: 'order_id' }] }, {}, {}],
      });
  });
});

describe('bad input', () => {
  const key = 'idempotency-key';
  const uuid = newKey();
  /** Bytes of CreateRequest{account_id: 7, amount_cents: 1999}. */
  const good = Buffer.of(0x08, 7, 0x10, 0xcf, 0x0f);
  const TEN = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

  it.each<[string, Record<string, string | string[]>, Buffer, string]>([
    ['no key', {}, good, key],
    ['an empty key', { [key]: '' }, good, key],
    ['a key with a blank', { [key]: 'a c' }, good, key],
    ['a key with a space in it', { [key]: `${uuid} x` }, good, key],
    ['two keys', { [key]: [uuid, newKey()] }, good, key],
    ['the same key twice', { [key]: [uuid, uuid] }, good, key],
    ['a key in binary metadata', { [`${key}-bin`]: Buffer.from(uuid).toString('base64') }, good, key],
    ['a key with a byte above ASCII', { [key]: `${uuid.slice(0, -1)}\u00e9` }, good, key],
    ['an empty message', { [key]: uuid }, Buffer.alloc(0), 'amount_cents'],
    ['an amount of 0', { [key]: uuid }, Buffer.of(0x08, 7, 0x10, 0), 'amount_cents'],
    ['an amount below 0', { [key]: uuid }, Buffer.of(0x10, ...TEN, 0x01), 'amount_cents'],
    ['a number over 64 bits', { [key]: uuid }, Buffer.of(0x10, ...TEN, 0x02), ''],
    ['an unterminated number', { [key]: uuid }, Buffer.of(0x10, ...TEN, 0xff, 0x01), ''],
    ['a message that is cut off', { [key]: uuid }, good.subarray(0, 4), ''],
    ['a field of another type', { [key]: uuid }, Buffer.of(0x0a, 1, 7, 0x10, 1), 'account_id'],
    ['an unknown field', { [key]: uuid }, Buffer.concat([good, Buffer.of(0x18, 1)]), 'field 3'],
    ['a field number of 0', { [key]: uuid }, Buffer.of(0x00, 1), 'field 0'],
    ['a duplicate field', { [key]: uuid }, Buffer.concat([good, Buffer.of(0x10, 1)]), 'amount_cents'],
    ['JSON', { [key]: uuid }, Buffer.from('{"account_id":7}'), 'field 15'],
  ])('a call with %s is refused and writes nothing', async (_what, headers, message, field) => {
    const before = await rowCounts(pool);
    for (const each of [address, otherAddress]) {
      const answer = await bareCall(bareSession(each), headers, framed(message));
      expect(answer).toMatchObject({
        status: '3',
        text: expect.stringMatching(/.{10}/),
        details: [
          { type: 'BadRequest', fieldViolations: [{ ...(field === '' ? {} : { field }) }] },
          { type: 'ErrorInfo', reason: expect.stringMatching(/^(BAD_|VALUE_)/) },
          { type: 'RequestInfo' },
        ],
      });
    }
    expect(await rowCounts(pool)).toEqual(before);
  });

  it('a call that violates gRPC ends with its code and writes nothing', async () => {
    const before = await rowCounts(pool);
    const session = bareSession(address);
    const own = newKey();
    const keyed = { [key]: own };
    const tooLong = await bareCall(session, keyed, framed(Buffer.alloc(70_000)));
    expect(tooLong.status).toBe('8');
    const huge = Buffer.from(framed(good));
    huge.writeUInt32BE(0xffff_ffff, 1);
    expect((await bareCall(session, keyed, huge)).status).toBe('8');
    const cut = await bareCall(session, keyed, framed(good).subarray(0, 7)).catch(() => ({ status: '-' }));
    expect(cut.status).not.toBe('0');
    const two = await bareCall(session, keyed, Buffer.concat([framed(good), framed(good)]));
    expect(two.status).not.toBe('0');
    const none = await bareCall(session, keyed, Buffer.alloc(0));
    expect(none.status).not.toBe('0');
    const garbage = framed(good);
    garbage[0] = 1;
    expect((await bareCall(session, { ...keyed, 'grpc-encoding': 'gzip' }, garbage)).status).not.toBe('0');
    expect((await bareCall(session, { ...keyed, 'grpc-encoding': 'rot13' }, garbage)).status).toBe('12');
    expect((await bareCall(session, { ':path': '/orders.v1.Orders/Delete' }, framed(good))).status).toBe(
      '12',
    );
    expect((await bareCall(session, { ':path': '/' }, framed(good))).status).toBe('12');
    expect((await bareCall(session, { 'content-type': 'application/json' }, good)).status).toBeUndefined();
    expect((await bareCall(session, { ...keyed, 'grpc-timeout': 'soon' }, framed(good))).status).not.toBe(
      '0',
    );
    expect(await rowCounts(pool)).toEqual(before);
    created(await client.create(own), false);
  });
});

describe('deadline', () => {
  it('a deadline that has passed writes nothing', async () => {
    const before = await rowCounts(pool);
    const message = framed(Buffer.of(0x08, 7, 0x10, 1));
    for (const session of [bareSession(address), bareSession(otherAddress)])
      for (const timeout of ['0n', '1n', '0S']) {
        const headers = { 'idempotency-key': newKey(), 'grpc-timeout': timeout };
        expect((await bareCall(session, headers, message)).status).toBe('4');
      }
    expect(await rowCounts(pool)).toEqual(before);
  });

  it('a deadline of a month is not a deadline that has passed', async () => {
    const message = framed(Buffer.of(0x08, 7, 0x10, 1));
    for (const session of [bareSession(address), bareSession(otherAddress)])
      for (const timeout of ['99999999S', '3000000S', '99999999H', '99999999M', '99999999m', '9000000u']) {
        const headers = { 'idempotency-key': newKey(), 'grpc-timeout': timeout };
        expect(await bareCall(session, headers, message)).toMatchObject({ status: '0' });
      }
  });
});

describe('health and metrics', () => {
  it('the health service reports SERVING for the server and orders, and NOT_FOUND for others', async () => {
    for (const each of [client, other]) {
      expect(await each.health()).toBe('SERVING');
      expect(await each.health('orders.v1.Orders')).toBe('SERVING');
      expect(await each.health('payments.v1.Payments')).toBe('NOT_FOUND');
    }
  });

  it('calls are counted by method and code', async () => {
    await client.create(newKey(), ORDER_MESSAGE);
    await client.create(undefined, ORDER_MESSAGE);
    const text = await until('the counted calls', async () => {
      const body = await pageOf(service);
      return body.includes('code="INVALID_ARGUMENT"') ? body : undefined;
    });
    expect(text).toMatch(/^orders_grpc_requests_total\{method="Create",code="OK"\} [1-9]/m);
    expect(text).toMatch(/^orders_grpc_requests_total\{method="Create",code="INVALID_ARGUMENT"\} [1-9]/m);
    expect(text).toMatch(/^orders_grpc_request_duration_seconds_count\{method="Create"\} [1-9]/m);
    expect(text).toMatch(/^orders_grpc_connections [1-9]/m);
    expect(text).toMatch(/^orders_requests_total\{outcome="replayed"\} [1-9]/m);
  });
});

describe('-grpc-listen', () => {
  it('an invalid address and a busy port are refused for -grpc-listen', async () => {
    await kit.fails(2, /-grpc-listen=nowhere is not host:port/, ['-grpc-listen=nowhere']);
    await kit.fails(3, /is in use .*\[busy_port\]/, [`-grpc-listen=${address}`]);
  });

  it('orders with -grpc-listen=off serves no gRPC', async () => {
    const { schema } = await kit.schema();
    const off = await kit.serve(schema, ['-grpc-listen=off']);
    const text = await pageOf(off);
    expect(text).not.toContain('orders_grpc_');
    createdOf(await off.order(newKey()), false);
  });
});
