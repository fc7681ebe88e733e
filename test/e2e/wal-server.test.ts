/** WAL mode on servers that restart, lack a setting or a privilege, or invalidate the slot. A start
 *  fails with one clear error, and a running relay recovers without a lost row. */
import { randomUUID } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { type Logger, silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool, SqlRow } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import type { CountingPipeline } from '../../src/outbox/relay/pipeline/contract.ts';
import { PollSource } from '../../src/outbox/relay/poll/source.ts';
import { describeOutbox } from '../../src/outbox/relay/store.ts';
import { XminMonitor } from '../../src/outbox/relay/xmin-monitor.ts';
import { ownPostgres } from '../fixtures/postgres.ts';
import { pause, realClock, until } from '../wait.ts';
import { dropSlots, type Running, type WalWorld, walKit } from './wal-kit.ts';
import { standbyOf } from './wal-standby.ts';

const server = await ownPostgres();
// Without autovacuum: one of its workers that is suspended for a second holds the horizon like any
// other session.
await server.start({
  idle_replication_slot_timeout: '0',
  max_prepared_transactions: '2',
  autovacuum: 'off',
});
afterAll(() => server.close());
const kit = walKit(server.url, false);

const active = (running: Running): Promise<true> =>
  until('a running stream', async () => (running.value('relay_wal_active') === 1 ? true : undefined), 60_000);
const ids = (running: Running): bigint[] => running.pipeline.published.map((row) => row.id);

interface Inserted extends SqlRow {
  readonly id: bigint;
  readonly msg_id: string;
}

/** Starts a polling source whose rows stay in flight, as if no mark were ever answered. */
async function pollingSource(schema: string) {
  let connections = 0;
  const pool = await pgDriver.connect({
    url: withSettings(server.url, { schema }),
    connectionsMax: 2,
    applicationName: 'polling',
    connectTimeoutMs: 5000,
    onConnect: () => {
      connections++;
    },
  });
  const published: string[] = [];
  const ids = new Set<bigint>();
  const pipeline: CountingPipeline = {
    async deliver(rows) {
      const fresh = rows.filter(({ msgId }) => !published.includes(msgId));
      for (const { id, msgId } of fresh) {
        published.push(msgId);
        ids.add(id);
      }
      const known = rows.length - fresh.length;
      return { published: fresh.length, left: [], known, marked: new Promise(() => {}) };
    },
    owns: () => true,
    isInFlight: (id) => ids.has(id),
    inFlight: () => ids.size,
    leftSoFar: () => 0,
    paceMs: () => 0,
    room: async () => {},
    idle: async () => {},
  };
  const drain = new AbortController();
  const source = new PollSource(
    {
      pool,
      connections: () => connections,
      table: 'outbox',
      pipeline,
      ownership: { shards: 1, owned: () => [0], generation: () => 1 },
      metrics: new Metrics(),
      log: silentLogger,
      clock: realClock,
      sleep: pause,
      sleepUntilWoken: pause,
      drain: drain.signal,
      bytesMax: 1 << 20,
      crashAt: () => {},
      exitWhenDrained: false,
    },
    await describeOutbox(pool, 'outbox'),
    {
      rowsMax: 10,
      bytesMax: 1 << 20,
      intervalMs: 5,
      spacingMs: 1,
      // Longer than the test, so that a rescan finds nothing.
      rescanMs: 10_000_000,
      stragglerAfterMs: 200,
      backoffMaxMs: 100,
    },
  );
  const ended = source.run();
  ended.catch(() => {});
  return {
    published,
    async stop(): Promise<void> {
      drain.abort();
      await ended;
      await pool.close();
    },
  };
}

/** Fills WAL segments, so that a checkpoint removes those that no slot may retain. */
async function overrun({ pool }: WalWorld): Promise<void> {
  for (let i = 0; i < 3; i++) {
    await pool.query(`SELECT pg_logical_emit_message(true, 'fill', repeat('x', 1000))`);
    await pool.query('SELECT pg_switch_wal()::text');
  }
  await pool.query('CHECKPOINT');
}

async function set({ pool }: WalWorld, setting: string): Promise<void> {
  await pool.query(`ALTER SYSTEM SET ${setting}`);
  await pool.query('SELECT pg_reload_conf()');
}

async function status(world: WalWorld): Promise<string> {
  const { rows } = await world.pool.query<{ state: string }>(
    `SELECT coalesce(to_jsonb(s)->>'invalidation_reason', wal_status) AS state FROM pg_replication_slots s WHERE slot_name = $1`,
    [await world.slot()],
  );
  return rows[0]?.state ?? 'none';
}

describe('held horizon', () => {
  it('the relay names the holder of the horizon: a prepared transaction, a standby, and its abandoned slot', async () => {
    const world = await kit.world();
    const { pool } = world;
    const metrics = new Metrics();
    const warnings: unknown[] = [];
    const log: Logger = {
      ...silentLogger,
      warn: ({ kind, holder }) => {
        warnings.push([kind, holder]);
      },
    };
    const time = { ms: 0 };
    const clock = { wallNowMs: () => 0, monotonicMs: () => time.ms };
    const watch = new XminMonitor(pool, clock, metrics, log, 1000);
    const shown = (holder: string): number | undefined =>
      metrics
        .snapshot()
        .find(({ name }) => name === 'relay_horizon_holder')
        ?.samples.find(({ labels }) => labels['holder'] === holder)?.value;
    const insertRows = async (): Promise<void> => {
      for (let i = 0; i < 5; i++) await world.insert(randomUUID());
    };
    const xmin = async (): Promise<bigint> => {
      const { rows } = await pool.query<{ xmin: string }>(
        'SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin',
      );
      return BigInt(rows[0]?.xmin ?? '0');
    };
    const untilHeld = (sql: string): Promise<true> =>
      until('a held horizon', async () => {
        const { rows } = await pool.query<{ held: boolean }>(sql);
        return rows[0]?.held === true ? true : undefined;
      });

    await pool.transaction(async (session) => {
      await world.insert(randomUUID(), session);
      await session.query(`PREPARE TRANSACTION 'left behind'`);
    });
    await insertRows();
    const prepared = await until('a holder', () => watch.poll());
    expect(prepared).toMatchObject({ kind: 'prepared', holder: 'left behind' });
    expect(prepared.transactions).toBeGreaterThanOrEqual(5);
    expect(shown('left behind')).toBeGreaterThanOrEqual(1);
    await pool.query(`ROLLBACK PREPARED 'left behind'`);
    expect(await watch.poll()).toBeUndefined();
    expect(shown('left behind')).toBe(0);

    const standby = await standbyOf(server.url, 'reports');
    standby.feedback(await xmin());
    await untilHeld(
      `SELECT backend_xmin IS NOT NULL AS held FROM pg_stat_replication WHERE pid = ${standby.pid}`,
    );
    await insertRows();
    expect(await watch.poll(), 'its start is unknown').toBeUndefined();
    time.ms += 5000;
    const holder = `pid ${standby.pid} reports`;
    expect(await watch.poll()).toMatchObject({ kind: 'standby', holder, seconds: 5 });
    expect(shown(holder)).toBe(5);
    await standby.close();
    await until('no holder', async () => ((await watch.poll()) === undefined ? true : undefined));

    await pool.query(`SELECT pg_create_physical_replication_slot('reports')::text`);
    const behind = await standbyOf(server.url, 'reports', 'reports');
    behind.feedback(await xmin());
    await untilHeld(`SELECT xmin IS NOT NULL AS held FROM pg_replication_slots WHERE slot_name = 'reports'`);
    await behind.close();
    await untilHeld(`SELECT NOT active AS held FROM pg_replication_slots WHERE slot_name = 'reports'`);
    await insertRows();
    await watch.poll();
    time.ms += 7000;
    expect(await watch.poll()).toMatchObject({ kind: 'slot', holder: 'reports', seconds: 7 });
    expect(shown('reports')).toBe(7);
    expect(warnings).toEqual([
      ['prepared', 'left behind'],
      ['standby', holder],
      ['slot', 'reports'],
    ]);
    await pool.query(`SELECT pg_drop_replication_slot('reports')::text`);
  });
});

describe('slot invalidated by the server', () => {
  it('a slot invalidated for the WAL it retains is recreated and swept, with and without a running relay', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    const key = randomUUID();
    const sent = [await world.insert(key)];
    await world.drained();
    await first.stop();
    sent.push(await world.insert(key));
    await set(world, `max_slot_wal_keep_size = '1MB'`);
    await until('a lost slot', async () => {
      await overrun(world);
      return ['lost', 'wal_removed'].includes(await status(world)) ? true : undefined;
    });
    sent.push(await world.insert(key));
    const second = world.start();
    await active(second);
    await world.drained();
    expect(second.value('relay_wal_slot_recreated_total', 'slot_lost')).toBe(1);
    expect(second.value('sweeper_found_total')).toBe(2);
    // The pipeline accepts no rows, so the slot does not advance and the WAL grows past its limit:
    // the server ends the stream.
    second.pipeline.open = false;
    sent.push(await world.insert(key));
    await until('a slot lost again', async () => {
      await overrun(world);
      return ['lost', 'wal_removed', 'none'].includes(await status(world)) ? true : undefined;
    });
    second.pipeline.open = true;
    await world.drained();
    await until('another slot', async () =>
      second.value('relay_wal_slot_recreated_total', 'slot_lost') === 2 ? true : undefined,
    );
    await active(second);
    await set(world, `max_slot_wal_keep_size = '-1'`);
    sent.push(await world.insert(key));
    await world.drained();
    expect([...new Set([...ids(first), ...ids(second)])]).toEqual(sent);
    expect(second.log.some(({ message }) => message.includes('the replication slot cannot be used'))).toBe(
      true,
    );
    await second.stop();
  });

  it('a slot invalidated for idling too long is recreated and swept', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await first.stop();
    const id = await world.insert(randomUUID());
    await server.stop('SIGINT');
    await server.start({ idle_replication_slot_timeout: '1' });
    await until('an invalidated slot', async () => {
      await world.pool.query('CHECKPOINT');
      return (await status(world)) === 'idle_timeout' ? true : undefined;
    });
    const second = world.start();
    await active(second);
    await world.drained();
    expect(ids(second)).toContain(id);
    expect(second.value('relay_wal_slot_recreated_total', 'slot_lost')).toBe(1);
    await second.stop();
    await server.stop('SIGINT');
    await server.start();
  });
});

describe('restarting server', () => {
  it('a WAL relay continues after a power cut, and after a failover to a server without the slot', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    const key = randomUUID();
    const sent: bigint[] = [];
    for (let i = 0; i < 5; i++) sent.push(await world.insert(key));
    await server.stop('SIGQUIT');
    await server.start();
    for (let i = 0; i < 5; i++) sent.push(await until('an insert', () => world.insert(key)));
    await world.drained();
    await active(running);
    // State of a promoted standby: all rows, and no slot.
    await server.stop('SIGINT');
    const slots = join(server.folder, 'postgres', 'pg_replslot');
    for (const name of readdirSync(slots)) rmSync(join(slots, name), { recursive: true });
    await server.start();
    for (let i = 0; i < 5; i++) sent.push(await until('an insert', () => world.insert(key)));
    await world.drained();
    await until('another slot', async () =>
      running.value('relay_wal_slot_recreated_total', 'slot_missing') === 1 ? true : undefined,
    );
    sent.push(await world.insert(key));
    await world.drained();
    expect([...new Set(ids(running))]).toEqual(sent);
    await running.stop();
  });

  it('a relay that polls publishes the rows that got the ids of rows that a power cut lost', async () => {
    const world = await kit.world();
    await server.stop('SIGINT');
    // No process flushes the log between the commit of the rows and the power cut.
    await server.start({ wal_writer_delay: '10s', autovacuum: 'off' });
    const polling = await pollingSource(world.schema);
    const insert = async (rows: number, commit: 'on' | 'off'): Promise<readonly Inserted[]> =>
      world.pool.transaction(async (session) => {
        await session.query(`SET LOCAL synchronous_commit = ${commit}`);
        const { rows: made } = await session.query<Inserted>(
          `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
           SELECT gen_random_uuid(), gen_random_uuid(), 't', '{}' FROM generate_series(1, $1::int) RETURNING id, msg_id`,
          [rows],
        );
        return made;
      });
    const publishes = (rows: readonly Inserted[]): Promise<true> =>
      until('published rows', () => rows.every(({ msg_id }) => polling.published.includes(msg_id)));
    await publishes(await until('rows before the power cut', () => insert(3, 'on')));
    // The server may have flushed the rows by chance; then another power cut follows.
    const { lost, next } = await until('ids that are given out again', async () => {
      // The log has the sequence 32 values ahead, so that more rows move it.
      const unflushed = await insert(40, 'off');
      await publishes(unflushed);
      await server.stop('SIGQUIT');
      await server.start({ wal_writer_delay: '10s', autovacuum: 'off' });
      const rows = await until('rows after the power cut', () => insert(3, 'on'));
      const isReissued = (rows[0] as Inserted).id <= (unflushed.at(-1) as Inserted).id;
      return isReissued ? { lost: unflushed, next: rows } : undefined;
    });
    await publishes(next);
    const taken = polling.published.filter((id) => next.some(({ msg_id }) => msg_id === id));
    expect(taken).toEqual(next.map(({ msg_id }) => msg_id));
    expect(new Set(polling.published).size).toBe(polling.published.length);
    const { rows } = await world.pool.query('SELECT FROM outbox WHERE msg_id = ANY($1::uuid[])', [
      lost.map(({ msg_id }) => msg_id),
    ]);
    expect(rows).toEqual([]);
    await polling.stop();
  });
});

describe('absent synchronous standby', () => {
  const insertSynchronously = (world: WalWorld): Promise<bigint> =>
    world.pool.transaction(async (session) => {
      await session.query('SET LOCAL synchronous_commit = on');
      return world.insert(randomUUID(), session);
    });
  const waitingCommit = (world: WalWorld): Promise<number> =>
    until('a commit that waits', async () => {
      const { rows } = await world.pool.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
      );
      return rows[0]?.pid;
    });

  it('a backlog row whose commit waits for a standby is delivered and not skipped', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await world.insert(randomUUID());
    await world.drained();
    await first.stop();
    await server.stop('SIGINT');
    await server.start({
      synchronous_standby_names: 'absent',
      synchronous_commit: 'off',
      autovacuum: 'off',
    });
    // The row commits while the source reads where its backlog ends. No transaction with a higher
    // number has ended then.
    const late: { insert?: Promise<bigint>; pid?: number } = {};
    const pool: SqlPool = Object.create(world.pool, {
      query: {
        value: async (...[text, ...rest]: Parameters<SqlPool['query']>) => {
          if (late.insert === undefined && text.includes('pg_current_wal_insert_lsn')) {
            late.insert = insertSynchronously(world);
            late.insert.catch(() => {});
            late.pid = await waitingCommit(world);
          }
          return world.pool.query(text, ...rest);
        },
      },
    });
    const second = world.start({ pool });
    try {
      await until('the row, delivered or skipped', async () =>
        ids(second).length + second.value('relay_wal_skipped_total') > 0 ? true : undefined,
      );
      expect(await world.pending(), 'the row is not visible yet').toBe(0);
    } finally {
      // A cancelled wait ends the transaction as committed.
      await world.pool.query('SELECT pg_cancel_backend($1::int)', [late.pid as number]);
    }
    const id = await late.insert;
    await world.drained();
    expect(ids(second)).toEqual([id]);
    expect(second.value('relay_wal_skipped_total')).toBe(0);
    await second.stop();
    await dropSlots(world.pool, world.schema);
    await server.stop('SIGINT');
    await server.start();
  });
});

describe('incapable server', () => {
  const refused = async (running: Running): Promise<readonly (string | undefined)[]> => {
    const error = findMillraceError(
      await running.ended.then(
        () => undefined,
        (thrown: unknown) => thrown,
      ),
    );
    return [error?.code, `${error?.message}`, error?.next];
  };

  it('a WAL relay reports a role without the right to replicate', async () => {
    const world = await kit.world();
    await world.pool.query(`CREATE ROLE modest LOGIN PASSWORD 'modest'`);
    await world.pool.query(`GRANT CREATE ON DATABASE millrace TO modest`);
    await world.pool.query(`GRANT ALL ON SCHEMA ${world.schema} TO modest`);
    const { rows } = await world.pool.query<{ name: string }>(
      'SELECT tablename::text AS name FROM pg_tables WHERE schemaname = $1',
      [world.schema],
    );
    for (const { name } of rows) await world.pool.query(`ALTER TABLE ${name} OWNER TO modest`);
    const url = new URL(server.url);
    url.username = 'modest';
    url.password = 'modest';
    const poor = await kit.world({ at: url.toString(), schema: world.schema });
    expect(await refused(poor.start())).toEqual([
      'wal_not_possible',
      expect.stringMatching(/the creation of the replication slot .* was refused: .*permission denied/),
      expect.stringContaining('give the role REPLICATION'),
    ]);
  });

  it('a WAL relay reports that no slot is left, and that wal_level is too low', async () => {
    const world = await kit.world();
    await server.stop('SIGINT');
    await server.start({ max_replication_slots: '1' });
    const used = await world.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM pg_replication_slots');
    if (used.rows[0]?.n === 0n)
      await world.pool.query(`SELECT pg_create_physical_replication_slot('last')::text`);
    expect(await refused(world.start())).toEqual([
      'wal_not_possible',
      expect.stringMatching(/replication slot .* was refused: .*all replication slots are in use/),
      expect.stringContaining('raise max_replication_slots'),
    ]);
    await world.pool.query('SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots');
    await server.stop('SIGINT');
    await server.start({ wal_level: 'replica' });
    expect(await refused(world.start())).toEqual([
      'wal_not_possible',
      'the server runs with wal_level=replica',
      expect.stringContaining('set wal_level=logical'),
    ]);
  });
});
