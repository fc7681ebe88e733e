/** SQL of the orders tables. One statement writes a whole batch of new orders: first the
 *  idempotency rows, then order and outbox row for the inserted keys only. The three rows of an
 *  order commit with one flush.
 *
 *  Values of a fixed shape (UUIDs, hex, decimal numbers) need no escaping in an array literal; keys
 *  of another shape are quoted. The
 *  server builds the texts of response and payload from the same columns; `responseOf` builds the
 *  same text here.
 */
import type {
  SqlRow,
  SqlSession,
  TextPool,
  TextRows,
  TextSession,
  TextStatement,
} from '../../../io/postgres/sql/port.ts';
import { headersText } from '../../append/record-columns.ts';
import { ORDER_CREATED, STATUS_CREATED } from '../event.ts';
import type { StoredAnswer } from './replay-cache.ts';

/** Order to write. The ids are canonical UUIDs; the key is any visible text. */
export interface NewOrder {
  readonly key: string;
  /** 64 hex digits. */
  readonly requestHash: string;
  readonly orderId: string;
  readonly msgId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  /** W3C trace context of the request. */
  readonly traceparent: string | undefined;
  /** W3C tracestate of that traceparent; stored as a header of the row. */
  readonly tracestate: string | undefined;
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
/** SQL expression equal to orderCreatedPayload. */
const payload = (at: string): string =>
  `convert_to('{"order_id":"' || order_id || '","account_id":"' || account_id || '","amount_cents":"' || amount_cents ||
    '","status":"${STATUS_CREATED}","created_at":"' || ${at} || '"}', 'UTF8')`;

/** All statements insert keys in the same order, so that batches that share keys cannot deadlock.
 *  Outbox ids are assigned in the order of msg_id, which is the order of arrival. */
const INSERT: TextStatement = {
  paramCount: 9,
  text: `
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::bigint[], $6::uuid[], $7::text[], $9::json[])
    AS g(idem_key, request_hash, order_id, account_id, amount_cents, msg_id, traceparent, headers)
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
  INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent, headers)
  SELECT order_id, msg_id, '${ORDER_CREATED}', ${payload('$8::text')}, traceparent, headers
  FROM given JOIN won USING (order_id) ORDER BY msg_id
)
SELECT order_id FROM won`,
};

/** The same as single statements between BEGIN and COMMIT: the baseline of the batch benchmark. */
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
  paramCount: 7,
  text: `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, traceparent, headers)
SELECT order_id, $2::uuid, '${ORDER_CREATED}', ${payload('$5::text')}, $6::text, $7::json
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
/** Number of parts into which a refused part is split. */
const SPLIT_WAYS = 8;

const nothing = (): void => {};
const rowCount = (rows: TextRows): number => rows.rowCount;

/** Quotes a text for an array literal, except hex and dashes, of which UUIDs and trace contexts
 *  consist. */
const quoted = (text: string): string =>
  /^[0-9a-f-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, '\\$&')}"`;

/** Headers of the outbox row; undefined: the row has none. */
const headersOf = ({ tracestate }: NewOrder): string | undefined =>
  tracestate === undefined ? undefined : headersText([['tracestate', tracestate]]);

/** Array literal of optional texts, one for each order. */
function optionals(orders: readonly NewOrder[], textOf: (order: NewOrder) => string | undefined): string {
  const cells = orders.map((order) => {
    const text = textOf(order);
    return text === undefined ? 'NULL' : quoted(text);
  });
  return `{${cells.join(',')}}`;
}

/** Writes the orders whose keys are absent. Returns the written order ids, or `all`. Waits for a
 *  transaction that is writing one of the keys. The keys must be distinct. */
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
  let hasTraces = false;
  let hasStates = false;
  let comma = '';
  for (const order of orders) {
    keys += comma + quoted(order.key);
    hashes += comma + order.requestHash;
    orderIds += comma + order.orderId;
    accounts += comma + order.accountId;
    amounts += comma + order.amountCents;
    msgIds += comma + order.msgId;
    hasTraces ||= order.traceparent !== undefined;
    hasStates ||= order.tracestate !== undefined;
    comma = ',';
  }
  const params = [
    `${keys}}`,
    `${hashes}}`,
    `${orderIds}}`,
    `${accounts}}`,
    `${amounts}}`,
    `${msgIds}}`,
    hasTraces ? optionals(orders, ({ traceparent }) => traceparent) : null,
    createdAt,
    hasStates ? optionals(orders, headersOf) : null,
  ];
  return session.execute(INSERT, params, (rows) => {
    if (rows.rowCount === orders.length) return 'all';
    const won = new Set<string>();
    for (let row = 0; row < rows.rowCount; row++) won.add(rows.text(row, 0) as string);
    return won;
  });
}

/** Writes one order within an open transaction, with one statement for each row. Returns true if
 *  its key was absent. */
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
  const event = [orderId, msgId, account, amount, createdAt, traceparent ?? null, headersOf(order) ?? null];
  await session.execute(INSERT_OUTBOX, event, nothing);
  return true;
}

/** Outcome of each order by its id; an order in neither has a key that is taken. */
export interface PartsWritten {
  readonly won: ReadonlySet<string>;
  /** Errors of the statements with a single order. */
  readonly refused: ReadonlyMap<string, unknown>;
}

/** Writes the orders that can be written, within an open transaction. A refused part is rolled back
 *  to a savepoint and split into smaller parts.
 *  @param isOrderFault true if a single order can have caused the error; all other errors are
 *  thrown */
export async function insertParts(
  session: TextSession,
  orders: readonly NewOrder[],
  createdAt: string,
  isOrderFault: (thrown: unknown) => boolean,
): Promise<PartsWritten> {
  const won = new Set<string>();
  const refused = new Map<string, unknown>();
  const insertPart = async (part: readonly NewOrder[]): Promise<void> => {
    await session.execute(SAVEPOINT, [], nothing);
    try {
      const ids = await insertOrders(session, part, createdAt);
      for (const { orderId } of part) if (ids === 'all' || ids.has(orderId)) won.add(orderId);
      await session.execute(RELEASE, [], nothing);
      return;
    } catch (thrown) {
      if (!isOrderFault(thrown)) throw thrown;
      await session.execute(ROLLBACK_TO, [], nothing);
      await session.execute(RELEASE, [], nothing);
      if (part.length === 1) {
        refused.set((part[0] as NewOrder).orderId, thrown);
        return;
      }
    }
    const size = Math.ceil(part.length / SPLIT_WAYS);
    for (let at = 0; at < part.length; at += size) await insertPart(part.slice(at, at + size));
  };
  await insertPart(orders);
  return { won, refused };
}

/** Writes the orders and rolls them back to a savepoint. The transaction still commits, which also
 *  tests the flush. */
export function tryToInsert(pool: TextPool, orders: readonly NewOrder[], createdAt: string): Promise<void> {
  return pool.transaction(async (session) => {
    await session.execute(SAVEPOINT, [], nothing);
    await insertOrders(session, orders, createdAt);
    await session.execute(ROLLBACK_TO, [], nothing);
  });
}

/** Sets lock_timeout for the rest of the transaction. */
export const setLockTimeout = (session: TextSession, ms: number): Promise<void> =>
  session.execute(SET_LOCK_TIMEOUT, [String(Math.max(1, Math.ceil(ms)))], nothing);

/** Reads the answers stored under these keys. */
export function readStored(
  session: TextSession,
  keys: readonly string[],
  keyTtlMs: number,
): Promise<ReadonlyMap<string, StoredAnswer>> {
  return session.execute(READ_STORED, [`{${keys.map(quoted).join(',')}}`], (rows) => {
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
