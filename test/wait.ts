/** The one module of the tests that waits and reads the clock. A test waits for a state, never for a time, and never judges by
 *  how long something took. test/house/tidy.test.ts refuses timers and clocks elsewhere.
 */
import { inspect } from 'node:util';
import type { Timers } from '../src/core/clock.ts';
import { systemClock } from '../src/io/clock/system.ts';

/** Limit of every wait for a state, in ms. Generous, because a stalled machine must make a test slow and not red. */
const LIMIT_MS = 120_000;
/** Pause between two looks at a state, in ms: short, because most states come within a few of them. */
const POLL_MS = 10;

/** Time of this machine, for products that measure. No test expects anything of it. */
export const realClock: Timers = systemClock;

/** Pause inside a client that retries. Nothing may be expected to have happened after it. */
export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** One turn of the event loop: everything that was due without a timer has run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Asks until there is an answer other than undefined and false, and returns it. A thrown error counts as no answer.
 *  @param what the state, as a noun: "a ready relay"
 *  @param limitMs larger than LIMIT_MS where the state needs more work; a smaller one has no effect
 *  @throws with the last answer or error after the limit */
export async function until<T>(
  what: string,
  ask: () => T | undefined | false | Promise<T | undefined | false>,
  limitMs = LIMIT_MS,
): Promise<T> {
  const limit = Math.max(LIMIT_MS, limitMs);
  const deadline = performance.now() + limit;
  let last: unknown;
  for (;;) {
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== false) return answer;
      last = answer;
    } catch (thrown) {
      last = thrown;
    }
    if (performance.now() > deadline)
      throw new Error(`${what} did not come about within ${limit / 1000} s; last seen: ${inspect(last)}`);
    await pause(POLL_MS);
  }
}

/** Awaits an event that something else announces, with the limit of `until`.
 *  @param what the event, as a noun: "an answer"
 *  @param lastSeen describes the state at the limit
 *  @param limitMs larger than LIMIT_MS where the event needs more work; a smaller one has no effect
 *  @throws with `lastSeen` after the limit */
export async function arrival<T>(
  what: string,
  event: Promise<T>,
  lastSeen: () => unknown,
  limitMs = LIMIT_MS,
): Promise<T> {
  const limit = Math.max(LIMIT_MS, limitMs);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`no ${what} came within ${limit / 1000} s; last seen: ${inspect(lastSeen())}`)),
      limit,
    );
  });
  return Promise.race([event, late]).finally(() => clearTimeout(timer));
}

/** Lets the event loop of this process turn: what a socket or a promise of this process has ready is handled. For a
 *  handler that must be slower than its neighbours. */
export async function turns(count: number): Promise<void> {
  for (let done = 0; done < count; done++) await turn();
}
