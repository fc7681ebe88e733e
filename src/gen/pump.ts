/** Moves generated batches from a source to a sink at a fixed rate, or as fast as the sink takes
 *  them.
 *
 *  The rate is an open model: row n is due at start + n / rate, whether or not the rows before it
 *  have left. A sink that falls behind does not move the schedule; `lagMs` says how far behind it
 *  is, and the pump catches up. Invariants: (1) a batch is not touched between its write and the
 *  end of that write; (2) writes start in row order; (3) after `signal` no further batch is filled,
 *  and what is under way is waited for.
 */
import type { Clock } from '../core/clock.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';

export interface BatchSource {
  /** Replaces the content of the batch by the next rows, at most `most`; 0 at the end. */
  fill(into: RecordBatch, most: number): number;
}

export interface BatchSink {
  /** Settles when the batch may be filled again. */
  write(batch: RecordBatch): Promise<void>;
}

export interface PumpOptions {
  readonly source: BatchSource;
  readonly sink: BatchSink;
  /** Each may be under way at the sink while another is filled. */
  readonly batches: readonly RecordBatch[];
  /** Rows a second; 0 is as fast as the sink takes them. */
  readonly rate: number;
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly signal: AbortSignal;
  /** After each write. */
  readonly onWritten: (rows: number) => void;
  /** How far behind its schedule the pump is, ms; 0 without a rate. */
  readonly onLag?: (lagMs: number) => void;
}

/** Sleeping is coarser than this, so the pump rather sends what became due in between together. */
const TICK_MS = 1;

/** Rows moved. @throws what the sink throws, after the writes under way have settled */
export async function pump(options: PumpOptions): Promise<number> {
  const { source, sink, batches, rate, clock, signal } = options;
  const startMs = clock.monotonicMs();
  const underWay: Array<Promise<void> | undefined> = batches.map(() => undefined);
  let failure: { readonly thrown: unknown } | undefined;
  let rows = 0;
  for (let turn = 0; !signal.aborted && failure === undefined; turn = (turn + 1) % batches.length) {
    await underWay[turn];
    if (signal.aborted || failure !== undefined) break;
    let most = Number.POSITIVE_INFINITY;
    if (rate > 0) {
      let due = 0;
      for (;;) {
        due = Math.floor(((clock.monotonicMs() - startMs) / 1000) * rate) + 1 - rows;
        if (due > 0 || signal.aborted) break;
        await options.sleep(Math.max(TICK_MS, startMs + (rows / rate) * 1000 - clock.monotonicMs()));
      }
      if (signal.aborted) break;
      options.onLag?.(Math.max(0, ((due - 1) / rate) * 1000));
      most = due;
    }
    const batch = batches[turn] as RecordBatch;
    const filled = source.fill(batch, most);
    if (filled === 0) break;
    rows += filled;
    underWay[turn] = sink.write(batch).then(
      () => options.onWritten(filled),
      (thrown: unknown) => {
        failure ??= { thrown };
      },
    );
  }
  await Promise.all(underWay);
  if (failure !== undefined) throw failure.thrown;
  return rows;
}
