-- Rows that the relay cannot publish, because their payload is not JSON. The row in the outbox is marked in the same transaction.
CREATE TABLE relay_dead_letters (
  outbox text NOT NULL,
  id bigint NOT NULL,
  msg_id uuid NOT NULL,
  aggregate_id uuid NOT NULL,
  event_type text NOT NULL,
  payload bytea,
  reason text NOT NULL,
  dead_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (outbox, id)
);
