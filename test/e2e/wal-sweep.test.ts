/** The sweep of the wal mode on real tables: what other sessions commit while it goes on, and what the broker refuses. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { pgReplicationDriver } from '../../src/io/replication/pg.ts';
import { walMetrics } from '../../src/outbox/relay/wal-metrics.ts';
import { WalParking } from '../../src/outbox/relay/wal-parking.ts';
import { OutboxRows } from '../../src/outbox/relay/wal-rows.ts';
import { ID_MAX } from '../../src/outbox/relay/wal-slot.ts';
import { WalSweep } from '../../src/outbox/relay/wal-sweep.ts';
import { sharedStack } from './stack.ts';
import { ListPipeline, type WalWorld, walKit } from './wal-kit.ts';

const stack = await sharedStack();
const kit = walKit(stack.postgres);

/** Does something before a page is read. */
class Interleaved extends ListPipeline {
  pages = 0;
  beforePage: (page: number) => Promise<void> = async () => {};
  override async room(): Promise<void> {
    await super.room();
    await this.beforePage(++this.pages);
  }
}

function sweepOf({ pool }: WalWorld) {
  const pipeline = new Interleaved(pool, 'outbox');
  const metrics = walMetrics(new Metrics());
  const clock = { wallNowMs: () => Date.now(), monotonicMs: () => performance.now() };
  const parking = new WalParking({ pipeline, metrics, clock, log: silentLogger });
  const sleep = async (): Promise<void> => {};
  const sweeper = new WalSweep({ pipeline, metrics, parking, log: silentLogger, sleep, goesOn: () => true });
  const rows = new OutboxRows(pool, 'outbox', true);
  return { pipeline, parking, sweep: () => sweeper.sweep(rows, ID_MAX, 'no_slot') };
}

const fill = (pool: WalWorld['pool'], count: number, key: string | null = null) =>
  pool.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
     SELECT coalesce($2::uuid, gen_random_uuid()), gen_random_uuid(), 't', '{}' FROM generate_series(1, $1::int)`,
    [count, key],
  );

describe('sweep', () => {
  it('keeps a key in order whose rows are committed between two pages, the lower one in the page that was read', async () => {
    const world = await kit.world();
    const { pipeline, sweep } = sweepOf(world);
    const key = randomUUID();
    const sent: bigint[] = [];
    let commit = (): void => {};
    const gate = new Promise<void>((resolve) => {
      commit = resolve;
    });
    let drew = (): void => {};
    const drawn = new Promise<void>((resolve) => {
      drew = resolve;
    });
    await fill(world.pool, 500);
    const first = world.pool.transaction(async (session) => {
      sent.push(await world.insert(key, session));
      drew();
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
    expect(await sweep()).toBe(true);
    expect(pipeline.pages).toBe(2);
    expect(pipeline.published.length).toBe(1500);
    expect(await sweep()).toBe(true);
    expect(pipeline.published.filter((row) => row.aggregateId === key).map((row) => row.id)).toEqual(sent);
    expect(await world.pending()).toBe(0);
  });

  it('ends where thousands of rows wait behind one of their key that is refused', async () => {
    const world = await kit.world();
    const { pipeline, parking, sweep } = sweepOf(world);
    const key = randomUUID();
    await fill(world.pool, 12_000, key);
    await fill(world.pool, 100);
    pipeline.refused.add(key);
    expect(await sweep()).toBe(true);
    expect(pipeline.published.length).toBe(100);
    expect(parking.size).toBe(12_000);
    expect(parking.isFull).toBe(false);
  });

  it('leaves word of what it parked before the stream begins', async () => {
    const world = await kit.world();
    const key = randomUUID();
    const id = await world.insert(key);
    let word: unknown;
    const connected = new Promise<void>((resolve) => {
      const running = world.start({
        driver: {
          name: 'looking',
          connect: async (options) => {
            const { rows } = await world.pool.query('SELECT unswept, unswept_to FROM relay_slots');
            word ??= rows[0];
            resolve();
            return pgReplicationDriver.connect(options);
          },
        },
      });
      running.pipeline.refused.add(key);
    });
    await connected;
    expect(word).toEqual({ unswept: 'parked', unswept_to: id });
  });
});
