/** The orders command as a process: its crash point, its deadline, its drivers, and the relays that
 *  it wakes. */
import { describe, expect, it } from 'vitest';
import { unixWake } from '../../src/io/wake/unix.ts';
import { requirePlainSchema } from '../../src/outbox/database/schema-name.ts';
import { gateBefore } from '../fixtures/gate.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  createdOf,
  LONG_LIMITS,
  leftOpen,
  logOf,
  metric,
  newKey,
  ORDER,
  ordersKit,
  post,
  problemOf,
  rowCounts,
  type Service,
  stop,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

describe('-crash-point=respond', () => {
  it('the next attempt gets the response of an order that was committed before a crash', async () => {
    const { schema, pool } = await kit.schema();
    const crashing = await kit.serve(schema, ['-crash-point=respond', '-crash-after=30']);
    const keys = Array.from({ length: 60 }, newKey);
    const lost = new Set<string>();
    const first = new Map<string, string>();
    await Promise.all(
      keys.map((key) =>
        crashing.order(key).then(
          (reply) => first.set(key, reply.body.toString()),
          () => lost.add(key),
        ),
      ),
    );
    expect(await crashing.process.ended).toEqual({ code: null, signal: 'SIGKILL' });
    const line = logOf(crashing)
      .split('\n')
      .map((one) => (one.startsWith('{') ? (JSON.parse(one) as Record<string, unknown>) : {}))
      .find((one) => one['point'] === 'respond');
    const unfinished = Number(line?.['unfinished']);
    expect(unfinished).toBeGreaterThan(0);
    const [orders] = await rowCounts(pool);
    // These orders were committed, and their responses were never sent.
    expect((orders as number) - first.size).toBeGreaterThanOrEqual(unfinished);

    const again = await kit.serve(schema);
    let replayed = 0;
    for (const key of keys) {
      const reply = await again.order(key);
      const repeats = reply.headers['idempotency-replayed'] === 'true';
      createdOf(reply, repeats);
      if (repeats) replayed++;
      if (first.has(key)) expect([repeats, reply.body.toString()]).toEqual([true, first.get(key)]);
    }
    expect(replayed).toBe(orders);
    expect(await rowCounts(pool)).toEqual([60, 60, 60]);
    await stop(again);
  });
});

describe('-deadline', () => {
  it('a request gets 504 at its deadline when the database does not answer, and its key gets an outcome later', async () => {
    const gate = await gateBefore(stack.postgres);
    const { schema, pool } = await kit.schema();
    const service = await kit.serve(schema, ['-deadline=15s', '-inflight-wait=3s'], gate.url);
    createdOf(await service.order(newKey()), false);
    gate.swallowAnswers();
    const key = newKey();
    const replies = await Promise.all([service.order(key), service.order(key)]);
    for (const reply of replies) expect(reply.status).toBe(504);
    expect(JSON.parse(replies[0]?.body.toString() ?? '')).toMatchObject({
      type: expect.stringMatching(/:deadline-passed$/),
      detail: expect.stringMatching(/same key/),
    });
    // Read the counter now: the requests below may increase it.
    expect(await metric(service, 'orders_deadline_passed_total')).toBe(2);
    gate.cut();
    const reply = await until('an answer', async () => {
      const one = await service.order(key);
      return one.status === 201 ? one : undefined;
    });
    createdOf(reply, reply.headers['idempotency-replayed'] === 'true');
    expect(await rowCounts(pool)).toEqual([2, 2, 2]);
    await stop(service);
  });
});

describe('committed order', () => {
  it('a committed order wakes the relays of its own outbox on this host, and no others', async () => {
    const [one, two] = [await kit.schema(), await kit.schema()];
    const woken = [0, 0];
    const database = new URL(stack.postgres).pathname.slice(1);
    const systemIdentifier = await one.pool.systemIdentifier();
    const listeners = await Promise.all(
      [one, two].map(({ schema }, i) =>
        unixWake.listen({ systemIdentifier, database, table: `${schema}.outbox` }, () => {
          woken[i] = (woken[i] as number) + 1;
        }),
      ),
    );
    const service = await kit.serve(one.schema);
    const untilWoken = (count: number): Promise<true> =>
      until(`wake ${count}`, async () => ((woken[0] as number) >= count ? true : undefined));
    // The first wake comes from the connection, which may be established after a commit.
    await untilWoken(1);
    createdOf(await service.order(newKey()), false);
    await untilWoken(2);
    const key = newKey();
    createdOf(await service.order(key), false);
    await untilWoken(3);
    // A replay commits nothing, so the next wake belongs to the order behind it.
    createdOf(await service.order(key), true);
    createdOf(await service.order(newKey()), false);
    await untilWoken(4);
    expect(woken).toEqual([4, 0]);
    await stop(service);
    await Promise.all(listeners.map((listener) => listener.close()));
  });

  it('a committed order carries the trace context of its request', async () => {
    const { schema, pool } = await kit.schema();
    const service = await kit.serve(schema);
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    for (const value of [traceparent, 'no trace']) {
      const asked = post(newKey());
      const reply = await service.ask({ ...asked, headers: { ...asked.headers, traceparent: value } });
      createdOf(reply, false);
    }
    const { rows } = await pool.query('SELECT traceparent FROM outbox ORDER BY id');
    expect(rows).toEqual([{ traceparent }, { traceparent: null }]);
    await stop(service);
  });
});

describe('-sql and -batch', () => {
  it.each([
    ['-sql=pg', 'pg', []],
    ['-sql=native', 'pg-native', []],
    ['-sql=native', 'pg-native', ['-batch=off']],
    ['-sql=pg', 'pg', ['-batch=off', '-connections=3']],
    ['-sql=auto', 'pg', ['-native=off']],
  ] as const)('orders with %s writes the same through the driver %s: %j', async (flag, driver, more) => {
    const { schema, pool } = await kit.schema();
    const service = await kit.serve(schema, [flag, '-queue-wait-max=1m', ...LONG_LIMITS, ...more]);
    expect(logOf(service)).toMatch(new RegExp(`"port":"sql","driver":"${driver}"`));
    // A batch times out on a lock, but not in a trigger: no order is written until all are
    // requested.
    await pool.query(`
      CREATE FUNCTION wait_while_shut() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
        BEGIN
          PERFORM pg_advisory_xact_lock_shared(hashtextextended(TG_TABLE_SCHEMA, 0));
          RETURN NULL;
        END $$;
      CREATE TRIGGER shut BEFORE INSERT ON orders EXECUTE FUNCTION wait_while_shut()`);
    const open = await leftOpen(pool, (session) =>
      session.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [schema]),
    );
    const keys = Array.from({ length: 40 }, newKey);
    const first = keys.map((key) => service.order(key));
    await until('all requests in flight', async () =>
      (await metric(service, 'orders_in_flight')) === 40 ? true : undefined,
    );
    const again = keys.map((key) => service.order(key));
    await open();
    const replies = await Promise.all([...first, ...again]);
    expect(replies.map((reply) => reply.status)).toEqual(replies.map(() => 201));
    expect(replies.filter((reply) => reply.headers['idempotency-replayed'] === 'false')).toHaveLength(40);
    for (const [i, key] of keys.entries()) {
      createdOf(
        replies[i] as (typeof replies)[number],
        replies[i]?.headers['idempotency-replayed'] === 'true',
      );
      expect(replies[i + 40]?.body.equals(replies[i]?.body as Buffer)).toBe(true);
      problemOf(await service.order(key, { ...ORDER, account_id: 8 }), 409, 'idempotency-key-reuse');
    }
    expect(await rowCounts(pool)).toEqual([40, 40, 40]);
    const transactions = await metric(service, 'orders_transaction_rows_count');
    if ((more as readonly string[]).includes('-batch=off')) expect(transactions).toBe(40);
    else expect(transactions).toBeLessThan(40);
    await stop(service);
  });

  it.each([
    ['-batch=many', /^error: -batch=many is not adaptive, off or a number from 1 to 1000/],
    ['-batch=1001', /-batch=1001 is not/],
    ['-key-ttl=1m', /-key-ttl is 60000ms, shorter than -deadline \+ -inflight-wait \+ 1m = 75000ms/],
    ['-sql=odbc', /-sql/],
    ['-crash-point=publish', /-crash-point/],
    ['-key-ttl-change', /-key-ttl-change has no -key-ttl to change to/],
    ['-crash-after=1', /-crash-after changes nothing without -crash-point/],
    ['-batch=5 -budget=9ms', /-budget changes nothing without -batch=adaptive/],
    ['-tls-client-auth=optional', /-tls-client-auth changes nothing without -tls-client-ca/],
    [
      '-schema=pg_x',
      /^error: -schema=pg_x names a schema that PostgreSQL keeps for itself; .*\[bad_value\]$/,
    ],
  ])('the orders command refuses %s', (flags, line) => kit.fails(2, line, flags.split(' ')));

  it('a schema name is refused as a keyword exactly if the server refuses it unquoted', async () => {
    const { pool } = await kit.schema();
    const { rows } = await pool.query<{ word: string; reserved: boolean }>(
      "SELECT word, catcode IN ('R', 'T') AS reserved FROM pg_get_keywords()",
    );
    const refused = rows.filter(({ word }) => {
      try {
        requirePlainSchema(word);
        return false;
      } catch {
        return true;
      }
    });
    expect(refused.map(({ word }) => word)).toEqual(
      rows.filter(({ reserved }) => reserved).map(({ word }) => word),
    );
  });

  it.each(['headers', 'traceparent'])(
    'orders names the migration that a table of an older release without %s lacks',
    async (column) => {
      const { schema, pool } = await kit.schema();
      await stop(await kit.serve(schema));
      await pool.query(`ALTER TABLE outbox DROP COLUMN ${column}`);
      const error = new RegExp(`has no column ${column}; run \`millrace orders -migrate -schema=`);
      await kit.fails(3, error, [`-schema=${schema}`]);
    },
  );
});

describe('-key-ttl', () => {
  const TTL = 'orders_key_ttl_seconds';

  it('the key TTL is the same for all processes on a database, until it is changed for all', async () => {
    const { schema, pool } = await kit.schema();
    const first = await kit.serve(schema, ['-key-ttl=10d', '-maintenance-interval=50ms']);
    const at = `-schema=${schema}`;
    await kit.fails(
      2,
      /-key-ttl is 1728000000ms, but schema .* keeps keys for 864000000ms, .*-key-ttl-change/,
      [at, '-key-ttl=20d'],
    );
    // The stored TTL must be valid for the flags of the process, too.
    await kit.fails(2, /-key-ttl is 864000000ms, shorter than -deadline/, [at, '-inflight-wait=11d']);
    const second = await kit.serve(schema);
    expect(await metric(second, TTL)).toBe(864_000);
    const key = newKey();
    createdOf(await first.order(key), false);
    await pool.query("UPDATE idempotency_keys SET created_at = now() - interval '2 days'");
    await stop(second);
    const third = await kit.serve(schema, ['-key-ttl=1d', '-key-ttl-change', '-maintenance-interval=50ms']);
    await until('the new TTL in the first process', async () =>
      (await metric(first, TTL)) === 86_400 ? true : undefined,
    );
    expect(logOf(first)).toContain('another process changed -key-ttl for all');
    const expired = (service: Service) => metric(service, 'orders_keys_expired_total');
    await until('expiry of the key', async () =>
      (await expired(first)) + (await expired(third)) === 1 ? true : undefined,
    );
    // Neither the database nor a replay cache has the key any more.
    createdOf(await first.order(key), false);
    await Promise.all([stop(first), stop(third)]);
  });
});
