/** Open transaction that `append` and `once` write through, and the syntax of table names. */
import { outboxError } from '../errors.ts';

/** Transaction that a service has open already. Both a session of our SQL port and a client of the
 *  `pg` package fit.
 *
 *  Every parameter of `query` is a string, a number, a Buffer, null, or an array of these, and
 *  statements cast their results to text. So a client needs no knowledge of our types.
 */
export interface OpenTransaction {
  query(
    text: string,
    // biome-ignore lint/suspicious/noExplicitAny: the only common type of all clients
    params: any[],
  ): Promise<{
    readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>;
    readonly rowCount: number | null;
  }>;
}

/** Table name, `name` or `schema.name`, each part plain and lower case, so that SQL text needs no
 *  quotes. */
export const TABLE_NAME = /^(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$/;

/** Refuses a connection that has no open transaction, because a row and its effect would commit
 *  separately. It recognizes pools (ours and those of `pg`) and clients that report their state, as
 *  those of `pg` do after the answer to BEGIN.
 *  @throws not_in_transaction */
export function requireOpen(tx: OpenTransaction): void {
  const given = tx as {
    readonly transaction?: unknown;
    readonly totalCount?: unknown;
    getTransactionStatus?(): unknown;
  };
  const isPool = typeof given.transaction === 'function' || typeof given.totalCount === 'number';
  if (!isPool && given.getTransactionStatus?.() !== 'I') return;
  throw outboxError(
    'not_in_transaction',
    isPool
      ? 'a pool runs each statement in a transaction of its own; nothing was written'
      : 'no transaction is open on this client; nothing was written',
    { next: 'BEGIN on one client, await its answer, and give that client' },
  );
}
