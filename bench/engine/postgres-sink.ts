/** Writes results to PostgreSQL: a firing of new rows, then the same rows again, which updates
 *  none. */
import { setTimeout as sleep } from 'node:timers/promises';
import { invariant } from '../../src/core/errors.ts';
import { PostgresSink } from '../../src/engine/output/sink/postgres.ts';
import { SinkWriter } from '../../src/engine/output/sink/writer.ts';
import type { Database, World } from '../effects/world.ts';
import { type BenchResult, result, seriesOf } from '../harness.ts';
import { BenchFiring, makeRows, minute } from './firings.ts';

const ROWS = 500_000;
const ROWS_SMOKE = 5000;
const REPEATS_MAX = 3;
const TABLE = 'window_results';

/** Rows per second, from the offer until committed. */
async function writeRate({ context }: World, sink: PostgresSink, rows: Uint8Array): Promise<number> {
  let count = 0;
  const writer = new SinkWriter({
    sinks: [sink],
    clock: { wallNowMs: () => Date.now(), monotonicMs: () => performance.now() },
    log: context.log,
    sleep: (ms) => sleep(ms),
    onWritten: (batchRows) => {
      count += batchRows;
    },
  });
  const firing = new BenchFiring(minute(0), rows);
  const started = performance.now();
  writer.offer([firing]);
  await writer.flushed();
  const seconds = (performance.now() - started) / 1000;
  invariant(count === firing.rowsMax, 'every row must be written');
  return count / seconds;
}

async function rowsIn({ pool }: Database): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(`SELECT count(*)::int8 AS n FROM ${TABLE}`);
  return Number(rows[0]?.n);
}

export async function postgresSink(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const rows = makeRows(context.smoke ? ROWS_SMOKE : ROWS, 0);
  const newRates: number[] = [];
  const unchangedRates: number[] = [];
  for (let turn = 0; turn < Math.min(context.repeats, REPEATS_MAX); turn++) {
    context.drain.throwIfAborted();
    const database = await world.database();
    const sink = new PostgresSink(database.pool, TABLE);
    await sink.migrate();
    newRates.push(await writeRate(world, sink, rows));
    unchangedRates.push(await writeRate(world, sink, rows));
    const stored = await rowsIn(database);
    invariant(stored === (context.smoke ? ROWS_SMOKE : ROWS), `the table has ${stored} rows`);
    await database.drop();
  }
  const rate = (label: string, values: readonly number[]): BenchResult =>
    result({
      metric: `results into PostgreSQL, ${label}`,
      unit: 'rows/s',
      better: 'more',
      ours: seriesOf(values),
    });
  return [rate('new rows', newRates), rate('unchanged rows', unchangedRates)];
}
