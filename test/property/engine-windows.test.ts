/** Several windows over one reader with crashes, each compared with the oracle: any windows,
 *  stream, batch sizes and moment of the crash; windows join or leave between two lives. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { type Job, watermarksOf } from '../../src/engine/job.ts';
import type { RunSummary } from '../../src/engine/parts.ts';
import type { Engine } from '../../src/engine/run.ts';
import { SharedReader } from '../../src/engine/source/shared/reader.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { runs } from '../tier.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  feedOracle,
  jobs,
  KERNELS,
  MemorySink,
  MemorySource,
  oracleRows,
  rulesOf,
  streams,
  tickingClock,
  untilKilled,
} from './engine-kit.ts';

const PARTITIONS = 2;

interface Member {
  readonly name: string;
  readonly job: Job;
  readonly disk: SimDisk;
  readonly sink: MemorySink;
}

interface LifeOf {
  readonly members: readonly Member[];
  readonly source: MemorySource;
  readonly shards: number;
  readonly interval: number;
  readonly drain?: AbortSignal;
}

/** Runs one process with several windows to its end, or until one of them dies. */
async function live({ members, source, shards, interval, drain }: LifeOf): Promise<readonly RunSummary[]> {
  const signal = drain ?? new AbortController().signal;
  const reader = new SharedReader({ source, drain: signal, clock: tickingClock() });
  const engines: { readonly engine: Engine; readonly stop: () => Promise<void> }[] = members.map(
    ({ name, job, disk, sink }) => {
      const watermarks = watermarksOf(job, KERNELS, PARTITIONS);
      const shared = reader.add({ name, watermarks });
      const engine = engineIn(
        { job, partitions: PARTITIONS, shards, disk, sink, source, checkpointIntervalMs: interval },
        { source: shared, watermarks },
      );
      return { engine, stop: () => shared.stop() };
    },
  );
  for (const { engine } of engines) await engine.restore();
  const ended = await Promise.allSettled(
    engines.map(({ engine, stop }) =>
      engine
        .run(signal)
        .catch((thrown: unknown) => {
          // The death of one window is the death of the process.
          source.batchesLeft = 0;
          throw thrown;
        })
        .finally(stop),
    ),
  );
  const failed = ended.find((one) => one.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return ended.map((one) => (one as PromiseFulfilledResult<RunSummary>).value);
}

const lives = fc.array(
  fc.record({ ...crashFields, sinkTurns: fc.constantFrom(0, 20, 200), members: fc.nat({ max: 7 }) }),
  { maxLength: 4 },
);

const membersOf = (windows: readonly Job[]): readonly Member[] =>
  windows.map((job, at) => ({ name: `w${at}`, job, disk: new SimDisk(), sink: new MemorySink() }));

describe('several windows over one reader', () => {
  it('each window has the results and the drops of a run of its own, through crashes and changes of the set', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(jobs, { minLength: 2, maxLength: 3 }),
        streams(PARTITIONS),
        lives,
        async (windows, events, crashes) => {
          const members = membersOf(windows);
          for (const crash of crashes) {
            const chosen = members.filter((_, at) => (crash.members >> at) % 2 === 1);
            if (chosen.length === 0) continue;
            const source = new MemorySource(events, PARTITIONS, crash.batchRows);
            source.batchesLeft = crash.batches;
            for (const { disk, sink } of chosen) {
              disk.changesLeft = crash.diskChanges;
              sink.turns = crash.sinkTurns;
            }
            await untilKilled(
              live({ members: chosen, source, shards: crash.shards, interval: crash.interval }),
            );
            for (const { disk, sink } of chosen) {
              sink.crash();
              disk.crash(drawFrom(crash.left));
            }
          }
          for (const { disk } of members) disk.changesLeft = Number.POSITIVE_INFINITY;
          const source = new MemorySource(events, PARTITIONS, 5);
          const summaries = await live({ members, source, shards: 2, interval: 50 });
          for (const [at, { job, sink }] of members.entries()) {
            const oracle = new Oracle(rulesOf(job), PARTITIONS);
            feedOracle(oracle, events);
            expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
            expect(sink.changed).toBe(0);
            expect(summaries[at]?.consumed).toBe(events.length);
            const dropped = [...oracle.droppedLate].reduce((sum, count) => sum + Number(count), 0);
            expect(summaries[at]?.droppedLate).toBe(dropped);
          }
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('windows at one position read each batch once', async () => {
    const events = Array.from({ length: 60 }, (_, at) => ({
      ...{ partition: at % PARTITIONS, accountId: 1n, value: 1n, eventTs: BigInt(at) },
    }));
    const rules = { topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition' } as const;
    const members = membersOf([
      { ...rules, window: 'tumbling', sizeMs: 5 },
      { ...rules, window: 'session', gapMs: 3 },
      { ...rules, window: 'sliding', sizeMs: 6, slideMs: 3 },
    ]);
    const source = new MemorySource(events, PARTITIONS, 10);
    source.batchesLeft = 6;
    const summaries = await live({ members, source, shards: 1, interval: 1000 });
    expect(summaries.map(({ consumed }) => consumed)).toEqual([60, 60, 60]);
    expect(source.batchesLeft).toBe(0);
  });
});
