/** Members of the payments group under virtual time, from seeds. A batch is read while the previous
 *  one is written, so a revoked partition is in up to two batches. The simulated table of charges
 *  has no UNIQUE constraint: only the inbox prevents a second charge. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import type { SqlSession } from '../../src/io/postgres/sql/port.ts';
import { UuidV7 } from '../../src/outbox/ids.ts';
import { PaymentsConsumer } from '../../src/outbox/payments/consumer.ts';
import { DuplicateInjector } from '../../src/outbox/payments/duplicates.ts';
import { paymentsMetrics } from '../../src/outbox/payments/metrics.ts';
import {
  bytes,
  type GroupDatabase,
  GroupWorld,
  groupViolations,
  type Product,
  TOPIC,
} from './rebalance-kit.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const SEEDS = Array.from({ length: 20 }, (_, i) => FIRST + i);

/** Answers the statements of a batch, and the queries that ask whether it was committed. */
function answers(database: GroupDatabase, keys: ReadonlyMap<string, string>): SqlSession['query'] {
  const batches = new Map<bigint, number>();
  let last = 0n;
  const ask = async (text: string, values: readonly unknown[] = []) => {
    const rows = answer(text, values);
    return { rows, rowCount: rows.length };
  };
  const answer = (text: string, values: readonly unknown[]): readonly object[] => {
    if (text.includes('INSERT INTO charges')) {
      const [charges, orders] = values as [readonly string[], readonly string[]];
      return orders.map((id, i) => {
        database.effect({ id, key: keys.get(id) ?? '', place: charges[i] as string, offset: 0n });
        return { order_id: id, charge_id: charges[i] };
      });
    }
    if (text.includes('INSERT INTO payments_batches')) {
      batches.set(++last, database.effects.length);
      return [{ id: last, xid: String(last) }];
    }
    if (text.includes('FROM charges')) return database.effects.filter(({ place }) => place === values[0]);
    // A batch without charges may be written twice: the inbox absorbs its messages.
    if (text.includes('FROM payments_batches')) return [];
    return [{ status: 'committed' }];
  };
  return ask as unknown as SqlSession['query'];
}

/** @param waits waits of the consumer, in ms, that a drain must cut short */
const productWith = (waits: { readonly batchWaitMs: number; readonly batchEveryMs: number }): Product => ({
  valueOf: (id, n) =>
    bytes(
      JSON.stringify({
        msg_id: id,
        event_type: 'order.created.v1',
        payload: {
          order_id: id,
          account_id: '1',
          amount_cents: String(n + 1),
          created_at: '2020-09-13T12:26:40Z',
        },
      }),
    ),
  idOf: (value) => (JSON.parse(value) as { readonly msg_id: string }).msg_id,
  consumer(world, { process, ...seat }) {
    const { database, random } = world;
    database.ask = answers(database, world.keys);
    return new PaymentsConsumer({
      ...seat,
      topic: TOPIC,
      pool: database.pool(process),
      ids: new UuidV7(seat.clock, random),
      inbox: database.claims,
      injector: new DuplicateInjector(world.below(1000), 0.2),
      metrics: paymentsMetrics(new Metrics()),
      log: silentLogger,
      batchRows: 1 + world.below(8),
      batchBytes: 1 << 16,
      ...waits,
      ends: undefined,
      crashPoint: async () => {},
      onCommitted: () => {},
    });
  },
});
const PRODUCT = productWith({ batchWaitMs: 50, batchEveryMs: 20 });

describe('members of the payments group under faults', () => {
  it('members charge each order once, in the order of its key, before they commit its offset', async () => {
    for (const seed of SEEDS) {
      const violations = await groupViolations(new GroupWorld(seed, PRODUCT));
      expect({ seed, violations }).toEqual({ seed, violations: [] });
    }
  });
});

/** Time from the drain to the end of a member, in ms: far below the default -drain-timeout of 25 s,
 *  so that the process also has time to close. */
const DRAIN_MS_MAX = 9_500;

describe('drain of a member of the payments group', () => {
  it.each<readonly [string, Parameters<typeof productWith>[0], Partial<GroupDatabase['faults']>]>([
    ['while it waits for a first record', { batchWaitMs: 60_000, batchEveryMs: 0 }, {}],
    ['while it waits for a fuller batch', { batchWaitMs: 50, batchEveryMs: 60_000 }, {}],
    ['while the database is unreachable', { batchWaitMs: 50, batchEveryMs: 20 }, { lostAnswer: 1 }],
    ['while a commit gets no answer', { batchWaitMs: 50, batchEveryMs: 20 }, { lostCommit: 1 }],
    ['while transactions are slow', { batchWaitMs: 50, batchEveryMs: 20 }, { slowMs: 900 }],
  ])('a member that is drained %s ends in time, and breaks no promise', async (_state, waits, faults) => {
    for (const seed of SEEDS.slice(0, 5)) {
      const world = new GroupWorld(seed, productWith(waits));
      const { clock, database, members } = world;
      await clock.run(world.publish());
      await clock.run(world.readLog());
      Object.assign(database.faults, faults);
      world.start();
      await clock.advance(20_000);
      const [member] = members;
      member?.drain.abort();
      await clock.run(member?.ended ?? Promise.reject(new Error('no member')), DRAIN_MS_MAX);
      expect({ seed, violations: world.violations }).toEqual({ seed, violations: [] });
    }
  });
});
