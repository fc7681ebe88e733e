/** Batches new orders into transactions, several of which are in flight (lanes).
 *
 *  Invariants:
 *  1. A key is in at most one batch at a time (the caller's single flight).
 *  2. Every order gets exactly one outcome; written orders get theirs before repeats are looked up.
 *  3. A lane waits at most BATCH_LOCK_MS for another process's key.
 *  4. A refused batch leaves its lane. A separate connection splits it until the refused orders are
 *  isolated. A bad order fails alone; an order with a locked key is retried alone, up to
 *  `inFlightWaitMs`.
 *  5. After an unknown outcome, the stored keys are read back. Missing orders are written again
 *  under the same ids, which is safe because of the keys.
 *
 *      queue ──► lane ──refused──► isolation ──key locked──► retries in turns
 */
import { type Cancel, type Random, sleep, type Timers } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { TextPool, TextSession } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import type { OrdersMetrics } from '../metrics.ts';
import type { BatchControl } from './batch-control.ts';
import { classifySqlError } from './classify-sql-error.ts';
import type { StoredAnswer } from './replay-cache.ts';
import {
  insertOrder,
  insertOrders,
  insertParts,
  type NewOrder,
  RESPONSE_CODE,
  readStored,
  responseOf,
  setLockTimeout,
} from './store.ts';

/** lock_timeout of the pool's connections. */
export const BATCH_LOCK_MS = 40;
/** lock_timeout during isolation: tells locked keys from free ones. */
const ISOLATE_LOCK_MS = 2;
/** Maximum number of orders isolated in one transaction: each locked key in it delays the free ones
 *  by ISOLATE_LOCK_MS. */
const ISOLATE_ROWS = 64;
/** Total lock_timeout of one round over the orders with locked keys, shared among them, and its
 *  minimum for each. */
const ROUND_MS = 500;
const LOCK_WAIT_MS_MIN = 5;
/** Time during which the next request of a key that was locked bypasses the batches. */
const RECENTLY_LOCKED_MS = 30_000;
const RECENTLY_LOCKED_MAX = 4096;
/** Connections for retries of orders with locked keys. */
const RETRY_LANES = 2;
/** Connections beside the lanes: those for locked keys and one for isolation. */
export const SIDE_CONNECTIONS = RETRY_LANES + 1;
const ATTEMPTS_MAX = 5;
const JITTER_MS = 10;
/** Share of repeats above which stored answers are read before a write. */
const READ_FIRST_SHARE = 0.5;
const SHARE_WEIGHT = 1 / 16;
const NONE: ReadonlyMap<string, unknown> = new Map();

/** Order in flight, with callbacks for its outcome. */
export interface QueuedOrder extends NewOrder {
  readonly queuedMs: number;
  /** True if no request waits for it any more; then it need not be started. */
  abandoned: boolean;
  /** @param first true if this order's own rows are stored */
  settle(answer: StoredAnswer, first: boolean): void;
  fail(error: unknown): void;
}

export interface OrderWriterOptions {
  readonly pool: TextPool;
  readonly lanes: number;
  readonly control: BatchControl;
  /** True: one transaction for each order and one statement for each row. */
  readonly oneByOne: boolean;
  readonly inFlightWaitMs: number;
  readonly keyTtlMs: () => number;
  readonly metrics: OrdersMetrics;
  readonly clock: Timers;
  /** Source of the jitter of retries. */
  readonly random: Random;
  /** Called after a commit and before its answers. */
  readonly committed: (orders: number) => void;
  /** Called after a transaction failed. */
  readonly failed: (thrown: unknown) => void;
}

/** Write mode of a transaction: one batch, isolation of refused orders, or a lock_timeout in ms for
 *  a single order. */
type WriteMode = 'batch' | 'isolate' | number;

export class OrderWriter {
  private readonly options: OrderWriterOptions;
  private queue: QueuedOrder[] = [];
  private head = 0;
  private busy = 0;
  private toIsolate: QueuedOrder[] = [];
  private isIsolating = false;
  private readonly lockedOrders: QueuedOrder[] = [];
  private retryLanes = 0;
  /** Keys that were locked recently, with the end of that period; the oldest first. */
  private readonly recentlyLocked = new Map<string, number>();
  /** Cancels the linger of a batch that is not full. */
  private gathering: Cancel | undefined;
  /** Share of repeats among the arriving orders, as an exponentially weighted mean. */
  private repeatShare = 0;

  constructor(options: OrderWriterOptions) {
    this.options = options;
  }

  write(job: QueuedOrder): void {
    if (this.recentlyLocked.size > 0 && (this.recentlyLocked.get(job.key) ?? 0) > job.queuedMs) {
      this.queueLocked(job);
      return;
    }
    this.queue.push(job);
    this.options.control.arrived(job.queuedMs);
    if (this.busy < this.options.lanes) this.pump();
  }

  queued(): number {
    return this.queue.length - this.head;
  }

  private pump(): void {
    const { control, lanes, clock } = this.options;
    while (this.busy < lanes && this.queued() > 0) {
      const oldest = this.queue[this.head] as QueuedOrder;
      const rows = control.decide(this.queued(), clock.monotonicMs() - oldest.queuedMs);
      if (rows <= 0) {
        this.gathering ??= clock.after(-rows, () => {
          this.gathering = undefined;
          this.pump();
        });
        return;
      }
      const batch = this.dequeue(rows);
      if (batch.length > 0) this.run(batch);
    }
    if (this.gathering !== undefined && this.queued() === 0) {
      this.gathering();
      this.gathering = undefined;
    }
  }

  private dequeue(rows: number): QueuedOrder[] {
    const end = this.head + rows;
    const batch = this.queue.slice(this.head, end);
    this.head = end;
    if (this.head === this.queue.length) {
      this.queue = [];
      this.head = 0;
    } else if (this.head > 1024 && this.head * 2 > this.queue.length) {
      this.queue = this.queue.slice(this.head);
      this.head = 0;
    }
    if (!batch.some((job) => job.abandoned)) return batch;
    for (const job of batch) if (job.abandoned) job.fail(overdue());
    return batch.filter((job) => !job.abandoned);
  }

  private run(batch: readonly QueuedOrder[]): void {
    const { control, metrics, clock } = this.options;
    this.busy++;
    const startMs = clock.monotonicMs();
    metrics.transactionRows.observe(batch.length);
    this.settle(batch, 'batch').finally(() => {
      this.busy--;
      control.finished(batch.length, clock.monotonicMs() - startMs, this.queued());
      this.pump();
    });
  }

  /** Gives every order its outcome or queues it elsewhere; never rejects. */
  private async settle(batch: readonly QueuedOrder[], mode: WriteMode): Promise<void> {
    let open = batch;
    for (let attempt = 1; open.length > 0; attempt++) {
      try {
        if (this.repeatShare > READ_FIRST_SHARE) open = await this.answerStored(open);
        if (open.length === 0) return;
        open = await this.insert(open, mode);
        if (open.length === 0) return;
        open = await this.answerStored(open);
        // The key existed and no longer does: its transaction was rolled back, or it expired.
        if (attempt < ATTEMPTS_MAX) continue;
        for (const job of open) job.fail(unreadable());
        return;
      } catch (thrown) {
        const next = await this.recover(thrown, open, attempt, mode);
        if (next === undefined) return;
        open = next;
      }
    }
  }

  /** Returns the orders that remain to be written; undefined if every order has its outcome or is
   *  queued elsewhere. */
  private async recover(
    thrown: unknown,
    open: readonly QueuedOrder[],
    attempt: number,
    mode: WriteMode,
  ): Promise<readonly QueuedOrder[] | undefined> {
    const { metrics, clock, random, failed } = this.options;
    failed(thrown);
    const errorClass = classifySqlError(thrown);
    if (errorClass === 'conflict' && attempt < ATTEMPTS_MAX) {
      metrics.retries.add(1, metrics.retries.series('conflict'));
      await sleep(clock, random.fraction() * JITTER_MS * attempt);
      return open;
    }
    if (errorClass === 'unknown' && attempt < ATTEMPTS_MAX) {
      metrics.unknown.add();
      try {
        return await this.answerStored(open);
      } catch {
        // The database does not answer: a client that retries with the same key finds out.
        return this.failAll(open, thrown);
      }
    }
    if (open.length > 1 && isOrderFault(thrown)) {
      metrics.splits.add();
      if (mode === 'batch') this.isolate(open);
      // The COMMIT refused it, where no savepoint helps.
      else for (const job of open) await this.settle([job], 'batch');
      return undefined;
    }
    if (errorClass === 'key_locked') {
      for (const job of open) this.queueLocked(job);
      return undefined;
    }
    return this.failAll(open, thrown);
  }

  private failAll(open: readonly QueuedOrder[], thrown: unknown): undefined {
    const error = refusalOf(thrown);
    for (const job of open) job.fail(error);
    return undefined;
  }

  /** Writes the orders with absent keys and answers them. Returns the orders whose keys are taken.
   */
  private async insert(open: readonly QueuedOrder[], mode: WriteMode): Promise<readonly QueuedOrder[]> {
    const { pool, metrics, clock, oneByOne, keyTtlMs } = this.options;
    const startMs = clock.monotonicMs();
    const nowMs = clock.wallNowMs();
    const createdAt = new Date(nowMs).toISOString();
    let refused: ReadonlyMap<string, unknown> = NONE;
    const write = async (session: TextSession): Promise<'all' | ReadonlySet<string>> => {
      if (mode !== 'batch') await setLockTimeout(session, mode === 'isolate' ? ISOLATE_LOCK_MS : mode);
      if (mode === 'isolate') {
        const written = await insertParts(session, open, createdAt, isOrderFault);
        refused = written.refused;
        return written.won;
      }
      if (!oneByOne) return insertOrders(session, open, createdAt);
      const won = new Set<string>();
      for (const job of open) if (await insertOrder(session, job, createdAt)) won.add(job.orderId);
      return won;
    };
    const won = oneByOne || mode !== 'batch' ? await pool.transaction(write) : await write(pool);
    metrics.transactionSeconds.observe((clock.monotonicMs() - startMs) / 1000);
    const count = won === 'all' ? open.length : won.size;
    const taken = open.length - count - refused.size;
    this.repeatShare += (taken / open.length - this.repeatShare) * SHARE_WEIGHT;
    if (count > 0) this.options.committed(count);
    const expiresMs = nowMs + keyTtlMs();
    const rest: QueuedOrder[] = [];
    for (const job of open) {
      if (won === 'all' || won.has(job.orderId)) {
        const { requestHash, orderId } = job;
        const responseBody = responseOf(orderId);
        job.settle({ requestHash, orderId, responseCode: RESPONSE_CODE, responseBody, expiresMs }, true);
      } else if (!refused.has(job.orderId)) rest.push(job);
      else this.refuse(job, refused.get(job.orderId));
    }
    return rest;
  }

  private refuse(job: QueuedOrder, thrown: unknown): void {
    if (classifySqlError(thrown) === 'key_locked') this.queueLocked(job);
    else job.fail(refusalOf(thrown));
  }

  /** Answers the orders whose keys are stored. Returns the others. */
  private async answerStored(open: readonly QueuedOrder[]): Promise<readonly QueuedOrder[]> {
    const { pool, keyTtlMs } = this.options;
    const stored = await readStored(
      pool,
      open.map((job) => job.key),
      keyTtlMs(),
    );
    if (this.repeatShare > READ_FIRST_SHARE)
      this.repeatShare += (stored.size / open.length - this.repeatShare) * SHARE_WEIGHT;
    return open.filter((job) => {
      const answer = stored.get(job.key);
      if (answer === undefined) return true;
      job.settle(answer, answer.orderId === job.orderId);
      return false;
    });
  }

  /** Isolates the refused orders of a batch. */
  private isolate(open: readonly QueuedOrder[]): void {
    for (const job of open) this.toIsolate.push(job);
    if (this.isIsolating) return;
    this.isIsolating = true;
    void this.isolateAll();
  }

  private async isolateAll(): Promise<void> {
    while (this.toIsolate.length > 0) {
      const part = this.toIsolate.slice(0, ISOLATE_ROWS);
      this.toIsolate = this.toIsolate.slice(ISOLATE_ROWS);
      for (const job of part) if (job.abandoned) job.fail(overdue());
      await this.settle(
        part.filter((job) => !job.abandoned),
        'isolate',
      );
    }
    this.isIsolating = false;
  }

  private queueLocked(job: QueuedOrder): void {
    this.options.metrics.held.add();
    this.rememberLocked(job.key);
    this.lockedOrders.push(job);
    if (this.retryLanes >= RETRY_LANES) return;
    this.retryLanes++;
    void this.retryLocked();
  }

  private rememberLocked(key: string): void {
    const nowMs = this.options.clock.monotonicMs();
    this.recentlyLocked.delete(key);
    for (const [oldest, untilMs] of this.recentlyLocked) {
      if (untilMs > nowMs && this.recentlyLocked.size < RECENTLY_LOCKED_MAX) break;
      this.recentlyLocked.delete(oldest);
    }
    this.recentlyLocked.set(key, nowMs + RECENTLY_LOCKED_MS);
  }

  private async retryLocked(): Promise<void> {
    const { clock, inFlightWaitMs } = this.options;
    for (let job = this.lockedOrders.shift(); job !== undefined; job = this.lockedOrders.shift()) {
      const leftMs = inFlightWaitMs - (clock.monotonicMs() - job.queuedMs);
      if (leftMs <= 0 || job.abandoned) {
        job.fail(inFlight());
        continue;
      }
      const lockWaitMs = Math.max(LOCK_WAIT_MS_MIN, ROUND_MS / (this.lockedOrders.length + 1));
      try {
        const rest = await this.insert([job], Math.min(leftMs, lockWaitMs));
        for (const open of rest.length === 0 ? rest : await this.answerStored(rest))
          this.lockedOrders.push(open);
        this.recentlyLocked.delete(job.key);
      } catch (thrown) {
        if (classifySqlError(thrown) === 'key_locked') this.lockedOrders.push(job);
        else await this.settle([job], 'batch');
      }
    }
    this.retryLanes--;
  }
}

/** True for a locked key or a bad row: without that order, the others of its batch would be
 *  written. */
function isOrderFault(thrown: unknown): boolean {
  const errorClass = classifySqlError(thrown);
  return errorClass === 'key_locked' || errorClass === 'row';
}

const inFlight = (cause?: unknown): Error =>
  outboxError('in_flight', 'another request with this key has not finished yet', {
    next: 'send the same request again in a second',
    cause,
  });
const overdue = (): Error =>
  outboxError('deadline_passed', 'the request waited for too long', {
    next: 'send the same request with the same key again',
  });
const unreadable = (): Error =>
  outboxError('database_unavailable', 'a stored key could not be read back', {
    next: 'send the same request with the same key again',
  });

function refusalOf(thrown: unknown): unknown {
  switch (classifySqlError(thrown)) {
    case 'conflict':
    case 'unknown':
    case 'unavailable':
      return outboxError('database_unavailable', 'the database did not confirm that the order is stored', {
        next: 'send the same request with the same key again',
        cause: thrown,
      });
    case 'timeout':
      return outboxError('deadline_passed', 'the database took too long', {
        next: 'send the same request with the same key again',
        cause: thrown,
      });
    default:
      return findMillraceError(thrown) ?? thrown;
  }
}
