/** The bench of the window step in smoke mode: it throws unless both sides agree on every
 *  result. */
import { expect, it } from 'vitest';
import { quantilesMs } from '../../../bench/engine/latencies.ts';
import { bench as checkpoints } from '../../../bench/engine-checkpoint.ts';
import { bench as kernels } from '../../../bench/engine-kernel.ts';
import { modelled, modelResults, bench as shards } from '../../../bench/engine-shards.ts';
import { bench } from '../../../bench/window.ts';
import { smokeContext } from './context.ts';

it('the operator bench compares the operator with a straightforward program, with equal answers', async () => {
  const said: string[] = [];
  const results = await bench.run(smokeContext({ say: (line) => void said.push(line) }));
  expect(said).toEqual([expect.stringMatching(/^window, 1000 accounts: answer \d+ \d+ \d+ \d+$/)]);
  expect(results).toHaveLength(1);
  expect(results[0]).toMatchObject({
    unit: 'ns/event',
    against: 'Map of objects, BigInt',
    goal: 'ratio >= 2',
  });
  expect(results[0]?.value).toBeGreaterThan(0);
});

it('the kernel bench compares the kernels with the bare loop and the reference implementation, with equal answers', async () => {
  const said: string[] = [];
  const results = await kernels.run(
    smokeContext({ settings: { native: 'on' }, say: (line) => void said.push(line) }),
  );
  expect(said).toEqual([expect.stringMatching(/Zipf/), expect.stringMatching(/distinct/)]);
  expect(results).toHaveLength(24);
  for (const one of results) expect(one.value, one.metric).toBeGreaterThan(0);
});

it('the shard bench compares the loop with two shards with that of one, stage by stage, with equal results', async () => {
  const said: string[] = [];
  const results = await shards.run(
    smokeContext({
      settings: { native: 'on' },
      only: ['memory'],
      say: (line) => void said.push(line),
    }),
  );
  expect(said).toEqual([
    expect.stringMatching(/Zipf 1.1: \d+ rows, 98304 events, sum \d+$/),
    expect.stringMatching(/distinct accounts: 98304 rows, 98304 events, sum \d+$/),
  ]);
  const stages = results.map(({ metric }) => /: (\w+), two shards$/.exec(metric)?.[1]).filter(Boolean);
  const each = ['CPU', 'decode', 'route', 'update', 'changelog'];
  expect(stages).toEqual([...each, ...each]);
  expect(results.filter(({ goal }) => goal === 'ratio >= 1.7')).toHaveLength(2);
  for (const one of results) expect(one.value, one.metric).toBeGreaterThan(0);
});

it('the model divides what two shards make faster, and names the stage that limits', () => {
  expect(modelled({ one: 40, two: 20 }, 8)).toBe(5);
  expect(modelled({ one: 40, two: 30 }, 4)).toBe(25);
  // More than twice as fast: caches. No faster, or slower: serial.
  expect(modelled({ one: 40, two: 15 }, 4)).toBe(10);
  expect(modelled({ one: 40, two: 40 }, 8)).toBe(40);
  expect(modelled({ one: 40, two: 44 }, 8)).toBe(44);
  const costs = [
    { stage: 'route', one: 10, two: 10 },
    { stage: 'update', one: 60, two: 30 },
  ] as const;
  expect(modelResults('x', costs).map(({ metric, value }) => [metric, value])).toEqual([
    ['model, x: 4 shards on 4 cores, limited by update (60%)', 1e9 / 25],
    ['model, x: 8 shards on 8 cores, limited by route (57%)', 1e9 / 17.5],
  ]);
});

it('the checkpoint bench measures checkpoints during ingestion and restores every key', async () => {
  const results = await checkpoints.run(smokeContext({ settings: { native: 'on' } }));
  const of = (metric: string): number =>
    results.find((one) => one.metric.startsWith(metric))?.value ?? Number.NaN;
  expect(of('base, 0.1M keys')).toBeGreaterThan(100_000 * 64);
  expect(of('checkpoint with 1% of 0.1M keys changed: changelog')).toBeLessThan(1000 * 64);
  expect(of('restore, 0.1M keys')).toBeGreaterThan(0);
});

it('the quantiles between two samples of a histogram are in milliseconds', () => {
  const look = (counts: readonly number[]): ReadonlyMap<string, number> =>
    new Map([
      ...['0.001', '0.005', '0.25', '+Inf'].map((le, i): [string, number] => [
        `engine_stage_seconds_bucket{stage="sink",le="${le}"}`,
        counts[i] as number,
      ]),
      ['engine_stage_seconds_bucket{stage="step",le="0.001"}', 1e9],
    ]);
  const before = look([100, 100, 100, 100]);
  expect(quantilesMs(before, look([150, 198, 199, 200]), 'sink', [0.5, 0.98, 0.99, 1])).toEqual([
    1,
    5,
    250,
    Number.POSITIVE_INFINITY,
  ]);
  expect(() => quantilesMs(before, before, 'sink', [0.5])).toThrow('must have observations');
});
