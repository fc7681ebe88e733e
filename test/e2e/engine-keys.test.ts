/** The engine over keys that are no integers, on a real broker, registry and database: the results
 *  equal those of an oracle that compares bytes, through SIGKILL and in every sink. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { oracleOf, rowText } from './engine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n };
const EVENTS = 20_000;
const TABLE = `keyed_${own.suffix}`;
const RESULT = 'window_start,window_end,count,sum,min,max,last_update_ts,overflow';

const topicOf = (name: string): string => `keys-${name}-${own.suffix}`;
const folderOf = (name: string): string => `-state-dir=${join(own.dir, name)}`;
const args = (topic: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=2s', '-allowed-skew=1s', '-allowed-lateness=1s'],
    more,
  );

/** Lines of an export, with the header checked. */
async function exported(head: string, ...flags: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await runEngine(own, ['export', ...flags]);
  const [header, ...rows] = stdout.trimEnd().split('\n');
  expect({ code, header }, stderr).toEqual({ code: 0, header: `${head},${RESULT}` });
  return rows;
}

let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-keys', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'engine-keys', connectTimeoutMs: 60_000 },
  });
});
afterAll(async () => {
  await pool?.query(
    `DROP TABLE IF EXISTS ${TABLE}, ${TABLE}_late, ${TABLE}_kinds, ${TABLE}_kinds_late CASCADE`,
  );
  await pool?.close();
  await producer?.close();
  await admin?.close();
});

describe('texts of Avro events as keys', () => {
  const generate = (name: string, ...more: readonly string[]) =>
    generateEvents(own, { brokers: stack.brokers, topic: topicOf(name) }, [
      ...[`-count=${EVENTS}`, '-account-base=4294966796', '-per-ms=5', '-accounts=1000'],
      ...['-tail=0.05', '-tail-max=8s', '-stragglers=0.001', '-straggler-max=1h'],
      ...['-partitions=1', ...more],
    ]);
  let registry = '';
  let expected: string[] = [];

  beforeAll(async () => {
    const running = startRegistry(own, ['-store=memory']);
    registry = `http://${await running.ready()}`;
    await generate('fixed');
    await generate('avro', '-format=avro', '-key-type=string', `-registry=${registry}`);
    const oracle = await oracleOf(stack.brokers, topicOf('fixed'), RULES);
    expect(oracle.droppedLate[0]).toBeGreaterThan(0n);
    expected = [...oracle.rows()].map((row) =>
      rowText({ ...row, accountId: row.accountId.toString(16).padStart(16, '0') }),
    );
    expected.sort();
  });

  it.each([
    ['a field', ['-key=account_id'], 'account_id', ['-state=disk', '-mem-budget=144MiB']],
    ['the record key, without a setting', [], 'key', ['-state=mem', '-shards=3']],
  ] as const)(
    'a topic keyed by %s gives the rows of the oracle through a SIGKILL',
    async (_what, key, head, more) => {
      const state = folderOf(`avro-${head}`);
      const flags = [...key, '-value=value', `-registry=${registry}`, state, ...more];
      const killed = await runEngine(
        own,
        args(
          topicOf('avro'),
          ...flags,
          '-chaos=kill-after=9000',
          '-batch-rows=500',
          '-checkpoint-interval=20ms',
        ),
      );
      expect(killed.signal).toBe('SIGKILL');
      const resumed = await runEngine(own, args(topicOf('avro'), ...flags, '-bounded', '-json'));
      expect(resumed).toMatchObject({ code: 0 });
      expect(JSON.parse(resumed.stdout)).toMatchObject({ consumed: EVENTS, invalid: 0 });
      expect((await exported(head, state)).sort()).toEqual(expected);
    },
  );
});

describe('keys of several fields', () => {
  const COUNTRIES = ['DE', 'D', 'E1', 'ä,"x"\ny', '%2C', ''];
  const HEAD = 'country,user_id';
  const events = Array.from({ length: 6000 }, (_, i) => ({
    partition: i % 3,
    country: COUNTRIES[(i * 7) % COUNTRIES.length] as string,
    user_id: ((i * 13) % 11) - 5,
    amount: (i % 17) - 3,
    at: 1_750_000_000_000 + i * 3 - (i % 40 === 0 ? 5000 : 0),
  }));
  const quoted = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  let rows: string[] = [];
  const flags = ['-key=country,user_id', '-time=at:ms', '-value=amount'];
  const topic = topicOf('tuple');

  beforeAll(async () => {
    await admin.createTopics([{ topic, partitions: 3 }]);
    const records = events.map(({ partition, ...value }) => ({
      partition,
      value: Buffer.from(JSON.stringify(value)),
    }));
    const { failed } = await producer.produce(batchOf(records), [topic]);
    expect(failed).toBe(0);
    // The oracle has a number for each key, found by the bytes of its parts.
    const numbers = new Map<string, bigint>();
    const texts: string[] = [];
    const oracle = new Oracle({ ...RULES, watermark: 'partition' }, 3, false);
    for (const { partition, country, user_id: user, amount, at } of events) {
      const bytes = `${Buffer.from(country).toString('hex')}/${user}`;
      if (!numbers.has(bytes)) {
        numbers.set(bytes, BigInt(texts.length));
        texts.push(`${quoted(country)},${user}`);
      }
      oracle.event(partition, numbers.get(bytes) as bigint, BigInt(amount), BigInt(at));
    }
    rows = [...oracle.rows()].map((row) => rowText({ ...row, accountId: texts[Number(row.accountId)] }));
    expect(texts.length).toBe(COUNTRIES.length * 11);
  });
  // A text may have line ends, so the export is compared as a whole.
  const sorted = (lines: readonly string[]): string[] =>
    lines
      .join('\n')
      .split(/(?<=,(?:true|false))\n/)
      .sort();
  // No event is later than skew and lateness beyond this.
  const within = '-allowed-lateness=10s';

  it.each([
    ['rocksdb', []],
    ['postgres', [`-sink=postgres:${stack.postgres}`, `-sink-table=${TABLE}`]],
    ['kafka', [`-sink=kafka:${topicOf('results')}`, `-brokers=${stack.brokers}`]],
  ] as const)(
    'the %s sink has the rows of the oracle through a SIGKILL, with the key itself',
    async (sink, where) => {
      const state = folderOf(`tuple-${sink}`);
      const migrates = sink === 'rocksdb' ? [] : ['-migrate'];
      const run = (...more: readonly string[]) =>
        runEngine(own, args(topic, ...flags, ...where, state, within, ...migrates, ...more));
      const killed = await run('-chaos=kill-after=2500', '-batch-rows=300', '-checkpoint-interval=20ms');
      expect(killed.signal).toBe('SIGKILL');
      const resumed = await run('-bounded', '-json');
      expect(resumed).toMatchObject({ code: 0 });
      expect(JSON.parse(resumed.stdout)).toMatchObject({
        consumed: events.length,
        invalid: 0,
        droppedLate: 0,
      });
      expect(sorted(await exported(HEAD, state, ...where))).toEqual(sorted(rows));
    },
  );

  it('a table of results has a column of its own type for each part, and an export needs no state', async () => {
    const { rows: columns } = await pool.query(
      `SELECT column_name, data_type FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position LIMIT 3`,
      [TABLE],
    );
    expect(columns.map((row) => Object.values(row))).toEqual([
      ['country', 'text'],
      ['user_id', 'bigint'],
      ['window_start', 'timestamp with time zone'],
    ]);
    const where = [`-sink=postgres:${stack.postgres}`, `-sink-table=${TABLE}`];
    expect(sorted(await exported(HEAD, folderOf('nowhere'), ...where))).toEqual(sorted(rows));
  });

  it('GET /windows finds a key by its parts, fired and open, after a restart too', async () => {
    const state = folderOf('tuple-live');
    const engine = startEngine(own, args(topic, ...flags, state, within));
    const find = async (address: string, country: string, query = '') => {
      const text = country.replaceAll('%', '%25').replaceAll(',', '%2C');
      const answer = await fetch(`http://${address}/windows/${encodeURIComponent(`${text},-2`)}${query}`);
      return { status: answer.status, rows: (await answer.json()) as ReadonlyArray<Record<string, string>> };
    };
    const expectedOf = (country: string): string[] =>
      rows
        .filter((row) => row.startsWith(`${quoted(country)},-2,`))
        .map((row) => row.slice(`${quoted(country)},-2,`.length));
    const check = async (address: string): Promise<void> => {
      await until('all events', async () =>
        (await consumedAt(address)) === events.length ? true : undefined,
      );
      for (const country of COUNTRIES) {
        const found = await until('every window', async () => {
          const { rows: some } = await find(address, country, '?open=true');
          return some.length === expectedOf(country).length ? some : undefined;
        });
        expect(
          found.every(({ key }) => JSON.stringify(key) === JSON.stringify({ country, user_id: '-2' })),
        ).toBe(true);
        const cells = found.map(({ key: _, final: __, ...row }) => Object.values(row).join(','));
        expect(cells.sort()).toEqual(expectedOf(country).sort());
      }
      expect((await find(address, 'nowhere', '?open=true')).rows).toEqual([]);
      expect((await fetch(`http://${address}/windows/DE`)).status).toBe(400);
      expect(await metric(address, 'engine_key_bytes')).toBeGreaterThan(0);
    };
    await check(await engine.address());
    await engine.die();
    const again = startEngine(own, args(topic, ...flags, state, within), 'again');
    await check(await again.address());
    await again.drain();
  });

  it('another key for the same state or the same table is refused', async () => {
    const changed = await runEngine(
      own,
      args(
        topic,
        '-key=user_id,country',
        '-time=at:ms',
        '-value=amount',
        folderOf('tuple-rocksdb'),
        '-bounded',
        within,
      ),
    );
    expect(changed).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/-key was country:string,user_id/),
    });
    const table = await runEngine(own, [
      ...args(topic, '-key=country', '-time=at:ms', folderOf('other-table'), '-bounded', within),
      ...[`-sink=postgres:${stack.postgres}`, `-sink-table=${TABLE}`, '-migrate'],
    ]);
    expect(table).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/the key of table .* is not \(country text/),
    });
  });
});

describe('keys of every kind', () => {
  it('bytes, uuids and integers come back from every sink as they were written', async () => {
    const topic = topicOf('kinds');
    await admin.createTopics([{ topic, partitions: 1 }]);
    const ids = ['00112233-4455-6677-8899-aabbccddeeff', 'FFFFFFFF-ffff-FFFF-ffff-ffffffffffff'];
    const values = ids.flatMap((id, n) => [
      `{"b":"${n === 0 ? 'AP8=' : ''}","user":{"id":"${id}"},"count":18446744073709551615,"i":-9223372036854775808}`,
    ]);
    const records = [...values, values[0] as string].map((value) => ({
      partition: 0,
      value: Buffer.from(value),
    }));
    expect((await producer.produce(batchOf(records), [topic])).failed).toBe(0);
    const key = '-key=b:bytes,user.id:uuid,count:u64,i:i64';
    const tails: string[][] = [];
    for (const [name, where] of [
      ['rocksdb', []],
      ['postgres', [`-sink=postgres:${stack.postgres}`, `-sink-table=${TABLE}_kinds`, '-migrate']],
      ['kafka', [`-sink=kafka:${topicOf('kinds-results')}`, '-migrate']],
    ] as const) {
      const state = folderOf(`kinds-${name}`);
      const run = await runEngine(own, args(topic, '-format=json', key, '-bounded', state, ...where));
      expect(run, run.stderr).toMatchObject({ code: 0 });
      const head = name === 'postgres' ? 'b,id,key_count,i' : 'b,id,count,i';
      const from = [...where.filter((flag) => flag !== '-migrate'), `-brokers=${stack.brokers}`];
      const rows = await exported(head, state, ...from);
      tails.push(
        rows
          .map((row) =>
            row
              .split(',')
              .filter((_, at) => at < 4 || at === 6)
              .join(),
          )
          .sort(),
      );
    }
    const numbers = '18446744073709551615,-9223372036854775808';
    const expected = [`,${(ids[1] as string).toLowerCase()},${numbers},1`, `00ff,${ids[0]},${numbers},2`];
    expect(tails).toEqual([expected, expected, expected]);
  });
});
