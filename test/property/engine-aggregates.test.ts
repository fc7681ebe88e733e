/** The engine with aggregates of several fields and crashes compared with a batch job: events that
 *  the oracle accepts, grouped by window, and each aggregate computed from the list of its
 *  events. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Aggregates } from '../../src/engine/aggregate/definition.ts';
import type { Job } from '../../src/engine/job.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { isFull, runs } from '../tier.ts';
import {
  acceptedOf,
  doubleOf,
  FieldSink,
  FieldSource,
  PARTITIONS,
  type Placed,
  resultOf,
  sumOfDoubles,
  windowsOf,
} from './aggregates-kit.ts';
import { textInput } from './engine-keys-kit.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  onDisk,
  SPILL_FOLDER,
  streams,
  untilKilled,
} from './engine-kit.ts';

/** Divisor of the timestamps of a crowd. */
const CROWDING = 4n;

const TEXTS = [
  'count,sum(i),min(i),max(i),avg(i)',
  'sum(d:double),avg(d:double),min(d:double),max(d:double),count(d:double)',
  'first(i),last(i),first(d:double) as earliest,last(d:double) as latest,sum(i),sum(d:double)',
  'count(i),sum(d:double),last(i)',
  'p50(i),p99.9(i),distinct(i:long),count(i)',
  'p90(d:double),distinct(d:double) as prices,sum(i),last(i),distinct(i)',
  'topk(i,3),count(i),topk(i,100) as all',
  'sum(i:decimal3),avg(i:decimal3),min(i:decimal3),max(i:decimal3),count(i:decimal3),first(i:decimal3),last(i:decimal3)',
  'sum(i:decimal18) as sum,last(i),p90(i:decimal4),distinct(i:decimal4),avg(i:decimal0)',
  'count',
];

/** Half of the streams have one key and few timestamps, so that their windows have many events. */
const crowds = fc
  .tuple(streams(PARTITIONS), fc.boolean())
  .map(([events, isCrowd]) =>
    isCrowd
      ? events.map((event) => ({ ...event, accountId: 0n, eventTs: event.eventTs / CROWDING }))
      : events,
  );

const lives = fc.array(
  fc.record({
    ...crashFields,
    sinkTurns: fc.constantFrom(0, 20, 200),
  }),
  { maxLength: 4 },
);

/** True if a sum in the order of the events has other bits than the exact sum. */
function isInexact(events: readonly Placed[]): boolean {
  const values = events.flatMap((event) => doubleOf(event) ?? []);
  return values.reduce((sum, value) => sum + value, 0) !== sumOfDoubles(values);
}

describe.each(['memory', 'disk'] as const)('engine with aggregates, state in %s', (where) => {
  it('the results are those of a batch job over the accepted events, through crashes', async () => {
    let [windows, inexact] = [0, 0];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...TEXTS),
        jobs,
        crowds,
        lives,
        async (text, plain, events, crashes) => {
          const aggregates = Aggregates.of(text);
          const [disk, sink, kv] = [new SimDisk(), new FieldSink(), new SimKv()];
          const job: Job = {
            ...plain,
            input: { format: 'json', key: 'k:u64', time: 't:ms', aggregate: text },
          };
          const engineOf = async (source: FieldSource, shards: number, checkpointIntervalMs: number) => {
            const world = { job, partitions: PARTITIONS, shards, disk, sink, source };
            const over: Partial<EngineParts> = where === 'disk' ? await onDisk(kv, world, 3000) : {};
            const input = textInput(job.input as NonNullable<Job['input']>);
            return engineIn({ ...world, checkpointIntervalMs }, { ...over, input });
          };
          for (const crash of crashes) {
            const source = new FieldSource(events, crash.batchRows, aggregates);
            source.batchesLeft = crash.batches;
            disk.changesLeft = crash.diskChanges;
            sink.turns = crash.sinkTurns;
            const engine = await engineOf(source, crash.shards, crash.interval);
            const lived = async (): Promise<unknown> => {
              await engine.restore();
              return engine.run(new AbortController().signal);
            };
            await untilKilled(lived());
            sink.crash();
            disk.crash(drawFrom(crash.left));
            kv.crash(SPILL_FOLDER);
          }
          disk.changesLeft = Number.POSITIVE_INFINITY;
          const engine = await engineOf(new FieldSource(events, 5, aggregates), 2, 50);
          await engine.restore();
          await engine.run(new AbortController().signal);
          const lists = [...windowsOf(job, acceptedOf(job, events))];
          const expected = lists.map(([key, list]) => [key, resultOf(aggregates, list)] as const);
          expect(new Map([...sink.found].sort())).toEqual(new Map(expected.sort()));
          expect(sink.rewritten).toBe(0);
          windows += expected.length;
          inexact += lists.filter(([, list]) => text.includes('sum(d') && isInexact(list)).length;
        },
      ),
      { numRuns: runs(150) },
    );
    expect(windows).toBeGreaterThan(runs(200));
    if (isFull) expect(inexact).toBeGreaterThan(0);
  });
});
