/** Every record that the direct client reads is the one that librdkafka reads: random records in all
 *  codecs, committed and aborted transactions, both isolation levels; and the engine has the same
 *  results with either client. */
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import type { BatchProducer, BrokerDriver, ConsumerOptions } from '../../src/io/kafka/port.ts';
import { allOf, batchOf, fresh, type Row, readUntil, World } from '../contract/broker-world.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { runGen } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const own = launcher();
const stack = await sharedStack();
const world = new World({
  driver: directDriver,
  brokers: () => stack.brokers,
  anyHeaders: true,
  timestampTypes: true,
  slowMember: (...of) => new SilentLeader(stack.brokers, ...of),
});

const PARTITIONS = 3;
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
const STEP_MS = 60_000;

const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  // Compressible, and larger than a block of any codec.
  fc.integer({ min: 0, max: 200_000 }).map((size) => Buffer.alloc(size, 'abcdefgh')),
);
const records = fc.array(
  fc.record({
    partition: fc.integer({ min: 0, max: PARTITIONS - 1 }),
    key: fc.option(fc.uint8Array({ maxLength: 40 }), { nil: null }),
    value: fc.option(bytes, { nil: null }),
    timestamp: fc.bigInt(1n, 1_700_000_000_000n),
    headers: fc.array(
      fc.tuple(
        fc.string({ minLength: 1, maxLength: 8 }).filter((name) => !name.includes('\0')),
        fc.option(fc.uint8Array({ maxLength: 20 }), { nil: null }),
      ),
      { maxLength: 3 },
    ),
  }),
  { minLength: 1, maxLength: 40 },
);

async function send(producer: BatchProducer, topic: string, rows: readonly RecordInput[]): Promise<void> {
  const report = await producer.produce(batchOf(rows, 1 << 24), [topic]);
  expect(report.events).toEqual([]);
}

/** Rows of every partition, in the order of their offsets. */
async function readAll(
  driver: BrokerDriver,
  topic: string,
  isolation: NonNullable<ConsumerOptions['isolation']>,
): Promise<Row[][]> {
  const options = { brokers: stack.brokers, clientId: 'equal', connectTimeoutMs: 60_000 };
  const consumer = await driver.consumer({ ...options, isolation, partitionEof: true });
  try {
    await consumer.assign(allOf(topic, PARTITIONS));
    const marks = await Promise.all(
      allOf(topic, PARTITIONS).map((at) => consumer.watermarkOffsets(at, 30_000)),
    );
    const { rows, events } = await readUntil(
      consumer,
      ({ ends }) =>
        marks.every(({ high }, partition) =>
          ends.some((end) => end.partition === partition && end.offset >= high),
        ),
      { into: RecordBatch.create(100, 1 << 22) },
    );
    expect(events).toEqual([]);
    return Array.from({ length: PARTITIONS }, (_, partition) =>
      rows.filter((row) => row.partition === partition),
    );
  } finally {
    await consumer.close();
  }
}

it.each(CODECS)(
  'every record in the codec %s, in transactions or not, is read as librdkafka reads it',
  async (compression) => {
    const topic = await world.topic(PARTITIONS, { 'retention.ms': '-1' });
    const plain = await world.producer({ compression });
    const writer = await world.transactional({ transactionalId: fresh('equal'), compression });
    expect(await writer.init(STEP_MS)).toBeUndefined();
    await fc.assert(
      fc.asyncProperty(records, fc.constantFrom('plain', 'commit', 'abort'), async (rows, how) => {
        if (how === 'plain') return send(plain, topic, rows);
        expect(await writer.begin()).toBeUndefined();
        await send(writer, topic, rows);
        expect(await (how === 'commit' ? writer.commit(STEP_MS) : writer.abort(STEP_MS))).toBeUndefined();
      }),
      { numRuns: 25 },
    );
    for (const isolation of ['committed', 'uncommitted'] as const) {
      const [ours, theirs] = [
        await readAll(directDriver, topic, isolation),
        await readAll(librdkafkaDriver, topic, isolation),
      ];
      expect(theirs.flat().length).toBeGreaterThan(25);
      expect(ours).toEqual(theirs);
    }
  },
);

it('the engine has the same results with -broker-client=direct as with librdkafka', async () => {
  const topic = `direct-${own.suffix}`;
  const brokers = `-brokers=${stack.brokers}`;
  const events = ['-kind=events', '-order=delayed', '-count=20000', '-partitions=3'];
  expect((await runGen(own, [...events, brokers, `-out=kafka:${topic}`])).code).toBe(0);
  const results: string[][] = [];
  for (const client of ['librdkafka', 'direct']) {
    const sink = `-sink=rocksdb:${join(own.dir, `sink-${client}`)}`;
    const state = `-state-dir=${join(own.dir, `state-${client}`)}`;
    const flags = [brokers, `-topic=${topic}`, '-size=1s', '-bounded', `-broker-client=${client}`];
    const { code, stderr } = await runEngine(own, [...flags, state, sink]);
    expect(code, stderr).toBe(0);
    expect(stderr).not.toContain('librdkafka reads instead');
    results.push((await exportedRows(own, [sink, state])).sort());
  }
  expect(results[0]?.length).toBeGreaterThan(100);
  expect(results[1]).toEqual(results[0]);
});
