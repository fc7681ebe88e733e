/** From when on each table is whole: rows that went by rule before that are no deltas. Every bound
 *  errs towards silence by a margin, because rows of one transaction are made at slightly different
 *  times.
 *
 *    keys     idempotency_keys expire by age: where orders are older than the oldest one that is left, nothing is said before it.
 *             Behind a backlog they go in no order, and an old one outlives younger ones: then only
 *             the TTL tells what may be
 *             gone, and nothing is said of what is older than that
 *    outbox   partitions are dropped when marked and old: where ranges of ids are missing, before what follows the last of them
 *    inbox    the floor of its dropped partitions for ids with a time; for others, and for an inbox without a floor, the
 *             oldest row that is left
 */
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import { inboxNames, uuidAt } from '../inbox/names.ts';
import { KEY_TTL_TABLE } from '../orders/write/key-ttl.ts';
import { outboxPartitions } from '../orders/write/partitions.ts';

/** Bounds as SQL literals. */
export interface RetainedBounds {
  /** Orders and intents from here on have their key. */
  readonly keysFrom: string;
  /** Orders from here on have their outbox row. */
  readonly outboxFrom: string;
  readonly outboxDropped: boolean;
  /** The same as a UUIDv7. */
  readonly outboxFromId: string;
  /** UUIDv7 from here on are in the inbox once they are charged. */
  readonly inboxFloor: string;
  /** Charges from here on, for UUIDv7 in an inbox without a floor. */
  readonly inboxTimedFrom: string;
  /** Charges from here on, for ids of other versions. */
  readonly inboxTimelessFrom: string;
}

const MARGIN = `interval '1 minute'`;
const ZERO = '00000000-0000-0000-0000-000000000000';

/** One value as text; the statement casts it. */
async function readText(session: SqlSession, sql: string): Promise<string | null> {
  const { rows } = await session.query<{ value: string | null }>(`SELECT (${sql})::text AS value`);
  return rows[0]?.value ?? null;
}

const time = (text: string): string => `'${text}'::timestamptz`;

/** The first id behind the last missing range; undefined: no range is missing. */
async function wholeFromId(session: SqlSession, schema: string): Promise<bigint | undefined> {
  let end: bigint | undefined;
  let from: bigint | undefined;
  let first = true;
  for (const part of await outboxPartitions(session, schema)) {
    if (part.to === undefined) continue;
    if (part.from !== undefined && (first || part.from !== end)) from = part.from;
    first = false;
    end = part.to;
  }
  return from;
}

/** How long orders keeps keys; undefined: its database does not say. */
async function storedKeyTtlMs(session: SqlSession, schema: string): Promise<number | undefined> {
  const table = `${schema}.${KEY_TTL_TABLE}`;
  if ((await readText(session, `SELECT to_regclass('${table}')`)) === null) return undefined;
  const ms = await readText(session, `SELECT min(ttl_ms) FROM ${table}`);
  return ms === null ? undefined : Number(ms);
}

/** @param keyTtlMs the shortest -key-ttl that orders had; undefined: what it has */
export async function readKept(
  session: SqlSession,
  ordersSchema: string,
  paymentsSchema: string,
  keyTtlMs: number | undefined,
): Promise<RetainedBounds> {
  const ttlMs = keyTtlMs ?? (await storedKeyTtlMs(session, ordersSchema));
  // Expiry may go on until the snapshot is taken, which is after the start of the transaction.
  const expired =
    ttlMs === undefined
      ? ''
      : `, clock_timestamp() - ${Math.trunc(ttlMs)} * interval '1 millisecond' + ${MARGIN}`;
  // Orders from long before the oldest key show that keys have expired; until then the first orders
  // are judged too.
  const keys = await readText(
    session,
    `SELECT greatest(CASE WHEN EXISTS (SELECT FROM ${ordersSchema}.orders WHERE created_at < oldest - ${MARGIN})
       THEN oldest + ${MARGIN} ELSE oldest - ${MARGIN} END${expired})
     FROM (SELECT min(created_at) AS oldest FROM ${ordersSchema}.idempotency_keys) keys`,
  );
  const fromId = await wholeFromId(session, ordersSchema);
  let outboxFrom = '-infinity';
  let outboxFromMs = 0;
  if (fromId !== undefined) {
    const first = `SELECT min(created_at) + ${MARGIN} FROM ${ordersSchema}.outbox WHERE id >= ${fromId}`;
    outboxFrom = (await readText(session, first)) ?? 'infinity';
    const ms = await readText(session, `SELECT (extract(epoch FROM (${first})) * 1000)::bigint`);
    outboxFromMs = ms === null ? 2 ** 48 - 1 : Number(ms);
  }
  return {
    keysFrom: time(keys ?? '-infinity'),
    outboxFrom: time(outboxFrom),
    outboxDropped: fromId !== undefined,
    outboxFromId: `'${uuidAt(outboxFromMs)}'::uuid`,
    ...(await inboxKept(session, `${paymentsSchema}.inbox`)),
  };
}

async function inboxKept(
  session: SqlSession,
  table: string,
): Promise<Pick<RetainedBounds, 'inboxFloor' | 'inboxTimedFrom' | 'inboxTimelessFrom'>> {
  const names = inboxNames(table);
  const hasFloor = (await readText(session, `SELECT to_regclass('${names.floor}') IS NOT NULL`)) === 'true';
  if (!hasFloor) {
    const oldest = time(
      (await readText(session, `SELECT min(processed_at) FROM ${names.table}`)) ?? '-infinity',
    );
    return { inboxFloor: `'${ZERO}'::uuid`, inboxTimedFrom: oldest, inboxTimelessFrom: oldest };
  }
  const floor = (await readText(session, `SELECT floor FROM ${names.floor}`)) ?? ZERO;
  const oldest = await readText(
    session,
    `SELECT least((SELECT min(processed_at) FROM ${names.low}), (SELECT min(processed_at) FROM ${names.high}),
       (SELECT min(processed_at) FROM ${names.rest}))`,
  );
  // Once something was forgotten, an absence of rows without a time says nothing.
  return {
    inboxFloor: `'${floor}'::uuid`,
    inboxTimedFrom: time('-infinity'),
    inboxTimelessFrom: time(oldest ?? (floor === ZERO ? '-infinity' : 'infinity')),
  };
}
