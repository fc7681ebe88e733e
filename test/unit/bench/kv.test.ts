/** The bench of the embedded store in smoke mode: every answer is checked inside, and each goal has
 *  its figure. */
import { expect, it } from 'vitest';
import { bench } from '../../../bench/kv.ts';
import { npmObstacle } from '../../../src/io/rocksdb/npm.ts';
import { goalOf, smokeContext } from './context.ts';

it('the store bench compares runs, scans, puts and look-ups with a plain file', async () => {
  const closing: Array<() => Promise<void> | void> = [];
  const running = bench.run(
    smokeContext({ settings: { native: 'auto' }, onClose: (close) => void closing.push(close) }),
  );
  // The peer of the puts does not run on every Node.js.
  if (npmObstacle() !== undefined) {
    await expect(running).rejects.toMatchObject({ code: 'addon_missing' });
    for (const close of closing) await close();
    return;
  }
  const results = await running;
  for (const close of closing) await close();
  for (const one of results) {
    expect(one.value, one.metric).toBeGreaterThan(0);
    expect(one.against_value, one.metric).toBeGreaterThan(0);
    expect(one.unit).toMatch(/^((rows|keys)\/s|ns CPU\/row)$/);
  }
  expect(results.map((one) => [one.unit, goalOf(one)])).toEqual([
    ['rows/s', 'value >= 3000000, scaled'],
    ['rows/s', 'value >= 5000000, scaled'],
    ['rows/s', null],
    ['ns CPU/row', 'ratio >= 5'],
    ['ns CPU/row', 'ratio >= 1.5'],
    ['ns CPU/row', null],
    ['rows/s', 'value >= 2000000, scaled'],
    ['rows/s', null],
    ['ns CPU/row', 'ratio >= 3'],
    ['keys/s', null],
  ]);
});
