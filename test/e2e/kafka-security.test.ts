/** Every command and the library on a broker with TLS, SCRAM-SHA-512 and access control lists, and
 *  the errors of a wrong password, an untrusted certificate and a missing right. */
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { ask } from '../../src/demo/contracts/model.ts';
import type { Stack } from '../../src/devstack/stack.ts';
import { type BrokerClient, openBroker, readBrokerConfig } from '../../src/drivers.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { type AclEntry, allow } from '../fixtures/acl.ts';
import { runConsumer } from '../fixtures/consumer.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { runEngine } from '../fixtures/engine.ts';
import { runGen } from '../fixtures/gen.ts';
import { startOwned } from '../fixtures/own-stack.ts';
import { runPayments } from '../fixtures/payments.ts';
import { launcher, type Outcome, type Running } from '../fixtures/process.ts';
import { runProducer } from '../fixtures/producer.ts';
import { runRegistry, startRegistry } from '../fixtures/registry.ts';
import { runRelay } from '../fixtures/relay.ts';
import { until } from '../wait.ts';
import { insert } from './relay-kit.ts';

const own = launcher();
const SCHEMA = 'secured';
/** Topics, groups and transactional ids that the user may use begin with this. */
const ALLOWED = 'secured-';

let stack: Stack;
let pool: SqlPool;
/** -broker-config of a user whose rights are those of the access control lists. */
let client: string;

const right = (resource: AclEntry['resource'], name = ALLOWED): AclEntry => ({
  ...{ resource, name, pattern: 'prefixed', user: 'client', operation: 'all' },
});

beforeAll(async () => {
  stack = await startOwned(undefined, undefined, 'sasl_ssl');
  if (stack.clients === undefined) throw new Error('the stack is not secured');
  client = `-broker-config=${stack.clients.client}`;
  const ids = [right('transactionalId'), right('transactionalId', 'millrace-')];
  await allow(stack.folder, [
    right('topic'),
    right('topic', 'bench-'),
    right('group'),
    right('group', 'bench-'),
    ...ids,
  ]);
  pool = await connectPool(stack.postgres, { schema: SCHEMA });
  await createTables(pool, SCHEMA, 'orders', 'relay');
});
afterAll(async () => {
  await pool?.close();
  await stack?.close();
});

/** Fails with the log of the command unless it ended with 0. */
function done({ code, stdout, stderr }: Outcome): string {
  if (code !== 0) throw new Error(`it ended with code ${code}: ${stderr}`);
  expect(stderr, 'no secret is logged').not.toContain(passwordOf('client'));
  return stdout;
}
/** Group that the access control lists do not name. */
const FOREIGN_GROUP = '-group=foreign-group';
/** Fails unless the command ended because its group refused it. */
function excluded({ code, stderr }: Outcome): void {
  expect(code, stderr).toBe(2);
  expect(stderr).toContain('[broker_forbidden]');
  expect(stderr).toContain('the consumer group (kafka-acls --add)');
}
const passwordOf = (user: 'admin' | 'client'): string =>
  /sasl\.password=(.+)/.exec(readFileSync(stack.clients?.[user] as string, 'utf8'))?.[1] as string;
const document = <T>(outcome: Outcome): T => JSON.parse(done(outcome)) as T;
const database = (): readonly string[] => [`-postgres=${stack.postgres}`, `-schema=${SCHEMA}`];

/** Polls the engine, relay and payments of a topic, by its flags. */
const RELAYED = `${ALLOWED}events`;
const avro = (): string => {
  const path = join(own.dir, 'order.avsc');
  writeFileSync(path, orderSchema(1, 'avro'));
  return path;
};

describe('commands on a broker with TLS, SCRAM and access control lists', () => {
  it('topic creates, lists and deletes what the user may use', async () => {
    const topic = `${ALLOWED}topic`;
    done(await own.run(['topic', 'create', client, `-topic=${topic}`]));
    const seen = document<{ topics: Array<{ topic: string }> }>(
      await own.run(['topic', 'list', client, '-json']),
    );
    expect(seen.topics.map((one) => one.topic)).toContain(topic);
    expect(seen.topics.every((one) => one.topic.startsWith(ALLOWED))).toBe(true);
    done(await own.run(['topic', 'delete', client, `-topic=${topic}`]));
  });

  it('doctor reaches the broker through the settings of the user', async () => {
    const { checks } = JSON.parse((await own.run(['doctor', client, '-json'])).stdout) as {
      checks: Array<{ id: string; verdict: string; found: string }>;
    };
    const found = checks.find((one) => one.id === 'broker-listeners');
    expect(found?.verdict, found?.found).toBe('ok');
  });

  describe('registry in a topic', () => {
    let registry: Running;
    let flags: readonly string[];
    beforeAll(async () => {
      registry = startRegistry(own, ['-store=kafka', client, `-schemas-topic=${ALLOWED}schemas`]);
      const url = `http://${await registry.ready()}`;
      const common = ['-format=avro', `-subject=${ALLOWED}orders-value`, '-partitions=2'];
      flags = [client, `-registry=${url}`, ...common];
    });
    afterAll(() => registry.drain());

    it('registry, producer and consumer exchange every record', async () => {
      const count = 500;
      done(
        await own.run([
          'producer',
          ...flags,
          `-schema=${avro()}`,
          `-count=${count}`,
          '-instances=2',
          '-json',
        ]),
      );
      const out = join(own.dir, 'orders.jsonl');
      const group = `-group=${ALLOWED}readers`;
      done(
        await runConsumer(own, [
          ...flags,
          '-reader-version=1',
          `-out=file:${out}`,
          group,
          '-instances=2',
          '-exit-at-end',
        ]),
      );
      expect(readFileSync(out, 'utf8').trim().split('\n')).toHaveLength(count);
      const replayed = done(await runConsumer(own, [...flags, '-replay', '-json']));
      expect(JSON.parse(replayed)).toMatchObject({ complete: true, decoded: count, failed: 0 });
      expect(registry.log()).not.toContain(passwordOf('client'));
    });

    it.each(['on', 'off'])('consumer lists a quarantine and redrives it (native %s)', async (native) => {
      const name = `${ALLOWED}quarantined-${native}`;
      const of = flags.map((flag) => flag.replace(`${ALLOWED}orders-value`, `${name}-value`));
      done(await own.run(['producer', ...of, `-schema=${avro()}`, '-count=50']));
      const other = JSON.stringify({
        type: 'record',
        name: 'Order',
        fields: [{ name: 'other', type: 'int' }],
      });
      const url = (flags[1] as string).replace('-registry=', '');
      await ask(url, 'POST', `/subjects/${name}-other/versions`, { schema: other });
      const shared = [client, flags[1] as string, `-topic=${name}`, `-native=${native}`];
      done(
        await runConsumer(own, [
          ...shared,
          `-subject=${name}-other`,
          `-group=${ALLOWED}other-${native}`,
          '-exit-at-end',
        ]),
      );
      const fixed = [...shared, `-subject=${name}-value`];
      expect(
        document(await runConsumer(own, [...fixed, '-quarantine', '-json', '-list-max=1'])),
      ).toMatchObject({
        left: 50,
      });
      expect(document(await runConsumer(own, [...fixed, '-redrive', '-json']))).toMatchObject({
        redriven: 50,
        failed: 0,
      });
      expect(document(await runConsumer(own, [...fixed, '-redrive', '-json']))).toMatchObject({
        repeated: 50,
      });
    });

    it.each(['on', 'off'])('consumer ends when its group is forbidden (native %s)', async (native) => {
      const of = flags.map((flag) => flag.replace('orders-value', `foreign-${native}-value`));
      done(await own.run(['producer', ...of, `-schema=${avro()}`, '-count=1']));
      const more = ['-reader-version=1', `-out=file:${join(own.dir, 'none.jsonl')}`, `-native=${native}`];
      excluded(await runConsumer(own, [...of, ...more, FOREIGN_GROUP]));
    });
  });

  it('gen and engine: the results of all generated events reach a topic', async () => {
    const topic = `${ALLOWED}windows`;
    const to = [`-out=kafka:${topic}`, '-partitions=2'];
    done(await own.run(['gen', '-kind=events', '-order=delayed', '-count=5000', client, ...to]));
    const sink = `-sink=kafka:${ALLOWED}results`;
    const state = `-state-dir=${join(own.dir, 'state')}`;
    const windows = [`-topic=${topic}`, '-size=1s', state, sink, '-bounded', '-migrate'];
    done(await runEngine(own, [client, ...windows]));
    const results = await recordsOf(`${ALLOWED}results`);
    expect(results).toBeGreaterThan(0);
    // The direct client over TLS with SCRAM.
    const other = [`-state-dir=${join(own.dir, 'direct')}`, `-sink=kafka:${ALLOWED}direct`];
    const flags = [`-topic=${topic}`, '-size=1s', ...other, '-bounded', '-migrate'];
    const direct = await runEngine(own, [client, ...flags, '-broker-client=direct', '-native=on']);
    done(direct);
    expect(direct.stderr).not.toContain('librdkafka reads instead');
    expect(await recordsOf(`${ALLOWED}direct`)).toBe(results);
  });

  it('relay publishes the outbox, and payments charges each order once', async () => {
    const orders = Array.from({ length: 20 }, () => randomUUID());
    for (const order_id of orders) {
      const order = { order_id, account_id: '7', amount_cents: '100', status: 'created' };
      await insert(pool, order_id, JSON.stringify({ ...order, created_at: new Date().toISOString() }));
    }
    const topic = [`-topic=${RELAYED}`, '-partitions=2'];
    done(await runRelay(own, [client, ...database(), ...topic, '-wake=off', '-exit-when-drained']));
    const group = `-group=${ALLOWED}payments`;
    done(await runPayments(own, [client, ...database(), ...topic, group, '-migrate', '-exit-at-end']));
    const { rows } = await pool.query<{ n: string }>(
      'SELECT count(DISTINCT order_id)::text AS n FROM charges',
    );
    expect(rows[0]?.n).toBe(String(orders.length));
  });

  it.each(['on', 'off'])(
    'engine and payments end when their group is forbidden (native %s)',
    async (native) => {
      const topic = `${ALLOWED}forbidden-${native}`;
      done(await own.run(['topic', 'create', client, `-topic=${topic}`]));
      const flags = [client, `-topic=${topic}`, FOREIGN_GROUP, `-native=${native}`];
      const state = `-state-dir=${join(own.dir, `forbidden-${native}`)}`;
      excluded(await runEngine(own, [...flags, '-source=group', '-size=1s', state]));
      excluded(await runPayments(own, [...flags, ...database(), '-migrate']));
    },
  );

  it('bench broker measures beside the raw loop', async () => {
    const flags = ['-smoke', '-json', client, `-brokers=${stack.brokers}`];
    const { results } = document<{ results: unknown[] }>(await own.run(['bench', 'broker', ...flags]));
    expect(results).toHaveLength(7);
  });

  it.each(['orders', 'relay', 'inbox', 'registry', 'engine'])(
    'bench %s measures with the settings of the user',
    async (bench) => {
      const at = [
        `-brokers=${stack.brokers}`,
        ...(bench === 'registry' ? [] : [`-postgres=${stack.postgres}`]),
      ];
      const { results } = document<{ results: unknown[] }>(
        await own.run(['bench', bench, '-smoke', '-json', client, ...at]),
      );
      expect(results.length).toBeGreaterThan(0);
    },
  );
});

/** Number of records in a topic, read by the library. */
async function recordsOf(
  topic: string,
  native: 'on' | 'off' | 'auto' = 'auto',
  client: BrokerClient = 'librdkafka',
): Promise<number> {
  const config = readBrokerConfig({ file: stack.clients?.client as string });
  const driver = await openBroker(native, config, client);
  const at = { brokers: config.brokers as string, clientId: 'test' };
  const admin = await driver.admin(at);
  const partitions = (await admin.describeTopic(topic))?.partitions ?? 0;
  await admin.close();
  const consumer = await driver.consumer({ ...at, group: `${ALLOWED}library`, partitionEof: true });
  const places = Array.from({ length: partitions }, (_, partition) => ({ topic, partition }));
  await consumer.assign(places.map((place) => ({ ...place, offset: OFFSET_BEGINNING })));
  const batch = RecordBatch.create(1000, 1 << 20);
  let count = 0;
  let ends = 0;
  await until(`the end of ${topic}`, async () => {
    const read = await consumer.consume(batch, 500);
    expect(read.events).toEqual([]);
    count += read.rowCount;
    ends += read.ends.length;
    return ends >= partitions;
  });
  await consumer.close();
  return count;
}

describe.each(['on', 'off'] as const)('the library (native %s)', (native) => {
  it('the library produces and consumes with the properties of a file', async () => {
    const config = readBrokerConfig({ file: stack.clients?.client as string });
    const driver = await openBroker(native, config);
    const at = { brokers: config.brokers as string, clientId: 'test' };
    const topic = `${ALLOWED}library-${native}`;
    const admin = await driver.admin(at);
    await admin.createTopics([{ topic, partitions: 1, config: { 'retention.ms': '7200000' } }]);
    expect((await admin.describeTopic(topic))?.config?.get('retention.ms')).toBe('7200000');
    await admin.close();
    const producer = await driver.producer(at);
    const rows = Array.from({ length: 7 }, (_, i) => ({
      value: new TextEncoder().encode(`v${i}`),
      partition: 0,
    }));
    expect(await producer.produce(batchOf(rows), [topic])).toMatchObject({ delivered: 7, failed: 0 });
    await producer.close();
    expect(await recordsOf(topic, native)).toBe(7);
    if (native === 'on') expect(await recordsOf(topic, native, 'direct')).toBe(7);
  });
});

describe('up', () => {
  it.each(['ssl', 'sasl_plaintext'] as const)('up with %s prints settings that work', async (protocol) => {
    const secured = await startOwned(undefined, undefined, protocol);
    try {
      const flags = (user: 'admin' | 'client') => [`-broker-config=${secured.clients?.[user]}`, '-topic=t'];
      done(await own.run(['topic', 'create', ...flags('admin')]));
      const { code, stderr } = await own.run(['topic', 'create', ...flags('client')]);
      expect({ code, stderr }).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('[broker_forbidden]'),
      });
      // The topics of a bench have names of its own, and doctor needs no right.
      const config = `-broker-config=${secured.clients?.client}`;
      const bench = await own.run(['bench', 'broker', '-smoke', config, `-brokers=${secured.brokers}`]);
      expect(bench).toMatchObject({ code: 2, stderr: expect.stringContaining('[broker_forbidden]') });
      const doctor = await own.run(['doctor', config]);
      expect(doctor.stdout).toMatch(
        /ok +broker-listeners +cluster \S+, 0 topics that this client may describe/,
      );
    } finally {
      await secured.close();
    }
  });

  it('up refuses another protocol for a folder that has one', async () => {
    const { code, stderr } = await own.run(['up', `-dir=${stack.folder}`, '-broker-security=ssl']);
    expect(code).toBe(2);
    expect(stderr).toContain('was made with -broker-security=sasl_ssl, not ssl');
  });

  it('doctor checks the secured stack of a folder as its admin', async () => {
    const { stdout } = await own.run(['doctor', `-dir=${stack.folder}`]);
    expect(stdout).toMatch(/ok +broker-listeners +cluster/);
  });
});

/** Registry in memory, for commands that call one before they connect to the broker. */
let schemas: string;
const SUBJECT = 'errors-value';
beforeAll(async () => {
  const url = `http://${await startRegistry(own, ['-store=memory'], 'schemas').ready()}`;
  await ask(url, 'POST', `/subjects/${SUBJECT}/versions`, { schema: orderSchema(1, 'avro') });
  schemas = `-registry=${url}`;
});
const subject = `-subject=${SUBJECT}`;
/** A refusal must end the command long before this. */
const PATIENT = '-connect-timeout=1h';

/** Runs that connect to the broker, by command. */
const RUNS: Readonly<Record<string, (flags: readonly string[], topic: string) => Promise<Outcome>>> = {
  topic: (flags, topic) => own.run(['topic', 'create', ...flags, `-topic=${topic}`, '-timeout=1h']),
  producer: (flags, topic) =>
    runProducer(own, [
      ...[...flags, schemas, subject, '-format=avro', `-schema=${avro()}`],
      ...[`-topic=${topic}`, '-count=1', PATIENT],
    ]),
  consumer: (flags, topic) => runConsumer(own, [...flags, `-topic=${topic}`, '-exit-at-end', PATIENT]),
  gen: (flags, topic) => runGen(own, ['-kind=events', '-count=10', ...flags, `-out=kafka:${topic}`, PATIENT]),
  'gen -subject': (flags, topic) =>
    runGen(own, [schemas, subject, '-count=10', ...flags, `-out=kafka:${topic}`, PATIENT]),
  engine: (flags, topic) =>
    runEngine(own, [...flags, `-topic=${topic}`, '-size=1s', `-state-dir=${join(own.dir, randomUUID())}`]),
  relay: (flags, topic) => runRelay(own, [...flags, ...database(), `-topic=${topic}`, '-wake=off']),
  payments: (flags, topic) => runPayments(own, [...flags, ...database(), `-topic=${topic}`, '-migrate']),
  registry: (flags, topic) => runRegistry(own, ['-store=kafka', ...flags, `-schemas-topic=${topic}`]),
};

/** Settings with a wrong password. */
const WRONG_PASSWORD = 'wrong-zq-password';
const unauthenticating = (): string[] => [client, `-broker-property=sasl.password=${WRONG_PASSWORD}`];
/** Settings of the user without the authority of the broker's certificate. */
const untrusting = (): string[] => {
  const path = join(own.dir, 'untrusting.properties');
  const text = readFileSync(stack.clients?.client as string, 'utf8');
  writeFileSync(path, text.replace(/^ssl\.ca\.location=.*\n/m, ''));
  return [`-broker-config=${path}`];
};
const UNAUTHENTICATED = [
  'the broker does not accept the credentials',
  'check sasl.username, sasl.password and sasl.mechanism',
];
const UNTRUSTED = ['the certificate of the broker is not trusted', 'give its authority as ssl.ca.location'];

/** Fails unless the outcome has this code and the report has all of these texts. */
function reports({ code, stdout, stderr }: Outcome, exit: number, texts: readonly string[]): void {
  const report = exit === 1 ? stdout : stderr;
  expect(code, stderr).toBe(exit);
  for (const text of texts) expect(report).toContain(text);
  expect(stdout + stderr).not.toContain(WRONG_PASSWORD);
}

describe.each(Object.entries(RUNS))('errors of %s', (_name, run) => {
  it('a wrong password, an untrusted certificate and a missing right are errors of their own', async () => {
    reports(await run(unauthenticating(), RELAYED), 2, UNAUTHENTICATED);
    reports(await run(untrusting(), RELAYED), 2, UNTRUSTED);
    reports(await run([client], 'other-topic'), 2, ['authorization failed', '[broker_forbidden]']);
  });
});

describe('errors of commands without a topic of the user', () => {
  it('bench broker reports a wrong password and an untrusted certificate', async () => {
    const bench = (flags: readonly string[]): Promise<Outcome> =>
      own.run(['bench', 'broker', '-smoke', `-brokers=${stack.brokers}`, ...flags]);
    reports(await bench(unauthenticating()), 2, UNAUTHENTICATED);
    reports(await bench(untrusting()), 2, UNTRUSTED);
  });

  it('a wrong password and an untrusted certificate are failed checks of doctor', async () => {
    reports(await own.run(['doctor', ...unauthenticating()]), 1, [
      'fail  broker-listeners',
      ...UNAUTHENTICATED,
    ]);
    reports(await own.run(['doctor', ...untrusting()]), 1, ['fail  broker-listeners', ...UNTRUSTED]);
  });
});
