/** Simulated transactional producer: one transaction at a time, fenced by newer producers with the
 *  same id. */
import { coreError } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type {
  BrokerEvent,
  DeliveryReport,
  TopicPartition,
  TransactionalOptions,
  TransactionalProducer,
  TransactionFailure,
} from '../io/kafka/port.ts';
import { type SimCluster, simEvent } from './broker-cluster.ts';
import type { SimLink } from './broker-link.ts';
import type { StoredRecord } from './broker-log.ts';
import { SimProducer } from './broker-producer.ts';
import type { Session } from './broker-transactions.ts';

/** Default of librdkafka. */
const TRANSACTION_TIMEOUT_MS = 60_000;

type End = 'committed' | 'aborted';

export class SimTransactionalProducer extends SimProducer implements TransactionalProducer {
  private readonly options: TransactionalOptions;
  private session: Session | undefined;
  private isOpen = false;
  /** True if a row of the open transaction failed, so that it cannot be committed. */
  private hasFailed = false;
  private isFenced = false;
  /** End request in flight: commit or abort. */
  private ending: { readonly how: End; readonly done: Promise<'fenced' | undefined> } | undefined;

  constructor(cluster: SimCluster, link: SimLink, options: TransactionalOptions) {
    super(cluster, link, options);
    this.options = options;
  }

  async init(timeoutMs: number): Promise<TransactionFailure | undefined> {
    this.checkOpen();
    const { transactionalId, transactionTimeoutMs } = this.options;
    const answer = await this.link.ask(timeoutMs, () =>
      this.cluster.coordinator.init(transactionalId, transactionTimeoutMs ?? TRANSACTION_TIMEOUT_MS),
    );
    this.checkOpen();
    if (answer === undefined) return timedOut();
    this.session = answer.reply;
    return undefined;
  }

  async begin(): Promise<TransactionFailure | undefined> {
    this.checkOpen();
    if (this.isFenced) return fenced();
    if (this.isOpen || this.session === undefined) return outOfTurn();
    this.isOpen = true;
    this.hasFailed = false;
    return undefined;
  }

  override async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    if (!this.isOpen) throw coreError('closed', 'no transaction is open');
    const report = await super.produce(batch, topics);
    this.hasFailed ||= report.failed > 0;
    return report;
  }

  async commit(timeoutMs: number): Promise<TransactionFailure | undefined> {
    if (this.isOpen && this.hasFailed && !this.isFenced) {
      this.checkOpen();
      return { kind: 'abort', event: simEvent('_STATE', {}, 'a row of the transaction failed') };
    }
    return this.end('committed', timeoutMs);
  }

  abort(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.end('aborted', timeoutMs);
  }

  protected override refusal(): BrokerEvent | undefined {
    const isOld = this.session === undefined || this.cluster.coordinator.isFenced(this.session);
    return isOld ? simEvent('INVALID_PRODUCER_EPOCH') : undefined;
  }

  protected override belonging(at: TopicPartition, offset: bigint): Pick<StoredRecord, 'transaction'> {
    return { transaction: this.cluster.coordinator.join(this.session as Session, at, offset) };
  }

  private async end(how: End, timeoutMs: number): Promise<TransactionFailure | undefined> {
    this.checkOpen();
    if (this.isFenced) return fenced();
    const { session } = this;
    if (!this.isOpen || session === undefined) return outOfTurn();
    if (this.ending !== undefined && this.ending.how !== how) return outOfTurn();
    const answer = await this.link.ask(timeoutMs, () => {
      this.ending ??= { how, done: this.request(session, how) };
      return this.ending.done;
    });
    this.checkOpen();
    if (answer === undefined) return timedOut();
    this.ending = undefined;
    this.isOpen = false;
    if (answer.reply === undefined) return undefined;
    this.isFenced = true;
    return fenced();
  }

  private async request(session: Session, how: End): Promise<'fenced' | undefined> {
    const { cluster } = this;
    // Defers the answer, because a real client is never answered in the turn of its request.
    await this.link.pass(cluster.slowness());
    if (!cluster.strikes('lostReply')) return cluster.coordinator.end(session, how);
    if (cluster.random() < 0.5) cluster.coordinator.end(session, how);
    return new Promise(() => {});
  }
}

const timedOut = (): TransactionFailure => ({ kind: 'retry', event: simEvent('_TIMED_OUT') });
const outOfTurn = (): TransactionFailure => ({ kind: 'fatal', event: simEvent('_STATE') });
const fenced = (): TransactionFailure => ({ kind: 'fenced', event: simEvent('_FENCED') });
