/** Database clients under test: each with its adapter, in a transaction and outside of one. */
import { PrismaPg } from '@prisma/adapter-pg';
import { sql as drizzleSql } from 'drizzle-orm';
import { drizzle as drizzleNodePg } from 'drizzle-orm/node-postgres';
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js';
import knexOf from 'knex';
import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import postgres from 'postgres';
import { Sequelize } from 'sequelize';
import { DataSource, type EntitySchema } from 'typeorm';
import {
  drizzleTransaction,
  knexTransaction,
  kyselyTransaction,
  postgresJsTransaction,
  prismaTransaction,
  sequelizeTransaction,
  typeormTransaction,
} from '../../src/outbox/adapters/index.ts';
import type { AdapterHarness } from '../../src/outbox/testing/index.ts';
import { PrismaClient } from '../clients/prisma/generated/client.ts';

const CONNECTIONS = 4;

/** Client that is connected to a schema. */
export interface ConnectedClient extends Omit<AdapterHarness, 'observer'> {
  /** The client's own object, which the examples of the documentation take. */
  readonly db: unknown;
  close(): Promise<void>;
}

type Connect = (url: string, schema: string, entities: EntitySchema[]) => Promise<ConnectedClient>;

const ofPg: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  return {
    db: pool,
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
    async outside(work) {
      await work(pool);
      const client = await pool.connect();
      await work(client);
      // An object that reports no state, as many wrappers of a client are.
      await work({ query: (text, params) => client.query(text, params) });
      await client.query('BEGIN');
      const committing = client.query('COMMIT');
      // The state that this client reports is that before the COMMIT in flight.
      await work(client);
      await committing;
      client.release();
    },
    close: () => pool.end(),
  };
};

const ofPostgresJs: Connect = async (url) => {
  const sql = postgres(url, { max: CONNECTIONS, transform: postgres.camel, onnotice: () => {} });
  return {
    db: sql,
    transaction: async (work) =>
      (await sql.begin((tx) => work(postgresJsTransaction(tx)))) as Awaited<ReturnType<typeof work>>,
    async outside(work) {
      await work(postgresJsTransaction(sql));
      const reserved = await sql.reserve();
      await work(postgresJsTransaction(reserved));
      reserved.release();
    },
    close: () => sql.end(),
  };
};

const ofDrizzlePg: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  const db = drizzleNodePg(pool);
  return {
    db,
    transaction: (work) => db.transaction((tx) => work(drizzleTransaction(tx, drizzleSql))),
    outside: async (work) => {
      await work(drizzleTransaction(db, drizzleSql));
    },
    close: () => pool.end(),
  };
};

const ofDrizzlePostgresJs: Connect = async (url) => {
  const sql = postgres(url, { max: CONNECTIONS, onnotice: () => {} });
  const db = drizzlePostgresJs(sql);
  return {
    db,
    transaction: (work) => db.transaction((tx) => work(drizzleTransaction(tx, drizzleSql))),
    outside: async (work) => {
      await work(drizzleTransaction(db, drizzleSql));
    },
    close: () => sql.end(),
  };
};

const ofKnex: Connect = async (url) => {
  const db = knexOf({ client: 'pg', connection: url, pool: { min: 0, max: CONNECTIONS } });
  return {
    db,
    transaction: (work) => db.transaction((trx) => work(knexTransaction(trx))),
    outside: async (work) => {
      await work(knexTransaction(db));
    },
    close: () => db.destroy(),
  };
};

const ofKysely: Connect = async (url) => {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS });
  const db = new Kysely<{ parcels: { id: string; state: string } }>({
    dialect: new PostgresDialect({ pool }),
    plugins: [new CamelCasePlugin()],
  });
  return {
    db,
    transaction: (work) => db.transaction().execute((trx) => work(kyselyTransaction(trx))),
    async outside(work) {
      await work(kyselyTransaction(db));
      await db.connection().execute((one) => work(kyselyTransaction(one)));
    },
    close: () => db.destroy(),
  };
};

const ofTypeorm: Connect = async (url, schema, entities) => {
  const db = new DataSource({ type: 'postgres', url, schema, entities, poolSize: CONNECTIONS });
  await db.initialize();
  return {
    db,
    transaction: (work) => db.transaction((manager) => work(typeormTransaction(manager))),
    async outside(work) {
      await work(typeormTransaction(db.manager));
      const runner = db.createQueryRunner();
      await runner.connect();
      await work(typeormTransaction(runner));
      await work(typeormTransaction(runner.manager));
      await runner.startTransaction();
      await runner.commitTransaction();
      await work(typeormTransaction(runner));
      await runner.release();
    },
    close: () => db.destroy(),
  };
};

const ofPrisma: Connect = async (url, schema) => {
  const db = new PrismaClient({
    adapter: new PrismaPg({ connectionString: url, max: CONNECTIONS }, { schema }),
    transactionOptions: { maxWait: 600_000, timeout: 600_000 },
  });
  return {
    db,
    transaction: (work) => db.$transaction((tx) => work(prismaTransaction(tx))),
    outside: async (work) => {
      await work(prismaTransaction(db));
    },
    close: () => db.$disconnect(),
  };
};

const ofSequelize: Connect = async (url) => {
  const db = new Sequelize(url, { logging: false, pool: { max: CONNECTIONS } });
  return {
    db,
    transaction: (work) => db.transaction((transaction) => work(sequelizeTransaction(db, transaction))),
    outside: async (work) => {
      await work(sequelizeTransaction(db, null));
    },
    close: () => db.close(),
  };
};

/** Clients, each with the name of its example in docs/how-to/database-clients.md. */
export const CLIENTS: ReadonlyArray<{
  readonly name: string;
  readonly example: string;
  readonly connect: Connect;
}> = [
  { name: 'pg', example: 'pg', connect: ofPg },
  { name: 'postgres.js', example: 'postgres-js', connect: ofPostgresJs },
  { name: 'drizzle over pg', example: 'drizzle', connect: ofDrizzlePg },
  { name: 'drizzle over postgres.js', example: 'drizzle', connect: ofDrizzlePostgresJs },
  { name: 'knex', example: 'knex', connect: ofKnex },
  { name: 'kysely', example: 'kysely', connect: ofKysely },
  { name: 'TypeORM', example: 'typeorm', connect: ofTypeorm },
  { name: 'Prisma', example: 'prisma', connect: ofPrisma },
  { name: 'sequelize', example: 'sequelize', connect: ofSequelize },
];
