/** Writes records and the progress of a redrive in transactions.
 *
 *  Invariants: (1) the records of a call and their progress become visible together or never;
 *  (2) after another redrive of the same id has begun, nothing is written; (3) a transaction whose
 *  outcome is unknown is ended by a new producer of the id before its records are sent again. */
import type { Timers } from '../../core/clock.ts';
import { sleep } from '../../core/clock.ts';
import type { MillraceError } from '../../core/errors.ts';
import type { RecordInput } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type {
  BrokerDriver,
  BrokerEvent,
  BrokerOptions,
  TransactionalProducer,
  TransactionFailure,
} from '../../io/kafka/port.ts';
import { batchOf, TOO_LARGE } from '../consumer/deliver.ts';
import { registryError } from '../errors.ts';

/** The broker aborts a transaction that a killed redrive left open after this time. Until then,
 *  readers of committed records wait before it. */
const TRANSACTION_MS = 30_000;
const DELIVERY_MS = 20_000;
const INIT_MS = 60_000;
const COMMIT_MS = 15_000;
const ABORT_MS = 15_000;
/** Attempts to write one batch, with a pause before each further one. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 200;
/** Largest record that librdkafka may send. The limit of the topic decides. */
const PRODUCER_RECORD_BYTES_MAX = 1_000_000_000;

/** Names of the errors that a row of a fenced producer can get. */
const FENCED: ReadonlySet<string> = new Set([
  '_FENCED',
  'INVALID_PRODUCER_EPOCH',
  'PRODUCER_FENCED',
  'INVALID_PRODUCER_ID_MAPPING',
]);

/** Names of errors that every further attempt would meet: a record that is too large, that a
 *  compacted topic refuses for its missing key, whose time the topic does not accept, or whose
 *  headers the client cannot send. */
const REFUSED: readonly string[] = [...TOO_LARGE, 'INVALID_RECORD', 'INVALID_TIMESTAMP', '_INVALID_ARG'];

export interface TransactionOptions {
  readonly driver: BrokerDriver;
  readonly broker: BrokerOptions;
  readonly clock: Timers;
  readonly log: Logger;
  readonly transactionalId: string;
  /** Called when every transaction of the id has ended and no other can begin. */
  readonly onOwned: () => Promise<void>;
}

/** Outcome of a call: `repeat`: choose the records again, because a part may be written. */
export type TransactionOutcome =
  | 'written'
  | 'repeat'
  /** A topic refuses one of the records for good, and none is written. */
  | { readonly refused: string };

type Attempt = 'written' | { readonly refused: string } | { readonly why: string; readonly isOpen: boolean };

const textOf = ({ message, name }: BrokerEvent): string => `${message} (${name})`;

export class Transactions {
  private readonly options: TransactionOptions;
  private producer: TransactionalProducer | undefined;
  private attempts = 0;

  constructor(options: TransactionOptions) {
    this.options = options;
  }

  /** Fences every other redrive of the id, and ends its transaction.
   *  @throws redrive_fenced, not_delivered, unreachable, and errors of onOwned */
  async open(): Promise<void> {
    const { options } = this;
    const producer = await options.driver.transactional({
      ...options.broker,
      transactionalId: options.transactionalId,
      transactionTimeoutMs: TRANSACTION_MS,
      properties: {
        ...options.broker.properties,
        'linger.ms': 1,
        'message.timeout.ms': DELIVERY_MS,
        'message.max.bytes': PRODUCER_RECORD_BYTES_MAX,
      },
    });
    this.producer = producer;
    const failure = await producer.init(INIT_MS);
    if (failure !== undefined) throw this.failed('begin', failure);
    await options.onOwned();
  }

  /** Writes records in one transaction.
   *  @throws redrive_fenced, not_delivered */
  async write(records: readonly RecordInput[], topics: readonly string[]): Promise<TransactionOutcome> {
    const attempt = await this.attempt(records, topics);
    if (attempt === 'written' || 'refused' in attempt) {
      this.attempts = 0;
      return attempt;
    }
    if (++this.attempts >= ATTEMPTS_MAX)
      throw registryError('not_delivered', `records were not delivered to ${topics[0]}: ${attempt.why}`, {
        next: 'check the broker, then run the command again: it continues, and repeats no record that was written',
      });
    this.options.log.warn({ why: attempt.why }, 'a transaction failed; its records are sent again');
    await sleep(this.options.clock, RETRY_MS * this.attempts);
    if (attempt.isOpen) {
      await this.close();
      await this.open();
    }
    return 'repeat';
  }

  async close(): Promise<void> {
    const { producer } = this;
    this.producer = undefined;
    // Rows in flight belong to a transaction that will not be committed.
    await producer?.close(0);
  }

  private async attempt(records: readonly RecordInput[], topics: readonly string[]): Promise<Attempt> {
    const producer = this.producer as TransactionalProducer;
    const begun = await producer.begin();
    if (begun !== undefined) return this.outcome('begin', begun);
    let failed: { readonly names: readonly string[]; readonly why: string } | undefined;
    try {
      const report = await producer.produce(batchOf(records), topics);
      if (report.failed > 0)
        failed = {
          names: report.events.map(({ name }) => name),
          why: report.events.map(textOf).join('; '),
        };
    } catch (thrown) {
      if ((thrown as MillraceError).code === 'group_fenced') throw this.fenced(thrown);
      throw thrown;
    }
    return failed === undefined ? this.commit(producer) : this.abort(producer, failed);
  }

  private async commit(producer: TransactionalProducer): Promise<Attempt> {
    const failure = await producer.commit(COMMIT_MS);
    if (failure === undefined) return 'written';
    if (failure.kind !== 'abort') return this.outcome('commit', failure);
    return this.abort(producer, { names: [], why: textOf(failure.event) });
  }

  private async abort(
    producer: TransactionalProducer,
    { names, why }: { readonly names: readonly string[]; readonly why: string },
  ): Promise<Attempt> {
    if (names.some((name) => FENCED.has(name))) throw this.fenced(why);
    const failure = await producer.abort(ABORT_MS);
    if (failure !== undefined) return this.outcome('abort', failure);
    return names.some((name) => REFUSED.includes(name)) ? { refused: why } : { why, isOpen: false };
  }

  /** Any other failure leaves a transaction whose outcome only a new producer of the id decides. */
  private outcome(step: string, failure: TransactionFailure): Attempt {
    if (failure.kind === 'fenced') throw this.failed(step, failure);
    return { why: `${step}: ${textOf(failure.event)}`, isOpen: true };
  }

  private failed(step: string, failure: TransactionFailure): Error {
    if (failure.kind === 'fenced') return this.fenced(textOf(failure.event));
    return registryError('not_delivered', `no transaction can ${step}: ${textOf(failure.event)}`, {
      next: 'check the broker and the rights on the transactional id, then run the command again',
    });
  }

  private fenced(cause: unknown): Error {
    return registryError(
      'redrive_fenced',
      'another redrive of this quarantine started, and this one stopped: nothing is lost or repeated',
      { next: 'let the other redrive finish', cause },
    );
  }
}
