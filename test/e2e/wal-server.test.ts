/** The wal mode on servers that restart, lack a setting or a right, or give the slot up: said in one clear error at the start, healed
 *  without a lost row afterwards. */
import { randomUUID } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { until } from './engine-kit.ts';
import { type Running, type WalWorld, walKit } from './wal-kit.ts';
import { ownServer } from './wal-server.ts';

const server = await ownServer();
await server.start({ idle_replication_slot_timeout: '0' });
afterAll(() => server.close());
const kit = walKit(server.url, false);

const active = (running: Running): Promise<true> =>
  until('a running stream', async () => (running.value('relay_wal_active') === 1 ? true : undefined), 40_000);
const ids = (running: Running): bigint[] => running.pipeline.published.map((row) => row.id);

/** Fills and leaves segments of the log, so that a checkpoint may drop what no slot may hold. */
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
  const { rows } = await world.pool.query<{ said: string }>(
    `SELECT coalesce(to_jsonb(s)->>'invalidation_reason', wal_status) AS said FROM pg_replication_slots s WHERE slot_name = $1`,
    [await world.slot()],
  );
  return rows[0]?.said ?? 'none';
}

describe('a server that gives the slot up', () => {
  it('for the log it holds: recreated and swept, while no relay ran and under one that waits', async () => {
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
    // The broker is away, the slot stands, the log grows past its bound: the server ends the stream.
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
    expect(second.log.some(({ message }) => message.includes('cannot serve'))).toBe(true);
    await second.stop();
  });

  it('for idling too long', async () => {
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

describe('a server that restarts', () => {
  it('goes on after a power cut, and after a takeover by a server without the slot', async () => {
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
    // What a standby that was promoted has: all rows, and no slot.
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
});

describe('a server that cannot', () => {
  const refused = async (running: Running): Promise<readonly (string | undefined)[]> => {
    const error = findMillraceError(
      await running.ended.then(
        () => undefined,
        (thrown: unknown) => thrown,
      ),
    );
    return [error?.code, `${error?.message}`, error?.next];
  };

  it('says so: the role may not replicate', async () => {
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
      expect.stringMatching(/making the replication slot .* was refused: .*permission denied/),
      expect.stringContaining('give the role REPLICATION'),
    ]);
  });

  it('says so: no slot is left, and wal_level is too low', async () => {
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
