/** The effects slice: orders over HTTP with repeats, then outbox, Kafka and payments; the relay is
 *  killed during the load.
 *
 *  The relay dies twice: first at its own crash point between the broker's acknowledgement and the
 *  mark, so that rows are published again; then by an external SIGKILL while rows are pending. A
 *  separate writer appends further events for a few orders, each in its own transaction, so that
 *  order per key is observable. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import { environmentName } from '../../core/settings.ts';
import type { SqlPool, SqlValue } from '../../io/postgres/sql/port.ts';
import { ready } from '../../shell/children/ready.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { succeed } from '../ended.ts';
import type { DemoEnvironment, DemoService, Slice, SliceContext } from '../fact.ts';
import { connect, type EffectsRun, judgeEffects, type RelayKill } from './judge.ts';

const REQUESTS_PER_SECOND = 400;
/** Bound of requests in flight. Requests that a slow machine has not answered are ordered after the
 *  load's end and would shift the kills towards its beginning. */
const IN_FLIGHT_MAX = 200;
const RETRY_RATE = 0.15;
/** Duration of the load at scale 1, in s. The load runs longer on a slow machine, so that the kills
 *  happen in its middle. */
const LOAD_S = 15;
const LOAD_S_MIN = 4;
const LOAD_S_MAX = 120;
/** Bound of intents, as a multiple of the expected intents. A load that catches up with its
 *  schedule sends more, which would shift the first kill towards its beginning. */
const INTENTS_MAX = 3;
const DUPLICATE_RATE = 0.05;
const PARTITIONS = 4;
/** Fractions of the expected intents at which the relay dies: first at its crash point, then by
 *  SIGKILL. */
const CRASH_AT = 0.35;
const KILL_AT = 0.65;
/** Largest fraction of all orders that may exist at the last kill. */
const KILLED_BY = 0.8;
/** Poll interval of the relay that crashes: long enough that its last batch has several rows. */
const CRASH_POLL_MS = 150;
/** Rows that must be pending at the external kill. */
const PENDING_LEAST = 10;
/** Time between the kill and the restart of the relay. */
const OUTAGE_MS = 300;
/** Orders that get further events, how often each gets an event, and from which fraction of the
 *  expected intents on. These rows count towards the crash, too. If orders came slowly, they alone
 *  would trigger it before the middle. */
const FOLLOWED_ORDERS = 20;
const FOLLOW_AT = 0.25;
const FOLLOW_EVERY_MS = 200;
const POLL_MS = 20;
const MOMENT_MS = 60_000;
/** Quiet time that ends the drain: the first if nothing is pending and every order is charged, else
 *  the second. */
const QUIET_MS = 1000;
const STUCK_MS = 15_000;
const DRAIN_MS = 60_000;

const loadMs = (context: SliceContext): number => 1000 * Math.max(LOAD_S_MIN, LOAD_S * context.scale);

type Names = Pick<EffectsRun, 'schema' | 'topic' | 'group'>;

const databaseOf = ({ stack }: SliceContext): DemoEnvironment => ({
  [environmentName('postgres')]: stack.postgres,
});

const ordersArgs = (names: Names): readonly string[] => [
  'orders',
  `-schema=${names.schema}`,
  '-migrate',
  '-listen=127.0.0.1:0',
];

const relayArgs = (context: SliceContext, names: Names): readonly string[] => [
  'relay',
  '-relay=poll',
  `-schema=${names.schema}`,
  '-migrate',
  `-brokers=${context.stack.brokers}`,
  `-topic=${names.topic}`,
  `-partitions=${PARTITIONS}`,
];

const paymentsArgs = (context: SliceContext, names: Names): readonly string[] => [
  'payments',
  `-schema=${names.schema}`,
  '-migrate',
  `-brokers=${context.stack.brokers}`,
  `-topic=${names.topic}`,
  `-group=${names.group}`,
];

/** Starts a service of the slice. */
const start = (context: SliceContext, name: string, args: readonly string[]): StartedCommand =>
  context.spawn(name, args, databaseOf(context));

async function number(pool: SqlPool, sql: string, params: readonly SqlValue[] = []): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(sql, params);
  return Number(rows[0]?.n ?? 0n);
}

/** Appends an event for each followed order, repeatedly, until the signal. */
async function follow(pool: SqlPool, over: AbortSignal): Promise<void> {
  for (let step = 1; !over.aborted; step++) {
    await pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
       SELECT order_id, gen_random_uuid(), 'order.followed.v1', convert_to($1, 'UTF8')
       FROM (SELECT order_id FROM orders ORDER BY order_id LIMIT ${FOLLOWED_ORDERS}) AS followed`,
      [`{"step":${step}}`],
    );
    await sleep(FOLLOW_EVERY_MS);
  }
}

/** State of the database right after a relay died. The table lock waits for statements of the dead
 *  relay that the server still executes: otherwise a late mark could commit between this query and
 *  the rows that it reports. */
async function stateAfterDeath(pool: SqlPool, relay: StartedCommand): Promise<RelayKill> {
  const { signal } = await relay.ended;
  return pool.transaction(async (session) => {
    await session.query('LOCK TABLE outbox IN SHARE MODE');
    const { rows } = await session.query<{ pending: bigint; at: string }>(
      'SELECT count(*) AS pending, clock_timestamp()::text AS at FROM outbox WHERE published_at IS NULL',
    );
    return { signal, pending: Number(rows[0]?.pending ?? 0n), at: rows[0]?.at ?? '' };
  });
}

/** Orders before a kill, counted as the judge counts them. Orders that arrived before the process
 *  was dead may commit after the query. */
const orderedBefore = (pool: SqlPool, { at }: RelayKill): Promise<number> =>
  number(pool, 'SELECT count(*) AS n FROM orders WHERE created_at < $1::timestamptz', [at]);

async function waitUntil(what: string, child: StartedCommand, holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + MOMENT_MS;
  while (!(await holds())) {
    if (Date.now() > deadline)
      throw coreError('timeout', `effects: timed out waiting for ${what}`, { next: `see ${child.logPath}` });
    await sleep(POLL_MS);
  }
}

/** Stops the relay, lets rows accumulate, and kills it. A stopped process cannot mark rows between
 *  the check and the kill. */
async function killWithPending(pool: SqlPool, relay: StartedCommand): Promise<RelayKill> {
  relay.kill('SIGSTOP');
  await waitUntil('a pending row', relay, async () => {
    const pending = await number(pool, 'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL');
    return pending >= PENDING_LEAST;
  });
  relay.kill('SIGKILL');
  return stateAfterDeath(pool, relay);
}

/** Waits until all work is done or no more progress is made. The judge reports what is missing. */
async function waitUntilDrained(pool: SqlPool): Promise<void> {
  const deadline = Date.now() + DRAIN_MS;
  let seen = '';
  let since = Date.now();
  while (Date.now() < deadline) {
    const { rows } = await pool.query<{
      pending: bigint;
      orders: bigint;
      charges: bigint;
      suppressed: bigint;
    }>(
      `SELECT (SELECT count(*) FROM outbox WHERE published_at IS NULL) AS pending, (SELECT count(*) FROM orders) AS orders,
        (SELECT count(*) FROM charges) AS charges, (SELECT count(*) FROM payments_suppressed) AS suppressed`,
    );
    const { pending = 1n, orders = 0n, charges = 0n, suppressed = 0n } = rows[0] ?? {};
    const now = [pending, orders, charges, suppressed].join();
    if (now !== seen) since = Date.now();
    seen = now;
    const isDone = pending === 0n && charges >= orders;
    if (Date.now() - since >= (isDone ? QUIET_MS : STUCK_MS)) return;
    await sleep(5 * POLL_MS);
  }
}

/** Arguments of the load client. */
function loadArgs(
  context: SliceContext,
  {
    target,
    intents,
    ledgerPath,
  }: { readonly target: string; readonly intents: number; readonly ledgerPath: string },
): string[] {
  return [
    'load',
    `-target=http://${target}`,
    `-rate=${REQUESTS_PER_SECOND}`,
    `-under-way-max=${IN_FLIGHT_MAX}`,
    `-duration=${LOAD_S_MAX}s`,
    `-count=${INTENTS_MAX * intents}`,
    `-retry-rate=${RETRY_RATE}`,
    '-retry-within=1s',
    '-keys=500',
    '-accounts=10000',
    `-seed=${context.seed}`,
    `-ledger=${ledgerPath}`,
    '-json',
  ];
}

/** Starts another relay while the load is stopped: orders that arrived meanwhile would shift the
 *  first kill towards their beginning. */
async function startWhileLoadStopped(
  context: SliceContext,
  names: Names,
  load: StartedCommand,
): Promise<StartedCommand> {
  const second = start(context, 'relay-killed', relayArgs(context, names));
  load.kill('SIGSTOP');
  try {
    await ready('relay', second);
  } finally {
    load.kill('SIGCONT');
  }
  return second;
}

async function run(context: SliceContext): Promise<EffectsRun> {
  const { say } = context;
  const id = randomBytes(4).toString('hex');
  const names: Names = {
    schema: `millrace_demo_${id}`,
    topic: `millrace-demo-order.events-${id}`,
    group: `millrace-demo-payments-${id}`,
  };
  const ledgerPath = join(context.dir, `ledger-${id}.jsonl`);
  const durationMs = loadMs(context);
  const intents = Math.floor((REQUESTS_PER_SECOND / (1 + 2 * RETRY_RATE)) * (durationMs / 1000));

  const orders = start(context, 'orders', ordersArgs(names));
  const target = await ready('orders', orders);
  const doomed = start(context, 'relay-crashes', [
    ...relayArgs(context, names),
    `-poll-interval=${CRASH_POLL_MS}ms`,
    '-crash-point=publish',
    `-crash-after=${Math.floor(intents * CRASH_AT)}`,
  ]);
  await ready('relay', doomed);
  const payments = start(context, 'payments', [
    ...paymentsArgs(context, names),
    `-dup-rate=${DUPLICATE_RATE}`,
    `-seed=${context.seed}`,
  ]);
  await ready('payments', payments);

  const pool = await connect(context, names.schema);
  const loaded = new AbortController();
  try {
    say(`effects: ${REQUESTS_PER_SECOND} requests/s, about ${intents} intents; 15% are followed by repeats`);
    const end = Date.now() + durationMs;
    const load = context.spawn('load', loadArgs(context, { target, intents, ledgerPath }));
    const ordered = (): Promise<number> => number(pool, 'SELECT count(*) AS n FROM orders');
    const following = waitUntil(
      'orders to follow',
      load,
      async () => (await ordered()) >= FOLLOW_AT * intents,
    ).then(() => follow(pool, loaded.signal));
    following.catch(() => {});
    const kills = [await firstDeath(pool, doomed)];
    say(`effects: relay dead between publish and mark, ${kills[0]?.pending} rows pending; restarted`);
    const second = await startWhileLoadStopped(context, names, load);
    await waitUntil('the moment to kill the relay', load, async () => (await ordered()) >= KILL_AT * intents);
    const killed = await killWithPending(pool, second);
    kills.push(killed);
    say(`effects: relay killed with ${killed.pending} rows pending; restarted`);
    await sleep(OUTAGE_MS);
    const relay = start(context, 'relay', relayArgs(context, names));
    await waitUntil('the end of the load', load, async () => {
      const now = await ordered();
      if (now >= INTENTS_MAX * intents) return true;
      return Date.now() >= end && now * KILLED_BY >= (await orderedBefore(pool, killed));
    });
    load.kill('SIGTERM');
    await succeed('load', load);
    loaded.abort();
    await following;
    await waitUntilDrained(pool);
    say('effects: drained');
    for (const [name, child] of [
      ['relay', relay],
      ['payments', payments],
      ['orders', orders],
    ] as const) {
      child.kill('SIGTERM');
      await succeed(name, child);
    }
    return { ...names, ledgerPath, kills };
  } finally {
    loaded.abort();
    await pool.close();
  }
}

/** Waits for the relay to end at its crash point. */
async function firstDeath(pool: SqlPool, relay: StartedCommand): Promise<RelayKill> {
  const late = sleep(MOMENT_MS, undefined, { ref: false }).then((): never => {
    throw coreError('timeout', 'effects: the relay did not reach its crash point', {
      next: `see ${relay.logPath}`,
    });
  });
  await Promise.race([relay.ended, late]);
  late.catch(() => {});
  return stateAfterDeath(pool, relay);
}

export const effectsSlice: Slice<EffectsRun> = {
  name: 'effects',
  run,
  judge: judgeEffects,
  services: (context, names): readonly DemoService[] => [
    { name: 'orders', args: ordersArgs(names), env: databaseOf(context) },
    { name: 'relay', args: relayArgs(context, names), env: databaseOf(context) },
    { name: 'payments', args: paymentsArgs(context, names), env: databaseOf(context) },
  ],
};
