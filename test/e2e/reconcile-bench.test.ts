/** Smoke run of the bench of the reconciler: every order is compared, and a difference is found. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/reconcile.ts';
import { smoke } from './effects-bench-kit.ts';

it('the reconcile bench compares all orders beside anti-joins, and measures a watch', async () => {
  const results = await smoke(bench);
  expect(results.map(({ metric }) => metric)).toEqual([
    'complete comparison of 20000 orders in one database',
    'complete comparison of 20000 orders in two connections as of two databases',
    'watch of 20000 orders, CPU an order, reconciler',
    'watch of 20000 orders, CPU an order, PostgreSQL, its backends',
    'watch of 20000 orders, CPU an order, together',
  ]);
  for (const { metric, value, against_value } of results) {
    expect(value, metric).toBeGreaterThanOrEqual(0);
    if (metric.startsWith('complete')) expect(against_value, metric).toBeGreaterThan(0);
  }
});
