-- The outbox becomes partitioned by ranges of ids. The table that was is attached as the first partition: its rows are read
-- once, to see that they fit, and not copied. Ids go on from the same sequence, one at a time, so that an id is drawn in
-- the order of the statements.
ALTER TABLE outbox RENAME TO outbox_p0;
ALTER INDEX outbox_pkey RENAME TO outbox_p0_pkey;
ALTER INDEX outbox_pending RENAME TO outbox_p0_pending;
ALTER TABLE outbox_p0 ADD COLUMN traceparent text;
CREATE TABLE outbox (
  id bigint NOT NULL DEFAULT nextval('outbox_id_seq'),
  aggregate_id uuid NOT NULL,
  msg_id uuid NOT NULL,
  event_type text NOT NULL,
  payload bytea NOT NULL,
  published_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  traceparent text,
  CONSTRAINT outbox_pkey PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX outbox_pending ON outbox (id) WHERE published_at IS NULL;
ALTER SEQUENCE outbox_id_seq OWNED BY outbox.id CACHE 1;
DO $$
DECLARE
  highest bigint;
BEGIN
  SELECT greatest(coalesce((SELECT max(id) FROM outbox_p0), 0), (SELECT last_value FROM outbox_id_seq)) INTO highest;
  EXECUTE format('ALTER TABLE outbox ATTACH PARTITION outbox_p0 FOR VALUES FROM (MINVALUE) TO (%s)', (highest / 1000000 + 1) * 1000000);
END
$$;
-- A net under ids that no range holds yet.
CREATE TABLE outbox_default PARTITION OF outbox DEFAULT;

-- Marking a row changes a column of a partial index's predicate, so it is never a HOT update: one dead tuple and two dead index
-- entries an event. Vacuum comes by count, at full speed; the room on the pages keeps the marked version beside the row.
ALTER TABLE outbox_p0 SET (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200000
);
ALTER TABLE outbox_default SET (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200000
);

-- Expiry finds old keys by the pages they lie on: a few kB of index where a tree would take gigabytes.
CREATE INDEX idempotency_keys_created ON idempotency_keys USING brin (created_at) WITH (pages_per_range = 32, autosummarize = on);
ALTER TABLE idempotency_keys SET (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1
);
ALTER TABLE orders SET (autovacuum_vacuum_insert_scale_factor = 0.05);

-- An order is created with the first; the others are what may become of it. Rows that are there are not judged.
ALTER TABLE orders ADD CONSTRAINT orders_status_legal
  CHECK (status IN ('created', 'paid', 'payment_failed', 'cancelled')) NOT VALID;
