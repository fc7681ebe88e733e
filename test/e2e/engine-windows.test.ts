/** Several windows over one read, on real servers: each has the results of the oracle and of a run
 *  of its own, through SIGKILL, in each sink, over HTTP, from flags and from a job file. */
import { rmSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nodeRdkafkaDriver } from '../../src/io/kafka/node-rdkafka/driver.ts';
import type { BatchProducer, BrokerAdmin } from '../../src/io/kafka/port.ts';
import { batchOf } from '../contract/broker-world.ts';
import { exportedRows, runEngine, startEngine } from '../fixtures/engine.ts';
import { generateEvents } from '../fixtures/gen.ts';
import { metric } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { oracleOf, rowText } from './engine-kit.ts';
import { recordsIn } from './quarantine-kit.ts';

const own = launcher();
const stack = await sharedStack();
const EVENTS = 20_000;
const TOPIC = `windows-${own.suffix}`;
const JSON_TOPIC = `windows-json-${own.suffix}`;
const RULES = { skewMs: 1000n, latenessMs: 1000n } as const;
const TIMES = ['-allowed-skew=1s', '-allowed-lateness=1s', '-idle-timeout=0'] as const;
const WINDOWS = {
  short: ['short=tumbling:500ms', ['-window=tumbling', '-size=500ms']],
  long: ['long=sliding:4s:2s:lateness=2s', ['-window=sliding', '-size=4s', '-slide=2s']],
  visits: ['visits=session:40ms', ['-window=session', '-gap=40ms']],
} as const;
const NAMES = Object.keys(WINDOWS) as readonly (keyof typeof WINDOWS)[];
/** Windows that fire before the end of the events. */
const FIRING = ['short', 'visits'] as const;
const SET = NAMES.map((name) => `-window=${WINDOWS[name][0]}`);
/** Rows of the oracle by the name of the window. */
const expected = new Map<string, readonly string[]>();

const broker = `-brokers=${stack.brokers}`;
const topic = `-topic=${TOPIC}`;
const dirOf = (name: string): string => join(own.dir, name);
const stateOf = (name: string): string => `-state-dir=${dirOf(name)}`;
const rowsOf = async (flags: readonly string[]): Promise<string[]> => (await exportedRows(own, flags)).sort();
const jsonKey = ['-format=json', '-key=user', '-time=at:ms', '-value=amount'] as const;

let admin: BrokerAdmin;
let producer: BatchProducer;

beforeAll(async () => {
  const options = { brokers: stack.brokers, clientId: 'engine-windows', connectTimeoutMs: 60_000 };
  admin = await nodeRdkafkaDriver.admin(options);
  producer = await nodeRdkafkaDriver.producer(options);
  await generateEvents(own, { brokers: stack.brokers, topic: TOPIC }, [
    ...[`-count=${EVENTS}`, '-per-ms=5', '-accounts=100', '-tail=0.05', '-tail-max=8s', '-partitions=2'],
  ]);
  const rules = {
    short: { ...RULES, sizeMs: 500n },
    long: { ...RULES, latenessMs: 2000n, window: 'sliding', sizeMs: 4000n, slideMs: 2000n },
    visits: { ...RULES, window: 'session', gapMs: 40n },
  } as const;
  for (const name of NAMES) {
    const oracle = await oracleOf(stack.brokers, TOPIC, rules[name]);
    expected.set(name, [...oracle.rows()].map(rowText).sort());
  }
});
afterAll(async () => {
  await producer?.close();
  await admin?.close();
});

async function throughOneKill(flags: readonly string[], kill: string): Promise<void> {
  const { signal, stderr } = await runEngine(own, [...flags, `-chaos=${kill}`]);
  expect(signal, stderr).toBe('SIGKILL');
}

/** Runs the flags with a SIGKILL after each of these numbers of events, then to the end. */
async function throughKills(flags: readonly string[], kills: readonly string[]): Promise<string> {
  for (const kill of kills) await throughOneKill(flags, kill);
  const { code, stdout, stderr } = await runEngine(own, flags);
  expect(code, stderr).toBe(0);
  return stdout;
}

describe('several windows over one read', () => {
  const RUN = [broker, topic, ...TIMES, '-bounded', '-checkpoint-interval=20ms', '-batch-rows=700'];

  it('each window has the rows of the oracle and of a run of its own through SIGKILL', async () => {
    const flags = [...RUN, ...SET, stateOf('killed')];
    const stdout = await throughKills(flags, [
      'kill-after=3000',
      'after-changelog-sync@9',
      'kill-after=4000',
      'before-manifest-rename@2',
    ]);
    for (const name of NAMES) {
      expect(stdout).toMatch(new RegExp(`^${name}: consumed ${EVENTS} events`, 'm'));
      const rows = await rowsOf([stateOf('killed'), `-export-window=${name}`]);
      expect(rows).toEqual(expected.get(name));
      const alone = [...RUN, ...WINDOWS[name][1], stateOf(`alone-${name}`)];
      const lateness = name === 'long' ? ['-allowed-lateness=2s'] : [];
      const own1 = alone.filter((flag) => lateness.length === 0 || !flag.startsWith('-allowed-lateness'));
      expect(await runEngine(own, [...own1, ...lateness])).toMatchObject({ code: 0 });
      expect(await rowsOf([stateOf(`alone-${name}`)])).toEqual(rows);
    }
  });

  it('each window is verified, by its name or with the others, and none is saved alone', async () => {
    const flags = [...RUN, ...SET, stateOf('killed')];
    for (const name of NAMES) {
      const { code, stdout, stderr } = await runEngine(own, ['verify', ...flags, `-verify-window=${name}`]);
      expect(code, stderr + stdout).toBe(0);
      expect(stdout).toMatch(/^equal: [1-9]\d* windows/);
    }
    const all = await runEngine(own, ['verify', ...flags]);
    expect(all.code, all.stderr + all.stdout).toBe(0);
    for (const name of NAMES)
      expect(all.stdout).toMatch(new RegExp(`^${name}: equal: [1-9]\\d* windows`, 'm'));
    const saved = await runEngine(own, [
      ...['savepoint', stateOf(join('killed', 'windows', 'short')), `-out=${dirOf('saved-one')}`],
    ]);
    expect(saved.code).toBe(2);
    expect(saved.stderr).toMatch(/states of the windows short, long, visits, .*\[several_windows\]/);
  });

  it('early results of each window are marked, and final ones are those of the oracle, through SIGKILL', async () => {
    const table = `early_${own.suffix}`;
    const set = SET.map((flag) => (flag.includes('=session') ? `${flag}:emit=final` : flag));
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`];
    const emit = ['-emit=updates', '-emit-interval=100ms'];
    const run = [...RUN.filter((flag) => flag !== '-bounded'), ...set, ...sink, ...emit, stateOf('early')];
    const killed = await runEngine(own, [...run, '-migrate', '-exit-at-end', '-chaos=kill-after=9000']);
    expect(killed.signal, killed.stderr).toBe('SIGKILL');
    expect(await runEngine(own, [...run, '-exit-at-end'])).toMatchObject({ code: 0 });
    const rows = async (name: string): Promise<readonly string[]> => {
      const flags = ['export', stateOf('early'), ...sink, ...set, ...emit, `-export-window=${name}`];
      const { code, stdout, stderr } = await runEngine(own, flags);
      expect(code, stderr).toBe(0);
      return stdout.trimEnd().split('\n').slice(1);
    };
    // Windows that are open at the end have early results.
    const early = await until('early results', async () => {
      const open = (await rows('long')).filter((row) => row.endsWith(',false'));
      return open.length > 0 ? open : undefined;
    });
    expect(early.length).toBeGreaterThan(0);
    const final = (await rows('short')).flatMap((row) => (row.endsWith(',true') ? row.slice(0, -5) : []));
    expect(final.length).toBeGreaterThan(50);
    expect(expected.get('short')).toEqual(expect.arrayContaining(final));
    const sessions = await rows('visits');
    expect(sessions.length).toBeGreaterThan(50);
    expect(expected.get('visits')).toEqual(expect.arrayContaining([...sessions]));
  });

  it('a savepoint has the states of all windows, from a running engine and from a stopped one', async () => {
    const table = `saved_${own.suffix}`;
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`, '-migrate'];
    const run = [broker, topic, ...TIMES, ...SET, ...sink, '-checkpoint-interval=20ms', '-batch-rows=700'];
    await throughOneKill([...run, stateOf('saving')], 'kill-after=6000');
    const stopped = await runEngine(own, ['savepoint', stateOf('saving'), `-out=${dirOf('saved-2')}`]);
    expect(stopped, stopped.stderr).toMatchObject({ code: 0 });
    const one = startEngine(own, [...run, stateOf('saving'), '-listen=127.0.0.1:0'], 'saving');
    const address = await one.ready();
    const out = ['savepoint', `-url=http://${address}`, `-out=${dirOf('saved')}`];
    const saved = await runEngine(own, out);
    expect(saved, saved.stderr).toMatchObject({ code: 0 });
    expect(saved.stdout).toMatch(/^saved the windows short, long, visits of topic windows-/);
    await one.die();
    for (const [from, to, kills] of [
      ['saved-2', 'from-stopped', ['kill-after=3000']],
      ['saved', 'from-running', []],
    ] as const) {
      await throughKills([...run, `-savepoint=${dirOf(from)}`, stateOf(to), '-bounded'], kills);
      for (const name of NAMES) {
        const read = sink.filter((flag) => flag !== '-migrate');
        expect(await rowsOf([stateOf(to), ...read, `-export-window=${name}`]), `${to} ${name}`).toEqual(
          expected.get(name),
        );
      }
    }
    const other = await runEngine(
      own,
      [
        ...run,
        '-bounded',
        stateOf('other-windows'),
        `-savepoint=${dirOf('saved')}`,
        '-window=more=tumbling:7s',
      ].filter((flag) => !SET.includes(flag)),
    );
    expect(other).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /has the state of the windows short, long, visits, and -window has more.*\[job_changed\]/,
      ),
    });
  });

  it('a standby continues all windows from the checkpoint store when their engine is killed', async () => {
    const table = `stored_${own.suffix}`;
    const sink = [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`, '-migrate'];
    const store = [`-checkpoint-store=${dirOf('store')}`, '-checkpoint-store-interval=100ms'];
    const run = [broker, topic, ...TIMES, ...SET, ...sink, ...store, '-checkpoint-interval=20ms'];
    const one = startEngine(own, [...run, stateOf('machine-1'), '-listen=127.0.0.1:0'], 'machine-1');
    const address = await one.ready();
    await until('all events', async () =>
      (await metric(address, 'engine_events_total{window="visits"}')) === EVENTS ? true : undefined,
    );
    const count = (): number => one.log().split('"checkpoint stored"').length;
    const before = count();
    await until('a checkpoint with all events', () => (count() >= before + 2 ? true : undefined));
    const two = startEngine(
      own,
      [...run, stateOf('machine-2'), '-standby', '-listen=127.0.0.1:0'],
      'machine-2',
    );
    await until('the standby', () => (two.log().includes('standby: another engine') ? true : undefined));
    await one.die();
    rmSync(dirOf('machine-1'), { recursive: true });
    const taken = await two.ready();
    expect(await metric(taken, 'engine_events_total{window="visits"}')).toBe(EVENTS);
    await two.drain();
    expect((await runEngine(own, [...run, stateOf('machine-2'), '-bounded'])).code).toBe(0);
    for (const name of NAMES) {
      const read = sink.filter((flag) => flag !== '-migrate');
      expect(await rowsOf([stateOf('machine-2'), ...read, `-export-window=${name}`]), name).toEqual(
        expected.get(name),
      );
    }
  });

  it('each sink has a table, a topic or a folder for each window', async () => {
    const table = `windows_${own.suffix}`;
    const sinks = {
      postgres: [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`, '-migrate'],
      kafka: [broker, `-sink=kafka:windows-out-${own.suffix}`, '-migrate'],
      parquet: [`-sink=parquet:${dirOf('parquet-files')}`, '-migrate'],
      rocksdb: [`-sink=rocksdb:${dirOf('rocksdb-files')}`],
    };
    for (const [sink, flags] of Object.entries(sinks)) {
      await throughKills(
        [...RUN, ...SET, stateOf(sink), ...flags.filter((flag) => flag !== broker)],
        ['kill-after=5000'],
      );
      for (const name of NAMES) {
        const read = flags.filter((flag) => flag !== '-migrate');
        expect(await rowsOf([stateOf(sink), ...read, `-export-window=${name}`]), `${sink} ${name}`).toEqual(
          expected.get(name),
        );
      }
    }
  });

  it('a window that is added begins at -start and one that returns resumes, while the others keep their results', async () => {
    const flags = [broker, topic, ...TIMES, '-checkpoint-interval=20ms', stateOf('changed')];
    const end = '-exit-at-end';
    const both = [`-window=${WINDOWS.short[0]}`, `-window=${WINDOWS.visits[0]}`];
    await throughKills([...flags, end, ...both], ['kill-after=6000']);
    const without = await runEngine(own, [...flags, end, `-window=${WINDOWS.long[0]}`, both[0] as string]);
    expect(without).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/"removed":\["visits"\].*windows of the run before are not continued/),
    });
    await throughKills([...flags, '-bounded', ...SET], []);
    for (const name of NAMES)
      expect(await rowsOf([stateOf('changed'), `-export-window=${name}`])).toEqual(expected.get(name));
  });
});

describe('records with keys of text', () => {
  const eventAt = (i: number) => ({ user: `user-${i % 37}`, amount: i % 11, at: 1_750_000_000_000 + i * 7 });

  beforeAll(async () => {
    const sent = Array.from({ length: 6000 }, (_, i) => ({
      partition: i % 2,
      value: Buffer.from(i % 1000 === 999 ? 'no json' : JSON.stringify(eventAt(i))),
    }));
    await admin.createTopics([{ topic: JSON_TOPIC, partitions: 2, replicationFactor: 1 }]);
    expect((await producer.produce(batchOf(sent), [JSON_TOPIC])).failed).toBe(0);
  });

  /** Rows of an export, with the header. */
  const exported = async (...flags: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await runEngine(own, ['export', ...flags]);
    expect(code, stderr).toBe(0);
    return stdout.split('\n').sort().join('\n');
  };

  it('each window has aggregates of its own through SIGKILL, as in a run of its own, and gains one later', async () => {
    const read = [broker, `-topic=${JSON_TOPIC}`, ...TIMES, '-format=json', '-key=user', '-time=at:ms'];
    const flags = [...read, '-quarantine=off', '-checkpoint-interval=20ms', '-batch-rows=300'];
    const aggregates = {
      short: 'count,min(amount)',
      long: 'max(amount),last(amount) as newest,p99(amount)',
      visits: 'topk(user,3),sum(amount)',
    } as const;
    const given = `-window-aggregate=long=${aggregates.long};visits=${aggregates.visits}`;
    const set = [...flags, ...SET, '-aggregate=count', given, stateOf('own')];
    await throughKills([...set, '-exit-at-end'], ['kill-after=2000', 'kill-after=1500']);
    const more = [...flags, ...SET, `-aggregate=${aggregates.short}`, given, stateOf('own')];
    const added = await runEngine(own, [...more, '-bounded']);
    expect(added, added.stderr).toMatchObject({ code: 0 });
    expect(added.stderr.match(/aggregates were added/g)).toHaveLength(1);
    for (const name of NAMES) {
      const text = await exported(stateOf('own'), `-export-window=${name}`);
      const alone = [...flags, ...WINDOWS[name][1], `-aggregate=${aggregates[name]}`, '-bounded'];
      const lateness = name === 'long' ? ['-allowed-lateness=2s'] : [];
      const own1 = alone.filter((flag) => lateness.length === 0 || !flag.startsWith('-allowed-lateness'));
      const run = await runEngine(own, [...own1, ...lateness, stateOf(`own-${name}`)]);
      expect(run, run.stderr).toMatchObject({ code: 0 });
      const wanted = await exported(stateOf(`own-${name}`));
      // The value that was added is null in the windows from before.
      const plain = name === 'short' ? wanted.replace(/^(user-.*?,\d+,\d+,\d+),\d+,/gm, '$1,,') : wanted;
      expect(text).toContain('user-36');
      expect(text, name).toBe(plain);
    }
    const verified = await runEngine(own, ['verify', ...more, '-bounded']);
    expect(verified.code, verified.stdout + verified.stderr).toBe(0);
    for (const name of NAMES)
      expect(verified.stdout).toMatch(new RegExp(`^${name}: equal: [1-9]\\d* windows`, 'm'));
  });

  it('the aggregates of a window are columns of its table, its topic and its answers', async () => {
    const registry = startRegistry(own, ['-store=memory']);
    const named = 'long=max(amount) as most,p99(amount) as slow;visits=topk(user,3) as top';
    const run = [
      ...[broker, `-topic=${JSON_TOPIC}`, ...TIMES, '-format=json', '-key=user', '-time=at:ms'],
      ...['-quarantine=off', '-checkpoint-interval=20ms', '-batch-rows=300', '-retain=1d', ...SET],
      ...['-aggregate=count as n,min(amount) as least', `-window-aggregate=${named}`],
    ];
    const table = `own_${own.suffix}`;
    const sinks = {
      rocksdb: [],
      postgres: [`-sink=postgres:${stack.postgres}`, `-sink-table=${table}`],
      kafka: [
        `-sink=kafka:own-${own.suffix}`,
        '-sink-format=json',
        `-registry=http://${await registry.ready()}`,
      ],
    };
    const heads = { short: 'n,least', long: 'most,slow,slow_error', visits: 'top,top_error' } as const;
    const texts = new Map<string, string>();
    for (const [sink, flags] of Object.entries(sinks)) {
      const migrate = sink === 'rocksdb' ? [] : ['-migrate'];
      const state = stateOf(`columns-${sink}`);
      await throughKills([...run, ...flags, ...migrate, state, '-exit-at-end'], ['kill-after=2500']);
      for (const name of NAMES) {
        const text = await exported(broker, state, ...flags, `-export-window=${name}`);
        expect(text).toContain(`user,window_start,window_end,${heads[name]},last_update_ts,overflow`);
        expect(text).toContain('user-36');
        expect(text, `${sink} ${name}`).toBe(texts.get(name) ?? text);
        texts.set(name, text);
      }
    }
    const engine = startEngine(own, [...run, stateOf('columns-rocksdb'), '-listen=127.0.0.1:0'], 'columns');
    const address = await engine.ready();
    for (const name of FIRING) {
      const headers = { accept: 'text/csv' };
      const answer = await fetch(`http://${address}/windows?window=${name}&limit=50`, { headers });
      const lines = (await answer.text()).trimEnd().split('\r\n');
      expect(lines[0]).toBe(`user,window_start,window_end,${heads[name]},last_update_ts,overflow`);
      expect(lines).toHaveLength(51);
      expect(texts.get(name)?.split('\n')).toEqual(expect.arrayContaining(lines));
    }
    await engine.drain();
    await registry.drain();
  });

  it('windows share the decoded records, and each keeps its own keys through SIGKILL; the quarantine has each invalid record once', async () => {
    const flags = [broker, `-topic=${JSON_TOPIC}`, ...TIMES, ...jsonKey, '-checkpoint-interval=20ms'];
    const set = [...flags, ...SET, '-batch-rows=300'];
    await throughKills([...set, '-exit-at-end', stateOf('text')], ['kill-after=2000']);
    expect((await runEngine(own, [...set, '-bounded', stateOf('text')])).code).toBe(0);
    const rows = async (dir: string, more: readonly string[]): Promise<string> => {
      const { code, stdout } = await runEngine(own, ['export', stateOf(dir), ...more]);
      expect(code).toBe(0);
      return stdout.split('\n').sort().join('\n');
    };
    for (const name of NAMES) {
      const alone = [...flags, ...WINDOWS[name][1], '-bounded', '-quarantine=off', stateOf(`text-${name}`)];
      const lateness = name === 'long' ? ['-allowed-lateness=2s'] : [];
      const own1 = alone.filter((flag) => lateness.length === 0 || !flag.startsWith('-allowed-lateness'));
      expect((await runEngine(own, [...own1, ...lateness])).code).toBe(0);
      const text = await rows('text', [`-export-window=${name}`]);
      expect(text).toContain('user-36');
      expect(text).toBe(await rows(`text-${name}`, []));
    }
    const clean = [...flags, ...SET, '-bounded', stateOf('once'), `-quarantine=once-${own.suffix}`];
    expect((await runEngine(own, clean)).code).toBe(0);
    const records = await recordsIn(stack.brokers, `once-${own.suffix}`);
    expect(records).toHaveLength(6);
  });
});

describe('the HTTP interface', () => {
  it('a query names its window, and the metrics have its name', async () => {
    const engine = startEngine(
      own,
      [broker, topic, ...TIMES, ...SET, stateOf('http'), '-listen=127.0.0.1:0', '-retain=1d'],
      'http',
    );
    const address = await engine.ready();
    const consumed = (name: string): Promise<number> =>
      metric(address, `engine_events_total{window="${name}"}`);
    await until('all events were read', async () => (await consumed('visits')) === EVENTS);
    await until('a window of each has fired', async () => {
      const pages = FIRING.map((name) => fetch(`http://${address}/windows?window=${name}&limit=5`));
      const rows = await Promise.all(pages.map(async (page) => (await (await page).json()) as unknown[]));
      return rows.every(({ length }) => length === 5);
    });
    const get = async (path: string) => {
      const answer = await fetch(`http://${address}${path}`, { headers: { accept: 'text/csv' } });
      return { status: answer.status, text: await answer.text(), link: answer.headers.get('link') };
    };
    for (const name of FIRING) {
      expect(await consumed(name)).toBe(EVENTS);
      const { status, text, link } = await get(`/windows?window=${name}&limit=5`);
      const rows = text.trimEnd().split('\r\n').slice(1);
      expect({ status, link: link?.includes(`window=${name}`), count: rows.length }).toEqual({
        ...{ status: 200, link: true, count: 5 },
      });
      for (const row of rows) expect(expected.get(name)).toContain(row);
    }
    expect(await get('/windows')).toMatchObject({
      status: 400,
      text: expect.stringContaining('window_required'),
    });
    expect(await get('/watermark?window=other')).toMatchObject({
      status: 404,
      text: expect.stringContaining('unknown_window'),
    });
    await engine.drain();
    expect(JSON.parse(await readFile(join(dirOf('http'), 'windows.json'), 'utf8'))).toMatchObject({
      ...{ names: NAMES, isStopped: true },
    });
  });
});

describe('a job file with windows', () => {
  it('a job file names its windows, and validate checks them', async () => {
    await mkdir(own.dir, { recursive: true });
    const path = join(own.dir, 'windows.yaml');
    const lines = [
      ...[`brokers: '${stack.brokers}'`, `topic: ${TOPIC}`, 'allowed-skew: 1s', 'allowed-lateness: 1s'],
      ...['windows:', '  - {name: short, window: tumbling, size: 500ms}'],
      ...['  - {name: long, window: sliding, size: 4s, slide: 2s, allowed-lateness: 2s}'],
      ...['  - {name: visits, window: session, gap: 40ms}', 'bounded: true', `state-dir: ${dirOf('job')}`],
    ];
    await writeFile(path, lines.join('\n'));
    expect(await runEngine(own, ['validate', `-job=${path}`])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`${path} is a valid job`),
    });
    expect((await runEngine(own, [`-job=${path}`])).code).toBe(0);
    for (const name of NAMES) {
      const { stdout } = await runEngine(own, ['export', `-job=${path}`, `-export-window=${name}`]);
      expect(stdout.trimEnd().split('\n').slice(1).sort()).toEqual(expected.get(name));
    }
  });
});

describe('a state of other windows', () => {
  it.each([
    ['a window without a name', ['-size=500ms'], [], /has the state of the windows short, visits/],
    ['another topic', [`-topic=${TOPIC}-other`], SET, /windows over the topic windows-/],
    [
      'other times of a window',
      [],
      ['-window=short=tumbling:3s'],
      /holds tumbling windows of 500 ms, not tumbling windows of 3000 ms/,
    ],
  ])('a state is refused for %s', async (_what, flags, windows, message) => {
    const base = [broker, ...TIMES, '-exit-at-end', stateOf('other')];
    const set = [`-window=${WINDOWS.short[0]}`, `-window=${WINDOWS.visits[0]}`];
    expect((await runEngine(own, [...base, topic, ...set])).code).toBe(0);
    const given = flags.some((flag) => flag.startsWith('-topic')) ? flags : [topic, ...flags];
    const { code, stderr } = await runEngine(own, [...base, ...given, ...windows]);
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(message) });
  });

  it('the state of a window without a name is refused for windows with names', async () => {
    const base = [broker, topic, ...TIMES, '-exit-at-end', stateOf('plain')];
    expect((await runEngine(own, [...base, '-size=1s'])).code).toBe(0);
    const { code, stderr } = await runEngine(own, [...base, ...SET]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringMatching(/has the state of a run whose window has no name/),
    });
  });
});
