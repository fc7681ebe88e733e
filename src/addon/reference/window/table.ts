/** Hash tables of rows, without an object for each key. A SlotTable is a hash table with linear
 *  probing: rows as slots in one typed array; the high bits of a key's hash select its home slot.
 *  An AccumulatorTable has its rows in insertion order, and an index of 8-byte slots from key to
 *  row. The addon's implementations are native/kernel/rows/table.h and
 *  native/kernel/window/table.h.
 *
 *  Invariants: (1) a slot is empty iff its count is 0; (2) at most LOAD_TENTHS / 10 of the slots
 *  are used, so a probe ends; (3) rows are never removed one by one, except by SessionTable. All
 *  64-bit numbers are word pairs with explicit carries and comparisons, so that no event allocates
 *  a BigInt. */
import { coreError } from '../../../core/errors.ts';
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';

export const ROW_BYTES = ACCUMULATOR.BYTES;
export const ROW_WORDS = ROW_BYTES / 4;
export const KEY = ACCUMULATOR.ACCOUNT_ID / 4;
export const COUNT = ACCUMULATOR.COUNT / 4;
export const SUM = ACCUMULATOR.SUM_LOW / 4;
export const SUM_HIGH = ACCUMULATOR.SUM_HIGH / 4;
export const MIN = ACCUMULATOR.MIN / 4;
export const MAX = ACCUMULATOR.MAX / 4;
export const LAST = ACCUMULATOR.LAST_UPDATE_TS / 4;
export const SPARE = ACCUMULATOR.SPARE / 4;

/** Greatest number of shards of a state. */
export const SHARDS_MAX = 256;
/** Load at which a table grows, as in the addon: both report the same bytes. */
const LOAD_TENTHS = 7;
export const SLOTS_MIN = 16;
/** Bytes of an index slot in the addon. */
export const ENTRY_BYTES = 8;
/** Greatest number of slots of a table: 4 GiB of rows for each (slice, shard). */
const SLOTS_MAX = 2 ** 26;

const growsAt = (slots: number): number => Math.floor((slots * LOAD_TENTHS) / 10);

/** Number of slots of a table that holds `rows` rows without growing. */
function slotsFor(rows: number): number {
  let slots = SLOTS_MIN;
  while (slots < SLOTS_MAX && growsAt(slots) < rows) slots *= 2;
  return slots;
}

/** Hash of a key, 32 bits. The addon has the same function, because snapshots are divided by it. It
 *  differs from the shard hash: otherwise the keys of one shard would share hash bits and collide.
 */
export function tableHash(low: number, high: number): number {
  let h = Math.imul(low, 0x9e3779b1) ^ Math.imul(high ^ (low >>> 15), 0x85ebca77);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  h = Math.imul(h ^ (h >>> 13), 0x297a2d39);
  return (h ^ (h >>> 16)) >>> 0;
}

export const isEmpty = (rows: Int32Array, at: number): boolean =>
  rows[at + COUNT] === 0 && rows[at + COUNT + 1] === 0;

/** True when the i64 at word `a` of `x` is less than that at word `b` of `y`. */
export const isLess = (x: Int32Array, a: number, y: Int32Array, b: number): boolean => {
  const high = x[a + 1] as number;
  const other = y[b + 1] as number;
  return high < other || (high === other && (x[a] as number) >>> 0 < (y[b] as number) >>> 0);
};

/** Adds the words of `y` to those of `x`, little-endian, modulo their width; returns the carry. */
function addWords(x: Int32Array, a: number, y: Int32Array, b: number, words: number): number {
  let carry = 0;
  for (let i = 0; i < words; i++) {
    const sum = ((x[a + i] as number) >>> 0) + ((y[b + i] as number) >>> 0) + carry;
    x[a + i] = sum;
    carry = sum > 0xffff_ffff ? 1 : 0;
  }
  return carry;
}

function copyPair(x: Int32Array, a: number, y: Int32Array, b: number): void {
  x[a] = y[b] as number;
  x[a + 1] = y[b + 1] as number;
}

/** Folds the head at word `from` of `rows` into that at word `to` of `into`; their keys are equal.
 *  A count that would overflow saturates. */
export function foldRow(rows: Int32Array, from: number, into: Int32Array, to: number): void {
  if (addWords(into, to + COUNT, rows, from + COUNT, 2) === 1) into.fill(-1, to + COUNT, to + COUNT + 2);
  addWords(into, to + SUM, rows, from + SUM, 4);
  if (isLess(rows, from + MIN, into, to + MIN)) copyPair(into, to + MIN, rows, from + MIN);
  if (isLess(into, to + MAX, rows, from + MAX)) copyPair(into, to + MAX, rows, from + MAX);
  if (isLess(into, to + LAST, rows, from + LAST)) copyPair(into, to + LAST, rows, from + LAST);
}

/** Rows that a snapshot copies by range: slots in the order of their keys' hashes except for
 *  collisions. */
export interface RangedRows {
  readonly slotCount: number;
  readonly rows: Int32Array;
  /** Word of the row that a slot holds or names; below 0 when the slot is empty. */
  rowOf(slot: number): number;
}

/** Form of the rows of a table. RowCells implements it; a table needs no more of it. */
export interface TableRows {
  /** Words of a row. */
  readonly words: number;
  copy(into: Int32Array, to: number, from: Int32Array, at: number): void;
  fold(rows: Int32Array, from: number, into: Int32Array, to: number): void;
}

/** Slots of a table, and the home slots of keys. */
export class SlotTable implements RangedRows {
  protected readonly form: TableRows;
  protected words = new Int32Array(0);
  protected mask = 0;
  protected used = 0;
  private shift = 0;
  private growAt = 0;
  /** Plural noun of the rows, for the error text of a full table. */
  private readonly rowsName: string;

  constructor(form: TableRows, rowsExpected: number, rowsName: string) {
    this.form = form;
    this.rowsName = rowsName;
    this.setUp(slotsFor(rowsExpected));
  }

  /** Makes room for rows that arrive in the order of their home slots. Has no effect on a table
   *  with rows. */
  reserve(rowsExpected: number): void {
    if (this.used === 0) this.setUp(slotsFor(rowsExpected));
  }

  get slotCount(): number {
    return this.mask + 1;
  }
  get bytes(): number {
    return this.words.byteLength;
  }
  /** Slots, including empty ones. */
  get rows(): Int32Array {
    return this.words;
  }
  rowOf(slot: number): number {
    const at = slot * this.form.words;
    return isEmpty(this.words, at) ? -1 : at;
  }

  protected homeOf(keyLow: number, keyHigh: number): number {
    return tableHash(keyLow, keyHigh) >>> this.shift;
  }
  protected get isFull(): boolean {
    return this.used >= this.growAt;
  }

  /** Doubles the slots. @throws internal when the table has reached its greatest size */
  protected grow(): void {
    const old = this.words;
    if (this.slotCount * 2 > SLOTS_MAX)
      throw coreError('internal', `state: more ${this.rowsName} than a table takes`);
    this.setUp(this.slotCount * 2);
    const { words } = this.form;
    for (let from = 0; from < old.length; from += words) {
      if (isEmpty(old, from)) continue;
      let slot = this.homeOf(old[from + KEY] as number, old[from + KEY + 1] as number);
      while (!isEmpty(this.words, slot * words)) slot = (slot + 1) & this.mask;
      this.form.copy(this.words, slot * words, old, from);
    }
  }

  private setUp(slots: number): void {
    this.words = new Int32Array(slots * this.form.words);
    this.mask = slots - 1;
    this.shift = 32 - Math.log2(slots);
    this.growAt = growsAt(slots);
  }
}

/** Capacity that doubles: memory for rows is added as they arrive. */
const capacityFor = (rows: number): number => {
  let capacity = SLOTS_MIN;
  while (capacity < rows) capacity *= 2;
  return capacity;
};

export class AccumulatorTable implements RangedRows {
  private readonly form: TableRows;
  private words = new Int32Array(0);
  private used = 0;
  /** Numbers of rows, from 1; 0: empty. The addon stores the hash of the key beside each. */
  private index = new Int32Array(0);
  private shift = 0;

  constructor(form: TableRows, keysExpected: number) {
    this.form = form;
    this.setUp(keysExpected);
  }

  /** Makes room for `keysExpected` keys. Has no effect on a table with keys. */
  reserve(keysExpected: number): void {
    if (this.used === 0) this.setUp(keysExpected);
  }

  get keyCount(): number {
    return this.used;
  }
  get slotCount(): number {
    return this.index.length;
  }
  get bytes(): number {
    return this.words.byteLength + this.index.length * ENTRY_BYTES;
  }
  /** Rows of all keys, and spare room behind them. */
  get rows(): Int32Array {
    return this.words;
  }
  rowOf(slot: number): number {
    return ((this.index[slot] as number) - 1) * this.form.words;
  }

  /** Folds a row in, without its spare field. @throws internal when the table is full */
  add(rows: Int32Array, from: number): void {
    const [low, high] = [rows[from + KEY] as number, rows[from + KEY + 1] as number];
    let slot = this.find(low, high);
    if (this.rowOf(slot) >= 0) {
      this.form.fold(rows, from, this.words, this.rowOf(slot));
      return;
    }
    if (this.used >= growsAt(this.slotCount)) {
      this.growIndex();
      slot = this.find(low, high);
    }
    const at = this.used * this.form.words;
    if (at === this.words.length) {
      const larger = new Int32Array(this.words.length * 2);
      larger.set(this.words);
      this.words = larger;
    }
    this.form.copy(this.words, at, rows, from);
    this.words.fill(0, at + SPARE, at + ROW_WORDS);
    this.index[slot] = ++this.used;
  }

  /** Copies the row of a key to word 0 of `into`, where there is room; returns the number of rows,
   *  0 or 1. */
  copyKey(keyLow: number, keyHigh: number, into: Int32Array): number {
    const at = this.rowOf(this.find(keyLow, keyHigh));
    if (at < 0) return 0;
    const { words } = this.form;
    if (into.length >= words) into.set(this.words.subarray(at, at + words));
    return 1;
  }

  /** Slot that names the key's row, or the empty slot where it belongs. */
  private find(keyLow: number, keyHigh: number): number {
    const w = this.words;
    let slot = tableHash(keyLow, keyHigh) >>> this.shift;
    for (;;) {
      const at = this.rowOf(slot);
      if (at < 0 || (w[at + KEY] === keyLow && w[at + KEY + 1] === keyHigh)) return slot;
      slot = (slot + 1) % this.slotCount;
    }
  }

  private growIndex(): void {
    if (this.slotCount * 2 > SLOTS_MAX)
      throw coreError('internal', 'state: more keys in one slice of one shard than a table takes');
    this.setIndex(this.slotCount * 2);
    for (let number = 1; number <= this.used; number++) {
      const at = (number - 1) * this.form.words;
      this.index[this.find(this.words[at + KEY] as number, this.words[at + KEY + 1] as number)] = number;
    }
  }

  private setUp(keysExpected: number): void {
    this.words = new Int32Array(capacityFor(keysExpected) * this.form.words);
    this.setIndex(slotsFor(keysExpected));
  }

  private setIndex(slots: number): void {
    this.index = new Int32Array(slots);
    this.shift = 32 - Math.log2(slots);
  }
}
