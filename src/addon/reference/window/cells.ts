/** Cells of rows; the addon's implementation is native/kernel/rows/form.cc. */
import { addDouble, isDoubleSum, mergeDoubleSums } from '../../../core/layout/double-sum.ts';
import { AGGREGATE } from '../../../core/layout/layouts.gen.ts';
import { type AggregateStep, CELL, neutralCell, RowForm } from '../../../core/layout/row-form.ts';
import { addToSketch, isSketch, isSoundSketch, mergeSketches } from '../../../core/layout/sketch.ts';
import { addToTop } from '../../../core/layout/top.ts';
import type { ValueColumns } from '../../../core/layout/value-columns.ts';
import { demandRows } from '../check.ts';
import { foldRow, ROW_BYTES } from './table.ts';

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;
/** Cells of FIRST and LAST: event time, partition, offset, value. */
const PLACED_CELLS = 4;
/** Columns with the place of an event's record. */
const PARTITION = 0;
const OFFSET = 1;

const NO_TEXTS = new BigInt64Array(0);

/** Returns a number with the order of the doubles: -Infinity, …, -0, 0, …, Infinity, NaN. */
const ordered = (bits: bigint, value: number): bigint =>
  Number.isNaN(value) ? I64_MAX : bits >= 0n ? bits : BigInt.asIntN(64, ~bits ^ I64_MIN);

/** Adds to a sum of 128 bits. */
function addWide(sum: BigInt64Array, low: bigint, high: bigint): void {
  const before = BigInt.asUintN(64, sum[0] as bigint);
  const after = BigInt.asUintN(64, before + BigInt.asUintN(64, low));
  sum[0] = after;
  sum[1] = (sum[1] as bigint) + high + (after < before ? 1n : 0n);
}

/** Replaces a placed value by an earlier or a later one. */
function place(isFirst: boolean, from: BigInt64Array, into: BigInt64Array): void {
  for (let i = 0; i + 1 < PLACED_CELLS; i++) {
    const [a, b] = [from[i] as bigint, into[i] as bigint];
    if (a === b) continue;
    if (a < b === isFirst) into.set(from);
    return;
  }
}

/** Folds of one kind, over the cells of one aggregate. */
function foldValue(kind: number, cells: BigInt64Array, bits: bigint, value: number): void {
  const now = cells[0] as bigint;
  if (kind === AGGREGATE.COUNT) cells[0] = now + 1n;
  else if (kind === AGGREGATE.SUM) addWide(cells, bits, bits >> 63n);
  else if (kind === AGGREGATE.SUM_DOUBLE) addDouble(cells, value);
  else if (isSketch(kind)) addToSketch(kind, cells, bits, value);
  else mergeCells(kind, BigInt64Array.of(isOfDoubles(kind) ? ordered(bits, value) : bits), cells);
}

const isOfDoubles = (kind: number): boolean => kind === AGGREGATE.MIN_DOUBLE || kind === AGGREGATE.MAX_DOUBLE;

function mergeCells(kind: number, from: BigInt64Array, into: BigInt64Array): void {
  if (isSketch(kind)) {
    mergeSketches(kind, from, into);
    return;
  }
  const [other, now] = [from[0] as bigint, into[0] as bigint];
  switch (kind) {
    case AGGREGATE.COUNT:
      into[0] = now + other;
      return;
    case AGGREGATE.SUM:
      addWide(into, other, from[1] as bigint);
      return;
    case AGGREGATE.MIN:
    case AGGREGATE.MIN_DOUBLE:
      if (other < now) into[0] = other;
      return;
    case AGGREGATE.MAX:
    case AGGREGATE.MAX_DOUBLE:
      if (other > now) into[0] = other;
      return;
    case AGGREGATE.SUM_DOUBLE:
      mergeDoubleSums(from, into);
      return;
    default:
      place(kind === AGGREGATE.FIRST, from, into);
  }
}

/** Rows of one form in typed arrays of words. */
export class RowCells {
  static readonly HEADS = new RowCells(RowForm.HEADS);
  readonly form: RowForm;
  /** Words of a row. */
  readonly words: number;

  constructor(form: RowForm) {
    this.form = form;
    this.words = form.bytes / 4;
  }

  copy(into: Int32Array, to: number, from: Int32Array, at: number): void {
    for (let i = 0; i < this.words; i++) into[to + i] = from[at + i] as number;
  }

  /** Folds the row at word `from` of `rows` into that at word `to` of `into`, without key and spare
   *  field; their keys are equal. */
  fold(rows: Int32Array, from: number, into: Int32Array, to: number): void {
    foldRow(rows, from, into, to);
    this.form.steps.forEach(({ kind }, step) => {
      mergeCells(kind, this.cellsOf(rows, from, step), this.cellsOf(into, to, step));
    });
  }

  /** Checks the values of a batch. @throws out_of_range when they lack a column or an event */
  demandValues(values: ValueColumns | undefined, events: number): void {
    if (!this.form.hasCells) return;
    demandRows(values?.columns ?? 0, this.form.columns, 'values');
    demandRows(values?.capacity ?? 0, events, 'values');
  }

  /** Sets the cells of a row to the values of one event. */
  begin(
    rows: Int32Array,
    at: number,
    values: ValueColumns | undefined,
    event: number,
    eventTs: bigint,
  ): void {
    if (values === undefined) return;
    this.allCells(rows, at).fill(0n);
    const cellOf = (column: number): bigint => values.cells[column * values.capacity + event] as bigint;
    this.form.steps.forEach(({ kind, column }, step) => {
      const cells = this.cellsOf(rows, at, step);
      cells[0] = neutralCell(kind);
      const from = column * values.capacity + event;
      if (values.valid[from] === 0) return;
      if (kind === AGGREGATE.FIRST || kind === AGGREGATE.LAST)
        cells.set([eventTs, cellOf(PARTITION), cellOf(OFFSET), cellOf(column)]);
      else if (kind === AGGREGATE.TOP)
        addToTop(cells, values.texts.cells ?? NO_TEXTS, cellOf(column), cellOf(PARTITION), cellOf(OFFSET));
      else foldValue(kind, cells, values.cells[from] as bigint, values.doubles[from] as number);
    });
  }

  /** True if the cells are ones that events can produce. */
  areSound(rows: Int32Array, at: number): boolean {
    return this.form.steps.every(({ kind }, step) => {
      if (kind === AGGREGATE.SUM_DOUBLE) return isDoubleSum(this.cellsOf(rows, at, step));
      return !isSketch(kind) || isSoundSketch(kind, this.cellsOf(rows, at, step));
    });
  }

  /** Cells of a sketch of a row, by its number among the sketches. */
  sketchOf(rows: Int32Array, at: number, number: number): BigInt64Array {
    return this.cellsOf(rows, at, this.form.sketches[number] as number);
  }
  /** Kind of a sketch. */
  sketchKind(number: number): number {
    const step = this.form.sketches[number] as number;
    return (this.form.steps[step] as AggregateStep).kind;
  }

  /** All cells of a row, with those that fill its last line. */
  allCells(rows: Int32Array, at: number): BigInt64Array {
    const count = (this.form.bytes - ROW_BYTES) / CELL;
    return new BigInt64Array(rows.buffer, rows.byteOffset + at * 4 + ROW_BYTES, count);
  }

  private cellsOf(rows: Int32Array, at: number, step: number): BigInt64Array {
    const { first, count } = this.form.places[step] as RowForm['places'][number];
    return new BigInt64Array(rows.buffer, rows.byteOffset + at * 4 + ROW_BYTES + first * CELL, count);
  }
}
