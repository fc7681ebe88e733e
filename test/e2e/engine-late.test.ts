/** -late-topic on the real stack: every event that is not in the results is in the late topic with
 *  its reason, also after kills. */
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import { runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { metric as metricAt } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 40_000;
const WITHIN_MS = 60_000;
const topic = `late-${own.suffix}`;
const lateTopic = `late-copies-${own.suffix}`;
const RULES = { sizeMs: 1000n, skewMs: 500n, latenessMs: 500n };

const args = (...more: readonly string[]): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-topic=${topic}`,
  '-size=1s',
  '-allowed-skew=500ms',
  '-allowed-lateness=500ms',
  `-state-dir=${join(own.dir, 'state')}`,
  '-idle-timeout=0',
  '-batch-rows=500',
  '-checkpoint-interval=50ms',
  '-snapshot-after=16KiB',
  ...more,
];

interface Copy {
  readonly at: string;
  readonly reason: string;
  readonly watermark: string | undefined;
  readonly source: string;
  readonly eventTs: bigint | undefined;
}

/** Reads all records of the late topic with a consumer. */
async function copies(): Promise<Copy[]> {
  const reader = await TopicReader.open(stack.brokers, lateTopic);
  const partitions = reader.partitions.length;
  reader.close();
  const consumer = await librdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'late-test',
    connectTimeoutMs: 60_000,
    partitionEof: true,
  });
  try {
    const all = Array.from({ length: partitions }, (_, partition) => ({
      topic: lateTopic,
      partition,
      offset: OFFSET_BEGINNING,
    }));
    await consumer.assign(all);
    const open = new Set(all.map(({ partition }) => partition));
    const batch = RecordBatch.create(1000, 1 << 20);
    const found: Copy[] = [];
    while (open.size > 0) {
      const { rowCount, ends } = await consumer.consume(batch, 1000);
      for (let row = 0; row < rowCount; row++) {
        const headers = new Map(
          batch.headers(row).map(([name, value]) => [name, Buffer.from(value ?? []).toString()] as const),
        );
        const value = batch.value(row);
        const isEvent = value?.length === 256;
        found.push({
          at: `${headers.get('millrace.source_partition')}@${headers.get('millrace.source_offset')}`,
          reason: headers.get('millrace.reason') ?? 'none',
          watermark: headers.get('millrace.watermark_ms'),
          source: headers.get('millrace.source_topic') ?? 'none',
          eventTs: isEvent ? Buffer.from(value).readBigInt64LE(16) : undefined,
        });
      }
      for (const { partition } of ends) open.delete(partition);
    }
    return found;
  } finally {
    await consumer.close();
  }
}

let expected: Map<string, string>;

/** Appends values that are not events. Returns the previous end offset of the last row's
 *  partition. */
async function sendBroken(rows: ReadonlyArray<readonly [number, Uint8Array | null]>): Promise<number> {
  const reader = await TopicReader.open(stack.brokers, topic);
  const end = Number(await reader.end(rows.at(-1)?.[0] ?? 0));
  reader.close();
  const producer = await librdkafkaDriver.producer({
    brokers: stack.brokers,
    clientId: 'late-test',
    connectTimeoutMs: 60_000,
  });
  const batch = RecordBatch.create(rows.length, 4096);
  for (const [partition, value] of rows) batch.append({ partition, value });
  expect((await producer.produce(batch, [topic])).failed).toBe(0);
  await producer.close();
  return end;
}

beforeAll(async () => {
  await generateEvents(own, { brokers: stack.brokers, topic }, [
    `-count=${EVENTS}`,
    '-per-ms=5',
    '-accounts=500',
    '-typical-max=500ms',
    '-tail=0.05',
    '-tail-max=4s',
    '-stragglers=0.001',
    '-straggler-max=1h',
    '-partitions=3',
  ]);
  await sendBroken([
    [0, new Uint8Array(3)],
    [1, null],
  ]);
  const reader = await TopicReader.open(stack.brokers, topic);
  const oracle = new Oracle(RULES, reader.partitions.length);
  expected = new Map();
  for (const p of reader.partitions) {
    let offset = 0;
    await reader.read(p, ({ value }) => {
      const verdict = oracle.value(p, value);
      if (verdict !== 'accepted') expected.set(`${p}@${offset}`, verdict.replaceAll(' ', '_'));
      offset++;
    });
  }
  reader.close();
  expect(expected.size).toBeGreaterThan(500);
});

it('the late topic has every dropped event of the oracle with its reason, after a SIGKILL in the middle', async () => {
  const dies = async (chaos: string): Promise<string | null> =>
    (await runEngine(own, args(`-late-topic=${lateTopic}`, `-chaos=${chaos}`, '-exit-at-end'))).signal;
  expect(await dies('kill-after=8000')).toBe('SIGKILL');
  expect(await dies('kill-after=8000')).toBe('SIGKILL');
  // Each send syncs the changelog first, so these kills happen near a send, unless the engine has
  // already read the topic to its end.
  for (const step of ['before-changelog-sync@3', 'after-changelog-sync@3']) await dies(step);
  // Only the last process can send this record; the earlier ones may have sent all others.
  const offset = await sendBroken([[2, null]]);
  expected.set(`2@${offset}`, 'invalid');
  const engine = startEngine(own, args(`-late-topic=${lateTopic}`), 'last');
  const address = await engine.address();
  const metric = (name: string): Promise<number> => metricAt(address, name);
  await until(
    'the end of the topic',
    async () =>
      (await metric('engine_events_total')) === EVENTS + 3 && (await metric('engine_late_waiting')) === 0
        ? true
        : undefined,
    WITHIN_MS,
  );
  const refused = (await metric('dropped_late')) + (await metric('engine_invalid_events_total'));
  expect(refused).toBe(expected.size);
  expect(await metric('engine_late_sent_total')).toBeGreaterThan(0);
  expect((await fetch(`http://${address}/ready`)).status).toBe(200);
  await engine.drain();

  const found = await copies();
  const byPlace = new Map(found.map((copy) => [copy.at, copy]));
  const reasons = [...byPlace].map(([at, { reason }]) => `${at} ${reason}`);
  expect(reasons.sort()).toEqual([...expected].map(([at, reason]) => `${at} ${reason}`).sort());
  for (const { at, reason, source } of found) {
    expect(source).toBe(topic);
    expect(reason).toBe(expected.get(at));
  }
  for (const { reason, watermark, eventTs } of found)
    if (reason === 'late')
      expect(Number(watermark) - Number(RULES.latenessMs)).toBeGreaterThan(Number(eventTs));
});

it.each([
  ['the topic that is read', [`-late-topic=${topic}`], /is the topic that is read/],
  ['the topic of the results', ['-late-topic=x', '-sink=kafka:x'], /is the topic of the results/],
  ['no name of a topic', ['-late-topic=a/b'], /is not the name of a topic/],
  ['batches larger than a record may be', ['-late-topic=x', '-batch-bytes=256MiB'], /at most 128MiB/],
  [
    'a topic that does not exist',
    ['-late-topic=no-such', '-create-topics=false'],
    /there is no topic no-such/,
  ],
] as const)('an engine refuses a late topic in one line: %s', async (_, flags, line) => {
  const refused = await runEngine(own, args(...flags, '-log-level=error'));
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringMatching(line) });
});
