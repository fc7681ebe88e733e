/** Runs several producer instances on one schedule: a free instance sends the next values. */
import { sleep, type Timers } from '../../core/clock.ts';
import type { FramedProducer } from './instance.ts';
import type { Sequence } from './sequence.ts';

export interface ProducerRun {
  readonly instances: readonly FramedProducer[];
  /** Values number `from` to `from + count - 1`. */
  readonly source: (from: number, count: number) => readonly unknown[];
  /** Numbers of the values; without an end it runs until the drain. */
  readonly sequence: Sequence;
  /** Monotonic time at which value 0 is due. */
  readonly startMs: number;
  /** Values a second over all instances; 0: as fast as the broker accepts them. */
  readonly rate: number;
  readonly batchRows: number;
  readonly clock: Timers;
  readonly drain: AbortSignal;
  readonly onSent: (rows: number) => void;
}

/** Rows of a batch: at most a tenth of a second's worth of the rate, so that a slow rate is smooth.
 */
function rowsAt(rate: number, batchRows: number): number {
  return rate === 0 ? batchRows : Math.max(1, Math.min(batchRows, Math.ceil(rate / 10)));
}

/** @returns the number of values that these instances sent, all acknowledged @throws not_delivered,
 *  value_refused */
export async function runProducers(run: ProducerRun): Promise<number> {
  const { sequence, rate, startMs, clock, drain } = run;
  const rows = rowsAt(rate, run.batchRows);
  let sent = 0;
  let failed = false;
  const loop = async (instance: FramedProducer): Promise<void> => {
    try {
      while (!drain.aborted && !failed) {
        const claim = sequence.claim(rows);
        if (claim === undefined) break;
        const { from, count } = claim;
        if (rate > 0) {
          const waitMs = startMs + (from / rate) * 1000 - clock.monotonicMs();
          if (waitMs > 0) await sleep(clock, waitMs);
        }
        await instance.send(run.source(from, count));
        sent += count;
        run.onSent(count);
      }
      await instance.finish();
    } catch (thrown) {
      failed = true;
      throw thrown;
    }
  };
  const outcomes = await Promise.allSettled(run.instances.map(loop));
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  return sent;
}
