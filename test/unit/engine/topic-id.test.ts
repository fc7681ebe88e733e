/** A topic that is deleted and recreated under the same name while an engine reads it. */
import { expect, it } from 'vitest';
import { loadKernels } from '../../../src/addon/load.ts';
import { sleep } from '../../../src/core/clock.ts';
import { EVENT } from '../../../src/core/layout/layouts.gen.ts';
import type { Job } from '../../../src/engine/job.ts';
import { BrokerSource } from '../../../src/engine/source/events.ts';
import { binary256Input } from '../../../src/engine/source/input/binary256.ts';
import { Stages } from '../../../src/engine/stages.ts';
import type { BrokerDriver } from '../../../src/io/kafka/port.ts';
import { simBrokerDriver } from '../../../src/sim/broker.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { batchOf } from '../../contract/broker-world.ts';
import { engineIn, MemorySink, MemorySource } from '../../property/engine-kit.ts';

const BROKERS = 'simulated:9092';
const TOPIC = 'events';
const JOB: Job = {
  ...{ topic: TOPIC, skewMs: 0, latenessMs: 0, watermark: 'partition' },
  ...{ window: 'tumbling', sizeMs: 10 },
};

async function fill(driver: BrokerDriver, count: number): Promise<void> {
  const producer = await driver.producer({ brokers: BROKERS, clientId: 'fill' });
  const values = Array.from({ length: count }, (_, i) => {
    const value = Buffer.alloc(EVENT.BYTES);
    value.writeBigInt64LE(BigInt(i), EVENT.EVENT_TS);
    return { partition: 0, value };
  });
  await producer.produce(batchOf(values), [TOPIC]);
  await producer.close();
}

it('a topic that is recreated while an engine reads it ends the run with an error and advice', async () => {
  const clock = new VirtualClock();
  await clock.run(recreated(clock));
});

async function recreated(clock: VirtualClock): Promise<void> {
  const driver = simBrokerDriver({ brokers: BROKERS, seed: 1, clock });
  const admin = await driver.admin({ brokers: BROKERS, clientId: 'admin' });
  const make = () => admin.createTopics([{ topic: TOPIC, partitions: 1 }]);
  await make();
  await fill(driver, 20);
  const topicId = await admin.topicId(TOPIC);
  const stages = new Stages(clock);
  const source = new BrokerSource({
    ...{ consumer: await driver.consumer({ brokers: BROKERS, clientId: 'engine', partitionEof: true }) },
    ...{ clock, stages, topic: TOPIC, topicId, partitionCount: 1 },
    ...{
      input: binary256Input(loadKernels('native')),
      rowCapacity: 256,
      arenaBytes: 1 << 20,
      onEvent: () => {},
    },
    findTopic: async () => ({ partitions: 1, id: await admin.topicId(TOPIC) }),
  });
  const world = { job: JOB, partitions: 1, shards: 1, disk: new SimDisk(), checkpointIntervalMs: 50 };
  const sink = new MemorySink();
  const unread = new MemorySource([], 1, 1);
  let recreating: Promise<unknown> | undefined;
  const engine = engineIn(
    { ...world, sink, source: unread },
    {
      ...{ source, topicId, clock, stages, stop: 'never', partitionIntervalMs: 10 },
      sleep: (ms) => sleep(clock, ms),
      onConsumed: () => {
        // The new topic has more records than were read of the old topic, so offsets alone do not
        // reveal the change.
        recreating ??= admin
          .deleteTopics([TOPIC])
          .then(make)
          .then(() => fill(driver, 500));
      },
    },
  );
  await engine.restore();
  await expect(engine.run(new AbortController().signal)).rejects.toMatchObject({
    code: 'topic_changed',
    next: expect.stringContaining('give an empty -state-dir'),
  });
  await source.stop();
  await recreating;
}
