/** The same job here and on Apache Flink: a real cluster and its SQL gateway, one broker, one
 *  database. Without late events the results are equal for every kind of window; with late events
 *  they are equal where each subtask reads one partition, and bounded where it reads several. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { FLINK_JARS, jarFile } from '../../src/engine/flink/jars.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { SchemaRegistry } from '../../src/registry/index.ts';
import { packageRoot } from '../../src/shell/package.ts';
import { batchOf } from '../contract/broker-world.ts';
import { runEngine } from '../fixtures/engine.ts';
import { type Flink, startFlink } from '../fixtures/flink.ts';
import { generateEvents, runGen } from '../fixtures/gen.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { createTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';
import { replay, stepsOf, withOutputs } from './session-page.ts';

const PAGE = join(packageRoot(), 'docs', 'how-to', 'outgrow-one-machine.md');

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const EVENTS = 20_000;
const PARTITIONS = 2;
const topicOf = (name: string): string => `flink-${name}-${own.suffix}`;
const tableOf = (engine: string, name: string): string => `${engine}_${name}_${own.suffix}`;
let flink: Flink;
let pool: SqlPool;

beforeAll(async () => {
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'engine-flink', connectTimeoutMs: 60_000 },
  });
  const size = [`-count=${EVENTS}`, '-per-ms=1', '-accounts=200', `-partitions=${PARTITIONS}`];
  const avro = ['-format=avro', `-registry=${registry}`];
  const ordered = async (name: string, flags: readonly string[]): Promise<void> => {
    const to = [`-out=kafka:${topicOf(name)}`, `-brokers=${stack.brokers}`];
    const made = await runGen(own, ['-kind=events', ...to, ...size, ...flags]);
    expect(made, made.stderr).toMatchObject({ code: 0 });
  };
  await ordered('avro', avro);
  await ordered('json', ['-format=json', '-key-type=string']);
  const late = ['-tail=0.05', '-tail-max=8s', '-stragglers=0.001', '-straggler-max=1h'];
  await generateEvents(own, { brokers: stack.brokers, topic: topicOf('late') }, [...size, ...avro, ...late]);
  flink = await startFlink(own);
});
afterAll(async () => {
  await flink?.stop();
  await pool?.close();
});

const AVRO = ['-key=account_id', '-time=event_ts', '-value=value', `-registry=${registry}`, '-format=avro'];
const JSON_FIELDS = [
  ...['-format=json', '-key=account_id:string,seq:i64', '-time=event_ts:ms'],
  '-aggregate=count,count(value) as known,sum(value) as total,avg(value) as mean,min(value) as least,max(value:double) as most',
  '-where=value > 10 and not (value in (20, null) or account_id is null)',
];
const SKEWED = ['-allowed-skew=1s', '-allowed-lateness=1s'];

/** Local time of an offset of so many minutes, without its zone. */
const local = (at: number, minutes: number): string =>
  new Date(at + minutes * 60_000).toISOString().slice(0, -1);
/** The same time in the forms that the engine reads. */
const ISO_FORMS: ReadonlyArray<(at: number) => string> = [
  (at) => `${local(at, 0)}Z`,
  (at) => `${local(at, 0)}z`.toLowerCase(),
  (at) => `${local(at, 120).replace('T', ' ')}+02:00`,
  (at) => `${local(at, -330)}-0530`,
  (at) => `${local(at, 23 * 60 + 59)}+23:59`,
  (at) => `${local(at, 0).replace('.', ',')}999Z`,
  (at) => `${local(at, 0).replace(/(:00)?[.]000$/, '')}Z`,
  (at) => `${local(at, 60).replace(/00$/, '')}+01:00`,
];
/** JSON values that are no time. */
const NO_TIMES = [
  ...['"2026-02-30T12:00:00Z"', '"2026-01-31T12:00:00"', '"2026-01-31T24:00:00Z"', '"2026-01-31T12:00:60Z"'],
  ...['"2026-01-31T12:00:00Z\\n"', '"2026-01-31T12:00:00+24:00"', '"now"', '20260131', 'null'],
];
const ISO_EVENTS = 1600;

/** Fills a topic with events in order, whose times are texts, and with records without a time. */
async function fillIso(topic: string): Promise<void> {
  await createTopic(stack.brokers, topic, PARTITIONS);
  const from = Date.UTC(2026, 0, 31, 23, 55);
  const values = Array.from({ length: ISO_EVENTS }, (_, i) => {
    // Each form has whole minutes too.
    const form = ISO_FORMS[(i + Math.floor(i / 8)) % ISO_FORMS.length] as (at: number) => string;
    return `{"account_id":"a${i % 7}","at":${JSON.stringify(form(from + i * 500))},"value":${i}}`;
  });
  const invalid = NO_TIMES.map((at) => `{"account_id":"a0","at":${at},"value":1}`);
  await write(
    topic,
    [...invalid, ...values, ...invalid].map((value) => ({ value: Buffer.from(value) })),
  );
}

/** Writes records to the partitions in turn. */
async function write(topic: string, records: readonly RecordInput[]): Promise<void> {
  const rows = records.map((record, i) => ({ partition: i % PARTITIONS, ...record }));
  const producer = await librdkafkaDriver.producer({ brokers: stack.brokers, clientId: 'engine-flink' });
  expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
  await producer.close();
}

const SALES = 1200;
/** A uuid of one of 7 accounts, in upper case at times. */
function uuidOf(i: number): string {
  const text = `0000000${i % 7}-abcd-4000-8000-00000000000f`;
  return i % 3 === 0 ? text.toUpperCase() : text;
}

/** Fills a topic with Avro records of a schema that names the type of another subject twice. Their
 *  keys are numbers of 8 bytes. */
async function fillSales(topic: string): Promise<void> {
  const schemas = new SchemaRegistry({ url: registry });
  await createTopic(stack.brokers, topic, PARTITIONS);
  const partyOf = `party-${own.suffix}`;
  const record = (name: string, fields: readonly object[]): string =>
    JSON.stringify({ type: 'record', name, namespace: 'shop', fields });
  const party = record('Party', [
    { name: 'id', type: 'string' },
    { name: 'country', type: 'string' },
    { name: 'rank', type: 'int' },
  ]);
  await schemas.client.register(partyOf, 'AVRO', party);
  const sale = record('Sale', [
    { name: 'seller', type: 'Party' },
    { name: 'buyer', type: ['null', 'Party'] },
    { name: 'at', type: 'long' },
    { name: 'amount', type: ['null', 'long'] },
    { name: 'price', type: 'double' },
  ]);
  const references = [{ name: 'shop.Party', subject: partyOf, version: 1 }];
  const serializer = schemas.serializer({ topic, schema: sale, references, autoRegister: true });
  await serializer.prefetch();
  const records = Array.from({ length: SALES }, (_, i): RecordInput => {
    const country = ['NL', 'FR', 'XX'][i % 3] as string;
    const key = Buffer.alloc(8);
    key.writeBigInt64BE(BigInt((i % 5) - 2));
    const value = serializer.serialize({
      seller: { id: uuidOf(i), country, rank: i % 4 },
      buyer: i % 5 === 0 ? null : { id: 'b', country, rank: i % 9 },
      at: BigInt(i + 1) * 100_001n,
      amount: i % 7 === 0 ? null : BigInt(i),
      price: i / 3,
    });
    return { key, value };
  });
  await write(topic, records);
}

/** Fills a topic with JSON records whose keys are uuids, and whose times have several forms. */
async function fillForms(topic: string): Promise<void> {
  // The broker must keep records whose timestamps are old.
  await createTopic(stack.brokers, topic, PARTITIONS, { 'retention.ms': '-1' });
  const from = Date.UTC(2026, 0, 31, 23, 59);
  const records = Array.from({ length: SALES }, (_, i): RecordInput => {
    const at = from + i * 100;
    const no = i % 2 === 0 ? 2n ** 64n - 1n - BigInt(i % 7) : BigInt(i % 7);
    const inner = `{"no":${no},"s":${Math.floor(at / 1000)},"us":${at}999,"ns":${at}999999}`;
    const value = `{"n":${i},"inner":${inner}}`;
    return { timestamp: BigInt(at), key: Buffer.from(uuidOf(i)), value: Buffer.from(value) };
  });
  await write(topic, records);
}

/** Flags of a job of both engines. */
const job = (topic: string, name: string, flags: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topicOf(topic)}`, `-state-dir=${join(own.dir, name)}`],
      ...[`-sink=postgres:${stack.postgres}`, `-sink-table=${tableOf('own', name)}`],
      // A slow machine must not make a partition idle.
      '-idle-timeout=0',
    ],
    flags,
  );
const onFlink = (name: string): readonly string[] => [
  ...[`-flink=${flink.gateway}`, `-flink-jars=${flink.jars}`, `-flink-table=${tableOf('flink', name)}`],
];

async function must(flags: readonly string[]): Promise<string> {
  const run = await runEngine(own, flags);
  expect(run, run.stderr).toMatchObject({ code: 0 });
  return run.stdout;
}

/** Submits a job, and returns its id. */
const submitted = async (flags: readonly string[]): Promise<string> =>
  JSON.parse(await must(['submit', ...flags, '-json'])).job;

const follow = async (action: string, id: string, flags: readonly string[] = []) =>
  JSON.parse(
    await must(['submit', action, `-flink-rest=${flink.rest}`, `-flink-job=${id}`, '-json', ...flags]),
  );

async function stateOf(id: string): Promise<string> {
  const answer = await fetch(`${flink.rest}/jobs/${id}`);
  return ((await answer.json()) as { readonly state: string }).state;
}

/** Compares the tables of a bounded job. */
async function compared(topic: string, name: string, flags: readonly string[]) {
  const whole = job(topic, name, [...flags, '-bounded']);
  const table = `-flink-table=${tableOf('flink', name)}`;
  const verified = await runEngine(own, ['verify', '-against=flink', ...whole, table, '-json']);
  return { verified, report: JSON.parse(verified.stdout) };
}

/** Runs a bounded job on both engines, and compares the tables. */
async function both(topic: string, name: string, flags: readonly string[], more: readonly string[] = []) {
  const whole = job(topic, name, [...flags, '-bounded']);
  const ran = JSON.parse(await must([...whole, '-migrate', '-json']));
  const id = await submitted([...whole, ...onFlink(name), ...more, '-migrate']);
  const state = await until(
    `the end of job ${id}`,
    async () => {
      const now = await stateOf(id);
      return ['FINISHED', 'FAILED', 'CANCELED'].includes(now) ? now : undefined;
    },
    600_000,
  );
  expect(state, await follow('logs', id)).toBe('FINISHED');
  return { ran, ...(await compared(topic, name, flags)) };
}

describe('topics without late events', () => {
  it.each<readonly [string, string, readonly string[]]>([
    ['avro', 'tumbling', [...AVRO, '-size=2s']],
    ['avro', 'sliding', [...AVRO, '-window=sliding', '-size=2s', '-slide=500ms']],
    ['avro', 'session', [...AVRO, '-window=session', '-gap=40ms']],
    ['json', 'tumbling', [...JSON_FIELDS, '-size=2s']],
    ['json', 'sliding', [...JSON_FIELDS, '-window=sliding', '-size=2s', '-slide=1s']],
    [
      'json',
      'session',
      withDefaults(JSON_FIELDS, ['-key=account_id:string', '-window=session', '-gap=40ms']),
    ],
  ])('results of %s records in %s windows are equal', async (format, kind, flags) => {
    const { ran, verified, report } = await both(format, `${format}_${kind}`, flags);
    expect(report, verified.stdout).toMatchObject({ equal: true, differing: 0, digest: report.flink_digest });
    expect(verified.code).toBe(0);
    expect(report.windows).toBeGreaterThan(500);
    expect(ran).toMatchObject({ consumed: EVENTS, droppedLate: 0, invalid: 0 });
  });

  it('times of text are read in every form of the engine, and texts that are no time are left out', async () => {
    await fillIso(topicOf('iso'));
    const fields = ['-format=json', '-key=account_id:string', '-time=at:iso', '-value=value', '-size=2s'];
    const { ran, verified, report } = await both('iso', 'iso', fields);
    expect(report, verified.stdout).toMatchObject({ equal: true, differing: 0, digest: report.flink_digest });
    expect(ran).toMatchObject({ accepted: ISO_EVENTS, droppedLate: 0, invalid: 2 * NO_TIMES.length });
    expect((await counted(tableOf('flink', 'iso'))).events).toBe(ISO_EVENTS);
  });

  it.each([
    ['fields of nested records', 'nested', ['-key=seller.id:uuid,seller.country:string']],
    ['a record key of 8 bytes', 'long', ['-key=@key:long', '-window=sliding', '-slide=1s']],
  ])('results by %s are equal where a schema names the types of another subject', async (_, name, flags) => {
    const topic = `sales_${name}`;
    await fillSales(topicOf(topic));
    const { ran, verified, report } = await both(topic, topic, [
      ...[`-registry=${registry}`, '-format=avro', '-time=at:us', '-size=2s'],
      // Every field of the schema is used, so that Flink gets the schema itself.
      '-where=(buyer.country != "XX" or buyer.rank is null) and (amount > 10 or seller.rank in (1, 2))',
      '-aggregate=count,count(amount) as known,sum(amount) as total,min(buyer.rank) as least,max(price:double) as most',
      ...flags,
    ]);
    expect(report, verified.stdout).toMatchObject({ equal: true, differing: 0, digest: report.flink_digest });
    expect(ran).toMatchObject({ consumed: SALES, droppedLate: 0, invalid: 0 });
    expect(report.windows).toBeGreaterThan(100);
  });

  it.each([
    ['@key:uuid', '@timestamp'],
    ['@key:string', 'inner.s:s'],
    ['inner.no:u64', 'inner.us:us'],
    ['inner.no:u64', 'inner.ns:ns'],
  ])('results of the key %s at the time %s are equal', async (key, time) => {
    const name = `forms_${time.replace(/\W/g, '_')}`;
    await fillForms(topicOf(name));
    const flags = ['-format=json', `-key=${key}`, `-time=${time}`, '-value=n', '-size=2s'];
    const { ran, verified, report } = await both(name, name, flags);
    expect(report, verified.stdout).toMatchObject({ equal: true, differing: 0, digest: report.flink_digest });
    expect(ran).toMatchObject({ accepted: SALES, droppedLate: 0, invalid: 0 });
    expect((await counted(tableOf('flink', name))).events).toBe(SALES);
  });

  it('windows that end by 1970 are missing in Flink, and all others are equal', async () => {
    await createTopic(stack.brokers, topicOf('early'), PARTITIONS);
    const events = Array.from({ length: SALES }, (_, i) => ({
      value: Buffer.from(`{"id":"a${i % 7}","us":${(i - SALES / 2) * 100_001}}`),
    }));
    await write(topicOf('early'), events);
    const flags = ['-format=json', '-key=id:string', '-time=us:us', '-size=2s'];
    const { report } = await both('early', 'early', flags);
    const { rows } = await pool.query<{ readonly early: bigint }>(
      `SELECT count(*) AS early FROM ${tableOf('own', 'early')} WHERE window_end <= 'epoch'`,
    );
    const early = Number(rows[0]?.early);
    expect(early).toBeGreaterThan(100);
    expect(report).toMatchObject({ differing: early, flink_windows: report.windows - early });
  });

  it('a changed, a missing and a further result make the comparison unequal', async () => {
    const flags = [...AVRO, '-size=2s'];
    const { report: before } = await both('avro', 'changed', flags);
    expect(before.equal).toBe(true);
    const table = tableOf('flink', 'changed');
    const first = (row: number): string =>
      `(SELECT ctid FROM ${table} ORDER BY account_id, window_start OFFSET ${row} LIMIT 1)`;
    await pool.query(`UPDATE ${table} SET sum = sum + 1 WHERE ctid = ${first(0)}`);
    await pool.query(`DELETE FROM ${table} WHERE ctid = ${first(1)}`);
    await pool.query(`UPDATE ${table} SET account_id = -7 WHERE ctid = ${first(1)}`);
    const { verified, report } = await compared('avro', 'changed', flags);
    expect(verified.code).toBe(1);
    expect(report).toMatchObject({ equal: false, differing: 4, flink_windows: before.windows - 1 });
    expect(report).toMatchObject({ windows: before.windows, digest: before.digest });
    expect(report.flink_digest).not.toBe(report.digest);
    const kinds = report.differences.map((line: string) => /in Flink|of \S+ (engine )?alone/.exec(line)?.[0]);
    expect(kinds.sort()).toEqual([
      'in Flink',
      'of Flink alone',
      'of this engine alone',
      'of this engine alone',
    ]);
  });
});

/** Sum of the counts, and the windows, of a table. */
async function counted(table: string): Promise<{ readonly events: number; readonly windows: number }> {
  const { rows } = await pool.query<{ readonly events: bigint; readonly windows: bigint }>(
    `SELECT sum(count)::int8 AS events, count(*) AS windows FROM ${table}`,
  );
  return { events: Number(rows[0]?.events), windows: Number(rows[0]?.windows) };
}

describe('a topic with late events', () => {
  const flags = [...AVRO, ...SKEWED, '-size=2s'];

  it('results and dropped events are equal with a subtask for each partition', async () => {
    const { ran, verified, report } = await both('late', 'late_exact', flags, [
      `-flink-parallelism=${PARTITIONS}`,
    ]);
    expect(report, verified.stdout).toMatchObject({ equal: true, differing: 0 });
    expect(ran.droppedLate).toBeGreaterThan(100);
    expect((await counted(tableOf('flink', 'late_exact'))).events).toBe(ran.accepted);
  });

  it('Flink keeps some late events with one subtask for both partitions, and the difference is listed', async () => {
    const { ran, verified, report } = await both('late', 'late_one', flags, ['-flink-parallelism=1']);
    const [here, there] = [
      await counted(tableOf('own', 'late_one')),
      await counted(tableOf('flink', 'late_one')),
    ];
    expect(there.events - here.events).toBeGreaterThanOrEqual(0);
    expect(there.events - here.events).toBeLessThanOrEqual(ran.droppedLate);
    // No window of this engine is missing there, and none has fewer events there.
    const { rows } = await pool.query<{ readonly bad: bigint }>(
      `SELECT count(*) AS bad FROM ${tableOf('own', 'late_one')} a LEFT JOIN ${tableOf('flink', 'late_one')} b
       USING (account_id, window_start, window_end) WHERE b.count IS NULL OR b.count < a.count`,
    );
    expect(Number(rows[0]?.bad)).toBe(0);
    expect(report.flink_windows).toBe(there.windows);
    expect(verified.code).toBe(report.equal ? 0 : 1);
    if (!report.equal) {
      expect(report.differing).toBeLessThanOrEqual(there.events - here.events);
      expect(report.differences[0]).toMatch(/^key -?\d+ \[\d+, \d+\): /);
    }
  });
});

describe('a job that runs', () => {
  it('a running job is stopped with a savepoint, continued from it, and cancelled', async () => {
    const flags = job('avro', 'running', [...AVRO, '-size=2s', '-checkpoint-interval=1s']);
    const first = await submitted([...flags, ...onFlink('running'), '-migrate']);
    const reads = async (id: string): Promise<number> => {
      const { state, tasks } = await follow('status', id);
      expect(state).not.toBe('FAILED');
      return state === 'RUNNING' ? (tasks[0]?.read ?? 0) : 0;
    };
    await until('a job that has read the topic', async () => (await reads(first)) >= EVENTS, 600_000);
    const { savepoint } = await follow('savepoint-and-stop', first, [
      `-flink-savepoint-dir=file://${flink.savepoints}`,
    ]);
    expect(savepoint).toContain(flink.savepoints);
    expect(await stateOf(first)).toBe('FINISHED');
    const second = await submitted([...flags, ...onFlink('running'), `-flink-from=${savepoint}`]);
    await until(
      'a job that runs again',
      async () => (await follow('status', second)).state === 'RUNNING',
      600_000,
    );
    const { logs, failures } = await follow('logs', second);
    expect(failures).toEqual([]);
    expect(logs[0].end).toContain(second);
    // Its name finds the job, because one of that name runs.
    const named = await must(['submit', 'cancel', `-flink-rest=${flink.rest}`, ...flags, '-json']);
    expect(JSON.parse(named)).toEqual({ job: second, state: 'CANCELED' });
    expect(await stateOf(second)).toBe('CANCELED');
  });

  it('a statement that Flink refuses is an error with its cause, without the password of the sink', async () => {
    const flags = job('avro', 'refused', [...AVRO, '-size=2s']);
    const table = ['-migrate', '-flink-set=parallelism.default=many'];
    const run = await runEngine(own, ['submit', ...flags, ...onFlink('refused'), ...table]);
    expect(run.code).toBe(1);
    expect(run.stderr).toMatch(/Flink refuses .*many.*\[flink_refused\]/);
    expect(run.stderr).not.toContain(new URL(stack.postgres).password);
  });
});

interface GatewayAnswer {
  readonly sessionHandle?: string;
  readonly operationHandle?: string;
  readonly resultType?: string;
  readonly results?: { readonly data?: readonly { readonly fields: readonly unknown[] }[] };
  readonly nextResultUri?: string;
}

/** Runs statements in a session of the gateway, and returns the fields of the rows of the last. */
async function rowsOf(statements: readonly string[]): Promise<readonly (readonly unknown[])[]> {
  const ask = async (method: string, path: string, body?: object): Promise<GatewayAnswer> => {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(`${flink.gateway}${path}`, {
      ...{ method, headers: { 'content-type': 'application/json' } },
      ...sent,
    });
    const answer = (await response.json()) as GatewayAnswer;
    if (!response.ok) throw new Error(JSON.stringify(answer).slice(0, 4000));
    return answer;
  };
  const session = `/v3/sessions/${(await ask('POST', '/v3/sessions', {})).sessionHandle}`;
  let rows: (readonly unknown[])[] = [];
  for (const statement of statements) {
    const { operationHandle } = await ask('POST', `${session}/statements`, { statement });
    rows = [];
    let page = `${session}/operations/${operationHandle}/result/0?rowFormat=JSON`;
    await until(
      `the rows of ${statement.slice(0, 60)}`,
      async () => {
        const { resultType, results, nextResultUri } = await ask('GET', page).catch(
          (thrown): GatewayAnswer => ({
            resultType: 'EOS',
            results: { data: [{ fields: [String(thrown)] }] },
          }),
        );
        rows.push(...(results?.data ?? []).map(({ fields }) => fields));
        page = nextResultUri ?? page;
        return resultType === 'EOS';
      },
      600_000,
    );
  }
  await ask('DELETE', session);
  return rows;
}

describe('tables of gen ddl', () => {
  const ddl = async (flags: readonly string[]): Promise<string> => {
    const made = await runGen(own, ['ddl', '-flink', `-brokers=${stack.brokers}`, '-table=t', ...flags]);
    expect(made, made.stderr).toMatchObject({ code: 0 });
    return made.stdout.replace(/;\s*$/, '');
  };
  const jars = (): readonly string[] =>
    [FLINK_JARS.kafka, FLINK_JARS.avro].map((jar) => `ADD JAR '${join(flink.jars, jarFile(jar))}'`);
  const BATCH = "SET 'execution.runtime-mode' = 'batch'";
  const ALL = "t /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */";

  it('Flink reads the records of an Avro subject and of a JSON topic', async () => {
    const avro = await ddl([`-registry=${registry}`, `-subject=${topicOf('avro')}-value`]);
    const json = await ddl([
      `-topic=${topicOf('json')}`,
      '-column=account_id=STRING',
      '-column=value=BIGINT',
    ]);
    const sums = 'SELECT COUNT(*), COUNT(DISTINCT account_id), SUM(`value`) FROM';
    const [one] = await rowsOf([...jars(), BATCH, avro, `${sums} ${ALL}`]);
    const [two] = await rowsOf([...jars(), BATCH, json, `${sums} ${ALL}`]);
    expect(one?.[0]).toBe(EVENTS);
    expect(two).toEqual(one);
  });

  it('Flink reads an enum, a fixed and a timestamp in microseconds by their plain forms', async () => {
    const topic = topicOf('plain');
    const fields = [
      { name: 'kind', type: { type: 'enum', name: 'Kind', symbols: ['NEW', 'PAID'] } },
      { name: 'hash', type: { type: 'fixed', name: 'Hash', size: 4 } },
      { name: 'at', type: { type: 'long', logicalType: 'timestamp-micros' } },
      { name: 'list', type: { type: 'array', items: ['null', 'string'] } },
    ];
    const text = JSON.stringify({ type: 'record', name: 'Plain', fields });
    await new SchemaRegistry({ url: registry }).client.register(`${topic}-value`, 'AVRO', text);
    const made = await runGen(own, [
      ...[`-registry=${registry}`, `-subject=${topic}-value`, '-count=300', '-seed=7'],
      ...[`-out=kafka:${topic}`, `-brokers=${stack.brokers}`, '-partitions=1'],
    ]);
    expect(made, made.stderr).toMatchObject({ code: 0 });
    const table = await ddl([`-registry=${registry}`, `-subject=${topic}-value`]);
    const [row] = await rowsOf([
      ...[...jars(), BATCH, table],
      `SELECT COUNT(*), COUNT(\`at\`), COUNT(\`hash\`) FROM ${ALL} WHERE kind IN ('NEW', 'PAID')`,
    ]);
    expect(row).toEqual([300, 300, 300]);
  });

  it('Flink writes records of a registered schema, which this engine reads', async () => {
    const topic = topicOf('written');
    const fields = [
      { name: 'id', type: 'long' },
      { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
      { name: 'note', type: ['null', 'string'], default: null },
      { name: 'price', type: { type: 'bytes', logicalType: 'decimal', precision: 10, scale: 2 } },
    ];
    const text = JSON.stringify({ type: 'record', name: 'Written', fields });
    const { client } = new SchemaRegistry({ url: registry });
    const id = await client.register(`${topic}-value`, 'AVRO', text);
    const table = await ddl([`-registry=${registry}`, `-subject=${topic}-value`]);
    expect(table).not.toContain('For reading only');
    // The connector of Flink creates no topic.
    const admin = await nodeRdkafkaDriver.admin({ brokers: stack.brokers, clientId: 'engine-flink' });
    await admin.createTopics([{ topic, partitions: 1 }]);
    await admin.close();
    const values =
      "(1, TIMESTAMP '2026-01-01 00:00:01.500', 'a', 1.25), (1, TIMESTAMP '2026-01-01 00:00:02', CAST(NULL AS STRING), 3)";
    const done = await rowsOf([
      ...[...jars(), "SET 'table.dml-sync' = 'true'", table],
      `INSERT INTO t VALUES ${values}`,
    ]);
    expect(String(done[0]?.[0])).not.toContain('Error');
    expect((await client.version(`${topic}-value`, 'latest')).id).toBe(id);
    const folder = `-state-dir=${join(own.dir, 'written')}`;
    const flags = [`-brokers=${stack.brokers}`, `-topic=${topic}`, `-registry=${registry}`, folder];
    const ran = JSON.parse(await must([...flags, '-key=id', '-time=at', '-size=1m', '-bounded', '-json']));
    expect(ran).toMatchObject({ consumed: 2, accepted: 2, invalid: 0 });
  });
});

describe('docs/how-to/outgrow-one-machine.md', () => {
  it('every command of the page gives the output that the page shows', async () => {
    const page = readFileSync(PAGE, 'utf8');
    const steps = stepsOf(page);
    expect(steps.length).toBeGreaterThan(7);
    const dir = join(own.dir, 'page');
    mkdirSync(dir);
    const outputs = await replay(steps, {
      dir,
      path: join(packageRoot(), 'bin'),
      substitutions: [
        { page: 'postgres://me@127.0.0.1/shop', real: stack.postgres },
        { page: '127.0.0.1:9092', real: stack.brokers },
        { page: 'http://127.0.0.1:8083', real: flink.gateway },
        { page: 'http://127.0.0.1:8081', real: flink.rest },
        { page: '/opt/flink/jars', real: flink.jars },
        { page: 'order_totals', real: `order_totals_${own.suffix}` },
        { page: 'kafka:orders', real: `kafka:${topicOf('orders')}` },
        { page: 'topic: orders', real: `topic: ${topicOf('orders')}` },
        { page: '-topic=orders', real: `-topic=${topicOf('orders')}` },
        { page: '-group=orders', real: `-group=${topicOf('orders')}` },
        { page: 'millrace orders ', real: `millrace ${topicOf('orders')} ` },
        { page: "'topic' = 'orders'", real: `'topic' = '${topicOf('orders')}'` },
        { page: '`orders`', real: `\`${topicOf('orders')}\`` },
      ],
      placeholders: [
        [/ in [\d.]+ s to /, ' in SECONDS s to '],
        [/digest [0-9a-f]{32}/, 'digest DIGEST'],
        [/limited by: .*/, 'limited by: STAGE'],
        [/\b[0-9a-f]{32}\b(?= \(|$)/gm, 'ID'],
        [/-flink-job=[0-9a-f]{32}/, '-flink-job=ID'],
      ],
    });
    if (process.env['MILLRACE_RECORD'] === '1') writeFileSync(PAGE, withOutputs(page, outputs));
    else
      expect(steps.map(({ command }, at) => ({ command, output: outputs[at] }))).toEqual(
        steps.map(({ command, output }) => ({ command, output })),
      );
  });
});
