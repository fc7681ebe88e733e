/** Senders of batches to the broker. Both keep the rows of a partition in order under every
 *  failure: no later batch overtakes one whose failure the caller does not know yet.
 *
 *    plain          one idempotent producer. Rows wait for the broker without a limit. A permanent
 *                   refusal ends the producer (gapless), so that no later row is sent; another
 *                   producer opens once all rows have settled.
 *    transactional  one Kafka transaction for each batch, under the relay's transactional id: all
 *                   rows of a batch or none. A relay that takes over fences this producer.
 */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Logger } from '../../../core/log.ts';
import type { BatchProducer, BrokerEvent, TransactionalProducer } from '../../../io/kafka/port.ts';

export interface Sent {
  /** Status of each row: 0, or the error code. */
  readonly status: Int32Array;
  readonly events: readonly BrokerEvent[];
  /** True when a newer producer has the transactional id: another relay fenced this one. */
  readonly fenced: boolean;
}

export interface Sender {
  /** Limit of the batches in flight. */
  readonly flights: number;
  /** Opens the first producer. @throws unreachable */
  open(): Promise<void>;
  /** Resolves when each row is acknowledged, or will never be by this producer. Rejects only with
   *  an unexpected error. */
  send(batch: RecordBatch): Promise<Sent>;
  /** True when the broker answered the last batch. */
  isHealthy(): boolean;
  /** True when a producer is open; false while one is being opened. */
  isOpen(): boolean;
  /** Closes the producer; its rows in flight settle as not acknowledged. The next batch opens
   *  another producer. */
  renew(): Promise<void>;
  close(): Promise<void>;
}

/** Properties of librdkafka for the plain producer. */
export const PLAIN_PROPERTIES = {
  // If rows expired in the client, the next row of a key could overtake the expired one.
  'message.timeout.ms': 0,
  'enable.gapless.guarantee': true,
} as const;

const REOPEN_MS = 200;
const REOPEN_MAX_MS = 5000;
const STEP_TIMEOUT_MS = 30_000;
/** Time that a closing producer waits for acknowledgements; the other rows stay pending. */
const CLOSE_FLUSH_MS = 2000;
/** Status of rows that were not sent. */
const NOT_SENT = -1;

const notSent = (rows: number, events: readonly BrokerEvent[] = []): Sent => ({
  status: new Int32Array(rows).fill(NOT_SENT),
  events,
  fenced: false,
});

const eventOf = (thrown: unknown): BrokerEvent | undefined => {
  const details = findMillraceError(thrown)?.details as { event?: BrokerEvent } | undefined;
  return details?.event;
};

interface Shared {
  /** Topics by the topic index of a row; grows while rows name further topics. */
  readonly topics: readonly string[];
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  readonly drain: AbortSignal;
}

/** Producer that opens on demand and again after a failure; one attempt at a time. */
class ProducerHolder<P extends BatchProducer> {
  private readonly open: () => Promise<P>;
  private readonly shared: Shared;
  private producer: Promise<P | undefined> | undefined;
  private failures = 0;
  private closed = false;
  /** Dropped producers that are not closed yet. */
  private closing: Promise<unknown> = Promise.resolve();
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

  /** Open producer; undefined when the relay ends before one could be opened. */
  async get(): Promise<P | undefined> {
    if (this.closed) return undefined;
    this.producer ??= this.tryOpen();
    return this.producer;
  }

  async drop(): Promise<void> {
    const dropped = this.producer;
    const producer = await dropped;
    // Two callers may drop the same producer; one that was opened since must stay.
    if (this.producer === dropped) {
      this.producer = undefined;
      this.isOpen = false;
    }
    this.closing = Promise.all([this.closing, producer?.close(CLOSE_FLUSH_MS).catch(() => {})]);
    await this.closing;
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
        log.warn(
          { code: error.code, error: error.message },
          'the producer could not be opened; the attempt is repeated',
        );
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
  private readonly holder: ProducerHolder<BatchProducer>;
  private inFlight = 0;
  /** Set while a broken producer is being replaced; `send` waits for it. */
  private replacing: Promise<void> | undefined;
  private settled: (() => void) | undefined;

  constructor(open: () => Promise<BatchProducer>, flights: number, shared: Shared) {
    this.flights = flights;
    this.shared = shared;
    this.holder = new ProducerHolder(open, shared);
  }

  open(): Promise<void> {
    return this.holder.first();
  }

  isHealthy(): boolean {
    return this.holder.healthy;
  }

  async send(batch: RecordBatch): Promise<Sent> {
    while (this.replacing !== undefined) await this.replacing;
    const producer = await this.holder.get();
    if (producer === undefined) return notSent(batch.rowCount);
    this.inFlight++;
    let sent: Sent;
    let broken = false;
    try {
      const report = await producer.produce(batch, this.shared.topics);
      sent = { status: report.status, events: report.events, fenced: false };
      broken = report.events.some((event) => event.fatal);
      this.holder.healthy = report.failed === 0;
    } catch (thrown) {
      const event = eventOf(thrown);
      if (event === undefined && findMillraceError(thrown) === undefined) throw thrown;
      sent = notSent(batch.rowCount, event === undefined ? [] : [event]);
      broken = true;
      this.holder.healthy = false;
    } finally {
      this.inFlight--;
      if (this.inFlight === 0) this.settled?.();
    }
    if (broken) this.replacing ??= this.replace();
    return sent;
  }

  isOpen(): boolean {
    return this.holder.isOpen;
  }

  async renew(): Promise<void> {
    this.replacing ??= this.dropAndSettle();
    const replaced = this.replacing;
    // `replace` would wait until all rows have settled, which may never happen without this drop.
    await this.holder.drop();
    await replaced;
  }

  close(): Promise<void> {
    return this.holder.close();
  }

  /** Opens the next producer only after all rows of the broken one have settled. */
  private async replace(): Promise<void> {
    await this.allSettled();
    this.shared.log.warn({}, 'the producer has failed permanently; another one is opened');
    await this.holder.drop();
    this.replacing = undefined;
  }

  private async dropAndSettle(): Promise<void> {
    await this.holder.drop();
    await this.allSettled();
    this.replacing = undefined;
  }

  private async allSettled(): Promise<void> {
    if (this.inFlight > 0) {
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
  private readonly holder: ProducerHolder<TransactionalProducer>;

  constructor(open: () => Promise<TransactionalProducer>, shared: Shared) {
    this.shared = shared;
    this.holder = new ProducerHolder(async () => {
      const made = await open();
      const failure = await made.init(STEP_TIMEOUT_MS);
      if (failure === undefined) return made;
      await made.close(0).catch(() => {});
      throw coreError('unreachable', `the broker did not initialize transactions: ${failure.event.message}`, {
        next: 'check that the brokers are reachable and allow transactions',
        details: { event: failure.event },
      });
    }, shared);
  }

  open(): Promise<void> {
    return this.holder.first();
  }

  isHealthy(): boolean {
    return this.holder.healthy;
  }

  async send(batch: RecordBatch): Promise<Sent> {
    const producer = await this.holder.get();
    if (producer === undefined) return notSent(batch.rowCount);
    const dropAfter = async (event: BrokerEvent, fenced: boolean): Promise<Sent> => {
      this.holder.healthy = false;
      await this.holder.drop();
      return { ...notSent(batch.rowCount, [event]), fenced };
    };
    try {
      const begun = await producer.begin();
      if (begun !== undefined) return dropAfter(begun.event, begun.kind === 'fenced');
      const report = await producer.produce(batch, this.shared.topics);
      if (report.failed > 0) {
        const aborted = await producer.abort(STEP_TIMEOUT_MS);
        const first = report.events[0];
        if (aborted !== undefined) return dropAfter(aborted.event, aborted.kind === 'fenced');
        this.holder.healthy = false;
        // None of the rows is in the log for a reader of committed records.
        const status = report.status.map((one) => (one === 0 ? NOT_SENT : one));
        return { status, events: first === undefined ? [] : report.events, fenced: false };
      }
      const committed = await producer.commit(STEP_TIMEOUT_MS);
      // Unknown means not acknowledged: the rows are sent again, and rows that were committed are
      // duplicates.
      if (committed !== undefined) return dropAfter(committed.event, committed.kind === 'fenced');
      this.holder.healthy = true;
      return { status: report.status, events: [], fenced: false };
    } catch (thrown) {
      const event = eventOf(thrown);
      if (event !== undefined) return dropAfter(event, false);
      if (findMillraceError(thrown)?.code !== 'closed') throw thrown;
      // The producer was closed during a step; the outcome of the step is unknown.
      this.holder.healthy = false;
      return notSent(batch.rowCount);
    }
  }

  isOpen(): boolean {
    return this.holder.isOpen;
  }

  renew(): Promise<void> {
    return this.holder.drop();
  }

  close(): Promise<void> {
    return this.holder.close();
  }
}
