/** Test kit for the relay: a schema, a topic and rows, and the records of the topic afterwards. */

import { randomUUID } from 'node:crypto';
import { afterAll, expect } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import type { SharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const PARTITIONS = 3;

export interface World {
  readonly stack: SharedStack;
  readonly schema: string;
  readonly topic: string;
  readonly pool: SqlPool;
  readonly args: readonly string[];
}

/** Makes worlds whose names end in `suffix`; their pools are closed after the file. */
export function worlds(stack: () => SharedStack, suffix: string): () => Promise<World> {
  const pools: SqlPool[] = [];
  let count = 0;
  afterAll(() => Promise.all(pools.map((pool) => pool.close())));
  return async () => {
    const schema = `relay_${suffix}_${count++}`;
    const pool = await connectPool(stack().postgres, { schema, connections: 4 });
    pools.push(pool);
    await createTables(pool, schema, 'orders', 'relay');
    const topic = `${schema}.events`;
    const args = [
      `-brokers=${stack().brokers}`,
      `-postgres=${stack().postgres}`,
      `-schema=${schema}`,
      `-topic=${topic}`,
      `-partitions=${PARTITIONS}`,
      '-poll-interval=5ms',
      '-wake=off',
    ];
    return { stack: stack(), schema, topic, pool, args };
  };
}

/** Arguments of a relay in this mode: flags of the other mode are refused. */
export const inMode = (args: readonly string[], mode: string): readonly string[] => [
  ...(mode === 'wal' ? args.filter((one) => !one.startsWith('-poll-interval=')) : args),
  `-relay=${mode}`,
];

export async function insert(session: SqlSession, aggregate: string, body: string): Promise<string> {
  const msgId = randomUUID();
  await session.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $2::uuid, 'order.created.v1', $3::bytea)`,
    [aggregate, msgId, new TextEncoder().encode(body)],
  );
  return msgId;
}

/** Rows sent for each key, in the order of its transactions. */
export class Sent {
  readonly byKey: ReadonlyMap<string, string[]>;
  private readonly pool: SqlPool;

  constructor(pool: SqlPool, keys: number) {
    this.pool = pool;
    this.byKey = new Map(Array.from({ length: keys }, () => [randomUUID(), []]));
  }

  get rows(): number {
    return [...this.byKey.values()].reduce((sum, ids) => sum + ids.length, 0);
  }

  /** Sends one event for each key, all keys in one transaction; the events of a key are in separate
   *  transactions. */
  async round(body = '{}'): Promise<void> {
    const keys = [...this.byKey.keys()];
    const ids = keys.map(() => randomUUID());
    await this.pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload)
       SELECT key, msg, 'order.created.v1', $3::bytea FROM unnest($1::uuid[], $2::uuid[]) AS row(key, msg)`,
      [keys, ids, new TextEncoder().encode(body)],
    );
    for (const [i, key] of keys.entries()) this.byKey.get(key)?.push(ids[i] as string);
  }

  /** Asserts that the first occurrences of each key are in the order of its transactions, and that
   *  the topic has at least one record for each row. */
  expectOrdered(seen: readonly Seen[]): void {
    for (const [key, ids] of this.byKey) expect(firsts(seen, key)).toEqual(ids);
    expect(seen.length).toBeGreaterThanOrEqual(this.rows);
  }
}

export async function pending(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(
    'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL',
  );
  return Number(rows[0]?.n);
}

export const drained = (pool: SqlPool, withinMs = 60_000): Promise<true> =>
  until('an empty outbox', async () => ((await pending(pool)) === 0 ? true : undefined), withinMs);

export interface Seen {
  readonly partition: number;
  readonly offset: bigint;
  readonly key: string;
  readonly msgId: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Reads the whole topic in partition and offset order. */
export async function readTopic(world: Pick<World, 'stack' | 'topic'>): Promise<Seen[]> {
  const { topic } = world;
  const consumer = await nodeRdkafkaDriver.consumer({
    brokers: world.stack.brokers,
    clientId: 'test',
    connectTimeoutMs: 60_000,
    partitionEof: true,
  });
  const text = (bytes: Uint8Array | null): string => new TextDecoder().decode(bytes ?? undefined);
  const seen: Seen[] = [];
  try {
    const partitions = Array.from({ length: PARTITIONS }, (_, partition) => ({
      topic,
      partition,
      offset: OFFSET_BEGINNING,
    }));
    await consumer.assign(partitions);
    const batch = RecordBatch.create(1000, 2 << 20);
    const ended = new Set<number>();
    while (ended.size < PARTITIONS) {
      const { rowCount, ends } = await consumer.consume(batch, 500);
      for (let i = 0; i < rowCount; i++) {
        seen.push({
          partition: batch.columns.partition[i] as number,
          offset: batch.columns.offset[i] as bigint,
          key: text(batch.key(i)),
          msgId: JSON.parse(text(batch.value(i))).msg_id,
          headers: Object.fromEntries(batch.headers(i).map(([name, value]) => [name, text(value)])),
        });
      }
      for (const end of ends) ended.add(end.partition);
    }
  } finally {
    await consumer.close();
  }
  return seen.sort((a, b) => a.partition - b.partition || Number(a.offset - b.offset));
}

export const firsts = (seen: readonly Seen[], key: string): string[] => [
  ...new Set(seen.filter((one) => one.key === key).map(({ msgId }) => msgId)),
];
