/** Partitions of the outbox, each a range of ids: made ahead of the sequence, dropped when every
 *  row is marked and old.
 *
 *  Invariants: (1) a partition is dropped only under a lock that excludes every writer, after it
 *  was seen under that lock that no row in it is unmarked; (2) nothing here waits for a lock longer
 *  than LOCK_MS, because who waits for an exclusive lock holds up those that come after; (3) one
 *  process at a time changes partitions.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { SqlPool, SqlSession } from '../../../io/postgres/sql/port.ts';

const UNDEFINED_TABLE = '42P01';
const LOCK_MS = 50;
const LOOK_MS = 2000;
const IDLE_MS = 1000;
/** Made at once at most: a sequence that was set far ahead must not fill the catalog. */
const MADE_MAX = 16;

const STORAGE = `fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200000`;

export interface MaintainerOptions {
  readonly pool: SqlPool;
  readonly schema: string;
  /** Between two statements of a transaction of ours: then the server ends it. Default: a second.
   */
  readonly idleMs?: number;
}

export interface PartitionOptions extends MaintainerOptions {
  /** Ids a partition. */
  readonly partitionRows: number;
  /** Partitions that are there before the sequence reaches them. */
  readonly ahead: number;
  readonly retentionMs: number;
  /** For a statement that works under a lock, as looking for an unmarked row does. Default: two
   *  seconds. */
  readonly lookMs?: number;
}

export interface OutboxPartition {
  readonly name: string;
  /** First id; undefined: no lower bound. Both undefined: the default partition. */
  readonly from: bigint | undefined;
  /** First id that is not in it any more. */
  readonly to: bigint | undefined;
}

const BOUND = /^FOR VALUES FROM \((?:'(-?\d+)'|MINVALUE)\) TO \('(-?\d+)'\)$/;

/** In the order of their ids, the default partition last. */
export async function outboxPartitions(
  session: SqlSession,
  schema: string,
): Promise<readonly OutboxPartition[]> {
  const { rows } = await session.query<{ name: string; bound: string }>(
    `SELECT c.relname::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)`,
    [`${schema}.outbox`],
  );
  const parts = rows.map(({ name, bound }): OutboxPartition => {
    const [, from, to] = BOUND.exec(bound) ?? [];
    return {
      name,
      from: from === undefined ? undefined : BigInt(from),
      to: to === undefined ? undefined : BigInt(to),
    };
  });
  const rank = (part: OutboxPartition): bigint => part.to ?? 2n ** 63n;
  return parts.sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0));
}

/** The highest id that was drawn. */
async function lastId(session: SqlSession, schema: string): Promise<bigint> {
  const { rows } = await session.query<{ last: bigint }>(
    `SELECT last_value AS last FROM ${schema}.outbox_id_seq`,
  );
  return (rows[0] as { last: bigint }).last;
}

/** A transaction of the one process that maintains this schema; undefined where another one does.
 */
export async function asMaintainer<T>(
  { pool, schema, idleMs = IDLE_MS }: MaintainerOptions,
  work: (session: SqlSession) => Promise<T>,
): Promise<T | undefined> {
  return pool.transaction(async (session) => {
    // A process that is stopped, or cut off, in the middle must not keep its locks.
    await session.query(`SET LOCAL idle_in_transaction_session_timeout = ${idleMs}`);
    // Each statement must see what was committed before it got its locks.
    await session.query('SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
    const { rows } = await session.query<{ mine: boolean }>(
      'SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS mine',
      [`millrace.orders.maintenance.${schema}`],
    );
    return rows[0]?.mine === true ? work(session) : undefined;
  });
}

/** Makes what is missing ahead of the sequence, one transaction each; returns the names. @param
 *  onMade told each when it is committed: a later one may fail. @throws sql_failed 55P03 when it
 *  would have to wait */
export async function makeAhead(
  options: PartitionOptions,
  onMade: (name: string) => void = () => {},
): Promise<readonly string[]> {
  const { schema, ahead } = options;
  const rows = BigInt(options.partitionRows);
  const made: string[] = [];
  while (made.length < MADE_MAX) {
    const name = await asMaintainer(options, async (session) => {
      await session.query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
      const last = await lastId(session, schema);
      const highest = (await outboxPartitions(session, schema)).reduce(
        (high, part) => (part.to !== undefined && part.to > high ? part.to : high),
        0n,
      );
      if (highest > last + rows * BigInt(ahead)) return undefined;
      // Ids between stay in the default partition: a range that has rows there could not be
      // attached.
      const from = highest > last ? highest : (last / rows + 2n) * rows;
      const to = (from / rows + 1n) * rows;
      const table = `outbox_p${from}`;
      // Attached, not created in place: that would lock every writer out.
      await session.query(
        `CREATE TABLE ${schema}.${table} (LIKE ${schema}.outbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE)
         WITH (${STORAGE})`,
      );
      await session.query(
        `ALTER TABLE ${schema}.outbox ATTACH PARTITION ${schema}.${table} FOR VALUES FROM (${from}) TO (${to})`,
      );
      return table;
    });
    if (name === undefined) break;
    made.push(name);
    onMade(name);
  }
  return made;
}

async function hasUnmarked(session: SqlSession, schema: string, name: string): Promise<boolean> {
  const { rows } = await session.query<{ unmarked: boolean }>(
    `SELECT EXISTS (SELECT FROM ${schema}.${name} WHERE published_at IS NULL) AS unmarked`,
  );
  return rows[0]?.unmarked === true;
}

/** No row was marked within the retention; true also where there is no row. The highest id, which
 *  is marked last as a rule, is asked first, so that the whole partition is read only when it is
 *  about to go. */
async function isOld(
  session: SqlSession,
  schema: string,
  name: string,
  retentionMs: number,
): Promise<boolean> {
  const recent = async (from: string): Promise<boolean> => {
    const { rows } = await session.query<{ recent: boolean }>(
      `SELECT EXISTS (SELECT FROM ${from} WHERE published_at >= now() - $1::float8 * interval '1 ms') AS recent`,
      [retentionMs],
    );
    return rows[0]?.recent !== false;
  };
  const last = `(SELECT published_at FROM ${schema}.${name} ORDER BY id DESC LIMIT 1) highest`;
  return !(await recent(last)) && !(await recent(`${schema}.${name}`));
}

async function drop(options: PartitionOptions, name: string): Promise<boolean> {
  const { pool, schema, retentionMs, lookMs = LOOK_MS } = options;
  if ((await hasUnmarked(pool, schema, name)) || !(await isOld(pool, schema, name, retentionMs)))
    return false;
  const dropped = await asMaintainer(options, async (session) => {
    await session.query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
    await session.query(`SET LOCAL statement_timeout = ${lookMs}`);
    await session.query(`LOCK TABLE ONLY ${schema}.outbox, ONLY ${schema}.${name} IN ACCESS EXCLUSIVE MODE`);
    if (await hasUnmarked(session, schema, name)) return false;
    await session.query(`DROP TABLE ${schema}.${name}`);
    return true;
  });
  return dropped === true;
}

/** Drops partitions that the sequence has left, whose rows are all marked and old, one transaction
 *  each; returns the names.
 *  @param onDropped told each when it is committed: a later one may fail. @throws sql_failed 55P03
 *  when it would have to wait */
export async function dropMarked(
  options: PartitionOptions,
  onDropped: (name: string) => void = () => {},
): Promise<readonly string[]> {
  const { pool, schema } = options;
  const last = await lastId(pool, schema);
  const dropped: string[] = [];
  for (const { name, to } of await outboxPartitions(pool, schema)) {
    if (to === undefined || to > last) continue;
    const gone = await drop(options, name).catch((thrown: unknown) => {
      // Another process was faster.
      if (findMillraceError(thrown)?.details['sqlstate'] === UNDEFINED_TABLE) return false;
      throw thrown;
    });
    if (!gone) continue;
    dropped.push(name);
    onDropped(name);
  }
  return dropped;
}

/** Rows of the default partition a transaction. */
export const SWEPT_CHUNK_ROWS = 1000;

/** Deletes up to SWEPT_CHUNK_ROWS rows of the default partition, which is never dropped, that were
 *  marked before the retention; returns how many, undefined where another process maintains the
 *  tables. */
export async function sweepDefault(options: PartitionOptions): Promise<number | undefined> {
  const { schema, retentionMs, lookMs = LOOK_MS } = options;
  return asMaintainer(options, async (session) => {
    await session.query(`SET LOCAL lock_timeout = ${LOCK_MS}`);
    await session.query(`SET LOCAL statement_timeout = ${lookMs}`);
    const { rowCount } = await session.query(
      `DELETE FROM ${schema}.outbox_default WHERE published_at IS NOT NULL AND id = ANY(ARRAY(
         SELECT id FROM ${schema}.outbox_default
         WHERE published_at < now() - $1::float8 * interval '1 ms' ORDER BY id LIMIT ${SWEPT_CHUNK_ROWS}))`,
      [retentionMs],
    );
    return rowCount;
  });
}
