/** The orders service over HTTP on a real database: its responses, and the exact rows it writes. */
import { createHash } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { beforeAll, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { type Migration, migrate, requireTables } from '../../src/outbox/database/migrations.ts';
import { runOrders } from '../fixtures/orders.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import {
  createdOf,
  newKey,
  ORDER,
  ordersKit,
  pageOf,
  post,
  problemOf,
  rowCounts,
  type Service,
  stop,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

let schema: string;
let pool: SqlPool;
let service: Service;
let other: Service;
beforeAll(async () => {
  ({ schema, pool } = await kit.schema());
  // Two processes that start at the same time both find an empty database.
  [service, other] = await Promise.all([kit.serve(schema), kit.serve(schema)]);
});

describe('new order', () => {
  it('an order is created once, as three related rows', async () => {
    const key = newKey();
    const before = await rowCounts(pool);
    const orderId = createdOf(
      await service.order(key, { account_id: '9007199254740993', amount_cents: 5 }),
      false,
    );
    expect(await rowCounts(pool)).toEqual(before.map((count) => count + 1));

    const { rows } = await pool.query<Record<string, unknown>>(
      `SELECT k.idem_key, k.request_hash, k.response_code, k.response_body, o.account_id, o.amount_cents, o.status,
              o.created_at, x.aggregate_id, x.msg_id, x.event_type, x.payload, x.published_at
       FROM idempotency_keys k JOIN orders o USING (order_id) JOIN outbox x ON x.aggregate_id = o.order_id
       WHERE o.order_id = $1`,
      [orderId],
    );
    expect(rows).toHaveLength(1);
    const row = rows[0] as Record<string, unknown>;
    expect(row).toMatchObject({
      idem_key: key,
      response_code: 201,
      response_body: `{"order_id":"${orderId}","status":"created"}`,
      account_id: 9007199254740993n,
      amount_cents: 5n,
      status: 'created',
      aggregate_id: orderId,
      event_type: 'order.created.v1',
      published_at: null,
    });
    const hash = createHash('sha256').update(
      'orders.create.v1\naccount_id=9007199254740993\namount_cents=5\n',
    );
    expect(Buffer.from(row['request_hash'] as Uint8Array).toString('hex')).toBe(hash.digest('hex'));
    expect(row['msg_id']).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
    expect(row['msg_id']).not.toBe(orderId);
    expect(JSON.parse(new TextDecoder().decode(row['payload'] as Uint8Array))).toEqual({
      order_id: orderId,
      account_id: '9007199254740993',
      amount_cents: '5',
      status: 'created',
      created_at: (row['created_at'] as Date).toISOString(),
    });
  });

  it('a repeated request gets the stored answer byte for byte, however the JSON is written', async () => {
    const key = newKey();
    const first = await service.order(key);
    const orderId = createdOf(first, false);
    const counts = await rowCounts(pool);
    const json = { 'content-type': 'application/json; charset=utf-8' };
    const send = { method: 'POST', path: '/orders' };
    const replays = [
      await service.order(key),
      await other.order(key),
      await service.order(key.toUpperCase()),
      await service.order(`"${key}"`),
      await service.ask({
        ...send,
        headers: { ...json, 'IDEMPOTENCY-KEY': key },
        body: ' {"amount_cents":"1999" , "account_id":"7"}\n',
      }),
    ];
    for (const replay of replays) {
      expect(createdOf(replay, true)).toBe(orderId);
      expect(replay.body.equals(first.body)).toBe(true);
    }
    expect(await rowCounts(pool)).toEqual(counts);
  });

  it('any key of visible characters creates one order, also where SQL gives the text a meaning', async () => {
    const end = newKey();
    const keys = ['NULL', '{}', 'a"b', 'a\\b', "it's", 'a,b', '$1', '--', 'x'.repeat(200)].map(
      (one) => one + end,
    );
    keys.push(`~${'k'.repeat(254)}`, 'NULL', 'null');
    const first = await Promise.all(keys.map((key) => service.order(key)));
    const orderIds = first.map((answer) => createdOf(answer, false));
    expect(new Set(orderIds).size).toBe(keys.length);
    const replays = await Promise.all(keys.map((key) => other.order(key)));
    expect(replays.map((answer) => createdOf(answer, true))).toEqual(orderIds);
    const { rows } = await pool.query(
      'SELECT idem_key FROM idempotency_keys WHERE order_id = ANY($1::uuid[])',
      [orderIds],
    );
    expect(rows.map((row) => row['idem_key']).sort()).toEqual([...keys].sort());
  });

  itFull(
    'a repeated request gets the stored answer after a restart and after a change of status',
    async () => {
      const key = newKey();
      const one = await kit.serve(schema);
      const first = await one.order(key);
      const orderId = createdOf(first, false);
      await stop(one);
      await pool.query("UPDATE orders SET status = 'paid' WHERE order_id = $1", [orderId]);
      const again = await kit.serve(schema);
      const replay = await again.order(key);
      expect(createdOf(replay, true)).toBe(orderId);
      expect(replay.body.equals(first.body)).toBe(true);
      await stop(again);
    },
  );

  itFull('a repeated request gets the stored answer after its order row was deleted', async () => {
    const key = newKey();
    const first = await service.order(key);
    await pool.query('DELETE FROM orders WHERE order_id = $1', [createdOf(first, false)]);
    const replay = await service.order(key);
    createdOf(replay, true);
    expect(replay.body.equals(first.body)).toBe(true);
    const document = problemOf(
      await service.order(key, { ...ORDER, amount_cents: 1 }),
      409,
      'idempotency-key-reuse',
    );
    // The values of the deleted order are not known any more.
    expect(document['differs']).toEqual([]);
  });

  itFull.each([
    ['one process', () => [service]],
    ['two processes', () => [service, other]],
  ])('one order is created when 50 concurrent requests with one key reach %s', async (_, services) => {
    const to = services();
    const before = await rowCounts(pool);
    for (let round = 0; round < 3; round++) {
      const key = newKey();
      // Other requests go first and keep every connection busy, so that requests of the key gather
      // before its first write.
      const ahead = to.flatMap((each) => Array.from({ length: 10 }, () => each.order(newKey())));
      const replies = await Promise.all(
        Array.from({ length: 50 }, (_unused, i) => (to[i % to.length] as Service).order(key)),
      );
      expect(new Set(replies.map((reply) => `${reply.status} ${reply.body.toString('latin1')}`)).size).toBe(
        1,
      );
      for (const reply of await Promise.all(ahead)) createdOf(reply, false);
      const firsts = replies.filter((reply) => reply.headers['idempotency-replayed'] === 'false');
      expect(firsts).toHaveLength(1);
    }
    expect(await rowCounts(pool)).toEqual(before.map((count) => count + 3 * (1 + 10 * to.length)));
  });

  itFull('another request with the same key does not overwrite the order', async () => {
    const key = newKey();
    const first = await service.order(key);
    const snapshot = async (): Promise<string> => {
      const { rows } = await pool.query<{ all: string }>(
        `SELECT (SELECT row(k.*)::text FROM idempotency_keys k WHERE idem_key = $1)
             || (SELECT row(o.*)::text FROM orders o JOIN idempotency_keys USING (order_id) WHERE idem_key = $1) AS all`,
        [key],
      );
      return (rows[0] as { all: string }).all;
    };
    const [counts, rows] = [await rowCounts(pool), await snapshot()];
    const cases: ReadonlyArray<readonly [Service, unknown, readonly string[]]> = [
      [service, { ...ORDER, amount_cents: 2000 }, ['amount_cents']],
      [other, { ...ORDER, account_id: 8 }, ['account_id']],
      [service, { account_id: -7, amount_cents: 424242 }, ['account_id', 'amount_cents']],
    ];
    for (const [to, body, differs] of cases) {
      const reply = await to.order(key, body);
      const document = problemOf(reply, 409, 'idempotency-key-reuse');
      expect(document).toMatchObject({ differs, idempotency_key: key, instance: '/orders' });
      for (const name of differs) expect(document['detail']).toContain(name);
      // The response contains neither the stored values nor the sent ones.
      expect(reply.body.toString()).not.toMatch(/1999|424242/);
      expect(reply.headers['idempotency-replayed']).toBeUndefined();
    }
    expect(await rowCounts(pool)).toEqual(counts);
    expect(await snapshot()).toBe(rows);
    expect((await service.order(key)).body.equals(first.body)).toBe(true);
  });

  itFull(
    'one of several different requests that race for a key wins, and the others are refused and write nothing',
    async () => {
      const key = newKey();
      const before = await rowCounts(pool);
      const amounts = Array.from({ length: 20 }, (_, i) => 100 + (i % 4));
      const replies = await Promise.all(
        amounts.map((amount_cents, i) =>
          (i % 2 === 0 ? service : other).order(key, { account_id: 1, amount_cents }),
        ),
      );
      const { rows } = await pool.query<{ amount: bigint }>(
        'SELECT amount_cents AS amount FROM orders JOIN idempotency_keys USING (order_id) WHERE idem_key = $1',
        [key],
      );
      const stored = Number(rows[0]?.amount);
      expect(replies.map((reply) => reply.status)).toEqual(
        amounts.map((amount) => (amount === stored ? 201 : 409)),
      );
      expect(await rowCounts(pool)).toEqual(before.map((count) => count + 1));
    },
  );

  itFull('orders have the same outcome whether they share transactions or not', async () => {
    const outcome = async (flags: readonly string[]): Promise<unknown> => {
      const world = await kit.schema();
      const one = await kit.serve(world.schema, flags);
      const keys = Array.from(
        { length: 30 },
        (_, i) => `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`,
      );
      // Each key twice; every fifth repeat has another amount.
      const plan = [...keys, ...keys].map((key, i) => ({
        key,
        body: { account_id: i % 30, amount_cents: i >= 30 && i % 5 === 0 ? 2 : 1 },
      }));
      const replies = await Promise.all(plan.slice(0, 30).map(({ key, body }) => one.order(key, body)));
      replies.push(...(await Promise.all(plan.slice(30).map(({ key, body }) => one.order(key, body)))));
      const { rows } = await world.pool.query(
        `SELECT idem_key, request_hash, response_code, account_id, amount_cents, event_type
         FROM idempotency_keys JOIN orders USING (order_id) JOIN outbox ON aggregate_id = order_id ORDER BY idem_key`,
      );
      const metrics = await pageOf(one);
      await stop(one);
      return {
        rows,
        replies: replies.map((reply) => [reply.status, reply.headers['idempotency-replayed']]),
        outcomes: metrics
          .split('\n')
          .filter((line) => line.startsWith('orders_requests_total'))
          .sort(),
      };
    };
    const [alone, shared] = await Promise.all([outcome(['-batch=1', '-queue-wait-max=1m']), outcome([])]);
    expect(alone).toEqual(shared);
    expect(alone).toMatchObject({
      outcomes: expect.arrayContaining([expect.stringMatching(/created"\} 30$/)]),
    });
  });
});

describe('refused request', () => {
  const json = { 'content-type': 'application/json' };
  const body = JSON.stringify(ORDER);
  const send = { method: 'POST', path: '/orders' };
  const keyed = (): Record<string, string> => ({ ...json, 'idempotency-key': newKey() });
  const withBody = (text: string | Uint8Array) => () => ({ ...send, headers: keyed(), body: text });
  const withKey = (value: string | string[]) => () => ({
    ...send,
    headers: { ...json, 'idempotency-key': value },
    body,
  });

  itFull.each<[string, number, string, () => Parameters<Service['ask']>[0]]>([
    ['no key', 400, 'bad-idempotency-key', () => ({ ...send, headers: json, body })],
    ['an empty key', 400, 'bad-idempotency-key', withKey('')],
    ['a key with a blank', 400, 'bad-idempotency-key', withKey('order 17')],
    ['a key of 256 characters', 400, 'bad-idempotency-key', withKey('x'.repeat(256))],
    ['two keys in one header', 400, 'bad-idempotency-key', withKey(`${newKey()}, ${newKey()}`)],
    ['two key headers', 400, 'bad-idempotency-key', withKey([newKey(), newKey()])],
    ['a non-ASCII key', 400, 'bad-idempotency-key', withKey(`${newKey().slice(1)}\u00e9`)],
    ['no body', 400, 'bad-body', () => ({ ...send, headers: keyed() })],
    ['broken JSON', 400, 'bad-body', withBody('{"account_id":1,')],
    ['a fraction', 400, 'bad-body', withBody('{"account_id":1,"amount_cents":1.5}')],
    ['a null', 400, 'bad-body', withBody('{"account_id":null,"amount_cents":1}')],
    ['an unknown field', 400, 'bad-body', withBody('{"account_id":1,"amount_cents":1,"x":1}')],
    ['a duplicate field', 400, 'bad-body', withBody('{"account_id":1,"account_id":1,"amount_cents":1}')],
    ['a byte order mark', 400, 'bad-body', withBody(`\ufeff${body}`)],
    ['a body that is not UTF-8', 400, 'bad-body', withBody(Uint8Array.of(0x7b, 0xff, 0x7d))],
    ['deep nesting', 400, 'bad-body', withBody(`{"account_id":${'['.repeat(60_000)}`)],
    ['an amount of zero', 422, 'value-out-of-range', withBody('{"account_id":1,"amount_cents":0}')],
    [
      'a number beyond int64',
      422,
      'value-out-of-range',
      withBody('{"account_id":9223372036854775808,"amount_cents":1}'),
    ],
    [
      'a body over the size limit',
      413,
      'body-too-large',
      withBody(body + ' '.repeat(64 * 1024 + 1 - body.length)),
    ],
    [
      'no media type',
      415,
      'unsupported-media-type',
      () => ({ ...send, headers: { 'idempotency-key': newKey() }, body }),
    ],
    [
      'a form',
      415,
      'unsupported-media-type',
      () => ({ ...send, headers: { ...keyed(), 'content-type': 'text/plain' }, body }),
    ],
    ['an unknown path', 404, 'no-such-resource', () => ({ ...post(newKey()), path: '/order' })],
    ['a deeper path', 404, 'no-such-resource', () => ({ ...post(newKey()), path: '/orders/a/b' })],
    ['another method', 405, 'method-not-allowed', () => ({ ...post(newKey()), method: 'PUT' })],
  ])('a refused request writes nothing: %s', async (_, status, type, what) => {
    const before = await rowCounts(pool);
    const reply = await service.ask(what());
    problemOf(reply, status, type);
    if (status === 405) expect(reply.headers['allow']).toContain('POST');
    expect(await rowCounts(pool)).toEqual(before);
  });

  it('a refused request leaves its key free and the service working', async () => {
    const key = newKey();
    problemOf(await service.order(key, { account_id: 1 }), 400, 'bad-body');
    problemOf(await service.order(key, { ...ORDER, amount_cents: -1 }), 422, 'value-out-of-range');
    createdOf(await service.order(key), false);
  });

  itFull('each refused request has its own request id', async () => {
    const replies = await Promise.all(Array.from({ length: 10 }, () => service.order('x y')));
    expect(new Set(replies.map((reply) => reply.headers['x-request-id'])).size).toBe(10);
  });
});

describeFull('GET /orders/{id}', () => {
  it('GET /orders/{id} returns the order with all its digits', async () => {
    const big = '9223372036854775807';
    const orderId = createdOf(
      await service.order(newKey(), { account_id: `-${big}`, amount_cents: big }),
      false,
    );
    for (const id of [orderId, orderId.toUpperCase()]) {
      const reply = await other.ask({ path: `/orders/${id}` });
      expect([reply.status, reply.headers['content-type']]).toEqual([200, 'application/json']);
      expect(reply.body.toString()).toMatch(
        new RegExp(
          `^\\{"order_id":"${orderId}","account_id":-${big},"amount_cents":${big},"status":"created","created_at":"20[^"]+Z"\\}$`,
        ),
      );
    }
  });

  it.each([
    ['unknown', newKey(), 'order-not-found'],
    ['not a UUID', 'seventeen', 'order-not-found'],
    ['SQL', "'%20OR%201=1--", 'order-not-found'],
    ['an encoded slash', 'a%2Fb', 'order-not-found'],
    ['very long', 'a'.repeat(8000), 'order-not-found'],
  ])('GET /orders/{id} answers 404 for an id that is %s', async (_, id, type) => {
    problemOf(await service.ask({ path: `/orders/${id}` }), 404, type);
  });
  it('the service answers 400 for broken percent-encoding and 405 for another method', async () => {
    problemOf(await service.ask({ path: '/orders/%zz' }), 400, 'malformed-request');
    const reply = await service.ask({ method: 'DELETE', path: `/orders/${newKey()}` });
    problemOf(reply, 405, 'method-not-allowed');
    expect(reply.headers['allow']).toContain('GET');
  });
});

describeFull('migrations', () => {
  const FIRST: Migration = { number: 1, name: 'first', sql: 'CREATE TABLE one (id int)' };
  const SECOND: Migration = { number: 2, name: 'second', sql: 'CREATE TABLE two (id int)' };
  const refusal = async (work: Promise<unknown>) =>
    findMillraceError(
      await work.then(
        () => undefined,
        (thrown: unknown) => thrown,
      ),
    );

  it('concurrent processes apply each migration once', async () => {
    const world = await kit.schema();
    const applied = await Promise.all(
      Array.from({ length: 8 }, () => migrate(world.pool, world.schema, 'test', [FIRST, SECOND])),
    );
    expect(applied.flat().sort()).toEqual(['first', 'second']);
    expect(await migrate(world.pool, world.schema, 'test', [FIRST, SECOND])).toEqual([]);
  });

  it('a changed text of an applied migration is refused, and nothing is applied', async () => {
    const world = await kit.schema();
    await migrate(world.pool, world.schema, 'test', [FIRST]);
    const changed = { ...FIRST, sql: `${FIRST.sql} ` };
    const error = await refusal(migrate(world.pool, world.schema, 'test', [SECOND, changed]));
    expect(error).toMatchObject({ code: 'migration_changed', message: expect.stringContaining('test/1') });
    expect((await refusal(requireTables(world.pool, world.schema, ['one', 'two'], 'test')))?.message).toMatch(
      /no table two$/,
    );
    expect(await migrate(world.pool, world.schema, 'elsewhere', [SECOND])).toEqual(['second']);
  });

  it('a failed migration leaves no changes', async () => {
    const world = await kit.schema();
    const broken = { number: 2, name: 'broken', sql: 'CREATE TABLE two (id int); SELECT 1/0' };
    expect(await refusal(migrate(world.pool, world.schema, 'test', [FIRST, broken]))).toMatchObject({
      code: 'sql_failed',
    });
    const error = await refusal(requireTables(world.pool, world.schema, ['two', 'one'], 'test'));
    expect(error).toMatchObject({
      code: 'tables_missing',
      message: expect.stringMatching(/no table one, two$/),
    });
    expect(error?.next).toContain('millrace test -migrate');
  });
});

describeFull('failing start', () => {
  const fails = (flags: readonly string[], code: number, line: RegExp) => kit.fails(code, line, flags);

  it('the orders service names a database that is not reachable', () =>
    fails(
      ['-postgres=postgres://u:secret@127.0.0.1:1/x'],
      3,
      /^error: PostgreSQL at 127\.0\.0\.1:1 is not reachable/,
    ));
  it('the orders service names a database that does not exist', () => {
    const url = new URL(stack.postgres);
    url.pathname = '/no_such_database';
    return fails([`-postgres=${url}`], 3, /^error: .*no_such_database/);
  });
  it('the orders service names the tables that are missing', () =>
    fails(
      ['-schema=orders_nothing'],
      3,
      /^error: .*idempotency_keys, orders, orders_key_ttl, outbox.*millrace orders -migrate/,
    ));
  it('the orders service refuses a schema name that needs quoting', () =>
    fails(['-schema=a"b'], 2, /^error: -schema=a"b is not/));
  it('the orders service refuses an unknown flag', () =>
    fails(['-batches=1'], 2, /^error: .*-batches.*-batch/));
  it('the orders service refuses a value out of bounds', () => fails(['-batch=0'], 2, /^error: .*-batch/));
  it('the orders service requires the -postgres flag', async () => {
    const ended = await runOrders(own, ['-listen=127.0.0.1:0']);
    expect([ended.code, ended.stderr]).toEqual([2, expect.stringMatching(/^error: .*-postgres/)]);
  });
  it('the orders service refuses a database address that is not a URL', () =>
    fails(['-postgres=shop'], 2, /^error: -postgres is not a URL/));
  it('the orders service names a busy port', async () => {
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve));
    const { port } = holder.address() as AddressInfo;
    try {
      await fails([`-schema=${schema}`, `-listen=127.0.0.1:${port}`], 3, /^error: .*is in use/);
    } finally {
      holder.close();
    }
  });
});
