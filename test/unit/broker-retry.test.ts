/** Questions that a broker refuses for a moment are asked again, the others are not. */
import { expect, it } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { brokerError } from '../../src/io/broker/errors.ts';
import { whilePassing } from '../../src/io/broker/retry.ts';

const notYet = () => brokerError('broker_unavailable', 'Not leader for partition', { next: 'try again' });

it('asks again until there is an answer, for less time each time', async () => {
  const left: number[] = [];
  const answer = await whilePassing(60_000, async (leftMs) => {
    left.push(leftMs);
    if (left.length < 3) throw notYet();
    return 'here';
  });
  expect(answer).toBe('here');
  expect(left).toHaveLength(3);
  expect(left[2]).toBeLessThan(left[0] as number);
});

it('gives up when the time is over, and at once where the answer will stay the same', async () => {
  let asked = 0;
  const refuse = (error: () => Error) => async (): Promise<never> => {
    asked++;
    throw error();
  };
  await expect(whilePassing(2000, refuse(notYet))).rejects.toThrow('Not leader');
  expect(asked).toBeGreaterThan(1);
  asked = 0;
  const final = () => coreError('timeout', 'no answer');
  await expect(whilePassing(60_000, refuse(final))).rejects.toThrow('no answer');
  expect(asked).toBe(1);
});
