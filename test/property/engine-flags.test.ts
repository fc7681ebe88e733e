/** Flags that may change between two runs of one state: results that have left do not change, and
 *  no event is lost or counted twice. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { Job } from '../../src/engine/job.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import {
  engineIn,
  feedOracle,
  jobs,
  MemorySink,
  MemorySource,
  onDisk,
  oracleRows,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
} from './engine-kit.ts';

const times = fc.record({
  skewMs: fc.integer({ min: 0, max: 20 }),
  latenessMs: fc.integer({ min: 0, max: 20 }),
  maxFutureMs: fc.option(fc.integer({ min: 0, max: 20 }), { nil: undefined }),
});

/** Moment of the change, and sizes. */
const course = fc.record({
  /** Percentage of the events that the first run reads. */
  percent: fc.nat({ max: 100 }),
  batchRows: fc.integer({ min: 1, max: 9 }),
  spills: fc.boolean(),
});
type Course = typeof course extends fc.Arbitrary<infer T> ? T : never;

const jobOf = ({
  maxFutureMs,
  ...rules
}: {
  skewMs: number;
  latenessMs: number;
  maxFutureMs?: number | undefined;
}): Job => ({
  ...{ topic: 'events', watermark: 'partition', window: 'tumbling', sizeMs: 10 },
  ...rules,
  ...(maxFutureMs === undefined ? {} : { maxFutureMs }),
});

/** Runs the first events as one job and the rest as another, on one state. */
async function runChanged(
  [before, after]: readonly [Job, Job],
  events: readonly TestEvent[],
  { percent, batchRows, spills }: Course,
) {
  const [disk, sink, kv] = [new SimDisk(), new MemorySink(), new SimKv()];
  const first = events.slice(0, Math.floor((events.length * percent) / 100));
  const run = async (job: Job, some: readonly TestEvent[], stop: 'end' | 'bounded') => {
    const source = new MemorySource(some, 2, batchRows);
    const world = { job, partitions: 2, shards: 1, disk, sink, source, checkpointIntervalMs: 7 };
    const engine = engineIn(world, { stop, ...(spills ? await onDisk(kv, world, 0) : {}) });
    await engine.restore();
    return engine.run(new AbortController().signal);
  };
  await run(before, first, 'end');
  kv.crash(SPILL_FOLDER);
  return { sink, first, summary: await run(after, events, 'bounded') };
}

it('a run resumes with another skew, lateness and max-future, and its windows contain the accepted events', async () => {
  await fc.assert(
    fc.asyncProperty(streams(2), times, times, course, async (events, before, after, sizes) => {
      const { sink, summary } = await runChanged([jobOf(before), jobOf(after)], events, sizes);
      const counted = [...sink.rows.values()].reduce(
        (sum, row) => sum + BigInt(row.split(',')[3] as string),
        0n,
      );
      expect(summary.consumed).toBe(events.length);
      expect(sink.changed).toBe(0);
      expect(counted).toBe(BigInt(summary.accepted));
    }),
    { numRuns: runs(100) },
  );
});

describe.each(['partition', 'global'] as const)('lateness raised with -watermark=%s', (watermark) => {
  it('a run that resumes with a greater lateness has the rows and counts of the oracle for any windows', async () => {
    let admitted = 0;
    await fc.assert(
      fc.asyncProperty(
        jobs,
        fc.integer({ min: 1, max: 20 }),
        streams(2),
        course,
        async (plain, raisedMs, events, sizes) => {
          const before: Job = { ...plain, watermark };
          const after: Job = { ...before, latenessMs: before.latenessMs + raisedMs };
          const { sink, first, summary } = await runChanged([before, after], events, sizes);
          const [oracle, kept] = [new Oracle(rulesOf(before), 2), new Oracle(rulesOf(before), 2)];
          feedOracle(oracle, first);
          oracle.retime(rulesOf(after));
          feedOracle(oracle, events.slice(first.length));
          feedOracle(kept, events);
          const total = (counts: readonly bigint[]): number => Number(counts.reduce((a, b) => a + b, 0n));
          expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
          expect(sink.changed).toBe(0);
          expect(summary).toMatchObject({
            consumed: events.length,
            droppedLate: total(oracle.droppedLate),
            invalid: total(oracle.invalid),
          });
          admitted += total(kept.droppedLate) - total(oracle.droppedLate);
        },
      ),
      { numRuns: runs(300) },
    );
    // Without events that only the greater lateness admits, the property proves nothing.
    expect(admitted).toBeGreaterThan(0);
  });
});
