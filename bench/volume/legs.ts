/** Legs of the volume bench. Each has a database and a topic of its own, is compared as a whole by
 *  `millrace reconcile`, and leaves nothing but its record. */
import { join } from 'node:path';
import { coreError, invariant } from '../../src/core/errors.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { ORDER_CREATED } from '../../src/outbox/orders/event.ts';
import { createTopic } from '../effects/arrivals.ts';
import { uuidV7Sql } from '../effects/backlog.ts';
import { OrdersRun } from '../effects/orders-run.ts';
import { chunks } from '../effects/preload.ts';
import { type Child, type Database, until, type World } from '../effects/world.ts';
import { type MadeBy, madeHere } from '../stored.ts';

/** Time that a pipeline may take for the rest of a leg. */
const CHARGED_MS_MAX = 7_200_000;
/** Time between two counts, which read whole tables. */
const COUNT_EVERY_MS = 2000;
/** Rows of a transaction: a stream of the log gets transactions that fit its memory. */
const TRANSACTION_ROWS = 10_000;
/** Ids of messages are spread over this time before the leg, as those of a backlog are. */
const SPAN_MS = 3_600_000;

export const PARTS = ['api', 'prepared'] as const;
export type PartName = (typeof PARTS)[number];

/** A finished leg; times in seconds. */
export interface Leg extends MadeBy {
  readonly part: PartName;
  /** Number of the leg in its part, and seed of its load: no two legs have a key in common. */
  readonly number: number;
  readonly relay: 'poll' | 'wal';
  readonly brokers: number;
  /** Keys in the table before the load. */
  readonly preloaded: number;
  /** HTTP requests, repeats included; 0 for rows that were prepared in SQL. */
  readonly requests: number;
  readonly loadSeconds: number;
  /** From the first order to the last charge. */
  readonly seconds: number;
  readonly reconcileSeconds: number;
  readonly orders: number;
  readonly charges: number;
  readonly deltas: number;
  readonly holds: boolean;
}

export interface LegPlan {
  readonly number: number;
  readonly rows: number;
  readonly preload: number;
  readonly loadSeconds: number;
  /** Requests per second; 0: as fast as 256 connections get answers. */
  readonly rate: number;
}

interface Verdict {
  readonly holds: boolean;
  readonly distinct_orders: number;
  readonly distinct_charges: number;
  readonly deltas: ReadonlyArray<{ readonly class: string; readonly count: number }>;
}

const relayOf = (number: number): Leg['relay'] => (number % 2 === 1 ? 'poll' : 'wal');
const secondsSince = (startedMs: number): number => (performance.now() - startedMs) / 1000;

async function reconciled(
  world: World,
  database: Database,
  flags: readonly string[],
): Promise<Pick<Leg, 'reconcileSeconds' | 'orders' | 'charges' | 'deltas' | 'holds'>> {
  world.context.say('reconciling');
  const startedMs = performance.now();
  const text = await world.run(
    'reconcile',
    ['reconcile', `-postgres=${database.url}`, '-settle=0', '-json', ...flags],
    [0, 1],
  );
  const found = JSON.parse(text) as Verdict;
  return {
    reconcileSeconds: secondsSince(startedMs),
    orders: found.distinct_orders,
    charges: found.distinct_charges,
    deltas: found.deltas.reduce((sum, { count }) => sum + count, 0),
    holds: found.holds,
  };
}

/** Waits until as many charges as orders exist. @throws unreachable where the bench has to end */
async function waitUntilCharged({ context }: World, { pool }: Database): Promise<void> {
  await until(
    'a charge for every order',
    CHARGED_MS_MAX,
    async () => {
      if (context.drain.aborted) throw coreError('unreachable', 'the leg was ended');
      const { rows } = await pool.query<{ readonly orders: bigint; readonly charges: bigint }>(
        'SELECT (SELECT count(*) FROM orders) AS orders, (SELECT count(*) FROM charges) AS charges',
      );
      const [row] = rows;
      context.say(`${row?.charges} of ${row?.orders} orders are charged`);
      return row !== undefined && row.charges >= row.orders;
    },
    COUNT_EVERY_MS,
  );
}

const common = (world: World, part: PartName, plan: LegPlan) => ({
  ...{ part, number: plan.number, ...madeHere() },
  ...{ relay: relayOf(plan.number), brokers: world.brokers.split(',').length },
});

/** Leg through the API: every key of the load is new to a table that holds the preloaded ones. */
export async function apiLeg(world: World, plan: LegPlan): Promise<Leg> {
  const { preload, loadSeconds, rate, number } = plan;
  const run = await OrdersRun.start(world, {
    ...{ relayAndPayments: true, preload, seed: number },
    relayFlags: [`-relay=${relayOf(number)}`],
  });
  // The preloaded keys have no orders; those of the load are younger.
  const { rows } = await run.database.pool.query<{ readonly at: string }>(
    `SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS at`,
  );
  const ledger = join(world.dir, `ledger-${number}`);
  const startedMs = performance.now();
  const report = await run.send({ rate, seconds: loadSeconds, connections: 256, ledger });
  const sentSeconds = secondsSince(startedMs);
  await waitUntilCharged(world, run.database);
  const seconds = secondsSince(startedMs);
  const verdict = await reconciled(world, run.database, [`-from=${rows[0]?.at}`, `-ledger=${ledger}`]);
  invariant(verdict.orders >= report.acknowledged_intents, 'each acknowledged intent has an order');
  await run.stop();
  return {
    ...{ ...common(world, 'api', plan), preloaded: preload, requests: report.replies },
    ...{ loadSeconds: sentSeconds, seconds, ...verdict },
  };
}

/** Orders, keys and outbox rows as the service writes them. */
async function prepareRows({ pool }: Database, count: number): Promise<void> {
  const toMs = Date.now();
  const id = uuidV7Sql(count, toMs - SPAN_MS, toMs);
  const payload = `convert_to(json_build_object('order_id', id, 'account_id', (n % 1000000)::text,
    'amount_cents', (n % 1000 + 1)::text, 'status', 'created', 'created_at', now())::text, 'UTF8')`;
  await chunks(
    count,
    (from, to) =>
      pool.query(
        `WITH made AS MATERIALIZED (
           SELECT n, gen_random_uuid() AS id FROM generate_series($1::bigint, $2::bigint) AS n),
         o AS (INSERT INTO orders (order_id, account_id, amount_cents, status)
           SELECT id, n % 1000000, n % 1000 + 1, 'created' FROM made),
         k AS (INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
           SELECT 'key-' || n, '\\x00', id, 201, json_build_object('order_id', id) FROM made)
         INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
         SELECT id, ${id}, '${ORDER_CREATED}', ${payload} FROM made`,
        [from, to],
      ),
    TRANSACTION_ROWS,
  );
}

async function stopAll(children: readonly Child[]): Promise<void> {
  for (const child of children) await child.stop();
}

async function deleteTopic({ brokers, properties }: World, topic: string): Promise<void> {
  const admin = await nodeRdkafkaDriver.admin({ brokers, clientId: 'bench', properties });
  await admin.deleteTopics([topic]).finally(() => admin.close());
}

/** Leg of rows that are prepared in SQL, while relay and payments run. */
export async function preparedLeg(world: World, plan: LegPlan): Promise<Leg> {
  const { rows: count, number } = plan;
  const database = await world.database();
  const topic = world.topic();
  await createTopic(world, topic);
  const start = (name: string, flags: readonly string[]): Promise<Child> =>
    world.start(name, [name, `-postgres=${database.url}`, '-migrate', '-listen=127.0.0.1:0', ...flags]);
  const orders = await start('orders', []);
  await orders.stop();
  const shared = [`-brokers=${world.brokers}`, `-topic=${topic}`];
  const relay = await start('relay', [...shared, `-relay=${relayOf(number)}`]);
  const payments = await start('payments', [...shared, `-group=${topic}`]);
  const startedMs = performance.now();
  world.context.say(`preparing ${count} rows`);
  await prepareRows(database, count);
  const loadSeconds = secondsSince(startedMs);
  await waitUntilCharged(world, database);
  const seconds = secondsSince(startedMs);
  const verdict = await reconciled(world, database, []);
  await stopAll([relay, payments]);
  await database.drop();
  await deleteTopic(world, topic);
  return { ...common(world, 'prepared', plan), preloaded: 0, requests: 0, loadSeconds, seconds, ...verdict };
}
