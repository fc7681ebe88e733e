/** SIGKILL of a producer, of a consumer, of the leader of two registries and of the broker, and an
 *  outage of the registry, each under load. A plain client of the broker counts: no acknowledged
 *  and no committed record is lost, and only records that were not committed are repeated. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { START_TIMEOUT_MS } from '../../src/devstack/stack.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { untilShared } from '../fixtures/consumer.ts';
import { metric, pageOf, sumOf } from '../fixtures/metrics.ts';
import { ownStack } from '../fixtures/own-stack.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import {
  acknowledged,
  expectDelivered,
  expectExactly,
  FaultFleet,
  PARTITIONS,
  producedBy,
  produces,
} from './contracts-faults-kit.ts';
import {
  expectStored,
  type Instance,
  leaderOf,
  recordSchema,
  startInstances,
  verifyTopic,
} from './registry-kafka-kit.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `faults-${own.suffix}-${part}`;
const START = Array.from({ length: PARTITIONS }, () => 0);

/** Limit of a test whose many processes start on a stalled machine. */
const LIMIT = { timeout: 900_000 };

/** Longest time before a group gives the partitions of a killed member to others. */
const SHORT_SESSION = '-session-timeout=6s';
/** So long that a stall of the machine evicts no member. */
const LONG_SESSION = '-session-timeout=45s';

async function register(url: string, topic: string, versions: readonly (1 | 2 | 3)[]): Promise<number[]> {
  const ids: number[] = [];
  for (const version of versions) {
    const answer = await fetch(`${url}/subjects/${topic}-value/versions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ schema: orderSchema(version, 'avro') }),
    });
    expect(answer.status).toBe(200);
    ids.push(((await answer.json()) as { readonly id: number }).id);
  }
  return ids;
}

/** Waits until a consumer process has read this many records more than now. */
async function reads(consumer: Running, more: number): Promise<void> {
  const read = async (): Promise<number> =>
    sumOf(await pageOf(await consumer.ready()), 'consumed_records_total');
  const wanted = (await read()) + more;
  await until(`${more} further records read by ${consumer.name}`, async () => (await read()) >= wanted);
}

describe('processes of a fleet', () => {
  let registry = '';
  beforeAll(async () => {
    registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  });

  const fleetOf = async (part: string): Promise<FaultFleet> => {
    const topic = topicOf(part);
    await register(registry, topic, [1]);
    return new FaultFleet(own, { brokers: stack.brokers, registry, topic });
  };

  it(
    'SIGKILL of a producer under load loses no record that the broker acknowledged, and no record of the others',
    LIMIT,
    async () => {
      const fleet = await fleetOf('producer');
      const reading = fleet.consumer('reading', 'g1', '-instances=2', LONG_SESSION);
      await untilShared(reading, 2);
      const [killed, other] = [fleet.producer('killed', 1), fleet.producer('other', 2)];
      await Promise.all([produces(killed, 800), produces(other, 800)]);
      const counted = await acknowledged(killed);
      await killed.die();
      const successor = fleet.producer('successor', 3);
      await Promise.all([produces(successor, 400), produces(other, 400)]);
      const sent = [await producedBy(other), await producedBy(successor)] as const;
      await fleet.caughtUp('g1');
      await reading.drain();
      const records = await fleet.records();
      expectExactly(records, 'other', 2, sent[0]);
      expectExactly(records, 'successor', 3, sent[1]);
      const left = records.filter(({ headers }) => headers.get('producer') === 'killed');
      expect(left.length).toBeGreaterThanOrEqual(counted);
      expect(new Set(left.map(({ key }) => key)).size).toBe(left.length);
      expectDelivered(records, [{ lines: await fleet.lines('reading'), from: START }]);
    },
  );

  it(
    'SIGKILL of a consumer under load loses no record, repeats only what its group had not committed, and does not touch another group',
    LIMIT,
    async () => {
      const fleet = await fleetOf('consumer');
      const killed = fleet.consumer('killed', 'g1', '-instances=2', SHORT_SESSION);
      const other = fleet.consumer('other', 'g2', '-instances=2', LONG_SESSION);
      await Promise.all([untilShared(killed, 2), untilShared(other, 2)]);
      const producer = fleet.producer('load', 1);
      await until('commits of each partition', async () =>
        (await fleet.committed('g1')).every((offset) => offset > 0),
      );
      await reads(killed, 500);
      await killed.die();
      const committed = await fleet.committed('g1');
      await produces(producer, 400);
      // One member: partitions that move between members under load may be read twice.
      const successor = fleet.consumer('successor', 'g1', LONG_SESSION);
      await successor.ready();
      await produces(producer, 400);
      const sent = await producedBy(producer);
      await Promise.all([fleet.caughtUp('g1'), fleet.caughtUp('g2')]);
      await Promise.all([successor.drain(), other.drain()]);
      const records = await fleet.records();
      expectExactly(records, 'load', 1, sent);
      expectDelivered(records, [
        { lines: await fleet.lines('killed'), from: START },
        { lines: await fleet.lines('successor'), from: committed },
      ]);
      expectDelivered(records, [{ lines: await fleet.lines('other'), from: START }]);
    },
  );
});

describe('the leader of two registries', () => {
  it(
    'SIGKILL of the leading registry under load loses no acknowledged schema and no record, and a new schema is registered and read afterwards',
    LIMIT,
    async () => {
      const topic = topicOf('leader');
      const schemas = topicOf('schemas');
      const instances = (await startInstances(own, stack.brokers, schemas, 2)) as [Instance, Instance];
      // The first write settles who leads.
      const [first] = await until('a registered schema', () => register(instances[0].url, topic, [1]));
      const leader = leaderOf(instances);
      const follower = instances[leader === instances[0] ? 1 : 0];
      const fleet = new FaultFleet(own, { brokers: stack.brokers, registry: follower.url, topic });
      const reading = fleet.consumer('reading', 'g1', '-instances=2', '-reader-version=1', LONG_SESSION);
      await untilShared(reading, 2);
      const producer = fleet.producer('old', 1);
      await produces(producer, 400);
      const stored: Array<{ subject: string; schema: string; id: number }> = [];
      const write = async (n: number): Promise<boolean> => {
        const [subject, schema] = [`side-${n}`, recordSchema(`Side${n}`)];
        const id = await follower.register(subject, schema);
        if (id !== undefined) stored.push({ subject, schema, id });
        return id !== undefined;
      };
      await until('a write through the follower', () => write(0));
      const unanswered = Promise.all(Array.from({ length: 20 }, (_, n) => write(1 + n)));
      await leader.process.die();
      await produces(producer, 200);
      let attempts = 0;
      // A producer that cannot register its schema ends before it writes.
      const next = await until('a producer whose schema is registered', async () => {
        const name = `new-${attempts++}`;
        const ran = await runProducer(own, fleet.producing(name, 2, 2, '-count=300'));
        return ran.code === 0 && name;
      });
      await unanswered;
      const sent = await producedBy(producer);
      await fleet.caughtUp('g1');
      const page = await pageOf(await reading.ready());
      expect(sumOf(page, 'deserialize_errors_total')).toBe(0);
      await reading.drain();
      const records = await fleet.records();
      expectExactly(records, 'old', 1, sent);
      expectExactly(records, next, 2, 300);
      expect(records).toHaveLength(sent + 300);
      const ids = new Set(records.map(({ schemaId }) => schemaId));
      expect([ids.size, ids.has(first)]).toEqual([2, true]);
      expectDelivered(records, [{ lines: await fleet.lines('reading'), from: START }]);
      expectStored(await verifyTopic(stack.brokers, schemas), stored);
      await follower.process.drain();
    },
  );
});

describe('the broker', () => {
  const broker = ownStack('contracts-faults');
  let brokers = '';
  beforeAll(async () => {
    ({ brokers } = await broker.start(undefined));
  }, START_TIMEOUT_MS);
  afterAll(() => broker.close());

  it(
    'SIGKILL of the broker under load loses no acknowledged and no committed record, and writes none twice',
    LIMIT,
    async () => {
      const registry = `http://${await startRegistry(own, ['-store=memory'], 'registry-of-broker').ready()}`;
      const topic = topicOf('broker');
      await register(registry, topic, [1]);
      const fleet = new FaultFleet(own, { brokers, registry, topic });
      const reading = fleet.consumer('reading', 'g1', '-instances=2', LONG_SESSION);
      await untilShared(reading, 2);
      const producer = fleet.producer('load', 1);
      await produces(producer, 800);
      await until('commits of each partition', async () =>
        (await fleet.committed('g1')).every((offset) => offset > 0),
      );
      const counted = await acknowledged(producer);
      const committed = await fleet.committed('g1');
      await broker.killBroker();
      await broker.start(Number(brokers.split(':')[1]));
      const kept = await until('the offsets of the restarted broker', () => fleet.committed('g1'));
      expect(kept.every((offset, partition) => offset >= (committed[partition] as number))).toBe(true);
      await produces(producer, 400);
      await reads(reading, 400);
      const sent = await producedBy(producer);
      expect(sent).toBeGreaterThan(counted);
      await fleet.caughtUp('g1');
      await reading.drain();
      // A record that was read again was not committed before the broker was killed.
      const lines = await fleet.lines('reading');
      const seen = new Set<string>();
      const repeats = lines.filter(({ partition, offset }) => {
        const place = `${partition}/${offset}`;
        return seen.has(place) || !seen.add(place);
      });
      for (const { partition, offset } of repeats)
        expect(offset).toBeGreaterThanOrEqual(committed[partition] as number);
      const records = await fleet.records();
      expectExactly(records, 'load', 1, sent);
      const places = new Map(lines.map((line) => [`${line.partition}/${line.offset}`, line]));
      expectDelivered(records, [{ lines: [...places.values()], from: START }]);
    },
  );
});

/** Attempts of the client until its pause between two of them is as long as it gets, 5 s. By then
 *  the outage is longer than the session timeout. */
const ATTEMPTS = 8;
/** Connections of an attempt: the request and its retries. */
const CONNECTIONS = 3;

describe('an outage of the registry', () => {
  /** Accepts connections at an address and closes each of them. */
  async function refuseAt(url: string): Promise<{ readonly server: Server; readonly count: () => number }> {
    let count = 0;
    const server = createServer((socket) => {
      count++;
      socket.on('error', () => {}).destroy();
    });
    server.listen(Number(new URL(url).port), '127.0.0.1');
    await once(server, 'listening');
    return { server, count: () => count };
  }

  it(
    'an outage of the registry under load pauses the consumer, which stays in its group, quarantines nothing, and reads every record once afterwards',
    LIMIT,
    async () => {
      const topic = topicOf('outage');
      const store = `-store=file:${join(own.dir, 'outage')}`;
      // A fixed port: while the registry is down, the system could give a random port to another
      // test.
      const listen = `-listen=127.0.0.1:${await freePort()}`;
      const away = startRegistry(own, [store, listen], 'away');
      const url = `http://${await away.ready()}`;
      const ids = await register(url, topic, [1, 2, 3]);
      // Another registry gives the same ids to producers that start during the outage.
      const other = `http://${await startRegistry(own, ['-store=memory'], 'other').ready()}`;
      expect(await register(other, topic, [1, 2, 3])).toEqual(ids);
      const fleet = new FaultFleet(own, { brokers: stack.brokers, registry: url, topic });
      const reading = fleet.consumer('reading', 'g1', '-reader-version=2', '-log-level=info', SHORT_SESSION);
      const address = await reading.ready();
      const load = fleet.producer('load', 1);
      await reads(reading, 400);
      const rebalances = (): number => reading.log().split('"msg":"rebalance"').length;
      const before = rebalances();
      await away.die();
      const { server, count } = await refuseAt(url);
      const sent = await runProducer(own, fleet.at(other).producing('new', 2, 3, '-count=200'));
      expect(sent.code, sent.stderr).toBe(0);
      await until('the pause', async () => (await metric(address, 'registry_unavailable_total')) === 1);
      const paused = await metric(address, 'consumed_records_total');
      await until('attempts at the longest pause', () => count() >= ATTEMPTS * CONNECTIONS);
      await produces(load, 200);
      expect(await metric(address, 'consumed_records_total')).toBe(paused);
      expect(rebalances()).toBe(before);
      server.close();
      await once(server, 'close');
      await startRegistry(own, [store, listen], 'back').ready();
      await reads(reading, 400);
      const produced = await producedBy(load);
      await fleet.caughtUp('g1');
      const page = await pageOf(address);
      expect(sumOf(page, 'registry_unavailable_total')).toBe(1);
      expect(sumOf(page, 'deserialize_errors_total')).toBe(0);
      expect(rebalances()).toBe(before);
      await reading.drain();
      const records = await fleet.records();
      expectExactly(records, 'load', 1, produced);
      expectExactly(records, 'new', 2, 200);
      expect(await fleet.records(`${topic}.quarantine`)).toEqual([]);
      expectDelivered(records, [{ lines: await fleet.lines('reading'), from: START }]);
    },
  );
});
