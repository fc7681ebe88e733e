/** `millrace bench orders`: durable POST /orders under an open model, with every answer and row
 *  checked.
 *
 *  Load, service, database and broker share the machine. Latency counts from the due time of a
 *  request. After each run the database must hold exactly one order, outbox row and key for every
 *  intent, and no deadlock may have occurred. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { slope } from './effects/load.ts';
import { loadUnderFaults } from './effects/orders-load.ts';
import { OrdersRun, type OrdersRunOptions, type SteadyRun } from './effects/orders-run.ts';
import { openParts, type Part } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { type Bench, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';
import { fdatasyncRate } from './registry-disk.ts';
import { machineFactor } from './unit.ts';

const RATE = 5000;
const GRPC_RATE = 2000;
const HOT_RATE = 1000;
const HOT_KEYS = 1000;
/** Bytes that a commit of a few orders writes to the log of the database. */
const COMMIT_BYTES = 8192;
const CEILING_STEPS = 5;
/** Length of a smoke run under faults: each process is killed once. */
const LOAD_SMOKE_S = 4;

interface Sizes {
  readonly rate: number;
  readonly grpcRate: number;
  readonly hotRate: number;
  readonly seconds: number;
  readonly warmupSeconds: number;
  /** Length of a closed-model run. */
  readonly closedSeconds: number;
}

function sizesOf({ context }: World): Sizes {
  const { smoke, durationMs, rate } = context;
  const seconds = (durationMs ?? (smoke ? 1000 : 60_000)) / 1000;
  return {
    rate: rate ?? (smoke ? 300 : RATE),
    grpcRate: smoke ? 100 : Math.min(rate ?? RATE, GRPC_RATE),
    hotRate: smoke ? 200 : HOT_RATE,
    seconds,
    // The rate is lower until the repeats of the first intents are due.
    warmupSeconds: smoke ? 0 : 5,
    closedSeconds: Math.min(seconds, 15),
  };
}

const ms = { unit: 'ms', better: 'less' } as const;
const us = { unit: 'us', better: 'less' } as const;
const persecond = { unit: 'requests/s', better: 'more' } as const;

/** Result rows of a series of steady runs: four latency quantiles run by run, and CPU per
 *  request. */
function rowsOf(
  what: string,
  rate: number,
  runs: readonly SteadyRun[],
  p99Goal: number,
  parts: readonly string[],
): BenchResult[] {
  const of = (pick: (run: SteadyRun) => number) => seriesOf(runs.map(pick));
  const quantile = (name: 'p50' | 'p99' | 'p999' | 'max') =>
    result({
      ...ms,
      metric: `${what}, ${name === 'p999' ? 'p99.9' : name}`,
      ours: of(({ report }) => report.latency_ms[name]),
      list: true,
      ...(name === 'p99' ? { goal: { valueAtMost: p99Goal } } : {}),
    });
  const rows = [
    // If the rate is not reached, requests queue, and the latency includes their wait.
    result({
      ...persecond,
      metric: `${what}, rate reached`,
      ours: of(({ report }) => report.per_second),
      list: true,
      goal: { valueAtLeast: 0.98 * rate },
    }),
    quantile('p50'),
    quantile('p99'),
    quantile('p999'),
    quantile('max'),
  ];
  for (const part of parts) {
    const series = of(({ cpuUs }) => cpuUs(part));
    if (Number.isNaN(series.median)) continue;
    rows.push(
      result({
        ...us,
        metric: `${what}, CPU of ${part} a request`,
        ours: series,
        list: true,
        ...(part === 'orders' ? { goal: { onReference: 60, factor: machineFactor() } } : {}),
      }),
    );
  }
  return rows;
}

async function steadyRuns(world: World, sizes: Sizes, options: OrdersRunOptions): Promise<SteadyRun[]> {
  const run = await OrdersRun.start(world, options);
  const runs: SteadyRun[] = [];
  for (let i = 0; i < world.context.repeats && !world.context.drain.aborted; i++) {
    world.context.say(`run ${i + 1} of ${world.context.repeats}`);
    runs.push(await run.steady(sizes));
  }
  await run.stop();
  return runs;
}

const label = (sizes: Sizes, preload: number): string =>
  `POST /orders at ${sizes.rate}/s${preload > 0 ? ` on ${preload} keys` : ''}`;

async function alone(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const preload = world.context.preload ?? 0;
  const runs = await steadyRuns(world, sizes, { preload });
  return rowsOf(`${label(sizes, preload)}, alone`, sizes.rate, runs, 15, ['orders', 'postgres']);
}

async function all(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const preload = world.context.preload ?? 0;
  const runs = await steadyRuns(world, sizes, { relayAndPayments: true, preload });
  const brokers = world.brokers.split(',').length;
  const what = `${label(sizes, preload)}, with relay and payments, ${brokers} broker${brokers === 1 ? '' : 's'}`;
  const of = (pick: (run: SteadyRun) => number | undefined) =>
    seriesOf(runs.map((run) => pick(run) as number));
  return [
    ...rowsOf(what, sizes.rate, runs, 25, ['orders', 'relay', 'payments', 'postgres', 'broker']),
    result({
      ...ms,
      metric: `${what}, commit to effect, p50`,
      ours: of(({ effect }) => effect?.p50),
      list: true,
    }),
    result({
      ...ms,
      metric: `${what}, commit to effect, p99`,
      ours: of(({ effect }) => effect?.p99),
      list: true,
      goal: { valueAtMost: 500 },
    }),
    result({
      metric: `${what}, growth of the relay's lag`,
      unit: 'rows/s',
      better: 'less',
      ours: of(({ lagSlope }) => lagSlope),
      list: true,
      goal: { valueAtMost: 0.01 * sizes.rate },
    }),
  ];
}

/** True if the service keeps up: due requests are answered and the backlog does not grow. */
async function keepsUp(run: OrdersRun, rate: number, sizes: Sizes): Promise<{ held: boolean; p99: number }> {
  const report = await run.send({ ...sizes, rate, connections: 512, giveUpSeconds: 10 });
  const waiting = report.backlog.slice(sizes.warmupSeconds);
  const held =
    report.per_second >= 0.985 * rate &&
    slope(waiting) <= 0.005 * rate &&
    (waiting.at(-1) ?? 0) <= 0.25 * rate;
  return { held, p99: report.latency_ms.p99 };
}

async function ceiling(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const run = await OrdersRun.start(world);
  const closed = await run.send({ rate: 0, seconds: sizes.closedSeconds, connections: 256 });
  let low = 0.3 * closed.per_second;
  let high = 1.2 * closed.per_second;
  let best = { rate: 0, p99: Number.NaN };
  const steps = world.context.smoke ? 1 : CEILING_STEPS;
  for (let step = 0; step < steps && !world.context.drain.aborted; step++) {
    const rate = Math.round((low + high) / 2);
    world.context.say(`trying ${rate}/s`);
    const { held, p99 } = await keepsUp(run, rate, sizes);
    if (held) {
      low = rate;
      best = { rate, p99 };
    } else high = rate;
  }
  await run.stop();
  const held = `held for ${sizes.seconds} s without a growing queue`;
  return [
    result({ ...persecond, metric: `highest rate ${held}`, ours: seriesOf([best.rate]) }),
    ...(best.rate > 0
      ? [result({ ...ms, metric: 'latency at that rate, p99', ours: seriesOf([best.p99]) })]
      : []),
    result({ ...persecond, metric: 'closed model, 256 connections', ours: seriesOf([closed.per_second]) }),
  ];
}

const PGBENCH = `
WITH made AS (SELECT gen_random_uuid() AS id, gen_random_uuid()::text AS key),
k AS (INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
  SELECT key, '\\x00'::bytea, id, 201, ('{"order_id":"' || id || '","status":"created"}')::json FROM made
  ON CONFLICT DO NOTHING RETURNING order_id),
o AS (INSERT INTO orders (order_id, account_id, amount_cents, status) SELECT order_id, 1, 1, 'created' FROM k)
INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
SELECT order_id, gen_random_uuid(), 'order.created', convert_to('{"order_id":"' || order_id || '"}', 'UTF8') FROM k;
`;

/** Runs the same statement from pgbench, without a service. Undefined if pgbench is not
 *  installed. */
async function pgbench(
  world: World,
  run: OrdersRun,
  seconds: number,
): Promise<(() => Promise<number>) | undefined> {
  const script = join(world.dir, 'order.sql');
  writeFileSync(script, PGBENCH.trim().replaceAll('\n', ' '));
  const exec = promisify(execFile);
  const flags = [
    '-n',
    '-M',
    'prepared',
    '-f',
    script,
    '-c',
    '32',
    '-j',
    '1',
    '-T',
    String(Math.ceil(seconds)),
  ];
  const found = await exec('pgbench', ['--version']).catch(() => undefined);
  if (found === undefined) {
    world.context.say('skipped: pgbench is not installed (Debian: postgresql-client and postgresql-contrib)');
    return undefined;
  }
  return async () => {
    const { stdout } = await exec('pgbench', [...flags, run.database.url]);
    return Number(/^tps = ([\d.]+)/m.exec(stdout)?.[1]);
  };
}

async function ratio(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const batched = await OrdersRun.start(world);
  const single = await OrdersRun.start(world, { flags: ['-batch=off', '-connections=32'] });
  const bare = await OrdersRun.start(world);
  const closed = { rate: 0, seconds: sizes.closedSeconds, connections: 256 };
  const cpu: Record<'ours' | 'off', number[]> = { ours: [], off: [] };
  const rate = (run: OrdersRun, side: 'ours' | 'off') => async (): Promise<number> => {
    const { report, cpuUs } = await run.steady(closed);
    cpu[side].push(cpuUs('orders'));
    return report.per_second;
  };
  const raw = await pgbench(world, bare, sizes.closedSeconds);
  const disk = join(world.dir, 'raw');
  const series = await takeTurns(
    {
      ours: rate(batched, 'ours'),
      off: rate(single, 'off'),
      fdatasync: () =>
        fdatasyncRate(disk, COMMIT_BYTES, 1000 * Math.min(3, sizes.closedSeconds), 'overwrite'),
      ...(raw === undefined ? {} : { pgbench: raw }),
    },
    world.context.repeats,
  );
  await batched.stop();
  await single.stop();
  await bare.orders.stop();
  await bare.database.drop();
  const row = {
    ...persecond,
    metric: 'POST /orders, closed model, 256 connections',
    ours: series.ours,
  } as const;
  const off = 'one transaction a request (-batch=off)';
  return [
    result({ ...row, against: { name: off, series: series.off }, goal: { ratioAtLeast: 4 } }),
    ...('pgbench' in series
      ? [
          result({
            ...row,
            against: {
              name: 'pgbench, one statement a transaction, 32 connections, no service',
              series: series['pgbench'] as typeof series.ours,
            },
          }),
        ]
      : []),
    result({
      ...row,
      against: { name: `write and fdatasync of ${COMMIT_BYTES} B`, series: series.fdatasync },
    }),
    result({
      ...us,
      metric: 'CPU of orders a request, closed model',
      ours: seriesOf(cpu.ours),
      against: { name: off, series: seriesOf(cpu.off) },
    }),
  ];
}

async function hot(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const rows: BenchResult[] = [];
  const run = await OrdersRun.start(world);
  for (const [pattern, what] of [
    ['zipf', `Zipf 1.1 over ${HOT_KEYS} keys`],
    ['single', 'one single key'],
  ] as const) {
    world.context.say(`hot keys: ${what}`);
    // Each run uses new keys, so that the first requests of a key race, too.
    const runs: SteadyRun[] = [];
    for (let i = 0; i < world.context.repeats; i++)
      runs.push(
        await run.steady({
          rate: sizes.hotRate,
          seconds: Math.min(sizes.seconds, 15),
          pattern,
          keys: HOT_KEYS,
        }),
      );
    rows.push(
      result({
        ...ms,
        metric: `${what} at ${sizes.hotRate}/s, no deadlock, no lost update, p99`,
        ours: seriesOf(runs.map(({ report }) => report.latency_ms.p99)),
        list: true,
      }),
    );
  }
  await run.stop();
  return rows;
}

async function grpc(world: World): Promise<BenchResult[]> {
  const sizes = sizesOf(world);
  const run = await OrdersRun.start(world);
  const load = { ...sizes, rate: sizes.grpcRate, protocol: 'grpc' } as const;
  const runs: SteadyRun[] = [];
  for (let i = 0; i < world.context.repeats; i++)
    if (!world.context.drain.aborted) runs.push(await run.steady(load, run.grpcAddress()));
  await run.stop();
  // The CPU goal applies only to HTTP.
  return rowsOf(`Orders.Create over gRPC at ${sizes.grpcRate}/s`, sizes.grpcRate, runs, 25, [
    'orders',
    'postgres',
  ]).map((row) => (row.unit === 'us' ? { ...row, goal: null, met: null } : row));
}

const load = (world: World): Promise<readonly BenchResult[]> => {
  const sizes = sizesOf(world);
  return loadUnderFaults(world, { ...sizes, seconds: world.context.smoke ? LOAD_SMOKE_S : sizes.seconds });
};

const PARTS: Readonly<Record<string, Part>> = { alone, all, ceiling, ratio, hot, grpc, load };

export const bench: Bench = {
  name: 'orders',
  takesBrokerProperties: true,
  summary:
    'POST /orders under an open model: alone, with relay and payments, and while they are killed; ceiling, hot keys, gRPC.',
  async run(context) {
    const [busy] = loadavg();
    return [
      result({
        metric: 'load of the machine before the run, average of a minute',
        unit: 'processes',
        better: 'less',
        ours: seriesOf([busy as number]),
      }),
      ...(await openParts(context, PARTS)),
    ];
  },
};
