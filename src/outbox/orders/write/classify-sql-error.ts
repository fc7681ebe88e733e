/** Classifies the error of a failed transaction by what it means for its orders. */
import { findMillraceError } from '../../../core/errors.ts';
import { refusedState } from '../../../io/postgres/sql/port.ts';

export type SqlErrorClass =
  /** Deadlock or serialization failure: a retry can succeed. */
  | 'conflict'
  /** Lock timeout: another transaction holds one of the keys. */
  | 'key_locked'
  /** The connection was lost with the statement in flight: it committed completely or not at all.
   */
  | 'unknown'
  /** The database cannot write any order: nothing was sent, or every batch would fail. */
  | 'unavailable'
  /** statement_timeout. */
  | 'timeout'
  /** The database refuses one of the rows. */
  | 'row'
  /** Bug of the product. */
  | 'bug';

const CONFLICT = /^40(P01|001)$/;
/** Out of disk, memory or connections; read-only; shutting down; a failing device. */
const UNAVAILABLE = /^(53|58|57P|25006$)/;

export function classifySqlError(thrown: unknown): SqlErrorClass {
  const error = findMillraceError(thrown);
  if (error === undefined) return 'bug';
  if (error.code === 'commit_unknown') return 'unknown';
  if (error.code === 'unreachable') return error.details['sent'] === true ? 'unknown' : 'unavailable';
  const sqlstate = refusedState(error);
  if (sqlstate === undefined) return 'bug';
  if (CONFLICT.test(sqlstate)) return 'conflict';
  if (sqlstate === '55P03') return 'key_locked';
  if (sqlstate === '57014') return 'timeout';
  if (UNAVAILABLE.test(sqlstate)) return 'unavailable';
  // Missing tables, columns and privileges affect every row.
  return sqlstate.startsWith('42') ? 'bug' : 'row';
}
