-- response_body is json, not jsonb, which would reorder keys and drop blanks: a replay is the bytes of the first answer.
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
