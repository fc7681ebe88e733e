/** Several windows of `millrace engine`: their flag, the names of their outputs, their list in a
 *  job file, the file of the set, the division of memory, their metrics, and their queries. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, describe, expect, it } from 'vitest';
import { jobOf } from '../../../src/bin/engine/job.ts';
import { readJobDocument } from '../../../src/bin/engine/jobfile/document.ts';
import { jobTable } from '../../../src/bin/engine/jobfile/schema.ts';
import { demandStorable, warnOfSinkFolder } from '../../../src/bin/engine/store/open.ts';
import { runAll } from '../../../src/bin/engine/windows/run.ts';
import { demandSameEvents, settingsOf, verifySettings } from '../../../src/bin/engine/windows/settings.ts';
import { windowSpecs } from '../../../src/bin/engine/windows/specs.ts';
import {
  demandNoSet,
  demandNoSetIn,
  namesInSet,
  nextSet,
  writeSet,
} from '../../../src/bin/engine/windows/state.ts';
import { command } from '../../../src/bin/engine.ts';
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { type EngineQueries, engineOf } from '../../../src/engine/api/routes.ts';
import { sharesOf } from '../../../src/engine/durability/spill/budget.ts';
import { openDisk } from '../../../src/io/disk/node.ts';
import type { Command } from '../../../src/shell/command.ts';
import { loadSettings, settingTableOf } from '../../../src/shell/load-settings.ts';
import { packageRoot } from '../../../src/shell/package.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-windows-'));
afterAll(() => rmSync(folder, { recursive: true }));

const load = (...flags: string[]) => loadSettings(command, flags, {}).values;
const specs = (...flags: string[]) => windowSpecs(load(...flags));
const table = jobTable(settingTableOf(command as unknown as Command));

describe('the flag -window', () => {
  it('a window has its kind, its times and its options', () => {
    expect(
      specs(
        ...[
          '-window=minute=tumbling:1m',
          '-window=session:30s',
          '-window=smooth=sliding:5m:1m:lateness=0:emit=final',
        ],
      ),
    ).toEqual([
      { name: 'minute', windows: { window: 'tumbling', sizeMs: 60_000 } },
      { name: 'session_30s', windows: { window: 'session', gapMs: 30_000 } },
      {
        name: 'smooth',
        windows: { window: 'sliding', sizeMs: 300_000, slideMs: 60_000 },
        latenessMs: 0,
        emit: 'final',
      },
    ]);
  });

  it('one window without a name is that of a run without names, with its times in either form', () => {
    const expected = [{ name: undefined, windows: { window: 'sliding', sizeMs: 4000, slideMs: 2000 } }];
    expect(specs('-window=sliding', '-size=4s', '-slide=2s')).toEqual(expected);
    expect(specs('-window=sliding:4s:2s')).toEqual(expected);
    expect(specs()).toEqual([{ name: undefined, windows: { window: 'tumbling', sizeMs: 60_000 } }]);
  });

  it.each([
    ['the same name twice', ['-window=a=tumbling:1m', '-window=a=session:1s'], 'two windows named a'],
    [
      'the same window twice',
      ['-window=tumbling:1m', '-window=tumbling:60s'],
      'two windows named tumbling_1m',
    ],
    ['a reserved name', ['-window=late=tumbling:1m'], 'the name late of a window is reserved'],
    ['a name that ends like a view', ['-window=a_latest=tumbling:1m'], 'is reserved'],
    ['a name with a capital', ['-window=Minute=tumbling:1m'], 'is not a choice'],
    ['an unknown kind', ['-window=hopping:1m'], 'is not a choice'],
    ['no window', ['-window='], 'is not a choice'],
    ['a missing time', ['-window=a=sliding:1m'], 'has 1 times, and a sliding window has two'],
    ['a time too many', ['-window=a=session:1m:2m'], 'has 2 times, and a session window has one'],
    ['a time of nothing', ['-window=a=tumbling:0s'], 'has "0s" where a time of at least 1ms is due'],
    ['an unknown option', ['-window=a=tumbling:1m:colour=red'], 'has the option "colour=red", which is none'],
    ['a flag of one window', ['-window=a=tumbling:1m', '-size=1m'], '-size has no meaning beside'],
    ['a kind without its times', ['-window=tumbling', '-window=session'], 'has 0 times'],
    [
      'too many windows',
      Array.from({ length: 17 }, (_, i) => `-window=w${i}=tumbling:1m`),
      'has 17 windows, more than 16',
    ],
  ])('-window with %s is refused', (_what, flags, message) => {
    expect(() => specs(...flags)).toThrow(message);
  });

  it('the outputs of a window have its name', () => {
    const names = (sink: string) => {
      const settings = load(
        '-state-dir=/s',
        `-sink=${sink}`,
        '-late-topic=late',
        '-window=a=tumbling:1m:lateness=7s',
      );
      const { sink: named, ...own } = settingsOf(settings, windowSpecs(settings)[0]);
      expect(own).toMatchObject({
        ...{ 'state-dir': '/s/windows/a', 'sink-table': 'window_results_a', 'late-topic': 'late.a' },
        ...{ window: ['tumbling'], size: 60_000, 'allowed-lateness': 7000 },
      });
      return named;
    };
    expect(['rocksdb', 'rocksdb:/r/', 'parquet:/p', 'kafka:t', 'postgres:postgres://h/d'].map(names)).toEqual(
      [...['rocksdb', 'rocksdb:/r/a', 'parquet:/p/a', 'kafka:t.a', 'postgres:postgres://h/d']],
    );
  });
});

describe('actions over windows', () => {
  it('a verification has the settings of the window that it names', () => {
    const set = ['-state-dir=/s', '-window=a=tumbling:1m', '-window=b=session:1s'];
    const verify = (...more: string[]) => verifySettings(load(...set, ...more));
    const b = { name: 'b', settings: { 'state-dir': '/s/windows/b', window: ['session'], gap: 1000 } };
    expect(verify('-verify-window=b')).toMatchObject([b]);
    expect(verify()).toMatchObject([{ name: 'a', settings: { size: 60_000 } }, b]);
    expect(() => verify('-verify-window=c')).toThrowError(/-verify-window=c is none of the windows a, b/);
    expect(() => verifySettings(load('-verify-window=a'))).toThrowError(/-window has none with a name/);
    expect(verifySettings(load('-size=5s'))).toMatchObject([
      { name: undefined, settings: { size: 5000, window: ['tumbling'] } },
    ]);
  });

  it('a window has its own aggregates, and the others have those of the job', () => {
    const set = ['-window=a=tumbling:1m', '-window=b=session:1s', '-aggregate=count'];
    const of = (...more: string[]) => {
      const settings = load(...set, ...more);
      return windowSpecs(settings).map((spec) => {
        const { aggregate, 'window-aggregate': rest } = settingsOf(settings, spec);
        return { aggregate, rest };
      });
    };
    expect(of('-window-aggregate=b=sum(x:double),topk(sku,3) as top')).toEqual([
      { aggregate: 'count', rest: undefined },
      { aggregate: 'sum(x:double),topk(sku,3) as top', rest: undefined },
    ]);
    expect(of('-window-aggregate=b=min(x); a=max(x)').map(({ aggregate }) => aggregate)).toEqual([
      'max(x)',
      'min(x)',
    ]);
    expect(() => of('-window-aggregate=c=count')).toThrowError(/names "c", and -window has only a, b/);
    expect(() => of('-window-aggregate=a=count;a=count')).toThrowError(/names a twice/);
    expect(() => of('-window-aggregate=count')).toThrowError(/no NAME=AGGREGATES/);
    const alone = load('-window-aggregate=a=count');
    expect(() => windowSpecs(alone)).toThrowError(/no window with a name/);
    const verified = verifySettings(load(...set, '-window-aggregate=b=sum(x)'));
    expect(verified.map(({ aggregates }) => aggregates)).toEqual([
      ['count', 'sum(x)'],
      ['count', 'sum(x)'],
    ]);
  });

  it('windows over records and over the elements of a list are refused together', () => {
    const jobs = (...aggregates: readonly string[]) =>
      aggregates.map((aggregate, at) => ({
        name: `w${at}`,
        job: jobOf(settingsOf(load('-format=json'), { ...specs()[0], aggregate })),
      }));
    demandSameEvents(jobs('sum(items[].qty)', 'count(items[].sku)'));
    expect(() => demandSameEvents(jobs('count', 'sum(items[].qty)'))).toThrowError(
      /window w0 has records, and window w1 has the elements of items\[\]/,
    );
  });

  it('a store of checkpoints is refused beside a sink that is lost with the machine', () => {
    demandStorable(load('-checkpoint-store=/x', '-window=a=tumbling:1m'));
    expect(() => demandStorable(load('-checkpoint-store=/x', '-sink=rocksdb:/r'))).toThrowError(/is lost/);
  });

  it('a store of checkpoints warns once of results in a folder, and accepts it', () => {
    const warned = (...flags: string[]): unknown[] => {
      const warnings: unknown[] = [];
      const settings = load('-checkpoint-store=s3://bucket/x', ...flags);
      demandStorable(settings);
      const log = { ...silentLogger, warn: (...line: unknown[]) => void warnings.push(line) };
      warnOfSinkFolder({ settings, log });
      return warnings;
    };
    const windows = ['-window=a=tumbling:1m', '-window=b=session:1s'];
    expect(warned('-sink=parquet:/data/results', ...windows)).toEqual([
      [
        { folder: '/data/results' },
        expect.stringMatching(/every machine that may run the job must reach the same folder/),
      ],
    ]);
    for (const sink of ['rocksdb', 'postgres:postgres://h/d', 'kafka:results'])
      expect(warned(`-sink=${sink}`)).toEqual([]);
  });

  it('the state of one of several windows is not saved alone', async () => {
    const root = await openDisk(join(folder, 'several'));
    await demandNoSetIn(root);
    await writeSet(root, { topic: 't', names: ['a', 'b'], isStopped: true });
    expect(await namesInSet(root)).toEqual(['a', 'b']);
    await expect(demandNoSetIn(root)).rejects.toMatchObject({
      code: 'several_windows',
      next: `give -state-dir=${root.where}`,
    });
  });
});

describe('the windows of a job file', () => {
  const schema = new Ajv({ allErrors: true, allowUnionTypes: true }).compile(
    JSON.parse(readFileSync(join(packageRoot(), 'docs/reference/engine-job.schema.json'), 'utf8')),
  );
  const problems = (text: string): readonly string[] =>
    readJobDocument(text, table).problems.map(
      ({ line, column, code, message }) => `${line}:${column} ${code} ${message}`,
    );

  it('a list of windows means what the flags mean', () => {
    const text = [
      'windows:',
      '  - {name: minute, window: tumbling, size: 1m}',
      '  - {name: smooth, window: sliding, size: 5m, slide: 1m, allowed-lateness: 0}',
      '  - {name: visits, window: session, gap: 30s, emit: final}',
    ].join('\n');
    const { entries } = readJobDocument(text, table);
    expect(problems(text)).toEqual([]);
    expect(entries.get('window')?.text).toBe(
      'minute=tumbling:1m,smooth=sliding:5m:1m:lateness=0,visits=session:30s:emit=final',
    );
    const path = join(folder, 'job.yaml');
    writeFileSync(path, text);
    expect(specs(`-job=${path}`).map(({ name }) => name)).toEqual(['minute', 'smooth', 'visits']);
    expect(specs(`-job=${path}`, '-window=session', '-gap=1s')[0].name).toBeUndefined();
    const value = {
      windows: [
        { name: 'minute', window: 'tumbling', size: '1m' },
        { name: 'visits', window: 'session', gap: '30s', emit: 'final', 'allowed-lateness': 0 },
      ],
    };
    expect(schema(value)).toBe(true);
    for (const wrong of [
      { window: 'tumbling' },
      { name: 'A', window: 'tumbling' },
      { name: 'a', window: 'x' },
    ])
      expect(schema({ windows: [wrong] })).toBe(false);
    const own = { name: 'c', window: 'session', gap: '1s', aggregate: ['count', 'sum(x)'] };
    expect(schema({ windows: [own, { ...own, name: 'd', aggregate: 'count' }] })).toBe(true);
    expect(schema({ ...value, window: 'tumbling' })).toBe(false);
    expect(schema({ windows: [] })).toBe(false);
  });

  it('the aggregates of a window mean what the flag means, and a mistake has its place', () => {
    const text = [
      'windows:',
      '  - {name: minute, window: tumbling, size: 1m}',
      '  - {name: visits, window: session, gap: 30s, aggregate: [count, "topk(sku,10)"]}',
      '  - {name: hour, window: tumbling, size: 1h, aggregate: "sum(x),max(x)"}',
    ].join('\n');
    expect(problems(text)).toEqual([]);
    expect(readJobDocument(text, table).entries.get('window-aggregate')?.text).toBe(
      'visits=count,topk(sku,10);hour=sum(x),max(x)',
    );
    const wrong = text.replace('max(x)', 'median(x)');
    expect(problems(wrong)).toEqual([expect.stringMatching(/^4:\d+ bad_setting .*"median\(x\)"/)]);
    const both = `${text}\nwindow-aggregate: minute=count`;
    expect(problems(both)).toEqual([expect.stringContaining('both name aggregates of the windows')]);
  });

  it.each([
    ['no list', 'windows: tumbling', '1:1 bad_job windows is no list of windows'],
    ['an empty list', 'windows: []', '1:1 bad_job windows is no list of windows'],
    ['a text in the list', 'windows: [tumbling]', '1:11 bad_job a window is no mapping'],
    [
      'an unknown field',
      'windows: [{name: a, window: session, gpa: 1s}]',
      '1:38 unknown_flag gpa is no field',
    ],
    ['no name', 'windows: [{window: session, gap: 1s}]', '1:11 bad_job a window has no name'],
    ['no kind', 'windows: [{name: a, gap: 1s}]', '1:11 bad_job a window has no window'],
    ['no time', 'windows: [{name: a, window: session}]', '1:11 bad_job a session window has a gap'],
    [
      'a time too many',
      'windows: [{name: a, window: session, gap: 1s, size: 1s}]',
      '1:53 bad_job a session window has no size',
    ],
    [
      'a bad time',
      'windows: [{name: a, window: session, gap: soon}]',
      '1:43 bad_value gap=soon is not a duration',
    ],
    [
      'a bad kind',
      'windows: [{name: a, window: hourly, size: 1h}]',
      '1:29 bad_value window=hourly is not a choice',
    ],
    [
      'a reserved name',
      'windows: [{name: late, window: session, gap: 1s}]',
      '1:18 bad_value the name late of a window',
    ],
    [
      'a bad name',
      'windows: [{name: A b, window: session, gap: 1s}]',
      '1:18 bad_value "A b" is not the name of a window',
    ],
    [
      'a name twice',
      'windows:\n  - {name: a, window: session, gap: 1s}\n  - {name: a, window: tumbling, size: 1s}',
      '3:12 bad_job two windows have the name a',
    ],
    [
      'both names',
      'window: session\nwindows: [{name: a, window: session, gap: 1s}]',
      '2:1 bad_job window and windows both',
    ],
    ['an anchor', 'windows: [&a {name: a, window: session, gap: 1s}]', '1:14 bad_job a window is no mapping'],
  ])('windows with %s have a problem at its place', (_what, text, expected) => {
    expect(problems(text)[0]).toContain(expected);
  });
});

describe('the file of the set', () => {
  const set = { topic: 't', names: ['a', 'b'], hasQuarantine: true };
  let folders = 0;
  const disk = () => openDisk(join(folder, `set-${folders++}`));

  it('the window with the quarantine keeps it, and changes only after a stop', async () => {
    const root = await disk();
    const first = await nextSet(root, set);
    expect(first).toEqual({
      set: { topic: 't', names: ['a', 'b'], quarantine: 'a', isStopped: false },
      removed: [],
    });
    await writeSet(root, first.set);
    expect(await nextSet(root, { ...set, names: ['b', 'a', 'c'] })).toMatchObject({
      set: { quarantine: 'a' },
    });
    await expect(nextSet(root, { ...set, names: ['c', 'b'] })).rejects.toThrow(
      `window a of ${root.where} may have invalid records`,
    );
    const off = { ...set, names: ['b'], hasQuarantine: false };
    expect(await nextSet(root, off)).toMatchObject({ set: { quarantine: undefined }, removed: ['a'] });
    await writeSet(root, { ...first.set, isStopped: true });
    expect(await nextSet(root, { ...set, names: ['c', 'b'] })).toMatchObject({
      set: { quarantine: 'b', names: ['c', 'b'] },
      removed: ['a'],
    });
  });

  it('another topic, a window without a name and a damaged file are refused', async () => {
    const root = await disk();
    await demandNoSet(root);
    await writeSet(root, (await nextSet(root, set)).set);
    await expect(nextSet(root, { ...set, topic: 'u' })).rejects.toThrow('windows over the topic t, not u');
    await expect(demandNoSet(root)).rejects.toThrow('has the state of the windows a, b');
    await root.write('windows.json', [new TextEncoder().encode('{"version":1}')]);
    await expect(nextSet(root, set)).rejects.toThrow('is not a list of windows');
  });
});

describe('the parts that windows share', () => {
  it('the reader takes its part of the memory once, and windows get equal parts of the rest', () => {
    const MIB = 2 ** 20;
    const batch = { rows: 1000, bytes: 8 * MIB };
    const [one, four] = [sharesOf(1024 * MIB, batch, 1), sharesOf(1024 * MIB, batch, 1, false, 4)];
    expect(four.fetchBytes).toBe(one.fetchBytes);
    const ofWindow = ({
      stateBytes,
      spillStoreBytes,
      firedStoreBytes,
      changelogBytes,
      sideBytes,
    }: typeof one) => stateBytes + spillStoreBytes + firedStoreBytes + changelogBytes + sideBytes;
    expect(4 * ofWindow(four) + four.fetchBytes + 2 * batch.bytes).toBeLessThan(1024 * MIB);
    expect(() => sharesOf(200 * MIB, batch, 0, false, 8)).toThrow('the state of 8 windows');
  });

  it('the metrics of a window have its name as a label', () => {
    const metrics = new Metrics();
    const seen: string[] = [];
    metrics.onRegister(({ name }) => seen.push(name));
    for (const name of ['a', 'b']) {
      const own = metrics.labelled('window', name);
      own.counter('rows_total', 'Rows.').add(name === 'a' ? 1 : 2);
      const stages = own.histogram('stage_seconds', 'Stages.', ['stage'], [1]);
      stages.observe(0.5, stages.series('sink'));
    }
    const [rows, stage] = metrics.snapshot();
    expect(rows).toMatchObject({
      labelNames: ['window'],
      samples: [
        { labels: { window: 'a' }, value: 1 },
        { labels: { window: 'b' }, value: 2 },
      ],
    });
    expect(stage).toMatchObject({
      labelNames: ['window', 'stage'],
      samples: [{ labels: { window: 'a', stage: 'sink' } }, { labels: { window: 'b', stage: 'sink' } }],
    });
    expect(new Set(seen)).toEqual(new Set(['rows_total', 'stage_seconds']));
  });

  it('a query finds its window by name', () => {
    const [a, b] = [{}, {}] as EngineQueries[];
    const engines = new Map([
      ['a', a as EngineQueries],
      ['b', b as EngineQueries],
    ]);
    expect(engineOf(engines, 'b')).toBe(b);
    expect(() => engineOf(engines, null)).toThrow('the engine has several windows: a, b');
    expect(() => engineOf(engines, 'c')).toThrow('the engine has no window "c", only a, b');
    const only = new Map([['', a as EngineQueries]]);
    expect(engineOf(only, null)).toBe(a);
    expect(() => engineOf(only, 'a')).toThrow('the window of this engine has no name');
    expect(engineOf(new Map(), 'a')).toBeUndefined();
  });

  it('a window that fails stops the others, and its error is thrown after they have stopped', async () => {
    const failure = new AbortController();
    const left: string[] = [];
    const windows = ['a', 'b'].map((name) => ({ name, leave: async () => void left.push(name) }));
    const running = runAll(windows, failure, async ({ name }) => {
      if (name === 'a') throw new Error('a failed');
      await new Promise((resolve) => failure.signal.addEventListener('abort', resolve));
      throw new Error('b failed too');
    });
    await expect(running).rejects.toThrow('a failed');
    expect(left.sort()).toEqual(['a', 'b']);
  });
});
