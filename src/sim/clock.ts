/** Virtual time and seeded randomness: the simulated drivers of the ports in src/core/clock.ts.
 *  Invariant: time moves only while `advance` or `until` runs, from one timer to the next. Between
 *  two timers, all pending promises and setImmediate callbacks run. So the behavior of
 *  promise-based code depends on the seed alone. Real sockets and disks are not awaited. */
import type { Cancel, Random, Timers } from '../core/clock.ts';

/** Most turns of the event loop until a step must be idle. */
const TURNS_MAX = 100_000;
/** Default start of the wall clock: 2020-09-13T12:26:40Z. */
const EPOCH_MS = 1_600_000_000_000;

interface Timer {
  dueMs: number;
  readonly order: number;
  readonly everyMs: number | undefined;
  readonly run: () => void;
}

export class VirtualClock implements Timers {
  private nowMs = 0;
  private wallMs: number;
  private orders = 0;
  private readonly timers = new Set<Timer>();

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
    await settle();
    for (let next = this.next(); next !== undefined && next.dueMs <= endMs; next = this.next()) {
      this.fire(next);
      await settle();
    }
    this.nowMs = endMs;
  }

  /** Suspends the process for `ms`: time passes first, and timers that fell due meanwhile run late,
   *  each once. */
  async stall(ms: number): Promise<void> {
    await settle();
    this.nowMs += ms;
    const late = [...this.timers].filter(({ dueMs }) => dueMs <= this.nowMs).sort(byTime);
    for (const timer of late) {
      if (!this.timers.has(timer)) continue;
      this.fire(timer);
      await settle();
    }
  }

  /** Advances time from timer to timer until `ask` returns a value other than undefined and false.
   *  @param what expected state as a noun, for the error: "a leader"
   *  @param limitMs limit in virtual ms
   *  @throws Error with the last answer, if the limit passes or no timer is left */
  async until<T>(what: string, ask: () => T | undefined | false, limitMs = 3_600_000): Promise<T> {
    const endMs = this.nowMs + limitMs;
    for (;;) {
      await settle();
      const answer = ask();
      if (answer !== undefined && answer !== false) return answer;
      const next = this.next();
      if (next === undefined || next.dueMs > endMs) {
        const why = next === undefined ? 'no timer is set' : `${limitMs} virtual ms passed`;
        throw new Error(`${what} did not come about: ${why}; last answer: ${String(answer)}`);
      }
      this.fire(next);
    }
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
    const timer = { dueMs: this.nowMs + Math.max(1, ms), order: this.orders++, everyMs, run };
    this.timers.add(timer);
    return () => this.timers.delete(timer);
  }

  private next(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.timers) if (first === undefined || byTime(timer, first) < 0) first = timer;
    return first;
  }

  private fire(timer: Timer): void {
    this.nowMs = Math.max(this.nowMs, timer.dueMs);
    if (timer.everyMs === undefined) this.timers.delete(timer);
    else timer.dueMs = this.nowMs + timer.everyMs;
    timer.run();
  }
}

const byTime = (a: Timer, b: Timer): number => a.dueMs - b.dueMs || a.order - b.order;

/** Runs the event loop until no setImmediate is pending; promise callbacks run before each turn. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < TURNS_MAX; turn++) {
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (!process.getActiveResourcesInfo().includes('Immediate')) return;
  }
  throw new Error(`the event loop did not come to rest within ${TURNS_MAX} turns`);
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
