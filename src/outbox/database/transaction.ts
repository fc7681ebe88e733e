/** Open transaction that `append` and `once` write through, the proof that it is open, and the
 *  syntax of table names.
 *
 *  Most clients do not report if a transaction is open, and a statement outside of one commits by
 *  itself. So for them the server decides: a guarded statement writes nothing unless one of two
 *  facts holds when it starts.
 *  (1) Its transaction has an id, so an earlier statement of the same transaction has written.
 *  (2) The setting GUARD_SETTING is set. A guarded statement sets it for the rest of its
 *      transaction; outside of a transaction block that is the end of the statement itself.
 *  A statement that found neither is run once more. If it finds neither again, then no transaction
 *  spans the two runs. A pool that gives each statement another connection is refused likewise.
 */
import { outboxError } from '../errors.ts';

/** Parameter of a statement of the library. Each has a cast in the statement. */
export type TransactionValue = string | number | bigint | null | Uint8Array | readonly TransactionValue[];

/** Transaction that a service has open already: a session of our SQL port, a client of the `pg`
 *  package, or an adapter of `millrace/outbox/adapters`.
 *
 *  Every parameter of `query` is a TransactionValue, and statements cast their results to text. So
 *  a client needs no knowledge of our types.
 */
export interface OpenTransaction {
  /** Object that all transactions on the same database and search path share, such as the pool. The
   *  library keeps for it what it knows about the tables. Default: the transaction itself. */
  readonly catalog?: object;
  query(
    text: string,
    // biome-ignore lint/suspicious/noExplicitAny: the only common type of all clients
    params: any[],
  ): Promise<{ readonly rows: ReadonlyArray<Readonly<Record<string, unknown>>> }>;
}

/** Table name, `name` or `schema.name`, each part plain and lower case, so that SQL text needs no
 *  quotes. */
export const TABLE_NAME = /^(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$/;

const GUARD_SETTING = 'millrace.transaction';

/** Common table expression with one row, whose `open` is true if the transaction is proven. The
 *  outermost SELECT must read it: then it is evaluated before any part of the statement, such as a
 *  trigger of the table, writes. CASE evaluates its condition before set_config. */
export const GUARD = `guard AS MATERIALIZED (
  SELECT CASE
    WHEN pg_current_xact_id_if_assigned() IS NOT NULL OR current_setting('${GUARD_SETTING}', true) = 'open' THEN true
    ELSE set_config('${GUARD_SETTING}', 'open', true) IS NULL
  END AS open)`;

/** Statement in two forms with the same parameters. */
export interface GuardedSql {
  /** Form for a transaction that is known to be open. */
  readonly plain: string;
  /** Writes only where `guard.open`. Returns at least one row; `open` is its proof as text. */
  readonly guarded: string;
}

/** Runs a statement, in its guarded form unless the client is known to be in a transaction.
 *  @returns the rows; those of the guarded form may have further columns
 *  @throws not_in_transaction, when nothing was written; errors of the client */
export async function queryInTransaction(
  tx: OpenTransaction,
  sql: GuardedSql,
  params: readonly TransactionValue[],
): Promise<ReadonlyArray<Readonly<Record<string, unknown>>>> {
  if (isKnownOpen(tx)) return (await tx.query(sql.plain, [...params])).rows;
  for (let runs = 0; runs < 2; runs++) {
    const { rows } = await tx.query(sql.guarded, [...params]);
    if (rows[0]?.['open'] === 'true') return rows;
  }
  throw notOpen('the client runs each statement in a transaction of its own');
}

/** Statement that proves that a transaction is open, and not aborted. */
export const PROOF: GuardedSql = {
  plain: `SELECT 'true' AS open`,
  guarded: `WITH ${GUARD} SELECT open::text AS open FROM guard`,
};

/** Checks that a transaction is open; without a statement if the client is known to be in one.
 *  @throws not_in_transaction; errors of the client */
export async function requireOpen(tx: OpenTransaction): Promise<void> {
  if (!isKnownOpen(tx)) await queryInTransaction(tx, PROOF, []);
}

const notOpen = (why: string) =>
  outboxError('not_in_transaction', `${why}; nothing was written`, {
    next: 'begin a transaction, and give its handle: docs/how-to/database-clients.md shows it for each client',
  });

/** True for clients whose state is known without a question to the server: a session of
 *  `pool.transaction` of our SQL port, and a client of `pg` without a statement in flight.
 *  @throws not_in_transaction for pools, and for a client of `pg` whose state is `idle` */
function isKnownOpen(tx: OpenTransaction): boolean {
  const given = tx as {
    readonly copyIn?: unknown;
    readonly transaction?: unknown;
    readonly totalCount?: unknown;
    readonly readyForQuery?: unknown;
    getTransactionStatus?(): unknown;
  };
  if (isOurs(given.copyIn)) {
    if (typeof given.transaction === 'function') throw notOpen(POOL);
    return true;
  }
  if (typeof given.totalCount === 'number') throw notOpen(POOL);
  // The status is that of the last answered statement. A BEGIN or COMMIT in flight would change it.
  if (given.readyForQuery !== true || typeof given.getTransactionStatus !== 'function') return false;
  if (given.getTransactionStatus() === 'I') throw notOpen('no transaction is open on this client');
  return given.getTransactionStatus() === 'T';
}

const POOL = 'a pool runs each statement in a transaction of its own';

/** Only sessions and pools of our SQL port have COPY. */
const isOurs = (copyIn: unknown): boolean => typeof copyIn === 'function';
