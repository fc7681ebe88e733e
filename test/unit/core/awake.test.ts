/** Time limits that stand still while the process does. */
import { describe, expect, test, vi } from 'vitest';
import { afterAwake } from '../../../src/core/awake.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function stall(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

describe('a limit for what others say', () => {
  test('is over once, after its time', () => {
    vi.useFakeTimers();
    try {
      const over = vi.fn();
      afterAwake(globalThis, 1000, over);
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

  test('is never over when it was called off', () => {
    vi.useFakeTimers();
    try {
      const over = vi.fn();
      const off = afterAwake(globalThis, 1000, over);
      vi.advanceTimersByTime(900);
      off();
      vi.advanceTimersByTime(10_000);
      expect(over).not.toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });

  test('leaves time to read what came while the process stood still', async () => {
    const over = vi.fn();
    const started = performance.now();
    const ended = new Promise<void>((resolve) => {
      afterAwake(globalThis, 400, () => {
        over();
        resolve();
      });
    });
    const keepsAlive = setTimeout(() => {}, 60_000);
    stall(1200);
    await turn();
    await turn();
    expect(over).not.toHaveBeenCalled();
    await ended;
    clearTimeout(keepsAlive);
    expect(performance.now() - started).toBeGreaterThan(1200 + 250);
  });
});
