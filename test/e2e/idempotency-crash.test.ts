/** Callers of one key race on two server processes while one of them is killed or paused. Every
 *  example of docs/how-to/idempotent-endpoints.md is such a server. */
import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { newKey } from './idempotency-kit.ts';
import { type ExampleServer, runExample, startExample } from './idempotency-processes.ts';

const CALLERS = 64;
const AUTHORIZATION = 'Bearer token-of-one';

let url: string;
let pool: pg.Pool;

beforeAll(async () => {
  const { postgres } = await sharedStack();
  const schema = `idem_${randomBytes(5).toString('hex')}`;
  url = withSettings(postgres, { schema });
  pool = new pg.Pool({ connectionString: url, max: 4 });
  await pool.query(`CREATE SCHEMA ${schema}`);
  await runExample('tables', url);
  afterAll(async () => {
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.end();
  });
});

const paid = async (cents: number): Promise<number> =>
  (await pool.query('SELECT count(*)::int AS n FROM payments WHERE cents = $1', [cents])).rows[0].n;

/** Sends one request; a connection that ends without an answer rejects. Returns status and body. */
type Ask = (port: number, key: string, cents: number) => Promise<readonly [status: number, body: string]>;

const askHttp: Ask = async (port, key, cents) => {
  const response = await fetch(`http://127.0.0.1:${port}/payments`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': key, authorization: AUTHORIZATION },
    body: JSON.stringify({ cents }),
  });
  return [response.status, await response.text()];
};

const clients = new Map<number, Client>();
afterAll(() => {
  for (const client of clients.values()) client.close();
});
const proto = fileURLToPath(new URL('../../examples/idempotent-endpoints/payments.proto', import.meta.url));
const create = (loadSync(proto)['shop.Payments'] as unknown as Record<string, GrpcMethod>)[
  'Create'
] as GrpcMethod;
interface GrpcMethod {
  readonly path: string;
  readonly requestSerialize: (value: object) => Buffer;
}

const askGrpc: Ask = (port, key, cents) => {
  const client = clients.get(port) ?? new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  clients.set(port, client);
  const metadata = new Metadata();
  metadata.set('idempotency-key', key);
  metadata.set('authorization', AUTHORIZATION);
  return new Promise((resolve, reject) => {
    const answer = (error: { code: number } | null, reply?: Buffer): void => {
      // UNAVAILABLE and INTERNAL: the connection ended without an answer.
      if (error === null) resolve([201, (reply as Buffer).toString('hex')]);
      else if (error.code === 14 || error.code === 13) reject(error);
      else resolve([error.code, '']);
    };
    client.makeUnaryRequest(
      create.path,
      create.requestSerialize,
      (bytes) => bytes,
      { cents },
      metadata,
      answer,
    );
  });
};

/** Repeats the request on the servers in turn until one answers with a final status. */
async function persist(
  ask: Ask,
  servers: () => readonly number[],
  key: string,
  cents: number,
  caller: number,
) {
  let turn = caller;
  return until('a final answer', async () => {
    const ports = servers();
    const [status, body] = await ask(ports[turn++ % ports.length] as number, key, cents);
    return status === 503 ? undefined : ([status, body] as const);
  });
}

/** Holds all inserts of payments until the returned function is called. */
async function holdPayments(): Promise<() => Promise<void>> {
  const holder = await pool.connect();
  await holder.query('BEGIN');
  await holder.query('LOCK TABLE payments IN SHARE MODE');
  return async () => {
    await holder.query('ROLLBACK');
    holder.release();
  };
}

const blocked = async (statement: 'INSERT INTO' | 'UPDATE'): Promise<number> =>
  (
    await pool.query(
      `SELECT count(*)::int AS n FROM pg_stat_activity
       WHERE wait_event_type = 'Lock' AND query LIKE $1 AND datname = current_database()`,
      [`${statement} payments%`],
    )
  ).rows[0].n;
const blockedInserts = (): Promise<number> => blocked('INSERT INTO');

let cents = 0;

describe.each([
  ['http', askHttp, 3],
  ['express', askHttp, 1],
  ['fastify', askHttp, 1],
  ['hono', askHttp, 1],
  ['nest', askHttp, 1],
  ['grpc', askGrpc, 1],
] as const)('the example of %s', (name, ask, rounds) => {
  it('64 callers of one key on two servers get one answer and one payment through a SIGKILL of each', async () => {
    const servers: ExampleServer[] = await Promise.all([startExample(name, url), startExample(name, url)]);
    const ports = (): readonly number[] => servers.map(({ port }) => port);
    for (let round = 0; round < rounds; round++) {
      const amount = ++cents;
      const key = newKey();
      const release = await holdPayments();
      const callers = Array.from({ length: CALLERS }, (_, i) => persist(ask, ports, key, amount, i));
      await until('a handler in its transaction', async () => (await blockedInserts()) > 0);
      // Kills both servers in turn, so that the one whose handler is in its transaction is among
      // them.
      for (const index of [0, 1]) {
        const old = servers[index] as ExampleServer;
        servers[index] = await startExample(name, url);
        await old.kill();
      }
      await release();
      const answers = await Promise.all(callers);
      expect(new Set(answers.map(([, body]) => body)).size).toBe(1);
      expect(new Set(answers.map(([status]) => status))).toEqual(new Set([201]));
      expect(await paid(amount)).toBe(1);
    }
    for (const server of servers) await server.kill();
  });
});

describe('a server that is paused in its transaction', () => {
  it('another server executes after the lease, and the paused one writes nothing when it resumes', async () => {
    const one = await startExample('express', url);
    const two = await startExample('express', url);
    const amount = ++cents;
    const key = newKey();
    const release = await holdPayments();
    const first = askHttp(one.port, key, amount).catch(() => [0, ''] as const);
    await until('a handler in its transaction', async () => (await blockedInserts()) === 1);
    one.child.kill('SIGSTOP');
    // The insert takes effect in the transaction of the paused server, which then is idle.
    await release();
    const [status] = await persist(askHttp, () => [two.port], key, amount, 0);
    expect([status, await paid(amount)]).toEqual([201, 1]);
    one.child.kill('SIGCONT');
    expect((await first)[0]).toBe(503);
    expect(await paid(amount)).toBe(1);
    await Promise.all([one.kill(), two.kill()]);
  });
});

describe('the example with recovery points', () => {
  let provider: Server;
  /** Keys that the provider received, and what it waits for. */
  const charges: string[] = [];
  let answering = Promise.resolve();

  beforeAll(async () => {
    provider = createServer(async (req, res) => {
      charges.push(String(req.headers['idempotency-key']));
      await answering;
      res.end('receipt');
    });
    await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve));
    afterAll(() => {
      provider.closeAllConnections();
      provider.close();
    });
  });

  /** Two servers, the first of which has called the provider for a request; `answer` lets it
   *  answer. */
  async function startCalled() {
    charges.length = 0;
    let answer: () => void = () => {};
    answering = new Promise((resolve) => {
      answer = resolve;
    });
    const env = { PROVIDER: `http://127.0.0.1:${(provider.address() as AddressInfo).port}` };
    const one = await startExample('steps', url, env);
    const two = await startExample('steps', url, env);
    const amount = ++cents;
    const key = newKey();
    const first = askHttp(one.port, key, amount).catch(() => [0, ''] as const);
    await until('a call of the provider', () => charges.length === 1);
    return { one, two, answer, amount, key, first };
  }

  it.each(['SIGKILL', 'SIGSTOP'] as const)(
    'another server resumes after %s between two steps, repeats no step and calls with the same key',
    async (signal) => {
      const { one, two, answer, amount, key, first } = await startCalled();
      one.child.kill(signal);
      const others = Array.from({ length: CALLERS }, (_, i) =>
        persist(askHttp, () => [two.port], key, amount, i),
      );
      await until('a second call of the provider', () => charges.length === 2);
      answer();
      const answers = await Promise.all(others);
      expect(new Set(answers.map(([status, body]) => `${status} ${body}`)).size).toBe(1);
      expect(answers[0]?.[1]).toContain('"receipt":"receipt"');
      expect(await paid(amount)).toBe(1);
      expect(new Set(charges).size).toBe(1);
      one.child.kill('SIGCONT');
      expect((await first)[0]).toBe(signal === 'SIGKILL' ? 0 : 503);
      expect([await paid(amount), charges.length]).toEqual([1, 2]);
      await Promise.all([one.kill(), two.kill()]);
    },
  );

  it('another server completes the request after SIGSTOP within a step that holds the lock of a row', async () => {
    const { one, two, answer, amount, key, first } = await startCalled();
    const release = await holdPayments();
    answer();
    await until('the last step in its transaction', async () => (await blocked('UPDATE')) === 1);
    one.child.kill('SIGSTOP');
    // The update takes effect in the transaction of the paused server, which then is idle and holds
    // the lock of the payment that the last step of the other server updates.
    await release();
    const [status, body] = await persist(askHttp, () => [two.port], key, amount, 0);
    expect([status, await paid(amount), charges.length]).toEqual([201, 1, 1]);
    expect(body).toContain('"receipt":"receipt"');
    one.child.kill('SIGCONT');
    expect((await first)[0]).toBe(503);
    expect(await paid(amount)).toBe(1);
    await Promise.all([one.kill(), two.kill()]);
  });
});
