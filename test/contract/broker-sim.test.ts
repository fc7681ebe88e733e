/** Simulated broker: it keeps the contract of the real drivers, and its faults depend only on the
 *  seed. */
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type {
  BatchConsumer,
  BrokerDriver,
  DeliveryReport,
  TransactionalProducer,
} from '../../src/io/kafka/port.ts';
import { simBrokerDriver, simDriverOf } from '../../src/sim/broker.ts';
import { type BrokerFaults, SimCluster } from '../../src/sim/broker-cluster.ts';
import { SimLink } from '../../src/sim/broker-link.ts';
import { VirtualClock } from '../../src/sim/clock.ts';
import { realClock } from '../wait.ts';
import { brokerContract } from './broker.contract.ts';
import { transactionContract } from './broker-transactions.contract.ts';
import { allOf, type BrokerSubject, batchOf, rowsOf, type SlowMember } from './broker-world.ts';

const BROKERS = 'simulated:9092';
const driver = simBrokerDriver({ brokers: BROKERS, seed: 1, clock: realClock });

/** Member that joins and does not read: its partitions stay with the other member until that member
 *  reads. */
class Idler implements SlowMember {
  private readonly group: string;
  private readonly topic: string;
  private consumer: BatchConsumer | undefined;
  constructor(group: string, topic: string) {
    this.group = group;
    this.topic = topic;
  }
  enter = async (): Promise<void> => {};
  gather = async (): Promise<void> => {};
  complete = async (): Promise<void> => {};
  async stall(): Promise<void> {
    this.consumer = await driver.consumer({ brokers: BROKERS, clientId: 'idler', group: this.group });
    await this.consumer.subscribe([this.topic]);
  }
  async close(): Promise<void> {
    await this.consumer?.close();
  }
}

const subject: BrokerSubject = {
  driver,
  brokers: () => BROKERS,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (group, topic) => new Idler(group, topic),
};
brokerContract(subject);
transactionContract(subject);

/** Statuses of 500 rows, then the batch sizes that a reader gets. */
function resultsOf(seed: number, faults: Partial<BrokerFaults>) {
  const clock = new VirtualClock();
  return clock.run(seenOf(simBrokerDriver({ brokers: BROKERS, seed, clock, faults })));
}

async function seenOf(sim: BrokerDriver) {
  const common = { brokers: BROKERS, clientId: 'faults', group: 'g' };
  await (await sim.admin(common)).createTopics([{ topic: 't', partitions: 2 }]);
  const rows = Array.from({ length: 500 }, (_, i) => ({ partition: i % 2, value: Buffer.from(String(i)) }));
  const report = await (await sim.producer(common)).produce(batchOf(rows), ['t']);
  const consumer = await sim.consumer(common);
  await consumer.assign(allOf('t', 2));
  const into = RecordBatch.create(100, 1 << 16);
  const calls: number[] = [];
  const found: number[] = [];
  while ((await consumer.consume(into, 20)).rowCount > 0) {
    calls.push(into.rowCount);
    found.push(...rowsOf(into, consumer.topics).map((row) => Number(row.value)));
  }
  const commits: boolean[] = [];
  for (let i = 0; i < 20; i++) {
    const done = consumer.commit([{ topic: 't', partition: 0, offset: BigInt(i) }]);
    commits.push(
      await done.then(
        () => true,
        () => false,
      ),
    );
  }
  return { status: [...report.status], calls, found: found.sort((a, b) => a - b), commits };
}

describe('faults of the simulated broker', () => {
  it('injected faults hit the same rows, reads and commits for the same seed, and others for another seed', async () => {
    const faults = { lostRow: 0.1, lostReport: 0.1, shortRead: 0.05, lostCommit: 0.5 };
    const first = await resultsOf(7, faults);
    expect(await resultsOf(7, faults)).toEqual(first);
    expect(await resultsOf(8, faults)).not.toEqual(first);
    expect(first.calls.length).toBeGreaterThan(5);
    expect(new Set(first.commits).size).toBe(2);
  });

  it('the lostRow fault loses a row, and the lostReport fault keeps it', async () => {
    const lost = await resultsOf(3, { lostRow: 0.2 });
    const delivered = lost.status.flatMap((status, row) => (status === 0 ? [row] : []));
    expect(delivered.length).toBeLessThan(480);
    expect(lost.found).toEqual(delivered);
    const silent = await resultsOf(3, { lostReport: 0.2 });
    expect(silent.status.filter((status) => status === -192).length).toBeGreaterThan(20);
    expect(silent.found.length).toBe(500);
  });
});

describe('a transaction on the simulated broker', () => {
  const common = { brokers: BROKERS, clientId: 'transactions' };
  const STEP_MS = 1000;

  /** Cluster under virtual time, with a topic and a network link of the process under test. */
  async function simulated(seed: number, faults: Partial<BrokerFaults> = {}) {
    const clock = new VirtualClock(0);
    const cluster = new SimCluster({ brokers: BROKERS, seed, clock, faults, slowMs: 300 });
    const link = new SimLink(cluster);
    const sim = simDriverOf(cluster, link);
    const admin = await sim.admin(common);
    await admin.createTopics([{ topic: 't', partitions: 1 }]);
    const writer = async (): Promise<TransactionalProducer> => {
      const producer = await clock.run(sim.transactional({ ...common, transactionalId: 'tx' }));
      expect(await clock.run(producer.init(STEP_MS))).toBeUndefined();
      return producer;
    };
    const send = async (producer: TransactionalProducer, value: string): Promise<DeliveryReport> => {
      await producer.begin();
      return clock.run(producer.produce(batchOf([{ partition: 0, value: Buffer.from(value) }]), ['t']));
    };
    const committed = async (): Promise<Array<string | null>> => {
      const consumer = await simDriverOf(cluster).consumer(common);
      await consumer.assign(allOf('t', 1));
      const into = RecordBatch.create(1000, 1 << 16);
      await clock.run(consumer.consume(into, 10));
      return rowsOf(into, consumer.topics).map(({ value }) => value);
    };
    return { clock, cluster, link, writer, send, committed };
  }

  it('a transaction whose end gets no reply is committed or aborted, and final for the next producer of the id', async () => {
    const outcomes = new Set<number>();
    for (let seed = 1; seed <= 20; seed++) {
      const { clock, writer, send, committed } = await simulated(seed, { lostReply: 1 });
      const producer = await writer();
      await send(producer, 'a');
      expect(await clock.run(producer.commit(STEP_MS))).toMatchObject({
        kind: 'retry',
        event: { name: '_TIMED_OUT' },
      });
      expect(clock.monotonicMs()).toBeGreaterThanOrEqual(STEP_MS);
      const before = (await committed()).length;
      await writer();
      expect((await committed()).length).toBe(before);
      outcomes.add(before);
    }
    expect([...outcomes].sort()).toEqual([0, 1]);
  });

  it('a slow commit takes virtual time, and is fenced if a newer producer initializes first', async () => {
    const { clock, writer, send, committed } = await simulated(5, { slow: 1 });
    const producer = await writer();
    await send(producer, 'a');
    const startMs = clock.monotonicMs();
    expect(await clock.run(producer.commit(STEP_MS))).toBeUndefined();
    expect(clock.monotonicMs() - startMs).toBeGreaterThan(1);
    await clock.advance(STEP_MS);
    expect(await committed()).toEqual(['a']);
    await send(producer, 'b');
    const commit = producer.commit(STEP_MS);
    await writer();
    expect(await clock.run(commit)).toMatchObject({ kind: 'fenced' });
    expect(await committed()).toEqual(['a']);
  });

  it('a transaction survives a short outage of the broker, and times out in a longer outage', async () => {
    const { clock, link, writer, send, committed } = await simulated(1);
    const producer = await writer();
    await send(producer, 'a');
    link.cut();
    expect(await clock.run(producer.commit(STEP_MS))).toMatchObject({ kind: 'retry' });
    expect(await committed()).toEqual([]);
    const again = producer.commit(STEP_MS);
    await clock.advance(STEP_MS / 2);
    link.mend();
    expect(await clock.run(again)).toBeUndefined();
    expect(await committed()).toEqual(['a']);
  });

  it('a transaction that stays open too long is aborted by the broker, and its producer is fenced', async () => {
    const { clock, writer, send, committed } = await simulated(1);
    const producer = await writer();
    await send(producer, 'a');
    await clock.advance(61_000);
    expect(await clock.run(producer.commit(STEP_MS))).toMatchObject({ kind: 'fenced' });
    expect(await committed()).toEqual([]);
  });
});
