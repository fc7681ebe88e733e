/** Smoke run of the fetch bench: every side reads the topic into the same results, and each row has
 *  its figure and goal. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/fetch.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the fetch bench measures both drivers beside the bare loops, and the engine over both', async () => {
  const results = await smoke(bench);
  const ofPair = ['us CPU/event', 'events/s'];
  expect(results.map(({ unit }) => unit)).toEqual([...ofPair, ...ofPair, ...ofPair, ...ofPair, ...ofPair]);
  expect(results.map(({ against }) => against)).toEqual([
    ...['bare C++ fetch loop', 'bare C++ fetch loop'],
    ...['bare C++ librdkafka loop', 'bare C++ librdkafka loop'],
    ...['librdkafka driver', 'librdkafka driver'],
    ...['engine with -broker-client=librdkafka', 'engine with -broker-client=librdkafka'],
    ...['bare C++ fetch loop', 'bare C++ fetch loop'],
  ]);
  expect(goalsOf(results)).toEqual([
    ['direct client, 180000 events of 256 B, lz4: CPU', 'ratio >= 0.7143'],
    ['direct client, 180000 events of 256 B, lz4: rate', 'ratio >= 0.7'],
    ['engine with -broker-client=direct, 180000 events of 256 B, lz4: rate', 'ratio >= 1.5'],
  ]);
  for (const { metric, value, against_value } of results) {
    expect(value, metric).toBeGreaterThan(0);
    expect(against_value, metric).toBeGreaterThan(0);
  }
});
