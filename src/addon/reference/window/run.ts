/** Sorted runs and their merge; the addon's implementation is native/kernel/window/run.cc. */
import { coreError } from '../../../core/errors.ts';
import type { RowBytes, RowRun, SortedRun } from '../../window-surface.ts';
import { demandInteger, demandRows } from '../check.ts';
import type { RowCells } from './cells.ts';
import { type AccumulatorTable, isEmpty, isLess, KEY, LAST, ROW_WORDS, SLOTS_MIN, SPARE } from './table.ts';

const RUNS_MAX = 1024;
/** Bytes of a row's entry in the sort order, as the addon counts them. */
const ENTRY_BYTES = 16;

/** Whole rows in a buffer, as words. @throws layout_mismatch when it is not aligned to 8 bytes */
export function rowWords(bytes: RowBytes, { words }: Pick<RowCells, 'words'>): Int32Array {
  const [buffer, from] = bytes instanceof ArrayBuffer ? [bytes, 0] : [bytes.buffer, bytes.byteOffset];
  if (from % 8 !== 0)
    throw coreError('layout_mismatch', 'rows: the buffer does not begin at a multiple of 8');
  return new Int32Array(buffer, from, Math.floor(bytes.byteLength / (words * 4)) * words);
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
  protected readonly form: RowCells;
  private rows: Int32Array;
  private isClosed = false;

  constructor(form: RowCells, rows: Int32Array, slotBytes: number) {
    this.form = form;
    this.rows = rows;
    this.rowCount = rows.length / form.words;
    this.bytes = slotBytes + this.rowCount * ENTRY_BYTES;
  }

  read(from: number, into: RowBytes): number {
    const rows = this.openRows();
    demandInteger(from, 0, 2 ** 53, 'from');
    const { words } = this.form;
    const target = rowWords(into, this.form);
    const count = Math.max(0, Math.min(target.length / words, this.rowCount - from));
    target.set(rows.subarray(from * words, (from + count) * words));
    return count;
  }

  async readAside(from: number, into: RowBytes): Promise<number> {
    return this.read(from, into);
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

  constructor(form: RowCells, sliceStart: number, rows: Int32Array, slotBytes: number) {
    super(form, rows, slotBytes);
    this.sliceStart = sliceStart;
  }

  find(accountId: bigint, into: RowBytes): number {
    const rows = this.openRows();
    const [low, high] = keyWords(accountId);
    const key = Int32Array.of(low, high);
    const { words } = this.form;
    const target = rowWords(into, this.form);
    let first = 0;
    let end = this.rowCount;
    while (first < end) {
      const middle = Math.floor((first + end) / 2);
      if (compareKeys(rows, middle * words, key, 0) < 0) first = middle + 1;
      else end = middle;
    }
    const at = first * words;
    if (first === this.rowCount || compareKeys(rows, at, key, 0) !== 0) return 0;
    if (target.length >= words) target.set(rows.subarray(at, at + words));
    return 1;
  }
}

type Compare = (rows: Int32Array, a: number, b: number) => number;

function inOrder({ words }: RowCells, rows: Int32Array, compare: Compare): Int32Array {
  const sorted = new Int32Array(rows.length);
  Uint32Array.from({ length: rows.length / words }, (_, i) => i * words)
    .sort((a, b) => compare(rows, a, b))
    .forEach((at, i) => {
      sorted.set(rows.subarray(at, at + words), i * words);
    });
  return sorted;
}

/** Sorts the rows of tables that have no key in common. */
export function sortedRun(
  form: RowCells,
  sliceStart: number,
  tables: readonly AccumulatorTable[],
): SortedRun {
  const { words } = form;
  const rowCount = tables.reduce((sum, table) => sum + table.keyCount, 0);
  const rows = new Int32Array(rowCount * words);
  let to = 0;
  for (const table of tables) {
    rows.set(table.rows.subarray(0, table.keyCount * words), to);
    to += table.keyCount * words;
  }
  const bytes = tables.reduce((sum, table) => sum + table.rows.byteLength, 0);
  const byKey: Compare = (of, a, b) => compareKeys(of, a, of, b);
  return new SliceRun(form, sliceStart, inOrder(form, rows, byKey), bytes);
}

/** Rows of a shard, and the number of bytes that the addon holds for them. */
interface DetachedRows {
  readonly rows: readonly Int32Array[];
  readonly bytes: number;
}

/** Rows that were removed one by one. */
export function listOf({ form }: RowCells, rows: readonly Int32Array[]): DetachedRows {
  if (rows.length === 0) return { rows, bytes: 0 };
  return { rows, bytes: Math.max(SLOTS_MIN, 2 ** Math.ceil(Math.log2(rows.length))) * form.bytes };
}

/** Rows of a table that was detached as a whole. */
export function slotsOf({ words }: RowCells, slots: Int32Array): DetachedRows {
  const rows: Int32Array[] = [];
  for (let at = 0; at < slots.length; at += words)
    if (!isEmpty(slots, at)) rows.push(slots.subarray(at, at + words));
  return { rows, bytes: slots.byteLength };
}

function runOf(form: RowCells, parts: readonly DetachedRows[], compare: Compare): RowRun {
  const all = parts.flatMap(({ rows }) => rows);
  const rows = new Int32Array(all.length * form.words);
  all.forEach((row, i) => {
    rows.set(row, i * form.words);
  });
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  return new Run(form, inOrder(form, rows, compare), bytes);
}

/** Sorts sessions by their end, then by key. */
export function sessionRun(form: RowCells, parts: readonly DetachedRows[]): RowRun {
  return runOf(form, parts, (of, a, b) => {
    if (isLess(of, a + LAST, of, b + LAST)) return -1;
    return isLess(of, b + LAST, of, a + LAST) ? 1 : compareKeys(of, a, of, b);
  });
}

/** Sorts open sessions by key, then by start. */
export function openSessionsRun(form: RowCells, parts: readonly DetachedRows[]): RowRun {
  return runOf(form, parts, (of, a, b) => compareStarts(of, a, of, b));
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
export function mergeInputs(
  form: RowCells,
  pages: readonly RowBytes[],
  cursors: Uint32Array,
): readonly MergeInput[] {
  const { words } = form;
  demandInteger(pages.length, 0, RUNS_MAX, 'pages');
  demandRows(cursors.length, pages.length * 3, 'cursors');
  return pages.map((page, i) => {
    const rows = rowWords(page, form);
    const at = cursors[i * 3] as number;
    const end = cursors[i * 3 + 1] as number;
    const last = cursors[i * 3 + 2] as number;
    demandInteger(end, at, rows.length / words, 'cursor');
    demandInteger(last, 0, 1, 'cursor');
    return { rows, at: at * words, end: end * words, isLast: last === 1 };
  });
}

/** WindowKernels.merge. */
export function merge(
  form: RowCells,
  pages: readonly RowBytes[],
  cursors: Uint32Array,
  into: RowBytes,
): number {
  const { words } = form;
  const inputs = mergeInputs(form, pages, cursors);
  const out = rowWords(into, form);
  let to = 0;
  for (; to < out.length; to += words) {
    if (inputs.some((input) => input.at === input.end && !input.isLast)) break;
    const open = inputs.filter((input) => input.at < input.end);
    const [first] = open;
    if (first === undefined) break;
    let least = first;
    for (const input of open) if (compareKeys(input.rows, input.at, least.rows, least.at) < 0) least = input;
    form.copy(out, to, least.rows, least.at);
    out.fill(0, to + SPARE, to + ROW_WORDS);
    const { rows: leastRows, at: leastAt } = least;
    for (const input of open) {
      if (compareKeys(input.rows, input.at, leastRows, leastAt) !== 0) continue;
      demandInteger(isEmpty(input.rows, input.at) ? 1 : 0, 0, 0, 'rows with a count of 0');
      if (input !== least) form.fold(input.rows, input.at, out, to);
      input.at += words;
      const hasMore = input.at < input.end;
      const ascends = !hasMore || compareKeys(input.rows, input.at, leastRows, leastAt) > 0;
      demandInteger(ascends ? 0 : 1, 0, 0, 'keys out of order');
    }
  }
  inputs.forEach((input, i) => {
    cursors[i * 3] = input.at / words;
  });
  return to / words;
}

/** WindowKernels.mergeAhead. */
export async function mergeAhead(
  form: RowCells,
  pages: readonly RowBytes[],
  cursors: Uint32Array,
  into: RowBytes,
): Promise<number> {
  const count = pages.length / 2;
  demandInteger(count, 0, RUNS_MAX, 'pages');
  demandRows(cursors.length, pages.length * 3, 'cursors');
  const current = pages.slice(0, count);
  const cells = cursors.slice(0, count * 3);
  /** Place of the page that each input is in. */
  const place = current.map((_, i) => i);
  const out = rowWords(into, form);
  let rows = 0;
  for (let isMoved = true; isMoved; ) {
    isMoved = false;
    for (let i = 0; i < count; i++) {
      const [at, end, last] = cells.subarray(i * 3, i * 3 + 3) as unknown as [number, number, number];
      const next = cursors.subarray((count + i) * 3, (count + i) * 3 + 3);
      const isLoaded = next[0] !== next[1] || next[2] !== 0;
      if (place[i] !== i || at !== end || last !== 0 || !isLoaded) continue;
      cursors.set(cells.subarray(i * 3, i * 3 + 3), i * 3);
      place[i] = count + i;
      current[i] = pages[count + i] as RowBytes;
      cells.set(next, i * 3);
      isMoved = true;
    }
    const room = new Uint8Array(
      out.buffer,
      out.byteOffset + rows * form.words * 4,
      (out.length - rows * form.words) * 4,
    );
    const written = merge(form, current, cells, room);
    rows += written;
    isMoved ||= written > 0;
  }
  place.forEach((page, i) => {
    cursors.set(cells.subarray(i * 3, i * 3 + 3), page * 3);
  });
  return rows;
}
