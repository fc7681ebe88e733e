/** Kills the engine by SIGKILL again and again, at random moments and at every step of its
 *  changelog and checkpoints. Its sink and HTTP answers must equal the oracle row by row,
 *  dropped_late included.
 *
 *  MILLRACE_ENGINE_KILLS=200 selects the long form: the cases share so many kills, which cover
 *  every step of each case. MILLRACE_TEST_SEED seeds the moments. */
import { describe, expect, it } from 'vitest';
import type { OrderEntry } from '../../bench/peers/oracle/arrival-order.ts';
import { decodeRecord } from '../../src/engine/durability/changelog/records.ts';
import { Replay } from '../../src/engine/durability/changelog/replay.ts';
import { CHECKPOINT_ACTIONS, SPILL_ACTIONS } from '../../src/engine/durability/checkpoint/steps.ts';
import { openDisk } from '../../src/io/disk/node.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { avroTexts, jsonBytes } from './engine-crash-forms.ts';
import { type CrashCase, CrashLoop } from './engine-crash-kit.ts';
import { histogramText, reportText } from './engine-crash-report.ts';

const KILLS = Number(process.env['MILLRACE_ENGINE_KILLS'] ?? 20);
const SEED = Number(process.env['MILLRACE_TEST_SEED'] ?? 1) || 1;
/** Below this number of kills, most may precede the first checkpoint with events. */
const FEW_KILLS = 20;
const MS_PER_KILL = 12_000;
/** About two kills of three are at steps. If that many kills are at least as many as the steps,
 *  every step must have a kill. */
const STEP_SHARE = 0.6;

const own = launcher();
const stack = await sharedStack();
const registry = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
const postgresSink = (table: string): readonly string[] => [
  `-sink=postgres:${stack.postgres}`,
  `-sink-table=${table}_${own.suffix}`,
  '-migrate',
];

/** Only windows of several slices need sealed slices, so only they write sorted runs. */
const stepsOf = (actions: readonly string[]): readonly string[] =>
  actions.flatMap((action) => ['before', 'after'].map((when) => `${when}-${action}`.replaceAll(' ', '-')));
const withRuns = ['kill-after', 'at-barrier', ...stepsOf(CHECKPOINT_ACTIONS)];
const withoutRuns = withRuns.filter((step) => !step.includes('-run-'));
/** State on disk writes spills and no snapshots ("base"). */
const onDisk = [...withoutRuns.filter((step) => !step.includes('-base-')), ...stepsOf(SPILL_ACTIONS)];
/** Rotates the steps, so that short runs of the cases cover different steps. */
const from = (first: string, all: readonly string[]): readonly string[] => {
  const at = all.indexOf(first);
  return [...all.slice(at), ...all.slice(0, at)];
};

/** Order in which the engine read the records, from a changelog without deletions. */
async function orderLogged(stateDir: string): Promise<readonly OrderEntry[]> {
  const order: OrderEntry[] = [];
  const { damage } = await new Replay(await openDisk(stateDir), 1, 1).run(({ kind, body }) => {
    const decoded = decodeRecord(kind, body);
    if ('fault' in decoded) throw new Error(decoded.fault);
    if (decoded.record.kind !== 'batch') return;
    const { arrivals } = decoded.record;
    for (let i = 0; i < arrivals.length; i += 2)
      order.push({ kind: 'run', partition: arrivals[i] as number, count: arrivals[i + 1] as number });
  });
  if (damage !== undefined) throw new Error(damage);
  return order;
}

const delays = { skewMs: 1000n, latenessMs: 1000n } as const;
const DELAYS = ['-allowed-skew=1s', '-allowed-lateness=1s'];

const cases: readonly CrashCase[] = [
  {
    name: 'tumbling, memory, postgres',
    rules: { ...delays, sizeMs: 2000n },
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=mem'],
    sink: postgresSink('crash'),
    steps: withoutRuns,
  },
  {
    name: 'tumbling, memory, rocksdb',
    rules: { ...delays, sizeMs: 2000n },
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=mem'],
    sink: [`-sink=rocksdb:${own.dir}/crash-results`],
    steps: from('before-manifest-write', withoutRuns),
  },
  {
    name: 'sliding, memory, postgres',
    rules: { ...delays, window: 'sliding', sizeMs: 3000n, slideMs: 2000n },
    flags: ['-window=sliding', '-size=3s', '-slide=2s', ...DELAYS, '-state=mem'],
    sink: postgresSink('crash_sliding'),
    steps: from('before-run-write', withRuns),
  },
  {
    name: 'sliding, disk, rocksdb',
    rules: { ...delays, window: 'sliding', sizeMs: 3000n, slideMs: 2000n },
    // Tables are spilled all the time, because the changelog grows past -snapshot-after.
    flags: ['-window=sliding', '-size=3s', '-slide=2s', ...DELAYS, '-state=disk'],
    sink: [`-sink=rocksdb:${own.dir}/crash-disk-results`],
    steps: from('before-spill-write', onDisk),
  },
  {
    name: 'sessions, disk, rocksdb',
    rules: { window: 'session', gapMs: 400n, skewMs: 1000n, latenessMs: 1000n },
    flags: [...['-window=session', '-gap=400ms', '-allowed-skew=1s', '-allowed-lateness=1s'], '-state=disk'],
    sink: [`-sink=rocksdb:${own.dir}/crash-sessions-disk`],
    steps: from('before-spill-ingest', onDisk),
  },
  {
    name: 'sessions, memory, rocksdb',
    rules: { ...delays, window: 'session', gapMs: 300n },
    flags: ['-window=session', '-gap=300ms', ...DELAYS, '-state=mem'],
    sink: [`-sink=rocksdb:${own.dir}/crash-sessions`],
    steps: from('before-base-write', withoutRuns),
  },
  {
    name: 'tumbling, disk, parquet',
    rules: { ...delays, sizeMs: 2000n },
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=disk'],
    sink: [`-sink=parquet:${own.dir}/crash-parquet`, '-migrate'],
    steps: from('after-manifest-write', onDisk),
  },
  {
    name: 'sessions, memory, parquet',
    rules: { ...delays, window: 'session', gapMs: 300n },
    flags: ['-window=session', '-gap=300ms', ...DELAYS, '-state=mem'],
    sink: [`-sink=parquet:${own.dir}/crash-parquet-sessions`, '-migrate'],
    steps: from('at-barrier', withoutRuns),
  },
  {
    name: 'tumbling, memory, kafka, avro',
    rules: { ...delays, sizeMs: 2000n },
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=mem', '-format=binary256'],
    sink: [
      ...[`-sink=kafka:crash-avro-${own.suffix}`, '-sink-format=avro', `-registry=${registry}`, '-migrate'],
    ],
    steps: from('before-manifest-write', withoutRuns),
  },
  {
    name: 'tumbling, memory, avro texts, sketches',
    rules: { ...delays, sizeMs: 2000n },
    form: avroTexts(registry),
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=mem'],
    sink: [`-sink=rocksdb:${own.dir}/crash-texts`],
    steps: from('before-changelog-sync', withoutRuns),
  },
  {
    name: 'sessions, memory, json, bytes as keys',
    rules: { ...delays, window: 'session', gapMs: 300n },
    form: jsonBytes,
    flags: ['-window=session', '-gap=300ms', ...DELAYS, '-state=mem'],
    sink: postgresSink('crash_bytes'),
    steps: from('after-base-write', withoutRuns),
  },
  {
    name: 'tumbling, one watermark, memory, kafka',
    rules: { ...delays, sizeMs: 2000n, watermark: 'global' },
    flags: ['-window=tumbling', '-size=2s', ...DELAYS, '-state=mem', '-watermark=global'],
    sink: [`-sink=kafka:crash-results-${own.suffix}`, '-migrate'],
    // Without a snapshot nothing of the changelog is deleted, so it holds the complete order.
    snapshotAfter: '1GiB',
    steps: from(
      'before-changelog-sync',
      withoutRuns.filter((step) => !step.includes('-base-')),
    ),
    order: orderLogged,
  },
];
const kills = Math.ceil(KILLS / cases.length);

describe('repeated kills', () => {
  it.each(cases)(
    'the sink of a killed engine equals that of a run without a kill: $name',
    async (job) => {
      const loop = new CrashLoop({ own, brokers: stack.brokers, kills, seed: SEED }, job);
      const report = await loop.run();
      process.stderr.write(`${reportText(job.name, report)}\n`);
      expect(report.difference).toBe('');
      expect(report.answersDifference).toBe('');
      expect(report.duplicates).toBe(0);
      expect(report.kills.length).toBeGreaterThanOrEqual(kills);
      expect(report.kills.every((kill) => kill.past > 0)).toBe(true);
      const killedAt = new Set(report.kills.map(({ step }) => step));
      expect(killedAt).toContain('random');
      if (kills * STEP_SHARE >= job.steps.length)
        expect([...killedAt].sort()).toEqual(['random', ...job.steps].sort());
      // A run without resumed checkpoints, drops and results would prove little.
      const resumed = report.kills.filter((kill) => kill.checkpointed > 0);
      expect(resumed.length).toBeGreaterThan(kills < FEW_KILLS ? 0 : kills / 3);
      expect(report.droppedLate).toBeGreaterThan(0);
      expect(report.rows).toBeGreaterThan(100);
      const otherwise = await loop.judge({ ...job.rules, latenessMs: 500n });
      expect(otherwise.difference).toMatch(/the first that differs is .*: late, frontier then.*droppedLate/s);
    },
    300_000 + kills * MS_PER_KILL,
  );

  it('the recovery times are printed as a histogram', () => {
    expect(histogramText('back', [10, 60, 70, 20_000])).toBe(
      [
        'back: 4 times, p50 70 ms, p90 20000 ms, p99 20000 ms, greatest 20000 ms',
        `        to 25 ms ${'#'.repeat(25)} 1`,
        `       to 100 ms ${'#'.repeat(50)} 2`,
        `   over 10000 ms ${'#'.repeat(25)} 1`,
      ].join('\n'),
    );
  });
});
