/** The direct client on real secured brokers: each SASL mechanism with and without TLS, client
 *  certificates, and refusals. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BrokerSecurity } from '../../src/devstack/kafka/security.ts';
import type { Stack } from '../../src/devstack/stack.ts';
import { readBrokerConfig } from '../../src/drivers.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import type { BatchConsumer, BrokerProperties } from '../../src/io/kafka/port.ts';
import { allOf, batchOf, fresh, readUntil, rowCount, utf8 } from '../contract/broker-world.ts';
import { startOwned } from '../fixtures/own-stack.ts';

const MECHANISMS = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const;
const ROWS = 500;

/** Topic with ROWS rows, and the settings of the user who has every right. */
interface Filled {
  readonly stack: Stack;
  readonly brokers: string;
  readonly properties: BrokerProperties;
  readonly topic: string;
}

async function fill(protocol: BrokerSecurity): Promise<Filled> {
  const stack = await startOwned(undefined, undefined, protocol);
  const { properties } = readBrokerConfig({ file: stack.clients?.admin as string });
  const common = { brokers: stack.brokers, clientId: 'fill', properties, connectTimeoutMs: 60_000 };
  const topic = fresh('secured');
  const admin = await librdkafkaDriver.admin(common);
  await admin.createTopics([{ topic, partitions: 2 }]);
  await admin.close();
  const producer = await librdkafkaDriver.producer(common);
  const rows = Array.from({ length: ROWS }, (_row, i) => ({ partition: i % 2, value: utf8.encode(`v${i}`) }));
  expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
  await producer.close();
  return { stack, brokers: stack.brokers, properties, topic };
}

const reader = ({ brokers, properties }: Filled, more: BrokerProperties = {}): Promise<BatchConsumer> =>
  directDriver.consumer({
    brokers,
    clientId: 'reader',
    properties: { ...properties, ...more },
    connectTimeoutMs: 60_000,
  });

/** Reads every row; fails where librdkafka reads instead, which is an event. */
async function readsAll(filled: Filled, more: BrokerProperties = {}): Promise<void> {
  const consumer = await reader(filled, more);
  try {
    await consumer.assign(allOf(filled.topic, 2));
    const { rows, events } = await readUntil(consumer, rowCount(ROWS), {
      into: RecordBatch.create(100, 1 << 16),
    });
    expect(events).toEqual([]);
    expect(rows.map(({ value }) => Number(value?.slice(1))).sort((a, b) => a - b)).toEqual([
      ...Array(ROWS).keys(),
    ]);
  } finally {
    await consumer.close();
  }
}

describe.each(['sasl_ssl', 'sasl_plaintext'] as const)('a broker with %s', (protocol) => {
  let filled: Filled;
  beforeAll(async () => {
    filled = await fill(protocol);
  });
  afterAll(() => filled?.stack.close());

  it.each(MECHANISMS)(
    'the direct client reads every row after it authenticates with %s',
    async (mechanism) => {
      await readsAll(filled, { 'sasl.mechanism': mechanism });
    },
  );

  it.each(MECHANISMS)(
    'a wrong password of %s is refused before the direct client reads',
    async (mechanism) => {
      const wrong = { 'sasl.mechanism': mechanism, 'sasl.password': 'wrong-zq' };
      await expect(reader(filled, wrong)).rejects.toThrow(/does not accept the credentials|uthentication/);
    },
  );

  it('the direct client reports a topic that the user may not read', async () => {
    const { properties } = readBrokerConfig({ file: filled.stack.clients?.client as string });
    const consumer = await reader({ ...filled, properties });
    await consumer.assign(allOf(filled.topic, 1));
    const { events } = await readUntil(consumer, (so) => so.events.length > 0);
    expect(events[0]).toMatchObject({ name: 'TOPIC_AUTHORIZATION_FAILED', topic: filled.topic });
    await consumer.close();
  });
});

describe('a broker with ssl', () => {
  let filled: Filled;
  beforeAll(async () => {
    filled = await fill('ssl');
  });
  afterAll(() => filled?.stack.close());

  it('the direct client reads every row by the certificate of its keystore', async () => {
    expect(Object.keys(filled.properties)).toContain('ssl.keystore.location');
    await readsAll(filled);
  });

  it('the direct client verifies the name in the certificate of the broker', async () => {
    await readsAll({ ...filled, brokers: filled.brokers.replace('127.0.0.1', 'localhost') });
  });
});
