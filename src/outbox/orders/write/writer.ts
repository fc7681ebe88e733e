/** Gathers new orders into transactions, several of which are in flight together (lanes).
 *
 *  Invariants: (1) a key is in at most one batch at a time (the caller's single flight); (2) every
 *  order gets exactly one outcome; those that were written get theirs before repeats are looked up;
 *  (3) a lane waits for another process's key no longer than BATCH_LOCK_MS a batch; (4) a batch
 *  that the database refuses leaves its lane and is sorted on a connection of its own, until what
 *  is refused is alone: a bad order fails by itself, one with a held key waits alone, up to
 *  `inFlightWaitMs`; (5) an outcome that was lost is read back; what is not there is written again
 *  under the same ids, which the keys make safe.
 *
 *      queue ──► lane ──refused──► sorting ──held──► waiting in turns
 */
import { type Cancel, type Random, sleep, type Timers } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { TextPool, TextSession } from '../../../io/postgres/sql/port.ts';
import { outboxError } from '../../errors.ts';
import type { OrdersMetrics } from '../metrics.ts';
import type { BatchControl } from './batch-control.ts';
import { verdictOf } from './classify-sql-error.ts';
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
/** How long what is sorted waits for a key, to tell the held ones from the free ones. */
const SORT_LOCK_MS = 2;
/** Orders that are sorted in one transaction: what is free among them waits for the held ones,
 *  SORT_LOCK_MS each. */
const SORT_ROWS = 64;
/** One turn of an order that waits alone, shared among those that wait, down to the least. */
const TURN_MS = 500;
const TURN_MS_MIN = 5;
/** A key that had to wait: its next request does not hold up a batch. */
const LATELY_MS = 30_000;
const LATELY_KEYS_MAX = 4096;
/** Connections for orders that wait alone. */
const PATIENT_LANES = 2;
/** Connections beside the lanes: one sorts. */
export const SIDE_CONNECTIONS = PATIENT_LANES + 1;
const ATTEMPTS_MAX = 5;
const JITTER_MS = 10;
/** Looks for a stored answer before it writes, where repeats are more than this share of what
 *  arrives. */
const LOOK_FIRST_SHARE = 0.5;
const SHARE_WEIGHT = 1 / 16;
const NONE: ReadonlyMap<string, unknown> = new Map();

/** An order on its way, with who waits for it. */
export interface QueuedOrder extends NewOrder {
  readonly queuedMs: number;
  /** No request waits for it any more; it need not be started. */
  abandoned: boolean;
  /** @param first this order's rows are the ones stored */
  settle(answer: StoredAnswer, first: boolean): void;
  fail(error: unknown): void;
}

export interface OrderWriterOptions {
  readonly pool: TextPool;
  readonly lanes: number;
  readonly control: BatchControl;
  /** One transaction an order, a statement a row. */
  readonly oneByOne: boolean;
  readonly inFlightWaitMs: number;
  readonly keyTtlMs: () => number;
  readonly metrics: OrdersMetrics;
  readonly clock: Timers;
  /** Jitter of retries. */
  readonly random: Random;
  /** After a commit and before its answers. */
  readonly committed: (orders: number) => void;
  /** A transaction failed. */
  readonly failed: (thrown: unknown) => void;
}

/** What a transaction does with its orders: write them together, sort them, or wait so many ms for
 *  the key of the only one. */
type How = 'together' | 'sorting' | number;

export class OrderWriter {
  private readonly options: OrderWriterOptions;
  private queue: QueuedOrder[] = [];
  private head = 0;
  private busy = 0;
  private doubtful: QueuedOrder[] = [];
  private sorting = false;
  private readonly held: QueuedOrder[] = [];
  private patient = 0;
  /** Keys that had to wait, and until when that counts; the oldest first. */
  private readonly lately = new Map<string, number>();
  /** Cancels the wait of a batch that is not full. */
  private gathering: Cancel | undefined;
  /** Of what arrives; the rest is new. */
  private repeatShare = 0;

  constructor(options: OrderWriterOptions) {
    this.options = options;
  }

  write(job: QueuedOrder): void {
    if (this.lately.size > 0 && (this.lately.get(job.key) ?? 0) > job.queuedMs) {
      this.wait(job);
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
      const batch = this.take(rows);
      if (batch.length > 0) this.run(batch);
    }
    if (this.gathering !== undefined && this.queued() === 0) {
      this.gathering();
      this.gathering = undefined;
    }
  }

  private take(rows: number): QueuedOrder[] {
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
    this.settle(batch, 'together').finally(() => {
      this.busy--;
      control.finished(batch.length, clock.monotonicMs() - startMs, this.queued());
      this.pump();
    });
  }

  /** Gives every order its outcome or its next place to wait; never rejects. */
  private async settle(batch: readonly QueuedOrder[], how: How): Promise<void> {
    let open = batch;
    for (let attempt = 1; open.length > 0; attempt++) {
      try {
        if (this.repeatShare > LOOK_FIRST_SHARE) open = await this.answerStored(open);
        if (open.length === 0) return;
        open = await this.insert(open, how);
        if (open.length === 0) return;
        open = await this.answerStored(open);
        // A key that was taken and is not there any more: its transaction was rolled back, or it
        // expired.
        if (attempt < ATTEMPTS_MAX) continue;
        for (const job of open) job.fail(unreadable());
        return;
      } catch (thrown) {
        const next = await this.recover(thrown, open, attempt, how);
        if (next === undefined) return;
        open = next;
      }
    }
  }

  /** What is still to be written, or undefined when every order has its outcome or its place to
   *  wait. */
  private async recover(
    thrown: unknown,
    open: readonly QueuedOrder[],
    attempt: number,
    how: How,
  ): Promise<readonly QueuedOrder[] | undefined> {
    const { metrics, clock, random, failed } = this.options;
    failed(thrown);
    const verdict = verdictOf(thrown);
    if (verdict === 'again' && attempt < ATTEMPTS_MAX) {
      metrics.retries.add(1, metrics.retries.series('conflict'));
      await sleep(clock, random.fraction() * JITTER_MS * attempt);
      return open;
    }
    if (verdict === 'unknown' && attempt < ATTEMPTS_MAX) {
      metrics.unknown.add();
      try {
        return await this.answerStored(open);
      } catch {
        // The database does not answer: the client's next attempt with the same key finds out.
        return this.failAll(open, thrown);
      }
    }
    if (open.length > 1 && mayBeOne(thrown)) {
      metrics.splits.add();
      if (how === 'together') this.sort(open);
      // Refused at its end, where no savepoint helps.
      else for (const job of open) await this.settle([job], 'together');
      return undefined;
    }
    if (verdict === 'held') {
      for (const job of open) this.wait(job);
      return undefined;
    }
    return this.failAll(open, thrown);
  }

  private failAll(open: readonly QueuedOrder[], thrown: unknown): undefined {
    const error = refusalOf(thrown);
    for (const job of open) job.fail(error);
    return undefined;
  }

  /** Writes what is absent and answers it; returns the orders whose keys are taken. */
  private async insert(open: readonly QueuedOrder[], how: How): Promise<readonly QueuedOrder[]> {
    const { pool, metrics, clock, oneByOne, keyTtlMs } = this.options;
    const startMs = clock.monotonicMs();
    const nowMs = clock.wallNowMs();
    const createdAt = new Date(nowMs).toISOString();
    let refused: ReadonlyMap<string, unknown> = NONE;
    const write = async (session: TextSession): Promise<'all' | ReadonlySet<string>> => {
      if (how !== 'together') await setLockTimeout(session, how === 'sorting' ? SORT_LOCK_MS : how);
      if (how === 'sorting') {
        const written = await insertParts(session, open, createdAt, mayBeOne);
        refused = written.refused;
        return written.won;
      }
      if (!oneByOne) return insertOrders(session, open, createdAt);
      const won = new Set<string>();
      for (const job of open) if (await insertOrder(session, job, createdAt)) won.add(job.orderId);
      return won;
    };
    const won = oneByOne || how !== 'together' ? await pool.transaction(write) : await write(pool);
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
    if (verdictOf(thrown) === 'held') this.wait(job);
    else job.fail(refusalOf(thrown));
  }

  /** Answers the orders whose keys are stored; returns the others. */
  private async answerStored(open: readonly QueuedOrder[]): Promise<readonly QueuedOrder[]> {
    const { pool, keyTtlMs } = this.options;
    const stored = await readStored(
      pool,
      open.map((job) => job.key),
      keyTtlMs(),
    );
    if (this.repeatShare > LOOK_FIRST_SHARE)
      this.repeatShare += (stored.size / open.length - this.repeatShare) * SHARE_WEIGHT;
    return open.filter((job) => {
      const answer = stored.get(job.key);
      if (answer === undefined) return true;
      job.settle(answer, answer.orderId === job.orderId);
      return false;
    });
  }

  /** The orders of a batch that was refused, for one of them or some. */
  private sort(open: readonly QueuedOrder[]): void {
    for (const job of open) this.doubtful.push(job);
    if (this.sorting) return;
    this.sorting = true;
    void this.sortAll();
  }

  private async sortAll(): Promise<void> {
    while (this.doubtful.length > 0) {
      const part = this.doubtful.slice(0, SORT_ROWS);
      this.doubtful = this.doubtful.slice(SORT_ROWS);
      for (const job of part) if (job.abandoned) job.fail(overdue());
      await this.settle(
        part.filter((job) => !job.abandoned),
        'sorting',
      );
    }
    this.sorting = false;
  }

  private wait(job: QueuedOrder): void {
    this.options.metrics.held.add();
    this.remember(job.key);
    this.held.push(job);
    if (this.patient >= PATIENT_LANES) return;
    this.patient++;
    void this.waitTurns();
  }

  private remember(key: string): void {
    const nowMs = this.options.clock.monotonicMs();
    this.lately.delete(key);
    for (const [oldest, untilMs] of this.lately) {
      if (untilMs > nowMs && this.lately.size < LATELY_KEYS_MAX) break;
      this.lately.delete(oldest);
    }
    this.lately.set(key, nowMs + LATELY_MS);
  }

  private async waitTurns(): Promise<void> {
    const { clock, inFlightWaitMs } = this.options;
    for (let job = this.held.shift(); job !== undefined; job = this.held.shift()) {
      const leftMs = inFlightWaitMs - (clock.monotonicMs() - job.queuedMs);
      if (leftMs <= 0 || job.abandoned) {
        job.fail(inFlight());
        continue;
      }
      const turnMs = Math.max(TURN_MS_MIN, TURN_MS / (this.held.length + 1));
      try {
        const rest = await this.insert([job], Math.min(leftMs, turnMs));
        for (const open of rest.length === 0 ? rest : await this.answerStored(rest)) this.held.push(open);
        this.lately.delete(job.key);
      } catch (thrown) {
        if (verdictOf(thrown) === 'held') this.held.push(job);
        else await this.settle([job], 'together');
      }
    }
    this.patient--;
  }
}

/** A held key or a bad row: without it the others of its batch would be written. */
function mayBeOne(thrown: unknown): boolean {
  const verdict = verdictOf(thrown);
  return verdict === 'held' || verdict === 'row';
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
  switch (verdictOf(thrown)) {
    case 'again':
    case 'unknown':
    case 'down':
      return outboxError('database_unavailable', 'the database did not say that the order is stored', {
        next: 'send the same request with the same key again',
        cause: thrown,
      });
    case 'late':
      return outboxError('deadline_passed', 'the database took too long', {
        next: 'send the same request with the same key again',
        cause: thrown,
      });
    default:
      return findMillraceError(thrown) ?? thrown;
  }
}
