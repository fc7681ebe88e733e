/** Smoke run of the registry bench: every part runs, every answer is checked, and each goal has its
 *  figure. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the registry bench measures lookups, registrations, checks, starts and memory on both stores', async () => {
  const { brokers } = await sharedStack();
  const results = await bench.run(
    smokeContext({ settings: { native: process.env['MILLRACE_NATIVE'] ?? 'auto' }, brokers }),
  );
  for (const one of results) {
    expect(one.value, one.metric).toBeGreaterThanOrEqual(one.unit === 'processes' ? 0 : 1e-3);
    expect(one.unit).toMatch(/^(requests\/s|ms|MB|processes)$/);
  }
  const goals = results.filter((one) => one.goal !== null);
  expect(goals.map(({ metric, goal }) => [metric.replace(/\d+\/s, p99|\d+ schemas/, '…'), goal])).toEqual([
    ['lookups by id, 64 connections', 'value >= 20000'],
    ['lookups by id at …', 'ratio >= 0.5'],
    ['registrations, durable, one after the other', 'ratio >= 0.6'],
    ['registrations, durable, 16 at once', 'ratio >= 3'],
    ['compatibility checks of distinct pairs, 16 at once', 'value >= 10000'],
    ['lookup by a cold client beside 200 registrations/s, p99', 'value <= 25'],
    ['start until writable, empty file store', 'value <= 300'],
    ['start until writable, …, file store', 'value <= 1000'],
    ['memory after a start with … (the other: with one)', 'value <= 100'],
    ['memory after registering …', 'value <= 100'],
    ['memory after registering … of 2048 B', 'value <= 600'],
    ['memory after a start with … of 2048 B', 'value <= 600'],
  ]);
  expect(results.map((one) => one.metric)).toEqual(
    expect.arrayContaining([
      expect.stringContaining('Kafka store with acks=all, 16 at once'),
      expect.stringContaining('start until writable, Kafka topic'),
    ]),
  );
});
