/** The most frequent values in every output of the engine on real servers, through SIGKILL: exact
 *  lists equal those of the accepted events, and estimates are the same in every output. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { runThroughKill, writeJsonTopic } from './engine-outputs-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const RULES = { sizeMs: 20_000n, skewMs: 1000n, latenessMs: 10_000n, watermark: 'partition' } as const;
const T0 = 1_750_000_000_000;
/** DE has more users in a window than are counted exactly; one of them is in a third of its events.
 */
const events = Array.from({ length: 8000 }, (_, i) => ({
  partition: i % 3,
  country: ['DE', 'FR', 'FR', 'IT'][i % 4] as string,
  user: i % 4 === 0 ? (i % 3 === 0 ? 'often' : `user-${i}`) : i % 4 === 3 ? null : `v,"${(i * i) % 37}"`,
  at: T0 + i * 5 - (i % 40 === 0 ? 5000 : 0),
}));
const HEAD = 'country,window_start,window_end,n,top,top_error,last_update_ts,overflow';
const topic = `topk-${own.suffix}`;
const table = `topk_${own.suffix}`;

const args = (name: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=20s', '-allowed-skew=1s'],
      ...['-allowed-lateness=10s', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`],
      ...['-format=json', '-key=country', '-time=at:ms', '-aggregate=count as n,topk(user,3) as top'],
    ],
    more,
  );

/** Runs to the end of the topic through a SIGKILL. */
const computed = (name: string, ...more: readonly string[]): Promise<void> =>
  runThroughKill(own, args(name, ...more));

interface Item {
  readonly value: string;
  readonly count: number;
}
interface Row {
  readonly key: string;
  readonly list: readonly Item[];
  readonly error: number;
}

/** A row of CSV with a list, which is quoted if it is not empty. */
function rowOf(line: string): Row {
  const [, key, n, quoted, error, rest] = /^(\w+,\d+,\d+),(\d+),("(?:[^"]|"")*"|\[\]),(\d+),(.*)$/.exec(
    line,
  ) as unknown as [string, string, string, string, string, string];
  const list = quoted === '[]' ? [] : (JSON.parse(quoted.slice(1, -1).replaceAll('""', '"')) as Item[]);
  return { key: `${key},${n},${rest}`, list, error: Number(error) };
}

async function exported(name: string, ...more: readonly string[]): Promise<readonly Row[]> {
  const flags = [`-brokers=${stack.brokers}`, `-state-dir=${join(own.dir, name)}`];
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags, ...more]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  expect({ code, header }, stderr).toEqual({ code: 0, header: HEAD });
  return rows.map(rowOf);
}

interface Expected {
  readonly counts: ReadonlyMap<string, number>;
  readonly list: readonly Item[];
}

/** Lists of the accepted events by the other columns of their row. */
function expectedRows(): ReadonlyMap<string, Expected> {
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
  return new Map(
    [...windows].map(([key, list]) => {
      const counts = new Map<string, number>();
      for (const { user } of list) if (user !== null) counts.set(user, (counts.get(user) ?? 0) + 1);
      const ranked = [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, 3);
      const last = Math.max(...list.map(({ at }) => at));
      return [
        `${key},${list.length},${last},false`,
        { counts, list: ranked.map(([value, count]) => ({ value, count })) },
      ];
    }),
  );
}

let expected: ReadonlyMap<string, Expected> = new Map();
let estimates = '';
/** Compares rows: exact lists with the oracle, and estimates with their bound and among outputs. */
function expectRows(rows: readonly Row[]): void {
  expect(rows.map(({ key }) => key).sort()).toEqual([...expected.keys()].sort());
  const estimated = rows.filter(({ error }) => error > 0);
  for (const { key, list, error } of rows) {
    const { counts, list: wanted } = expected.get(key) as Expected;
    if (error === 0) {
      expect(list).toEqual(wanted);
      continue;
    }
    expect(counts.size).toBeGreaterThan(500);
    const all = [...counts.values()].reduce((sum, one) => sum + one, 0);
    expect(error).toBe(Math.ceil((all * Math.E) / 256));
    expect(list[0]?.value).toBe('often');
    expect(list.length).toBe(3);
    for (const { value, count } of list) expect(count).toBeGreaterThanOrEqual(counts.get(value) as number);
    expect(list[0]?.count).toBeLessThanOrEqual((counts.get('often') as number) + error);
  }
  expect(estimated.length).toBeGreaterThan(0);
  const text = JSON.stringify([...estimated].sort((a, b) => (a.key < b.key ? -1 : 1)));
  if (estimates === '') estimates = text;
  expect(text).toBe(estimates);
}

let pool: SqlPool;

beforeAll(async () => {
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'topk', connectTimeoutMs: 60_000 },
  });
  await writeJsonTopic(stack.brokers, topic, events);
  expected = expectedRows();
  expect(expected.size).toBeGreaterThan(5);
});
afterAll(async () => {
  await pool?.query(`DROP TABLE IF EXISTS ${table}, ${table}_late CASCADE`);
  await pool?.close();
});

describe('outputs of frequent values', () => {
  it('frequent values are in RocksDB, and over HTTP as CSV and as JSON', async () => {
    await computed('rocksdb');
    expectRows(await exported('rocksdb'));
    const engine = startEngine(own, args('http'));
    const address = await engine.address();
    await until('all events', async () => (await consumedAt(address)) === events.length);
    const url = `http://${address}/windows?limit=100`;
    const rows = await until('fired windows', async () => {
      const answer = await fetch(url, { headers: { accept: 'text/csv' } });
      const [head, ...lines] = (await answer.text()).trimEnd().split('\r\n');
      expect(head).toBe(HEAD);
      return lines.length > 0 ? lines.map(rowOf) : undefined;
    });
    const answered = (await (await fetch(url)).json()) as ReadonlyArray<Record<string, unknown>>;
    expect(answered.map(({ top }) => top)).toEqual(rows.map(({ list }) => list));
    for (const { key, list, error } of rows) if (error === 0) expect(list).toEqual(expected.get(key)?.list);
    await engine.drain();
  });

  it('frequent values are jsonb in PostgreSQL, which its own operators read', async () => {
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`];
    await computed('postgres', ...sink, '-migrate');
    expectRows(await exported('postgres', ...sink));
    const { rows } = await pool.query(
      `SELECT column_name || ' ' || data_type || ' ' || is_nullable AS text FROM information_schema.columns
       WHERE table_name = $1 AND column_name LIKE 'top%' ORDER BY ordinal_position`,
      [table],
    );
    expect(rows.map(({ text }) => text)).toEqual(['top jsonb NO', 'top_error double precision NO']);
    const most = await pool.query(
      `SELECT DISTINCT top->0->>'value' AS value FROM ${table} WHERE top_error > 0`,
    );
    expect(most.rows.map(({ value }) => value)).toEqual(['often']);
  });

  it.each(['avro', 'protobuf', 'json'])('frequent values are in registered records in %s', async (format) => {
    const sink = [`-sink=kafka:${topic}-${format}`, `-sink-format=${format}`, `-registry=${registry}`];
    await computed(`kafka-${format}`, ...sink, '-migrate');
    expectRows(await exported(`kafka-${format}`, ...sink));
  });

  it('frequent values are in Parquet files', async () => {
    const sink = [`-sink=parquet:${join(own.dir, 'parquet-files')}`];
    await computed('parquet', ...sink, '-migrate');
    expectRows(await exported('parquet', ...sink));
  });

  it('frequent values are the same with the state on disk, with other shards and with sliding windows merged from slices', async () => {
    await computed('disk', '-mem-budget=160MiB', '-shards=3');
    expectRows(await exported('disk'));
    const sliding = ['-window=sliding', '-slide=20s'];
    const run = await runEngine(own, args('sliding', ...sliding, '-bounded'));
    expect(run.code, run.stderr).toBe(0);
    expectRows(await exported('sliding'));
  });

  it('a list without its number of values ends with one error that shows the form', async () => {
    const run = await runEngine(own, args('wrong', '-bounded', '-aggregate=topk(user)'));
    expect(run.code).toBe(2);
    expect(run.stderr).toContain('topk(sku,10)');
  });
});
