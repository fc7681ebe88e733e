/** The engine with aggregates of several fields and crashes compared with a batch job: events that
 *  the oracle accepts, grouped by window, and each aggregate computed from the list of its
 *  events. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { Aggregates } from '../../src/engine/aggregate/definition.ts';
import { putIdentifier } from '../../src/engine/aggregate/field-columns.ts';
import { IdHash } from '../../src/engine/aggregate/id-hash.ts';
import type { AggregateValue } from '../../src/engine/aggregate/results.ts';
import { putPlaces, valuesOf } from '../../src/engine/aggregate/values.ts';
import type { Job } from '../../src/engine/job.ts';
import { ResultRows } from '../../src/engine/output/sink/rows.ts';
import type { EngineParts } from '../../src/engine/run.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { SimDisk } from '../../src/sim/disk.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { runs } from '../tier.ts';
import { textInput } from './engine-keys-kit.ts';
import {
  crashFields,
  drawFrom,
  engineIn,
  jobs,
  MemorySink,
  MemorySource,
  onDisk,
  rulesOf,
  SPILL_FOLDER,
  streams,
  type TestEvent,
  untilKilled,
} from './engine-kit.ts';
import { percentileOf } from './percentile-kit.ts';

const PARTITIONS = 3;
const TEXTS = [
  'count,sum(i),min(i),max(i),avg(i)',
  'sum(d:double),avg(d:double),min(d:double),max(d:double),count(d:double)',
  'first(i),last(i),first(d:double) as earliest,last(d:double) as latest,sum(i)',
  'count(i),sum(d:double),last(i)',
  'p50(i),p99.9(i),distinct(i:long),count(i)',
  'p90(d:double),distinct(d:double) as prices,sum(i),last(i),distinct(i)',
  'topk(i,3),count(i),topk(i,100) as all',
  'sum(i:decimal3),avg(i:decimal3),min(i:decimal3),max(i:decimal3),count(i:decimal3),first(i:decimal3),last(i:decimal3)',
  'sum(i:decimal18) as sum,last(i),p90(i:decimal4),distinct(i:decimal4),avg(i:decimal0)',
  'count',
];

/** Fields of an event, which follow from its value; some are null. */
const integerOf = ({ value }: TestEvent): bigint | null => (value % 5n === 0n ? null : value);
const doubleOf = ({ value }: TestEvent): number | null =>
  value % 7n === 0n ? null : Number(BigInt.asIntN(40, value)) / 8;

/** Source whose events have an integer field i and a double field d. */
class FieldSource extends MemorySource {
  private readonly aggregates: Aggregates;
  private readonly ids = new IdHash();
  private readonly byPlace = new Map<string, TestEvent>();

  constructor(events: readonly TestEvent[], batchRows: number, aggregates: Aggregates) {
    super(events, PARTITIONS, batchRows);
    this.aggregates = aggregates;
    const next = new Array<number>(PARTITIONS).fill(0);
    for (const event of events) {
      const offset = next[event.partition] as number;
      next[event.partition] = offset + 1;
      this.byPlace.set(`${event.partition}@${offset}`, event);
    }
  }

  override async next(): Promise<EventRows | undefined> {
    const rows = await super.next();
    if (rows === undefined || this.aggregates.columns === 0) return rows;
    const { records, events } = rows;
    const values = valuesOf(events, this.aggregates.columns);
    values.texts.clear();
    for (let row = 0; row < events.rowCount; row++) {
      const place = `${records.columns.partition[row]}@${records.columns.offset[row]}`;
      const event = this.byPlace.get(place) as TestEvent;
      for (const { path, column, kind } of this.aggregates.fields) {
        const cell = column * values.capacity + row;
        const value = path[0] === 'i' ? integerOf(event) : doubleOf(event);
        values.valid[cell] = value === null ? 0 : 1;
        // An identifier is any number that is one for equal values.
        if (kind === 'text') putIdentifier(values, cell, `i${value ?? 0n}`, kind, this.ids);
        else if (typeof value === 'bigint') values.cells[cell] = value;
        else values.doubles[cell] = value ?? 0;
      }
    }
    if (this.aggregates.needsPlace) putPlaces(records, values);
    return rows;
  }
}

const textOf = (values: readonly AggregateValue[]): string =>
  values.map((value) => (Object.is(value, -0) ? '-0' : String(value))).join(' ');

/** Sink of the results of the aggregates. */
class FieldSink extends MemorySink {
  readonly found = new Map<string, string>();
  rewritten = 0;

  override async write(pages: readonly FiredPage[]): Promise<void> {
    await super.write(pages);
    for (const page of pages) {
      const rows = new ResultRows(page);
      for (let at = 0; at < rows.rowCount; at++) {
        const { accountId, windowStart, windowEnd, aggregates = [], overflow } = rows.result(at);
        const key = `${accountId} ${windowStart} ${windowEnd}`;
        const text = `${textOf(aggregates)} ${overflow}`;
        if ((this.found.get(key) ?? text) !== text) this.rewritten++;
        this.found.set(key, text);
      }
    }
  }
}

interface Placed extends TestEvent {
  readonly offset: number;
}

const byPlace = (a: Placed, b: Placed): number =>
  Number(a.eventTs - b.eventTs) || a.partition - b.partition || a.offset - b.offset;

/** Windows of the accepted events: their key as the sink has it, and their events. */
function windowsOf(job: Job, accepted: readonly Placed[]): ReadonlyMap<string, readonly Placed[]> {
  const windows = new Map<string, Placed[]>();
  const put = (accountId: bigint, start: number, end: number, event: Placed): void => {
    const key = `${accountId} ${start} ${end}`;
    windows.set(key, [...(windows.get(key) ?? []), event]);
  };
  if (job.window === 'session') {
    const keys = new Map<bigint, Placed[]>();
    for (const event of [...accepted].sort(byPlace))
      keys.set(event.accountId, [...(keys.get(event.accountId) ?? []), event]);
    for (const [accountId, events] of keys) {
      let session: Placed[] = [];
      const close = (): void => {
        const [first, last] = [session[0], session.at(-1)];
        if (first === undefined || last === undefined) return;
        for (const event of session)
          put(accountId, Number(first.eventTs), Number(last.eventTs) + job.gapMs, event);
        session = [];
      };
      for (const event of events) {
        const last = session.at(-1);
        if (last !== undefined && Number(event.eventTs - last.eventTs) >= job.gapMs) close();
        session.push(event);
      }
      close();
    }
    return windows;
  }
  const slideMs = job.window === 'sliding' ? job.slideMs : job.sizeMs;
  for (const event of accepted) {
    const ts = Number(event.eventTs);
    for (let start = Math.floor(ts / slideMs) * slideMs; start > ts - job.sizeMs; start -= slideMs)
      put(event.accountId, start, start + job.sizeMs, event);
  }
  return windows;
}

/** The most frequent texts as a result has them. */
function topOf(texts: readonly string[], limit: number): string {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  const list = [...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).slice(0, limit);
  return JSON.stringify(list.map(([value, count]) => ({ value, count })));
}

/** Result of decimals, in the order of their events, as a text. */
function decimalOf(name: string, found: readonly bigint[], sum: bigint, scale: number): string {
  const text = (whole: bigint, places: number): string => {
    const digits = String(whole < 0n ? -whole : whole).padStart(places + 1, '0');
    const point = digits.length - places;
    const parts = [digits.slice(0, point), digits.slice(point)].filter((part) => part !== '');
    return `${whole < 0n ? '-' : ''}${parts.join('.')}`;
  };
  if (name === 'avg') {
    const [size, count] = [(sum < 0n ? -sum : sum) * 1_000_000n, BigInt(found.length)];
    const [below, twice] = [size / count, 2n * (size % count)];
    const nearest = twice > count || (twice === count && below % 2n === 1n) ? below + 1n : below;
    return text(sum < 0n ? -nearest : nearest, scale + 6);
  }
  const ordered = [...found].sort((a, b) => (a < b ? -1 : 1));
  const values = { sum, first: found[0], last: found.at(-1), min: ordered[0], max: ordered.at(-1) };
  return text(values[name as keyof typeof values] as bigint, scale);
}

/** The result of a window, from its events. Doubles are multiples of 1/8 whose sums are exact. */
function resultOf({ specs }: Aggregates, events: readonly Placed[]): string {
  let overflow = false;
  const values = specs.flatMap(
    ({ function: name, field, percent, limit }): AggregateValue | AggregateValue[] => {
      if (field === undefined) return BigInt(events.length);
      const of = field.path[0] === 'i' ? integerOf : doubleOf;
      const found = [...events].sort(byPlace).flatMap((event) => of(event) ?? []) as (bigint | number)[];
      if (name === 'count') return BigInt(found.length);
      const ordered = [...found].sort((a, b) => (a < b ? -1 : 1));
      if (name === 'topk') return [topOf(found.map(String), limit as number), 0];
      if (name === 'distinct') return [BigInt(new Set(found).size), 0];
      const { scale = 0, kind } = field;
      if (name === 'percentile') {
        const [value, error] = percentileOf(ordered.map(Number), percent as string) as [number, number];
        return [found.length === 0 ? null : value / 10 ** scale, error];
      }
      const sum =
        field.path[0] === 'i'
          ? (found as bigint[]).reduce((total, one) => total + one, 0n)
          : (found as number[]).reduce((total, one) => total + one, 0);
      if (found.length === 0) return null;
      if (kind === 'decimal') return decimalOf(name, found as bigint[], sum as bigint, scale);
      if (name === 'first') return found[0] as bigint | number;
      if (name === 'last') return found.at(-1) as bigint | number;
      if (name === 'min') return ordered[0] as bigint | number;
      if (name === 'max') return ordered.at(-1) as bigint | number;
      if (name === 'avg') return Number(sum) / found.length;
      if (typeof sum === 'number') return sum;
      if (BigInt.asIntN(64, sum) !== sum) overflow = true;
      return BigInt.asIntN(64, sum);
    },
  );
  return `${textOf(values)} ${overflow}`;
}

function acceptedOf(job: Job, events: readonly TestEvent[]): readonly Placed[] {
  const oracle = new Oracle(rulesOf(job), PARTITIONS);
  const next = new Array<number>(PARTITIONS).fill(0);
  return events.flatMap((event): Placed[] => {
    const { partition, broken, accountId, value, eventTs } = event;
    const offset = next[partition] as number;
    next[partition] = offset + 1;
    const verdict =
      broken === true
        ? oracle.value(partition, new Uint8Array(3))
        : oracle.event(partition, accountId, value, eventTs);
    return verdict === 'accepted' ? [{ ...event, offset }] : [];
  });
}

const lives = fc.array(
  fc.record({
    ...crashFields,
    sinkTurns: fc.constantFrom(0, 20, 200),
  }),
  { maxLength: 4 },
);

describe.each(['memory', 'disk'] as const)('engine with aggregates, state in %s', (where) => {
  it('the results are those of a batch job over the accepted events, through crashes', async () => {
    let windows = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...TEXTS),
        jobs,
        streams(PARTITIONS),
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
          const expected = [...windowsOf(job, acceptedOf(job, events))].map(
            ([key, list]) => [key, resultOf(aggregates, list)] as const,
          );
          expect(new Map([...sink.found].sort())).toEqual(new Map(expected.sort()));
          expect(sink.rewritten).toBe(0);
          windows += expected.length;
        },
      ),
      { numRuns: runs(150) },
    );
    expect(windows).toBeGreaterThan(100);
  });
});
