/** Retention bounds: from these times on each table is complete. A row that is missing before its
 *  bound may have expired and is no delta. The bound of the outbox, and that of the keys once some
 *  have expired, is later by a margin, because rows of one transaction differ slightly in time.
 *
 *  - keys: idempotency_keys expire by age. If older orders exist, the bound is the oldest key and
 *    the margin, else the oldest key less the margin. With a known TTL it is never before now less
 *    the TTL, because after a backlog an old key may outlive younger ones.
 *  - outbox: a partition is dropped when it is old and all of its rows are marked. The bound is the
 *    first row after the last gap of ids, and the margin.
 *  - inbox: for ids with a time, the floor of the dropped partitions; for other ids, and for an
 *    inbox without a floor, the oldest remaining row.
 */
import type { SqlSession } from '../../io/postgres/sql/port.ts';
import { inboxNames, uuidAt } from '../inbox/names.ts';
import { KEY_TTL_TABLE } from '../orders/write/key-ttl.ts';
import { outboxPartitions } from '../orders/write/partitions.ts';

/** Bounds as SQL literals. */
export interface RetainedBounds {
  /** Orders and intents from this time on must have their key. */
  readonly keysFrom: string;
  /** Orders from this time on must have their outbox row. */
  readonly outboxFrom: string;
  readonly outboxDropped: boolean;
  /** outboxFrom as a UUIDv7. */
  readonly outboxFromId: string;
  /** Charged UUIDv7 from this id on must be in the inbox. */
  readonly inboxFloor: string;
  /** The same for charges from this time on, for UUIDv7 in an inbox without a floor. */
  readonly inboxTimedFrom: string;
  /** The same for charges from this time on, for ids of other versions. */
  readonly inboxTimelessFrom: string;
}

const MARGIN = `interval '1 minute'`;
const ZERO = '00000000-0000-0000-0000-000000000000';

/** Reads one value as text; the statement casts it. */
async function readText(session: SqlSession, sql: string): Promise<string | null> {
  const { rows } = await session.query<{ value: string | null }>(`SELECT (${sql})::text AS value`);
  return rows[0]?.value ?? null;
}

const time = (text: string): string => `'${text}'::timestamptz`;

/** Returns the first id after the last missing range; undefined: no range is missing. */
async function firstCompleteId(session: SqlSession, schema: string): Promise<bigint | undefined> {
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

/** Returns the TTL of keys that orders stores, ms; undefined: its database has no such row. */
async function storedKeyTtlMs(session: SqlSession, schema: string): Promise<number | undefined> {
  const table = `${schema}.${KEY_TTL_TABLE}`;
  if ((await readText(session, `SELECT to_regclass('${table}')`)) === null) return undefined;
  const ms = await readText(session, `SELECT min(ttl_ms) FROM ${table}`);
  return ms === null ? undefined : Number(ms);
}

export type OrdersBounds = Pick<RetainedBounds, 'keysFrom' | 'outboxFrom' | 'outboxDropped' | 'outboxFromId'>;
export type InboxBounds = Pick<RetainedBounds, 'inboxFloor' | 'inboxTimedFrom' | 'inboxTimelessFrom'>;

/** Reads the bounds of all tables, where they are in one database.
 *  @param keyTtlMs the shortest -key-ttl that orders had; default: the stored one */
export async function readRetainedBounds(
  session: SqlSession,
  ordersSchema: string,
  paymentsSchema: string,
  keyTtlMs: number | undefined,
): Promise<RetainedBounds> {
  return {
    ...(await readOrdersBounds(session, ordersSchema, keyTtlMs)),
    ...(await readInboxBounds(session, `${paymentsSchema}.inbox`)),
  };
}

/** Time of a bound, ms since the epoch; may be infinite. */
export async function boundMs(session: SqlSession, bound: string): Promise<number> {
  const { rows } = await session.query<{ ms: number }>(
    `SELECT (extract(epoch FROM ${bound}) * 1000)::float8 AS ms`,
  );
  return (rows[0] as { ms: number }).ms;
}

/** Reads the bounds of the keys and of the outbox.
 *  @param keyTtlMs the shortest -key-ttl that orders had; default: the stored one */
export async function readOrdersBounds(
  session: SqlSession,
  ordersSchema: string,
  keyTtlMs: number | undefined,
): Promise<OrdersBounds> {
  const ttlMs = keyTtlMs ?? (await storedKeyTtlMs(session, ordersSchema));
  // Uses clock_timestamp(): keys may expire until the snapshot is taken, which is after the start
  // of the transaction.
  const expired =
    ttlMs === undefined
      ? ''
      : `, clock_timestamp() - ${Math.trunc(ttlMs)} * interval '1 millisecond' + ${MARGIN}`;
  // Orders long before the oldest key show that keys have expired. Without them, the first orders
  // are checked too.
  const keys = await readText(
    session,
    `SELECT greatest(CASE WHEN EXISTS (SELECT FROM ${ordersSchema}.orders WHERE created_at < oldest - ${MARGIN})
       THEN oldest + ${MARGIN} ELSE oldest - ${MARGIN} END${expired})
     FROM (SELECT min(created_at) AS oldest FROM ${ordersSchema}.idempotency_keys) keys`,
  );
  const fromId = await firstCompleteId(session, ordersSchema);
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
  };
}

/** Reads the bounds of an inbox. @param table `schema.name` */
export async function readInboxBounds(session: SqlSession, table: string): Promise<InboxBounds> {
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
  // After the first drop, an empty partition without time proves nothing.
  return {
    inboxFloor: `'${floor}'::uuid`,
    inboxTimedFrom: time('-infinity'),
    inboxTimelessFrom: time(oldest ?? (floor === ZERO ? '-infinity' : 'infinity')),
  };
}
