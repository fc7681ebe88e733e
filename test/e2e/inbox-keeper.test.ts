/** The inbox keeper on a real database, with a redelivery horizon that the test sets: partitions
 *  that it creates, drops and keeps, and rows that it deletes. */
import { describe, expect, it } from 'vitest';
import { coreError, type MillraceError } from '../../src/core/errors.ts';
import { type Logger, silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { parseDuration } from '../../src/core/quantity.ts';
import { inboxNames } from '../../src/outbox/inbox/names.ts';
import { Inbox } from '../../src/outbox/inbox/once.ts';
import {
  InboxKeeper,
  type InboxKeeperOptions,
  readDatabaseNowMs,
} from '../../src/outbox/inbox/retention/keeper.ts';
import type { TopicReading } from '../../src/outbox/inbox/retention/live-horizon.ts';
import { listPartitions, readFloorMs } from '../../src/outbox/inbox/retention/partitions.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { HOUR_MS, type InboxWorld, idAt, inboxWorld, T0, v4 } from './inbox-kit.ts';

// Starts the stack here, so that its start does not count toward the time limit of a test.
await sharedStack();
const inbox = new Inbox();
const NOW = T0 + 100 * HOUR_MS;

/** Inputs of a keeper; a test changes them between turns. */
interface Inputs {
  nowMs: number;
  topic: TopicReading | 'away';
  unmarkedMs: number | undefined;
  /** Clock of the process, where it differs from the clock of the database. */
  processMs?: number;
  warnings: string[];
}

function keeperOf(world: InboxWorld, over: Partial<InboxKeeperOptions> = {}) {
  const inputs: Inputs = {
    nowMs: NOW,
    topic: { retentionMs: 4 * HOUR_MS, oldestRecordMs: undefined, oldestUncommittedMs: undefined },
    unmarkedMs: undefined,
    warnings: [],
  };
  const log: Logger = { ...silentLogger, warn: (_, message) => void inputs.warnings.push(message) };
  const metrics = new Metrics();
  const keeper = new InboxKeeper({
    pool: world.pool,
    names: inbox.names,
    sources: {
      databaseNowMs: async () => inputs.nowMs,
      processNowMs: () => inputs.processMs ?? inputs.nowMs,
      topic: async () => {
        if (inputs.topic === 'away') throw coreError('unreachable', 'no broker answers');
        return inputs.topic;
      },
      outbox: async () => inputs.unmarkedMs,
    },
    ttlMs: 8 * HOUR_MS,
    parts: { relayOutageMs: HOUR_MS, consumerOutageMs: HOUR_MS, clockSkewMs: HOUR_MS },
    unsafe: false,
    widthMs: HOUR_MS,
    aheadMs: 2 * HOUR_MS,
    everyMs: 5,
    metrics,
    log,
    drain: new AbortController().signal,
    sleep: async () => {},
    ...over,
  });
  const gauge = (name: string): number => {
    const labels = name.startsWith('inbox_') ? ['inbox'] : [];
    const found = metrics.gauge(name, '', labels);
    return found.value(found.series(...(labels.length > 0 ? ['inbox'] : [])));
  };
  return { keeper, inputs, metrics, gauge };
}

const spans = async (world: InboxWorld): Promise<number[][]> =>
  (await listPartitions(world.pool, inbox.names)).map(({ fromMs, toMs }) => [
    (fromMs - NOW) / HOUR_MS,
    (toMs - NOW) / HOUR_MS,
  ]);
const claim = (world: InboxWorld, ids: readonly string[]) =>
  world.pool.transaction((session) => inbox.claim(session, ids));
const aged = (world: InboxWorld, ids: readonly string[], ms: number) =>
  world.pool.query(
    'UPDATE inbox SET processed_at = to_timestamp($2::float8 / 1000) WHERE msg_id = ANY ($1::uuid[])',
    [[...ids], ms],
  );

describe('keeper partitions', () => {
  it('the partitions cover the TTL and the time ahead, absorb the default partition, and continue at another width', async () => {
    const world = await inboxWorld();
    const ids = [idAt(NOW - HOUR_MS / 2), idAt(NOW - 7 * HOUR_MS), idAt(NOW - 50 * HOUR_MS)];
    await claim(world, ids);
    const first = keeperOf(world);
    expect((await first.keeper.turn()).partitionsMade).toBe(10);
    expect((await first.keeper.turn()).partitionsMade).toBe(0);
    expect((await spans(world)).at(0)).toEqual([-8, -7]);
    expect((await spans(world)).at(-1)).toEqual([1, 2]);
    const wide = keeperOf(world, { widthMs: 6 * HOUR_MS, aheadMs: 12 * HOUR_MS });
    expect((await wide.keeper.turn()).partitionsMade).toBe(3);
    const all = await spans(world);
    // The third new partition, from -10 to -8, lies behind the TTL and is dropped in the same turn.
    expect(all.at(0)).toEqual([-8, -7]);
    expect(all.slice(-3)).toEqual([
      [1, 2],
      [2, 8],
      [8, 14],
    ]);
    for (let i = 1; i < all.length; i++) expect(all[i]?.[0]).toBe(all[i - 1]?.[1]);
    expect((await claim(world, ids)).seen.size).toBe(3);
  });

  it('the keeper refuses more partitions than a database should hold', async () => {
    const world = await inboxWorld();
    const { keeper } = keeperOf(world, { widthMs: 1000 });
    const refused = await keeper.turn().then(
      () => undefined,
      (thrown: unknown) => thrown as MillraceError,
    );
    expect(refused).toMatchObject({ code: 'too_many_partitions' });
    const [, width] = /a width of (\S+) or more: -inbox-width of payments/.exec(refused?.next ?? '') ?? [];
    expect(await spans(world)).toEqual([]);
    // The width that the message suggests is sufficient.
    expect((10 * HOUR_MS) / (parseDuration(width ?? '') ?? 0)).toBeLessThan(5000);
  });

  it('concurrent keepers create each partition once', async () => {
    const world = await inboxWorld();
    const turns = await Promise.all([1, 2, 3].map(() => keeperOf(world).keeper.turn()));
    await keeperOf(world).keeper.turn();
    expect(turns.reduce((sum, turn) => sum + turn.partitionsMade, 0)).toBeGreaterThan(0);
    expect(await spans(world)).toHaveLength(10);
  });
});

describe('expiry', () => {
  it('the keeper drops whole hours behind the TTL, raises the floor to their end, and keeps younger hours', async () => {
    const world = await inboxWorld();
    const { keeper, inputs, gauge } = keeperOf(world);
    await keeper.turn();
    const old = idAt(NOW - 7.5 * HOUR_MS);
    const young = idAt(NOW - 6.5 * HOUR_MS);
    await claim(world, [old, young]);
    expect(gauge('dedup_ttl_margin_seconds')).toBe(3600);
    inputs.nowMs = NOW + 0.99 * HOUR_MS;
    expect((await keeper.turn()).partitionsDropped).toBe(0);
    inputs.nowMs = NOW + HOUR_MS;
    expect((await keeper.turn()).partitionsDropped).toBe(1);
    expect(await readFloorMs(world.pool, inbox.names)).toBe(NOW - 7 * HOUR_MS);
    expect(gauge('inbox_floor_age_seconds')).toBe(8 * 3600);
    const found = await claim(world, [old, young]);
    expect([[...found.undecidable], [...found.seen]]).toEqual([[old], [young]]);
    expect((await spans(world)).at(0)).toEqual([-7, -6]);
    // After the clock went back, the keeper creates no partition below the floor.
    inputs.nowMs = NOW - 20 * HOUR_MS;
    await keeper.turn();
    expect((await spans(world)).at(0)).toEqual([-7, -6]);
  });

  it.each<[string, Partial<TopicReading>, number | undefined]>([
    ['the retention was raised', { retentionMs: 30 * HOUR_MS }, undefined],
    ['the topic keeps everything', { retentionMs: Number.POSITIVE_INFINITY }, undefined],
    ['an old record can still be read', { oldestRecordMs: NOW - 9 * HOUR_MS }, undefined],
    ['the group lags', { oldestUncommittedMs: NOW - 9 * HOUR_MS }, undefined],
    ['an old outbox row is not marked', {}, NOW - 9 * HOUR_MS],
  ])('the keeper keeps ids beyond their TTL while %s, and logs it once', async (_, topic, unmarkedMs) => {
    const world = await inboxWorld();
    const { keeper, inputs, gauge } = keeperOf(world);
    await keeper.turn();
    const id = idAt(NOW - 7.5 * HOUR_MS);
    await claim(world, [id]);
    const normal = inputs.topic as TopicReading;
    inputs.topic = { ...normal, ...topic };
    inputs.unmarkedMs = unmarkedMs;
    inputs.nowMs = NOW + 2 * HOUR_MS;
    for (let turn = 0; turn < 2; turn++) expect((await keeper.turn()).partitionsDropped).toBe(0);
    expect(gauge('dedup_ttl_margin_seconds')).toBeLessThan(0);
    expect(inputs.warnings).toEqual([
      'the dedup TTL is below the redelivery horizon: keys are kept beyond their TTL',
    ]);
    expect((await claim(world, [id])).seen.size).toBe(1);
    inputs.topic = normal;
    inputs.unmarkedMs = undefined;
    expect((await keeper.turn()).partitionsDropped).toBe(2);
    expect(gauge('dedup_ttl_margin_seconds')).toBeGreaterThan(0);
  });

  it('the keeper stops while the broker does not answer, and logs it once', async () => {
    const world = await inboxWorld();
    const { keeper, inputs, gauge } = keeperOf(world);
    await keeper.turn();
    const normal = inputs.topic;
    inputs.nowMs = NOW + 5 * HOUR_MS;
    inputs.topic = 'away';
    for (let turn = 0; turn < 3; turn++) {
      expect(await keeper.turn()).toMatchObject({ partitionsDropped: 0, rowsDeleted: 0, horizon: undefined });
    }
    expect(gauge('inbox_expiry_stopped')).toBe(1);
    expect(inputs.warnings).toHaveLength(1);
    // The keeper still creates partitions for new ids.
    expect((await spans(world)).at(-1)?.[1]).toBeGreaterThanOrEqual(7);
    inputs.topic = normal;
    expect((await keeper.turn()).partitionsDropped).toBe(5);
    expect(gauge('inbox_expiry_stopped')).toBe(0);
  });

  it('the keeper drops no id whose record the topic still has when the database clock jumps a month ahead', async () => {
    const world = await inboxWorld();
    const { keeper, inputs } = keeperOf(world);
    await keeper.turn();
    const id = idAt(NOW - 0.5 * HOUR_MS);
    await claim(world, [id]);
    inputs.topic = { ...(inputs.topic as TopicReading), oldestRecordMs: NOW };
    inputs.nowMs = NOW + 720 * HOUR_MS;
    await keeper.turn();
    expect((await claim(world, [id])).seen.size).toBe(1);
  });

  it('the keeper stops while the clocks of database and process disagree in either direction, and logs it', async () => {
    const world = await inboxWorld();
    const { keeper, inputs, gauge } = keeperOf(world);
    await keeper.turn();
    await claim(world, [idAt(NOW), idAt(NOW - HOUR_MS)]);
    inputs.processMs = NOW;
    for (const apartMs of [48 * HOUR_MS, -2 * HOUR_MS]) {
      inputs.nowMs = NOW + apartMs;
      expect(await keeper.turn()).toMatchObject({ partitionsDropped: 0, rowsDeleted: 0, horizon: undefined });
      expect(gauge('inbox_expiry_stopped')).toBe(1);
    }
    expect(inputs.warnings).toHaveLength(1);
    expect(await readFloorMs(world.pool, inbox.names)).toBe(0);
    inputs.nowMs = NOW + HOUR_MS;
    expect((await keeper.turn()).horizon).toBeDefined();
    expect(gauge('inbox_expiry_stopped')).toBe(0);
  });

  it('an unsafe keeper uses the TTL alone', async () => {
    const world = await inboxWorld();
    const { keeper, inputs } = keeperOf(world, { unsafe: true, ttlMs: HOUR_MS });
    await keeper.turn();
    inputs.nowMs = NOW + 3 * HOUR_MS;
    expect((await keeper.turn()).partitionsDropped).toBeGreaterThan(0);
    expect(inputs.warnings).toEqual([
      'the dedup TTL is below the redelivery horizon: a late duplicate may come as unseen',
    ]);
  });

  it('the keeper deletes ids of other versions by processing time, and a UUIDv7 only below the floor', async () => {
    const world = await inboxWorld();
    const { keeper, inputs } = keeperOf(world);
    await keeper.turn();
    // Read as UUIDv7, these ids have a time far ahead. An id in the hour of a partition would be
    // dropped with that partition.
    const timeless = (): string => `f${v4().slice(1)}`;
    const oldIds = Array.from({ length: 500 }, timeless);
    const youngIds = Array.from({ length: 500 }, timeless);
    const farAhead = idAt(NOW + 2000 * HOUR_MS);
    const farBehind = idAt(NOW - 2000 * HOUR_MS);
    await claim(world, [...oldIds, ...youngIds, farAhead, farBehind]);
    await world.pool.query(
      `INSERT INTO inbox (msg_id, processed_at) SELECT overlay(gen_random_uuid()::text placing 'f' from 1)::uuid, to_timestamp($1::float8 / 1000) FROM generate_series(1, 21000)`,
      [NOW - 8.5 * HOUR_MS],
    );
    await aged(world, [...oldIds, farAhead, farBehind], NOW - 8.1 * HOUR_MS);
    await aged(world, youngIds, NOW - 7.9 * HOUR_MS);
    expect((await keeper.turn()).rowsDeleted).toBe(21_500);
    expect((await claim(world, youngIds)).seen.size).toBe(500);
    // No partition was dropped yet, so no UUIDv7 is below the floor.
    expect((await claim(world, [farAhead, farBehind])).seen.size).toBe(2);
    inputs.nowMs = NOW + HOUR_MS;
    const turn = await keeper.turn();
    expect([turn.partitionsDropped, turn.rowsDeleted]).toEqual([1, 501]);
    const late = await claim(world, [farAhead, farBehind]);
    expect([[...late.seen], [...late.undecidable]]).toEqual([[farAhead], [farBehind]]);
  });

  it('the keeper yields to a reader that holds the table, delays no claim for long, and works afterwards', async () => {
    const world = await inboxWorld();
    const { keeper, inputs } = keeperOf(world);
    await keeper.turn();
    const reader = await world.client();
    await reader.query('BEGIN');
    await reader.query('SELECT count(*) FROM inbox');
    inputs.nowMs = NOW + 3 * HOUR_MS;
    const turn = keeper.turn();
    expect((await claim(world, [v4(), idAt(NOW)])).unseen.size).toBe(2);
    expect((await turn).partitionsDropped).toBe(0);
    await reader.query('COMMIT');
    expect((await keeper.turn()).partitionsDropped).toBe(3);
  });

  it('the keeper runs until the drain, through a database error', async () => {
    const world = await inboxWorld();
    const drain = new AbortController();
    let turns = 0;
    const { keeper, inputs } = keeperOf(world, {
      drain: drain.signal,
      sleep: async () => {
        if (++turns === 1) await world.pool.query('DELETE FROM inbox_floor');
        if (turns === 2) await world.pool.query('INSERT INTO inbox_floor DEFAULT VALUES');
        if (turns === 3) drain.abort();
      },
    });
    await keeper.run();
    expect(turns).toBe(3);
    expect(inputs.warnings).toEqual(['inbox retention failed; it will be retried']);
  });
});

describe('several inboxes of one process', () => {
  it('several inboxes of one process report the smallest margin together, and stopped expiry separately', async () => {
    const world = await inboxWorld();
    await world.pool.query(inboxTableSql('other'));
    const wide = keeperOf(world);
    const narrow = keeperOf(world, {
      names: inboxNames('other'),
      metrics: wide.metrics,
      ttlMs: 7.5 * HOUR_MS,
    });
    for (const { keeper } of [wide, narrow, wide]) await keeper.turn();
    expect(wide.gauge('dedup_ttl_margin_seconds')).toBe(1800);
    narrow.inputs.topic = 'away';
    await narrow.keeper.turn();
    const stopped = wide.metrics.gauge('inbox_expiry_stopped', '', ['inbox']);
    expect(['inbox', 'other'].map((name) => stopped.value(stopped.series(name)))).toEqual([0, 1]);
  });
});

describe('database clock', () => {
  it('the clock of the database is read in ms', async () => {
    const world = await inboxWorld();
    const nowMs = await readDatabaseNowMs(world.pool);
    // A value in s would be a date in 1970, and a value in µs a date tens of thousands of years
    // ahead.
    expect(nowMs).toBeGreaterThan(Date.UTC(2020, 0, 1));
    expect(nowMs).toBeLessThan(Date.UTC(2200, 0, 1));
  });
});
