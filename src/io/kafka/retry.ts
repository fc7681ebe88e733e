/** Questions that a broker does not answer yet: a partition that has just been made has a leader in the metadata before the
 *  leader knows of it. */
import { findMillraceError } from '../../core/errors.ts';

const RETRY_MS = 50;

/** Asks until the answer is no passing refusal, or the time is over. @throws what `ask` throws last */
export async function whilePassing<T>(timeoutMs: number, ask: (leftMs: number) => Promise<T>): Promise<T> {
  const endMs = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await ask(Math.max(1, Math.ceil(endMs - performance.now())));
    } catch (thrown) {
      const isPassing = findMillraceError(thrown)?.code === 'broker_unavailable';
      if (!isPassing || performance.now() + RETRY_MS >= endMs) throw thrown;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
