/** Retries of requests that a broker cannot answer yet: the metadata name the leader of a new
 *  partition before that leader knows the partition. */
import { findMillraceError } from '../../core/errors.ts';

const RETRY_MS = 50;

/** Repeats `ask` until it succeeds, fails for a reason other than broker_unavailable, or the time
 *  is over. @throws the last error of `ask` */
export async function retryTransient<T>(timeoutMs: number, ask: (leftMs: number) => Promise<T>): Promise<T> {
  const endMs = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await ask(Math.max(1, Math.ceil(endMs - performance.now())));
    } catch (thrown) {
      const isTransient = findMillraceError(thrown)?.code === 'broker_unavailable';
      if (!isTransient || performance.now() + RETRY_MS >= endMs) throw thrown;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
