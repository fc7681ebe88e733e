-- A row of payments_suppressed is one delivery that charged nothing. `injected` deliveries are copies that the process made
-- itself; of the others topic, partition and offset say where they stand.
CREATE TABLE inbox (
  msg_id uuid PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX inbox_processed_at ON inbox USING brin (processed_at);
CREATE TABLE charges (
  charge_id uuid PRIMARY KEY,
  order_id uuid NOT NULL UNIQUE,
  amount_cents bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE payments_batches (
  id bigserial PRIMARY KEY,
  delivered int NOT NULL,
  inserted int NOT NULL,
  suppressed int NOT NULL,
  injected int NOT NULL,
  committed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE payments_suppressed (
  id bigserial PRIMARY KEY,
  msg_id uuid NOT NULL,
  order_id uuid NOT NULL,
  reason text NOT NULL CHECK (reason IN ('seen', 'same_batch', 'order_charged')),
  injected boolean NOT NULL,
  topic text NOT NULL,
  partition int NOT NULL,
  "offset" bigint NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX payments_suppressed_msg_id ON payments_suppressed (msg_id);
CREATE TABLE payments_parked (
  topic text NOT NULL,
  partition int NOT NULL,
  "offset" bigint NOT NULL,
  reason text NOT NULL,
  detail text NOT NULL,
  key bytea,
  value bytea,
  parked_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, "offset")
);
