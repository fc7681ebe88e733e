/** The external interfaces of the engine: HTTP answers, the folder and its lock, and the checks of
 *  a restore. */

import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openStateDir } from '../../../src/bin/engine/source/group.ts';
import { coreError } from '../../../src/core/errors.ts';
import { type EngineQueries, engineRoutes } from '../../../src/engine/api/routes.ts';
import type { Job } from '../../../src/engine/job.ts';
import { resultColumns } from '../../../src/engine/output/columns.ts';
import { FiredFeed } from '../../../src/engine/output/feed.ts';
import type { EngineParts } from '../../../src/engine/parts.ts';
import type { Engine } from '../../../src/engine/run.ts';
import type { WindowResult } from '../../../src/engine/window/accumulator.ts';
import { openDisk } from '../../../src/io/disk/node.ts';
import type { HttpRequest } from '../../../src/io/http/port.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { engineIn, MemorySink, MemorySource, type TestEvent } from '../../property/engine-kit.ts';

describe('drain with waiting results', () => {
  it('a drained run ends with one clear line when its sink is unreachable', async () => {
    const sink = new MemorySink();
    sink.write = () => Promise.reject(coreError('unreachable', 'away'));
    const drain = new AbortController();
    const disk = new SimDisk();
    const source = new MemorySource([event(1n), event(100n)], 1, 3);
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
    // The next run has no event to read: the fired rows are in the changelog, and now leave.
    const back = new MemorySink();
    const again = engineIn({ ...world, sink: back }, { stop: 'end' });
    await again.restore();
    await again.run(new AbortController().signal);
    expect(back.sorted()).toEqual([
      '1,0,10,1,-9223372036854775808,-9223372036854775808,-9223372036854775808,1,false',
    ]);
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

async function finishedEngine(events: readonly TestEvent[]): Promise<Engine> {
  const engine = engineIn({
    job: JOB,
    partitions: 1,
    shards: 2,
    disk: new SimDisk(),
    sink: new MemorySink(),
    source: new MemorySource(events, 1, 3),
    checkpointIntervalMs: 1,
  });
  await engine.restore();
  await engine.run(new AbortController().signal);
  return engine;
}

/** @param accept value of the Accept header */
async function answered(engine: EngineQueries | undefined, path: string, accept?: string) {
  const url = new URL(path, 'http://x');
  const isWindows = url.pathname.startsWith('/windows/');
  const wanted = isWindows ? '/windows/{key}' : url.pathname;
  const route = engineRoutes(() => engine, '1.2.3').find((one) => one.path === wanted);
  const params: Record<string, string> = isWindows ? { key: url.pathname.slice('/windows/'.length) } : {};
  const header = (name: string): readonly string[] =>
    name === 'accept' && accept !== undefined ? [accept] : [];
  return route?.handler({ params, query: url.searchParams, header } as unknown as HttpRequest);
}

async function get(engine: EngineQueries | undefined, path: string) {
  const answer = await answered(engine, path);
  return {
    status: answer?.status,
    headers: answer?.headers,
    body: JSON.parse(String(answer?.body)) as unknown,
  };
}

describe('engine HTTP interface', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await finishedEngine([
      event(-5n),
      event(-4n, BIG),
      event(-3n),
      event(7n),
      event(40n),
      event(1n),
      event(41n),
    ]);
  });

  it('GET /windows returns fired windows with 64-bit integers as strings and overflowed sums marked', async () => {
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

  it('GET /windows accepts from and to as ms or ISO 8601, half-open, and continues by a link', async () => {
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

  it('GET /windows refuses an invalid request with 400 and a code', async () => {
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
      'cursor=7',
      'cursor=1_',
      'cursor=9999999999999999_1',
      'cursor=x_y',
      'open=yes',
    ]) {
      expect(await get(engine, `/windows/1?${query}`)).toMatchObject({
        status: 400,
        body: { code: 'bad_range' },
      });
    }
  });

  it('GET /watermark returns the watermark with its lag and the drops', async () => {
    const { body } = await get(engine, '/watermark');
    expect(body).toEqual({
      watermark_ms: 41,
      lag_ms: expect.any(Number),
      dropped_late: 1,
      mode: 'partition',
    });
    expect((await get(engine, '/watermark?partitions=true')).body).toMatchObject({
      watermark_ms: 41,
      partitions: [{ partition: 0, offset: '7', max_seen_ms: 41, consumed: 7, accepted: 6, dropped_late: 1 }],
    });
    expect(await get(engine, '/watermark?partitions=1')).toMatchObject({
      status: 400,
      body: { code: 'bad_range' },
    });
    expect((body as { lag_ms: number }).lag_ms).toBeGreaterThan(0);
    expect((await get(await finishedEngine([]), '/watermark')).body).toMatchObject({
      watermark_ms: null,
      lag_ms: null,
      dropped_late: 0,
    });
  });

  it('GET /windows adds unfired windows on open=true, each once, on pages of any size', async () => {
    const result = (windowStart: number, count: bigint): WindowResult => ({
      accountId: 1n,
      windowStart,
      windowEnd: windowStart + 10,
      count,
      sum: 0n,
      min: 0n,
      max: 0n,
      lastUpdateTs: 0n,
      overflow: false,
    });
    // The last two windows were fired by an earlier run at its end, so they are open again.
    const fired = [0, 10, 20, 30, 40].map((start) => result(start, 1n));
    const answers: EngineQueries = {
      restored: true,
      hasSignedKeys: false,
      firedTo: 30,
      watermarkMode: 'global',
      watermark: () => ({ watermark_ms: null, lag_ms: null, dropped_late: 0 }),
      progress: () => [],
      lateEvents: async () => ({ rows: [], next: undefined }),
      columns: resultColumns({}),
      windowRange: async () => ({ rows: [], next: undefined }),
      topWindows: async () => [],
      feed: new FiredFeed(),
      epoch: '1',
      windows: async ({ from, to, limit, after }) => {
        const rows = fired
          .filter((row) => row.windowStart >= from && row.windowStart < to)
          .filter((row) => row.windowEnd > (after?.windowEnd ?? Number.NEGATIVE_INFINITY))
          .slice(0, limit);
        return { rows, next: rows.length === limit ? rows.at(-1) : undefined };
      },
      // The first of these windows has been stored since the query.
      openWindows: async (_, after) => ({
        rows: [result(20, 1n), result(30, 5n), result(40, 6n), result(50, 7n)].filter(
          (row) => row.windowEnd > after,
        ),
        isCut: false,
      }),
    };
    const seen = (body: unknown) =>
      (body as { window_start: string; count: string; final?: boolean }[]).map((one) => [
        Number(one.window_start),
        Number(one.count),
        one.final,
      ]);
    const whole = [
      [0, 1, true],
      [10, 1, true],
      [20, 1, true],
      [30, 5, false],
      [40, 6, false],
      [50, 7, false],
    ];
    expect(seen((await get(answers, '/windows/1?open=true')).body)).toEqual(whole);
    expect(seen((await get(answers, '/windows/1?open=false')).body)).toEqual(
      [0, 10, 20, 30, 40].map((start) => [start, 1, undefined]),
    );
    expect(seen((await get(answers, '/windows/1?open=true&from=20&to=41')).body)).toEqual(whole.slice(2, 5));
    for (const limit of [1, 2, 3, 4, 5]) {
      const all: unknown[] = [];
      let path: string | undefined = `/windows/1?open=true&limit=${limit}`;
      for (let page = 0; path !== undefined; page++) {
        expect(page).toBeLessThan(10);
        const { body, headers } = await get(answers, path);
        expect((body as unknown[]).length).toBeLessThanOrEqual(limit);
        all.push(...seen(body));
        path = /^<(.*)>; rel="next"$/.exec(headers?.['link'] ?? '')?.[1];
      }
      expect(all).toEqual(whole);
    }
  });

  it('GET /windows returns open windows from the state of the engine', async () => {
    const running = engineIn(
      {
        job: JOB,
        partitions: 1,
        shards: 2,
        disk: new SimDisk(),
        sink: new MemorySink(),
        source: new MemorySource([event(1n), event(2n, BIG), event(3n), event(12n), event(13n)], 1, 3),
        checkpointIntervalMs: 1,
      },
      { stop: 'end' },
    );
    await running.restore();
    await running.run(new AbortController().signal);
    const seen = async (path: string) =>
      ((await get(running, path)).body as { window_start: string; count: string; final?: boolean }[]).map(
        (one) => [one.window_start, one.count, one.final],
      );
    expect(await seen('/windows/1')).toEqual([['0', '2', undefined]]);
    expect(await seen('/windows/1?open=true')).toEqual([
      ['0', '2', true],
      ['10', '2', false],
    ]);
    expect(await seen(`/windows/${BIG}?open=true`)).toEqual([['0', '1', true]]);
  });

  it('GET /windows lists the windows of all keys, and with top the greatest by a column', async () => {
    const texts = async (path: string): Promise<string[]> =>
      ((await get(engine, path)).body as ReadonlyArray<Record<string, string>>).map(
        ({ account_id: id, window_start: start, count }) => `${id} ${start} ${count}`,
      );
    const all = await texts('/windows');
    expect(all.slice(0, 2)).toEqual(['1 -10 2', `${BIG} -10 1`]);
    expect(await texts('/windows?from=0')).toEqual(all.slice(2));
    expect(await texts('/windows?top=1')).toEqual(['1 -10 2']);
    expect(await texts('/windows?top=1&by=window_start')).toEqual([all.at(-1)]);
    expect((await texts('/windows?limit=1')).length).toBe(1);
  });

  it.each([
    ['sum(amount),max(amount)', 'sum_amount'],
    ['topk(sku,3),min(amount:double) as least', 'least'],
    ['topk(sku,3)', 'last_update_ts'],
    ['sum(amount),count', 'count'],
    ['count(amount) as n,count(sku) as count', 'count'],
  ])('GET /windows?top of a job with %s ranks by %s without by', async (aggregate, ranked) => {
    const asked: string[] = [];
    const answers = {
      restored: true,
      columns: resultColumns({ input: { format: 'json', key: 'k:i64', time: 't:ms', aggregate } }),
      topWindows: async ({ by }: { readonly by: { readonly name: string } }) => {
        asked.push(by.name);
        return [];
      },
    } as unknown as EngineQueries;
    expect(await get(answers, '/windows?top=3')).toMatchObject({ status: 200, body: [] });
    expect(asked).toEqual([ranked]);
  });

  it.each([
    ['top=0', 'top is not a number from 1 to 1000'],
    ['top=1001', 'top is not a number from 1 to 1000'],
    ['top=2&limit=3', 'limit has no meaning with top'],
    ['top=2&cursor=AA', 'cursor has no meaning with top'],
    ['by=count', 'by has no meaning without top'],
    ['top=2&by=overflow', 'by is none of window_start'],
    ['top=2&by=account_id', 'by is none of window_start'],
    ['cursor=', 'cursor is invalid'],
    ['cursor=%2F%2F', 'cursor is invalid'],
    ['from=5&to=4', 'from 5 lies after to 4'],
    ['limit=10001', 'limit is not a number'],
  ])('GET /windows refuses %s', async (query, message) => {
    const { status, body } = await get(engine, `/windows?${query}`);
    expect(status).toBe(400);
    expect(body).toMatchObject({ code: 'bad_range', error: expect.stringContaining(message) });
  });

  it('a client that prefers CSV gets it, with a header and the columns of the results', async () => {
    const accepts = ['text/csv', 'application/json;q=0.5, text/csv', 'text/*', 'text/csv;q=0.2,image/png'];
    for (const accept of accepts) {
      const answer = await answered(engine, '/windows/1?to=0', accept);
      expect(answer?.headers?.['content-type']).toMatch(/^text\/csv/);
      expect(answer?.headers?.['vary']).toBe('accept');
      expect(answer?.body).toBe(
        [
          'account_id,window_start,window_end,count,sum,min,max,last_update_ts,overflow',
          '1,-10,0,2,0,-9223372036854775808,-9223372036854775808,-3,true',
          '',
        ].join('\r\n'),
      );
    }
    for (const accept of ['*/*', 'application/json, text/csv', 'text/csv;q=0', 'image/png', ''])
      expect((await answered(engine, '/windows/1', accept))?.headers?.['content-type']).toBe(
        'application/json',
      );
    const open = await answered(engine, '/windows/1?open=true', 'text/csv');
    expect(String(open?.body).split('\r\n')[0]).toMatch(/,overflow,final$/);
  });

  it('a client that asks for events gets the windows that fire later, and no parameters', async () => {
    const answer = await answered(engine, '/windows/1', 'text/event-stream');
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'text/event-stream' } });
    expect(answer?.stream).toBeDefined();
    const refused = await answered(engine, '/windows?from=1', 'text/event-stream');
    expect(refused?.status).toBe(400);
    expect(JSON.parse(String(refused?.body))).toMatchObject({ code: 'bad_range' });
  });

  it('the OpenAPI description lists every route', async () => {
    const { status, body } = await get(undefined, '/openapi.json');
    expect(status).toBe(200);
    const { paths, info } = body as { paths: object; info: { version: string } };
    expect(Object.keys(paths)).toEqual(engineRoutes(() => undefined, '1').map(({ path }) => path));
    expect(info.version).toBe('1.2.3');
    const all = engineRoutes(() => undefined, '1', { savepoints: () => undefined });
    const whole = await all.at(-1)?.handler({} as HttpRequest);
    const described = Object.keys(JSON.parse(String(whole?.body)).paths);
    expect(described).toEqual([...new Set(all.map(({ path }) => path))]);
  });

  it('the engine answers 503 with Retry-After while nothing is restored', async () => {
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
    disk: new SimDisk(),
    sink: new MemorySink(),
    source: new MemorySource([event(1n), event(2n)], 1, 3),
    checkpointIntervalMs: 1,
    ...over,
  });
  /** Runs an engine that leaves another checkpoint. */
  const started = async (over: Partial<EngineParts>, disk = new SimDisk()) => {
    const count = disk.names().length;
    const events = Array.from({ length: 1 + count }, (_, i) => event(BigInt(i)));
    const one = world({ disk, source: new MemorySource(events, 1, 3) });
    const engine = engineIn(one, { ...over, stop: 'end' });
    await engine.restore();
    await engine.run(new AbortController().signal);
    return one;
  };
  const finished = async () => {
    const first = world();
    const engine = engineIn(first);
    await engine.restore();
    await engine.run(new AbortController().signal);
    return first.disk;
  };

  it('a restore refuses a checkpoint of another job, cluster or smaller topic, and names the difference', async () => {
    const disk = await finished();
    await expect(engineIn(world({ disk, job: { ...JOB, sizeMs: 20 } })).restore()).rejects.toMatchObject({
      code: 'job_changed',
      message: expect.stringContaining('-size was 10ms, is 20ms'),
      next: 'start with -size=10ms again, or give an empty -state-dir to recompute everything',
    });
    await expect(engineIn(world({ disk }), { clusterId: 'other' }).restore()).rejects.toMatchObject({
      code: 'job_changed',
    });
    const more = world({
      partitions: 2,
      source: new MemorySource([{ ...event(1n), partition: 1 }], 2, 3),
    });
    const engine = engineIn(more);
    await engine.restore();
    await engine.run(new AbortController().signal);
    await expect(engineIn(world({ disk: more.disk })).restore()).rejects.toThrow(/had 2 partitions, has 1/);
  });

  it('a restore refuses the state of a topic that was deleted and recreated under its name', async () => {
    const { disk } = await started({ topicId: 'old' });
    const again = engineIn(world({ disk }), { topicId: 'new' });
    await expect(again.restore()).rejects.toMatchObject({
      code: 'topic_changed',
      message: expect.stringContaining(
        'topic t was deleted and recreated: the state belongs to topic id old, the topic now has id new',
      ),
      next: expect.stringContaining('give an empty -state-dir'),
    });
    // A broker without topic ids proves nothing, and the known id stays in the checkpoint.
    await started({}, disk);
    await expect(engineIn(world({ disk }), { topicId: 'new' }).restore()).rejects.toThrow(
      /deleted and recreated/,
    );
  });

  it('a restore accepts a state without a topic id and writes the id into later checkpoints', async () => {
    const { disk } = await started({});
    await started({ topicId: 'one' }, disk);
    await expect(engineIn(world({ disk }), { topicId: 'other' }).restore()).rejects.toThrow(
      /deleted and recreated/,
    );
  });

  it('a restore resumes with one watermark over partitions that it reads in another order', async () => {
    const job = { ...JOB, watermark: 'global' as const };
    const [early, late, last] = [event(1n), { ...event(25n), partition: 1 }, { ...event(26n), partition: 1 }];
    const first = world({ job, partitions: 2, source: new MemorySource([early, late], 2, 1) });
    const engine = engineIn(first, { stop: 'end' });
    await engine.restore();
    await engine.run(new AbortController().signal);
    // Reading in this order from the start, the second event of partition 0 would not be late.
    const source = new MemorySource([early, event(2n), late, last], 2, 3);
    const second = engineIn(world({ job, partitions: 2, disk: first.disk, sink: first.sink, source }));
    await second.restore();
    expect(await second.run(new AbortController().signal)).toMatchObject({ accepted: 3, droppedLate: 1 });
    expect(first.sink.changed).toBe(0);
  });

  it('a restore refuses offsets that the topic does not contain', async () => {
    const disk = await finished();
    await expect(
      engineIn(world({ disk, source: new MemorySource([event(1n)], 1, 3) })).restore(),
    ).rejects.toMatchObject({ code: 'offsets_gone' });
  });

  it('an added partition starts at the watermark, so that no window fires twice', async () => {
    const first = world({ source: new MemorySource([event(1n), event(35n)], 1, 3) });
    const engine = engineIn(first, { stop: 'end' });
    await engine.restore();
    await engine.run(new AbortController().signal);
    const late: TestEvent = { ...event(5n), partition: 1 };
    const source = new MemorySource([event(1n), event(35n), late, { ...late, eventTs: 36n }], 2, 3);
    const second = engineIn(world({ disk: first.disk, sink: first.sink, partitions: 2, source }));
    await second.restore();
    await second.run(new AbortController().signal);
    expect(second.progress().map((one) => one.droppedLate)).toEqual([0, 1]);
    expect(first.sink.changed).toBe(0);
  });
});

describe('state folder', () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'engine-disk-'));
  });
  afterAll(() => rm(dir, { recursive: true, force: true }));

  it('the folder writes files atomically, replaces them, and leaves no unfinished files', async () => {
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

  it('the error for an unwritable folder names the folder', async () => {
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

describe('the folder of the state', () => {
  let folder: string;
  const closers: Array<() => void> = [];
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-state-dir-'));
  });
  afterAll(() => rm(folder, { recursive: true }));
  const open = () =>
    openStateDir({
      settings: { 'state-dir': folder, native: 'auto', source: 'assign' },
      onClose: (close: () => void) => void closers.push(close),
    } as unknown as Parameters<typeof openStateDir>[0]);

  it('the state folder is refused to a second engine while the first engine has it, and free after the first engine closed it', async () => {
    expect((await open())?.where).toBe(folder);
    await expect(open()).rejects.toMatchObject({
      code: 'state_locked',
      message: expect.stringContaining(`process ${process.pid} on `),
    });
    for (const close of closers.splice(0)) close();
    await open();
    for (const close of closers.splice(0)) close();
  });

  it('the state folder is free if an engine on a dead host of another name left its lock file', async () => {
    await writeFile(join(folder, 'lock'), JSON.stringify({ pid: 1, host: 'another-machine', start: '' }));
    expect((await open())?.where).toBe(folder);
    for (const close of closers.splice(0)) close();
  });
});
