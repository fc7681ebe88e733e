/** Drivers of the ports in src/core/clock.ts: the clock and the randomness of this machine. */
import { randomFillSync } from 'node:crypto';
import type { Cancel, Random, TimerHold, Timers } from '../../core/clock.ts';

export const systemClock: Timers = {
  wallNowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(ms: number, run: () => void, hold?: TimerHold): Cancel {
    const timer = setTimeout(run, ms);
    if (hold === 'background') timer.unref();
    return () => clearTimeout(timer);
  },
  every(ms: number, run: () => void, hold?: TimerHold): Cancel {
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
