/** Options of idempotent endpoints, sources of transactions, waiting across processes, retention
 *  and hostile records, on a real database. */
import { createServer } from 'node:http';
import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { Metrics } from '../../src/core/metrics.ts';
import { freePort } from '../../src/devstack/ports.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import {
  type EndpointAnswer,
  fingerprint,
  type IdempotencyOptions,
  idempotency,
  idempotencyTableSql,
  idempotent,
} from '../../src/outbox/index.ts';
import { until } from '../wait.ts';
import { atEnd, DAY_MS, newKey, openShop, pay, post, type Shop, startShop } from './idempotency-kit.ts';

let shop: Shop;
beforeAll(async () => {
  shop = await openShop();
});

const urn = (code: string): string => `urn:millrace:problem:${code}`;

/** Application that waits until `open` is called. */
function gated() {
  let open: () => void = () => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let entered = 0;
  const app: typeof pay = async (tx, key, body) => {
    entered++;
    await gate;
    return pay(tx, key, body);
  };
  return { app, open: () => open(), entered: () => entered };
}

describe('a request whose key is in flight', () => {
  it('a second process waits for the first one and replays its answer', async () => {
    const { app, open, entered } = gated();
    const metrics = new Metrics();
    const one = await startShop('node:http', shop, {}, app);
    const two = await startShop('node:http', shop, { metrics }, app);
    const key = newKey();
    const first = post(one.url, key, { cents: 5 });
    await until('the first handler', () => entered() === 1);
    const second = post(two.url, key, { cents: 5 });
    await until('a waiting request', () => metricOf(metrics, 'idempotency_waiting') === 1);
    open();
    const [a, b] = await Promise.all([first, second]);
    expect([a.status, b.status, b.text, b.headers.get('idempotency-replayed')]).toEqual([
      201,
      201,
      a.text,
      'true',
    ]);
    expect([entered(), await shop.payments(key)]).toEqual([1, 1]);
    expect(metricOf(metrics, 'idempotency_requests_total', 'replayed')).toBe(1);
  });

  it('callers in both processes get 409 with Retry-After where requests do not wait, and the first is not disturbed', async () => {
    const { app, open, entered } = gated();
    const one = await startShop('node:http', shop, { waitMs: 0 }, app);
    const two = await startShop('express', shop, { waitMs: 0 }, app);
    const key = newKey();
    const first = post(one.url, key, { cents: 5 });
    await until('the first handler', () => entered() === 1);
    for (const { url } of [one, two]) {
      const refused = await post(url, key, { cents: 5 });
      expect([refused.status, refused.headers.get('retry-after')]).toEqual([409, '1']);
      expect(refused.problem()).toMatchObject({ type: urn('idempotency-in-flight'), status: 409 });
    }
    open();
    expect((await first).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a caller whose wait is over gets 503 with Retry-After', async () => {
    const { app, open, entered } = gated();
    const one = await startShop('node:http', shop, { waitMs: 50 }, app);
    const two = await startShop('node:http', shop, { waitMs: 50 }, app);
    const key = newKey();
    const first = post(one.url, key, { cents: 5 });
    await until('the first handler', () => entered() === 1);
    for (const { url } of [one, two]) {
      const refused = await post(url, key, { cents: 5 });
      expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
      expect(refused.problem()).toMatchObject({ type: urn('idempotency-in-flight') });
    }
    open();
    expect((await first).status).toBe(201);
  });

  it('another body is refused while the first request is in flight', async () => {
    const { app, open, entered } = gated();
    const one = await startShop('node:http', shop, {}, app);
    const key = newKey();
    const first = post(one.url, key, { cents: 5 });
    await until('the first handler', () => entered() === 1);
    expect((await post(one.url, key, { cents: 6 })).status).toBe(409);
    open();
    expect((await first).status).toBe(201);
  });

  it('a waiting request executes itself when the first one fails', async () => {
    let calls = 0;
    const { app, open, entered } = gated();
    const failing: typeof pay = async (tx, key, body) => {
      const reply = await app(tx, key, body);
      if (++calls === 1) throw new Error('the first attempt fails');
      return reply;
    };
    const one = await startShop('node:http', shop, {}, failing);
    const key = newKey();
    const both = [post(one.url, key, { cents: 5 }), post(one.url, key, { cents: 5 })];
    await until('the first handler', () => entered() === 1);
    open();
    expect((await Promise.all(both)).map(({ status }) => status).sort()).toEqual([201, 500]);
    expect(await shop.payments(key)).toBe(1);
  });
});

/** Value of a metric, of one label where given. */
function metricOf(metrics: Metrics, name: string, label?: string): number | undefined {
  const found = metrics.snapshot().find((one) => one.name === name);
  return found?.samples.find(({ labels }) => label === undefined || Object.values(labels)[0] === label)
    ?.value;
}

describe('options of an idempotent endpoint', () => {
  it('reusedStatus 422 answers a key with another request as the IETF draft does', async () => {
    const at = await startShop('node:http', shop, { reusedStatus: 422 });
    const key = newKey();
    await post(at.url, key, { cents: 5 });
    const refused = await post(at.url, key, { cents: 6 });
    expect([refused.status, refused.problem()['status']]).toEqual([422, 422]);
  });

  it('a fingerprint selects the parts that make two requests the same', async () => {
    const at = await startShop('express', shop, { fingerprint: ({ request }) => [request.body.cents] });
    const key = newKey();
    const first = await post(at.url, key, { cents: 5, at: 1 });
    expect((await post(at.url, key, { at: 2, cents: 5 })).text).toBe(first.text);
    expect((await post(at.url, key, { cents: 6, at: 1 })).status).toBe(409);
  });

  it('the status filter decides which answers are stored; all others are rolled back', async () => {
    const at = await startShop('node:http', shop, { stores: (status) => status === 503 });
    const key = newKey();
    const first = await post(at.url, key, { cents: 5, fault: 'refuses' });
    const again = await post(at.url, key, { cents: 5, fault: 'refuses' });
    expect([first.status, again.status, again.text]).toEqual([503, 503, first.text]);
    expect(await shop.payments(key)).toBe(1);
    const unstored = newKey();
    expect((await post(at.url, unstored, { cents: 5 })).status).toBe(201);
    expect([await shop.payments(unstored), await shop.records(unstored)]).toEqual([0, []]);
  });

  it('a listed header with several values is replayed with all of them', async () => {
    const at = await startShop('node:http', shop, { headers: ['Set-Cookie', 'x-internal'] });
    const key = newKey();
    await post(at.url, key, { cents: 5 });
    const again = await post(at.url, key, { cents: 5 });
    expect(again.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
    expect([again.headers.get('x-internal'), again.headers.get('location')]).toEqual(['yes', null]);
  });

  it.each(['node:http', 'hono'] as const)(
    'a body above the limit is refused by %s before it is held',
    async (framework) => {
      const at = await startShop(framework, shop);
      const key = newKey();
      const large = await post(at.url, key, { cents: 5, fill: 'x'.repeat(2000) });
      expect([large.status, large.problem()['type']]).toEqual([413, urn('body-too-large')]);
      expect(await shop.payments(key)).toBe(0);
    },
  );

  it('a body of unknown length is refused at the limit', async () => {
    const at = await startShop('node:http', shop);
    const body = new ReadableStream({
      start(controller) {
        for (let i = 0; i < 20; i++) controller.enqueue(new Uint8Array(100));
        controller.close();
      },
    });
    const headers = { 'idempotency-key': newKey() };
    const init = { method: 'POST', headers, body, duplex: 'half' } as RequestInit;
    expect((await fetch(`${at.url}/payments`, init)).status).toBe(413);
  });

  it('a request without a tenant is refused with 500, and nothing is executed', async () => {
    const errors: unknown[] = [];
    const scope = (): string => '';
    const at = await startShop('node:http', shop, { scope, onError: (error) => errors.push(error) });
    const key = newKey();
    const refused = await post(at.url, key, { cents: 5 });
    expect([refused.status, refused.problem()['type'], errors.length]).toEqual([500, urn('internal'), 1]);
    expect(await shop.payments(key)).toBe(0);
  });

  it('a database that does not answer is 503 with Retry-After, and the handler is not called', async () => {
    const pool = new pg.Pool({ connectionString: `postgres://nobody@127.0.0.1:${await freePort()}/none` });
    atEnd(() => pool.end());
    const at = await startShop('node:http', shop, { sql: pool });
    const refused = await post(at.url, newKey(), { cents: 5 });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1']);
    expect(refused.problem()).toMatchObject({ type: urn('database-unavailable') });
  });
});

describe('transactions of an idempotent endpoint', () => {
  it('the handler runs in the transaction of the record, which the server ends when it is idle too long', async () => {
    let seen: Readonly<Record<string, string>> = {};
    const at = await startShop('node:http', shop, { leaseMs: 3000 }, async (tx, key, body) => {
      const { rows } = await tx.query(
        `SELECT current_setting('idle_in_transaction_session_timeout') AS idle, xmin::text AS record,
           (pg_current_xact_id()::text::bigint & 4294967295)::text AS mine FROM idempotency WHERE key = $1`,
        [key],
      );
      seen = rows[0];
      return pay(tx, key, body);
    });
    expect((await post(at.url, newKey(), { cents: 5 })).status).toBe(201);
    expect([seen['idle'], seen['record']]).toEqual(['3s', seen['mine']]);
    const { rows } = await shop.pool.query('SHOW idle_in_transaction_session_timeout');
    expect(rows[0].idle_in_transaction_session_timeout).toBe('0');
  });

  it('a connection that is cut in the transaction is 503, frees the key, and ends no process', async () => {
    const { app, open, entered } = gated();
    let pid = 0;
    const at = await startShop('node:http', shop, {}, async (tx, key, body) => {
      pid = (await tx.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
      return app(tx, key, body);
    });
    const key = newKey();
    const cut = post(at.url, key, { cents: 5 });
    await until('the handler', () => entered() === 1);
    await shop.pool.query('SELECT pg_terminate_backend($1)', [pid]);
    expect((await cut).status).toBe(503);
    open();
    expect((await post(at.url, key, { cents: 5 })).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a handler that ends the transaction itself is refused with 500', async () => {
    const at = await startShop('node:http', shop, {}, async (tx, key, body) => {
      const reply = await pay(tx, key, body);
      await tx.query('ROLLBACK');
      return reply;
    });
    const key = newKey();
    expect((await post(at.url, key, { cents: 5 })).status).toBe(500);
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
  });

  it('the key is claimed with the BEGIN, and the stored answer is read with the COMMIT', async () => {
    const pool = new pg.Pool({ connectionString: shop.url, max: 1 });
    atEnd(() => pool.end());
    pool.on('error', () => {});
    const texts: string[] = [];
    pool.on('connect', (client) => {
      const { query } = client;
      client.query = ((...args: Parameters<typeof query>) => {
        texts.push(String(args[0]).trim().replaceAll(/\s+/g, ' '));
        return Reflect.apply(query, client, args);
      }) as typeof query;
    });
    const at = await startShop('node:http', shop, { sql: pool });
    // The first request of a service prunes in the background.
    await post(at.url, newKey(), { cents: 5 });
    await until('the end of the pruning', () => texts.filter((text) => text === 'COMMIT').length === 2);
    texts.length = 0;
    const key = newKey();
    const first = await post(at.url, key, { cents: 5 });
    expect(first.status).toBe(201);
    expect(texts.map((text) => text.split(' ', 3).join(' '))).toEqual([
      'BEGIN; INSERT INTO',
      'INSERT INTO payments',
      'UPDATE idempotency SET',
      'COMMIT',
    ]);
    texts.length = 0;
    const again = await post(at.url, key, { cents: 5 });
    expect([again.text, again.headers.get('idempotency-replayed')]).toEqual([first.text, 'true']);
    expect(texts).toEqual([
      expect.stringMatching(/^BEGIN; INSERT /),
      expect.stringMatching(/^SELECT .*; COMMIT$/),
    ]);
  });

  it('scopes and keys of any characters are texts, whatever SQL would make of them', async () => {
    const scope = (req: { readonly headers: Readonly<Record<string, unknown>> }): string =>
      decodeURIComponent(String(req.headers['x-tenant']));
    const pool = await pgDriver.connect({
      url: shop.url,
      connectionsMax: 1,
      applicationName: 'test',
      connectTimeoutMs: 60_000,
    });
    atEnd(() => pool.close());
    const fused = await startShop('node:http', shop, { scope });
    const plain = await startShop('node:http', shop, { scope, sql: pool as never });
    const tenants = [
      "o'neil",
      "a'; DROP TABLE payments; --",
      'back\\slash',
      "\\'; SELECT 1; --",
      '$1 $2',
      "ü€ 'x",
      "''",
      '\\',
    ];
    for (const [n, tenant] of tenants.entries()) {
      const key = `k'${n}\\$1;--`;
      const headers = { 'x-tenant': encodeURIComponent(tenant) };
      const first = await post(fused.url, key, { cents: 5 }, headers);
      expect(first.status, tenant).toBe(201);
      for (const at of [fused, plain]) {
        const again = await post(at.url, key, { cents: 5 }, headers);
        expect([again.text, again.headers.get('idempotency-replayed')], tenant).toEqual([first.text, 'true']);
      }
      expect((await post(fused.url, key, { cents: 6 }, headers)).status).toBe(409);
      expect((await shop.records(key)).map((row) => row['scope'])).toEqual([tenant]);
    }
  });

  it('a statement that failed within the handler rolls back, though the handler answers', async () => {
    const at = await startShop('node:http', shop, {}, async (tx, key, body) => {
      const reply = await pay(tx, key, body);
      await tx.query('SELECT 1 / 0').catch(() => {});
      return reply;
    });
    const key = newKey();
    expect((await post(at.url, key, { cents: 5 })).status).toBe(500);
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
  });

  it('a pool of the SQL port and a function with an adapter open the transactions too', async () => {
    const port = await pgDriver.connect({
      url: shop.url,
      connectionsMax: 2,
      applicationName: 'idempotency',
      connectTimeoutMs: 60_000,
    });
    atEnd(() => port.close());
    // A client in the manner of a query builder: other names, rows without a result object.
    const builder = {
      transaction: async <T>(
        work: (trx: { raw(text: string, values: unknown[]): Promise<pg.QueryResult> }) => Promise<T>,
      ) => {
        const client = await shop.pool.connect();
        try {
          await client.query('BEGIN');
          const value = await work({ raw: (text, values) => client.query(text, values) });
          await client.query('COMMIT');
          return value;
        } catch (thrown) {
          await client.query('ROLLBACK');
          throw new Error('wrapped by the client', { cause: thrown });
        } finally {
          client.release();
        }
      },
    };
    const sources: Record<string, IdempotencyOptions<{ query?: unknown; raw?: unknown }>['sql']> = {
      port: port as never,
      builder: {
        transaction: (work) =>
          builder.transaction((trx) => work(trx, { query: (text, values) => trx.raw(text, values) })),
      },
    };
    for (const [name, sql] of Object.entries(sources)) {
      const idem = idempotency({ sql, scope: () => name, ttlMs: DAY_MS });
      const handler = idem.http((_req, res, { tx, key, body }) => {
        const { fault } = JSON.parse(String(body));
        const run = (tx.query ?? tx.raw) as (text: string, values: unknown[]) => Promise<unknown>;
        return run.call(tx, 'INSERT INTO payments (key, cents) VALUES ($1, 1)', [key]).then(() => {
          if (fault === 'throws') throw new Error('the handler failed');
          res.writeHead(fault === 'refuses' ? 503 : 201).end(name);
        });
      });
      const server = createServer(handler).listen(0, '127.0.0.1');
      await until('a server', () => server.listening);
      atEnd(() => server.close());
      const url = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
      const key = newKey();
      const statuses = [];
      for (const fault of ['throws', 'refuses', 'none'])
        statuses.push((await post(url, key, { cents: 1, fault })).status);
      expect([name, ...statuses]).toEqual([name, 500, 503, 201]);
      const again = await post(url, key, { cents: 1, fault: 'none' });
      expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([
        201,
        name,
        'true',
      ]);
      expect(await shop.payments(key)).toBe(1);
    }
  });

  it('a source whose transaction has no query is refused, and nothing is executed', async () => {
    const errors: Error[] = [];
    const sql = { transaction: (work: (tx: never) => Promise<never>) => work({ raw: 1 } as never) };
    const at = await startShop('node:http', shop, { sql, onError: (error) => errors.push(error as Error) });
    expect((await post(at.url, newKey(), { cents: 1 })).status).toBe(500);
    expect(errors[0]?.message).toContain('has no query');
  });
});

describe('idempotent', () => {
  const answer: EndpointAnswer = {
    status: 201,
    headers: [['location', '/a']],
    body: Buffer.from([0, 255, 10]),
  };

  it('the record and the effect commit with the transaction of the caller, and later callers replay', async () => {
    const key = newKey();
    const request = { scope: 'one', key, parts: ['pay', 5], ttlMs: DAY_MS };
    const client = await shop.pool.connect();
    const effect = (): Promise<EndpointAnswer> => pay(client, key, { cents: 5 }).then(() => answer);
    await client.query('BEGIN');
    expect(await idempotent(client, request, effect)).toEqual({ kind: 'done', answer });
    const other = await shop.pool.connect();
    await other.query('BEGIN');
    expect(await idempotent(other, request, effect)).toEqual({ kind: 'in_flight' });
    await client.query('ROLLBACK');
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
    await client.query('BEGIN');
    await idempotent(client, request, effect);
    await client.query('COMMIT');
    expect(await idempotent(other, request, effect)).toEqual({ kind: 'replayed', answer });
    await expect(idempotent(other, { ...request, parts: ['pay', 6] }, effect)).rejects.toMatchObject({
      code: 'idempotency_key_reused',
    });
    await other.query('ROLLBACK');
    for (const one of [client, other]) one.release();
    expect(await shop.payments(key)).toBe(1);
  });

  it('an effect that fails leaves a transaction that can only be rolled back', async () => {
    const key = newKey();
    const client = await shop.pool.connect();
    await client.query('BEGIN');
    const failing = idempotent(client, { scope: 'one', key, parts: [1], ttlMs: DAY_MS }, async () => {
      await pay(client, key, { cents: 5 });
      throw new Error('the effect failed');
    });
    await expect(failing).rejects.toThrow('the effect failed');
    expect((await client.query('COMMIT')).command).toBe('ROLLBACK');
    client.release();
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
  });

  it('a call outside of a transaction, with an invalid key or scope, is refused and writes nothing', async () => {
    const request = { scope: 'one', key: newKey(), parts: [1], ttlMs: DAY_MS };
    const effect = async (): Promise<EndpointAnswer> => answer;
    const client = await shop.pool.connect();
    await expect(idempotent(shop.pool, request, effect)).rejects.toMatchObject({
      code: 'not_in_transaction',
    });
    await expect(idempotent(client, request, effect)).rejects.toMatchObject({ code: 'not_in_transaction' });
    await client.query('BEGIN');
    for (const [change, code] of [
      [{ key: 'a b' }, 'bad_idempotency_key'],
      [{ scope: '' }, 'bad_option'],
      [{ scope: 'x'.repeat(256) }, 'bad_option'],
      [{ scope: 'a\0' }, 'bad_option'],
      [{ table: 'a; DROP TABLE payments' }, 'bad_table_name'],
    ] as const)
      await expect(idempotent(client, { ...request, ...change }, effect)).rejects.toMatchObject({ code });
    await client.query('ROLLBACK');
    client.release();
    expect(await shop.records(request.key)).toEqual([]);
  });
});

describe('records of keys', () => {
  it('a stored header that would add a header is never replayed', async () => {
    const at = await startShop('node:http', shop);
    const key = newKey();
    await post(at.url, key, { cents: 5 });
    for (const headers of [
      '[["location","/a\\r\\nset-cookie: evil=1"]]',
      '[["location"]]',
      'no json',
      '{}',
    ]) {
      await shop.pool.query('UPDATE idempotency SET headers = $2 WHERE key = $1', [key, headers]);
      const refused = await post(at.url, key, { cents: 5 });
      expect([refused.status, refused.headers.getSetCookie()]).toEqual([500, []]);
    }
    // A header that the list of today does not name is left out.
    await shop.pool.query('UPDATE idempotency SET headers = $2 WHERE key = $1', [
      key,
      '[["set-cookie","evil=1"],["location","/a"]]',
    ]);
    const again = await post(at.url, key, { cents: 5 });
    expect([again.status, again.headers.getSetCookie(), again.headers.get('location')]).toEqual([
      201,
      [],
      '/a',
    ]);
  });

  it('expired keys are deleted in batches without waiting for locked rows, and all others stay', async () => {
    const own = await openShop();
    await own.pool.query(
      `INSERT INTO idempotency (scope, key, fingerprint, status, headers, body, expires_at)
       SELECT 'a', n::text, '\\x00', 201, '[]', '', now() + (CASE WHEN n <= 2500 THEN -1 ELSE 1 END) * interval '1 hour'
       FROM generate_series(1, 2600) AS n`,
    );
    const metrics = new Metrics();
    const idem = idempotency({ sql: own.pool, scope: () => 'a', ttlMs: DAY_MS, metrics });
    const holder = await own.pool.connect();
    await holder.query('BEGIN');
    await holder.query(`SELECT FROM idempotency WHERE key = '7' FOR UPDATE`);
    expect(await idem.prune()).toBe(2499);
    expect(metricOf(metrics, 'idempotency_pruned_total')).toBe(2499);
    await holder.query('ROLLBACK');
    holder.release();
    expect(await idem.prune()).toBe(1);
    const { rows } = await own.pool.query('SELECT count(*)::int AS n FROM idempotency');
    expect(rows[0].n).toBe(100);
    await idem.close();
  });

  it('requests prune in the background, and an expired key executes again', async () => {
    const own = await openShop();
    const at = await startShop('node:http', own, { ttlMs: DAY_MS });
    const key = newKey();
    await post(at.url, key, { cents: 5 });
    const [row = {}] = await own.records(key);
    const kept = Number(row['expires_at']) - Number(row['created_at']);
    expect(Math.abs(kept - DAY_MS)).toBeLessThan(60_000);
    await own.pool.query(`UPDATE idempotency SET expires_at = now() - interval '1 s'`);
    // A new process prunes after its first request.
    const next = await startShop('node:http', own, { ttlMs: DAY_MS });
    await post(next.url, newKey(), { cents: 5 });
    await until('a pruned key', async () => (await own.records(key)).length === 0);
    expect((await post(next.url, key, { cents: 5 })).headers.get('idempotency-replayed')).toBe('false');
    expect(await own.payments(key)).toBe(2);
  });

  it('the table has the columns of its DDL under any plain name with a schema', async () => {
    await shop.pool.query(idempotencyTableSql(`${shop.schema}.keys_of_shop`));
    const idem = idempotency({
      sql: shop.pool,
      scope: () => 'a',
      ttlMs: DAY_MS,
      table: `${shop.schema}.keys_of_shop`,
    });
    expect(await idem.prune()).toBe(0);
    expect(() => idempotencyTableSql('Keys')).toThrow(/plain name/);
    expect(fingerprint(['a']).length).toBe(32);
  });
});
