/** Sorted runs and their merge; the addon's implementation is native/kernel/window/run.cc. */
import { coreError } from '../../../core/errors.ts';
import type { RowBytes, RowRun, SortedRun } from '../../window-surface.ts';
import { demandInteger, demandRows } from '../check.ts';
import {
  type AccumulatorTable,
  foldRow,
  isEmpty,
  isLess,
  KEY,
  LAST,
  ROW_BYTES,
  ROW_WORDS,
  SLOTS_MIN,
  SPARE,
} from './table.ts';

const RUNS_MAX = 1024;
/** Bytes of a row's entry in the sort order, as the addon counts them. */
const ENTRY_BYTES = 16;

/** Whole rows in a buffer, as words. @throws layout_mismatch when it is not aligned to 8 bytes */
export function rowWords(bytes: RowBytes): Int32Array {
  const [buffer, from] = bytes instanceof ArrayBuffer ? [bytes, 0] : [bytes.buffer, bytes.byteOffset];
  if (from % 8 !== 0)
    throw coreError('layout_mismatch', 'rows: the buffer does not begin at a multiple of 8');
  return new Int32Array(buffer, from, Math.floor(bytes.byteLength / ROW_BYTES) * ROW_WORDS);
}

/** Compares the unsigned keys at two words: below 0, 0 or above. */
export function compareKeys(x: Int32Array, a: number, y: Int32Array, b: number): number {
  const high = ((x[a + KEY + 1] as number) >>> 0) - ((y[b + KEY + 1] as number) >>> 0);
  return high !== 0 ? high : ((x[a + KEY] as number) >>> 0) - ((y[b + KEY] as number) >>> 0);
}

/** Splits a u64 into its two words. @throws out_of_range */
export function keyWords(accountId: bigint): readonly [low: number, high: number] {
  demandInteger(accountId === BigInt.asUintN(64, accountId) ? 1 : 0, 1, 1, 'accountId outside of a u64');
  return [Number(BigInt.asIntN(32, accountId)), Number(BigInt.asIntN(32, accountId >> 32n))];
}

/** Rows in sorted order, and the number of bytes that the addon would hold for them. */
class Run implements RowRun {
  readonly rowCount: number;
  readonly bytes: number;
  private rows: Int32Array;
  private isClosed = false;

  constructor(rows: Int32Array, slotBytes: number) {
    this.rows = rows;
    this.rowCount = rows.length / ROW_WORDS;
    this.bytes = slotBytes + this.rowCount * ENTRY_BYTES;
  }

  read(from: number, into: RowBytes): number {
    const rows = this.openRows();
    demandInteger(from, 0, 2 ** 53, 'from');
    const target = rowWords(into);
    const count = Math.max(0, Math.min(target.length / ROW_WORDS, this.rowCount - from));
    target.set(rows.subarray(from * ROW_WORDS, (from + count) * ROW_WORDS));
    return count;
  }

  close(): void {
    this.isClosed = true;
    this.rows = new Int32Array(0);
  }

  protected openRows(): Int32Array {
    if (this.isClosed) throw coreError('closed', 'run: the sorted run is closed');
    return this.rows;
  }
}

class SliceRun extends Run implements SortedRun {
  readonly sliceStart: number;

  constructor(sliceStart: number, rows: Int32Array, slotBytes: number) {
    super(rows, slotBytes);
    this.sliceStart = sliceStart;
  }

  find(accountId: bigint, into: RowBytes): number {
    const rows = this.openRows();
    const [low, high] = keyWords(accountId);
    const key = Int32Array.of(low, high);
    const target = rowWords(into);
    let first = 0;
    let end = this.rowCount;
    while (first < end) {
      const middle = Math.floor((first + end) / 2);
      if (compareKeys(rows, middle * ROW_WORDS, key, 0) < 0) first = middle + 1;
      else end = middle;
    }
    const at = first * ROW_WORDS;
    if (first === this.rowCount || compareKeys(rows, at, key, 0) !== 0) return 0;
    if (target.length >= ROW_WORDS) target.set(rows.subarray(at, at + ROW_WORDS));
    return 1;
  }
}

type Compare = (rows: Int32Array, a: number, b: number) => number;

function inOrder(rows: Int32Array, compare: Compare): Int32Array {
  const sorted = new Int32Array(rows.length);
  Uint32Array.from({ length: rows.length / ROW_WORDS }, (_, i) => i * ROW_WORDS)
    .sort((a, b) => compare(rows, a, b))
    .forEach((at, i) => {
      sorted.set(rows.subarray(at, at + ROW_WORDS), i * ROW_WORDS);
    });
  return sorted;
}

/** Sorts the rows of tables that have no key in common. */
export function sortedRun(sliceStart: number, tables: readonly AccumulatorTable[]): SortedRun {
  const rowCount = tables.reduce((sum, table) => sum + table.keyCount, 0);
  const rows = new Int32Array(rowCount * ROW_WORDS);
  let to = 0;
  for (const table of tables) {
    rows.set(table.rows.subarray(0, table.keyCount * ROW_WORDS), to);
    to += table.keyCount * ROW_WORDS;
  }
  const bytes = tables.reduce((sum, table) => sum + table.rows.byteLength, 0);
  const byKey: Compare = (of, a, b) => compareKeys(of, a, of, b);
  return new SliceRun(sliceStart, inOrder(rows, byKey), bytes);
}

/** Rows of a shard, and the number of bytes that the addon holds for them. */
interface DetachedRows {
  readonly rows: readonly Int32Array[];
  readonly bytes: number;
}

/** Rows that were removed one by one. */
export function listOf(rows: readonly Int32Array[]): DetachedRows {
  if (rows.length === 0) return { rows, bytes: 0 };
  return { rows, bytes: Math.max(SLOTS_MIN, 2 ** Math.ceil(Math.log2(rows.length))) * ROW_BYTES };
}

/** Rows of a table that was detached as a whole. */
export function slotsOf(slots: Int32Array): DetachedRows {
  const rows: Int32Array[] = [];
  for (let at = 0; at < slots.length; at += ROW_WORDS)
    if (!isEmpty(slots, at)) rows.push(slots.subarray(at, at + ROW_WORDS));
  return { rows, bytes: slots.byteLength };
}

function runOf(parts: readonly DetachedRows[], compare: Compare): RowRun {
  const all = parts.flatMap(({ rows }) => rows);
  const rows = new Int32Array(all.length * ROW_WORDS);
  all.forEach((row, i) => {
    rows.set(row, i * ROW_WORDS);
  });
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  return new Run(inOrder(rows, compare), bytes);
}

/** Sorts sessions by their end, then by key. */
export function sessionRun(parts: readonly DetachedRows[]): RowRun {
  return runOf(parts, (of, a, b) => {
    if (isLess(of, a + LAST, of, b + LAST)) return -1;
    return isLess(of, b + LAST, of, a + LAST) ? 1 : compareKeys(of, a, of, b);
  });
}

/** Sorts open sessions by key, then by start. */
export function openSessionsRun(parts: readonly DetachedRows[]): RowRun {
  return runOf(parts, (of, a, b) => compareStarts(of, a, of, b));
}

/** Compares sessions by key, then by start. */
export function compareStarts(x: Int32Array, a: number, y: Int32Array, b: number): number {
  const key = compareKeys(x, a, y, b);
  if (key !== 0 || isLess(x, a + SPARE, y, b + SPARE)) return key || -1;
  return isLess(y, b + SPARE, x, a + SPARE) ? 1 : 0;
}

/** One input of a merge: words [at, end) of its page. */
export interface MergeInput {
  readonly rows: Int32Array;
  at: number;
  readonly end: number;
  readonly isLast: boolean;
}

/** Reads pages and cursors of a merge. @throws out_of_range */
export function mergeInputs(pages: readonly RowBytes[], cursors: Uint32Array): readonly MergeInput[] {
  demandInteger(pages.length, 0, RUNS_MAX, 'pages');
  demandRows(cursors.length, pages.length * 3, 'cursors');
  return pages.map((page, i) => {
    const rows = rowWords(page);
    const at = cursors[i * 3] as number;
    const end = cursors[i * 3 + 1] as number;
    const last = cursors[i * 3 + 2] as number;
    demandInteger(end, at, rows.length / ROW_WORDS, 'cursor');
    demandInteger(last, 0, 1, 'cursor');
    return { rows, at: at * ROW_WORDS, end: end * ROW_WORDS, isLast: last === 1 };
  });
}

/** WindowKernels.merge. */
export function merge(pages: readonly RowBytes[], cursors: Uint32Array, into: RowBytes): number {
  const inputs = mergeInputs(pages, cursors);
  const out = rowWords(into);
  let to = 0;
  for (; to < out.length; to += ROW_WORDS) {
    if (inputs.some((input) => input.at === input.end && !input.isLast)) break;
    const open = inputs.filter((input) => input.at < input.end);
    const [first] = open;
    if (first === undefined) break;
    let least = first;
    for (const input of open) if (compareKeys(input.rows, input.at, least.rows, least.at) < 0) least = input;
    out.set(least.rows.subarray(least.at, least.at + SPARE), to);
    out.fill(0, to + SPARE, to + ROW_WORDS);
    const { rows: leastRows, at: leastAt } = least;
    for (const input of open) {
      if (compareKeys(input.rows, input.at, leastRows, leastAt) !== 0) continue;
      demandInteger(isEmpty(input.rows, input.at) ? 1 : 0, 0, 0, 'rows with a count of 0');
      if (input !== least) foldRow(input.rows, input.at, out, to);
      input.at += ROW_WORDS;
      const hasMore = input.at < input.end;
      const ascends = !hasMore || compareKeys(input.rows, input.at, leastRows, leastAt) > 0;
      demandInteger(ascends ? 0 : 1, 0, 0, 'keys out of order');
    }
  }
  inputs.forEach((input, i) => {
    cursors[i * 3] = input.at / ROW_WORDS;
  });
  return to / ROW_WORDS;
}
