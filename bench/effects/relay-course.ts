/** Measurements of every side: draining a backlog, and following a steady load.
 *
 *  Latency is the time at which the broker appended a record minus the time at which PostgreSQL
 *  committed its order. Arrival latency is the same to the arrival at a consumer here. Neither
 *  needs the help of the side. Every row must be in the topic at the end.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError, invariant } from '../../src/core/errors.ts';
import { unixWake } from '../../src/io/wake/unix.ts';
import { Arrivals, createTopic, quantile } from './arrivals.ts';
import { cpuSeconds } from './cpu.ts';
import type { RelaySide, RunningSide } from './relay-side.ts';
import { type Database, until, type World } from './world.ts';

/** Rows of a transaction, as the requirements specify for wal mode. */
const FILL_ROWS = 50;
const STEADY_ROWS = 10;
const WRITERS = 4;
const POLL_MS = 20;
/** Time without progress after which a side is stopped. */
const STALLED_MS = 60_000;

export interface DrainResult {
  readonly rows: number;
  /** Rate by the broker's clock, from the first append to the last. */
  readonly perSecond: number;
  /** CPU seconds per million rows, from the first append on. */
  readonly cpu: { readonly relay: number; readonly postgres: number; readonly broker: number };
}

export interface SteadyResult {
  readonly perSecond: number;
  readonly commitToAppendMs: { readonly p50: number; readonly p99: number };
  readonly commitToConsumerMs: { readonly p50: number; readonly p99: number; readonly max: number };
  readonly cpuUs: { readonly relay: number; readonly postgres: number; readonly broker: number };
  /** Records beyond the first of each row. */
  readonly duplicates: number;
}

class Meter {
  private readonly running: RunningSide;
  private readonly meter: ReturnType<World['meter']>;
  private readonly first: number;

  constructor(world: World, running: RunningSide) {
    this.running = running;
    this.first = this.relay();
    this.meter = world.meter([]);
  }

  private relay(): number {
    return this.running.pids.reduce((sum, pid) => sum + cpuSeconds(pid, true), 0);
  }

  per(rows: number, scale: number): { relay: number; postgres: number; broker: number } {
    const per = (seconds: number): number => (seconds / rows) * scale;
    return {
      relay: per(this.relay() - this.first),
      postgres: per(this.meter.seconds('postgres')),
      broker: per(this.meter.seconds('broker')),
    };
  }
}

/** Holds the xmin horizon of the whole server with an open transaction, if requested. */
async function horizon(world: World, database: Database): Promise<() => Promise<void>> {
  if (world.context.heldXmin !== true) return async () => {};
  let release: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let assigned: () => void = () => {};
  const isAssigned = new Promise<void>((resolve) => {
    assigned = resolve;
  });
  const open = database.pool.transaction(async (tx) => {
    await tx.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
    await tx.query('SELECT pg_current_xact_id()');
    assigned();
    await held;
  });
  await isAssigned;
  return async () => {
    release();
    await open;
  };
}

async function fill(database: Database, side: RelaySide, rows: number): Promise<void> {
  const loop = (count: number, n: number): string =>
    `DO $fill$ BEGIN PERFORM set_config('synchronous_commit', 'off', false);
     FOR i IN 1..${count} LOOP ${side.insert(String(n))}; COMMIT; END LOOP;
     PERFORM set_config('synchronous_commit', 'on', false); END $fill$`;
  await database.pool.query(loop(Math.floor(rows / FILL_ROWS), FILL_ROWS));
  if (rows % FILL_ROWS > 0) await database.pool.query(loop(1, rows % FILL_ROWS));
  await database.pool.query('CHECKPOINT');
}

/** Waits until every row of the database is in the topic. @throws timeout when no row arrives */
async function waitUntilPublished(seen: Arrivals, rows: number): Promise<void> {
  let last = -1;
  let since = performance.now();
  while (seen.first.size < rows) {
    if (seen.rows !== last) {
      last = seen.rows;
      since = performance.now();
    }
    if (performance.now() - since > STALLED_MS)
      throw coreError(
        'timeout',
        `${seen.first.size} of ${rows} rows arrived, then none for ${STALLED_MS / 1000} s`,
      );
    await sleep(POLL_MS);
  }
}

async function orderIds(database: Database): Promise<ReadonlyMap<string, number>> {
  const { rows } = await database.pool.query<{ readonly id: string; readonly ms: number }>(
    `SELECT order_id::text AS id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::float8 AS ms FROM orders`,
  );
  return new Map(rows.map(({ id, ms }) => [id, Number(ms)]));
}

/** Checks that the topic has the database's rows and no others. */
function requireSame(side: RelaySide, seen: Arrivals, ids: ReadonlyMap<string, number>): void {
  let unmatched = 0;
  for (const key of seen.first.keys()) if (!ids.has(key)) unmatched++;
  invariant(
    unmatched === 0 && seen.first.size === ids.size,
    `${side.name}: ${ids.size} rows, ${seen.first.size} in the topic, ${unmatched} of them without a row`,
  );
}

async function requireMarked(side: RelaySide, database: Database): Promise<void> {
  if (side.pending === undefined) return;
  await until('every row to be marked', STALLED_MS, async () => (await side.pending?.(database)) === 0);
}

/** Resources that a measurement opened. They are closed in reverse order, also after a failure,
 *  because a peer that continued would use the processors of the next side. */
class Opened {
  private readonly closes: Array<() => Promise<void>> = [];

  add(close: () => Promise<void>): void {
    this.closes.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.closes.splice(0).reverse()) await close();
  }

  /** Runs `work` and closes its resources. @throws the error of `work`; errors of the closing after
   *  that are ignored */
  static async within<T>(work: (opened: Opened) => Promise<T>): Promise<T> {
    const opened = new Opened();
    let value: T;
    try {
      value = await work(opened);
    } catch (thrown) {
      for (const close of opened.closes.splice(0).reverse()) await close().catch(() => {});
      throw thrown;
    }
    await opened.close();
    return value;
  }
}

/** Drains a backlog of `rows`, committed `FILL_ROWS` per transaction; measured from the first
 *  append to the last. */
export function drain(world: World, side: RelaySide, rows: number): Promise<DrainResult> {
  return Opened.within(async (opened) => {
    const database = await world.database();
    opened.add(() => database.drop());
    const topic = world.topic();
    await createTopic(world, topic);
    await side.prepare(database, topic);
    const count = Math.min(rows, side.rowsMax);
    world.context.say(`${side.name}: filling ${count} rows`);
    await fill(database, side, count);
    opened.add(await horizon(world, database));
    world.context.say(`${side.name}: draining`);
    const probe = await Arrivals.open(world, topic);
    opened.add(() => probe.close());
    const running = await side.start(database, topic);
    opened.add(() => running.stop());
    await until('the first record', STALLED_MS, async () => (await probe.appended()) > 0, POLL_MS);
    const meter = new Meter(world, running);
    const before = await probe.appended();
    await waitUntilPublished(probe, count);
    const cpu = meter.per(Math.max(1, count - before), 1e6);
    await requireMarked(side, database);
    requireSame(side, probe, await orderIds(database));
    let first = Number.POSITIVE_INFINITY;
    let last = 0;
    for (const { appendedMs } of probe.first.values()) {
      first = Math.min(first, appendedMs);
      last = Math.max(last, appendedMs);
    }
    return { rows: count, perSecond: (count * 1000) / Math.max(1, last - first), cpu };
  });
}

/** Writes rows at a fixed rate, `STEADY_ROWS` per transaction, and wakes relays as the orders
 *  service does. */
async function write(database: Database, side: RelaySide, rate: number, seconds: number): Promise<number> {
  const { rows } = await database.pool.query<{ readonly schema: string }>(
    'SELECT current_schema()::text AS schema',
  );
  const waker = await unixWake.waker({
    systemIdentifier: await database.pool.systemIdentifier(),
    database: database.name,
    table: `${rows[0]?.schema}.outbox`,
  });
  const text = side.insert('$1::int');
  const everyMs = (1000 * STEADY_ROWS) / rate;
  const count = Math.floor((seconds * 1000) / everyMs);
  const started = performance.now();
  let next = 0;
  const writer = async (): Promise<void> => {
    for (;;) {
      const at = next++;
      if (at >= count) return;
      const wait = started + at * everyMs - performance.now();
      if (wait > 0) await sleep(wait);
      await database.pool.query(text, [STEADY_ROWS]);
      waker.wake();
    }
  };
  await Promise.all(Array.from({ length: WRITERS }, writer));
  const perSecond = (count * STEADY_ROWS * 1000) / (performance.now() - started);
  await waker.close();
  return perSecond;
}

/** Measures a steady load over a running side; the first seconds are not counted. */
export function steady(
  world: World,
  side: RelaySide,
  options: { readonly rate: number; readonly seconds: number; readonly warmupSeconds: number },
): Promise<SteadyResult> {
  const { rate, seconds, warmupSeconds } = options;
  return Opened.within(async (opened) => {
    const database = await world.database();
    opened.add(() => database.drop());
    const topic = world.topic();
    await createTopic(world, topic);
    await side.prepare(database, topic);
    const seen = await Arrivals.open(world, topic);
    opened.add(() => seen.close());
    opened.add(await horizon(world, database));
    const running = await side.start(database, topic);
    opened.add(() => running.stop());
    await write(database, side, Math.min(rate, 500), warmupSeconds);
    await waitUntilPublished(seen, (await orderIds(database)).size);
    const meter = new Meter(world, running);
    const fromMs = Date.now();
    const before = seen.first.size;
    const perSecond = await write(database, side, rate, seconds);
    const ids = await orderIds(database);
    await waitUntilPublished(seen, ids.size);
    const cpuUs = meter.per(ids.size - before, 1e6);
    await requireMarked(side, database);
    requireSame(side, seen, ids);
    const append: number[] = [];
    const arrive: number[] = [];
    for (const [id, ms] of ids) {
      if (ms < fromMs) continue;
      const { appendedMs, arrivedMs } = seen.first.get(id) as { appendedMs: number; arrivedMs: number };
      append.push(appendedMs - ms);
      arrive.push(arrivedMs - ms);
    }
    return {
      perSecond,
      commitToAppendMs: { p50: quantile(append, 0.5), p99: quantile(append, 0.99) },
      commitToConsumerMs: {
        p50: quantile(arrive, 0.5),
        p99: quantile(arrive, 0.99),
        max: quantile(arrive, 1),
      },
      cpuUs,
      duplicates: seen.rows - seen.first.size,
    };
  });
}
