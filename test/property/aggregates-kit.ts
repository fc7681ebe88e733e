/** Helpers of tests over the aggregates of fields: a source whose events have fields, a sink of the
 *  results, and a batch job that computes each result from the list of its events. */
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import type { AggregateField, Aggregates } from '../../src/engine/aggregate/definition.ts';
import { putIdentifier } from '../../src/engine/aggregate/field-columns.ts';
import { IdHash } from '../../src/engine/aggregate/id-hash.ts';
import type { AggregateValue } from '../../src/engine/aggregate/results.ts';
import { putPlaces, valuesOf } from '../../src/engine/aggregate/values.ts';
import type { Job } from '../../src/engine/job.ts';
import { ResultRows } from '../../src/engine/output/sink/rows.ts';
import type { EventRows } from '../../src/engine/source/events.ts';
import type { FiredPage } from '../../src/engine/window/firing.ts';
import { MemorySink, MemorySource, rulesOf, type TestEvent } from './engine-kit.ts';
import { percentileOf } from './percentile-kit.ts';

export const PARTITIONS = 3;

/** Fields of an event, which follow from its value; some are null. */
export const integerOf = ({ value }: TestEvent): bigint | null => (value % 5n === 0n ? null : value);
/** Integer of a field that is an integer or a decimal; each scale has another one. */
const wholeOf = (event: TestEvent, { kind, scale = 0 }: AggregateField): bigint | null => {
  const value = integerOf(event);
  return value === null || kind !== 'decimal' ? value : BigInt.asIntN(64, value + BigInt(scale));
};
/** Most quotients have no exact double, so that a sum in another order has other bits. Their digits
 *  lie so close together that the engine's sums lose none of them. */
const DIVISORS = [3, 10, 10, 8] as const;
const SUMMAND_BITS = 20;
/** Makes every double of a field a whole number. */
const WHOLE = 2 ** 60;

export const doubleOf = ({ value }: TestEvent): number | null =>
  value % 7n === 0n
    ? null
    : Number(BigInt.asIntN(SUMMAND_BITS, value)) / (DIVISORS[Number(BigInt.asUintN(2, value))] as number);

/** The double nearest to the exact sum, ties to even. */
export const sumOfDoubles = (values: readonly number[]): number =>
  Number(values.reduce((sum, value) => sum + BigInt(value * WHOLE), 0n)) / WHOLE;

/** Source whose events have an integer field i and a double field d. */
export class FieldSource extends MemorySource {
  /** Decides the columns of the values. */
  aggregates: Aggregates;
  private readonly ids = new IdHash();
  private readonly byPlace = new Map<string, TestEvent>();

  constructor(
    events: readonly TestEvent[],
    batchRows: number,
    aggregates: Aggregates,
    partitions = PARTITIONS,
  ) {
    super(events, partitions, batchRows);
    this.aggregates = aggregates;
    const next = new Array<number>(partitions).fill(0);
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
      for (const field of this.aggregates.fields) {
        const { path, column, kind } = field;
        const cell = column * values.capacity + row;
        const value = path[0] === 'i' ? wholeOf(event, field) : doubleOf(event);
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
export class FieldSink extends MemorySink {
  readonly found = new Map<string, string>();
  /** Results that a later write replaced by others. */
  rewritten = 0;
  private readonly written = new Map<string, string>();

  override async write(pages: readonly FiredPage[]): Promise<void> {
    await super.write(pages);
    for (const page of pages) {
      const rows = new ResultRows(page);
      for (let at = 0; at < rows.rowCount; at++) {
        const { accountId, windowStart, windowEnd, aggregates = [], overflow } = rows.result(at);
        const key = `${accountId} ${windowStart} ${windowEnd}`;
        this.found.set(key, `${textOf(aggregates)} ${overflow}`);
        // An aggregate that was added since has no value.
        const text = `${overflow} ${textOf(aggregates).replace(/( null)+$/, '')}`;
        if ((this.written.get(key) ?? text) !== text) this.rewritten++;
        this.written.set(key, text);
      }
    }
  }
}

export interface Placed extends TestEvent {
  readonly offset: number;
}

const byPlace = (a: Placed, b: Placed): number =>
  Number(a.eventTs - b.eventTs) || a.partition - b.partition || a.offset - b.offset;

/** Windows of the accepted events: their key as the sink has it, and their events. */
export function windowsOf(job: Job, accepted: readonly Placed[]): ReadonlyMap<string, readonly Placed[]> {
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

/** The result of a window, from its events.
 *  @param windowStart an aggregate that was added later has no value */
export function resultOf(
  { specs }: Aggregates,
  events: readonly Placed[],
  windowStart = Number.POSITIVE_INFINITY,
): string {
  let overflow = false;
  const values = specs.flatMap(
    ({ function: name, field, percent, limit, since }): AggregateValue | AggregateValue[] => {
      const isSketch = name === 'topk' || name === 'distinct' || name === 'percentile';
      if (since !== undefined && windowStart <= since) return isSketch ? [null, null] : null;
      if (field === undefined) return BigInt(events.length);
      const of = (event: Placed): bigint | number | null =>
        field.path.at(-1) === 'i' ? wholeOf(event, field) : doubleOf(event);
      const found = [...events].sort(byPlace).flatMap((event) => of(event) ?? []);
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
        field.path.at(-1) === 'i'
          ? (found as bigint[]).reduce((total, one) => total + one, 0n)
          : sumOfDoubles(found as number[]);
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

export function acceptedOf(
  job: Job,
  events: readonly TestEvent[],
  partitions = PARTITIONS,
): readonly Placed[] {
  const oracle = new Oracle(rulesOf(job), partitions);
  const next = new Array<number>(partitions).fill(0);
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
