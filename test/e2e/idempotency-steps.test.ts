/** Endpoints with recovery points on a real database: resumption, leases, fencing, limits. */
import { randomInt } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Timers } from '../../src/core/clock.ts';
import {
  IDEMPOTENCY_DEFAULTS,
  type IdempotencyOptions,
  idempotencySteps,
  type Steps,
  type TransactionSource,
} from '../../src/outbox/index.ts';
import { realClock, until } from '../wait.ts';
import { atEnd, DAY_MS, newKey, openShop, post, type Shop } from './idempotency-kit.ts';

let shop: Shop;
beforeAll(async () => {
  shop = await openShop();
});

type Handler = (steps: Steps<pg.PoolClient>, key: string) => Promise<{ status: number; text: string }>;

/** Starts an endpoint with recovery points; returns its URL. */
async function start(
  handler: Handler,
  options: Partial<IdempotencyOptions<pg.PoolClient>> = {},
): Promise<string> {
  const idem = idempotencySteps({
    sql: shop.pool,
    scope: () => 'one',
    ttlMs: DAY_MS,
    leaseMs: 60_000,
    ...options,
  });
  const server = createServer(
    idem.http(async (_req, res, { step, call, key }) => {
      const { status, text } = await handler({ step, call }, key);
      res.writeHead(status, { 'content-type': 'text/plain' }).end(text);
    }),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const insert = (tx: pg.PoolClient, key: string, cents: number): Promise<{ id: string }> =>
  tx
    .query('INSERT INTO payments (key, cents) VALUES ($1, $2) RETURNING id', [key, cents])
    .then(({ rows }) => ({ id: rows[0].id }));

/** Lets the lease of a request expire. */
const expire = (key: string): Promise<unknown> =>
  shop.pool.query(`UPDATE idempotency SET lease_until = now() - interval '1 s' WHERE key = $1`, [key]);

/** Clock whose periodic timers never fire: an owner that does not renew its lease. */
const stalled: Timers = { ...realClock, every: () => () => {} };

/** Source whose transactions begin without a first statement. */
const sourceOf = (pool: pg.Pool): TransactionSource<pg.PoolClient> => ({
  async transaction(work) {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const value = await work(client);
      await client.query('COMMIT');
      return value;
    } catch (thrown) {
      await client.query('ROLLBACK');
      throw thrown;
    } finally {
      client.release();
    }
  },
});

function gate() {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

describe('an endpoint with recovery points', () => {
  it('a retry resumes after the last recorded step and gets the results of the steps before', async () => {
    let attempt = 0;
    const ran: string[] = [];
    const url = await start(async ({ step, call }, key) => {
      attempt++;
      const first = await step('first', (tx) => {
        ran.push('first');
        return insert(tx, key, 1);
      });
      const rate = await call('rate', async () => {
        ran.push('rate');
        return { exact: '0.1', z: 1, a: [null, true] };
      });
      if (attempt === 1) throw new Error('the process fails between two steps');
      await step('second', (tx) => {
        ran.push('second');
        return insert(tx, key, 2);
      });
      return { status: 201, text: JSON.stringify([first, rate]) };
    });
    const key = newKey();
    expect((await post(url, key, {})).status).toBe(500);
    expect(await shop.payments(key)).toBe(1);
    // The key still belongs to its request.
    expect((await post(url, key, { other: true })).status).toBe(409);
    const done = await post(url, key, {});
    const { rows } = await shop.pool.query('SELECT id FROM payments WHERE key = $1 AND cents = 1', [key]);
    expect([done.status, done.text]).toEqual([
      201,
      JSON.stringify([{ id: rows[0].id }, { exact: '0.1', z: 1, a: [null, true] }]),
    ]);
    expect(ran).toEqual(['first', 'rate', 'second']);
    const again = await post(url, key, {});
    expect([again.text, again.headers.get('idempotency-replayed'), attempt]).toEqual([done.text, 'true', 2]);
    expect(await shop.records(key)).toMatchObject([
      { owner: null, lease_until: null, steps: null, status: 201 },
    ]);
  });

  it('a step that fails leaves neither its effect nor its result, and a request without steps leaves no record', async () => {
    let fails = true;
    const url = await start(async ({ step }, key) => {
      await step('pay', async (tx) => {
        await insert(tx, key, 1);
        if (fails) throw new Error('the step fails');
      });
      return { status: 201, text: 'paid' };
    });
    const key = newKey();
    expect((await post(url, key, {})).status).toBe(500);
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
    fails = false;
    expect((await post(url, key, {})).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a key whose call has begun is refused for another body, also after a retry that failed before the call', async () => {
    let attempt = 0;
    const charged: string[] = [];
    const url = await start(async ({ call }) => {
      attempt++;
      if (attempt === 2) throw new Error('the retry fails before its call');
      await call('charge', async (stepKey) => {
        charged.push(stepKey);
        if (attempt === 1) throw new Error('the provider has acted, and its answer is lost');
      });
      return { status: 201, text: 'charged' };
    });
    const [key, body, other] = [newKey(), { cents: 100 }, { cents: 200 }];
    for (let failures = 0; failures < 2; failures++) {
      expect((await post(url, key, body)).status).toBe(500);
      const refused = await post(url, key, other);
      expect(refused.status).toBe(409);
      expect(refused.problem()).toMatchObject({ type: 'urn:millrace:problem:idempotency-key-reuse' });
    }
    expect((await post(url, key, body)).status).toBe(201);
    expect([attempt, new Set(charged).size, charged.length]).toEqual([3, 1, 2]);
  });

  it('a server error is not stored, and a retry resumes', async () => {
    let status = 503;
    const url = await start(async ({ step }, key) => {
      await step('pay', (tx) => insert(tx, key, 1));
      return { status, text: String(status) };
    });
    const key = newKey();
    expect((await post(url, key, {})).status).toBe(503);
    status = 201;
    expect((await post(url, key, {})).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
  });

  it('an owner whose lease has expired writes nothing after another process has resumed the request', async () => {
    // Both transactions of the step are open at the same time; only the one of the new owner
    // commits. The old one waits for a lock, because the server would end an idle transaction.
    const LOCK = randomInt(1, 2 ** 31);
    const holder = await shop.pool.connect();
    await holder.query('SELECT pg_advisory_lock($1)', [LOCK]);
    const old = await start(
      async ({ step }, key) => {
        await step('pay', async (tx) => {
          await insert(tx, key, 1);
          await tx.query('SELECT pg_advisory_xact_lock($1)', [LOCK]);
        });
        return { status: 201, text: 'old' };
      },
      { clock: stalled },
    );
    const next = await start(
      async ({ step }, key) => {
        await step('pay', (tx) => insert(tx, key, 2));
        return { status: 201, text: 'new' };
      },
      { waitMs: 60_000 },
    );
    const key = newKey();
    const first = post(old, key, {});
    await until('a step that waits', async () => {
      const { rows } = await shop.pool.query(
        `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted`,
        [LOCK],
      );
      return rows[0].n === 1;
    });
    await expire(key);
    const second = await post(next, key, {});
    expect([second.status, second.text]).toEqual([201, 'new']);
    await holder.query('SELECT pg_advisory_unlock($1)', [LOCK]);
    holder.release();
    const refused = await first;
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
    expect(refused.problem()).toMatchObject({ type: 'urn:millrace:problem:request-taken-over' });
    const { rows } = await shop.pool.query('SELECT cents FROM payments WHERE key = $1', [key]);
    expect(rows).toEqual([{ cents: 2 }]);
    expect((await post(old, key, {})).text).toBe('new');
  });

  it('an owner that has lost its lease can neither finish the request nor change the answer', async () => {
    const { opened, open } = gate();
    let reached = false;
    const old = await start(
      async ({ step }, key) => {
        await step('pay', (tx) => insert(tx, key, 1));
        reached = true;
        await opened;
        return { status: 201, text: 'old' };
      },
      { clock: stalled },
    );
    const next = await start(
      async ({ step }, key) => {
        await step('pay', (tx) => insert(tx, key, 1));
        return { status: 201, text: 'new' };
      },
      { waitMs: 60_000 },
    );
    const key = newKey();
    const first = post(old, key, {});
    await until('a recorded step', () => reached);
    await expire(key);
    expect((await post(next, key, {})).text).toBe('new');
    open();
    expect((await first).status).toBe(503);
    expect((await post(next, key, {})).text).toBe('new');
    expect(await shop.payments(key)).toBe(1);
  });

  it.each([
    ['a pool of pg', () => shop.pool],
    ['a source of transactions', () => sourceOf(shop.pool)],
  ])(
    'each transaction of %s is ended by the server when it is idle for the lease, and none after it',
    async (_, sql) => {
      const setting = async (on: { query(text: string): Promise<pg.QueryResult> }): Promise<string> =>
        (await on.query('SHOW idle_in_transaction_session_timeout')).rows[0]
          .idle_in_transaction_session_timeout;
      const url = await start(
        async ({ step }) => ({ status: 201, text: await step('read', (tx) => setting(tx)) }),
        { sql: sql(), leaseMs: IDEMPOTENCY_DEFAULTS.leaseMs },
      );
      const seen = await post(url, newKey(), {});
      expect([seen.status, seen.text]).toEqual([201, '4s']);
      for (let n = 0; n < 6; n++) expect(await setting(shop.pool)).toBe('0');
    },
  );

  it('a step whose connection the server ends leaves nothing, and its caller is asked to repeat the request', async () => {
    const { opened, open } = gate();
    const sessions: number[] = [];
    const url = await start(async ({ step }, key) => {
      await step('pay', async (tx) => {
        await insert(tx, key, 1);
        sessions.push((await tx.query('SELECT pg_backend_pid() AS pid')).rows[0].pid);
        if (sessions.length === 1) await opened;
      });
      return { status: 201, text: 'paid' };
    });
    const key = newKey();
    const first = post(url, key, {});
    const session = await until('a step in progress', () => sessions[0]);
    await shop.pool.query('SELECT pg_terminate_backend($1)', [session]);
    const ended = await first;
    expect([ended.status, ended.headers.get('retry-after'), await shop.payments(key)]).toEqual([503, '1', 0]);
    expect(ended.problem()).toMatchObject({ type: 'urn:millrace:problem:database-unavailable' });
    expect((await post(url, key, {})).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
    open();
  });

  it('a lease that is renewed is not taken over, and other processes get 409 or wait for the answer', async () => {
    const { opened, open } = gate();
    let reached = false;
    let renew: () => void = () => {};
    const clock: Timers = {
      ...realClock,
      every: (_ms, run) => {
        renew = run;
        return () => {};
      },
    };
    const handler: Handler = async ({ step }, key) => {
      await step('pay', (tx) => insert(tx, key, 1));
      reached = true;
      await opened;
      return { status: 201, text: 'one' };
    };
    const one = await start(handler, { clock });
    const two = await start(handler, { waitMs: 0 });
    const three = await start(handler, { waitMs: 60_000 });
    const key = newKey();
    const first = post(one, key, {});
    await until('a recorded step', () => reached);
    await shop.pool.query(`UPDATE idempotency SET lease_until = now() + interval '1 s' WHERE key = $1`, [
      key,
    ]);
    renew();
    await until('a renewed lease', async () => {
      const { rows } = await shop.pool.query(
        `SELECT lease_until > now() + interval '30 s' AS renewed FROM idempotency WHERE key = $1`,
        [key],
      );
      return rows[0].renewed;
    });
    expect((await post(two, key, {})).status).toBe(409);
    const waiting = post(three, key, {});
    open();
    const [a, b] = await Promise.all([first, waiting]);
    expect([a.text, b.text, b.headers.get('idempotency-replayed')]).toEqual(['one', 'one', 'true']);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a call gets the same UUID in every attempt, and other steps and keys get others', async () => {
    const seen: string[] = [];
    let attempt = 0;
    const url = await start(async ({ call }) => {
      await call('charge', async (stepKey) => {
        seen.push(stepKey);
        if (++attempt === 1) throw new Error('the answer of the call is lost');
      });
      await call('mail', async (stepKey) => void seen.push(stepKey));
      return { status: 201, text: 'done' };
    });
    const key = newKey();
    await post(url, key, {});
    expect((await post(url, key, {})).status).toBe(201);
    await post(url, newKey(), {});
    const [charge, again, mail, other] = seen;
    expect(charge).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(again).toBe(charge);
    expect(new Set([charge, mail, other]).size).toBe(3);
  });

  it('a step without a valid name, a name used twice, and a result that is no JSON within the limit are refused', async () => {
    const codes: unknown[] = [];
    const url = await start(async ({ step }, key) => {
      const refused = (name: string, result: unknown): Promise<unknown> =>
        step(name, async (tx) => {
          await insert(tx, key, 1);
          return result;
        }).catch((error: { code?: unknown }) => codes.push(error.code));
      await refused('', 1);
      await refused('two words', 1);
      await refused('large', 'x'.repeat(64 * 1024));
      await refused('function', () => {});
      await refused('good', 1);
      await refused('good', 1);
      return { status: 201, text: 'done' };
    });
    const key = newKey();
    expect((await post(url, key, {})).status).toBe(201);
    expect(codes).toEqual(Array.from({ length: 5 }, () => 'bad_option'));
    expect(await shop.payments(key)).toBe(1);
  });

  it('a request in progress is not pruned before its lease has expired', async () => {
    const own = await openShop();
    const idem = idempotencySteps({ sql: own.pool, scope: () => 'one', ttlMs: DAY_MS });
    const add = (key: string, lease: string): Promise<unknown> =>
      own.pool.query(
        `INSERT INTO idempotency (scope, key, fingerprint, expires_at, owner, lease_until, steps)
         VALUES ('one', $1, '\\x00', now() - interval '1 s', gen_random_uuid(), now() + $2::interval, '{}')`,
        [key, lease],
      );
    await add('held', '1 hour');
    await add('left', '-1 hour');
    expect(await idem.prune()).toBe(1);
    expect((await own.records('held')).length).toBe(1);
    await idem.close();
  });
});
