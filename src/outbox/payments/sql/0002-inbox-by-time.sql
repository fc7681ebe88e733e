-- The inbox as inboxTableSql('inbox') makes it (inbox/table.ts), with every row that was there. UUIDv7 of the last fortnight get
-- partitions by their hour at once, so that they lie where a drop finds them; all other rows expire one by one.
ALTER TABLE inbox RENAME TO inbox_unpartitioned;
ALTER INDEX inbox_pkey RENAME TO inbox_unpartitioned_pkey;
DROP INDEX inbox_processed_at;
CREATE TABLE inbox (
  msg_id uuid PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (msg_id);
CREATE TABLE inbox_low PARTITION OF inbox FOR VALUES FROM (MINVALUE) TO ('016f5e66-e800-0000-0000-000000000000') WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE inbox_high PARTITION OF inbox FOR VALUES FROM ('03bb2cc3-d800-0000-0000-000000000000') TO (MAXVALUE) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE inbox_default PARTITION OF inbox DEFAULT WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX inbox_low_processed_at ON inbox_low (processed_at);
CREATE INDEX inbox_high_processed_at ON inbox_high (processed_at);
CREATE INDEX inbox_default_processed_at ON inbox_default (processed_at);
CREATE TABLE inbox_floor (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  floor uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  moved_at timestamptz
);
INSERT INTO inbox_floor DEFAULT VALUES;
DO $$
DECLARE
  hour timestamptz;
  from_id text;
  to_id text;
  part text;
BEGIN
  FOR hour IN
    SELECT DISTINCT date_trunc('hour', made, 'UTC') FROM (
      SELECT to_timestamp(('x' || left(replace(msg_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) AS made
      FROM inbox_unpartitioned WHERE (get_byte(uuid_send(msg_id), 6) >> 4 = 7 AND get_byte(uuid_send(msg_id), 8) >> 6 = 2)) AS of_version_7
    WHERE made >= now() - interval '14 days' AND made < now() + interval '1 day' ORDER BY 1
  LOOP
    from_id := lpad(to_hex((extract(epoch FROM hour) * 1000)::bigint), 12, '0');
    to_id := lpad(to_hex((extract(epoch FROM hour + interval '1 hour') * 1000)::bigint), 12, '0');
    part := 'inbox_' || to_char(hour AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MISS');
    EXECUTE format('CREATE TABLE %I PARTITION OF inbox FOR VALUES FROM (%L) TO (%L) WITH (autovacuum_vacuum_insert_threshold = -1)',
      part, rpad(from_id, 32, '0')::uuid, rpad(to_id, 32, '0')::uuid);
    EXECUTE format('CREATE INDEX %I ON %I (msg_id) WHERE NOT (get_byte(uuid_send(msg_id), 6) >> 4 = 7 AND get_byte(uuid_send(msg_id), 8) >> 6 = 2)', part || '_other', part);
  END LOOP;
END $$;
INSERT INTO inbox (msg_id, processed_at) SELECT msg_id, processed_at FROM inbox_unpartitioned;
DROP TABLE inbox_unpartitioned;
