/** Decimals in every output of the engine on real servers, through SIGKILL: results equal exact
 *  sums of the accepted events, each output's own tools read them, and `engine verify` agrees. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { framePrefix } from '../../src/addon/reference/frame.ts';
import { Payloads } from '../../src/formats/payloads.ts';
import { parseSchema } from '../../src/formats/schema.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { writerCodec } from '../../src/serde/codec.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { twos } from '../unit/engine/input/decimals-kit.ts';
import { until } from '../wait.ts';
import { runThroughKill } from './engine-outputs-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 2000n, watermark: 'partition' } as const;
const T0 = 1_750_000_000_000;
const EVENTS = 6000;

interface Payment {
  readonly partition: number;
  readonly offset: number;
  readonly country: string;
  readonly at: number;
  /** Hundredths; null: no price. */
  readonly cents: bigint | null;
  /** The price has three decimal places. */
  readonly isBroken: boolean;
}
const payments: readonly Payment[] = Array.from({ length: EVENTS }, (_, i) => ({
  ...{ partition: i % 3, offset: Math.floor(i / 3), country: ['DE', 'FR', 'IT'][(i * 7) % 5] ?? 'ES' },
  // Equal times in several partitions, out of order, and every 400th late.
  at: T0 + Math.floor(i / 6) * 20 - (i % 400 === 399 ? 60_000 : i % 40 === 0 ? 1500 : 0),
  cents: i % 11 === 3 ? null : BigInt((i * 7919) % 200_001) - 100_000n + (i % 5 === 0 ? 10n ** 16n : 0n),
  isBroken: i % 500 === 7,
}));

const textOf = (whole: bigint, places: number): string => {
  const digits = String(whole < 0n ? -whole : whole).padStart(places + 1, '0');
  return `${whole < 0n ? '-' : ''}${digits.slice(0, -places)}.${digits.slice(-places)}`;
};
const priceOf = ({ cents, isBroken }: Payment): string | null =>
  isBroken ? '1.005' : cents === null ? null : textOf(cents, 2);

const SCHEMA = JSON.stringify({
  ...{ type: 'record', name: 'Payment' },
  fields: [
    { name: 'country', type: 'string' },
    { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
    {
      name: 'price',
      type: ['null', { type: 'bytes', logicalType: 'decimal', precision: 30, scale: 3 }],
      default: null,
    },
  ],
});

const topicOf = (format: string): string => `decimals-${format}-${own.suffix}`;
const table = `decimals_${own.suffix}`;
const AGGREGATE =
  'count as n,sum(price:decimal2) as total,avg(price:decimal2) as mean,min(price:decimal2) as least,max(price:decimal2) as most,first(price:decimal2) as first,last(price:decimal2) as last';
const HEAD = 'country,window_start,window_end,n,total,mean,least,most,first,last,last_update_ts,overflow';

const args = (name: string, format: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topicOf(format)}`, '-size=2s', '-allowed-skew=1s'],
      ...['-allowed-lateness=2s', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`, '-key=country'],
      ...(format === 'json' ? ['-format=json', '-time=at:ms'] : [`-registry=${registry}`]),
      ...(more.some((flag) => flag.startsWith('-value=')) ? [] : [`-aggregate=${AGGREGATE}`]),
      '-quarantine=off',
    ],
    more,
  );

/** Runs to the end of the topic through a SIGKILL. */
const computed = (name: string, format: string, ...more: readonly string[]): Promise<void> =>
  runThroughKill(own, args(name, format, ...more));

async function exported(name: string, head: string, ...more: readonly string[]): Promise<string[]> {
  const flags = [`-brokers=${stack.brokers}`, `-state-dir=${join(own.dir, name)}`];
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags, ...more]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  expect({ code, header }, stderr).toEqual({ code: 0, header: head });
  return rows.sort();
}

/** `engine verify` finds the same windows and the broken records. */
async function verified(name: string, format: string, ...more: readonly string[]): Promise<void> {
  const flags = args(name, format, ...more, '-bounded');
  const same = await runEngine(own, ['verify', ...flags, '-json']);
  expect(same, `${same.stdout} ${same.stderr}`).toMatchObject({ code: 0 });
  const { equal, invalid, compared } = JSON.parse(same.stdout);
  expect({ equal, invalid }).toEqual({ equal: true, invalid: payments.filter(isInvalid).length });
  expect(compared).toBe(expected.length);
}
const isInvalid = ({ isBroken }: Payment): boolean => isBroken;

/** Nearest whole number to a quotient, ties to the even one, by the doubled rest. */
function nearest(a: bigint, b: bigint): bigint {
  let below = a / b;
  if (a % b < 0n) below--;
  const twice = 2n * (a - below * b);
  return twice > b || (twice === b && (below & 1n) === 1n) ? below + 1n : below;
}

interface Window {
  readonly name: string;
  readonly list: readonly Payment[];
}
function windowsOf(): { readonly windows: readonly Window[]; readonly late: readonly Payment[] } {
  const oracle = new Oracle(RULES, 3);
  const windows = new Map<string, Payment[]>();
  const late: Payment[] = [];
  const countries = [...new Set(payments.map(({ country }) => country))];
  for (const payment of payments) {
    const { partition, country, at } = payment;
    if (isInvalid(payment)) continue;
    const verdict = oracle.event(partition, BigInt(countries.indexOf(country)), 0n, BigInt(at));
    if (verdict !== 'accepted') {
      late.push(payment);
      continue;
    }
    const start = Math.floor(at / 2000) * 2000;
    const name = `${country},${start},${start + 2000}`;
    windows.set(name, [...(windows.get(name) ?? []), payment]);
  }
  return { windows: [...windows].map(([name, list]) => ({ name, list })), late };
}

const { windows, late } = windowsOf();
const placed = (list: readonly Payment[]): readonly Payment[] =>
  [...list].sort((a, b) => a.at - b.at || a.partition - b.partition || a.offset - b.offset);

const expected = windows
  .map(({ name, list }) => {
    const cents = placed(list).flatMap((one) => (one.cents === null ? [] : [one.cents]));
    const sum = cents.reduce((all, one) => all + one, 0n);
    const ordered = [...cents].sort((a, b) => (a < b ? -1 : 1));
    const places = [ordered[0], ordered.at(-1), cents[0], cents.at(-1)];
    const mean = cents.length === 0 ? '' : textOf(nearest(sum * 1_000_000n, BigInt(cents.length)), 8);
    const shown = [cents.length === 0 ? undefined : sum, ...places].map((one) =>
      one === undefined ? '' : textOf(one, 2),
    );
    const last = Math.max(...list.map(({ at }) => at));
    return [name, list.length, shown[0], mean, ...shown.slice(1), last, false].join();
  })
  .sort();

let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;

async function registered(subject: string): Promise<number> {
  const answer = await fetch(`${registry}/subjects/${subject}/versions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ schemaType: 'AVRO', schema: SCHEMA }),
  });
  expect(answer.status).toBe(200);
  return ((await answer.json()) as { readonly id: number }).id;
}

/** Payments as JSON, with prices as numbers and as texts. */
const jsonOf = (payment: Payment, i: number): Buffer => {
  const price = priceOf(payment);
  const shown = price === null ? 'null' : i % 2 === 0 ? price : `"${price}"`;
  return Buffer.from(`{"country":"${payment.country}","at":${payment.at},"price":${shown}}`);
};

/** Payments as framed Avro, in thousandths. */
function avroOf(id: number): (payment: Payment) => Buffer {
  const codec = writerCodec(parseSchema('AVRO', SCHEMA));
  const prefix = framePrefix(id, null);
  const payloads = new Payloads(1, 256);
  return ({ country, at, cents, isBroken }) => {
    payloads.clear();
    const thousandths = isBroken ? 1005n : cents === null ? null : cents * 10n;
    const price = thousandths === null ? null : twos(thousandths);
    codec.encode({ country, at: BigInt(at), price }, payloads);
    return Buffer.concat([prefix, payloads.bytes.subarray(0, payloads.length[0])]);
  };
}

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-decimals', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'decimals', connectTimeoutMs: 60_000 },
  });
  const avro = avroOf(await registered(`${topicOf('avro')}-value`));
  for (const [format, encode] of [['json', jsonOf] as const, ['avro', avro] as const]) {
    const topic = topicOf(format);
    await admin.createTopics([{ topic, partitions: 3 }]);
    const rows = payments.map((payment, i) => ({
      ...{ partition: payment.partition, key: Buffer.from(payment.country) },
      value: encode(payment, i),
    }));
    expect((await producer.produce(batchOf(rows, 4 << 20), [topic])).failed).toBe(0);
  }
  expect(expected.length).toBeGreaterThan(30);
  expect(late.length).toBeGreaterThan(10);
});
afterAll(async () => {
  for (const name of [table, `${table}_value`])
    await pool?.query(`DROP TABLE IF EXISTS ${name}, ${name}_late CASCADE`);
  await pool?.close();
  await producer?.close();
  await admin?.close();
});

const postgres = (name = table): readonly string[] => [
  `-sink=postgres:${stack.postgres}`,
  `-sink-table=${name}`,
];

describe('outputs of decimals', () => {
  it.each(['json', 'avro'])(
    'decimals of %s are in RocksDB, equal to exact sums and to verify',
    async (format) => {
      const disk = format === 'avro' ? ['-mem-budget=160MiB', '-shards=3'] : [];
      await computed(`rocksdb-${format}`, format, ...disk);
      expect(await exported(`rocksdb-${format}`, HEAD)).toEqual(expected);
      await verified(`rocksdb-${format}`, format);
    },
  );

  it('decimals are numeric in PostgreSQL, whose own sum agrees', async () => {
    await computed('postgres', 'avro', ...postgres(), '-migrate');
    expect(await exported('postgres', HEAD, ...postgres())).toEqual(expected);
    await verified('postgres', 'avro', ...postgres());
    const { rows } = await pool.query(
      `SELECT attname || ' ' || format_type(atttypid, atttypmod) AS text FROM pg_attribute
       WHERE attrelid = $1::regclass AND attname IN ('total', 'mean', 'least') ORDER BY attnum`,
      [table],
    );
    expect(rows.map(({ text }) => text)).toEqual([
      ...['total numeric(38,2)', 'mean numeric(38,8)', 'least numeric(38,2)'],
    ]);
    const totals = expected.map((row) => BigInt((row.split(',')[4] as string).replace('.', '') || 0));
    const sum = await pool.query(`SELECT sum(total) AS sum FROM ${table}`);
    expect(sum.rows[0]?.['sum']).toBe(
      textOf(
        totals.reduce((all, one) => all + one, 0n),
        2,
      ),
    );
  });

  it('a table whose column has other decimal places is refused before anything is rounded', async () => {
    const aggregate = `-aggregate=${AGGREGATE.replaceAll('decimal2', 'decimal3')}`;
    const run = await runEngine(own, args('other', 'avro', ...postgres(), aggregate, '-migrate', '-bounded'));
    expect(run).toMatchObject({ code: 2, stderr: expect.stringContaining('[sink_refused]') });
    expect(run.stderr).toContain(
      `total of table ${table} is numeric(38,2), and the results need numeric(38,3)`,
    );
  });

  it.each(['avro', 'protobuf', 'json'])('decimals are in registered records in %s', async (format) => {
    const sink = [
      `-sink=kafka:${topicOf(`out-${format}`)}`,
      `-sink-format=${format}`,
      `-registry=${registry}`,
    ];
    await computed(`kafka-${format}`, 'json', ...sink, '-migrate');
    const aggregate = `-aggregate=${AGGREGATE}`;
    expect(await exported(`kafka-${format}`, HEAD, ...sink, aggregate)).toEqual(expected);
    await verified(`kafka-${format}`, 'json', ...sink);
  });

  it('decimals are DECIMAL in Parquet files, which DuckDB adds up exactly', async () => {
    const folder = join(own.dir, 'parquet-files');
    const sink = [`-sink=parquet:${folder}`];
    await computed('parquet', 'avro', ...sink, '-migrate');
    expect(await exported('parquet', HEAD, ...sink)).toEqual(expected);
    const duckdb = await (await DuckDBInstance.create(':memory:')).connect();
    const types = await duckdb.runAndReadAll(`DESCRIBE SELECT total, mean FROM '${folder}/*.parquet'`);
    expect(types.getRows().map(([name, type]) => `${name} ${type}`)).toEqual([
      ...['total DECIMAL(38,2)', 'mean DECIMAL(38,8)'],
    ]);
    const rows = await duckdb.runAndReadAll(
      `SELECT country, total::VARCHAR, mean::VARCHAR, least::VARCHAR FROM '${folder}/*.parquet' ORDER BY ALL`,
    );
    expect(
      rows
        .getRows()
        .map((row) => row.join())
        .sort(),
    ).toEqual(expected.map((row) => [0, 4, 5, 6].map((at) => row.split(',')[at]).join()).sort());
    duckdb.closeSync();
  });

  it('decimals are texts over HTTP, as JSON and CSV, and windows are ranked by them', async () => {
    const engine = startEngine(own, args('http', 'json', '-checkpoint-interval=50ms'));
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === EVENTS);
    const url = `http://${address}/windows`;
    const rows = await until('fired windows', async () => {
      const answer = await fetch(`${url}?limit=1000`, { headers: { accept: 'text/csv' } });
      const [head, ...lines] = (await answer.text()).trimEnd().split('\r\n');
      expect(head).toBe(HEAD);
      return lines.length > 20 ? lines : undefined;
    });
    for (const row of rows) expect(expected).toContain(row);
    const top = (await (await fetch(`${url}?top=3&by=total`)).json()) as ReadonlyArray<{ total: string }>;
    const cents = (text: string): bigint => (text === '' ? -(10n ** 30n) : BigInt(text.replace('.', '')));
    const greatest = rows
      .map((row) => row.split(',')[4] as string)
      .sort((a, b) => (cents(a) > cents(b) ? -1 : 1));
    expect(top.map(({ total }) => total)).toEqual(greatest.slice(0, 3));
    await engine.drain();
  });

  it('a savepoint of decimals begins a job with the same results', async () => {
    const out = join(own.dir, 'saved');
    const first = await runEngine(own, args('before', 'avro', '-exit-at-end'));
    expect(first.code, first.stderr).toBe(0);
    const saved = await runEngine(own, ['savepoint', `-state-dir=${join(own.dir, 'before')}`, `-out=${out}`]);
    expect(saved.code, saved.stderr).toBe(0);
    const begun = await runEngine(own, args('begun', 'avro', `-savepoint=${out}`, '-bounded'));
    expect(begun.code, begun.stderr).toBe(0);
    const rows = [...(await exported('before', HEAD)), ...(await exported('begun', HEAD))];
    expect([...new Set(rows)].sort()).toEqual(expected);
    const other = `-aggregate=${AGGREGATE.replaceAll('decimal2', 'decimal3')}`;
    const refused = await runEngine(own, args('changed', 'avro', `-savepoint=${out}`, other));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('[job_changed]') });
  });
});

describe('a decimal value', () => {
  const VALUE = '-value=price:decimal2';
  const head = 'country,window_start,window_end,count,sum,min,max,last_update_ts,overflow';

  it('count, sum, min and max of a decimal value are exact, and its late events have it', async () => {
    const name = `${table}_value`;
    await computed('value', 'avro', VALUE, ...postgres(name), '-migrate');
    const rows = await exported('value', head, ...postgres(name), VALUE);
    // A payment without a price is no event of this job.
    const oracle = new Oracle(RULES, 3);
    const countries = [...new Set(payments.map(({ country }) => country))];
    const lateCents: string[] = [];
    for (const payment of payments) {
      const { cents, country, partition, at } = payment;
      if (isInvalid(payment) || cents === null) continue;
      const verdict = oracle.event(partition, BigInt(countries.indexOf(country)), cents, BigInt(at));
      if (verdict !== 'accepted') lateCents.push(`${partition} ${payment.offset} ${textOf(cents, 2)}`);
    }
    const wanted = [...oracle.rows()].map((row) => {
      const numbers = [row.sum, row.min, row.max].map((one) => textOf(BigInt(one), 2));
      const key = [countries[Number(row.accountId)], row.windowStart, row.windowEnd, row.count];
      return [...key, ...numbers, row.lastUpdateTs, row.overflow].join();
    });
    expect(rows).toEqual(wanted.sort());
    const found = await pool.query(
      `SELECT source_partition || ' ' || source_offset || ' ' || value AS text FROM ${name}_late`,
    );
    expect(found.rows.map(({ text }) => text).sort()).toEqual(lateCents.sort());
    const engine = startEngine(own, args('value', 'avro', VALUE, ...postgres(name)));
    const address = await engine.ready();
    const answer = await fetch(`http://${address}/late?limit=1000`);
    const events = (await answer.json()) as ReadonlyArray<Record<string, unknown>>;
    expect(events.map((one) => `${one['partition']} ${one['offset']} ${one['value']}`).sort()).toEqual(
      lateCents.sort(),
    );
    await engine.drain();
    await pool.query(`ALTER TABLE ${name}_late ALTER value TYPE numeric(38,1)`);
    const refused = await runEngine(own, args('value', 'avro', VALUE, ...postgres(name), '-bounded'));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('[sink_missing]') });
    expect(refused.stderr).toContain(`value of table ${name}_late is numeric(38,1)`);
  });

  it('a first run prints the job with its decimals, which alone gives the same results', async () => {
    const where = "-where=price >= 0.10 and country != 'ES'";
    // Without -format, -key and -time a run prints what it inferred.
    const look = args('look', 'avro', VALUE, where, '-bounded').filter((flag) => !flag.startsWith('-key='));
    const first = await runEngine(own, look);
    expect(first.code, first.stderr).toBe(0);
    const [text = ''] = first.stdout.split(/^(?=consumed )/m);
    expect(text).toContain('\nvalue: price:decimal2\n');
    const path = join(own.dir, 'again.yaml');
    await writeFile(path, text.replace(/^state-dir: .*\n/m, ''));
    const valid = await runEngine(own, ['validate', `-job=${path}`]);
    expect(valid, valid.stderr).toMatchObject({ code: 0 });
    expect(valid.stdout).toContain('the fields were compared with');
    const again = [`-job=${path}`, `-state-dir=${join(own.dir, 'again')}`];
    expect(await runEngine(own, again)).toMatchObject({ code: 0 });
    const keyed = head.replace('country', 'key');
    const rows = await exported('again', keyed);
    expect(rows).toEqual(await exported('look', keyed));
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.every((row) => !row.startsWith('ES'))).toBe(true);
    const same = await runEngine(own, ['verify', ...again, '-json']);
    expect(JSON.parse(same.stdout)).toMatchObject({ equal: true });
  });

  it.each([
    [['-value=price:decimal'], 'give it from 0 to 18, such as price:decimal2'],
    [['-value=price:decimal19'], 'give it from 0 to 18, such as price:decimal2'],
    [['-value=price'], 'state its decimal places: -value=price:decimal3'],
    [['-aggregate=sum(price)'], 'state its decimal places: sum(price:decimal3)'],
    [['-value=country:decimal2', '-where=country:decimals > 1'], '"decimals" stands where decimal is due'],
    [[VALUE, '-sink=kafka:none'], 'no place for the results'],
  ] as const)('the flags %j end with one error that says what to give', async (more, text) => {
    const state = `wrong-${more.join().replace(/\W+/g, '-')}`;
    const run = await runEngine(own, args(state, 'avro', ...more, '-bounded'));
    expect(run.code, run.stderr).toBe(2);
    expect(run.stderr).toContain(text);
  });
});
