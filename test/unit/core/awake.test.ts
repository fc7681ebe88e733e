/** Timeouts that exclude the time during which this process was suspended. */
import { describe, expect, test, vi } from 'vitest';
import { afterAwake } from '../../../src/core/awake.ts';
import { systemClock } from '../../../src/io/clock/system.ts';
import { turn, until } from '../../wait.ts';
import { resumeAfterStall } from '../stall.ts';

/** Blocks this thread, so that no timer runs and no data is read. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe('limit for answers', () => {
  test('a limit expires once, after its time', () => {
    vi.useFakeTimers();
    try {
      const over = vi.fn();
      afterAwake(systemClock, 1000, over);
      vi.advanceTimersByTime(999);
      expect(over).not.toHaveBeenCalled();
      vi.advanceTimersByTime(1);
      expect(over).toHaveBeenCalledTimes(1);
      vi.advanceTimersByTime(10_000);
      expect(over).toHaveBeenCalledTimes(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a cancelled limit never expires', () => {
    vi.useFakeTimers();
    try {
      const over = vi.fn();
      const off = afterAwake(systemClock, 1000, over);
      vi.advanceTimersByTime(900);
      off();
      vi.advanceTimersByTime(10_000);
      expect(over).not.toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });

  test('a limit leaves time to read data that arrived while the process was stopped for longer than the limit', async () => {
    const over = vi.fn();
    afterAwake(systemClock, 400, over);
    stall(1200);
    await turn();
    await turn();
    // The timer runs at most once per turn, and the timeout has four of its steps.
    expect(over).not.toHaveBeenCalled();
    await until('the end of the limit', () => over.mock.calls.length > 0);
    expect(over).toHaveBeenCalledTimes(1);
  });

  test('a limit counts a stall of any length as one of its four steps', () => {
    vi.useFakeTimers();
    try {
      const over = vi.fn();
      afterAwake(systemClock, 1000, over);
      resumeAfterStall();
      vi.advanceTimersByTime(749);
      expect(over).not.toHaveBeenCalled();
      vi.advanceTimersByTime(1);
      expect(over).toHaveBeenCalledTimes(1);
    } finally {
      vi.useRealTimers();
    }
  });
});
