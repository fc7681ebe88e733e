/** Handles of the native broker client: closed twice, used after close, of the wrong kind,
 *  garbage-collected, and left open by workers that end. */
import { readdirSync, readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { findAddon, loadAddon } from '../../src/addon/load.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { ERROR_CODES } from '../../src/io/kafka/codes.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { fresh } from '../contract/broker-world.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const { brokers } = await sharedStack();
const addon = loadAddon();
const NOWHERE = ['metadata.broker.list', '127.0.0.1:9', 'group.id', 'handles'];
const consumer = (properties: readonly string[] = NOWHERE) => addon.brokerConsumerOpen(properties, () => {});
const producer = (properties: readonly string[] = NOWHERE.slice(0, 2)) =>
  addon.brokerProducerOpen(properties);

async function topicOfThreeRecords(): Promise<string> {
  const topic = fresh('handles');
  const admin = await nodeRdkafkaDriver.admin({ brokers, clientId: 'handles', connectTimeoutMs: 60_000 });
  await admin.createTopics([{ topic, partitions: 1 }]);
  await admin.close();
  const handle = producer(['metadata.broker.list', brokers]);
  const batch = RecordBatch.create(3, 64);
  for (let i = 0; i < 3; i++) batch.append({ partition: 0, value: Uint8Array.of(i) });
  const [failed] = await addon.brokerProducerProduce(
    handle,
    batch.buffer as ArrayBuffer,
    [topic],
    new Int32Array(3),
    new BigInt64Array(3),
  );
  expect(failed).toBe(0);
  addon.brokerProducerClose(handle);
  return topic;
}

describe('broker handles', () => {
  it('a broker handle can be closed repeatedly, and later calls fail with `closed`', async () => {
    const one = consumer();
    const two = producer();
    const waiting = addon.brokerConsumerConsume(one, RecordBatch.create(1, 8).buffer as ArrayBuffer, 60_000);
    for (let i = 0; i < 3; i++) {
      addon.brokerConsumerClose(one);
      addon.brokerProducerClose(two);
    }
    await waiting.catch((error: unknown) => expect(error).toMatchObject({ code: 'closed' }));
    expect(() => addon.brokerConsumerAnswer(one)).toThrow(expect.objectContaining({ code: 'closed' }));
    expect(() => addon.brokerConsumerPositions(one)).toThrow(expect.objectContaining({ code: 'closed' }));
    expect(() => addon.brokerProducerFlush(two, 1)).toThrow(expect.objectContaining({ code: 'closed' }));
  });

  it('a broker call refuses a handle of another kind and every imitation of a handle', () => {
    const one = consumer();
    const two = producer();
    for (const imposter of [two, {}, null, undefined, 1, 'consumer', Object.create(one)]) {
      expect(() => addon.brokerConsumerPositions(imposter as never)).toThrow(TypeError);
      expect(() => addon.brokerConsumerClose(imposter as never)).toThrow(TypeError);
    }
    expect(() => addon.brokerProducerFlush(one as never, 1)).toThrow(TypeError);
    addon.brokerConsumerClose(one);
    addon.brokerProducerClose(two);
  });

  it('a broker call refuses an invalid batch, list or number before anything starts', () => {
    const one = consumer();
    const two = producer();
    const bytes = RecordBatch.create(1, 8).buffer as ArrayBuffer;
    expect(() => addon.brokerConsumerConsume(one, new ArrayBuffer(64), 0)).toThrow(
      expect.objectContaining({ code: 'layout_mismatch' }),
    );
    expect(() => addon.brokerConsumerConsume(one, bytes, -1)).toThrow(
      expect.objectContaining({ code: 'out_of_range' }),
    );
    expect(() => addon.brokerConsumerAssign(one, ['a'], Int32Array.of(), BigInt64Array.of())).toThrow(
      expect.objectContaining({ code: 'out_of_range' }),
    );
    expect(() => addon.brokerConsumerSubscribe(one, 'topic' as never)).toThrow(TypeError);
    const full = RecordBatch.create(2, 8);
    full.append({});
    expect(() =>
      addon.brokerProducerProduce(
        two,
        full.buffer as ArrayBuffer,
        [],
        new Int32Array(0),
        new BigInt64Array(0),
      ),
    ).toThrow(expect.objectContaining({ code: 'out_of_range' }));
    expect(() => addon.brokerConsumerOpen(['group.id'], () => {})).toThrow(
      expect.objectContaining({ code: 'out_of_range' }),
    );
    addon.brokerConsumerClose(one);
    addon.brokerProducerClose(two);
  });

  it('a producer refuses a span outside the arena and sends nothing', async () => {
    const topic = await topicOfThreeRecords();
    const handle = producer(['metadata.broker.list', brokers]);
    const batch = RecordBatch.create(2, 16);
    batch.append({ partition: 0, value: Uint8Array.of(1) });
    batch.append({ partition: 0, value: Uint8Array.of(2) });
    batch.columns.valueLength[1] = 1 << 20;
    const bytes = batch.buffer as ArrayBuffer;
    await expect(
      addon.brokerProducerProduce(handle, bytes, [topic], new Int32Array(2), new BigInt64Array(2)),
    ).rejects.toMatchObject({ code: 'out_of_range' });
    batch.columns.valueLength[1] = 1;
    const offsets = new BigInt64Array(2);
    await addon.brokerProducerProduce(handle, bytes, [topic], new Int32Array(2), offsets);
    expect([...offsets]).toEqual([3n, 4n]);
    addon.brokerProducerClose(handle);
  });

  it('the garbage collector closes forgotten broker handles', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const threads = (): number => readdirSync('/proc/self/task').length;
    const before = threads();
    (() => {
      for (let i = 0; i < 5; i++) {
        const holder: { handle?: object } = {};
        holder.handle = addon.brokerConsumerOpen(NOWHERE, () => void holder.handle);
        producer();
      }
    })();
    expect(threads()).toBeGreaterThan(before + 20);
    await until('the end of the threads of the handles', () => {
      collect();
      return threads() <= before + 4;
    });
  });

  it('broker handles end with a worker that exits or is terminated in the middle of its calls', async () => {
    const topic = await topicOfThreeRecords();
    const ends = [true, false, true, false].map(async (exits) => {
      const batch = RecordBatch.create(16, 1024).buffer as ArrayBuffer;
      const worker = new Worker(new URL('./broker-handles.worker.mjs', import.meta.url), {
        workerData: { addonPath: findAddon(), brokers, topic, batch, exits },
      });
      const rows = await new Promise((resolve, reject) =>
        worker.once('message', resolve).once('error', reject),
      );
      expect(rows).toBe(3);
      if (exits) await new Promise((resolve) => worker.once('exit', resolve));
      else await worker.terminate();
    });
    await Promise.all(ends);
    expect(addon.brokerLibrary()[0]).toMatch(/^2\./);
  });
});

describe('librdkafka', () => {
  it('librdkafka is compiled with the features that the products need', () => {
    expect(addon.brokerLibrary()[1].split(',')).toEqual(
      expect.arrayContaining(['ssl', 'zstd', 'lz4', 'sasl']),
    );
  });

  it('librdkafka is loaded once in a process, whichever drivers are loaded', async () => {
    await import('node-rdkafka');
    const mapped = readFileSync('/proc/self/maps', 'utf8')
      .split('\n')
      .filter((line) => /librdkafka\.so/.test(line));
    const files = new Set(mapped.map((line) => line.split(/\s+/).slice(3, 5).join(' ')));
    expect(files.size).toBe(1);
  });

  it('the error codes of librdkafka equal our table', () => {
    const theirs = addon.brokerLibrary()[2].filter(([, name]) => name !== '_BEGIN' && name !== '_END');
    expect(ERROR_CODES).toEqual(theirs);
  });
});
