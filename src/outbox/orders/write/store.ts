/** The orders tables in SQL. One statement writes a whole batch of new orders: the idempotency row
 *  first, and order and outbox row only for the keys it won, so that the three rows of an order are
 *  one transaction and one flush.
 *
 *  What has a fixed shape (UUIDs, hex, decimal numbers) needs no escaping on its way into an array
 *  literal. The texts of response and payload are put together in the server, from the same
 *  columns; `responseOf` is their twin here.
 */
import type {
  SqlRow,
  SqlSession,
  TextPool,
  TextRows,
  TextSession,
  TextStatement,
} from '../../../io/postgres/sql/port.ts';
import { ORDER_CREATED, STATUS_CREATED } from '../event.ts';
import type { StoredAnswer } from './replay-cache.ts';

/** An order that is to be written. Key and ids are canonical UUIDs. */
export interface NewOrder {
  readonly key: string;
  /** 64 hex digits. */
  readonly requestHash: string;
  readonly orderId: string;
  readonly msgId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  /** W3C trace context of the request that made it. */
  readonly traceparent: string | undefined;
}

export interface OrderView {
  readonly orderId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly status: string;
  readonly createdAt: Date;
}

export const RESPONSE_CODE = 201;
export const responseOf = (orderId: string): string =>
  `{"order_id":"${orderId}","status":"${STATUS_CREATED}"}`;

const RESPONSE = `'{"order_id":"' || order_id || '","status":"${STATUS_CREATED}"}'`;
/** As orderCreatedPayload writes it. */
const payload = (at: string): string =>
  `convert_to('{"order_id":"' || order_id || '","account_id":"' || account_id || '","amount_cents":"' || amount_cents ||
    '","status":"${STATUS_CREATED}","created_at":"' || ${at} || '"}', 'UTF8')`;

/** Keys are inserted in one order everywhere, so two batches that share keys cannot wait for each
 *  other in a circle; ids of the outbox are drawn in the order in which the requests arrived, which
 *  is that of msg_id. */
const INSERT: TextStatement = {
  paramCount: 8,
  text: `
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[], $6::uuid[], $7::text[])
    AS g(idem_key, request_hash, order_id, account_id, amount_cents, msg_id, traceparent)
), won AS (
  INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
  SELECT idem_key, decode(request_hash, 'hex'), order_id, ${RESPONSE_CODE}, (${RESPONSE})::json
  FROM given ORDER BY idem_key COLLATE "C"
  ON CONFLICT (idem_key) DO NOTHING
  RETURNING order_id
), placed AS (
  INSERT INTO orders (order_id, account_id, amount_cents, status, created_at)
  SELECT order_id, account_id, amount_cents, '${STATUS_CREATED}', $8::text::timestamptz FROM given JOIN won USING (order_id)
), queued AS (
  INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent)
  SELECT order_id, msg_id, '${ORDER_CREATED}', ${payload('$8::text')}, traceparent
  FROM given JOIN won USING (order_id) ORDER BY msg_id
)
SELECT order_id FROM won`,
};

/** The same as five statements, BEGIN and COMMIT among them: what the batch is measured against. */
const INSERT_KEY: TextStatement = {
  paramCount: 4,
  text: `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
VALUES ($1::text, decode($2::text, 'hex'), $3::uuid, ${RESPONSE_CODE}, $4::json) ON CONFLICT (idem_key) DO NOTHING`,
};
const INSERT_ORDER: TextStatement = {
  paramCount: 4,
  text: `INSERT INTO orders (order_id, account_id, amount_cents, status, created_at)
VALUES ($1::uuid, $2::bigint, $3::bigint, '${STATUS_CREATED}', $4::timestamptz)`,
};
const INSERT_OUTBOX: TextStatement = {
  paramCount: 6,
  text: `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent)
SELECT order_id, $2::uuid, '${ORDER_CREATED}', ${payload('$5::text')}, $6::text
FROM (VALUES ($1::uuid, $3::bigint, $4::bigint)) AS v(order_id, account_id, amount_cents)`,
};

const READ_STORED: TextStatement = {
  paramCount: 1,
  text: `
SELECT idem_key, encode(request_hash, 'hex'), order_id, response_code, response_body,
       floor(extract(epoch FROM created_at) * 1000)::bigint
FROM idempotency_keys WHERE idem_key = ANY($1::text[])`,
};

const SET_LOCK_TIMEOUT: TextStatement = {
  paramCount: 1,
  text: `SELECT set_config('lock_timeout', $1::text, true)`,
};

const SAVEPOINT: TextStatement = { paramCount: 0, text: 'SAVEPOINT part' };
const RELEASE: TextStatement = { paramCount: 0, text: 'RELEASE SAVEPOINT part' };
const ROLLBACK_TO: TextStatement = { paramCount: 0, text: 'ROLLBACK TO SAVEPOINT part' };
/** A part that is refused is cut into so many. */
const WAYS = 8;

const nothing = (): void => {};
const rowCount = (rows: TextRows): number => rows.rowCount;

/** W3C trace contexts are hex and dashes; whatever else comes is quoted. */
const quoted = (text: string): string =>
  /^[0-9a-f-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, '\\$&')}"`;

/** Writes the orders whose keys are absent; returns the order ids that were written, or `all`.
 *  Waits for a transaction that is writing one of the keys. The keys must be distinct. */
export function insertOrders(
  session: TextSession,
  orders: readonly NewOrder[],
  createdAt: string,
): Promise<'all' | ReadonlySet<string>> {
  let keys = '{';
  let hashes = '{';
  let orderIds = '{';
  let accounts = '{';
  let amounts = '{';
  let msgIds = '{';
  let traces: string | null = null;
  let comma = '';
  for (const order of orders) {
    keys += comma + order.key;
    hashes += comma + order.requestHash;
    orderIds += comma + order.orderId;
    accounts += comma + order.accountId;
    amounts += comma + order.amountCents;
    msgIds += comma + order.msgId;
    if (order.traceparent !== undefined) traces = '';
    comma = ',';
  }
  if (traces !== null) {
    traces = `{${orders.map((one) => (one.traceparent === undefined ? 'NULL' : quoted(one.traceparent))).join(',')}}`;
  }
  const params = [
    `${keys}}`,
    `${hashes}}`,
    `${orderIds}}`,
    `${accounts}}`,
    `${amounts}}`,
    `${msgIds}}`,
    traces,
    createdAt,
  ];
  return session.execute(INSERT, params, (rows) => {
    if (rows.rowCount === orders.length) return 'all';
    const won = new Set<string>();
    for (let row = 0; row < rows.rowCount; row++) won.add(rows.text(row, 0) as string);
    return won;
  });
}

/** One order within an open transaction, a statement a row; returns whether its key was absent. */
export async function insertOrder(
  session: TextSession,
  order: NewOrder,
  createdAt: string,
): Promise<boolean> {
  const { key, requestHash, orderId, msgId, traceparent } = order;
  const [account, amount] = [String(order.accountId), String(order.amountCents)];
  const body = responseOf(orderId);
  const keyParams = [key, requestHash, orderId, body];
  if ((await session.execute(INSERT_KEY, keyParams, rowCount)) === 0) return false;
  await session.execute(INSERT_ORDER, [orderId, account, amount, createdAt], nothing);
  const event = [orderId, msgId, account, amount, createdAt, traceparent ?? null];
  await session.execute(INSERT_OUTBOX, event, nothing);
  return true;
}

/** What became of each order by its id; those in neither have a key that is taken. */
export interface PartsWritten {
  readonly won: ReadonlySet<string>;
  /** Why the statement with this order alone was refused. */
  readonly refused: ReadonlyMap<string, unknown>;
}

/** Within an open transaction: writes the orders that can be written, and tells them from those
 *  that cannot. What is refused is rolled back to a savepoint and tried in smaller parts.
 *  @param mayBeOne whether one order alone may be to blame; anything else is thrown */
export async function insertParts(
  session: TextSession,
  orders: readonly NewOrder[],
  createdAt: string,
  mayBeOne: (thrown: unknown) => boolean,
): Promise<PartsWritten> {
  const won = new Set<string>();
  const refused = new Map<string, unknown>();
  const place = async (part: readonly NewOrder[]): Promise<void> => {
    await session.execute(SAVEPOINT, [], nothing);
    try {
      const ids = await insertOrders(session, part, createdAt);
      for (const { orderId } of part) if (ids === 'all' || ids.has(orderId)) won.add(orderId);
      await session.execute(RELEASE, [], nothing);
      return;
    } catch (thrown) {
      if (!mayBeOne(thrown)) throw thrown;
      await session.execute(ROLLBACK_TO, [], nothing);
      await session.execute(RELEASE, [], nothing);
      if (part.length === 1) {
        refused.set((part[0] as NewOrder).orderId, thrown);
        return;
      }
    }
    const size = Math.ceil(part.length / WAYS);
    for (let at = 0; at < part.length; at += size) await place(part.slice(at, at + size));
  };
  await place(orders);
  return { won, refused };
}

/** Writes the orders and takes them back. The transaction commits all the same, so that its flush
 *  is tried as well. */
export function tryToInsert(pool: TextPool, orders: readonly NewOrder[], createdAt: string): Promise<void> {
  return pool.transaction(async (session) => {
    await session.execute(SAVEPOINT, [], nothing);
    await insertOrders(session, orders, createdAt);
    await session.execute(ROLLBACK_TO, [], nothing);
  });
}

/** For the rest of the transaction. */
export const setLockTimeout = (session: TextSession, ms: number): Promise<void> =>
  session.execute(SET_LOCK_TIMEOUT, [String(Math.max(1, Math.ceil(ms)))], nothing);

/** What is stored under these keys. */
export function readStored(
  session: TextSession,
  keys: readonly string[],
  keyTtlMs: number,
): Promise<ReadonlyMap<string, StoredAnswer>> {
  return session.execute(READ_STORED, [`{${keys.join(',')}}`], (rows) => {
    const stored = new Map<string, StoredAnswer>();
    for (let row = 0; row < rows.rowCount; row++) {
      const text = (column: number): string => rows.text(row, column) as string;
      stored.set(text(0), {
        requestHash: text(1),
        orderId: text(2),
        responseCode: Number(text(3)),
        responseBody: text(4),
        expiresMs: Number(text(5)) + keyTtlMs,
      });
    }
    return stored;
  });
}

interface OrderRow extends SqlRow {
  readonly account_id: bigint;
  readonly amount_cents: bigint;
  readonly status: string;
  readonly created_at: Date;
}

export async function readOrder(session: SqlSession, orderId: string): Promise<OrderView | undefined> {
  const { rows } = await session.query<OrderRow>(
    'SELECT account_id, amount_cents, status, created_at FROM orders WHERE order_id = $1',
    [orderId],
  );
  const row = rows[0];
  if (row === undefined) return undefined;
  return {
    orderId,
    accountId: row.account_id,
    amountCents: row.amount_cents,
    status: row.status,
    createdAt: row.created_at,
  };
}
