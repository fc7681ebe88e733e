/** The window operator on decoded events, including reading its firings, against a straightforward
 *  program: a Map of objects for each window, with BigInt arithmetic.
 *
 *  Both process the same batches in the same order and must agree on every result. */

import { chooseNative } from '../src/addon/load.ts';
import type { WindowKernels } from '../src/addon/window-surface.ts';
import { loadWindowKernels } from '../src/addon/windows.ts';
import { coreError } from '../src/core/errors.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import { type Job, stateOf, watermarksOf } from '../src/engine/job.ts';
import { ResultRows } from '../src/engine/output/sink/rows.ts';
import { ROW_BYTES } from '../src/engine/window/accumulator.ts';
import type { Firing } from '../src/engine/window/firing.ts';
import { UNLOGGED, WindowOperator } from '../src/engine/window/operator.ts';
import { type Bench, type BenchContext, type BenchResult, result, takeTurns } from './harness.ts';
import { Oracle } from './peers/oracle/windows.ts';

const PARTITIONS = 4;
const BATCH_ROWS = 16_384;
const SIZE_MS = 10_000;
const SKEW_MS = 5_000;
const LATENESS_MS = 10_000;
const JOB: Job = {
  topic: 'events',
  window: 'tumbling',
  sizeMs: SIZE_MS,
  skewMs: SKEW_MS,
  latenessMs: LATENESS_MS,
  watermark: 'partition',
};
/** Rows read from a firing in one call. */
const PAGE_ROWS = 4096;
/** Untimed runs, so that both sides are compiled. */
const WARM_RUNS = 3;
const BASE_MS = 1_750_000_000_000;

interface Input {
  readonly records: RecordBatch;
  readonly events: EventBatch;
}

/** Events with keys skewed to low values, slightly out of order; a few windows fire before the
 *  end. */
function inputs(count: number, accounts: number): readonly Input[] {
  let word = 0x2545f491;
  const draw = (): number => {
    word ^= word << 13;
    word ^= word >>> 17;
    word ^= word << 5;
    return (word >>> 0) / 2 ** 32;
  };
  const next = new Array<number>(PARTITIONS).fill(0);
  const made: Input[] = [];
  for (let at = 0; at < count; at += BATCH_ROWS) {
    const records = RecordBatch.create(BATCH_ROWS, 64);
    const events = EventBatch.create(BATCH_ROWS);
    const rows = Math.min(BATCH_ROWS, count - at);
    for (let row = 0; row < rows; row++) {
      const partition = Math.floor(draw() * PARTITIONS);
      const offset = next[partition] as number;
      next[partition] = offset + 1;
      records.columns.partition[row] = partition;
      records.columns.offset[row] = BigInt(offset);
      events.columns.accountId[row] = BigInt(Math.floor(accounts ** draw()));
      events.columns.value[row] = BigInt(Math.floor(draw() * 1e6) - 10_000);
      events.columns.eventTs[row] = BigInt(
        BASE_MS + Math.floor((at + row) / 20) - Math.floor(draw() * 20_000),
      );
    }
    records.rowCount = rows;
    events.rowCount = rows;
    made.push({ records, events });
  }
  return made;
}

/** Sums over all results: equal answers have equal sums in any order. */
class Digest {
  private rows = 0;
  private count = 0n;
  private sum = 0n;

  add(count: bigint, sum: bigint, accountId: bigint, windowStart: bigint): void {
    this.rows++;
    this.count += count;
    this.sum += sum * (accountId + windowStart);
  }

  text(dropped: number | bigint): string {
    return `${this.rows} ${this.count} ${this.sum} ${dropped}`;
  }
}

interface Run {
  readonly seconds: number;
  readonly digest: string;
}

/** Times the steps, the firings and the reading of their rows; the digest of the rows is not
 *  timed. */
async function runOperator(kernels: WindowKernels, batches: readonly Input[]): Promise<Run> {
  const watermarks = watermarksOf(JOB, kernels, PARTITIONS);
  const state = stateOf(JOB, kernels, 1);
  const operator = new WindowOperator({ watermarks, state, journal: UNLOGGED, rowCapacity: BATCH_ROWS });
  const pages: Array<{ readonly firing: Firing; readonly rows: Uint8Array; readonly rowCount: number }> = [];
  const read = async (firings: readonly Firing[]): Promise<void> => {
    for (const firing of firings) {
      for (;;) {
        const rows = new Uint8Array(Math.min(PAGE_ROWS, firing.rowsMax) * ROW_BYTES);
        const rowCount = await firing.read(rows);
        if (rowCount === 0) break;
        pages.push({ firing, rows, rowCount });
      }
      firing.close();
    }
  };
  const from = process.hrtime.bigint();
  for (const { records, events } of batches) await read(operator.step(records, events, 0));
  await read(operator.drain(0));
  const seconds = Number(process.hrtime.bigint() - from) / 1e9;
  state.close();
  const digest = new Digest();
  for (const { firing, rows, rowCount } of pages) {
    const results = new ResultRows({ bounds: firing.bounds, rows, rowCount });
    for (let row = 0; row < rowCount; row++) {
      const [id, start] = [results.accountId(row), BigInt(results.windowStart(row))];
      digest.add(results.count(row), results.sum(row), id, start);
    }
  }
  return { seconds, digest: digest.text(watermarks.totals().droppedLate) };
}

function runObvious(batches: readonly Input[]): Run {
  const oracle = new Oracle(
    { sizeMs: BigInt(SIZE_MS), skewMs: BigInt(SKEW_MS), latenessMs: BigInt(LATENESS_MS) },
    PARTITIONS,
  );
  const from = process.hrtime.bigint();
  for (const { records, events } of batches) {
    const { accountId, value, eventTs } = events.columns;
    for (let row = 0; row < records.rowCount; row++) {
      oracle.event(
        records.columns.partition[row] as number,
        accountId[row] as bigint,
        value[row] as bigint,
        eventTs[row] as bigint,
      );
    }
  }
  const rows = [...oracle.rows()];
  const seconds = Number(process.hrtime.bigint() - from) / 1e9;
  const digest = new Digest();
  for (const row of rows) digest.add(row.count, row.sum, row.accountId, row.windowStart);
  return { seconds, digest: digest.text(oracle.droppedLate.reduce((a, b) => a + b, 0n)) };
}

async function compare(context: BenchContext, accounts: number, count: number): Promise<BenchResult> {
  const batches = inputs(count, accounts);
  const expected = runObvious(batches).digest;
  context.say(`window, ${accounts} accounts: answer ${expected}`);
  const kernels = loadWindowKernels(chooseNative(context.settings.native).mode);
  for (let warm = 0; warm < WARM_RUNS; warm++) await runOperator(kernels, batches);
  const timed = (run: (batches: readonly Input[]) => Run | Promise<Run>) => async (): Promise<number> => {
    const { seconds, digest } = await run(batches);
    if (digest !== expected)
      throw coreError('internal', `the answers differ: ${digest} instead of ${expected}`);
    return (seconds * 1e9) / count;
  };
  const { ours, obvious } = await takeTurns(
    { ours: timed((input) => runOperator(kernels, input)), obvious: timed(runObvious) },
    context.repeats,
  );
  return result({
    metric: `window step with firing, ${accounts} accounts`,
    unit: 'ns/event',
    ours,
    against: { name: 'Map of objects, BigInt', series: obvious },
    better: 'less',
    goal: { ratioAtLeast: 2 },
  });
}

export const bench: Bench = {
  name: 'window',
  summary: 'The window operator on decoded events, against a Map of objects with BigInt arithmetic.',
  async run(context) {
    const count = context.smoke ? 50_000 : 1_000_000;
    const results: BenchResult[] = [];
    for (const accounts of context.smoke ? [1_000] : [1_000, 1_000_000]) {
      if (!context.drain.aborted) results.push(await compare(context, accounts, count));
    }
    return results;
  },
};
