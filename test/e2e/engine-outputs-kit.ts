/** A topic of JSON events and a run through SIGKILL, for the files that read the outputs of the
 *  engine with their own tools. */
import { expect } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { batchOf } from '../contract/broker-world.ts';
import { runEngine } from '../fixtures/engine.ts';
import type { Launcher } from '../fixtures/process.ts';

/** Creates the topic with three partitions and writes the events, each to its own, as JSON without
 *  the partition. */
export async function writeJsonTopic(
  brokers: string,
  topic: string,
  events: readonly { readonly partition: number }[],
): Promise<void> {
  const options = { brokers, clientId: topic, connectTimeoutMs: 60_000 };
  const admin = await nodeRdkafkaDriver.admin(options);
  const producer = await nodeRdkafkaDriver.producer(options);
  try {
    await admin.createTopics([{ topic, partitions: 3 }]);
    const batch = events.map(({ partition, ...value }) => ({
      partition,
      value: Buffer.from(JSON.stringify(value)),
    }));
    expect((await producer.produce(batchOf(batch), [topic])).failed).toBe(0);
  } finally {
    await producer.close();
    await admin.close();
  }
}

/** Runs an engine to the end of the topic through a SIGKILL.
 *  @param args flags of a run without an end */
export async function runThroughKill(own: Launcher, args: readonly string[]): Promise<void> {
  const kill = ['-chaos=kill-after=2500', '-batch-rows=300', '-checkpoint-interval=20ms'];
  const killed = await runEngine(own, [...args, ...kill]);
  expect(killed.signal, killed.stderr).toBe('SIGKILL');
  const resumed = await runEngine(own, [...args, '-bounded']);
  expect(resumed.code, resumed.stderr).toBe(0);
}
