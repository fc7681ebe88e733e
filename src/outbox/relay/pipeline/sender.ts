/** Two ways to hand a batch to the broker. Both keep rows of one partition in order, whatever fails, and never let a later
 *  batch pass one that failed unknown to the caller.
 *
 *    plain          one idempotent producer. Rows wait for the broker without an end; what the broker refuses for good ends the
 *                   producer (gapless), so that nothing behind it goes through, and another is opened once all is settled.
 *    transactional  a transaction a batch under the relay's own id: all of a batch or nothing, and whoever takes over fences us.
 */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { BatchProducer, BrokerEvent, TransactionalProducer } from '../../../io/kafka/port.ts';

export interface Sent {
  /** 0 or the error, one a row. */
  readonly status: Int32Array;
  readonly events: readonly BrokerEvent[];
  /** A newer producer has our transactional id: another relay took us for dead. */
  readonly fenced: boolean;
}

export interface Sender {
  /** Batches that may be under way at once. */
  readonly flights: number;
  /** Opens the first producer. @throws unreachable */
  open(): Promise<void>;
  /** Settles when each row is acknowledged or will never be, as far as this producer goes. Never rejects. */
  send(batch: RecordBatch): Promise<Sent>;
  /** The broker answered last time. */
  isHealthy(): boolean;
  /** Has a producer; false while one is being opened. */
  isOpen(): boolean;
  /** Gives up the producer with what is under way at it, which is settled as never acknowledged; the next batch opens another. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

/** librdkafka's properties of the plain producer. */
export const PLAIN_PROPERTIES = {
  // Expiry in the client would let the next row of a key pass the one that expired.
  'message.timeout.ms': 0,
  'enable.gapless.guarantee': true,
} as const;

const REOPEN_MS = 200;
const REOPEN_MAX_MS = 5000;
const STEP_TIMEOUT_MS = 30_000;
/** What is not acknowledged when a producer is closed is given up after this long; the rows stay pending. */
const CLOSE_FLUSH_MS = 2000;
/** Status of rows that no producer took. */
const NOT_SENT = -1;

const none = (rows: number, events: readonly BrokerEvent[] = []): Sent => ({
  status: new Int32Array(rows).fill(NOT_SENT),
  events,
  fenced: false,
});

const eventOf = (thrown: unknown): BrokerEvent | undefined => {
  const details = findMillraceError(thrown)?.details as { event?: BrokerEvent } | undefined;
  return details?.event;
};

interface Shared {
  readonly topic: string;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
}

/** A producer that is opened when it is needed and again after it broke; one attempt at a time. */
class Reopened<P extends BatchProducer> {
  private readonly open: () => Promise<P>;
  private readonly shared: Shared;
  private producer: Promise<P | undefined> | undefined;
  private failures = 0;
  private closed = false;
  /** Producers that were dropped and are not closed yet. */
  private leaving: Promise<unknown> = Promise.resolve();
  isOpen = false;
  healthy = true;

  constructor(open: () => Promise<P>, shared: Shared) {
    this.open = open;
    this.shared = shared;
  }

  async first(): Promise<void> {
    const made = await this.open();
    this.producer = Promise.resolve(made);
    this.isOpen = true;
  }

  /** Undefined when the relay ends before one could be opened. */
  async get(): Promise<P | undefined> {
    if (this.closed) return undefined;
    this.producer ??= this.tryOpen();
    return this.producer;
  }

  async drop(): Promise<void> {
    const dropped = this.producer;
    const producer = await dropped;
    // Two may drop the same one; another that was opened since is not theirs.
    if (this.producer === dropped) {
      this.producer = undefined;
      this.isOpen = false;
    }
    this.leaving = Promise.all([this.leaving, producer?.close(CLOSE_FLUSH_MS).catch(() => {})]);
    await this.leaving;
  }

  close(): Promise<void> {
    this.closed = true;
    return this.drop();
  }

  private async tryOpen(): Promise<P | undefined> {
    const { log, sleep, drain } = this.shared;
    for (;;) {
      try {
        const made = await this.open();
        this.failures = 0;
        this.isOpen = true;
        return made;
      } catch (thrown) {
        this.failures++;
        this.healthy = false;
        const error = findMillraceError(thrown);
        if (error === undefined) throw thrown;
        log.warn({ code: error.code, error: error.message }, 'no producer; trying again');
        if (drain.aborted) this.closed = true;
        if (this.closed) return undefined;
        await sleep(Math.min(REOPEN_MAX_MS, REOPEN_MS * 2 ** Math.min(this.failures, 8)));
      }
    }
  }
}

export class PlainSender implements Sender {
  readonly flights: number;
  private readonly shared: Shared;
  private readonly reopened: Reopened<BatchProducer>;
  private under = 0;
  /** Set while a broken producer is being replaced: who sends waits for it. */
  private replacing: Promise<void> | undefined;
  private settled: (() => void) | undefined;

  constructor(open: () => Promise<BatchProducer>, flights: number, shared: Shared) {
    this.flights = flights;
    this.shared = shared;
    this.reopened = new Reopened(open, shared);
  }

  open(): Promise<void> {
    return this.reopened.first();
  }

  isHealthy(): boolean {
    return this.reopened.healthy;
  }

  async send(batch: RecordBatch): Promise<Sent> {
    while (this.replacing !== undefined) await this.replacing;
    const producer = await this.reopened.get();
    if (producer === undefined) return none(batch.rowCount);
    this.under++;
    let sent: Sent;
    let broken = false;
    try {
      const report = await producer.produce(batch, [this.shared.topic]);
      sent = { status: report.status, events: report.events, fenced: false };
      broken = report.events.some((event) => event.fatal);
      this.reopened.healthy = report.failed === 0;
    } catch (thrown) {
      const event = eventOf(thrown);
      if (event === undefined && findMillraceError(thrown) === undefined) throw thrown;
      sent = none(batch.rowCount, event === undefined ? [] : [event]);
      broken = true;
      this.reopened.healthy = false;
    } finally {
      this.under--;
      if (this.under === 0) this.settled?.();
    }
    if (broken) this.replacing ??= this.replace();
    return sent;
  }

  isOpen(): boolean {
    return this.reopened.isOpen;
  }

  async renew(): Promise<void> {
    this.replacing ??= this.giveUp();
    const replaced = this.replacing;
    // A broken producer is replaced when all at it is settled, which may be just what does not come.
    await this.reopened.drop();
    await replaced;
  }

  close(): Promise<void> {
    return this.reopened.close();
  }

  /** Nothing goes through the next producer before everything of this one is settled. */
  private async replace(): Promise<void> {
    await this.allSettled();
    this.shared.log.warn({}, 'the producer cannot go on; opening another');
    await this.reopened.drop();
    this.replacing = undefined;
  }

  private async giveUp(): Promise<void> {
    await this.reopened.drop();
    await this.allSettled();
    this.replacing = undefined;
  }

  private async allSettled(): Promise<void> {
    if (this.under > 0) {
      await new Promise<void>((resolve) => {
        this.settled = resolve;
      });
    }
    this.settled = undefined;
  }
}

export class TransactionalSender implements Sender {
  readonly flights = 1;
  private readonly shared: Shared;
  private readonly reopened: Reopened<TransactionalProducer>;

  constructor(open: () => Promise<TransactionalProducer>, shared: Shared) {
    this.shared = shared;
    this.reopened = new Reopened(async () => {
      const made = await open();
      const failure = await made.init(STEP_TIMEOUT_MS);
      if (failure === undefined) return made;
      await made.close(0).catch(() => {});
      throw coreError('unreachable', `the broker gives no transactions: ${failure.event.message}`, {
        next: 'trying again',
        details: { event: failure.event },
      });
    }, shared);
  }

  open(): Promise<void> {
    return this.reopened.first();
  }

  isHealthy(): boolean {
    return this.reopened.healthy;
  }

  async send(batch: RecordBatch): Promise<Sent> {
    const producer = await this.reopened.get();
    if (producer === undefined) return none(batch.rowCount);
    const give = async (event: BrokerEvent, fenced: boolean): Promise<Sent> => {
      this.reopened.healthy = false;
      await this.reopened.drop();
      return { ...none(batch.rowCount, [event]), fenced };
    };
    try {
      const begun = await producer.begin();
      if (begun !== undefined) return give(begun.event, begun.kind === 'fenced');
      const report = await producer.produce(batch, [this.shared.topic]);
      if (report.failed > 0) {
        const aborted = await producer.abort(STEP_TIMEOUT_MS);
        const first = report.events[0];
        if (aborted !== undefined) return give(aborted.event, aborted.kind === 'fenced');
        this.reopened.healthy = false;
        // None of them stands in the log for a reader of committed records.
        const status = report.status.map((one) => (one === 0 ? NOT_SENT : one));
        return { status, events: first === undefined ? [] : report.events, fenced: false };
      }
      const committed = await producer.commit(STEP_TIMEOUT_MS);
      // Not known is not acknowledged: the rows go out again, and what was committed after all is a duplicate.
      if (committed !== undefined) return give(committed.event, committed.kind === 'fenced');
      this.reopened.healthy = true;
      return { status: report.status, events: [], fenced: false };
    } catch (thrown) {
      const event = eventOf(thrown);
      if (event !== undefined) return give(event, false);
      if (findMillraceError(thrown)?.code !== 'closed') throw thrown;
      // Given up amid a step; what it was about to do is not known.
      this.reopened.healthy = false;
      return none(batch.rowCount);
    }
  }

  isOpen(): boolean {
    return this.reopened.isOpen;
  }

  renew(): Promise<void> {
    return this.reopened.drop();
  }

  close(): Promise<void> {
    return this.reopened.close();
  }
}
