/** Columns that a table of the library may lack: a table of the service's own, or one that an
 *  earlier release made.
 *
 *  Invariants: (1) an answer is valid for the client that was asked, because the same name may be
 *  another table in another database; (2) an absent column is asked for again, because a migration
 *  may have added it since.
 */
import type { Timers } from '../../core/clock.ts';
import { systemTimers } from '../system.ts';
import type { OpenTransaction } from './transaction.ts';

type Asked = Pick<OpenTransaction, 'query' | 'catalog'>;

/** Time for which an absent column is not asked for again, ms. */
export const ABSENT_MS = 10_000;

export class ColumnCheck {
  private readonly clock: Pick<Timers, 'monotonicMs'>;
  /** Monotonic time until which a column is known to be absent, by table and column; 'present' does
   *  not end, because no migration removes a column of the library. */
  private readonly known = new WeakMap<object, Map<string, number | 'present'>>();

  constructor(clock: Pick<Timers, 'monotonicMs'>) {
    this.clock = clock;
  }

  /** True when the table has the column. */
  async has(on: Asked, table: string, column: string): Promise<boolean> {
    const source = on.catalog ?? on;
    const answers = this.known.get(source) ?? new Map<string, number | 'present'>();
    this.known.set(source, answers);
    const name = `${table} ${column}`;
    const answer = answers.get(name);
    if (answer === 'present') return true;
    if (answer !== undefined && this.clock.monotonicMs() < answer) return false;
    const found = await readHasColumn(on, table, column);
    answers.set(name, found ? 'present' : this.clock.monotonicMs() + ABSENT_MS);
    return found;
  }
}

async function readHasColumn(on: Asked, table: string, column: string): Promise<boolean> {
  const { rows } = await on.query(
    `SELECT count(*)::text AS n FROM pg_attribute
     WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped`,
    [table, column],
  );
  return rows[0]?.['n'] === '1';
}

const columns = new ColumnCheck(systemTimers);

/** True when the table has the column, for all users of a client. */
export const hasColumn = (on: Asked, table: string, column: string): Promise<boolean> =>
  columns.has(on, table, column);
