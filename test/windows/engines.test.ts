/** Compares every engine with the oracle, for any stream, batch sizes, shards, checkpoints and
 *  crashes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { differenceText } from '../../bench/peers/oracle/difference.ts';
import type { LogEntry, OracleRules, PartitionCounters } from '../../bench/peers/oracle/rules.ts';
import { oracleOf } from '../../bench/peers/oracle/windows.ts';
import { runs } from '../tier.ts';
import {
  type Course,
  courses,
  differencesFrom,
  type EngineRun,
  type EngineUnderTest,
  oracleDifference,
  PLAIN,
  resultDigest,
  runCourse,
} from './engine-under-test.ts';
import { operatorUnderTest } from './operator-under-test.ts';
import { everyStream, type Scope } from './small-scope.ts';
import { interleaved, longStream, type Stream, streams, turnLists } from './streams.ts';

const WIDE = process.env['MILLRACE_SMALL_SCOPE'] === 'wide';

const reference = operatorUnderTest('reference');
const engines: readonly EngineUnderTest[] = [
  operatorUnderTest('native'),
  reference,
  operatorUnderTest('native', 'disk'),
];

/** Kills the process after a few batches, again and again, and restores it at another shard
 *  count. */
const OFTEN: Course = {
  ...PLAIN,
  batchRows: [3],
  checkpointEvery: 2,
  lives: [3, 1, 4, 2, 5],
  shards: [1, 7, 2],
};
const VARIANTS: Readonly<Record<string, Course>> = {
  'one row per batch': { ...PLAIN, batchRows: [1] },
  'all rows in a batch': { ...PLAIN, batchRows: [100] },
  'two shards': { ...PLAIN, shards: [2] },
  'seven shards': { ...PLAIN, shards: [7] },
  checkpoints: { ...PLAIN, checkpointEvery: 1 },
  'crashes without a checkpoint': { ...PLAIN, lives: [2, 4] },
  'crashes and restores at other shard counts': OFTEN,
  'another order of the partitions after each crash': { ...OFTEN, regroups: true },
};

/** Additions to the lateness by each life but the first, ms. */
const raises = fc.array(fc.bigInt({ min: 0n, max: 15n }), { minLength: 1, maxLength: 4 });

/** More events than the largest batch has rows. */
const LONG_EVENTS = 12_000;
const LARGE = 10_000;
const BATCHES: Readonly<Record<string, Course>> = {
  'batches of 1': { ...PLAIN, batchRows: [1] },
  'batches of 10,000': { ...PLAIN, batchRows: [LARGE] },
  'batches of 10,000, with a crash after the first': {
    ...PLAIN,
    batchRows: [LARGE],
    checkpointEvery: 1,
    lives: [1],
    shards: [2, 7],
  },
  'some batches of 1, then batches of 10,000': { ...PLAIN, batchRows: [1, 1, 1, LARGE] },
};
const LONG = [
  { name: 'tumbling windows', rules: { sizeMs: 700n } },
  { name: 'sliding windows', rules: { window: 'sliding', sizeMs: 900n, slideMs: 400n } },
  { name: 'sessions', rules: { window: 'session', gapMs: 150n } },
].map(({ name, rules }) => ({ name, rules: { ...rules, skewMs: 100n, latenessMs: 200n } as OracleRules }));

const acceptedIn = (counters: readonly PartitionCounters[]): bigint =>
  counters.reduce((sum, { accepted }) => sum + accepted, 0n);

describe.each(engines.map((engine) => ({ name: engine.name, engine })))('$name', ({ engine }) => {
  it('the engine gives the rows of the oracle in firing order, and the counts of the oracle', async () => {
    await fc.assert(
      fc.asyncProperty(streams(engine.computes), courses, async (stream, { batchRows, shards }) => {
        const oracle = oracleOf(stream.rules, stream.partitions, stream.log);
        const course = { ...PLAIN, batchRows, shards };
        expect(await oracleDifference(engine, stream, course)).toBe('');
        const { emitted } = await runCourse(engine, stream, course);
        expect(emitted).toEqual([...oracle.rows()]);
      }),
      { numRuns: runs(150) },
    );
  });

  it("the engine gives the oracle's rows after crashes anywhere, and never another value for a key it wrote", async () => {
    await fc.assert(
      fc.asyncProperty(streams(engine.computes), courses, async (stream, course) => {
        expect(await oracleDifference(engine, stream, course)).toBe('');
      }),
      { numRuns: runs(200) },
    );
  });

  it('the engine gives the rows and the counts of the oracle when it restarts with a greater lateness', async () => {
    let admitted = 0n;
    await fc.assert(
      fc.asyncProperty(streams(engine.computes), courses, raises, async (stream, course, raisesMs) => {
        const latenessMs = [stream.rules.latenessMs];
        for (const ms of raisesMs) latenessMs.push((latenessMs.at(-1) as bigint) + ms);
        const result = await runCourse(engine, stream, { ...course, latenessMs });
        expect(differencesFrom(stream, result)).toBe('');
        const kept = oracleOf(stream.rules, stream.partitions, result.arrivals);
        admitted += acceptedIn(result.counters) - acceptedIn(kept.counters);
      }),
      { numRuns: runs(200) },
    );
    // Without events that only a greater lateness admits, the property proves nothing.
    expect(admitted).toBeGreaterThan(runs(20));
  });

  it('the engine has one digest for one log at any batch size, shard count and crash schedule', async () => {
    await fc.assert(
      fc.asyncProperty(streams(engine.computes), async (stream) => {
        const plain = resultDigest(await runCourse(engine, stream, PLAIN));
        for (const [name, course] of Object.entries(VARIANTS))
          expect(`${name} ${resultDigest(await runCourse(engine, stream, course))}`).toBe(`${name} ${plain}`);
      }),
      { numRuns: runs(40) },
    );
  });

  it.each(LONG)(
    'the engine gives the rows of the oracle for $name in batches of 1 and of 10,000',
    async ({ rules }) => {
      const stream = longStream(rules, LONG_EVENTS);
      const counts = oracleOf(rules, stream.partitions, stream.log).counters;
      expect(counts.every((one) => one.droppedLate > 0n && one.invalid > 0n)).toBe(true);
      for (const [name, course] of Object.entries(BATCHES))
        expect(`${name}: ${await oracleDifference(engine, stream, course)}`).toBe(`${name}: `);
    },
  );

  it('the engine has one digest for any interleaving of partitions that have their own watermarks', async () => {
    const ofPartitions = streams({ ...engine.computes, watermarks: ['partition'], decisions: false });
    await fc.assert(
      fc.asyncProperty(ofPartitions, turnLists, async (stream, turns) => {
        const other = { ...stream, log: interleaved(stream.log, turns) };
        const digest = async (of: Stream): Promise<string> =>
          resultDigest(await runCourse(engine, of, PLAIN));
        expect(await digest(other)).toBe(await digest(stream));
      }),
      { numRuns: runs(100) },
    );
  });

  it(
    'the engine gives the rows of the oracle for every small stream',
    async () => {
      const length = WIDE ? 6 : 5;
      const rules = { skewMs: 1n, latenessMs: 0n };
      const all: readonly Scope[] = [
        { rules: { ...rules, sizeMs: 2n }, partitions: 2, keys: 1, reach: 1, length, idle: false },
        {
          rules: { ...rules, window: 'sliding', sizeMs: 3n, slideMs: 2n },
          partitions: 1,
          keys: 1,
          reach: 2,
          length,
          idle: false,
        },
        {
          rules: { ...rules, window: 'session', gapMs: 2n },
          partitions: 1,
          keys: 1,
          reach: 3,
          length,
          idle: false,
        },
      ];
      const mine = all.filter((one) => engine.computes.windows.includes(one.rules.window ?? 'tumbling'));
      expect(mine.length).toBeGreaterThan(0);
      let streamsSeen = 0;
      for (const scope of mine) {
        const logs: LogEntry[][] = [];
        everyStream(scope, (log) => logs.push([...log]));
        streamsSeen += logs.length;
        const { rules: of, partitions } = scope;
        for (const log of logs) {
          const difference = await oracleDifference(
            engine,
            { rules: of, partitions, log },
            { ...PLAIN, batchRows: [2] },
          );
          if (difference !== '') expect.fail(difference);
        }
      }
      process.stderr.write(`${engine.name}: ${streamsSeen} small streams, the oracle's rows for each\n`);
    },
    WIDE ? 3_600_000 : 300_000,
  );
});

/** Wraps the reference operator so that the proofs see a planted fault. */
function broken(fault: (run: EngineRun, restored: boolean) => Partial<EngineRun>): EngineUnderTest {
  const plant = (run: EngineRun, restored: boolean): EngineRun => {
    const bound: EngineRun = {
      feed: (batch) => run.feed(batch),
      idle: (partition) => run.idle(partition),
      added: () => run.added(),
      settle: async () => (await run.settle?.()) ?? [],
      drain: () => run.drain(),
      counters: () => run.counters(),
      position: () => run.position(),
      checkpoint: () => run.checkpoint(),
      kill: () => run.kill(),
    };
    return { ...bound, ...fault(run, restored) };
  };
  return {
    ...reference,
    start: async (job) => plant(await reference.start(job), false),
    restore: async (job, saved) => plant(await reference.restore(job, saved), true),
  };
}

describe('detection by the proofs', () => {
  const event = (accountId: bigint, eventTs: bigint, value = 5n) => ({
    kind: 'event' as const,
    partition: 0,
    accountId,
    value,
    eventTs,
  });
  const stream: Stream = {
    rules: { sizeMs: 10n, skewMs: 2n, latenessMs: 3n },
    partitions: 1,
    log: [
      event(7n, 4n),
      event(9n, 9n),
      event(7n, 3n),
      event(7n, 15n),
      event(7n, 9n),
      event(9n, 31n),
      event(1n, 32n),
    ],
  };

  it('the proofs accept the reference engine', async () => {
    expect(await oracleDifference(reference, stream, OFTEN)).toBe('');
  });

  it('the proofs accept the reference engine if a partition is idle when the engine dies', async () => {
    const one = (partition: number, eventTs: bigint): LogEntry => ({ ...event(7n, eventTs), partition });
    const resting: Stream = {
      rules: { sizeMs: 1n, skewMs: 0n, latenessMs: 0n },
      partitions: 2,
      log: [{ kind: 'idle', partition: 1 }, one(0, 0n), one(1, 1n), one(0, 1000n)],
    };
    const course = { ...PLAIN, batchRows: [1], checkpointEvery: 1, lives: [1], regroups: true };
    expect(await oracleDifference(reference, resting, course)).toBe('');
  });

  it('the proofs detect an engine that loses a row, and show the events of that row', async () => {
    const losing = broken((run) => ({
      feed: async (batch) => (await run.feed(batch)).filter((row) => row.accountId !== 9n),
    }));
    expect(await oracleDifference(losing, stream, PLAIN)).toContain(
      [
        '5 rows expected, 4 found; the first that differs is [0, 10) of account 9',
        '  expected 9,0,10,1,5,5,5,9,false',
        '  found    no such row',
        '  events of the account there:',
        '    #1 partition 0 offset 1 event_ts 9 value 5: accepted, frontier then 4',
      ].join('\n'),
    );
  });

  it('the proofs detect an engine that adds one event too many, and show the late event', async () => {
    const wrong = broken((run) => ({
      feed: async (batch) => (await run.feed(batch)).map((row) => ({ ...row, sum: row.sum + 1n })),
    }));
    const found = await oracleDifference(wrong, stream, PLAIN);
    expect(found).toContain('  found    7,0,10,1,6,5,5,4,false');
    expect(found).toContain('#2 partition 0 offset 2 event_ts 3 value 5: late');
  });

  it('the proofs detect an engine that loses its drop counters in a restore', async () => {
    const forgets = broken((run, restored) => ({
      counters: () => run.counters().map((one) => (restored ? { ...one, droppedLate: 0n } : one)),
    }));
    expect(await oracleDifference(forgets, stream, PLAIN)).toBe('');
    expect(await oracleDifference(forgets, stream, OFTEN)).toContain('partition 0: droppedLate 0, expected');
  });

  it('the proofs detect an engine that keeps the lateness of its first life', async () => {
    const keeps: EngineUnderTest = {
      ...reference,
      restore: (job, left) =>
        reference.restore({ ...job, rules: { ...job.rules, latenessMs: stream.rules.latenessMs } }, left),
    };
    const raised = { ...PLAIN, batchRows: [1], lives: [5], latenessMs: [3n, 30n] };
    const after = { ...stream, log: [...stream.log, event(7n, 29n), event(7n, 20n)] };
    expect(await oracleDifference(reference, after, raised)).toBe('');
    expect(await oracleDifference(keeps, after, raised)).toContain('partition 0: accepted');
  });

  it('the proofs detect an engine that fires open windows too soon and writes them again with another value', async () => {
    const hasty = broken((run) => ({
      feed: async (batch) => [
        ...(await run.feed(batch.slice(0, 1))),
        ...(await run.drain()),
        ...(await run.feed(batch.slice(1))),
      ],
    }));
    const said = await oracleDifference(hasty, stream, { ...PLAIN, batchRows: [2] }).catch(String);
    expect(said).toMatch(/became|never falls into a fired window/);
  });

  it('the proofs detect an engine that writes a row twice', () => {
    const row = [...oracleOf(stream.rules, 1, stream.log).rows()];
    expect(differenceText(row, row)).toBe('');
    expect(differenceText(row, [...row, row[1] as (typeof row)[number]])).toContain(
      '5 rows expected, 6 found',
    );
  });
});
