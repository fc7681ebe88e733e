/** Open sessions over shards; the addon's implementation is native/kernel/session/tables.cc. Shards
 *  are processed one after the other. */
import { coreError } from '../../../core/errors.ts';
import type { AdmittedBatch } from '../../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { DELTA_STATUS } from '../../../core/layout/layouts.gen.ts';
import type { RowForm } from '../../../core/layout/row-form.ts';
import type { ValueColumns } from '../../../core/layout/value-columns.ts';
import { DURATION_MS_MAX, isEventTs } from '../../../core/time.ts';
import type { RowBytes, RowRun, SessionState } from '../../window-surface.ts';
import { demandInteger, demandRows, rowsOf } from '../check.ts';
import { shardHash } from '../hash.ts';
import { copyRange, demandCover, uncovered } from '../row-range.ts';
import type { RowCells } from '../window/cells.ts';
import { keyWords, listOf, openSessionsRun, rowWords, sessionRun, slotsOf } from '../window/run.ts';
import { isEmpty, KEY, LAST, SHARDS_MAX, tableHash } from '../window/table.ts';
import { decodeSessionDeltas, encodeSessionDeltas, sessionDeltaBytesMax } from './delta.ts';
import { isSession } from './merge.ts';
import { putTime, SessionTable, START, timeAt } from './table.ts';

const INDEX_MIN = 64;

export class ReferenceSessionState implements SessionState {
  readonly form: RowForm;
  private readonly cells: RowCells;
  private readonly gapMs: number;
  private readonly tables: readonly SessionTable[];
  private isClosed = false;
  /** Partial sessions of the last batch; during aggregation a merged one has a count of 0. */
  private deltas = new Int32Array(0);
  private deltaCount = 0;
  /** Hash index of the deltas: their numbers, from 1. */
  private index = new Int32Array(0);

  constructor(cells: RowCells, gapMs: number, shards: number) {
    this.form = cells.form;
    this.cells = cells;
    demandInteger(gapMs, 1, DURATION_MS_MAX, 'gapMs');
    demandInteger(shards, 1, SHARDS_MAX, 'shards');
    this.gapMs = gapMs;
    this.tables = Array.from({ length: shards }, () => new SessionTable(cells, gapMs));
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch, values?: ValueColumns): void {
    this.demandOpen();
    const eventRows = rowsOf(events, 'events');
    const rows = rowsOf(admitted, 'admitted');
    this.deltaCount = 0;
    const words = (column: BigInt64Array | BigUint64Array): Int32Array =>
      new Int32Array(column.buffer, column.byteOffset, eventRows * 2);
    const account = words(events.columns.accountId);
    const value = words(events.columns.value);
    const eventTs = words(events.columns.eventTs);
    const { row } = admitted.columns;
    for (let i = 0; i < rows; i++) {
      const at = row[i] as number;
      if (at >= eventRows) throw coreError('out_of_range', 'admitted: a row beyond the batch');
      if (!isEventTs(eventTs[at * 2 + 1] as number))
        throw coreError('out_of_range', 'admitted: a time outside the limits of events');
    }
    if (rows > 0) this.cells.demandValues(values, eventRows);
    this.makeRoom(rows);
    const { words: size } = this.cells;
    const one = new Int32Array(size);
    this.tables.forEach((table, shard) => {
      this.index.fill(0);
      const first = this.deltaCount;
      for (let i = 0; i < rows; i++) {
        const at = (row[i] as number) * 2;
        const [low, high] = [account[at] as number, account[at + 1] as number];
        if (this.tables.length > 1 && shardHash(low, high) % this.tables.length !== shard) continue;
        const [valueLow, valueHigh] = [value[at] as number, value[at + 1] as number];
        const [tsLow, tsHigh] = [eventTs[at] as number, eventTs[at + 1] as number];
        const sign = valueHigh >> 31;
        one.set([low, high, 1, 0, valueLow, valueHigh, sign, sign, valueLow, valueHigh, valueLow, valueHigh]);
        one.set([tsLow, tsHigh, tsLow, tsHigh], LAST);
        this.cells.begin(one, 0, values, at / 2, events.columns.eventTs[at / 2] as bigint);
        this.aggregate(one);
      }
      this.compactDeltas(first);
      for (let at = first * size; at < this.deltaCount * size; at += size) table.fold(this.deltas, at);
    });
  }

  deltaBytesMax(): number {
    this.demandOpen();
    return sessionDeltaBytesMax(this.cells, this.deltas, this.deltaCount);
  }

  encodeDeltas(out: Uint8Array): number {
    this.demandOpen();
    demandRows(out.length, this.deltaBytesMax(), 'out');
    return encodeSessionDeltas(this.cells, this.deltas, this.deltaCount, this.gapMs, out);
  }

  applyDeltas(bytes: Uint8Array, seq = 0, covered?: Float64Array): number {
    this.demandOpen();
    demandCover(seq, covered);
    this.deltaCount = 0;
    const { status, rows } = decodeSessionDeltas(this.cells, bytes, this.gapMs);
    if (status === DELTA_STATUS.OK) this.foldAll(uncovered(this.cells, rows, seq, covered));
    return status;
  }

  reserve(rows: number): void {
    this.demandOpen();
    demandInteger(rows, 0, 0xffff_ffff, 'rows');
    for (const table of this.tables) table.reserve(Math.ceil(rows / this.tables.length));
  }

  load(rows: RowBytes, count: number): void {
    this.demandOpen();
    const { words: size } = this.cells;
    const all = rowWords(rows, this.cells);
    demandInteger(count, 0, 0xffff_ffff, 'count');
    demandRows(all.length / size, count, 'rows');
    const words = all.subarray(0, count * size);
    for (let at = 0; at < words.length; at += size) {
      if (!isSession(words, at) || !this.cells.areSound(words, at))
        throw coreError('out_of_range', 'rows: a row that is no session');
    }
    this.foldAll(words);
  }

  copy(cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    const out = rowWords(into, this.cells);
    demandRows(cursor.length, 1, 'cursor');
    demandInteger(Math.floor(cursor[0] as number), 0, 2 ** 53, 'cursor');
    let slot = Math.floor(cursor[0] as number);
    const { words: size } = this.cells;
    let to = 0;
    let first = 0;
    for (const { rows: slots } of this.tables) {
      const end = first + slots.length / size;
      for (; slot < end && to + size <= out.length; slot++) {
        const at = (slot - first) * size;
        if (isEmpty(slots, at)) continue;
        out.set(slots.subarray(at, at + size), to);
        to += size;
      }
      first = end;
    }
    cursor[0] = slot;
    return to / size;
  }

  copyRange(range: number, cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    return copyRange(this.cells, this.tables, range, cursor, rowWords(into, this.cells));
  }

  find(accountId: bigint, into: RowBytes): number {
    this.demandOpen();
    const [low, high] = keyWords(accountId);
    const out = rowWords(into, this.cells);
    const found = this.tableOf(low, high).ofKey(low, high);
    const { words: size } = this.cells;
    found.slice(0, out.length / size).forEach((row, i) => {
      out.set(row, i * size);
    });
    return found.length;
  }

  async fire(watermark: number): Promise<RowRun> {
    this.demandOpen();
    if (Math.abs(watermark) !== Number.POSITIVE_INFINITY)
      demandInteger(watermark, -(2 ** 53), 2 ** 53, 'watermark');
    const parts = this.tables.map((table) => {
      if (table.haveAllEnded(watermark)) return slotsOf(this.cells, table.detach());
      const rows: Int32Array[] = [];
      table.fire(watermark, (words, at) => rows.push(words.slice(at, at + this.cells.words)));
      return listOf(this.cells, rows);
    });
    return sessionRun(this.cells, parts);
  }

  async detach(): Promise<RowRun> {
    this.demandOpen();
    return openSessionsRun(
      this.cells,
      this.tables.map((table) => slotsOf(this.cells, table.detach())),
    );
  }

  leastEnd(): number {
    this.demandOpen();
    return Math.min(...this.tables.map((table) => table.leastEnd));
  }

  sessionCount(): number {
    return this.sum((table) => table.sessionCount);
  }

  mergedCount(): number {
    return this.sum((table) => table.mergedCount);
  }

  bytes(): number {
    return this.sum((table) => table.bytes);
  }

  /** Has no effect: no memory is kept. */
  trim(): void {
    this.demandOpen();
  }

  close(): void {
    this.isClosed = true;
    this.deltas = new Int32Array(0);
  }

  private demandOpen(): void {
    if (this.isClosed) throw coreError('closed', 'sessions: the session state is closed');
  }

  private sum(of: (table: SessionTable) => number): number {
    this.demandOpen();
    return this.tables.reduce((total, table) => total + of(table), 0);
  }

  private tableOf(low: number, high: number): SessionTable {
    return this.tables[shardHash(low, high) % this.tables.length] as SessionTable;
  }

  private foldAll(rows: Int32Array): void {
    for (let at = 0; at < rows.length; at += this.cells.words)
      this.tableOf(rows[at + KEY] as number, rows[at + KEY + 1] as number).fold(rows, at);
  }

  private makeRoom(rows: number): void {
    let slots = INDEX_MIN;
    while (slots < rows * 2) slots *= 2;
    if (this.index.length < slots) this.index = new Int32Array(slots);
    const words = rows * this.cells.words;
    if (this.deltas.length < words) this.deltas = new Int32Array(words);
  }

  /** Folds the row of one event into the partial sessions of its key less than a gap away: none,
   *  one, or the two that it connects. Two connected ones become the one with the lower number. */
  private aggregate(one: Int32Array): void {
    const { index, deltas, gapMs } = this;
    const mask = index.length - 1;
    const [low, high] = [one[KEY] as number, one[KEY + 1] as number];
    const { words: size } = this.cells;
    const ts = timeAt(one, LAST);
    let near = -1;
    let slot = tableHash(low, high) & mask;
    for (let entry = index[slot] as number; entry !== 0; entry = index[slot] as number) {
      slot = (slot + 1) & mask;
      const at = (entry - 1) * size;
      if (deltas[at + KEY] !== low || deltas[at + KEY + 1] !== high || isEmpty(deltas, at)) continue;
      if (ts - timeAt(deltas, at + LAST) >= gapMs || timeAt(deltas, at + START) - ts >= gapMs) continue;
      if (near >= 0) {
        this.join(Math.min(near, at), Math.max(near, at), one);
        return;
      }
      near = at;
    }
    if (near < 0) {
      deltas.set(one, this.deltaCount * size);
      index[slot] = ++this.deltaCount;
    } else {
      this.foldInto(near, one, 0);
    }
  }

  private join(into: number, other: number, one: Int32Array): void {
    this.foldInto(into, one, 0);
    this.foldInto(into, this.deltas, other);
    this.deltas.fill(0, other, other + this.cells.words);
  }

  private foldInto(at: number, rows: Int32Array, from: number): void {
    const start = Math.min(timeAt(this.deltas, at + START), timeAt(rows, from + START));
    this.cells.fold(rows, from, this.deltas, at);
    putTime(this.deltas, at + START, start);
  }

  /** Removes merged deltas from number `first` on. */
  private compactDeltas(first: number): void {
    const { deltas } = this;
    const { words: size } = this.cells;
    let to = first;
    for (let number = first; number < this.deltaCount; number++) {
      const at = number * size;
      if (isEmpty(deltas, at)) continue;
      if (to < number) deltas.copyWithin(to * size, at, at + size);
      to++;
    }
    this.deltaCount = to;
  }
}
