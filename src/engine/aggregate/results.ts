/** Results of the aggregates in the cells of a row. */
import { decimalText, dividedHalfEven, powerOfTen } from '../../core/decimal/exact.ts';
import { doubleOf } from '../../core/layout/double-sum.ts';
import { ACCUMULATOR, AGGREGATE } from '../../core/layout/layouts.gen.ts';
import { CELL, type RowForm } from '../../core/layout/row-form.ts';
import { distinctOf, quantileOf, type SketchCells, sketchCells, usedOf } from '../../core/layout/sketch.ts';
import { type Top, topOf } from '../../core/layout/top.ts';
import { idText } from '../dedup/ids.ts';
import { type AggregateField, type AggregateSpec, Aggregates, AVERAGE_PLACES } from './definition.ts';

/** Integers as bigint, doubles as number, decimals as text with all their decimal places, lists of
 *  values as JSON; null: no event had a value. A sum of integers is its low 64 bits, two's
 *  complement. */
export type AggregateValue = bigint | number | string | null;

export interface AggregateResults {
  /** In the order of the definition; an estimate is followed by its error. */
  readonly values: readonly AggregateValue[];
  /** True if a sum of integers does not fit 64 bits. */
  readonly overflow: boolean;
}

interface Row {
  readonly view: DataView;
  /** Byte offset of the row. */
  readonly at: number;
}

interface Read {
  readonly value: AggregateValue;
  /** Error of an estimate. */
  readonly error?: AggregateValue;
  readonly overflow?: boolean;
}

type Reader = (row: Row) => Read;

const bits = new BigInt64Array(1);
const double = new Float64Array(bits.buffer);

/** The double with a place in the order of doubles; the addon has the reverse. */
function unordered(place: bigint): number {
  if (place === 2n ** 63n - 1n) return Number.NaN;
  bits[0] = place >= 0n ? place : BigInt.asIntN(64, ~place ^ (1n << 63n));
  return double[0] as number;
}

export class ResultReader {
  readonly aggregates: Aggregates;
  private readonly readers: readonly Reader[];

  constructor(aggregates: Aggregates) {
    this.aggregates = aggregates;
    this.readers = aggregates.specs.map((spec) => this.readerOf(spec));
  }

  /** Reads the aggregates of the row at a byte offset. */
  read(view: DataView, at: number): AggregateResults {
    const found = this.readers.map((reader) => reader({ view, at }));
    return {
      values: found.flatMap(({ value, error }) => (error === undefined ? [value] : [value, error])),
      overflow: found.some(({ overflow }) => overflow === true),
    };
  }

  private readerOf(spec: AggregateSpec): Reader {
    const { function: name, field } = spec;
    if (field === undefined)
      return ({ view, at }) => ({ value: view.getBigUint64(at + ACCUMULATOR.COUNT, true) });
    if (name === 'distinct' || name === 'percentile') return this.sketchReader(spec, field);
    if (name === 'topk') {
      const cells = this.cellsReader(AGGREGATE.TOP, field);
      return (row) => topRead(topOf(cells(row), spec.limit as number));
    }
    const cell = (kind: number): ((row: Row, number?: number) => bigint) => {
      const first = ACCUMULATOR.BYTES + this.aggregates.cellOf(kind, field) * CELL;
      return ({ view, at }, number = 0) => view.getBigInt64(at + first + number * CELL, true);
    };
    const count = cell(AGGREGATE.COUNT);
    if (name === 'count') return (row) => ({ value: count(row) });
    const read = this.valueReader(name, field, cell);
    return (row) => (count(row) === 0n ? { value: null } : read(row, count(row)));
  }

  private sketchReader({ percent = '0' }: AggregateSpec, field: AggregateField): Reader {
    const isDouble = field.kind === 'double';
    const kinds =
      percent === '0'
        ? [AGGREGATE.DISTINCT, AGGREGATE.DISTINCT_DOUBLE]
        : [AGGREGATE.BUCKETS, AGGREGATE.BUCKETS_DOUBLE];
    const cells = this.cellsReader(kinds[isDouble ? 1 : 0] as number, field);
    if (percent === '0') return (row) => distinctOf(cells(row));
    const places = percent.split('.')[1]?.length ?? 0;
    const share = [BigInt(percent.replace('.', '')), 10n ** BigInt(2 + places)] as const;
    const unit = 10 ** (field.scale ?? 0);
    return (row) => {
      const sketch = cells(row);
      if (usedOf(sketch) === 0) return { value: null, error: null };
      const { value, error } = quantileOf(sketch, ...share);
      return { value: value / unit, error };
    };
  }

  /** Reader of the cells of a sketch. */
  private cellsReader(kind: number, field: AggregateField): (row: Row) => SketchCells {
    const first = ACCUMULATOR.BYTES + this.aggregates.cellOf(kind, field) * CELL;
    const count = sketchCells(kind);
    return ({ view, at }) => {
      const from = view.byteOffset + at + first;
      // Rows that a store has read lie behind their keys, at any offset.
      if (from % CELL === 0) return new BigInt64Array(view.buffer, from, count);
      return new BigInt64Array(view.buffer.slice(from, from + count * CELL));
    };
  }

  private valueReader(
    name: AggregateSpec['function'],
    { kind, scale }: AggregateField,
    cell: (kind: number) => (row: Row, number?: number) => bigint,
  ): (row: Row, count: bigint) => Read {
    const isDouble = kind === 'double';
    const shown = (value: bigint): AggregateValue =>
      scale === undefined ? value : decimalText(value, scale);
    if (name === 'first' || name === 'last') {
      const placed = cell(name === 'first' ? AGGREGATE.FIRST : AGGREGATE.LAST);
      return (row) => {
        const value = placed(row, 3);
        if (!isDouble) return { value: shown(value) };
        bits[0] = value;
        return { value: double[0] as number };
      };
    }
    if (name === 'min' || name === 'max') {
      const isMin = name === 'min';
      if (!isDouble) {
        const least = cell(isMin ? AGGREGATE.MIN : AGGREGATE.MAX);
        return (row) => ({ value: shown(least(row)) });
      }
      const place = cell(isMin ? AGGREGATE.MIN_DOUBLE : AGGREGATE.MAX_DOUBLE);
      return (row) => ({ value: unordered(place(row)) });
    }
    if (isDouble) {
      const sum = cell(AGGREGATE.SUM_DOUBLE);
      const total = (row: Row): number =>
        doubleOf(BigInt64Array.from({ length: 7 }, (_, number) => sum(row, number)));
      return name === 'sum'
        ? (row) => ({ value: total(row) })
        : (row, count) => ({ value: total(row) / Number(count) });
    }
    const sum = cell(AGGREGATE.SUM);
    const whole = (row: Row): bigint => (sum(row, 1) << 64n) + BigInt.asUintN(64, sum(row));
    if (scale !== undefined && name === 'avg') return (row, count) => average(whole(row), count, scale);
    // Less than 2^63 values of 63 bits fit into 127 bits.
    if (scale !== undefined) return (row) => ({ value: decimalText(whole(row), scale) });
    if (name === 'avg') return (row, count) => ({ value: Number(whole(row)) / Number(count) });
    return (row) => {
      const value = sum(row);
      return { value, overflow: sum(row, 1) !== value >> 63n };
    };
  }
}

/** Average of decimals: exact, then rounded once, ties to even. */
const average = (sum: bigint, count: bigint, scale: number): Read => ({
  value: decimalText(dividedHalfEven(sum * powerOfTen(AVERAGE_PLACES), count), scale + AVERAGE_PLACES),
});

/** List of values as JSON: `[{"value":"a","count":3}]`. */
function topRead({ values, error }: Top): Read {
  const list = values.map(({ bytes, count }) => ({ value: idText(bytes), count: Number(count) }));
  return { value: JSON.stringify(list), error };
}

const readers = new WeakMap<RowForm, ResultReader>();

/** Reader of the results in rows of a form; undefined: the results are those of the head. */
export function readerOf(form: RowForm): ResultReader | undefined {
  if (!(form instanceof Aggregates)) return undefined;
  const made = readers.get(form) ?? new ResultReader(form);
  readers.set(form, made);
  return made;
}
