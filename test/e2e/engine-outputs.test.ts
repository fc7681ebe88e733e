/** Outputs of the engine on real servers, read by their own tools: typed tables in PostgreSQL,
 *  registered records in Kafka by the client of another project, Parquet files by DuckDB, and
 *  windows over HTTP. All equal an oracle, through SIGKILL. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { type BatchProducer, type BrokerAdmin, OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { type Client, clientsFolder, startClient } from '../clients/kit.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { rowText } from './engine-kit.ts';
import { runThroughKill } from './engine-outputs-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 10_000n, watermark: 'partition' } as const;
const COUNTRIES = ['DE', 'D', 'ä b', ''];
const T0 = 1_750_000_000_000;
const events = Array.from({ length: 6000 }, (_, i) => ({
  partition: i % 3,
  country: COUNTRIES[(i * 7) % COUNTRIES.length] as string,
  user_id: ((i * 13) % 11) - 5,
  amount: (i % 17) - 3,
  at: T0 + i * 3 - (i % 40 === 0 ? 5000 : 0),
}));
const HEAD = 'country,user_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow';
const INTEGER_HEAD = HEAD.replace('country,', '');
const topic = `outputs-${own.suffix}`;
const tableOf = (name: string): string => `out_${name}_${own.suffix}`;
const FIELDS = ['-key=country,user_id', '-time=at:ms', '-value=amount'];

const args = (name: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=2s', '-allowed-skew=1s'],
      ...['-allowed-lateness=10s', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`, ...FIELDS],
    ],
    more,
  );

/** Runs to the end of the topic through a SIGKILL. */
const computed = (name: string, ...more: readonly string[]): Promise<void> =>
  runThroughKill(own, args(name, ...more));

async function exported(head: string, ...more: readonly string[]): Promise<string[]> {
  const flags = [`-brokers=${stack.brokers}`, `-state-dir=${join(own.dir, 'nowhere')}`];
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags, ...more]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  expect({ code, header }, stderr).toEqual({ code: 0, header: head });
  return rows.sort();
}

let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;
/** Rows by (country, user_id), and by user_id. */
let expected: string[] = [];
let expectedOfUsers: string[] = [];

function oracleRows(keyOf: (event: (typeof events)[number]) => string): string[] {
  const numbers = new Map<string, bigint>();
  const texts: string[] = [];
  const oracle = new Oracle(RULES, 3, false);
  for (const event of events) {
    const key = keyOf(event);
    if (!numbers.has(key)) numbers.set(key, BigInt(texts.push(key) - 1));
    oracle.event(event.partition, numbers.get(key) as bigint, BigInt(event.amount), BigInt(event.at));
  }
  return [...oracle.rows()]
    .map((row) => rowText({ ...row, accountId: texts[Number(row.accountId)] as string }))
    .sort();
}

const produced = async (records: ReadonlyArray<{ partition: number; value: object }>): Promise<void> => {
  const batch = records.map(({ partition, value }) => ({
    partition,
    value: Buffer.from(JSON.stringify(value)),
  }));
  expect((await producer.produce(batchOf(batch), [topic])).failed).toBe(0);
};

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-outputs', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'outputs', connectTimeoutMs: 60_000 },
  });
  await admin.createTopics([{ topic, partitions: 3 }]);
  await produced(events.map(({ partition, ...value }) => ({ partition, value })));
  expected = oracleRows(({ country, user_id }) => `${country},${user_id}`);
  expectedOfUsers = oracleRows(({ user_id }) => String(user_id));
  expect(expected.length).toBeGreaterThan(100);
});
afterAll(async () => {
  for (const name of ['typed', 'old', 'old_int', 'int'])
    await pool?.query(`DROP TABLE IF EXISTS ${tableOf(name)}, ${tableOf(name)}_late CASCADE`);
  await pool?.close();
  await producer?.close();
  await admin?.close();
});

describe('PostgreSQL', () => {
  const sinkOf = (name: string): readonly string[] => [
    `-sink=postgres:${stack.postgres}`,
    `-sink-table=${tableOf(name)}`,
  ];
  const columnsOf = async (table: string): Promise<string[]> => {
    const { rows } = await pool.query(
      `SELECT column_name || ' ' || data_type AS text FROM information_schema.columns
       WHERE table_name = $1 ORDER BY ordinal_position`,
      [table],
    );
    return rows.map(({ text }) => String(text));
  };

  it('a new table has typed columns, and its view the latest window of each key', async () => {
    await computed('typed', ...sinkOf('typed'), '-migrate');
    expect(await exported(HEAD, ...sinkOf('typed'))).toEqual(expected);
    expect(await columnsOf(tableOf('typed'))).toEqual([
      ...['country text', 'user_id bigint', 'window_start timestamp with time zone'],
      ...['window_end timestamp with time zone', 'count bigint', 'sum bigint', 'min bigint', 'max bigint'],
      ...['last_update_ts timestamp with time zone', 'overflow boolean'],
    ]);
    const { rows } = await pool.query(
      `SELECT country, user_id, window_start, sum FROM ${tableOf('typed')}_latest ORDER BY country, user_id`,
    );
    const latest = new Map<string, string>();
    for (const row of expected) {
      const [country, user, start] = row.split(',') as [string, string, string];
      const known = latest.get(`${country},${user}`)?.split(',')[2];
      if (known === undefined || Number(start) > Number(known)) latest.set(`${country},${user}`, row);
    }
    const found = rows.map(
      (row) => `${row['country']},${row['user_id']},${Number(row['window_start'])},${row['sum']}`,
    );
    const wanted = [...latest.values()].map((row) => {
      const [country, user, start, , , sum] = row.split(',');
      return `${country},${user},${start},${sum}`;
    });
    expect(found.sort()).toEqual(wanted.sort());
  });

  it('an integer key is a column with the name of its field', async () => {
    await computed('int', ...sinkOf('int'), '-migrate', '-key=user_id');
    expect((await columnsOf(tableOf('int')))[0]).toBe('user_id bigint');
    expect((await columnsOf(`${tableOf('int')}_late`))[2]).toBe('user_id bigint');
    expect(await exported(INTEGER_HEAD, ...sinkOf('int'))).toEqual(expectedOfUsers);
  });

  it.each([
    ['old', 'country text COLLATE "C" NOT NULL, user_id int8 NOT NULL', 'country, user_id', HEAD],
    ['old_int', 'account_id int8 NOT NULL', 'account_id', INTEGER_HEAD.replace('user_id', 'account_id')],
  ])(
    'the table %s of an earlier version keeps its layout, with and without -migrate',
    async (name, key, names, head) => {
      const late = `source_partition int4 NOT NULL, source_offset int8 NOT NULL, ${key}, event_ts int8 NOT NULL,
        value int8 NOT NULL, reason text NOT NULL, watermark_ms int8 NOT NULL, timestamp_ms int8`;
      await pool.query(`CREATE TABLE ${tableOf(name)} (${key}, window_start int8 NOT NULL, window_end int8 NOT NULL,
        count int8 NOT NULL, sum int8 NOT NULL, min int8 NOT NULL, max int8 NOT NULL, last_update_ts int8 NOT NULL,
        overflow bool NOT NULL, PRIMARY KEY (${names}, window_start, window_end))`);
      await pool.query(
        `CREATE TABLE ${tableOf(name)}_late (${late}, PRIMARY KEY (source_partition, source_offset))`,
      );
      const isInteger = name === 'old_int';
      const before = await columnsOf(tableOf(name));
      await computed(name, ...sinkOf(name), ...(isInteger ? ['-key=user_id'] : []));
      const signed = isInteger ? ['-export-keys=signed'] : [];
      const rows = isInteger ? expectedOfUsers : expected;
      expect(await exported(head, ...sinkOf(name), ...signed)).toEqual(rows);
      const again = await runEngine(
        own,
        args(name, ...sinkOf(name), ...(isInteger ? ['-key=user_id'] : []), '-bounded', '-migrate'),
      );
      expect(again.code, again.stderr).toBe(0);
      expect(await columnsOf(tableOf(name))).toEqual(before);
      const { rows: latest } = await pool.query(`SELECT count(*)::int8 AS n FROM ${tableOf(name)}_latest`);
      expect(Number(latest[0]?.['n'])).toBe(new Set(rows.map((row) => row.split(/,\d{13}/)[0])).size);
    },
  );
});

describe('Kafka with registered records', () => {
  let confluent: Client;
  beforeAll(async () => {
    confluent = startClient('confluent', await clientsFolder(), registry);
  });
  afterAll(() => confluent?.close());

  const outOf = (format: string): string => `out-${format}-${own.suffix}`;
  const sinkOf = (format: string): readonly string[] => [
    ...[`-sink=kafka:${outOf(format)}`, `-sink-format=${format}`, `-registry=${registry}`],
  ];
  /** All records of a topic, as bytes. */
  async function recordsOf(name: string): Promise<Array<{ key: Buffer; value: Buffer }>> {
    const consumer = await nodeRdkafkaDriver.consumer({
      ...{ brokers: stack.brokers, clientId: 'outputs', connectTimeoutMs: 60_000, partitionEof: true },
    });
    const partitions = (await admin.describeTopic(name))?.partitions ?? 0;
    const open = new Set(Array.from({ length: partitions }, (_, at) => at));
    await consumer.assign(
      [...open].map((partition) => ({ topic: name, partition, offset: OFFSET_BEGINNING })),
    );
    const batch = RecordBatch.create(1000, 1 << 20);
    const records: Array<{ key: Buffer; value: Buffer }> = [];
    await until('the end of the topic', async () => {
      const { ends } = await consumer.consume(batch, 200);
      for (let row = 0; row < batch.rowCount; row++)
        records.push({
          key: Buffer.from(batch.key(row) ?? []),
          value: Buffer.from(batch.value(row) ?? []),
        });
      for (const { partition } of ends) open.delete(partition);
      return open.size === 0;
    });
    await consumer.close();
    return records;
  }
  const textOf = (value: Readonly<Record<string, unknown>>): string =>
    HEAD.split(',')
      .map((name) => String(value[name] ?? ''))
      .join();

  it.each(['avro', 'protobuf', 'json'])(
    'a topic of %s records has registered schemas, one key a window, and is read by other clients',
    async (format) => {
      const out = outOf(format);
      const unregistered = await runEngine(own, args(`k-${format}`, ...sinkOf(format), '-bounded'));
      expect(unregistered).toMatchObject({ code: 2, stderr: expect.stringMatching(/-migrate/) });
      await computed(`k-${format}`, ...sinkOf(format), '-migrate');
      expect(await exported(HEAD, ...sinkOf(format))).toEqual(expected);
      const subjects = (await (await fetch(`${registry}/subjects`)).json()) as readonly string[];
      expect(subjects).toEqual(expect.arrayContaining([`${out}-key`, `${out}-value`]));
      const records = await recordsOf(out);
      const newest = new Map(records.map(({ key, value }) => [key.toString('hex'), value]));
      expect(newest.size).toBe(expected.length);
      const values = [...newest.values()];
      if (format === 'json') {
        const read = values.map((value) => JSON.parse(value.toString('utf8', 5)) as Record<string, unknown>);
        expect(read.map(textOf).sort()).toEqual(expected);
        return;
      }
      const ours = new SchemaRegistry({ url: registry }).deserializer();
      const decoded = await Promise.all(values.map((value) => ours.deserialize(value)));
      expect(decoded.map((value) => textOf(value as Record<string, unknown>)).sort()).toEqual(expected);
      const first = values[0] as Buffer;
      const schemaType = format.toUpperCase();
      const theirs = await confluent.ask<Record<string, unknown>>('deserialize', {
        ...{ schemaType, topic: out, bytes: first.toString('base64') },
      });
      // The JSON form of Protobuf has names in camel case, and leaves default values out.
      const named = (name: string): unknown =>
        theirs[name] ?? theirs[name.replace(/_(.)/g, (_, c: string) => c.toUpperCase())];
      const wanted = decoded[0] as Record<string, unknown>;
      for (const name of ['window_start', 'window_end', 'count', 'sum'])
        expect(String(named(name))).toBe(String(wanted[name]));
      const key = (records[0] as { key: Buffer }).key;
      const keyRead = await confluent.ask<Record<string, unknown>>('deserialize', {
        ...{ schemaType, topic: out, isKey: true, bytes: key.toString('base64') },
      });
      expect(Object.keys(keyRead).join()).toMatch(/window/i);
    },
  );

  it('a schema that the registry refuses is one error, and nothing is written', async () => {
    const out = outOf('refused');
    const answer = await fetch(`${registry}/subjects/${out}-value/versions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        schema: JSON.stringify({
          type: 'record',
          name: 'Other',
          fields: [{ name: 'must', type: 'string' }],
        }),
      }),
    });
    expect(answer.status).toBe(200);
    await fetch(`${registry}/config/${out}-value`, {
      method: 'PUT',
      headers: { 'content-type': 'application/json' },
      body: '{"compatibility":"FULL"}',
    });
    const run = await runEngine(
      own,
      args(
        'refused',
        `-sink=kafka:${out}`,
        '-sink-format=avro',
        `-registry=${registry}`,
        '-migrate',
        '-bounded',
      ),
    );
    expect(run.code).toBe(2);
    expect(run.stderr).toMatch(/the registry refuses the schema of the results in the subject .*-value/);
    expect((await admin.listTopics()).some((one) => one.topic === out && one.partitions.length > 0)).toBe(
      false,
    );
    const subjects = (await (await fetch(`${registry}/subjects`)).json()) as readonly string[];
    expect(subjects).not.toContain(`${out}-key`);
  });
});

describe('Parquet', () => {
  it('DuckDB reads the files as the oracle has the windows, through a SIGKILL', async () => {
    const folder = join(own.dir, 'parquet-files');
    const missing = await runEngine(
      own,
      args('parquet', `-sink=parquet:${folder}`, '-bounded', '-key=country:string,user_id:i64'),
    );
    expect(missing).toMatchObject({ code: 2, stderr: expect.stringMatching(/the sink has no folder/) });
    await computed('parquet', `-sink=parquet:${folder}`, '-migrate');
    const duckdb = await (await DuckDBInstance.create(':memory:')).connect();
    const ms = (name: string): string => `epoch_ms(${name})::BIGINT AS ${name}`;
    const rows = await duckdb.runAndReadAll(
      `SELECT country, user_id, ${ms('window_start')}, ${ms('window_end')}, count, sum, min, max,
         ${ms('last_update_ts')}, overflow FROM '${folder}/*.parquet'`,
    );
    expect(
      rows
        .getRows()
        .map((row) => row.join())
        .sort(),
    ).toEqual(expected);
    const types = await duckdb.runAndReadAll(`DESCRIBE SELECT * FROM '${folder}/*.parquet'`);
    expect(types.getRows().map(([name, type]) => `${name} ${type}`)).toEqual([
      ...['country VARCHAR', 'user_id BIGINT', 'window_start TIMESTAMP WITH TIME ZONE'],
      ...['window_end TIMESTAMP WITH TIME ZONE', 'count BIGINT', 'sum BIGINT', 'min BIGINT', 'max BIGINT'],
      ...['last_update_ts TIMESTAMP WITH TIME ZONE', 'overflow BOOLEAN'],
    ]);
    const starts = new Set(expected.map((row) => row.split(',')[2]));
    expect(readdirSync(folder).filter((name) => name.endsWith('.parquet'))).toHaveLength(starts.size);
    expect(readdirSync(folder).filter((name) => /unfinished|tmp/.test(name))).toEqual([]);
    expect(await exported(HEAD, `-sink=parquet:${folder}`)).toEqual(expected);
    duckdb.closeSync();
  });

  it('DuckDB reads keys of every kind', async () => {
    const folder = join(own.dir, 'parquet-kinds-files');
    const kinds = `outputs-kinds-${own.suffix}`;
    await admin.createTopics([{ topic: kinds, partitions: 1 }]);
    const id = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    const value = `{"b":"AP8=","user":{"id":"${id}"},"n":18446744073709551615}`;
    const batch = batchOf([{ partition: 0, value: Buffer.from(value) }]);
    expect((await producer.produce(batch, [kinds])).failed).toBe(0);
    const run = await runEngine(own, [
      ...[`-brokers=${stack.brokers}`, `-topic=${kinds}`, `-state-dir=${join(own.dir, 'kinds')}`],
      ...[
        '-format=json',
        '-key=b:bytes,user.id:uuid,n:u64',
        `-sink=parquet:${folder}`,
        '-migrate',
        '-bounded',
      ],
    ]);
    expect(run.code, run.stderr).toBe(0);
    const duckdb = await (await DuckDBInstance.create(':memory:')).connect();
    const read = await duckdb.runAndReadAll(
      `SELECT hex(b), typeof(b), id::VARCHAR, typeof(id), n::VARCHAR, typeof(n) FROM '${folder}/*.parquet'`,
    );
    expect(read.getRows()).toEqual([['00FF', 'BLOB', id, 'UUID', '18446744073709551615', 'UBIGINT']]);
    duckdb.closeSync();
  });
});

describe('HTTP', () => {
  it('windows of all keys, the greatest, CSV and events of windows that fire are answered', async () => {
    const engine = startEngine(own, args('http'));
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === events.length);
    const listed = async (): Promise<string[]> => {
      const rows: string[] = [];
      for (let path: string | undefined = '/windows?limit=70'; path !== undefined; ) {
        const answer: Response = await fetch(`http://${address}${path}`, { headers: { accept: 'text/csv' } });
        expect(answer.headers.get('content-type')).toMatch(/^text\/csv/);
        const [head, ...lines] = (await answer.text()).trimEnd().split('\r\n');
        expect(head).toBe(HEAD);
        rows.push(...lines);
        path = /^<(.*)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
      }
      return rows.sort();
    };
    const wanted = new Set(expected);
    const fired = await until('fired windows', async () => {
      const rows = await listed();
      return rows.length > 0 ? rows : undefined;
    });
    expect(fired.every((row) => wanted.has(row))).toBe(true);
    const top = (await (await fetch(`http://${address}/windows?top=3&by=sum`)).json()) as ReadonlyArray<
      Record<string, string>
    >;
    const sums = (await listed()).map((row) => Number(row.split(',')[5])).sort((a, b) => b - a);
    expect(top.map(({ sum }) => Number(sum))).toEqual(sums.slice(0, 3));

    const stop = new AbortController();
    const stream = await fetch(`http://${address}/windows`, {
      headers: { accept: 'text/event-stream' },
      signal: stop.signal,
    });
    expect(stream.headers.get('content-type')).toBe('text/event-stream');
    let text = '';
    const reading = (async () => {
      const decoder = new TextDecoder();
      for await (const chunk of stream.body as unknown as AsyncIterable<Uint8Array>)
        text += decoder.decode(chunk, { stream: true });
    })().catch(() => {});
    await until('the begin of the stream', () => text.includes('retry:'));
    // Later events of every partition close all windows of the test.
    await produced(
      [0, 1, 2].map((partition) => ({
        partition,
        value: { country: 'later', user_id: 1, amount: 1, at: T0 + 3_600_000 },
      })),
    );
    const followed = await until('an event for each window that was open', () => {
      const rows = [...text.matchAll(/^event: window\ndata: (.*)$/gm)].map(
        ([, json]) => JSON.parse(json as string) as Record<string, unknown>,
      );
      return rows.length === expected.length - fired.length ? rows : undefined;
    });
    const lines = followed.map(({ key, ...row }) =>
      [...Object.values(key as object), ...Object.values(row)].join(),
    );
    expect([...fired, ...lines].sort()).toEqual(expected);
    stop.abort();
    await reading;
    const [DE] = expected.filter((row) => row.startsWith('DE,')) as [string];
    const user = DE.split(',')[1];
    const one = await fetch(`http://${address}/windows/DE,${user}`, { headers: { accept: 'text/csv' } });
    expect((await one.text()).split('\r\n')).toContain(DE);
    await engine.drain();
  });
});

describe('flags', () => {
  it.each([
    [['-sink=parquet:'], /-sink=parquet:… has no folder after the colon/],
    [['-sink=parquet'], /-sink=parquet:… has no folder after the colon/],
    [['-sink=kafka:x', '-sink-format=avro'], /-sink-format=avro needs -registry/],
    [['-sink=kafka:x', '-sink-format=csv'], /-sink-format/],
    [['-sink-format=avro', `-registry=${registry}`], /-sink-format/],
    [['-sink=parquet:x', '-sink-table=t'], /-sink-table/],
  ])('the flags %j are refused with a reason', async (flags, message) => {
    const run = await runEngine(own, args('flags', ...flags, '-bounded'));
    expect(run).toMatchObject({ code: 2, stderr: expect.stringMatching(message) });
  });
});
