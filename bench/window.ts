/** The window operator on decoded events, beside the obvious program: a Map of objects a window, BigInt arithmetic.
 *
 *  Both take the same batches in the same order and must agree on every result.
 */
import { coreError } from '../src/core/errors.ts';
import { EventBatch } from '../src/core/layout/event-batch.ts';
import { RecordBatch } from '../src/core/layout/record-batch.ts';
import { PartitionWatermarks } from '../src/core/watermark.ts';
import { AccumulatorRows, type FiredWindow } from '../src/engine/accumulator.ts';
import { columnsOf, type EventColumns } from '../src/engine/columns.ts';
import { WindowOperator } from '../src/engine/operator.ts';
import { MemState } from '../src/engine/state/mem.ts';
import { TumblingWindows } from '../src/engine/windows.ts';
import { type Bench, type BenchContext, type BenchResult, result, takeTurns } from './harness.ts';
import { Oracle } from './peers/oracle/windows.ts';

const PARTITIONS = 4;
const BATCH_ROWS = 16_384;
const SIZE_MS = 10_000;
const SKEW_MS = 5_000;
const LATENESS_MS = 10_000;
/** Runs before the clock is looked at, so that both sides are compiled. */
const WARM_RUNS = 3;
const BASE_MS = 1_750_000_000_000;

interface Input {
  readonly records: RecordBatch;
  readonly events: EventBatch;
  readonly columns: EventColumns;
}

/** Events whose keys crowd at the low end, a little out of order; a few windows fire on the way. */
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
    const columns = columnsOf(records, events);
    columns.rowCount = Math.min(BATCH_ROWS, count - at);
    for (let row = 0; row < columns.rowCount; row++) {
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
    made.push({ records, events, columns });
  }
  return made;
}

/** Sums over all results: equal answers have equal sums, whatever the order. */
function digestOf(windows: readonly FiredWindow[], dropped: number): string {
  let rows = 0;
  let count = 0n;
  let sum = 0n;
  for (const window of windows) {
    const view = new AccumulatorRows(window.rows, window.rowCount);
    rows += window.rowCount;
    for (let row = 0; row < window.rowCount; row++) {
      count += view.count(row);
      sum += view.sum(row) * (view.accountId(row) + BigInt(window.windowStart));
    }
  }
  return `${rows} ${count} ${sum} ${dropped}`;
}

function runOperator(batches: readonly Input[]): { readonly seconds: number; readonly digest: string } {
  const operator = new WindowOperator({
    watermarks: new PartitionWatermarks(PARTITIONS, SKEW_MS, LATENESS_MS),
    assigner: new TumblingWindows(SIZE_MS),
    state: new MemState(1, SIZE_MS),
    rowCapacity: BATCH_ROWS,
  });
  const fired: FiredWindow[] = [];
  const from = process.hrtime.bigint();
  for (const { columns } of batches) fired.push(...operator.step(columns));
  fired.push(...operator.drain());
  const seconds = Number(process.hrtime.bigint() - from) / 1e9;
  return { seconds, digest: digestOf(fired, operator.totals().droppedLate) };
}

function runObvious(batches: readonly Input[]): { readonly seconds: number; readonly digest: string } {
  const oracle = new Oracle(
    { sizeMs: BigInt(SIZE_MS), skewMs: BigInt(SKEW_MS), latenessMs: BigInt(LATENESS_MS) },
    PARTITIONS,
  );
  const from = process.hrtime.bigint();
  for (const { records, events, columns } of batches) {
    const { accountId, value, eventTs } = events.columns;
    for (let row = 0; row < columns.rowCount; row++) {
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
  let count = 0n;
  let sum = 0n;
  for (const row of rows) {
    count += row.count;
    sum += row.sum * (row.accountId + row.windowStart);
  }
  return {
    seconds,
    digest: `${rows.length} ${count} ${sum} ${oracle.droppedLate.reduce((a, b) => a + b, 0n)}`,
  };
}

async function compare(context: BenchContext, accounts: number, count: number): Promise<BenchResult> {
  const batches = inputs(count, accounts);
  const expected = runObvious(batches).digest;
  context.say(`window, ${accounts} accounts: answer ${expected}`);
  for (let warm = 0; warm < WARM_RUNS; warm++) runOperator(batches);
  const timed = (run: typeof runOperator) => (): number => {
    const { seconds, digest } = run(batches);
    if (digest !== expected)
      throw coreError('internal', `the answers differ: ${digest} instead of ${expected}`);
    return (seconds * 1e9) / count;
  };
  const { ours, obvious } = await takeTurns(
    { ours: timed(runOperator), obvious: timed(runObvious) },
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
