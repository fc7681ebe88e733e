/** Aggregates that a job gains: their texts, the forms of rows before and after the change, and the
 *  stores of results that have rows of both. */
import { describe, expect, it } from 'vitest';
import { ACCUMULATOR, AGGREGATE } from '../../../src/core/layout/layouts.gen.ts';
import { CELL, RowForm } from '../../../src/core/layout/row-form.ts';
import {
  Aggregates,
  aggregateChange,
  aggregateSpecs,
  isExtension,
  plainAggregates,
  withAdded,
} from '../../../src/engine/aggregate/definition.ts';
import { RowEras } from '../../../src/engine/aggregate/eras.ts';
import { ResultReader } from '../../../src/engine/aggregate/results.ts';
import { RowMapping } from '../../../src/engine/aggregate/row-mapping.ts';
import { type Job, jobChanges } from '../../../src/engine/job.ts';
import { KeyColumn } from '../../../src/engine/keys/column.ts';
import { resultShape } from '../../../src/engine/output/columns.ts';
import type { FiredShape } from '../../../src/engine/output/fired/mark.ts';
import { FIRED_FAMILIES, FiredStore, readFired } from '../../../src/engine/output/fired/store.ts';
import { ParquetSink } from '../../../src/engine/output/parquet/sink.ts';
import { WindowSource } from '../../../src/engine/source/shared/window-source.ts';
import { type ResumingRun, validateCheckpoint } from '../../../src/engine/validate-checkpoint.ts';
import { Accumulator } from '../../../src/engine/verify/aggregates.ts';
import type { FiredBounds, FiredPage } from '../../../src/engine/window/firing.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import { sessionBounds, windowBounds } from '../../contract/fired-kit.ts';

const BEFORE = 'count,sum(i)';
const AFTER = 'count,sum(i),max(i) since 15,topk(i,2) since 25';

interface Row {
  readonly accountId: bigint;
  readonly count?: bigint;
  readonly sum?: bigint;
  readonly max?: bigint;
  readonly last?: bigint;
  readonly start?: bigint;
}

/** Page of rows in the form of aggregates with count, sum(i) and perhaps max(i). */
function pageOf(
  bounds: FiredBounds,
  text: string,
  specs: readonly Row[],
  keys?: readonly string[],
): FiredPage {
  const form = Aggregates.of(text);
  const rows = new Uint8Array(specs.length * form.bytes);
  const view = new DataView(rows.buffer);
  const i = { path: ['i'], kind: 'long' } as const;
  specs.forEach(({ accountId, count = 1n, sum = 5n, max = 9n, last = 0n, start = 0n }, row) => {
    const at = row * form.bytes;
    const put = (place: number, value: bigint): void => view.setBigInt64(at + place, value, true);
    const cell = (step: number): number => ACCUMULATOR.BYTES + form.cellOf(step, i) * CELL;
    put(ACCUMULATOR.ACCOUNT_ID, accountId);
    put(ACCUMULATOR.COUNT, count);
    put(ACCUMULATOR.LAST_UPDATE_TS, last);
    put(ACCUMULATOR.SPARE, start);
    put(cell(1), count);
    put(cell(2), sum);
    if (text.includes('max')) put(cell(4), max);
  });
  const bytes = keys?.map((key) => Buffer.from(key)) ?? [];
  let end = 0;
  const ends = Uint32Array.from(bytes, (key) => {
    end += key.length;
    return end;
  });
  const column = keys === undefined ? {} : { keys: new KeyColumn(Buffer.concat(bytes), ends) };
  return { bounds, form, rows, rowCount: specs.length, ...column };
}

const SCALES = 'sum(p:decimal2) as cents,sum(p:decimal4) as parts';

/** Page with one row: 3 values with the sum 0.05 in one scale, and 4 with 0.0007 in the other. */
function scaledPage(bounds: FiredBounds, text: string, [key]: readonly string[] = []): FiredPage {
  const form = Aggregates.of(text);
  const rows = new Uint8Array(form.bytes);
  const view = new DataView(rows.buffer);
  view.setBigInt64(ACCUMULATOR.ACCOUNT_ID, 1n, true);
  view.setBigInt64(ACCUMULATOR.COUNT, 4n, true);
  for (const [scale, count, sum] of [
    [2, 3n, 5n],
    [4, 4n, 7n],
  ] as const) {
    const field = { path: ['p'], kind: 'decimal', scale } as const;
    const put = (kind: number, value: bigint): void =>
      view.setBigInt64(ACCUMULATOR.BYTES + form.cellOf(kind, field) * CELL, value, true);
    put(AGGREGATE.COUNT, count);
    put(AGGREGATE.SUM, sum);
  }
  const column =
    key === undefined ? {} : { keys: new KeyColumn(Buffer.from(key), Uint32Array.of(key.length)) };
  return { bounds, form, rows, rowCount: 1, ...column };
}

describe('text of aggregates', () => {
  it('an aggregate says since when it exists, and the text of flags does not', () => {
    expect(aggregateSpecs('count since -5, sum(a) as total since 7').map(({ since }) => since)).toEqual([
      -5, 7,
    ]);
    expect(plainAggregates(' count since -5, topk(a,3) as t since 7')).toBe('count,topk(a,3) as t');
    expect(() => aggregateSpecs('sum(a) since 7,count')).toThrowError(
      /count behind an aggregate that was added later/,
    );
    expect(() => aggregateSpecs('sum(a) since soon')).toThrowError(/which is no aggregate/);
  });

  it('aggregates are added in any order, behind the saved ones', () => {
    const change = aggregateChange(AFTER, 'p99(l),topk(i,2), max(i),sum(i),count');
    expect(change).toEqual({ added: ['p99(l)'], isAllowed: true });
    expect(withAdded(AFTER, change.added, 40)).toBe(`${AFTER},p99(l) since 40`);
    expect(withAdded(BEFORE, ['p99(l)'], undefined)).toBe('count,sum(i),p99(l)');
    expect(aggregateChange(AFTER, AFTER)).toEqual({ added: [], isAllowed: true });
  });

  it.each([
    ['removed', 'count'],
    ['renamed', 'count,sum(i) as total'],
    ['of another field', 'count,sum(j)'],
    ['since another time', 'count,sum(i) since 7'],
    ['added since a time that the run does not decide', 'count,sum(i),max(i) since 7'],
  ])('an aggregate that is %s is no addition', (_, text) => {
    expect(aggregateChange(BEFORE, text).isAllowed).toBe(false);
  });

  it('results are extended by aggregates that say since when they exist', () => {
    expect(isExtension(BEFORE, AFTER)).toBe(true);
    expect(isExtension(BEFORE, 'count,sum(i),max(i)')).toBe(false);
    expect(isExtension(BEFORE, 'count,max(i) since 15,sum(i) since 15')).toBe(false);
    expect(isExtension(AFTER, BEFORE)).toBe(false);
  });
});

describe('forms of rows', () => {
  it('a row keeps its cells in a form with more columns, and gets those of no value', () => {
    const { rows, form } = pageOf(windowBounds(0, 10), BEFORE, [
      { accountId: 7n, sum: -3n },
      { accountId: 8n },
    ]);
    // Columns are numbered otherwise where an aggregate depends on the place of its event.
    const to = Aggregates.of('last(j),max(i),min(d:double),p50(i),count,sum(i)');
    const mapped = new Uint8Array(2 * to.bytes);
    new RowMapping(form as RowForm, to).map(rows, 2, mapped);
    const reader = new ResultReader(to);
    const view = new DataView(mapped.buffer);
    expect(view.getBigUint64(to.bytes, true)).toBe(8n);
    const read = reader.read(view, 0, 0).values;
    expect([read[0], read[2], read[3], read[4], read[5], read[6]]).toEqual([null, null, null, null, 1n, -3n]);
    const back = new Uint8Array(rows.length);
    new RowMapping(to, form as RowForm).map(mapped, 2, back);
    expect(back).toEqual(rows);
  });

  it('two scales of one field keep their own values in a form with more aggregates', () => {
    const { rows, form } = scaledPage(windowBounds(0, 10), SCALES);
    const to = Aggregates.of(`${SCALES},count as n`);
    const mapped = new Uint8Array(to.bytes);
    new RowMapping(form as RowForm, to).map(rows, 1, mapped);
    const read = new ResultReader(to).read(new DataView(mapped.buffer), 0, 0).values;
    expect(read).toEqual(['0.05', '0.0007', 4n]);
    const back = new Uint8Array(rows.length);
    new RowMapping(to, form as RowForm).map(mapped, 1, back);
    expect(back).toEqual(rows);
  });

  it('the form of a row follows from the start of its window', () => {
    const eras = new RowEras(AFTER);
    expect(eras.isOne).toBe(false);
    expect(new RowEras(BEFORE).isOne).toBe(true);
    const texts = [15, 16, 25, 26].map((start) => (eras.formAt(start) as Aggregates).text);
    expect(texts).toEqual([BEFORE, 'count,sum(i),max(i) since 15', 'count,sum(i),max(i) since 15', AFTER]);
    expect(new RowEras('count since 5').formAt(5)).toBe(RowForm.HEADS);
    expect(new RowEras(undefined).current).toBe(RowForm.HEADS);
  });

  it('an aggregate has no value in a window before it, and its sum does not overflow there', () => {
    const form = Aggregates.of('count,sum(i) since 15');
    const { rows } = pageOf(windowBounds(0, 10), 'count,sum(i)', [{ accountId: 1n, sum: 3n }]);
    const view = new DataView(rows.buffer);
    view.setBigInt64(
      ACCUMULATOR.BYTES + (form.cellOf(2, { path: ['i'], kind: 'long' }) + 1) * CELL,
      1n,
      true,
    );
    const reader = new ResultReader(form);
    expect(reader.read(view, 0, 15)).toEqual({ values: [1n, null], overflow: false });
    expect(reader.read(view, 0, 16)).toEqual({ values: [1n, 3n], overflow: true });
  });
});

describe('a checkpoint of fewer aggregates', () => {
  const jobOf = (aggregate: string): Job => ({
    ...{ topic: 't', skewMs: 0, latenessMs: 0, watermark: 'partition', window: 'tumbling', sizeMs: 10 },
    input: { format: 'json', key: 'k:i64', time: 't:ms', aggregate },
  });

  it('a run with more aggregates may resume, and the texts are those of the flags', () => {
    expect(jobChanges(jobOf(AFTER), jobOf('max(i),topk(i,2),count,sum(i),p99(l)'))).toEqual([
      {
        ...{ flag: 'aggregate', was: 'count,sum(i),max(i),topk(i,2)' },
        ...{ is: 'max(i),topk(i,2),count,sum(i),p99(l)', isSafe: true },
      },
    ]);
    expect(jobChanges(jobOf(AFTER), jobOf('count,topk(i,2),max(i),sum(i)'))).toEqual([]);
  });

  it('a run without an aggregate of the checkpoint is refused with the flag to give', () => {
    const manifest = { job: jobOf(AFTER), clusterId: 'c', progress: [], spill: undefined };
    const run: ResumingRun = { job: jobOf('count,max(i)'), clusterId: 'c', source: { partitionCount: 1 } };
    expect(() => validateCheckpoint(manifest as never, run)).toThrowError(
      expect.objectContaining({
        code: 'job_changed',
        message: expect.stringContaining('-aggregate was count,sum(i),max(i),topk(i,2), is count,max(i)'),
        next: 'start with -aggregate="count,sum(i),max(i),topk(i,2)" again (aggregates can be added, not removed or changed), or give an empty -state-dir to recompute everything',
      }),
    );
  });
});

const OPTIONS = { budgetBytes: 16 * 1024 * 1024, families: FIRED_FAMILIES };
const GRID: FiredShape = { kind: 'windows', sizeMs: 10, slideMs: 10 };
const SESSIONS: FiredShape = { kind: 'sessions', gapMs: 10 };
const TEXT = [{ name: 'name', kind: 'string' }] as const;

describe.each([undefined, TEXT] as const)('store of fired windows, keys %j', (type) => {
  const keys = (...names: string[]): readonly string[] | undefined =>
    type === undefined ? undefined : names;
  const of = (name: string) =>
    type === undefined ? { accountId: BigInt(name) } : { accountId: 0n, key: Buffer.from(name) };
  const all = { from: -1e12, to: 1e12, limit: 100 };

  it('windows before and after a change are found by key, in a range and in an export', async () => {
    const store = await new SimKv().open('f', OPTIONS);
    const first = await FiredStore.open(store, { shape: { ...GRID, aggregates: BEFORE }, role: 'sink' });
    await first.bind(type, { aggregate: BEFORE });
    await first.write([pageOf(windowBounds(0, 10), BEFORE, [{ accountId: 1n }], keys('1'))]);
    const shape = { ...GRID, aggregates: 'max(i),sum(i),count,topk(i,2)' };
    const fired = await FiredStore.open(store, { shape, role: 'sink' });
    await fired.bind(type, { aggregate: AFTER });
    for (const start of [10, 20, 30])
      await fired.write([
        pageOf(windowBounds(start, start + 10), AFTER, [{ accountId: 1n, sum: BigInt(start) }], keys('1')),
      ]);
    const expected = [
      [0, [1n, 5n, null, null, null]],
      [10, [1n, 10n, null, null, null]],
      [20, [1n, 20n, 9n, null, null]],
      [30, [1n, 30n, 9n, '[]', 0]],
    ];
    const textOf = (rows: readonly { windowStart: number; aggregates?: readonly unknown[] }[]) =>
      rows.map(({ windowStart, aggregates }) => [windowStart, aggregates]);
    const again = await FiredStore.open(store, { shape, role: 'sink' });
    await again.bind(type, { aggregate: AFTER });
    for (const one of [fired, again]) {
      expect(textOf((await one.find({ ...of('1'), ...all })).rows)).toEqual(expected);
      expect(textOf((await one.range(all)).rows)).toEqual(expected);
      const [, , by] = resultShape({
        input: { format: 'json', key: 'k:i64', aggregate: AFTER },
      }).columns.filter(({ role }) => role === 'aggregate');
      expect(textOf(await one.top({ ...all, top: 2, by: by as never }))).toEqual([expected[2], expected[3]]);
    }
    const read = [];
    for await (const page of readFired(store)) read.push(...textOf(page));
    expect(read).toEqual(expected);
  });

  it('two scales of one field keep their own values in windows before and after a change', async () => {
    const store = await new SimKv().open('f', OPTIONS);
    const aggregate = `${SCALES},count as n since 15`;
    const shape = { ...GRID, aggregates: plainAggregates(aggregate) };
    const fired = await FiredStore.open(store, { shape, role: 'sink' });
    await fired.bind(type, { aggregate });
    for (const start of [10, 20])
      await fired.write([scaledPage(windowBounds(start, start + 10), aggregate, keys('1'))]);
    const { rows } = await fired.range(all);
    expect(rows.map(({ aggregates }) => aggregates)).toEqual([
      ['0.05', '0.0007', null],
      ['0.05', '0.0007', 4n],
    ]);
    expect((await fired.find({ ...of('1'), ...all })).rows.map(({ aggregates }) => aggregates)).toEqual(
      rows.map(({ aggregates }) => aggregates),
    );
  });

  it('sessions of one page are stored in the forms of their starts', async () => {
    const store = await new SimKv().open('f', OPTIONS);
    const shape = { ...SESSIONS, aggregates: 'count,sum(i),max(i)' };
    const aggregate = 'count,sum(i),max(i) since 15';
    const fired = await FiredStore.open(store, { shape, role: 'sink' });
    await fired.bind(type, { aggregate });
    const row = (accountId: bigint, start: bigint, last: bigint) => ({ accountId, start, last, sum: start });
    await fired.write([
      pageOf(
        sessionBounds(10),
        aggregate,
        [row(1n, 20n, 20n), row(2n, 15n, 21n), row(3n, 16n, 22n), row(1n, 40n, 41n)],
        keys('1', '2', '3', '1'),
      ),
    ]);
    const found = async (name: string) =>
      (await fired.find({ ...of(name), ...all })).rows.map(({ windowStart, aggregates }) => [
        windowStart,
        aggregates,
      ]);
    expect(await found('1')).toEqual([
      [20, [1n, 20n, 9n]],
      [40, [1n, 40n, 9n]],
    ]);
    expect(await found('2')).toEqual([[15, [1n, 15n, null]]]);
    expect(await found('3')).toEqual([[16, [1n, 16n, 9n]]]);
    let rows = 0;
    for await (const page of readFired(store)) rows += page.length;
    expect(rows).toBe(4);
  });

  it('aggregates that would have values in windows of other results are refused', async () => {
    const store = await new SimKv().open('f', OPTIONS);
    const fired = await FiredStore.open(store, { shape: { ...GRID, aggregates: BEFORE }, role: 'sink' });
    await fired.bind(type, { aggregate: BEFORE });
    // A store without results takes the aggregates of any job.
    await fired.bind(type, { aggregate: 'count,sum(i),max(i)' });
    await fired.bind(type, { aggregate: BEFORE });
    await fired.write([pageOf(windowBounds(0, 10), BEFORE, [{ accountId: 1n }], keys('1'))]);
    await expect(fired.bind(type, { aggregate: 'count,sum(i),max(i)' })).rejects.toMatchObject({
      code: 'job_changed',
      message: expect.stringContaining('they were count,sum(i), are count,sum(i),max(i)'),
    });
    const less = FiredStore.open(store, { shape: { ...GRID, aggregates: 'count' }, role: 'sink' });
    await expect(less).rejects.toMatchObject({ code: 'job_changed' });
  });
});

describe('Parquet folder', () => {
  const shapeOf = (aggregate: string) => resultShape({ input: { format: 'json', key: 'k:i64', aggregate } });
  const sinkOn = (disk: SimDisk, aggregates: string): ParquetSink =>
    new ParquetSink({
      ...{ folder: 'results', open: async () => disk.view() },
      job: { topic: 't', windows: { ...SESSIONS, aggregates } },
    });
  const valuesOn = async (disk: SimDisk) => {
    const found = [];
    const sink = new ParquetSink({ folder: 'results', open: async () => disk.view() });
    for await (const page of sink.read())
      found.push(...page.map(({ windowStart, aggregates }) => [windowStart, aggregates]));
    return found;
  };
  const bounds = sessionBounds(10);

  it('files of results before a change keep their rows when later sessions join them', async () => {
    const disk = new SimDisk();
    const first = sinkOn(disk, BEFORE);
    await first.bind(undefined, shapeOf(BEFORE));
    await first.migrate();
    await first.check();
    await first.write([pageOf(bounds, BEFORE, [{ accountId: 1n, start: 3n, last: 4n }])]);
    await first.finish([bounds]);
    const aggregate = 'count,sum(i),max(i) since 15';
    const second = sinkOn(disk, 'max(i),count,sum(i)');
    // It is not known yet since when the aggregate exists.
    await second.bind(undefined, shapeOf(`count,sum(i),max(i) since ${Number.MAX_SAFE_INTEGER}`));
    await second.check();
    await second.bind(undefined, shapeOf(aggregate));
    expect(Buffer.from(disk.bytesOf('_millrace.json') ?? []).toString()).toContain(aggregate);
    await second.write([pageOf(bounds, aggregate, [{ accountId: 1n, start: 30n, last: 34n }])]);
    await second.finish([bounds]);
    expect(await valuesOn(disk)).toEqual([
      [3, [1n, 5n, null]],
      [30, [1n, 5n, 9n]],
    ]);
    const less = sinkOn(disk, BEFORE);
    await less.bind(undefined, shapeOf(BEFORE));
    await expect(less.check()).rejects.toMatchObject({ code: 'job_changed' });
  });
});

describe('one of several windows', () => {
  const INPUT = { format: 'json', key: 'k:i64', time: 't:ms' } as const;
  const windowOf = (name: string, aggregate: string | undefined, reader: { definition: object }) =>
    new WindowSource(
      {
        ...{ bounds: async () => [], asked: () => {}, placed: () => {}, saved: () => {}, nowMs: () => 0 },
        source: { partitionCount: 1 },
        input: {
          ...{ isReady: true, describe: () => undefined },
          get definition() {
            return reader.definition;
          },
          resume: (saved: object) => {
            reader.definition = saved;
          },
        },
      } as never,
      { name, aggregate, watermarks: {} } as never,
    );

  it('each window has its own time since when an aggregate exists', async () => {
    const flags = 'count,sum(i),max(i)';
    const reader = { definition: { ...INPUT, format: 'undecided', aggregates: [flags, 'min(i)'] } };
    const [minute, hour, added] = ['minute', 'hour', 'added'].map((name) => windowOf(name, flags, reader));
    const plain = windowOf('plain', undefined, reader);
    minute?.input.resume({ ...INPUT, aggregate: 'count,sum(i),max(i) since 5' });
    hour?.input.resume({ ...INPUT, aggregate: 'count,sum(i) since 1,max(i) since 9' });
    expect(minute?.input.definition).toEqual({ ...INPUT, aggregate: 'count,sum(i),max(i) since 5' });
    expect(reader.definition).toEqual({ ...INPUT, aggregates: [flags, 'min(i)'] });
    const own = hour?.input.definition;
    expect(own).toEqual({ ...INPUT, aggregate: 'count,sum(i) since 1,max(i) since 9' });
    for (const window of [added, plain]) {
      void window?.next(0);
      const delivered = window?.deliver({ records: {}, events: {} } as never, 0);
      // The window is done with the rows when it asks for more.
      void window?.next(0);
      await delivered;
    }
    expect(added?.input.definition.aggregate).toBe(flags);
    expect(plain.input.definition).toEqual(INPUT);
    expect(hour?.input.definition).toBe(own);
  });

  it('windows with other aggregates, in any order, read the same records; another key is refused', async () => {
    const reader = { definition: { ...INPUT, format: 'undecided', aggregates: ['max(i),count', 'sum(j)'] } };
    const [minute, hour] = ['minute', 'hour'].map((name) => windowOf(name, 'max(i),count', reader));
    minute?.input.resume({ ...INPUT, aggregate: 'count,max(i) since 5' });
    hour?.input.resume({ ...INPUT, aggregate: 'max(i),count' });
    expect(hour?.input.definition).toEqual({ ...INPUT, aggregate: 'max(i),count' });
    const other = windowOf('other', 'sum(j)', reader);
    minute?.input.resume({ ...INPUT, aggregate: 'count,max(i) since 5' });
    reader.definition = { ...reader.definition };
    expect(() => other.input.resume({ ...INPUT, key: 'k:string', aggregate: 'sum(j)' })).toThrowError(
      /reads the records in another way/,
    );
  });
});

describe('oracle of verify', () => {
  it('an aggregate that was added later has no value in a window before', () => {
    const accumulator = new Accumulator(Aggregates.of('count,sum(i) since 15'));
    const event = { value: 0n, timeMs: 3n, cells: [1n << 63n], key: [], isFiltered: false, id: undefined };
    accumulator.add(event as never, { partition: 0, offset: 0n, element: 0 });
    const textOf = (startMs: number) => accumulator.expected(startMs).map(({ expected }) => expected.text);
    expect(textOf(15)).toEqual(['1', 'null', '3', 'false']);
    expect(textOf(16)).toEqual(['1', String(-(1n << 63n)), '3', 'true']);
    const absent = accumulator.expected(15)[1]?.expected;
    expect([absent?.matches(null, null), absent?.matches(0n, null)]).toEqual([true, false]);
  });
});
