/** Term of a leader: its fenced producer, and one transaction at a time.
 *
 *  Invariants:
 *  1. After `ended` nothing is written.
 *  2. A transaction whose outcome is not `kept` ends the term, so that the next term searches for
 *     its ghosts.
 *  3. A write that was reported as lost can never be kept later.
 *  4. While the term lasts, the sink of the tail has received every write that was reported as
 *     kept.
 */
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import type {
  BrokerDriver,
  BrokerEvent,
  BrokerOptions,
  TransactionalProducer,
  TransactionFailure,
} from '../../../io/kafka/port.ts';
import type { LogRecord } from '../log.ts';
import type { KafkaTail, Run } from './tail.ts';

/** Age at which the broker aborts an open transaction. */
const TRANSACTION_MS = 10_000;
/** Maximum bytes of a batch of records, the default of librdkafka. */
const BATCH_BYTES_MAX = 1_000_000;
const DELIVERY_MS = 8000;
const INIT_MS = 15_000;
const COMMIT_MS = 8000;
const ABORT_MS = 3000;
const SHOWN_MS = 8000;
const DECIDE_MS = 3000;

export type WriteOutcome =
  | { readonly outcome: 'kept' }
  /** `fenced`: a newer leader fenced this one. */
  | { readonly outcome: 'lost'; readonly why: string; readonly fenced: boolean }
  | { readonly outcome: 'open'; readonly why: string };

export interface TermOptions {
  readonly driver: BrokerDriver;
  readonly broker: BrokerOptions;
  readonly topic: string;
  readonly leaderTopic: string;
  readonly tail: KafkaTail;
  /** Maximum bytes of a record, key and value. */
  readonly recordBytesMax: number;
}

/** Names of the errors that a row of a fenced producer can get. */
const FENCED = new Set([
  '_FENCED',
  'INVALID_PRODUCER_EPOCH',
  'PRODUCER_FENCED',
  'INVALID_PRODUCER_ID_MAPPING',
]);

const KEPT: WriteOutcome = { outcome: 'kept' };

export const textOf = (event: BrokerEvent): string => `${event.message} (${event.name})`;

export class Term {
  private readonly options: TermOptions;
  private readonly producer: TransactionalProducer;
  private turn: Promise<unknown> = Promise.resolve();
  /** Run that the last transaction wrote. */
  private expected: Run | undefined;
  /** Reason why the term is over. */
  ended: string | undefined;
  /** True: the broker reported that a newer term has begun. */
  fenced = false;

  private constructor(options: TermOptions, producer: TransactionalProducer) {
    this.options = options;
    this.producer = producer;
  }

  /** Begins a term. Fences every earlier term of the topic, of any instance, and ends its
   *  transaction.
   *  @returns the term, or the failure that prevented it
   *  @throws unreachable
   */
  static async begin(options: TermOptions): Promise<Term | TransactionFailure> {
    const producer = await options.driver.transactional({
      ...options.broker,
      transactionalId: `millrace-registry-${options.topic}`,
      transactionTimeoutMs: TRANSACTION_MS,
      properties: {
        'linger.ms': 0,
        'message.timeout.ms': DELIVERY_MS,
        'message.max.bytes': Math.max(1_000_000, options.recordBytesMax + 4096),
        // The limit of the topic applies to a batch of records, too.
        'batch.size': Math.min(BATCH_BYTES_MAX, options.recordBytesMax),
        ...options.broker.properties,
      },
    });
    const failure = await producer.init(INIT_MS);
    if (failure === undefined) return new Term(options, producer);
    void producer.close().catch(() => {});
    return failure;
  }

  /** Writes records of `_schemas`, and an optional announcement, in one transaction. */
  write(records: readonly LogRecord[], announcement?: LogRecord): Promise<WriteOutcome> {
    const done = this.turn
      .then(() => this.transact(records, announcement))
      .catch((thrown: unknown): WriteOutcome => {
        const why = thrown instanceof Error ? thrown.message : String(thrown);
        this.end(why);
        if (this.expected !== undefined) this.options.tail.forget(this.expected);
        return { outcome: 'open', why };
      });
    this.turn = done;
    return done;
  }

  end(why: string, fenced = false): void {
    this.fenced ||= fenced;
    if (this.ended !== undefined) return;
    this.ended = why;
    void this.turn.then(() => this.producer.close()).catch(() => {});
  }

  /** Ends the term and waits until its client is closed. */
  async close(): Promise<void> {
    this.end('closed');
    await this.turn;
    await this.producer.close();
  }

  private async transact(records: readonly LogRecord[], announcement?: LogRecord): Promise<WriteOutcome> {
    this.expected = undefined;
    if (this.ended !== undefined) return { outcome: 'lost', why: this.ended, fenced: true };
    const begun = await this.producer.begin();
    if (begun !== undefined) return this.lost(begun);
    const batch = this.batchOf(records, announcement);
    let report: Awaited<ReturnType<TransactionalProducer['produce']>>;
    try {
      report = await this.producer.produce(batch, [this.options.topic, this.options.leaderTopic]);
    } catch (thrown) {
      // Without a commit no row of the transaction can be kept.
      const why = (thrown as Error).message;
      const fenced = isFenced(thrown);
      this.end(why, fenced);
      return { outcome: 'lost', why, fenced };
    }
    if (report.failed > 0) {
      const event = report.events[0] as BrokerEvent;
      const aborted = await this.producer.abort(ABORT_MS);
      const fenced = aborted?.kind === 'fenced' || report.events.some(({ name }) => FENCED.has(name));
      this.end(textOf(event), fenced);
      return { outcome: 'lost', why: textOf(event), fenced };
    }
    const run = this.expect(report.offset, records);
    this.expected = run;
    const failure = await this.producer.commit(COMMIT_MS);
    if (failure === undefined) return run === undefined ? KEPT : this.shown(run);
    this.end(textOf(failure.event), failure.kind === 'fenced');
    return run === undefined ? this.lost(failure) : this.decide(run, failure);
  }

  /** Waits until our own reader has read a committed run. The broker answers a commit when it is
   *  certain to happen; readers see it a moment later. An acknowledged write must be visible on
   *  every instance.
   */
  private async shown(run: Run): Promise<WriteOutcome> {
    const { tail } = this.options;
    try {
      await tail.reach('schemas', run.last + 1n, SHOWN_MS);
      return KEPT;
    } catch (thrown) {
      const why = (thrown as Error).message;
      // Even where a part of the run was read: the next write must not be decided on that part.
      this.end(why);
      return run.seen ? KEPT : { outcome: 'open', why };
    } finally {
      tail.forget(run);
    }
  }

  /** Decides by the content of the log, because the answer to a commit may have been lost. */
  private async decide(run: Run, failure: TransactionFailure): Promise<WriteOutcome> {
    const { tail } = this.options;
    const why = textOf(failure.event);
    try {
      if (failure.kind === 'abort') {
        await this.producer.abort(ABORT_MS);
        return { outcome: 'lost', why, fenced: false };
      }
      // A newer leader has ended this transaction, by a commit or an abort.
      if (failure.kind === 'fenced') await tail.reach('schemas', run.last + 1n, DECIDE_MS).catch(() => {});
      const outcome = tail.outcome(run);
      if (outcome === 'kept') return KEPT;
      return outcome === 'lost' ? { outcome, why, fenced: failure.kind === 'fenced' } : { outcome, why };
    } finally {
      tail.forget(run);
    }
  }

  private lost(failure: TransactionFailure): WriteOutcome {
    const fenced = failure.kind === 'fenced';
    this.end(textOf(failure.event), fenced);
    return { outcome: 'lost', why: textOf(failure.event), fenced };
  }

  private expect(offsets: BigInt64Array, records: readonly LogRecord[]): Run | undefined {
    if (records.length === 0) return undefined;
    return this.options.tail.expect([...offsets.subarray(0, records.length)]);
  }

  private batchOf(records: readonly LogRecord[], announcement: LogRecord | undefined): RecordBatch {
    const all = announcement === undefined ? records : [...records, announcement];
    const bytes = all.reduce((sum, { key, value }) => sum + key.length + (value?.length ?? 0), 0);
    const batch = RecordBatch.create(Math.max(1, all.length), bytes);
    all.forEach(({ key, value, ts }, row) => {
      const timestamp = BigInt(ts ?? 0);
      batch.append({ topicIndex: row < records.length ? 0 : 1, partition: 0, key, value, timestamp });
    });
    return batch;
  }
}

const isFenced = (thrown: unknown): boolean => (thrown as { code?: unknown }).code === 'group_fenced';
