/** `millrace bench idempotency`: an idempotent endpoint of the library beside the same handler with
 *  one hand-written key table, over HTTP and the same database, in turns.
 *
 *  Both write the key and the payment in one transaction. Every new key must have one payment at
 *  the end, and every repeat the first answer. The load runs in the same process, on both sides
 *  alike; the CPU time of a request includes it.
 */
import { createHash } from 'node:crypto';
import {
  Agent,
  createServer,
  type IncomingMessage,
  type RequestListener,
  request,
  type Server,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import pg from 'pg';
import { invariant } from '../src/core/errors.ts';
import { idempotency, idempotencyTableSql } from '../src/outbox/index.ts';
import { openParts } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { type Bench, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';

const REQUESTS = 20_000;
const SMOKE_REQUESTS = 200;
/** Requests in flight, and connections of each pool. */
const CONCURRENCY = 16;
const DAY_MS = 86_400_000;

const TABLES = `
CREATE TABLE payments (id bigserial PRIMARY KEY, key text NOT NULL, cents int NOT NULL);
CREATE TABLE keys (
  key text PRIMARY KEY, hash bytea NOT NULL, status int, body text, created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
`;

type Tx = Pick<pg.ClientBase, 'query'>;

/** The handler of both sides. */
async function pay(tx: Tx, key: string, body: Buffer): Promise<string> {
  const { cents } = JSON.parse(body.toString());
  const sql = 'INSERT INTO payments (key, cents) VALUES ($1, $2) RETURNING id';
  const { rows } = await tx.query(sql, [key, cents]);
  return JSON.stringify({ id: rows[0].id, cents });
}

const JSON_HEADERS = { 'content-type': 'application/json' };

/** The peer: what a service writes by hand for the same promise, without waiting, tenants, limits
 *  and retention. */
function handWritten(pool: pg.Pool): RequestListener {
  const serve = async (req: IncomingMessage): Promise<{ status: number; body: string }> => {
    const key = String(req.headers['idempotency-key']);
    const body = await buffer(req);
    const hash = createHash('sha256').update(body).digest();
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const insert = 'INSERT INTO keys (key, hash) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING';
      if ((await client.query(insert, [key, hash])).rowCount === 0) {
        const { rows } = await client.query('SELECT hash, status, body FROM keys WHERE key = $1', [key]);
        await client.query('ROLLBACK');
        return hash.equals(rows[0].hash) ? rows[0] : { status: 409, body: '' };
      }
      const text = await pay(client, key, body);
      await client.query('UPDATE keys SET status = $2, body = $3 WHERE key = $1', [key, 201, text]);
      await client.query('COMMIT');
      return { status: 201, body: text };
    } finally {
      client.release();
    }
  };
  return (req, res) => {
    serve(req).then(
      ({ status, body }) => res.writeHead(status, JSON_HEADERS).end(body),
      () => res.writeHead(500).end(),
    );
  };
}

/** Our side. */
function ofTheLibrary(pool: pg.Pool): RequestListener {
  const idem = idempotency({ sql: pool, scope: () => 'one', ttlMs: DAY_MS });
  return idem.http(async (_req, res, { tx, key, body }) => {
    res.writeHead(201, JSON_HEADERS).end(await pay(tx, key, body as Buffer));
  });
}

async function listening(listener: RequestListener): Promise<Server> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

/** Sends one request; returns its status and body. */
function send(agent: Agent, port: number, key: string, cents: number): Promise<string> {
  const body = JSON.stringify({ cents });
  const headers = { ...JSON_HEADERS, 'idempotency-key': key, 'content-length': body.length };
  const options = { agent, port, host: '127.0.0.1', method: 'POST', path: '/payments', headers };
  return new Promise((resolve, reject) => {
    request(options, (answer) => {
      buffer(answer).then((bytes) => resolve(`${answer.statusCode} ${bytes}`), reject);
    })
      .on('error', reject)
      .end(body);
  });
}

interface Run {
  /** Answers by number of the request. */
  readonly answers: readonly string[];
  readonly perSecond: number;
  readonly cpuUs: number;
}

/** Sends `count` requests, CONCURRENCY at a time. */
async function load(port: number, count: number, keyOf: (n: number) => string): Promise<Run> {
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
  const answers: string[] = [];
  let next = 0;
  const caller = async (): Promise<void> => {
    for (let n = next++; n < count; n = next++) answers[n] = await send(agent, port, keyOf(n), n % 1000);
  };
  const cpu = process.cpuUsage();
  const started = performance.now();
  await Promise.all(Array.from({ length: CONCURRENCY }, caller));
  const seconds = (performance.now() - started) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  agent.destroy();
  return { answers, perSecond: count / seconds, cpuUs: (user + system) / count };
}

async function part(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const count = context.rows ?? (context.smoke ? SMOKE_REQUESTS : REQUESTS);
  const database = await world.database();
  const pool = new pg.Pool({ connectionString: database.url, max: CONCURRENCY });
  // `pool.end` does not wait until its connections have closed, and `drop` then terminates them.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  await pool.query(TABLES + idempotencyTableSql());
  const servers = {
    library: await listening(ofTheLibrary(pool)),
    hand: await listening(handWritten(pool)),
  };
  const cpus: Record<string, number[]> = {};
  let rounds = 0;
  let keys = 0;
  /** Measures new keys, or repeats of the keys of one earlier run. */
  const side = (name: keyof typeof servers, repeats: readonly string[] | undefined) => async () => {
    const { port } = servers[name].address() as AddressInfo;
    const prefix = `${name}-${repeats === undefined ? rounds++ : 'first'}-`;
    const run = await load(port, count, (n) => prefix + n);
    for (const [n, answer] of run.answers.entries())
      invariant(
        answer.startsWith('201 ') && (repeats === undefined || answer === repeats[n]),
        `answer ${n}: ${answer}`,
      );
    if (repeats === undefined) keys += count;
    const list = cpus[`${name} ${repeats === undefined ? 'new' : 'repeated'}`] ?? [];
    cpus[`${name} ${repeats === undefined ? 'new' : 'repeated'}`] = [...list, run.cpuUs];
    return run.perSecond;
  };
  try {
    const fresh = await takeTurns(
      { library: side('library', undefined), hand: side('hand', undefined) },
      context.repeats,
    );
    const firsts: Record<string, readonly string[]> = {};
    for (const [name, server] of Object.entries(servers)) {
      const { port } = server.address() as AddressInfo;
      firsts[name] = (await load(port, count, (n) => `${name}-first-${n}`)).answers;
      keys += count;
    }
    const repeated = await takeTurns(
      { library: side('library', firsts['library']), hand: side('hand', firsts['hand']) },
      context.repeats,
    );
    const { rows } = await pool.query(
      'SELECT count(*)::int AS n, count(DISTINCT key)::int AS keys FROM payments',
    );
    invariant(rows[0].n === keys && rows[0].keys === keys, `${rows[0].n} payments of ${keys} keys`);
    return [...resultsOf('new', fresh, cpus), ...resultsOf('repeated', repeated, cpus)];
  } finally {
    for (const server of Object.values(servers)) server.close();
    await pool.end();
    await database.drop();
  }
}

const PEER = 'the same handler with one hand-written key table';

function resultsOf(
  what: string,
  rates: Readonly<Record<'library' | 'hand', ReturnType<typeof seriesOf>>>,
  cpus: Readonly<Record<string, readonly number[]>>,
): readonly BenchResult[] {
  return [
    result({
      metric: `idempotent endpoint, ${what} keys`,
      unit: 'requests/s',
      better: 'more',
      ours: rates.library,
      against: { name: PEER, series: rates.hand },
      goal: { ratioAtLeast: 0.8 },
    }),
    result({
      metric: `idempotent endpoint, ${what} keys, CPU of server and load a request`,
      unit: 'us',
      better: 'less',
      ours: seriesOf(cpus[`library ${what}`] ?? []),
      against: { name: PEER, series: seriesOf(cpus[`hand ${what}`] ?? []) },
    }),
  ];
}

export const bench: Bench = {
  name: 'idempotency',
  summary: 'An idempotent endpoint against the same handler with one hand-written key table.',
  run: (context) => openParts(context, { endpoint: part }),
};
