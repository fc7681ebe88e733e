/** The Parquet sink on a simulated disk: whole files, each row once, through crashes and full
 *  disks. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import type { ResultShape } from '../../../../src/engine/output/columns.ts';
import { resultShape } from '../../../../src/engine/output/columns.ts';
import type { FiredShape } from '../../../../src/engine/output/fired/mark.ts';
import { ParquetEncoder, readParquet } from '../../../../src/engine/output/parquet/file.ts';
import { ParquetSink } from '../../../../src/engine/output/parquet/sink.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import type { FiredPage } from '../../../../src/engine/window/firing.ts';
import { SimDisk } from '../../../../src/sim/disk.ts';
import {
  manyRows,
  pageOf,
  resultText,
  sessionBounds,
  textsOf,
  windowBounds,
} from '../../../contract/fired-kit.ts';

const FIXED = resultShape({});
const TUMBLING: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };
const SESSIONS: FiredShape = { kind: 'sessions', gapMs: 30 };

async function sinkOn(
  disk: SimDisk,
  {
    windows = TUMBLING,
    shape = FIXED,
    topic = 'events',
  }: { windows?: FiredShape; shape?: ResultShape; topic?: string } = {},
  view = disk.view(),
): Promise<ParquetSink> {
  const sink = new ParquetSink({
    folder: 'results',
    open: async () => view,
    job: { topic, windows },
  });
  await sink.bind(shape.keyType, shape);
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

const files = (disk: SimDisk): readonly string[] => disk.names().filter((name) => name.endsWith('.parquet'));
const sorted = (...pages: readonly FiredPage[]): string[] => textsOf(pages).sort();
const first = pageOf(windowBounds(-10, 0), [
  { accountId: 1n, sum: -(1n << 64n) },
  { accountId: (1n << 64n) - 1n, count: 7n, min: -(1n << 63n), max: (1n << 63n) - 1n, last: -1n },
]);
const second = pageOf(windowBounds(0, 10), [{ accountId: 2n, last: 5n }]);

describe('decimals in Parquet', () => {
  it('decimals are read back exactly, also those that a double cannot hold', async () => {
    const aggregate = 'sum(p:decimal2),avg(p:decimal2),min(p:decimal0),count(p:decimal2),last(p:decimal18)';
    const shape = resultShape({ input: { format: 'json', key: 'k:i64', aggregate } });
    const rows = [
      ['850705917302346158658436518579420528.64', '-0.00000001', '-9223372036854775808', 3n, null],
      ['0.00', null, '7', 0n, '-9.223372036854775808'],
      ['-0.01', '90071992547409.93000001', '0', 1n, '0.000000000000000001'],
    ].map(
      (aggregates, at): WindowResult => ({
        ...{ accountId: BigInt(at), windowStart: 0, windowEnd: 10, count: 0n, sum: 0n, min: 0n, max: 0n },
        ...{ lastUpdateTs: 5n, overflow: false, aggregates },
      }),
    );
    const encoder = new ParquetEncoder(shape.columns);
    const disk = new SimDisk().view();
    await disk.write('a.parquet', [encoder.rowGroup(rows), encoder.rowGroup(rows.slice(1)), encoder.end()]);
    const read: WindowResult[] = [];
    for await (const page of readParquet(disk, 'a.parquet', shape)) read.push(...page);
    expect(read.map(({ aggregates }) => aggregates)).toEqual(
      [...rows, ...rows.slice(1)].map(({ aggregates }) => aggregates),
    );
  });
});

describe('Parquet sink', () => {
  it('a window is one file, which appears when its firing has ended', async () => {
    const disk = new SimDisk();
    const sink = await sinkOn(disk);
    await sink.write([first, second]);
    expect(files(disk)).toEqual([]);
    await sink.finish([first.bounds]);
    expect(files(disk)).toEqual(['windows_-10_0.parquet']);
    expect(await rowsOn(disk)).toEqual(sorted(first));
    await sink.finish([second.bounds]);
    expect(files(disk)).toEqual(['windows_-10_0.parquet', 'windows_0_10.parquet']);
    expect(await rowsOn(disk)).toEqual(sorted(first, second));
  });

  it('a window that fires again replaces its file, also with fewer rows', async () => {
    const disk = new SimDisk();
    for (const page of [first, first, second, pageOf(first.bounds, [{ accountId: 1n, count: 9n }])]) {
      const sink = await sinkOn(disk);
      await sink.write([page]);
      await sink.finish([page.bounds]);
    }
    expect(await rowsOn(disk)).toEqual(sorted(second, pageOf(first.bounds, [{ accountId: 1n, count: 9n }])));
  });

  it('a window larger than the memory that it may have leaves one whole file', async () => {
    const disk = new SimDisk();
    const sink = await sinkOn(disk);
    const rows = manyRows(160_000);
    const bounds = windowBounds(0, 10);
    for (let from = 0; from < 160_000; from += 40_000)
      await sink.write([{ bounds, rows: rows.slice(from * 64, (from + 40_000) * 64), rowCount: 40_000 }]);
    expect(disk.names().some((name) => name.endsWith('.unfinished'))).toBe(true);
    expect(await rowsOn(disk)).toEqual([]);
    await sink.finish([bounds]);
    expect(disk.names().some((name) => name.endsWith('.unfinished'))).toBe(false);
    expect(await rowsOn(disk)).toEqual(sorted({ bounds, rows, rowCount: 160_000 }));
  });

  it('a crash at any change of the disk leaves whole files, and the next run each row once', async () => {
    for (let changes = 0; changes < 24; changes++) {
      const disk = new SimDisk();
      const before = await sinkOn(disk);
      await before.write([first]);
      await before.finish([first.bounds]);
      disk.changesLeft = changes;
      const written = async (sink: ParquetSink): Promise<void> => {
        await sink.write([first, second]);
        await sink.finish([first.bounds, second.bounds]);
      };
      const outcome = await written(before).catch(() => 'crashed');
      disk.crash((below) => changes % below);
      disk.changesLeft = Number.POSITIVE_INFINITY;
      const left = await rowsOn(disk);
      expect([sorted(first), sorted(first, second)]).toContainEqual(left);
      if (outcome === undefined) expect(left).toEqual(sorted(first, second));
      await written(await sinkOn(disk));
      expect(await rowsOn(disk)).toEqual(sorted(first, second));
      expect(disk.names().filter((name) => /unfinished|tmp/.test(name))).toEqual([]);
    }
  });

  it('a full disk is an unavailable sink, and repeated attempts write each row once', async () => {
    const disk = new SimDisk();
    const sink = await sinkOn(disk);
    const rows = manyRows(160_000);
    const bounds = windowBounds(0, 10);
    disk.bytesLeft = 1_000_000;
    const pages = [{ bounds, rows, rowCount: 160_000 }];
    for (let tries = 0; tries < 3; tries++)
      await expect(sink.write(pages)).rejects.toMatchObject({ code: 'sink_failed', kind: 'unavailable' });
    disk.bytesLeft = 20_000_000;
    await sink.write(pages);
    disk.bytesLeft = 0;
    for (let tries = 0; tries < 3; tries++)
      await expect(sink.finish([bounds])).rejects.toMatchObject({ code: 'sink_failed' });
    disk.bytesLeft = 20_000_000;
    await sink.finish([bounds]);
    expect(await rowsOn(disk)).toEqual(sorted({ bounds, rows, rowCount: 160_000 }));
  });

  it.each([500, 120_000])(
    'a window of %i rows whose rename fails is whole after the next attempt',
    async (rowCount) => {
      const disk = new SimDisk();
      const view = disk.view();
      let isFailing = false;
      const rename: typeof view.rename = async (from, to) => {
        if (isFailing) throw coreError('not_writable', `cannot write ${to}: the server does not answer`);
        await view.rename(from, to);
      };
      const sink = await sinkOn(disk, {}, { ...view, rename });
      const bounds = windowBounds(0, 10);
      const page = { bounds, rows: manyRows(rowCount), rowCount };
      await sink.write([page]);
      isFailing = true;
      for (let tries = 0; tries < 2; tries++)
        await expect(sink.finish([bounds])).rejects.toMatchObject({ code: 'sink_failed' });
      expect(await rowsOn(disk)).toEqual([]);
      isFailing = false;
      await sink.finish([bounds]);
      expect(await rowsOn(disk)).toEqual(sorted(page));
    },
  );

  it('sessions that end in one minute share a file, through firings in other groups', async () => {
    const disk = new SimDisk();
    const bounds = sessionBounds(30);
    const row = (accountId: bigint, start: bigint, last: bigint) => ({ accountId, start, last });
    const all = [row(1n, -50n, -40n), row(1n, 0n, 5n), row(2n, 0n, 7n), row(1n, 59_000n, 59_990n)];
    for (const groups of [[all.slice(0, 2), all.slice(2)], [all], [all.slice(0, 1), all.slice(1)]]) {
      const sink = await sinkOn(disk, { windows: SESSIONS });
      for (const group of groups) {
        await sink.write([pageOf(bounds, group)]);
        await sink.finish([bounds]);
      }
      expect(await rowsOn(disk)).toEqual(sorted(pageOf(bounds, all)));
    }
    expect(files(disk)).toEqual([
      ...['sessions_-60000_0.parquet', 'sessions_0_60000.parquet', 'sessions_60000_120000.parquet'],
    ]);
  });

  it('the folder of another job, or without a description, is refused', async () => {
    const disk = new SimDisk();
    await sinkOn(disk);
    for (const [over, text] of [
      [{ topic: 'other' }, /the topic was events, is other/],
      [{ windows: SESSIONS }, /the windows was tumbling/],
      [
        { shape: resultShape({ input: { format: 'json', key: 'country:string' } }) },
        /the key was account_id:u64/,
      ],
    ] as const)
      await expect(sinkOn(disk, over)).rejects.toMatchObject({
        code: 'job_changed',
        message: expect.stringMatching(text),
      });
    const sink = new ParquetSink({ folder: 'results', open: async () => new SimDisk().view() });
    await expect(sink.check()).rejects.toMatchObject({ code: 'sink_missing' });
    disk.put('_millrace.json', Buffer.from('{}'));
    await expect(sinkOn(disk)).rejects.toMatchObject({ code: 'sink_foreign' });
  });

  it('a file that is no Parquet file of results is named by an export', async () => {
    const disk = new SimDisk();
    await sinkOn(disk);
    disk.put('windows_0_10.parquet', Buffer.from('PAR1 garbage PAR1'));
    await expect(rowsOn(disk)).rejects.toMatchObject({
      code: 'sink_foreign',
      message: expect.stringContaining('windows_0_10.parquet'),
    });
  });
});
