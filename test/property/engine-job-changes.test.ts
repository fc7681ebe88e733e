/** Aggregates that are added to a running job, through crashes: each window that starts after the
 *  change has them in full, each other window has no value of them, and nothing else changes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Aggregates, plainAggregates, splitAggregates } from '../../src/engine/aggregate/definition.ts';
import { savedJob } from '../../src/engine/durability/checkpoint/restore.ts';
import {
  ownFile,
  readManifest,
  type StateManifest,
} from '../../src/engine/durability/checkpoint/state-manifest.ts';
import type { Job } from '../../src/engine/job.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import { offsetIn } from '../../src/engine/source/admission.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import {
  acceptedOf,
  FieldSink,
  FieldSource,
  PARTITIONS,
  type Placed,
  resultOf,
  windowsOf,
} from './aggregates-kit.ts';
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

/** Aggregates before the first change, and what each change adds, in any order. */
const HISTORIES = [
  ['count', 'sum(i)', 'p99.9(i),min(i)'],
  ['sum(d:double),count(d:double)', 'first(i),last(d:double)'],
  ['avg(i),max(i)', 'sum(i)', 'count'],
  ['p50(i),distinct(i:long)', 'p90(i),sum(d:double)', 'topk(i,3)'],
  ['last(i),count(i)', 'min(d:double),max(d:double),distinct(d:double) as prices'],
  ['topk(i,3)', 'count,sum(i),first(d:double) as earliest'],
  ['sum(i:decimal2) as cents,sum(i:decimal4) as parts', 'count', 'min(i:decimal4) as least,max(i)'],
];

/** An event from far ahead, which few streams have, leaves no window that starts after the change.
 */
const histories = fc
  .tuple(streams(PARTITIONS), fc.integer({ min: 0, max: 3 }))
  .map(([events, kind]) => (kind === 0 ? events : events.filter(({ eventTs }) => eventTs < 5000n)));

const life = fc.record({ ...crashFields, sinkTurns: fc.constantFrom(0, 20, 200), adds: fc.boolean() });
const lives = fc.array(life, { maxLength: 6 });
type Life = typeof life extends fc.Arbitrary<infer T> ? T : never;
type Event = typeof histories extends fc.Arbitrary<(infer T)[]> ? T : never;

/** A crash between the conversion of a piece that no checkpoint names yet and the checkpoint that
 *  names the converted one. */
const PIECE_OF_THE_CHANGELOG: [string[], Job, Event[], Life[], number] = [
  ['count', 'sum(i)'],
  { topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition', window: 'session', gapMs: 1 },
  [{ partition: 0, accountId: 0n, value: 0n, eventTs: 0n, broken: false }],
  [
    {
      shards: 1,
      batchRows: 1,
      batches: 1,
      diskChanges: 1e6,
      left: 0,
      interval: 1,
      sinkTurns: 0,
      adds: false,
    },
    { shards: 1, batchRows: 1, batches: 0, diskChanges: 0, left: 0, interval: 1, sinkTurns: 0, adds: true },
  ],
  0,
];

/** Input that resumes with the aggregates of the checkpoint, as a decoder of records does. */
function inputOf(asked: InputDefinition, source: FieldSource): NonNullable<EngineParts['input']> {
  let definition = asked;
  return {
    get definition() {
      return definition;
    },
    isReady: true,
    resume(saved) {
      definition = saved;
      source.aggregates = Aggregates.of(saved.aggregate as string);
    },
    takeWaitedMs: () => 0,
    describe: () => undefined,
  };
}

/** A result that was written before an aggregate was added has no value of it, not even null. */
const withoutAdded = (text: string): string => text.replace(/( null)+ (true|false)$/, ' $2');

async function newest(disk: SimDisk): Promise<StateManifest> {
  const view = disk.view();
  const ids = (await view.list()).flatMap((name) => {
    const own = ownFile(name);
    return own?.role === 'manifest' && own.isWhole ? [own.id] : [];
  });
  const read = await readManifest(view, Math.max(...ids));
  if ('fault' in read) throw new Error(read.fault);
  return read.manifest;
}

/** Checks the time of a change against the events that were read before it. */
function expectSince(manifest: StateManifest, added: number, accepted: readonly Placed[]): void {
  const { specs } = Aggregates.of(manifest.job.input?.aggregate as string);
  const before = accepted.filter(({ partition, offset }) => offset < offsetIn(manifest.progress, partition));
  const greatest = Math.max(...before.map(({ eventTs }) => Number(eventTs)));
  for (const { since } of specs.slice(-added)) {
    // Late events move no watermark, and no event that was accepted is beyond those that did.
    if (before.length === 0) expect(since ?? Number.NEGATIVE_INFINITY).toBeLessThan(1e16);
    else expect(since).toBe(greatest);
  }
}

describe.each(['memory', 'disk'] as const)('aggregates that are added, state in %s', (where) => {
  it('windows that start after the change have them, and all other results are those of an undisturbed run', async () => {
    let [full, without] = [0, 0];
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...HISTORIES),
        jobs,
        histories,
        lives,
        fc.nat(),
        async (history, plain, events, crashes, order) => {
          const [disk, sink, kv] = [new SimDisk(), new FieldSink(), new SimKv()];
          const draw = drawFrom(order);
          const accepted = acceptedOf(plain, events);
          const jobOf = (stage: number): Job => {
            const texts = history.slice(0, stage + 1).flatMap((one) => splitAggregates(one));
            for (let at = texts.length - 1; at > 0; at--) {
              const other = draw(at + 1);
              [texts[at], texts[other]] = [texts[other] as string, texts[at] as string];
            }
            return {
              ...plain,
              input: { format: 'json', key: 'k:u64', time: 't:ms', aggregate: texts.join() },
            };
          };
          const engineOf = async (job: Job, source: FieldSource, shards: number, interval: number) => {
            const world = { job, partitions: PARTITIONS, shards, disk, sink, source };
            const over: Partial<EngineParts> = where === 'disk' ? await onDisk(kv, world, 3000) : {};
            const input = inputOf(job.input as InputDefinition, source);
            return engineIn({ ...world, checkpointIntervalMs: interval }, { ...over, input });
          };
          const sourceOf = (job: Job, batchRows: number): FieldSource =>
            new FieldSource(events, batchRows, Aggregates.of(job.input?.aggregate as string));
          let stage = 0;
          let formFrom = 0;
          for (const crash of crashes) {
            const before = stage;
            if (crash.adds && stage + 1 < history.length) stage++;
            const job = jobOf(stage);
            const source = sourceOf(job, crash.batchRows);
            source.batchesLeft = crash.batches;
            disk.changesLeft = crash.diskChanges;
            sink.turns = crash.sinkTurns;
            const engine = await engineOf(job, source, crash.shards, crash.interval);
            const lived = async (): Promise<unknown> => {
              await engine.restore();
              const manifest = await newest(disk);
              if (manifest.formFrom > formFrom && stage === before + 1)
                expectSince(manifest, splitAggregates(history[stage] as string).length, accepted);
              ({ formFrom } = manifest);
              return engine.run(new AbortController().signal);
            };
            await untilKilled(lived());
            sink.crash();
            disk.crash(draw);
            kv.crash(SPILL_FOLDER);
          }
          disk.changesLeft = Number.POSITIVE_INFINITY;
          const job = jobOf(history.length - 1);
          const engine = await engineOf(job, sourceOf(job, 5), 2, 50);
          await engine.restore();
          const text = (await savedJob(disk.view()))?.input?.aggregate as string;
          await engine.run(new AbortController().signal);
          expect(splitAggregates(plainAggregates(text)).toSorted()).toEqual(
            splitAggregates(job.input?.aggregate as string).toSorted(),
          );
          const aggregates = Aggregates.of(text);
          const expected = [...windowsOf(job, accepted)].map(([key, list]) => {
            const start = Number(key.split(' ')[1]);
            const added = aggregates.specs.flatMap(({ since }) => since ?? []);
            if (added.length > 0 && added.some((since) => start <= since)) without++;
            else if (added.length > 0) full++;
            return [key, resultOf(aggregates, list, start)] as const;
          });
          const found = [...sink.found].map(([key, text]) => [key, withoutAdded(text)] as const);
          expect(new Map(found.sort())).toEqual(
            new Map(expected.map(([key, text]) => [key, withoutAdded(text)] as const).sort()),
          );
          expect(sink.rewritten).toBe(0);
        },
      ),
      { numRuns: runs(150), examples: [PIECE_OF_THE_CHANGELOG] },
    );
    expect(full).toBeGreaterThan(runs(20));
    expect(without).toBeGreaterThan(runs(20));
  });
});
