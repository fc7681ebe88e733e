import { fileURLToPath } from 'node:url';
import createKnex from 'knex';
import { knexTransaction } from 'millrace/outbox/adapters';

export const knex = createKnex({
  client: 'pg',
  connection: process.env.DATABASE_URL,
  migrations: { directory: fileURLToPath(new URL('../migrations', import.meta.url)) },
});

// A transaction of knex in the form that Millrace takes.
export const open = knexTransaction;
