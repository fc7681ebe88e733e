/** Moves generated batches from a source to a sink, at a fixed rate or as fast as the sink accepts
 *  them.
 *  The rate is an open model: row n is due at start + n / rate, whether or not earlier rows were
 *  sent. A slow sink does not delay the schedule; `lagMs` reports how late the pump is, and the
 *  pump catches up. Invariants: (1) A batch is not touched between the start and the end of its
 *  write. (2) Writes start in row order. (3) After `signal` no batch is filled, and writes in
 *  flight are awaited. */
import type { Clock } from '../core/clock.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';

export interface BatchSource {
  /** Replaces the content of the batch with the next rows, at most `most`; 0 at the end. */
  fill(into: RecordBatch, most: number): number;
}

export interface BatchSink {
  /** Resolves when the batch may be filled again. */
  write(batch: RecordBatch): Promise<void>;
}

export interface PumpOptions {
  readonly source: BatchSource;
  readonly sink: BatchSink;
  /** Batches that are filled in turn; several may be in flight at the sink. */
  readonly batches: readonly RecordBatch[];
  /** Rows per second; 0: as fast as the sink accepts them. */
  readonly rate: number;
  readonly clock: Clock;
  readonly sleep: (ms: number) => Promise<void>;
  readonly signal: AbortSignal;
  /** Called after each write. */
  readonly onWritten: (rows: number) => void;
  /** Called with the time in ms by which the pump is late; not called without a rate. */
  readonly onLag?: (lagMs: number) => void;
}

/** Shortest sleep in ms. Timers are not finer, so rows that become due within it are sent together.
 */
const TICK_MS = 1;

/** Runs the pump and returns the number of rows moved. @throws the error of the sink, after the
 *  writes in flight have settled */
export async function pump(options: PumpOptions): Promise<number> {
  const { source, sink, batches, rate, clock, signal } = options;
  const startMs = clock.monotonicMs();
  const inFlight: Array<Promise<void> | undefined> = batches.map(() => undefined);
  let failure: { readonly thrown: unknown } | undefined;
  let rows = 0;
  for (let turn = 0; !signal.aborted && failure === undefined; turn = (turn + 1) % batches.length) {
    await inFlight[turn];
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
    inFlight[turn] = sink.write(batch).then(
      () => options.onWritten(filled),
      (thrown: unknown) => {
        failure ??= { thrown };
      },
    );
  }
  await Promise.all(inFlight);
  if (failure !== undefined) throw failure.thrown;
  return rows;
}
