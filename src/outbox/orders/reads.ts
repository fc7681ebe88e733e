/** Reads of orders beside the hot path: no more than `readsMax` have the database at once or wait
 *  for it, so that those who ask for orders cannot keep readiness and maintenance from its few
 *  connections; and none is waited for past its deadline. */
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
  readonly giveUp: () => void;
}

export class OrderReads {
  private readonly options: OrderReadsOptions;
  /** At the database, whether somebody still waits or not. */
  private underWay = 0;
  /** In the order of their deadlines. */
  private readonly waiting = new Set<Read>();
  private readonly shedSeries: number;

  constructor(options: OrderReadsOptions) {
    this.options = options;
    this.shedSeries = options.metrics.shed.series('reads');
  }

  inFlight(): number {
    return this.underWay;
  }

  /** Rejects with overloaded, deadline_passed, unreachable. */
  find(orderId: string): Promise<OrderView | undefined> {
    const { readsMax, metrics } = this.options;
    if (this.underWay < readsMax) return this.read(orderId);
    metrics.shed.add(1, this.shedSeries);
    return Promise.reject(
      outboxError('overloaded', `${readsMax} reads are under way`, {
        next: 'send the same request again in a second',
      }),
    );
  }

  /** Undefined also where it cannot be known now. */
  async findIfFree(orderId: string): Promise<OrderView | undefined> {
    if (this.underWay >= this.options.readsMax) return undefined;
    return this.read(orderId).catch(() => undefined);
  }

  /** Ends the wait of those whose deadline has passed; to be called several times a second. */
  tick(): void {
    const nowMs = this.options.clock.monotonicMs();
    for (const read of this.waiting) {
      if (read.dueMs > nowMs) return;
      this.waiting.delete(read);
      this.options.metrics.deadlines.add();
      read.giveUp();
    }
  }

  private read(orderId: string): Promise<OrderView | undefined> {
    const { pool, clock, deadlineMs } = this.options;
    this.underWay++;
    return new Promise((resolve, reject) => {
      const read: Read = {
        dueMs: clock.monotonicMs() + deadlineMs,
        giveUp: () =>
          reject(outboxError('deadline_passed', `the database did not answer within ${deadlineMs} ms`)),
      };
      this.waiting.add(read);
      readOrder(pool, orderId)
        .finally(() => {
          this.underWay--;
          this.waiting.delete(read);
        })
        .then(resolve, reject);
    });
  }
}
