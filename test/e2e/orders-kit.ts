/** Test kit for real orders processes: a schema for each test, raw HTTP requests, and transactions
 *  that stay open. */
import { randomUUID } from 'node:crypto';
import { Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { afterAll, expect, onTestFinished } from 'vitest';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { gate } from '../contract/http-harness.ts';
import { connectPool } from '../fixtures/database.ts';
import { freshPage } from '../fixtures/metrics.ts';
import { runOrders, startOrders } from '../fixtures/orders.ts';
import { type Launcher, type Running, withDefaults } from '../fixtures/process.ts';

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface Ask {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

export interface Service {
  readonly process: Running;
  readonly address: string;
  ask(what: Ask): Promise<Reply>;
  /** Sends POST /orders with this key. */
  order(key: string, body?: unknown): Promise<Reply>;
}

export const ORDER = { account_id: 7, amount_cents: 1999 } as const;
export const newKey = (): string => randomUUID();

function ask(agent: Agent, address: string, what: Ask): Promise<Reply> {
  const { method = 'GET', path = '/', headers = {}, body } = what;
  const [host, port] = address.split(':') as [string, string];
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
    const sent = request(
      { host, port, method, path, headers: { ...length, ...headers }, agent },
      (answer) => {
        buffer(answer).then(
          (bytes) => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: bytes }),
          reject,
        );
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

export function post(key: string, body: unknown = ORDER): Ask {
  return {
    method: 'POST',
    path: '/orders',
    headers: { 'content-type': 'application/json', 'idempotency-key': key },
    body: JSON.stringify(body),
  };
}

export interface Kit {
  /** Creates a pool for a schema name that no other test uses. The schema itself does not exist
   *  yet. */
  schema(): Promise<{ readonly schema: string; readonly pool: SqlPool }>;
  /** Starts `millrace orders` on a free port. The process need not become ready. */
  start(flags: readonly string[], postgres?: string): Running;
  /** Starts a service and waits until it is ready. */
  serve(schema: string, flags?: readonly string[], postgres?: string): Promise<Service>;
  /** Asserts that a start with these flags fails with this exit code and one line on stderr. */
  fails(code: number, line: RegExp, flags: readonly string[]): Promise<void>;
}

/** Time limits for tests in which requests must still wait when the test checks them late. */
export const LONG_LIMITS = ['-inflight-wait=60s', '-deadline=80s', '-drain-timeout=120s'] as const;

export function ordersKit(own: Launcher, postgres: string): Kit {
  const pools: SqlPool[] = [];
  const agents: Agent[] = [];
  let count = 0;
  afterAll(async () => {
    for (const agent of agents) agent.destroy();
    await Promise.all(pools.map((pool) => pool.close()));
  });
  const start = (flags: readonly string[], at = postgres): Running =>
    startOrders(own, withDefaults([`-postgres=${at}`], flags));
  return {
    start,
    async fails(code, line, flags) {
      const ended = await runOrders(
        own,
        withDefaults([`-postgres=${postgres}`], [...flags, '-log-level=silent']),
      );
      const lines = ended.stderr.split('\n').filter((one) => one !== '' && !one.startsWith('listening on '));
      expect([ended.code, lines]).toEqual([code, [expect.stringMatching(line)]]);
      expect(ended.stdout).toBe('');
    },
    async schema() {
      const schema = `orders_${own.suffix}_${count++}`;
      const pool = await connectPool(postgres, { schema, connections: 4 });
      pools.push(pool);
      return { schema, pool };
    },
    async serve(schema, flags = [], at = postgres) {
      const process = start([`-schema=${schema}`, '-migrate', ...flags], at);
      const address = await process.ready();
      const agent = new Agent({ keepAlive: true, maxSockets: 64 });
      agents.push(agent);
      return {
        process,
        address,
        ask: (what) => ask(agent, address, what),
        order: (key, body) => ask(agent, address, post(key, body)),
      };
    },
  };
}

/** Drains the service.
 *  @throws unless it exits with 0 */
export const stop = (service: Service): Promise<void> => service.process.drain();

export const logOf = ({ process }: Pick<Service, 'process'>): string => process.log();

/** Returns a /metrics page that is rendered after the call. */
export const pageOf = (service: Service): Promise<string> =>
  freshPage(async () => (await service.ask({ path: '/metrics' })).body.toString());

/** Returns the sum over the series of a metric. */
export async function metric(service: Service, name: string): Promise<number> {
  const text = await pageOf(service);
  return [...text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (.*)$`, 'gm'))].reduce(
    (sum, one) => sum + Number(one[1]),
    0,
  );
}

/** Returns the number of rows in orders, idempotency_keys and outbox. */
export async function rowCounts(pool: SqlPool): Promise<readonly number[]> {
  const { rows } = await pool.query<{ o: bigint; k: bigint; x: bigint }>(
    'SELECT (SELECT count(*) FROM orders) o, (SELECT count(*) FROM idempotency_keys) k, (SELECT count(*) FROM outbox) x',
  );
  const row = rows[0] as { o: bigint; k: bigint; x: bigint };
  return [Number(row.o), Number(row.k), Number(row.x)];
}

/** Asserts an RFC 9457 problem document with our two extension members, and returns it. */
export function problemOf(reply: Reply, status: number, type: string): Record<string, unknown> {
  const text = reply.body.toString('utf8');
  expect([reply.status, text]).toEqual([status, expect.stringContaining(`"urn:orders:problem:${type}"`)]);
  expect(reply.headers['content-type']).toBe('application/problem+json');
  const document = JSON.parse(text) as Record<string, unknown>;
  expect(document).toMatchObject({
    type: `urn:orders:problem:${type}`,
    title: expect.stringMatching(/^[A-Z].{5,}[^.]$/),
    status,
    detail: expect.stringMatching(/.{5,}/),
    instance: expect.any(String),
    request_id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
  });
  expect(reply.headers['x-request-id']).toBe(document['request_id']);
  expect(reply.headers['retry-after']).toBe(status === 429 || status === 503 ? '1' : undefined);
  return document;
}

export function createdOf(reply: Reply, replayed: boolean): string {
  const text = reply.body.toString('utf8');
  expect([reply.status, text]).toEqual([
    201,
    expect.stringMatching(/^\{"order_id":"[^"]{36}","status":"created"\}$/),
  ]);
  const orderId = (JSON.parse(text) as { order_id: string }).order_id;
  expect(reply.headers['content-type']).toBe('application/json');
  expect(reply.headers['location']).toBe(`/orders/${orderId}`);
  expect(reply.headers['idempotency-replayed']).toBe(String(replayed));
  expect(reply.headers['idempotent-replayed']).toBe(replayed ? 'true' : undefined);
  return orderId;
}

/** Runs `work` in a transaction that stays open, like a slow transaction of another process.
 *  Returns a function that ends the transaction. It is rolled back at the end of the test at the
 *  latest, because an open transaction keeps its pool from closing. */
export async function leftOpen(
  pool: SqlPool,
  work: (session: SqlSession) => Promise<unknown>,
): Promise<(commits?: boolean) => Promise<void>> {
  let decide: (commits: boolean) => void = () => {};
  const decided = new Promise<boolean>((resolve) => {
    decide = resolve;
  });
  const done = gate();
  const ended = pool
    .transaction(async (session) => {
      await work(session);
      done.open();
      if (!(await decided)) throw new Error('rolled back on purpose');
    })
    .catch((thrown: unknown) => {
      if (!String(thrown).includes('on purpose')) throw thrown;
    });
  const end = (commits = false): Promise<void> => {
    decide(commits);
    return ended;
  };
  onTestFinished(() => end());
  await Promise.race([done.opened, ended]);
  return end;
}

/** Inserts these keys in an open transaction. Returns a function that rolls it back. */
export const holdKeys = (pool: SqlPool, ...keys: readonly string[]): Promise<() => Promise<void>> =>
  leftOpen(pool, (session) =>
    session.query(
      `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
       SELECT key, '', gen_random_uuid(), 201, '{}' FROM unnest($1::text[]) AS key`,
      [keys],
    ),
  );

export const lockTable = (pool: SqlPool, table: string): Promise<() => Promise<void>> =>
  leftOpen(pool, (session) => session.query(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`));
