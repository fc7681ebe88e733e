// Creates the tables of the examples: node tables.mjs POSTGRES_URL

import { idempotencyTableSql } from 'millrace/outbox';
import pg from 'pg';

const client = new pg.Client({ connectionString: process.argv[2] });
await client.connect();
await client.query('CREATE TABLE payments (id bigserial PRIMARY KEY, cents int, receipt text)');
await client.query(idempotencyTableSql());
await client.end();
