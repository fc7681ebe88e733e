/** Retries: requests that a broker refuses temporarily are repeated, other requests are not. */
import { expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { brokerError } from '../../../../src/io/kafka/errors.ts';
import { retryTransient } from '../../../../src/io/kafka/retry.ts';

const notYet = () => brokerError('broker_unavailable', 'Not leader for partition', { next: 'try again' });

it('a refused request is repeated until it succeeds, with less time for each attempt', async () => {
  const left: number[] = [];
  const answer = await retryTransient(60_000, async (leftMs) => {
    left.push(leftMs);
    if (left.length < 3) throw notYet();
    return 'here';
  });
  expect(answer).toBe('here');
  expect(left).toHaveLength(3);
  expect(left[2]).toBeLessThan(left[0] as number);
});

it('a refused request is abandoned at its deadline, and immediately after a final refusal', async () => {
  let asked = 0;
  const refuse = (error: () => Error) => async (): Promise<never> => {
    asked++;
    throw error();
  };
  await expect(retryTransient(2000, refuse(notYet))).rejects.toThrow('Not leader');
  expect(asked).toBeGreaterThan(1);
  asked = 0;
  const final = () => coreError('timeout', 'no answer');
  await expect(retryTransient(60_000, refuse(final))).rejects.toThrow('no answer');
  expect(asked).toBe(1);
});
