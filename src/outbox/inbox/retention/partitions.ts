/** Partitions of an inbox by time: creates them ahead, and drops old ones, which raises the floor.
 *
 *  Invariants: (1) no partition begins below the floor; (2) the floor rises in the transaction of
 *  the drop, under a lock that excludes every claim (see once.ts); (3) a drop expires only UUIDv7:
 *  rows of other versions whose first bits lie in that time move to the default partition in the
 *  same transaction; (4) outside of a partition by time, a UUIDv7 is deleted only below the floor.
 *
 *  Deadlocks are avoided by locking the default partition and the dropped ones in a weak mode
 *  first, then the table. The weak lock makes autovacuum yield, which takes a second. The holder of
 *  the table lock then never waits long for another lock.
 */
import { formatDuration } from '../../../core/quantity.ts';
import type { SqlPool, SqlSession } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import {
  type InboxNames,
  isUuidV7Sql,
  leading48,
  partitionName,
  TIME_FROM_MS,
  TIME_TO_MS,
  uuidAt,
} from '../names.ts';
import { APPEND_ONLY } from '../table.ts';

export interface TimePartition {
  /** Name in SQL on this connection. */
  readonly sqlName: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/** Timeout of a lock that blocks no claim: longer than the second after which autovacuum yields. */
const SIDE_LOCK_MS = 5000;
/** Timeout of the lock on the table: claims queue behind it while it waits for a claim or a reader.
 */
const TABLE_LOCK_MS = 500;
/** Maximum number of rows moved out of the default partition under the lock, for one partition. */
const MOVE_ROWS_MAX = 500_000;
/** Maximum number of partitions dropped in one transaction: a few milliseconds each, under the
 *  lock. */
const DROPS_MAX = 8;
/** Maximum number of partitions from now minus the TTL to the last one ahead. */
const PARTITIONS_MAX = 5000;
/** Number of widths by which a wider partition may lengthen the range: the time ahead, and the
 *  alignment. */
const SPAN_WIDTHS = 8;
const MINUTE_MS = 60_000;

const BOUNDS = /^FOR VALUES FROM \('([0-9a-f-]{36})'\) TO \('([0-9a-f-]{36})'\)$/;

/** Returns the partitions whose bounds are times, ascending.
 *  @throws tables_missing if the table is no partitioned inbox */
export async function listPartitions(
  session: SqlSession,
  names: InboxNames,
): Promise<readonly TimePartition[]> {
  const { rows } = await session.query<{ name: string; bounds: string }>(
    `SELECT c.oid::regclass::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds
     FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)`,
    [names.table],
  );
  if (rows.length === 0) {
    throw outboxError('tables_missing', `${names.table} is not a partitioned inbox`, {
      next: 'create it with inboxTableSql(), or with -migrate for payments',
    });
  }
  const partitions: TimePartition[] = [];
  for (const { name, bounds } of rows) {
    const [, from, to] = BOUNDS.exec(bounds) ?? [];
    if (from === undefined || to === undefined) continue;
    const fromMs = leading48(from);
    const toMs = leading48(to);
    if (uuidAt(fromMs) === from && uuidAt(toMs) === to) partitions.push({ sqlName: name, fromMs, toMs });
  }
  return partitions.sort((a, b) => a.fromMs - b.fromMs);
}

/** Returns spans of at most `widthMs`, aligned to it, that cover the part of [fromMs, toMs) that
 *  `taken` does not cover. */
export function missingSpans(
  taken: readonly Pick<TimePartition, 'fromMs' | 'toMs'>[],
  fromMs: number,
  toMs: number,
  widthMs: number,
): ReadonlyArray<{ readonly fromMs: number; readonly toMs: number }> {
  const spans: Array<{ fromMs: number; toMs: number }> = [];
  let next = 0;
  for (let at = fromMs; at < toMs; ) {
    while (next < taken.length && (taken[next] as TimePartition).toMs <= at) next++;
    const ahead = taken[next];
    if (ahead !== undefined && ahead.fromMs <= at) {
      at = ahead.toMs;
      continue;
    }
    const end = Math.min(
      (Math.floor(at / widthMs) + 1) * widthMs,
      ahead?.fromMs ?? Number.POSITIVE_INFINITY,
      TIME_TO_MS,
    );
    spans.push({ fromMs: at, toMs: end });
    at = end;
  }
  return spans;
}

export interface Coverage {
  readonly fromMs: number;
  readonly toMs: number;
  readonly widthMs: number;
}

export interface Made {
  readonly partitions: number;
  /** Rows moved out of the default partition. */
  readonly movedRows: number;
  /** Spans whose rows in the default partition are too many to move under the lock; they stay and
   *  expire there. */
  readonly leftOut: number;
}

/** Returns the smallest width, in whole minutes, with which this span needs at most PARTITIONS_MAX
 *  partitions. The span grows slightly with the width. */
const leastWidthMs = (spanMs: number): number => {
  const minutes = spanMs / (PARTITIONS_MAX - SPAN_WIDTHS) / MINUTE_MS;
  return Math.ceil(minutes) * MINUTE_MS;
};

/** Creates the missing partitions, in one transaction each.
 *  @param onMade called with the moved rows after each commit; a later partition may fail
 *  @throws too_many_partitions; sql_failed with 55P03 after a lock timeout: retry later */
export async function makePartitions(
  pool: SqlPool,
  names: InboxNames,
  coverage: Coverage,
  onMade: (movedRows: number) => void = () => {},
): Promise<Made> {
  const { widthMs } = coverage;
  const floorMs = await readFloorMs(pool, names);
  const aligned = Math.floor(coverage.fromMs / widthMs) * widthMs;
  const fromMs = Math.max(aligned, floorMs, TIME_FROM_MS);
  const toMs = Math.min(coverage.toMs, TIME_TO_MS);
  if ((toMs - fromMs) / widthMs > PARTITIONS_MAX) {
    throw outboxError(
      'too_many_partitions',
      `${Math.ceil((toMs - fromMs) / widthMs)} partitions of ${names.table} would be needed; the maximum is ${PARTITIONS_MAX}`,
      {
        next: `give the partitions a width of ${formatDuration(leastWidthMs(toMs - fromMs))} or more: -inbox-width of payments, widthMs of an InboxKeeper`,
      },
    );
  }
  let partitions = 0;
  let movedRows = 0;
  let leftOut = 0;
  for (const span of missingSpans(await listPartitions(pool, names), fromMs, toMs, widthMs)) {
    const moved = await pool.transaction((session) => attach(session, names, span));
    if (moved === undefined) leftOut++;
    else {
      partitions++;
      movedRows += moved;
      onMade(moved);
    }
  }
  return { partitions, movedRows, leftOut };
}

/** Creates and attaches one partition. Returns the rows moved out of the default partition;
 *  undefined: not attached. */
async function attach(
  session: SqlSession,
  names: InboxNames,
  span: { readonly fromMs: number; readonly toMs: number },
): Promise<number | undefined> {
  await useReadCommitted(session);
  const from = uuidAt(span.fromMs);
  const to = uuidAt(span.toMs);
  // Checked before the lock too: a span that stays left out must not block claims in every turn.
  if ((await countDefaultRows(session, names, from, to)) > MOVE_ROWS_MAX) return undefined;
  await lock(session, SIDE_LOCK_MS, names.rest, 'SHARE UPDATE EXCLUSIVE');
  // Without this lock, a claim that already routed a row to the default partition would fail after
  // the range is attached.
  await lock(session, TABLE_LOCK_MS, names.table, 'SHARE ROW EXCLUSIVE');
  const existing = await listPartitions(session, names);
  if (existing.some((one) => one.fromMs < span.toMs && one.toMs > span.fromMs)) return undefined;
  // Read after the lock: another process may have dropped a partition that this one misses.
  if ((await readFloorMs(session, names)) > span.fromMs) return undefined;
  const found = await countDefaultRows(session, names, from, to);
  if (found > MOVE_ROWS_MAX) return undefined;
  const name = `${await schemaOf(session, names)}.${partitionName(names, span.fromMs)}`;
  await session.query(`CREATE TABLE ${name} (LIKE ${names.table} INCLUDING ALL) WITH (${APPEND_ONLY})`);
  if (found > 0) {
    await session.query(
      `WITH moved AS (DELETE FROM ${names.rest} WHERE msg_id >= $1::uuid AND msg_id < $2::uuid RETURNING msg_id, processed_at)
       INSERT INTO ${name} (msg_id, processed_at) SELECT msg_id, processed_at FROM moved`,
      [from, to],
    );
  }
  await session.query(
    `ALTER TABLE ${names.table} ATTACH PARTITION ${name} FOR VALUES FROM ('${from}') TO ('${to}')`,
  );
  // Partial index of the rows that a drop has to move; nearly always empty.
  await session.query(
    `CREATE INDEX ${partitionName(names, span.fromMs)}_other ON ${name} (msg_id) WHERE NOT ${isUuidV7Sql('msg_id')}`,
  );
  return found;
}

/** Counts the rows of this range in the default partition, up to MOVE_ROWS_MAX + 1. */
async function countDefaultRows(
  session: SqlSession,
  names: InboxNames,
  from: string,
  to: string,
): Promise<number> {
  const { rows } = await session.query<{ n: bigint }>(
    `SELECT count(*) AS n FROM
       (SELECT FROM ${names.rest} WHERE msg_id >= $1::uuid AND msg_id < $2::uuid LIMIT $3) AS found`,
    [from, to, MOVE_ROWS_MAX + 1],
  );
  return Number(rows[0]?.n ?? 0n);
}

export interface Dropped {
  readonly partitions: number;
  /** Estimate from table statistics. */
  readonly rowsEstimate: number;
  /** Rows of other UUID versions, moved to the default partition. */
  readonly movedRows: number;
}

/** Drops partitions that end at or before `cutoffMs`, the oldest first, at most DROPS_MAX, and
 *  raises the floor. The caller chooses the cutoff and starts the transaction with this call.
 *  @throws sql_failed with 55P03 after a lock timeout */
export async function dropPartitions(
  session: SqlSession,
  names: InboxNames,
  cutoffMs: number,
): Promise<Dropped> {
  const listOld = async (): Promise<readonly TimePartition[]> =>
    (await listPartitions(session, names)).filter((one) => one.toMs <= cutoffMs).slice(0, DROPS_MAX);
  await useReadCommitted(session);
  const candidates = await listOld();
  if (candidates.length === 0) return { partitions: 0, rowsEstimate: 0, movedRows: 0 };
  await lock(
    session,
    SIDE_LOCK_MS,
    [names.rest, ...candidates.map((one) => one.sqlName)].join(', '),
    'SHARE UPDATE EXCLUSIVE',
  );
  await lock(session, TABLE_LOCK_MS, names.table, 'ACCESS EXCLUSIVE');
  // Listed again under the lock: a partition created meanwhile must not stay below the floor.
  const drops = await listOld();
  let rowsEstimate = 0;
  let movedRows = 0;
  for (const { sqlName } of drops) {
    await session.query(`ALTER TABLE ${names.table} DETACH PARTITION ${sqlName}`);
    const { rowCount } = await session.query(
      `INSERT INTO ${names.table} (msg_id, processed_at)
       SELECT msg_id, processed_at FROM ${sqlName} WHERE NOT ${isUuidV7Sql('msg_id')}`,
    );
    movedRows += rowCount;
    const { rows } = await session.query<{ n: number }>(
      'SELECT greatest(0, reltuples, pg_stat_get_live_tuples(oid))::float8 AS n FROM pg_class WHERE oid = to_regclass($1)',
      [sqlName],
    );
    rowsEstimate += rows[0]?.n ?? 0;
    await session.query(`DROP TABLE ${sqlName}`);
  }
  const last = drops.at(-1);
  if (last !== undefined) {
    await session.query(`UPDATE ${names.floor} SET floor = greatest(floor, $1::uuid), moved_at = now()`, [
      uuidAt(last.toMs),
    ]);
  }
  return { partitions: drops.length, rowsEstimate, movedRows };
}

/** Deletes up to `rowsMax` rows that were processed before `beforeMs` from one partition without a
 *  time: rows of other versions, and UUIDv7 below the floor, which stay undecidable. Returns their
 *  number and the position where the next chunk continues. */
export async function expireTimeless(
  session: SqlSession,
  names: InboxNames,
  partition: string,
  pass: { readonly beforeMs: number; readonly afterProcessedAt: string; readonly rowsMax: number },
): Promise<{ readonly rows: number; readonly lastProcessedAt: string | undefined }> {
  const { rows } = await session.query<{ n: bigint; last: string | null }>(
    `WITH old AS MATERIALIZED (
       SELECT ctid, processed_at FROM ${partition}
       WHERE processed_at < to_timestamp($1::float8 / 1000) AND processed_at >= $2::timestamptz
         AND (NOT ${isUuidV7Sql('msg_id')} OR msg_id < (SELECT floor FROM ${names.floor}))
       ORDER BY processed_at LIMIT $3::int FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM ${partition} WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING 1)
     SELECT (SELECT count(*) FROM gone) AS n, (SELECT max(processed_at)::text FROM old) AS last`,
    [pass.beforeMs, pass.afterProcessedAt, pass.rowsMax],
  );
  return { rows: Number(rows[0]?.n ?? 0n), lastProcessedAt: rows[0]?.last ?? undefined };
}

/** Returns the time of the floor, ms since the epoch; 0 if nothing was dropped.
 *  @throws tables_missing */
export async function readFloorMs(session: SqlSession, names: InboxNames): Promise<number> {
  const { rows } = await session.query<{ floor: string }>(`SELECT floor::text AS floor FROM ${names.floor}`);
  const [row] = rows;
  if (row === undefined) {
    throw outboxError('tables_missing', `${names.floor} has no row`, {
      next: `put the row back with its last floor, or, where nothing was ever dropped: INSERT INTO ${names.floor} DEFAULT VALUES`,
    });
  }
  return leading48(row.floor);
}

/** Sets the isolation level, whatever the database's default is: each statement must see what was
 *  committed before it got its locks. */
async function useReadCommitted(session: SqlSession): Promise<void> {
  await session.query('SET TRANSACTION ISOLATION LEVEL READ COMMITTED');
}

async function lock(session: SqlSession, waitMs: number, tables: string, mode: string): Promise<void> {
  await session.query(`SELECT set_config('lock_timeout', $1, true)`, [`${waitMs}ms`]);
  const only = tables
    .split(', ')
    .map((table) => `ONLY ${table}`)
    .join(', ');
  await session.query(`LOCK TABLE ${only} IN ${mode} MODE`);
}

async function schemaOf(session: SqlSession, names: InboxNames): Promise<string> {
  const { rows } = await session.query<{ schema: string }>(
    'SELECT relnamespace::regnamespace::text AS schema FROM pg_class WHERE oid = to_regclass($1)',
    [names.table],
  );
  return (rows[0] as { schema: string }).schema;
}
