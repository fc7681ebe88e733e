/** Bulk-loads rows before a run: without indexes, which are built at the end from sorted values. */
import type { SqlSession } from '../../src/io/postgres/sql/port.ts';
import type { Database } from './world.ts';

const CHUNK_ROWS = 1_000_000;
/** Number of concurrent inserting sessions; the machine has no more cores. */
const SESSIONS = 2;

/** Inserts `count` rows in bulk, in chunks of consecutive numbers from 1. */
export async function chunks(
  count: number,
  insert: (from: number, to: number) => Promise<unknown>,
  chunkRows = CHUNK_ROWS,
): Promise<void> {
  let next = 1;
  const insertChunks = async (): Promise<void> => {
    while (next <= count) {
      const from = next;
      next += chunkRows;
      await insert(from, Math.min(count, from + chunkRows - 1));
    }
  };
  await Promise.all(Array.from({ length: SESSIONS }, insertChunks));
}

/** Settings of a bulk load: commits need not be durable one by one. */
const bulk = async (session: SqlSession): Promise<void> => {
  await session.query("SET LOCAL synchronous_commit = off; SET LOCAL maintenance_work_mem = '1GB'");
};

/** Inserts idempotency keys as v4 UUIDs, each with its own answer; the load never uses these
 *  keys. */
export async function preloadKeys({ pool }: Pick<Database, 'pool'>, count: number): Promise<void> {
  await pool.query('ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey');
  await chunks(count, (from, to) =>
    pool.transaction(async (tx) => {
      await bulk(tx);
      await tx.query(
        `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
         SELECT gen_random_uuid()::text, decode(md5(n::text) || md5(n::text), 'hex'), id, 201,
           ('{"order_id":"' || id || '","status":"created"}')::json
         FROM (SELECT n, gen_random_uuid() AS id FROM generate_series($1::bigint, $2::bigint) AS n) AS made`,
        [from, to],
      );
    }),
  );
  await pool.transaction(async (tx) => {
    await bulk(tx);
    await tx.query('ALTER TABLE idempotency_keys ADD PRIMARY KEY (idem_key)');
  });
  await pool.query('VACUUM ANALYZE idempotency_keys');
  await pool.query('CHECKPOINT');
}
