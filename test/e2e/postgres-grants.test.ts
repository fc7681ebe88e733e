/** The statements of docs/how-to/operate.md on a database whose rights were taken from PUBLIC: each
 *  process works under its own role, the query of the growth sees every table, and nothing is left
 *  after the removal. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { openDrivers } from '../../src/drivers.ts';
import { append } from '../../src/outbox/append/events.ts';
import { effect } from '../../src/outbox/effects/add.ts';
import { effectRefused } from '../../src/outbox/effects/handler.ts';
import { Service } from '../../src/outbox/service.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { openPool, ownDatabase } from '../fixtures/database.ts';
import { runEngine } from '../fixtures/engine.ts';
import { startOrders } from '../fixtures/orders.ts';
import { runPayments } from '../fixtures/payments.ts';
import { launcher, type Outcome, type Running } from '../fixtures/process.ts';
import { runRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const PAGE = readFileSync(join(packageRoot(), 'docs', 'how-to', 'operate.md'), 'utf8');
const PASSWORD = 'grants-zq-password';
const PARTS = { outboxTable: 'sent', inbox: 'received', parkedTable: 'aside', effectsTable: 'calls' };
const ORDERS = 40;

const own = launcher();
const stack = await sharedStack();
/** Database, its first schema, and the beginning of all roles: what the page calls `shop`. */
const shop = `grants_${own.suffix}`;
const admin = await openPool(await ownDatabase(stack.postgres, shop), { name: 'grants test' });

/** Statements of a section of the page, with the names of this test. */
function statements(heading: string): readonly string[] {
  const section = `${PAGE}\n## `.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const blocks = [...section.matchAll(/^( *)```sql\n([\s\S]*?)^\1```/gm)];
  return blocks.map(([, , sql = '']) => sql.replaceAll(/\bshop/g, shop));
}

/** Connections of a process by the end of its role, in the order of the page. */
function connections(): ReadonlyMap<string, number> {
  const roles = ['orders', 'relay', 'payments', 'parcels', 'effects', 'reconcile', 'windows'];
  const section = PAGE.split('\n## Connections and rates\n')[1]?.split('\n## ')[0] ?? '';
  const numbers = [...section.matchAll(/^\| .* \| (\d+) \|/gm)].map(([, number]) => Number(number));
  expect(numbers).toHaveLength(roles.length);
  return new Map(roles.map((role, row) => [role, numbers[row] as number]));
}

/** Address of the database for a role of the page. */
function urlOf(role: string): string {
  const url = new URL(stack.postgres);
  url.pathname = `/${shop}`;
  url.username = `${shop}_${role}`;
  url.password = PASSWORD;
  return url.href;
}

const as = (role: string, ...flags: readonly string[]): readonly string[] => [
  `-postgres=${urlOf(role)}`,
  `-schema=${shop}`,
  ...flags,
];
const brokers = `-brokers=${stack.brokers}`;
const topic = [`-topic=${shop}`, '-partitions=2'];

const REFUSAL = /permission denied|must be owner|too many connections|one sequence that the relay may read/;
/** Fails with the log of a command unless it ended with 0 and was refused nothing. */
function done({ code, stdout, stderr }: Outcome): string {
  if (code !== 0 || REFUSAL.test(stderr)) throw new Error(`it ended with code ${code}: ${stderr}`);
  return stdout;
}

async function count(what: string): Promise<number> {
  const { rows } = await admin.query<{ n: number }>(`SELECT count(*)::int AS n FROM ${what}`);
  return (rows[0] as { n: number }).n;
}

const partitions = (table: string): Promise<number> =>
  count(`pg_inherits WHERE inhparent = '${table}'::regclass`);

const relay = (...flags: readonly string[]): Promise<Outcome> =>
  runRelay(own, [brokers, ...as('relay', ...topic, '-wake=off', '-exit-when-drained', ...flags)]);
const payments = (...flags: readonly string[]): Promise<Outcome> => {
  const outbox = [`-outbox-postgres=${urlOf('payments')}`, `-outbox-table=${shop}.outbox`];
  const group = [`-group=${shop}`, '-exit-at-end'];
  return runPayments(own, [brokers, ...as('payments', ...topic, ...group, ...outbox, ...flags)]);
};

/** Sends orders, and returns the ledger of their client. */
async function order(address: string, seed: number): Promise<string> {
  const ledger = join(own.dir, `ledger-${seed}.jsonl`);
  const flags = [`-target=http://${address}`, `-count=${ORDERS}`, `-seed=${seed}`, `-ledger=${ledger}`];
  done(await own.run(['load', ...flags]));
  return ledger;
}

/** Runs a service of the library until one event had its effect and one became a dead letter. */
async function runService(): Promise<void> {
  const service = await Service.open({
    ...{ ...(await openDrivers()), name: 'parcels', log: silentLogger },
    ...{ brokers: stack.brokers, postgres: urlOf('parcels'), schema: `${shop}_parcels` },
  });
  await service.migrate([], PARTS);
  await service.relay({ table: PARTS.outboxTable, topic: `${shop}-parcels` });
  service.consume({
    ...PARTS,
    topic: `${shop}-parcels`,
    handle: async (tx, { msgId, value }) => {
      const { payload } = JSON.parse(Buffer.from(value ?? []).toString()) as { readonly payload: string };
      await effect(tx, PARTS.effectsTable, { name: 'call', key: payload, input: payload, id: msgId });
    },
  });
  const call = async ({ input }: { readonly input: unknown }): Promise<string> => {
    if (input === 'refused') throw effectRefused('the third party refused');
    return 'done';
  };
  service.effects({ ...PARTS, handlers: { call: { call } } });
  await service.pool.transaction((tx) =>
    append(
      tx,
      PARTS.outboxTable,
      ['accepted', 'refused'].map((payload) => ({
        aggregateId: payload,
        eventType: 'parcel.sent.v1',
        payload,
      })),
    ),
  );
  await until('both effects', async () => {
    const ended = await count(`${shop}_parcels.calls WHERE state IN ('done', 'dead')`);
    return ended === 2 && (await partitions(`${shop}_parcels.received`)) > 3;
  });
  await service.close();
}

describe('grants of docs/how-to/operate.md', () => {
  const [roles, ofOrders, ofAll] = statements('Rights in PostgreSQL') as [string, string, string];
  const ledgers: string[] = [];
  let orders: Running;
  let address: string;

  it('each process migrates and works under its role', async () => {
    await admin.query(`REVOKE ALL ON DATABASE ${shop} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC`);
    await admin.query(roles);
    const named = [...roles.matchAll(/CREATE ROLE (\w+)/g)].map(([, role]) => role as string);
    const limits = connections();
    expect(named.sort()).toEqual([...limits.keys()].map((role) => `${shop}_${role}`).sort());
    // A migration has one more connection.
    for (const [role, limit] of limits)
      await admin.query(`ALTER ROLE ${shop}_${role} PASSWORD '${PASSWORD}' CONNECTION LIMIT ${limit + 1}`);

    orders = startOrders(own, as('orders', '-migrate'));
    address = await orders.ready();
    // The migration makes the first partition and the default one.
    await until('partitions of the outbox', async () => (await partitions(`${shop}.outbox`)) > 2);
    ledgers.push(await order(address, 1));
    await admin.query(ofOrders);
    done(await relay('-migrate'));
    done(await payments('-migrate'));
    expect(await count(`${shop}.charges`)).toBe(ORDERS);
    await runService();
  });

  it('a relay in either mode and payments work without the right to migrate', async () => {
    await admin.query(ofAll);
    ledgers.push(await order(address, 2));
    done(await relay('-relay=wal', `-publication=${shop}_outbox`));
    done(await payments());
    expect(await count(`${shop}.charges`)).toBe(2 * ORDERS);

    const [pending] = statements('Backup and restore') as [string];
    await admin.query(pending.replace(/'.*'/, `'-infinity'`));
    expect(await count(`${shop}.outbox WHERE published_at IS NULL`)).toBe(2 * ORDERS);
    done(await relay());
    done(await payments());
    expect(await count(`${shop}.payments_suppressed`)).toBe(2 * ORDERS);
    expect(await count(`${shop}.charges`)).toBe(2 * ORDERS);
    expect(await partitions(`${shop}.inbox`)).toBeGreaterThan(3);
    await orders.drain();
    expect(orders.log()).not.toMatch(REFUSAL);
  });

  it('reconcile, effects and an engine work under their roles', async () => {
    done(await own.run(['reconcile', ...as('reconcile', `-ledger=${ledgers.join()}`)]));
    const pair = [`-outbox-table=${shop}_parcels.sent`, `-inbox-table=${shop}_parcels.received`];
    done(await own.run(['reconcile', ...as('reconcile', ...pair)]));

    const effects = [`-postgres=${urlOf('effects')}`, `-schema=${shop}_parcels`, '-table=calls'];
    expect(done(await own.run(['effects', 'list', ...effects]))).toContain('the third party refused');
    expect(done(await own.run(['effects', 'redrive', ...effects, '-all']))).toContain('1 dead letters');

    const out = [`-out=kafka:${shop}-events`, '-partitions=2'];
    done(await own.run(['gen', '-kind=events', '-order=delayed', '-count=2000', brokers, ...out]));
    const sink = [`-sink=postgres:${urlOf('windows')}`, `-state-dir=${join(own.dir, 'state')}`];
    const job = [`-topic=${shop}-events`, '-size=1s', '-bounded', '-migrate'];
    done(await runEngine(own, [brokers, ...job, ...sink]));
    expect(await count(`${shop}_windows.window_results`)).toBeGreaterThan(0);
  });

  it('the query of the growth counts the rows and the bytes of each table', async () => {
    const [growth] = statements('Growth') as [string];
    await admin.query('ANALYZE');
    const { rows } = await admin.query(growth);
    const outbox = { table: 'outbox', rows: BigInt(2 * ORDERS), bytes: expect.any(BigInt) };
    expect(rows).toContainEqual(expect.objectContaining(outbox));
    expect(rows).toContainEqual(expect.objectContaining({ table: 'orders', rows: BigInt(2 * ORDERS) }));
  });

  it('the removal leaves no slot, no publication and no table', async () => {
    for (const removal of statements('Remove Millrace')) await admin.query(removal);
    expect(await count(`pg_replication_slots WHERE database = '${shop}'`)).toBe(0);
    expect(await count('pg_publication')).toBe(0);
    const left = await admin.query(
      `SELECT oid::regclass::text AS name FROM pg_class WHERE relnamespace::regnamespace::text LIKE '${shop}%'`,
    );
    expect(left.rows).toEqual([]);
  });
});
