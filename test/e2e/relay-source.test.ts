/** The poll source on a real database: ids that become visible late for any reason, and scans whose
 *  cost stays constant over dead rows that vacuum cannot remove. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import type { CountingPipeline } from '../../src/outbox/relay/pipeline/contract.ts';
import { RestartDetector } from '../../src/outbox/relay/poll/restart-detector.ts';
import { SafeIdHorizon } from '../../src/outbox/relay/poll/safe-id-horizon.ts';
import { PollSource } from '../../src/outbox/relay/poll/source.ts';
import { describeOutbox, readPending } from '../../src/outbox/relay/store.ts';
import { LagMeter, XminMonitor } from '../../src/outbox/relay/xmin-monitor.ts';
import { connectPool } from '../fixtures/database.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, realClock, until } from '../wait.ts';
import { explained } from './explained.ts';
import { insert, worlds } from './relay-kit.ts';

const own = launcher();
const stack = await sharedStack();
const world = worlds(() => stack, own.suffix);
const STRAGGLER_MS = 200;

interface Marking extends CountingPipeline {
  readonly ids: bigint[];
  /** Payload bytes of each call with rows. */
  readonly calls: number[];
}

/** Pipeline that marks rows immediately and records their order. */
function marking(pool: SqlPool, table: string): Marking {
  const ids: bigint[] = [];
  const calls: number[] = [];
  const inFlightIds = new Set<bigint>();
  return {
    ids,
    calls,
    async deliver(rows) {
      if (rows.length > 0) calls.push(rows.reduce((sum, { payload }) => sum + payload.length, 0));
      for (const { id } of rows) {
        ids.push(id);
        inFlightIds.add(id);
      }
      const marked = pool
        .query(`UPDATE ${table} SET published_at = now() WHERE id = ANY($1::bigint[])`, [
          rows.map(({ id }) => id),
        ])
        .then(() => {
          for (const { id } of rows) inFlightIds.delete(id);
        });
      return { published: rows.length, left: [], known: 0, marked };
    },
    owns: () => true,
    isInFlight: (id) => inFlightIds.has(id),
    inFlight: () => inFlightIds.size,
    leftSoFar: () => 0,
    paceMs: () => 0,
    room: async () => {},
    idle: async () => {},
  };
}

async function running(pool: SqlPool, bytesMax = 8 << 20) {
  const table = 'outbox';
  const shape = await describeOutbox(pool, table);
  const pipeline = marking(pool, table);
  const drain = new AbortController();
  const metrics = new Metrics();
  const source = new PollSource(
    {
      pool,
      table,
      pipeline,
      ownership: { shards: 1, owned: () => [0], generation: () => 1 },
      metrics,
      log: silentLogger,
      clock: realClock,
      sleep: pause,
      sleepUntilWoken: pause,
      drain: drain.signal,
      bytesMax,
      crashAt: () => {},
      exitWhenDrained: false,
    },
    shape,
    {
      rowsMax: 100,
      bytesMax,
      intervalMs: 5,
      spacingMs: 1,
      // Longer than the test, so that only the safe-id horizon finds late rows.
      rescanMs: 1_000_000,
      stragglerAfterMs: STRAGGLER_MS,
      backoffMaxMs: 100,
    },
  );
  const run = source.run();
  const gauge = (name: string): number => metrics.gauge(name, '').value();
  return {
    pipeline,
    decided: () => gauge('relay_decided_id'),
    stragglers: () => gauge('relay_stragglers'),
    stop: async () => {
      drain.abort();
      await run;
    },
  };
}

const insertRows = (pool: SqlSession, count: number): Promise<unknown> =>
  pool.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
     SELECT gen_random_uuid(), gen_random_uuid(), 't', '{}' FROM generate_series(1, $1::int)`,
    [count],
  );

const idOf = async (session: SqlSession, msgId: string): Promise<bigint> =>
  (await session.query<{ id: bigint }>('SELECT id FROM outbox WHERE msg_id = $1::uuid', [msgId])).rows[0]
    ?.id as bigint;

describe('late visible ids', () => {
  it('late visible ids are found when their transaction ends, and pin nothing meanwhile', async () => {
    const { pool } = await world();
    const { pipeline, decided, stragglers, stop } = await running(pool);
    await insertRows(pool, 100);
    await until('the first rows', async () => (decided() >= 100 ? true : undefined));
    const late: bigint[] = [];
    await pool.transaction(async (session) => {
      late.push(await idOf(session, await insert(session, randomUUID(), '{}')));
      expect(late).toEqual([101n]);
      await insertRows(pool, 50);
      await until('the rows behind it', async () => (pipeline.ids.includes(151n) ? true : undefined));
      await until('a straggler', async () => (stragglers() > 0 && decided() >= 151 ? true : undefined));
      // The open transaction draws more ids while it lasts, above ids that were decided meanwhile.
      late.push(await idOf(session, await insert(session, randomUUID(), '{}')));
      await insertRows(pool, 50);
      await until('ids decided past both', async () => (decided() >= 202 ? true : undefined));
      expect(pipeline.ids).not.toContain(101n);
    });
    await until('the late rows', async () =>
      late.every((id) => pipeline.ids.includes(id)) ? true : undefined,
    );
    await until('no straggler', async () => (stragglers() === 0 ? true : undefined));
    await stop();
    expect(pipeline.ids.length).toBe(202);
    expect(new Set(pipeline.ids).size).toBe(202);
  });

  it('ids that never become visible delay nothing', async () => {
    const { pool } = await world();
    const { pipeline, decided, stop } = await running(pool);
    await pool
      .transaction(async (session) => {
        await insertRows(session, 10);
        throw new Error('rolled back');
      })
      .catch(() => {});
    await insertRows(pool, 5);
    await until('ids decided past the gap', async () => (decided() >= 15 ? true : undefined));
    await stop();
    expect(pipeline.ids).toEqual([11n, 12n, 13n, 14n, 15n]);
  });

  it('a transaction that locks the table and writes nothing does not delay ids', async () => {
    const { pool } = await world();
    const { pipeline, decided, stop } = await running(pool);
    await pool.transaction(async (session) => {
      await session.query('DELETE FROM outbox WHERE false');
      await insertRows(pool, 5);
      await until('ids decided', async () => (decided() >= 5 ? true : undefined));
      const late = await idOf(session, await insert(session, randomUUID(), '{}'));
      expect(late).toBe(6n);
    });
    await until('its row', async () => (pipeline.ids.includes(6n) ? true : undefined));
    await stop();
  });

  it('late visible ids are found without a sequence that assigns ids in order', async () => {
    const { pool } = await world();
    await pool.query('ALTER SEQUENCE outbox_id_seq CACHE 10');
    expect((await describeOutbox(pool, 'outbox')).sequence).toBeUndefined();
    const { pipeline, stop } = await running(pool);
    const late = await pool.transaction(async (session) => {
      const id = await idOf(session, await insert(session, randomUUID(), '{}'));
      await insertRows(pool, 20);
      await until('the others', async () => (pipeline.ids.length >= 20 ? true : undefined));
      return id;
    });
    await until('the late row', async () => (pipeline.ids.includes(late) ? true : undefined));
    await stop();
    expect(pipeline.ids.length).toBe(new Set(pipeline.ids).size);
  });
});

describe('restart detector', () => {
  it('a lost connection is no loss while another session of the relays exists, and is one when none does', async () => {
    const name = `restarts ${own.suffix}`;
    let opened = 0;
    const pool = await pgDriver.connect({
      url: stack.postgres,
      connectionsMax: 1,
      applicationName: name,
      connectTimeoutMs: 60_000,
      onConnect: () => {
        opened++;
      },
    });
    const other = await connectPool(stack.postgres, { name, connections: 1 });
    const admin = await connectPool(stack.postgres, { connections: 1 });
    const reconnect = async (): Promise<void> => {
      const before = opened;
      const { rows } = await pool.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      await admin.query('SELECT pg_terminate_backend($1, 60000)', [rows[0]?.pid as number]);
      await until('another connection', async () => {
        await pool.query('SELECT 1');
        return opened > before;
      });
    };
    const detector = new RestartDetector(pool, () => opened);
    expect([await detector.mayHaveLost(), detector.isDue()]).toEqual([true, false]);
    await reconnect();
    expect([detector.isDue(), await detector.mayHaveLost()]).toEqual([true, false]);
    await other.close();
    await until('the end of the other session', async () => {
      const { rows } = await admin.query(
        'SELECT FROM pg_stat_activity WHERE application_name = $1 AND pid <> ALL ($2::int[])',
        [
          name,
          (await pool.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows.map(({ pid }) => pid),
        ],
      );
      return rows.length === 0;
    });
    await reconnect();
    expect([detector.isDue(), await detector.mayHaveLost(), detector.isDue()]).toEqual([true, true, false]);
    await pool.close();
    await admin.close();
  });
});

describe('large payloads', () => {
  it('large rows are read as many at a time as their bytes allow, a larger one alone, and none twice', async () => {
    const { pool } = await world();
    const sizes = [...Array.from({ length: 12 }, () => 100_000), 400_000, 10, 20, 400_001, 299_990, 10];
    for (const size of sizes)
      await pool.query(
        `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
         VALUES (gen_random_uuid(), gen_random_uuid(), 't', convert_to(repeat('x', $1::int), 'UTF8'))`,
        [size],
      );
    const { pipeline, stop } = await running(pool, 300_000);
    await until('all rows', async () => (pipeline.ids.length >= sizes.length ? true : undefined));
    await stop();
    expect(pipeline.ids).toEqual(sizes.map((_, i) => BigInt(i + 1)));
    expect(pipeline.calls).toEqual([...[1, 2, 3, 4].map(() => 300_000), 400_000, 30, 400_001, 300_000]);
  });
});

const HOLDER_MS_MAX = 120_000;

describe('held horizon', () => {
  it('a held horizon leaves the pending scan flat over 100,000 dead entries, and its holder is reported', async () => {
    const { pool, schema } = await world();
    const shape = await describeOutbox(pool, 'outbox');
    // Planner settings of a relay.
    const more = { enable_seqscan: 'off', enable_bitmapscan: 'off' };
    const relays = await pgDriver.connect({
      url: withSettings(stack.postgres, { schema, more }),
      connectionsMax: 1,
      applicationName: 'test',
      connectTimeoutMs: 60_000,
    });
    const counting = explained(relays);
    await insertRows(pool, 100_000);
    const horizon = new SafeIdHorizon(pool, shape, realClock, STRAGGLER_MS);
    const read = (cursor: bigint): Promise<unknown> =>
      readPending(counting.pool, shape, {
        cursor,
        decided: cursor,
        except: [],
        stragglers: [],
        filter: { shards: 1, owned: [0] },
        limit: 100,
        bytesMax: 8 << 20,
      });
    /** Counts the pages that the server reads. */
    const pagesOf = async (work: Promise<unknown>): Promise<number> => {
      const before = counting.cost().pages;
      await work;
      return counting.cost().pages - before;
    };
    await pool.transaction(async (holder) => {
      await holder.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
      await holder.query('SELECT 1');
      await pool.query('UPDATE outbox SET published_at = now()');
      await until('ids decided', async () => {
        await horizon.poll();
        const mark = horizon.mark();
        await read(100_000n);
        horizon.covered(mark);
        return horizon.decided >= 100_000n ? true : undefined;
      });
      const whole = await pagesOf(read(-1n));
      const flat = await pagesOf(read(horizon.decided));
      expect(flat).toBeLessThan(whole / 4);
      const metrics = new Metrics();
      const lag = new LagMeter(counting.pool, shape, realClock, metrics);
      await lag.poll();
      expect(await pagesOf(lag.poll())).toBeLessThan(whole / 2);
      const watch = new XminMonitor(pool, realClock, metrics, silentLogger, 1000);
      const { rows } = await holder.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      // Other tests hold the horizon too, and began earlier: silent hosts and crashed sessions, for
      // up to a minute.
      const ours = `pid ${rows[0]?.pid} test`;
      const found = await until(
        'the holder',
        async () => {
          const worst = await watch.poll();
          return worst?.holder === ours ? worst : undefined;
        },
        HOLDER_MS_MAX,
      );
      expect(found.kind).toBe('session');
      expect(found.transactions).toBeGreaterThan(0);
      expect(metrics.gauge('relay_horizon_seconds', '').value()).toBeGreaterThanOrEqual(1);
    });
    await relays.close();
  });

  it('the lag is the number of pending rows, exact while it is small', async () => {
    const { pool } = await world();
    const shape = await describeOutbox(pool, 'outbox');
    const metrics = new Metrics();
    const lag = new LagMeter(pool, shape, realClock, metrics);
    const rows = async (): Promise<number> => {
      await lag.poll();
      return metrics.gauge('relay_lag_rows', '').value();
    };
    expect(await rows()).toBe(0);
    await insertRows(pool, 7);
    expect(await rows()).toBe(7);
    await pool.query('UPDATE outbox SET published_at = now() WHERE id <= 3');
    expect(await rows()).toBe(4);
    await insertRows(pool, 20_000);
    expect(await rows()).toBe(20_004);
    expect(metrics.gauge('relay_lag_seconds', '').value()).toBeGreaterThan(0);
  });
});

describe('unusable table', () => {
  it.each([
    { what: 'no column', sql: 'ALTER TABLE outbox DROP COLUMN event_type', message: /no column event_type/ },
    {
      what: 'no mark',
      sql: 'ALTER TABLE outbox DROP COLUMN published_at CASCADE',
      message: /no column published_at/,
    },
    {
      what: 'another type',
      sql: 'ALTER TABLE outbox ALTER COLUMN payload TYPE text USING encode(payload, $$hex$$)',
      message: /has payload text/,
    },
    {
      what: 'a view',
      sql: 'ALTER TABLE outbox RENAME TO real; CREATE VIEW outbox AS SELECT * FROM real',
      message: /is not a table/,
    },
  ])('an unusable table is refused in one sentence: $what', async ({ sql, message }) => {
    const { pool } = await world();
    for (const statement of sql.split(';')) await pool.query(statement);
    await expect(describeOutbox(pool, 'outbox')).rejects.toMatchObject({
      code: 'table_unusable',
      message: expect.stringMatching(message),
    });
  });

  it('a table is refused where the user may not mark rows', async () => {
    const { pool, schema } = await world();
    const role = `${schema}_reader`;
    await pool.query(`CREATE ROLE ${role}`);
    try {
      await pool.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
      await pool.query(`GRANT SELECT ON outbox TO ${role}`);
      await pool.transaction(async (session) => {
        await session.query(`SET LOCAL ROLE ${role}`);
        await expect(describeOutbox(session as SqlPool, 'outbox')).rejects.toMatchObject({
          code: 'table_unusable',
          message: expect.stringMatching(/may not be marked/),
        });
      });
    } finally {
      await pool.query(`DROP OWNED BY ${role}`);
      await pool.query(`DROP ROLE ${role}`);
    }
    await expect(describeOutbox(pool, 'no such; table')).rejects.toMatchObject({ code: 'table_unusable' });
    await expect(describeOutbox(pool, 'nowhere')).rejects.toMatchObject({ code: 'tables_missing' });
  });
});
