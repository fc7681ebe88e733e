/** Virtual time and seeded randomness: the simulated drivers of the ports in src/core/clock.ts.
 *  Invariant: time moves only while `advance` or `until` runs, from one timer to the next. Between
 *  two timers, all pending promises and setImmediate callbacks run. So the behavior of
 *  promise-based code depends on the seed alone. Real sockets and disks are not awaited. */
import type { Cancel, Random, Timers } from '../core/clock.ts';
import { TimerHeap } from './timer-heap.ts';

/** Default start of the wall clock: 2020-09-13T12:26:40Z. */
const EPOCH_MS = 1_600_000_000_000;

export class VirtualClock implements Timers {
  private nowMs = 0;
  private wallMs: number;
  private orders = 0;
  private readonly timers = new TimerHeap();

  constructor(wallMs: number = EPOCH_MS) {
    this.wallMs = wallMs;
  }

  wallNowMs(): number {
    return Math.floor(this.wallMs + this.nowMs);
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  after(ms: number, run: () => void): Cancel {
    return this.add(ms, undefined, run);
  }

  every(ms: number, run: () => void): Cancel {
    return this.add(ms, Math.max(1, ms), run);
  }

  /** Moves only the wall clock, as an administrator or a time server does. */
  jump(ms: number): void {
    this.wallMs += ms;
  }

  /** Number of pending timers. */
  get pending(): number {
    return this.timers.size;
  }

  /** Advances time by `ms`: each timer that falls due runs, in order of time, then of creation. */
  async advance(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    await eachRest(() => this.fireUntil(endMs));
    this.nowMs = endMs;
  }

  /** Suspends the process for `ms`: time passes first, and timers that fell due meanwhile run late,
   *  each once. */
  async stall(ms: number): Promise<void> {
    await eachRest(() => true);
    this.nowMs += ms;
    const endMs = this.nowMs;
    await eachRest(() => this.fireUntil(endMs));
  }

  /** Advances time from timer to timer until `ask` returns a value other than undefined and false.
   *  @param what expected state as a noun, for the error: "a leader"
   *  @param limitMs limit in virtual ms
   *  @throws Error with the last answer, if the limit passes or no timer is left */
  async until<T>(what: string, ask: () => T | undefined | false, limitMs = 3_600_000): Promise<T> {
    const endMs = this.nowMs + limitMs;
    let answer: T | undefined | false;
    await eachRest(() => {
      answer = ask();
      if (answer !== undefined && answer !== false) return true;
      if (!this.fireUntil(endMs)) return false;
      const why = this.timers.size === 0 ? 'no timer is set' : `${limitMs} virtual ms passed`;
      throw new Error(`${what} did not come about: ${why}; last answer: ${String(answer)}`);
    });
    return answer as T;
  }

  /** Returns the result of `work`, and advances time while it is pending. */
  async run<T>(work: Promise<T>, limitMs?: number): Promise<T> {
    let isSettled = false;
    const settled = (): void => {
      isSettled = true;
    };
    work.then(settled, settled);
    await this.until('the end of the work', () => isSettled, limitMs);
    return work;
  }

  private add(ms: number, everyMs: number | undefined, run: () => void): Cancel {
    const timer = { dueMs: this.nowMs + Math.max(1, ms), order: this.orders++, everyMs, run, place: -1 };
    this.timers.add(timer);
    return () => this.timers.remove(timer);
  }

  /** Runs the first timer that falls due until `endMs`. True: none does. */
  private fireUntil(endMs: number): boolean {
    const timer = this.timers.first();
    if (timer === undefined || timer.dueMs > endMs) return true;
    this.nowMs = Math.max(this.nowMs, timer.dueMs);
    this.timers.remove(timer);
    if (timer.everyMs !== undefined) {
      timer.dueMs = this.nowMs + timer.everyMs;
      this.timers.add(timer);
    }
    timer.run();
    return false;
  }
}

/** Most turns of the event loop until a step must be idle. */
const TURNS_MAX = 100_000;
/** Most callbacks of setImmediate that are queued together. A turn of the event loop costs about as
 *  much as a short step, and pending promises run before each callback. */
const CALLBACKS_MAX = 16;

/** Calls `step` whenever the event loop has come to rest: no promise and no setImmediate of others
 *  is pending. Ends when `step` returns true. @throws what `step` throws */
function eachRest(step: () => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    let queued = 0;
    let callbacks = 1;
    let isOver = false;
    let restless = 0;
    const end = (settle: () => void): void => {
      isOver = true;
      settle();
    };
    const call = (): void => {
      queued--;
      try {
        if (isOver) return;
        if (pendingImmediates() === queued) {
          restless = 0;
          if (step()) end(resolve);
        } else if (queued === 0 && ++restless === TURNS_MAX)
          throw new Error(`the event loop did not come to rest within ${TURNS_MAX} turns`);
      } catch (thrown) {
        end(() => reject(thrown));
      } finally {
        if (queued === 0 && !isOver) queue();
      }
    };
    const queue = (): void => {
      for (queued = 0; queued < callbacks; queued++) setImmediate(call);
      callbacks = Math.min(2 * callbacks, CALLBACKS_MAX);
    };
    queue();
  });
}

/** Returns the number of pending callbacks of setImmediate in this thread. */
function pendingImmediates(): number {
  let count = 0;
  for (const resource of process.getActiveResourcesInfo()) if (resource === 'Immediate') count++;
  return count;
}

/** Mulberry32 generator: 32 bits of state, enough for jitter and ids in tests. */
export class SeededRandom implements Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  fraction(): number {
    return this.word() / 4_294_967_296;
  }

  fill(into: Uint8Array): void {
    for (let at = 0; at < into.length; at++) into[at] = this.word() >>> 24;
  }

  private word(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }
}
