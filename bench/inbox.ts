/** `millrace bench inbox`: payments on a backlog, and an inbox with very many keys against an empty
 *  inbox.
 *
 *  Every message must have exactly one charge at the end; every loaded id must be found, every
 *  other id inserted. */
import { randomBytes } from 'node:crypto';
import { invariant } from '../src/core/errors.ts';
import type { SqlPool } from '../src/io/postgres/sql/port.ts';
import { migrate } from '../src/outbox/database/migrations.ts';
import { Inbox } from '../src/outbox/inbox/once.ts';
import { dropPartitions, makePartitions } from '../src/outbox/inbox/retention/partitions.ts';
import { migrationsOf } from '../src/shell/migrations.ts';
import { createTopic } from './effects/arrivals.ts';
import { publishBacklog, uuidV7At, uuidV7Sql } from './effects/backlog.ts';
import { openParts, type Part } from './effects/parts.ts';
import { chunks } from './effects/preload.ts';
import { type Database, metric, until, type World } from './effects/world.ts';
import { type Bench, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';

const HOUR_MS = 3_600_000;
const BACKLOG_MS_MAX = 600_000;
const MESSAGES = 1_000_000;
const KEYS = 100_000_000;
const EXPIRED_KEYS = 10_000_000;
const CLAIM_IDS = 1000;
/** Number of partitions with loaded keys, an hour each. */
const HOURS = 24;
const EXPIRED_HOURS = 4;

const smaller = (world: World, full: number, smoke: number): number => (world.context.smoke ? smoke : full);

/** Charges per second over one backlog; records CPU per message. */
async function backlogRun(world: World, messages: number, cpu: Map<string, number[]>): Promise<number> {
  const { context } = world;
  const database = await world.database();
  const topic = world.topic();
  await createTopic(world, topic);
  context.say(`publishing ${messages} events`);
  await publishBacklog(world, topic, messages);
  const payments = await world.start('payments', [
    'payments',
    `-postgres=${database.url}`,
    `-brokers=${world.brokers}`,
    `-topic=${topic}`,
    `-group=${topic}`,
    '-migrate',
    '-listen=127.0.0.1:0',
  ]);
  const meter = world.meter([payments]);
  const charged = async (): Promise<number> => (await metric(payments, 'payments_charges_total')) ?? 0;
  await until('the first charge', BACKLOG_MS_MAX, async () => (await charged()) > 0, 20);
  meter.start();
  const before = await charged();
  await until('every charge', BACKLOG_MS_MAX, async () => (await charged()) >= messages, 50);
  for (const part of ['payments', 'postgres', 'broker']) {
    const us = (meter.seconds(part) / Math.max(1, messages - before)) * 1e6;
    cpu.set(part, [...(cpu.get(part) ?? []), us]);
  }
  await payments.stop();
  const { rows } = await database.pool.query<{ n: bigint; orders: bigint; cents: bigint; seconds: number }>(
    `SELECT count(*) AS n, count(DISTINCT order_id) AS orders, sum(amount_cents)::bigint AS cents,
       extract(epoch FROM max(at) - min(at))::float8 AS seconds
     FROM (SELECT order_id, amount_cents, pg_xact_commit_timestamp(xmin) AS at FROM charges) AS charges`,
  );
  const row = rows[0];
  let cents = 0;
  for (let n = 0; n < messages; n++) cents += 1 + (n % 1000);
  invariant(
    row?.n === BigInt(messages) && row.orders === row.n && row.cents === BigInt(cents),
    `one charge a message: ${row?.n} of ${row?.orders} orders, ${row?.cents} cents, not ${messages} and ${cents}`,
  );
  await database.drop();
  return messages / Math.max(1e-3, Number(row.seconds));
}

async function backlog(world: World): Promise<BenchResult[]> {
  const messages = world.context.rows ?? smaller(world, MESSAGES, 5000);
  const cpu = new Map<string, number[]>();
  const rates: number[] = [];
  for (let i = 0; i < world.context.repeats && !world.context.drain.aborted; i++)
    rates.push(await backlogRun(world, messages, cpu));
  const what = `payments on a backlog of ${messages} messages`;
  return [
    result({
      metric: what,
      unit: 'messages/s',
      better: 'more',
      ours: seriesOf(rates),
      list: true,
      goal: { valueAtLeast: 20_000 },
    }),
    ...[...cpu]
      .filter(([, values]) => !values.some(Number.isNaN))
      .map(([part, values]) =>
        result({
          metric: `${what}, CPU of ${part} a message`,
          unit: 'us',
          better: 'less',
          ours: seriesOf(values),
        }),
      ),
  ];
}

interface Loaded {
  readonly database: Database;
  readonly inbox: Inbox;
  readonly keys: number;
  readonly fromMs: number;
  readonly toMs: number;
}

/** An inbox in a new database, with `keys` ids of the hours before `toMs`. */
async function loadedInbox(world: World, keys: number, hours: number): Promise<Loaded> {
  const database = await world.database();
  await migrate(database.pool, 'public', 'payments', migrationsOf('payments'));
  const inbox = new Inbox();
  const toMs = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const fromMs = toMs - hours * HOUR_MS;
  await makePartitions(database.pool, inbox.names, {
    fromMs,
    toMs: toMs + 3 * HOUR_MS,
    widthMs: HOUR_MS,
  });
  if (keys > 0) {
    world.context.say(`loading ${keys} keys into the inbox`);
    const started = performance.now();
    await chunks(keys, (from, to) =>
      database.pool.transaction(async (tx) => {
        await tx.query('SET LOCAL synchronous_commit = off');
        await tx.query(
          `INSERT INTO inbox (msg_id) SELECT ${uuidV7Sql(keys, fromMs, toMs)}
           FROM generate_series($1::bigint - 1, $2::bigint - 1) AS n`,
          [from, to],
        );
      }),
    );
    await database.pool.query('CHECKPOINT');
    world.context.say(`loaded in ${Math.round((performance.now() - started) / 1000)} s`);
  }
  return { database, inbox, keys, fromMs, toMs };
}

const idsOf = (count: number, id: (i: number) => string): string[] =>
  Array.from({ length: count }, (_, i) => id(i));

/** A fresh UUIDv7 of this hour. */
function freshId(): string {
  const hex = `${Date.now().toString(16).padStart(12, '0')}7${randomBytes(9).toString('hex').slice(0, 3)}8${randomBytes(8).toString('hex').slice(0, 15)}`;
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

async function claims(
  pool: SqlPool,
  inbox: Inbox,
  batches: readonly (readonly string[])[],
  expected: 'seen' | 'unseen',
): Promise<number> {
  const started = performance.now();
  let found = 0;
  for (const ids of batches) {
    const claim = await pool.transaction((tx) => inbox.claim(tx, ids));
    found += claim[expected].size;
  }
  const seconds = (performance.now() - started) / 1000;
  const all = batches.reduce((sum, ids) => sum + ids.length, 0);
  invariant(found === all, `every id is ${expected}: ${found} of ${all}`);
  return all / seconds;
}

async function keys(world: World): Promise<BenchResult[]> {
  const { context } = world;
  const count = context.preload ?? smaller(world, KEYS, 100_000);
  const batches = smaller(world, 200, 5);
  const empty = await loadedInbox(world, 0, HOURS);
  const full = await loadedInbox(world, count, HOURS);
  const inEmpty: string[] = [];
  const insert = (side: Loaded) => async (): Promise<number> => {
    const made = idsOf(batches, () => '').map(() => idsOf(CLAIM_IDS, freshId));
    if (side === empty) for (const ids of made) for (const id of ids) inEmpty.push(id);
    return claims(side.database.pool, side.inbox, made, 'unseen');
  };
  const idOf = (side: Loaded, n: number): string =>
    side === empty
      ? (inEmpty[n % inEmpty.length] as string)
      : uuidV7At(n % side.keys, side.keys, side.fromMs, side.toMs);
  const most = (side: Loaded): number => (side === empty ? inEmpty.length : side.keys);
  const any = (side: Loaded): number => Math.floor(Math.random() * most(side));
  const check = (side: Loaded, batch: (side: Loaded) => readonly string[]) => async (): Promise<number> => {
    const made = idsOf(batches, () => '').map(() => [...new Set(batch(side))]);
    return claims(side.database.pool, side.inbox, made, 'seen');
  };
  // A topic that is read again delivers its ids in order, from any position; ids in random order
  // are the worst case.
  const inOrder = (side: Loaded): readonly string[] => {
    const from = any(side);
    return idsOf(CLAIM_IDS, (i) => idOf(side, from + i));
  };
  const anywhere = (side: Loaded): readonly string[] => idsOf(CLAIM_IDS, () => idOf(side, any(side)));
  const inserts = await takeTurns({ full: insert(full), empty: insert(empty) }, context.repeats);
  const [again, scattered] = [
    await takeTurns({ full: check(full, inOrder), empty: check(empty, inOrder) }, context.repeats),
    await takeTurns({ full: check(full, anywhere), empty: check(empty, anywhere) }, context.repeats),
  ];
  await full.database.drop();
  await empty.database.drop();
  const row = (what: string, series: typeof inserts) =>
    result({
      metric: `inbox of ${count} keys, ${what}, ${CLAIM_IDS} a transaction`,
      unit: 'ids/s',
      better: 'more',
      ours: series.full,
      list: true,
      against: { name: 'the empty inbox', series: series.empty },
      goal: { ratioAtLeast: 0.7 },
    });
  return [
    row('insert of unseen ids', inserts),
    row('check of seen ids in their order', again),
    row('check of seen ids from everywhere', scattered),
  ];
}

async function expiry(world: World): Promise<BenchResult[]> {
  const count = smaller(world, EXPIRED_KEYS, 20_000);
  const { database, inbox, toMs } = await loadedInbox(world, count, EXPIRED_HOURS);
  await database.pool.query('ANALYZE inbox');
  const started = performance.now();
  let dropped = 0;
  for (;;) {
    const { partitions } = await database.pool.transaction((tx) => dropPartitions(tx, inbox.names, toMs));
    if (partitions === 0) break;
    dropped += partitions;
  }
  const ms = performance.now() - started;
  const { rows } = await database.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM inbox');
  invariant(dropped === EXPIRED_HOURS && rows[0]?.n === 0n, `all expired: ${rows[0]?.n} keys are left`);
  await database.drop();
  return [
    result({
      metric: `expiry of ${count} keys in ${EXPIRED_HOURS} partitions`,
      unit: 'ms',
      better: 'less',
      ours: seriesOf([ms]),
      goal: { valueAtMost: 1000 },
    }),
  ];
}

const PARTS: Readonly<Record<string, Part>> = { backlog, keys, expiry };

export const bench: Bench = {
  name: 'inbox',
  takesBrokerProperties: true,
  summary:
    'Payments on a backlog, and an inbox with very many keys against an empty one: insert, check, expiry.',
  run: (context) => openParts(context, PARTS),
};
