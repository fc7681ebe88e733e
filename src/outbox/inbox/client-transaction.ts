/** Transactions of a service's own database client, for the effects of a consumer. Errors of the
 *  client become those of our SQL port, so that the consumer tells a record that the database
 *  refuses from a database that is away. */
import { coreError, findMillraceError, type MillraceError } from '../../core/errors.ts';
import { sqlError } from '../../io/postgres/sql/port.ts';
import { type OpenTransaction, PROOF, queryInTransaction } from '../database/transaction.ts';

/** Runs work in one transaction of a database client: commits after it, and rolls back when it
 *  rejects. `own` is the client's handle of the transaction, for the statements of the effect.
 *  @example
 *  const transaction = (work) => knex.transaction((trx) => work(knexTransaction(trx), trx));
 */
export type TransactionRunner<T> = <V>(work: (tx: OpenTransaction, own: T) => Promise<V>) => Promise<V>;

/** SQLSTATE classes of PostgreSQL. Codes of Node.js (EPIPE) and of clients (P2002) have other first
 *  characters. */
const SQLSTATE = /^(?:\d\d|P0|XX|HV|F0)[0-9A-Z]{3}$/;
/** Properties under which clients keep the code, and the error that they wrap. */
const CODE_NAMES = ['code', 'originalCode', 'sqlState'];
const CAUSE_NAMES = ['cause', 'original', 'parent', 'driverError', 'meta', 'driverAdapterError'];
const DEPTH_MAX = 8;

/** Yields an error of any client, and then the errors that it wraps. */
export function* errorsWithin(thrown: unknown, depth = 0): Generator<Readonly<Record<string, unknown>>> {
  if (typeof thrown !== 'object' || thrown === null || depth > DEPTH_MAX) return;
  const fields = thrown as Readonly<Record<string, unknown>>;
  yield fields;
  for (const name of CAUSE_NAMES) yield* errorsWithin(fields[name], depth + 1);
}

/** Returns the SQLSTATE of an error of any client, through the errors that it wraps. */
export function sqlstateOf(thrown: unknown): string | undefined {
  for (const fields of errorsWithin(thrown)) {
    const code = CODE_NAMES.map((name) => fields[name]).find(
      (value): value is string => typeof value === 'string' && SQLSTATE.test(value),
    );
    if (code !== undefined) return code;
  }
  return undefined;
}

/** Part of a transaction that failed. */
type Phase = 'begin' | 'effect' | 'library' | 'commit';

const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

/** Error of our SQL port for an error of a client. An error of an effect without a SQLSTATE is not
 *  the database's, and stays as it is. */
function errorOf(thrown: unknown, phase: Phase): unknown {
  if (findMillraceError(thrown) !== undefined) return thrown;
  const sqlstate = sqlstateOf(thrown);
  if (sqlstate !== undefined) return refused(thrown, sqlstate);
  if (phase === 'effect') return thrown;
  if (phase === 'commit')
    return sqlError('commit_unknown', `the client could not commit: ${messageOf(thrown)}`, { cause: thrown });
  return coreError('unreachable', `the client cannot reach PostgreSQL: ${messageOf(thrown)}`, {
    next: 'check that the server accepts connections',
    cause: thrown,
  });
}

const refused = (cause: unknown, sqlstate: string): MillraceError =>
  sqlError('sql_failed', `PostgreSQL refused a statement: ${messageOf(cause)}`, {
    cause,
    details: { sqlstate },
  });

/** Work of the library in a transaction of a client. `effect` marks a call of the service's code.
 */
export interface ClientWork<T> {
  readonly tx: OpenTransaction;
  readonly own: T;
  effect<V>(call: () => Promise<V>): Promise<V>;
}

/** Runs work in one transaction of the client.
 *  @throws not_in_transaction before anything is written, if the runner opens none; sql_failed,
 *    unreachable, commit_unknown; errors of effects */
export async function runInClient<T, V>(
  runner: TransactionRunner<T>,
  work: (client: ClientWork<T>) => Promise<V>,
): Promise<V> {
  let phase: Phase = 'begin';
  // Kept, because a client that cannot roll back may report that error instead.
  let failure: { readonly thrown: unknown } | undefined;
  try {
    return await runner(async (tx, own) => {
      phase = 'library';
      try {
        await queryInTransaction(tx, PROOF, []);
        const effect = async <E>(call: () => Promise<E>): Promise<E> => {
          phase = 'effect';
          const value = await call();
          phase = 'library';
          return value;
        };
        const value = await work({ tx, own, effect });
        // An effect that ignored the error of a statement left an aborted transaction, whose COMMIT
        // rolls back, and not every client reports that.
        await tx.query(PROOF.plain, []);
        phase = 'commit';
        return value;
      } catch (thrown) {
        failure = { thrown: errorOf(thrown, phase) };
        throw thrown;
      }
    });
  } catch (thrown) {
    throw failure === undefined ? errorOf(thrown, phase) : (failure as { readonly thrown: unknown }).thrown;
  }
}
