/** DDL of a table of effects: calls to a third party that a transaction has decided on. A row is
 *  the intent; its `effect_id` is the idempotency key that the third party sees at each attempt.
 *
 *    waiting ──claim──▶ running ──▶ done
 *       ▲                 │  └────▶ dead (refused, budget used up, outcome unknown, runner ended)
 *       └───── retry ─────┘
 */
import { outboxError } from '../errors.ts';
import { plainTableName } from '../inbox/names.ts';

/** Longest name that leaves room for the suffixes of indexes within PostgreSQL's 63 bytes. */
const EFFECTS_NAME_CHARS_MAX = 50;

/** Returns `name` if it can be the name of a table of effects. @throws bad_table_name */
export function effectsName(table: string): string {
  return plainTableName(table, 'a plain name of a table of effects');
}

/** Returns the DDL that a service's migration runs for its own table of effects.
 *  @param table `name` or `schema.name`
 *  @throws bad_table_name
 *  @example
 *  await pool.query(effectsTableSql('effects'));
 */
export function effectsTableSql(table: string): string {
  const name = effectsName(table);
  const local = name.slice(name.indexOf('.') + 1);
  if (local.length > EFFECTS_NAME_CHARS_MAX) {
    throw outboxError(
      'bad_table_name',
      `the name ${local} has ${local.length} characters, at most ${EFFECTS_NAME_CHARS_MAX} leave room for its indexes`,
      { next: 'use a shorter name' },
    );
  }
  // A row is updated at least twice. Vacuum starts at a fixed number of rows, without a cost delay.
  return `CREATE TABLE ${name} (
  id bigserial PRIMARY KEY,
  effect_id uuid NOT NULL UNIQUE,
  name text NOT NULL,
  key text NOT NULL,
  input json NOT NULL,
  traceparent text,
  state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'dead')),
  attempts int NOT NULL DEFAULT 0,
  due_at timestamptz NOT NULL DEFAULT now(),
  first_tried_at timestamptz,
  owner uuid,
  lease_until timestamptz,
  reason text CHECK (reason IN ('refused', 'budget', 'unknown_outcome')),
  error text,
  blocks boolean NOT NULL DEFAULT true,
  result json,
  created_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz
) WITH (
  fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX ${local}_open ON ${name} (name, key, id) WHERE state <> 'done';
CREATE INDEX ${local}_due ON ${name} (name, due_at, id) WHERE state = 'waiting';
CREATE INDEX ${local}_lease ON ${name} (lease_until) WHERE state = 'running';
CREATE INDEX ${local}_ended ON ${name} (ended_at) WHERE state = 'done';
`;
}

/** Returns the script that adds the column of the tracestate to a table of effectsTableSql; it
 *  changes nothing where the column exists. A separate script, because effectsTableSql was released
 *  before.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(effectsTraceSql('effects'));
 */
export const effectsTraceSql = (table: string): string =>
  `ALTER TABLE ${effectsName(table)} ADD COLUMN IF NOT EXISTS tracestate text;\n`;

/** Returns the script that adds the count of attempts in a row that ended with their runner, and
 *  the reason `runner_ended` of dead letters, to a table of effectsTableSql; it can be repeated. A
 *  separate script, because effectsTableSql was released before.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(effectsRunnerEndsSql('effects'));
 */
export function effectsRunnerEndsSql(table: string): string {
  const name = effectsName(table);
  const constraint = `${name.slice(name.indexOf('.') + 1)}_reason_check`;
  // NOT VALID avoids a scan under the lock: the constraint before admitted no further reason.
  return `ALTER TABLE ${name} ADD COLUMN IF NOT EXISTS runner_ends int NOT NULL DEFAULT 0,
  DROP CONSTRAINT IF EXISTS ${constraint},
  ADD CONSTRAINT ${constraint} CHECK (reason IN ('refused', 'budget', 'unknown_outcome', 'runner_ended')) NOT VALID;
`;
}

/** Returns the script of a unique index by which at most one effect of a name and key runs, also if
 *  a redrive and several runners meet; it can be repeated. It reads the table once, while writers
 *  wait. It fails while two effects of one key run, which a redrive of an earlier release could
 *  cause: repeat it after one of them has ended. A separate script, because effectsTableSql was
 *  released before.
 *  @throws bad_table_name
 *  @example
 *  await pool.query(effectsOneRunningSql('effects'));
 */
export function effectsOneRunningSql(table: string): string {
  const name = effectsName(table);
  const index = `${name.slice(name.indexOf('.') + 1)}_running`;
  return `CREATE UNIQUE INDEX IF NOT EXISTS ${index} ON ${name} (name, key) WHERE state = 'running';\n`;
}
