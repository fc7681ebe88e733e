/** Gathers new orders into transactions, several of which are under way at once (lanes).
 *
 *  Invariants: (1) a key is in at most one batch at a time (the caller's single flight); (2) every order gets exactly one
 *  outcome; those that were written get theirs before repeats are looked up; (3) a batch that the database refuses is split
 *  until the refused order is alone, so it fails by itself; (4) a batch waits for another process's key no longer than
 *  BATCH_LOCK_MS, then the held order waits alone, out of the others' way, up to `inFlightWaitMs`; (5) an outcome that was
 *  lost is read back; what is not there is written again under the same ids, which the keys make safe.
 */
import { findMillraceError } from '../../core/errors.ts';
import type { TextPool, TextSession } from '../../io/sql/port.ts';
import { outboxError } from '../errors.ts';
import type { BatchControl } from './batch-control.ts';
import type { OrdersMetrics } from './metrics.ts';
import type { StoredAnswer } from './replay-cache.ts';
import {
  insertOrder,
  insertOrders,
  type NewOrder,
  RESPONSE_CODE,
  readStored,
  responseOf,
  setLockTimeout,
} from './store.ts';
import { verdictOf } from './verdict.ts';

/** lock_timeout of the pool's connections. */
export const BATCH_LOCK_MS = 40;
/** How long the parts of a batch that has waited wait again, to tell the held key from the free ones. */
const PART_LOCK_MS = 10;
/** One turn of an order that waits alone; others that wait take theirs in between. */
const TURN_MS = 500;
/** Connections for orders that wait alone. */
export const PATIENT_LANES = 2;
const ATTEMPTS_MAX = 5;
const JITTER_MS = 10;
/** Looks for a stored answer before it writes, where repeats are more than this share of what arrives. */
const LOOK_FIRST_SHARE = 0.5;
const SHARE_WEIGHT = 1 / 16;

/** An order on its way, with who waits for it. */
export interface Job extends NewOrder {
  readonly queuedMs: number;
  /** Nobody waits for it any more; it need not be started. */
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
  readonly keyTtlMs: number;
  readonly metrics: OrdersMetrics;
  readonly wallNowMs: () => number;
  readonly monotonicMs: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** 0 to 1. */
  readonly random: () => number;
  /** After a commit and before its answers. */
  readonly committed: (orders: number) => void;
}

export class OrderWriter {
  private readonly options: OrderWriterOptions;
  private queue: Job[] = [];
  private head = 0;
  private busy = 0;
  private readonly held: Job[] = [];
  private patient = 0;
  private timer: NodeJS.Timeout | undefined;
  /** Of what arrives; the rest is new. */
  private repeatShare = 0;

  constructor(options: OrderWriterOptions) {
    this.options = options;
  }

  write(job: Job): void {
    this.queue.push(job);
    this.options.control.arrived(job.queuedMs);
    if (this.busy < this.options.lanes) this.pump();
  }

  queued(): number {
    return this.queue.length - this.head;
  }

  private pump(): void {
    const { control, lanes, monotonicMs } = this.options;
    while (this.busy < lanes && this.queued() > 0) {
      const oldest = this.queue[this.head] as Job;
      const rows = control.decide(this.queued(), monotonicMs() - oldest.queuedMs);
      if (rows <= 0) {
        this.timer ??= setTimeout(() => {
          this.timer = undefined;
          this.pump();
        }, -rows);
        return;
      }
      const batch = this.take(rows);
      if (batch.length > 0) this.run(batch);
    }
    if (this.timer !== undefined && this.queued() === 0) {
      clearTimeout(this.timer);
      this.timer = undefined;
    }
  }

  private take(rows: number): Job[] {
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

  private run(batch: readonly Job[]): void {
    const { control, metrics, monotonicMs } = this.options;
    this.busy++;
    const startMs = monotonicMs();
    metrics.transactionRows.observe(batch.length);
    this.settle(batch, false).finally(() => {
      this.busy--;
      control.finished(batch.length, monotonicMs() - startMs, this.queued());
      this.pump();
    });
  }

  /** Gives every order its outcome; never rejects.
   *  @param part of a batch that has waited for a lock */
  private async settle(batch: readonly Job[], part: boolean): Promise<void> {
    let open = batch;
    for (let attempt = 1; open.length > 0; attempt++) {
      try {
        if (this.repeatShare > LOOK_FIRST_SHARE) open = await this.answerStored(open);
        if (open.length === 0) return;
        open = await this.insert(open, part ? PART_LOCK_MS : undefined);
        if (open.length === 0) return;
        open = await this.answerStored(open);
        // A key that was taken and is not there any more: its transaction was rolled back, or it expired.
        if (attempt < ATTEMPTS_MAX) continue;
        for (const job of open) job.fail(unreadable());
        return;
      } catch (thrown) {
        const next = await this.recover(thrown, open, attempt, part);
        if (next === undefined) return;
        open = next;
      }
    }
  }

  /** What is still to be written, or undefined when every order has its outcome or its place to wait. */
  private async recover(
    thrown: unknown,
    open: readonly Job[],
    attempt: number,
    part: boolean,
  ): Promise<readonly Job[] | undefined> {
    const { metrics, sleep, random } = this.options;
    const verdict = verdictOf(thrown);
    if (verdict === 'again' && attempt < ATTEMPTS_MAX) {
      metrics.retries.add(1, metrics.retries.series('conflict'));
      await sleep(random() * JITTER_MS * attempt);
      return open;
    }
    if (verdict === 'unknown' && attempt < ATTEMPTS_MAX) {
      metrics.unknown.add();
      try {
        return await this.answerStored(open);
      } catch {
        // Nobody to ask: the client's next attempt with the same key finds out.
        return this.failAll(open, thrown);
      }
    }
    if ((verdict === 'row' || verdict === 'held') && open.length > 1) {
      metrics.splits.add();
      const middle = open.length >> 1;
      const waited = part || verdict === 'held';
      await this.settle(open.slice(0, middle), waited);
      await this.settle(open.slice(middle), waited);
      return undefined;
    }
    if (verdict === 'held') {
      for (const job of open) this.wait(job);
      return undefined;
    }
    return this.failAll(open, thrown);
  }

  private failAll(open: readonly Job[], thrown: unknown): undefined {
    const error = refusalOf(thrown);
    for (const job of open) job.fail(error);
    return undefined;
  }

  /** Writes what is absent and answers it; returns the orders whose keys are taken. */
  private async insert(open: readonly Job[], lockMs: number | undefined): Promise<readonly Job[]> {
    const { pool, metrics, wallNowMs, monotonicMs, oneByOne, keyTtlMs } = this.options;
    const startMs = monotonicMs();
    const nowMs = wallNowMs();
    const createdAt = new Date(nowMs).toISOString();
    const write = async (session: TextSession): Promise<'all' | ReadonlySet<string>> => {
      if (lockMs !== undefined) await setLockTimeout(session, lockMs);
      if (!oneByOne) return insertOrders(session, open, createdAt);
      const won = new Set<string>();
      for (const job of open) if (await insertOrder(session, job, createdAt)) won.add(job.orderId);
      return won;
    };
    const won = oneByOne || lockMs !== undefined ? await pool.transaction(write) : await write(pool);
    metrics.transactionSeconds.observe((monotonicMs() - startMs) / 1000);
    const count = won === 'all' ? open.length : won.size;
    this.repeatShare += ((open.length - count) / open.length - this.repeatShare) * SHARE_WEIGHT;
    if (count > 0) this.options.committed(count);
    const expiresMs = nowMs + keyTtlMs;
    const rest: Job[] = [];
    for (const job of open) {
      if (won !== 'all' && !won.has(job.orderId)) {
        rest.push(job);
        continue;
      }
      const { requestHash, orderId } = job;
      const responseBody = responseOf(orderId);
      job.settle({ requestHash, orderId, responseCode: RESPONSE_CODE, responseBody, expiresMs }, true);
    }
    return rest;
  }

  /** Answers the orders whose keys are stored; returns the others. */
  private async answerStored(open: readonly Job[]): Promise<readonly Job[]> {
    const { pool, keyTtlMs } = this.options;
    const stored = await readStored(
      pool,
      open.map((job) => job.key),
      keyTtlMs,
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

  private wait(job: Job): void {
    this.options.metrics.held.add();
    this.held.push(job);
    if (this.patient >= PATIENT_LANES) return;
    this.patient++;
    void this.waitTurns().finally(() => {
      this.patient--;
    });
  }

  private async waitTurns(): Promise<void> {
    const { monotonicMs, inFlightWaitMs } = this.options;
    for (let job = this.held.shift(); job !== undefined; job = this.held.shift()) {
      const leftMs = inFlightWaitMs - (monotonicMs() - job.queuedMs);
      if (leftMs <= 0 || job.abandoned) {
        job.fail(inFlight());
        continue;
      }
      const turnMs = this.held.length === 0 ? leftMs : Math.min(leftMs, TURN_MS);
      try {
        const rest = await this.insert([job], turnMs);
        for (const open of rest.length === 0 ? rest : await this.answerStored(rest)) this.held.push(open);
      } catch (thrown) {
        if (verdictOf(thrown) === 'held') this.held.push(job);
        else await this.settle([job], false);
      }
    }
  }
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
