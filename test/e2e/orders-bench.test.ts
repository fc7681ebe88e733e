/** Smoke run of the orders bench: every part runs, every answer and row is checked, and each goal
 *  has its figure. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/orders.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the orders bench measures latency, CPU, the ceiling, the ratio to one transaction a request, hot keys and gRPC', async () => {
  const results = await smoke(bench);
  expect(goalsOf(results)).toEqual([
    ['POST /orders at 300/s, alone, rate reached', 'value >= 294'],
    ['POST /orders at 300/s, alone, p99', 'value <= 15'],
    ['POST /orders at 300/s, alone, CPU of orders a request', 'value <= 60, scaled'],
    ['POST /orders at 300/s, with relay and payments, 1 broker, rate reached', 'value >= 294'],
    ['POST /orders at 300/s, with relay and payments, 1 broker, p99', 'value <= 25'],
    [
      'POST /orders at 300/s, with relay and payments, 1 broker, CPU of orders a request',
      'value <= 60, scaled',
    ],
    ['POST /orders at 300/s, with relay and payments, 1 broker, commit to effect, p99', 'value <= 500'],
    ["POST /orders at 300/s, with relay and payments, 1 broker, growth of the relay's lag", 'value <= 3'],
    ['POST /orders, closed model, 256 connections', 'ratio >= 4'],
    ['Orders.Create over gRPC at 100/s, rate reached', 'value >= 98'],
    ['Orders.Create over gRPC at 100/s, p99', 'value <= 25'],
  ]);
  const named = (part: string) => results.filter(({ metric }) => metric.includes(part));
  // Both servers run on this machine, so the CPU of each process is known.
  for (const part of ['CPU of orders', 'CPU of relay', 'CPU of payments', 'CPU of postgres', 'CPU of broker'])
    expect(named(part), part).not.toEqual([]);
  expect(named('Zipf 1.1 over 1000 keys')).toHaveLength(1);
  expect(named('one single key')).toHaveLength(1);
  expect(named('highest rate held')).toHaveLength(1);
  for (const { metric, value, unit } of results) {
    expect(Number.isFinite(value), metric).toBe(true);
    if (unit === 'ms' || unit === 'us') expect(value, metric).toBeGreaterThan(0);
  }
  for (const one of results.filter(({ runs }) => runs !== undefined)) expect(one.runs).toEqual([one.value]);
});

it('the orders bench starts on preloaded keys and refuses an unknown part', {
  timeout: 300_000,
}, async () => {
  const results = await smoke(bench, { only: ['alone'], preload: 5000 });
  expect(results.map(({ metric }) => metric)).toContain('POST /orders at 300/s on 5000 keys, alone, p99');
  await expect(smoke(bench, { only: ['ceilin'] })).rejects.toThrow(
    '-only=ceilin is not a part of this benchmark',
  );
});
