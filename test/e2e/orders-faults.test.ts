/** The orders service during faults: held keys, overload, signals, and a database that fails and
 *  returns. */

import { request } from 'node:http';
import { beforeAll, describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { connectPool } from '../fixtures/database.ts';
import { gateBefore } from '../fixtures/gate.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';
import {
  createdOf,
  LONG_LIMITS,
  leftOpen,
  lockTable,
  logOf,
  metric,
  newKey,
  ORDER,
  ordersKit,
  problemOf,
  type Reply,
  rowCounts,
  type Service,
  stop,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

interface Held {
  /** Commits an order of another process under the key, and returns its stored response. */
  commit(): Promise<string>;
  rollBack(): Promise<void>;
}

const OTHER_ID = (n: number): string => `019385a0-0000-7000-8000-${String(n).padStart(12, '0')}`;
let others = 0;

/** Inserts the key in a transaction of another process, which stays open until the caller ends
 *  it. */
async function hold(pool: SqlPool, key: string): Promise<Held> {
  const orderId = OTHER_ID(others++);
  const answer = `{"order_id": "${orderId}",  "status":"created"}`;
  const end = await leftOpen(pool, async (session) => {
    await session.query(
      `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
       VALUES ($1, sha256(convert_to(E'orders.create.v1\\naccount_id=7\\namount_cents=1999\\n', 'UTF8')), $2, 201, $3::text::json)`,
      [key, orderId, answer],
    );
    await session.query("INSERT INTO orders VALUES ($1, 7, 1999, 'created')", [orderId]);
  });
  return {
    async commit() {
      await end(true);
      return answer;
    },
    rollBack: () => end(),
  };
}

/** Waits until statements of the service wait for a key that another transaction holds. */
const untilBlocked = (pool: SqlPool, schema: string, atLeast = 1n): Promise<true> =>
  until('a waiting statement', async () => {
    const { rows } = await pool.query<{ n: bigint }>(
      `SELECT count(*) AS n FROM pg_locks l JOIN pg_stat_activity a USING (pid)
       WHERE NOT l.granted AND a.application_name = 'millrace orders' AND a.pid IN (
         SELECT pid FROM pg_locks WHERE relation = to_regclass($1))`,
      [`${schema}.idempotency_keys`],
    );
    return (rows[0]?.n ?? 0n) >= atLeast ? true : undefined;
  });

/** Waits for a status of /ready, whose report may be slightly outdated. */
const untilReadyAnswers = (service: Service, status: number): Promise<true> =>
  until(`/ready with status ${status}`, async () =>
    (await service.ask({ path: '/ready' })).status === status ? true : undefined,
  );

async function fresh(
  flags: readonly string[] = [],
  postgres: string = stack.postgres,
): Promise<{ schema: string; pool: SqlPool; service: Service }> {
  const world = await kit.schema();
  return { ...world, service: await kit.serve(world.schema, flags, postgres) };
}

describeFull('held key', () => {
  it('a request whose key another process writes gets the stored answer byte for byte when that commits', async () => {
    const { schema, pool, service } = await fresh(LONG_LIMITS);
    const key = newKey();
    const held = await hold(pool, key);
    const asked = [service.order(key), service.order(key), service.order(key, { ...ORDER, amount_cents: 1 })];
    await untilBlocked(pool, schema);
    const answer = await held.commit();
    const [one, two, another] = (await Promise.all(asked)) as [Reply, Reply, Reply];
    for (const reply of [one, two]) {
      expect([reply.status, reply.body.toString()]).toEqual([201, answer]);
      expect(reply.headers['idempotency-replayed']).toBe('true');
    }
    problemOf(another, 409, 'idempotency-key-reuse');
    expect(await rowCounts(pool)).toEqual([1, 1, 0]);
    await stop(service);
  });

  it('a request whose key another process writes creates the order when that rolls back', async () => {
    const { schema, pool, service } = await fresh(LONG_LIMITS);
    const key = newKey();
    const held = await hold(pool, key);
    const asked = service.order(key);
    await untilBlocked(pool, schema);
    await held.rollBack();
    createdOf(await asked, false);
    expect(await rowCounts(pool)).toEqual([1, 1, 1]);
    await stop(service);
  });

  it('a request whose key stays held gets 503 after its wait, and other keys do not wait for it', async () => {
    // Long enough that the other orders are answered meanwhile, also on a machine that stalls.
    const longLimits = ['-inflight-wait=20s', '-deadline=120s', '-drain-timeout=160s'];
    const { schema, pool, service } = await fresh(['-connections=1', ...longLimits]);
    const [first, second] = [newKey(), newKey()];
    const held = [await hold(pool, first), await hold(pool, second)];
    const answered: string[] = [];
    const asked = async (key: string): Promise<Reply> => {
      const reply = await service.order(key);
      answered.push(key);
      return reply;
    };
    const alone = asked(first);
    await untilBlocked(pool, schema);
    // These requests gather behind the first and share its next transaction, together with the
    // second held key.
    const free = Array.from({ length: 20 }, () => newKey());
    const [alsoHeld, ...replies] = await Promise.all([asked(second), ...free.map(asked)]);
    problemOf(await alone, 503, 'idempotency-in-flight');
    problemOf(alsoHeld, 503, 'idempotency-in-flight');
    for (const reply of replies) createdOf(reply, false);
    expect(answered.slice(0, answered.indexOf(second))).toEqual(expect.arrayContaining(free));
    expect(await rowCounts(pool)).toEqual([20, 20, 20]);
    for (const one of held) await one.rollBack();
    createdOf(await service.order(second), false);
    await stop(service);
  });
});

describeFull('opposite key orders', () => {
  it('keys in opposite orders at two processes create one order each without a deadlock', async () => {
    // A separate database, because the server counts deadlocks per database.
    const { schema, pool } = await kit.schema();
    await pool.query(`CREATE DATABASE ${schema}`);
    const url = new URL(stack.postgres);
    url.pathname = `/${schema}`;
    const flags = ['-connections=1', ...LONG_LIMITS];
    const [one, two] = await Promise.all([
      kit.serve(schema, flags, url.toString()),
      kit.serve(schema, flags, url.toString()),
    ]);
    const reader = await connectPool(url.toString(), { schema });
    try {
      for (let round = 0; round < 3; round++) {
        const keys = Array.from({ length: 41 }, newKey);
        // Both processes stop at the middle key, each with the rows it wrote before.
        const held = await hold(reader, keys[20] as string);
        const forth = Promise.all(keys.map((key) => one.order(key)));
        const back = Promise.all([...keys].reverse().map((key) => two.order(key)));
        await untilBlocked(reader, schema, 2n);
        await held.rollBack();
        const bodies = (replies: readonly Reply[]): string[] =>
          replies.map((reply) => `${reply.status} ${reply.body}`);
        expect(bodies((await back).reverse())).toEqual(bodies(await forth));
      }
      expect(await rowCounts(reader)).toEqual([123, 123, 123]);
      // Stopping the processes ends their sessions, which flushes their statistics.
      await Promise.all([stop(one), stop(two)]);
      const { rows } = await reader.query<{ deadlocks: bigint }>(
        'SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()',
      );
      expect(rows).toEqual([{ deadlocks: 0n }]);
    } finally {
      await reader.close();
    }
  });
});

describeFull('overload', () => {
  it('orders above the limit get 429 before any work, and reads continue', async () => {
    const { schema, pool, service } = await fresh(['-in-flight-max=1', ...LONG_LIMITS]);
    const key = newKey();
    const held = await hold(pool, key);
    const asked = service.order(key);
    await untilBlocked(pool, schema);
    const shed = newKey();
    problemOf(await service.order(shed), 429, 'overloaded');
    problemOf(await service.order(key), 429, 'overloaded');
    problemOf(await service.order('x y'), 400, 'bad-idempotency-key');
    problemOf(await service.ask({ path: `/orders/${newKey()}` }), 404, 'order-not-found');
    expect(await metric(service, 'orders_in_flight')).toBe(1);
    await held.rollBack();
    createdOf(await asked, false);
    createdOf(await service.order(shed), false);
    expect(await rowCounts(pool)).toEqual([2, 2, 2]);
    await stop(service);
  });

  it('reads above the limit get 429, and answers from memory continue', async () => {
    const { pool, service } = await fresh(['-reads-max=1', ...LONG_LIMITS]);
    const key = newKey();
    const path = `/orders/${createdOf(await service.order(key), false)}`;
    const release = await lockTable(pool, 'orders');
    const first = service.ask({ path });
    await until('a read in flight', async () =>
      (await metric(service, 'orders_reads_in_flight')) === 1 ? true : undefined,
    );
    problemOf(await service.ask({ path }), 429, 'overloaded');
    createdOf(await service.order(key), true);
    const unknown = await service.order(key, { ...ORDER, account_id: 8 });
    expect(problemOf(unknown, 409, 'idempotency-key-reuse')['differs']).toEqual([]);
    await release();
    expect((await first).status).toBe(200);
    // The metrics page may be slightly outdated.
    await until('the counter of shed requests', async () =>
      (await metric(service, 'orders_shed_total')) === 1 ? true : undefined,
    );
    const reused = await service.order(key, { ...ORDER, account_id: 8 });
    expect(problemOf(reused, 409, 'idempotency-key-reuse')['differs']).toEqual(['account_id']);
    await stop(service);
  });
});

describe('signals', () => {
  itFull('SIGTERM lets requests in flight finish, and the service accepts no new ones', async () => {
    const { schema, pool, service } = await fresh(LONG_LIMITS);
    const key = newKey();
    const held = await hold(pool, key);
    const asked = service.order(key);
    await untilBlocked(pool, schema);
    service.process.kill('SIGTERM');
    await until(
      'a closed listener',
      () =>
        new Promise<true | undefined>((resolve) => {
          const [host, port] = service.address.split(':') as [string, string];
          const probe = request({ host, port, agent: false, path: '/health' }, (answer) => {
            answer.resume();
            resolve(undefined);
          });
          probe.on('error', () => resolve(true)).end();
        }),
    );
    await held.rollBack();
    createdOf(await asked, false);
    expect(await service.process.ended).toEqual({ code: 0, signal: null });
    expect(await rowCounts(pool)).toEqual([1, 1, 1]);
  });

  it('SIGKILL under load leaves one order for each key and keeps every answer that was sent', async () => {
    const { schema, pool, service } = await fresh();
    const keys = Array.from({ length: 400 }, newKey);
    const received = new Map<string, Reply>();
    let failed = 0;
    const ask = async (key: string): Promise<void> => {
      try {
        received.set(key, await service.order(key));
      } catch {
        failed++;
      }
      if (received.size === 100) service.process.kill('SIGKILL');
    };
    await Promise.all(keys.map(ask));
    // If this test stalled, the service may have answered all requests before the kill took effect.
    // Send more until one fails.
    while (failed === 0) {
      const key = newKey();
      keys.push(key);
      await ask(key);
    }
    expect(received.size).toBeGreaterThanOrEqual(100);
    expect(failed).toBeGreaterThan(0);
    await service.process.ended;

    const again = await kit.serve(schema);
    const replies = await Promise.all(keys.map((key) => again.order(key)));
    for (const [i, reply] of replies.entries()) {
      const before = received.get(keys[i] as string);
      createdOf(reply, reply.headers['idempotency-replayed'] === 'true');
      if (before === undefined) continue;
      expect(reply.headers['idempotency-replayed']).toBe('true');
      expect(reply.body.equals(before.body)).toBe(true);
    }
    expect(await rowCounts(pool)).toEqual([400, 400, 400]);
    const { rows } = await pool.query<{ n: bigint }>(
      `SELECT count(*) AS n FROM idempotency_keys k JOIN orders o USING (order_id) JOIN outbox x ON aggregate_id = o.order_id
       WHERE response_body->>'order_id' = o.order_id::text AND convert_from(payload, 'UTF8')::json->>'order_id' = o.order_id::text`,
    );
    expect(rows).toEqual([{ n: 400n }]);
    await stop(again);
  });
});

describeFull('database outages', () => {
  it('a database outage causes 503 and not ready, and afterwards the same keys become orders', async () => {
    const gate = await gateBefore(stack.postgres);
    const { pool, service } = await fresh([], gate.url);
    const before = newKey();
    const first = await service.order(before);
    gate.close();
    const key = newKey();
    const lost = problemOf(await service.order(key), 503, 'database-unavailable');
    expect(lost['detail']).toMatch(/same key/);
    // A finished response never changes, so a replay needs no database.
    createdOf(await service.order(before), true);
    problemOf(await service.ask({ path: `/orders/${newKey()}` }), 503, 'database-unavailable');
    // Requests that need no database are still validated.
    problemOf(await service.order('x y'), 400, 'bad-idempotency-key');
    await untilReadyAnswers(service, 503);
    expect((await service.ask({ path: '/health' })).status).toBe(200);
    expect(await rowCounts(pool)).toEqual([1, 1, 1]);
    gate.open();
    // A recent refusal is repeated for a moment without a new attempt, so wait for readiness first.
    await untilReadyAnswers(service, 200);
    createdOf(await service.order(key), false);
    expect((await service.order(before)).body.equals(first.body)).toBe(true);
    expect(await rowCounts(pool)).toEqual([2, 2, 2]);
    await stop(service);
  });

  it('an order whose commit was not answered is read back and not created again', async () => {
    const gate = await gateBefore(stack.postgres);
    const { pool, service } = await fresh([], gate.url);
    createdOf(await service.order(newKey()), false);
    gate.swallowAnswers();
    const key = newKey();
    const asked = service.order(key);
    await until('the commit', async () => ((await rowCounts(pool))[0] === 2 ? true : undefined));
    gate.cut();
    const orderId = createdOf(await asked, false);
    expect(createdOf(await service.order(key), true)).toBe(orderId);
    expect(await rowCounts(pool)).toEqual([2, 2, 2]);
    await stop(service);
  });

  it('retries with the same key create one order each when the database ends connections under load', async () => {
    const { schema, pool, service } = await fresh();
    const made = new Set<string>();
    for (let round = 1; round <= 3; round++) {
      // While this lock is held, no transaction gets past its insert of the order, so there is a
      // statement to end.
      const release = await lockTable(pool, 'orders');
      const orders = Array.from({ length: 60 }, async () => {
        const key = newKey();
        return until('an order', async () => {
          const reply = await service.order(key);
          if (reply.status === 201) return createdOf(reply, reply.headers['idempotency-replayed'] === 'true');
          expect(reply.status).toBe(503);
          return undefined;
        });
      });
      await until('an ended connection', async () => {
        const { rows } = await pool.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE application_name = 'millrace orders' AND pid IN (SELECT pid FROM pg_locks WHERE relation = to_regclass($1))`,
          [`${schema}.idempotency_keys`],
        );
        return rows.length > 0 ? true : undefined;
      });
      await release();
      for (const orderId of await Promise.all(orders)) made.add(orderId);
      expect(await rowCounts(pool)).toEqual([made.size, made.size, made.size]);
      expect(made.size).toBe(60 * round);
    }
    await stop(service);
  });

  describe('refused write', () => {
    let world: { pool: SqlPool; service: Service };
    beforeAll(async () => {
      world = await fresh(['-connections=1']);
      await world.pool.query('ALTER TABLE orders ADD CHECK (account_id <> 13)');
    });
    it('a write that the database refuses fails its order alone, without internal error text', async () => {
      const { pool, service } = world;
      const bodies = Array.from({ length: 30 }, (_, i) => ({ account_id: i, amount_cents: 1 }));
      const replies = await Promise.all(bodies.map((body) => service.order(newKey(), body)));
      for (const [i, reply] of replies.entries()) {
        if (i !== 13) createdOf(reply, false);
      }
      const refused = replies[13] as Reply;
      const document = problemOf(refused, 500, 'internal');
      expect(refused.body.toString()).not.toMatch(/constraint|relation|PostgreSQL|check/i);
      expect(logOf(service)).toMatch(new RegExp(`${document['request_id']}.*violates check constraint`));
      expect(await rowCounts(pool)).toEqual([29, 29, 29]);
    });
  });
});
