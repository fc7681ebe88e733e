/** The real clock. */
import type { Clock } from '../../core/clock.ts';

export const systemClock: Clock = {
  wallNowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
};
