/** The simulated broker keeps the contract of the real ones, and its faults strike by the seed alone. */
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BatchConsumer, BrokerDriver } from '../../src/io/broker/port.ts';
import { simBrokerDriver } from '../../src/sim/broker.ts';
import type { BrokerFaults } from '../../src/sim/broker-cluster.ts';
import { VirtualClock } from '../../src/sim/clock.ts';
import { realClock } from '../wait.ts';
import { brokerContract } from './broker.contract.ts';
import { allOf, batchOf, rowsOf, type SlowMember } from './broker-world.ts';

const BROKERS = 'simulated:9092';
const driver = simBrokerDriver({ brokers: BROKERS, seed: 1, clock: realClock });

/** Joins and does not read: what is meant for it stays with the other member until that one reads. */
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

brokerContract({
  driver,
  brokers: () => BROKERS,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (group, topic) => new Idler(group, topic),
});

it('the simulated broker refuses a transactional producer', async () => {
  const common = { brokers: BROKERS, clientId: 'none', transactionalId: 'tx' };
  await expect(driver.transactional(common)).rejects.toMatchObject({
    code: 'bad_broker_property',
    message: /no transactions/,
  });
});

/** Statuses of 500 rows, then what a reader finds, a batch size a call. */
function under(seed: number, faults: Partial<BrokerFaults>) {
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

describe('the simulated broker', () => {
  it('faults strike the same rows, reads and commits for the same seed, and others for another seed', async () => {
    const faults = { lostRow: 0.1, lostReport: 0.1, shortRead: 0.05, lostCommit: 0.5 };
    const first = await under(7, faults);
    expect(await under(7, faults)).toEqual(first);
    expect(await under(8, faults)).not.toEqual(first);
    expect(first.calls.length).toBeGreaterThan(5);
    expect(new Set(first.commits).size).toBe(2);
  });

  it('the lostRow fault loses a row, and the lostReport fault keeps it', async () => {
    const lost = await under(3, { lostRow: 0.2 });
    const delivered = lost.status.flatMap((status, row) => (status === 0 ? [row] : []));
    expect(delivered.length).toBeLessThan(480);
    expect(lost.found).toEqual(delivered);
    const silent = await under(3, { lostReport: 0.2 });
    expect(silent.status.filter((status) => status === -192).length).toBeGreaterThan(20);
    expect(silent.found.length).toBe(500);
  });
});
