/** The write path while its database crashes under load and restarts: every acknowledged order
 *  exists, and each key has one order. */

import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { connectPool } from '../fixtures/database.ts';
import { type OwnPostgres, ownPostgres } from '../fixtures/postgres.ts';
import { until } from '../wait.ts';
import { insist, judge, type Outcome, writesWorld } from './orders-writes-kit.ts';

let own: OwnPostgres;
beforeAll(async () => {
  own = await ownPostgres();
  await own.start();
});
afterAll(() => own.close());

const ORDER = { accountId: 7n, amountCents: 1999n };

it('orders keeps every order it answered through a database crash, and creates the others once', async () => {
  const world = await writesWorld(own.url);
  const instances = await Promise.all([
    world.instance({ driver: 'native', deadlineMs: 3000 }),
    world.instance({ driver: 'pg', batch: 8, cacheBytes: 0, deadlineMs: 3000 }),
  ]);
  const outcomes: Outcome[] = [];
  const answered = new Map<string, string>();
  const refusals = new Map<string, number>();
  let isDone = false;
  const client = async (n: number): Promise<void> => {
    for (let i = n; !isDone; i++) {
      const key = randomUUID();
      for (let repeat = 0; repeat < (i % 5 === 0 ? 2 : 1); repeat++) {
        const outcome = await insist(
          () => (instances[(i + repeat) % 2] as (typeof instances)[number]).orders,
          key,
          ORDER,
          (code) => refusals.set(code, (refusals.get(code) ?? 0) + 1),
        );
        outcomes.push(outcome);
        if ('answer' in outcome) answered.set(key, outcome.answer.body);
      }
    }
  };
  const refusedSoFar = (): number => [...refusals.values()].reduce((sum, one) => sum + one, 0);
  const clients = Array.from({ length: 40 }, (_, n) => client(n));
  for (let round = 0; round < 2; round++) {
    const before = answered.size;
    await expect.poll(() => answered.size, { interval: 5 }).toBeGreaterThan(before + 200);
    await own.stop('SIGQUIT');
    const acknowledged = new Map(answered);
    const refused = refusedSoFar();
    await until('refused orders', () => refusedSoFar() > refused);
    await own.start();
    const reader = await connectPool(own.url, { connections: 1, name: 'reader' });
    const { rows } = await reader.query<{ idem_key: string; response_body: string }>(
      `SELECT idem_key, response_body FROM ${world.schema}.idempotency_keys`,
    );
    await reader.close();
    const stored = new Map(rows.map((row) => [row.idem_key, row.response_body]));
    for (const [key, body] of acknowledged) expect(stored.get(key)).toBe(body);
  }
  isDone = true;
  await Promise.all(clients);
  expect(
    [...refusals.keys()].filter((code) => !/^(database_unavailable|unreachable|deadline_passed)$/.test(code)),
  ).toEqual([]);
  await judge(world.pool, outcomes, true);
});

it('orders answers 503 during a database outage, and creates orders again afterwards', async () => {
  const world = await writesWorld(own.url);
  const { orders } = await world.instance({ deadlineMs: 60_000 });
  const key = randomUUID();
  const first = await orders.create(key, ORDER);
  await own.stop('SIGQUIT');
  const codes = await Promise.all(
    Array.from({ length: 200 }, () =>
      orders.create(randomUUID(), ORDER).then(
        () => 'created',
        (thrown: unknown) => findMillraceError(thrown)?.row.http,
      ),
    ),
  );
  expect(new Set(codes)).toEqual(new Set([503]));
  expect(await orders.create(key, ORDER)).toEqual({ ...first, replayed: true });
  await own.start();
  const outcome = await insist(() => orders, randomUUID(), ORDER);
  expect('answer' in outcome && outcome.answer.replayed).toBe(false);
});
