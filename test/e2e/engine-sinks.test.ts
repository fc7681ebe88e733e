/** The sinks on real servers and on disk: the common contract, and the specific behaviour of each
 *  sink. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { openBroker, openKv, openSql } from '../../src/drivers.ts';
import { type ResultColumn, type ResultShape, resultShape } from '../../src/engine/output/columns.ts';
import { FIRED_FAMILIES, FiredStore } from '../../src/engine/output/fired/store.ts';
import { ParquetSink } from '../../src/engine/output/parquet/sink.ts';
import { KafkaSink, SCRATCH_FAMILIES } from '../../src/engine/output/sink/kafka.ts';
import type { WindowSink } from '../../src/engine/output/sink/port.ts';
import { PostgresSink } from '../../src/engine/output/sink/postgres.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { existingDisk, openDisk } from '../../src/io/disk/node.ts';
import { type BrokerDriver, OFFSET_BEGINNING } from '../../src/io/kafka/port.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { type KvDriver, type KvStore, kvError } from '../../src/io/rocksdb/port.ts';
import { manyRows, pageOf, resultText, windowBounds } from '../contract/fired-kit.ts';
import { type OpenSink, sinkContract } from '../contract/window-sink.contract.ts';
import { gateBefore } from '../fixtures/gate.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';

const { suffix } = launcher();
const stack = await sharedStack();
const root = mkdtempSync(join(tmpdir(), 'sinks-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));
const MIB = 1024 * 1024;
const SHAPE = { kind: 'windows', sizeMs: 1000, slideMs: 1000 } as const;

/** Wraps a store so that its writes fail while `isAway` returns true. */
function failing(store: KvStore, isAway: () => boolean): KvStore {
  const check = async (): Promise<void> => {
    if (isAway()) throw kvError('kv_io', 'the disk is away');
  };
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      const call = (...args: readonly unknown[]): unknown => Reflect.apply(value, target, args);
      return name === 'put' ? (...args: readonly unknown[]) => check().then(() => call(...args)) : call;
    },
  });
}

for (const native of ['on', 'off'] as const) {
  const driver: KvDriver = await openKv(native);
  const folder = (place: string): string => join(root, `${driver.name}-${place}`);
  sinkContract({
    name: `rocksdb over ${driver.name}`,
    async open(place) {
      let away = false;
      const options = { budgetBytes: 16 * MIB, families: FIRED_FAMILIES };
      const store = await driver.open(folder(place), options);
      const sink = await FiredStore.open(
        failing(store, () => away),
        { shape: SHAPE, role: 'sink' },
      );
      return {
        sink,
        away: async () => {
          away = true;
        },
        back: async () => {
          away = false;
        },
        close: () => store.close(),
      };
    },
    child: (place) => ({ kind: 'rocksdb', folder: folder(place), native }),
  });
}

async function pooled(url: string): Promise<SqlPool> {
  const driver = await openSql();
  return driver.connect({ url, connectionsMax: 2, applicationName: 'sinks', connectTimeoutMs: 60_000 });
}

const tableOf = (place: string): string => `sink_${place}_${suffix}`;
const tables: string[] = [];

/** Integer keys that are fields, without a sign. */
const TYPED_KEY = 'user_id:u64';
const TYPED = resultShape({ input: { format: 'json', key: TYPED_KEY } });

async function openPostgres(
  place: string,
  shape: ResultShape = resultShape({}),
): Promise<OpenSink & { readonly pool: SqlPool }> {
  const gate = await gateBefore(stack.postgres);
  const pool = await pooled(gate.url);
  const sink = new PostgresSink(pool, tableOf(place), { shape });
  await sink.migrate();
  tables.push(tableOf(place));
  return {
    sink,
    pool,
    away: async () => {
      gate.close();
    },
    back: async () => gate.open(),
    close: () => pool.close(),
  };
}
sinkContract({
  name: 'postgres with typed columns',
  open: (place) => openPostgres(`typed_${place}`, TYPED),
  child: (place) => ({
    ...{ kind: 'postgres', url: stack.postgres, table: tableOf(`typed_${place}`), key: TYPED_KEY },
  }),
});
sinkContract({
  name: 'postgres',
  open: (place) => openPostgres(place),
  child: (place) => ({ kind: 'postgres', url: stack.postgres, table: tableOf(place) }),
});
afterAll(async () => {
  const pool = await pooled(stack.postgres);
  for (const table of new Set(tables)) {
    await pool.query(`DROP TABLE IF EXISTS ${table} CASCADE`);
  }
  await pool.close();
});

/** Wraps a driver so that its producers fail while `isAway` returns true. */
function unreachable(driver: BrokerDriver, isAway: () => boolean): BrokerDriver {
  const check = (): void => {
    if (isAway()) throw coreError('unreachable', 'no broker answers');
  };
  return {
    name: driver.name,
    consumer: (options) => driver.consumer(options),
    transactional: (options) => driver.transactional(options),
    admin: (options) => driver.admin(options),
    producer: async (options) => {
      check();
      const producer = await driver.producer(options);
      return {
        produce: async (batch, topics) => {
          check();
          return producer.produce(batch, topics);
        },
        queuedBytes: () => producer.queuedBytes(),
        flush: (ms) => producer.flush(ms),
        close: (ms) => producer.close(ms),
      };
    },
  };
}

let scratchCount = 0;
const topicOf = (place: string): string => `sink-${place}-${suffix}`;

async function kafkaSink(topic: string, isAway: () => boolean = () => false): Promise<KafkaSink> {
  const kv = await openKv();
  return new KafkaSink({
    driver: unreachable(await openBroker(), isAway),
    brokers: stack.brokers,
    topic,
    partitions: 3,
    replicationFactor: 1,
    scratch: async () => {
      const folder = join(root, `scratch-${scratchCount++}`);
      mkdirSync(folder);
      const store = await kv.open(join(folder, 'store'), {
        budgetBytes: 16 * MIB,
        families: SCRATCH_FAMILIES,
      });
      return {
        store,
        done: async () => {
          await store.close();
          rmSync(folder, { recursive: true });
        },
      };
    },
  });
}
sinkContract({
  name: 'kafka',
  async open(place) {
    let away = false;
    const sink = await kafkaSink(topicOf(place), () => away);
    await sink.migrate();
    return {
      sink,
      away: async () => {
        away = true;
      },
      back: async () => {
        away = false;
      },
      close: () => sink.close(),
    };
  },
  child: (place) => ({ kind: 'kafka', brokers: stack.brokers, topic: topicOf(place) }),
});

/** The sink, where every write is also the end of its firings, as for firings of one write. */
class EndingSink implements WindowSink {
  readonly name = 'parquet';
  readonly writeRowsMax: number;
  private readonly sink: ParquetSink;
  private readonly isAway: () => boolean;

  constructor(sink: ParquetSink, isAway: () => boolean) {
    this.sink = sink;
    this.isAway = isAway;
    this.writeRowsMax = sink.writeRowsMax;
  }
  migrate(): Promise<void> {
    return this.sink.migrate();
  }
  check(): Promise<void> {
    return this.sink.check();
  }
  async write(pages: readonly FiredPage[]): Promise<void> {
    if (this.isAway()) throw coreError('unreachable', 'the disk is away');
    await this.sink.write(pages);
    await this.sink.finish(pages.map(({ bounds }) => bounds));
  }
  read(): ReturnType<WindowSink['read']> {
    return this.sink.read();
  }
}
const parquetFolder = (place: string): string => join(root, `parquet-${place}`);
sinkContract({
  name: 'parquet',
  replaces: 'windows',
  async open(place) {
    let away = false;
    const folder = parquetFolder(place);
    const sink = new ParquetSink({
      folder,
      open: (missing) => (missing === 'make' ? openDisk(folder) : existingDisk(folder)),
      job: { topic: 'events', windows: SHAPE },
    });
    await sink.bind(undefined, resultShape({}));
    await sink.migrate();
    return {
      sink: new EndingSink(sink, () => away),
      whole: sink,
      away: async () => {
        away = true;
      },
      back: async () => {
        away = false;
      },
      close: async () => {},
    };
  },
  child: (place) => ({ kind: 'parquet', folder: parquetFolder(place) }),
});

describe('PostgreSQL sink', () => {
  it('a further aggregate is a column that -migrate adds, and the view has the latest window of a key', async () => {
    const { sink, pool, close } = await openPostgres('evolved', TYPED);
    await sink.write([pageOf(windowBounds(0, 10), [{ accountId: 1n }, { accountId: 2n }])]);
    const avg: ResultColumn = {
      ...{ name: 'avg', role: 'aggregate', type: 'f64', nullable: true, read: () => 1.5 },
    };
    const columns = [...TYPED.columns.slice(0, 4), avg, ...TYPED.columns.slice(4)];
    // A later run has connections of its own.
    const laterPool = await pooled(stack.postgres);
    const later = new PostgresSink(laterPool, tableOf('evolved'), { shape: { ...TYPED, columns } });
    await expect(later.check()).rejects.toMatchObject({
      code: 'sink_missing',
      message: expect.stringContaining('has no columns avg'),
      next: expect.stringContaining('-migrate'),
    });
    await later.migrate();
    await later.migrate();
    await later.check();
    await later.write([pageOf(windowBounds(10, 20), [{ accountId: 2n }])]);
    const { rows } = await pool.query(
      `SELECT user_id, window_start, avg FROM ${tableOf('evolved')}_latest ORDER BY user_id`,
    );
    expect(rows).toEqual([
      { user_id: '1', window_start: new Date(0), avg: null },
      { user_id: '2', window_start: new Date(10), avg: 1.5 },
    ]);
    await laterPool.close();
    await close();
  });

  it('a window before the first time of timestamptz is left out with a warning', async () => {
    const lines: unknown[] = [];
    const { pool, close } = await openPostgres('ancient', TYPED);
    const sink = new PostgresSink(pool, tableOf('ancient'), {
      shape: TYPED,
      log: { warn: (...line: readonly unknown[]) => void lines.push(line) },
    });
    const ancient = -(2 ** 52);
    await sink.write([
      pageOf(windowBounds(ancient, ancient + 10), [{ accountId: 1n, last: BigInt(ancient) }]),
      pageOf(windowBounds(2 ** 52, 2 ** 52 + 10), [{ accountId: 2n, last: BigInt(2 ** 52) }]),
    ]);
    const rows: string[] = [];
    for await (const page of sink.read()) rows.push(...page.map(resultText));
    expect(rows.map((row) => row.split(',').slice(0, 2))).toEqual([['2', String(2 ** 52)]]);
    expect(lines).toHaveLength(1);
    await close();
  });

  it('a PostgreSQL sink reports a missing table, and concurrent migrations create it', async () => {
    const pool = await pooled(stack.postgres);
    const sink = new PostgresSink(pool, tableOf('made'));
    tables.push(tableOf('made'));
    await expect(sink.check()).rejects.toMatchObject({
      code: 'sink_missing',
      next: expect.stringContaining('-migrate'),
    });
    await Promise.all([sink.migrate(), sink.migrate(), sink.migrate()]);
    await sink.check();
    await pool.close();
  });

  it('a PostgreSQL sink leaves no time limit that outlives its write', async () => {
    const driver = await openSql();
    const pool = await driver.connect({
      url: stack.postgres,
      connectionsMax: 1,
      applicationName: 'sinks',
      connectTimeoutMs: 60_000,
      answerTimeoutMs: 600_000,
    });
    const sink = new PostgresSink(pool, tableOf('limits'));
    tables.push(tableOf('limits'));
    await sink.migrate();
    const timers = (): number =>
      process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
    const page = pageOf(windowBounds(0, 10), [{ accountId: 7n }]);
    await sink.write([page]);
    const before = timers();
    for (let turn = 0; turn < 20; turn++) await sink.write([page]);
    expect(timers()).toBeLessThan(before + 10);
    await pool.close();
  });

  it('a PostgreSQL sink leaves a repeated row unchanged, and shows keys as unsigned numbers', async () => {
    const { sink, pool, close } = await openPostgres('again');
    const big = 1n << 63n;
    const page = pageOf(windowBounds(0, 10), [{ accountId: 7n }, { accountId: big }]);
    await sink.write([page]);
    const table = tableOf('again');
    const versions = async () =>
      (await pool.query(`SELECT account_id, xmin::text AS version FROM ${table} ORDER BY 1`)).rows;
    const before = await versions();
    await sink.write([page]);
    expect(await versions()).toEqual(before);
    await sink.write([pageOf(windowBounds(0, 10), [{ accountId: 7n, count: 2n }])]);
    expect(await versions()).not.toEqual(before);
    const { rows } = await pool.query(
      `SELECT account_id::text AS id FROM ${table}_unsigned ORDER BY account_id DESC LIMIT 1`,
    );
    expect(rows).toEqual([{ id: String(big) }]);
    await close();
  });
});

describe('Kafka sink', () => {
  it('a Kafka sink reports a topic that is missing or not compacted', async () => {
    const missing = await kafkaSink(topicOf('missing'));
    await expect(missing.check()).rejects.toMatchObject({ code: 'sink_missing' });
    const driver = await openBroker();
    const admin = await driver.admin({ brokers: stack.brokers, clientId: 'sinks', connectTimeoutMs: 60_000 });
    const topic = topicOf('plain');
    await admin.createTopics([{ topic, partitions: 1, config: { 'cleanup.policy': 'delete' } }]);
    await admin.close();
    const plain = await kafkaSink(topic);
    await expect(plain.check()).rejects.toThrow(/its cleanup.policy is delete/);
  });

  it('a Kafka sink writes the documented bytes into a compacted topic', async () => {
    const topic = topicOf('bytes');
    const sink = await kafkaSink(topic);
    await sink.migrate();
    const sum = -(1n << 63n) - 1n;
    const row = { accountId: (1n << 64n) - 2n, count: 3n, sum, min: -9n, max: 8n, last: -101n };
    await sink.write([pageOf(windowBounds(-200, -100), [row])]);
    await sink.close();
    const driver = await openBroker();
    const admin = await driver.admin({ brokers: stack.brokers, clientId: 'sinks', connectTimeoutMs: 60_000 });
    expect((await admin.describeTopic(topic))?.config?.get('cleanup.policy')).toBe('compact');
    await admin.close();
    const consumer = await driver.consumer({
      brokers: stack.brokers,
      clientId: 'sinks',
      connectTimeoutMs: 60_000,
    });
    await consumer.assign([0, 1, 2].map((partition) => ({ topic, partition, offset: OFFSET_BEGINNING })));
    const batch = RecordBatch.create(10, 4096);
    for (let tries = 0; batch.rowCount === 0 && tries < 300; tries++) await consumer.consume(batch, 200);
    const hex = (bytes: Uint8Array | null): string => Buffer.from(bytes ?? []).toString('hex');
    expect(hex(batch.key(0))).toBe('fffffffffffffffe' + 'ffffffffffffff38' + 'ffffffffffffff9c');
    expect(hex(batch.value(0))).toBe(
      [
        '01',
        '01',
        '0000000000000003',
        '7fffffffffffffff',
        'fffffffffffffff7',
        '0000000000000008',
        'ffffffffffffff9b',
      ].join(''),
    );
    await consumer.close();
  });

  it('a Kafka sink reads a key without a value as deleted, and refuses foreign records', async () => {
    const topic = topicOf('foreign');
    const sink = await kafkaSink(topic);
    await sink.migrate();
    const page = pageOf(windowBounds(0, 10), [{ accountId: 1n }, { accountId: 2n }]);
    await sink.write([page]);
    const driver = await openBroker();
    const producer = await driver.producer({
      brokers: stack.brokers,
      clientId: 'sinks',
      connectTimeoutMs: 60_000,
    });
    const send = async (key: Uint8Array, value: Uint8Array | null): Promise<void> => {
      const batch = RecordBatch.create(1, 4096);
      batch.append({ key, value });
      expect((await producer.produce(batch, [topic])).failed).toBe(0);
    };
    const key = new Uint8Array(24);
    const view = new DataView(key.buffer);
    view.setBigUint64(0, 1n);
    view.setBigInt64(16, 10n);
    await send(key, null);
    const read = async (): Promise<string[]> => {
      const rows: string[] = [];
      for await (const some of sink.read()) rows.push(...some.map(resultText));
      return rows;
    };
    expect((await read()).map((row) => row.split(',')[0])).toEqual(['2']);
    await send(new Uint8Array([1, 2, 3]), new Uint8Array(42));
    await expect(read()).rejects.toMatchObject({ code: 'sink_foreign' });
    await producer.close();
    await sink.close();
  });

  it('a Kafka sink is read in the order of the keys', async () => {
    const sink = await kafkaSink(topicOf('order'));
    await sink.migrate();
    const rows = manyRows(500);
    await sink.write([
      { bounds: windowBounds(0, 10), rows, rowCount: 500 },
      { bounds: windowBounds(-10, 0), rows, rowCount: 500 },
    ]);
    const keys: (readonly [bigint, number])[] = [];
    for await (const some of sink.read())
      keys.push(...some.map((r) => [r.accountId, r.windowStart] as const));
    const ascending = [...keys].sort(([a, s], [b, t]) => (a < b ? -1 : a > b ? 1 : s - t));
    expect(keys).toHaveLength(1000);
    expect(keys).toEqual(ascending);
    await sink.close();
  });
});
