/** Sender of hints to the relays of an outbox on the same host. */
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { WakeDriver, Waker } from '../../io/wake/port.ts';
import { outboxError } from '../errors.ts';
import { plainTableName } from '../inbox/names.ts';

/** Opens a sender under the name that the relays of the outbox have. It needs no right on the
 *  table.
 *  @throws bad_table_name, tables_missing, unreachable */
export async function openWaker(wake: WakeDriver, pool: SqlPool, table: string): Promise<Waker> {
  plainTableName(table, 'a plain name of an outbox table');
  const { rows } = await pool.query<{ database: string; name: string }>(
    `SELECT current_database()::text AS database, n.nspname || '.' || c.relname AS name
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`,
    [table],
  );
  const [found] = rows;
  if (found === undefined) {
    throw outboxError('tables_missing', `there is no table ${table} in this database`, {
      next: 'create it with service.migrate, or name its schema',
    });
  }
  const systemIdentifier = await pool.systemIdentifier();
  return wake.waker({ systemIdentifier, database: found.database, table: found.name });
}
