/** The bench of the window step, small: both sides must agree on every result, else it throws. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/window.ts';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';

it('measures the operator beside the obvious program, with equal answers', async () => {
  const said: string[] = [];
  const results = await bench.run({
    smoke: true,
    repeats: 1,
    log: silentLogger,
    metrics: new Metrics(),
    settings: { native: 'off' },
    brokers: undefined,
    drain: new AbortController().signal,
    say: (line) => void said.push(line),
    onClose: () => {},
  });
  expect(said).toEqual([expect.stringMatching(/^window, 1000 accounts: answer \d+ \d+ \d+ \d+$/)]);
  expect(results).toHaveLength(1);
  expect(results[0]).toMatchObject({
    unit: 'ns/event',
    against: 'Map of objects, BigInt',
    goal: 'ratio >= 2',
  });
  expect(results[0]?.value).toBeGreaterThan(0);
});
