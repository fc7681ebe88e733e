/** What a failed transaction says about the orders in it. */
import { findMillraceError } from '../../../core/errors.ts';

export type SqlErrorClass =
  /** Deadlock or serialization failure: nothing is wrong with the statement itself. */
  | 'again'
  /** Another transaction holds one of the keys. */
  | 'held'
  /** The connection went away with the statement: it is whole or absent. */
  | 'unknown'
  /** The database cannot write: nothing was sent, or no order of any batch would fare better. */
  | 'down'
  /** The server gave up on it: statement_timeout. */
  | 'late'
  /** One of the rows is refused. */
  | 'row'
  /** A bug of ours. */
  | 'broken';

const AGAIN = /^40(P01|001)$/;
/** Out of disk, memory or connections; read-only; shutting down; a failing device. */
const DOWN = /^(53|58|57P|25006$)/;

export function verdictOf(thrown: unknown): SqlErrorClass {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'broken';
  if (error.code === 'commit_unknown') return 'unknown';
  if (error.code === 'unreachable') return error.details['sent'] === true ? 'unknown' : 'down';
  const sqlstate = error.details['sqlstate'];
  if (error.code !== 'sql_failed' || typeof sqlstate !== 'string') return 'broken';
  if (AGAIN.test(sqlstate)) return 'again';
  if (sqlstate === '55P03') return 'held';
  if (sqlstate === '57014') return 'late';
  if (DOWN.test(sqlstate)) return 'down';
  // Missing tables, columns and rights fail for every row alike.
  return sqlstate.startsWith('42') ? 'broken' : 'row';
}
