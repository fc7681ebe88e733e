/** Flags that may change between two runs of one state: results that have left do not change, and
 *  no event is lost or counted twice. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Job } from '../../src/engine/job.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { engineIn, MemorySink, MemorySource, onDisk, SPILL_FOLDER, streams } from './engine-kit.ts';

const times = fc.record({
  skewMs: fc.integer({ min: 0, max: 20 }),
  latenessMs: fc.integer({ min: 0, max: 20 }),
  maxFutureMs: fc.option(fc.integer({ min: 0, max: 20 }), { nil: undefined }),
});

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

it('a run resumes with another skew, lateness and max-future, and its windows contain the accepted events', async () => {
  await fc.assert(
    fc.asyncProperty(
      streams(2),
      times,
      times,
      fc.nat({ max: 100 }),
      fc.integer({ min: 1, max: 9 }),
      fc.boolean(),
      async (events, before, after, percent, batchRows, spills) => {
        const [disk, sink, kv] = [new SimDisk(), new MemorySink(), new SimKv()];
        const first = events.slice(0, Math.floor((events.length * percent) / 100));
        const run = async (job: Job, some: typeof events, stop: 'end' | 'bounded') => {
          const source = new MemorySource(some, 2, batchRows);
          const world = { job, partitions: 2, shards: 1, disk, sink, source, checkpointIntervalMs: 7 };
          const engine = engineIn(world, { stop, ...(spills ? await onDisk(kv, world, 0) : {}) });
          await engine.restore();
          return engine.run(new AbortController().signal);
        };
        await run(jobOf(before), first, 'end');
        kv.crash(SPILL_FOLDER);
        const { accepted, consumed } = await run(jobOf(after), events, 'bounded');
        const counted = [...sink.rows.values()].reduce(
          (sum, row) => sum + BigInt(row.split(',')[3] as string),
          0n,
        );
        expect(consumed).toBe(events.length);
        expect(sink.changed).toBe(0);
        expect(counted).toBe(BigInt(accepted));
      },
    ),
    { numRuns: runs(100) },
  );
});
