/** Drivers of the ports in src/core/clock.ts: the clock and the randomness of this machine. */
import { randomFillSync } from 'node:crypto';
import type { Cancel, Random, TimerHold, Timers } from '../../core/clock.ts';

/** Longest delay of one timer in Node, some 24.8 days; a timer of more would end after 1 ms. */
const TIMER_MS_MAX = 2 ** 31 - 1;

function after(ms: number, run: () => void, hold?: TimerHold): Cancel {
  let timer: NodeJS.Timeout;
  const arm = (leftMs: number): void => {
    const partMs = Math.min(leftMs, TIMER_MS_MAX);
    timer = setTimeout(() => (leftMs > partMs ? arm(leftMs - partMs) : run()), partMs);
    if (hold === 'background') timer.unref();
  };
  arm(ms);
  return () => clearTimeout(timer);
}

export const systemClock: Timers = {
  wallNowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after,
  every(ms: number, run: () => void, hold?: TimerHold): Cancel {
    if (ms > TIMER_MS_MAX) {
      let cancel: Cancel = () => {};
      const next = (): void => {
        cancel = after(
          ms,
          () => {
            next();
            run();
          },
          hold,
        );
      };
      next();
      return () => cancel();
    }
    const timer = setInterval(run, ms);
    if (hold === 'background') timer.unref();
    return () => clearInterval(timer);
  },
};

/** Randomness: fractions (jitter) from the fast generator, bytes (ids) from the operating system.
 */
export const systemRandom: Random = {
  fraction: () => Math.random(),
  fill: (into) => void randomFillSync(into),
};
