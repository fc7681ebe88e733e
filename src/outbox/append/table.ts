/** DDL of an outbox table. It has the columns, index and storage settings of a partition of the
 *  orders' outbox, but no partitions: marked rows are deleted rather than dropped. */
import { outboxError } from '../errors.ts';
import { plainTableName } from '../inbox/names.ts';
import { JSON_TYPE } from './record-columns.ts';

/** Longest name that leaves room for its suffixes within PostgreSQL's 63 bytes. */
const OUTBOX_NAME_CHARS_MAX = 50;

/** Returns the DDL that a service's migration runs for its own outbox: table, sequence and the
 *  index of pending rows.
 *  @param table `name` or `schema.name`
 *  @throws bad_table_name
 *  @example
 *  await pool.query(outboxTableSql('outbox'));
 */
export function outboxTableSql(table: string): string {
  const name = plainTableName(table, 'a plain name of an outbox table');
  const local = name.slice(name.indexOf('.') + 1);
  if (local.length > OUTBOX_NAME_CHARS_MAX) {
    throw outboxError(
      'bad_table_name',
      `the outbox name ${local} has ${local.length} characters, at most ${OUTBOX_NAME_CHARS_MAX} leave room for its index and sequence`,
      { next: 'use a shorter name' },
    );
  }
  // Marking a row is never a HOT update, because the predicate of the index reads published_at. So
  // vacuum starts at a fixed number of rows and runs without a cost delay.
  return `CREATE TABLE ${name} (
  id bigserial PRIMARY KEY,
  aggregate_id uuid NOT NULL,
  msg_id uuid NOT NULL,
  event_type text NOT NULL,
  payload bytea NOT NULL,
  published_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  traceparent text
) WITH (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200000
);
CREATE INDEX ${local}_pending ON ${name} (id) WHERE published_at IS NULL;
`;
}

/** Returns the script of a constraint that refuses payloads that are not JSON, for every writer;
 *  it changes nothing where the constraint exists. Existing rows are not checked (NOT VALID): the
 *  relay moves such rows to its dead letters. A database with another encoding than UTF-8 gets no
 *  constraint, because it could not read every payload. This is a separate script because
 *  outboxTableSql was released before.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(outboxJsonSql('outbox'));
 */
export function outboxJsonSql(table: string): string {
  const name = plainTableName(table, 'a plain name of an outbox table');
  const constraint = `${name.slice(name.indexOf('.') + 1)}_json`;
  return `DO $$
BEGIN
  IF current_setting('server_encoding') = 'UTF8' AND NOT EXISTS (
    SELECT FROM pg_constraint WHERE conrelid = '${name}'::regclass AND conname = '${constraint}') THEN
    ALTER TABLE ${name} ADD CONSTRAINT ${constraint} CHECK (convert_from(payload, 'UTF8')::json IS NOT NULL) NOT VALID;
  END IF;
END $$;
`;
}

/** Returns the script that adds the columns by which a row chooses its record: ids of aggregates
 *  that are texts, keys, topics, headers and payloads that are not JSON. It changes no row, and
 *  nothing where the columns exist. The constraint of outboxJsonSql, where it exists, then applies
 *  to rows whose payload must be JSON. Run it after outboxTableSql and outboxJsonSql.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(outboxRecordSql('outbox'));
 */
export function outboxRecordSql(table: string): string {
  const name = plainTableName(table, 'a plain name of an outbox table');
  const constraint = `${name.slice(name.indexOf('.') + 1)}_json`;
  const isJson = `CASE WHEN coalesce(content_type, '${JSON_TYPE}') = '${JSON_TYPE}' THEN convert_from(payload, 'UTF8')::json IS NOT NULL ELSE true END`;
  return `ALTER TABLE ${name}
  ADD COLUMN IF NOT EXISTS aggregate_key text,
  ADD COLUMN IF NOT EXISTS partition_key text,
  ADD COLUMN IF NOT EXISTS topic text,
  ADD COLUMN IF NOT EXISTS headers json,
  ADD COLUMN IF NOT EXISTS content_type text;
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_constraint WHERE conrelid = '${name}'::regclass AND conname = '${constraint}'
      AND pg_get_constraintdef(oid) NOT LIKE '%content_type%') THEN
    ALTER TABLE ${name} DROP CONSTRAINT ${constraint}, ADD CONSTRAINT ${constraint} CHECK (${isJson}) NOT VALID;
  END IF;
END $$;
`;
}
