/** Waiting that a drain ends. */

/** Resolves after `ms`, or as soon as the signal is aborted. */
export function sleepUntil(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted || ms <= 0) return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done, { once: true });
  });
}
