/** Parts of the comparison with other engines: cells, expected results, rows, goals, page, plot. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { wantedOf } from '../../../bench/engine-peers.ts';
import { machine } from '../../../bench/harness.ts';
import type { OracleRules } from '../../../bench/peers/oracle/rules.ts';
import { Oracle } from '../../../bench/peers/oracle/windows.ts';
import { bareProblems } from '../../../bench/side-by-side/bare.ts';
import {
  AXES,
  allCells,
  BASE,
  type Cell,
  cellName,
  cellsOn,
  DELAY_MS,
  hasKill,
  type Kind,
  streamOf,
  TAIL_EVENTS,
  tailOf,
  WINDOWS,
} from '../../../bench/side-by-side/cells.ts';
import { CONTESTANTS, type Drain, type Name } from '../../../bench/side-by-side/contestant.ts';
import { type Expected, expectedOf } from '../../../bench/side-by-side/expected.ts';
import { readProgress, versionIn } from '../../../bench/side-by-side/jvm.ts';
import { windowFlags } from '../../../bench/side-by-side/ours.ts';
import { peersPage, withPeers } from '../../../bench/side-by-side/page.ts';
import { peersPlots } from '../../../bench/side-by-side/plot.ts';
import { keptWithin, type PeersReport, type Run, resultsOf } from '../../../bench/side-by-side/report.ts';
import { differencesOf, ROW_WORDS, RowSet, readRows } from '../../../bench/side-by-side/rows.ts';
import { loadGenKernels } from '../../../src/addon/gen.ts';
import { command as engine } from '../../../src/bin/engine.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../../src/gen/event-options.ts';
import { EventGenerator } from '../../../src/gen/events.ts';
import { smokeContext } from './context.ts';

const kernels = loadGenKernels('reference');
const KINDS: readonly Kind[] = ['tumbling', 'sliding', 'session'];
/** Twelve minutes of event time and few keys: windows have several events, and sessions end. */
const STREAM: EventOptions = {
  ...DEFAULT_EVENTS,
  ...{ count: 2000, accounts: 60, perMs: 2000 / 720_000, accountBase: 7n },
};

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'millrace-side-by-side-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

type Row = readonly [account: bigint, start: bigint, end: bigint, count: bigint, sum: bigint];
const words = (...rows: readonly Row[]): Uint32Array =>
  new Uint32Array(BigInt64Array.from(rows.flat()).buffer);

function setOf(...rows: readonly Row[]): RowSet {
  const set = new RowSet(1);
  const all = words(...rows);
  for (let at = 0; at < all.length; at += ROW_WORDS) set.add(all, at);
  return set;
}

/** Rows of the oracle of the benches, which groups objects in maps. */
function oracleRows(stream: EventOptions, kind: Kind): readonly Row[] {
  const { sizeMs, slideMs } = WINDOWS[kind];
  const shared = { skewMs: 0n, latenessMs: 0n };
  const rules: Readonly<Record<Kind, OracleRules>> = {
    tumbling: { ...shared, sizeMs: BigInt(sizeMs) },
    sliding: { ...shared, window: 'sliding', sizeMs: BigInt(sizeMs), slideMs: BigInt(slideMs) },
    session: { ...shared, window: 'session', gapMs: BigInt(sizeMs) },
  };
  const oracle = new Oracle(rules[kind], 1, false);
  const generator = new EventGenerator(stream, kernels);
  const batch = EventBatch.create(512);
  const { accountId, value, eventTs } = batch.columns;
  for (let rows = generator.fillEvents(batch); rows > 0; rows = generator.fillEvents(batch))
    for (let row = 0; row < rows; row++)
      oracle.event(0, accountId[row] as bigint, value[row] as bigint, eventTs[row] as bigint);
  return [...oracle.rows()].map((row) => [row.accountId, row.windowStart, row.windowEnd, row.count, row.sum]);
}

describe('cells of the comparison', () => {
  it('each cell differs from the base cell in one setting, and each name is unique', () => {
    const names = allCells().map(cellName);
    expect(new Set(names).size).toBe(7);
    expect(names[0]).toBe('tumbling 1m, fixed layout of 256 B, 1M keys, firing-light');
    for (const axis of AXES) expect(cellsOn(axis).map(cellName), axis).toContain(cellName(BASE));
    expect(cellsOn('keys').map(({ keys }) => keys)).toEqual([100_000, 1_000_000, 10_000_000]);
    expect(
      allCells()
        .filter(hasKill)
        .map(({ keys }) => keys),
    ).toEqual([1_000_000, 100_000, 10_000_000]);
  });

  it('the last events close every window of a cell and none of their own', () => {
    for (const cell of allCells()) {
      const stream = streamOf(cell, 1000, true);
      const { sizeMs } = WINDOWS[cell.kind];
      const frontier = tailOf(cell).baseMs - DELAY_MS;
      expect(stream.baseMs + stream.count / stream.perMs + sizeMs, cellName(cell)).toBeLessThan(frontier);
      // A window with a last event ends after it, beyond the frontier.
      expect(tailOf(cell)).toMatchObject({ count: TAIL_EVENTS, zipf: 0 });
    }
  });

  it('-only selects contestants, cells and modes, and a small run downloads nothing', () => {
    const names = (only?: readonly string[], smoke = false) => wantedOf({ only, smoke });
    expect(names().names).toEqual(CONTESTANTS);
    expect(names().cells).toHaveLength(7);
    expect(names(undefined, true)).toEqual({
      names: ['millrace', 'millrace-direct', 'bare-librdkafka', 'bare-fetch'],
      cells: [BASE],
      modes: ['throughput', 'recovery'],
    });
    expect(names(['flink-heap', 'base', 'recovery'])).toEqual({
      ...{ names: ['flink-heap'], cells: [BASE], modes: ['recovery'] },
    });
    expect(names(['keys', 'format'], true).cells.map(({ keys, format }) => [keys, format])).toEqual([
      [1_000_000, 'binary256'],
      [100_000, 'binary256'],
      [10_000_000, 'binary256'],
      [1_000_000, 'avro'],
    ]);
    expect(() => names(['flink'])).toThrow(/-only=flink is not a part.*/);
  });

  it('the engine gets the windows and fields of the cell by flags that it has', () => {
    const flags = [
      ...windowFlags({ ...BASE, kind: 'sliding', format: 'avro' }, 'http://registry'),
      ...windowFlags({ ...BASE, kind: 'session' }, undefined),
    ];
    expect(flags).toEqual(
      expect.arrayContaining([
        '-slide=60000ms',
        '-size=300000ms',
        '-gap=30000ms',
        '-format=avro',
        '-format=binary256',
      ]),
    );
    for (const flag of flags) expect(Object.keys(engine.settings)).toContain(flag.slice(1).split('=')[0]);
  });
});

describe('expected results', () => {
  it.each(KINDS)('the expected %s windows are those of the oracle, row for row', (kind) => {
    const rows = oracleRows(STREAM, kind);
    expect(rows.length).toBeGreaterThan(100);
    const { weighted, ...results } = expectedOf(STREAM, kind, kernels);
    expect(results).toEqual(setOf(...rows).results());
    expect(weighted).toBe(
      BigInt.asUintN(
        64,
        rows.reduce((sum, [account, start, , , own]) => sum + own * (account + start), 0n),
      ),
    );
  });

  it('a bare loop has the windows that never end, too', () => {
    const totals = (rows: number, count: number, weighted: bigint): Expected => ({
      ...{ rows, count, weighted, sum: '0', digest: '' },
    });
    const task = { expected: totals(3, 10, -5n), tail: totals(1, 2, 4n) };
    const printed = { events: 1, seconds: 1, cpu_seconds: 1, rows: '4', count: '12' };
    expect(bareProblems(task, { ...printed, sum: `${2n ** 64n - 1n}` })).toEqual([]);
    expect(bareProblems(task, { ...printed, rows: '5', sum: '7' })).toEqual([
      'rows: 5, expected 4',
      'sum: 7, expected 18446744073709551615',
    ]);
  });
});

describe('rows of an engine', () => {
  const row: Row = [5n, 0n, 60n, 2n, -7n];
  const other: Row = [2n ** 40n, -60n, 0n, 1n, 2n ** 40n];

  it('the digest changes with every value of a row and not with the order of rows', () => {
    const digest = (...rows: readonly Row[]): string => setOf(...rows).results().digest;
    expect(digest(row, other)).toBe(digest(other, row));
    const changed = row.map((_, at) => digest(row.map((cell, i) => (i === at ? cell + 1n : cell)) as never));
    expect(new Set([digest(row), digest(), digest(other), ...changed]).size).toBe(8);
    expect(setOf(row, other).results()).toMatchObject({ rows: 2, count: 3, sum: `${2n ** 40n - 7n}` });
  });

  it('an equal repeat is one row, and a repeat with another value is a conflict', () => {
    const set = setOf(row, other, row, [5n, 0n, 60n, 3n, -7n]);
    expect(set).toMatchObject({ rows: 2, repeats: 1, conflicts: 1 });
    expect(differencesOf(setOf(row, other).results(), set)).toEqual([
      '1 results were written again with another value',
    ]);
    expect(differencesOf(setOf(row).results(), setOf(row))).toEqual([]);
    expect(differencesOf(setOf(row).results(), setOf(other))).toHaveLength(3);
  });

  it('a set grows beyond the expected rows and keeps them apart', () => {
    const rows = Array.from({ length: 1000 }, (_, at): Row => [BigInt(at % 100), BigInt(at), 1n, 1n, 1n]);
    const set = setOf(...rows, ...rows);
    expect(set).toMatchObject({ rows: 1000, repeats: 1000, conflicts: 0 });
    expect(set.results()).toMatchObject({ rows: 1000, count: 1000, sum: '1000' });
  });

  it('the files of all writers are read without their unused space', async () => {
    const dir = folder();
    writeFileSync(join(dir, 'rows-1.bin'), Buffer.from(words(row, [0n, 0n, 0n, 0n, 0n]).buffer));
    writeFileSync(join(dir, 'rows-2.bin'), Buffer.from(words(other, row).buffer));
    writeFileSync(join(dir, 'log-0'), 'text');
    const set = new RowSet(2);
    await readRows(dir, set);
    expect(set).toMatchObject({ rows: 2, repeats: 1 });
    expect(set.results()).toEqual(setOf(row, other).results());
  });

  it('the progress of a peer is read from its file, and a missing or short file is none', () => {
    const path = join(folder(), 'progress');
    const none = { events: 0, rows: 0, firstEventAt: null, firstRowAt: null, lastRowAt: null };
    expect(readProgress(path)).toEqual(none);
    writeFileSync(path, Buffer.alloc(8));
    expect(readProgress(path)).toEqual(none);
    const cells = new BigInt64Array(68);
    cells.set([10n, 20n]);
    cells.set([3n, 1000n, 2000n, 0n], 64);
    writeFileSync(path, Buffer.from(cells.buffer));
    expect(readProgress(path)).toEqual({
      ...none,
      events: 30,
      rows: 3,
      firstEventAt: 1000,
      firstRowAt: 2000,
    });
  });
});

const DRAIN: Drain = {
  ...{ rate: 1e6, cpuUs: 1, cpuAllUs: 1.5, peakBytes: 100 * 1024 ** 2 },
  ...{ firstEventMs: 500, firstResultMs: 1000, problems: [] },
};
const HERE = { build: 'digest', machine: machine() };
const drained = (contestant: Name, drain: Partial<Drain>, cell = BASE): Run => ({
  ...{ ...HERE, cell, contestant, mode: 'throughput', repeat: 1, drain: { ...DRAIN, ...drain } },
});
const recovered = (contestant: Name, recoveryMs: number): Run => ({
  ...{ ...HERE, cell: BASE, contestant, mode: 'recovery', repeat: 1 },
  recovery: { share: 0.5, recoveryMs, problems: [] },
});
const WIDE = { ...BASE, keys: 10_000_000 };
const RUNS: readonly Run[] = [
  drained('millrace', {}),
  drained('millrace-direct', { cpuUs: 0.5 }),
  drained('bare-fetch', { cpuUs: 0.25, firstEventMs: null, firstResultMs: null }),
  drained('flink-heap', { cpuUs: 4.5, rate: 2e5 }),
  drained('kafka-streams', { cpuUs: 11, problems: ['rows: 3, expected 4'] }),
  recovered('millrace', 1000),
  recovered('flink-heap', 2900),
  drained('millrace', { peakBytes: 300 * 1024 ** 2 }, WIDE),
  drained('flink-heap', { peakBytes: 4096 * 1024 ** 2 }, WIDE),
  drained('kafka-streams', { peakBytes: 200 * 1024 ** 2 }, WIDE),
  {
    ...{ ...HERE, cell: BASE, contestant: 'hazelcast-jet', mode: 'throughput', repeat: 1 },
    failed: 'out of memory',
  },
];
const reportOf = (runs: readonly Run[]): PeersReport => {
  const contestants = CONTESTANTS.map((name) => ({
    ...{ name, title: `The ${name}`, settings: 'as usual' },
    ...(name === 'flink-rocksdb' ? { absent: 'no such artifact' } : {}),
  }));
  const results = resultsOf({ runs, contestants });
  const shared = { bench: 'engine-peers', ...HERE, events: 10_000 };
  return { ...shared, results, contestants, runs };
};

describe('stored runs of the comparison', () => {
  const later = { ...HERE, build: 'later' };
  const cellsOf = (runs: readonly Run[]) => [...new Set(runs.map(({ cell }) => cellName(cell)))];

  it('a later build makes the runs of its cells again and keeps those of other cells', () => {
    expect(cellsOf(keptWithin(RUNS, [BASE], later))).toEqual([cellName(WIDE)]);
    expect(keptWithin(RUNS, [], later)).toEqual(RUNS);
    expect(keptWithin(RUNS, [BASE, WIDE], later)).toEqual([]);
  });

  it('the same build on the same machine keeps every run, on another machine as a later build', () => {
    expect(keptWithin(RUNS, [BASE, WIDE], HERE)).toEqual(RUNS);
    const other = { ...HERE, machine: { ...machine(), cores: 64 } };
    expect(cellsOf(keptWithin(RUNS, [WIDE], other))).toEqual([cellName(BASE)]);
  });

  it('a cell on the page names the build of its runs', () => {
    const mixed = RUNS.map((run) => (run.cell === WIDE ? { ...run, build: 'later' } : run));
    const page = peersPage(reportOf(mixed)).split('## ');
    const section = (cell: Cell) => page.find((one) => one.startsWith(cellName(cell)));
    expect(section(BASE)).toContain('\nBy build digest, ');
    expect(section(WIDE)).toContain('\nBy build later, ');
    expect(section(WIDE)).not.toContain('build digest');
  });
});

describe('goals of the comparison', () => {
  it('each goal is judged by its own pair, and a missed one stands as missed', () => {
    const judged = reportOf(RUNS).results.filter(({ goal }) => goal !== null);
    expect(
      judged.map(({ metric, against, goal, met }) => [metric.split(',')[0], against, goal, met]),
    ).toEqual([
      ['runs of Millrace whose results differ from the oracle', null, 'value <= 0', true],
      ['The millrace: CPU', 'The flink-heap', 'ratio >= 4', true],
      ['The millrace: CPU', 'The kafka-streams', 'ratio >= 12', false],
      ['The millrace-direct: CPU', 'The flink-heap', 'ratio >= 10', false],
      ['The millrace-direct: CPU', 'The kafka-streams', 'ratio >= 30', false],
      ['The millrace: recovery after SIGKILL', 'The flink-heap', 'ratio >= 3', false],
      ['The millrace: peak RSS', 'The kafka-streams, the least of 2 engines', 'ratio >= 1', false],
    ]);
  });

  it('a wrong result of Millrace is a missed goal, and one of a peer is counted apart', () => {
    const wrong = [...RUNS, drained('millrace', { problems: ['rows: 1, expected 2'] }, WIDE)];
    const rows = reportOf(wrong).results.slice(0, 3);
    expect(rows.map(({ value, met }) => [value, met])).toEqual([
      [11, null],
      [1, false],
      [1, null],
    ]);
  });
});

describe('the page of the comparison', () => {
  it('the page names absent contestants, runs without a measurement and wrong results', () => {
    const page = peersPage(reportOf(RUNS));
    expect(page).toContain('| The flink-rocksdb | **absent**: no such artifact |');
    expect(page).toContain('| no measurement: out of memory |');
    expect(page).toContain('| **rows: 3, expected 4** |');
    expect(page).toContain(
      '| The millrace | 1,000,000 | 1 | 1.5 | 1 | 1,000,000 | 100 | 0.5 | 1 | 1 | 1 | equal |',
    );
    expect(page).toContain('Not run.');
    expect(page).not.toMatch(/NaN|undefined|Infinity/);
  });

  it('the page of stored runs has the start to the first event and to the first result of each engine', () => {
    const stored = JSON.parse(readFileSync('docs/results/engine-peers.json', 'utf8')) as PeersReport;
    const page = peersPage(stored);
    expect(page).toContain('| start to the first event read, s | start to the first result, s |');
    expect(page).not.toMatch(/NaN|undefined|Infinity/);
    const rows = page.split('\n').filter((line) => /^\| (Millrace|Apache|Kafka|Hazelcast)/.test(line));
    const measured = rows.map((line) => line.split(' | ')).filter((cells) => cells.length === 12);
    expect(measured.length).toBeGreaterThan(5);
    for (const cells of measured) expect(Number(cells[7])).toBeLessThanOrEqual(Number(cells[8]));
  });

  it('the results have the start to the first event of two engines beside each other', () => {
    const found = reportOf(RUNS).results.filter(({ metric }) => metric.includes('start to the first event'));
    expect(found[0]).toMatchObject({ unit: 's', value: 0.5, against: 'The flink-heap', against_value: 0.5 });
    expect(found.every(({ goal }) => goal === null)).toBe(true);
  });

  it('the page links exactly the plots that exist', () => {
    for (const runs of [RUNS, []]) {
      const report = reportOf(runs);
      const linked = [...peersPage(report).matchAll(/(engine-peers-[a-z]+\.svg)/g)].map(([, name]) => name);
      expect(linked.sort()).toEqual(Object.keys(peersPlots(report)).sort());
    }
  });

  it('a plot has one bar for each measured contestant, longer for more events per CPU second', () => {
    const plots = peersPlots(reportOf(RUNS));
    const [light, dark] = [plots['engine-peers-light.svg'], plots['engine-peers-dark.svg']] as [
      string,
      string,
    ];
    const bars = [...light.matchAll(/<rect [^>]*width="([\d.]+)"[^>]*><title>(.*?)<\/title>/g)];
    expect(bars.map(([, , title]) => title)).toEqual([
      'The bare-fetch: 4,000,000',
      'The millrace-direct: 2,000,000',
      'The millrace: 1,000,000',
      'The flink-heap: 222,000',
      'The kafka-streams: 90,900',
    ]);
    const widths = bars.map(([, width]) => Number(width));
    expect(widths).toEqual([...widths].sort((a, b) => b - a));
    // One power of ten apart: 222,000 and 2,000,000 have nearly the distance of two grid lines.
    const power = (860 - 250 - 100) / 3;
    expect((widths[1] as number) - (widths[3] as number)).toBeCloseTo(power * Math.log10(9), 0);
    expect(dark).toContain('fill="#0d1117"');
    expect(light.replaceAll(/#[0-9a-f]{6}/g, '')).toBe(dark.replaceAll(/#[0-9a-f]{6}/g, ''));
    expect(light).not.toMatch(/NaN|undefined|Infinity/);
  });

  it('the README has the plot and the ratios once three repeats are stored, and nothing before', () => {
    const begin = '<!-- engine-peers: generated from docs/results/engine-peers.json -->';
    const readme = `before\n${begin}\nold\n<!-- /engine-peers -->\nafter\n`;
    const repeated = RUNS.map((run) => ({ ...run, repeat: 3 }));
    const filled = withPeers(readme, reportOf(repeated));
    expect(filled).toContain('src="docs/results/engine-peers-light.svg"');
    expect(filled).toContain('beside Flink heap 4.5x, 9x; Kafka Streams 11x, 22x (librdkafka');
    expect(filled).toMatch(/^before\n[\s\S]*\nafter\n$/);
    expect(filled).toContain('at most 3 runs each; 6 of 7 results equal the oracle');
    const right = repeated.filter(({ contestant }) => contestant !== 'kafka-streams');
    expect(withPeers(filled, reportOf(right))).toContain('6 of 6 results equal the oracle');
    const empty = `before\n${begin}\n<!-- /engine-peers -->\nafter\n`;
    expect(withPeers(filled, undefined)).toBe(empty);
    expect(withPeers(filled, reportOf([]))).toBe(empty);
    expect(withPeers(filled, reportOf(RUNS))).toBe(empty);
    expect(withPeers('no marks', reportOf(repeated))).toBe('no marks');
    expect(readFileSync('README.md', 'utf8')).toContain(begin);
  });

  it('each peer names the version of its engine', () => {
    expect(versionIn('flink', 'flink-streaming-java')).toMatch(/^2\.\d+\.\d+$/);
    expect(versionIn('kafka-streams', 'kafka-streams')).toMatch(/^4\./);
    expect(() => versionIn('flink', 'none')).toThrow('no none');
    expect(versionIn('not-in-a-package', 'flink')).toBeUndefined();
  });
});

describe('a small run', () => {
  it('an unknown part is refused before anything is started', async () => {
    const { bench } = await import('../../../bench/engine-peers.ts');
    await expect(bench.run(smokeContext({ only: ['flnk-heap'] }))).rejects.toThrow('-only=flnk-heap');
  });
});
