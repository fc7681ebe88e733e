/** The engine against the oracle: whatever the stream, the batch cuts, the interleaving, the shards and the crashes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { PartitionWatermarks } from '../../src/core/watermark.ts';
import type { Job } from '../../src/engine/job.ts';
import { assignerOf } from '../../src/engine/job.ts';
import { WindowOperator } from '../../src/engine/operator.ts';
import { MemState } from '../../src/engine/state/mem.ts';
import {
  batchOf,
  engineIn,
  firedRows,
  jobs,
  MemoryDisk,
  MemorySink,
  MemorySource,
  oracleRows,
  streams,
  type TestEvent,
  tell,
} from './engine-kit.ts';

const PARTITIONS = 3;

const oracleOf = (job: Job, events: readonly TestEvent[]): Oracle => {
  const rules = {
    sizeMs: BigInt(job.sizeMs),
    skewMs: BigInt(job.skewMs),
    latenessMs: BigInt(job.latenessMs),
  };
  const oracle = new Oracle(rules, PARTITIONS);
  tell(oracle, events);
  return oracle;
};

function operatorOf(job: Job, shards: number): WindowOperator {
  return new WindowOperator({
    watermarks: new PartitionWatermarks(PARTITIONS, job.skewMs, job.latenessMs),
    assigner: assignerOf(job),
    state: new MemState(shards, job.sizeMs),
    rowCapacity: 128,
  });
}

/** Runs a stream in batches of the sizes given, the last one again and again. */
function runPure(job: Job, events: readonly TestEvent[], shards: number, cuts: readonly number[]) {
  const operator = operatorOf(job, shards);
  const next = new Array<number>(PARTITIONS).fill(0);
  const fired: string[] = [];
  for (let at = 0, i = 0; at < events.length; i++) {
    const some = events.slice(at, at + (cuts[Math.min(i, cuts.length - 1)] as number));
    at += some.length;
    const offsets = some.map(({ partition }) => {
      const offset = next[partition] as number;
      next[partition] = offset + 1;
      return offset;
    });
    fired.push(...firedRows(operator.step(batchOf(some, offsets, shards))));
  }
  const atEnd = [...fired];
  fired.push(...firedRows(operator.drain()));
  return { atEnd, fired, progress: operator.progress() };
}

const cutLists = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 6 });

describe('window operator', () => {
  it('equals the oracle row for row, in order, with the drops of every partition', () => {
    fc.assert(
      fc.property(
        jobs,
        streams(PARTITIONS),
        fc.integer({ min: 1, max: 4 }),
        cutLists,
        (job, events, shards, cuts) => {
          const oracle = oracleOf(job, events);
          const run = runPure(job, events, shards, cuts);
          expect(run.fired).toEqual(oracleRows(oracle));
          expect(run.atEnd).toEqual(oracleRows(oracle, true));
          expect(run.progress.map((one) => BigInt(one.droppedLate))).toEqual(oracle.droppedLate);
          expect(run.progress.map((one) => BigInt(one.invalid))).toEqual(oracle.invalid);
          expect(run.progress.map((one) => BigInt(one.consumed))).toEqual(oracle.consumed);
        },
      ),
      { numRuns: 400 },
    );
  });

  it('gives the same results and drops for any interleaving of the partitions', () => {
    fc.assert(
      fc.property(
        jobs,
        streams(PARTITIONS),
        fc.array(fc.nat(PARTITIONS - 1), { maxLength: 80 }),
        (job, events, order) => {
          const queues = Array.from({ length: PARTITIONS }, (_, p) =>
            events.filter((event) => event.partition === p),
          );
          const other: TestEvent[] = [];
          for (const p of order) other.push(...(queues[p] as TestEvent[]).splice(0, 1));
          for (const rest of queues) other.push(...rest);
          const one = runPure(job, events, 1, [7]);
          const two = runPure(job, other, 3, [5]);
          expect(two.fired).toEqual(one.fired);
          expect(two.atEnd).toEqual(one.atEnd);
          expect(two.progress).toEqual(one.progress);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('drops nothing and equals the batch result when no event is later than skew + lateness', () => {
    fc.assert(
      fc.property(jobs, streams(1), fc.array(fc.nat(), { maxLength: 80 }), (job, raw, delays) => {
        const budget = job.skewMs + job.latenessMs;
        const events = raw
          .filter((event) => event.broken !== true && event.eventTs > -100n && event.eventTs < 100n)
          .map((event, i) => ({
            event: { ...event, partition: 0 },
            at: event.eventTs + BigInt((delays[i] ?? 0) % (budget + 1)),
          }))
          .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
          .map(({ event }) => event);
        const rules = {
          sizeMs: BigInt(job.sizeMs),
          skewMs: BigInt(job.skewMs),
          latenessMs: BigInt(job.latenessMs),
        };
        const batch = new Oracle(rules, 1, false);
        tell(
          batch,
          [...events].sort((a, b) => (a.eventTs < b.eventTs ? -1 : 1)),
        );
        const run = runPure(job, events, 2, [9]);
        expect(run.fired).toEqual(oracleRows(batch));
        expect(run.progress[0]?.droppedLate).toBe(0);
      }),
      { numRuns: 200 },
    );
  });
});

describe('engine with crashes', () => {
  it('leaves the results and drops of a run without crashes, and never changes a result it wrote', async () => {
    await fc.assert(
      fc.asyncProperty(
        jobs,
        streams(PARTITIONS),
        fc.array(
          fc.record({
            shards: fc.integer({ min: 1, max: 4 }),
            batchRows: fc.integer({ min: 1, max: 12 }),
            batches: fc.integer({ min: 0, max: 12 }),
            diskCalls: fc.oneof(fc.constant(1_000_000), fc.integer({ min: 0, max: 9 })),
            // How long the dying process still writes after its loop has ended.
            lingers: fc.constantFrom(0, 300),
            sinkTurns: fc.constantFrom(0, 20, 200),
            interval: fc.constantFrom(1, 20, 1000),
          }),
          { maxLength: 4 },
        ),
        async (job, events, crashes) => {
          const disk = new MemoryDisk();
          const sink = new MemorySink();
          for (const crash of crashes) {
            const source = new MemorySource(events, PARTITIONS, crash.shards, crash.batchRows);
            source.batchesLeft = crash.batches;
            disk.callsLeft = crash.diskCalls;
            sink.turns = crash.sinkTurns;
            const engine = engineIn({
              job,
              partitions: PARTITIONS,
              shards: crash.shards,
              disk,
              sink,
              source,
              checkpointIntervalMs: crash.interval,
            });
            await engine.restore();
            await engine.run(new AbortController().signal).catch((thrown: unknown) => {
              if (!/killed|machine is off/.test(String(thrown))) throw thrown;
            });
            for (let turn = 0; turn < crash.lingers; turn++) await Promise.resolve();
            sink.crash();
            disk.crash();
          }
          disk.callsLeft = Number.POSITIVE_INFINITY;
          const source = new MemorySource(events, PARTITIONS, 2, 5);
          const engine = engineIn({
            job,
            partitions: PARTITIONS,
            shards: 2,
            disk,
            sink,
            source,
            checkpointIntervalMs: 50,
          });
          await engine.restore();
          await engine.run(new AbortController().signal);
          const oracle = oracleOf(job, events);
          expect(sink.sorted()).toEqual(oracleRows(oracle).sort());
          expect(sink.changed).toBe(0);
          expect(engine.progress().map((one) => BigInt(one.droppedLate))).toEqual(oracle.droppedLate);
          expect(BigInt(engine.watermark().dropped_late)).toBe(
            oracle.droppedLate.reduce((a, b) => a + b, 0n),
          );
        },
      ),
      { numRuns: 100 },
    );
  });
});
