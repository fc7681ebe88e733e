/** `millrace bench reconcile`: a complete comparison of orders and payments against the anti-joins
 *  that SQL needs for it, and the CPU of a watch for each order.
 *
 *  The tables are filled in SQL, as if orders had come at a steady rate. Each run must find that
 *  the invariant holds for every order; one order is then made to differ, and each side must find
 *  it.
 */
import { invariant } from '../src/core/errors.ts';
import type { SqlPool } from '../src/io/postgres/sql/port.ts';
import { migrate } from '../src/outbox/database/migrations.ts';
import { inboxNames } from '../src/outbox/inbox/names.ts';
import { makePartitions } from '../src/outbox/inbox/retention/partitions.ts';
import { reconcile } from '../src/outbox/reconcile/run.ts';
import { migrationsOf } from '../src/shell/migrations.ts';
import { uuidV7Sql } from './effects/backlog.ts';
import { cpuSeconds } from './effects/cpu.ts';
import { openParts } from './effects/parts.ts';
import { chunks } from './effects/preload.ts';
import { type Child, type Database, metric, until, type World } from './effects/world.ts';
import { type Bench, type BenchResult, type ResultOptions, result, seriesOf } from './harness.ts';
import { machineFactor } from './unit.ts';

const ORDERS = 10_000_000;
const WATCHED_ORDERS = 1_000_000;
const SMOKE_ORDERS = 20_000;
/** Rate at which the orders seem to have come. */
const RATE = 5000;
const HOUR_MS = 3_600_000;
const PASS_MS_MAX = 1_800_000;
/** Goal of a complete comparison of ORDERS on the reference machine. */
const COMPARED_S_MAX = 60;
/** 5 % of a core at RATE. */
const WATCH_US_MAX = (0.05 * 1e6) / RATE;

const ordersOf = (world: World, full: number): number =>
  world.context.rows ?? (world.context.smoke ? SMOKE_ORDERS : full);

/** A database in which every order was charged once. */
async function filled(world: World, count: number): Promise<Database> {
  const database = await world.database();
  const { pool } = database;
  await migrate(pool, 'public', 'orders', migrationsOf('orders'));
  await migrate(pool, 'public', 'payments', migrationsOf('payments'));
  const toMs = Date.now() - 60_000;
  const fromMs = toMs - (count / RATE) * 1000;
  await makePartitions(pool, inboxNames('inbox'), {
    fromMs: Math.floor(fromMs / HOUR_MS) * HOUR_MS,
    toMs: toMs + HOUR_MS,
    widthMs: HOUR_MS,
  });
  world.context.say(`inserting ${count} orders`);
  const id = uuidV7Sql(count, fromMs, toMs);
  const at = `to_timestamp((${fromMs} + (${toMs - fromMs}::float8 * n) / ${count}) / 1000)`;
  await chunks(count, (from, to) =>
    pool.transaction(async (tx) => {
      await tx.query('SET LOCAL synchronous_commit = off');
      const insert = (text: string): Promise<unknown> =>
        tx.query(`${text} FROM generate_series($1::bigint - 1, $2::bigint - 1) AS n`, [from, to]);
      await insert(`INSERT INTO orders SELECT ${id}, n, n % 1000 + 1, 'created', ${at}`);
      await insert(
        `INSERT INTO idempotency_keys SELECT 'key-' || n, '\\x00', ${id}, 201, ('{"order_id":"' || ${id} || '"}')::json, ${at}`,
      );
      await insert(
        `INSERT INTO outbox (id, aggregate_id, msg_id, event_type, payload, published_at, created_at)
         SELECT n + 1, ${id}, ${id}, 'order.created.v1', convert_to('{"amount_cents":' || n % 1000 + 1 || '}', 'UTF8'), ${at}, ${at}`,
      );
      await insert(`INSERT INTO inbox SELECT ${id}, ${at} + interval '300 milliseconds'`);
      await insert(
        `INSERT INTO charges SELECT gen_random_uuid(), ${id}, n % 1000 + 1, ${at} + interval '300 milliseconds'`,
      );
    }),
  );
  await pool.query(`SELECT setval('outbox_id_seq', ${count})`);
  await pool.query('VACUUM ANALYZE orders, idempotency_keys, outbox, inbox, charges');
  await pool.query('CHECKPOINT');
  return database;
}

/** Queries that a careful engineer writes by hand: both directions of each pair of sets. */
const ANTI_JOINS = [
  'FROM orders o WHERE NOT EXISTS (SELECT FROM charges c WHERE c.order_id = o.order_id AND c.amount_cents = o.amount_cents)',
  'FROM charges c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.order_id = c.order_id)',
  'FROM outbox x WHERE NOT EXISTS (SELECT FROM inbox i WHERE i.msg_id = x.msg_id)',
  'FROM inbox i WHERE NOT EXISTS (SELECT FROM outbox x WHERE x.msg_id = i.msg_id)',
  'FROM orders o WHERE NOT EXISTS (SELECT FROM outbox x WHERE x.aggregate_id = o.order_id)',
  'FROM outbox x WHERE NOT EXISTS (SELECT FROM orders o WHERE o.order_id = x.aggregate_id)',
  'FROM idempotency_keys k WHERE NOT EXISTS (SELECT FROM orders o WHERE o.order_id = k.order_id)',
  'FROM orders o WHERE NOT EXISTS (SELECT FROM idempotency_keys k WHERE k.order_id = o.order_id)',
];

/** Runs the anti-joins with the settings of the reconciler. @returns rows without a counterpart */
async function antiJoins(pool: SqlPool): Promise<number> {
  return pool.transaction(async (tx) => {
    await tx.query("SET LOCAL work_mem = '256MB'; SET LOCAL enable_nestloop = off");
    let found = 0;
    for (const query of ANTI_JOINS) {
      const { rows } = await tx.query<{ n: bigint }>(`SELECT count(*) AS n ${query}`);
      found += Number(rows[0]?.n);
    }
    return found;
  });
}

async function seconds(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
}

interface Document {
  readonly holds: boolean;
  readonly distinct_orders: number;
  readonly distinct_charges: number;
  readonly deltas: readonly unknown[];
}

async function complete(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const factor = machineFactor();
  const count = ordersOf(world, ORDERS);
  const database = await filled(world, count);
  const ours = async (more: readonly string[] = []): Promise<void> => {
    const flags = [`-postgres=${database.url}`, '-settle=0', '-json', ...more];
    const found = JSON.parse(await world.run('reconcile', ['reconcile', ...flags])) as Document;
    invariant(
      found.holds && found.distinct_orders === count && found.distinct_charges === count,
      `${found.distinct_charges} charges of ${found.distinct_orders} orders, ${found.deltas.length} deltas`,
    );
  };
  const sides: Readonly<Record<string, () => Promise<unknown>>> = {
    one: () => ours(),
    two: () => ours([`-inbox-postgres=${database.url}`]),
    sql: async () => invariant((await antiJoins(database.pool)) === 0, 'the anti-joins find nothing'),
  };
  const times: Record<string, number[]> = {};
  for (let i = 0; i < context.repeats && !context.drain.aborted; i++)
    for (const [name, work] of Object.entries(sides)) {
      context.say(`comparing ${count} orders: ${name}`);
      times[name] = [...(times[name] ?? []), await seconds(work)];
    }
  await requireFound(database);
  await database.drop();
  const against = { name: 'eight anti-joins in SQL', series: seriesOf(times['sql'] ?? []) };
  const row = (where: string, name: string, goal?: ResultOptions['goal']): BenchResult =>
    result({
      metric: `complete comparison of ${count} orders in ${where}`,
      unit: 's',
      better: 'less',
      ours: seriesOf(times[name] ?? []),
      list: true,
      against,
      ...(goal === undefined ? {} : { goal }),
    });
  // The goal is that of ORDERS; a smaller run has its share of it.
  const onReference = COMPARED_S_MAX * (count / ORDERS);
  return [
    row('one database', 'one', { onReference, factor }),
    row('two connections as of two databases', 'two'),
  ];
}

/** A fast side must not win by finding nothing. */
async function requireFound({ pool }: Database): Promise<void> {
  await pool.query(
    'UPDATE charges SET amount_cents = 0 WHERE order_id = (SELECT order_id FROM charges ORDER BY order_id LIMIT 1)',
  );
  invariant((await antiJoins(pool)) === 1, 'the anti-joins find the order that differs');
  for (const more of [{}, { paymentsPool: pool }]) {
    const schemas = { ordersSchema: 'public', paymentsSchema: 'public' };
    const { deltas } = await reconcile({ pool, ...more, ...schemas, ledgers: [], idsMax: 1 });
    invariant(
      deltas.length === 1 && deltas[0]?.class === 'charge_amount_differs' && deltas[0].count === 1,
      `reconcile finds the order that differs: ${JSON.stringify(deltas)}`,
    );
  }
}

/** CPU seconds of the backends that serve the watch. */
async function backendSeconds(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE application_name = 'millrace reconcile' AND datname = current_database()`,
  );
  return rows.reduce((sum, { pid }) => sum + cpuSeconds(pid), 0);
}

async function passed(watch: Child): Promise<boolean> {
  const text = await (await fetch(`http://${watch.address}/metrics`)).text();
  const times = [...text.matchAll(/^reconcile_last_complete_pass_timestamp_seconds\{.*\} (\S+)$/gm)];
  return times.length === 3 && times.every(([, at]) => Number(at) > 0);
}

async function watched(world: World): Promise<readonly BenchResult[]> {
  const { context } = world;
  const factor = machineFactor();
  const count = ordersOf(world, WATCHED_ORDERS);
  const database = await filled(world, count);
  const cpu = { watch: [] as number[], backends: [] as number[] };
  for (let i = 0; i < context.repeats && !context.drain.aborted; i++) {
    const watch = await world.start('reconcile', [
      'reconcile',
      '-watch',
      `-postgres=${database.url}`,
      '-pass-share=100',
      '-listen=127.0.0.1:0',
    ]);
    await until('a complete pass of each pair', PASS_MS_MAX, () => passed(watch), 50);
    // All CPU time since the start of the processes counts: the passes begin before they are ready.
    const us = (seconds: number): number => (seconds / count) * 1e6;
    cpu.watch.push(us(cpuSeconds(watch.process.pid)));
    cpu.backends.push(us(await backendSeconds(database.pool)));
    const rows = (await metric(watch, 'reconcile_rows_total')) ?? 0;
    const differing = await metric(watch, 'reconcile_differing_buckets');
    invariant(differing === 0, `no bucket differs: ${differing}`);
    // Six sides; buckets at the edges of the pass may be compared twice or not yet.
    invariant(rows > 5.5 * count, `every order was compared: ${rows} rows of ${count} orders`);
    await watch.stop();
  }
  await database.drop();
  const sum = cpu.watch.map((us, n) => us + (cpu.backends[n] as number));
  const row = (what: string, values: readonly number[], goal?: ResultOptions['goal']): BenchResult =>
    result({
      metric: `watch of ${count} orders, CPU an order, ${what}`,
      unit: 'us',
      better: 'less',
      ours: seriesOf(values),
      list: true,
      ...(goal === undefined ? {} : { goal }),
    });
  return [
    row('reconciler', cpu.watch),
    row('PostgreSQL, its backends', cpu.backends),
    row('together', sum, { onReference: WATCH_US_MAX, factor }),
  ];
}

export const bench: Bench = {
  name: 'reconcile',
  summary: 'A complete comparison of orders and payments against anti-joins in SQL, and the CPU of a watch.',
  run: (context) => openParts(context, { complete, watch: watched }),
};
