/** Form of the rows of a job: a head (Accumulator) and, behind it, cells of 8 bytes with the
 *  aggregates of further fields. A row is a multiple of 64 bytes. */
import { coreError } from '../errors.ts';
import { ACCUMULATOR, AGGREGATE } from './layouts.gen.ts';

/** Aggregate of one column of an event's values. */
export interface AggregateStep {
  /** AGGREGATE.* */
  readonly kind: number;
  readonly column: number;
}

const LINE_BYTES = 64;
/** Bytes of a cell. */
export const CELL = 8;
const LINES_MAX = 32;
/** Bytes of the widest row. */
export const ROW_BYTES_MAX = LINES_MAX * LINE_BYTES;
const COLUMNS_MAX = 256;
/** Columns with the partition and the offset of an event's record, for FIRST and LAST. */
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

const isPlaced = (kind: number): boolean => kind === AGGREGATE.FIRST || kind === AGGREGATE.LAST;

export class RowForm {
  /** Rows with only a head. */
  static readonly HEADS = new RowForm([]);
  readonly steps: readonly AggregateStep[];
  /** Number of the first cell of each step, and of its cells. */
  readonly places: ReadonlyArray<{ readonly first: number; readonly count: number }>;
  readonly cells: number;
  /** Bytes of a row. */
  readonly bytes: number;
  /** Number of columns that values must have; the first two are the event's place if an aggregate
   *  depends on it. */
  readonly columns: number;

  /** @throws out_of_range for an unknown kind, a column above the limit, or a row above 2 KiB */
  constructor(steps: readonly AggregateStep[]) {
    this.steps = steps;
    let cells = 0;
    let columns = 0;
    this.places = steps.map(({ kind, column }) => {
      const count = CELLS.get(kind);
      if (count === undefined || !Number.isInteger(column) || column < 0 || column >= COLUMNS_MAX)
        throw coreError('out_of_range', `steps: no aggregate ${kind} of column ${column}`);
      columns = Math.max(columns, column + 1, isPlaced(kind) ? PLACE_COLUMNS : 0);
      cells += count;
      return { first: cells - count, count };
    });
    this.cells = cells;
    this.columns = columns;
    this.bytes = ACCUMULATOR.BYTES + Math.ceil((cells * CELL) / LINE_BYTES) * LINE_BYTES;
    if (this.bytes > ROW_BYTES_MAX)
      throw coreError('out_of_range', `steps: a row of ${this.bytes} bytes, more than ${ROW_BYTES_MAX}`);
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
