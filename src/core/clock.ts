/** Ports for time and randomness. Products have no other source of either, so a test runs them
 *  under virtual time and repeats them from a seed.
 *
 *  The real drivers are `systemClock` and `systemRandom` (src/io/clock/system.ts), the simulated
 *  ones VirtualClock and SeededRandom (src/sim/clock.ts).
 */

/** Reads the time. */
export interface Clock {
  /** Wall time in whole ms since the epoch. May jump. */
  wallNowMs(): number;
  /** Monotonic time in ms with a fraction; only differences mean something. */
  monotonicMs(): number;
}

/** Cancels a timer. Without effect once the timer has ended. */
export type Cancel = () => void;

/** Effect of a pending timer on the process: `holds` keeps it alive, `background` does not. */
export type TimerHold = 'holds' | 'background';

/** Reads the time and calls back later, by monotonic time. */
export interface Timers extends Clock {
  /** Calls `run` once, after `ms`.
   *  @param hold default `holds` */
  after(ms: number, run: () => void, hold?: TimerHold): Cancel;
  /** Calls `run` each `ms`. Calls that a stalled process missed are made up for by one.
   *  @param hold default `holds` */
  every(ms: number, run: () => void, hold?: TimerHold): Cancel;
}

/** Randomness of a process. */
export interface Random {
  /** Uniform in [0, 1). */
  fraction(): number;
  /** Fills the array with random bytes. */
  fill(into: Uint8Array): void;
}

/** Resolves after `ms`, or as soon as the signal is aborted. Never rejects.
 *  With an aborted signal it resolves without a turn of the event loop, so the end of a process
 *  does not depend on a clock. A loop over it must check the signal or do I/O of its own; otherwise
 *  the loop blocks the event loop. */
export function sleep(clock: Timers, ms: number, signal?: AbortSignal, hold?: TimerHold): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const done = (): void => {
      cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.after(ms, done, hold);
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** Waits for `work` at most `ms`, without keeping the process alive and without ending the work.
 *  @returns true when the work settled in time; a rejection of the work is passed on */
export async function within(clock: Timers, ms: number, work: Promise<unknown>): Promise<boolean> {
  let cancel: Cancel = () => {};
  const late = new Promise<false>((resolve) => {
    cancel = clock.after(ms, () => resolve(false), 'background');
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    cancel();
  }
}

const HEX_BYTE = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** A version 4 UUID in lower case. Source: RFC 9562, 5.4. */
export function randomUuid(random: Random): string {
  const bytes = new Uint8Array(16);
  random.fill(bytes);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => HEX_BYTE[byte]).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
