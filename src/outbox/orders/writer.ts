/** Gathers new orders into transactions: what arrives while `lanes` transactions are under way goes together into the
 *  next one, at most `batchMax` at a time. A quiet service writes each order at once; a busy one shares its flushes.
 *
 *  Invariants: (1) a key is in at most one batch at a time (the caller's single flight); (2) a batch that the database
 *  refuses is split until the refused order is alone, so it fails by itself; (3) after a lost connection the keys are
 *  read back once, and an order that is not there is reported as unknown, never as failed: the statement may still be
 *  running.
 */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import type { Histogram } from '../../core/metrics.ts';
import type { SqlPool, SqlSession } from '../../io/sql/port.ts';
import { outboxError } from '../errors.ts';
import { insertOrders, type NewOrder, readAnswers, type StoredAnswer } from './store.ts';

export interface Written {
  readonly answer: StoredAnswer;
  /** This order's rows are the ones stored. */
  readonly first: boolean;
}

export interface OrderWriterOptions {
  readonly pool: SqlPool;
  readonly lanes: number;
  readonly batchMax: number;
  /** Rows a transaction. */
  readonly batchRows: Histogram;
}

/** Deadlock and serialization failure: nothing is wrong with the statement itself. */
const TRY_AGAIN = new Set(['40P01', '40001']);
const ATTEMPTS_MAX = 5;
/** lock_timeout: another transaction holds the key for longer than the wait. */
const LOCK_TIMEOUT = '55P03';
/** How long the parts of a batch that has already waited wait again, to tell the held key from the free ones. */
const SHORT_WAIT_MS = 10;

interface Waiting {
  readonly order: NewOrder;
  resolve(written: Written): void;
  reject(error: unknown): void;
}

const storedOf = (order: NewOrder): StoredAnswer => order;

export class OrderWriter {
  private readonly options: OrderWriterOptions;
  private queue: Waiting[] = [];
  private active = 0;

  constructor(options: OrderWriterOptions) {
    this.options = options;
  }

  /** @throws database_unavailable, in_flight, sql_failed */
  write(order: NewOrder): Promise<Written> {
    return new Promise((resolve, reject) => {
      this.queue.push({ order, resolve, reject });
      this.start();
    });
  }

  private start(): void {
    while (this.active < this.options.lanes && this.queue.length > 0) {
      const batch = this.queue.slice(0, this.options.batchMax);
      this.queue = this.queue.slice(batch.length);
      this.active++;
      this.settle(batch).finally(() => {
        this.active--;
        this.start();
      });
    }
  }

  /** Never rejects: every order of the batch gets its own outcome. */
  private async settle(batch: readonly Waiting[], waited = false): Promise<void> {
    this.options.batchRows.observe(batch.length);
    try {
      const written = await this.attempt(
        batch.map((waiting) => waiting.order),
        waited,
      );
      for (const waiting of batch) waiting.resolve(written.get(waiting.order.key) as Written);
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (batch.length > 1 && error?.code === 'sql_failed') {
        const middle = batch.length >> 1;
        const hasWaited = waited || error.details['sqlstate'] === LOCK_TIMEOUT;
        await this.settle(batch.slice(0, middle), hasWaited);
        await this.settle(batch.slice(middle), hasWaited);
        return;
      }
      for (const waiting of batch) waiting.reject(refusalOf(thrown));
    }
  }

  private async attempt(orders: readonly NewOrder[], waited: boolean): Promise<ReadonlyMap<string, Written>> {
    const { pool } = this.options;
    for (let attempt = 1; ; attempt++) {
      try {
        if (!waited) return await this.once(pool, orders);
        return await pool.transaction(async (session) => {
          await session.query(`SET LOCAL lock_timeout = ${SHORT_WAIT_MS}`);
          return this.once(session, orders);
        });
      } catch (thrown) {
        const error = findMillraceError(thrown);
        const sqlstate = error?.details['sqlstate'];
        if (typeof sqlstate === 'string' && TRY_AGAIN.has(sqlstate) && attempt < ATTEMPTS_MAX) continue;
        if (error?.code === 'unreachable' || error?.code === 'commit_unknown')
          return this.readBack(orders, error);
        throw thrown;
      }
    }
  }

  private async once(
    session: SqlSession,
    orders: readonly NewOrder[],
  ): Promise<ReadonlyMap<string, Written>> {
    const won = await insertOrders(session, orders);
    const rest = orders.filter((order) => !won.has(order.key)).map((order) => order.key);
    const known = rest.length === 0 ? new Map<string, StoredAnswer>() : await readAnswers(session, rest);
    return this.gather(orders, won, known);
  }

  private async readBack(
    orders: readonly NewOrder[],
    lost: MillraceError,
  ): Promise<ReadonlyMap<string, Written>> {
    const known = await readAnswers(
      this.options.pool,
      orders.map((order) => order.key),
    ).catch(() => new Map<string, StoredAnswer>());
    const won = new Set(
      orders.filter((order) => known.get(order.key)?.orderId === order.orderId).map((order) => order.key),
    );
    if (orders.some((order) => !known.has(order.key))) {
      // Those that are there are replayed to the client's next attempt; it is the same answer.
      throw outboxError(
        'database_unavailable',
        'the database went away before the order was known to be stored',
        {
          next: 'send the same request with the same key again',
          cause: lost,
        },
      );
    }
    return this.gather(orders, won, known);
  }

  private gather(
    orders: readonly NewOrder[],
    won: ReadonlySet<string>,
    known: ReadonlyMap<string, StoredAnswer>,
  ): ReadonlyMap<string, Written> {
    const written = new Map<string, Written>();
    for (const order of orders) {
      const answer = won.has(order.key) ? storedOf(order) : known.get(order.key);
      if (answer === undefined) {
        throw outboxError('database_unavailable', 'a stored key could not be read back', {
          next: 'send the same request again',
        });
      }
      written.set(order.key, { answer, first: won.has(order.key) });
    }
    return written;
  }
}

function refusalOf(thrown: unknown): unknown {
  const error = findMillraceError(thrown);
  if (error?.details['sqlstate'] === LOCK_TIMEOUT) {
    return outboxError('in_flight', 'another request with this key has not finished yet', {
      next: 'send the same request again in a second',
      cause: thrown,
    });
  }
  return thrown;
}
