/** Results into PostgreSQL: a firing of new rows, and the same rows again, which rewrites none. */
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

/** Rows a second from the offer to committed. */
async function written({ context }: World, sink: PostgresSink, rows: Uint8Array): Promise<number> {
  let count = 0;
  const writer = new SinkWriter({
    sinks: [sink],
    clock: { wallNowMs: () => Date.now(), monotonicMs: () => performance.now() },
    log: context.log,
    sleep: (ms) => sleep(ms),
    onWritten: (more) => {
      count += more;
    },
  });
  const firing = new BenchFiring(minute(0), rows);
  const started = performance.now();
  writer.offer([firing]);
  await writer.flushed();
  const seconds = (performance.now() - started) / 1000;
  invariant(count === firing.rowsMax, 'every row is written');
  return count / seconds;
}

async function rowsIn({ pool }: Database): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(`SELECT count(*)::int8 AS n FROM ${TABLE}`);
  return Number(rows[0]?.n);
}

export async function postgresSink(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const rows = makeRows(context.smoke ? ROWS_SMOKE : ROWS, 0);
  const fresh: number[] = [];
  const again: number[] = [];
  for (let turn = 0; turn < Math.min(context.repeats, REPEATS_MAX); turn++) {
    context.drain.throwIfAborted();
    const database = await world.database();
    const sink = new PostgresSink(database.pool, TABLE);
    await sink.migrate();
    fresh.push(await written(world, sink, rows));
    again.push(await written(world, sink, rows));
    const held = await rowsIn(database);
    invariant(held === (context.smoke ? ROWS_SMOKE : ROWS), `${held} rows stand in the table`);
    await database.drop();
  }
  const rate = (what: string, values: readonly number[]): BenchResult =>
    result({
      metric: `results into PostgreSQL, ${what}`,
      unit: 'rows/s',
      better: 'more',
      ours: seriesOf(values),
    });
  return [rate('new rows', fresh), rate('unchanged rows', again)];
}
