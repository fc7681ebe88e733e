/** The relay on a real database and a real broker: order of a key, gaps of the id sequence, crashes and standby. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrationsOf } from '../../src/bin/shell/migrations.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../src/io/broker/node-rdkafka.ts';
import { OFFSET_BEGINNING } from '../../src/io/broker/port.ts';
import { pgDriver } from '../../src/io/sql/pg.ts';
import type { SqlPool, SqlSession } from '../../src/io/sql/port.ts';
import { withSettings } from '../../src/outbox/connection.ts';
import { migrate } from '../../src/outbox/migrations.ts';
import { launcher, until } from './engine-kit.ts';
import { sharedStack } from './stack.ts';

const own = launcher();
const stack = await sharedStack();
const PARTITIONS = 3;

interface World {
  readonly schema: string;
  readonly topic: string;
  readonly pool: SqlPool;
  readonly args: readonly string[];
}

const pools: SqlPool[] = [];
afterAll(() => Promise.all(pools.map((pool) => pool.close())));
let count = 0;

/** A schema and a topic of the test's own. */
async function world(): Promise<World> {
  const schema = `relay_${own.suffix}_${count++}`;
  const pool = await pgDriver.connect({
    url: withSettings(stack.postgres, { schema }),
    connectionsMax: 4,
    applicationName: 'test',
    connectTimeoutMs: 5000,
  });
  pools.push(pool);
  await migrate(pool, schema, 'orders', migrationsOf('orders'));
  const topic = `${schema}.events`;
  const args = [
    'relay',
    `-brokers=${stack.brokers}`,
    `-postgres=${stack.postgres}`,
    `-schema=${schema}`,
    `-topic=${topic}`,
    `-partitions=${PARTITIONS}`,
    '-poll-interval=5ms',
    '-migrate',
  ];
  return { schema, topic, pool, args };
}

async function insert(session: SqlSession, aggregate: string, body: string): Promise<string> {
  const msgId = randomUUID();
  await session.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $2::uuid, 'order.created.v1', $3::bytea)`,
    [aggregate, msgId, new TextEncoder().encode(body)],
  );
  return msgId;
}

async function pending(pool: SqlPool): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(
    'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL',
  );
  return Number(rows[0]?.n);
}

const drained = (pool: SqlPool): Promise<true> =>
  until('an empty outbox', async () => ((await pending(pool)) === 0 ? true : undefined), 40_000);

interface Seen {
  readonly partition: number;
  readonly offset: bigint;
  readonly key: string;
  readonly msgId: string;
}

/** The whole topic in partition and offset order. */
async function readTopic(topic: string): Promise<Seen[]> {
  const consumer = await nodeRdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'test',
    partitionEof: true,
  });
  const seen: Seen[] = [];
  try {
    const partitions = Array.from({ length: PARTITIONS }, (_, partition) => ({
      topic,
      partition,
      offset: OFFSET_BEGINNING,
    }));
    await consumer.assign(partitions);
    const batch = RecordBatch.create(1000, 1 << 20);
    const ended = new Set<number>();
    while (ended.size < PARTITIONS) {
      const { rowCount, ends } = await consumer.consume(batch, 500);
      for (let i = 0; i < rowCount; i++) {
        seen.push({
          partition: batch.columns.partition[i] as number,
          offset: batch.columns.offset[i] as bigint,
          key: new TextDecoder().decode(batch.key(i) ?? undefined),
          msgId: JSON.parse(new TextDecoder().decode(batch.value(i) ?? undefined)).msg_id,
        });
      }
      for (const end of ends) ended.add(end.partition);
    }
  } finally {
    await consumer.close();
  }
  return seen.sort((a, b) => a.partition - b.partition || Number(a.offset - b.offset));
}

const firsts = (seen: readonly Seen[], key: string): string[] => [
  ...new Set(seen.filter((one) => one.key === key).map(({ msgId }) => msgId)),
];

describe('relay', () => {
  let main: World;
  beforeAll(async () => {
    main = await world();
  });

  it('publishes five events a key from separate transactions in order, each once, and marks them all', async () => {
    const keys = Array.from({ length: 40 }, () => randomUUID());
    const sent = new Map<string, string[]>(keys.map((key) => [key, []]));
    const relay = own.spawn('relay', main.args);
    await relay.address();
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        keys.map(async (key) => sent.get(key)?.push(await insert(main.pool, key, `{"round":${round}}`))),
      );
    }
    await drained(main.pool);
    relay.kill('SIGTERM');
    expect(await relay.ended).toEqual({ code: 0, signal: null });
    const seen = await readTopic(main.topic);
    expect(seen.length).toBe(keys.length * 5);
    for (const key of keys) expect(firsts(seen, key)).toEqual(sent.get(key));
  });

  it('does not skip a lower id that commits after a higher one', async () => {
    const { pool, args, topic } = await world();
    const relay = own.spawn('relay', args);
    await relay.address();
    let late = '';
    let early = '';
    await pool.transaction(async (session) => {
      late = await insert(session, randomUUID(), '{}');
      early = await insert(pool, randomUUID(), '{}');
      await until('the higher id', async () => ((await pending(pool)) === 0 ? true : undefined));
    });
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    const seen = (await readTopic(topic)).map(({ msgId }) => msgId);
    expect(new Set(seen)).toEqual(new Set([late, early]));
    expect(seen).toHaveLength(2);
  });

  it('publishes again under the same msg_id what it had published when it died before the mark', async () => {
    const { pool, args, topic } = await world();
    const key = randomUUID();
    const sent: string[] = [];
    for (let i = 0; i < 20; i++) sent.push(await insert(pool, key, `{"i":${i}}`));
    const dying = own.spawn('relay', [...args, '-crash-point=publish']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(await pending(pool)).toBe(20);
    const relay = own.spawn('relay', args);
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    const seen = await readTopic(topic);
    expect(firsts(seen, key)).toEqual(sent);
    expect(seen.length).toBe(40);
    expect(new Set(seen.map(({ partition }) => partition)).size).toBe(1);
  });

  it('loses nothing when it dies between a commit and the publish', async () => {
    const { pool, args, topic } = await world();
    const sent = await insert(pool, randomUUID(), '{}');
    const dying = own.spawn('relay', [...args, '-crash-point=commit']);
    expect(await dying.ended).toEqual({ code: null, signal: 'SIGKILL' });
    expect(await readTopic(topic)).toEqual([]);
    const relay = own.spawn('relay', args);
    await drained(pool);
    relay.kill('SIGTERM');
    await relay.ended;
    expect((await readTopic(topic)).map(({ msgId }) => msgId)).toEqual([sent]);
  });

  it('lets a second relay stand by and take over when the first is killed', async () => {
    const { pool, args, topic } = await world();
    const both = [own.spawn('relay', args), own.spawn('relay', args)];
    await Promise.all(both.map((one) => one.address()));
    const sent: string[] = [];
    for (let i = 0; i < 100; i++) {
      sent.push(await insert(pool, randomUUID(), '{}'));
      if (i === 50) both[0]?.kill('SIGKILL');
    }
    await drained(pool);
    both[1]?.kill('SIGTERM');
    await Promise.all(both.map((one) => one.ended));
    const seen = await readTopic(topic);
    expect(new Set(seen.map(({ msgId }) => msgId))).toEqual(new Set(sent));
  });

  it('goes on after its database connection is cut', async () => {
    const { pool, args, topic, schema } = await world();
    const relay = own.spawn('relay', args);
    await relay.address();
    const sent = [await insert(pool, randomUUID(), '{}')];
    await drained(pool);
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'millrace relay'`,
    );
    await sleep(50);
    sent.push(await insert(pool, randomUUID(), '{}'));
    await drained(pool);
    relay.kill('SIGTERM');
    expect(await relay.ended, schema).toEqual({ code: 0, signal: null });
    expect(new Set((await readTopic(topic)).map(({ msgId }) => msgId))).toEqual(new Set(sent));
  });
});

describe('relay, refused', () => {
  const oneLine = /^error: .+ \[\w+\]$/m;

  it.each([
    { what: 'an unknown mode', more: ['-relay=wall'], code: 2 },
    { what: 'an unknown flag', more: ['-pol-interval=5ms'], code: 2 },
    { what: 'an unreachable broker', more: ['-brokers=127.0.0.1:1'], code: 3, replaces: '-brokers' },
    {
      what: 'an unreachable database',
      more: ['-postgres=postgres://me@127.0.0.1:1/x'],
      code: 3,
      replaces: '-postgres',
    },
    { what: 'a schema without tables', more: ['-schema=nothing_here'], code: 3, replaces: '-schema' },
    { what: 'a schema name that needs quoting', more: ['-schema=No;'], code: 2, replaces: '-schema' },
  ])('answers $what in one line', async ({ more, code, replaces }) => {
    const { args } = await world();
    const kept = args.filter((arg) => replaces === undefined || !arg.startsWith(`${replaces}=`));
    const result = await own.run([...kept, ...more]);
    expect({ code: result.code, stderr: result.stderr }).toEqual({
      code,
      stderr: expect.stringMatching(oneLine),
    });
  });
});
