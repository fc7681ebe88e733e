/** The effect of each flag of `millrace relay` on a process, and its counts of unusual rows. Two
 *  polling relays and one in wal mode run in a separate database, whose horizon no other session
 *  holds. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTopics } from '../../src/demo/contracts/topic.ts';
import { unixWake } from '../../src/io/wake/unix.ts';
import { shardOf } from '../../src/outbox/relay/shards.ts';
import { ownDatabase } from '../fixtures/database.ts';
import { becomes, pageOf } from '../fixtures/metrics.ts';
import { launcher, type Running, withDefaults } from '../fixtures/process.ts';
import { runRelay, startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { settingsOf } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { leftOpen } from './orders-kit.ts';
import {
  drained,
  firsts,
  inMode,
  insert,
  pending,
  readTopic,
  Sent,
  type World,
  worlds,
} from './relay-kit.ts';
import { dropSlots } from './wal-kit.ts';

const own = launcher();
const stack = await sharedStack();
const database = `relay_flags_${own.suffix}`;
const postgres = await ownDatabase(stack.postgres, database);
const world = worlds(() => ({ ...stack, postgres }), own.suffix);
const holder = new pg.Client({ connectionString: postgres, application_name: `holder_${own.suffix}` });

interface RunningRelay extends World {
  readonly process: Running;
  readonly address: string;
}

async function start(one: World, ...flags: readonly string[]): Promise<RunningRelay> {
  const args = flags.includes('-relay=wal') ? inMode(one.args, 'wal') : one.args;
  const process = startRelay(own, withDefaults(args, flags));
  return { ...one, process, address: await process.address() };
}

/** Creates a topic that accepts no larger record. */
const small = (topic: string): Promise<void> =>
  createTopics(stack.brokers, [{ topic, partitions: 3, config: { 'max.message.bytes': '20000' } }]);
const LARGE = JSON.stringify({ text: 'x'.repeat(30_000) });

let fast: RunningRelay;
let usual: RunningRelay;

beforeAll(async () => {
  await holder.connect();
  const both = [await world(), await world()] as const;
  // Holds the xmin horizon from here on; a few transactions follow.
  await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await holder.query('SELECT count(*) FROM pg_class');
  for (let i = 0; i < 25; i++) await both[0].pool.query('SELECT pg_current_xact_id()');
  await small(both[1].topic);
  [fast, usual] = await Promise.all([
    start(
      both[0],
      '-rescan-interval=200ms',
      '-horizon-warn=1s',
      '-topic-retention=2h',
      '-in-flight-bytes=1MiB',
      '-wake=on',
    ),
    start(both[1], '-create-topics=false', '-horizon-warn=1h', '-read-every=20ms'),
  ]);
  for (const { address } of [fast, usual]) await becomes(address, 'relay_owned_shards', 16);
});
afterAll(() => holder.end());

/** Acknowledged row whose mark finds no row in the table. */
const gone = { key: randomUUID() };

/** Asserts that every acknowledged row was marked, belongs to another relay, or is one of the
 *  `vanished`. The relay searches a vanished row first, and counts it as missing after half a
 *  minute, which a slow machine may reach anywhere in this file. */
async function expectAccounted(at: RunningRelay, vanished: number): Promise<void> {
  const page = await pageOf(at.address);
  const of = (name: string): number => page.get(`relay_${name}_total`) as number;
  expect(of('published')).toBe(of('marked') + of('marks_refused') + vanished);
  expect(of('marks_missing')).toBeLessThanOrEqual(vanished);
}

describe('vanished row', () => {
  it('a row that vanishes before its mark is retried, and the rows beside it are marked meanwhile', async () => {
    const { pool, address } = usual;
    const shard = shardOf(gone.key, 16);
    const release = await leftOpen(pool, (session) =>
      session.query('SELECT FROM relay_leases WHERE shard = $1 FOR UPDATE', [shard]),
    );
    await insert(pool, gone.key, '{}');
    await becomes(address, 'relay_published_total', 1);
    await pool.query('DELETE FROM outbox');
    await release();
    await insert(pool, randomUUID(), '{}');
    await drained(pool);
    await becomes(address, 'relay_marked_total', 1);
    await expectAccounted(usual, 1);
  });
});

describe('-horizon-warn', () => {
  const series = (): string => {
    const pid = (holder as unknown as { processID: number }).processID;
    return `relay_horizon_holder{kind="session",holder="pid ${pid} holder_${own.suffix}"}`;
  };

  it('the relay reports the holder of the horizon with its duration and transactions, and warns in time', async () => {
    const page = await becomes(fast.address, series(), (seconds) => seconds >= 1);
    expect(page.get('relay_horizon_seconds')).toBe(page.get(series()));
    expect(page.get('relay_horizon_transactions')).toBeGreaterThanOrEqual(25);
    const warningOf = (at: RunningRelay): string | undefined =>
      at.process
        .log()
        .split('\n')
        .find((line) => line.includes('the horizon is held'));
    const line = JSON.parse(await until('the warning', async () => warningOf(fast))) as { seconds: number };
    expect(line).toMatchObject({ kind: 'session', holder: expect.stringContaining(`holder_${own.suffix}`) });
    // The other relay has seen the holder for longer than that, and its threshold is one hour.
    await becomes(usual.address, series(), (seconds) => seconds > line.seconds);
    expect(warningOf(usual)).toBeUndefined();
    await holder.query('COMMIT');
  });
});

describe('polling relay', () => {
  it('a relay creates its topic with -topic-retention', async () => {
    const settings = await settingsOf(stack.brokers, fast.topic);
    expect([settings.get('retention.ms'), settings.get('segment.ms')]).toEqual(['7200000', '300000']);
  });

  it('a relay publishes the event types of -topics to their topics, and refuses a rule without a topic', async () => {
    const one = await world();
    const other = `${one.topic}.ruled`;
    const ids = [
      await insert(one.pool, randomUUID(), '{}'),
      await insert(one.pool, randomUUID(), '{}'),
    ] as const;
    await one.pool.query(`UPDATE outbox SET event_type = 'invoice.sent.v1' WHERE msg_id = $1::uuid`, [
      ids[0],
    ]);
    const args = [...one.args, '-exit-when-drained'];
    const refused = await runRelay(own, [...args, '-topics=invoice.*']);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('which is not TYPE=TOPIC');
    expect((await runRelay(own, [...args, `-topics=invoice.*=${other}`])).code).toBe(0);
    expect((await readTopic({ stack, topic: other })).map(({ msgId }) => msgId)).toEqual([ids[0]]);
    expect((await readTopic(one)).map(({ msgId }) => msgId)).toEqual([ids[1]]);
  });

  it('a relay creates no topic with a higher -replication-factor than there are brokers', async () => {
    const { args, topic } = await world();
    const { code, stderr } = await runRelay(own, [...args, '-replication-factor=2', '-log-level=silent']);
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^error: .*replication factor.*\[broker_refused\]$/im),
    ]);
    expect(await settingsOf(stack.brokers, topic)).toEqual(new Map());
  });

  it('a relay marks the rows of one read with one statement', async () => {
    const sent = new Sent(fast.pool, 5);
    await sent.round();
    await drained(fast.pool);
    const page = await becomes(fast.address, 'relay_marked_total', 5);
    expect([page.get('relay_mark_batches_total'), page.get('relay_flights_total')]).toEqual([1, 1]);
    expect(page.get('relay_read_seconds_count')).toBe(page.get('relay_reads_total'));
  });

  it('a relay finds rows that became pending again behind its position by -rescan-interval', async () => {
    const { pool, address } = fast;
    // From here on only a rescan reads that range.
    const page = await becomes(address, 'relay_decided_id', (id) => id >= 5);
    await becomes(
      address,
      'relay_rescans_total',
      (scans) => scans > (page.get('relay_rescans_total') as number),
    );
    await pool.query('UPDATE outbox SET published_at = NULL WHERE id = 3');
    await drained(pool);
    await becomes(address, 'relay_marked_total', 6);
    const seen = await readTopic(fast);
    expect([seen.length, new Set(seen.map(({ msgId }) => msgId)).size]).toEqual([6, 5]);
  });

  it('a relay has no more bytes in memory than -in-flight-bytes while nothing is marked', async () => {
    const { pool, address } = fast;
    const release = await leftOpen(pool, (session) => session.query('SELECT FROM relay_leases FOR UPDATE'));
    const text = JSON.stringify({ text: 'y'.repeat(200 * 1024) });
    await pool.transaction(async (session) => {
      for (let i = 0; i < 8; i++) await insert(session, randomUUID(), text);
    });
    // The fourth row reaches three quarters of a megabyte; without the flag all eight rows fit.
    await becomes(address, 'relay_under_way_rows', 4);
    const page = await becomes(address, 'relay_published_total', 10);
    expect(page.get('relay_under_way_bytes')).toBeGreaterThanOrEqual(0.75 * 2 ** 20);
    expect(page.get('relay_under_way_bytes')).toBeLessThan(2 ** 20);
    expect(await pending(pool)).toBe(8);
    await release();
    await drained(pool);
    await becomes(address, 'relay_published_total', 14);
  });

  it('every committer on this host wakes the relay', async () => {
    const waker = await unixWake.waker({
      systemIdentifier: await fast.pool.systemIdentifier(),
      database,
      table: `${fast.schema}.outbox`,
    });
    // A starting writer sends a wake-up immediately.
    await becomes(fast.address, 'relay_wakes_total', 1);
    waker.wake();
    await becomes(fast.address, 'relay_wakes_total', 2);
    await waker.close();
  });

  it('a relay names no holder once the horizon is free', async () => {
    const page = await becomes(fast.address, 'relay_horizon_seconds', 0);
    expect(page.get('relay_horizon_transactions')).toBe(0);
    const holders = [...page].filter(([series]) => series.startsWith('relay_horizon_holder{'));
    expect(holders.map(([, seconds]) => seconds)).toEqual(holders.map(() => 0));
    expect(holders.length).toBeGreaterThan(0);
    await expectAccounted(fast, 0);
  });
});

describe('unmarked and refused rows', () => {
  it('a row of a shard that another relay had meanwhile is redelivered under another epoch', async () => {
    const { pool, address } = usual;
    const shard = (shardOf(gone.key, 16) + 1) % 16;
    let key = randomUUID();
    while (shardOf(key, 16) !== shard) key = randomUUID();
    const before = await pageOf(address);
    const at = (name: string): number => before.get(name) as number;
    const release = await leftOpen(pool, (session) =>
      session.query('UPDATE relay_leases SET epoch = epoch + 1, owner = NULL WHERE shard = $1', [shard]),
    );
    const msgId = await insert(pool, key, '{}');
    await becomes(address, 'relay_published_total', at('relay_published_total') + 1);
    expect((await pageOf(address)).get('relay_marks_refused_total')).toBe(0);
    await release(true);
    await drained(pool);
    await becomes(address, 'relay_shards_lost_total', 1);
    await becomes(address, 'relay_marked_total', 2);
    const seen = (await readTopic(usual)).filter((one) => one.msgId === msgId);
    const epochs = [...new Set(seen.map(({ headers }) => Number(headers['relay_epoch'])))];
    expect(epochs).toHaveLength(2);
    expect((epochs[1] as number) - (epochs[0] as number)).toBe(2);
    const page = await becomes(address, 'relay_marks_refused_total', seen.length - 1);
    // The shard that came back was read from its lowest id.
    expect(page.get('relay_rescans_total')).toBeGreaterThan(at('relay_rescans_total'));
    await expectAccounted(usual, 1);
  });

  it('a row that is too large stays with the rows behind it, and is read again', async () => {
    const { pool, address } = usual;
    const key = randomUUID();
    const sent = await pool.transaction(async (session) => {
      const ids = [await insert(session, key, LARGE)];
      for (let i = 0; i < 3; i++) ids.push(await insert(session, key, '{}'));
      return ids;
    });
    const page = await becomes(address, 'relay_oversize_total', (attempts) => attempts >= 2);
    const left = page.get('relay_left_total') as number;
    expect(left % 4).toBe(0);
    expect(left).toBeGreaterThanOrEqual(4 * (page.get('relay_oversize_total') as number));
    expect([page.get('relay_held_keys'), await pending(pool)]).toEqual([1, 4]);
    await pool.query("UPDATE outbox SET payload = '{}' WHERE msg_id = $1::uuid", [sent[0] as string]);
    await drained(pool);
    await becomes(address, 'relay_marked_total', 6);
    expect(firsts(await readTopic(usual), key)).toEqual(sent);
  });
});

describe('relay in wal mode', () => {
  let log: RunningRelay | undefined;
  afterAll(async () => {
    if (log === undefined) return;
    log.process.kill('SIGKILL');
    await log.process.ended;
    await dropSlots(log.pool, log.schema);
  });

  it('a relay reads through -publication, counts transactions and rows, and parks the key of a refused row', async () => {
    const one = await world();
    const publication = `millrace_${one.schema}_mine`;
    await small(one.topic);
    log = await start(
      one,
      '-relay=wal',
      `-publication=${publication}`,
      '-create-topics=false',
      '-heartbeat=300ms',
    );
    const { address, pool } = log;
    await becomes(address, 'relay_wal_active', 1);
    const { rows } = await pool.query<{ name: string; table: string }>(
      `SELECT pubname::text AS name, schemaname || '.' || tablename AS table FROM pg_publication_tables`,
    );
    expect(rows).toEqual([{ name: publication, table: `${one.schema}.outbox` }]);
    for (let i = 0; i < 3; i++) await insert(pool, randomUUID(), '{}');
    await drained(pool);
    const page = await becomes(address, 'relay_wal_transactions_total', 3);
    expect([page.get('relay_wal_rows_total'), page.get('sweeper_found_total')]).toEqual([3, 0]);

    const key = randomUUID();
    const stuck = [await insert(pool, key, LARGE), await insert(pool, key, '{}')];
    // Rows that arrive during the retries show that the broker refuses this row and not all rows.
    let others = 0;
    await until('a parked key', async () => {
      await insert(pool, randomUUID(), '{}');
      others++;
      return (await pageOf(address)).get('relay_wal_parked_keys') === 1 ? true : undefined;
    });
    await until('only the parked key to be pending', async () =>
      (await pending(pool)) === 2 ? true : undefined,
    );
    await pool.query("UPDATE outbox SET payload = '{}' WHERE msg_id = $1::uuid", [stuck[0] as string]);
    await drained(pool);
    await becomes(address, 'relay_wal_parked_keys', 0);
    await becomes(address, 'relay_wal_transactions_total', 3 + stuck.length + others);
    expect(firsts(await readTopic(log), key)).toEqual(stuck);
    await log.process.drain();
  });
});

describe('missing row', () => {
  it('a published row that is missing from the table is marked as missing with a warning', async () => {
    await becomes(usual.address, 'relay_marks_missing_total', 1);
    expect(usual.process.log()).toContain('a published row is not in the table');
    await expectAccounted(usual, 1);
    await Promise.all([fast, usual].map(({ process }) => process.drain()));
  });
});
