/** Aggregates that are added to a running job, on real servers and with every sink, through SIGKILL
 *  at steps of the change: the results are those of a run that had them since the same time, and
 *  `engine verify` agrees. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const T0 = 1_750_000_000_000;
/** Events before the change, and after it. */
const ROUND = 4000;
const BEFORE = 'count as n,sum(amount)';
/** In another order than the columns that exist. */
const AFTER = 'topk(user,3) as top,sum(amount),count(amount),count as n,p99(latency)';
const ADDED = ['top', 'top_error', 'count_amount', 'p99_latency', 'p99_latency_error'];
const topicOf = (name: string): string => `changes-${name}-${own.suffix}`;
const table = `changes_${own.suffix}`;
const postgres = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`];

/** Event n, 5 ms after the one before; some are out of order, and some late. */
const eventOf = (n: number) => ({
  country: ['DE', 'FR', 'IT'][n % 3],
  user: `user-${(n * n) % 7}`,
  amount: n % 11 === 0 ? null : n - 500,
  latency: (n * 7919) % 1000,
  at: T0 + n * 5 - (n % 40 === 0 ? 3000 : 0) - (n % 977 === 0 ? 60_000 : 0),
});

const folder = (name: string): string => join(own.dir, name);
/** Flags of a job over the topic of a case. */
const argsOn = (topic: string, state: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topicOf(topic)}`, '-size=4s', '-allowed-skew=1s'],
      ...['-allowed-lateness=3s', '-idle-timeout=0', `-state-dir=${folder(state)}`],
      ...['-format=json', '-key=country', '-time=at:ms', '-batch-rows=300', '-checkpoint-interval=20ms'],
    ],
    more,
  );
const args = (name: string, ...more: readonly string[]): readonly string[] => argsOn(name, name, ...more);

let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;

async function send(name: string, round: number): Promise<void> {
  const rows = Array.from({ length: ROUND }, (_, i) => {
    const n = round * ROUND + i;
    return { partition: n % 3, value: Buffer.from(JSON.stringify(eventOf(n))) };
  });
  expect((await producer.produce(batchOf(rows, 4 << 20), [topicOf(name)])).failed).toBe(0);
}

interface Case {
  readonly sink: readonly string[];
  readonly flags?: readonly string[];
}

const CASES: Readonly<Record<string, Case>> = {
  rocksdb: { sink: [] },
  memory: { sink: [], flags: ['-state=mem', '-snapshot-after=4KiB'] },
  sessions: { sink: [], flags: ['-window=session', '-gap=20ms'] },
  sliding: { sink: [], flags: ['-window=sliding', '-slide=1s', '-state=mem'] },
  postgres: { sink: [...postgres, '-migrate'] },
  parquet: { sink: [`-sink=parquet:${folder('files')}`, '-migrate'] },
  avro: {
    sink: [
      `-sink=kafka:${topicOf('avro')}-results`,
      '-sink-format=avro',
      `-registry=${registry}`,
      '-migrate',
    ],
  },
  protobuf: {
    sink: [
      `-sink=kafka:${topicOf('protobuf')}-results`,
      '-sink-format=protobuf',
      `-registry=${registry}`,
      '-migrate',
    ],
  },
  json: {
    sink: [
      `-sink=kafka:${topicOf('json')}-results`,
      '-sink-format=json',
      `-registry=${registry}`,
      '-migrate',
    ],
  },
};
/** Flags of a case: without the window's size where sessions have none. */
function flagsOf(name: string, aggregate: string, ...more: readonly string[]): readonly string[] {
  const { sink, flags = [] } = CASES[name] as Case;
  const all = args(name, `-aggregate=${aggregate}`, ...sink, ...flags, ...more);
  return flags.includes('-window=session') ? all.filter((flag) => !flag.startsWith('-size')) : all;
}

/** Aggregates of the newest checkpoint, which say since when they exist. */
function savedAggregates(name: string): string {
  const manifests = readdirSync(folder(name)).filter((file) => /^checkpoint-\d+\.manifest$/.test(file));
  const text = readFileSync(join(folder(name), manifests.sort().at(-1) as string), 'utf8');
  return JSON.parse(text.replace(/\ncrc32 .*\n$/, '')).job.input.aggregate as string;
}

async function exported(name: string): Promise<readonly string[]> {
  const { sink } = CASES[name] as Case;
  const flags = [`-brokers=${stack.brokers}`, `-state-dir=${folder(name)}`];
  const read = sink.filter((flag) => flag !== '-migrate');
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags, ...read]);
  expect(code, stderr).toBe(0);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  // Protobuf has an empty list instead of none.
  return [header as string, ...rows.map((row) => row.replace(/,\[\],,/, ',,,')).sort()];
}

/** Results of a run of its own over all events, with the aggregates since the time of the change.
 */
async function reference(name: string, topic = name): Promise<readonly string[]> {
  const flags = CASES[name]?.flags ?? [];
  const text = savedAggregates(name);
  const again = `again-${name}`;
  const all = argsOn(topic, again, `-aggregate=${text}`, ...flags, '-bounded');
  const run = await runEngine(
    own,
    flags.includes('-window=session') ? all.filter((flag) => !flag.startsWith('-size')) : all,
  );
  expect(run.code, run.stderr).toBe(0);
  const { stdout } = await runEngine(own, ['export', `-state-dir=${folder(again)}`]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  return [header as string, ...rows.sort()];
}

/** Runs a job with the first aggregates over the first events; its windows stay open. */
async function begin(name: string, flags: readonly string[]): Promise<void> {
  await admin.createTopics([{ topic: topicOf(name), partitions: 3 }]);
  await send(name, 0);
  const run = await runEngine(own, [...flags, '-exit-at-end']);
  expect(run.code, run.stderr).toBe(0);
  await send(name, 1);
}

/** Runs the changed job to the end through a SIGKILL at each of the steps. */
async function changed(name: string, steps: readonly string[]): Promise<void> {
  for (const step of steps) {
    const killed = await runEngine(own, flagsOf(name, AFTER, '-exit-at-end', `-chaos=${step}`));
    expect(killed.signal, killed.stderr).toBe('SIGKILL');
  }
  const resumed = await runEngine(own, flagsOf(name, AFTER, '-bounded'));
  expect(resumed.code, resumed.stderr).toBe(0);
}

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-changes', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'changes', connectTimeoutMs: 60_000 },
  });
});
afterAll(async () => {
  await pool?.query(`DROP TABLE IF EXISTS ${table}, ${table}_late CASCADE`);
  await pool?.close();
  await producer?.close();
  await admin?.close();
});

/** Checks the sink of a case against the reference and `engine verify`. */
async function expectResults(name: string): Promise<void> {
  const rows = await exported(name);
  expect(rows).toEqual(await reference(name));
  expect(rows[0]).toMatch(/,n,sum_amount,top,top_error,count_amount,p99_latency,p99_latency_error,/);
  const isNull = (row: string): boolean => /,,,,,,\d+,false$/.test(row);
  // Windows before the change have no values, those after it have.
  expect(rows.filter(isNull).length).toBeGreaterThan(3);
  expect(rows.slice(1).filter((row) => !isNull(row)).length).toBeGreaterThan(3);
  const verify = await runEngine(own, [
    'verify',
    ...flagsOf(name, AFTER, '-bounded').filter((flag) => flag !== '-migrate'),
  ]);
  expect(verify, verify.stderr + verify.stdout).toMatchObject({ code: 0 });
  expect(verify.stdout).toContain('equal: ');
}

const STEPS = {
  disk: ['after-manifest-rename', 'kill-after=900'],
  memory: [
    'after-base-write',
    'before-manifest-rename',
    'after-manifest-rename',

    'kill-after=900',
  ],
};

describe('aggregates that are added at a restart', () => {
  it.each(['rocksdb', 'sessions', 'parquet', 'avro', 'protobuf', 'json'])(
    'windows of %s that start after the change have them, and all others are as before',
    async (name) => {
      await begin(name, flagsOf(name, BEFORE));
      await changed(name, ['before-manifest-rename', ...STEPS.disk]);
      await expectResults(name);
    },
  );

  it.each(['memory', 'sliding'])('a state in memory is changed as one on disk is: %s', async (name) => {
    await begin(name, flagsOf(name, BEFORE));
    await changed(name, STEPS.memory);
    await expectResults(name);
  });

  it('a table gets the columns with -migrate, and without it one error names them', async () => {
    await begin('postgres', flagsOf('postgres', BEFORE));
    const flags = flagsOf('postgres', AFTER, '-exit-at-end').filter((flag) => flag !== '-migrate');
    const refused = await runEngine(own, flags);
    expect(refused.code).toBe(2);
    expect(refused.stderr.trim().split('\n').at(-1)).toMatch(
      new RegExp(
        `error: table ${table} has no columns ${ADDED.join(', ')} of the job's results; run the engine with -migrate once \\[sink_missing\\]$`,
      ),
    );
    // The refused run has changed nothing.
    const before = await runEngine(
      own,
      flagsOf('postgres', BEFORE, '-exit-at-end', '-chaos=kill-after=1').filter(
        (flag) => flag !== '-migrate',
      ),
    );
    expect(before.signal, before.stderr).toBe('SIGKILL');
    expect(savedAggregates('postgres')).toBe(BEFORE);
    await changed('postgres', STEPS.disk);
    await expectResults('postgres');
    const { rows } = await pool.query(
      `SELECT count(*) AS rows, count(count_amount) AS added, count(n) AS n FROM ${table}_latest`,
    );
    expect(rows[0]).toMatchObject({ rows: 3n, n: 3n, added: 3n });
  });

  it('Parquet files of both are one table for DuckDB', async () => {
    const connection = await (await DuckDBInstance.create(':memory:')).connect();
    const result = await connection.runAndReadAll(
      `SELECT count(*) AS rows, count(p99_latency) AS added FROM read_parquet('${folder('files')}/*.parquet', union_by_name = true)`,
    );
    const [row] = result.getRowObjects();
    const [, ...rows] = await exported('parquet');
    expect(row?.['rows']).toBe(BigInt(rows.length));
    expect(Number(row?.['added'])).toBeLessThan(rows.length);
    expect(Number(row?.['added'])).toBeGreaterThan(0);
  });

  it('the schemas of records are compatible versions of their subjects', async () => {
    for (const format of ['avro', 'protobuf', 'json']) {
      const answer = await fetch(`${registry}/subjects/${topicOf(format)}-results-value/versions`);
      expect(await answer.json(), format).toEqual([1, 2]);
      const key = await fetch(`${registry}/subjects/${topicOf(format)}-results-key/versions`);
      expect(await key.json(), format).toEqual([1]);
    }
  });

  it('GET /windows has null in windows before the change, as JSON and as CSV', async () => {
    await begin('http', args('http', `-aggregate=${BEFORE}`));
    const engine = startEngine(own, args('http', `-aggregate=${AFTER}`, '-retain=1d'));
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === 2 * ROUND);
    const url = `http://${address}/windows?limit=1000`;
    const rows = await until('fired windows', async () => {
      const found = (await (await fetch(url)).json()) as ReadonlyArray<Record<string, unknown>>;
      return found.some(({ count_amount: count }) => count !== null) ? found : undefined;
    });
    const old = rows.filter(({ count_amount: count }) => count === null);
    expect(old.length).toBeGreaterThan(3);
    for (const row of old) expect(row).toMatchObject(Object.fromEntries(ADDED.map((name) => [name, null])));
    expect(old.every(({ n }) => Number(n) > 0)).toBe(true);
    const csv = await (await fetch(url, { headers: { accept: 'text/csv' } })).text();
    expect(csv.split('\r\n').filter((line) => /,,,,,,\d+,false$/.test(line))).toHaveLength(old.length);
    const open = `http://${address}/windows/DE?open=true`;
    expect(await (await fetch(open)).json()).toEqual(
      expect.arrayContaining([expect.objectContaining({ p99_latency: expect.any(Number) })]),
    );
    await engine.drain();
  });

  it('a job that begins with a savepoint may have more aggregates, and one with fewer is refused', async () => {
    const out = folder('savepoint');
    await begin('saved', args('saved', `-aggregate=${BEFORE}`));
    const saved = await runEngine(own, ['savepoint', `-state-dir=${folder('saved')}`, `-out=${out}`]);
    expect(saved.code, saved.stderr).toBe(0);
    const begun = argsOn('saved', 'begun', `-aggregate=${AFTER}`, `-savepoint=${out}`);
    const killed = await runEngine(own, [...begun, '-exit-at-end', '-chaos=kill-after=900']);
    expect(killed.signal, killed.stderr).toBe('SIGKILL');
    const resumed = await runEngine(own, [...begun, '-bounded']);
    expect(resumed.code, resumed.stderr).toBe(0);
    const { stdout } = await runEngine(own, ['export', `-state-dir=${folder('begun')}`]);
    const rows = stdout.trimEnd().split('\n').slice(1);
    const all = await reference('begun', 'saved');
    expect(rows.length).toBeGreaterThan(3);
    for (const row of rows) expect(all).toContain(row);
    const fewer = await runEngine(own, argsOn('saved', 'begun', `-aggregate=${BEFORE}`, '-bounded'));
    expect(fewer.code).toBe(2);
    expect(fewer.stderr).toMatch(
      /with count as n,sum\(amount\),topk\(user,3\) as top,.*, not .* with count as n,sum\(amount\); start with the same windows and at least these aggregates.*\[job_changed\]/,
    );
  });
});
