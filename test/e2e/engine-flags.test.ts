/** Effect of the engine's flags: topic creation, events from the future, idle partitions, oversized
 *  records, and the errors of flags that are given wrongly. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EVENT } from '../../src/core/layout/layouts.gen.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { runEngine, startEngine } from '../fixtures/engine.ts';
import { becomes } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { realClock, until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const HOUR_MS = 3_600_000;
/** The broker assigns append times, so event times must be close to the current time. */
const T0 = Math.floor(realClock.wallNowMs() / 1000) * 1000;

let admin: BrokerAdmin;
let producer: BatchProducer;

const args = (topic: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      `-brokers=${stack.brokers}`,
      `-topic=${topic}`,
      '-size=1s',
      '-allowed-skew=0',
      '-allowed-lateness=0',
      `-state-dir=${join(own.dir, topic)}`,
    ],
    more,
  );

/** Appends events, given as partition and event time, or as raw bytes. */
async function append(topic: string, rows: ReadonlyArray<readonly [number, number | Uint8Array]>) {
  const records = rows.map(([partition, content]) => {
    if (typeof content !== 'number') return { partition, value: content };
    const value = Buffer.alloc(EVENT.BYTES);
    value.writeBigUInt64LE(7n, EVENT.ACCOUNT_ID);
    value.writeBigInt64LE(1n, EVENT.VALUE);
    value.writeBigInt64LE(BigInt(content), EVENT.EVENT_TS);
    return { partition, value };
  });
  const { failed } = await producer.produce(batchOf(records), [topic]);
  expect(failed).toBe(0);
}

/** Creates a topic with two partitions. */
async function topicOf(name: string): Promise<string> {
  const topic = `engine-flags-${name}-${own.suffix}`;
  await admin.createTopics([{ topic, partitions: 2 }]);
  return topic;
}

interface Watermark {
  readonly watermark_ms: number | null;
  readonly mode: string;
  readonly partitions?: ReadonlyArray<{ readonly idle: boolean }>;
}
const watermarkOf = async (address: string, query = ''): Promise<Watermark> =>
  (await (await fetch(`http://${address}/watermark${query}`)).json()) as Watermark;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-flags', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

it('an engine creates its topic with the requested partitions and retention', async () => {
  const topic = `engine-flags-made-${own.suffix}`;
  const more = ['-partitions=3', '-replication-factor=1', '-retention=2h', '-exit-at-end'];
  expect((await runEngine(own, args(topic, ...more))).code).toBe(0);
  const { partitions, config } = (await admin.describeTopic(topic)) ?? {};
  expect(partitions).toBe(3);
  expect(config?.get('retention.ms')).toBe(String(2 * HOUR_MS));
});

describe('time flags', () => {
  it('-max-future limits the watermark for an event too far ahead, and a metric counts such events', async () => {
    const topic = await topicOf('future');
    const far = T0 + 240 * HOUR_MS;
    await append(topic, [
      [0, T0],
      [1, far],
    ]);
    const engine = startEngine(own, args(topic, '-max-future=1h', '-idle-timeout=0'), 'future');
    const address = await engine.address();
    const page = await becomes(address, 'engine_events_total', 2);
    expect(page.get('engine_future_clamped_total')).toBe(1);
    expect((await watermarkOf(address)).watermark_ms).toBe(T0);
    // The clamped event moves partition 1 ahead by one hour, not by ten days. The watermark is the
    // minimum of both partitions.
    await append(topic, [[0, T0 + 48 * HOUR_MS]]);
    await becomes(address, 'engine_future_clamped_total', 2);
    const { watermark_ms: held } = await watermarkOf(address);
    expect(held).toBeGreaterThanOrEqual(T0 + HOUR_MS - 60_000);
    expect(held).toBeLessThan(T0 + 24 * HOUR_MS);
    await engine.drain();
  });

  it('-watermark=global waits for no partition, and -watermark=partition waits for each', async () => {
    const topic = await topicOf('global');
    await append(topic, [[0, T0]]);
    const seen: Record<string, Watermark> = {};
    for (const mode of ['global', 'partition']) {
      const state = `-state-dir=${join(own.dir, `mode-${mode}`)}`;
      const more = [`-watermark=${mode}`, '-idle-timeout=0', state];
      const engine = startEngine(own, args(topic, ...more), mode);
      const address = await engine.address();
      await becomes(address, 'engine_events_total', 1);
      seen[mode] = await watermarkOf(address);
      await engine.drain();
    }
    expect(seen).toMatchObject({
      global: { mode: 'global', watermark_ms: T0 },
      partition: { mode: 'partition', watermark_ms: null },
    });
  });

  it('an engine counts late events of a formerly idle partition separately', async () => {
    const topic = await topicOf('idle');
    await append(topic, [
      [0, T0],
      [1, T0 - HOUR_MS],
    ]);
    const engine = startEngine(own, args(topic, '-idle-timeout=200ms'), 'idle');
    const address = await engine.address();
    await until('idleness of the partition that lags behind', async () => {
      const { partitions } = await watermarkOf(address, '?partitions=true');
      return partitions?.[1]?.idle === true ? true : undefined;
    });
    // An idle partition does not hold back the watermark, so partition 0 alone moves it.
    await append(topic, [[0, T0 + 1]]);
    await becomes(address, 'engine_watermark_ms', T0 + 1);
    await append(topic, [
      [1, T0 - HOUR_MS + 1],
      [0, T0 - 5 * HOUR_MS],
    ]);
    const page = await becomes(address, 'engine_events_total', 5);
    expect(page.get('dropped_late')).toBe(2);
    expect(page.get('engine_dropped_after_idle_total')).toBe(1);
    await engine.drain();
  });
});

it('-batch-bytes limits the size of the largest record that is read', async () => {
  const topic = await topicOf('large');
  await append(topic, [
    [0, T0],
    [0, new Uint8Array(10_000)],
  ]);
  const refused = await runEngine(own, args(topic, '-batch-bytes=4096', '-exit-at-end', '-log-level=error'));
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toMatch(/exceeds the batch size.*raise -batch-bytes.*\[oversize_record\]/);
  const read = await runEngine(own, args(topic, '-batch-bytes=64KiB', '-exit-at-end', '-json'));
  expect(read.code).toBe(0);
  expect(JSON.parse(read.stdout)).toMatchObject({ consumed: 2, accepted: 1, invalid: 1 });
});

describe('flags that are given wrongly', () => {
  const RUN = ['-brokers=127.0.0.1:1', '-topic=none', '-size=1s', `-state-dir=${join(own.dir, 'unused')}`];
  const SAVE = ['savepoint', `-state-dir=${join(own.dir, 'unused')}`, `-out=${join(own.dir, 'saved')}`];
  const TWO = [`-state-dir=${join(own.dir, 'unused')}`, '-window=a=tumbling:1s', '-window=b=tumbling:2s'];
  const missing = join(own.dir, 'missing');

  it.each([
    ['-emit-interval=1s', RUN, 'changes nothing without -emit=updates; give -emit=updates too'],
    ['-emit-interval=99ms', [...RUN, '-emit=updates'], 'is too small; the least is 100ms'],
    ['-emit-interval=25h', [...RUN, '-emit=updates'], 'is too large; the most is'],
    ['-checkpoint-store-interval=1s', RUN, 'changes nothing without -checkpoint-store; give'],
    ['-checkpoint-store-interval=99ms', [...RUN, `-checkpoint-store=${missing}`], 'the least is 100ms'],
    ['-checkpoint-store-interval=2h', [...RUN, `-checkpoint-store=${missing}`], 'the most is 1h'],
    [`-url-token-file=${missing}`, SAVE, 'changes nothing without -url; give -url too'],
    [
      `-url-token-file=${missing}`,
      [...SAVE, '-url=http://127.0.0.1:1'],
      'missing cannot be read (ENOENT); give -url-token-file=FILE with one token in it',
    ],
    [`-url-ca=${missing}`, SAVE, 'changes nothing without -url; give -url too'],
    [
      `-url-ca=${missing}`,
      [...SAVE, '-url=https://127.0.0.1:1'],
      'missing cannot be read (ENOENT); give a PEM file',
    ],
    ['-export-window=c', ['export', ...TWO], 'is none of the windows a, b; name one of them'],
    ['-export-window=a', RUN, 'changes nothing without export; leave -export-window out'],
    ['-shards=0', RUN, 'is too small; the least is 1'],
    ['-shards=257', RUN, 'is too large; the most is 256'],
    ['-shards=two', RUN, 'is not'],
    ['-late-keep=-1', RUN, 'is too small; the least is 0'],
    ['-late-keep=10000001', RUN, 'is too large; the most is 10000000'],
    ['-snapshot-after=4095', RUN, 'is too small; the least is 4KiB'],
    ['-snapshot-after=4KiBs', RUN, 'is not'],
  ])('the engine ends with one error and exit 2: %s (%#)', async (flag, others, message) => {
    const { code, stdout, stderr } = await runEngine(own, [...others, flag]);
    const errors = stderr.split('\n').filter((line) => line.startsWith('error: '));
    expect({ code, stdout, errors }).toEqual({
      ...{ code: 2, stdout: '' },
      errors: [expect.stringContaining(message)],
    });
    const [name] = flag.split('=');
    expect(errors[0]).toContain(name);
    expect(errors[0]).toMatch(/; .* \[(usage|bad_value|bad_file)\]$/);
  });
});
