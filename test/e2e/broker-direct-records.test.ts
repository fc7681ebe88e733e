/** The direct client and librdkafka read equal records: random records in all codecs, committed and
 *  aborted transactions, both isolation levels; and the engine has the same results with either
 *  client.
 */
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import type { BatchProducer } from '../../src/io/kafka/port.ts';
import { SilentLeader } from '../contract/broker-leader.ts';
import { batchOf, fresh, World } from '../contract/broker-world.ts';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { runGen } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { CODECS, ISOLATIONS, readTopic, recordsIn } from './broker-direct-kit.ts';

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
const STEP_MS = 60_000;

async function send(producer: BatchProducer, topic: string, rows: readonly RecordInput[]): Promise<void> {
  const report = await producer.produce(batchOf(rows, 1 << 24), [topic]);
  expect(report.events).toEqual([]);
}

it.each(CODECS)(
  'every record in the codec %s, in transactions or not, is read as librdkafka reads it',
  async (compression) => {
    const topic = await world.topic(PARTITIONS, { 'retention.ms': '-1' });
    const plain = await world.producer({ compression });
    const writer = await world.transactional({ transactionalId: fresh('equal'), compression });
    expect(await writer.init(STEP_MS)).toBeUndefined();
    await fc.assert(
      fc.asyncProperty(recordsIn(PARTITIONS), fc.constantFrom('plain', 'commit', 'abort'), async (rows, how) => {
        if (how === 'plain') return send(plain, topic, rows);
        expect(await writer.begin()).toBeUndefined();
        await send(writer, topic, rows);
        expect(await (how === 'commit' ? writer.commit(STEP_MS) : writer.abort(STEP_MS))).toBeUndefined();
      }),
      { numRuns: 25 },
    );
    const all = { brokers: stack.brokers, topic, partitions: PARTITIONS };
    for (const isolation of ISOLATIONS) {
      const ours = await readTopic(directDriver, all, isolation);
      const theirs = await readTopic(librdkafkaDriver, all, isolation);
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
