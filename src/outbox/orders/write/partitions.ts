/** Partitions of the outbox by ranges of ids: created ahead of the sequence, and dropped when every
 *  row is marked and old.
 *
 *  Invariants: (1) a partition is dropped only under a lock that excludes every writer, after a
 *  check under that lock that it has no unmarked row; (2) no lock wait exceeds LOCK_MS, because a
 *  pending exclusive lock blocks all later requests; (3) one process at a time changes partitions.
 */
import { findMillraceError } from '../../../core/errors.ts';
import type { SqlPool, SqlSession } from '../../../io/postgres/sql/port.ts';

const UNDEFINED_TABLE = '42P01';
const LOCK_MS = 50;
const STATEMENT_MS = 2000;
const IDLE_MS = 1000;
/** Maximum number of partitions created in one call, so that a sequence that was set far ahead does
 *  not fill the catalog. */
const MADE_MAX = 16;

const STORAGE = `fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200000`;

export interface MaintainerOptions {
  readonly pool: SqlPool;
  readonly schema: string;
  /** idle_in_transaction_session_timeout of these transactions. Default: one second. */
  readonly idleMs?: number;
}

export interface PartitionOptions extends MaintainerOptions {
  /** Number of ids in a partition. */
  readonly partitionRows: number;
  /** Number of partitions to create ahead of the sequence. */
  readonly ahead: number;
  readonly retentionMs: number;
  /** Timeout of a statement that runs under a lock, such as the check for unmarked rows. Default:
   *  two seconds. */
  readonly lookMs?: number;
}

export interface OutboxPartition {
  readonly name: string;
  /** First id; undefined: unbounded. The default partition has neither bound. */
  readonly from: bigint | undefined;
  /** First id after the partition. */
  readonly to: bigint | undefined;
}

const BOUND = /^FOR VALUES FROM \((?:'(-?\d+)'|MINVALUE)\) TO \('(-?\d+)'\)$/;

/** Returns the partitions in the order of their ids, the default partition last. */
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

/** Returns the last id of the sequence. */
async function lastId(session: SqlSession, schema: string): Promise<bigint> {
  const { rows } = await session.query<{ last: bigint }>(
    `SELECT last_value AS last FROM ${schema}.outbox_id_seq`,
  );
  return (rows[0] as { last: bigint }).last;
}

/** Runs `work` in a transaction if no other process maintains this schema; otherwise returns
 *  undefined. */
export async function asMaintainer<T>(
  { pool, schema, idleMs = IDLE_MS }: MaintainerOptions,
  work: (session: SqlSession) => Promise<T>,
): Promise<T | undefined> {
  return pool.transaction(async (session) => {
    // Releases the locks of a process that is suspended or disconnected in mid-transaction.
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

/** Creates the missing partitions ahead of the sequence, in one transaction each. Returns their
 *  names.
 *  @param onMade called with each name after its commit; a later partition may fail
 *  @throws sql_failed with 55P03 after a lock timeout */
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
      // Ids in between stay in the default partition: a range with rows there cannot be attached.
      const from = highest > last ? highest : (last / rows + 2n) * rows;
      const to = (from / rows + 1n) * rows;
      const table = `outbox_p${from}`;
      // ATTACH, because CREATE TABLE ... PARTITION OF would block every writer.
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

/** True if no row was marked within the retention; also if there is no row. The row with the
 *  highest id, usually the last one marked, is checked first. The whole partition is read only
 *  before its drop. */
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
  const { pool, schema, retentionMs, lookMs = STATEMENT_MS } = options;
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

/** Drops the partitions below the sequence whose rows are all marked and old, in one transaction
 *  each. Returns their names.
 *  @param onDropped called with each name after its commit; a later partition may fail
 *  @throws sql_failed with 55P03 after a lock timeout */
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
      // Another process dropped the partition first.
      if (findMillraceError(thrown)?.details['sqlstate'] === UNDEFINED_TABLE) return false;
      throw thrown;
    });
    if (!gone) continue;
    dropped.push(name);
    onDropped(name);
  }
  return dropped;
}

/** Number of rows of the default partition in one transaction. */
export const SWEPT_CHUNK_ROWS = 1000;

/** Deletes up to SWEPT_CHUNK_ROWS rows of the default partition that were marked before the
 *  retention. That partition is never dropped. Returns their number; undefined: another process
 *  maintains the tables. */
export async function sweepDefault(options: PartitionOptions): Promise<number | undefined> {
  const { schema, retentionMs, lookMs = STATEMENT_MS } = options;
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
