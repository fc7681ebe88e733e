/** Smoke run of the orders bench: every part runs, every answer and row is checked, and each goal
 *  has its figure. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { bench } from '../../bench/orders.ts';
import { goalsOf, smoke } from './effects-bench-kit.ts';

it('the orders bench measures latency, CPU, the ceiling, the ratio to one transaction a request, hot keys and gRPC', async () => {
  const results = await smoke(bench, { only: ['alone', 'all', 'ceiling', 'ratio', 'hot', 'grpc'] });
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

it('the orders bench kills orders, relay and payments under load without a delta, and makes only missing runs', {
  timeout: 900_000,
}, async () => {
  const out = mkdtempSync(join(tmpdir(), 'orders-load-'));
  onTestFinished(() => rmSync(out, { recursive: true }));
  // The first row is the load of the machine.
  const makeRuns = async () => (await smoke(bench, { only: ['load'], out })).slice(1);
  const results = await makeRuns();
  const cells = ['relay=poll, 5% duplicates', 'relay=wal, 30% duplicates'];
  const outside = 'outside the 0.25 s after a kill';
  expect(goalsOf(results)).toEqual(
    cells
      .map((cell) => `load at 300/s, ${cell}, 1 broker`)
      .flatMap((what) => [
        [`${what}, rate reached`, 'value >= 294'],
        [`${what}, p99 of POST ${outside}`, 'value <= 25'],
        [`${what}, commit to effect ${outside}, p99`, 'value <= 2000'],
        [`${what}, intents without an answer`, 'value <= 0'],
        [`${what}, deltas`, 'value <= 0'],
        [`${what}, CPU of all a request`, 'value <= 120, scaled'],
      ]),
  );
  const valuesOf = (part: string) =>
    results.filter(({ metric }) => metric.endsWith(part)).map(({ value }) => value);
  expect(valuesOf(', kills')).toEqual([3, 3]);
  expect(valuesOf(', deltas')).toEqual([0, 0]);
  expect(valuesOf(', intents without an answer')).toEqual([0, 0]);
  for (const part of ['orders', 'relay', 'payments', 'postgres', 'broker'])
    for (const value of valuesOf(`CPU of ${part} a request`)) expect(value, part).toBeGreaterThan(0);
  // The second run is missing and made again; the first is kept with its figures.
  const path = join(out, 'orders-load.json');
  const stored = JSON.parse(readFileSync(path, 'utf8'));
  expect(stored.results).toEqual(JSON.parse(JSON.stringify(results)));
  writeFileSync(path, JSON.stringify({ ...stored, runs: stored.runs.slice(0, 1) }));
  const again = await makeRuns();
  const half = results.length / 2;
  expect(again.slice(0, half)).toEqual(results.slice(0, half));
  expect(again.map(({ metric }) => metric)).toEqual(results.map(({ metric }) => metric));
  expect(JSON.parse(readFileSync(path, 'utf8')).runs).toHaveLength(2);
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
