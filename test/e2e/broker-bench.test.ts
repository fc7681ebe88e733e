/** Smoke run of the broker bench: both sides read the same bytes, and the results have the expected
 *  metrics and goals. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/broker.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { smokeContext } from '../unit/bench/context.ts';

it('the broker bench measures consume and produce beside the raw loop, node-rdkafka and the direct client', async () => {
  const { brokers } = await sharedStack();
  const results = await bench.run(smokeContext({ settings: { native: 'auto' }, brokers }));
  expect(results.map((one) => one.metric.replace(/ \d.*/, ''))).toEqual([
    'consume',
    'consume',
    'consume CPU a message',
    'consume by the direct client',
    'consume CPU a message by the direct client',
    'produce',
    'produce CPU a message',
  ]);
  for (const one of results) {
    expect(one.value).toBeGreaterThan(0);
    expect(one.against_value).toBeGreaterThan(0);
  }
  expect(results.map((one) => one.goal)).toEqual([
    'ratio >= 0.9',
    'ratio >= 12',
    null,
    null,
    null,
    'ratio >= 0.8',
    null,
  ]);
});
