/** The orders tables in SQL. One statement writes a whole batch of new orders: the idempotency row first, and order and
 *  outbox row only for the keys it won, so that the three rows of an order are one transaction and one flush. */
import type { SqlRow, SqlSession } from '../../io/sql/port.ts';

export interface NewOrder {
  readonly key: string;
  readonly requestHash: Uint8Array;
  readonly orderId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly status: string;
  readonly responseCode: number;
  /** JSON text; stored and served as these bytes. */
  readonly responseBody: string;
  readonly msgId: string;
  readonly eventType: string;
  readonly payload: Uint8Array;
  readonly createdAt: Date;
}

/** What is stored under a key. */
export interface StoredAnswer {
  readonly key: string;
  readonly requestHash: Uint8Array;
  readonly orderId: string;
  readonly responseCode: number;
  readonly responseBody: string;
  /** Of the order, to name the fields in which another request differs; null when its row was removed since. */
  readonly accountId: bigint | null;
  readonly amountCents: bigint | null;
}

export interface OrderView {
  readonly orderId: string;
  readonly accountId: bigint;
  readonly amountCents: bigint;
  readonly status: string;
  readonly createdAt: Date;
}

/** Keys are inserted in ascending order, so two batches that share keys cannot wait for each other in a circle. */
const INSERT = `
WITH given AS (
  SELECT * FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::bigint[], $5::bigint[], $6::text[], $7::int[], $8::text[],
                       $9::uuid[], $10::text[], $11::bytea[], $12::timestamptz[])
    AS g(idem_key, request_hash, order_id, account_id, amount_cents, status, response_code, response_body,
         msg_id, event_type, payload, created_at)
), won AS (
  INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
  SELECT idem_key, request_hash, order_id, response_code, response_body::json FROM given ORDER BY idem_key
  ON CONFLICT (idem_key) DO NOTHING
  RETURNING idem_key
), placed AS (
  INSERT INTO orders (order_id, account_id, amount_cents, status, created_at)
  SELECT order_id, account_id, amount_cents, status, created_at FROM given JOIN won USING (idem_key)
), queued AS (
  INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
  SELECT order_id, msg_id, event_type, payload FROM given JOIN won USING (idem_key) ORDER BY msg_id
)
SELECT idem_key FROM won`;

/** Writes the orders whose keys are absent; returns the keys that were. Waits for a transaction that is writing one of
 *  the keys. The keys must be distinct. */
export async function insertOrders(
  session: SqlSession,
  orders: readonly NewOrder[],
): Promise<ReadonlySet<string>> {
  const { rows } = await session.query<{ idem_key: string }>(INSERT, [
    orders.map((order) => order.key),
    orders.map((order) => order.requestHash),
    orders.map((order) => order.orderId),
    orders.map((order) => order.accountId),
    orders.map((order) => order.amountCents),
    orders.map((order) => order.status),
    orders.map((order) => order.responseCode),
    orders.map((order) => order.responseBody),
    orders.map((order) => order.msgId),
    orders.map((order) => order.eventType),
    orders.map((order) => order.payload),
    orders.map((order) => order.createdAt),
  ]);
  return new Set(rows.map((row) => row.idem_key));
}

interface AnswerRow extends SqlRow {
  readonly idem_key: string;
  readonly request_hash: Uint8Array;
  readonly order_id: string;
  readonly response_code: number;
  readonly response_body: string;
  readonly account_id: bigint | null;
  readonly amount_cents: bigint | null;
}

export async function readAnswers(
  session: SqlSession,
  keys: readonly string[],
): Promise<ReadonlyMap<string, StoredAnswer>> {
  const { rows } = await session.query<AnswerRow>(
    `SELECT k.idem_key, k.request_hash, k.order_id, k.response_code, k.response_body, o.account_id, o.amount_cents
     FROM idempotency_keys k LEFT JOIN orders o USING (order_id) WHERE k.idem_key = ANY($1::text[])`,
    [keys],
  );
  return new Map(
    rows.map((row) => [
      row.idem_key,
      {
        key: row.idem_key,
        requestHash: row.request_hash,
        orderId: row.order_id,
        responseCode: row.response_code,
        responseBody: row.response_body,
        accountId: row.account_id,
        amountCents: row.amount_cents,
      },
    ]),
  );
}

export async function readOrder(session: SqlSession, orderId: string): Promise<OrderView | undefined> {
  const { rows } = await session.query<{
    account_id: bigint;
    amount_cents: bigint;
    status: string;
    created_at: Date;
  }>('SELECT account_id, amount_cents, status, created_at FROM orders WHERE order_id = $1', [orderId]);
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
