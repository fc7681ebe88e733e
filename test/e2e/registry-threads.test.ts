/** One registry client for the threads of a process, and schemas that are loaded before the first
 *  record. */
import { once } from 'node:events';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openBroker } from '../../src/drivers.ts';
import { SchemaRegistry, type Serializer } from '../../src/registry/index.ts';
import { batchOf, fresh } from '../contract/broker-world.ts';
import { type CountingProxy, countingProxy } from '../fixtures/counting-proxy.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { projectRoot } from '../repository/root.ts';

const own = launcher();
const stack = await sharedStack();
const worker = fileURLToPath(new URL('./registry-threads.worker.mjs', import.meta.url));
const THREADS = 4;
const MISSES = 10_000;
const UNKNOWN_ID = 999;

let proxy: CountingProxy;
beforeAll(async () => {
  proxy = await countingProxy(`http://${await startRegistry(own, ['-store=memory']).ready()}`);
});
afterAll(() => proxy.close());

const schemaOf = (name: string, ...more: object[]): object => ({
  type: 'record',
  name,
  fields: [{ name: 'id', type: 'long' }, ...more],
});
const NOTE = { name: 'note', type: 'string', default: '' };

interface Row {
  readonly id: bigint;
  readonly note?: string;
}

/** Registers a schema with a client of its own. */
const registered = (topic: string, schema: object, isKey = false): Promise<Serializer<Row>> =>
  new SchemaRegistry({ url: proxy.url })
    .serializer<Row>({ topic, schema, isKey, autoRegister: true })
    .prefetch();

it(`${MISSES} concurrent misses of ${THREADS} threads are one request an id`, async () => {
  const known = (await registered(fresh('threads'), schemaOf('Threads'))).schemaId;
  const registry = new SchemaRegistry({ url: proxy.url });
  proxy.paths.length = 0;
  const ids = [known, UNKNOWN_ID];
  const workers = Array.from({ length: THREADS }, () => {
    const port = registry.threadPort();
    const workerData = { dist: join(projectRoot, 'dist'), port, ids, misses: MISSES / THREADS };
    return new Worker(worker, { workerData, transferList: [port] });
  });
  await Promise.all(workers.map((one) => once(one, 'message')));
  const answers = workers.map((one) => once(one, 'message'));
  const ended = workers.map((one) => once(one, 'exit'));
  for (const one of workers) one.postMessage('start');
  for (const answer of answers)
    expect(await answer).toEqual([{ [known]: 'Threads', [UNKNOWN_ID]: 'schema_not_found' }]);
  expect([...proxy.paths].sort()).toEqual(
    [`GET /schemas/ids/${known}`, `GET /schemas/ids/${UNKNOWN_ID}`].sort(),
  );
  // The main thread's own client shares the answers, and no port keeps a thread alive.
  await registry.client.schemaById(known);
  expect(proxy.paths).toHaveLength(2);
  for (const end of ended) expect(await end).toEqual([0]);
});

it('a topic is written and read without a request after a prefetch of its subjects', async () => {
  const topic = fresh('subjects');
  const first = await registered(topic, schemaOf('Parcel'));
  const second = await registered(topic, schemaOf('Parcel', NOTE));
  const key = await registered(topic, schemaOf('ParcelKey'), true);
  const registry = new SchemaRegistry({ url: proxy.url });
  const latest = registry.serializer<Row>({ topic, version: 'latest', header: 'headers' });
  expect(() => latest.serialize({ id: 1n })).toThrow('is not loaded');
  const { ids } = await registry.prefetch(topic);
  expect([...ids].sort()).toEqual([first, second, key].map((one) => one.schemaId).sort());
  proxy.paths.length = 0;
  expect(latest.schemaId).toBe(second.schemaId);
  expect(registry.serializer({ topic, version: 1 }).schemaId).toBe(first.schemaId);
  expect(registry.serializer({ topic, schema: schemaOf('ParcelKey'), isKey: true }).schemaId).toBe(
    key.schemaId,
  );
  const newest = registry.deserializer<Row>({
    readerVersion: { subject: `${topic}-value`, version: 'latest' },
  });
  expect(newest.deserializeSync(first.serialize({ id: 1n }))).toEqual({ id: 1n, note: '' });
  expect(newest.deserializeSync(latest.serialize({ id: 2n, note: 'b' }), latest.headers)).toEqual({
    id: 2n,
    note: 'b',
  });
  const given = registry.deserializer<Row>({ readerSchema: schemaOf('Parcel', NOTE) });
  expect(given.deserializeSync(first.serialize({ id: 3n }))).toEqual({ id: 3n, note: '' });
  expect(registry.serializer({ topic, version: 2 }).serialize({ id: 4n, note: 'c' })).toHaveLength(8);
  const other = registry.serializer({ topic, schema: schemaOf('Other') });
  expect(() => other.serialize({ id: 1n })).toThrow('is not loaded');
  expect(proxy.paths).toEqual([]);
});

it.each(['on', 'off'] as const)(
  'a prefetch reads the ids of the last records (native %s)',
  async (native) => {
    const topic = fresh('tail');
    const old = await registered(`${topic}-a`, schemaOf('Old'));
    const recent = await registered(`${topic}-b`, schemaOf('Recent'));
    const key = await registered(`${topic}-c`, schemaOf('RecentKey'), true);
    const broker = await openBroker(native);
    const at = { brokers: stack.brokers, clientId: 'test' };
    const admin = await broker.admin(at);
    await admin.createTopics([{ topic, partitions: 2 }]);
    await admin.close();
    const producer = await broker.producer(at);
    const rows = [
      { partition: 0, value: old.serialize({ id: 1n }) },
      ...Array.from({ length: 5 }, (_, i) => ({
        partition: 0,
        key: key.serialize({ id: BigInt(i) }),
        value: recent.serialize({ id: BigInt(i) }),
      })),
      { partition: 1, value: Buffer.from('plain text') },
      { partition: 1, value: Buffer.from([0, 0, 0, 0x3f, 0xff]) },
    ];
    expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
    await producer.close();

    const registry = new SchemaRegistry({ url: proxy.url });
    const tail = { broker, brokers: stack.brokers };
    const found = await registry.prefetch(topic, { tail: { ...tail, records: 6 } });
    expect({ ...found, ids: [...found.ids].sort() }).toEqual({
      ids: [recent.schemaId, key.schemaId].sort(),
      failed: [0x3fff],
      records: 5,
    });
    proxy.paths.length = 0;
    expect(registry.deserializer().deserializeSync(recent.serialize({ id: 7n }))).toEqual({ id: 7n });
    expect(proxy.paths).toEqual([]);
    const whole = await registry.prefetch(topic, { tail });
    expect(whole.ids).toContain(old.schemaId);
    expect(whole.records).toBe(rows.length);
    const missing = await registry.prefetch(fresh('missing'), { tail });
    expect(missing).toEqual({ ids: [], failed: [], records: 0 });
  },
);
