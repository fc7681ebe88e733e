/** Runs the engines of all windows of a process to their ends. */

/** Runs every window at the same time. If one fails, the others stop with a checkpoint.
 *  @throws the error of the window that failed first */
export async function runAll<W extends { readonly leave: () => Promise<void> }, R>(
  windows: readonly W[],
  failure: AbortController,
  run: (window: W) => Promise<R>,
): Promise<readonly R[]> {
  const failed: { first?: { readonly thrown: unknown } } = {};
  const runs = windows.map(async (window) => {
    try {
      return await run(window);
    } catch (thrown) {
      failed.first ??= { thrown };
      failure.abort();
      throw thrown;
    } finally {
      await window.leave();
    }
  });
  await Promise.allSettled(runs);
  if (failed.first !== undefined) throw failed.first.thrown;
  return Promise.all(runs);
}
