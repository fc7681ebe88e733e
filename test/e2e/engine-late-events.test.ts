/** Late events beside the results on real servers: GET /late and the table …_late have every late
 *  event of an independent oracle with its reason, after kills and in every format. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { connectPool, ownDatabase } from '../fixtures/database.ts';
import { runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 20_000;
const RULES = { sizeMs: 1000n, skewMs: 500n, latenessMs: 500n };
const topicOf = (format: string): string => `late-events-${format}-${own.suffix}`;

let registry = '';
let database = '';
let pool: SqlPool;
/** Late events of the fixed layout: place and `reason key event_ts value`. */
const expected = new Map<string, string>();

const textOf = (row: { reason: string; account_id: unknown; event_ts: unknown; value: unknown }): string =>
  `${row.reason} ${row.account_id} ${row.event_ts} ${row.value}`;

const generate = (format: string, ...more: readonly string[]) =>
  generateEvents(own, { brokers: stack.brokers, topic: topicOf(format) }, [
    ...[`-count=${EVENTS}`, '-per-ms=5', '-accounts=100', '-typical-max=500ms', '-tail=0.05', '-tail-max=4s'],
    ...['-stragglers=0.001', '-straggler-max=1h', '-partitions=2', ...more],
  ]);

beforeAll(async () => {
  const running = startRegistry(own, ['-store=memory']);
  registry = `http://${await running.ready()}`;
  database = await ownDatabase(stack.postgres, `late_${own.suffix}`);
  pool = await connectPool(database);
  await generate('binary256');
  await generate('avro', '-format=avro', `-registry=${registry}`);
  const reader = await TopicReader.open(stack.brokers, topicOf('binary256'));
  const oracle = new Oracle(RULES, reader.partitions.length);
  for (const p of reader.partitions) {
    let offset = 0;
    await reader.read(p, ({ value }) => {
      const verdict = oracle.value(p, value).replaceAll(' ', '_');
      const event = Buffer.from(value ?? []);
      if (verdict !== 'accepted')
        expected.set(
          `${p}@${offset}`,
          `${verdict} ${event.readBigUInt64LE(0)} ${event.readBigInt64LE(16)} ${event.readBigInt64LE(8)}`,
        );
      offset++;
    });
  }
  reader.close();
  expect(expected.size).toBeGreaterThan(200);
});
afterAll(async () => pool?.close());

const args = (format: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topicOf(format)}`, `-state-dir=${join(own.dir, format)}`],
      ...['-size=1s', '-allowed-skew=500ms', '-allowed-lateness=500ms', '-idle-timeout=0', '-batch-rows=500'],
      ...['-checkpoint-interval=50ms', `-sink=postgres:${database}`, `-sink-table=results_${format}`],
      ...(format === 'avro' ? [`-registry=${registry}`, '-key=account_id', '-value=value'] : []),
    ],
    more,
  );

interface LateJson {
  readonly account_id: string;
  readonly event_ts: string;
  readonly value: string;
  readonly reason: string;
  readonly watermark_ms: string;
  readonly partition: number;
  readonly offset: string;
}

/** Follows the pages of GET /late. */
async function lateAt(address: string, query: string): Promise<readonly LateJson[]> {
  const rows: LateJson[] = [];
  let path: string | undefined = `/late?${query}`;
  while (path !== undefined) {
    const answer: Response = await fetch(`http://${address}${path}`);
    expect(answer.status).toBe(200);
    rows.push(...((await answer.json()) as readonly LateJson[]));
    path = /<(.*)>; rel="next"/.exec(answer.headers.get('link') ?? '')?.[1];
  }
  return rows;
}

const startedToEnd = async (format: string, ...more: readonly string[]) => {
  const engine = startEngine(own, args(format, ...more), format);
  const address = await engine.address();
  await until('the end of the topic', async () =>
    (await metric(address, 'engine_events_total')) === EVENTS ? true : undefined,
  );
  return { engine, address };
};

it.each(['binary256', 'avro'])(
  'GET /late and the table have every late event of the oracle, after SIGKILLs, from a topic of %s',
  async (format) => {
    const migrated = await runEngine(own, args(format, '-migrate', '-chaos=kill-after=4000', '-exit-at-end'));
    expect(migrated.signal).toBe('SIGKILL');
    for (const chaos of ['after-changelog-sync@3', 'kill-after=6000'])
      await runEngine(own, args(format, `-chaos=${chaos}`, '-exit-at-end'));
    const { engine, address } = await startedToEnd(format);
    const byPlace = (rows: readonly LateJson[]) =>
      new Map(rows.map((row) => [`${row.partition}@${row.offset}`, textOf(row)]));
    const found = await until('all late events', async () => {
      const rows = await lateAt(address, 'limit=100');
      return rows.length === expected.size ? rows : undefined;
    });
    // The generator writes the same events in every format, and one key has one partition.
    const texts = (some: ReadonlyMap<string, string>): readonly string[] => [...some.values()].sort();
    expect(texts(byPlace(found))).toEqual(texts(expected));
    if (format === 'binary256') expect(byPlace(found)).toEqual(expected);
    for (const { watermark_ms, event_ts } of found)
      expect(Number(watermark_ms) - Number(RULES.latenessMs)).toBeGreaterThan(Number(event_ts));
    const [one] = found as readonly [LateJson];
    const ofKey = found.filter(
      ({ account_id, event_ts }) => account_id === one.account_id && Number(event_ts) >= Number(one.event_ts),
    );
    expect(await lateAt(address, `key=${one.account_id}&from=${one.event_ts}&limit=2`)).toEqual(ofKey);
    expect((await fetch(`http://${address}/late?from=x`)).status).toBe(400);
    await engine.drain();
    const { rows } = await pool.query<Record<string, unknown>>(
      `SELECT source_partition AS partition, source_offset AS offset, account_id, event_ts, value, reason, watermark_ms
       FROM results_${format}_late`,
    );
    expect(byPlace(rows as unknown as readonly LateJson[])).toEqual(byPlace(found));
  },
);

describe('late events by keys of several parts', () => {
  const topic = `late-keys-${own.suffix}`;
  const COUNTRIES = ['DE', 'D', 'ä,"x"', '%2C', ''];
  const IDS = ['00112233-4455-6677-8899-aabbccddeeff', 'ffffffff-ffff-ffff-ffff-ffffffffffff'];
  const events = Array.from({ length: 4000 }, (_, i) => ({
    reason: COUNTRIES[(i * 7) % COUNTRIES.length] as string,
    user: { id: IDS[i % 2] as string },
    raw: Buffer.from([i % 3, 255]).toString('base64'),
    n: (i % 4) - 2,
    amount: i,
    at: 1_750_000_000_000 + i * 3 - (i % 37 === 0 ? 5000 : 0),
  }));
  /** Late events as `offset: parts of the key, event_ts, value`. */
  const late: string[] = [];
  const shownOf = ({ reason, user, raw, n }: (typeof events)[number]) => ({
    ...{ reason, id: user.id, raw: Buffer.from(raw, 'base64').toString('hex'), n: String(n) },
  });

  beforeAll(async () => {
    const options = { brokers: stack.brokers, clientId: 'engine-late-keys', connectTimeoutMs: 60_000 };
    const producer = await nodeRdkafkaDriver.producer(options);
    const admin = await nodeRdkafkaDriver.admin(options);
    await admin.createTopics([{ topic, partitions: 1 }]);
    const records = events.map((event) => ({ partition: 0, value: Buffer.from(JSON.stringify(event)) }));
    expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
    await producer.close();
    await admin.close();
    const oracle = new Oracle(RULES, 1);
    events.forEach((event, offset) => {
      if (oracle.event(0, 1n, BigInt(event.amount), BigInt(event.at)) === 'late')
        late.push(`${offset}: ${JSON.stringify(shownOf(event))} ${event.at} ${event.amount}`);
    });
    expect(late.length).toBeGreaterThan(50);
  });

  const flags = (name: string, key: string, ...more: readonly string[]): readonly string[] =>
    withDefaults(
      [
        ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, `-state-dir=${join(own.dir, name)}`, key],
        ...['-time=at:ms', '-value=amount', '-format=json', '-size=1s', '-allowed-skew=500ms'],
        ...['-allowed-lateness=500ms', '-idle-timeout=0', '-batch-rows=300', '-checkpoint-interval=50ms'],
        ...[`-sink=postgres:${database}`, `-sink-table=${name}`, '-migrate'],
      ],
      more,
    );

  it('GET /late and the table show a key as the results show it, after a SIGKILL', async () => {
    const key = '-key=reason,user.id:uuid,raw:bytes,n';
    const killed = await runEngine(own, flags('parts', key, '-chaos=kill-after=1500', '-exit-at-end'));
    expect(killed.signal).toBe('SIGKILL');
    const engine = startEngine(own, flags('parts', key), 'parts');
    const address = await engine.address();
    const found = await until('all late events', async () => {
      const rows = (await lateAt(address, 'limit=7')) as ReadonlyArray<LateJson & { readonly key: object }>;
      return rows.length === late.length ? rows : undefined;
    });
    expect(
      found.map((row) => `${row.offset}: ${JSON.stringify(row.key)} ${row.event_ts} ${row.value}`),
    ).toEqual(late);
    const [one] = found as readonly [(typeof found)[number]];
    const text = (Object.values(one.key) as readonly string[])
      .map((part) => part.replaceAll('%', '%25').replaceAll(',', '%2C'))
      .join();
    const ofKey = found.filter((row) => JSON.stringify(row.key) === JSON.stringify(one.key));
    expect(await lateAt(address, new URLSearchParams({ key: text, limit: '2' }).toString())).toEqual(ofKey);
    expect((await fetch(`http://${address}/late?key=DE`)).status).toBe(400);
    await engine.drain();
    // The name of a part that is a column of late events gets a prefix, in both tables.
    const { rows } = await pool.query<Record<string, unknown>>(
      `SELECT source_offset AS offset, key_reason, id, encode(raw, 'hex') AS raw, n, event_ts, value, reason
       FROM parts_late ORDER BY 1`,
    );
    expect(
      rows.map((row) => {
        const { key_reason: reason, id, raw, n } = row;
        return `${row['offset']}: ${JSON.stringify({ reason, id, raw, n: String(n) })} ${row['event_ts']} ${row['value']}`;
      }),
    ).toEqual(late);
    const joined = await pool.query<{ readonly count: bigint }>(
      'SELECT count(*) FROM (SELECT DISTINCT l.source_offset FROM parts_late l JOIN parts r USING (key_reason, id, raw, n)) x',
    );
    expect(Number(joined.rows[0]?.count)).toBe(late.length);
  });

  it('a table of late events by another key is refused, with what helps', async () => {
    await pool.query('CREATE TABLE other_late (LIKE parts_late INCLUDING ALL)');
    const refused = await runEngine(own, flags('other', '-key=reason:string', '-exit-at-end'));
    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /the key of table other_late, which is for late events, is not \(key_reason text.*-sink-table that does not exist yet, or give -late-keep=0/s,
      ),
    });
  });
});

it('an engine keeps the newest late events of each partition, in its store and in the table', async () => {
  const state = `-state-dir=${join(own.dir, 'few')}`;
  const { engine, address } = await startedToEnd(
    'binary256',
    ...['-late-keep=20', '-migrate', '-sink-table=few', state],
  );
  await until('the store of all late events', async () =>
    (await metric(address, 'engine_late_kept_total')) === expected.size ? true : undefined,
  );
  const found = await lateAt(address, '');
  await engine.drain();
  const { rows } = await pool.query<{ partition: number; offset: bigint }>(
    'SELECT source_partition AS partition, source_offset AS offset FROM few_late ORDER BY 1, 2',
  );
  for (const partition of [0, 1]) {
    const newest = [...expected.keys()]
      .map((place) => place.split('@').map(Number) as [number, number])
      .filter(([of]) => of === partition)
      .map(([, offset]) => offset)
      .sort((a, b) => a - b)
      .slice(-20);
    const kept = found.filter((row) => row.partition === partition).map(({ offset }) => Number(offset));
    const inTable = rows.filter((row) => row.partition === partition).map(({ offset }) => Number(offset));
    expect(kept.slice(-20)).toEqual(newest);
    expect(inTable.slice(-20)).toEqual(newest);
    for (const some of [kept, inTable]) expect(some.length).toBeLessThan(20 + 5);
  }
});

it('a sink without the table of late events is refused, unless the engine keeps none', async () => {
  const state = `-state-dir=${join(own.dir, 'none')}`;
  const flags = ['-exit-at-end', '-log-level=error', '-sink-table=bare', state];
  expect(await runEngine(own, args('binary256', '-late-keep=0', '-migrate', ...flags))).toMatchObject({
    code: 0,
  });
  const refused = await runEngine(own, args('binary256', ...flags));
  expect(refused).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(
      /the sink has no table bare_late for late events; a sink that an earlier version created has none.*run the engine with -migrate once more, which creates the table, or give -late-keep=0 .*\[sink_missing\]/s,
    ),
  });
  // The advice of the message helps.
  expect(await runEngine(own, args('binary256', '-migrate', ...flags))).toMatchObject({ code: 0 });
  expect(await runEngine(own, args('binary256', ...flags))).toMatchObject({ code: 0 });
  const engine = startEngine(own, args('binary256', '-late-keep=0', '-sink-table=bare', state), 'none');
  const address = await engine.address();
  const answer = await until('the end of the restore', async () => {
    const found = await fetch(`http://${address}/late`);
    return found.status === 503 ? undefined : found;
  });
  expect([answer.status, await answer.json()]).toMatchObject([404, { code: 'late_not_kept' }]);
  await engine.drain();
});
