/** Partitions are added to a topic while the engine reads it. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { consumedAt, exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const topic = `grows-${own.suffix}`;
const BASE_MS = 1_750_000_000_000;
const WITHIN_MS = 60_000;

const args = (...more: readonly string[]): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-topic=${topic}`,
  '-size=1s',
  '-allowed-skew=500ms',
  '-allowed-lateness=500ms',
  `-state-dir=${join(own.dir, 'state')}`,
  '-idle-timeout=0',
  ...more,
];

async function generate(count: number, baseMs: number, ...more: readonly string[]): Promise<void> {
  await generateEvents(own, { brokers: stack.brokers, topic }, [
    `-count=${count}`,
    `-base=${baseMs}`,
    '-per-ms=2',
    '-accounts=200',
    '-typical-max=800ms',
    '-tail=0.05',
    '-tail-max=5s',
    '-stragglers=0',
    ...more,
  ]);
}

/** Adds partitions with the admin client, as an operator does with a tool. */
async function grow(to: number): Promise<void> {
  const { AdminClient } = (await import('node-rdkafka')).default;
  const admin = AdminClient.create({ 'metadata.broker.list': stack.brokers });
  try {
    await new Promise<void>((resolve, reject) =>
      admin.createPartitions(topic, to, 30_000, (error) => (error ? reject(error) : resolve())),
    );
  } finally {
    admin.disconnect();
  }
}

interface Partition {
  readonly consumed: number;
}

const partitionsAt = async (address: string): Promise<readonly Partition[]> => {
  const answer = await fetch(`http://${address}/watermark?partitions=true`);
  return ((await answer.json()) as { partitions: readonly Partition[] }).partitions;
};

it('an engine adds new partitions at the watermark without a restart, and remembers them through a SIGKILL', async () => {
  const [before, after] = [10_000, 20_000];
  await generate(before, BASE_MS, '-partitions=2');
  const first = startEngine(own, args('-partition-interval=100ms'), 'first');
  const address = await first.address();
  await until(
    'the first events',
    async () => ((await consumedAt(address)) === before ? true : undefined),
    WITHIN_MS,
  );
  await grow(4);
  await until(
    'the new partitions',
    async () => ((await partitionsAt(address)).length === 4 ? true : undefined),
    WITHIN_MS,
  );
  // The next process must read all events of the new partitions, after a recovery that includes
  // them.
  await first.die();
  const started = await TopicReader.open(stack.brokers, topic);
  const oracle = new Oracle({ sizeMs: 1000n, skewMs: 500n, latenessMs: 500n }, 2);
  const fed = [0, 0, 0, 0];
  const feed = async (reader: TopicReader): Promise<void> => {
    for (const p of reader.partitions) {
      let offset = 0;
      await reader.read(p, ({ value }) => {
        if (offset++ >= (fed[p] as number)) oracle.value(p, value);
      });
      fed[p] = offset;
    }
    reader.close();
  };
  await feed(started);
  expect(fed.slice(2)).toEqual([0, 0]);
  for (const _ of [2, 3]) oracle.apply({ kind: 'added' });

  const second = startEngine(own, args('-partition-interval=0'), 'second');
  const again = await second.address();
  await until(
    'four partitions',
    async () => ((await partitionsAt(again)).length === 4 ? true : undefined),
    WITHIN_MS,
  );
  await generate(after, BASE_MS + 60_000);
  await until(
    'all events',
    async () => ((await consumedAt(again)) === before + after ? true : undefined),
    WITHIN_MS,
  );
  expect((await partitionsAt(again)).every(({ consumed }) => consumed > 0)).toBe(true);
  await second.drain();

  await feed(await TopicReader.open(stack.brokers, topic));
  expect(oracle.droppedLate.reduce((a, b) => a + b, 0n)).toBeGreaterThan(0n);
  const last = await runEngine(own, args('-bounded', '-json'));
  expect(last.code).toBe(0);
  const { consumed, droppedLate } = JSON.parse(last.stdout) as { consumed: number; droppedLate: number };
  expect({ consumed, droppedLate: BigInt(droppedLate) }).toEqual({
    consumed: before + after,
    droppedLate: oracle.droppedLate.reduce((a, b) => a + b, 0n),
  });
  const rows = (await exportedRows(own, [`-state-dir=${join(own.dir, 'state')}`])).sort();
  expect(rows).toEqual([...oracle.rows()].map((row) => Object.values(row).join(',')).sort());
});

it('an engine refuses -partition-interval for a run that ends by itself', async () => {
  const refused = await runEngine(own, args('-bounded', '-partition-interval=1s'));
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('-partition-interval changes nothing with -bounded'),
  });
});
