/** The write path against its oracle: random mixes of requests at two instances with either driver,
 *  while the database kills backends, blocks and deadlocks. */
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { CreateRequest } from '../../src/outbox/orders/request.ts';
import { gate } from '../contract/http-harness.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, turns, until } from '../wait.ts';
import { holdKeys, lockTable } from './orders-kit.ts';
import { insist, judge, type Outcome, writesWorld } from './orders-writes-kit.ts';

const stack = await sharedStack();

const BODIES: readonly CreateRequest[] = [
  { accountId: 7n, amountCents: 1999n },
  { accountId: 8n, amountCents: 1999n },
  { accountId: 7n, amountCents: 9_223_372_036_854_775_807n },
  { accountId: -9_223_372_036_854_775_808n, amountCents: 1n },
];
const body = (i: number): CreateRequest => BODIES[i % BODIES.length] as CreateRequest;

/** Time limits for requests that end by an event of the test, not by a timeout. */
const LONG_LIMITS = { inFlightWaitMs: 60_000, deadlineMs: 120_000 };

interface RandomRequest {
  readonly key: number;
  readonly body: number;
  readonly at: number;
  readonly laterMs: number;
}
const randomRequest: fc.Arbitrary<RandomRequest> = fc.record({
  key: fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 30 })),
  body: fc.oneof({ weight: 6, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 3 }) }),
  at: fc.nat({ max: 1 }),
  laterMs: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat({ max: 12 }) }),
});

describe.each([
  ['native, adaptive', { driver: 'native', batch: 'adaptive' }],
  ['native, no replay cache', { driver: 'native', batch: 'adaptive', cacheBytes: 0 }],
  ['pg, batches of 3', { driver: 'pg', batch: 3, cacheBytes: 2000 }],
  ['native, one transaction per order', { driver: 'native', batch: 'off', lanes: 8 }],
] as const)('random requests at two instances: %s', (_, options) => {
  it('random requests at two instances create one order and one event per key, and each key gets one answer', async () => {
    const world = await writesWorld(stack.postgres);
    const instances = await Promise.all([world.instance(options), world.instance(options)]);
    const outcomes: Outcome[] = [];
    await fc.assert(
      fc.asyncProperty(fc.array(randomRequest, { minLength: 1, maxLength: 60 }), async (all) => {
        const keys = Array.from({ length: 31 }, () => randomUUID());
        const done = await Promise.all(
          all.map(async ({ key, body: which, at, laterMs }) => {
            if (laterMs > 0) await pause(laterMs);
            const { orders } = instances[at] as (typeof instances)[number];
            return insist(() => orders, keys[key] as string, body(which));
          }),
        );
        outcomes.push(...done);
      }),
      { numRuns: 12 },
    );
    const clash = randomUUID();
    for (const [i, which] of [0, 1, 2, 3, 0].entries()) {
      const { orders } = instances[i % 2] as (typeof instances)[number];
      outcomes.push(await insist(() => orders, clash, body(which)));
    }
    expect(outcomes.filter((one) => 'code' in one).length).toBeGreaterThanOrEqual(3);
    await judge(world.pool, outcomes, false);
  });
});

describe('stored rows', () => {
  it('the rows of a request carry its traceparent and its tracestate, or none', async () => {
    const world = await writesWorld(stack.postgres);
    const trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const state = 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE';
    const odd = 'a="{b}\\,c=NULL';
    for (const batch of ['adaptive', 'off'] as const) {
      const { orders } = await world.instance({ batch });
      const made = await Promise.all(
        [
          { traceparent: trace, tracestate: state },
          {},
          { traceparent: 'odd"{}\\,one' },
          { traceparent: trace, tracestate: odd },
        ].map((context) => orders.create(randomUUID(), body(0), context)),
      );
      const { rows } = await world.pool.query<{ traceparent: string | null; tracestate: string | null }>(
        'SELECT traceparent, headers->>\'tracestate\' AS tracestate FROM outbox JOIN unnest($1::uuid[]) WITH ORDINALITY AS g(aggregate_id, n) USING (aggregate_id) ORDER BY n',
        [made.map((one) => one.orderId)],
      );
      expect(rows).toEqual([
        { traceparent: trace, tracestate: state },
        { traceparent: null, tracestate: null },
        { traceparent: 'odd"{}\\,one', tracestate: null },
        { traceparent: trace, tracestate: odd },
      ]);
    }
  });

  it('the ids of rows ascend in the order in which the requests arrived', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders } = await world.instance({ lanes: 1 });
    const made = await Promise.all(Array.from({ length: 200 }, () => orders.create(randomUUID(), body(0))));
    const { rows } = await world.pool.query<{ aggregate_id: string }>(
      'SELECT aggregate_id FROM outbox ORDER BY id',
    );
    expect(rows.map((row) => row.aggregate_id)).toEqual(made.map((one) => one.orderId));
  });
});

describe('database faults', () => {
  it.each(['native', 'pg'] as const)(
    'orders survives a database that kills backends continuously: %s',
    async (driver) => {
      const world = await writesWorld(stack.postgres);
      const instances = await Promise.all([
        world.instance({ ...LONG_LIMITS, driver, cacheBytes: 0 }),
        world.instance({ ...LONG_LIMITS, driver, batch: 4 }),
      ]);
      const refused = new Map<string, number>();
      let isDone = false;
      let killed = 0;
      const killing = (async () => {
        while (!isDone) {
          const { rows } = await world.pool.query(
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE application_name = $1 AND state <> 'idle' AND random() < 0.7`,
            [`hot ${world.schema}`],
          );
          killed += rows.length;
          await pause(1);
        }
      })();
      let turn = 0;
      const outcomes: Awaited<ReturnType<typeof insist>>[] = [];
      // Repeats if all orders were written before a backend could be killed.
      do {
        const keys = Array.from({ length: 250 }, () => randomUUID());
        const some = await Promise.all(
          keys.flatMap((key, i) =>
            [0, 0, i % 10 === 0 ? 1 : 0].map(async (which, late) => {
              await pause(late * 60 * Math.random() + i / 2);
              return insist(
                () => (instances[turn++ % 2] as (typeof instances)[number]).orders,
                key,
                body(which),
                (code) => refused.set(code, (refused.get(code) ?? 0) + 1),
              );
            }),
          ),
        );
        outcomes.push(...some);
      } while (killed === 0);
      isDone = true;
      await killing;
      expect(
        [...refused.keys()].every((code) =>
          /^(database_unavailable|idempotency_key_reused|unreachable)$/.test(code),
        ),
      ).toBe(true);
      // The first answer may be lost with a killed connection; its retry then gets a replay.
      await judge(world.pool, outcomes, true);
    },
  );

  it('orders survives deadlocks with writers that do not sort their keys', async () => {
    const world = await writesWorld(stack.postgres);
    // Long enough for the wait to be observed, and shorter than deadlock_timeout, after which the
    // server ends one of the two.
    const options = { ...LONG_LIMITS, batch: 50, batchLockMs: 500 };
    const instances = await Promise.all([world.instance(options), world.instance(options)]);
    const splits = (): number =>
      instances.reduce((sum, one) => sum + one.count('orders_batch_splits_total'), 0);
    const is = async (condition: string, pid: number): Promise<boolean> =>
      (await world.pool.query<{ yes: boolean }>(`SELECT ${condition} AS yes`, [pid])).rows[0]?.yes === true;
    let refusals = 0;
    let cycles = 0;
    const outcomes: Outcome[] = [];
    // Repeats if a stall of this test let one wait end before the other began.
    for (let round = 0; round < 4 || (round < 60 && (cycles === 0 || splits() === 0)); round++) {
      const keys = Array.from({ length: 40 }, () => randomUUID())
        .sort()
        .reverse();
      const [half, resume] = [gate(), gate()];
      let pid = 0;
      let isDone = false;
      // Takes the keys in descending order, unlike the service, and rolls back at the end.
      const foreign = world.pool
        .transaction(async (session) => {
          const { rows } = await session.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
          pid = rows[0]?.pid ?? 0;
          for (const [i, key] of keys.entries()) {
            if (i === 20) {
              half.open();
              await resume.opened;
            }
            await session.query(
              `INSERT INTO idempotency_keys (idem_key, request_hash, order_id, response_code, response_body)
               VALUES ($1, '', gen_random_uuid(), 201, '{}')`,
              [key],
            );
          }
          throw new Error('rolled back on purpose');
        })
        .catch(() => {})
        .finally(() => {
          isDone = true;
        });
      await Promise.race([half.opened, foreign]);
      // The first requests are written alone. All others share one batch, which has inserted free
      // keys when it reaches the held keys.
      const ours = [...keys].reverse().flatMap((key) =>
        instances.map(({ orders }) =>
          insist(
            () => orders,
            key,
            body(0),
            () => refusals++,
          ),
        ),
      );
      // The foreign transaction resumes once a batch waits for it, and that batch holds keys that
      // it needs.
      await expect
        .poll(
          () =>
            is('EXISTS (SELECT FROM pg_locks WHERE NOT granted AND $1 = ANY (pg_blocking_pids(pid)))', pid),
          {
            interval: 5,
          },
        )
        .toBe(true)
        .finally(resume.open);
      let hasCycle = false;
      while (!isDone && !hasCycle)
        hasCycle = await is(
          'EXISTS (SELECT FROM unnest(pg_blocking_pids($1)) AS p WHERE $1 = ANY (pg_blocking_pids(p)))',
          pid,
        );
      if (hasCycle) cycles++;
      outcomes.push(...(await Promise.all(ours)));
      await foreign;
    }
    // Every conflict was a wait, never a refusal.
    expect(refusals).toBe(0);
    expect(cycles).toBeGreaterThan(0);
    expect(splits()).toBeGreaterThan(0);
    await judge(world.pool, outcomes, false);
  });

  it('a request for a held key waits and is refused, and all others continue', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders, count } = await world.instance({ inFlightWaitMs: 15_000, deadlineMs: 60_000 });
    const [held, freed] = [randomUUID(), randomUUID()];
    const [releaseHeld, releaseFreed] = await Promise.all([
      holdKeys(world.pool, held),
      holdKeys(world.pool, freed),
    ]);
    const waiting = [held, freed].map((key) =>
      orders.create(key, body(0)).then(
        (answer) => (answer.replayed ? 'replayed' : 'created'),
        (thrown: unknown) => findMillraceError(thrown)?.code,
      ),
    );
    const others = Array.from({ length: 300 }, () => orders.create(randomUUID(), body(0)));
    await Promise.all(others);
    await until('both held keys', () => count('orders_held_keys_total') === 2);
    await releaseFreed();
    expect(await waiting[1]).toBe('created');
    expect(await waiting[0]).toBe('in_flight');
    await releaseHeld();
    expect((await orders.create(held, body(0))).replayed).toBe(false);
  });

  it('requests queued behind many held keys do not wait until each is resolved', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders, count } = await world.instance({
      ...LONG_LIMITS,
      lanes: 1,
      batch: 64,
    });
    const held = Array.from({ length: 320 }, () => randomUUID());
    const release = await holdKeys(world.pool, ...held);
    const waiting = held.map((key) => orders.create(key, body(0)));
    const others = Array.from({ length: 20 }, () => orders.create(randomUUID(), body(0)));
    // The first of them share a batch with held keys; no held key precedes the last one in its
    // batch.
    await others.at(-1);
    // Isolating 320 held keys takes a thousand statements; an order behind them takes one.
    expect(count('orders_held_keys_total')).toBeLessThan(320);
    await until('all held keys', () => count('orders_held_keys_total') >= 320);
    await Promise.all(others);
    await release();
    for (const { replayed } of await Promise.all(waiting)) expect(replayed).toBe(false);
    const { rows } = await world.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM orders');
    expect(rows).toEqual([{ n: 340n }]);
  });

  it('the next request for a held key delays no batch', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders, count } = await world.instance({ lanes: 1, batch: 64, inFlightWaitMs: 200 });
    const held = randomUUID();
    const release = await holdKeys(world.pool, held);
    const refused = async (): Promise<string | undefined> =>
      orders.create(held, body(0)).then(
        () => undefined,
        (thrown: unknown) => findMillraceError(thrown)?.code,
      );
    expect(await refused()).toBe('in_flight');
    const others = Array.from({ length: 10 }, () => orders.create(randomUUID(), body(0)));
    const again = refused();
    await Promise.all([...others, ...Array.from({ length: 10 }, () => orders.create(randomUUID(), body(0)))]);
    expect(await again).toBe('in_flight');
    expect([count('orders_held_keys_total'), count('orders_batch_splits_total')]).toEqual([2, 0]);
    await release();
    expect((await orders.create(held, body(0))).replayed).toBe(false);
  });

  it('a refused row does not stop the others of its batch', async () => {
    const world = await writesWorld(stack.postgres);
    await world.pool.query('ALTER TABLE orders ADD CHECK (account_id <> 8)');
    const { orders } = await world.instance({ lanes: 1 });
    const codes = await Promise.all(
      Array.from({ length: 64 }, (_, i) =>
        orders.create(randomUUID(), body(i === 20 || i === 41 ? 1 : 0)).then(
          () => 'created',
          (thrown: unknown) => findMillraceError(thrown)?.details['sqlstate'],
        ),
      ),
    );
    expect(codes.filter((code) => code !== 'created')).toEqual(['23514', '23514']);
    expect([codes[20], codes[41]]).toEqual(['23514', '23514']);
    const { rows } = await world.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM outbox');
    expect(rows).toEqual([{ n: 62n }]);
  });

  it('every request is settled by its deadline under a table lock, and nothing is lost or doubled', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders, count } = await world.instance({ deadlineMs: 400, inFlightWaitMs: 200 });
    const release = await lockTable(world.pool, 'orders');
    const keys = Array.from({ length: 50 }, () => randomUUID());
    const codes = await Promise.all(
      keys.map((key) =>
        orders.create(key, body(0)).then(
          () => 'created',
          (thrown: unknown) => findMillraceError(thrown)?.code ?? String(thrown),
        ),
      ),
    );
    expect(codes.every((code) => code === 'deadline_passed' || code === 'in_flight')).toBe(true);
    await release();
    const outcomes = await Promise.all(keys.map((key) => insist(() => orders, key, body(0))));
    await judge(world.pool, outcomes, true);
    expect(count('orders_deadline_passed_total')).toBeGreaterThanOrEqual(0);
  });
});

describe('repeats outside the cache', () => {
  it('orders looks up repeats before a write when most requests are repeats', async () => {
    const world = await writesWorld(stack.postgres);
    const [creator, replayer] = await Promise.all([
      world.instance(),
      world.instance({ cacheBytes: 0, lanes: 1 }),
    ]);
    const keys = Array.from({ length: 64 }, () => randomUUID());
    const outcomes = await Promise.all(keys.map((key) => insist(() => creator.orders, key, body(0))));
    const writes = (): number =>
      replayer.metrics.snapshot().find((one) => one.name === 'orders_transaction_seconds')?.samples[0]
        ?.count ?? 0;
    const repeat = async (): Promise<void> => {
      outcomes.push(...(await Promise.all(keys.map((key) => insist(() => replayer.orders, key, body(0))))));
    };
    for (let i = 0; i < 30; i++) await repeat();
    const before = writes();
    for (let i = 0; i < 5; i++) await repeat();
    expect(before).toBeGreaterThan(0);
    expect(writes()).toBe(before);
    // New keys are still written. Once they are the majority, they are written without a lookup
    // again.
    for (let i = 0; i < 200; i++) outcomes.push(await insist(() => replayer.orders, randomUUID(), body(0)));
    expect(writes()).toBe(before + 200);
    await judge(world.pool, outcomes, false);
  });
});

describe('expired request', () => {
  it('an expired request may be dropped, and is executed when a client retries', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders } = await world.instance({ lanes: 1, batch: 1, deadlineMs: 300, inFlightWaitMs: 200 });
    const release = await lockTable(world.pool, 'idempotency_keys');
    const keys = Array.from({ length: 300 }, () => randomUUID());
    const codes = await Promise.all(
      keys.map((key) =>
        orders.create(key, body(0)).catch((thrown: unknown) => findMillraceError(thrown)?.code),
      ),
    );
    expect(new Set(codes)).toEqual(
      new Set(['deadline_passed', 'in_flight'].filter((code) => codes.includes(code))),
    );
    expect(codes).toContain('deadline_passed');
    // These requests repeat keys whose first attempts are still queued.
    const again = keys.slice(-20).map((key) => insist(() => orders, key, body(0)));
    await turns(10);
    await release();
    const outcomes = await Promise.all(again);
    expect(outcomes.every((one) => 'answer' in one)).toBe(true);
    const { rows } = await world.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM orders');
    expect(Number(rows[0]?.n)).toBeGreaterThanOrEqual(20);
    expect(Number(rows[0]?.n)).toBeLessThan(300);
  });
});

describe('overload', () => {
  it('orders sheds overload before any work, for requests in flight and for the queue', async () => {
    const world = await writesWorld(stack.postgres);
    const limited = await world.instance({ inFlightMax: 10 });
    const code = (thrown: unknown): string | undefined => findMillraceError(thrown)?.code;
    const ask = (count: number, orders = limited.orders) =>
      Promise.all(
        Array.from({ length: count }, () => orders.create(randomUUID(), body(0)).then(() => 'created', code)),
      );
    expect((await ask(15)).filter((one) => one === 'overloaded')).toHaveLength(5);
    expect(await ask(10)).toEqual(Array.from({ length: 10 }, () => 'created'));

    const queueing = await world.instance({ batch: 1, lanes: 1, queueWaitMaxMs: 20 });
    await ask(1, queueing.orders);
    const answers = await ask(2000, queueing.orders);
    expect(answers.filter((one) => one === 'overloaded').length).toBeGreaterThan(0);
    expect(answers.filter((one) => one === 'created').length).toBeGreaterThan(0);
    expect(queueing.count('orders_shed_total')).toBe(answers.filter((one) => one === 'overloaded').length);
    const { rows } = await world.pool.query<{ n: bigint }>('SELECT count(*) AS n FROM orders');
    const created = 10 + 10 + 1 + answers.filter((one) => one === 'created').length;
    expect(rows).toEqual([{ n: BigInt(created) }]);
  });

  it('excess reads are shed, no read waits past its deadline, and a 409 needs no read', async () => {
    const world = await writesWorld(stack.postgres);
    const { orders, count } = await world.instance({ readsMax: 4, deadlineMs: 5000 });
    const code = (thrown: unknown): string | undefined => findMillraceError(thrown)?.code;
    const key = randomUUID();
    const { orderId } = await orders.create(key, body(0));
    const find = (): Promise<string | undefined> => orders.find(orderId).then((order) => order?.status, code);
    const reuse = () => insist(() => orders, key, body(1));
    expect(await reuse()).toMatchObject({ code: 'idempotency_key_reused', differs: ['account_id'] });
    const release = await lockTable(world.pool, 'orders');
    const reads = Array.from({ length: 6 }, find);
    expect(await reuse()).toMatchObject({ code: 'idempotency_key_reused', differs: [] });
    expect((await orders.create(key, body(0))).replayed).toBe(true);
    const results = await Promise.all(reads);
    expect(results.sort()).toEqual([...Array(4).fill('deadline_passed'), 'overloaded', 'overloaded']);
    // No client waits for the four reads any more, but the database still runs them.
    expect(await find()).toBe('overloaded');
    expect(count('orders_shed_total')).toBe(3);
    await release();
    await until('a read that is admitted again', async () => (await find()) === 'created');
  });
});
