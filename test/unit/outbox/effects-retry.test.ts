/** Retries of effects: the backoff, and what follows an attempt that ended with its runner. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EFFECT_DEFAULTS, type EffectRetry } from '../../../src/outbox/effects/handler.ts';
import { deadReason, expiredOutcome, retryDelayMs } from '../../../src/outbox/effects/retry.ts';

const retries: fc.Arbitrary<EffectRetry> = fc.record({
  firstDelayMs: fc.integer({ min: 1, max: 10_000 }),
  maxDelayMs: fc.integer({ min: 1, max: 3_600_000 }),
  budgetMs: fc.integer({ min: 1, max: 86_400_000 }),
  runnerEndsMax: fc.integer({ min: 1, max: 20 }),
});
const fractions = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const attempts = fc.integer({ min: 1, max: 100_000 });

describe('the backoff of effects', () => {
  it('a delay is below a bound that doubles from the first delay up to the maximum', () => {
    fc.assert(
      fc.property(retries, attempts, fractions, (retry, attempt, fraction) => {
        const delayMs = retryDelayMs(retry, attempt, fraction);
        const boundMs = Math.min(retry.maxDelayMs, retry.firstDelayMs * 2 ** Math.min(attempt - 1, 60));
        expect(delayMs).toBeGreaterThanOrEqual(0);
        expect(delayMs).toBeLessThanOrEqual(boundMs);
        // The jitter is full: half of the fraction is half of the delay.
        expect(retryDelayMs(retry, attempt, fraction / 2)).toBeCloseTo(delayMs / 2, 6);
      }),
    );
    const bounds = [1, 2, 3, 11, 12, 1000].map((attempt) => retryDelayMs(EFFECT_DEFAULTS.retry, attempt, 1));
    expect(bounds).toEqual([500, 1000, 2000, 512_000, 900_000, 900_000]);
  });
});

describe('an attempt that ended with its runner', () => {
  const expired = fc.record({
    attempt: attempts,
    triedMs: fc.integer({ min: 0, max: 100_000_000 }),
    runnerEnds: fc.option(fc.integer({ min: 1, max: 30 }), { nil: undefined }),
  });

  it('an effect at least once waits as after a failed attempt, or is dead after its budget of attempts or time', () => {
    fc.assert(
      fc.property(retries, expired, fractions, (retry, given, fraction) => {
        const outcome = expiredOutcome({ delivery: 'at_least_once', retry }, given, fraction);
        const isSpent = given.triedMs >= retry.budgetMs || (given.runnerEnds ?? 0) >= retry.runnerEndsMax;
        expect(outcome.state).toBe(isSpent ? 'dead' : 'waiting');
        expect(outcome.error).toContain(`its runner ended during attempt ${given.attempt}`);
        if (outcome.state === 'waiting')
          expect(outcome.delayMs).toBe(retryDelayMs(retry, given.attempt, fraction));
        else expect(outcome.reason).toBe(given.runnerEnds === undefined ? 'budget' : 'runner_ended');
      }),
    );
  });

  it('an effect at most once is dead with an unknown outcome after its first such attempt', () => {
    fc.assert(
      fc.property(retries, expired, fractions, (retry, given, fraction) => {
        const outcome = expiredOutcome({ delivery: 'at_most_once', retry }, given, fraction);
        expect(outcome).toMatchObject({ state: 'dead', reason: 'unknown_outcome' });
      }),
    );
  });
});

describe('an attempt that failed', () => {
  it('a refusal is final, an unknown outcome depends on the delivery, and the budget ends retries', () => {
    const retry = { ...EFFECT_DEFAULTS.retry, budgetMs: 100 };
    const [often, once] = [
      { delivery: 'at_least_once', retry },
      { delivery: 'at_most_once', retry },
    ] as const;
    expect(deadReason(often, { kind: 'refused' }, 0)).toBe('refused');
    expect(deadReason(once, { kind: 'unknown' }, 0)).toBe('unknown_outcome');
    expect(deadReason(once, { kind: 'not_done' }, 99)).toBeUndefined();
    expect(deadReason(often, { kind: 'unknown' }, 99)).toBeUndefined();
    expect(deadReason(often, { kind: 'unknown' }, 100)).toBe('budget');
  });
});
