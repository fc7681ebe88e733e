/** The engine with crashes compared with the oracle, for any windows, stream, batch sizes, shards
 *  and moment of the crash. test/windows/engines.test.ts proves the results of the operator. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { rowText } from '../../bench/peers/oracle/difference.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { Metrics } from '../../src/core/metrics.ts';
import type { Job } from '../../src/engine/job.ts';
import { stateOf, watermarksOf } from '../../src/engine/job.ts';
import { engineMetrics } from '../../src/engine/metrics.ts';
import { UNLOGGED, WindowOperator } from '../../src/engine/window/operator.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { rowsOfFirings } from '../windows/fired-rows.ts';
import {
  batchOf,
  crashFields,
  drawFrom,
  engineIn,
  feedOracle,
  jobs,
  KERNELS,
  MemorySink,
  MemorySource,
  onDisk,
  oracleRows,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
  untilKilled,
} from './engine-kit.ts';

const PARTITIONS = 3;

function oracleOf(job: Job, events: readonly TestEvent[], partitions = PARTITIONS): Oracle {
  const oracle = new Oracle(rulesOf(job), partitions);
  feedOracle(oracle, events);
  return oracle;
}

describe('window operator', () => {
  it('the operator drops nothing and equals the batch result when no event is later than skew + lateness', async () => {
    await fc.assert(
      fc.asyncProperty(jobs, streams(1), fc.array(fc.nat(), { maxLength: 80 }), async (job, raw, delays) => {
        const budget = job.skewMs + job.latenessMs;
        const events = raw
          .filter((event) => event.broken !== true && event.eventTs > -100n && event.eventTs < 100n)
          .map((event, i) => ({
            event: { ...event, partition: 0 },
            at: event.eventTs + BigInt((delays[i] ?? 0) % (budget + 1)),
          }))
          .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
          .map(({ event }) => event);
        const batch = new Oracle(rulesOf(job), 1, false);
        feedOracle(
          batch,
          [...events].sort((a, b) => (a.eventTs < b.eventTs ? -1 : 1)),
        );
        const watermarks = watermarksOf(job, KERNELS, 1);
        const state = stateOf(job, KERNELS, 2);
        const operator = new WindowOperator({ watermarks, state, journal: UNLOGGED, rowCapacity: 128 });
        const fired: string[] = [];
        for (let at = 0; at < events.length; at += 9) {
          const { records, events: rows } = batchOf(
            events.slice(at, at + 9),
            events.slice(at, at + 9).map((_, i) => at + i),
          );
          fired.push(...(await rowsOfFirings(operator.step(records, rows, 0))).map(rowText));
        }
        fired.push(...(await rowsOfFirings(operator.drain(0))).map(rowText));
        expect(fired).toEqual(oracleRows(batch));
        expect(watermarks.totals()).toMatchObject({ consumed: events.length, droppedLate: 0 });
        state.close();
      }),
      { numRuns: runs(200) },
    );
  });
});

const lives = fc.array(
  fc.record({
    ...crashFields,
    // Number of turns for which a dying process still writes after its loop has ended.
    lingers: fc.constantFrom(0, 300),
    sinkTurns: fc.constantFrom(0, 20, 200),
  }),
  { maxLength: 4 },
);

describe.each(['memory', 'disk', 'memory, then on disk'] as const)(
  'engine with crashes, state in %s',
  (where) => {
    it('an engine with crashes has the results and drops of a run without crashes and never changes a written result', async () => {
      // The engine refuses a global watermark over several partitions.
      let spilled = 0;
      const worlds = fc.tuple(jobs, fc.constantFrom(1, PARTITIONS)).chain(([any, partitions]) => {
        const job: Job = partitions === 1 ? { ...any, watermark: 'global' } : any;
        return streams(partitions).map((events) => ({ job, partitions, events }));
      });
      await fc.assert(
        fc.asyncProperty(worlds, lives, async ({ job, partitions, events }, crashes) => {
          const disk = new SimDisk();
          const sink = new MemorySink();
          const kv = new SimKv();
          const stateIn = async (shards: number, life: number) =>
            where === 'disk' || (where !== 'memory' && life > 0)
              ? onDisk(kv, { job, shards }, events.length % 2 === 0 ? 0 : 3000)
              : {};
          for (const [life, crash] of crashes.entries()) {
            const source = new MemorySource(events, partitions, crash.batchRows);
            source.batchesLeft = crash.batches;
            disk.changesLeft = crash.diskChanges;
            sink.turns = crash.sinkTurns;
            const engine = engineIn(
              {
                job,
                partitions,
                shards: crash.shards,
                disk,
                sink,
                source,
                checkpointIntervalMs: crash.interval,
              },
              await stateIn(crash.shards, life),
            );
            const lived = async (): Promise<unknown> => {
              await engine.restore();
              return engine.run(new AbortController().signal);
            };
            await untilKilled(lived());
            for (let turn = 0; turn < crash.lingers; turn++) await Promise.resolve();
            sink.crash();
            disk.crash(drawFrom(crash.left));
            kv.crash(SPILL_FOLDER);
          }
          disk.changesLeft = Number.POSITIVE_INFINITY;
          const source = new MemorySource(events, partitions, 5);
          const metrics = engineMetrics(new Metrics());
          const engine = engineIn(
            { job, partitions, shards: 2, disk, sink, source, checkpointIntervalMs: 50 },
            { metrics, ...(await stateIn(2, crashes.length)) },
          );
          await engine.restore();
          await engine.run(new AbortController().signal);
          spilled += metrics.spillBytes.value();
          const oracle = oracleOf(job, events, partitions);
          expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
          expect(sink.changed).toBe(0);
          expect(engine.progress().map((one) => BigInt(one.droppedLate))).toEqual(oracle.droppedLate);
          expect(BigInt(engine.watermark().dropped_late)).toBe(
            oracle.droppedLate.reduce((a, b) => a + b, 0n),
          );
        }),
        { numRuns: runs(100) },
      );
      expect(spilled > 0).toBe(where !== 'memory');
    });
  },
);

it('all ended windows are in the sink when the input ends, with state in memory and on disk', async () => {
  await fc.assert(
    fc.asyncProperty(jobs, streams(PARTITIONS), fc.integer({ min: 1, max: 9 }), async (job, events, rows) => {
      const rowsIn = async (kv: SimKv | undefined): Promise<ReadonlyMap<string, string>> => {
        const sink = new MemorySink();
        const world = { job, partitions: PARTITIONS, shards: 1, disk: new SimDisk(), sink };
        const source = new MemorySource(events, PARTITIONS, rows);
        const over = kv === undefined ? {} : await onDisk(kv, world, 0);
        const engine = engineIn({ ...world, source, checkpointIntervalMs: 20 }, { ...over, stop: 'end' });
        await engine.restore();
        await engine.run(new AbortController().signal);
        return sink.rows;
      };
      expect(await rowsIn(new SimKv())).toEqual(await rowsIn(undefined));
    }),
    { numRuns: runs(100) },
  );
});

it('sessions move to disk while other sessions fire with every batch', async () => {
  const events = Array.from(
    { length: 600 },
    (_, i): TestEvent => ({ partition: 0, accountId: BigInt(i % 3), value: 1n, eventTs: BigInt(5 * i) }),
  );
  const job: Job = {
    ...{ topic: 'events', window: 'session', gapMs: 4, skewMs: 0, latenessMs: 0, watermark: 'partition' },
  };
  const [sink, metrics] = [new MemorySink(), engineMetrics(new Metrics())];
  sink.turns = 300;
  const engine = engineIn(
    {
      ...{ job, partitions: 1, shards: 1, disk: new SimDisk(), sink, checkpointIntervalMs: 1000 },
      source: new MemorySource(events, 1, 2),
    },
    {
      ...{ metrics, checkpointSizes: { baseBytesMin: 256 } },
      ...(await onDisk(new SimKv(), { job, shards: 1 }, 1e9)),
    },
  );
  await engine.restore();
  await engine.run(new AbortController().signal);
  expect(metrics.spillBytes.value()).toBeGreaterThan(0);
  expect(sink.sorted()).toEqual(oracleRows(oracleOf(job, events, 1)).sort());
});
