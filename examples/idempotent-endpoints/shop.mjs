// Parts that the examples share: database, tenants and idempotent endpoints.
// Start an example with: node EXAMPLE.mjs POSTGRES_URL PORT

import { idempotency } from 'millrace/outbox';
import pg from 'pg';

export const [postgres, port] = process.argv.slice(2);
export const pool = new pg.Pool({ connectionString: postgres });
pool.on('error', (error) => console.error(error.message));

// The tenant comes from the credentials, never from a header that a caller may choose.
const TENANTS = new Map([
  ['Bearer token-of-one', 'one'],
  ['Bearer token-of-two', 'two'],
]);
export const tenantOf = (authorization) => TENANTS.get(authorization);

export const DAY_MS = 86_400_000;
export const idem = idempotency({
  sql: pool,
  scope: (req) => tenantOf(req.headers.authorization),
  ttlMs: 7 * DAY_MS,
  retryWindowMs: 3 * DAY_MS,
  onError: (error) => console.error(error),
});

// Runs in the transaction of the key's record: both commit, or neither does.
export async function pay(tx, cents) {
  const sql = 'INSERT INTO payments (cents) VALUES ($1) RETURNING id';
  const { rows } = await tx.query(sql, [cents]);
  return { id: rows[0].id, cents };
}
