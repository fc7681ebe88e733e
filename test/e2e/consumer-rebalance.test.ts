/** A member of a consumer group commits each batch while other members join, leave, and delay a
 *  rebalance. */
import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { referenceKernels } from '../../src/addon/reference/kernels.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { append, createTopics } from '../../src/demo/contracts/topic.ts';
import { openBroker, systemRandom } from '../../src/drivers.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { BatchDecoder } from '../../src/registry/consumer/decoder.ts';
import { consumerMetrics, GroupMember } from '../../src/registry/consumer/member.ts';
import { Quarantine } from '../../src/registry/consumer/quarantine.ts';
import { RegistryClient } from '../../src/serde/client.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';

const PARTITIONS = 4;
const stack = await sharedStack();
const driver = await openBroker();
const producer = await driver.producer({
  brokers: stack.brokers,
  clientId: 'consumer-rebalance',
  connectTimeoutMs: 60_000,
});
/** Runs 1000 times as fast as real time, so that every batch is followed by a commit. */
const clock = { ...realClock, monotonicMs: () => realClock.monotonicMs() * 1000 };
const READER = parseSchema('AVRO', '{"type":"record","name":"R","fields":[]}');
const closing: Array<() => Promise<unknown>> = [() => producer.close()];
afterAll(async () => {
  for (const close of closing.reverse()) await close();
});

/** Tombstones, which are decoded without a registry. */
const records = (count: number) =>
  Array.from({ length: count }, (_, i) => ({
    partition: i % PARTITIONS,
    key: Buffer.from('k'),
    value: null,
  }));

async function topicOf(name: string): Promise<string> {
  const topic = `consumer-rebalance-${name}-${randomUUID().slice(0, 8)}`;
  await createTopics(stack.brokers, [{ topic, partitions: PARTITIONS }]);
  return topic;
}

/** Starts a member of the group that has the topic's name. `seen` holds the positions of the
 *  records that the member wrote to its sink. */
function start(topic: string) {
  const drain = new AbortController();
  const metrics = new Metrics();
  const seen: string[] = [];
  const client = new RegistryClient({
    transport: { request: () => Promise.reject(new Error('no schema is asked for')) },
    clock,
    random: systemRandom,
    metrics,
    unknownForMs: 1000,
    retries: 0,
    retryDelayMs: 1,
  });
  const member = new GroupMember({
    connect: (hooks) =>
      driver.consumer({
        ...hooks,
        brokers: stack.brokers,
        clientId: 'consumer-rebalance',
        connectTimeoutMs: 60_000,
        group: topic,
        autoOffsetReset: 'earliest',
        properties: { 'heartbeat.interval.ms': 200, 'session.timeout.ms': 45_000 },
      }),
    topic,
    subject: 's',
    decoder: new BatchDecoder(client, referenceKernels, READER, 64),
    sink: {
      target: 'memory',
      write: async ({ columns: { partition, offset } }, rows) => {
        for (const { row } of rows) seen.push(`${partition[row]}/${offset[row]}`);
        return [];
      },
      close: async () => {},
    },
    quarantine: new Quarantine({ producer, topic: `${topic}.quarantine`, readerVersion: 1 }),
    metrics: consumerMetrics(metrics),
    clock,
    log: silentLogger,
    drain: drain.signal,
    batchRows: 64,
    batchBytes: 1 << 16,
    ends: undefined,
    onRows: () => {},
  });
  const ended = member.run();
  ended.catch(() => {});
  const stop = (): Promise<void> => {
    drain.abort();
    return ended;
  };
  closing.push(stop);
  return { seen, stop };
}

const committedOf = async (topic: string): Promise<number> => {
  const probe = await driver.consumer({
    brokers: stack.brokers,
    clientId: 'probe',
    connectTimeoutMs: 60_000,
    group: topic,
  });
  const places = Array.from({ length: PARTITIONS }, (_, partition) => ({ topic, partition }));
  const found = await probe.committed(places).finally(() => probe.close());
  return found.reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0);
};

it('a consumer continues to read in the middle of a rebalance, and commits after it', async () => {
  const topic = await topicOf('stalled');
  const other = new SilentLeader(stack.brokers, topic, topic, PARTITIONS);
  closing.push(() => other.close());
  await other.enter();
  const one = start(topic);
  const gathered = other.gather();
  const reads = async (count: number): Promise<void> => {
    const before = one.seen.length;
    await append(stack.brokers, topic, records(count));
    await until('the records', async () => (one.seen.length >= before + count ? true : undefined));
  };
  await reads(20);
  await gathered;
  await other.stall();
  // The rebalance ends only below: a commit that waits for the rebalance would block these reads.
  for (let round = 0; round < 3; round++) await reads(4);
  await other.complete();
  await reads(4);
  await until('the commit of all', async () => ((await committedOf(topic)) === 36 ? true : undefined));
  await one.stop();
  expect(new Set(one.seen).size).toBe(36);
});

it('a consumer shares with a joining member, and gets its partitions back without a gap', async () => {
  const topic = await topicOf('joined');
  const first = start(topic);
  let sent = 0;
  const more = async (count: number): Promise<void> => {
    await append(stack.brokers, topic, records(count));
    sent += count;
  };
  await more(40);
  await until('the first records', async () => (first.seen.length >= 40 ? true : undefined));
  const second = start(topic);
  await until('records of the second', async () => {
    await more(8);
    return second.seen.length > 0 ? true : undefined;
  });
  await second.stop();
  await more(8);
  const all = (): Set<string> => new Set([...first.seen, ...second.seen]);
  await until('all records', async () => (all().size >= sent ? true : undefined));
  await first.stop();
  expect(all().size).toBe(sent);
  expect(await committedOf(topic)).toBe(sent);
});
