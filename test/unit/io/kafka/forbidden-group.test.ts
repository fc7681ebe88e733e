/** A member whose group refuses it: both drivers end the poll with one error. */
import { EventEmitter } from 'node:events';
import type { KafkaConsumer } from 'node-rdkafka';
import { expect, it, vi } from 'vitest';
import type { NativeEvent } from '../../../../src/addon/broker-functions.ts';
import { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../../../src/io/kafka/librdkafka.ts';
import { NodeConsumer } from '../../../../src/io/kafka/node-rdkafka/consumer.ts';
import type { BatchConsumer } from '../../../../src/io/kafka/port.ts';

const native = vi.hoisted(() => ({ events: [] as NativeEvent[] }));
vi.mock('../../../../src/addon/load.ts', async (original) => ({
  ...(await original<typeof import('../../../../src/addon/load.ts')>()),
  loadAddon: () => ({
    brokerConsumerOpen: () => ({}),
    brokerConsumerConnect: async () => [null, null],
    brokerConsumerSubscribe: async () => [null, null],
    brokerConsumerConsume: async () => [0, [], native.events.splice(0), [], 0, []],
  }),
}));

const OPTIONS = { brokers: 'broker:9092', clientId: 'test', group: 'readers' } as const;
const GROUP_REFUSED = 30;
const TOPIC_REFUSED = 29;

interface Subject {
  readonly consumer: BatchConsumer;
  /** Makes the client report an error of the broker. */
  report(code: number): void;
}

const subjects: Readonly<Record<string, () => Promise<Subject>>> = {
  async librdkafka() {
    const report = (code: number) => native.events.push([code, 'not authorized', false, null, -1]);
    return { consumer: await librdkafkaDriver.consumer(OPTIONS), report };
  },
  async 'node-rdkafka'() {
    const client = Object.assign(new EventEmitter(), {
      setDefaultConsumeTimeout: () => {},
      subscribe: () => {},
      consume: (_count: number, done: (error: null, messages: []) => void) => done(null, []),
    });
    const report = (code: number) =>
      client.emit('event.error', Object.assign(new Error('not authorized'), { code }));
    return { consumer: new NodeConsumer(client as unknown as KafkaConsumer, OPTIONS), report };
  },
};

const poll = (consumer: BatchConsumer) => consumer.consume(RecordBatch.create(1, 64), 0);

it.each(Object.keys(subjects))('a member that its group refuses cannot poll on (%s)', async (name) => {
  const { consumer, report } = await (subjects[name] as () => Promise<Subject>)();
  await consumer.subscribe(['orders']);
  report(GROUP_REFUSED);
  const refused = { code: 'broker_forbidden', next: expect.stringContaining('the consumer group') };
  await expect(poll(consumer)).rejects.toMatchObject(refused);
  // The client reports the refusal once.
  await expect(poll(consumer)).rejects.toMatchObject(refused);
});

it.each(Object.keys(subjects))('a refused topic is an event of a member (%s)', async (name) => {
  const { consumer, report } = await (subjects[name] as () => Promise<Subject>)();
  await consumer.subscribe(['orders']);
  report(TOPIC_REFUSED);
  expect((await poll(consumer)).events).toMatchObject([{ code: TOPIC_REFUSED }]);
});

it.each(Object.keys(subjects))('a client outside the group reads after its refusal (%s)', async (name) => {
  const { consumer, report } = await (subjects[name] as () => Promise<Subject>)();
  report(GROUP_REFUSED);
  expect((await poll(consumer)).events).toMatchObject([{ code: GROUP_REFUSED }]);
});
