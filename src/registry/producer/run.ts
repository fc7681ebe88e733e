/** Runs several producer instances on one schedule: a free instance sends the next values. */
import { sleep, type Timers } from '../../core/clock.ts';
import type { FramedProducer } from './instance.ts';

export interface ProducerRun {
  readonly instances: readonly FramedProducer[];
  /** Values number `from` to `from + count - 1`. */
  readonly source: (from: number, count: number) => readonly unknown[];
  /** Number of values; 0: until the drain. */
  readonly count: number;
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

/** @returns the number of values sent and acknowledged @throws not_delivered, value_refused */
export async function runProducers(run: ProducerRun): Promise<number> {
  const { count, rate, clock, drain } = run;
  const rows = rowsAt(rate, run.batchRows);
  const startMs = clock.monotonicMs();
  let next = 0;
  let failed = false;
  const loop = async (instance: FramedProducer): Promise<void> => {
    try {
      while (!drain.aborted && !failed && (count === 0 || next < count)) {
        const from = next;
        const size = count === 0 ? rows : Math.min(rows, count - from);
        next += size;
        if (rate > 0) {
          const waitMs = startMs + (from / rate) * 1000 - clock.monotonicMs();
          if (waitMs > 0) await sleep(clock, waitMs);
        }
        await instance.send(run.source(from, size));
        run.onSent(size);
      }
      await instance.finish();
    } catch (thrown) {
      failed = true;
      throw thrown;
    }
  };
  const outcomes = await Promise.allSettled(run.instances.map(loop));
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  return next;
}
