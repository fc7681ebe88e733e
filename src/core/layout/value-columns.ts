/** Values of the events of a batch, for the aggregates of a row's cells: column after column, a
 *  cell of 8 bytes an event. A cell that is not valid is null, which no aggregate counts. */

export class ValueColumns {
  readonly columns: number;
  /** Cells of a column. */
  readonly capacity: number;
  /** @shape i64[columns * capacity] */
  readonly cells: BigInt64Array;
  /** The same cells as doubles. */
  readonly doubles: Float64Array;
  /** @shape u8[columns * capacity]; 0: null */
  readonly valid: Uint8Array;

  constructor(columns: number, capacity: number) {
    this.columns = columns;
    this.capacity = capacity;
    this.cells = new BigInt64Array(columns * capacity);
    this.doubles = new Float64Array(this.cells.buffer);
    this.valid = new Uint8Array(columns * capacity);
  }
}
