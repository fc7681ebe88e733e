/** WAL mode on a real server: the rows of the stream are published once and in order, the slot
 *  advances behind whole transactions, and no row is lost, whatever happens to the slot. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { pgReplicationDriver } from '../../src/io/postgres/replication/pg.ts';
import { parseLsn } from '../../src/outbox/relay/wal/lsn.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { dropSlots, type Running, type WalWorld, walKit } from './wal-kit.ts';

const stack = await sharedStack();
const kit = walKit(stack.postgres);

const ids = (running: Running): bigint[] => running.pipeline.published.map((row) => row.id);
const active = (running: Running): Promise<true> =>
  until('a running stream', async () => (running.value('relay_wal_active') === 1 ? true : undefined));

async function confirmed(world: WalWorld): Promise<bigint> {
  const { rows } = await world.pool.query<{ lsn: string }>(
    'SELECT confirmed_flush_lsn::text AS lsn FROM pg_replication_slots WHERE slot_name = $1',
    [await world.slot()],
  );
  return parseLsn(rows[0]?.lsn ?? '') ?? 0n;
}

async function position(world: WalWorld): Promise<bigint> {
  const { rows } = await world.pool.query<{ lsn: string }>('SELECT pg_current_wal_insert_lsn()::text AS lsn');
  return parseLsn(rows[0]?.lsn ?? '') ?? 0n;
}

const errors = (running: Running): string[] =>
  running.log.filter(({ level }) => level === 'error').map(({ message }) => message);

describe('WAL source', () => {
  it('the source publishes committed rows once in commit order, and advances the slot behind it', async () => {
    const world = await kit.world();
    const before = await world.insert(randomUUID());
    const running = world.start();
    await active(running);
    const key = randomUUID();
    const sent: bigint[] = [before];
    for (let i = 0; i < 5; i++) sent.push(await world.insert(key));
    await world.pool.transaction(async (session) => {
      for (let i = 0; i < 3; i++) sent.push(await world.insert(key, session));
      await session.query('SAVEPOINT a');
      await world.insert(key, session);
      await session.query('ROLLBACK TO SAVEPOINT a');
      sent.push(await world.insert(key, session));
    });
    await world.pool
      .transaction(async (session) => {
        await world.insert(key, session);
        throw new RangeError('no');
      })
      .catch(() => {});
    await world.drained();
    const end = await position(world);
    await until('a confirmed slot', async () => ((await confirmed(world)) >= end ? true : undefined));
    expect(ids(running)).toEqual(sent);
    expect(running.value('sweeper_found_total')).toBe(0);
    expect(running.value('relay_wal_swept_total', 'first_start')).toBe(1);
    await running.stop();
    const row = running.pipeline.published[1];
    expect(row).toMatchObject({
      aggregateId: key,
      eventType: 'order.created.v1',
      payload: Buffer.from('{}'),
    });
    const { rows } = await world.pool.query<{ created_at: Date; msg_id: string }>(
      'SELECT created_at, msg_id FROM outbox WHERE id = $1',
      [row?.id as bigint],
    );
    expect([row?.createdAt, row?.msgId]).toEqual([rows[0]?.created_at, rows[0]?.msg_id]);
    // No row is left to be published again.
    const next = world.start();
    await active(next);
    const later = await world.insert(key);
    await world.drained();
    expect(ids(next)).toEqual([later]);
  });

  it('the source publishes the rows of a COPY and of 60,000 in one transaction, which share positions', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    const copied = Array.from({ length: 500 }, () => [
      randomUUID(),
      randomUUID(),
      'copied',
      Buffer.from('{}'),
    ]);
    await world.pool.copyIn('outbox', ['aggregate_id', 'msg_id', 'event_type', 'payload'], copied);
    await world.pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
       SELECT gen_random_uuid(), gen_random_uuid(), 'many', '{}' FROM generate_series(1, 60000)`,
    );
    await world.drained();
    const seen = ids(running);
    expect(seen.length).toBe(60_500);
    expect(seen).toEqual([...seen].sort((a, b) => Number(a - b)));
    expect(running.pipeline.largest, 'in parts').toBeLessThan(10_000);
    expect(running.value('sweeper_found_total')).toBe(0);
  });

  it('the source redelivers unconfirmed rows after it died, including rows that share a published position', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    // The rows are published and the mark never ends: the process dies at this point.
    await world.pool.query('CREATE TABLE gate (open int)');
    const lock = world.pool.transaction(async (session) => {
      await world.pool.query(
        `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) SELECT gen_random_uuid(), gen_random_uuid(), 't', '{}' FROM generate_series(1, 20)`,
      );
      await until('published rows', async () => (first.pipeline.published.length === 20 ? true : undefined));
      return session;
    });
    await lock;
    first.pipeline.open = false;
    const late = await world.insert(randomUUID());
    await until('a row at the gate', async () => (first.pipeline.isInFlight(late) ? true : undefined));
    const held = await confirmed(world);
    await world.pool.query(
      'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1',
      [await world.slot()],
    );
    first.setOwner(false);
    const second = world.start();
    await world.drained();
    expect(ids(second)).toContain(late);
    expect(await confirmed(world)).toBeGreaterThanOrEqual(held);
    first.pipeline.open = true;
  });

  it('the source publishes no row again that was marked while its slot rested', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await world.insert(randomUUID());
    await world.drained();
    await first.stop();
    const key = randomUUID();
    for (let i = 0; i < 5; i++) await world.insert(key);
    // Marks of a relay that polls.
    await world.pool.query('UPDATE outbox SET published_at = now() WHERE published_at IS NULL');
    const pending = [await world.insert(key), await world.insert(randomUUID())];
    const next = world.start();
    await world.drained();
    expect(ids(next)).toEqual(pending);
    expect(next.value('relay_wal_skipped_total')).toBeGreaterThanOrEqual(5);
    expect(next.value('sweeper_found_total')).toBe(0);
  });

  it('the source advances the slot while only other tables are written, and while nothing is written', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    await world.pool.query('CREATE TABLE elsewhere AS SELECT generate_series(1, 5000) AS n');
    const end = await position(world);
    await until('a slot that moved past other tables', async () =>
      (await confirmed(world)) >= end ? true : undefined,
    );
    expect(running.value('relay_wal_heartbeats_total')).toBeGreaterThan(0);
    expect(running.value('relay_slot_wal_status', 'reserved')).toBe(1);
    expect(running.value('relay_slot_safe_wal_bytes')).toBe(Number.POSITIVE_INFINITY);
  });

  it('the source confirms nothing while a row is outstanding, although feedback flows and the server asks', async () => {
    const world = await kit.world();
    const url = new URL(stack.postgres);
    url.searchParams.set('options', '-c wal_sender_timeout=10000ms');
    const running = world.start({ url: url.toString() });
    await active(running);
    running.pipeline.open = false;
    const first = await world.insert(randomUUID());
    const after = await position(world);
    await until('a row at the gate', async () => (running.pipeline.isInFlight(first) ? true : undefined));
    // Earlier positions may still be confirmed with the next heartbeat.
    const heartbeats = running.value('relay_wal_heartbeats_total');
    await until('two heartbeats', async () =>
      running.value('relay_wal_heartbeats_total') >= heartbeats + 2 ? true : undefined,
    );
    // The source has confirmed its last position; the walsender may not have read it yet.
    const held = await until('a slot at the position that the source confirmed', async () => {
      const { rows } = await world.pool.query<{ lsn: string }>(
        'SELECT confirmed_lsn::text AS lsn FROM relay_slots',
      );
      const slot = await confirmed(world);
      return slot === parseLsn(rows[0]?.lsn ?? '') ? slot : undefined;
    });
    expect(held).toBeLessThan(after);
    // Enough rows to fill every buffer: the stream is paused, and the server must not end it.
    for (let i = 0; i < 12; i++)
      await world.pool.query(
        `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) SELECT gen_random_uuid(), gen_random_uuid(), 't', decode(repeat('ab', 1000), 'hex') FROM generate_series(1, 3000)`,
      );
    await until('a pause', async () => (running.value('relay_wal_pauses_total') > 0 ? true : undefined));
    const { rows: paused } = await world.pool.query<{ at: Date }>('SELECT now() AS at');
    await until('feedback after one and a half timeouts of the server', async () => {
      const { rows } = await world.pool.query(
        `SELECT FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid
         WHERE slot_name = $1 AND reply_time > $2::timestamptz + interval '15 seconds'`,
        [await world.slot(), paused[0]?.at as Date],
      );
      return rows.length > 0;
    });
    expect(await confirmed(world)).toBe(held);
    expect(running.value('relay_wal_reconnects_total')).toBe(0);
    running.pipeline.open = true;
    await world.drained();
    expect(new Set(ids(running)).size).toBe(36_001);
    expect(ids(running).length).toBe(36_001);
    expect(running.value('sweeper_found_total')).toBe(0);
  });
});

describe('damaged slot', () => {
  const breakages: ReadonlyArray<{
    readonly what: string;
    readonly reason: string;
    readonly break: (world: WalWorld) => Promise<unknown>;
  }> = [
    {
      what: 'dropped',
      reason: 'slot_missing',
      break: async ({ pool, schema }) => dropOnly(pool, schema),
    },
    {
      what: 'recreated by another process',
      reason: 'slot_foreign',
      break: async (world) => {
        const slot = await world.slot();
        await dropOnly(world.pool, world.schema);
        await world.insert(randomUUID());
        return world.pool.query(`SELECT pg_create_logical_replication_slot($1::name, 'pgoutput')::text`, [
          slot,
        ]);
      },
    },
    {
      what: 'advanced by another process',
      reason: 'slot_foreign',
      break: async (world) => {
        await world.insert(randomUUID());
        return world.pool.query('SELECT pg_replication_slot_advance($1::name, pg_current_wal_lsn())::text', [
          await world.slot(),
        ]);
      },
    },
    {
      what: 'older than its publication',
      reason: 'publication_missing',
      break: async ({ pool, schema }) => {
        const { rows } = await pool.query<{ pubname: string }>(
          'SELECT pubname::text FROM pg_publication WHERE pubname LIKE $1',
          [`millrace\\_${schema}\\_%`],
        );
        return pool.query(`DROP PUBLICATION ${rows[0]?.pubname}`);
      },
    },
  ];

  async function dropOnly(pool: WalWorld['pool'], schema: string): Promise<void> {
    await pool.query(
      'SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots WHERE slot_name LIKE $1',
      [`millrace\\_${schema}\\_%`],
    );
  }

  it.each(breakages)(
    'every row is published in key order after the slot was $what while no relay ran',
    async (breakage) => {
      const world = await kit.world();
      const first = world.start();
      await active(first);
      const key = randomUUID();
      const sent = [await world.insert(key)];
      await world.drained();
      await first.stop();
      sent.push(await world.insert(key));
      await breakage.break(world);
      sent.push(await world.insert(key));
      const second = world.start();
      await active(second);
      sent.push(await world.insert(key));
      await world.drained();
      const seen = [...first.pipeline.published, ...second.pipeline.published].filter(
        (row) => row.aggregateId === key,
      );
      expect([...new Set(seen.map((row) => row.id))]).toEqual(sent);
      expect(second.value('sweeper_found_total')).toBeGreaterThanOrEqual(2);
      // Rows that were published while the slot was being created have a separate reason.
      const swept = ['no_slot', breakage.reason].map((reason) =>
        second.value('relay_wal_swept_total', reason),
      );
      expect(swept.reduce((sum, rows) => sum + rows)).toBeGreaterThanOrEqual(2);
      expect(errors(second)[0]).toMatch(/replication slot .* pending rows are published from the table/);
    },
  );

  it('every row is published in order when the slot is recreated before its stream starts', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await first.stop();
    const key = randomUUID();
    const sent = [await world.insert(key)];
    let swaps = 0;
    const second = world.start({
      driver: {
        name: 'swapping',
        connect: async (options) => {
          const session = await pgReplicationDriver.connect(options);
          if (swaps++ === 0) {
            const slot = await world.slot();
            await dropOnly(world.pool, world.schema);
            sent.push(await world.insert(key));
            await world.pool.query(`SELECT pg_create_logical_replication_slot($1::name, 'pgoutput')::text`, [
              slot,
            ]);
            sent.push(await world.insert(key));
          }
          return session;
        },
      },
    });
    await world.drained();
    await active(second);
    sent.push(await world.insert(key));
    await world.drained();
    expect([...new Set(ids(second))]).toEqual(sent);
    expect(second.value('relay_wal_swept_total', 'slot_foreign')).toBeGreaterThanOrEqual(2);
  });

  it('a slot dropped under a running relay is recreated after its sender is terminated', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    await world.insert(randomUUID());
    await world.drained();
    await dropSlots(world.pool, world.schema);
    const late = await world.insert(randomUUID());
    await until('the row', async () => (ids(running).includes(late) ? true : undefined));
    await until('another slot', async () =>
      running.value('relay_wal_slot_recreated_total', 'slot_missing') +
        running.value('relay_wal_slot_recreated_total', 'publication_missing') >
      0
        ? true
        : undefined,
    );
    await active(running);
    const last = await world.insert(randomUUID());
    await until('the next row', async () => (ids(running).includes(last) ? true : undefined));
    await world.drained();
  });

  it('the sweep of the source finds a row that the stream never had', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    await world.insert(randomUUID());
    await world.drained();
    const id = await world.insert(randomUUID());
    await world.drained();
    // A row that becomes pending without an insert represents a row that a decoder missed.
    await world.pool.query('UPDATE outbox SET published_at = NULL WHERE id = $1', [id]);
    await world.drained();
    expect(ids(running).filter((one) => one === id).length).toBe(2);
    expect(running.value('sweeper_found_total')).toBe(1);
    expect(errors(running)).toEqual([expect.stringContaining('that the stream had not delivered')]);
  });

  it('the source skips a message above its bound, and finds its row in the table', async () => {
    const world = await kit.world();
    const running = world.start({ messageBytesMax: 1000 });
    await active(running);
    await world.pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
       VALUES (gen_random_uuid(), gen_random_uuid(), 'big', decode(repeat('ab', 2000), 'hex'))`,
    );
    const small = await world.insert(randomUUID());
    await world.drained();
    expect(running.value('relay_wal_oversize_total')).toBe(1);
    expect(running.value('sweeper_found_total')).toBe(1);
    expect(new Set(ids(running))).toEqual(new Set([small - 1n, small]));
  });

  it('the source recreates a slot that cannot be read three times in a row, and sweeps', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await first.stop();
    // The log keeps a row without a time; the table was repaired long ago.
    await world.pool.query('ALTER TABLE outbox ALTER created_at DROP NOT NULL');
    await world.pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, created_at)
       VALUES (gen_random_uuid(), gen_random_uuid(), 't', '', NULL)`,
    );
    await world.pool.query('DELETE FROM outbox WHERE created_at IS NULL');
    await world.pool.query('ALTER TABLE outbox ALTER created_at SET NOT NULL');
    const id = await world.insert(randomUUID());
    const running = world.start();
    await until('another slot', async () =>
      running.value('relay_wal_slot_recreated_total', 'slot_missing') === 1 ? true : undefined,
    );
    await world.drained();
    await active(running);
    expect(ids(running)).toEqual([id]);
    // A connection that a slow server did not accept in time is `unreachable`, and does not count.
    const failures = running.log
      .filter(({ message }) => message.startsWith('the stream ended'))
      .map(({ fields }) => fields['code']);
    expect(failures.filter((code) => code !== 'unreachable')).toEqual(
      Array.from({ length: 3 }, () => 'wal_undecodable'),
    );
    expect(running.value('relay_wal_reconnects_total')).toBe(failures.length);
    expect(errors(running)[0]).toContain('cannot be read any further');
    const next = await world.insert(randomUUID());
    await world.drained();
    expect(ids(running)).toEqual([id, next]);
  });

  it('the source continues when the table is migrated under a running relay', async () => {
    const world = await kit.world({ migrations: 1 });
    const running = world.start();
    await active(running);
    const key = randomUUID();
    const sent = [await world.insert(key)];
    await world.drained();
    await world.migrateOrders();
    for (let i = 0; i < 5; i++) sent.push(await world.insert(key));
    await world.drained();
    await until('another slot', async () =>
      running.value('relay_wal_slot_recreated_total', 'publication_missing') === 1 ? true : undefined,
    );
    await active(running);
    sent.push(await world.insert(key));
    await world.drained();
    expect([...new Set(ids(running))]).toEqual(sent);
  });

  it('the source publishes from the table while the creation of a slot waits for an open transaction', async () => {
    const world = await kit.world();
    await world.insert(randomUUID());
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    let opened = (): void => {};
    const ready = new Promise<void>((resolve) => {
      opened = resolve;
    });
    const holder = world.pool.transaction(async (session) => {
      await session.query('SELECT pg_current_xact_id()');
      opened();
      await gate;
    });
    await ready;
    const running = world.start();
    await world.drained();
    const second = await world.insert(randomUUID());
    await until('the row', async () => (ids(running).includes(second) ? true : undefined));
    expect(running.value('relay_wal_active')).toBe(0);
    // A drain does not wait for the transaction that the creation of the slot waits for.
    await running.stop();
    const next = world.start();
    const third = await world.insert(randomUUID());
    await until('the row', async () => (ids(next).includes(third) ? true : undefined));
    expect(next.value('relay_wal_active')).toBe(0);
    release();
    await holder;
    await active(next);
    await world.insert(randomUUID());
    await world.drained();
  });
});
