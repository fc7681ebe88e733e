/** Smoke run of the soak bench, with a kill of the engine: every sent event is accounted for,
 *  every window equals the recount, and the records that no checkpoint needs are deleted from
 *  the topic. */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { decodeDeleteRecords, deleteRecords, oldestOffsets } from '../../bench/engine/trim.ts';
import { bench } from '../../bench/engine-soak.ts';
import { bench as avroBench } from '../../bench/engine-soak-avro.ts';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { DEFAULT_EVENTS } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it.each([
  ['fixed layout', bench],
  ['Avro format with text keys', avroBench],
])(
  'the soak bench accounts for every event of the %s and every window equals the recount',
  {
    timeout: 300_000,
  },
  async (_, one) => {
    const results = await smoke(one, { killAfterMs: 1500 });
    const figure = (name: string): number =>
      results.find(({ metric }) => metric.startsWith(name))?.value ?? Number.NaN;
    // A run of a few seconds may have no firing, so a figure that has a goal may be missing.
    const unmeasured = 'figures beyond the greatest bucket, or with a goal and not measured';
    for (const { metric, value } of results.filter(({ goal }) => goal === 'value <= 0'))
      if (metric !== unmeasured) expect(value, metric).toBe(0);
    expect(figure(unmeasured)).toBeLessThanOrEqual(1);
    expect(goalsOf(results).map(([metric, goal]) => [metric.replace(/ of \d+/, ' of N'), goal])).toEqual(
      expect.arrayContaining([
        ['rate sent', 'ratio >= 0.98'],
        ['rate taken by the engine', 'ratio >= 0.98'],
        ['an event to its accumulator, p99 at most, whole and by 1333ms', 'value < 5'],
        ['resident size of the engine, largest, whole and by 1333ms', 'value <= 4294967296'],
        [unmeasured, 'value <= 0'],
        ['events sent and not accounted for', 'value <= 0'],
        ['events with another verdict than in the recount', 'value <= 0'],
        ['windows of N whose results, count, sum or sum by account differ from the recount', 'value <= 0'],
        ['results of N of sampled accounts that differ from the oracle', 'value <= 0'],
      ]),
    );
    for (const name of ['events sent', 'restore after a kill', 'results in the sink', 'resident size'])
      expect(figure(name), name).toBeGreaterThan(0);
  },
);

it('the soak bench refuses a kill after the end of the run', async () => {
  await expect(smoke(bench, { killAfterMs: 4000 })).rejects.toThrow(
    '-kill-after=4s is not before the end, after 4s',
  );
});

it('the soak bench deletes the records before an offset', { timeout: 300_000 }, async () => {
  const { brokers } = await sharedStack();
  const options = { brokers, clientId: 'test' };
  const topic = `trim-${randomUUID()}`;
  const admin = await nodeRdkafkaDriver.admin(options);
  const producer = await nodeRdkafkaDriver.producer(options);
  const consumer = await nodeRdkafkaDriver.consumer(options);
  try {
    await admin.createTopics([{ topic, partitions: 2 }]);
    const batch = RecordBatch.create(100, 100 * EVENT.BYTES);
    new EventGenerator({ ...DEFAULT_EVENTS, count: 100 }, loadGenKernels('reference')).fillRecords(batch);
    expect((await producer.produce(batch, [topic])).failed).toBe(0);
    const bounds = (partition: number) => consumer.watermarkOffsets({ topic, partition }, 10_000);
    const { high } = await bounds(1);
    expect(high).toBeGreaterThan(3n);
    await deleteRecords({ brokers, properties: {} }, topic, [0, 3]);
    expect((await bounds(0)).low).toBe(0n);
    expect(await bounds(1)).toEqual({ low: 3n, high });
    await expect(deleteRecords({ brokers, properties: {} }, topic, [0, 1000])).rejects.toThrow('error 1');
    await expect(deleteRecords({ brokers, properties: {} }, `${topic}-not`, [0])).rejects.toThrow('error 3');
  } finally {
    await consumer.close();
    await producer.close();
    await admin.deleteTopics([topic]);
    await admin.close();
  }
});

it('the soak bench finds the offsets of the oldest checkpoint', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-trim-'));
  try {
    expect(oldestOffsets(folder)).toBeUndefined();
    for (const [id, offset] of [
      [12, 70],
      [9, 40],
    ])
      writeFileSync(
        join(folder, `checkpoint-${String(id).padStart(8, '0')}.manifest`),
        `${JSON.stringify({ source_offsets: [offset] })}\ncrc32 00000000\n`,
      );
    expect(oldestOffsets(folder)).toEqual([40]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('the DeleteRecords decoder refuses an answer to another request', () => {
  expect(() => decodeDeleteRecords(Buffer.alloc(32))).toThrow('unexpected response');
});
