/** The timers of the orders' write path under virtual time: batching, retries with jitter, lost
 *  replies, deadlines. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { Metrics } from '../../../../src/core/metrics.ts';
import { sqlError, type TextPool, type TextRows } from '../../../../src/io/postgres/sql/port.ts';
import { UuidV7 } from '../../../../src/outbox/ids.ts';
import { ordersMetrics } from '../../../../src/outbox/orders/metrics.ts';
import type { OrderReads } from '../../../../src/outbox/orders/reads.ts';
import { Orders } from '../../../../src/outbox/orders/service.ts';
import { BatchControl } from '../../../../src/outbox/orders/write/batch-control.ts';
import { ReplayCache } from '../../../../src/outbox/orders/write/replay-cache.ts';
import { OrderWriter, type QueuedOrder } from '../../../../src/outbox/orders/write/writer.ts';
import { SeededRandom, VirtualClock } from '../../../../src/sim/clock.ts';

const FIRST = process.env['MILLRACE_TEST_SEED'] === 'random' ? Math.floor(Math.random() * 2 ** 31) : 1;
const BUDGET_MS = 25;
const TRANSACTION_MS = 4;
const HOUR_MS = 3_600_000;

type Fault = 'none' | 'deadlock' | 'lost before' | 'lost after' | 'held' | 'never';

/** Stores keys of committed orders, and decides the fate of each writing transaction. */
class Database {
  /** Order id by key. */
  readonly stored = new Map<string, string>();
  /** Time and rows of each transaction that wrote. */
  readonly writes: Array<{ readonly atMs: number; readonly rows: number }> = [];
  fault: () => Fault = () => 'none';
  private readonly clock: VirtualClock;

  constructor(clock: VirtualClock) {
    this.clock = clock;
  }

  readonly pool = {
    execute: async (
      { text }: { readonly text: string },
      params: readonly string[],
      read: (rows: TextRows) => unknown,
    ) => {
      if (text.includes('set_config')) return read(rowsOf([]));
      await new Promise<void>((resolve) => void this.clock.after(TRANSACTION_MS, resolve));
      const keys = listOf(params[0]);
      return text.includes('INSERT')
        ? this.insert(keys, listOf(params[2]), read)
        : read(rowsOf(this.found(keys)));
    },
    transaction: (work: (session: unknown) => Promise<unknown>) => work(this.pool),
  } as unknown as TextPool;

  private async insert(keys: readonly string[], ids: readonly string[], read: (rows: TextRows) => unknown) {
    this.writes.push({ atMs: this.clock.monotonicMs(), rows: keys.length });
    const fault = this.fault();
    if (fault === 'never') await new Promise(() => {});
    if (fault === 'deadlock') throw sqlError('sql_failed', 'deadlock', { details: { sqlstate: '40P01' } });
    if (fault === 'held') throw sqlError('sql_failed', 'lock timeout', { details: { sqlstate: '55P03' } });
    if (fault === 'lost before') throw coreError('unreachable', 'gone', { details: { sent: true } });
    const won = keys.flatMap((key, i) => {
      if (this.stored.has(key)) return [];
      this.stored.set(key, ids[i] as string);
      return [[ids[i] as string]];
    });
    if (fault === 'lost after') throw coreError('unreachable', 'gone', { details: { sent: true } });
    return read(rowsOf(won));
  }

  private found(keys: readonly string[]): string[][] {
    return keys.flatMap((key) => {
      const id = this.stored.get(key);
      return id === undefined ? [] : [[key, '00', id, '201', '{}', '0']];
    });
  }
}

/** Elements of an array literal, whose texts may be quoted. */
const listOf = (text = '{}'): readonly string[] => text.slice(1, -1).replaceAll('"', '').split(',');
const rowsOf = (rows: readonly (readonly string[])[]): TextRows => ({
  rowCount: rows.length,
  columnCount: rows[0]?.length ?? 0,
  text: (row, column) => rows[row]?.[column] ?? null,
});

function scene(seed = FIRST, inFlightWaitMs = 1000) {
  const clock = new VirtualClock();
  const random = new SeededRandom(seed);
  const database = new Database(clock);
  const control = new BatchControl({ lanes: 1, rowsMax: 64, fixed: false, budgetMs: BUDGET_MS });
  const writer = new OrderWriter({
    pool: database.pool,
    lanes: 1,
    control,
    oneByOne: false,
    inFlightWaitMs,
    keyTtlMs: () => HOUR_MS,
    metrics: ordersMetrics(new Metrics()),
    clock,
    random,
    committed: () => {},
    failed: () => {},
  });
  let made = 0;
  /** Requests an order.
   *  @returns its id, or the code of its error */
  const order = (key = `key-${made}`): Promise<string> =>
    new Promise((resolve) => {
      const job: QueuedOrder = {
        key,
        orderId: `order-${made++}`,
        msgId: `m-${made}`,
        requestHash: '00',
        accountId: 1n,
        amountCents: 1n,
        traceparent: undefined,
        tracestate: undefined,
        queuedMs: clock.monotonicMs(),
        abandoned: false,
        settle: ({ orderId }) => resolve(orderId),
        fail: (thrown) => resolve((thrown as { code: string }).code),
      };
      writer.write(job);
    });
  return { clock, random, database, control, writer, order };
}

describe('orders under virtual time', () => {
  it('orders wait for a batch at most a fifth of the budget under load, and not at all for a single order', async () => {
    const { clock, database, order } = scene();
    await clock.run(order());
    expect(database.writes).toEqual([{ atMs: TRANSACTION_MS, rows: 1 }]);
    const asked: Array<Promise<string>> = [];
    const waits: number[] = [];
    for (let ms = 0; ms < 1000; ms++) {
      const atMs = clock.monotonicMs();
      asked.push(
        order().then((id) => {
          waits.push(clock.monotonicMs() - atMs);
          return id;
        }),
      );
      await clock.advance(1);
    }
    await clock.run(Promise.all(asked));
    // An order waits for its batch, at most for the previous transaction, and for its own
    // transaction.
    expect(Math.max(...waits)).toBeLessThanOrEqual(BUDGET_MS / 5 + TRANSACTION_MS + 1);
    expect(database.writes.length).toBeLessThan(500);
  });

  it('requests are retried after a deadlock within 10 ms times the attempt, and answered once', async () => {
    for (let seed = FIRST; seed < FIRST + 20; seed++) {
      const { clock, database, order } = scene(seed);
      let failures = 3;
      database.fault = () => (failures-- > 0 ? 'deadlock' : 'none');
      expect(await clock.run(order('k'))).toBe('order-0');
      const gaps = database.writes
        .slice(1)
        .map(({ atMs }, i) => atMs - (database.writes[i]?.atMs ?? 0) - TRANSACTION_MS);
      expect(gaps).toHaveLength(3);
      for (const [i, gap] of gaps.entries()) {
        expect(gap).toBeGreaterThan(0);
        expect(gap).toBeLessThanOrEqual(10 * (i + 1));
      }
    }
  });

  it('requests are written once and get one answer each, whatever replies of the database are lost', async () => {
    for (let seed = FIRST; seed < FIRST + 30; seed++) {
      const { clock, random, database, order } = scene(seed);
      const faults: readonly Fault[] = ['deadlock', 'lost before', 'lost after', 'none', 'none'];
      database.fault = () => faults[Math.floor(random.fraction() * faults.length)] as Fault;
      const asked: Array<Promise<readonly [string, string]>> = [];
      for (let n = 0; n < 40; n++) {
        asked.push(order(`key-${n}`).then((answer) => [`key-${n}`, answer] as const));
        await clock.advance(random.fraction() * 10);
      }
      for (const [key, answer] of await clock.run(Promise.all(asked)))
        if (answer !== 'database_unavailable')
          expect({ seed, key, id: database.stored.get(key) }).toEqual({ seed, key, id: answer });
      // A later request with the key finds the order of a request without an answer.
      database.fault = () => 'none';
      for (let n = 0; n < 40; n++)
        expect(await clock.run(order(`key-${n}`))).toBe(database.stored.get(`key-${n}`));
      expect(new Set(database.stored.values()).size).toBe(40);
    }
  });

  it('requests with a locked key wait for inFlightWaitMs, and at most one retry longer', async () => {
    const { clock, database, order } = scene(FIRST, 1000);
    database.fault = () => 'held';
    expect(await clock.run(order('k'))).toBe('in_flight');
    expect(clock.monotonicMs()).toBeGreaterThanOrEqual(1000);
    expect(clock.monotonicMs()).toBeLessThanOrEqual(1500);
  });
  it('requests are refused within a tick of their deadline while the database does not answer', async () => {
    const { clock, random, database, control, writer } = scene();
    database.fault = () => 'never';
    const orders = new Orders({
      reads: { tick: () => {} } as unknown as OrderReads,
      writer,
      control,
      replays: new ReplayCache(1000),
      ids: new UuidV7(clock, random),
      clock,
      metrics: ordersMetrics(new Metrics()),
      inFlightMax: 100,
      queueWaitMaxMs: 60_000,
      deadlineMs: 400,
    });
    clock.every(100, () => orders.tick());
    const asked = Array.from({ length: 50 }, (_, n) =>
      orders
        .create(`key-${n}`, { accountId: 7n, amountCents: BigInt(n) })
        .catch((thrown: { code: string }) => ({
          code: thrown.code,
          atMs: clock.monotonicMs(),
        })),
    );
    const codes = await clock.run(Promise.all(asked), 10_000);
    expect(new Set(codes.map(({ code }) => code))).toEqual(new Set(['deadline_passed']));
    expect(clock.monotonicMs()).toBeLessThanOrEqual(500);
  });
});
