/** `engine -start` on a real broker: the windows of the records from a position on, through a kill
 *  before the first periodic checkpoint. */
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { exportedRows, runEngine } from '../fixtures/engine.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const topic = `engine-start-${own.suffix}`;
/** Records of each half. */
const HALF = 600;

let admin: BrokerAdmin;
let producer: BatchProducer;
let between = 0;

/** Appends events with values from `first` on, a second of event time apart, to one partition. */
async function append(first: number): Promise<void> {
  const records = Array.from({ length: HALF }, (_, i) => {
    const value = Buffer.alloc(EVENT.BYTES);
    value.writeBigUInt64LE(7n, EVENT.ACCOUNT_ID);
    value.writeBigInt64LE(1n, EVENT.VALUE);
    value.writeBigInt64LE(BigInt((first + i) * 1000), EVENT.EVENT_TS);
    return { partition: 0, value };
  });
  expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
}

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-start', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  await admin.createTopics([{ topic, partitions: 1 }]);
  await append(0);
  const written = realClock.wallNowMs();
  between = await until('a clock that has moved on', () => {
    const now = realClock.wallNowMs();
    return now > written + 1 ? now : undefined;
  });
  await append(HALF);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

/** Rows of windows of 100 s for the records from an offset up to the end. */
const expectedFrom = (offset: number): string[] => {
  const counts = new Map<number, number>();
  for (let i = offset; i < 2 * HALF; i++)
    counts.set(Math.floor(i / 100), (counts.get(Math.floor(i / 100)) ?? 0) + 1);
  return [...counts].map(([window, count]) => {
    const last = Math.min(2 * HALF, (window + 1) * 100) - 1;
    return `7,${window * 100_000},${(window + 1) * 100_000},${count},${count},1,1,${last * 1000},false`;
  });
};

it.each([
  ['earliest', (): string => 'earliest', 0],
  ['an offset', (): string => '750', 750],
  ['a number of last records', (): string => '-50', 2 * HALF - 50],
  ['a time', (): string => `@${between}`, HALF],
  ['a time in ISO 8601', (): string => new Date(between).toISOString(), HALF],
  ['latest', (): string => 'latest', 2 * HALF],
] as const)(
  'a run that starts at %s has the windows of the records from there on, through a SIGKILL',
  async (_what, start, offset) => {
    const state = `-state-dir=${join(own.dir, `start-${offset}-${start().length}`)}`;
    const flags = [
      `-brokers=${stack.brokers}`,
      `-topic=${topic}`,
      '-size=100s',
      '-bounded',
      `-start=${start()}`,
      state,
    ];
    if (offset < 2 * HALF) {
      const killed = await runEngine(own, [...flags, '-chaos=kill-after=20', '-batch-rows=20']);
      expect(killed.signal).toBe('SIGKILL');
    }
    const resumed = await runEngine(own, [...flags, '-json']);
    expect(resumed).toMatchObject({ code: 0 });
    expect(JSON.parse(resumed.stdout)).toMatchObject({ consumed: 2 * HALF - offset, droppedLate: 0 });
    expect(await exportedRows(own, [state])).toEqual(expectedFrom(offset));
  },
);

it('a position that is none is refused with exit 2', async () => {
  const flags = [`-brokers=${stack.brokers}`, `-topic=${topic}`, '-start=yesterday'];
  const refused = await runEngine(own, [...flags, `-state-dir=${join(own.dir, 'refused')}`]);
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('-start=yesterday is not a position'),
  });
});
