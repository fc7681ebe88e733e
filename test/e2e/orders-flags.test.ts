/** Effect of the flags of `millrace orders` for memory, partitions and batches, seen in its
 *  responses and tables. */
import { beforeAll, describe, expect, it } from 'vitest';
import { outboxPartitions } from '../../src/outbox/orders/write/partitions.ts';
import { becomes, pageOf, sumOf } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause } from '../wait.ts';
import { bareCall, bareSession, framed, grpcAddress, METHOD } from './orders-grpc-kit.ts';
import { createdOf, newKey, ordersKit, type Reply, type Service, stop } from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);
const { schema, pool } = await kit.schema();

/** Two processes on the same tables: `cached` has a replay cache and runs maintenance every 50 ms,
 *  `uncached` has no cache and runs maintenance every hour. */
let cached: Service;
let uncached: Service;

beforeAll(async () => {
  const rows = '-outbox-partition-rows=10';
  cached = await kit.serve(schema, [
    rows,
    '-replay-cache=1000',
    '-outbox-retention=1h',
    '-maintenance-interval=50ms',
  ]);
  uncached = await kit.serve(schema, [rows, '-replay-cache=0', '-maintenance-interval=1h', '-budget=10s']);
});

const CACHE = 'orders_replay_cache_bytes';
const replays = (source: string): string => `orders_replays_total{source="${source}"}`;

describe('-replay-cache', () => {
  it('the replay cache answers repeats without the database, and evicts the least recently used answer', async () => {
    const keys = [newKey(), newKey(), newKey()] as const;
    const first = new Map<string, Buffer>();
    const repeat = async (key: string): Promise<void> => {
      const reply = await cached.order(key);
      createdOf(reply, true);
      expect(reply.body.equals(first.get(key) as Buffer)).toBe(true);
    };
    const create = async (key: string): Promise<void> => {
      const reply = await cached.order(key);
      createdOf(reply, false);
      first.set(key, reply.body);
    };
    await create(keys[0]);
    const one = (await becomes(cached.address, CACHE, (bytes) => bytes > 0)).get(CACHE) as number;
    // The cache has room for two responses, not for three.
    expect([one, 2 * one <= 1000, 3 * one > 1000]).toEqual([one, true, true]);
    await create(keys[1]);
    await create(keys[2]);
    await becomes(cached.address, CACHE, 2 * one);
    await repeat(keys[2]);
    await repeat(keys[1]);
    await becomes(cached.address, replays('memory'), 2);
    await repeat(keys[0]);
    const page = await becomes(cached.address, replays('database'), 1);
    expect([page.get(replays('memory')), page.get(CACHE)]).toEqual([2, 2 * one]);
  });

  it('a replay cache of size 0 reads the database for each repeat', async () => {
    const key = newKey();
    createdOf(await uncached.order(key), false);
    for (let i = 0; i < 2; i++) createdOf(await uncached.order(key), true);
    const page = await becomes(uncached.address, replays('database'), 2);
    expect([page.get(replays('memory')) ?? 0, page.get(CACHE)]).toEqual([0, 0]);
  });
});

describe('outbox maintenance flags', () => {
  const CREATED = 'orders_outbox_partitions_made_total';
  const DROPPED = 'orders_outbox_partitions_dropped_total';
  const PARTITIONS = 'orders_outbox_partitions';
  const bounds = async (): Promise<unknown[]> =>
    (await outboxPartitions(pool, schema)).map(({ from, to }) => [from, to]);
  const setLastId = (id: number): Promise<unknown> => pool.query(`SELECT setval('outbox_id_seq', ${id})`);
  const DEFAULT = [undefined, undefined];
  const FIRST = [undefined, 1_000_000n];

  it('the outbox flags set the ids of a partition, the retention of marked rows, and the interval', async () => {
    // The only maintenance turn of `uncached` is over.
    await becomes(uncached.address, PARTITIONS, 2);
    await setLastId(999_999);
    await becomes(cached.address, CREATED, 2);
    await becomes(cached.address, PARTITIONS, 4);
    expect(await bounds()).toEqual([FIRST, [1_000_000n, 1_000_010n], [1_000_010n, 1_000_020n], DEFAULT]);
    for (let i = 0; i < 3; i++) createdOf(await cached.order(newKey()), false);
    await setLastId(1_000_019);
    await becomes(cached.address, CREATED, 4);
    // A turn checks the first partition first, so the turn that drops the second has found the
    // first too young.
    await pool.query('UPDATE outbox SET published_at = now() WHERE id < 1000000');
    await pool.query("UPDATE outbox SET published_at = now() - interval '2 hours' WHERE id >= 1000000");
    await becomes(cached.address, DROPPED, 1);
    expect(await bounds()).toEqual([
      FIRST,
      [1_000_010n, 1_000_020n],
      [1_000_020n, 1_000_030n],
      [1_000_030n, 1_000_040n],
      DEFAULT,
    ]);
    await pool.query("UPDATE outbox SET published_at = now() - interval '2 hours'");
    await becomes(cached.address, DROPPED, 2);
    expect((await bounds())[0]).toEqual([1_000_010n, 1_000_020n]);
    expect((await pool.query('SELECT FROM outbox')).rows).toEqual([]);
    // The hourly maintenance of `uncached` has not noticed any of these changes.
    const page = await pageOf(uncached.address);
    expect([CREATED, DROPPED, PARTITIONS].map((name) => page.get(name))).toEqual([0, 0, 2]);
  });
});

describe('-budget', () => {
  it('the budget lets orders in flight wait for each other at most a fifth of it', async () => {
    const inFlight: Array<Promise<Reply>> = [];
    let isGathering = true;
    const sending = (async () => {
      for (; isGathering; await pause(20)) inFlight.push(uncached.order(newKey()), uncached.order(newKey()));
    })();
    await becomes(uncached.address, 'orders_gather_seconds', 2).finally(() => {
      isGathering = false;
    });
    await sending;
    for (const reply of await Promise.all(inFlight)) createdOf(reply, false);
    expect((await pageOf(cached.address)).get('orders_gather_seconds')).toBeLessThanOrEqual(0.005);
  });
});

describe('gRPC call metrics', () => {
  const HELD = 'orders_grpc_held_bytes';
  const headers = { ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers' };

  it('a gRPC call is counted with the memory it holds while it is open, and by the reason why it ended', async () => {
    const session = bareSession(await grpcAddress(cached));
    await becomes(cached.address, HELD, 0);
    const half = session.request({ ...headers, ':path': METHOD, 'idempotency-key': newKey() });
    half.on('error', () => {});
    half.write(framed(Buffer.alloc(1000)).subarray(0, 500));
    await becomes(cached.address, HELD, (bytes) => bytes >= 16 * 1024 + 500);
    half.close();
    await becomes(cached.address, HELD, 0);
    // More bytes than a call that may stay open needs to send.
    const watch = { ...headers, ':path': '/grpc.health.v1.Health/Watch' };
    await bareCall(session, watch, framed(Buffer.alloc(20_000))).catch(() => {});
    const page = await becomes(cached.address, 'orders_grpc_calls_ended_total{reason="flood"}', 1);
    expect(sumOf(page, 'orders_grpc_calls_ended_total')).toBe(1);
  });
});

it('both services exit with 0 after the flags tests', async () => {
  await Promise.all([stop(cached), stop(uncached)]);
});
