/** The engine over records with lists, compared with a plain fold over the elements: all formats,
 *  crashes, batches that are cut between records, and both implementations of the decoders. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Aggregates } from '../../src/engine/aggregate/definition.ts';
import type { Job } from '../../src/engine/job.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import { type InputDefinition, listIn } from '../../src/engine/source/input/definition.ts';
import { ListSource } from '../../src/engine/source/list/source.ts';
import { RecordReader } from '../../src/engine/verify/records.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { openedInput, SIDES } from '../unit/engine/input/input-kit.ts';
import { acceptedOf, FieldSink, PARTITIONS, resultOf, windowsOf } from './aggregates-kit.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  type MemorySource,
  onDisk,
  SPILL_FOLDER,
  untilKilled,
} from './engine-kit.ts';
import { eventsOf, LIST_FORMATS, orders, type Placement, RecordSource, valuesOf } from './lists-kit.ts';

const TEXTS = [
  'count,sum(items[].i),min(items[].i),max(items[].i),avg(items[].i)',
  'first(items[].i),last(items[].i),first(items[].d:double),last(items[].d:double),count(items[].d:double)',
  'p50(items[].i),distinct(items[].i),topk(items[].i,3),sum(items[].d:double)',
  'count',
];

/** Rows of a batch of elements: records have up to 6. */
const ROW_CAPACITY = 8;

const lives = fc.array(fc.record({ ...crashFields, sinkTurns: fc.constantFrom(0, 20, 200) }), {
  maxLength: 4,
});
const placements: fc.Arbitrary<Placement> = fc.record({ key: fc.boolean(), time: fc.boolean() });

const definitionOf = (
  format: InputDefinition['format'],
  text: string,
  { key, time }: Placement,
): InputDefinition => ({
  format,
  key: key ? 'items[].k:i64' : 'k:i64',
  time: time ? 'items[].t:ms' : 't:ms',
  aggregate: text,
});

/** A job names its list in at least one setting. */
const namesList = (text: string, placement: Placement): boolean =>
  listIn(definitionOf('json', text, placement)) !== undefined;

describe.each(SIDES)('engine over lists, decoders in %s', (side) => {
  it.each(['memory', 'disk'] as const)(
    'the results are those of a fold over the elements, through crashes, state in %s',
    async (where) => {
      let windows = 0;
      await fc.assert(
        fc.asyncProperty(
          fc.constantFrom(...LIST_FORMATS),
          fc.constantFrom(...TEXTS),
          placements,
          jobs,
          orders,
          lives,
          async (format, text, placement, plain, all, crashes) => {
            fc.pre(namesList(text, placement));
            const aggregates = Aggregates.of(text);
            const definition = definitionOf(format, text, placement);
            const [disk, sink, kv] = [new SimDisk(), new FieldSink(), new SimKv()];
            const job: Job = { ...plain, input: definition };
            const { registry, values } = valuesOf(all, format);
            const partitions = all.map(({ partition }) => partition);
            const live = async (records: RecordSource, shards: number, checkpointIntervalMs: number) => {
              const { input } = openedInput(definition, { side, registry });
              const lists = new ListSource({
                ...{ source: records, input, stages: { enter() {} } },
                ...{ rowCapacity: ROW_CAPACITY, arenaBytes: 1 << 16 },
              });
              const source = lists as unknown as MemorySource;
              const setup = { job, partitions: PARTITIONS, shards, disk, sink, source, checkpointIntervalMs };
              const over: Partial<EngineParts> = where === 'disk' ? await onDisk(kv, setup, 3000) : {};
              const engine = engineIn(setup, { ...over, input });
              await engine.restore();
              return engine.run(new AbortController().signal);
            };
            for (const crash of crashes) {
              const records = new RecordSource(partitions, values, crash.batchRows);
              records.batchesLeft = crash.batches;
              disk.changesLeft = crash.diskChanges;
              sink.turns = crash.sinkTurns;
              await untilKilled(live(records, crash.shards, crash.interval));
              sink.crash();
              disk.crash(drawFrom(crash.left));
              kv.crash(SPILL_FOLDER);
            }
            disk.changesLeft = Number.POSITIVE_INFINITY;
            const summary = await live(new RecordSource(partitions, values, 5), 2, 50);
            const events = eventsOf(all, placement);
            const expected = [...windowsOf(job, acceptedOf(job, events))].map(
              ([key, list]) => [key, resultOf(aggregates, list)] as const,
            );
            expect(new Map([...sink.found].sort())).toEqual(new Map(expected.sort()));
            expect(sink.rewritten).toBe(0);
            expect(summary.consumed).toBe(events.length);
            expect(summary.invalid).toBe(events.filter(({ broken }) => broken === true).length);
            windows += expected.length;
          },
        ),
        { numRuns: runs(80) },
      );
      expect(windows).toBeGreaterThan(runs(40));
    },
  );
});

describe('oracle of engine verify over lists', () => {
  it('the oracle has the elements of the records as events', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...LIST_FORMATS),
        placements,
        orders,
        async (format, placement, all) => {
          const { registry, values } = valuesOf(all, format);
          const reader = new RecordReader(
            definitionOf(format, TEXTS[0] as string, placement),
            async (id) => registry.schemas[id - 1],
            undefined,
          );
          for (const [at, value] of values.entries()) {
            const record = { partition: 0, offset: BigInt(at), timestampMs: undefined, key: null, value };
            const found = await reader.events(record);
            const events = eventsOf([all[at] as (typeof all)[number]], placement);
            if (events.some(({ broken }) => broken === true)) expect(found).toBeUndefined();
            else
              expect(found?.map(({ key, timeMs }) => [key, timeMs])).toEqual(
                events.map(({ accountId, eventTs }) => [[String(accountId)], eventTs]),
              );
          }
        },
      ),
      { numRuns: runs(100) },
    );
  });
});
