/** Sinks of a job whose owner was paused: from the moment when another process has the lease, no
 *  step of the paused owner changes what readers of the sink see. */
import { describe, expect, it } from 'vitest';
import { OpenedStore } from '../../../../src/bin/engine/store/open.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { resultShape } from '../../../../src/engine/output/columns.ts';
import type { FiredShape } from '../../../../src/engine/output/fired/mark.ts';
import { ParquetSink } from '../../../../src/engine/output/parquet/sink.ts';
import { KafkaSink, type KafkaSinkParts } from '../../../../src/engine/output/sink/kafka.ts';
import type { ResultRecords } from '../../../../src/engine/output/sink/kafka-records.ts';
import type { SinkLease, WindowSink } from '../../../../src/engine/output/sink/port.ts';
import type { FiredPage } from '../../../../src/engine/window/firing.ts';
import type { Disk } from '../../../../src/io/disk/port.ts';
import type { BatchProducer, BrokerDriver } from '../../../../src/io/kafka/port.ts';
import { SimDisk } from '../../../../src/sim/disk.ts';
import {
  manyRows,
  pageOf,
  resultText,
  sessionBounds,
  textsOf,
  windowBounds,
} from '../../../contract/fired-kit.ts';
import { Takeover } from '../lease-kit.ts';

const SHAPE = resultShape({});
const TUMBLING: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };
const SESSIONS: FiredShape = { kind: 'sessions', gapMs: 30 };
const FENCED = { code: 'store_fenced' };

type Step = 'list' | 'read' | 'write' | 'edit' | 'append' | 'truncate' | 'sync' | 'remove';

/** Step of a disk at which its process is paused once, and events during the pause. */
interface Pause {
  at: Step | undefined;
  during: () => Promise<void>;
}

/** View of a disk whose process is paused before it lists or removes, and after all other steps. */
function pausing(disk: Disk, pause: Pause): Disk {
  const reach = async (step: Step): Promise<void> => {
    if (pause.at !== step) return;
    pause.at = undefined;
    await pause.during();
  };
  const before = async <T>(step: Step, run: () => Promise<T>): Promise<T> => reach(step).then(run);
  const after = async <T>(step: Step, run: () => Promise<T>): Promise<T> => {
    const result = await run();
    await reach(step);
    return result;
  };
  return {
    ...disk,
    list: () => before('list', () => disk.list()),
    remove: (name) => before('remove', () => disk.remove(name)),
    read: (name) => after('read', () => disk.read(name)),
    write: (name, chunks) => after('write', () => disk.write(name, chunks)),
    edit: async (name) => {
      const file = await after('edit', () => disk.edit(name));
      return {
        get size() {
          return file.size;
        },
        read: (into, at) => file.read(into, at),
        write: (bytes, at) => after('append', () => file.write(bytes, at)),
        truncate: (bytes) => after('truncate', () => file.truncate(bytes)),
        sync: (options) => after('sync', () => file.sync(options)),
        close: () => file.close(),
      };
    },
  };
}

async function sinkOn(disk: Disk, windows: FiredShape, lease: SinkLease): Promise<ParquetSink> {
  const job = { topic: 'events', windows };
  const sink = new ParquetSink({ folder: 'results', open: async () => disk, job, lease });
  await sink.bind(SHAPE.keyType, SHAPE);
  await sink.migrate();
  await sink.check();
  return sink;
}

async function rowsOn(disk: SimDisk): Promise<string[]> {
  const sink = new ParquetSink({ folder: 'results', open: async () => disk.view() });
  const rows: string[] = [];
  for await (const page of sink.read()) rows.push(...page.map(resultText));
  return rows.sort();
}

const sorted = (...pages: readonly FiredPage[]): string[] => textsOf(pages).sort();
const unfinished = (disk: SimDisk): string[] => disk.names().filter((name) => /unfinished|tmp/.test(name));
const fire = async (sink: WindowSink, page: FiredPage): Promise<void> => {
  await sink.write([page]);
  await sink.finish?.([page.bounds]);
};

describe('Parquet sink of a paused owner', () => {
  it.each(['read', 'write'] as const)(
    'a file of sessions that the successor replaced keeps all of its rows after a pause at the %s',
    async (step) => {
      const disk = new SimDisk();
      const takeover = new Takeover();
      const bounds = sessionBounds(30);
      const rows = [1n, 2n, 3n].map((accountId) => ({ accountId, start: 0n, last: 5n }));
      const pause: Pause = {
        at: undefined,
        during: async () => {
          const next = await sinkOn(disk.view(), SESSIONS, await takeover.second());
          await fire(next, pageOf(bounds, rows));
          await takeover.resume();
        },
      };
      const paused = await sinkOn(pausing(disk.view(), pause), SESSIONS, await takeover.first());
      await fire(paused, pageOf(bounds, rows.slice(0, 1)));
      pause.at = step;
      await expect(fire(paused, pageOf(bounds, rows.slice(1, 2)))).rejects.toMatchObject(FENCED);
      await expect(paused.finish([bounds])).rejects.toMatchObject(FENCED);
      expect(await rowsOn(disk)).toEqual(sorted(pageOf(bounds, rows)));
    },
  );

  it.each(['edit', 'append', 'truncate', 'sync'] as const)(
    'a window of the successor is not replaced after a pause at the %s of its file',
    async (step) => {
      const disk = new SimDisk();
      const takeover = new Takeover();
      const bounds = windowBounds(0, 10);
      const whole = pageOf(bounds, [{ accountId: 1n }, { accountId: 2n }]);
      const pause: Pause = {
        at: undefined,
        during: async () => {
          await fire(await sinkOn(disk.view(), TUMBLING, await takeover.second()), whole);
          await takeover.resume();
        },
      };
      const paused = await sinkOn(pausing(disk.view(), pause), TUMBLING, await takeover.first());
      pause.at = step;
      await expect(fire(paused, pageOf(bounds, [{ accountId: 1n }]))).rejects.toMatchObject(FENCED);
      await expect(paused.finish([bounds])).rejects.toMatchObject(FENCED);
      expect(await rowsOn(disk)).toEqual(sorted(whole));
    },
  );

  it('the unfinished file of the successor is neither written nor renamed by the owner before', async () => {
    const disk = new SimDisk();
    const takeover = new Takeover();
    const bounds = windowBounds(0, 10);
    const page = { bounds, rows: manyRows(120_000), rowCount: 120_000 };
    const paused = await sinkOn(disk.view(), TUMBLING, await takeover.first());
    await paused.write([page]);
    expect(unfinished(disk)).toEqual(['windows_0_10.parquet.e1.unfinished']);
    const next = await sinkOn(disk.view(), TUMBLING, await takeover.second());
    expect(unfinished(disk)).toEqual([]);
    await next.write([page]);
    await takeover.resume();
    await expect(paused.finish([bounds])).rejects.toMatchObject(FENCED);
    expect(unfinished(disk)).toContain('windows_0_10.parquet.e2.unfinished');
    expect(await rowsOn(disk)).toEqual([]);
    await next.finish([bounds]);
    expect(await rowsOn(disk)).toEqual(sorted(page));
  });

  it('an owner removes the unfinished files of ended runs, and those of later owners stay', async () => {
    const disk = new SimDisk();
    const takeover = new Takeover();
    const ended = [
      ...['windows_0_10.parquet.unfinished', 'sessions_0_60000.parquet.tmp'],
      ...['windows_0_10.parquet.e0.unfinished', 'sessions_0_60000.parquet.e0.unfinished.tmp'],
    ];
    for (const name of ended) disk.put(name, Buffer.from('unfinished'));
    const later = 'windows_10_20.parquet.e2.unfinished';
    const pause: Pause = {
      at: 'list',
      during: async () => {
        await takeover.second();
        disk.put(later, Buffer.from('unfinished'));
      },
    };
    await sinkOn(pausing(disk.view(), pause), TUMBLING, await takeover.first());
    expect(pause.at).toBeUndefined();
    expect(unfinished(disk)).toEqual([later]);
  });

  it('a description of the folder is not written after the lease has passed', async () => {
    const disk = new SimDisk();
    const takeover = new Takeover();
    const lease = await takeover.first();
    await takeover.second();
    await takeover.resume();
    await expect(sinkOn(disk.view(), TUMBLING, lease)).rejects.toMatchObject(FENCED);
    expect(disk.names()).not.toContain('_millrace.json');
  });
});

describe('Kafka sink of a paused owner', () => {
  const page = (rowCount: number): FiredPage => ({
    ...{ bounds: windowBounds(0, 10), rows: manyRows(rowCount), rowCount },
  });
  const parts = (lease: SinkLease, driver: Partial<BrokerDriver>): KafkaSinkParts => ({
    driver: driver as BrokerDriver,
    ...{ brokers: 'none', topic: 'results', partitions: 1, replicationFactor: 1, lease },
    scratch: () => Promise.reject(new Error('this test reads nothing')),
  });
  const producer = (produce: (batch: RecordBatch) => Promise<void>): BatchProducer =>
    ({
      produce: async (batch: RecordBatch) => {
        await produce(batch);
        return { failed: 0, events: [] };
      },
      close: async () => {},
    }) as unknown as BatchProducer;
  const records = {
    encode: () => ({ key: Buffer.from('key'), value: Buffer.from('value') }),
  } as unknown as ResultRecords;

  it.each([
    ['binary results', undefined, 70_000, 65_536],
    ['results of a registered schema', records, 5_000, 2_048],
  ])('no batch of %s is sent after the lease has passed', async (_what, form, rows, batch) => {
    const takeover = new Takeover();
    const sent: number[] = [];
    const client = producer(async ({ rowCount }) => {
      if (sent.push(rowCount) > 1) return;
      await takeover.second();
      await takeover.resume();
    });
    const lease = await takeover.first();
    const sink = new KafkaSink({
      ...parts(lease, { producer: async () => client }),
      ...(form === undefined ? {} : { records: form }),
    });
    await sink.bind(SHAPE.keyType, SHAPE);
    await expect(sink.write([page(rows)])).rejects.toMatchObject(FENCED);
    await expect(sink.write([page(1)])).rejects.toMatchObject(FENCED);
    expect(sent).toEqual([batch]);
  });

  it('no batch is sent if the lease passes while the client connects', async () => {
    const takeover = new Takeover();
    let sent = 0;
    const connect = async (): Promise<BatchProducer> => {
      await takeover.second();
      await takeover.resume();
      return producer(async () => {
        sent++;
      });
    };
    const sink = new KafkaSink(parts(await takeover.first(), { producer: connect }));
    await expect(sink.write([page(3)])).rejects.toMatchObject(FENCED);
    expect(sent).toBe(0);
  });
});

describe('guarded sinks', () => {
  it('no write and no end of a firing begins after the lease has passed', async () => {
    const takeover = new Takeover();
    const lease = await takeover.first();
    const steps: string[] = [];
    const sink: WindowSink = {
      ...{ name: 'steps', writeRowsMax: 1, migrate: async () => {}, check: async () => {} },
      write: async () => void steps.push('write'),
      finish: async () => void steps.push('finish'),
      read: async function* () {},
    };
    const store = new OpenedStore({} as never, {} as never, takeover.store, lease, undefined);
    const [guarded] = store.guard([sink]) as [WindowSink];
    await guarded.write([]);
    await guarded.finish?.([]);
    await takeover.second();
    await takeover.resume();
    await expect(guarded.write([])).rejects.toMatchObject(FENCED);
    await expect(guarded.finish?.([])).rejects.toMatchObject(FENCED);
    expect(steps).toEqual(['write', 'finish']);
  });
});
