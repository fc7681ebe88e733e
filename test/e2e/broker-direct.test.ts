import { expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { transactionContract } from '../contract/broker-transactions.contract.ts';
import { type BrokerSubject, batchOf, World } from '../contract/broker-world.ts';
import { sharedStack } from '../fixtures/stack.ts';

const stack = await sharedStack();
const subject: BrokerSubject = {
  driver: directDriver,
  brokers: () => stack.brokers,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (...of) => new SilentLeader(stack.brokers, ...of),
};
brokerContract(subject);
transactionContract(subject);

const world = new World(subject);

it('the direct client reports when it received a record, not when it was taken from the response', async () => {
  const topic = await world.topic(1);
  const producer = await world.producer();
  const records = Array.from({ length: 200 }, (_, i) => ({ partition: 0, value: Buffer.from(String(i)) }));
  expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
  const consumer = await world.consumer();
  await consumer.assign([{ topic, partition: 0, offset: 0n }]);
  const one = RecordBatch.create(1, 1024);
  let waited = 0;
  for (let row = 0; row < records.length; ) {
    const { rowCount, receipts, events, tookMs } = await consumer.consume(one, 1000);
    expect(events).toEqual([]);
    expect(receipts?.reduce((sum, { rows }) => sum + rows, 0)).toBe(rowCount);
    for (const { ageMs } of receipts ?? []) if (ageMs > (tookMs as number)) waited++;
    row += rowCount;
  }
  expect(waited).toBeGreaterThan(records.length / 2);
});
