/** `millrace relay -relay=wal` as real processes on a real broker: the same sequences as with poll,
 *  crashes at every point, and a takeover from a relay that was killed or suspended. */

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { connectPool, createTables } from '../fixtures/database.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, until } from '../wait.ts';
import { dropSlots } from './wal-kit.ts';

const own = launcher();
const stack = await sharedStack();
const PARTITIONS = 3;
const LEASE = '10s';
/** Lease of tests in which a successor must wait for its expiry. */
const SHORT_LEASE = '1500ms';

interface World {
  readonly schema: string;
  readonly topic: string;
  readonly pool: SqlPool;
  readonly args: readonly string[];
}

let count = 0;
const worlds: World[] = [];
const relays: Array<Running> = [];
function relay(args: readonly string[]): Running {
  const one = startRelay(own, args);
  relays.push(one);
  return one;
}
afterEach(async ({ task }) => {
  if (task.result?.state === 'fail')
    for (const { pid, logPath } of relays)
      console.error(`--- relay ${pid} of "${task.name}"\n${readFileSync(logPath, 'utf8')}`);
  // A suspended process would keep its locks.
  for (const one of relays) for (const signal of ['SIGCONT', 'SIGKILL'] as const) one.kill(signal);
  await Promise.all(relays.splice(0).map((one) => one.ended));
  for (const { pool, schema } of worlds.splice(0)) {
    await dropSlots(pool, schema);
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.close();
  }
});

const WAL_FLAGS = ['-sweep-interval=500ms', '-heartbeat=300ms'];

async function world(mode: 'poll' | 'wal' = 'wal', lease = SHORT_LEASE): Promise<World> {
  const schema = `walrelay_${own.suffix}_${count++}`;
  const pool = await connectPool(stack.postgres, { schema, connections: 8, name: 'wal relay test' });
  await createTables(pool, schema, 'orders', 'relay');
  const topic = `${schema}.events`;
  const created = {
    schema,
    topic,
    pool,
    args: [
      `-relay=${mode}`,
      `-brokers=${stack.brokers}`,
      `-postgres=${stack.postgres}`,
      `-schema=${schema}`,
      `-topic=${topic}`,
      `-partitions=${PARTITIONS}`,
      `-lease=${lease}`,
      ...(mode === 'wal' ? WAL_FLAGS : []),
    ],
  };
  worlds.push(created);
  return created;
}

async function insert(session: SqlSession, aggregate: string, msgId: string = randomUUID()): Promise<string> {
  await session.query(
    `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $2::uuid, 'order.created.v1', '{}')`,
    [aggregate, msgId],
  );
  return msgId;
}

const drained = ({ pool }: World): Promise<true> =>
  until(
    'an empty outbox',
    async () => {
      const { rows } = await pool.query<{ n: bigint }>(
        'SELECT count(*) AS n FROM outbox WHERE published_at IS NULL',
      );
      return rows[0]?.n === 0n ? true : undefined;
    },
    120_000,
  );

/** Resolves when this relay reads the slot. pg_replication_slots would show a slot in creation as
 *  active, too. */
const untilReading = (address: string): Promise<true> =>
  until(
    'a reader of the slot',
    async () => ((await metric(address, 'relay_wal_active')) === 1 ? true : undefined),
    120_000,
  );

/** Suspends the relay that reads the slot. */
async function suspendReader({ pool, schema }: World, relays: readonly Running[]): Promise<Running> {
  for (;;) {
    for (const one of relays) {
      if ((await metric(await one.address(), 'relay_wal_active')) !== 1) continue;
      one.kill('SIGSTOP');
      const { rows } = await pool.query<{ held: boolean }>(
        'SELECT coalesce(bool_or(active), false) AS held FROM pg_replication_slots WHERE slot_name LIKE $1',
        [`millrace\\_${schema}\\_%`],
      );
      if (rows[0]?.held === true) return one;
      one.kill('SIGCONT');
    }
    await pause(50);
  }
}

interface Seen {
  readonly key: string;
  readonly msgId: string;
  readonly mode: string;
}

/** Reads the topic, each partition in its order. */
async function readTopic(topic: string): Promise<Seen[]> {
  const consumer = await nodeRdkafkaDriver.consumer({
    brokers: stack.brokers,
    clientId: 'test',
    connectTimeoutMs: 60_000,
    partitionEof: true,
  });
  const seen: Seen[][] = Array.from({ length: PARTITIONS }, () => []);
  try {
    await consumer.assign(seen.map((_, partition) => ({ topic, partition, offset: OFFSET_BEGINNING })));
    const batch = RecordBatch.create(1000, 1 << 21);
    const ended = new Set<number>();
    const text = new TextDecoder();
    while (ended.size < PARTITIONS) {
      const { rowCount, ends } = await consumer.consume(batch, 500);
      for (let i = 0; i < rowCount; i++)
        seen[batch.columns.partition[i] as number]?.push({
          key: text.decode(batch.key(i) ?? undefined),
          msgId: JSON.parse(text.decode(batch.value(i) ?? undefined)).msg_id,
          mode: text.decode(batch.headers(i).find(([name]) => name === 'relay_mode')?.[1] ?? undefined),
        });
      for (const end of ends) ended.add(end.partition);
    }
  } finally {
    await consumer.close();
  }
  return seen.flat();
}

/** First occurrences of each key, in order. */
function sequences(seen: readonly Seen[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const known = new Set<string>();
  for (const { key, msgId } of seen) {
    if (known.has(msgId)) continue;
    known.add(msgId);
    found.set(key, [...(found.get(key) ?? []), msgId]);
  }
  return found;
}

/** Sends rounds of one event for each key, each key's rounds in its own order; `between` runs after
 *  each round. */
async function work(
  one: World,
  keys: number,
  rounds: number,
  between: (round: number) => unknown = () => {},
) {
  const sent = new Map<string, string[]>(Array.from({ length: keys }, () => [randomUUID(), []]));
  for (let round = 0; round < rounds; round++) {
    await workOn(one, sent);
    await between(round);
  }
  return sent;
}

/** Sends one more round for the same keys. */
async function workOn({ pool }: World, sent: ReadonlyMap<string, string[]>): Promise<void> {
  await Promise.all([...sent].map(async ([key, ids]) => ids.push(await insert(pool, key))));
}

describe('relay -relay=wal', () => {
  it('a WAL relay and a poll relay publish the same workload in the same order of each key', async () => {
    const both = [await world('poll', LEASE), await world('wal', LEASE)];
    const pair = both.map((one) => relay(one.args));
    const addresses = await Promise.all(pair.map((one) => one.address()));
    await untilReading(addresses[1] as string);
    const keys = Array.from({ length: 30 }, () => randomUUID());
    // One script of writes for both modes: several events for each key, parallel writers, rollbacks
    // of parts and of whole transactions, and commits in another order than the transactions began.
    const names = new Map<string, string>();
    const idOf = (name: string): string => {
      const id = names.get(name) ?? randomUUID();
      names.set(name, id);
      return id;
    };
    const script = async ({ pool }: World): Promise<void> => {
      for (let round = 0; round < 6; round++)
        await Promise.all(
          keys.map(async (key, k) => {
            const row = (session: SqlSession, what: string) =>
              insert(session, key, idOf(`${k} ${round} ${what}`));
            if ((k + round) % 5 === 0)
              await pool
                .transaction(async (session) => {
                  await insert(session, key);
                  throw new RangeError('rolled back');
                })
                .catch(() => {});
            await pool.transaction(async (session) => {
              await row(session, 'a');
              await session.query('SAVEPOINT s');
              await insert(session, key);
              await session.query('ROLLBACK TO SAVEPOINT s');
              if (k % 7 === round) await pause(20);
              await row(session, 'b');
            });
          }),
        );
    };
    await Promise.all(both.map(script));
    await Promise.all(both.map(drained));
    expect(await metric(addresses[1] as string, 'sweeper_found_total')).toBe(0);
    await Promise.all(pair.map((one) => one.drain()));
    const [polled, decoded] = await Promise.all(both.map(({ topic }) => readTopic(topic)));
    const expected = new Map(
      keys.map((key, k) => [
        key,
        Array.from({ length: 6 }, (_, round) => [idOf(`${k} ${round} a`), idOf(`${k} ${round} b`)]).flat(),
      ]),
    );
    expect(sequences(decoded as Seen[])).toEqual(expected);
    expect(sequences(polled as Seen[])).toEqual(expected);
    expect([(decoded as Seen[]).length, (polled as Seen[]).length]).toEqual([360, 360]);
    expect(new Set((decoded as Seen[]).map(({ mode }) => mode))).toEqual(new Set(['wal']));
  });

  it.each(['commit', 'publish', 'mark'])(
    'a WAL relay that dies at %s redelivers the unfinished rows, and a key stays in order',
    async (point) => {
      const one = await world();
      const first = relay([...one.args, `-crash-point=${point}`, '-crash-after=60']);
      await untilReading(await first.address());
      let exit: unknown;
      void first.ended.then((how) => {
        exit = how;
      });
      const sent = await work(one, 20, 6);
      // The relay counts acknowledged rows when a flight starts. The last flight of these rounds
      // may start before the 60th row is acknowledged. Then the next flight ends the process, so
      // rows must arrive until it is dead.
      await until(
        'the crash',
        async () => {
          if (exit === undefined) await workOn(one, sent);
          return exit;
        },
        120_000,
      );
      expect(exit).toEqual({ code: null, signal: 'SIGKILL' });
      expect(first.log()).toMatch(new RegExp(`"point":"${point}".*"unfinished":[1-9]`));
      const second = relay(one.args);
      await drained(one);
      const address = await second.address();
      await untilReading(address);
      expect(await metric(address, 'sweeper_found_total')).toBe(0);
      await second.drain();
      const seen = await readTopic(one.topic);
      expect(sequences(seen)).toEqual(sent);
      const written = [...sent.values()].flat().length;
      if (point === 'publish') expect(seen.length).toBeGreaterThan(written);
    },
  );

  it('a second WAL relay stands by, and takes over from a killed relay and from a suspended relay', async () => {
    const one = await world();
    const first = relay(one.args);
    await untilReading(await first.address());
    const second = relay(one.args);
    await second.address();
    let pair: readonly Running[] = [];
    let suspended = second;
    const sent = await work(one, 15, 12, async (round) => {
      await pause(40);
      if (round === 3) first.kill('SIGKILL');
      if (round === 4) {
        await untilReading(await second.address());
        pair = [second, relay(one.args)];
        await pair[1]?.address();
      }
      // The relay is suspended while it publishes, and resumes when its successor runs.
      if (round === 7) suspended = await suspendReader(one, pair);
    });
    await drained(one);
    suspended.kill('SIGCONT');
    const late = await work(one, 15, 5);
    await drained(one);
    const seen = await readTopic(one.topic);
    expect(sequences(seen)).toEqual(new Map([...sent, ...late]));
    const successor = pair.find((each) => each !== suspended) as typeof second;
    expect(successor.log()).toContain('terminated the walsender');
    await Promise.all(pair.map((each) => each.drain()));
  });

  it('a relay stands by while a relay of the other mode has the outbox, in either order', async () => {
    // No relay here waits for a lease to expire: the others see immediately that a relay left or
    // died.
    const one = await world('poll', LEASE);
    const wal = one.args.flatMap((arg) => (arg === '-relay=poll' ? ['-relay=wal', ...WAL_FLAGS] : [arg]));
    const owns = (address: string, shards: number): Promise<true> =>
      until(`${shards} shards`, async () =>
        (await metric(address, 'relay_owned_shards')) === shards ? true : undefined,
      );
    const first = relay(one.args);
    await owns(await first.address(), 16);
    const second = relay(wal);
    const secondAt = await second.address();
    await until('two members', async () =>
      (await metric(await first.address(), 'relay_members')) === 2 ? true : undefined,
    );
    const sent = await work(one, 20, 3);
    await drained(one);
    expect(await metric(secondAt, 'relay_owned_shards')).toBe(0);

    await first.drain();
    await owns(secondAt, 16);
    const third = relay(one.args);
    await third.address();
    await workOn(one, sent);
    await drained(one);
    await second.die();
    await workOn(one, sent);
    await drained(one);
    await owns(await third.address(), 16);
    await third.drain();
    expect(sequences(await readTopic(one.topic))).toEqual(sent);
  });
});
