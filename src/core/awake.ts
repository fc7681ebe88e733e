/** Timeouts that exclude the time during which this process was suspended.
 *
 *  A process that was suspended, or whose machine was, runs its timers before it reads the answers
 *  that arrived meanwhile. A plain timer would then report the other side as silent. This timer
 *  counts steps, and a suspension of any length is one step.
 */
import type { Cancel, Timers } from './clock.ts';

const STEPS = 4;

/** Calls `onTimeout` once, after this process has run for `ms`. Does not keep the process alive. */
export function afterAwake(clock: Timers, ms: number, onTimeout: () => void): Cancel {
  let steps = 0;
  const cancel = clock.every(
    ms / STEPS,
    () => {
      if (++steps < STEPS) return;
      cancel();
      onTimeout();
    },
    'background',
  );
  return cancel;
}
