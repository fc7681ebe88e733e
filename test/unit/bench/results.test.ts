/** The bench of the results in smoke mode: every answer is checked inside, and each goal has its
 *  figure. */
import { expect, it } from 'vitest';
import { bench } from '../../../bench/results.ts';
import { smokeContext } from './context.ts';

it('the results bench compares writes and look-ups with a plain file', async () => {
  const closing: Array<() => Promise<void> | void> = [];
  const results = await bench.run(
    smokeContext({ settings: { native: 'auto' }, onClose: (close) => void closing.push(close) }),
  );
  for (const close of closing) await close();
  for (const one of results) {
    expect(one.value, one.metric).toBeGreaterThan(0);
    if (one.against !== null) expect(one.against_value, one.metric).toBeGreaterThan(0);
  }
  expect(results.map((one) => [one.unit, one.goal])).toEqual([
    ['rows/s', 'value >= 1000000'],
    ['rows/s', null],
    ['rows/s', null],
    ['ns CPU/row', 'value <= 1000'],
    ['ns CPU/row', null],
    ['ns CPU/row', null],
    ['ms', 'value <= 5'],
    ['ms', 'value <= 20'],
  ]);
});
