/** Applies numbered SQL scripts once and in order. An advisory lock lets several processes start
 *  with -migrate at the same time. An applied script is never edited: its text is stored and
 *  compared. */
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import { requirePlainSchema } from './schema-name.ts';

export interface Migration {
  readonly number: number;
  readonly name: string;
  readonly sql: string;
}

/** Time that a migration waits for a table lock; it blocks all migrations after it. */
const TABLE_LOCK_MS = 10_000;

/** Applies those of `migrations` that `owner` has not applied, in one transaction. The pool's
 *  connections must have `schema` first in their search_path (withSettings in connection.ts).
 *  @returns the names applied now
 *  @throws migration_changed, bad_value
 *  @example
 *  const first = { number: 1, name: 'outbox', sql: outboxTableSql('outbox') };
 *  await migrate(pool, 'public', 'shipping', [first]);
 */
export async function migrate(
  pool: SqlPool,
  schema: string,
  owner: string,
  migrations: readonly Migration[],
): Promise<readonly string[]> {
  requirePlainSchema(schema);
  return pool.transaction(async (session) => {
    // Waits without limit for another process's migration, and for a bounded time for a table in
    // use.
    await session.query('SET LOCAL lock_timeout = 0');
    await session.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [
      `millrace.migrate.${schema}`,
    ]);
    await session.query(`SET LOCAL lock_timeout = ${TABLE_LOCK_MS}`);
    await session.query('SET LOCAL statement_timeout = 0');
    await session.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
    await session.query(
      `CREATE TABLE IF NOT EXISTS ${schema}.millrace_migrations (
         owner text NOT NULL, number int NOT NULL, name text NOT NULL, sql text NOT NULL,
         applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (owner, number))`,
    );
    const { rows } = await session.query<{ number: number; sql: string }>(
      `SELECT number, sql FROM ${schema}.millrace_migrations WHERE owner = $1`,
      [owner],
    );
    const applied = new Map(rows.map((row) => [row.number, row.sql]));
    const done: string[] = [];
    for (const migration of migrations) {
      const known = applied.get(migration.number);
      if (known !== undefined && known !== migration.sql) {
        throw outboxError(
          'migration_changed',
          `migration ${owner}/${migration.number} was applied to schema ${schema} with another text`,
          {
            next: 'use the release that applied it, or another -schema',
          },
        );
      }
      if (known !== undefined) continue;
      await session.query(migration.sql);
      await session.query(
        `INSERT INTO ${schema}.millrace_migrations (owner, number, name, sql) VALUES ($1, $2, $3, $4)`,
        [owner, migration.number, migration.name, migration.sql],
      );
      done.push(migration.name);
    }
    return done;
  });
}

/** Checks that the schema has these tables. @throws tables_missing */
export async function requireTables(
  pool: SqlPool,
  schema: string,
  tables: readonly string[],
  owner: string,
): Promise<void> {
  const { rows } = await pool.query<{ name: string }>(
    'SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass($2 || name) IS NULL ORDER BY name',
    [tables, `${schema}.`],
  );
  if (rows.length === 0) return;
  throw outboxError(
    'tables_missing',
    `schema ${schema} has no table ${rows.map((row) => row.name).join(', ')}`,
    {
      next: `run \`millrace ${owner} -migrate${schema === 'public' ? '' : ` -schema=${schema}`}\` on this database first`,
    },
  );
}

/** Checks that a table has a column, which the table of an older release may lack. @throws
 *  tables_missing */
export async function requireColumn(
  pool: SqlPool,
  schema: string,
  table: string,
  column: string,
  owner: string,
): Promise<void> {
  const { rows } = await pool.query(
    'SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped',
    [`${schema}.${table}`, column],
  );
  if (rows.length > 0) return;
  throw outboxError('tables_missing', `table ${schema}.${table} has no column ${column}`, {
    next: `run \`millrace ${owner} -migrate${schema === 'public' ? '' : ` -schema=${schema}`}\` on this database first`,
  });
}
