/** `millrace gen` writes to a real topic: the records equal those of the generator, in its order
 *  within each partition. */
import protobuf from 'protobufjs';
import { afterAll, describe, expect, test } from 'vitest';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { chooseNative } from '../../src/addon/load.ts';
import { command as gen } from '../../src/bin/gen.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { ask } from '../../src/demo/contracts/model.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { DEFAULT_EVENTS } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { DEFAULT_ORDERS, OrderGenerator, type OrderShape, type OrderVersion } from '../../src/gen/order.ts';
import {
  candidatesOf,
  ORDER_VERSIONS,
  orderAsWritten,
  orderCandidate,
  orderSchema,
} from '../../src/gen/order-versions.ts';
import { differenceOf } from '../../src/registry/proof/same.ts';
import { readerUnjudged } from '../../src/serde/codec.ts';
import { brokerDriver } from '../../src/shell/drivers.ts';
import { allOf, fresh, readUntil, rowCount } from '../contract/broker-world.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { itFull } from '../tier.ts';
import { start } from '../unit/shell/fake-world.ts';

const own = launcher();
const { brokers } = await sharedStack();
const native = process.env['MILLRACE_NATIVE'] ?? 'auto';
const driver = await brokerDriver({ settings: { native }, log: silentLogger, metrics: new Metrics() });
const closers: Array<() => Promise<unknown>> = [];
afterAll(async () => {
  for (const close of closers.splice(0)) await close();
});

const PARTITIONS = 4;
const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1');

async function run(...argv: readonly string[]) {
  const { code, world } = start(gen, [
    ...argv,
    `-brokers=${brokers}`,
    `-native=${native}`,
    '-log-level=warn',
    '-json',
  ]);
  const ended = await code;
  expect([ended, world.stderr()]).toEqual([0, expect.any(String)]);
  return JSON.parse(world.stdout());
}

async function read(topic: string, count: number) {
  const consumer = await driver.consumer({ brokers, clientId: 'gen-test', connectTimeoutMs: 60_000 });
  closers.push(() => consumer.close());
  await consumer.assign(allOf(topic, PARTITIONS));
  const { rows } = await readUntil(consumer, rowCount(count), { into: RecordBatch.create(2000, 4 << 20) });
  return rows;
}

describe('events in a topic', () => {
  test('a topic gets the events of the seed, in order within each partition and with one partition for each key', async () => {
    const topic = fresh('gen-events');
    const count = 20_000;
    const report = await run(
      `-out=kafka:${topic}`,
      `-partitions=${PARTITIONS}`,
      `-count=${count}`,
      '-order=delayed',
      '-accounts=500',
      '-seed=3',
    );
    expect(report).toMatchObject({ rows: count, kind: 'events' });

    const expected: string[] = [];
    const batch = RecordBatch.create(1000, 1000 * EVENT.BYTES);
    const generator = new EventGenerator(
      { ...DEFAULT_EVENTS, seed: 3n, count, accounts: 500, order: 'delayed' },
      loadGenKernels(chooseNative(native).mode),
    );
    while (generator.fillRecords(batch) > 0) {
      for (let row = 0; row < batch.rowCount; row++) expected.push(latin1(batch.value(row) as Uint8Array));
    }
    const rows = await read(topic, count);
    const partitionOf = new Map<string, number>();
    const byPartition: string[][] = Array.from({ length: PARTITIONS }, () => []);
    for (const row of rows) {
      expect(row.key).toBe((row.value as string).slice(0, 8));
      expect(partitionOf.get(row.key as string) ?? row.partition).toBe(row.partition);
      partitionOf.set(row.key as string, row.partition);
      byPartition[row.partition]?.push(row.value as string);
    }
    expect(byPartition.every((values) => values.length > 0)).toBe(true);
    for (let partition = 0; partition < PARTITIONS; partition++) {
      const mine = expected.filter((value) => partitionOf.get(value.slice(0, 8)) === partition);
      expect(byPartition[partition]?.length).toBe(mine.length);
      expect(byPartition[partition]?.every((value, i) => value === mine[i])).toBe(true);
    }
  });

  test('gen leaves record timestamps to the broker, so that retention does not delete old events', async () => {
    const topic = fresh('gen-now');
    await run(`-out=kafka:${topic}`, `-partitions=${PARTITIONS}`, '-count=10', '-base=1000');
    // The event times of the generator are in the first seconds of 1970.
    for (const row of await read(topic, 10))
      expect(Number(row.timestamp)).toBeGreaterThan(Date.UTC(2020, 0, 1));
  });

  test.each([
    ['does not exist', 2, [`-brokers=${brokers}`, '-create-topics=false']],
    ['127.0.0.1:1', 3, ['-brokers=127.0.0.1:1', '-connect-timeout=200ms']],
  ] as const)('gen refuses an unusable broker or topic in one line: %s', async (why, expected, flags) => {
    const argv = [
      `-out=kafka:${fresh('none')}`,
      '-count=1',
      `-native=${native}`,
      '-log-level=warn',
      ...flags,
    ];
    const { code, world } = start(gen, argv);
    expect(await code).toBe(expected);
    const errors = world.stderr().match(/^error: .*$/gm);
    expect(errors).toEqual([expect.stringContaining(why)]);
  });
});

describe('orders in a topic', () => {
  test.each([
    // Avro refuses version 6 under BACKWARD, the default mode.
    ['avro', [1, 2, 3, 4, 5]],
    ['protobuf', ORDER_VERSIONS],
  ] as const)(
    'orders are framed %s records of the mixed versions %j, registered once each',
    async (format, versions) => {
      const registry = startRegistry(own, ['-store=memory', '-log-level=warn']);
      const origin = `http://${await registry.ready()}`;
      const topic = fresh('gen-orders');
      const count = 600;
      await run(
        '-kind=orders',
        `-out=kafka:${topic}`,
        `-partitions=${PARTITIONS}`,
        `-count=${count}`,
        `-versions=${versions.join()}`,
        '-seed=8',
        `-format=${format}`,
        `-registry=${origin}`,
      );
      const rows = await read(topic, count);

      const ids = new Map<number, OrderVersion>();
      for (const version of versions) {
        const answer = await fetch(`${origin}/subjects/${topic}-value/versions/${version}`);
        const { id, schema } = (await answer.json()) as { id: number; schema: string };
        ids.set(id, version);
        if (format === 'avro') expect(JSON.parse(schema)).toEqual(JSON.parse(orderSchema(version, format)));
      }
      const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 8n });
      const orders = new Map(Array.from({ length: count }, (_, i) => [generator.order(i).order_id, i]));
      // The payload of an Avro order starts with its first field: a length byte and 36 characters.
      const orderIdOf = (version: OrderVersion, payload: Buffer): string => {
        if (format === 'avro') return payload.subarray(1, 37).toString();
        const { root } = protobuf.parse(orderSchema(version, 'protobuf'), { keepCase: true });
        const decoded = root.lookupType('shop.orders.Order').decode(payload.subarray(1));
        return (decoded as unknown as { readonly order_id: string }).order_id;
      };
      const seen = new Set<number>();
      for (const row of rows) {
        const value = Buffer.from(row.value as string, 'latin1');
        expect(value[0]).toBe(0);
        const version = ids.get(value.readUInt32BE(1)) as OrderVersion;
        const orderId = orderIdOf(version, value.subarray(5));
        expect(row.key).toBe(orderId);
        const index = orders.get(orderId) as number;
        expect(generator.versionOf(index, versions)).toBe(version);
        seen.add(index);
      }
      expect(seen.size).toBe(count);
      await registry.drain();
    },
  );

  itFull.each(['avro', 'protobuf'] as const)(
    'gen emits every version and candidate of Order in %s, each on a subject of its own set to NONE',
    async (format) => {
      const registry = startRegistry(own, ['-store=memory', '-log-level=warn'], `shapes-${format}`);
      const origin = `http://${await registry.ready()}`;
      const count = 10;
      for (const shape of [...ORDER_VERSIONS, ...candidatesOf(format)] satisfies readonly OrderShape[]) {
        const topic = fresh('gen-shape');
        const subject = `${topic}-value`;
        await ask(origin, 'PUT', `/config/${subject}`, { compatibility: 'NONE' });
        await run(
          '-kind=orders',
          `-out=kafka:${topic}`,
          `-partitions=${PARTITIONS}`,
          `-count=${count}`,
          `-schema-version=${shape}`,
          '-seed=8',
          `-format=${format}`,
          `-registry=${origin}`,
        );
        const schema = parseSchema(format === 'avro' ? 'AVRO' : 'PROTOBUF', orderSchema(shape, format));
        const decode = readerUnjudged(schema, schema, [0]);
        const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 8n });
        const wanted = new Map(
          Array.from({ length: count }, (_, i) => {
            const order = generator.order(i);
            return [order.order_id, orderAsWritten(order, shape)];
          }),
        );
        for (const { key, value } of await read(topic, count)) {
          const bytes = Buffer.from(value as string, 'latin1');
          const start = format === 'avro' ? 5 : 6;
          expect(differenceOf(wanted.get(key as string), decode(bytes, start, bytes.length))).toBeUndefined();
        }
      }
      await registry.drain();
    },
  );

  test('NONE refuses a Protobuf number that is reused or retyped, and a second subject takes the schema', async () => {
    const registry = startRegistry(own, ['-store=memory', '-log-level=warn'], 'reused');
    const origin = `http://${await registry.ready()}`;
    for (const name of ['reuse-number', 'retype-int-string'] as const) {
      const subject = `${name}-value`;
      await ask(origin, 'PUT', `/config/${subject}`, { compatibility: 'NONE' });
      const post = (to: string, shape: OrderShape) =>
        ask(origin, 'POST', `/subjects/${to}/versions`, {
          schema: orderSchema(shape, 'protobuf'),
          schemaType: 'PROTOBUF',
        });
      for (const version of ORDER_VERSIONS.filter((one) => one <= orderCandidate(name).base))
        expect(await post(subject, version)).toMatchObject({ status: 200 });
      expect(await post(subject, name)).toMatchObject({ status: 409 });
      expect(await post(`${name}-other-value`, name)).toMatchObject({ status: 200 });
    }
    await registry.drain();
  });
});
