/** Broker side of a simulated relay: one log, and requests that are slow, lost or answered with an
 *  error. With `enable.gapless.guarantee` its producer keeps the order of its rows as librdkafka
 *  does: no row is appended after a failed row. */
import { coreError } from '../../../src/core/errors.ts';
import type { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import type {
  BatchProducer,
  BrokerDriver,
  DeliveryReport,
  ProducerOptions,
  TransactionalProducer,
  TransactionFailure,
} from '../../../src/io/kafka/port.ts';
import type { SimProcess } from './process.ts';

export interface Published {
  readonly id: bigint;
  readonly msgId: string;
  readonly key: string;
  readonly epoch: bigint;
  /** Identifies the client that wrote the row. */
  readonly producer: number;
}

export interface BrokerHooks {
  /** Waits for the time of a request in transit, and of its answer. */
  readonly delay: () => Promise<void>;
  readonly after: (ms: number, run: () => void) => () => void;
  /** Fate of a row: appended, refused ('lost row'), or appended and reported as failed ('lost
   *  report'). */
  readonly fault: (row: Published) => 'none' | 'lost row' | 'lost report';
  readonly onRequest: (rows: readonly Published[], process: SimProcess) => void;
  readonly onAppend: (row: Published) => void;
  readonly onAck: (row: Published) => void;
  /** True when a request of a transactional producer gets no answer; the broker may have executed
   *  it. */
  readonly isAnswerLost: () => boolean;
}

const FAILED = -192;
const GAPLESS = -148;
const OLD_EPOCH = 47;
/** Upper limit of the time for an answer to a transactional producer. */
const ANSWER_MS = 3000;
const text = new TextDecoder();

let producers = 0;

class SimProducer implements BatchProducer {
  private readonly number = producers++;
  protected readonly hooks: BrokerHooks;
  protected readonly process: SimProcess;
  private turn: Promise<void> = Promise.resolve();
  private readonly isGapless: boolean;
  protected isBroken = false;
  protected isClosed = false;
  private abandon: () => void = () => {};
  private readonly abandoned = new Promise<'abandoned'>((resolve) => {
    this.abandon = () => resolve('abandoned');
  });

  constructor(hooks: BrokerHooks, process: SimProcess, isGapless = true) {
    this.hooks = hooks;
    this.process = process;
    this.isGapless = isGapless;
  }

  async produce(batch: RecordBatch): Promise<DeliveryReport> {
    if (this.isClosed) throw coreError('closed', 'the producer is closed');
    const rows = Array.from({ length: batch.rowCount }, (_, i) => this.rowOf(batch, i));
    this.hooks.onRequest(rows, this.process);
    const appended = this.turn.then(() => this.hooks.delay()).then(() => this.append(rows));
    this.turn = appended.then(
      () => {},
      () => {},
    );
    const answered = appended.then(async (status) => {
      await this.hooks.delay();
      return status;
    });
    const outcome = await Promise.race([answered, this.abandoned]);
    const status = outcome === 'abandoned' ? new Int32Array(rows.length).fill(FAILED) : outcome;
    await this.process.receive(undefined);
    this.acknowledge(rows.filter((_, i) => status[i] === 0));
    const failed = status.reduce((sum, one) => sum + (one === 0 ? 0 : 1), 0);
    const event = {
      code: FAILED,
      name: '_MSG_TIMED_OUT',
      message: 'simulated',
      retriable: true,
      fatal: this.isGapless,
    };
    return {
      delivered: rows.length - failed,
      failed,
      status,
      offset: new BigInt64Array(rows.length),
      events: failed > 0 ? [event] : [],
    };
  }

  queuedBytes = (): number => 0;

  async flush(): Promise<void> {
    await this.turn;
  }

  async close(flushMs = 30_000): Promise<void> {
    this.isClosed = true;
    this.hooks.after(flushMs, this.abandon);
    await Promise.race([this.turn, this.abandoned]);
    await this.process.receive(undefined);
  }

  protected acknowledge(rows: readonly Published[]): void {
    for (const row of rows) this.hooks.onAck(row);
  }

  protected append(rows: readonly Published[]): Int32Array {
    const status = new Int32Array(rows.length);
    for (const [i, row] of rows.entries()) {
      if (this.isBroken) {
        status[i] = GAPLESS;
        continue;
      }
      const fault = this.hooks.fault(row);
      if (fault !== 'lost row') this.store(row);
      if (fault === 'none') continue;
      status[i] = FAILED;
      this.isBroken = this.isGapless;
    }
    return status;
  }

  protected store(row: Published): void {
    this.hooks.onAppend(row);
  }

  private rowOf(batch: RecordBatch, i: number): Published {
    const headers = new Map(batch.headers(i).map(([name, value]) => [name, text.decode(value ?? undefined)]));
    return {
      id: BigInt(headers.get('ce_sequence') as string),
      msgId: headers.get('ce_id') as string,
      key: text.decode(batch.key(i) ?? undefined),
      epoch: BigInt(headers.get('relay_epoch') as string),
      producer: this.number,
    };
  }
}

interface Transaction {
  state: 'open' | 'committed' | 'aborted';
  readonly rows: Published[];
}

/** Transactions of the log. Readers of committed rows get the rows in log order, and no row after
 *  the start of an open transaction. */
export class TransactionLog {
  private readonly log: Array<{ readonly row: Published; readonly transaction: Transaction }> = [];
  private readonly epochs = new Map<string, number>();
  private readonly open = new Map<string, Transaction>();
  private readonly hooks: Pick<BrokerHooks, 'onAppend' | 'onAck'>;
  private shown = 0;

  constructor(hooks: Pick<BrokerHooks, 'onAppend' | 'onAck'>) {
    this.hooks = hooks;
  }

  /** Fences older producers of the id and aborts their transaction. */
  init(id: string): number {
    const epoch = (this.epochs.get(id) ?? 0) + 1;
    this.epochs.set(id, epoch);
    this.decide(id, 'aborted');
    return epoch;
  }

  isFenced(id: string, epoch: number): boolean {
    return this.epochs.get(id) !== epoch;
  }

  append(id: string, row: Published): void {
    const transaction = this.open.get(id) ?? { state: 'open', rows: [] };
    this.open.set(id, transaction);
    transaction.rows.push(row);
    this.log.push({ row, transaction });
  }

  /** Aborts every open transaction, as a broker does after the transaction timeout. */
  expire(): void {
    for (const id of [...this.open.keys()]) this.init(id);
  }

  decide(id: string, how: 'committed' | 'aborted'): void {
    const transaction = this.open.get(id);
    this.open.delete(id);
    if (transaction === undefined) return;
    transaction.state = how;
    if (how === 'committed') for (const row of transaction.rows) this.hooks.onAck(row);
    for (; this.shown < this.log.length; this.shown++) {
      const { row, transaction: of } = this.log[this.shown] as (typeof this.log)[number];
      if (of.state === 'open') return;
      if (of.state === 'committed') this.hooks.onAppend(row);
    }
  }
}

const failure = (kind: TransactionFailure['kind']): TransactionFailure => ({
  kind,
  event: {
    code: FAILED,
    name: kind,
    message: 'simulated',
    retriable: kind === 'retry',
    fatal: kind === 'fenced',
  },
});

class SimTransactionalProducer extends SimProducer implements TransactionalProducer {
  private readonly log: TransactionLog;
  private readonly id: string;
  private epoch = 0;

  constructor(hooks: BrokerHooks, process: SimProcess, log: TransactionLog, id: string) {
    super(hooks, process);
    this.log = log;
    this.id = id;
  }

  init(): Promise<TransactionFailure | undefined> {
    return this.request(() => {
      this.epoch = this.log.init(this.id);
      return undefined;
    });
  }

  begin = async (): Promise<undefined> => undefined;

  commit(): Promise<TransactionFailure | undefined> {
    return this.end('committed');
  }

  abort(): Promise<TransactionFailure | undefined> {
    return this.end('aborted');
  }

  private end(how: 'committed' | 'aborted'): Promise<TransactionFailure | undefined> {
    return this.request(() => {
      if (this.log.isFenced(this.id, this.epoch)) return failure('fenced');
      this.log.decide(this.id, how);
      this.isBroken = false;
      return undefined;
    });
  }

  private async request(run: () => TransactionFailure | undefined): Promise<TransactionFailure | undefined> {
    if (this.isClosed) throw coreError('closed', 'the producer is closed');
    const { hooks, process } = this;
    const answer = hooks
      .delay()
      .then(() => (hooks.isAnswerLost() ? undefined : { failed: run() }))
      .then(async (reply) => {
        await hooks.delay();
        return reply !== undefined && !hooks.isAnswerLost() ? reply : new Promise<never>(() => {});
      });
    const late = new Promise<{ failed: TransactionFailure }>((resolve) => {
      hooks.after(ANSWER_MS, () => resolve({ failed: failure('retry') }));
    });
    const { failed } = await process.receive(await Promise.race([answer, late]));
    return failed ?? undefined;
  }

  /** Acknowledges nothing: rows are acknowledged with their transaction. */
  protected override acknowledge(): void {}

  protected override append(rows: readonly Published[]): Int32Array {
    if (this.log.isFenced(this.id, this.epoch)) return new Int32Array(rows.length).fill(OLD_EPOCH);
    return super.append(rows);
  }

  protected override store(row: Published): void {
    this.log.append(this.id, row);
  }
}

export function brokerOf(hooks: BrokerHooks, process: SimProcess, log: TransactionLog): BrokerDriver {
  const admin = {
    createTopics: async () => [false],
    describeTopic: async () => ({
      partitions: 1,
      replicas: 3,
      config: new Map([['min.insync.replicas', '2']]),
    }),
    brokerCount: async () => 3,
    isLed: async () => true,
    close: async () => {},
  };
  return {
    name: 'simulated',
    producer: async ({ properties }: Pick<ProducerOptions, 'properties'>) =>
      new SimProducer(hooks, process, properties?.['enable.gapless.guarantee'] === true),
    transactional: async ({ transactionalId }: { readonly transactionalId: string }) =>
      new SimTransactionalProducer(hooks, process, log, transactionalId),
    admin: async () => admin,
  } as unknown as BrokerDriver;
}
