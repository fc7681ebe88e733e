/** DDL of an inbox by its name; payments/sql/0002 has the same text for `inbox`. */
import { type InboxNames, inboxNames, plainTableName, TIME_FROM_MS, TIME_TO_MS, uuidAt } from './names.ts';

/** Rows are inserted and deleted in chunks: vacuum after a fixed number of dead rows, without
 *  pauses. */
const CHURNING =
  'autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0';
/** Rows are only inserted, and dropped with their table: an insert-triggered vacuum would read them
 *  for nothing. */
export const APPEND_ONLY = 'autovacuum_vacuum_insert_threshold = -1';

function partitionsSql(names: InboxNames): string {
  const from = uuidAt(TIME_FROM_MS);
  const to = uuidAt(TIME_TO_MS);
  return `CREATE TABLE ${names.low} PARTITION OF ${names.table} FOR VALUES FROM (MINVALUE) TO ('${from}') WITH (${CHURNING});
CREATE TABLE ${names.high} PARTITION OF ${names.table} FOR VALUES FROM ('${to}') TO (MAXVALUE) WITH (${CHURNING});
CREATE TABLE ${names.rest} PARTITION OF ${names.table} DEFAULT WITH (${CHURNING});
CREATE INDEX ${names.local}_low_processed_at ON ${names.low} (processed_at);
CREATE INDEX ${names.local}_high_processed_at ON ${names.high} (processed_at);
CREATE INDEX ${names.local}_default_processed_at ON ${names.rest} (processed_at);`;
}

/** Returns the DDL that a service's migration runs for its own inbox: the table, its partitions
 *  for ids without a usable time, and the floor. InboxKeeper creates the partitions by time.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(inboxTableSql('inbox'));
 */
export function inboxTableSql(table: string): string {
  const names = inboxNames(table);
  return `CREATE TABLE ${names.table} (
  msg_id uuid PRIMARY KEY,
  processed_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (msg_id);
${partitionsSql(names)}
CREATE TABLE ${names.floor} (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  floor uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  moved_at timestamptz
);
INSERT INTO ${names.floor} DEFAULT VALUES;
`;
}

const parkedName = (table: string): string =>
  plainTableName(table, 'a plain name of a table of parked records');

/** Returns the DDL of a table of parked records: records without effect that hold up no partition.
 *  Run parkedDigestSql after it; that is a separate script because this one was released before.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(parkedTableSql('parked') + parkedDigestSql('parked'));
 */
export function parkedTableSql(table: string): string {
  return `CREATE TABLE ${parkedName(table)} (
  topic text NOT NULL,
  partition int NOT NULL,
  "offset" bigint NOT NULL,
  reason text NOT NULL,
  detail text NOT NULL,
  msg_id uuid,
  key bytea,
  value bytea,
  headers jsonb NOT NULL DEFAULT '[]',
  parked_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, "offset")
);
`;
}

/** Returns the script that adds the digest of a record's content (recordDigest) to a table of
 *  parkedTableSql and to its primary key; it changes nothing where the digest exists.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(parkedDigestSql('parked'));
 */
export function parkedDigestSql(table: string): string {
  const name = parkedName(table);
  return `DO $$
DECLARE
  key_name text;
BEGIN
  IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = '${name}'::regclass AND attname = 'digest' AND NOT attisdropped) THEN
    RETURN;
  END IF;
  ALTER TABLE ${name} ADD COLUMN digest bytea;
  UPDATE ${name} SET digest = sha256(
    int4send(coalesce(octet_length(key), -1)) || coalesce(key, '') ||
    int4send(coalesce(octet_length(value), -1)) || coalesce(value, '') || coalesce(uuid_send(msg_id), ''));
  SELECT conname INTO STRICT key_name FROM pg_constraint WHERE conrelid = '${name}'::regclass AND contype = 'p';
  EXECUTE format('ALTER TABLE ${name} ALTER COLUMN digest SET NOT NULL, DROP CONSTRAINT %I', key_name);
  ALTER TABLE ${name} ADD PRIMARY KEY (topic, partition, "offset", digest);
END $$;
`;
}
