/** Jobs that fold the elements of a list, on a real broker, registry and database through SIGKILL:
 *  JSON and Avro, compared with a plain fold and by `engine verify`; the quarantine, the late topic
 *  and the late events of their records. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { QUARANTINE_HEADER } from '../../src/serde/quarantine.ts';
import { batchOf } from '../contract/broker-world.ts';
import { consumedAt, runEngine, startEngine } from '../fixtures/engine.ts';
import { pageOf } from '../fixtures/metrics.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { MemoryRegistry } from '../unit/engine/input/input-kit.ts';
import { until } from '../wait.ts';
import { runThroughKill } from './engine-outputs-kit.ts';

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const topicOf = (name: string): string => `lists-${name}-${own.suffix}`;
const table = `lists_${own.suffix}`;
const PARTITIONS = 3;
const T0 = 1_750_000_000_000;
const RULES = { sizeMs: 2000n, skewMs: 1000n, latenessMs: 1000n, watermark: 'partition' } as const;

const SCHEMA = JSON.stringify({
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'order_id', type: 'long' },
    { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
    {
      name: 'items',
      type: {
        type: 'array',
        items: {
          type: 'record',
          name: 'Item',
          fields: [
            { name: 'sku', type: 'string' },
            { name: 'qty', type: ['null', 'int'] },
          ],
        },
      },
    },
  ],
});

interface Order {
  readonly order_id: number;
  readonly at: number;
  readonly items: ReadonlyArray<{ readonly sku: string; readonly qty: number | null }>;
}
/** Orders with 0 to 6 items; some are late. */
const orders = Array.from({ length: 4000 }, (_, n): Order & { readonly partition: number } => ({
  partition: n % PARTITIONS,
  order_id: n,
  at: T0 + n * 5 - (n % 60 === 0 ? 7000 : (n % 7) * 40),
  items: Array.from({ length: n % 7 }, (_, item) => ({
    sku: `sku-${(n * 7 + item * 3) % 23}`,
    qty: (n + item) % 11 === 0 ? null : ((n * 31 + item) % 90) - 10,
  })),
}));

/** Rows of the results of a plain fold over the items: sku, window, count and sum. */
function expectedRows(): readonly string[] {
  const oracle = new Oracle(RULES, PARTITIONS);
  const windows = new Map<string, { count: number; sum: number }>();
  for (const { partition, at, items } of orders)
    for (const { sku, qty } of items) {
      if (oracle.event(partition, 0n, 0n, BigInt(at)) !== 'accepted') continue;
      const start = Math.floor(at / 2000) * 2000;
      const one = windows.get(`${sku},${start}`) ?? { count: 0, sum: 0 };
      one.count++;
      one.sum += qty ?? 0;
      windows.set(`${sku},${start}`, one);
    }
  return [...windows].map(([key, { count, sum }]) => `${key},${count},${sum}`).sort();
}

let admin: BrokerAdmin;
let producer: BatchProducer;
let pool: SqlPool;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-lists', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  pool = await pgDriver.connect({
    ...{ url: stack.postgres, connectionsMax: 1, applicationName: 'engine-lists', connectTimeoutMs: 60_000 },
  });
  const answer = await fetch(`${registry}/subjects/${topicOf('avro')}-value/versions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ schema: SCHEMA }),
  });
  const { id } = (await answer.json()) as { readonly id: number };
  const schemas = new MemoryRegistry();
  while (schemas.schemas.length < id) schemas.add('AVRO', SCHEMA);
  const values = {
    json: ({ partition: _, ...order }: (typeof orders)[number]) => Buffer.from(JSON.stringify(order)),
    avro: ({ order_id, at, items }: (typeof orders)[number]) =>
      schemas.frame(id, { order_id: BigInt(order_id), at: BigInt(at), items }),
  };
  for (const format of ['json', 'avro'] as const) {
    await admin.createTopics([{ topic: topicOf(format), partitions: PARTITIONS }]);
    const rows = orders.map((order) => ({ partition: order.partition, value: values[format](order) }));
    expect((await producer.produce(batchOf(rows, 8 << 20), [topicOf(format)])).failed).toBe(0);
  }
});
afterAll(async () => {
  await producer?.close();
  await pool?.close();
  await admin?.close();
});

const args = (name: string, topic: string, ...more: readonly string[]): readonly string[] =>
  withDefaults(
    [
      ...[`-brokers=${stack.brokers}`, `-topic=${topic}`, '-size=2s', '-allowed-skew=1s'],
      ...['-allowed-lateness=1s', '-idle-timeout=0', `-state-dir=${join(own.dir, name)}`],
      ...['-key=items[].sku', '-aggregate=count as n,sum(items[].qty),last(items[].qty) as latest'],
    ],
    more,
  );
const formatArgs = {
  json: ['-format=json', '-key=items[].sku:string', '-time=at:ms'],
  avro: [`-registry=${registry}`, '-time=at'],
} as const;

describe('a job over the elements of a list', () => {
  it.each(['json', 'avro'] as const)(
    'results of %s through SIGKILL are those of a fold over the items, and verify agrees',
    async (format) => {
      const flags = args(format, topicOf(format), ...formatArgs[format], '-quarantine=off');
      await runThroughKill(own, flags);
      const { code, stdout, stderr } = await runEngine(own, [
        ...['export', `-brokers=${stack.brokers}`, `-state-dir=${join(own.dir, format)}`],
      ]);
      expect(code, stderr).toBe(0);
      const [header, ...lines] = stdout.trimEnd().split('\n');
      expect(header).toBe('sku,window_start,window_end,n,sum_items_qty,latest,last_update_ts,overflow');
      const rows = lines.map((line) => {
        const [sku, start, , count, sum] = line.split(',');
        return `${sku},${start},${count},${sum === '' ? 0 : sum}`;
      });
      expect(rows.sort()).toEqual(expectedRows());
      const same = await runEngine(own, ['verify', ...flags, '-bounded', '-json']);
      expect(same, `${same.stdout} ${same.stderr}`).toMatchObject({ code: 0 });
      expect(JSON.parse(same.stdout)).toMatchObject({
        equal: true,
        read: orders.length,
        empty: orders.filter(({ items }) => items.length === 0).length,
      });
    },
  );

  it('PostgreSQL has the results and the late elements, and the late topic one copy of each record', async () => {
    const late = topicOf('late');
    const flags = args(
      ...(['postgres', topicOf('json'), ...formatArgs.json] as const),
      ...[
        `-sink=postgres:${stack.postgres}`,
        `-sink-table=${table}`,
        '-migrate',
        `-late-topic=${late}`,
        '-bounded',
      ],
      '-json',
    );
    const run = await runEngine(own, flags);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    const summary = JSON.parse(run.stdout);
    expect(summary.droppedLate).toBeGreaterThan(50);
    expect(summary.empty).toBe(orders.filter(({ items }) => items.length === 0).length);
    const { rows } = await pool.query<{ readonly n: bigint; readonly places: bigint }>(
      `SELECT count(*) AS n, count(DISTINCT (source_partition, source_offset)) AS places FROM ${table}_late`,
    );
    expect(Number(rows[0]?.n)).toBe(summary.droppedLate);
    const sums = await pool.query<{ readonly n: bigint }>(`SELECT sum(n) AS n FROM ${table}`);
    expect(Number(sums.rows[0]?.n)).toBe(summary.accepted);
    await pool.query(`ALTER TABLE ${table}_late DROP COLUMN source_element`);
    const other = await runEngine(own, flags);
    expect(other).toMatchObject({ code: 2, stderr: expect.stringContaining('has no source_element') });
    const copies = await recordsOf(late, Number(rows[0]?.places));
    const named = copies.flatMap(({ elements }) => elements.split(','));
    expect(named.length).toBe(summary.droppedLate);
  });

  it('a savepoint in the middle of a job over a list continues it, with early results that final ones replace', async () => {
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}_saved`, '-quarantine=off'];
    const flags = (state: string, ...more: readonly string[]): readonly string[] =>
      args(state, topicOf('json'), ...formatArgs.json, ...sink, '-checkpoint-interval=20ms', ...more);
    const early = ['-emit=updates', '-emit-interval=100ms', '-batch-rows=300'];
    const first = await runEngine(own, flags('before', ...early, '-migrate', '-chaos=kill-after=2500'));
    expect(first.signal, first.stderr).toBe('SIGKILL');
    const out = join(own.dir, 'saved-list');
    const saved = await runEngine(own, ['savepoint', `-state-dir=${join(own.dir, 'before')}`, `-out=${out}`]);
    expect(saved, saved.stderr).toMatchObject({ code: 0 });
    const begin = flags('after', ...early, `-savepoint=${out}`);
    const killed = await runEngine(own, [...begin, '-chaos=kill-after=3000']);
    expect(killed.signal, killed.stderr).toBe('SIGKILL');
    expect(await runEngine(own, [...begin, '-exit-at-end'])).toMatchObject({ code: 0 });
    const rows = async (isFinal: boolean): Promise<readonly string[]> => {
      const { rows: found } = await pool.query<{ readonly text: string }>(
        `SELECT sku || ',' || (extract(epoch FROM window_start) * 1000)::int8 || ',' || n || ',' || coalesce(sum_items_qty, 0) AS text
         FROM ${table}_saved WHERE final = ${isFinal}`,
      );
      return found.map(({ text }) => text).sort();
    };
    // No later event changes the windows that are open at the end.
    const open = await rows(false);
    const fired = await rows(true);
    expect(open.length).toBeGreaterThan(0);
    expect(fired.length).toBeGreaterThan(100);
    expect([...fired, ...open].sort()).toEqual(expectedRows());
  });

  it('a running engine has the number of records without an element', async () => {
    const flags = args('running', topicOf('json'), ...formatArgs.json, '-quarantine=off');
    const one = startEngine(own, flags);
    const address = await one.ready();
    const wanted = orders.reduce((sum, { items }) => sum + items.length, 0);
    await until('the events', async () => ((await consumedAt(address)) === wanted ? true : undefined));
    const page = await pageOf(address);
    const empty = orders.filter(({ items }) => items.length === 0).length;
    expect(page.get('engine_empty_records_total')).toBe(empty);
    await one.drain();
  });

  it('a record with an invalid element is quarantined once, and none of its elements is counted', async () => {
    const topic = topicOf('invalid');
    await admin.createTopics([{ topic, partitions: 1 }]);
    const values = [
      { at: T0, items: [{ sku: 'a', qty: 1 }] },
      { at: T0, items: [{ sku: 'a', qty: 2 }, { sku: 7, qty: 3 }, { qty: 4 }] },
      { at: T0, items: 'none' },
    ];
    const rows = values.map((value) => ({ partition: 0, value: Buffer.from(JSON.stringify(value)) }));
    expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
    const flags = args('invalid', topic, ...formatArgs.json, '-bounded', '-json');
    const run = await runEngine(own, flags);
    expect(run, run.stderr).toMatchObject({ code: 0 });
    expect(JSON.parse(run.stdout)).toMatchObject({
      ...{ consumed: 3, accepted: 1, invalid: 2 },
      invalidRecords: { reasons: { bad_key: 1, bad_list: 1 } },
    });
    const kept = await recordsOf(`${topic}.quarantine`, 2);
    expect(kept.map(({ offset }) => offset)).toEqual(['1', '2']);
    expect(kept.map(({ value }) => value)).toEqual(values.slice(1).map((value) => JSON.stringify(value)));
  });

  it('each mistake in a path is one error', async () => {
    for (const [more, text] of [
      [['-dedup=tags[].x'], 'an event is an element of one list'],
      [['-time=items.at:ms'], 'names items as a record'],
      [['-aggregate=sum(items[].parts[].n)'], 'names the elements of a list inside a list'],
      [['-where=items[].parts[].n > 1'], 'names the elements of a list inside a list'],
      [['-format=binary256'], 'has no meaning for events of the fixed layout'],
    ] as const) {
      const refused = await runEngine(
        own,
        args('none', topicOf('json'), ...withDefaults(formatArgs.json, more)),
      );
      expect(refused.code, text).toBe(2);
      expect(refused.stderr).toContain(text);
    }
    const other = ['-format=json', '-key=order_id:i64', '-time=at:ms', '-quarantine=off', '-bounded'];
    const changed = await runEngine(own, args('json', topicOf('json'), ...other));
    expect(changed.code).toBe(2);
    expect(changed.stderr).toContain('-key was items[].sku:string, is order_id:i64');
  });
});

/** Copy of a record in a side output. */
interface Copy {
  readonly value: string;
  /** Late elements, with commas. */
  readonly elements: string;
  /** Offset of the record that is quarantined. */
  readonly offset: string;
}

async function recordsOf(topic: string, count: number): Promise<readonly Copy[]> {
  const consumer = await nodeRdkafkaDriver.consumer({
    ...{
      brokers: stack.brokers,
      clientId: 'engine-lists-copies',
      autoOffsetReset: 'error',
      partitionEof: true,
    },
  });
  const copies: Copy[] = [];
  try {
    const [found] = (await admin.listTopics()).filter((one) => one.topic === topic);
    await consumer.assign(
      (found?.partitions ?? []).map((_, partition) => ({ topic, partition, offset: 0n })),
    );
    const batch = RecordBatch.create(4096, 8 << 20);
    while (copies.length < count) {
      batch.clear();
      await consumer.consume(batch, 1000);
      for (let row = 0; row < batch.rowCount; row++) {
        const headers = new Map(batch.headers(row));
        const text = (name: string): string => String(Buffer.from(headers.get(name) ?? []));
        copies.push({
          value: String(Buffer.from(batch.value(row) ?? [])),
          elements: text('millrace.source_elements'),
          offset: text(QUARANTINE_HEADER.sourceOffset),
        });
      }
    }
  } finally {
    await consumer.close();
  }
  return copies;
}
