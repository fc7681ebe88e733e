/** Instances of producer and consumer on worker threads, on a real broker: merged metrics, pipes,
 *  kills and failures. Counts are compared with an independent reading of topics and offsets. */
import { writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { TopicReader } from '../../src/demo/contracts/topic.ts';
import { logicalOrder } from '../../src/gen/order.ts';
import { orderSchema } from '../../src/gen/order-versions.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { runConsumer, startConsumer } from '../fixtures/consumer.ts';
import { pageOf, sumOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { runProducer, startProducer } from '../fixtures/producer.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const topicOf = (part: string): string => `instances-${own.suffix}-${part}`;
const schema = join(own.dir, 'order.avsc');
let servers: readonly string[] = [];

beforeAll(async () => {
  writeFileSync(schema, orderSchema(1, 'avro'));
  const url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
  servers = [`-brokers=${stack.brokers}`, `-registry=${url}`];
});

const producing = (topic: string, ...more: readonly string[]): readonly string[] => [
  ...servers,
  `-topic=${topic}`,
  `-schema=${schema}`,
  ...more,
];
const consuming = (topic: string, ...more: readonly string[]): readonly string[] => [
  ...servers,
  `-topic=${topic}`,
  `-subject=${topic}-value`,
  ...more,
];

/** Keys of the records of a topic, in the order of reading. */
async function keysOf(topic: string): Promise<readonly string[]> {
  const keys: string[] = [];
  const reader = await TopicReader.open(stack.brokers);
  await reader.read([topic], (_topic, { key }) => void keys.push(Buffer.from(key ?? []).toString()));
  await reader.close();
  return keys;
}
const wanted = (count: number): ReadonlySet<string> =>
  new Set(Array.from({ length: count }, (_, i) => logicalOrder(1, i).order_id));

interface Line {
  readonly partition: number;
  readonly offset: number;
}
const placeOf = ({ partition, offset }: Line): string => `${partition}/${offset}`;
const linesOf = (text: string): readonly Line[] =>
  text
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Line);
const linesOfFile = async (file: string): Promise<readonly Line[]> =>
  linesOf(await readFile(join(own.dir, file), 'utf8').catch(() => ''));

/** Offsets that a group has committed, read by another client. */
async function committedOf(group: string, topic: string, partitions: number): Promise<readonly bigint[]> {
  const consumer = await nodeRdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'test',
    group,
    connectTimeoutMs: 60_000,
  });
  try {
    const at = await consumer.committed(
      Array.from({ length: partitions }, (_, partition) => ({ topic, partition })),
    );
    return at.map(({ offset }) => (offset < 0n ? 0n : offset));
  } finally {
    await consumer.close();
  }
}

describe('instances on threads', () => {
  it('24 producers and 48 consumers in two groups on two threads each carry every record once, and their pages count all', async () => {
    const topic = topicOf('fleet');
    const count = 24_000;
    // The subject exists before the consumers read its version.
    const first = await runProducer(own, producing(topic, '-count=1', '-partitions=24', '-log-level=warn'));
    expect(first.code, first.stderr).toBe(0);
    const members = ['-instances=24', '-threads=2', '-session-timeout=45s', '-log-level=warn'];
    const consumers = ['a', 'b'].map((group) =>
      startConsumer(own, consuming(topic, `-group=${topic}-${group}`, ...members), `group-${group}`),
    );
    const addresses = await Promise.all(consumers.map((one) => one.ready()));
    const sent = await runProducer(
      own,
      producing(
        topic,
        `-count=${count}`,
        '-seed=1',
        '-instances=24',
        '-threads=2',
        '-json',
        '-log-level=warn',
      ),
    );
    expect(sent.code, sent.stderr).toBe(0);
    expect(JSON.parse(sent.stdout)).toMatchObject({ records: count });
    // The first run sent order 0 too.
    const keys = await keysOf(topic);
    expect(keys).toHaveLength(count + 1);
    expect(new Set(keys)).toEqual(wanted(count));
    for (const address of addresses) {
      const page = await until('a page with all records', async () => {
        const now = await pageOf(address);
        return sumOf(now, 'consumed_records_total') === count + 1 ? now : undefined;
      });
      expect(sumOf(page, 'decoded_records_total')).toBe(count + 1);
      expect(sumOf(page, 'serde_decode_seconds_count')).toBe(count + 1);
      expect(sumOf(page, 'worker_threads')).toBe(2);
      expect(sumOf(page, 'deserialize_errors_total')).toBe(0);
      // The reader version and its schema cost one request; the writer's schema is the same.
      expect(sumOf(page, 'registry_client_requests_total')).toBe(1);
      expect(page.get('schema_cache_hit_ratio{cache="id_to_schema"}')).toBeGreaterThan(0.99);
    }
    for (const one of consumers) await one.drain();
  });

  it('a producer on threads claims each value once, and its page counts all threads', async () => {
    const topic = topicOf('claims');
    const running = startProducer(
      own,
      producing(
        topic,
        '-instances=8',
        '-threads=3',
        '-batch-rows=16',
        '-rate=4000',
        '-partitions=4',
        '-log-level=warn',
      ),
    );
    const address = await running.ready();
    const acknowledged = await until('several thousand records', async () => {
      const produced = sumOf(await pageOf(address), 'produced_records_total');
      return produced > 3000 ? produced : undefined;
    });
    await running.die();
    const keys = await keysOf(topic);
    // Records that a page counted as acknowledged are in the topic, each of them once.
    expect(keys.length).toBeGreaterThanOrEqual(acknowledged);
    expect(new Set(keys).size).toBe(keys.length);
  });
});

describe('pipes', () => {
  it('lines on stdout keep the order of each partition and are whole, whichever thread wrote them', async () => {
    const topic = topicOf('pipe');
    const count = 20_000;
    const sent = await runProducer(
      own,
      producing(topic, `-count=${count}`, '-instances=4', '-threads=2', '-partitions=6'),
    );
    expect(sent.code, sent.stderr).toBe(0);
    const ran = await runConsumer(own, [
      ...servers,
      `-topic=${topic}`,
      '-out=-',
      '-exit-at-end',
      '-instances=4',
      '-threads=2',
      '-batch-rows=64',
    ]);
    expect(ran.code, ran.stderr).toBe(0);
    const lines = linesOf(ran.stdout);
    expect(lines).toHaveLength(count);
    const next = new Map<number, number>();
    for (const { partition, offset } of lines) {
      expect(offset).toBe(next.get(partition) ?? 0);
      next.set(partition, offset + 1);
    }
  });

  it('-count is the number of lines of all threads together', async () => {
    const ran = await runConsumer(own, [
      ...servers,
      `-topic=${topicOf('pipe')}`,
      '-out=-',
      '-count=777',
      '-instances=4',
      '-threads=2',
      '-batch-rows=10',
    ]);
    expect(ran.code, ran.stderr).toBe(0);
    expect(linesOf(ran.stdout)).toHaveLength(777);
  });

  it('a reader that closes the pipe ends a consumer on threads with exit code 0', async () => {
    const ran = await runConsumer(
      own,
      [...servers, `-topic=${topicOf('pipe')}`, '-out=-', '-instances=4', '-threads=2'],
      { stdout: 'closed' },
    );
    expect(ran.code, ran.stderr).toBe(0);
  });
});

describe('a consumer on threads that is killed', () => {
  it('a killed consumer loses no record, and its successor repeats only records that were not committed', async () => {
    const topic = topicOf('killed');
    const group = `${topic}-group`;
    const count = 30_000;
    const partitions = 4;
    const sent = await runProducer(
      own,
      producing(topic, `-count=${count}`, '-instances=2', `-partitions=${partitions}`),
    );
    expect(sent.code, sent.stderr).toBe(0);
    const flags = (file: string): readonly string[] =>
      consuming(
        topic,
        `-group=${group}`,
        `-out=file:${join(own.dir, file)}`,
        '-instances=4',
        '-threads=2',
        '-session-timeout=6s',
        '-batch-rows=50',
      );
    const first = startConsumer(own, flags('first.jsonl'), 'first');
    await until('a commit amid the records', async () => {
      const committed = await committedOf(group, topic, partitions);
      return committed.some((offset) => offset > 0n) || undefined;
    });
    await first.die();
    const before = await linesOfFile('first.jsonl');
    const committed = await committedOf(group, topic, partitions);
    const second = await runConsumer(own, [...flags('second.jsonl'), '-exit-at-end', '-json']);
    expect(second.code, second.stderr).toBe(0);
    const after = await linesOfFile('second.jsonl');
    expect(new Set([...before, ...after].map(placeOf)).size).toBe(count);
    const places = after.map(placeOf);
    expect(new Set(places).size).toBe(places.length);
    for (const { partition, offset } of after)
      expect(BigInt(offset)).toBeGreaterThanOrEqual(committed[partition] as bigint);
    // Everything that was not committed is read again.
    const notCommitted = count - Number(committed.reduce((sum, offset) => sum + offset, 0n));
    expect(JSON.parse(second.stdout)).toMatchObject({ records: notCommitted });
  });

  it('SIGTERM drains every thread: what was written is committed, and a successor repeats nothing', async () => {
    const topic = topicOf('killed');
    const flags = (file: string): readonly string[] =>
      consuming(
        topic,
        `-group=${topic}-drained`,
        `-out=file:${join(own.dir, file)}`,
        '-instances=4',
        '-threads=2',
        '-session-timeout=45s',
        '-batch-rows=50',
      );
    const first = startConsumer(own, flags('drained.jsonl'), 'drained');
    await until(
      'the first lines',
      async () => (await linesOfFile('drained.jsonl')).length > 500 || undefined,
    );
    await first.drain();
    const second = await runConsumer(own, [...flags('rest.jsonl'), '-exit-at-end']);
    expect(second.code, second.stderr).toBe(0);
    const all = [...(await linesOfFile('drained.jsonl')), ...(await linesOfFile('rest.jsonl'))].map(placeOf);
    expect(all).toHaveLength(30_000);
    expect(new Set(all).size).toBe(30_000);
  });
});

describe('failures of a thread', () => {
  it('an error in a thread ends the producer with the error and the exit code that one instance would have', async () => {
    const topic = topicOf('failed');
    const ran = await runProducer(
      own,
      producing(topic, '-count=1000', '-instances=4', '-threads=2', '-key-field=items', '-log-level=silent'),
    );
    expect(ran.code).toBe(2);
    expect(ran.stderr.match(/^error: .*$/gm)).toEqual([
      expect.stringMatching(/-key-field=items is not a string or number field of an order/),
    ]);
  });

  it('an uncaught error in a thread ends the consumer with exit code 70, and a successor has every record', async () => {
    const topic = topicOf('killed');
    const partitions = 4;
    const group = `${topic}-bug`;
    const planted = join(own.dir, 'planted');
    const bug = join(own.dir, 'bug.cjs');
    writeFileSync(
      bug,
      `const { isMainThread, workerData } = require('node:worker_threads');
       const { existsSync, watch } = require('node:fs');
       if (!isMainThread && workerData?.number === 1)
         watch(${JSON.stringify(own.dir)}, () => { if (existsSync(${JSON.stringify(planted)})) throw new Error('a planted bug'); });`,
    );
    const flags = (file: string): readonly string[] =>
      consuming(
        topic,
        `-group=${group}`,
        `-out=file:${join(own.dir, file)}`,
        '-instances=4',
        '-threads=2',
        '-session-timeout=6s',
        '-batch-rows=50',
        '-log-level=warn',
      );
    const env = { ...process.env, NODE_OPTIONS: `--require=${bug}` };
    const first = startConsumer(own, flags('bug.jsonl'), 'bug', { env });
    await until('the first lines', async () => (await linesOfFile('bug.jsonl')).length > 500 || undefined);
    writeFileSync(planted, '');
    expect(await first.ended).toMatchObject({ code: 70 });
    expect(first.log().match(/^error: .*$/gm)).toEqual([
      expect.stringMatching(
        /^error: thread 1 \(instances 2 to 3\): a planted bug; this is a bug of millrace/,
      ),
    ]);
    const before = await linesOfFile('bug.jsonl');
    const committed = await committedOf(group, topic, partitions);
    const second = await runConsumer(own, [...flags('after-bug.jsonl'), '-exit-at-end']);
    expect(second.code, second.stderr).toBe(0);
    const after = await linesOfFile('after-bug.jsonl');
    expect(new Set([...before, ...after].map(placeOf)).size).toBe(30_000);
    for (const { partition, offset } of after)
      expect(BigInt(offset)).toBeGreaterThanOrEqual(committed[partition] as bigint);
  });

  it('several threads without the addon are refused with one error', async () => {
    const ran = await runProducer(
      own,
      producing(
        topicOf('refused'),
        '-count=1',
        '-instances=4',
        '-threads=2',
        '-native=off',
        '-log-level=silent',
      ),
    );
    expect(ran.code).toBe(2);
    expect(ran.stderr.match(/^error: .*$/gm)).toEqual([expect.stringMatching(/-threads=2 needs the addon/)]);
  });
});
