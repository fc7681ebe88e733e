/** Timeouts that exclude the time during which this process was suspended.
 *
 *  A process that was suspended, or whose machine was, runs its timers before it reads the answers that arrived meanwhile. A plain
 *  timer would call the other side silent. This one counts steps, and a suspension of any length is one step.
 */
import type { Cancel, Timers } from './clock.ts';

const STEPS = 4;

/** Calls `over` once, after `ms` in which this process ran. Keeps no process alive. */
export function afterAwake(clock: Timers, ms: number, over: () => void): Cancel {
  let steps = 0;
  const cancel = clock.every(
    ms / STEPS,
    () => {
      if (++steps < STEPS) return;
      cancel();
      over();
    },
    'background',
  );
  return cancel;
}
