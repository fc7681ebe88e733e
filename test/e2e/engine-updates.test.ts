/** Early results on real servers (`-emit=updates`): in PostgreSQL, Kafka, RocksDB and over HTTP
 *  they equal the oracle at each moment, are marked, and replace no final result, through
 *  SIGKILL. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { runConsumer } from '../fixtures/consumer.ts';
import { openPool } from '../fixtures/database.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const pool: SqlPool = await openPool(stack.postgres, { connections: 1, name: 'updates' });
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 0n, watermark: 'partition' } as const;
const PARTITIONS = 2;
const T0 = 1_750_000_000_000;
/** Events of each step of a test, and one in each partition that closes every window before it. */
const STEP = 2000;
const eventAt = (i: number) => ({
  partition: i % PARTITIONS,
  user_id: (i * 7) % 5,
  amount: (i % 17) - 3,
  at: T0 + i * 3,
});
const CLOSING = Array.from({ length: PARTITIONS }, (_, partition) => ({
  ...{ partition, user_id: 9, amount: 1, at: T0 + 3_600_000 },
}));
const HEAD = 'user_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow,final';

type Event = ReturnType<typeof eventAt>;
const stepOf = (step: number): readonly Event[] =>
  Array.from({ length: STEP }, (_, i) => eventAt(step * STEP + i));

/** Rows with their mark after these events. */
function rowsAfter(events: readonly Event[]): string[] {
  const oracle = new Oracle(RULES, PARTITIONS);
  for (const { partition, user_id, amount, at } of events)
    oracle.event(partition, BigInt(user_id), BigInt(amount), BigInt(at));
  expect(oracle.droppedLate.every((count) => count === 0n)).toBe(true);
  const final = new Set([...oracle.rows(true)].map(rowText));
  return [...oracle.rows()]
    .map(rowText)
    .map((text) => `${text},${final.has(text)}`)
    .sort();
}

let admin: BrokerAdmin;
let producer: BatchProducer;
const topicOf = (name: string): string => `updates-${name}-${own.suffix}`;

async function produce(topic: string, events: readonly Event[]): Promise<void> {
  const records = events.map(({ partition, ...value }) => ({
    partition,
    value: Buffer.from(JSON.stringify(value)),
  }));
  expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
}

const flagsOf = (name: string, ...more: readonly string[]): readonly string[] => [
  ...[`-brokers=${stack.brokers}`, `-topic=${topicOf(name)}`, '-size=2s', '-allowed-skew=1s'],
  ...['-allowed-lateness=0', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`],
  ...['-format=json', '-key=user_id:i64', '-time=at:ms', '-value=amount', '-checkpoint-interval=50ms'],
  ...['-emit=updates', '-emit-interval=100ms', ...more],
];

/** Rows of the engine's own store. */
async function overHttp(address: string): Promise<string[]> {
  const answer = await fetch(`http://${address}/windows?limit=1000`, { headers: { accept: 'text/csv' } });
  const [head, ...rows] = (await answer.text()).trimEnd().split('\r\n');
  expect(head).toBe(HEAD);
  return rows.sort();
}

async function exported(flags: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags]);
  const [head, ...rows] = stdout.trimEnd().split('\n');
  // An export names the key of integers account_id.
  expect({ code, head: head?.replace(/^account_id,/, 'user_id,') }, stderr).toEqual({ code: 0, head: HEAD });
  return rows.sort();
}

const equals = (a: readonly string[], b: readonly string[]): true | undefined =>
  a.join('\n') === b.join('\n') ? true : undefined;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-updates', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

/** Writes that a table has seen, in their order, by a trigger of its own. */
async function audit(table: string): Promise<void> {
  await pool.query(
    `CREATE TABLE ${table}_audit (id serial, user_id int8, window_start timestamptz, final bool)`,
  );
  await pool.query(`CREATE FUNCTION ${table}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO ${table}_audit (user_id, window_start, final) VALUES (NEW.user_id, NEW.window_start, NEW.final);
    RETURN NULL; END $$`);
  await pool.query(
    `CREATE TRIGGER note AFTER INSERT OR UPDATE ON ${table} FOR EACH ROW EXECUTE FUNCTION ${table}_note()`,
  );
}

interface Case {
  readonly name: string;
  readonly sink: readonly string[];
  /** Rows of the sink, read by its own tools. */
  rows(): Promise<string[]>;
  /** Called once the sink exists. */
  readonly prepare?: () => Promise<void>;
  /** Marks of the writes of each window in their order. */
  history?(): Promise<ReadonlyMap<string, readonly boolean[]>>;
}

const TABLE = `updates_${own.suffix}`;

const postgres: Case = {
  name: 'postgres',
  sink: [`-sink=postgres:${stack.postgres}`, `-sink-table=${TABLE}`, '-migrate'],
  prepare: () => audit(TABLE),
  rows: async () => {
    const ms = (column: string): string => `(extract(epoch FROM ${column}) * 1000)::int8`;
    const { rows } = await pool.query<{ readonly text: string }>(
      `SELECT concat_ws(',', user_id, ${ms('window_start')}, ${ms('window_end')}, count, sum, min, max,
        ${ms('last_update_ts')}, overflow::text, final::text) AS text FROM ${TABLE}`,
    );
    return rows.map(({ text }) => text).sort();
  },
  history: async () => {
    const { rows } = await pool.query<{ readonly key: string; readonly final: boolean }>(
      `SELECT concat_ws(',', user_id, window_start) AS key, final FROM ${TABLE}_audit ORDER BY id`,
    );
    return historyOf(rows);
  },
};

function kafka(format: 'avro' | 'protobuf' | 'json'): Case {
  const results = `results-${topicOf(format)}`;
  const sink = [`-sink=kafka:${results}`, `-sink-format=${format}`, `-registry=${registry}`];
  const read = [`-brokers=${stack.brokers}`, ...sink, `-state-dir=${join(own.dir, 'nowhere')}`];
  return {
    name: format,
    sink: [...sink, '-migrate', '-partitions=1', '-replication-factor=1'],
    rows: () => exported([...read, '-emit=updates']),
    ...(format === 'avro'
      ? {
          history: async () => {
            const flags = [`-brokers=${stack.brokers}`, `-topic=${results}`, `-registry=${registry}`];
            const { stdout } = await runConsumer(own, [...flags, '-exit-at-end', '-lines=value']);
            const lines = stdout.split('\n').filter((line) => line.startsWith('{'));
            return historyOf(
              lines.map((line) => {
                const { user_id, window_start, final } = JSON.parse(line) as Record<string, unknown>;
                return {
                  key: JSON.stringify([user_id, window_start]),
                  final: JSON.stringify(final).includes('true'),
                };
              }),
            );
          },
        }
      : {}),
  };
}

const rocksdb: Case = {
  name: 'rocksdb',
  sink: [],
  rows: () => exported([`-state-dir=${join(own.dir, 'rocksdb')}`]),
};

function historyOf(
  writes: ReadonlyArray<{ readonly key: string; readonly final: boolean }>,
): ReadonlyMap<string, readonly boolean[]> {
  const found = new Map<string, boolean[]>();
  for (const { key, final } of writes) {
    const marks = found.get(key) ?? [];
    found.set(key, marks);
    marks.push(final);
  }
  return found;
}

describe('early results through SIGKILL', () => {
  it.each([postgres, kafka('avro'), kafka('protobuf'), kafka('json'), rocksdb])(
    'the sink $name has the oracle rows of open and of closed windows at each step, each with its mark',
    async ({ name, sink, rows, prepare, history }) => {
      const topic = topicOf(name);
      await admin.createTopics([{ topic, partitions: PARTITIONS }]);
      const flags = flagsOf(name, ...sink);
      let engine = startEngine(own, flags, `${name}-1`);
      let address = await engine.address();
      if (prepare !== undefined) {
        await until('the sink', async () => ((await fetch(`http://${address}/ready`)).ok ? true : undefined));
        await prepare();
      }
      const events: Event[] = [];
      for (const step of [0, 1, 2]) {
        events.push(...stepOf(step));
        await produce(topic, stepOf(step));
        // Every other life is killed in the middle of its work.
        if (step === 1)
          await until('a half of the step', async () =>
            (await consumedAt(address)) > STEP ? true : undefined,
          );
        else await until('the rows of the step', async () => equals(await rows(), rowsAfter(events)));
        await engine.die();
        engine = startEngine(own, flags, `${name}-${step + 2}`);
        address = await engine.address();
      }
      events.push(...CLOSING);
      await produce(topic, CLOSING);
      const expected = rowsAfter(events);
      await until('every window', async () => equals(await rows(), expected));
      await until('every window over HTTP', async () => equals(await overHttp(address), expected));
      expect(expected.filter((row) => row.endsWith(',false'))).toHaveLength(1);
      await engine.drain();
      const marks = [...((await history?.()) ?? new Map<string, readonly boolean[]>()).values()];
      // Once final, always final.
      for (const seen of marks)
        if (seen.includes(true)) expect(seen.indexOf(true)).toBe(seen.lastIndexOf(false) + 1);
      if (history !== undefined) expect(marks.filter(([first]) => first === false).length).toBeGreaterThan(9);
    },
  );
});

it('clients of HTTP see early results with their mark, and the final result after them', async () => {
  const topic = topicOf('http');
  await admin.createTopics([{ topic, partitions: PARTITIONS }]);
  const engine = startEngine(own, flagsOf('http'), 'http');
  const address = await engine.ready();
  const stop = new AbortController();
  const stream = await fetch(`http://${address}/windows`, {
    headers: { accept: 'text/event-stream' },
    signal: stop.signal,
  });
  let text = '';
  const reading = (async () => {
    const decoder = new TextDecoder();
    for await (const chunk of stream.body as unknown as AsyncIterable<Uint8Array>)
      text += decoder.decode(chunk, { stream: true });
  })().catch(() => {});
  await until('the begin of the stream', () => text.includes('retry:'));
  const sent = () =>
    [...text.matchAll(/^event: window\ndata: (.*)$/gm)].map(
      ([, json]) =>
        JSON.parse(json as string) as {
          readonly count: string;
          readonly sum: string;
          readonly final: boolean;
        },
    );
  const first = [0, 1].map((partition) => ({ partition, user_id: 3, amount: 2, at: T0 }));
  await produce(topic, first);
  await until('an early result', () => (sent().at(-1)?.count === '2' ? true : undefined));
  expect(await metric(address, 'engine_early_results_total')).toBeGreaterThan(0);
  expect(sent().every(({ final }) => !final)).toBe(true);
  const open = await fetch(`http://${address}/windows/3?open=true`);
  expect(await open.json()).toEqual([expect.objectContaining({ count: '2', sum: '4', final: false })]);
  const csv = await fetch(`http://${address}/windows/3?open=true`, { headers: { accept: 'text/csv' } });
  expect(await csv.text()).toBe(`${HEAD}\r\n3,${T0},${T0 + 2000},2,4,2,2,${T0},false,false\r\n`);
  await produce(topic, CLOSING);
  await until('the final result', () => (sent().some(({ final }) => final) ? true : undefined));
  const marks = sent()
    .filter(({ sum }) => sum === '4')
    .map(({ final }) => final);
  expect(marks.indexOf(true)).toBe(marks.length - 1);
  const closed = await until('the stored final result', async () => {
    const rows = (await (await fetch(`http://${address}/windows/3`)).json()) as ReadonlyArray<{
      final: boolean;
    }>;
    return rows[0]?.final === true ? rows : undefined;
  });
  expect(closed).toEqual([expect.objectContaining({ count: '2', final: true })]);
  stop.abort();
  await reading;
  await engine.drain();
});

it('a run with early results is not resumed without them', async () => {
  const topic = topicOf('resumed');
  await admin.createTopics([{ topic, partitions: PARTITIONS }]);
  await produce(topic, stepOf(0));
  const end = (flags: readonly string[]) => runEngine(own, [...flags, '-exit-at-end']);
  const plain = flagsOf('resumed').filter((flag) => !flag.startsWith('-emit'));
  expect(await end(plain)).toMatchObject({ code: 0 });
  expect(await end(flagsOf('resumed'))).toMatchObject({ code: 0 });
  const refused = await end(plain);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toMatch(/-emit was updates, is not given; start with -emit=updates again/);
});
