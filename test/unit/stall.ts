/** Stalls of this process under the fake timers of vitest. */
import { vi } from 'vitest';

/** Resumes the process as Node.js does after a stall of any length: a due timer runs once, and
 *  answers that arrived meanwhile are read only then. */
export function resumeAfterStall(): void {
  vi.advanceTimersToNextTimer();
}

/** Runs `work` while the test controls the intervals of this process. */
export async function withFakeIntervals(work: () => Promise<void>): Promise<void> {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  try {
    await work();
  } finally {
    vi.useRealTimers();
  }
}
