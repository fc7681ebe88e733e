/** Smoke run of the inbox bench: one charge for each message, every old id found, every partition
 *  dropped. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/inbox.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the inbox bench measures payments on a backlog, a loaded inbox beside an empty one, and expiry', async () => {
  const results = await smoke(bench, { preload: 50_000 });
  expect(goalsOf(results)).toEqual([
    ['payments on a backlog of 5000 messages', 'value >= 20000'],
    ['inbox of 50000 keys, insert of unseen ids, 1000 a transaction', 'ratio >= 0.7'],
    ['inbox of 50000 keys, check of seen ids in their order, 1000 a transaction', 'ratio >= 0.7'],
    ['inbox of 50000 keys, check of seen ids from everywhere, 1000 a transaction', 'ratio >= 0.7'],
    ['expiry of 20000 keys in 4 partitions', 'value <= 1000'],
  ]);
  for (const { metric, value, unit } of results.filter((one) => one.unit !== 'us'))
    expect(value, `${metric}, ${unit}`).toBeGreaterThan(0);
});
