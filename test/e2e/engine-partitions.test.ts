/** A topic that is given more partitions while the engine reads it. */
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { until } from '../wait.ts';
import { launcher } from './engine-kit.ts';
import { sharedStack } from './stack.ts';

const own = launcher();
const stack = await sharedStack();
const topic = `grows-${own.suffix}`;
const BASE_MS = 1_750_000_000_000;
const WITHIN_MS = 60_000;

const args = (...more: readonly string[]): readonly string[] => [
  'engine',
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
  const made = await own.run([
    'gen',
    '-kind=events',
    '-order=delayed',
    `-count=${count}`,
    `-base=${baseMs}`,
    '-per-ms=2',
    '-accounts=200',
    '-typical-max=800ms',
    '-tail=0.05',
    '-tail-max=5s',
    '-stragglers=0',
    `-out=kafka:${topic}`,
    `-brokers=${stack.brokers}`,
    ...more,
  ]);
  expect({ code: made.code, error: made.code === 0 ? '' : made.stderr }).toEqual({ code: 0, error: '' });
}

/** By the tool of the client, as an operator would by another one. */
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
const consumedAt = async (address: string): Promise<number> =>
  (await partitionsAt(address)).reduce((sum, { consumed }) => sum + consumed, 0);

it('an engine adds new partitions at the watermark without a restart, and remembers them through a SIGKILL', async () => {
  const [before, after] = [10_000, 20_000];
  await generate(before, BASE_MS, '-partitions=2');
  const first = own.spawn('first', args('-partition-interval=100ms'));
  const address = await first.address();
  await until(
    'the first events',
    async () => ((await consumedAt(address)) === before ? true : undefined),
    WITHIN_MS,
  );
  await grow(4);
  await until(
    'the partitions',
    async () => ((await partitionsAt(address)).length === 4 ? true : undefined),
    WITHIN_MS,
  );
  // What is in them, before and after they were taken up, comes from the next life.
  first.kill('SIGKILL');
  await first.ended;
  const started = await TopicReader.open(stack.brokers, topic);
  const oracle = new Oracle({ sizeMs: 1000n, skewMs: 500n, latenessMs: 500n }, 2);
  const told = [0, 0, 0, 0];
  const tell = async (reader: TopicReader): Promise<void> => {
    for (const p of reader.partitions) {
      let offset = 0;
      await reader.read(p, ({ value }) => {
        if (offset++ >= (told[p] as number)) oracle.value(p, value);
      });
      told[p] = offset;
    }
    reader.close();
  };
  await tell(started);
  expect(told.slice(2)).toEqual([0, 0]);
  for (const _ of [2, 3]) oracle.tell({ kind: 'added' });

  const second = own.spawn('second', args('-partition-interval=0'));
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
  second.kill('SIGTERM');
  expect((await second.ended).code).toBe(0);

  await tell(await TopicReader.open(stack.brokers, topic));
  expect(oracle.droppedLate.reduce((a, b) => a + b, 0n)).toBeGreaterThan(0n);
  const last = await own.run(args('-bounded', '-json'));
  expect(last.code).toBe(0);
  const { consumed, droppedLate } = JSON.parse(last.stdout) as { consumed: number; droppedLate: number };
  expect({ consumed, droppedLate: BigInt(droppedLate) }).toEqual({
    consumed: before + after,
    droppedLate: oracle.droppedLate.reduce((a, b) => a + b, 0n),
  });
  const { stdout } = await own.run(['engine', 'export', `-state-dir=${join(own.dir, 'state')}`]);
  const rows = stdout.trim().split('\n').slice(1).sort();
  expect(rows).toEqual([...oracle.rows()].map((row) => Object.values(row).join(',')).sort());
});

it('an engine refuses -partition-interval where the run has an end', async () => {
  const refused = await own.run(args('-bounded', '-partition-interval=1s'));
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('-partition-interval changes nothing with -bounded'),
  });
});
