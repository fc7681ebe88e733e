/** Idempotency keys come to an end: after the TTL a key is as good as one that was never used. */
import { asMaintainer, type MaintainerOptions } from './partitions.ts';

/** Keys a transaction: a request that meets one of them waits for milliseconds. */
const CHUNK_ROWS = 1000;

/** Deletes up to CHUNK_ROWS keys that are older than the TTL by the database's clock; returns how
 *  many, undefined where another process maintains the tables. In the order of the keys, as the
 *  writers insert them, so that no circle of waits can form. */
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
