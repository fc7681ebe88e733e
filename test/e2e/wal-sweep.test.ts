/** The sweep of wal mode on real tables: rows that other sessions commit meanwhile, and rows that
 *  the broker refuses. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { pgReplicationDriver } from '../../src/io/postgres/replication/pg.ts';
import type { Delivered } from '../../src/outbox/relay/pipeline/contract.ts';
import type { OutboxRow } from '../../src/outbox/relay/store.ts';
import { walMetrics } from '../../src/outbox/relay/wal/metrics.ts';
import { PARKING_LIMITS, WalParking } from '../../src/outbox/relay/wal/parking.ts';
import { OutboxRows } from '../../src/outbox/relay/wal/rows.ts';
import { ID_MAX } from '../../src/outbox/relay/wal/slot.ts';
import { type SweepLimits, WalSweep } from '../../src/outbox/relay/wal/sweep.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { ListPipeline, type WalWorld, walKit } from './wal-kit.ts';

const stack = await sharedStack();
const kit = walKit(stack.postgres);

/** Pipeline that runs a hook before a page is read. */
class Interleaved extends ListPipeline {
  pages = 0;
  /** Number of rows of the largest call. */
  rowsMost = 0;
  bytesMost = 0;
  beforePage: (page: number) => Promise<void> = async () => {};
  override deliver(rows: readonly OutboxRow[]): Promise<Delivered> {
    this.rowsMost = Math.max(this.rowsMost, rows.length);
    this.bytesMost = Math.max(
      this.bytesMost,
      rows.reduce((sum, { payload }) => sum + payload.length, 0),
    );
    return super.deliver(rows);
  }
  override async room(): Promise<void> {
    await super.room();
    await this.beforePage(++this.pages);
  }
}

const LIMITS: SweepLimits = { idsMax: 100_000, pageRows: 1000, pageBytes: 1 << 20, parkKeysMax: 100 };

function sweepOf({ pool }: WalWorld, over: Partial<SweepLimits> = {}) {
  const pipeline = new Interleaved(pool, 'outbox');
  const metrics = walMetrics(new Metrics());
  const limits = { ...LIMITS, ...over };
  const parking = new WalParking({
    pipeline,
    metrics,
    log: silentLogger,
    limits: { ...PARKING_LIMITS, ...limits },
  });
  const sleep = async (): Promise<void> => {};
  const sweeper = new WalSweep({
    pipeline,
    metrics,
    parking,
    log: silentLogger,
    sleep,
    mayContinue: () => true,
    limits,
  });
  const rows = new OutboxRows(pool, 'outbox', { hasTraceparent: true, hasRecordColumns: true });
  return {
    pipeline,
    parking,
    sweep: () => sweeper.sweep(rows, ID_MAX, 'no_slot'),
    redeliver: () => parking.redeliver(rows),
  };
}

const fill = (pool: WalWorld['pool'], count: number, key: string | null = null, payloadBytes = 2) =>
  pool.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
     SELECT coalesce($2::uuid, gen_random_uuid()), gen_random_uuid(), 't', convert_to(repeat('x', $3::int), 'UTF8') FROM generate_series(1, $1::int)`,
    [count, key, payloadBytes],
  );

describe('sweep', () => {
  it('a sweep keeps a key in order whose rows are committed between two pages', async () => {
    const world = await kit.world();
    const { pipeline, sweep } = sweepOf(world);
    const key = randomUUID();
    const sent: bigint[] = [];
    let commit = (): void => {};
    const gate = new Promise<void>((resolve) => {
      commit = resolve;
    });
    let onDrawn = (): void => {};
    const drawn = new Promise<void>((resolve) => {
      onDrawn = resolve;
    });
    await fill(world.pool, 500);
    const first = world.pool.transaction(async (session) => {
      sent.push(await world.insert(key, session));
      onDrawn();
      await gate;
    });
    await drawn;
    await fill(world.pool, 1000);
    pipeline.beforePage = async (page) => {
      if (page !== 2) return;
      commit();
      await first;
      sent.push(await world.insert(key));
    };
    try {
      expect(await sweep()).toBe(true);
    } finally {
      // An open transaction keeps every new slot of the server waiting.
      commit();
    }
    expect(pipeline.pages).toBe(2);
    expect(pipeline.published.length).toBe(1500);
    expect(await sweep()).toBe(true);
    expect(pipeline.published.filter((row) => row.aggregateId === key).map((row) => row.id)).toEqual(sent);
    expect(await world.pending()).toBe(0);
  });

  it('a sweep ends when thousands of rows wait behind a refused row of their key', async () => {
    const world = await kit.world();
    const { pipeline, parking, sweep } = sweepOf(world);
    const key = randomUUID();
    await fill(world.pool, 12_000, key);
    await fill(world.pool, 100);
    pipeline.refused.add(key);
    expect(await sweep()).toBe(true);
    expect(pipeline.published.length).toBe(100);
    expect([...parking.keys()]).toEqual([key]);
    expect(parking.isFull).toBe(false);
  });

  it('a sweep ends with more refused rows than one round reads, and publishes them later in pages and in order', async () => {
    const world = await kit.world();
    const { pipeline, parking, sweep, redeliver } = sweepOf(world, {
      idsMax: 200,
      pageRows: 50,
      pageBytes: 64 * 1024,
    });
    const key = randomUUID();
    await fill(world.pool, 700, key);
    await fill(world.pool, 30, null, 40_000);
    pipeline.refused.add(key);
    expect(await sweep()).toBe(true);
    expect(pipeline.published.length).toBe(30);
    expect([...parking.keys()]).toEqual([key]);
    await redeliver();
    expect(parking.size).toBe(1);
    pipeline.refused.clear();
    for (let turn = 0; turn < 10 && parking.size > 0; turn++) await redeliver();
    expect(parking.size).toBe(0);
    const own = pipeline.published.filter((row) => row.aggregateId === key).map(({ id }) => id);
    expect(own.length).toBe(700);
    expect(own).toEqual([...own].sort((a, b) => Number(a - b)));
    expect(pipeline.rowsMost).toBe(50);
    expect(pipeline.bytesMost).toBeLessThanOrEqual(64 * 1024);
    await world.drained();
  });

  it('a sweep records its parked rows before the stream begins', async () => {
    const world = await kit.world();
    const key = randomUUID();
    const id = await world.insert(key);
    let recorded: unknown;
    const connected = new Promise<void>((resolve) => {
      const running = world.start({
        driver: {
          name: 'observing',
          connect: async (options) => {
            const { rows } = await world.pool.query('SELECT unswept, unswept_to FROM relay_slots');
            recorded ??= rows[0];
            resolve();
            return pgReplicationDriver.connect(options);
          },
        },
      });
      running.pipeline.refused.add(key);
    });
    await connected;
    expect(recorded).toEqual({ unswept: 'parked', unswept_to: id });
  });
});
