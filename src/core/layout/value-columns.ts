/** Values of the events of a batch, for the aggregates of a row's cells: column after column, a
 *  cell of 8 bytes an event. A cell that is not valid is null, which no aggregate counts. */
import { invariant } from '../errors.ts';
import { TOP_TEXT_BYTES_MAX } from './top.ts';

const CELL = 8;
/** Cells of the first texts; more double them. */
const TEXT_CELLS = 1024;

/** Values that are counted each: their hashes and texts, as native/kernel/rows/top.h has them. */
class ValueTexts {
  /** Null: there are none. */
  cells: BigInt64Array | null = null;
  private bytes = new Uint8Array(0);
  private used = 0;

  clear(): void {
    this.used = 0;
  }

  /** Adds a value, and returns its first cell. @param text 1 to TOP_TEXT_BYTES_MAX Latin-1
   *  characters */
  add(hash: bigint, text: string): number {
    invariant(text.length > 0 && text.length <= TOP_TEXT_BYTES_MAX, 'the length of a text is a byte');
    const at = this.used;
    const cells = 1 + Math.ceil((1 + text.length) / CELL);
    this.used += cells;
    if (this.cells === null || this.used > this.cells.length) {
      const larger = new BigInt64Array(Math.max(TEXT_CELLS, 2 * this.used));
      if (this.cells !== null) larger.set(this.cells);
      this.cells = larger;
      this.bytes = new Uint8Array(larger.buffer);
    }
    this.cells[at] = hash;
    const first = (at + 1) * CELL;
    this.bytes[first] = text.length;
    for (let i = 0; i < text.length; i++) this.bytes[first + 1 + i] = text.charCodeAt(i);
    this.bytes.fill(0, first + 1 + text.length, (at + cells) * CELL);
    return at;
  }
}

export class ValueColumns {
  readonly columns: number;
  /** Cells of a column. */
  readonly capacity: number;
  /** @shape i64[columns * capacity] */
  readonly cells: BigInt64Array;
  /** The same cells as doubles. */
  readonly doubles: Float64Array;
  /** The same cells as words: low and high. */
  readonly words: Int32Array;
  /** @shape u8[columns * capacity]; 0: null */
  readonly valid: Uint8Array;
  /** Values of columns whose cells are the numbers of their first cells in it. */
  readonly texts: ValueTexts;

  constructor(columns: number, capacity: number, texts = new ValueTexts()) {
    this.texts = texts;
    this.columns = columns;
    this.capacity = capacity;
    this.cells = new BigInt64Array(columns * capacity);
    this.doubles = new Float64Array(this.cells.buffer);
    this.words = new Int32Array(this.cells.buffer);
    this.valid = new Uint8Array(columns * capacity);
  }
}
