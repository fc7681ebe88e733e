/** Time limits for what others say.
 *
 *  A process that stood still, because its machine did or because it was stopped, runs its timers before it reads what others
 *  answered meanwhile. A plain timer would call them silent. This one counts steps, and however long a stall was, it is one step.
 */
const STEPS = 4;

/** Whose time it is; `globalThis` for the real one. */
export type Timers = Pick<typeof globalThis, 'setInterval' | 'clearInterval'>;

/** Calls `over` once, after `ms` in which this process ran. Keeps no process alive.
 *  @returns calls it off */
export function afterAwake(timers: Timers, ms: number, over: () => void): () => void {
  let steps = 0;
  const timer = timers.setInterval(() => {
    if (++steps < STEPS) return;
    timers.clearInterval(timer);
    over();
  }, ms / STEPS);
  timer.unref();
  return () => timers.clearInterval(timer);
}
