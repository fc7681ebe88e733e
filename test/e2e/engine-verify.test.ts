/** `engine verify` on a real broker, registry and database: it agrees with the engine over every
 *  format, sink, kind of window and aggregate, on compressed topics too, and names what differs. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const EVENTS = 20_000;
const topicOf = (name: string): string => `verify-${name}-${own.suffix}`;
const table = `verify_${own.suffix}`;
const postgres = `-sink=postgres:${stack.postgres}`;
let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;

const args = (topic: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=2s', '-allowed-skew=1s'],
      ...['-allowed-lateness=1s', `-state-dir=${join(own.dir, topic)}`],
    ],
    more,
  );
const verify = (flags: readonly string[]) => runEngine(own, ['verify', ...flags]);

const AT = 1_750_000_000_000;
/** Records of the topic whose runs do not begin at its first one. */
const STARTS = 3000;
/** Events of one partition that are out of order and partly late, with repeated and missing values.
 */
const eventOf = (n: number) => ({
  user: `ü-${n % 37}`,
  at: new Date(AT + n * 7 - (n % 50 === 0 ? 9000 : (n % 11) * 60)).toISOString(),
  id: `order-${n % 9 === 8 ? n - 37 : n}`,
  status: n % 5 === 0 ? 'NEW' : 'PAID',
  amount: n % 13 === 0 ? null : n - 1000,
  price: n / 7,
  latency: (n * 7919) % 1000,
});

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-verify', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer({ ...options, compression: 'lz4' });
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'engine-verify', connectTimeoutMs: 60_000 },
  });
  for (const format of ['binary256', 'avro', 'protobuf', 'json']) {
    const topic = topicOf(format);
    // The broker stores compressed batches, whatever the producer sends.
    await admin.createTopics([{ topic, partitions: 3, config: { 'compression.type': 'zstd' } }]);
    const framed = format === 'binary256' ? [] : [`-format=${format}`, `-registry=${registry}`];
    await generateEvents(own, { brokers: stack.brokers, topic }, [
      ...[
        `-count=${EVENTS}`,
        '-per-ms=1',
        '-accounts=500',
        '-tail=0.05',
        '-tail-max=8s',
        '-stragglers=0.001',
      ],
      ...['-straggler-max=1h', ...framed],
    ]);
  }
  const topic = topicOf('rich');
  await admin.createTopics([{ topic, partitions: 1 }]);
  const rows = Array.from({ length: 6000 }, (_, n) => ({
    partition: 0,
    value: Buffer.from(n % 500 === 7 ? 'no JSON' : JSON.stringify(eventOf(n))),
  }));
  expect((await producer.produce(batchOf(rows, 4 << 20), [topic])).failed).toBe(0);
  const starts = topicOf('starts');
  await admin.createTopics([{ topic: starts, partitions: 1, config: { 'retention.ms': '-1' } }]);
  const timed = Array.from({ length: STARTS }, (_, n) => ({
    ...{ partition: 0, timestamp: BigInt(AT + n * 10) },
    value: Buffer.from(JSON.stringify({ user: `user-${n % 7}`, at: AT + n * 10, amount: n })),
  }));
  expect((await producer.produce(batchOf(timed), [starts])).failed).toBe(0);
});
afterAll(async () => {
  await producer?.close();
  await pool?.close();
  await admin?.close();
});

const fields = (format: string): readonly string[] => {
  if (format === 'binary256') return [];
  const time = `-time=event_ts${format === 'json' ? ':ms' : ''}`;
  const from = format === 'json' ? '-format=json' : `-registry=${registry}`;
  return ['-key=account_id', time, '-value=value', from];
};

describe('results of the engine', () => {
  it.each([
    ['binary256', []],
    ['json', [postgres, `-sink-table=${table}`]],
    ['avro', [`-sink=kafka:${topicOf('results')}`, '-sink-format=avro']],
    ['protobuf', ['-window=sliding', '-slide=500ms']],
  ] as const)('events in %s on a compressed topic are equal in the sink', async (format, sink) => {
    const flags = args(topicOf(format), ...fields(format), ...sink, '-bounded');
    const migrate = sink.some((flag) => flag.startsWith('-sink=')) ? ['-migrate'] : [];
    const run = await runEngine(own, [...flags, ...migrate]);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    const same = await verify([...flags, '-json']);
    expect(same, same.stderr).toMatchObject({ code: 0 });
    const { equal, compared, read, late } = JSON.parse(same.stdout);
    expect({ equal, read }).toEqual({ equal: true, read: EVENTS });
    expect(compared).toBeGreaterThan(500);
    expect(late).toBeGreaterThan(0);
  });

  it('a value, a row and a missing row that differ are named, with exit code 1', async () => {
    const flags = args(topicOf('json'), ...fields('json'), postgres, `-sink-table=${table}`, '-bounded');
    const where = `(account_id, window_start) IN (SELECT account_id, window_start FROM ${table} ORDER BY window_start, account_id LIMIT 1 OFFSET`;
    const rows = await pool.transaction(async (session) => {
      const found = await session.query<{ readonly account_id: bigint }>(
        `SELECT account_id FROM ${table} ORDER BY window_start, account_id LIMIT 2`,
      );
      await session.query(`DELETE FROM ${table} WHERE ${where} 1)`);
      await session.query(`UPDATE ${table} SET sum = sum + 1 WHERE ${where} 0)`);
      await session.query(
        `INSERT INTO ${table} SELECT 987654321, window_start, window_end, count, sum, min, max, last_update_ts, overflow FROM ${table} LIMIT 1`,
      );
      return found.rows;
    });
    const differing = await verify(flags);
    expect(differing.code, differing.stderr).toBe(1);
    expect(differing.stdout).toMatch(/^different: 3 of \d+ windows/);
    expect(differing.stdout).toMatch(
      new RegExp(`key ${rows[0]?.account_id} \\[.*: sum is -?\\d+ instead of -?\\d+$`, 'm'),
    );
    expect(differing.stdout).toMatch(new RegExp(`key ${rows[1]?.account_id} \\[.*: not in the sink`));
    expect(differing.stdout).toMatch(/key 987654321 \[.*: in the sink, but no event is in it/);
  });

  it.each([
    ['tumbling', ['-size=2s', '-dedup=id']],
    ['sliding', ['-window=sliding', '-size=2s', '-slide=700ms', '-dedup=id']],
    ['session', ['-window=session', '-gap=300ms']],
  ] as const)('all aggregates of %s windows by texts with a condition are equal', async (kind, windows) => {
    const aggregate =
      'count,count(amount),sum(amount),min(amount),max(amount),avg(amount),first(amount),last(amount),sum(price:double) as total,avg(price:double) as mean,min(price:double) as least,p50(latency),p99.9(latency),distinct(id),topk(id,5) as ids';
    const flags = withDefaults(
      [
        ...[
          `-brokers=${stack.brokers}`,
          `-topic=${topicOf('rich')}`,
          '-allowed-skew=500ms',
          '-allowed-lateness=1s',
        ],
        ...['-format=json', '-key=user', '-time=at:iso', "-where=status = 'PAID'", `-aggregate=${aggregate}`],
        ...[`-state-dir=${join(own.dir, `rich-${kind}`)}`, '-quarantine=off', '-bounded'],
      ],
      windows,
    );
    const run = await runEngine(own, flags);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    const same = await verify([...flags, '-json']);
    expect(same, `${same.stdout} ${same.stderr}`).toMatchObject({ code: 0 });
    const { invalid, filtered, late, duplicates, compared } = JSON.parse(same.stdout);
    expect({ invalid, filtered: filtered > 0, late: late > 0 }).toEqual({
      invalid: 12,
      filtered: true,
      late: true,
    });
    expect(duplicates > 0).toBe(kind !== 'session');
    expect(compared).toBeGreaterThan(100);
  });

  it('a running engine is verified up to its newest checkpoint, and a range alone', async () => {
    const state = `-state-dir=${join(own.dir, 'running')}`;
    const flags = args(topicOf('avro'), ...fields('avro'), state);
    const one = startEngine(own, [...flags, '-checkpoint-interval=100ms', '-idle-timeout=0']);
    const address = await one.ready();
    await until('the events', async () => ((await consumedAt(address)) === EVENTS ? true : undefined));
    const whole = await until('a checkpoint of all events', async () => {
      const seen = await verify([...flags, '-json']);
      const document = JSON.parse(seen.stdout);

      return document.read === EVENTS && document.compared > 0 ? { ...document, code: seen.code } : undefined;
    });
    expect(whole).toMatchObject({ code: 0, equal: true });
    const from = await verify([
      ...flags,
      '-json',
      '-verify-to=1600000000000',
      '-verify-from=1970-01-01T00:00:00Z',
    ]);
    expect(JSON.parse(from.stdout).compared).toBeLessThanOrEqual(whole.compared);
    await one.drain();
  });

  it.each([
    ['earliest', 'earliest', STARTS],
    ['an offset', '1234', STARTS - 1234],
    ['a time', new Date(AT + 2001 * 10).toISOString(), STARTS - 2001],
  ])('a run that started at %s is equal in the sink', async (_what, start, read) => {
    const flags = [
      ...[`-brokers=${stack.brokers}`, `-topic=${topicOf('starts')}`, '-format=json', '-key=user'],
      ...['-time=at:ms', '-value=amount', '-size=2s', '-bounded', `-start=${start}`],
      `-state-dir=${join(own.dir, `start-${read}`)}`,
    ];
    const run = await runEngine(own, flags);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    const same = await verify([...flags, '-json']);
    expect(same, `${same.stdout} ${same.stderr}`).toMatchObject({ code: 0 });
    const document = JSON.parse(same.stdout);
    expect(document).toMatchObject({ equal: true, read, accepted: read });
    expect(document.compared).toBeGreaterThan(30);
  });

  it('a job file whose start moves with the topic is refused, until a flag has the place', async () => {
    const job = join(own.dir, 'starts.yaml');
    const lines = [
      ...[`brokers: ${stack.brokers}`, `topic: ${topicOf('starts')}`, 'format: json', 'key: user'],
      ...['time: at:ms', 'value: amount', 'size: 2s', 'start: latest'],
    ];
    writeFileSync(job, lines.join('\n'));
    const flags = [`-job=${job}`, `-state-dir=${join(own.dir, 'start-file')}`, '-bounded'];
    const run = await runEngine(own, [...flags, '-start=1000']);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    expect(await verify(flags)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('-start=latest depends on the end of the topic'),
    });
    const same = await verify([...flags, '-start=1000']);
    expect(same, `${same.stdout} ${same.stderr}`).toMatchObject({ code: 0 });
    expect(same.stdout).toContain(`recomputed from ${STARTS - 1000} records`);
  });

  it('a verification that is stopped ends with one error and the exit code of an interruption', async () => {
    const flags = args(topicOf('binary256'), '-bounded', '-log-level=debug');
    const one = startEngine(own, ['verify', ...flags], 'stopped');
    await until('its first line', () => (one.log().includes('"msg":"start"') ? true : undefined));
    one.kill('SIGTERM');
    expect(await one.ended).toMatchObject({ code: 130 });
    expect(one.log()).toContain('engine verify was stopped before it had read the topic');
  });

  it('a call that cannot be verified is refused with one error', async () => {
    const flags = args(topicOf('binary256'), '-bounded');
    const cases = [
      [[...flags, '-verify-windows-max=10'], 2, 'more than 10 windows'],
      [[...flags, '-verify-from=yesterday'], 2, 'is not a time'],
      [[...flags, '-start=latest'], 2, '-start=latest depends on the end of the topic'],
      [[...flags, '-start=-50'], 2, '-start=-50 depends on the end of the topic'],
      [args(topicOf('binary256'), '-bounded', '-size=3s'), 2, '-size was 2000ms, is 3000ms'],
      [
        args(topicOf('binary256'), '-bounded', '-watermark=global', `-state-dir=${join(own.dir, 'none')}`),
        2,
        'depend on the order',
      ],
      [args(topicOf('none'), '-bounded', `-state-dir=${join(own.dir, 'none')}`), 2, 'there is no topic'],
    ] as const;
    for (const [given, code, text] of cases) {
      const refused = await verify(given);
      expect(refused.stderr).toContain(text);
      expect(refused.code, text).toBe(code);
    }
    const run = await runEngine(own, [...flags, '-verify-from=0']);
    expect(run).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('-verify-from changes nothing without verify'),
    });
  });
});
