import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { drizzleTransaction } from 'millrace/outbox/adapters';
import pg from 'pg';

export const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
// Without a listener, the loss of an idle connection would end the process.
pool.on('error', (error) => console.error(error.message));

export const db = drizzle(pool);

// A transaction of drizzle in the form that Millrace takes.
export const open = (tx) => drizzleTransaction(tx, sql);
