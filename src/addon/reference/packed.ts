/** Columns of packed integers: the encoding of rows in the changelog. A column is ceil(n / 2) bytes
 *  of 4-bit lengths, the low half first. Then follows each integer, little-endian without its
 *  leading zero bytes, so that every column has exactly one encoding. The addon's implementation is
 *  native/kernel/packed.h. */
import { cellOfStep, isOfBuckets, stepOf, usedOf, usedOfHeader } from '../../core/layout/sketch.ts';
import type { RowCells } from './window/cells.ts';
import { COUNT, KEY, LAST, MAX, MIN, ROW_WORDS, SUM, SUM_HIGH } from './window/table.ts';

export const INTEGER_BYTES = 8;
const COUNT_HIGH_LIMIT = 2 ** 21;

const lengthBytes = (count: number): number => (count + 1) >>> 1;

/** Upper bound of the bytes of a column. */
export const columnBytesMax = (count: number): number => lengthBytes(count) + count * INTEGER_BYTES;

/** Upper bound of the bytes of all cells of rows, with their sketches. */
export function cellBytesMax(form: RowCells, rows: Int32Array, count: number): number {
  const sketches = form.form.sketches.length;
  let cells = 0;
  for (let row = 0; row < count; row++)
    for (let number = 0; number < sketches; number++)
      cells += usedOf(form.sketchOf(rows, row * form.words, number));
  return (form.form.cells + sketches) * columnBytesMax(count) + 2 * (columnBytesMax(cells) + sketches);
}

/** Writes columns one after the other. */
class PackedWriter {
  at: number;
  private readonly out: Uint8Array;
  private lengths = 0;
  private number = 0;

  constructor(out: Uint8Array, at: number) {
    this.out = out;
    this.at = at;
  }

  begin(count: number): void {
    this.lengths = this.at;
    this.number = 0;
    this.at += lengthBytes(count);
    this.out.fill(0, this.lengths, this.at);
  }

  put(low: number, high: number): void {
    const bits = high === 0 ? 32 - Math.clz32(low) : 64 - Math.clz32(high);
    const length = (bits + 7) >>> 3;
    for (let i = 0; i < length; i++) this.out[this.at++] = i < 4 ? low >>> (i * 8) : high >>> ((i - 4) * 8);
    const place = this.lengths + (this.number >>> 1);
    this.out[place] = (this.out[place] as number) | (length << ((this.number & 1) * 4));
    this.number++;
  }
}

/** Writes columns of rows. */
export class RowWriter {
  private readonly rows: Int32Array;
  private readonly form: RowCells;
  private readonly end: number;
  private readonly packed: PackedWriter;

  constructor(form: RowCells, rows: Int32Array, count: number, out: Uint8Array, at: number) {
    this.rows = rows;
    this.form = form;
    this.end = count * form.words;
    this.packed = new PackedWriter(out, at);
  }

  /** Start of the next column. */
  get at(): number {
    return this.packed.at;
  }

  /** Writes a column: calls `put` for all rows, or only for rows with more than one event. */
  column(onlyMore: boolean, put: (at: number) => void): void {
    let cells = 0;
    const { words } = this.form;
    for (let at = 0; at < this.end; at += words) if (!onlyMore || this.isMore(at)) cells++;
    this.packed.begin(cells);
    for (let at = 0; at < this.end; at += words) if (!onlyMore || this.isMore(at)) put(at);
  }
  /** Writes the 64-bit number at a word. */
  put(a: number): void {
    this.packed.put(this.word(a), this.word(a + 1));
  }
  /** Writes a number of fewer than 53 bits. */
  putNumber(value: number): void {
    this.packed.put(value | 0, Math.floor(value / 2 ** 32));
  }
  /** Writes the 64-bit number at word `a` minus another. */
  minus(a: number, low: number, high: number): void {
    const borrow = this.word(a) >>> 0 < low >>> 0 ? 1 : 0;
    this.packed.put((this.word(a) - low) | 0, (this.word(a + 1) - high - borrow) | 0);
  }
  /** Writes two words of a zigzag number. `below` is the bit that is shifted in from the words
   *  below, `sign` the sign of the whole number. */
  zigzag(at: number, below: number, sign: number): void {
    const [low, high] = [this.word(at), this.word(at + 1)];
    this.packed.put(((low << 1) | below) ^ sign, ((high << 1) | (low >>> 31)) ^ sign);
  }

  keys(): void {
    this.column(false, (at) => this.put(at + KEY));
  }
  others(): void {
    this.column(false, (at) => this.minus(at + COUNT, 1, 0));
  }
  leastValues(): void {
    this.column(false, (at) => this.zigzag(at + MIN, 0, this.word(at + MIN + 1) >> 31));
  }
  /** Writes max - min and the 128-bit sum of the rows with more than one event; the value of a
   *  single event determines both. */
  more(): void {
    const { rows: r } = this;
    const sign = (at: number): number => (r[at + SUM_HIGH + 1] as number) >> 31;
    this.column(true, (at) => this.minus(at + MAX, this.word(at + MIN), this.word(at + MIN + 1)));
    this.column(true, (at) => this.zigzag(at + SUM, 0, sign(at)));
    this.column(true, (at) => this.zigzag(at + SUM_HIGH, this.word(at + SUM + 1) >>> 31, sign(at)));
  }

  /** Writes the cells of all rows, a column each, and behind them the columns of the sketches. */
  cells(): void {
    for (let cell = 0; cell < this.form.form.cells; cell++) {
      const field = ROW_WORDS + cell * 2;
      this.column(false, (at) => this.zigzag(at + field, 0, this.word(at + field + 1) >> 31));
    }
    this.form.form.sketches.forEach((_, number) => {
      this.sketch(number);
    });
  }

  /** Writes a sketch of all rows: a column of headers, then one each of buckets and of their
   *  numbers, or one of hashes or registers. */
  private sketch(number: number): void {
    const { form } = this;
    const put = (value: bigint): void =>
      this.packed.put(Number(BigInt.asIntN(32, value)), Number(BigInt.asIntN(32, value >> 32n)));
    this.column(false, (at) => put(form.sketchOf(this.rows, at, number)[0] as bigint));
    let all = 0;
    for (let at = 0; at < this.end; at += form.words) all += usedOf(form.sketchOf(this.rows, at, number));
    const column = (value: (cells: BigInt64Array, i: number) => bigint): void => {
      this.packed.begin(all);
      for (let at = 0; at < this.end; at += form.words) {
        const cells = form.sketchOf(this.rows, at, number);
        for (let i = 1; i <= usedOf(cells); i++) put(value(cells, i));
      }
    };
    if (isOfBuckets(form.sketchKind(number))) {
      column((cells, i) => stepOf(cells, i).step);
      column((cells, i) => stepOf(cells, i).number);
    } else {
      column((cells, i) => cells[i] as bigint);
    }
  }

  private word(at: number): number {
    return this.rows[at] as number;
  }
  private isMore(at: number): boolean {
    return this.word(at + COUNT) !== 1 || this.word(at + COUNT + 1) !== 0;
  }
}

/** Reads a column that `open` has checked. */
export class PackedReader {
  low = 0;
  high = 0;
  private readonly bytes: Uint8Array;
  private readonly lengths: number;
  private at: number;
  private readCount = 0;

  private constructor(bytes: Uint8Array, lengths: number, at: number) {
    this.bytes = bytes;
    this.lengths = lengths;
    this.at = at;
  }

  /** Consumes a column of `count` integers at `cursor.at`. Returns undefined when it is truncated,
   *  or has a length above 8, a leading zero byte, or a length too many. */
  static open(bytes: Uint8Array, cursor: { at: number }, count: number): PackedReader | undefined {
    const lengths = cursor.at;
    let at = lengths + lengthBytes(count);
    if (at > bytes.length) return undefined;
    const reader = new PackedReader(bytes, lengths, at);
    for (let i = 0; i < count; i++) {
      const length = reader.lengthAt(i);
      at += length;
      if (length > INTEGER_BYTES || at > bytes.length) return undefined;
      if (length > 0 && bytes[at - 1] === 0) return undefined;
    }
    if (count % 2 === 1 && reader.lengthAt(count) !== 0) return undefined;
    cursor.at = at;
    return reader;
  }

  lengthAt(i: number): number {
    return ((this.bytes[this.lengths + (i >>> 1)] as number) >>> ((i & 1) * 4)) & 15;
  }

  next(): void {
    const length = this.lengthAt(this.readCount++);
    this.low = 0;
    this.high = 0;
    for (let i = 0; i < length; i++) {
      const byte = this.bytes[this.at++] as number;
      if (i < 4) this.low |= byte << (i * 8);
      else this.high |= byte << ((i - 4) * 8);
    }
  }

  get word(): bigint {
    return (BigInt(this.high >>> 0) << 32n) | BigInt(this.low >>> 0);
  }

  /** Integer modulo 2^64, without its sign; exact below 2^53. */
  get number(): number {
    return (this.high >>> 0) * 2 ** 32 + (this.low >>> 0);
  }

  unZigZag(): void {
    const sign = -(this.low & 1);
    const low = ((this.low >>> 1) | (this.high << 31)) ^ sign;
    this.high = (this.high >>> 1) ^ sign;
    this.low = low;
  }
}

const i64 = (rows: Int32Array, at: number): bigint =>
  (BigInt(rows[at + 1] as number) << 32n) | BigInt((rows[at] as number) >>> 0);

/** Writes a row of one event. */
export function putOneEvent(
  rows: Int32Array,
  at: number,
  accountId: PackedReader,
  value: PackedReader,
  lastTs: number,
): void {
  const sign = value.high >> 31;
  rows.set([accountId.low, accountId.high, 1, 0, value.low, value.high, sign, sign], at);
  rows.set([value.low, value.high, value.low, value.high], at + MIN);
  rows.set([lastTs, Math.floor(lastTs / 2 ** 32)], at + LAST);
}

/** Reads the columns of `RowWriter.more`. */
export class MoreReader {
  private readonly width: PackedReader;
  private readonly low: PackedReader;
  private readonly high: PackedReader;

  private constructor(width: PackedReader, low: PackedReader, high: PackedReader) {
    this.width = width;
    this.low = low;
    this.high = high;
  }

  /** Consumes the three columns, as PackedReader.open does. */
  static open(bytes: Uint8Array, cursor: { at: number }, more: number): MoreReader | undefined {
    const width = PackedReader.open(bytes, cursor, more);
    const low = width && PackedReader.open(bytes, cursor, more);
    const high = low && PackedReader.open(bytes, cursor, more);
    return width && low && high && new MoreReader(width, low, high);
  }

  /** Completes a row that holds its least value to a row of `others` + 1 events. False when no
   *  events have these aggregates. */
  complete(rows: Int32Array, at: number, others: PackedReader): boolean {
    const { width, low, high } = this;
    if (others.high >>> 0 >= COUNT_HIGH_LIMIT) return false;
    const put = (field: number, a: number, b: number): void => {
      rows[at + field] = a;
      rows[at + field + 1] = b;
    };
    put(COUNT, (others.low + 1) | 0, others.high + (others.low === -1 ? 1 : 0));
    width.next();
    low.next();
    high.next();
    const sign = -(low.low & 1);
    put(SUM, ((low.low >>> 1) | (low.high << 31)) ^ sign, ((low.high >>> 1) | (high.low << 31)) ^ sign);
    put(SUM_HIGH, ((high.low >>> 1) | (high.high << 31)) ^ sign, (high.high >>> 1) ^ sign);
    const least = i64(rows, at + MIN);
    const greatest = least + ((BigInt(width.high >>> 0) << 32n) | BigInt(width.low >>> 0));
    if (greatest >= 2n ** 63n) return false;
    put(MAX, Number(BigInt.asIntN(32, greatest)), Number(greatest >> 32n));
    const sum = (i64(rows, at + SUM_HIGH) << 64n) | BigInt.asUintN(64, i64(rows, at + SUM));
    const events = i64(rows, at + COUNT);
    return sum >= least * events && sum <= greatest * events;
  }
}

/** Columns of a sketch. */
interface SketchColumns {
  readonly headers: PackedReader;
  readonly cells: PackedReader;
  /** Numbers of the values of buckets. */
  readonly numbers?: PackedReader;
}

/** Reads the columns of `RowWriter.cells`. */
export class CellReader {
  private readonly form: RowCells;
  private readonly columns: readonly PackedReader[];
  private readonly sketches: readonly SketchColumns[];

  private constructor(form: RowCells, columns: readonly PackedReader[], sketches: readonly SketchColumns[]) {
    this.form = form;
    this.columns = columns;
    this.sketches = sketches;
  }

  /** Consumes the columns, as PackedReader.open does. */
  static open(
    form: RowCells,
    bytes: Uint8Array,
    cursor: { at: number },
    count: number,
  ): CellReader | undefined {
    const columns: PackedReader[] = [];
    for (let cell = 0; cell < form.form.cells; cell++) {
      const column = PackedReader.open(bytes, cursor, count);
      if (column === undefined) return undefined;
      columns.push(column);
    }
    const sketches: SketchColumns[] = [];
    for (let number = 0; number < form.form.sketches.length; number++) {
      const sketch = CellReader.openSketch(form.sketchKind(number), bytes, cursor, count);
      if (sketch === undefined) return undefined;
      sketches.push(sketch);
    }
    return new CellReader(form, columns, sketches);
  }

  private static openSketch(
    kind: number,
    bytes: Uint8Array,
    cursor: { at: number },
    count: number,
  ): SketchColumns | undefined {
    const from = cursor.at;
    const known = PackedReader.open(bytes, cursor, count);
    const headers = known && PackedReader.open(bytes, { at: from }, count);
    if (known === undefined || headers === undefined) return undefined;
    let all = 0;
    for (let i = 0; i < count; i++) {
      known.next();
      const used = usedOfHeader(kind, known.word);
      if (used === undefined) return undefined;
      all += used;
    }
    const cells = PackedReader.open(bytes, cursor, all);
    if (cells === undefined || !isOfBuckets(kind)) return cells && { headers, cells };
    const numbers = PackedReader.open(bytes, cursor, all);
    return numbers && { headers, cells, numbers };
  }

  /** Reads the cells of the next row. False when no events have them. */
  next(rows: Int32Array, at: number): boolean {
    this.columns.forEach((column, cell) => {
      column.next();
      column.unZigZag();
      rows.set([column.low, column.high], at + ROW_WORDS + cell * 2);
    });
    this.sketches.forEach(({ headers, cells, numbers }, number) => {
      const sketch = this.form.sketchOf(rows, at, number);
      headers.next();
      sketch[0] = headers.word;
      for (let i = 1; i <= usedOf(sketch); i++) {
        cells.next();
        numbers?.next();
        sketch[i] = numbers === undefined ? cells.word : cellOfStep(sketch, i, cells.word, numbers.word);
      }
    });
    return this.form.areSound(rows, at);
  }
}
