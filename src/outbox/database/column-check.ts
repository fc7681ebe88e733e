/** Columns that a table of the library may lack: a table of the service's own, or one that an
 *  earlier release made. */
import type { OpenTransaction } from './transaction.ts';

/** Answers, by table and column. */
const answers = new Map<string, boolean>();
const ANSWERS_MAX = 2000;

/** True when the table has the column. */
export async function readHasColumn(
  on: Pick<OpenTransaction, 'query'>,
  table: string,
  column: string,
): Promise<boolean> {
  const { rows } = await on.query(
    `SELECT count(*)::text AS n FROM pg_attribute
     WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped`,
    [table, column],
  );
  return rows[0]?.['n'] === '1';
}

/** As readHasColumn, but asked once for each table and column of a process. */
export async function hasColumn(tx: OpenTransaction, table: string, column: string): Promise<boolean> {
  const name = `${table} ${column}`;
  const known = answers.get(name);
  if (known !== undefined) return known;
  const found = await readHasColumn(tx, table, column);
  if (answers.size < ANSWERS_MAX) answers.set(name, found);
  return found;
}
