/** Table of idempotency keys: its DDL and its statements.
 *
 *  A row is one key of one scope. Without recovery points a row commits with its answer, in the
 *  transaction of the handler, so every visible row has a status. With recovery points the row
 *  commits first, and `owner` may write until `lease_until`, by the clock of the database.
 */
import { invariant } from '../../core/errors.ts';
import { plainTableName } from '../inbox/names.ts';

/** Name of the table where the service gives none. */
export const TABLE_DEFAULT = 'idempotency';
/** Number of rows that one statement of the pruning deletes. */
export const PRUNE_ROWS = 1000;

const nameOf = (table: string): string =>
  plainTableName(table, 'a plain name of a table of idempotency keys');

/** Returns the DDL that a service's migration runs for its table of idempotency keys.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(idempotencyTableSql());
 */
export function idempotencyTableSql(table: string = TABLE_DEFAULT): string {
  const name = nameOf(table);
  const local = name.slice(name.indexOf('.') + 1);
  return `CREATE TABLE ${name} (
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  fingerprint bytea NOT NULL,
  status int,
  headers text,
  body bytea,
  owner uuid,
  lease_until timestamptz,
  steps jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (scope, key)
) WITH (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX ${local}_expires_at ON ${name} USING brin (expires_at) WITH (pages_per_range = 32, autosummarize = on);
`;
}

export interface TableSql {
  readonly table: string;
  /** Lets the server end the transaction when it is idle for $1 ms. */
  readonly limitIdle: string;
  readonly claim: string;
  readonly find: string;
  readonly read: string;
  readonly store: string;
  readonly prune: string;
  readonly open: string;
  readonly takeOver: string;
  readonly renew: string;
  readonly step: string;
  readonly finish: string;
  readonly drop: string;
  readonly expire: string;
}

const ROW = `encode(r.fingerprint, 'hex') AS fingerprint, r.status::text AS status, r.headers AS headers,
  encode(r.body, 'base64') AS body`;
const MINE = 'scope = $1::text AND key = $2::text AND owner = $3::uuid AND status IS NULL';
const later = (parameter: string): string => `clock_timestamp() + ${parameter}::float8 * interval '1 ms'`;
/** One row of the result for each changed row: not every client counts changed rows. */
const CHANGED = `RETURNING 'true' AS changed`;

/** Returns the statements on this table. @throws bad_table_name */
export function tableSql(given: string): TableSql {
  const table = nameOf(given);
  const ended = 'owner = NULL, lease_until = NULL, steps = NULL';
  return {
    table,
    limitIdle: `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true) AS idle`,
    // The lock tells a key in flight from a free key without a wait; the primary key decides. A
    // transaction idle for $6 ms is ended by the server, so a vanished host holds no key.
    claim: `INSERT INTO ${table} (scope, key, fingerprint, expires_at)
SELECT $1::text, $2::text, $3::bytea, ${later('$4')} WHERE pg_try_advisory_xact_lock($5::text::bigint)
ON CONFLICT (scope, key) DO NOTHING
RETURNING CASE WHEN $6::text <> '' THEN set_config('idle_in_transaction_session_timeout', $6::text, true) END AS idle`,
    find: `SELECT pg_try_advisory_xact_lock($3::text::bigint)::text AS free, ${ROW}
FROM (SELECT) AS one LEFT JOIN ${table} AS r ON r.scope = $1::text AND r.key = $2::text`,
    read: `SELECT ${ROW} FROM ${table} AS r WHERE r.scope = $1::text AND r.key = $2::text`,
    store: `UPDATE ${table} SET status = $3::int, headers = $4::text, body = $5::bytea
WHERE scope = $1::text AND key = $2::text AND status IS NULL ${CHANGED}`,
    prune: `DELETE FROM ${table} WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM ${table} WHERE expires_at < now() AND (lease_until IS NULL OR lease_until < now())
  LIMIT ${PRUNE_ROWS} FOR UPDATE SKIP LOCKED)) ${CHANGED}`,
    open: `INSERT INTO ${table} (scope, key, fingerprint, expires_at, owner, lease_until, steps)
VALUES ($1::text, $2::text, $3::bytea, ${later('$4')}, $5::uuid, ${later('$6')}, '{}')
ON CONFLICT (scope, key) DO NOTHING ${CHANGED}`,
    takeOver: `UPDATE ${table} SET owner = $4::uuid, lease_until = ${later('$5')}
WHERE scope = $1::text AND key = $2::text AND fingerprint = $3::bytea AND status IS NULL
  AND lease_until < clock_timestamp() RETURNING steps::text AS steps`,
    renew: `UPDATE ${table} SET lease_until = ${later('$4')} WHERE ${MINE} ${CHANGED}`,
    step: `UPDATE ${table} SET lease_until = ${later('$4')}, steps = steps || jsonb_build_object($5::text, $6::text)
WHERE ${MINE} ${CHANGED}`,
    finish: `UPDATE ${table} SET status = $4::int, headers = $5::text, body = $6::bytea, ${ended} WHERE ${MINE} ${CHANGED}`,
    drop: `DELETE FROM ${table} WHERE ${MINE} AND steps = '{}'::jsonb ${CHANGED}`,
    expire: `UPDATE ${table} SET lease_until = clock_timestamp() - interval '1 s' WHERE ${MINE} ${CHANGED}`,
  };
}

/** Text as a literal of SQL, whatever standard_conforming_strings is. U+0000 ends no text of a key
 *  or a scope, which both refuse it. */
function literalOf(value: string | number | Uint8Array): string {
  if (typeof value === 'number') return String(value);
  if (typeof value !== 'string') return `E'\\\\x${Buffer.from(value).toString('hex')}'`;
  const doubled = value.replaceAll("'", "''");
  return doubled.includes('\\') ? ` E'${doubled.replaceAll('\\', '\\\\')}'` : `'${doubled}'`;
}

/** Returns a statement of this file with literals instead of its parameters, so that it can be sent
 *  together with others. Only for keys, scopes, hashes and numbers: a server logs the text of a
 *  statement that fails. */
export const withLiterals = (
  statement: string,
  values: ReadonlyArray<string | number | Uint8Array>,
): string =>
  statement.replace(/\$(\d)/g, (_, place: string) => {
    const value = values[Number(place) - 1];
    invariant(
      value !== undefined && !(typeof value === 'string' && value.includes('\0')),
      'each parameter has a text',
    );
    return literalOf(value);
  });
