/** Aggregates of the oracle of `engine verify`: exact arithmetic over the values themselves,
 *  without sketches. A sketch of the engine is compared within the error that it states. */
import {
  type AggregateSpec,
  type Aggregates,
  AVERAGE_PLACES,
  errorName,
  isSameField,
} from '../aggregate/definition.ts';
import { isAbsent } from '../aggregate/results.ts';
import { engineError } from '../errors.ts';
import type { TopItem } from '../output/columns.ts';
import type { FieldCell, OracleEvent } from './records.ts';
import { decimalOfWhole, floorDivide } from './values.ts';

/** Place of an event in the log: ties of equal times are decided by it. */
export interface LogPlace {
  readonly partition: number;
  readonly offset: bigint;
  /** Element of the record's list; 0 if the event is the record. */
  readonly element: number;
}

/** Value that the engine must have, as a predicate over the value and its stated error. */
export interface Expected {
  readonly text: string;
  matches(value: unknown, error: unknown): boolean;
}

/** Accumulator of one aggregate. */
interface Cell {
  add(value: FieldCell, event: OracleEvent, place: LogPlace): void;
  expected(): Expected;
  /** True if an integer sum does not fit into 64 bits. */
  readonly overflows?: boolean;
  /** Values that it holds. */
  readonly held: number;
}

const exactly = (wanted: bigint | number | null): Expected => ({
  text: String(wanted),
  matches: (value) => Object.is(value, wanted) || (wanted === 0 && value === 0),
});

/** @param scale of a decimal; undefined: the value is shown as it is */
const shownAs = (wanted: bigint | number | null, scale: number | undefined): Expected => {
  if (scale === undefined || typeof wanted !== 'bigint') return exactly(wanted);
  const text = decimalOfWhole(wanted, scale);
  return { text, matches: (value) => value === text };
};

class Count implements Cell {
  readonly held = 0;
  private count = 0n;
  private readonly all: boolean;
  constructor(all: boolean) {
    this.all = all;
  }
  add(value: FieldCell): void {
    if (this.all || value !== null) this.count++;
  }
  expected(): Expected {
    return exactly(this.count);
  }
}

/** The nearest whole number to a quotient, ties to the even one. */
function nearest(dividend: bigint, divisor: bigint): bigint {
  const below = floorDivide(dividend, divisor);
  const twice = 2n * (dividend - below * divisor);
  const isBelow = twice < divisor || (twice === divisor && BigInt.asUintN(1, below) === 0n);
  return isBelow ? below : below + 1n;
}

/** Sum or average of integers, or of decimals of a scale. */
class Sum implements Cell {
  readonly held = 0;
  private count = 0n;
  private sum = 0n;
  private readonly isAverage: boolean;
  private readonly scale: number | undefined;
  constructor(isAverage: boolean, scale: number | undefined) {
    this.isAverage = isAverage;
    this.scale = scale;
  }
  get overflows(): boolean {
    return !this.isAverage && this.scale === undefined && BigInt.asIntN(64, this.sum) !== this.sum;
  }
  add(value: FieldCell): void {
    if (value === null) return;
    this.count++;
    this.sum += value as bigint;
  }
  expected(): Expected {
    const { count, sum, scale, isAverage } = this;
    if (count === 0n) return exactly(null);
    if (scale === undefined) return exactly(isAverage ? Number(sum) / Number(count) : BigInt.asIntN(64, sum));
    if (!isAverage) return shownAs(sum, scale);
    return shownAs(nearest(sum * 10n ** BigInt(AVERAGE_PLACES), count), scale + AVERAGE_PLACES);
  }
}

const EXPONENT_LEAST = -1074;
const bits = new BigInt64Array(1);
const double = new Float64Array(bits.buffer);

/** A finite double as a whole number of 2^-1074. */
function wholeOf(value: number): bigint {
  double[0] = Math.abs(value);
  const exponent = Number((bits[0] as bigint) >> 52n);
  const fraction = (bits[0] as bigint) & ((1n << 52n) - 1n);
  const whole = exponent === 0 ? fraction : (fraction | (1n << 52n)) << BigInt(exponent - 1);
  return value < 0 ? -whole : whole;
}

/** The nearest double to a whole number of 2^-1074, ties to even. */
function doubleOfWhole(whole: bigint): number {
  const size = whole < 0n ? -whole : whole;
  const length = size.toString(2).length;
  const drop = Math.max(0, length - 53);
  let kept = size >> BigInt(drop);
  const rest = size - (kept << BigInt(drop));
  const half = drop === 0 ? 0n : 1n << BigInt(drop - 1);
  if (drop > 0 && (rest > half || (rest === half && (kept & 1n) === 1n))) kept++;
  // Two steps, because 2^-1074 times the scale may be below the least normal double.
  const scale = drop + EXPONENT_LEAST;
  const near = Number(kept) * 2 ** Math.max(scale, -1022);
  const value = scale < -1022 ? near * 2 ** (scale + 1022) : near;
  return whole < 0n ? -value : value;
}

/** Sum of doubles, exact to the last rounding. */
class DoubleSum implements Cell {
  readonly held = 0;
  private count = 0n;
  private whole = 0n;
  private special = 0;
  private readonly isAverage: boolean;
  constructor(isAverage: boolean) {
    this.isAverage = isAverage;
  }
  add(value: FieldCell): void {
    if (value === null) return;
    this.count++;
    if (Number.isFinite(value as number)) this.whole += wholeOf(value as number);
    else this.special += value as number;
  }
  expected(): Expected {
    if (this.count === 0n) return exactly(null);
    const sum = this.special === 0 ? doubleOfWhole(this.whole) : this.special;
    const wanted = this.isAverage ? sum / Number(this.count) : sum;
    // The engine keeps 120 bits below the greatest value, so a sum that cancels may differ.
    return {
      text: String(wanted),
      matches: (value) =>
        Object.is(value, wanted) ||
        (typeof value === 'number' && Math.abs(value - wanted) <= Math.abs(wanted) * Number.EPSILON),
    };
  }
}

class Extreme implements Cell {
  readonly held = 0;
  private best: bigint | number | null = null;
  private readonly isLess: boolean;
  private readonly scale: number | undefined;
  constructor(isLess: boolean, scale: number | undefined) {
    this.isLess = isLess;
    this.scale = scale;
  }
  add(value: FieldCell): void {
    const number = value as bigint | number | null;
    if (number === null) return;
    const isBetter = this.best === null || (this.isLess ? number < this.best : number > this.best);
    if (isBetter) this.best = number;
  }
  expected(): Expected {
    return shownAs(this.best, this.scale);
  }
}

class Ordered implements Cell {
  readonly held = 0;
  private best: { readonly at: Place; readonly value: FieldCell } | undefined;
  private readonly isFirst: boolean;
  private readonly scale: number | undefined;
  constructor(isFirst: boolean, scale: number | undefined) {
    this.isFirst = isFirst;
    this.scale = scale;
  }
  add(value: FieldCell, { timeMs }: OracleEvent, { partition, offset, element }: LogPlace): void {
    if (value === null) return;
    const at = [timeMs, BigInt(partition), offset, BigInt(element)] as const;
    if (this.best === undefined || isBefore(at, this.best.at) === this.isFirst) this.best = { at, value };
  }
  expected(): Expected {
    return shownAs((this.best?.value ?? null) as bigint | number | null, this.scale);
  }
}

/** Time, and place in the log. */
type Place = readonly [bigint, bigint, bigint, bigint];

function isBefore(a: Place, b: Place): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return (a[i] as bigint) < (b[i] as bigint);
  return false;
}

/** Standard errors of an estimate within which two numbers are the same. */
const SIGMAS = 6;

class Distinct implements Cell {
  private readonly seen = new Set<FieldCell>();
  get held(): number {
    return this.seen.size;
  }
  add(value: FieldCell): void {
    if (value !== null) this.seen.add(value);
  }
  expected(): Expected {
    const exact = this.seen.size;
    return {
      text: String(exact),
      matches: (value, error) => {
        if (typeof value !== 'bigint' || typeof error !== 'number') return false;
        return Math.abs(Number(value) - exact) <= SIGMAS * error * exact;
      },
    };
  }
}

class Percentile implements Cell {
  private readonly values: number[] = [];
  private readonly share: readonly [bigint, bigint];
  private readonly unit: number;
  constructor(percent: string, scale: number) {
    this.unit = 10 ** scale;
    const places = percent.split('.')[1]?.length ?? 0;
    this.share = [BigInt(percent.replace('.', '')), 10n ** BigInt(2 + places)];
  }
  get held(): number {
    return this.values.length;
  }
  add(value: FieldCell): void {
    if (value !== null) this.values.push(Number(value) / this.unit);
  }
  expected(): Expected {
    const { values } = this;
    if (values.length === 0) return exactly(null);
    values.sort((a, b) => a - b);
    const [numerator, denominator] = this.share;
    const rank = (BigInt(values.length) * numerator + denominator - 1n) / denominator;
    const exact = values[Number(rank < 1n ? 1n : rank) - 1] as number;
    return {
      text: String(exact),
      matches: (value, error) =>
        typeof value === 'number' &&
        typeof error === 'number' &&
        (Object.is(value, exact) || Math.abs(value - exact) <= Math.abs(exact) * error * (1 + 1e-9)),
    };
  }
}

/** Number of values of any length that the engine always lists exactly. */
const TOP_EXACT_VALUES = 58;
/** Multiple of the stated error that a number may be too high: the probability that one is higher
 *  is below 10^-4. */
const TOP_ERRORS = 4;

/** Identifiers with their numbers of events. */
class Top implements Cell {
  private readonly counts = new Map<string, number>();
  private readonly limit: number;
  constructor(limit: number) {
    this.limit = limit;
  }
  get held(): number {
    return this.counts.size;
  }
  add(value: FieldCell): void {
    if (value !== null) this.counts.set(String(value), (this.counts.get(String(value)) ?? 0) + 1);
  }
  expected(): Expected {
    const ranked = [...this.counts].sort(
      ([a, x], [b, y]) => y - x || Buffer.compare(Buffer.from(a), Buffer.from(b)),
    );
    const items = ranked.map(([id, count]) => ({ value: id.slice(1).replaceAll('\0', '\ufffd'), count }));
    const text = JSON.stringify(items.slice(0, this.limit));
    return {
      text,
      matches: (value, error) => {
        if (typeof value !== 'string' || typeof error !== 'number') return false;
        return error === 0 ? value === text : this.isEstimate(JSON.parse(value), items, error);
      },
    };
  }

  private isEstimate(list: readonly TopItem[], items: readonly TopItem[], error: number): boolean {
    // Values of two types may have one text.
    const isCount = ({ value, count }: TopItem): boolean =>
      items.some(
        (one) => one.value === value && count >= one.count && count <= one.count + TOP_ERRORS * error,
      );
    return items.length > TOP_EXACT_VALUES && list.length <= this.limit && list.every(isCount);
  }
}

function cellOf({ function: name, field, percent, limit }: AggregateSpec): Cell {
  const isDouble = field?.kind === 'double';
  const scale = field?.scale;
  switch (name) {
    case 'count':
      return new Count(field === undefined);
    case 'sum':
    case 'avg':
      return isDouble ? new DoubleSum(name === 'avg') : new Sum(name === 'avg', scale);
    case 'min':
    case 'max':
      return new Extreme(name === 'min', scale);
    case 'first':
    case 'last':
      return new Ordered(name === 'first', scale);
    case 'distinct':
      return new Distinct();
    case 'percentile':
      return new Percentile(percent ?? '50', scale ?? 0);
    case 'topk':
      return new Top(limit as number);
    default:
      throw engineError('bad_setting', `engine verify cannot recompute ${String(name)}`, {
        next: 'leave that aggregate out of the job that is verified',
        details: { setting: 'aggregate' },
      });
  }
}

/** Aggregates of a job, and the fields whose values an event has. */
export type OracleAggregates = Pick<Aggregates, 'specs' | 'fields'>;

/** Accumulator of one window and key. */
export class Accumulator {
  private count = 0n;
  private sum = 0n;
  private min = 0n;
  private max = 0n;
  private lastMs = 0n;
  private readonly own: readonly { readonly spec: AggregateSpec; readonly at: number; readonly cell: Cell }[];

  /** @param aggregates undefined: count, sum, min and max of the value @throws bad_setting */
  constructor(aggregates: OracleAggregates | undefined) {
    this.own = (aggregates?.specs ?? []).map((spec) => ({
      spec,
      at:
        aggregates?.fields.findIndex((one) => spec.field !== undefined && isSameField(one, spec.field)) ?? -1,
      cell: cellOf(spec),
    }));
  }

  /** Values that it holds beside its own. */
  get held(): number {
    return this.own.reduce((sum, { cell }) => sum + cell.held, 0);
  }

  add(event: OracleEvent, place: LogPlace): void {
    const { value, timeMs, cells } = event;
    this.sum += value;
    if (this.count === 0n || value < this.min) this.min = value;
    if (this.count === 0n || value > this.max) this.max = value;
    if (this.count === 0n || timeMs > this.lastMs) this.lastMs = timeMs;
    this.count++;
    for (const { at, cell } of this.own) cell.add(at < 0 ? null : (cells[at] ?? null), event, place);
  }

  /** Expected values by the names of their columns, in order; `error` is the column of the stated
   *  error. @param startMs start of the window: an aggregate that was added later has no value */
  expected(
    startMs = Number.POSITIVE_INFINITY,
  ): ReadonlyArray<{ readonly name: string; readonly error?: string; readonly expected: Expected }> {
    const sumOverflows = BigInt.asIntN(64, this.sum) !== this.sum;
    const ending = [{ name: 'last_update_ts', expected: exactly(this.lastMs) }];
    if (this.own.length === 0)
      return [
        { name: 'count', expected: exactly(this.count) },
        { name: 'sum', expected: exactly(BigInt.asIntN(64, this.sum)) },
        { name: 'min', expected: exactly(this.min) },
        { name: 'max', expected: exactly(this.max) },
        ...ending,
        { name: 'overflow', expected: isTrue(sumOverflows) },
      ];
    const values = this.own.map(({ spec, cell }) => {
      const error = errorName(spec);
      const expected = isAbsent(spec, startMs) ? NO_VALUE : cell.expected();
      return { name: spec.name, ...(error === undefined ? {} : { error }), expected };
    });
    const overflows = this.own.some(({ spec, cell }) => cell.overflows === true && !isAbsent(spec, startMs));
    return [...values, ...ending, { name: 'overflow', expected: isTrue(overflows) }];
  }
}

/** A list in Protobuf is empty instead of null. */
const NO_VALUE: Expected = {
  text: 'null',
  matches: (value) => value === null || value === undefined || value === '[]',
};

const isTrue = (wanted: boolean): Expected => ({
  text: String(wanted),
  matches: (value) => value === wanted,
});
