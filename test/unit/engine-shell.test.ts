/** The parts of the engine that touch the world: sink writer, HTTP answers, the folder and its lock, restore checks. */
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { coreError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type { FiredWindow } from '../../src/engine/accumulator.ts';
import { engineRoutes } from '../../src/engine/api.ts';
import type { Engine } from '../../src/engine/engine.ts';
import type { Job } from '../../src/engine/job.ts';
import type { FiredRows, WindowSink } from '../../src/engine/sink/port.ts';
import { SINK_ROWS_MAX, SinkWriter } from '../../src/engine/sink/writer.ts';
import { openDisk } from '../../src/io/disk/node.ts';
import type { HttpRequest } from '../../src/io/http/port.ts';
import {
  engineIn,
  MemoryDisk,
  MemorySink,
  MemorySource,
  type TestEvent,
  tickingClock,
} from '../property/engine-kit.ts';

const window = (windowStart: number, rowCount: number): FiredWindow => ({
  windowStart,
  windowEnd: windowStart + 10,
  rowCount,
  rows: new ArrayBuffer(rowCount * 64),
});

class ScriptedSink implements WindowSink {
  readonly name = 'scripted';
  readonly written: FiredRows[][] = [];
  readonly failures: unknown[] = [];
  async migrate(): Promise<void> {}
  async check(): Promise<void> {}
  async write(rows: readonly FiredRows[]): Promise<void> {
    await Promise.resolve();
    if (this.failures.length > 0) throw this.failures.shift();
    this.written.push([...rows]);
  }
  async *read(): AsyncIterable<never> {}
}

function writerOn(sink: WindowSink): SinkWriter {
  return new SinkWriter({
    sink,
    clock: tickingClock(),
    log: silentLogger,
    sleep: async () => {},
    onWritten: () => {},
  });
}

describe('sink writer', () => {
  it('writes in the order of firing, small windows together, large ones in parts', async () => {
    const sink = new ScriptedSink();
    const writer = writerOn(sink);
    writer.offer([window(0, 2)]);
    writer.offer([window(10, 3), window(20, SINK_ROWS_MAX + 5), window(30, 1)]);
    expect(writer.waitingRows).toBe(SINK_ROWS_MAX + 11);
    await writer.flushed();
    const parts = sink.written.map((call) =>
      call.map(({ window: w, from, to }) => [w.windowStart, from, to]),
    );
    expect(parts.flat()).toEqual([
      [0, 0, 2],
      [10, 0, 3],
      [20, 0, SINK_ROWS_MAX],
      [20, SINK_ROWS_MAX, SINK_ROWS_MAX + 5],
      [30, 0, 1],
    ]);
    for (const call of sink.written)
      expect(call.reduce((rows, one) => rows + one.to - one.from, 0)).toBeLessThanOrEqual(SINK_ROWS_MAX);
    expect(writer.waitingRows).toBe(0);
  });

  it('tries again while the sink is away, and is not ready meanwhile', async () => {
    const sink = new ScriptedSink();
    sink.failures.push(coreError('unreachable', 'away'), coreError('unreachable', 'away'));
    const seen: boolean[] = [];
    const writer: SinkWriter = new SinkWriter({
      sink,
      clock: tickingClock(),
      log: silentLogger,
      onWritten: () => {},
      sleep: async () => {
        seen.push(writer.ready);
      },
    });
    writer.offer([window(0, 1)]);
    await writer.flushed();
    expect(seen).toEqual([false, false]);
    expect(writer.ready).toBe(true);
    expect(sink.written).toHaveLength(1);
  });

  it('ends the run on any other failure', async () => {
    const sink = new ScriptedSink();
    sink.failures.push(new Error('no such column'));
    const writer = writerOn(sink);
    writer.offer([window(0, 1)]);
    await expect(writer.flushed()).rejects.toThrow('no such column');
    await expect(writer.room(new AbortController().signal)).rejects.toThrow('no such column');
  });
});

describe('a run that ends while results wait for the sink', () => {
  it('does not call them durable', async () => {
    const writer = writerOn(new ScriptedSink());
    writer.offer([window(0, SINK_ROWS_MAX), window(10, 1)]);
    const flushed = writer.flushed();
    writer.stop();
    await expect(flushed).rejects.toMatchObject({ code: 'sink_failed' });
  });

  it('is drained with one clear line when the sink is away', async () => {
    const sink = new MemorySink();
    sink.write = () => Promise.reject(coreError('unreachable', 'away'));
    const drain = new AbortController();
    const disk = new MemoryDisk();
    const source = new MemorySource([event(1n), event(100n)], 1, 1, 3);
    const world = { job: JOB, partitions: 1, shards: 1, disk, sink, source, checkpointIntervalMs: 1 };
    const engine = engineIn(world, {
      stop: 'never',
      sleep: async () => {
        if (!engine.sinkReady) drain.abort();
        await new Promise((resolve) => setImmediate(resolve));
      },
    });
    await engine.restore();
    const nothing = source.next.bind(source);
    source.next = async () => {
      await new Promise((resolve) => setImmediate(resolve));
      return nothing();
    };
    await expect(engine.run(drain.signal)).rejects.toMatchObject({ code: 'sink_failed', row: { exit: 3 } });
    expect([...disk.files.keys()].filter((name) => name.endsWith('.manifest'))).toEqual([]);
  });
});

const JOB: Job = {
  topic: 't',
  window: 'tumbling',
  sizeMs: 10,
  skewMs: 0,
  latenessMs: 0,
  watermark: 'partition',
};
const BIG = (1n << 64n) - 1n;
const event = (eventTs: bigint, accountId = 1n): TestEvent => ({
  partition: 0,
  accountId,
  value: -(1n << 63n),
  eventTs,
});

async function ranEngine(events: readonly TestEvent[]): Promise<Engine> {
  const engine = engineIn({
    job: JOB,
    partitions: 1,
    shards: 2,
    disk: new MemoryDisk(),
    sink: new MemorySink(),
    source: new MemorySource(events, 1, 2, 3),
    checkpointIntervalMs: 1,
  });
  await engine.restore();
  await engine.run(new AbortController().signal);
  return engine;
}

async function get(engine: Engine | undefined, path: string) {
  const url = new URL(path, 'http://x');
  const isWindows = url.pathname.startsWith('/windows/');
  const route = engineRoutes(() => engine).find((one) => one.path.startsWith('/windows') === isWindows);
  const params: Record<string, string> = isWindows
    ? { account_id: url.pathname.slice('/windows/'.length) }
    : {};
  const answer = await route?.handler({ params, query: url.searchParams } as unknown as HttpRequest);
  return {
    status: answer?.status,
    headers: answer?.headers,
    body: JSON.parse(String(answer?.body)) as unknown,
  };
}

describe('HTTP', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await ranEngine([
      event(-5n),
      event(-4n, BIG),
      event(-3n),
      event(7n),
      event(40n),
      event(1n),
      event(41n),
    ]);
  });

  it('answers fired windows with 64-bit integers as strings, wrapped sums marked', async () => {
    const { status, body } = await get(engine, '/windows/1');
    expect(status).toBe(200);
    expect(body).toEqual([
      {
        account_id: '1',
        window_start: '-10',
        window_end: '0',
        count: '2',
        sum: '0',
        min: '-9223372036854775808',
        max: '-9223372036854775808',
        last_update_ts: '-3',
        overflow: true,
      },
      {
        account_id: '1',
        window_start: '0',
        window_end: '10',
        count: '1',
        sum: '-9223372036854775808',
        min: '-9223372036854775808',
        max: '-9223372036854775808',
        last_update_ts: '7',
        overflow: false,
      },
      {
        account_id: '1',
        window_start: '40',
        window_end: '50',
        count: '2',
        sum: '0',
        min: '-9223372036854775808',
        max: '-9223372036854775808',
        last_update_ts: '41',
        overflow: true,
      },
    ]);
    expect((await get(engine, `/windows/${BIG}`)).body).toHaveLength(1);
    expect((await get(engine, '/windows/2')).body).toEqual([]);
  });

  it('takes from and to as ms or ISO 8601, half-open, and goes on by a link', async () => {
    const starts = (body: unknown) => (body as { window_start: string }[]).map((one) => one.window_start);
    expect(starts((await get(engine, '/windows/1?from=-10&to=0')).body)).toEqual(['-10']);
    expect(
      starts((await get(engine, '/windows/1?from=1970-01-01T00:00:00Z&to=1970-01-01T00:00:00.040Z')).body),
    ).toEqual(['0']);
    const first = await get(engine, '/windows/1?limit=2');
    expect(starts(first.body)).toEqual(['-10', '0']);
    const link = /^<(.*)>; rel="next"$/.exec(first.headers?.['link'] ?? '')?.[1] as string;
    expect(starts((await get(engine, link)).body)).toEqual(['40']);
  });

  it('refuses what it cannot read with 400 and a code', async () => {
    for (const id of ['-1', 'abc', '18446744073709551616', '1.5', '%31', '']) {
      expect(await get(engine, `/windows/${id}`)).toMatchObject({
        status: 400,
        body: { code: 'bad_account' },
      });
    }
    for (const query of [
      'from=x',
      'to=1e3',
      'from=2&to=1',
      'from=2026-01-01',
      'limit=0',
      'limit=10001',
      `from=${'9'.repeat(30)}`,
    ]) {
      expect(await get(engine, `/windows/1?${query}`)).toMatchObject({
        status: 400,
        body: { code: 'bad_range' },
      });
    }
  });

  it('answers the watermark with its lag and the drops', async () => {
    const { body } = await get(engine, '/watermark');
    expect(body).toMatchObject({
      watermark_ms: 41,
      dropped_late: 1,
      mode: 'partition',
      partitions: [{ partition: 0, offset: '7', dropped_late: 1 }],
    });
    expect((body as { lag_ms: number }).lag_ms).toBeGreaterThan(0);
    expect((await get(await ranEngine([]), '/watermark')).body).toMatchObject({
      watermark_ms: null,
      lag_ms: null,
      dropped_late: 0,
    });
  });

  it('answers 503 with Retry-After while there is nothing restored', async () => {
    expect(await get(undefined, '/watermark')).toMatchObject({
      status: 503,
      headers: { 'retry-after': '1' },
      body: { code: 'restoring' },
    });
  });
});

describe('restore', () => {
  const world = (over: object = {}) => ({
    job: JOB,
    partitions: 1,
    shards: 1,
    disk: new MemoryDisk(),
    sink: new MemorySink(),
    source: new MemorySource([event(1n), event(2n)], 1, 1, 3),
    checkpointIntervalMs: 1,
    ...over,
  });
  const finished = async () => {
    const first = world();
    const engine = engineIn(first);
    await engine.restore();
    await engine.run(new AbortController().signal);
    return first.disk;
  };

  it('refuses a checkpoint of another job, cluster or smaller topic, and names the difference', async () => {
    const disk = await finished();
    await expect(engineIn(world({ disk, job: { ...JOB, sizeMs: 20 } })).restore()).rejects.toMatchObject({
      code: 'job_changed',
      message: expect.stringContaining('-size was 10 ms, is 20 ms'),
    });
    await expect(engineIn(world({ disk }), { clusterId: 'other' }).restore()).rejects.toMatchObject({
      code: 'job_changed',
    });
    const more = world({
      partitions: 2,
      source: new MemorySource([{ ...event(1n), partition: 1 }], 2, 1, 3),
    });
    const engine = engineIn(more);
    await engine.restore();
    await engine.run(new AbortController().signal);
    await expect(engineIn(world({ disk: more.disk })).restore()).rejects.toThrow(/had 2 partitions, has 1/);
  });

  it('refuses offsets that the topic does not hold', async () => {
    const disk = await finished();
    await expect(
      engineIn(world({ disk, source: new MemorySource([event(1n)], 1, 1, 3) })).restore(),
    ).rejects.toMatchObject({ code: 'offsets_gone' });
  });

  it('starts a partition that was added at the frontier, so that nothing fired is fired again', async () => {
    const first = world({ source: new MemorySource([event(1n), event(35n)], 1, 1, 3) });
    const engine = engineIn(first, { stop: 'end' });
    await engine.restore();
    await engine.run(new AbortController().signal);
    const late: TestEvent = { ...event(5n), partition: 1 };
    const source = new MemorySource([event(1n), event(35n), late, { ...late, eventTs: 36n }], 2, 1, 3);
    const second = engineIn(world({ disk: first.disk, sink: first.sink, partitions: 2, source }));
    await second.restore();
    await second.run(new AbortController().signal);
    expect(second.progress().map((one) => one.droppedLate)).toEqual([0, 1]);
    expect(first.sink.changed).toBe(0);
  });
});

describe('folder', () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'engine-disk-'));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  it('writes whole files, replaces them, and leaves no unfinished ones', async () => {
    const disk = await openDisk(join(dir, 'files'));
    await disk.write('a', [new Uint8Array([1]), new Uint8Array(0), new Uint8Array([2, 3])]);
    await disk.write('a', [new Uint8Array([4, 5])]);
    await disk.write('empty', []);
    expect(await disk.read('a')).toEqual(new Uint8Array([4, 5]));
    expect(await disk.read('empty')).toEqual(new Uint8Array(0));
    expect(await disk.read('b')).toBeUndefined();
    expect((await readdir(join(dir, 'files'))).sort()).toEqual(['a', 'empty']);
    await disk.rename('a', 'c');
    await disk.remove('empty');
    await disk.remove('empty');
    expect(await disk.list()).toEqual(['c']);
  });

  it('is taken by one process at a time, and taken over from a dead one', async () => {
    const disk = await openDisk(join(dir, 'locked'));
    const first = await disk.lock();
    expect(first.release).toBeDefined();
    expect(await disk.lock()).toMatchObject({ holder: expect.stringContaining(String(process.pid)) });
    expect((await disk.lock()).release).toBeUndefined();
    await first.release?.();
    const dead = spawn(process.execPath, ['-e', '']);
    await new Promise((resolve) => dead.once('exit', resolve));
    const { hostname } = await import('node:os');
    await writeFile(
      join(dir, 'locked', 'lock'),
      JSON.stringify({ pid: dead.pid, start: '1', host: hostname() }),
    );
    const taken = await disk.lock();
    expect(taken.release).toBeDefined();
    await taken.release?.();
    await writeFile(
      join(dir, 'locked', 'lock'),
      JSON.stringify({ pid: process.pid, start: 'another', host: hostname() }),
    );
    expect((await disk.lock()).release).toBeDefined();
  });

  it('says which folder it cannot write', async () => {
    await writeFile(join(dir, 'file'), 'x');
    await expect(openDisk(join(dir, 'file'))).rejects.toMatchObject({ code: 'not_writable' });
    await expect(openDisk('/proc/engine')).rejects.toMatchObject({ code: 'not_writable' });
    expect((await openDisk(join(dir, 'one', 'two', 'three'))).where).toBe(join(dir, 'one', 'two', 'three'));
    await expect(openDisk(join(dir, 'file', 'below'))).rejects.toMatchObject({
      code: 'not_writable',
      row: { exit: 2 },
    });
  });
});
