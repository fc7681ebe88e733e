/** Test kit for the write path: several instances of the orders service in one test process on a
 *  real database, and the oracle that verifies their rows. */

import { afterAll, expect } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { systemRandom } from '../../src/io/clock/system.ts';
import { pgNativeDriver } from '../../src/io/postgres/sql/pg-native.ts';
import { pgTextDriver } from '../../src/io/postgres/sql/pg-text.ts';
import type { SqlPool, TextPool } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { UuidV7 } from '../../src/outbox/ids.ts';
import { ordersMetrics } from '../../src/outbox/orders/metrics.ts';
import { OrderReads } from '../../src/outbox/orders/reads.ts';
import type { CreateRequest } from '../../src/outbox/orders/request.ts';
import { type CreateAnswer, Orders } from '../../src/outbox/orders/service.ts';
import { BatchControl } from '../../src/outbox/orders/write/batch-control.ts';
import { ReplayCache } from '../../src/outbox/orders/write/replay-cache.ts';
import { BATCH_LOCK_MS, OrderWriter, SIDE_CONNECTIONS } from '../../src/outbox/orders/write/writer.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { pause, realClock } from '../wait.ts';

export interface InstanceOptions {
  readonly driver?: 'native' | 'pg';
  readonly batch?: 'adaptive' | 'off' | number;
  readonly lanes?: number;
  readonly cacheBytes?: number;
  readonly inFlightWaitMs?: number;
  readonly deadlineMs?: number;
  readonly inFlightMax?: number;
  readonly readsMax?: number;
  readonly queueWaitMaxMs?: number;
  /** Lock timeout of a batch for a key, if not BATCH_LOCK_MS. */
  readonly batchLockMs?: number;
  /** Database URL of the instance, if not that of the world. */
  readonly url?: string;
  readonly committed?: (orders: number) => void;
}

export interface Instance {
  readonly orders: Orders;
  readonly hot: TextPool;
  readonly metrics: Metrics;
  /** Sum of a counter over all of its series. */
  count(name: string): number;
  close(): Promise<void>;
}

export interface WritesWorld {
  readonly schema: string;
  readonly url: string;
  readonly pool: SqlPool;
  instance(options?: InstanceOptions): Promise<Instance>;
}

async function openInstance(schema: string, base: string, options: InstanceOptions): Promise<Instance> {
  const { batch = 'adaptive', lanes = 2, deadlineMs = 10_000, inFlightWaitMs = 5000 } = options;
  const at = options.url ?? base;
  const metrics = new Metrics();
  const plain = await connectPool(at, { schema, name: `plain ${schema}` });
  const hot = await (options.driver === 'pg' ? pgTextDriver : pgNativeDriver).connect({
    url: withSettings(at, {
      schema,
      lockTimeoutMs: options.batchLockMs ?? BATCH_LOCK_MS,
      more: {
        plan_cache_mode: 'force_generic_plan',
        enable_seqscan: 'off',
        statement_timeout: String(deadlineMs),
      },
    }),
    connectionsMax: lanes + SIDE_CONNECTIONS,
    applicationName: `hot ${schema}`,
    connectTimeoutMs: 60_000,
    answerTimeoutMs: deadlineMs + 1000,
  });
  const control = new BatchControl({
    lanes,
    rowsMax: batch === 'adaptive' ? 512 : batch === 'off' ? 1 : batch,
    fixed: batch !== 'adaptive',
    budgetMs: 25,
  });
  const counted = ordersMetrics(metrics);
  const writer = new OrderWriter({
    pool: hot,
    lanes,
    control,
    oneByOne: batch === 'off',
    inFlightWaitMs,
    keyTtlMs: () => 86_400_000,
    metrics: counted,
    clock: realClock,
    random: systemRandom,
    committed: options.committed ?? (() => {}),
    failed: () => {},
  });
  const orders = new Orders({
    reads: new OrderReads({
      pool: plain,
      clock: realClock,
      metrics: counted,
      readsMax: options.readsMax ?? 1000,
      deadlineMs,
    }),
    writer,
    control,
    replays: new ReplayCache(options.cacheBytes ?? 1024 * 1024),
    ids: new UuidV7(realClock, systemRandom),
    clock: realClock,
    metrics: counted,
    inFlightMax: options.inFlightMax ?? 100_000,
    queueWaitMaxMs: options.queueWaitMaxMs ?? 60_000,
    deadlineMs,
  });
  let isClosed = false;
  const ticking = (async () => {
    for (; !isClosed; await pause(20)) orders.tick();
  })();
  return {
    orders,
    hot,
    metrics,
    count: (name) =>
      metrics
        .snapshot()
        .find((one) => one.name === name)
        ?.samples.reduce((sum, sample) => sum + (sample.value ?? 0), 0) ?? Number.NaN,
    async close() {
      isClosed = true;
      await ticking;
      await hot.close();
      await plain.close();
    },
  };
}

let worlds = 0;

/** Creates a migrated schema. Its instances are closed after the tests. */
export async function writesWorld(postgres: string): Promise<WritesWorld> {
  const schema = `writes_${process.pid}_${worlds++}`;
  const pool = await connectPool(postgres, { schema, connections: 8, name: `test ${schema}` });
  await createTables(pool, schema, 'orders');
  const instances: Instance[] = [];
  afterAll(async () => {
    await Promise.all(instances.map((one) => one.close()));
    await pool.close();
  });
  return {
    schema,
    url: postgres,
    pool,
    async instance(options = {}) {
      const made = await openInstance(schema, postgres, options);
      instances.push(made);
      return made;
    },
  };
}

export type Outcome =
  | { readonly key: string; readonly request: CreateRequest; readonly answer: CreateAnswer }
  | {
      readonly key: string;
      readonly request: CreateRequest;
      readonly code: string;
      readonly differs: unknown;
    };

/** Retries until there is an answer or a final refusal. */
export async function insist(
  pick: () => Orders,
  key: string,
  request: CreateRequest,
  onRefused: (code: string) => void = () => {},
): Promise<Outcome> {
  const FINAL = new Set(['idempotency_key_reused']);
  for (let attempt = 0; ; attempt++) {
    try {
      return { key, request, answer: await pick().create(key, request) };
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined || attempt > 5000) throw thrown;
      onRefused(error.code);
      if (FINAL.has(error.code)) return { key, request, code: error.code, differs: error.details['differs'] };
      if (error.kind !== 'unavailable') throw thrown;
      await pause(20);
    }
  }
}

/** Verifies the invariants of the write path: each key has one stored answer, one order and one
 *  event, and all outcomes agree with them.
 *  @param mayRepeatFirst true if a first answer may have been lost, so that all answers of a key
 *  are replays */
export async function judge(
  pool: SqlPool,
  outcomes: readonly Outcome[],
  mayRepeatFirst: boolean,
): Promise<void> {
  const byKey = new Map<string, Outcome[]>();
  for (const one of outcomes) byKey.set(one.key, [...(byKey.get(one.key) ?? []), one]);
  const { rows } = await pool.query<{
    idem_key: string;
    order_id: string;
    response_body: string;
    account_id: bigint;
    amount_cents: bigint;
    payload: string;
    events: bigint;
    at: Date;
  }>(
    `SELECT k.idem_key, k.order_id, k.response_body, o.account_id, o.amount_cents, o.created_at AS at,
            (SELECT count(*) FROM outbox x WHERE x.aggregate_id = k.order_id) AS events,
            (SELECT convert_from(min(payload), 'UTF8') FROM outbox x WHERE x.aggregate_id = k.order_id) AS payload
     FROM idempotency_keys k JOIN orders o USING (order_id)`,
  );
  const stored = new Map(rows.map((row) => [row.idem_key, row]));
  expect(stored.size).toBe(byKey.size);
  const { rows: counts } = await pool.query<{ o: bigint; k: bigint; x: bigint; m: bigint }>(
    `SELECT (SELECT count(*) FROM orders) o, (SELECT count(*) FROM idempotency_keys) k, (SELECT count(*) FROM outbox) x,
            (SELECT count(DISTINCT msg_id) FROM outbox) m`,
  );
  const size = BigInt(byKey.size);
  expect(counts[0]).toEqual({ o: size, k: size, x: size, m: size });
  for (const [key, all] of byKey) {
    const row = stored.get(key);
    if (row === undefined) throw new Error(`no row for ${key}`);
    expect(row.events).toBe(1n);
    expect(row.payload).toBe(
      `{"order_id":"${row.order_id}","account_id":"${row.account_id}","amount_cents":"${row.amount_cents}",` +
        `"status":"created","created_at":"${row.at.toISOString()}"}`,
    );
    let firsts = 0;
    for (const one of all) {
      const same = one.request.accountId === row.account_id && one.request.amountCents === row.amount_cents;
      if ('answer' in one) {
        expect(same).toBe(true);
        expect([one.answer.code, one.answer.body, one.answer.orderId]).toEqual([
          201,
          row.response_body,
          row.order_id,
        ]);
        if (!one.answer.replayed) firsts++;
      } else {
        expect([one.code, same]).toEqual(['idempotency_key_reused', false]);
        expect(one.differs).toEqual([
          ...(one.request.accountId === row.account_id ? [] : ['account_id']),
          ...(one.request.amountCents === row.amount_cents ? [] : ['amount_cents']),
        ]);
      }
    }
    expect(all.some((one) => 'answer' in one)).toBe(true);
    if (mayRepeatFirst) expect(firsts).toBeLessThanOrEqual(1);
    else expect(firsts).toBe(1);
  }
}
