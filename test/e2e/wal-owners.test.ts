/** Ownership of the slot: the relay with all shards reads it, also after its connections were cut.
 *  Errors that no retry can fix are refused. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';
import { WalSlot, walNames } from '../../src/outbox/relay/wal/slot.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { type Running, walKit } from './wal-kit.ts';

const stack = await sharedStack();
const kit = walKit(stack.postgres);

const ids = (running: Running): bigint[] => running.pipeline.published.map((row) => row.id);
const active = (running: Running): Promise<true> =>
  until('a running stream', async () => (running.value('relay_wal_active') === 1 ? true : undefined));

describe('slot ownership and refusals', () => {
  it('a WAL relay stands by without all shards, takes the slot from a silent owner, and releases it when it loses the shards', async () => {
    const world = await kit.world();
    const first = world.start();
    const second = world.start({ owns: false });
    await active(first);
    await world.insert(randomUUID());
    await world.drained();
    expect([second.value('relay_wal_active'), ids(second)]).toEqual([0, []]);
    const holder = async (): Promise<number | undefined> => {
      const { rows } = await world.pool.query<{ active_pid: number | null }>(
        'SELECT active_pid FROM pg_replication_slots WHERE slot_name IN (SELECT slot_name FROM relay_slots)',
      );
      return rows[0]?.active_pid ?? undefined;
    };
    const held = await until('a held slot', holder);
    // The first relay still holds the slot when the second becomes the owner, as after a suspension
    // of the whole process.
    second.setOwner(true);
    await active(second);
    first.setOwner(false);
    const id = await world.insert(randomUUID());
    await world.drained();
    expect(ids(second)).toContain(id);
    expect(await until('a held slot', holder)).not.toBe(held);
    second.setOwner(false);
    first.setOwner(true);
    await active(first);
    const next = await world.insert(randomUUID());
    await until('the row', async () => (ids(first).includes(next) ? true : undefined));
    await world.drained();
  });

  it('a WAL relay that lost its slot to another relay no longer writes to the record of the slot', async () => {
    const world = await kit.world();
    const names = await walNames(world.pool, 'outbox', {});
    const [before, after] = [new WalSlot(world.pool, names), new WalSlot(world.pool, names)];
    const record = { confirmed: 10n, systemIdentifier: '7', unswept: null };
    expect(await before.claim()).toBeUndefined();
    await before.saveRecord(record);
    await before.allow(20n, 5n);
    await before.swept();
    await before.allow(30n, 6n);
    const left = { ...record, confirmed: 30n, unswept: { reason: 'parked', to: 6n } };
    expect(await before.readRecord()).toEqual(left);
    expect(await after.claim()).toEqual(left);
    expect(await before.readRecord()).toBeUndefined();
    const refused = expect.objectContaining({ code: 'slot_claimed' });
    await expect(before.allow(40n, 9n)).rejects.toEqual(refused);
    await expect(before.swept()).rejects.toEqual(refused);
    await expect(before.saveRecord(record)).rejects.toEqual(refused);
    await expect(new WalSlot(world.pool, names).saveRecord(record)).rejects.toEqual(refused);
    expect(await after.readRecord()).toEqual(left);
    await after.swept();
    expect(await after.readRecord()).toEqual({ ...left, unswept: null });
  });

  it('a WAL relay continues after its connections are cut', async () => {
    const world = await kit.world();
    const running = world.start();
    await active(running);
    for (let i = 0; i < 3; i++) {
      await world.insert(randomUUID());
      await world.pool.query(
        'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active',
        [await world.slot()],
      );
      const id = await world.insert(randomUUID());
      await until('the row', async () => (ids(running).includes(id) ? true : undefined));
    }
    await world.drained();
    expect(running.value('relay_wal_reconnects_total')).toBeGreaterThanOrEqual(3);
    expect(running.value('sweeper_found_total')).toBe(0);
  });

  it('a WAL relay with exitWhenDrained resolves when every pending row is published', async () => {
    const world = await kit.world();
    const first = world.start();
    await active(first);
    await first.stop();
    for (let i = 0; i < 20; i++) await world.insert(randomUUID());
    const running = world.start({ exitWhenDrained: true });
    await running.ended;
    expect(await world.pending()).toBe(0);
    expect(ids(running).length).toBe(20);
    expect(running.value('relay_wal_rows_total')).toBe(20);
  });

  it('a WAL relay creates a failover slot from version 17 on', async () => {
    const world = await kit.world();
    await active(world.start());
    const { rows } = await world.pool.query<{ n: bigint; failover: boolean }>(
      `SELECT count(*) AS n, bool_and((to_jsonb(s)->>'failover')::boolean) AS failover FROM pg_replication_slots s WHERE slot_name = $1`,
      [await world.slot()],
    );
    expect(rows).toEqual([{ n: 1n, failover: true }]);
  });

  it('a WAL relay refuses errors that no retry can fix, each with its own message', async () => {
    const world = await kit.world();
    const refused = async (running: Running): Promise<MillraceError> => {
      const thrown: unknown = await running.ended.then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(thrown).toBeInstanceOf(MillraceError);
      return thrown as MillraceError;
    };
    const slot = `taken_${world.schema}`;
    await world.pool.query('SELECT pg_create_physical_replication_slot($1::name)::text', [slot]);
    const taken = await refused(world.start({ names: { slot } }));
    expect([taken.code, taken.message]).toEqual([
      'slot_taken',
      expect.stringContaining('is a physical slot, not'),
    ]);
    await world.pool.query('SELECT pg_drop_replication_slot($1::name)::text', [slot]);
    const publication = `taken_${world.schema}`;
    await world.pool.query(`CREATE PUBLICATION ${publication} FOR TABLE orders`);
    const shared = await refused(world.start({ names: { publication } }));
    expect([shared.code, shared.message]).toEqual([
      'slot_taken',
      expect.stringContaining('includes other tables'),
    ]);
    await world.pool.query(`DROP PUBLICATION ${publication}`);
    for (const names of [{ slot: "a'b" }, { slot: 'x'.repeat(64) }, { publication: 'A' }])
      expect((await refused(world.start({ names }))).code).toBe('bad_value');
  });
});
