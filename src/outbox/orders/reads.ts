/** Reads of orders, with a limit and a deadline. At most `readsMax` reads use or wait for a
 *  database connection, so that readiness checks and maintenance still get one. */
import type { Clock } from '../../core/clock.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { OrdersMetrics } from './metrics.ts';
import { type OrderView, readOrder } from './write/store.ts';

export interface OrderReadsOptions {
  readonly pool: SqlPool;
  readonly clock: Clock;
  readonly metrics: OrdersMetrics;
  readonly readsMax: number;
  readonly deadlineMs: number;
}

interface Read {
  readonly dueMs: number;
  readonly expire: () => void;
}

export class OrderReads {
  private readonly options: OrderReadsOptions;
  /** Number of queries in flight, including those whose deadline has passed. */
  private queries = 0;
  /** Reads in the order of their deadlines. */
  private readonly waiting = new Set<Read>();
  private readonly shedSeries: number;

  constructor(options: OrderReadsOptions) {
    this.options = options;
    this.shedSeries = options.metrics.shed.series('reads');
  }

  inFlight(): number {
    return this.queries;
  }

  /** Reads one order; undefined: it does not exist. Rejects with overloaded, deadline_passed,
   *  unreachable. */
  find(orderId: string): Promise<OrderView | undefined> {
    const { readsMax, metrics } = this.options;
    if (this.queries < readsMax) return this.read(orderId);
    metrics.shed.add(1, this.shedSeries);
    return Promise.reject(
      outboxError('overloaded', `${readsMax} reads are in flight`, {
        next: 'send the same request again in a second',
      }),
    );
  }

  /** Reads one order without load shedding. Undefined also if the limit is reached or the read
   *  fails. */
  async findIfFree(orderId: string): Promise<OrderView | undefined> {
    if (this.queries >= this.options.readsMax) return undefined;
    return this.read(orderId).catch(() => undefined);
  }

  /** Rejects the reads whose deadline has passed; must be called several times a second. */
  tick(): void {
    const nowMs = this.options.clock.monotonicMs();
    for (const read of this.waiting) {
      if (read.dueMs > nowMs) return;
      this.waiting.delete(read);
      this.options.metrics.deadlines.add();
      read.expire();
    }
  }

  private read(orderId: string): Promise<OrderView | undefined> {
    const { pool, clock, deadlineMs } = this.options;
    this.queries++;
    return new Promise((resolve, reject) => {
      const read: Read = {
        dueMs: clock.monotonicMs() + deadlineMs,
        expire: () =>
          reject(outboxError('deadline_passed', `the database did not answer within ${deadlineMs} ms`)),
      };
      this.waiting.add(read);
      readOrder(pool, orderId)
        .finally(() => {
          this.queries--;
          this.waiting.delete(read);
        })
        .then(resolve, reject);
    });
  }
}
