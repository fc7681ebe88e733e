/** Keyed state of tumbling and sliding windows; the addon's implementation is
 *  native/kernel/window/tables.cc. Shards are processed one after the other. */

import { coreError } from '../../../core/errors.ts';
import type { AdmittedBatch } from '../../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { DELTA_STATUS } from '../../../core/layout/layouts.gen.ts';
import type { RowForm } from '../../../core/layout/row-form.ts';
import type { ValueColumns } from '../../../core/layout/value-columns.ts';
import { DURATION_MS_MAX, fromWords } from '../../../core/time.ts';
import type { RowBytes, SortedRun, WindowKernels, WindowState } from '../../window-surface.ts';
import { demandInteger, demandRows, rowsOf } from '../check.ts';
import { shardHash } from '../hash.ts';
import { copyRange, demandCover, uncovered } from '../row-range.ts';
import { mergeSessions } from '../session/merge.ts';
import { ReferenceSessionState } from '../session/state.ts';
import { admit } from './admit.ts';
import { RowCells } from './cells.ts';
import { decodeDeltas, deltaBytesMax, encodeDeltas, SLICE_LIMIT } from './delta.ts';
import { keyWords, merge, mergeAhead, rowWords, sortedRun } from './run.ts';
import {
  AccumulatorTable,
  COUNT,
  isEmpty,
  KEY,
  LAST,
  MAX,
  MIN,
  SHARDS_MAX,
  SPARE,
  SUM,
  SUM_HIGH,
  tableHash,
} from './table.ts';

/** Limit, in slices ahead of the newest slice, up to which a new slice is expected to hold as many
 *  keys as the last sealed slice. */
const AHEAD_SLICES = 8;
const INDEX_MIN = 64;

function put(row: Int32Array, field: number, low: number, high: number): void {
  row[field] = low;
  row[field + 1] = high;
}

class ReferenceWindowState implements WindowState {
  readonly form: RowForm;
  private readonly cells: RowCells;
  private readonly sliceMs: number;
  private readonly shards: number;
  private readonly open = new Map<number, readonly AccumulatorTable[]>();
  private newest = Number.NaN;
  private keysExpected = 0;
  private isClosed = false;
  private deltas = new Int32Array(0);
  private deltaCount = 0;
  private batchSlices: number[] = [];
  private index = new Int32Array(0);

  constructor(cells: RowCells, sliceMs: number, shards: number) {
    this.form = cells.form;
    this.cells = cells;
    demandInteger(sliceMs, 1, DURATION_MS_MAX, 'sliceMs');
    demandInteger(shards, 1, SHARDS_MAX, 'shards');
    this.sliceMs = sliceMs;
    this.shards = shards;
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void {
    this.demandOpen();
    const eventRows = rowsOf(events, 'events');
    const rows = rowsOf(admitted, 'admitted');
    this.deltaCount = 0;
    this.batchSlices = [];
    if (rows === 0) return;
    this.cells.demandValues(values, eventRows);
    const { words: size } = this.cells;
    const words = (column: BigInt64Array | BigUint64Array, count: number): Int32Array =>
      new Int32Array(column.buffer, column.byteOffset, count * 2);
    const account = words(events.columns.accountId, eventRows);
    const value = words(events.columns.value, eventRows);
    const eventTs = words(events.columns.eventTs, eventRows);
    const slice = words(admitted.columns.slice, rows);
    const { row } = admitted.columns;
    const number = this.numberSlices(row, slice, eventTs, rows, eventRows);

    const tables = this.batchSlices.map((start) => this.tablesOf(start));
    this.makeRoom(rows);
    const one = new Int32Array(size);
    for (let shard = 0; shard < this.shards; shard++) {
      this.index.fill(0);
      const first = this.deltaCount;
      for (let i = 0; i < rows; i++) {
        const at = (row[i] as number) * 2;
        const low = account[at] as number;
        const high = account[at + 1] as number;
        if (this.shards > 1 && shardHash(low, high) % this.shards !== shard) continue;
        const valueLow = value[at] as number;
        const valueHigh = value[at + 1] as number;
        put(one, KEY, low, high);
        put(one, COUNT, 1, 0);
        put(one, SUM, valueLow, valueHigh);
        put(one, SUM_HIGH, valueHigh >> 31, valueHigh >> 31);
        put(one, MIN, valueLow, valueHigh);
        put(one, MAX, valueLow, valueHigh);
        put(one, LAST, eventTs[at] as number, eventTs[at + 1] as number);
        put(one, SPARE, number[i] as number, 0);
        this.cells.begin(one, 0, values, at / 2, events.columns.eventTs[at / 2] as bigint);
        this.aggregate(one);
      }
      for (let at = first * size; at < this.deltaCount * size; at += size) {
        const of = tables[this.deltas[at + SPARE] as number] as readonly AccumulatorTable[];
        (of[shard] as AccumulatorTable).add(this.deltas, at);
      }
    }
  }

  deltaBytesMax(): number {
    this.demandOpen();
    return deltaBytesMax(this.cells, this.deltas, this.deltaCount, this.batchSlices.length);
  }

  encodeDeltas(out: Uint8Array): number {
    this.demandOpen();
    demandRows(out.length, this.deltaBytesMax(), 'out');
    return encodeDeltas(this.cells, this.deltas, this.deltaCount, this.batchSlices, this.sliceMs, out);
  }

  applyDeltas(bytes: Uint8Array, seq = 0, covered?: Float64Array): number {
    this.demandOpen();
    demandCover(seq, covered);
    this.deltaCount = 0;
    this.batchSlices = [];
    const { status, slices, rows: all } = decodeDeltas(this.cells, bytes, this.sliceMs);
    if (status !== DELTA_STATUS.OK) return status;
    const rows = uncovered(this.cells, all, seq, covered);
    const { words: size } = this.cells;
    const numbers = new Set<number>();
    for (let at = 0; at < rows.length; at += size) numbers.add(rows[at + SPARE] as number);
    const tables = slices.map((start, number) => (numbers.has(number) ? this.tablesOf(start) : []));
    for (let at = 0; at < rows.length; at += size) {
      const of = tables[rows[at + SPARE] as number] as readonly AccumulatorTable[];
      this.ownerOf(of, rows, at).add(rows, at);
    }
    return status;
  }

  reserve(sliceStart: number, rows: number): void {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    demandInteger(rows, 0, 0xffff_ffff, 'rows');
    demandInteger(sliceStart % this.sliceMs, 0, 0, 'ms from the start of a slice');
    if (rows === 0) return;
    for (const table of this.tablesOf(sliceStart)) table.reserve(Math.ceil(rows / this.shards));
  }

  load(sliceStart: number, rows: RowBytes, count: number): void {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    const { words: size } = this.cells;
    const words = rowWords(rows, this.cells);
    demandInteger(count, 0, 0xffff_ffff, 'count');
    demandRows(words.length / size, count, 'rows');
    demandInteger(sliceStart % this.sliceMs, 0, 0, 'ms from the start of a slice');
    const end = count * size;
    for (let at = 0; at < end; at += size)
      demandInteger(
        isEmpty(words, at) || !this.cells.areSound(words, at) ? 1 : 0,
        0,
        0,
        'rows that are empty',
      );
    if (count === 0) return;
    const tables = this.tablesOf(sliceStart);
    for (let at = 0; at < end; at += size) this.ownerOf(tables, words, at).add(words, at);
  }

  copy(sliceStart: number, cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    const out = rowWords(into, this.cells);
    demandRows(cursor.length, 1, 'cursor');
    demandInteger(Math.floor(cursor[0] as number), 0, 2 ** 53, 'cursor');
    const { words: size } = this.cells;
    let row = Math.floor(cursor[0] as number);
    let to = 0;
    let first = 0;
    for (const table of this.open.get(sliceStart) ?? []) {
      const end = first + table.keyCount;
      for (; row < end && to + size <= out.length; row++) {
        const at = (row - first) * size;
        out.set(table.rows.subarray(at, at + size), to);
        to += size;
      }
      first = end;
    }
    cursor[0] = row;
    return to / size;
  }

  copyRange(range: number, sliceStart: number, cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    return copyRange(this.cells, this.open.get(sliceStart) ?? [], range, cursor, rowWords(into, this.cells));
  }

  find(sliceStart: number, accountId: bigint, into: RowBytes): number {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    const key = Int32Array.from(keyWords(accountId));
    const out = rowWords(into, this.cells);
    const tables = this.open.get(sliceStart);
    if (tables === undefined) return 0;
    return this.ownerOf(tables, key, 0).copyKey(key[0] as number, key[1] as number, out);
  }

  slices(out: Float64Array): number {
    this.demandOpen();
    const starts = [...this.open.keys()].sort((a, b) => a - b);
    out.set(starts.slice(0, out.length));
    return starts.length;
  }

  keyCount(): number {
    this.demandOpen();
    return this.sum((table) => table.keyCount);
  }

  bytes(): number {
    this.demandOpen();
    return this.sum((table) => table.bytes);
  }

  drop(sliceStart: number): void {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    this.open.delete(sliceStart);
  }

  trim(): void {
    this.demandOpen();
  }

  async seal(sliceStart: number): Promise<SortedRun> {
    this.demandOpen();
    demandInteger(sliceStart, -SLICE_LIMIT, SLICE_LIMIT, 'sliceStart');
    const tables = this.open.get(sliceStart) ?? [];
    const run = sortedRun(this.cells, sliceStart, tables);
    if (this.open.delete(sliceStart)) {
      this.keysExpected = Math.ceil(run.rowCount / this.shards);
      if (sliceStart > this.newest) this.newest = sliceStart;
    }
    return run;
  }

  close(): void {
    this.isClosed = true;
    this.open.clear();
  }

  private demandOpen(): void {
    if (this.isClosed) throw coreError('closed', 'state: the window state is closed');
  }

  private sum(of: (table: AccumulatorTable) => number): number {
    let total = 0;
    for (const tables of this.open.values()) for (const table of tables) total += of(table);
    return total;
  }

  private ownerOf(tables: readonly AccumulatorTable[], rows: Int32Array, at: number): AccumulatorTable {
    const hash = shardHash(rows[at + KEY] as number, rows[at + KEY + 1] as number);
    return tables[hash % this.shards] as AccumulatorTable;
  }

  /** Numbers of the rows' slices within the batch. @throws out_of_range, with nothing changed */
  private numberSlices(
    row: Uint32Array,
    slice: Int32Array,
    eventTs: Int32Array,
    rows: number,
    eventRows: number,
  ): Int32Array {
    const numbers = new Map<number, number>();
    const number = new Int32Array(rows);
    const fail = (what: string): never => {
      this.batchSlices = [];
      throw coreError('out_of_range', `admitted: ${what}`);
    };
    for (let i = 0; i < rows; i++) {
      const at = (row[i] as number) * 2;
      if ((row[i] as number) >= eventRows) fail('a row beyond the batch');
      const start = fromWords(slice[i * 2] as number, slice[i * 2 + 1] as number);
      const ts = fromWords(eventTs[at] as number, eventTs[at + 1] as number);
      const isSlice = start >= -SLICE_LIMIT && start <= SLICE_LIMIT && start % this.sliceMs === 0;
      if (!isSlice || ts < start || ts - start >= this.sliceMs) fail('an event outside of its slice');
      let known = numbers.get(start);
      if (known === undefined) {
        known = this.batchSlices.length;
        numbers.set(start, known);
        this.batchSlices.push(start);
      }
      number[i] = known;
    }
    return number;
  }

  /** Tables of a slice, one for each shard; makes them where there are none. */
  private tablesOf(start: number): readonly AccumulatorTable[] {
    const known = this.open.get(start);
    if (known !== undefined) return known;
    let expected = 0;
    const isNext = start > this.newest && start - this.newest <= AHEAD_SLICES * this.sliceMs;
    if (Number.isNaN(this.newest) || isNext) {
      expected = this.keysExpected;
      this.newest = start;
    }
    const tables = Array.from({ length: this.shards }, () => new AccumulatorTable(this.cells, expected));
    this.open.set(start, tables);
    return tables;
  }

  private makeRoom(rows: number): void {
    let slots = INDEX_MIN;
    while (slots < rows * 2) slots *= 2;
    if (this.index.length < slots) this.index = new Int32Array(slots);
    const words = rows * this.cells.words;
    if (this.deltas.length < words) this.deltas = new Int32Array(words);
  }

  /** Folds the row of one event into the delta of its key and slice; a new delta is appended. */
  private aggregate(one: Int32Array): void {
    const { index, deltas } = this;
    const { words: size } = this.cells;
    const mask = index.length - 1;
    const low = one[KEY] as number;
    const high = one[KEY + 1] as number;
    let slot = tableHash(low ^ Math.imul(one[SPARE] as number, 0x9e3779b1), high) & mask;
    for (;;) {
      const entry = index[slot] as number;
      if (entry === 0) {
        deltas.set(one, this.deltaCount * size);
        index[slot] = ++this.deltaCount;
        return;
      }
      const at = (entry - 1) * size;
      if (deltas[at + KEY] === low && deltas[at + KEY + 1] === high && deltas[at + SPARE] === one[SPARE]) {
        this.cells.fold(one, 0, deltas, at);
        return;
      }
      slot = (slot + 1) & mask;
    }
  }
}

/** Kernels for rows of a form. */
export function referenceWindowKernels(form: RowForm): WindowKernels {
  const cells = new RowCells(form);
  return {
    name: 'reference',
    form,
    admit,
    open: (sliceMs, shards) => new ReferenceWindowState(cells, sliceMs, shards),
    openSessions: (gapMs, shards) => new ReferenceSessionState(cells, gapMs, shards),
    merge: (pages, cursors, into) => merge(cells, pages, cursors, into),
    mergeAhead: (pages, cursors, into) => mergeAhead(cells, pages, cursors, into),
    mergeSessions: (gapMs, pages, cursors, open, into) =>
      mergeSessions(cells, gapMs, pages, cursors, open, into),
  };
}
