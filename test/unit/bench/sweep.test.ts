/** Cells of the sweep, their counts beside the oracle, and the page with its plots. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { lateTailOf, trueRows } from '../../../bench/engine/late-tail.ts';
import { machine } from '../../../bench/harness.ts';
import type { OracleRules } from '../../../bench/peers/oracle/rules.ts';
import { Oracle } from '../../../bench/peers/oracle/windows.ts';
import { madeByText, madeHere } from '../../../bench/stored.ts';
import { Arrivals } from '../../../bench/sweep/arrivals.ts';
import {
  AXES,
  allCells,
  type Cell,
  cellName,
  cellsOn,
  isOn,
  KINDS,
  SLIDES,
  usualCell,
} from '../../../bench/sweep/cells.ts';
import { type Counts, countsOf } from '../../../bench/sweep/counts.ts';
import { RowsDigest } from '../../../bench/sweep/digest.ts';
import type { LiveRun } from '../../../bench/sweep/live.ts';
import { differencesOf, type SweepReport, sweepPage, sweepPlots } from '../../../bench/sweep/page.ts';
import { bench } from '../../../bench/sweep.ts';
import { loadGenKernels } from '../../../src/addon/gen.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { DEFAULT_EVENTS } from '../../../src/gen/event-options.ts';
import { EventGenerator } from '../../../src/gen/events.ts';
import { smokeContext } from './context.ts';

const kernels = loadGenKernels('reference');
const PARTITIONS = 3;
/** Two hours and three quarters of event time, few keys, so that windows have several events. */
const STREAM = { ...DEFAULT_EVENTS, count: 1500, accounts: 25, perMs: 0.00015, accountBase: 7n };
const partitionOf = Uint8Array.from({ length: STREAM.accounts }, (_, at) =>
  Number((STREAM.accountBase + BigInt(at)) % BigInt(PARTITIONS)),
);

function rulesOf({ kind, windowMs, skewMs, latenessMs }: Cell): OracleRules {
  const shared = { skewMs: BigInt(skewMs), latenessMs: BigInt(latenessMs) };
  const sizeMs = BigInt(windowMs);
  if (kind === 'session') return { ...shared, window: 'session', gapMs: sizeMs };
  if (kind === 'tumbling') return { ...shared, sizeMs };
  return { ...shared, window: 'sliding', sizeMs, slideMs: BigInt(windowMs / SLIDES) };
}

describe('cells of the sweep', () => {
  it('skew by lateness is complete for each kind of window, and every other setting varies alone', () => {
    const names = allCells().map(cellName);
    expect(new Set(names).size).toBe(names.length);
    for (const kind of KINDS) {
      const own = allCells().filter((cell) => cell.kind === kind);
      const pairs = cellsOn(kind, 'lateness').map(({ skewMs, latenessMs }) => `${skewMs} ${latenessMs}`);
      expect(new Set(pairs).size).toBe(16);
      for (const cell of own)
        expect(
          AXES.some((axis) => isOn(cell, axis)),
          cellName(cell),
        ).toBe(true);
      expect(cellsOn(kind, 'checkpoint').map(({ intervalMs }) => intervalMs)).toEqual([
        5000, 30_000, 120_000,
      ]);
      expect(cellsOn(kind, 'keys').map(({ keys }) => keys)).toEqual([1e5, 1e6, 1e7]);
      const windows = cellsOn(kind, 'window').map(({ windowMs }) => windowMs);
      expect(windows).toEqual(expect.arrayContaining([1000, 60_000, 600_000]));
      expect(own).toHaveLength(16 + 2 + 2 + (kind === 'tumbling' ? 2 : 3));
    }
  });
});

describe('counts of the sweep', () => {
  const stream = { options: STREAM, partitions: PARTITIONS, kernels };
  const arrivals = new Arrivals({ stream: STREAM, kernels, partitions: PARTITIONS, partitionOf });

  it.each(KINDS)(
    'the counts of %s windows are those of the oracle in every cell of skew, lateness and window',
    (kind) => {
      const cells = allCells().filter(
        (cell) => cell.kind === kind && (isOn(cell, 'lateness') || isOn(cell, 'window')),
      );
      const truths = new Map<number, ReturnType<typeof trueRows>>();
      let differing = 0;
      for (const cell of cells) {
        const rules = rulesOf(cell);
        const truth = truths.get(cell.windowMs) ?? trueRows(stream, rules);
        truths.set(cell.windowMs, truth);
        const wanted = lateTailOf(stream, rules, truth);
        const counts = countsOf(arrivals, cell);
        const { windowsDiffering, windowsInEither, countError, trueCount, jaccardOfTime } = counts;
        differing += windowsDiffering;
        expect(
          {
            consumed: BigInt(counts.events),
            dropped: BigInt(counts.dropped),
            windows: counts.windows,
            windowsDiffering,
            windowsDifferingShare: windowsDiffering / windowsInEither,
            countError: BigInt(countError),
            countErrorShare: countError / trueCount,
          },
          cellName(cell),
        ).toEqual({
          consumed: wanted.consumed,
          dropped: wanted.dropped,
          windows: wanted.windows,
          windowsDiffering: wanted.windowsDiffering,
          windowsDifferingShare: wanted.windowsDifferingShare,
          countError: wanted.countError,
          countErrorShare: wanted.countErrorShare,
        });
        expect(jaccardOfTime, cellName(cell)).toBe(kind === 'session' ? wanted.jaccardOfTime : null);
      }
      expect(differing).toBeGreaterThan(100);
    },
  );

  it.each(KINDS)('the digest of %s windows is that of the rows of the oracle', (kind) => {
    const cell = { ...usualCell(kind), skewMs: 1000, latenessMs: 0 };
    const oracle = new Oracle(rulesOf(cell), PARTITIONS);
    const generator = new EventGenerator({ ...STREAM, order: 'delayed' }, kernels);
    const batch = EventBatch.create(512);
    const { accountId, value, eventTs } = batch.columns;
    for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch))
      for (let row = 0; row < rows; row++) {
        const account = accountId[row] as bigint;
        const partition = Number(account % BigInt(PARTITIONS));
        oracle.event(partition, account, value[row] as bigint, eventTs[row] as bigint);
      }
    const digest = new RowsDigest();
    let rowsCount = 0;
    for (const { accountId: account, windowStart, windowEnd, count } of oracle.rows()) {
      digest.add(Number(account), Number(windowStart), Number(windowEnd), Number(count));
      rowsCount += Number(count);
    }
    const counts = countsOf(arrivals, cell);
    expect(counts.dropped).toBeGreaterThan(10);
    expect(counts).toMatchObject({ rows: digest.rows, rowsCount, digest: digest.text() });
  });

  it('the digest changes with every value of a row and not with the order of rows', () => {
    const digest = (...rows: readonly (readonly [number, number, number, number])[]): string => {
      const all = new RowsDigest();
      for (const row of rows) all.add(...row);
      return all.text();
    };
    const row = [2 ** 40 + 1, 1_750_000_000_000, 1_750_000_060_000, 3] as const;
    const other = [5, 0, 1, 1] as const;
    expect(digest(row, other)).toBe(digest(other, row));
    const changed = row.map((_, at) =>
      digest(row.map((value, i) => (i === at ? value + 1 : value)) as never),
    );
    expect(new Set([digest(row), digest(row, row), digest(), ...changed]).size).toBe(7);
    expect(digest([2 ** 32, 0, 0, 0])).not.toBe(digest([0, 0, 0, 0]));
  });
});

const COUNTS: Counts = {
  ...{ events: 1000, dropped: 20, windows: 100, windowsDiffering: 10, windowsInEither: 100 },
  ...{ countError: 20, trueCount: 1000, jaccardOfTime: null, rows: 99, rowsCount: 980, digest: 'ab' },
};
const LIVE: LiveRun = {
  ...madeHere(),
  ...{ rate: 1000, read: 990, accumulateMs: [1, 2.5, null], sinkMs: null, checkpoints: 0 },
  ...{
    checkpointMeanMs: null,
    checkpointMaxMs: null,
    ageMs: null,
    restoreMs: 40,
    recoveryMs: 1234,
    cpuUs: 1.5,
  },
  results: { events: 1000, dropped: 20, rows: 99, rowsCount: 980, digest: 'ab' },
};
const report = (live: LiveRun | null): SweepReport => ({
  ...{ bench: 'sweep', build: 'digest', machine: machine(), results: [], events: 1000, rate: 1000 },
  cells: [{ cell: usualCell('tumbling'), counts: COUNTS, live }],
});

describe('the page of the sweep', () => {
  it('a live result that differs from the count is named and bold', () => {
    const wrong = { ...LIVE, results: { ...LIVE.results, rows: 98, digest: 'ac' } };
    expect(differencesOf(COUNTS, LIVE.results)).toEqual([]);
    expect(differencesOf(COUNTS, wrong.results)).toEqual([
      'rows: 98 live, 99 counted',
      'digest: ac live, ab counted',
    ]);
    expect(sweepPage(report(LIVE))).toContain('1 of 1 live cells have the counted results');
    expect(sweepPage(report(wrong))).toContain('**rows: 98 live, 99 counted; digest: ac live, ab counted**');
    expect(sweepPage(report(wrong))).toContain('0 of 1 live cells have the counted results');
  });

  it('the page says what was not measured and what lies beyond the greatest bucket', () => {
    const page = sweepPage(report(LIVE));
    expect(page).toContain('| 99 % | 1 ms, 2.5 ms, > 60 s | none | none |');
    expect(page).toContain('| skew 5s | not run | not run | 2 % | not run |');
    expect(sweepPage(report(null))).toContain('No cell has run live.');
  });

  it('the page links exactly the plots that exist', () => {
    for (const live of [LIVE, null]) {
      const linked = [...sweepPage(report(live)).matchAll(/\]\((sweep-[a-z]+\.svg)\)/g)].map(
        ([, name]) => name,
      );
      expect(Object.keys(sweepPlots(report(live))).sort()).toEqual(linked.sort());
    }
  });

  it('a plot draws each value at its height, on one scale a row, and leaves out values that are missing', () => {
    const plots = sweepPlots(report(LIVE));
    const errors = plots['sweep-errors.svg'] as string;
    const points = [...errors.matchAll(/<title>(.*?)<\/title>/g)].map(([, text]) => text);
    expect(points).toEqual(['skew 5s, 1m: 2', 'skew 5s, 1m: 10']);
    // 2 % and 10 % on a scale from 1 to 10, whose panels are 150 high.
    const heights = [...errors.matchAll(/<circle [^>]*cy="([\d.]+)"/g)].map(([, y]) => Number(y));
    expect((heights[0] as number) - (heights[1] as number)).toBeCloseTo(150 * (1 - Math.log10(2)), 0);
    const events = plots['sweep-events.svg'] as string;
    expect(events).toContain('<title>p999, 30s: 60000</title>');
    expect(events).toMatch(/^<svg [^>]*>[\s\S]*<\/svg>\n$/);
    expect(events).not.toMatch(/NaN|undefined|Infinity/);
  });
});

describe('the sweep without an engine', () => {
  const run = async (out: string, only: readonly string[], said: string[] = []) =>
    bench.run(smokeContext({ out, only, say: (line) => void said.push(line) }));
  const folder = (): string => {
    const out = mkdtempSync(join(tmpdir(), 'millrace-sweep-'));
    onTestFinished(() => rmSync(out, { recursive: true, force: true }));
    return out;
  };

  it('the sweep counts the cells of the chosen parts, stores them, and continues an earlier run', async () => {
    const out = folder();
    await run(out, ['counts', 'session', 'keys']);
    const path = join(out, 'sweep.json');
    const stored = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
    expect(stored.cells.map(({ cell }) => cellName(cell))).toEqual(
      expect.arrayContaining(cellsOn('session', 'keys').map(cellName)),
    );
    expect(stored.cells).toHaveLength(3);
    expect(stored.cells.every(({ live }) => live === null)).toBe(true);
    expect(readFileSync(join(out, 'sweep.md'), 'utf8')).toBe(sweepPage(stored));
    const said: string[] = [];
    const results = await run(out, ['counts', 'session'], said);
    expect(said[0]).toBe('3 counts and 0 live cells of earlier runs are kept');
    expect(results[0]).toMatchObject({ metric: 'cells counted', value: 23 });
    const again = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
    expect(again.cells.filter(({ cell }) => isOn(cell, 'keys'))).toEqual(stored.cells);
  });

  it('the sweep keeps no cell of other flags', async () => {
    const out = folder();
    await run(out, ['counts', 'tumbling', 'checkpoint']);
    const path = join(out, 'sweep.json');
    const stored = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
    writeFileSync(path, JSON.stringify({ ...stored, flags: ['-smoke', '-events=30000'] }));
    const said: string[] = [];
    await run(out, ['counts', 'tumbling', 'checkpoint'], said);
    expect(said).toEqual(['counting 3 cells of 20000 events of 10000 keys']);
  });

  it('the sweep keeps live cells of another build, but not one that differs from its count', async () => {
    const out = folder();
    await run(out, ['counts', 'tumbling', 'checkpoint']);
    const path = join(out, 'sweep.json');
    const stored = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
    const live = (counts: Counts, rows: number, build: string): LiveRun => ({
      ...LIVE,
      build,
      results: { ...counts, rows },
    });
    const cells = stored.cells.map(({ cell, counts }, at) => ({
      cell,
      counts,
      live: [
        live(counts, counts.rows, 'other'),
        live(counts, -1, 'other'),
        live(counts, -1, madeHere().build),
      ][at] as LiveRun,
    }));
    writeFileSync(path, JSON.stringify({ ...stored, cells }));
    const said: string[] = [];
    await run(out, ['counts', 'tumbling', 'checkpoint'], said);
    expect(said).toEqual([
      '2 counts and 2 live cells of earlier runs are kept',
      'counting 1 cells of 20000 events of 10000 keys',
    ]);
    const again = JSON.parse(readFileSync(path, 'utf8')) as SweepReport;
    expect(again.cells).toEqual([cells[0], { ...cells[1], live: null }, cells[2]]);
    const page = readFileSync(join(out, 'sweep.md'), 'utf8');
    expect(page).toContain(`1 live cells by ${madeByText(LIVE)}.`);
    expect(page).toContain(`1 live cells by ${madeByText({ ...LIVE, build: 'other' })}.`);
  });

  it('the sweep refuses an unknown part by name', async () => {
    await expect(run(folder(), ['latenes'])).rejects.toThrow('-only=latenes is not a part of this benchmark');
  });
});
