/** Parked (quarantined) records of payments: lists them, and redrives them after the cause was
 *  fixed.
 *
 *  A redrive processes each record like a delivery. One transaction locks its row, then either
 *  charges or suppresses the record and deletes the row, or updates the row's reason. Invariants:
 *  (1) after a crash, each record is either charged or still parked; (2) a row that another process
 *  has locked is skipped, and the inbox prevents a second charge; (3) one run tries a record once.
 */
import { invariant } from '../../core/errors.ts';
import type { SqlSession, SqlValue } from '../../io/postgres/sql/port.ts';
import type { Delivery } from './duplicates.ts';
import { readPaymentEvent } from './event.ts';
import {
  type ApplyOptions,
  applyBatch,
  type BatchOutcome,
  type OrderDelivery,
  type ParkedDelivery,
  type WrittenBatch,
} from './store.ts';

export const PARKED_REASONS = ['malformed_payload', 'refused', 'undecidable'] as const;

/** Selects parked records; an absent field selects all. */
export interface ParkedFilter {
  readonly reasons?: readonly string[] | undefined;
  readonly topic?: string | undefined;
  readonly partition?: number | undefined;
  readonly offset?: number | undefined;
}

/** Key of a parked record: its place and the digest of its content. */
export interface ParkedName {
  readonly topic: string;
  readonly partition: number;
  readonly offset: bigint;
  readonly digest: Uint8Array;
}

export interface ParkedRow extends ParkedName {
  readonly reason: string;
  readonly detail: string;
  readonly parkedAt: Date;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
}

const MATCHES = `($1::text[] IS NULL OR reason = ANY ($1)) AND ($2::text IS NULL OR topic = $2)
  AND ($3::int IS NULL OR partition = $3) AND ($4::bigint IS NULL OR "offset" = $4)`;

const filterValues = ({ reasons, topic, partition, offset }: ParkedFilter): SqlValue[] => [
  reasons ?? null,
  topic ?? null,
  partition ?? null,
  offset ?? null,
];

/** Reads parked records in the order of their keys, after the key `after`. */
export async function readParked(
  session: SqlSession,
  filter: ParkedFilter,
  rowsMax: number,
  after?: ParkedName,
): Promise<readonly ParkedRow[]> {
  const { rows } = await session.query<Omit<ParkedRow, 'parkedAt'> & { readonly parked_at: Date }>(
    `SELECT topic, partition, "offset", digest, reason, detail, parked_at, key, value FROM payments_parked
     WHERE ${MATCHES} AND ($5::text IS NULL OR (topic, partition, "offset", digest) > ($5, $6::int, $7::bigint, $8::bytea))
     ORDER BY topic, partition, "offset", digest LIMIT $9`,
    [
      ...filterValues(filter),
      after?.topic ?? null,
      after?.partition ?? 0,
      after?.offset ?? 0n,
      after?.digest ?? null,
      rowsMax,
    ],
  );
  return rows.map(({ parked_at, ...row }) => ({ ...row, parkedAt: parked_at }));
}

/** Counts the parked records by reason. */
export async function countParked(
  session: SqlSession,
  filter: ParkedFilter,
): Promise<ReadonlyMap<string, number>> {
  const { rows } = await session.query<{ reason: string; n: bigint }>(
    `SELECT reason, count(*) AS n FROM payments_parked WHERE ${MATCHES} GROUP BY reason ORDER BY reason`,
    filterValues(filter),
  );
  return new Map(rows.map(({ reason, n }) => [reason, Number(n)]));
}

/** Returns the delivery of a parked record, with its value parsed by this release. */
export function deliveryOf({ topic, partition, offset, digest, key, value }: ParkedRow): Delivery {
  return { topic, partition, offset, digest, key, value, event: readPaymentEvent(value), injected: false };
}

/** Returns the key of a delivery that deliveryOf made. */
export function nameOf({ topic, partition, offset, digest }: Delivery): ParkedName {
  invariant(digest !== undefined, 'a delivery that was not parked is redriven');
  return { topic, partition, offset, digest };
}

const textOf = ({ topic, partition, offset, digest }: ParkedName): string =>
  `${topic} ${partition} ${offset} ${Buffer.from(digest).toString('hex')}`;

const columnsOf = (names: readonly ParkedName[]): SqlValue[] => [
  names.map((name) => name.topic),
  names.map((name) => name.partition),
  names.map((name) => name.offset),
  names.map((name) => name.digest),
];

const GIVEN =
  'unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[]) AS given(topic, partition, "offset", digest)';

/** Locks the rows that still exist and that no other process has locked. */
async function lockRows(session: SqlSession, names: readonly ParkedName[]): Promise<ReadonlySet<string>> {
  const { rows } = await session.query<{
    topic: string;
    partition: number;
    offset: bigint;
    digest: Uint8Array;
  }>(
    `SELECT p.topic, p.partition, p."offset", p.digest FROM payments_parked p
     JOIN ${GIVEN} USING (topic, partition, "offset", digest)
     ORDER BY p.topic, p.partition, p."offset", p.digest FOR UPDATE OF p SKIP LOCKED`,
    columnsOf(names),
  );
  return new Set(rows.map(textOf));
}

export async function deleteParked(session: SqlSession, names: readonly ParkedName[]): Promise<number> {
  if (names.length === 0) return 0;
  const { rowCount } = await session.query(
    `DELETE FROM payments_parked p USING ${GIVEN}
     WHERE (p.topic, p.partition, p."offset", p.digest) = (given.topic, given.partition, given."offset", given.digest)`,
    columnsOf(names),
  );
  return rowCount;
}

async function updateReasons(session: SqlSession, parked: readonly ParkedDelivery[]): Promise<void> {
  if (parked.length === 0) return;
  await session.query(
    `UPDATE payments_parked p SET reason = given.reason, detail = given.detail
     FROM unnest($1::text[], $2::int[], $3::bigint[], $4::bytea[], $5::text[], $6::text[])
       AS given(topic, partition, "offset", digest, reason, detail)
     WHERE (p.topic, p.partition, p."offset", p.digest) = (given.topic, given.partition, given."offset", given.digest)`,
    [...columnsOf(parked), parked.map(({ reason }) => reason), parked.map(({ detail }) => detail)],
  );
}

/** Runs applyBatch for parked records. The outcome contains only those whose rows could be locked.
 */
export async function applyRedriven(
  session: SqlSession,
  orders: readonly OrderDelivery[],
  parked: readonly ParkedDelivery[],
  options: ApplyOptions,
): Promise<WrittenBatch> {
  const locked = await lockRows(session, [...orders, ...parked].map(nameOf));
  const isLocked = (delivery: Delivery): boolean => locked.has(textOf(nameOf(delivery)));
  const written = await applyBatch(session, orders.filter(isLocked), parked.filter(isLocked), options);
  const { charged, suppressed, parked: stillParked }: BatchOutcome = written.outcome;
  await updateReasons(session, stillParked);
  await deleteParked(session, [...charged, ...suppressed.map(({ delivery }) => delivery)].map(nameOf));
  return written;
}
