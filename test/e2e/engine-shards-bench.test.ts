/** Smoke run of the part of the shard bench that has a broker: engines with one and with two shards
 *  have the same results, and each row has its figure and goal. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/engine-shards.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the shard bench compares whole engines with one and with two shards beside a broker', async () => {
  const results = await smoke(bench, { only: ['broker'] });
  expect(results.map(({ unit }) => unit)).toEqual(['us CPU/event', 'events/s']);
  expect(goalsOf(results)).toEqual([
    ['engine beside its broker, 180000 events of 256 B, two shards: CPU', 'ratio >= 0.8696'],
  ]);
  for (const { metric, value, against, against_value } of results) {
    expect(value, metric).toBeGreaterThan(0);
    expect(against_value, metric).toBeGreaterThan(0);
    expect(against).toBe('one shard');
  }
});
