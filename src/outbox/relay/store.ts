/** The outbox table as the relay sees it. */
import type { SqlPool, SqlRow, SqlSession } from '../../io/sql/port.ts';

export interface OutboxRow {
  readonly id: bigint;
  readonly aggregateId: string;
  readonly msgId: string;
  readonly eventType: string;
  readonly payload: Uint8Array;
  readonly createdAt: Date;
}

interface PendingRow extends SqlRow {
  readonly id: bigint;
  readonly aggregate_id: string;
  readonly msg_id: string;
  readonly event_type: string;
  readonly payload: Uint8Array;
  readonly created_at: Date;
}

/** Takes the relay's lock of this schema until the transaction ends; false when another relay holds it. Whoever reads
 *  pending rows and marks them does both in one transaction under this lock, so a relay that lost its connection cannot
 *  mark, and two relays never work on the same rows at once. */
export async function tryLock(session: SqlSession, schema: string): Promise<boolean> {
  const { rows } = await session.query<{ locked: boolean }>(
    'SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS locked',
    [`millrace.relay.${schema}`],
  );
  return rows[0]?.locked === true;
}

/** The lowest pending ids, ascending. Never "above the last id seen": a lower id may commit later. */
export async function readPending(session: SqlSession, limit: number): Promise<readonly OutboxRow[]> {
  const { rows } = await session.query<PendingRow>(
    `SELECT id, aggregate_id, msg_id, event_type, payload, created_at
     FROM outbox WHERE published_at IS NULL ORDER BY id LIMIT $1`,
    [limit],
  );
  return rows.map((row) => ({
    id: row.id,
    aggregateId: row.aggregate_id,
    msgId: row.msg_id,
    eventType: row.event_type,
    payload: row.payload,
    createdAt: row.created_at,
  }));
}

/** Marks exactly these rows, never a range: between two of them a row may have become visible since. Returns how many
 *  were still pending. */
export async function markPublished(session: SqlSession, ids: readonly bigint[]): Promise<number> {
  const { rowCount } = await session.query(
    `UPDATE outbox SET published_at = now() FROM unnest($1::bigint[]) AS acked(id)
     WHERE outbox.id = acked.id AND outbox.published_at IS NULL`,
    [ids],
  );
  return rowCount;
}

export interface Lag {
  readonly rows: number;
  readonly oldestSeconds: number;
}

export async function readLag(pool: SqlPool): Promise<Lag> {
  const { rows } = await pool.query<{ n: bigint; age: number | null }>(
    'SELECT count(*) AS n, extract(epoch FROM now() - min(created_at))::float8 AS age FROM outbox WHERE published_at IS NULL',
  );
  return { rows: Number(rows[0]?.n ?? 0n), oldestSeconds: Math.max(0, rows[0]?.age ?? 0) };
}
