/** Smoke run of the bench of idempotent endpoints: one payment for each key, on both sides. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/idempotency.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the idempotency bench measures new and repeated keys beside a hand-written key table', async () => {
  const results = await smoke(bench);
  expect(goalsOf(results)).toEqual([
    ['idempotent endpoint, new keys', 'ratio >= 0.8'],
    ['idempotent endpoint, repeated keys', 'ratio >= 0.8'],
  ]);
  for (const { metric, value, against_value } of results) {
    expect(value, metric).toBeGreaterThan(0);
    expect(against_value, metric).toBeGreaterThan(0);
  }
});
