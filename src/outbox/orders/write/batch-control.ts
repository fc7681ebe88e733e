/** When the next transaction of the order writer starts, and with how many orders.
 *
 *  Pure: times are handed in. The rule: (1) Orders gather for `gatherMs`: a fifth of the budget, or
 *  less where gathering and a slow commit (mean and two
 *      deviations) would leave less than half of the budget.
 *  (2) Where fewer than COMPANY_MIN orders are expected to arrive in that time, nothing waits: a
 *  quiet service writes each
 *      order at once.
 *  (3) A full batch starts at once. Full is `rowsNow`, which grows where more than another batch
 *  queues, and shrinks where a
 *      transaction takes more than half of the budget and less than half a batch queues.
 */

const ROWS_MIN = 16;
const ROWS_START = 64;
const ROWS_STEP = 16;
/** Weights of the newest measurement in mean and deviation. */
const MEAN_SHARE = 1 / 8;
const DEVIATION_SHARE = 1 / 4;
/** Timers are no finer. */
const GATHER_MIN_MS = 1;
const GATHER_SHARE = 1 / 5;
const COMPANY_MIN = 2;
/** Arrivals are counted over this long. */
const WINDOW_MS = 50;
const WINDOW_SHARE = 1 / 2;
/** One stall says little about the next transaction. */
const SAMPLE_BUDGETS_MAX = 4;

export interface BatchControlOptions {
  /** Transactions under way at once. */
  readonly lanes: number;
  /** Orders a transaction at most; with `fixed` always. */
  readonly rowsMax: number;
  /** Time from request to answer that is aimed at for nearly all requests. */
  readonly budgetMs: number;
  /** The size does not follow the measurements, and nothing gathers longer than the lanes are busy.
   */
  readonly fixed: boolean;
}

export class BatchControl {
  private readonly options: BatchControlOptions;
  private rows: number;
  private meanMs = 0;
  private deviationMs = 0;
  /** Orders a ms. */
  private rate = 0;
  private windowMs = 0;
  private arrivals = 0;

  constructor(options: BatchControlOptions) {
    this.options = options;
    this.rows = options.fixed ? options.rowsMax : Math.min(ROWS_START, options.rowsMax);
  }

  /** Orders the next transaction takes at most. */
  rowsNow(): number {
    return this.rows;
  }

  /** An order joined the queue. */
  arrived(nowMs: number): void {
    const { windowMs } = this;
    if (nowMs - windowMs >= WINDOW_MS) {
      // A long silence is one window: what was before it says nothing about now.
      this.rate += (this.arrivals / (nowMs - windowMs) - this.rate) * WINDOW_SHARE;
      if (nowMs - windowMs > 4 * WINDOW_MS) this.rate = 0;
      this.windowMs = nowMs;
      this.arrivals = 0;
    }
    this.arrivals++;
  }

  /** How long an order may wait for others. */
  gatherMs(): number {
    const { budgetMs, fixed } = this.options;
    if (fixed) return 0;
    const room = budgetMs / 2 - (this.meanMs + 2 * this.deviationMs);
    const gather = Math.min(room, budgetMs * GATHER_SHARE);
    return gather < GATHER_MIN_MS || gather * this.rate < COMPANY_MIN ? 0 : gather;
  }

  /** Above 0: start a transaction with so many orders. Else: look again after so many ms, or when
   *  something changes.
   *  @param oldestMs how long the order at the head has waited; `queued` is at least 1 and a lane
   *  is free */
  decide(queued: number, oldestMs: number): number {
    const take = Math.min(queued, this.rows);
    if (queued >= this.rows) return take;
    const leftMs = this.gatherMs() - oldestMs;
    return leftMs <= 0 ? take : -leftMs;
  }

  /** A transaction of `rows` orders took `ms`; so many are queued behind it. */
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

  /** Mean time of a transaction; 0 before the first. */
  transactionMs(): number {
    return this.meanMs;
  }

  /** How long an order that joins the queue waits until its transaction starts. */
  expectedWaitMs(queued: number): number {
    return (queued / (this.rows * this.options.lanes)) * this.meanMs;
  }
}
