-- How long idempotency keys are kept is one setting for all processes on these tables: each deletes old keys, so the shortest time of
-- any of them would hold for all. The first process that starts fills it in.
CREATE TABLE orders_key_ttl (
  single boolean PRIMARY KEY DEFAULT true CHECK (single),
  ttl_ms bigint NOT NULL CHECK (ttl_ms > 0),
  changed_at timestamptz NOT NULL DEFAULT now()
);
