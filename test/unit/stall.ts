/** Stalls of this process under the fake timers of vitest. */
import { vi } from 'vitest';

/** Resumes the process as Node.js does after a stall of any length: a timer that has fallen due
 *  runs once, and what others answered meanwhile is read only then. */
export function resumeAfterStall(): void {
  vi.advanceTimersToNextTimer();
}

/** Runs `work` while the test moves the intervals of this process. */
export async function withFakeIntervals(work: () => Promise<void>): Promise<void> {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  try {
    await work();
  } finally {
    vi.useRealTimers();
  }
}
