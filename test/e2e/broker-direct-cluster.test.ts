/** The direct client on three real brokers that are killed and started again: new leaders, a
 *  truncated log, fetch sessions and throttling, with its requests recorded on the way. */
import { once } from 'node:events';
import { connect } from 'node:net';
import Kafka from 'node-rdkafka';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { StackServers } from '../../src/devstack/servers.ts';
import { START_TIMEOUT_MS, type Stack } from '../../src/devstack/stack.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { int32, requestFrame } from '../../src/io/kafka/frame.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import type { BatchConsumer, BatchProducer, BrokerEvent, ConsumerOptions } from '../../src/io/kafka/port.ts';
import { startJavaClient } from '../clients/java.ts';
import { allOf, batchOf, fresh, utf8 } from '../contract/broker-world.ts';
import { FetchRecorder, type FetchRequest } from '../fixtures/fetch-recorder.ts';
import { startWatchedCluster, watchedPorts } from '../fixtures/own-stack.ts';
import { until } from '../wait.ts';

const BROKERS = [1, 2, 3];
/** Limit for elections, session timeouts and restarts on a busy machine, in ms. */
const SURVIVAL_MS = 300_000;
const CLIENT = 'watched';
const FETCH_SESSION_ID_NOT_FOUND = 70;
/** Epoch of a request that ends a session. */
const FINAL_EPOCH = -1;

let stack: Stack;
let servers: StackServers;
let recorders: readonly FetchRecorder[];
/** Addresses of the brokers behind the recorders. */
let watched: string;
const open: Array<{ close(): Promise<void> }> = [];

beforeAll(async () => {
  recorders = await Promise.all(BROKERS.map((broker) => FetchRecorder.listen(broker)));
  stack = await startWatchedCluster(recorders.map(({ port }) => port));
  for (const [i, port] of watchedPorts(stack.folder).entries()) recorders[i]?.forwardTo(port);
  watched = recorders.map(({ port }) => `127.0.0.1:${port}`).join(',');
  servers = new StackServers(stack.folder, { startTimeoutMs: START_TIMEOUT_MS });
}, 3 * START_TIMEOUT_MS);
afterAll(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
  await servers?.end();
  await stack?.close();
  for (const recorder of recorders ?? []) await recorder.close();
});

const kill = (broker: number): Promise<void> => servers.kill(`kafka-${broker}`, 'SIGKILL');
const restart = (broker: number): Promise<void> => servers.start(`kafka-${broker}`);

/** Fetch requests of the direct client, in the order of their arrival. */
const requests = (clientId = CLIENT): FetchRequest[] =>
  recorders
    .flatMap((recorder) => recorder.requests)
    .filter((request) => request.clientId === clientId)
    .sort((a, b) => a.atMs - b.atMs);

async function createTopic(
  partitions: number,
  replicationFactor: number,
  config: Readonly<Record<string, string>> = {},
): Promise<string> {
  const topic = fresh('cluster');
  const admin = await librdkafkaDriver.admin({
    brokers: stack.brokers,
    clientId: 'admin',
    connectTimeoutMs: 60_000,
  });
  await admin.createTopics([{ topic, partitions, replicationFactor, config }]);
  await until('a led topic', () => admin.isLed(topic));
  await admin.close();
  return topic;
}

interface PartitionState {
  readonly id: number;
  readonly leader: number;
  readonly replicas: readonly number[];
  readonly isrs: readonly number[];
}

/** Leader and replicas of each partition. */
async function partitionsOf(topic: string): Promise<readonly PartitionState[]> {
  const client = new Kafka.Producer({ 'metadata.broker.list': stack.brokers });
  client.on('event.error', () => {});
  try {
    return await new Promise((resolve, reject) => {
      client.connect({ timeout: 60_000 }, (error) => {
        if (error) return reject(error);
        client.getMetadata({ topic, timeout: 60_000 }, (failure, found) => {
          if (failure) return reject(failure);
          const partitions = found.topics.find(({ name }) => name === topic)?.partitions ?? [];
          resolve([...partitions].sort((a, b) => a.id - b.id));
        });
      });
    });
  } finally {
    client.disconnect();
  }
}
const leaderOf = async (topic: string, partition: number): Promise<number | undefined> =>
  (await partitionsOf(topic))[partition]?.leader;

async function producer(options: { readonly acks: -1 | 1 } = { acks: -1 }): Promise<BatchProducer> {
  const made = await librdkafkaDriver.producer({
    ...{ brokers: stack.brokers, clientId: 'producer', connectTimeoutMs: 60_000, ...options },
    properties: { 'message.timeout.ms': SURVIVAL_MS },
  });
  open.push(made);
  return made;
}

/** Sends the numbers from `from` on in turn to the partitions. */
async function send(
  to: BatchProducer,
  topic: string,
  partitions: number,
  from: number,
  count: number,
): Promise<void> {
  const rows = Array.from({ length: count }, (_, i) => ({
    partition: (from + i) % partitions,
    value: utf8.encode(String(from + i)),
  }));
  expect((await to.produce(batchOf(rows), [topic])).failed).toBe(0);
}

async function reader(options: Partial<ConsumerOptions> = {}): Promise<BatchConsumer> {
  const made = await directDriver.consumer({
    ...{ brokers: watched, clientId: CLIENT, connectTimeoutMs: 60_000, ...options },
    properties: { 'fetch.wait.max.ms': 50, ...options.properties },
  });
  open.push(made);
  return made;
}

/** Rows and events that a consumer has read. */
class Reading {
  readonly rows: Array<{ readonly partition: number; readonly offset: bigint; readonly text: string }> = [];
  readonly events: BrokerEvent[] = [];
  private readonly consumer: BatchConsumer;
  private readonly into = RecordBatch.create(1000, 1 << 20);

  constructor(consumer: BatchConsumer) {
    this.consumer = consumer;
  }

  async until(what: string, enough: () => boolean | Promise<boolean>): Promise<void> {
    await until(
      what,
      async () => {
        const { rowCount, events } = await this.consumer.consume(this.into, 100);
        const { partition, offset } = this.into.columns;
        for (let row = 0; row < rowCount; row++) {
          this.rows.push({
            partition: partition[row] as number,
            offset: offset[row] as bigint,
            text: Buffer.from(this.into.value(row) as Uint8Array).toString(),
          });
        }
        this.events.push(...events);
        // librdkafka must not read instead.
        expect(events.filter(({ name }) => name === '_UNSUPPORTED_FEATURE')).toEqual([]);
        return enough();
      },
      SURVIVAL_MS,
    );
  }

  inPartition(partition: number): string[] {
    return this.rows.filter((row) => row.partition === partition).map((row) => row.text);
  }
}

it('the direct client follows partitions to other brokers when their leader is killed, and loses, repeats and reorders no record', {
  timeout: 600_000,
}, async () => {
  const partitions = 6;
  const topic = await createTopic(partitions, 3);
  const consumer = await reader();
  await consumer.assign(allOf(topic, partitions));
  const reading = new Reading(consumer);
  const to = await producer();
  let sent = 0;
  const sendMore = async (): Promise<void> => {
    await send(to, topic, partitions, sent, 600);
    sent += 600;
  };
  const readAll = (): Promise<void> => reading.until(`${sent} rows`, () => reading.rows.length >= sent);
  await sendMore();
  await readAll();
  const before = await partitionsOf(topic);
  const victim = before[0]?.leader as number;
  // Half of the records are on their way while the leader ends.
  const sending = sendMore().then(sendMore);
  await kill(victim);
  await sending;
  await readAll();
  const after = await partitionsOf(topic);
  const moved = before.filter(({ leader }) => leader === victim).map(({ id }) => id);
  expect(moved.length).toBeGreaterThan(0);
  for (const id of moved) {
    const now = after[id]?.leader as number;
    expect(now).not.toBe(victim);
    const asked = requests().flatMap(({ broker, partitions: rows }) =>
      rows.filter((row) => row.topic === topic && row.partition === id).map((row) => ({ ...row, broker })),
    );
    const [old, next] = [
      asked.findLast((row) => row.broker === victim),
      asked.find((row) => row.broker === now),
    ];
    expect(next?.leaderEpoch).toBeGreaterThan(old?.leaderEpoch as number);
    // The new leader is told what was read, and compares it with its log.
    expect(next?.fetchedEpoch).toBe(old?.leaderEpoch);
    expect(next?.offset).toBeGreaterThanOrEqual(old?.offset as number);
  }
  await restart(victim);
  await sendMore();
  await readAll();
  for (let partition = 0; partition < partitions; partition++) {
    const numbers = Array.from({ length: sent / partitions }, (_, i) => String(i * partitions + partition));
    expect(reading.inPartition(partition)).toEqual(numbers);
  }
});

it('the direct client asks a fetch session only for changes, and begins another when the broker has lost it', async () => {
  const partitions = 9;
  const topic = await createTopic(partitions, 1);
  const clientId = 'session';
  const consumer = await reader({ clientId });
  await consumer.assign(allOf(topic, partitions));
  const reading = new Reading(consumer);
  const to = await producer();
  const led = (await partitionsOf(topic)).find(({ id }) => id === 0)?.leader as number;
  const atLeader = (): FetchRequest[] => requests(clientId).filter(({ broker }) => broker === led);
  await reading.until('requests of a session without a change', () =>
    atLeader().some(({ sessionEpoch, partitions: rows }) => sessionEpoch > 1 && rows.length === 0),
  );
  const [first, second] = atLeader();
  expect([first?.sessionId, first?.sessionEpoch, first?.partitions.length]).toEqual([
    0,
    0,
    partitions / BROKERS.length,
  ]);
  const id = first?.answer?.sessionId as number;
  expect(id).toBeGreaterThan(0);
  expect([second?.sessionId, second?.sessionEpoch]).toEqual([id, 1]);
  const value = utf8.encode('one');
  expect((await to.produce(batchOf([{ partition: 0, value }]), [topic])).failed).toBe(0);
  await reading.until('the change of one partition', () =>
    atLeader().some((one) => one.partitions[0]?.offset === 1),
  );
  const change = atLeader().find((one) => one.partitions[0]?.offset === 1);
  expect(change?.sessionId).toBe(id);
  expect(change?.partitions.map(({ partition }) => partition)).toEqual([0]);
  // Another client ends the session.
  const socket = connect({ host: '127.0.0.1', port: watchedPorts(stack.folder)[led - 1] as number });
  await once(socket, 'connect');
  const limits = [int32(-1), int32(0), int32(0), int32(1), Buffer.from([0])];
  const [head, lists] = [Buffer.from([0]), Buffer.from([1, 1, 1, 0])];
  socket.write(
    requestFrame(
      { key: 1, version: 12, clientId: 'other' },
      head,
      ...limits,
      int32(id),
      int32(FINAL_EPOCH),
      lists,
    ),
  );
  await once(socket, 'data');
  socket.destroy();
  await reading.until('another session', () =>
    atLeader().some((one) => (one.answer?.sessionId ?? 0) > 0 && one.sessionEpoch === 0 && one !== first),
  );
  const lost = atLeader().findIndex((one) => one.answer?.error === FETCH_SESSION_ID_NOT_FOUND);
  const again = atLeader()[lost + 1];
  expect([again?.sessionId, again?.sessionEpoch]).toEqual([0, 0]);
  expect(again?.partitions.map(({ offset }) => offset).sort()).toEqual([0, 0, 1]);
  expect((await to.produce(batchOf([{ partition: 0, value }]), [topic])).failed).toBe(0);
  await reading.until('the record behind it', () => reading.rows.length === 2);
  expect(reading.events).toEqual([]);
});

it('the direct client sends no request to a broker that throttles it until the time is over', async () => {
  const topic = await createTopic(1, 1);
  const clientId = 'throttled';
  const to = await producer();
  const rows = Array.from({ length: 40 }, (_, i) => ({
    partition: 0,
    value: Buffer.alloc(50_000, String(i)),
  }));
  expect((await to.produce(batchOf(rows, 1 << 22), [topic])).failed).toBe(0);
  const java = await startJavaClient(stack.brokers);
  open.push(java);
  await java.ask({ op: 'quota', clientId, bytesPerSecond: 1_000_000 });
  const consumer = await reader({ clientId });
  const reading = new Reading(consumer);
  const throttled = (): FetchRequest[] =>
    requests(clientId).filter(({ answer }) => (answer?.throttleMs ?? 0) > 0);
  let readings = 0;
  // The quota reaches the broker at some time.
  while (throttled().length < 2) {
    await consumer.assign(allOf(topic, 1));
    readings++;
    await reading.until('every record', () => reading.rows.length >= readings * rows.length);
  }
  expect(reading.events).toEqual([]);
  expect(reading.rows.map(({ offset }) => Number(offset))).toEqual(
    Array.from({ length: readings * rows.length }, (_, i) => i % rows.length),
  );
  await reading.until(
    'a request after each pause',
    () => requests(clientId).at(-1)?.answer?.throttleMs === 0,
  );
  for (const { broker, connection, answer } of throttled()) {
    const { atMs, throttleMs } = answer as NonNullable<FetchRequest['answer']>;
    const next = requests(clientId).find(
      (one) => one.broker === broker && one.connection === connection && one.atMs > atMs,
    );
    // The client counts whole milliseconds, from before it read the answer.
    expect((next?.atMs ?? Number.POSITIVE_INFINITY) - atMs).toBeGreaterThan(throttleMs * 0.9 - 2);
  }
});

it('the direct client reports a log that an unclean election truncated, and continues at the truncation', {
  timeout: 600_000,
}, async () => {
  const topic = await createTopic(1, 2, {
    'unclean.leader.election.enable': 'true',
    'min.insync.replicas': '1',
  });
  const [at] = await partitionsOf(topic);
  const leader = at?.leader as number;
  const follower = at?.replicas.find((id) => id !== leader) as number;
  const to = await producer();
  const consumer = await reader({ autoOffsetReset: 'earliest' });
  const strict = await reader({ autoOffsetReset: 'error', clientId: 'strict' });
  for (const one of [consumer, strict]) await one.assign(allOf(topic, 1));
  const [reading, refused] = [new Reading(consumer), new Reading(strict)];
  const both = async (what: string, enough: (one: Reading) => boolean): Promise<void> => {
    for (const one of [reading, refused]) await one.until(what, () => enough(one));
  };
  await send(to, topic, 1, 0, 50);
  await both('50 rows', (one) => one.rows.length === 50);
  await kill(follower);
  await send(to, topic, 1, 50, 50);
  await both('100 rows', (one) => one.rows.length === 100);
  await kill(leader);
  await restart(follower);
  await until('an unclean election', async () => (await leaderOf(topic, 0)) === follower, SURVIVAL_MS);
  await send(await producer({ acks: 1 }), topic, 1, 1000, 20);
  await refused.until('the error', () => refused.events.some(({ name }) => name === '_AUTO_OFFSET_RESET'));
  expect(refused.events.find(({ name }) => name === '_AUTO_OFFSET_RESET')?.message).toContain(
    'the log was truncated to offset 50, and it was read up to offset 100',
  );
  await reading.until('the rows of the new log', () => reading.rows.length >= 120);
  const truncations = reading.events.filter(({ name }) => name === '_LOG_TRUNCATION');
  expect(truncations.map(({ message }) => message)).toEqual([
    'the log was truncated to offset 50, and it was read up to offset 100',
  ]);
  const numbers = (from: number, count: number): string[] =>
    Array.from({ length: count }, (_, i) => String(from + i));
  expect(reading.rows.map(({ text }) => text)).toEqual([...numbers(0, 100), ...numbers(1000, 20)]);
  expect(reading.rows.slice(100).map(({ offset }) => Number(offset))).toEqual(numbers(50, 20).map(Number));
  expect(refused.rows).toHaveLength(100);
  await restart(leader);
});
