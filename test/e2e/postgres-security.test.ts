/** Every command with a database and the library on a PostgreSQL that accepts TLS and SCRAM-SHA-256
 *  alone, and the errors of a wrong password, an untrusted certificate and a wrong name. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { certificate } from '../../src/devstack/certificates.ts';
import { postgresClientFiles } from '../../src/devstack/postgres/security.ts';
import type { Stack } from '../../src/devstack/stack.ts';
import { openReplication, openSql } from '../../src/drivers.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { runOrders, startOrders } from '../fixtures/orders.ts';
import { startOwned } from '../fixtures/own-stack.ts';
import { runPayments } from '../fixtures/payments.ts';
import { launcher, type Outcome } from '../fixtures/process.ts';
import { runRelay } from '../fixtures/relay.ts';
import { insert } from './relay-kit.ts';

const own = launcher();
const SCHEMA = 'secured';
const CONNECT_MS = 30_000;

let stack: Stack;
let pool: SqlPool;

beforeAll(async () => {
  stack = await startOwned(undefined, undefined, undefined, 'ssl');
  pool = await connectPool(stack.postgres, { schema: SCHEMA });
  await createTables(pool, SCHEMA, 'orders', 'relay');
});
afterAll(async () => {
  await pool?.close();
  await stack?.close();
});

const passwordOf = (): string => new URL(stack.postgres).password;
/** Fails with the log of the command unless it ended with 0. */
function done({ code, stdout, stderr }: Outcome): string {
  if (code !== 0) throw new Error(`it ended with code ${code}: ${stderr}`);
  expect(stderr, 'no secret is logged').not.toContain(passwordOf());
  return stdout;
}
const brokers = (): string => `-brokers=${stack.brokers}`;
const database = (url = stack.postgres): readonly string[] => [`-postgres=${url}`, `-schema=${SCHEMA}`];

/** The address with other parameters or parts. */
function changed(change: (url: URL) => void): string {
  const url = new URL(stack.postgres);
  change(url);
  return url.href;
}
const withParams = (params: Readonly<Record<string, string>>): string =>
  changed((url) => {
    url.search = '';
    for (const [name, value] of Object.entries(params)) url.searchParams.set(name, value);
  });

it('every session uses TLS and SCRAM-SHA-256', async () => {
  const { rows } = await pool.query<{ ssl: boolean; hash: string }>(
    `SELECT ssl, (SELECT rolpassword FROM pg_authid WHERE rolname = current_user) AS hash
     FROM pg_stat_ssl WHERE pid = pg_backend_pid()`,
  );
  expect(rows).toEqual([{ ssl: true, hash: expect.stringMatching(/^SCRAM-SHA-256\$/) }]);
  const plain = connectPool(withParams({ sslmode: 'disable' }));
  await expect(plain).rejects.toMatchObject({ code: 'postgres_unauthenticated' });
});

describe('commands with sslmode=verify-full', () => {
  it('orders, relay, payments and reconcile process each order once', async () => {
    const orders = startOrders(own, [...database(), '-migrate']);
    const key = randomUUID();
    const answer = await fetch(`http://${await orders.ready()}/orders`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      body: JSON.stringify({ account_id: '7', amount_cents: 100 }),
    });
    expect(answer.status, await answer.text()).toBe(201);
    await orders.drain();
    const topic = ['-topic=secured-orders', '-partitions=2'];
    const relay = [brokers(), ...database(), ...topic, '-wake=off', '-exit-when-drained'];
    done(await runRelay(own, [...relay, '-relay=poll']));
    const order_id = randomUUID();
    const order = { order_id, account_id: '8', amount_cents: '100', status: 'created' };
    await insert(pool, order_id, JSON.stringify({ ...order, created_at: new Date().toISOString() }));
    done(await runRelay(own, [...relay, '-relay=wal', '-slot=secured', '-migrate']));
    const group = ['-group=secured', '-migrate', '-exit-at-end'];
    done(await runPayments(own, [brokers(), ...database(), ...topic, ...group]));
    const { rows } = await pool.query<{ n: string }>('SELECT count(*)::text AS n FROM charges');
    expect(rows[0]?.n).toBe('2');
    const report = await own.run(['reconcile', ...database(), '-settle=0', '-json']);
    // The second order has no row in the table of orders, which reconcile reports.
    expect(JSON.parse(report.stdout), report.stderr).toMatchObject({ holds: false });
  });

  it('engine writes its results', async () => {
    const topic = '-topic=secured-events';
    const out = ['-out=kafka:secured-events', '-partitions=2'];
    done(await own.run(['gen', '-kind=events', '-order=delayed', '-count=2000', brokers(), ...out]));
    const sink = [`-sink=postgres:${stack.postgres}`, '-sink-table=secured_windows'];
    const state = `-state-dir=${join(own.dir, 'state')}`;
    done(await runEngine(own, [brokers(), topic, '-size=1s', state, ...sink, '-bounded', '-migrate']));
    expect((await exportedRows(own, sink)).length).toBeGreaterThan(0);
  });

  it('doctor checks the server of an address, and the stack of a folder', async () => {
    for (const where of [[`-postgres=${stack.postgres}`, brokers()], [`-dir=${stack.folder}`]]) {
      const { stdout } = await own.run(['doctor', ...where]);
      expect(stdout).toMatch(/ok +postgres\S* +PostgreSQL/);
    }
  });

  it('up prints an address that verifies the server, and keeps the setting of the folder', async () => {
    expect(stack.postgres).toContain('sslmode=verify-full&sslrootcert=');
    const { code, stderr } = await own.run(['up', `-dir=${stack.folder}`, '-postgres-security=plaintext']);
    expect(code).toBe(2);
    expect(stderr).toContain('was made with -postgres-security=ssl, not plaintext');
  });
});

describe('the library', () => {
  it.each(['require', 'verify-ca', 'verify-full'])(
    'the library connects with sslmode=%s',
    async (sslmode) => {
      const authority = sslmode === 'require' ? {} : { sslrootcert: postgresClientFiles(stack.folder).ca };
      const url = withParams({ sslmode, ...authority });
      const one = await (await openSql()).connect({
        ...{ url, connectionsMax: 1, applicationName: 'test', connectTimeoutMs: CONNECT_MS },
      });
      expect((await one.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
      await one.close();
      const replication = await (await openReplication()).connect({
        ...{ url, applicationName: 'test', connectTimeoutMs: CONNECT_MS },
      });
      expect(replication.identity.systemIdentifier).toBe(await pool.systemIdentifier());
      await replication.close();
    },
  );

  it('a client certificate proves the user', async () => {
    const files = postgresClientFiles(stack.folder);
    await pool.query('CREATE DATABASE certified');
    const { rows } = await pool.query<{ path: string }>("SELECT current_setting('hba_file') AS path");
    const rules = await pool.query<{ text: string }>('SELECT pg_read_file($1) AS text', [
      rows[0]?.path as string,
    ]);
    const path = rows[0]?.path as string;
    writeFileSync(path, `hostssl certified all 127.0.0.1/32 cert\n${rules.rows[0]?.text}`);
    await pool.query('SELECT pg_reload_conf()');
    const tls = { sslmode: 'verify-full', sslrootcert: files.ca };
    const to = (params: Readonly<Record<string, string>>): string => {
      const url = new URL(withParams(params));
      url.pathname = '/certified';
      url.password = '';
      return url.href;
    };
    const certified = await connectPool(to({ ...tls, sslcert: files.cert, sslkey: files.key }));
    await certified.close();
    await expect(connectPool(to(tls))).rejects.toMatchObject({ code: 'postgres_unauthenticated' });
  });
});

/** Runs that connect to the database, by command. */
const RUNS: Readonly<Record<string, (url: string) => Promise<Outcome>>> = {
  orders: (url) => runOrders(own, database(url)),
  'relay in poll mode': (url) => runRelay(own, [brokers(), ...database(url), '-topic=t', '-wake=off']),
  'relay in wal mode': (url) =>
    runRelay(own, [brokers(), ...database(url), '-topic=t', '-wake=off', '-relay=wal']),
  payments: (url) => runPayments(own, [brokers(), ...database(url), '-topic=t']),
  reconcile: (url) => own.run(['reconcile', ...database(url)]),
  engine: (url) =>
    runEngine(own, [
      ...[brokers(), '-topic=secured-events', '-size=1s', `-sink=postgres:${url}`],
      `-state-dir=${join(own.dir, randomUUID())}`,
    ]),
};

describe.each(Object.entries(RUNS))('errors of %s', (_name, run) => {
  it('a wrong password, an untrusted certificate and a wrong name are errors of their own', async () => {
    const password = 'wrong-zq-password';
    const unauthenticated = await run(
      changed((url) => {
        url.password = password;
      }),
    );
    expect(unauthenticated, unauthenticated.stderr).toMatchObject({ code: 2 });
    expect(unauthenticated.stderr).toContain('password authentication failed');
    expect(unauthenticated.stderr).toContain('[postgres_unauthenticated]');
    expect(unauthenticated.stderr).not.toContain(password);

    const otherCa = join(own.dir, 'other-ca.pem');
    writeFileSync(otherCa, certificate({ subject: [['CN', 'other']], authority: true }).cert);
    const untrusted = await run(changed((url) => url.searchParams.set('sslrootcert', otherCa)));
    expect(untrusted, untrusted.stderr).toMatchObject({ code: 2 });
    expect(untrusted.stderr).toContain('give the authority of the certificate of the server as sslrootcert');
    expect(untrusted.stderr).toContain('[postgres_untrusted]');
    expect(untrusted.stderr).not.toContain(passwordOf());

    // This address reaches the server, whose certificate names 127.0.0.1 and localhost.
    const misnamed = await run(
      changed((url) => {
        url.hostname = '0.0.0.0';
      }),
    );
    expect(misnamed, misnamed.stderr).toMatchObject({ code: 2 });
    expect(misnamed.stderr).toContain('connect by a name that the certificate of the server has');
    expect(misnamed.stderr).toContain('[postgres_untrusted]');
    expect(misnamed.stderr).not.toContain(passwordOf());
  });
});
