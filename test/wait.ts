/** The only module of the tests that waits or reads the clock. A test waits for a state, never for
 *  a duration, and never decides by a duration. test/repository/tidy.test.ts refuses timers and
 *  clocks elsewhere. */
import { inspect } from 'node:util';
import type { Timers } from '../src/core/clock.ts';
import { systemClock } from '../src/io/clock/system.ts';

/** Limit of every wait for a state, in ms. It is generous: a stalled machine makes a test slow, not
 *  red. */
const LIMIT_MS = 120_000;
/** Pause between two polls of a state, in ms. It is short, because most states are reached within a
 *  few polls. */
const POLL_MS = 10;

/** Clock of this machine, for code under test that measures. No test depends on its values. */
export const realClock: Timers = systemClock;

/** Waits inside a client that retries. No assertion may depend on what happens during the pause. */
export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves after one turn of the event loop, when all due callbacks without a timer have run. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Polls until the answer is neither undefined nor false, and returns the answer. A thrown error
 *  counts as no answer.
 *  @param what the state, as a noun: "a ready relay"
 *  @param limitMs above LIMIT_MS when the state needs more work; a smaller value has no effect
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

/** Awaits an announced event, with the limit of `until`.
 *  @param what the event, as a noun: "an answer"
 *  @param lastSeen describes the state at the limit
 *  @param limitMs above LIMIT_MS when the event needs more work; a smaller value has no effect
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

/** Runs turns of this process's event loop, so that ready sockets and promises are handled. Makes
 *  one handler slower than the handlers beside it. */
export async function turns(count: number): Promise<void> {
  for (let done = 0; done < count; done++) await turn();
}
