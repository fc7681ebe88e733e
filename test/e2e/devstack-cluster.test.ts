/** Cluster of three brokers: it tolerates one dead broker, refuses writes with two dead, and is
 *  never treated as a single broker. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Kafka from 'node-rdkafka';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { askBroker } from '../../src/devstack/kafka/wire.ts';
import { signalProcess, waitForEnd } from '../../src/devstack/process.ts';
import { runningServers, type ServerState } from '../../src/devstack/state.ts';
import { nodeRdkafkaDriver as driver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { allOf, batchOf, utf8 } from '../contract/broker-world.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, type Outcome } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { until } from '../wait.ts';
import { drained, readTopic, Sent, worlds } from './relay-kit.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-cluster-'));
const own = launcher();
const world = worlds(() => ({ folder, brokers, postgres }), own.suffix);
const TOPIC = 'kept';
const PARTITIONS = 3;
const ROWS = 30;
/** Limit for leader elections and session timeouts on a busy machine, in ms. */
const SURVIVAL_MS = 60_000;
const REFUSAL_MS = 3_000;
/** Limit for a relay that reconnects to its brokers, perhaps after several attempts, in ms. */
const BACK_MS = 200_000;

const millrace = (...args: readonly string[]): Promise<Outcome> => own.run([...args, '-log-level=warn']);

async function stackUp(...args: readonly string[]): Promise<{ brokers: string; postgres: string }> {
  const outcome = await millrace('up', `-dir=${folder}`, '-json', '-start-timeout=200s', ...args);
  expect(outcome).toMatchObject({ code: 0, stderr: '' });
  return JSON.parse(outcome.stdout) as { brokers: string; postgres: string };
}

const up = async (...args: readonly string[]): Promise<string> => (await stackUp(...args)).brokers;

async function kill(...names: readonly string[]): Promise<void> {
  const servers = runningServers(folder).filter((server) => names.includes(server.name));
  expect(servers.map((server) => server.name).sort()).toEqual([...names].sort());
  for (const { process } of servers) signalProcess(process, 'SIGKILL');
  expect(
    await waitForEnd(
      servers.map((server) => server.process),
      60_000,
    ),
  ).toBe(true);
}

/** Sends ROWS records and returns how many of them all in-sync replicas acknowledged. */
async function produce(brokers: string, from: number, timeoutMs: number): Promise<number> {
  const producer = await driver.producer({
    brokers,
    clientId: 'cluster',
    connectTimeoutMs: 60_000,
    acks: -1,
    properties: { 'message.timeout.ms': timeoutMs },
  });
  try {
    const records = Array.from({ length: ROWS }, (_, i) => ({
      topicIndex: 0,
      partition: i % PARTITIONS,
      offset: 0n,
      timestamp: 0n,
      key: null,
      value: utf8.encode(String(from + i)),
      headers: [],
    }));
    return (await producer.produce(batchOf(records), [TOPIC])).delivered;
  } finally {
    await producer.close();
  }
}

/** Returns all numbers that can be read, once there are at least `wanted`. */
async function readBack(brokers: string, wanted: number): Promise<ReadonlySet<number>> {
  const consumer = await driver.consumer({ brokers, clientId: 'cluster', connectTimeoutMs: 60_000 });
  try {
    await consumer.assign(allOf(TOPIC, PARTITIONS));
    const into = RecordBatch.create(500, 1 << 16);
    const numbers = new Set<number>();
    await until(
      'the records',
      async () => {
        const { rowCount } = await consumer.consume(into, 200);
        for (let row = 0; row < rowCount; row++)
          numbers.add(Number(Buffer.from(into.value(row) as Uint8Array).toString()));
        if (numbers.size < wanted) throw new Error(`${numbers.size} of ${wanted} records`);
        return true;
      },
      SURVIVAL_MS,
    );
    return numbers;
  } finally {
    await consumer.close();
  }
}

/** Leader of each partition of the topic. */
function leadersOf(topic: string): Promise<readonly number[]> {
  const client = new Kafka.Producer({ 'metadata.broker.list': brokers });
  return new Promise<readonly number[]>((resolve, reject) => {
    client.connect({ timeout: 60_000 }, (error) => {
      if (error) return reject(error);
      client.getMetadata({ topic, timeout: 60_000 }, (failure, found) => {
        if (failure) return reject(failure);
        const partitions = found.topics.find(({ name }) => name === topic)?.partitions ?? [];
        resolve(partitions.sort((a, b) => a.id - b.id).map(({ leader }) => leader));
      });
    });
  }).finally(() => client.disconnect());
}

/** Topic id in the metadata file of each log of the topic; an empty string where the file is
 *  missing. */
function logIds(topic: string): readonly string[] {
  const copies = [1, 2, 3].flatMap((n) =>
    Array.from({ length: PARTITIONS }, (_, partition) => join(folder, `kafka-${n}`, `${topic}-${partition}`)),
  );
  return copies.map((log) => {
    try {
      return readFileSync(join(log, 'partition.metadata'), 'utf8');
    } catch {
      return '';
    }
  });
}

/** Deletes the topic and recreates it immediately. Resolves when all its logs are new. */
async function recreate(topic: string): Promise<void> {
  const old = new Set(['', ...logIds(topic)]);
  const admin = await driver.admin({ brokers, clientId: 'cluster', connectTimeoutMs: 60_000 });
  try {
    await admin.deleteTopics([topic]);
    const spec = { topic, partitions: PARTITIONS, replicationFactor: 3 };
    await until('the topic', () => admin.createTopics([spec]));
  } finally {
    await admin.close();
  }
  await until('its new logs', async () => (logIds(topic).some((id) => old.has(id)) ? undefined : true));
}

let brokers: string;
let postgres: string;
beforeAll(async () => {
  ({ brokers, postgres } = await stackUp('-broker-count=3'));
});
afterAll(async () => {
  await millrace('down', `-dir=${folder}`);
  rmSync(folder, { recursive: true, force: true });
});

describe('cluster of three brokers', () => {
  it('a cluster has three brokers that know each other, and keeps that number', async () => {
    const ports = brokers.split(',').map((address) => Number(address.split(':')[1]));
    expect(new Set(ports).size).toBe(3);
    for (const port of ports) {
      const view = await askBroker('127.0.0.1', port, 60_000);
      expect(view?.brokers.map((one) => one.port).sort()).toEqual([...ports].sort());
    }
    const one = await millrace('up', `-dir=${folder}`, '-broker-count=1');
    expect(one.code).toBe(2);
    expect(one.stderr).toMatch(
      /^error: the stack in .* was made with -broker-count=3, not 1; .*\[strange_folder\]/,
    );
    const secured = await millrace('up', `-dir=${folder}`, '-broker-security=sasl_ssl');
    expect(secured.code).toBe(2);
    expect(secured.stderr).toMatch(
      /^error: the stack in .* was made with -broker-security=plaintext, not sasl_ssl; .*\[strange_folder\]/,
    );
    expect(runningServers(folder)).toHaveLength(4);
    expect(await up()).toBe(brokers);
  });

  it('a cluster acknowledges with one dead broker, accepts it back, refuses with two dead, and loses nothing', {
    timeout: 600_000,
  }, async () => {
    const admin = await driver.admin({ brokers, clientId: 'cluster', connectTimeoutMs: 60_000 });
    // The topic has three replicas by default; a single replica would be below min.insync.replicas.
    await admin.createTopics([{ topic: TOPIC, partitions: PARTITIONS }]);
    await admin.close();
    expect(await produce(brokers, 0, SURVIVAL_MS)).toBe(ROWS);

    await kill('kafka-1');
    const doctor = await millrace('doctor', `-dir=${folder}`);
    expect([doctor.code, doctor.stdout]).toEqual([
      1,
      expect.stringMatching(/^fail +stack +kafka-1 .* ended; /m),
    ]);
    expect(await produce(brokers, ROWS, SURVIVAL_MS)).toBe(ROWS);

    // `up` starts only the dead servers; the others never stop serving.
    await kill('postgres');
    const others = runningServers(folder).map((server) => server.process.pid);
    expect(await up()).toBe(brokers);
    const now = runningServers(folder).map((server) => server.process.pid);
    expect(now).toEqual(expect.arrayContaining(others));
    expect(now).toHaveLength(4);

    await kill('kafka-1', 'kafka-2');
    expect(await produce(brokers, 2 * ROWS, REFUSAL_MS)).toBe(0);

    expect(await up()).toBe(brokers);
    const numbers = await readBack(brokers, 2 * ROWS);
    expect([...Array(2 * ROWS).keys()].filter((number) => !numbers.has(number))).toEqual([]);
  });
});

describe('relay on a cluster', () => {
  it('a relay whose topic is recreated with other leaders publishes pending and new rows in order', {
    timeout: 600_000,
  }, async () => {
    const { pool, args, topic, ...rest } = await world();
    // The delivery timeout exceeds the pause below. A client created after the pause would soon
    // request the metadata again and learn the new leaders.
    const relay = startRelay(own, [...args, '-delivery-timeout=10s']);
    const address = await relay.address();
    const before = new Sent(pool, 30);
    await before.round();
    await drained(pool, BACK_MS);
    const first = await leadersOf(topic);
    // While kafka-2 is paused, the client learns of another leader for its partitions.
    const paused = runningServers(folder).find(({ name }) => name === 'kafka-2') as ServerState;
    signalProcess(paused.process, 'SIGSTOP');
    await before.round();
    await until('other leaders', async () =>
      (await leadersOf(topic)).some((leader) => leader < 0 || leader === 2) ? undefined : true,
    );
    signalProcess(paused.process, 'SIGCONT');
    await drained(pool, BACK_MS);
    const known = await leadersOf(topic);
    const moved = known.flatMap((leader, partition) => (leader === first[partition] ? [] : partition));
    let now: readonly number[];
    do {
      await recreate(topic);
      now = await leadersOf(topic);
    } while (moved.every((partition) => now[partition] === known[partition]));
    const sent = new Sent(pool, 30);
    for (let round = 0; round < 5; round++) await sent.round();
    await drained(pool, BACK_MS);
    expect(await metric(address, 'relay_order_gaps_total')).toBe(0);
    await relay.drain();
    sent.expectOrdered(await readTopic({ ...rest, topic }));
  });
});
