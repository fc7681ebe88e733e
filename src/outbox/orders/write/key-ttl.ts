/** TTL of idempotency keys, stored in the database for all processes. Each process deletes old
 *  keys, so without a common TTL the shortest one would silently apply to all. */
import { coreError } from '../../../core/errors.ts';
import type { SqlPool } from '../../../io/postgres/sql/port.ts';

export const KEY_TTL_TABLE = 'orders_key_ttl';
const KEY_TTL_MS_DEFAULT = 30 * 86_400_000;

export interface KeyTtl {
  ms(): number;
  /** Reads the stored TTL again. */
  refresh(): Promise<void>;
}

export interface KeyTtlOptions {
  readonly pool: SqlPool;
  readonly schema: string;
  /** TTL that this process requests, whole ms; undefined uses the stored one. */
  readonly askedMs: number | undefined;
  /** True: `askedMs` replaces the stored TTL. */
  readonly change: boolean;
  /** Called after another process changed the TTL. */
  readonly onChange: (ms: number, beforeMs: number) => void;
}

async function stored(pool: SqlPool, schema: string): Promise<number | undefined> {
  const { rows } = await pool.query<{ ttl_ms: bigint }>(`SELECT ttl_ms FROM ${schema}.${KEY_TTL_TABLE}`);
  return rows[0] === undefined ? undefined : Number(rows[0].ttl_ms);
}

/** Reads the TTL; stores `askedMs` or the default if none is stored.
 *  @throws bad_value if another TTL is stored */
export async function openKeyTtl(options: KeyTtlOptions): Promise<KeyTtl> {
  const { pool, schema, askedMs, change, onChange } = options;
  let current = await stored(pool, schema);
  if (current === undefined || (change && askedMs !== undefined && askedMs !== current)) {
    await pool.query(
      `INSERT INTO ${schema}.${KEY_TTL_TABLE} (ttl_ms) VALUES ($1)
       ON CONFLICT (single) DO ${change ? 'UPDATE SET ttl_ms = excluded.ttl_ms, changed_at = now()' : 'NOTHING'}`,
      [askedMs ?? KEY_TTL_MS_DEFAULT],
    );
    current = (await stored(pool, schema)) as number;
  }
  if (askedMs !== undefined && askedMs !== current) {
    throw coreError(
      'bad_value',
      `-key-ttl is ${askedMs}ms, but schema ${schema} keeps keys for ${current}ms, for every process on it`,
      { next: 'leave -key-ttl out, or add -key-ttl-change to have all processes keep keys for that long' },
    );
  }
  let ms = current;
  return {
    ms: () => ms,
    async refresh() {
      const found = (await stored(pool, schema)) ?? ms;
      if (found === ms) return;
      const before = ms;
      ms = found;
      onChange(found, before);
    },
  };
}
