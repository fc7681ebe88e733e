/** State on disk in the real process: its memory, its metrics, and its recovery after a restart. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { newestManifest } from '../../src/demo/windows/judge.ts';
import { runEngine, startEngine } from '../fixtures/engine.ts';
import { scrape } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

const MIB = 1024 * 1024;
const BUDGET_MIB = 112;
/** Memory that the runtime needs without any state: code, heap, buffers of the libraries. */
const RUNTIME_MIB = 100;
/** Number of accounts; each has one event. */
const EVENTS = 900_000;
/** Number of accounts, from the first, whose windows are queried. */
const SAMPLE = 20;
const EVENT_BYTES = 256;
const READ_WITHIN_MS = 120_000;

const own = launcher();
const stack = await sharedStack();
const topic = `disk-${own.suffix}`;

async function metricsOf(address: string): Promise<(name: string) => number> {
  const text = await scrape(address);
  return (name) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN);
}

/** Largest resident size that the process ever had. */
const peakMib = (pid: number): number =>
  Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

const flags = (dir: string, more: readonly string[]): readonly string[] => [
  `-brokers=${stack.brokers}`,
  `-state-dir=${join(own.dir, dir)}`,
  '-idle-timeout=0',
  ...more,
];
const large = [`-topic=${topic}`, '-size=1h', '-checkpoint-interval=500ms'];
// Other formats need a share for their quarantine.
const onDisk = ['-state=disk', '-format=binary256', `-mem-budget=${BUDGET_MIB}MiB`];

/** Starts an engine that reads the whole topic and keeps running. */
async function startAndRead(name: string, args: readonly string[]) {
  const one = startEngine(own, args, name);
  const address = await one.address();
  const metrics = await until(
    'the end of the topic',
    async () => {
      const now = await metricsOf(address);
      return now('engine_events_total') === EVENTS ? now : undefined;
    },
    READ_WITHIN_MS,
  );
  return { one, address, metrics };
}

describe('state on disk', () => {
  it('an engine with state on disk stays within its memory budget, answers for every key, and recovers from a kill', async () => {
    const made = await own.run([
      'topic',
      'create',
      `-brokers=${stack.brokers}`,
      `-topic=${topic}`,
      '-partitions=2',
    ]);
    expect(made.code, made.stderr).toBe(0);
    const generate = async (count: number, out: string): Promise<void> => {
      const gen = await own.run([
        ...['gen', '-kind=events', `-count=${count}`, '-accounts=4294967295', '-zipf=0', '-digest=false'],
        ...['-per-ms=1000', `-out=${out}`, `-brokers=${stack.brokers}`, '-log-level=error'],
      ]);
      expect(gen.code, gen.stderr).toBe(0);
    };
    await generate(EVENTS, `kafka:${topic}`);
    const sample = join(own.dir, 'sample');
    await generate(SAMPLE, `file:${sample}`);
    const events = readFileSync(sample);
    const accounts = Array.from({ length: SAMPLE }, (_, i) => events.readBigUInt64LE(i * EVENT_BYTES));

    const { one, address, metrics } = await startAndRead('disk', flags('spilled', [...large, ...onDisk]));
    const peak = peakMib(one.pid);
    // With state in memory, the same events need at least 280 MiB.
    expect(peak).toBeLessThan(BUDGET_MIB + RUNTIME_MIB);
    expect(metrics('engine_spill_bytes_total')).toBeGreaterThan(16 * MIB);
    const settled = await until('the gauges', async () => {
      const now = await metricsOf(address);
      return now('engine_open_keys') > 0.9 * EVENTS ? now : undefined;
    });
    expect(settled('engine_spilled_bytes')).toBeGreaterThan(16 * MIB);
    expect(settled('engine_state_bytes')).toBeLessThan(BUDGET_MIB * MIB);
    for (const account of accounts) {
      const answer = await fetch(`http://${address}/windows/${account}?open=true`);
      expect(await answer.json(), `${account}`).toHaveLength(1);
    }
    await one.die();

    const last = await runEngine(own, flags('spilled', [...large, ...onDisk, '-bounded', '-shards=2']));
    expect(last.code, last.stderr).toBe(0);
    expect(last.stderr).toContain('restored from a checkpoint');
    const out = await runEngine(own, ['export', `-state-dir=${join(own.dir, 'spilled')}`]);
    const counts = out.stdout
      .trim()
      .split('\n')
      .slice(1)
      .map((line) => line.split(','));
    expect(counts.reduce((sum, row) => sum + Number(row[3]), 0)).toBe(EVENTS);
    expect(new Set(counts.map((row) => `${row[0]} ${row[1]}`)).size).toBe(counts.length);
    expect(counts.length).toBeGreaterThan(0.99 * EVENTS);
  }, 480_000);

  it('an engine with state on disk has the same results without the addon, and is not resumed in memory', async () => {
    const small = `${topic}-small`;
    const gen = await own.run([
      ...['gen', '-kind=events', '-count=40000', '-accounts=60', '-order=delayed', '-digest=false'],
      ...['-per-ms=2', `-out=kafka:${small}`, `-brokers=${stack.brokers}`, '-log-level=error'],
    ]);
    expect(gen.code, gen.stderr).toBe(0);
    const sliding = ['-window=sliding', '-size=3s', '-slide=2s'];
    // The state of the open sessions is smaller than the changelog of all sessions, which forces
    // spills.
    const sessions = ['-window=session', '-gap=60ms', '-allowed-skew=500ms', '-allowed-lateness=500ms'];
    const of = (dir: string, more: readonly string[]): readonly string[] => [
      ...flags(dir, [`-topic=${small}`, '-bounded']),
      ...['-checkpoint-interval=50ms', '-batch-rows=500', '-log-level=warn', ...more],
    ];
    const run = async (dir: string, more: readonly string[]): Promise<string> => {
      const { code, stderr } = await runEngine(own, of(dir, more));
      expect(code, stderr).toBe(0);
      const native = more.filter((flag) => flag.startsWith('-native'));
      const { stdout } = await runEngine(own, ['export', `-state-dir=${join(own.dir, dir)}`, ...native]);
      return stdout.trim().split('\n').sort().join('\n');
    };
    for (const [name, windows] of [
      ['small', sliding],
      ['sessions', sessions],
    ] as const) {
      const [inMemory, spilled] = await Promise.all([
        run(`${name}-mem`, [...windows, '-native=auto', '-state=mem']),
        run(`${name}-disk`, [...windows, '-native=off', '-state=disk', '-snapshot-after=4KiB']),
      ]);
      expect(spilled.length).toBeGreaterThan(10_000);
      expect(spilled).toBe(inMemory);
      const newest = await newestManifest(join(own.dir, `${name}-disk`));
      const lastRunId = /"last_id":(\d+)/.exec(JSON.stringify(newest?.recorded))?.[1];
      expect(Number(lastRunId)).toBeGreaterThan(0);
    }
    const back = await runEngine(own, of('small-disk', [...sliding, '-native=off', '-state=mem']));
    expect(back.stderr).toContain('-state was disk, is mem');
    expect(back.code).toBe(2);
  }, 300_000);

  it('an engine with -state=disk resumes from a state in memory', async () => {
    const both = `${topic}-both`;
    const of = (dir: string, more: readonly string[]): readonly string[] =>
      flags(dir, [`-topic=${both}`, '-window=sliding', '-size=4s', '-slide=1s', ...more]);
    const generate = async (base: number): Promise<void> => {
      const gen = await own.run([
        ...['gen', '-kind=events', '-count=20000', '-accounts=3000', `-base=${base}`, '-digest=false'],
        ...['-per-ms=2', `-out=kafka:${both}`, `-brokers=${stack.brokers}`, '-log-level=error'],
      ]);
      expect(gen.code, gen.stderr).toBe(0);
    };
    const ran = async (dir: string, more: readonly string[]): Promise<void> => {
      const { code, stderr } = await runEngine(own, of(dir, more));
      expect(code, stderr).toBe(0);
    };
    const exported = async (dir: string): Promise<readonly string[]> => {
      const { stdout } = await runEngine(own, ['export', `-state-dir=${join(own.dir, dir)}`]);
      return stdout.trim().split('\n').sort();
    };
    await generate(1_750_000_000_000);
    await ran('both', ['-exit-at-end', '-state=mem', '-snapshot-after=4KiB', '-checkpoint-interval=20ms']);
    // An interrupted move to disk can only be continued: files of a state in memory do not hold the
    // spilled rows.
    const killed = await runEngine(own, of('both', ['-bounded', '-state=disk', '-chaos=at-barrier']));
    expect(killed.signal).toBe('SIGKILL');
    const back = await runEngine(own, of('both', ['-bounded', '-state=mem', '-log-level=error']));
    expect(back.stderr).toMatch(/-state was disk, is mem.*start with -state=disk.*\[job_changed\]/s);
    expect(back.code).toBe(2);
    await generate(1_750_000_010_000);
    await ran('both', ['-bounded', '-state=disk', '-shards=3']);
    await ran('one', ['-bounded']);
    const rows = await exported('both');
    expect(rows).toEqual(await exported('one'));
    expect(rows.length).toBeGreaterThan(1000);
    expect(JSON.stringify((await newestManifest(join(own.dir, 'both')))?.recorded)).toContain('"part":');
  }, 300_000);
});
