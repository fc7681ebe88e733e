/** Percentiles and distinct counts in every output of the engine on real servers, through SIGKILL:
 *  all equal what a list of the accepted events gives. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { percentileOf } from '../property/percentile-kit.ts';
import { until } from '../wait.ts';
import { runThroughKill, writeJsonTopic } from './engine-outputs-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const RULES = { sizeMs: 20_000n, skewMs: 1000n, latenessMs: 10_000n, watermark: 'partition' } as const;
const T0 = 1_750_000_000_000;
/** One country has more users in a window than are counted exactly. */
const events = Array.from({ length: 8000 }, (_, i) => ({
  partition: i % 3,
  country: ['DE', 'FR', 'FR', 'IT'][i % 4] as string,
  user: i % 4 === 0 ? `u${i}` : i % 4 === 3 ? null : `v${i % 37}`,
  ms: Math.round(1.0008 ** ((i * 7919) % 8000)) - 3,
  score: ((i * 31) % 409) / 8 - 20,
  at: T0 + i * 5 - (i % 40 === 0 ? 5000 : 0),
}));
const AGGREGATES = 'count as n,p50(ms),p99.9(score:double) as slow,distinct(user) as users';
const HEAD =
  'country,window_start,window_end,n,p50_ms,p50_ms_error,slow,slow_error,users,users_error,last_update_ts,overflow';
const topic = `sketches-${own.suffix}`;
const table = `sketches_${own.suffix}`;

const args = (name: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=20s', '-allowed-skew=1s'],
      ...['-allowed-lateness=10s', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`],
      ...['-format=json', '-key=country', '-time=at:ms', `-aggregate=${AGGREGATES}`],
    ],
    more,
  );

/** Runs to the end of the topic through a SIGKILL. */
const computed = (name: string, ...more: readonly string[]): Promise<void> =>
  runThroughKill(own, args(name, ...more));

async function exported(name: string, ...more: readonly string[]): Promise<string[]> {
  const flags = [`-brokers=${stack.brokers}`, `-state-dir=${join(own.dir, name)}`];
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags, ...more]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  expect({ code, header }, stderr).toEqual({ code: 0, header: HEAD });
  return rows.sort();
}

interface Expected {
  readonly row: string;
  readonly users: number;
}

/** Rows of the accepted events; those with an estimate have no number of users. */
function expectedRows(): readonly Expected[] {
  const oracle = new Oracle(RULES, 3, false);
  const windows = new Map<string, (typeof events)[number][]>();
  const countries = [...new Set(events.map(({ country }) => country))];
  for (const event of events) {
    const account = BigInt(countries.indexOf(event.country));
    if (oracle.event(event.partition, account, 0n, BigInt(event.at)) !== 'accepted') continue;
    const start = Math.floor(event.at / 20_000) * 20_000;
    const key = `${event.country},${start},${start + 20_000}`;
    windows.set(key, [...(windows.get(key) ?? []), event]);
  }
  return [...windows].map(([key, list]) => {
    const p = (of: (event: (typeof events)[number]) => number, percent: string): string =>
      percentileOf(
        list.map(of).sort((a, b) => a - b),
        percent,
      ).join();
    const users = new Set(list.flatMap(({ user }) => user ?? [])).size;
    const last = Math.max(...list.map(({ at }) => at));
    const counted = users > 512 ? ',' : `${users},0`;
    const row = `${key},${list.length},${p(({ ms }) => ms, '50')},${p(({ score }) => score, '99.9')},${counted},${last},false`;
    return { row, users };
  });
}

let expected: readonly Expected[] = [];
let estimates = '';
/** Compares rows, of which estimates are within five standard errors, and the same in every output.
 */
function expectRows(rows: readonly string[]): void {
  const found = rows.map((row) => {
    const cells = row.split(',');
    const [users, error] = cells.slice(8, 10).map(Number) as [number, number];
    if (error > 0) cells.splice(8, 2, '', '');
    return { row: cells.join(), users, error };
  });
  expect(found.map(({ row }) => row).sort()).toEqual(expected.map(({ row }) => row).sort());
  const byRow = new Map(expected.map(({ row, users }) => [row, users]));
  const estimated = found.filter(({ error }) => error > 0);
  expect(estimated.length).toBeGreaterThan(0);
  for (const { row, users, error } of estimated) {
    expect(error).toBe(1.04 / 64);
    const exact = byRow.get(row) as number;
    expect(Math.abs(users - exact)).toBeLessThan(5 * error * exact);
  }
  const text = estimated
    .map(({ row, users }) => `${row} ${users}`)
    .sort()
    .join('\n');
  if (estimates === '') estimates = text;
  expect(text).toBe(estimates);
}

let pool: SqlPool;

beforeAll(async () => {
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'sketches', connectTimeoutMs: 60_000 },
  });
  await writeJsonTopic(stack.brokers, topic, events);
  expected = expectedRows();
  expect(expected.length).toBeGreaterThan(5);
});
afterAll(async () => {
  await pool?.query(`DROP TABLE IF EXISTS ${table}, ${table}_late CASCADE`);
  await pool?.close();
});

describe('outputs', () => {
  it('percentiles and distinct counts are in RocksDB, and over HTTP as CSV, JSON and in the order of the greatest', async () => {
    await computed('rocksdb');
    expectRows(await exported('rocksdb'));
    const engine = startEngine(own, args('http'));
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === events.length);
    const rows = await until('fired windows', async () => {
      const answer = await fetch(`http://${address}/windows?limit=100`, { headers: { accept: 'text/csv' } });
      const [head, ...lines] = (await answer.text()).trimEnd().split('\r\n');
      expect(head).toBe(HEAD);
      return lines.length > 0 ? lines : undefined;
    });
    const plain = (row: string): string => row.split(',').slice(0, 8).join();
    const wanted = expected.map(({ row }) => plain(row));
    expect(wanted).toEqual(expect.arrayContaining(rows.map(plain)));
    const top = (await (await fetch(`http://${address}/windows?top=2&by=users`)).json()) as ReadonlyArray<
      Record<string, string | number>
    >;
    const users = rows.map((row) => Number(row.split(',')[8])).sort((x, y) => y - x);
    expect(top.map((one) => Number(one['users']))).toEqual(users.slice(0, 2));
    expect(top[0]?.['users_error']).toBe(1.04 / 64);
    await engine.drain();
  });

  it('percentiles and distinct counts are typed columns in PostgreSQL', async () => {
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`];
    await computed('postgres', ...sink, '-migrate');
    expectRows(await exported('postgres', ...sink));
    const { rows } = await pool.query(
      `SELECT column_name || ' ' || data_type || ' ' || is_nullable AS text FROM information_schema.columns
       WHERE table_name = $1 ORDER BY ordinal_position`,
      [table],
    );
    expect(rows.slice(3, 10).map(({ text }) => String(text))).toEqual([
      ...['n bigint NO', 'p50_ms double precision YES', 'p50_ms_error double precision YES'],
      ...['slow double precision YES', 'slow_error double precision YES'],
      ...['users bigint NO', 'users_error double precision NO'],
    ]);
  });

  it.each(['avro', 'protobuf', 'json'])(
    'percentiles and distinct counts are in registered records in %s',
    async (format) => {
      const sink = [`-sink=kafka:${topic}-${format}`, `-sink-format=${format}`, `-registry=${registry}`];
      await computed(`kafka-${format}`, ...sink, '-migrate');
      expectRows(await exported(`kafka-${format}`, ...sink));
    },
  );

  it('percentiles and distinct counts are in Parquet files', async () => {
    const sink = [`-sink=parquet:${join(own.dir, 'parquet-files')}`];
    await computed('parquet', ...sink, '-migrate');
    expectRows(await exported('parquet', ...sink));
  });

  it('the results are the same with the state on disk and with sliding windows merged from slices', async () => {
    const more = ['-mem-budget=160MiB', '-shards=3'];
    await computed('disk', ...more);
    expectRows(await exported('disk'));
    const sliding = ['-window=sliding', '-slide=20s'];
    const run = await runEngine(own, args('sliding', ...sliding, '-bounded'));
    expect(run.code, run.stderr).toBe(0);
    expectRows(await exported('sliding'));
  });

  it('a percentile of a field of another type ends with one error that names the field', async () => {
    const run = await runEngine(own, args('wrong', '-bounded', '-aggregate=p99(country)'));
    expect(run.code).not.toBe(0);
    expect(run.stderr).toContain('country');
  });
});
