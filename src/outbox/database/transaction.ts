/** What `append` and `once` write through, and what a table name may be. */
import { outboxError } from '../errors.ts';

/** A transaction that a service already has open, of whatever client: what `append` and `once` write through. Both a
 *  session of our SQL port and a client of the `pg` package fit.
 *
 *  Everything handed to `query` is text, a number, a Buffer, null, or an array of these, so that no client has to know our types;
 *  everything read from it is cast to text in the statement.
 */
export interface OpenTransaction {
  query(
    text: string,
    // biome-ignore lint/suspicious/noExplicitAny: clients type their parameters in ways that have only this in common
    params: any[],
  ): Promise<{
    readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>>;
    readonly rowCount: number | null;
  }>;
}

/** A table as `name` or `schema.name`, each part lower case and plain, so that it needs no quoting in SQL text. */
export const TABLE_NAME = /^(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$/;

/** Refuses a connection of which it is known that no transaction is open: a row and its effect would commit apart. Known are
 *  pools, ours and those of `pg`, and clients that say their state, as those of `pg` do once BEGIN was answered.
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
