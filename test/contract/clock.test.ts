/** Contract of the real and the simulated clock, and the additional functions of the simulated
 *  clock. */
import { describe, expect, test, vi } from 'vitest';
import { randomUuid, sleep } from '../../src/core/clock.ts';
import { systemClock, systemRandom } from '../../src/io/clock/system.ts';
import { SeededRandom, VirtualClock } from '../../src/sim/clock.ts';
import { ProcessClock } from '../../src/sim/process-clock.ts';
import { clockContract } from './clock.contract.ts';

describe('system clock', () => {
  clockContract(() => ({ clock: systemClock, pass: (work) => work }));

  const DAY_MS = 24 * 3_600_000;
  test('a timer and an interval of 30 days call at their time, not earlier', () => {
    vi.useFakeTimers();
    try {
      const seen: string[] = [];
      systemClock.after(30 * DAY_MS, () => seen.push('timer'));
      const cancel = systemClock.every(30 * DAY_MS, () => seen.push('interval'));
      vi.advanceTimersByTime(30 * DAY_MS - 1);
      expect(seen).toEqual([]);
      vi.advanceTimersByTime(30 * DAY_MS + 1);
      expect(seen).toEqual(['timer', 'interval', 'interval']);
      cancel();
      vi.advanceTimersByTime(60 * DAY_MS);
      expect(seen).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a timer of 30 days can be cancelled after 29 days', () => {
    vi.useFakeTimers();
    try {
      const cancel = systemClock.after(30 * DAY_MS, () => expect.unreachable());
      vi.advanceTimersByTime(29 * DAY_MS);
      cancel();
      vi.advanceTimersByTime(2 * DAY_MS);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('virtual time', () => {
  clockContract(() => {
    const clock = new VirtualClock();
    return { clock, pass: (work) => clock.run(work) };
  });

  test('timers run in order of time, then of setting, each at its own time', async () => {
    const clock = new VirtualClock(0);
    const seen: string[] = [];
    for (const [name, ms] of [
      ['late', 20],
      ['early', 10],
      ['also early', 10],
    ] as const)
      clock.after(ms, () => seen.push(`${name} at ${clock.wallNowMs()}`));
    await clock.advance(15);
    expect(seen).toEqual(['early at 10', 'also early at 10']);
    await clock.advance(100);
    expect(seen.at(-1)).toBe('late at 20');
    expect(clock.monotonicMs()).toBe(115);
  });

  test('promises that a timer resolved run before the next timer', async () => {
    const clock = new VirtualClock();
    const seen: string[] = [];
    const worker = async (): Promise<void> => {
      await sleep(clock, 10);
      await new Promise((resolve) => setImmediate(resolve));
      seen.push('worker');
    };
    void worker();
    clock.after(11, () => seen.push('timer'));
    await clock.advance(11);
    expect(seen).toEqual(['worker', 'timer']);
  });

  test('a stall runs the timers late, and an interval once for all calls that it missed', async () => {
    const clock = new VirtualClock(0);
    const seen: number[] = [];
    clock.every(10, () => seen.push(clock.monotonicMs()));
    await clock.stall(95);
    expect(seen).toEqual([95]);
    await clock.advance(10);
    expect(seen).toEqual([95, 105]);
  });

  test('a jump moves the wall clock and no timer', async () => {
    const clock = new VirtualClock(1000);
    let called = false;
    clock.after(10, () => {
      called = true;
    });
    clock.jump(-500);
    await clock.advance(9);
    expect([clock.wallNowMs(), called]).toEqual([509, false]);
  });

  test('a wait for a state fails with the state and the last value when no timer is left', async () => {
    const clock = new VirtualClock();
    await expect(clock.until('a leader', () => false)).rejects.toThrow(
      'a leader did not come about: no timer is set; last answer: false',
    );
  });
});

describe('the clock of a simulated process', () => {
  clockContract(() => {
    const world = new VirtualClock();
    return { clock: new ProcessClock(world), pass: (work) => world.run(work) };
  });

  test('a stopped process runs its timers late and in order, while other processes run theirs in time', async () => {
    const world = new VirtualClock(0);
    const [stopped, other] = [new ProcessClock(world), new ProcessClock(world)];
    const seen: string[] = [];
    for (const [name, clock] of [
      ['stopped', stopped],
      ['other', other],
    ] as const)
      for (const ms of [10, 20]) clock.after(ms, () => seen.push(`${name} ${ms} at ${world.wallNowMs()}`));
    stopped.stop();
    await world.advance(100);
    stopped.continue();
    await world.advance(10);
    expect(seen).toEqual(['other 10 at 10', 'other 20 at 20', 'stopped 10 at 101', 'stopped 20 at 101']);
  });

  test('a timer that is cancelled while the process is stopped never calls', async () => {
    const world = new VirtualClock();
    const clock = new ProcessClock(world);
    let called = false;
    const cancel = clock.after(10, () => {
      called = true;
    });
    clock.stop();
    await world.advance(50);
    cancel();
    clock.continue();
    await world.advance(50);
    expect(called).toBe(false);
  });

  test('a killed process runs no timer, and a jump moves its wall clock alone', async () => {
    const world = new VirtualClock(1000);
    const [killed, other] = [new ProcessClock(world), new ProcessClock(world)];
    let called = false;
    killed.after(10, () => {
      called = true;
    });
    killed.jump(500);
    expect([killed.wallNowMs(), other.wallNowMs()]).toEqual([1500, 1000]);
    killed.kill();
    await world.advance(50);
    expect(called).toBe(false);
  });
});

test('a seed repeats its randomness, and fractions lie in [0, 1)', () => {
  const [a, b] = [new SeededRandom(7), new SeededRandom(7)];
  const drawn = Array.from({ length: 1000 }, () => a.fraction());
  expect(drawn).toEqual(Array.from({ length: 1000 }, () => b.fraction()));
  expect(Math.min(...drawn, systemRandom.fraction())).toBeGreaterThanOrEqual(0);
  expect(Math.max(...drawn, systemRandom.fraction())).toBeLessThan(1);
  const bytes = new Uint8Array(64);
  systemRandom.fill(bytes);
  expect(new Set(bytes).size).toBeGreaterThan(8);
});

test('random UUIDs are of version 4 and in lower case', () => {
  const fill = (into: Uint8Array): void => void into.fill(0xff);
  expect(randomUuid({ fraction: () => 0, fill })).toBe('ffffffff-ffff-4fff-bfff-ffffffffffff');
});
