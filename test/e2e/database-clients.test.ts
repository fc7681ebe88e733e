/** Each database client through its adapter: the contract suite, and the example of the
 *  documentation, on a real PostgreSQL. */
import { randomBytes, randomUUID } from 'node:crypto';
import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import type { EntitySchema } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { outboxJsonSql, outboxTableSql } from '../../src/outbox/append/table.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { adapterContract } from '../../src/outbox/testing/index.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { CLIENTS, type ConnectedClient } from './database-clients-kit.ts';
import { pageExamples } from './page-examples.ts';

const schema = `clients_${randomBytes(5).toString('hex')}`;
const url = withSettings((await sharedStack()).postgres, { schema });
const observer = new pg.Pool({ connectionString: url, max: 2 });
for (const statement of [
  `CREATE SCHEMA ${schema}`,
  'CREATE TABLE parcels (id uuid PRIMARY KEY, state text NOT NULL)',
  outboxTableSql('parcel_outbox'),
  outboxJsonSql('parcel_outbox'),
  inboxTableSql('parcel_inbox'),
])
  await observer.query(statement);
afterAll(async () => {
  await observer.query(`DROP SCHEMA ${schema} CASCADE`);
  await observer.end();
});

const { folder, files, compile } = pageExamples('docs/how-to/database-clients.md');
cpSync(join(packageRoot(), 'test/clients/prisma/generated'), join(folder, 'generated'), { recursive: true });

interface Example {
  send(db: unknown, id: string): Promise<unknown>;
  readonly Parcel?: EntitySchema;
}
const exampleOf = (name: string): Promise<Example> => import(join(folder, `${name}.ts`));

it('the examples of the documentation compile, and wire a client with at most five lines', async () => {
  expect(files.length).toBeGreaterThanOrEqual(12);
  expect(await compile()).toBe('');
  for (const { example } of CLIENTS) {
    const lines = readFileSync(join(folder, `${example}.ts`), 'utf8').split('\n');
    expect(lines.filter((line) => /millrace|append\(/.test(line)).length).toBeLessThanOrEqual(5);
  }
});

/** Number of catalogs in two transactions of each of two clients. Transactions of postgres.js and
 *  Prisma share no object; those of pg need none, because each is a client of its own. */
const CATALOGS: Readonly<Record<string, number>> = {
  pg: 1,
  'postgres.js': 4,
  'drizzle over pg': 2,
  'drizzle over postgres.js': 2,
  knex: 2,
  kysely: 2,
  TypeORM: 2,
  Prisma: 4,
  sequelize: 2,
};

describe.each(CLIENTS)('adapter of $name', ({ name, example, connect }) => {
  let client: ConnectedClient;
  beforeAll(async () => {
    const { Parcel } = await exampleOf(example);
    client = await connect(url, schema, Parcel === undefined ? [] : [Parcel]);
    await contract.setUp();
  });
  afterAll(async () => {
    await contract.tearDown();
    await client.close();
  });
  const contract = adapterContract({
    transaction: (work) => client.transaction(work),
    outside: (work) => client.outside(work),
    observer,
  });

  it.each(contract.cases)('the contract of adapters holds: $name', ({ run }) => run());

  it('transactions of this client share an object for what is known about its tables, and of no other client', async () => {
    const catalogs = (of: ConnectedClient): Promise<readonly (object | undefined)[]> =>
      Promise.all([0, 1].map(() => of.transaction(async (tx) => tx.catalog)));
    const other = await connect(url, schema, []);
    const [one, two] = [await catalogs(client), await catalogs(other)];
    expect(new Set([...one, ...two]).size).toBe(CATALOGS[name]);
    await other.close();
  });

  it('the example of the documentation commits the change with its event', async () => {
    const id = randomUUID();
    await observer.query(`INSERT INTO parcels VALUES ($1, 'new')`, [id]);
    await (await exampleOf(example)).send(client.db, id);
    const { rows } = await observer.query(
      `SELECT state, event_type, convert_from(payload, 'UTF8') AS payload
       FROM parcels LEFT JOIN parcel_outbox ON aggregate_id = parcels.id WHERE parcels.id = $1`,
      [id],
    );
    expect(rows).toEqual([{ state: 'sent', event_type: 'parcel.sent.v1', payload: `{"parcel":"${id}"}` }]);
  });
});

it('the example of the inbox applies the effect of a message a single time', async () => {
  const knex = CLIENTS.find(({ name }) => name === 'knex');
  const client = (await knex?.connect(url, schema, [])) as ConnectedClient;
  const { receive } = (await import(join(folder, 'once.ts'))) as {
    receive(db: unknown, msgId: string, id: string): Promise<{ readonly kind: string }>;
  };
  const [msgId, id] = [randomUUID(), randomUUID()];
  expect((await receive(client.db, msgId, id)).kind).toBe('done');
  expect((await receive(client.db, msgId, id)).kind).toBe('seen');
  await client.close();
});
