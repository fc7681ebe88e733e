/** Waits for the registry: while it does not answer, no record is judged. */
import { sleep, type Timers } from '../../core/clock.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Counter } from '../../core/metrics.ts';
import { isRegistryAway } from '../../serde/client.ts';
import type { RecordDecoder } from './decoder.ts';

const REGISTRY_RETRY_MS = 100;
const REGISTRY_RETRY_MS_MAX = 5000;

/** Loads the schemas of the batch, and waits for the registry without a limit. For a reader that
 *  is no member of a group: it need not poll meanwhile.
 *  @param waits counts the pauses
 *  @returns false: the drain came first */
export async function whenRegistryAnswers(
  decoder: RecordDecoder,
  records: RecordBatch,
  {
    clock,
    drain,
    log,
    waits,
  }: {
    readonly clock: Timers;
    readonly drain: AbortSignal;
    readonly log: Logger;
    readonly waits: Counter;
  },
): Promise<boolean> {
  let delayMs = REGISTRY_RETRY_MS;
  let isWaiting = false;
  for (;;) {
    try {
      await decoder.prepare(records);
      if (isWaiting) log.info({}, 'the registry answers again');
      return true;
    } catch (thrown) {
      if (!isRegistryAway(thrown)) throw thrown;
      if (!isWaiting) {
        waits.add();
        log.warn({ error: (thrown as Error).message }, 'the registry does not answer; paused until it does');
      }
      isWaiting = true;
      if (drain.aborted) return false;
      await sleep(clock, delayMs, drain);
      delayMs = Math.min(delayMs * 2, REGISTRY_RETRY_MS_MAX);
    }
  }
}
