/** Contract of every driver of the clock. */
import { expect, test, vi } from 'vitest';
import { sleep, type Timers, within } from '../../src/core/clock.ts';

/** @param pass lets time pass until the promise settles */
export function clockContract(
  make: () => { clock: Timers; pass: <T>(work: Promise<T>) => Promise<T> },
): void {
  test('a timer calls once, at its time or later, by monotonic time', async () => {
    const { clock, pass } = make();
    const startMs = clock.monotonicMs();
    const calls: number[] = [];
    await pass(
      new Promise<void>((resolve) => {
        clock.after(5, () => calls.push(clock.monotonicMs() - startMs));
        clock.after(40, resolve);
      }),
    );
    expect(calls).toHaveLength(1);
    // Real timers round down by less than a millisecond.
    expect(calls[0]).toBeGreaterThanOrEqual(4);
  });

  test('a cancelled timer never calls, and cancelling twice does no harm', async () => {
    const { clock, pass } = make();
    const run = vi.fn();
    const cancel = clock.after(1, run);
    cancel();
    cancel();
    await pass(sleep(clock, 20));
    expect(run).not.toHaveBeenCalled();
  });

  test('an interval calls again until it is cancelled', async () => {
    const { clock, pass } = make();
    let calls = 0;
    await pass(
      new Promise<void>((resolve) => {
        const cancel = clock.every(2, () => {
          if (++calls < 3) return;
          cancel();
          resolve();
        });
      }),
    );
    await pass(sleep(clock, 10));
    expect(calls).toBe(3);
  });

  test('a sleep ends early when its signal is aborted', async () => {
    const { clock, pass } = make();
    const stop = new AbortController();
    clock.after(1, () => stop.abort());
    await pass(sleep(clock, 3_600_000, stop.signal));
    await pass(sleep(clock, 3_600_000, stop.signal));
    expect(stop.signal.aborted).toBe(true);
  });

  test('work that is late is abandoned, and work in time propagates its error', async () => {
    const { clock, pass } = make();
    expect(await pass(within(clock, 1, sleep(clock, 30)))).toBe(false);
    expect(await pass(within(clock, 3_600_000, sleep(clock, 1)))).toBe(true);
    await expect(pass(within(clock, 3_600_000, Promise.reject(new Error('refused'))))).rejects.toThrow(
      'refused',
    );
  });
}
