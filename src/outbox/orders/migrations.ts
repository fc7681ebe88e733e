/** Tables of the orders service: spec/outbox.txt section 2. */
import type { Migration } from '../migrations.ts';

export const ORDERS_TABLES = ['orders', 'idempotency_keys', 'outbox'] as const;

export const ORDERS_MIGRATIONS: readonly Migration[] = [
  {
    number: 1,
    name: 'orders, idempotency keys, outbox',
    // response_body is json, not jsonb, which would reorder keys and drop blanks: a replay is the first answer's bytes.
    sql: `
CREATE TABLE orders (
  order_id uuid PRIMARY KEY,
  account_id bigint NOT NULL,
  amount_cents bigint NOT NULL,
  status text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE idempotency_keys (
  idem_key text PRIMARY KEY,
  request_hash bytea NOT NULL,
  order_id uuid NOT NULL,
  response_code int NOT NULL,
  response_body json NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE outbox (
  id bigserial PRIMARY KEY,
  aggregate_id uuid NOT NULL,
  msg_id uuid NOT NULL,
  event_type text NOT NULL,
  payload bytea NOT NULL,
  published_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_pending ON outbox (id) WHERE published_at IS NULL;
`,
  },
];
