/** The broker's side of a simulated relay: one log, requests that are slow, lost or answered in vain, and a producer that keeps the
 *  order of its rows as librdkafka does with `enable.gapless.guarantee`: nothing goes through behind a row that failed.
 */
import { coreError } from '../../../src/core/errors.ts';
import type { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import type { BatchProducer, BrokerDriver, DeliveryReport } from '../../../src/io/kafka/port.ts';
import type { SimProcess } from './process.ts';

export interface Published {
  readonly id: bigint;
  readonly key: string;
  readonly epoch: bigint;
  /** Distinguishes the clients that wrote. */
  readonly producer: number;
}

export interface BrokerHooks {
  /** Time of a request on its way, and of its answer. */
  readonly delay: () => Promise<void>;
  readonly after: (ms: number, run: () => void) => () => void;
  /** A row is refused, or appended and reported as failed. */
  readonly fault: (row: Published) => 'none' | 'lost row' | 'lost report';
  readonly onRequest: (rows: readonly Published[], process: SimProcess) => void;
  readonly onAppend: (row: Published) => void;
  readonly onAck: (row: Published) => void;
}

const FAILED = -192;
const GAPLESS = -148;
const text = new TextDecoder();

let producers = 0;

class SimProducer implements BatchProducer {
  private readonly number = producers++;
  private readonly hooks: BrokerHooks;
  private readonly process: SimProcess;
  private turn: Promise<void> = Promise.resolve();
  private isBroken = false;
  private isClosed = false;
  private giveUp: () => void = () => {};
  private readonly givenUp = new Promise<'given up'>((resolve) => {
    this.giveUp = () => resolve('given up');
  });

  constructor(hooks: BrokerHooks, process: SimProcess) {
    this.hooks = hooks;
    this.process = process;
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
    const outcome = await Promise.race([answered, this.givenUp]);
    const status = outcome === 'given up' ? new Int32Array(rows.length).fill(FAILED) : outcome;
    await this.process.hear(undefined);
    for (const [i, row] of rows.entries()) if (status[i] === 0) this.hooks.onAck(row);
    const failed = status.reduce((sum, one) => sum + (one === 0 ? 0 : 1), 0);
    const event = {
      code: FAILED,
      name: '_MSG_TIMED_OUT',
      message: 'simulated',
      retriable: true,
      fatal: true,
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
    this.hooks.after(flushMs, this.giveUp);
    await Promise.race([this.turn, this.givenUp]);
    await this.process.hear(undefined);
  }

  private append(rows: readonly Published[]): Int32Array {
    const status = new Int32Array(rows.length);
    for (const [i, row] of rows.entries()) {
      if (this.isBroken) {
        status[i] = GAPLESS;
        continue;
      }
      const fault = this.hooks.fault(row);
      if (fault !== 'lost row') this.hooks.onAppend(row);
      if (fault === 'none') continue;
      status[i] = FAILED;
      this.isBroken = true;
    }
    return status;
  }

  private rowOf(batch: RecordBatch, i: number): Published {
    const headers = new Map(batch.headers(i).map(([name, value]) => [name, text.decode(value ?? undefined)]));
    return {
      id: BigInt(headers.get('ce_sequence') as string),
      key: text.decode(batch.key(i) ?? undefined),
      epoch: BigInt(headers.get('relay_epoch') as string),
      producer: this.number,
    };
  }
}

export function brokerOf(hooks: BrokerHooks, process: SimProcess): BrokerDriver {
  const admin = {
    createTopics: async () => [false],
    describeTopic: async () => ({
      partitions: 1,
      replicas: 3,
      config: new Map([['min.insync.replicas', '2']]),
    }),
    isLed: async () => true,
    close: async () => {},
  };
  return {
    name: 'simulated',
    producer: async () => new SimProducer(hooks, process),
    admin: async () => admin,
  } as unknown as BrokerDriver;
}
