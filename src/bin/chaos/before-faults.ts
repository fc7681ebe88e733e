/** Start of a run until its first fault: an end of a process is then an error of the set-up. */
import type { UnplannedEnd } from '../../chaos/verdict.ts';
import { coreError } from '../../core/errors.ts';
import type { ChaosContext as Context } from './settings.ts';

/** Time limit until the first fault, in ms. */
export const START_MS_MAX = 600_000;
const WATCH_MS = 200;

export interface EarlyEnds {
  readonly ends: readonly UnplannedEnd[];
  /** True for an end that is an error of the set-up. */
  readonly isError: (end: UnplannedEnd) => boolean;
  /** Folder with the logs. */
  readonly dir: string;
}

/** Runs a step, which ends early when a process ends by an error.
 *  @throws unreachable, timeout */
export async function beforeFaults(
  { clock, drain }: Context,
  { ends, isError, dir }: EarlyEnds,
  step: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const stop = (): void => over.abort();
  drain.addEventListener('abort', stop, { once: true });
  const cancels = [
    clock.after(START_MS_MAX, stop),
    clock.every(WATCH_MS, () => {
      if (ends.some(isError)) stop();
    }),
  ];
  try {
    await step(over.signal);
  } catch (thrown) {
    const early = ends.find(isError);
    if (early === undefined || drain.aborted) throw thrown;
    const { service, code, signal, logPath } = early;
    throw coreError(
      'unreachable',
      `${service} ended with ${signal ?? `code ${code}`} before the first fault`,
      {
        next: `see ${logPath}, and the other logs in ${dir}`,
        cause: thrown,
      },
    );
  } finally {
    for (const cancel of cancels) cancel();
    drain.removeEventListener('abort', stop);
  }
}
