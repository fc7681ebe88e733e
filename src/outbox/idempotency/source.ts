/** Source of transactions: a pool of the `pg` package, a pool of our SQL port, or a function of the
 *  service for any other client. */
import { findMillraceError } from '../../core/errors.ts';
import { type OpenTransaction, requireOpen } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { errorsWithin } from '../inbox/client-transaction.ts';

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

type Rows = ReadonlyArray<Readonly<Record<string, unknown>>>;

/** Transaction whose first statement was sent with its BEGIN. */
export interface Fused {
  /** Rows of the first statement. */
  readonly first: Rows;
  /** Runs a last statement together with the COMMIT, after which the transaction has ended. */
  finish(text: string): Promise<Rows>;
}

/** Source that can send statements together with BEGIN and COMMIT: each saves a round trip. */
export interface FusedSource<Tx> extends TransactionSource<Tx> {
  /** As `transaction`. Where the client cannot send several statements at a time, `fused` is
   *  undefined, and `first` has not run.
   *  @param first statement with literals, from withLiterals */
  fused<T>(first: string, work: (tx: Tx, fused: Fused | undefined) => Promise<T>): Promise<T>;
}

/** True for a source of sourceOf whose transactions are fused. */
export const isFused = <Tx>(source: TransactionSource<Tx>): source is FusedSource<Tx> =>
  typeof (source as Partial<FusedSource<Tx>>).fused === 'function';

/** Result of one statement, as `pg` reports it. */
interface PgResult {
  readonly command?: string;
  readonly rows: Rows;
}

/** True for a JavaScript client of `pg`, which reports the results of several statements as a list.
 *  The client over libpq and other implementations do not have both members. */
function reportsEach(client: PgClientLike): boolean {
  const given = client as { readonly readyForQuery?: unknown; readonly getTransactionStatus?: unknown };
  return given.readyForQuery === true && typeof given.getTransactionStatus === 'function';
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

/** Result of a COMMIT. @throws database_unavailable if the server rolled back */
function requireCommitted({ command }: PgResult): void {
  if (command === 'ROLLBACK')
    throw outboxError(
      'database_unavailable',
      'a statement of the transaction had failed, so it was rolled back',
    );
}

/** Begins a transaction, with its first statement where there is one. */
async function begin(
  client: PgClientLike,
  first: string | undefined,
  onEnded: () => void,
): Promise<Fused | undefined> {
  if (first === undefined || !reportsEach(client)) {
    await client.query('BEGIN', []);
    return undefined;
  }
  const several = async (text: string): Promise<readonly PgResult[]> =>
    (await client.query(text, [])) as unknown as readonly PgResult[];
  const results = await several(`BEGIN; ${first}`);
  return {
    first: results[1]?.rows ?? [],
    async finish(text) {
      const [last, ended] = await several(`${text}; COMMIT`);
      onEnded();
      requireCommitted(ended as PgResult);
      return last?.rows ?? [];
    },
  };
}

/** Runs a transaction on a client of the pool. The client is closed, not reused, after a lost
 *  connection or a failed ROLLBACK. */
async function onPgPool<T>(
  pool: PgPoolLike<PgClientLike>,
  first: string | undefined,
  work: (tx: PgClientLike, fused: Fused | undefined) => Promise<T>,
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
  let isOpen = true;
  try {
    try {
      const fused = await begin(client, first, () => {
        isOpen = false;
      });
      const value = await Promise.race([work(client, fused), lost]);
      if (isOpen) requireCommitted((await client.query('COMMIT', [])) as unknown as PgResult);
      return value;
    } catch (thrown) {
      if (broken === undefined && isOpen) await client.query('ROLLBACK', []);
      throw thrown;
    }
  } catch (thrown) {
    if (isLostItself(thrown)) broken ??= thrown as Error;
    throw thrown;
  } finally {
    client.off('error', onLost);
    client.release(broken);
  }
}

const LOST_CODES = /^(ECONN|EPIPE$|ETIMEDOUT$|ENOTFOUND$|EHOSTUNREACH$|EAI_AGAIN$|08|57P0|53300$|25P03$)/;
const LOST_TEXTS =
  /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error)/;

/** As isLost, without the errors that a client wrapped: a handler's failure wraps errors of any
 *  origin. */
function isLostItself(thrown: unknown): boolean {
  if (findMillraceError(thrown)?.kind === 'unavailable') return true;
  const { code, message } = (thrown ?? {}) as { readonly code?: unknown; readonly message?: unknown };
  return (
    (typeof code === 'string' && LOST_CODES.test(code)) ||
    (typeof message === 'string' && LOST_TEXTS.test(message))
  );
}

/** True if the error, or one that the client wrapped in it, means that the database did not answer,
 *  so that the same request may be sent again. */
export const isLost = (thrown: unknown): boolean =>
  isLostItself(thrown) || [...errorsWithin(thrown)].some(isLostItself);

/** Returns the source behind the option `sql`. @throws bad_option */
export function sourceOf<Tx>(sql: TransactionSource<Tx> | PgPoolLike<Tx>): TransactionSource<Tx> {
  const given = sql as Partial<TransactionSource<Tx>> & Partial<PgPoolLike<PgClientLike>>;
  if (typeof given?.connect === 'function' && typeof given.totalCount === 'number') {
    const pool = given as PgPoolLike<PgClientLike>;
    const source: FusedSource<Tx> = {
      transaction: (work) => onPgPool(pool, undefined, (client) => work(client as unknown as Tx)),
      fused: (first, work) => onPgPool(pool, first, (client, fused) => work(client as unknown as Tx, fused)),
    };
    return source;
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
