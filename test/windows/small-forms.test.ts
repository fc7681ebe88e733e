/** Exhausts the small streams beyond the fixed layout: keys that are texts, and several aggregates
 *  of fields. Each stream runs through the whole engine with one crash, at a place that differs
 *  from stream to stream, and its results are compared bit by bit. */
import { describe, expect, it } from 'vitest';
import type { LogEntry, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { oracleOf } from '../../bench/peers/oracle/windows.ts';
import { Aggregates } from '../../src/engine/aggregate/definition.ts';
import type { Job } from '../../src/engine/job.ts';
import type { EngineParts } from '../../src/engine/parts.ts';
import type { InputDefinition } from '../../src/engine/source/input/definition.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { acceptedOf, FieldSink, FieldSource, resultOf, windowsOf } from '../property/aggregates-kit.ts';
import {
  dictionaryIn,
  ShortHash,
  TEXT_KEYS,
  TextSink,
  TextSource,
  textInput,
} from '../property/engine-keys-kit.ts';
import {
  drawFrom,
  engineIn,
  type MemorySink,
  type MemorySource,
  oracleRows,
  type TestEvent,
  untilKilled,
} from '../property/engine-kit.ts';
import { isFull } from '../tier.ts';
import { everyStream, type Scope } from './small-scope.ts';

const WIDE = process.env['MILLRACE_SMALL_SCOPE'] === 'wide';
const lengthOf = (fast: number, full: number): number => (WIDE ? full + 1 : isFull ? full : fast);

/** Values of the events are 1, 2, 4 and so on. */
const AGGREGATES =
  'sum(d:double),avg(d:double),p99(d:double),distinct(i:long),first(i),last(i),min(i),max(i),sum(i),count(i)';

/** Windows of every kind, each with the same number of keys. */
function scopesOf(keys: number, length: number): readonly Scope[] {
  const rules = { skewMs: 1n, latenessMs: 0n };
  const shared = { keys, length, idle: false };
  return [
    { ...shared, rules: { ...rules, sizeMs: 2n }, partitions: 2, reach: 1 },
    {
      ...{ ...shared, partitions: 1, reach: 2 },
      rules: { ...rules, window: 'sliding', sizeMs: 3n, slideMs: 2n },
    },
    { ...shared, rules: { ...rules, window: 'session', gapMs: 2n }, partitions: 1, reach: 3 },
  ];
}

function jobOf(rules: OracleRules, input: InputDefinition): Job {
  const shared = {
    ...({ topic: 'events', watermark: 'partition', input } as const),
    ...{ skewMs: Number(rules.skewMs), latenessMs: Number(rules.latenessMs) },
  };
  if (rules.window === 'session') return { ...shared, window: 'session', gapMs: Number(rules.gapMs) };
  if (rules.window !== 'sliding') return { ...shared, window: 'tumbling', sizeMs: Number(rules.sizeMs) };
  return { ...shared, window: 'sliding', sizeMs: Number(rules.sizeMs), slideMs: Number(rules.slideMs) };
}

/** The streams of the small scope have no other entries. */
const eventsOf = (log: readonly LogEntry[]): TestEvent[] =>
  log.flatMap((entry) => (entry.kind === 'event' ? [entry] : []));

interface Parts<S extends MemorySink> {
  readonly job: Job;
  readonly partitions: number;
  readonly sink: S;
  /** Source of a life, which reads rows of a batch. */
  readonly sourceOf: (batchRows: number) => MemorySource;
  /** Further parts of the engine of a life. */
  readonly over: (source: MemorySource) => Partial<EngineParts>;
  readonly kv: SimKv;
}

/** Runs a stream with a crash after some batches of one row, then to its end with two shards. */
async function runThroughCrash<S extends MemorySink>(parts: Parts<S>, batches: number, seed: number) {
  const { job, partitions, sink, sourceOf, over, kv } = parts;
  const disk = new SimDisk();
  const engineOf = (source: MemorySource, shards: number) =>
    engineIn({ job, partitions, shards, disk, sink, source, checkpointIntervalMs: 20 }, over(source));
  const dying = sourceOf(1);
  dying.batchesLeft = batches;
  const first = engineOf(dying, 1);
  const lived = async (): Promise<unknown> => {
    await first.restore();
    return first.run(new AbortController().signal);
  };
  await untilKilled(lived());
  sink.crash();
  disk.crash(drawFrom(seed));
  kv.crash('keys');
  const last = engineOf(sourceOf(2), 2);
  await last.restore();
  return last.run(new AbortController().signal);
}

/** Calls `run` with every stream, in turn with every place of the crash.
 *  @returns the number of streams */
async function exhaust(
  scope: Scope,
  run: (events: TestEvent[], batches: number, seed: number) => Promise<void>,
): Promise<number> {
  const logs: TestEvent[][] = [];
  everyStream(scope, (log) => logs.push(eventsOf(log)));
  for (const [at, events] of logs.entries()) await run(events, at % (events.length + 1), at);
  return logs.length;
}

const LIMIT_MS = WIDE ? 3_600_000 : 300_000;
const reported = (what: string, streams: number): void =>
  void process.stderr.write(`${what}: ${streams} small streams, the oracle's results for each\n`);

describe('small streams', () => {
  it("texts as keys have the oracle's rows for every small stream through a crash, whatever their hashes", {
    timeout: LIMIT_MS,
  }, async () => {
    let streams = 0;
    for (const scope of scopesOf(2, lengthOf(2, 3))) {
      const { rules, partitions } = scope;
      const job = jobOf(rules, TEXT_KEYS);
      streams += await exhaust(scope, async (events, batches, seed) => {
        const [sink, kv] = [new TextSink(), new SimKv()];
        const sourceOf = (rows: number) => new TextSource(events, partitions, rows);
        const over = (source: MemorySource): Partial<EngineParts> => {
          // One bit: both keys of half of the streams have the same hash.
          const keys = dictionaryIn(kv, { hash: () => new ShortHash(1), spanMs: 3 });
          (source as TextSource).keys = keys;
          return { keys, input: textInput(TEXT_KEYS) };
        };
        await runThroughCrash({ job, partitions, sink, sourceOf, over, kv }, batches, seed);
        const log = events.map((event) => ({ kind: 'event' as const, ...event }));
        expect(sink.sorted()).toEqual(oracleRows(oracleOf(rules, partitions, log)).sort());
        expect(sink.changed).toBe(0);
      });
    }
    reported('texts as keys', streams);
  });

  it('several aggregates have the bits of a batch job for every small stream through a crash', {
    timeout: LIMIT_MS,
  }, async () => {
    let streams = 0;
    const aggregates = Aggregates.of(AGGREGATES);
    const input: InputDefinition = { format: 'json', key: 'k:u64', time: 't:ms', aggregate: AGGREGATES };
    for (const scope of scopesOf(1, lengthOf(2, 4))) {
      const { rules, partitions } = scope;
      const job = jobOf(rules, input);
      streams += await exhaust(scope, async (events, batches, seed) => {
        const [sink, kv] = [new FieldSink(), new SimKv()];
        const sourceOf = (rows: number) => new FieldSource(events, rows, aggregates, partitions);
        const over = () => ({ input: textInput(input) });
        await runThroughCrash({ job, partitions, sink, sourceOf, over, kv }, batches, seed);
        const expected = [...windowsOf(job, acceptedOf(job, events, partitions))].map(
          ([key, list]) => [key, resultOf(aggregates, list)] as const,
        );
        expect(new Map([...sink.found].sort())).toEqual(new Map(expected.sort()));
        expect(sink.rewritten).toBe(0);
      });
    }
    reported('several aggregates', streams);
  });
});
