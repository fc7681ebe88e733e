/** Source of transactions: a pool of the `pg` package, a pool of our SQL port, or a function of the
 *  service for any other client. */
import { findMillraceError } from '../../core/errors.ts';
import { type OpenTransaction, requireOpen } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';

/** Runs `work` in one transaction: commits when it settles, rolls back when it rejects. A client
 *  whose transaction is no OpenTransaction passes an adapter as the second argument. */
export interface TransactionSource<Tx> {
  transaction<T>(work: (tx: Tx, open?: OpenTransaction) => Promise<T>): Promise<T>;
}

/** Client of a pool of the `pg` package. */
export interface PgClientLike extends OpenTransaction {
  release(error?: Error | boolean): void;
  // biome-ignore lint/suspicious/noExplicitAny: the event handlers of pg have several types
  on(event: 'error', listener: (error: any) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: the event handlers of pg have several types
  off(event: 'error', listener: (error: any) => void): unknown;
}

/** Pool of the `pg` package. */
export interface PgPoolLike<Client> {
  readonly totalCount: number;
  connect(): Promise<Client>;
}

// biome-ignore lint/suspicious/noExplicitAny: any source of transactions
export type AnySql = PgPoolLike<any> | TransactionSource<any>;

/** Client of a `connect` without, or with, the overload for a callback that pools of pg have. */
type ClientOf<Connect> = Connect extends () => Promise<infer Client>
  ? unknown extends Client
    ? Connect extends { (): Promise<infer Overloaded>; (callback: never): void }
      ? Overloaded
      : Client
    : Client
  : never;

/** Transaction that a handler receives from a source. */
export type TransactionOf<Sql> = Sql extends { readonly totalCount: number; readonly connect: infer Connect }
  ? ClientOf<Connect>
  : // biome-ignore lint/suspicious/noExplicitAny: the result of the work
    Sql extends { transaction(work: (tx: infer Tx, ...more: any[]) => Promise<any>): Promise<any> }
    ? Tx
    : never;

/** Runs a transaction on a client of the pool. The client is closed, not reused, after a lost
 *  connection or a failed ROLLBACK. */
async function onPgPool<T>(
  pool: PgPoolLike<PgClientLike>,
  work: (tx: PgClientLike) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  let onLost: (error: Error) => void = () => {};
  const lost = new Promise<never>((_, reject) => {
    onLost = (error) => {
      broken = error;
      reject(error);
    };
  });
  // Without a listener, the event would end the process.
  client.on('error', onLost);
  lost.catch(() => {});
  try {
    await client.query('BEGIN', []);
    try {
      const value = await Promise.race([work(client), lost]);
      const ended = (await client.query('COMMIT', [])) as { readonly command?: string };
      if (ended.command === 'ROLLBACK')
        throw outboxError(
          'database_unavailable',
          'a statement of the transaction had failed, so it was rolled back',
        );
      return value;
    } catch (thrown) {
      if (broken === undefined) await client.query('ROLLBACK', []);
      throw thrown;
    }
  } catch (thrown) {
    if (isLost(thrown)) broken ??= thrown as Error;
    throw thrown;
  } finally {
    client.off('error', onLost);
    client.release(broken);
  }
}

const LOST_CODES = /^(ECONN|EPIPE$|ETIMEDOUT$|ENOTFOUND$|EHOSTUNREACH$|EAI_AGAIN$|08|57P0|53300$|25P03$)/;
const LOST_TEXTS =
  /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error)/;

/** True if the error means that the database did not answer, so that the same request may be sent
 *  again. */
export function isLost(thrown: unknown): boolean {
  if (findMillraceError(thrown)?.kind === 'unavailable') return true;
  const { code, message } = (thrown ?? {}) as { readonly code?: unknown; readonly message?: unknown };
  return (
    (typeof code === 'string' && LOST_CODES.test(code)) ||
    (typeof message === 'string' && LOST_TEXTS.test(message))
  );
}

/** Returns the source behind the option `sql`. @throws bad_option */
export function sourceOf<Tx>(sql: TransactionSource<Tx> | PgPoolLike<Tx>): TransactionSource<Tx> {
  const given = sql as Partial<TransactionSource<Tx>> & Partial<PgPoolLike<PgClientLike>>;
  if (typeof given?.connect === 'function' && typeof given.totalCount === 'number') {
    const pool = given as PgPoolLike<PgClientLike>;
    return { transaction: (work) => onPgPool(pool, (client) => work(client as unknown as Tx)) };
  }
  if (typeof given?.transaction === 'function') return given as TransactionSource<Tx>;
  throw outboxError('bad_option', 'sql is neither a pool nor a source of transactions', {
    next: 'give a pool of pg or of millrace/drivers, or { transaction: (work) => … }',
  });
}

/** Returns the transaction through which the key's record is written.
 *  @throws bad_option, not_in_transaction */
export async function openOf(tx: unknown, open: OpenTransaction | undefined): Promise<OpenTransaction> {
  const found = (open ?? tx) as Partial<OpenTransaction> | undefined;
  if (typeof found?.query !== 'function')
    throw outboxError('bad_option', 'the transaction of sql has no query(text, params)', {
      next: 'call work(tx, adapter) with an adapter that has it',
    });
  await requireOpen(found as OpenTransaction);
  return found as OpenTransaction;
}
