/** Form of the rows of a job: a head (Accumulator) and, behind it, cells of 8 bytes with the
 *  aggregates of further fields. Sketches are behind all other cells. A row is a multiple of 64
 *  bytes. */
import { coreError } from '../errors.ts';
import { ACCUMULATOR, AGGREGATE } from './layouts.gen.ts';
import { isSketch, sketchCells } from './sketch.ts';

/** Aggregate of one column of an event's values. */
export interface AggregateStep {
  /** AGGREGATE.* */
  readonly kind: number;
  readonly column: number;
}

const LINE_BYTES = 64;
/** Bytes of a cell. */
export const CELL = 8;
const LINES_MAX = 512;
/** Bytes of the widest row. */
export const ROW_BYTES_MAX = LINES_MAX * LINE_BYTES;
const COLUMNS_MAX = 256;
/** Widest row that has no sketch. */
const PLAIN_BYTES_MAX = 2048;
/** Rows with sketches are handled in portions of so many times fewer rows. */
const WIDE_FACTOR = 16;
/** Cells of a sketch of a stored row, in the addon's tables. */
const STORED_CELLS = 7;
/** Columns with the partition and the offset of an event's record, for FIRST, LAST and TOP. */
export const PLACE_COLUMNS = 2;

const CELLS: ReadonlyMap<number, number> = new Map([
  [AGGREGATE.COUNT, 1],
  [AGGREGATE.SUM, 2],
  [AGGREGATE.MIN, 1],
  [AGGREGATE.MAX, 1],
  [AGGREGATE.FIRST, 4],
  [AGGREGATE.LAST, 4],
  [AGGREGATE.SUM_DOUBLE, 7],
  [AGGREGATE.MIN_DOUBLE, 1],
  [AGGREGATE.MAX_DOUBLE, 1],
]);

const I64_MIN = -(2n ** 63n);
const I64_MAX = 2n ** 63n - 1n;
/** First cell of an aggregate without a value, where it is not 0. */
const NEUTRAL: ReadonlyMap<number, bigint> = new Map([
  [AGGREGATE.MIN, I64_MAX],
  [AGGREGATE.MIN_DOUBLE, I64_MAX],
  [AGGREGATE.FIRST, I64_MAX],
  [AGGREGATE.MAX, I64_MIN],
  [AGGREGATE.MAX_DOUBLE, I64_MIN],
  [AGGREGATE.LAST, I64_MIN],
]);

/** First cell of an aggregate without a value; its other cells are 0. */
export const neutralCell = (kind: number): bigint => NEUTRAL.get(kind) ?? 0n;

/** True for rows that may have sketches, of which most bytes are zero. */
export const isWide = (rowBytes: number): boolean => rowBytes > PLAIN_BYTES_MAX;

/** Number of rows that are read, written or buffered together: `rows`, or fewer if they may have
 *  sketches. */
export const portionRows = (rows: number, rowBytes: number): number =>
  isWide(rowBytes) ? Math.max(1, Math.floor(rows / WIDE_FACTOR)) : rows;

/** True for aggregates that depend on the place of an event in the log. */
export const isPlaced = (kind: number): boolean =>
  kind === AGGREGATE.FIRST || kind === AGGREGATE.LAST || kind === AGGREGATE.TOP;

export class RowForm {
  /** Rows with only a head. */
  static readonly HEADS = new RowForm([]);
  readonly steps: readonly AggregateStep[];
  /** Number of the first cell of each step, and of its cells. */
  readonly places: ReadonlyArray<{ readonly first: number; readonly count: number }>;
  /** Number of cells that are no part of a sketch. */
  readonly cells: number;
  /** Numbers of the steps that are sketches. */
  readonly sketches: readonly number[];
  /** Bytes of a row of a page. */
  readonly bytes: number;
  /** Bytes of a row in the addon's tables, without the blocks of its sketches. */
  readonly storedBytes: number;
  /** Number of columns that values must have; the first two are the event's place if an aggregate
   *  depends on it. */
  readonly columns: number;

  /** @throws out_of_range for an unknown kind, a column above the limit, or a row above 32 KiB */
  constructor(steps: readonly AggregateStep[]) {
    this.steps = steps;
    let columns = 0;
    const counts = steps.map(({ kind, column }) => {
      const count = isSketch(kind) ? sketchCells(kind) : CELLS.get(kind);
      if (count === undefined || !Number.isInteger(column) || column < 0 || column >= COLUMNS_MAX)
        throw coreError('out_of_range', `steps: no aggregate ${kind} of column ${column}`);
      columns = Math.max(columns, column + 1, isPlaced(kind) ? PLACE_COLUMNS : 0);
      return count;
    });
    const numbers = steps.map((_, step) => step);
    const of = (step: number): boolean => isSketch((steps[step] as AggregateStep).kind);
    this.sketches = numbers.filter(of);
    const places: Array<{ readonly first: number; readonly count: number }> = [];
    let cells = 0;
    for (const step of [...numbers.filter((one) => !of(one)), ...this.sketches]) {
      const count = counts[step] as number;
      places[step] = { first: cells, count };
      cells += count;
    }
    this.places = places;
    this.cells = cells - this.sketches.reduce((sum, step) => sum + (counts[step] as number), 0);
    this.columns = columns;
    const bytesOf = (count: number): number =>
      ACCUMULATOR.BYTES + Math.ceil((count * CELL) / LINE_BYTES) * LINE_BYTES;
    this.bytes = bytesOf(cells);
    this.storedBytes = bytesOf(this.cells + this.sketches.length * STORED_CELLS);
    if (this.bytes > ROW_BYTES_MAX)
      throw coreError('out_of_range', `steps: a row of ${this.bytes} bytes, more than ${ROW_BYTES_MAX}`);
  }

  /** True if rows have cells. */
  get hasCells(): boolean {
    return this.steps.length > 0;
  }

  /** True if an aggregate depends on the place of an event in the log. */
  get needsPlace(): boolean {
    return this.steps.some(({ kind }) => isPlaced(kind));
  }

  /** Steps as the addon takes them: pairs of kind and column; null for heads. */
  get words(): Uint32Array | null {
    const words = this.steps.flatMap(({ kind, column }) => [kind, column]);
    return words.length === 0 ? null : Uint32Array.from(words);
  }
}
