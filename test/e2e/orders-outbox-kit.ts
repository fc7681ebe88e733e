/** Test kit for the maintenance of the outbox: an empty schema, rows, and options. */

import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import type { KeyTtl } from '../../src/outbox/orders/write/key-ttl.ts';
import { migrationsOf } from '../../src/shell/migrations.ts';
import { openPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';

const stack = await sharedStack();
export const ALL = migrationsOf('orders');

let count = 0;
export async function emptySchema(): Promise<{ schema: string; pool: SqlPool }> {
  const schema = `outbox_${process.pid}_${count++}`;
  const pool = await openPool(stack.postgres, { schema, connections: 12, name: `test ${schema}` });
  return { schema, pool };
}
export const put = (rows: number): string =>
  `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
   SELECT gen_random_uuid(), gen_random_uuid(), 'x', '' FROM generate_series(1, ${rows})`;
export const options = (pool: SqlPool, schema: string, over: object = {}) => ({
  pool,
  schema,
  partitionRows: 1000,
  ahead: 2,
  retentionMs: 0,
  // Long limits: a transaction that the server ends early on a busy machine would fail the test.
  idleMs: 60_000,
  lookMs: 60_000,
  ...over,
});
export const fixedTtl = (ms: number): KeyTtl => ({ ms: () => ms, refresh: async () => {} });
