/** Expiry of idempotency keys: after the TTL a key counts as unused. */
import { asMaintainer, type MaintainerOptions } from './partitions.ts';

/** Number of keys in one transaction: a request with one of them waits for milliseconds. */
const CHUNK_ROWS = 1000;

/** Deletes up to CHUNK_ROWS keys that are older than the TTL by the database's clock. Returns their
 *  number; undefined: another process maintains the tables. Rows are locked in the order in which
 *  the writers insert keys, so that no deadlock occurs. */
export async function expireKeys(options: MaintainerOptions, ttlMs: number): Promise<number | undefined> {
  const { schema } = options;
  return asMaintainer(options, async (session) => {
    await session.query(`SET LOCAL lock_timeout = 1000`);
    const { rowCount } = await session.query(
      `DELETE FROM ${schema}.idempotency_keys WHERE idem_key = ANY(ARRAY(
         SELECT idem_key FROM ${schema}.idempotency_keys WHERE idem_key = ANY(ARRAY(
           SELECT idem_key FROM ${schema}.idempotency_keys WHERE created_at < now() - $1::float8 * interval '1 ms' LIMIT ${CHUNK_ROWS}))
         ORDER BY idem_key COLLATE "C" FOR UPDATE SKIP LOCKED))`,
      [ttlMs],
    );
    return rowCount;
  });
}

export const KEYS_CHUNK_ROWS = CHUNK_ROWS;
