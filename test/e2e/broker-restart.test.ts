/** A broker is killed in the middle of a stream and started again: no record is lost, duplicated or
 *  reordered, and errors are reported as values. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { START_TIMEOUT_MS, type Stack } from '../../src/devstack/stack.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchConsumer } from '../../src/io/kafka/port.ts';
import { allOf, batchOf, fresh, utf8 } from '../contract/broker-world.ts';
import { ownStack } from '../fixtures/own-stack.ts';
import { pause, until } from '../wait.ts';

const PARTITIONS = 4;
const BATCHES = 60;
const BATCH_ROWS = 500;
const KILL_AT = 20;

const own = ownStack('restart');
let brokers: string;

beforeAll(async () => {
  brokers = (await own.start(undefined)).brokers;
}, START_TIMEOUT_MS);
afterAll(() => own.close());

/** Returns the numbers read, by partition, and the names of the events seen, once `total` rows
 *  arrived. */
async function readAll(
  consumer: BatchConsumer,
  total: number,
): Promise<{ numbers: number[][]; names: Set<string> }> {
  const numbers: number[][] = Array.from({ length: PARTITIONS }, () => []);
  const names = new Set<string>();
  const into = RecordBatch.create(700, 1 << 16);
  let rows = 0;
  const readOnce = async (): Promise<boolean> => {
    const { rowCount, events } = await consumer.consume(into, 200);
    for (const event of events) names.add(event.name);
    for (let row = 0; row < rowCount; row++) {
      numbers[into.columns.partition[row] as number]?.push(
        Number(Buffer.from(into.value(row) as Uint8Array).toString()),
      );
    }
    rows += rowCount;
    return rows >= total;
  };
  await until('all rows', readOnce, 240_000);
  return { numbers, names };
}

for (const driver of [librdkafkaDriver, nodeRdkafkaDriver, directDriver]) {
  it(`${driver.name} continues streaming after the broker was killed and restarted`, async () => {
    const common = { brokers, clientId: 'restart', connectTimeoutMs: 60_000 };
    const topic = fresh('restart');
    const admin = await driver.admin(common);
    await admin.createTopics([{ topic, partitions: PARTITIONS }]);
    await admin.close();
    const producer = await driver.producer(common);
    const consumer = await driver.consumer(common);
    await consumer.assign(allOf(topic, PARTITIONS));
    const reading = readAll(consumer, BATCHES * BATCH_ROWS);
    const sending: Array<Promise<number>> = [];
    let restarted: Promise<Stack> | undefined;
    for (let call = 0; call < BATCHES; call++) {
      if (call === KILL_AT) {
        await own.killBroker();
        restarted = own.start(Number(brokers.split(':').at(-1)));
      }
      const rows = Array.from({ length: BATCH_ROWS }, (_, i) => {
        const number = call * BATCH_ROWS + i;
        return { partition: number % PARTITIONS, value: utf8.encode(String(number)) };
      });
      sending.push(producer.produce(batchOf(rows), [topic]).then((report) => report.failed));
      if (call < KILL_AT) await sending.at(-1);
      else await pause(20);
    }
    await restarted;
    expect(await Promise.all(sending)).toEqual(new Array(BATCHES).fill(0));
    const { numbers, names } = await reading;
    for (const [partition, got] of numbers.entries()) {
      expect(got).toEqual(
        Array.from({ length: (BATCHES * BATCH_ROWS) / PARTITIONS }, (_, i) => i * PARTITIONS + partition),
      );
    }
    expect([...names].some((name) => name === '_TRANSPORT' || name === '_ALL_BROKERS_DOWN')).toBe(true);
    await producer.close();
    await consumer.close();
  });
}
