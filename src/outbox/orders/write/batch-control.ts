/** Adaptive batch size (AIMD) and linger time of the order writer, from the transaction times.
 *
 *  Pure: the caller passes all times. Transaction times have an exponentially weighted mean and
 *  mean deviation (Jacobson, as in TCP round-trip estimation). Rules:
 *  1. Linger: orders wait for their batch to fill for a fifth of the budget, or less if lingering
 *  plus a slow transaction (mean + 2 deviations) would use more than half of the budget.
 *  2. Without linger: if fewer than ARRIVALS_MIN orders are expected in that time, each order is
 *  written immediately.
 *  3. A full batch starts immediately. The batch size grows by ROWS_STEP if more than another batch
 *  is queued. It shrinks by a fifth if a transaction takes more than half of the budget and less
 *  than half a batch is queued.
 */

const ROWS_MIN = 16;
const ROWS_START = 64;
const ROWS_STEP = 16;
/** Weights of the newest sample in mean and deviation. */
const MEAN_SHARE = 1 / 8;
const DEVIATION_SHARE = 1 / 4;
/** Resolution of timers. */
const GATHER_MIN_MS = 1;
const GATHER_SHARE = 1 / 5;
const ARRIVALS_MIN = 2;
/** Window of the arrival rate. */
const WINDOW_MS = 50;
const WINDOW_SHARE = 1 / 2;
/** Caps a sample, so that one stall does not dominate the mean. */
const SAMPLE_BUDGETS_MAX = 4;

export interface BatchControlOptions {
  /** Number of transactions in flight. */
  readonly lanes: number;
  /** Maximum number of orders in a transaction; with `fixed` the constant size. */
  readonly rowsMax: number;
  /** Target for the time from request to answer of nearly all requests, ms. */
  readonly budgetMs: number;
  /** Disables adaptation and lingering. */
  readonly fixed: boolean;
}

export class BatchControl {
  private readonly options: BatchControlOptions;
  private rows: number;
  private meanMs = 0;
  private deviationMs = 0;
  /** Arrivals per ms. */
  private rate = 0;
  private windowMs = 0;
  private arrivals = 0;

  constructor(options: BatchControlOptions) {
    this.options = options;
    this.rows = options.fixed ? options.rowsMax : Math.min(ROWS_START, options.rowsMax);
  }

  /** Maximum number of orders in the next transaction. */
  rowsNow(): number {
    return this.rows;
  }

  /** Records that an order joined the queue. */
  arrived(nowMs: number): void {
    const { windowMs } = this;
    if (nowMs - windowMs >= WINDOW_MS) {
      // After a long pause, the old rate no longer applies.
      this.rate += (this.arrivals / (nowMs - windowMs) - this.rate) * WINDOW_SHARE;
      if (nowMs - windowMs > 4 * WINDOW_MS) this.rate = 0;
      this.windowMs = nowMs;
      this.arrivals = 0;
    }
    this.arrivals++;
  }

  /** Longest time that an order waits for its batch to fill, ms. */
  gatherMs(): number {
    const { budgetMs, fixed } = this.options;
    if (fixed) return 0;
    const room = budgetMs / 2 - (this.meanMs + 2 * this.deviationMs);
    const gather = Math.min(room, budgetMs * GATHER_SHARE);
    return gather < GATHER_MIN_MS || gather * this.rate < ARRIVALS_MIN ? 0 : gather;
  }

  /** Returns the number of orders of a transaction to start now, if positive. Otherwise returns the
   *  negated time in ms after which to decide again, unless an order or a free lane comes first.
   *  @param queued orders in the queue, at least 1; a lane is free
   *  @param oldestMs waiting time of the order at the head */
  decide(queued: number, oldestMs: number): number {
    const take = Math.min(queued, this.rows);
    if (queued >= this.rows) return take;
    const leftMs = this.gatherMs() - oldestMs;
    return leftMs <= 0 ? take : -leftMs;
  }

  /** Records that a transaction of `rows` orders took `ms`, with `queued` orders waiting. */
  finished(rows: number, ms: number, queued: number): void {
    const { budgetMs, rowsMax, fixed } = this.options;
    const sample = Math.min(ms, SAMPLE_BUDGETS_MAX * budgetMs);
    if (this.meanMs === 0) {
      this.meanMs = sample;
      this.deviationMs = sample / 2;
    } else {
      this.deviationMs += (Math.abs(sample - this.meanMs) - this.deviationMs) * DEVIATION_SHARE;
      this.meanMs += (sample - this.meanMs) * MEAN_SHARE;
    }
    if (fixed) return;
    if (queued > this.rows) this.rows = Math.min(rowsMax, this.rows + ROWS_STEP);
    else if (ms > budgetMs / 2 && rows > this.rows / 2 && queued < this.rows / 2)
      this.rows = Math.max(Math.min(ROWS_MIN, rowsMax), Math.floor(this.rows * 0.8));
  }

  /** Mean time of a transaction, ms; 0 before the first. */
  transactionMs(): number {
    return this.meanMs;
  }

  /** Expected time until the transaction of a new order starts, ms. */
  expectedWaitMs(queued: number): number {
    return (queued / (this.rows * this.options.lanes)) * this.meanMs;
  }
}
