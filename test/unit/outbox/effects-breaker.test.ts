/** The circuit breaker of a third party, and the options and errors of handlers. */
import { describe, expect, it } from 'vitest';
import { Breaker } from '../../../src/outbox/effects/breaker.ts';
import {
  EFFECT_DEFAULTS,
  effectNotDone,
  effectRefused,
  failureOf,
  settledHandler,
} from '../../../src/outbox/effects/handler.ts';

const SETTINGS = { failures: 3, openMs: 100, openMaxMs: 350 };

describe('a circuit breaker', () => {
  it('a breaker opens after that many failures in a row, and lets one call probe after its pause', () => {
    const breaker = new Breaker(SETTINGS);
    for (let n = 0; n < 2; n++) breaker.failed(0);
    breaker.succeeded();
    for (let n = 0; n < 2; n++) breaker.failed(0);
    expect(breaker.room(0, 5)).toBe(5);
    breaker.failed(0);
    expect([breaker.isOpen, breaker.room(99, 5), breaker.closedForMs(40)]).toEqual([true, 0, 60]);
    expect(breaker.room(100, 5)).toBe(1);
    breaker.started();
    expect(breaker.room(100, 5)).toBe(0);
    breaker.succeeded();
    expect([breaker.isOpen, breaker.room(100, 5)]).toEqual([false, 5]);
  });

  it('each failed probe doubles the pause up to its maximum, and a failure of an older call does not', () => {
    const breaker = new Breaker(SETTINGS);
    for (let n = 0; n < 3; n++) breaker.failed(0);
    const pauses = [];
    for (let nowMs = 0; pauses.length < 4; ) {
      pauses.push(breaker.closedForMs(nowMs));
      nowMs += breaker.closedForMs(nowMs);
      breaker.failed(nowMs);
      expect(breaker.room(nowMs, 1)).toBe(1);
      breaker.started();
      breaker.failed(nowMs);
    }
    expect(pauses).toEqual([100, 200, 350, 350]);
  });
});

describe('a handler of effects', () => {
  it('a handler has the defaults, and refuses numbers that mean nothing', () => {
    const call = async () => {};
    expect(settledHandler('pay', { call, retry: { budgetMs: 5 } })).toMatchObject({
      delivery: 'at_least_once',
      onDead: 'block',
      retry: { ...EFFECT_DEFAULTS.retry, budgetMs: 5 },
    });
    for (const given of [{ timeoutMs: 0 }, { concurrency: Number.NaN }, { retry: { maxDelayMs: -1 } }])
      expect(() => settledHandler('pay', { call, ...given })).toThrow(
        /of the handler pay is .*, not a number above 0/,
      );
  });

  it('an error tells if the third party refused, did nothing, or may have acted', () => {
    expect(failureOf(effectRefused('declined'))).toMatchObject({ kind: 'refused', message: 'declined' });
    expect(failureOf(effectNotDone('busy', 30))).toMatchObject({ kind: 'not_done', retryAfterMs: 30 });
    expect(failureOf(new Error('socket hang up'))).toMatchObject({ kind: 'unknown', retryAfterMs: 0 });
    expect(failureOf('text')).toMatchObject({ kind: 'unknown', message: 'text' });
  });
});
