import { expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { brokerContract } from '../contract/broker.contract.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { transactionContract } from '../contract/broker-transactions.contract.ts';
import { allOf, type BrokerSubject, batchOf, fresh, readUntil, World } from '../contract/broker-world.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

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

it('the direct client reports the end of a partition again after each assignment and seek at the end', async () => {
  const topic = await world.topic(1);
  await world.numbered(topic, 3);
  const consumer = await world.consumer({ partitionEof: true });
  const end = { topic, partition: 0, offset: 3n };
  const heard = async (): Promise<unknown> => (await readUntil(consumer, ({ ends }) => ends.length > 0)).ends;
  for (let i = 0; i < 3; i++) {
    await consumer.assign([end]);
    expect(await heard()).toEqual([end]);
    await consumer.seek(end);
    expect(await heard()).toEqual([end]);
  }
});

it('the direct client reports a topic and a partition that do not exist, and reads the others', async () => {
  const topic = await world.topic(1);
  await world.numbered(topic, 5);
  const consumer = await world.consumer();
  const absent = fresh('absent');
  await consumer.assign([...allOf(topic, 2), ...allOf(absent, 1)]);
  const { rows, events } = await readUntil(consumer, (so) => so.rows.length >= 5 && so.events.length >= 2);
  expect(rows).toHaveLength(5);
  expect(events.map((event) => `${event.name} ${event.topic}/${event.partition}`).sort()).toEqual(
    [`UNKNOWN_TOPIC_OR_PART ${absent}/0`, `UNKNOWN_TOPIC_OR_PART ${topic}/1`].sort(),
  );
});

it('a partition with few records is not read far ahead of a busy one with the same times', async () => {
  const topic = await world.topic(2);
  // Small batches, so that no response has more than some 60 s of the second partition.
  const producer = await world.producer({ properties: { 'batch.num.messages': 50 } });
  const value = Buffer.alloc(200);
  const everyMs = [20, 400] as const;
  const firstMs = 1_700_000_000_000;
  const spanMs = 400_000;
  for (const [partition, stepMs] of everyMs.entries())
    for (let at = 0; at < spanMs; at += 1000 * stepMs) {
      const times = Array.from({ length: Math.min(1000, (spanMs - at) / stepMs) }, (_, i) => at + i * stepMs);
      const rows = times.map((ms) => ({ partition, timestamp: BigInt(firstMs + ms), value }));
      expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
    }
  const consumer = await world.consumer({ properties: { 'max.partition.fetch.bytes': 32_768 } });
  await consumer.assign(allOf(topic, 2));
  const into = RecordBatch.create(500, 1 << 18);
  const reached = [0, 0] as [number, number];
  let [rows, aheadMs] = [0, 0];
  await until('all records', async () => {
    while (rows < spanMs / everyMs[0] + spanMs / everyMs[1]) {
      const { rowCount, events } = await consumer.consume(into, 1000);
      expect(events).toEqual([]);
      for (let row = 0; row < rowCount; row++) {
        const ms = Number(into.columns.timestamp[row]) - firstMs;
        reached[into.columns.partition[row] as 0 | 1] = ms;
      }
      rows += rowCount;
      aheadMs = Math.max(aheadMs, reached[1] - reached[0]);
    }
    return true;
  });
  expect(reached).toEqual(everyMs.map((stepMs) => spanMs - stepMs));
  // Read by bytes alone, the second partition would end 380 s ahead.
  expect(aheadMs).toBeLessThan(200_000);
});
