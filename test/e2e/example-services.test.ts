/** The example services of examples/, each on a real broker and database: as their READMEs use
 *  them, and with SIGKILL of the server and of the worker, at the points between two steps of an
 *  order and at random moments, while clients repeat their requests. MILLRACE_TEST_SEED seeds the
 *  moments. */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { SeededRandom } from '../../src/sim/clock.ts';
import { ownDatabase } from '../fixtures/database.ts';
import { plainRecords } from '../fixtures/plain-client.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  EXAMPLES,
  type ExampleName,
  type ExampleProcess,
  installExamples,
  type Placed,
  persist,
  place,
  runScript,
  startChargeProvider,
  startScript,
} from './example-services-kit.ts';

const SEED = Number(process.env['MILLRACE_TEST_SEED'] ?? 1) || 1;
const DRAIN_MS = 300_000;
const ORDERS = 8;
const RANDOM_ORDERS = 60;
const CALLERS = 2;

const project = mkdtempSync(join(tmpdir(), 'millrace-services-'));
beforeAll(() => installExamples(project));
afterAll(() => rmSync(project, { recursive: true, force: true }));

/** Number of rows, or another whole number that a query returns as `n`. */
async function count(pool: pg.Pool, query: string): Promise<number> {
  return (await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM ${query}`)).rows[0]?.n as number;
}

/** Statements that begin with this text and wait for a lock. */
const blocked = (pool: pg.Pool, beginning: string): Promise<number> =>
  count(
    pool,
    `pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
       AND query ~* '^\\s*(WITH .*)?${beginning}'`,
  );

/** Blocks all writes to a table until the returned function is called. */
async function hold(pool: pg.Pool, table: string): Promise<() => Promise<void>> {
  const holder = await pool.connect();
  await holder.query(`BEGIN; LOCK TABLE ${table} IN SHARE MODE`);
  return async () => {
    await holder.query('ROLLBACK');
    holder.release();
  };
}

/** Ends the sessions that wait for a lock: the server would finish the statement of a killed
 *  client, and a statement without BEGIN commits by itself. */
async function endBlocked(pool: pg.Pool): Promise<void> {
  const waiting = `wait_event_type = 'Lock' AND datname = current_database()`;
  await until('the end of blocked sessions', async () => {
    await pool.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${waiting}`);
    return (await count(pool, `pg_stat_activity WHERE ${waiting}`)) === 0;
  });
}

/** A service with a database of its own, and what its clients know. */
class World {
  readonly folder: string;
  readonly pool: pg.Pool;
  readonly brokers: string;
  readonly topic: string;
  readonly port: number;
  readonly env: Readonly<Record<string, string>>;
  /** Answers, by idempotency key. */
  readonly answers = new Map<string, Placed[]>();

  private constructor(name: ExampleName, url: string, brokers: string, ports: readonly [number, number]) {
    this.folder = join(project, name);
    this.pool = new pg.Pool({ connectionString: url, max: 4 });
    this.brokers = brokers;
    this.topic = `orders-${randomUUID()}`;
    this.port = ports[0];
    this.env = {
      DATABASE_URL: url,
      KAFKA_BROKERS: brokers,
      ORDERS_TOPIC: this.topic,
      METRICS_PORT: String(ports[1]),
    };
  }

  static async open(name: ExampleName): Promise<World> {
    const { postgres, brokers } = await sharedStack();
    const url = await ownDatabase(postgres, `shop_${randomUUID().replaceAll('-', '')}`);
    const world = new World(name, url, brokers, [await freePort(), await freePort()]);
    expect(await runScript(world.folder, 'migrate', world.env)).toBe('migrated\n');
    return world;
  }

  server = (): Promise<ExampleProcess> =>
    startScript(this.folder, 'server', { ...this.env, PORT: String(this.port) });

  worker = (provider: string): Promise<ExampleProcess> =>
    startScript(this.folder, 'worker', { ...this.env, PROVIDER_URL: provider });

  /** Sends orders of new keys, each by several clients that repeat it. */
  async order(orders: number, onAnswer: () => void = () => {}): Promise<void> {
    const clients = Array.from({ length: orders }, () => randomUUID()).flatMap((key, index) =>
      Array.from({ length: CALLERS }, async () => {
        const answer = await persist(this.port, key, 100 + index);
        this.remember(key, answer);
        onAnswer();
      }),
    );
    await Promise.all(clients);
  }

  remember(key: string, answer: Placed): void {
    this.answers.set(key, [...(this.answers.get(key) ?? []), answer]);
  }

  text = async (port: string | number, path: string): Promise<string> =>
    (await fetch(`http://127.0.0.1:${port}${path}`)).text();

  invoiced = (): Promise<number> => count(this.pool, 'invoices');

  /** Waits until every order is charged and every row has left its queue. */
  async drained(): Promise<void> {
    const open = `(SELECT id FROM orders o WHERE NOT EXISTS (SELECT FROM invoices WHERE order_id = o.id AND charge IS NOT NULL)
      UNION ALL SELECT msg_id FROM order_outbox WHERE published_at IS NULL
      UNION ALL SELECT effect_id FROM effects WHERE state <> 'done') AS open`;
    await until('the charges of all orders', async () => (await count(this.pool, open)) === 0, DRAIN_MS);
  }

  /** Compares intents with effects in SQL, and by the script of the README. */
  async expectOneEffectEach(charges: ReadonlyMap<string, number>): Promise<void> {
    for (const [key, answers] of this.answers) {
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size, key).toBe(1);
      expect(answers[0]?.status).toBe(201);
    }
    const answered = [...this.answers.values()].map(([first]) => JSON.parse((first as Placed).text).id);
    const { rows } = await this.pool.query<Record<string, string | number>>(
      `SELECT o.id, o.cents,
         (SELECT count(*)::int FROM order_outbox WHERE aggregate_id = o.id) AS events,
         (SELECT count(*)::int FROM invoices WHERE order_id = o.id) AS invoices,
         (SELECT count(*)::int FROM effects WHERE key = o.id::text AND state = 'done') AS effects,
         (SELECT min(effect_id::text) FROM effects WHERE key = o.id::text) AS effect,
         (SELECT min(charge) FROM invoices WHERE order_id = o.id) AS charge
       FROM orders o`,
    );
    expect(rows.map(({ id }) => id).sort()).toEqual(answered.sort());
    expect(
      rows.filter((row) => row['events'] !== 1 || row['invoices'] !== 1 || row['effects'] !== 1),
    ).toEqual([]);
    for (const table of ['order_outbox', 'invoices', 'invoice_inbox', 'effects', 'idempotency'])
      expect([table, await count(this.pool, table)]).toEqual([table, rows.length]);
    expect(await count(this.pool, 'invoice_parked')).toBe(0);
    const charged = new Map(rows.map(({ effect, cents }) => [String(effect), Number(cents)] as const));
    expect(new Map([...charges].sort())).toEqual(new Map([...charged].sort()));
    expect(rows.every(({ charge, effect }) => String(charge).includes(String(effect)))).toBe(true);
    // Exits with 1 if the tables differ, which rejects.
    await runScript(this.folder, 'reconcile', this.env);
  }
}

/** Lines that are no complaint: of readiness, and of kafkajs, which logs each attempt to join a
 *  group as an error. */
const EXPECTED = /^(listening|working|.*"logger":"kafkajs".*|)$/;

/** Ends processes with SIGTERM. Returns their complaints. */
async function endAll(...processes: readonly ExampleProcess[]): Promise<readonly string[]> {
  const printed: string[] = [];
  for (const one of processes) {
    const [code, output] = await one.stop();
    expect([code, output]).toEqual([0, output]);
    printed.push(...output.split('\n').filter((line) => !EXPECTED.test(line)));
  }
  return printed;
}

describe.each(EXAMPLES)('the example %s', (name) => {
  if (name === 'nestjs-typeorm')
    beforeAll(async () => {
      expect(await runScript(join(project, name), 'build')).toBe('');
    });

  it('an order is placed, invoiced and charged as the README shows, and a repeat gets its answer', async () => {
    const world = await World.open(name);
    const providerPort = await freePort();
    const provider = await startScript(world.folder, 'provider', { PORT: String(providerPort), LOST: '0' });
    const url = `http://127.0.0.1:${providerPort}`;
    const [server, worker] = [await world.server(), await world.worker(url)];
    const first = await place(world.port, 'first', 1200);
    expect([first.status, first.isReplay]).toEqual([201, false]);
    const again = await place(world.port, 'first', 1200);
    expect([again.status, again.text, again.isReplay]).toEqual([201, first.text, true]);
    expect((await place(world.port, 'first', 1300)).status).toBe(409);
    expect((await place(world.port, 'second', 0)).status).toBe(400);
    await world.drained();
    const { id } = JSON.parse(first.text) as { readonly id: string };
    const found = JSON.parse(await world.text(world.port, `/orders/${id}`));
    expect(found).toEqual({ id, cents: 1200, charge: 'ch_1' });
    expect(JSON.parse(await world.text(providerPort, '/charges'))).toEqual([{ id: 'ch_1', cents: 1200 }]);
    expect(await world.text(world.port, '/metrics')).toMatch(
      /^idempotency_requests_total\{outcome="replayed"\} 1$/m,
    );
    expect(await world.text(world.env['METRICS_PORT'] as string, '/metrics')).toMatch(
      /^effect_attempts_total\{.*\} 1$/m,
    );
    expect(await endAll(server, worker, provider)).toEqual([]);
    await runScript(world.folder, 'reconcile', world.env);
    await world.pool.end();
  });

  it('one intent has one effect through SIGKILL of server and worker at each step and at random moments', async () => {
    const world = await World.open(name);
    const { pool } = world;
    const provider = await startChargeProvider();
    const random = new SeededRandom(SEED);
    const between = (from: number, to: number): number => from + Math.floor(random.fraction() * (to - from));

    // The server, in the transaction of a handler.
    let server = await world.server();
    let release = await hold(pool, 'order_outbox');
    let ordering = world.order(ORDERS);
    await until(
      'a handler that appends',
      async () => (await blocked(pool, '.*INSERT INTO order_outbox')) > 0,
    );
    await server.kill();
    server = await world.server();
    await release();
    await ordering;

    // The server, after the commit; the client has no answer.
    const lost = place(world.port, 'lost', 700).catch(() => undefined);
    const stored = `idempotency WHERE key = 'lost' AND status IS NOT NULL`;
    await until('a stored answer', async () => (await count(pool, stored)) === 1);
    await server.kill();
    await lost;
    server = await world.server();
    const replayed = await persist(world.port, 'lost', 700);
    expect(replayed.isReplay).toBe(true);
    world.remember('lost', replayed);

    // The worker, between the publication of events and their marks.
    release = await hold(pool, 'order_outbox');
    provider.after = () => 'silence';
    let worker = await world.worker(provider.url);
    await until('invoices of all orders', async () => (await world.invoiced()) === ORDERS + 1);
    expect(await count(pool, 'order_outbox WHERE published_at IS NOT NULL')).toBe(0);
    // And in calls of the provider, which has acted and does not answer.
    await until('calls of the provider', () => provider.calls() > 0);
    await worker.kill();
    await endBlocked(pool);
    await release();

    // The worker, after an answer of the provider and before its commit.
    provider.after = () => 'answer';
    release = await hold(pool, 'invoices');
    worker = await world.worker(provider.url);
    await until('an answer that is not committed', async () => (await blocked(pool, 'UPDATE invoices')) > 0);
    await worker.kill();
    await release();

    // The worker, in the transaction of an event.
    worker = await world.worker(provider.url);
    await world.drained();
    release = await hold(pool, 'invoices');
    ordering = world.order(ORDERS);
    await until(
      'an effect in its transaction',
      async () => (await blocked(pool, 'INSERT INTO "?invoices')) > 0,
    );
    await worker.kill();
    await release();
    await ordering;

    // Both, at random moments.
    provider.after = () => (random.fraction() < 0.2 ? 'cut' : 'answer');
    worker = await world.worker(provider.url);
    let answers = 0;
    ordering = world.order(RANDOM_ORDERS, () => {
      answers++;
    });
    const total = RANDOM_ORDERS * CALLERS;
    for (const share of [0.2, 0.4, 0.6]) {
      const moment = between(Math.floor((share - 0.15) * total), Math.floor(share * total));
      await until('an answer at which the server is killed', () => answers >= moment);
      await server.kill();
      server = await world.server();
    }
    const before = 2 * ORDERS + 1;
    for (const share of [0.3, 0.8]) {
      const moment =
        before + between(Math.floor((share - 0.3) * RANDOM_ORDERS), Math.floor(share * RANDOM_ORDERS));
      await until('an invoice at which the worker is killed', async () => (await world.invoiced()) >= moment);
      await worker.kill();
      worker = await world.worker(provider.url);
    }
    await ordering;
    await world.drained();
    await endAll(server, worker);

    await world.expectOneEffectEach(provider.charges);
    expect(world.answers.size).toBe(before + RANDOM_ORDERS);
    // The kills did lead to repeats.
    const records = await plainRecords(world.brokers, world.topic);
    expect(new Set(records.map(({ headers }) => headers.get('ce_id'))).size).toBe(world.answers.size);
    expect(records.length).toBeGreaterThan(world.answers.size + ORDERS);
    expect(provider.calls()).toBeGreaterThan(provider.charges.size);
    await world.pool.end();
  });
});
