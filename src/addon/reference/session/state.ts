/** Open sessions over shards; the addon's implementation is native/kernel/session/tables.cc. Shards
 *  are processed one after the other. */
import { coreError } from '../../../core/errors.ts';
import type { AdmittedBatch } from '../../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../../core/layout/event-batch.ts';
import { DELTA_STATUS } from '../../../core/layout/layouts.gen.ts';
import { DURATION_MS_MAX, isEventTs } from '../../../core/time.ts';
import type { RowBytes, RowRun, SessionState } from '../../window-surface.ts';
import { demandInteger, demandRows, rowsOf } from '../check.ts';
import { shardHash } from '../hash.ts';
import { copyRange, demandCover, uncovered } from '../row-range.ts';
import { keyWords, listOf, openSessionsRun, rowWords, sessionRun, slotsOf } from '../window/run.ts';
import { foldRow, isEmpty, KEY, LAST, ROW_WORDS, SHARDS_MAX, tableHash } from '../window/table.ts';
import { decodeSessionDeltas, encodeSessionDeltas, sessionDeltaBytesMax } from './delta.ts';
import { isSession } from './merge.ts';
import { putTime, SessionTable, START, timeAt } from './table.ts';

const INDEX_MIN = 64;

export class ReferenceSessionState implements SessionState {
  private readonly gapMs: number;
  private readonly tables: readonly SessionTable[];
  private isClosed = false;
  /** Partial sessions of the last batch; during aggregation a merged one has a count of 0. */
  private deltas = new Int32Array(0);
  private deltaCount = 0;
  /** Hash index of the deltas: their numbers, from 1. */
  private index = new Int32Array(0);

  constructor(gapMs: number, shards: number) {
    demandInteger(gapMs, 1, DURATION_MS_MAX, 'gapMs');
    demandInteger(shards, 1, SHARDS_MAX, 'shards');
    this.gapMs = gapMs;
    this.tables = Array.from({ length: shards }, () => new SessionTable(gapMs));
  }

  accumulate(events: EventBatch, admitted: AdmittedBatch): void {
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
    this.makeRoom(rows);
    const one = new Int32Array(ROW_WORDS);
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
        this.aggregate(one);
      }
      this.compactDeltas(first);
      for (let at = first * ROW_WORDS; at < this.deltaCount * ROW_WORDS; at += ROW_WORDS)
        table.fold(this.deltas, at);
    });
  }

  deltaBytesMax(): number {
    this.demandOpen();
    return sessionDeltaBytesMax(this.deltaCount);
  }

  encodeDeltas(out: Uint8Array): number {
    this.demandOpen();
    demandRows(out.length, this.deltaBytesMax(), 'out');
    return encodeSessionDeltas(this.deltas, this.deltaCount, this.gapMs, out);
  }

  applyDeltas(bytes: Uint8Array, seq = 0, covered?: Float64Array): number {
    this.demandOpen();
    demandCover(seq, covered);
    this.deltaCount = 0;
    const { status, rows } = decodeSessionDeltas(bytes, this.gapMs);
    if (status === DELTA_STATUS.OK) this.foldAll(uncovered(rows, seq, covered));
    return status;
  }

  reserve(rows: number): void {
    this.demandOpen();
    demandInteger(rows, 0, 0xffff_ffff, 'rows');
    for (const table of this.tables) table.reserve(Math.ceil(rows / this.tables.length));
  }

  load(rows: RowBytes, count: number): void {
    this.demandOpen();
    const all = rowWords(rows);
    demandInteger(count, 0, 0xffff_ffff, 'count');
    demandRows(all.length / ROW_WORDS, count, 'rows');
    const words = all.subarray(0, count * ROW_WORDS);
    for (let at = 0; at < words.length; at += ROW_WORDS) {
      if (!isSession(words, at)) throw coreError('out_of_range', 'rows: a row that is no session');
    }
    this.foldAll(words);
  }

  copy(cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    const out = rowWords(into);
    demandRows(cursor.length, 1, 'cursor');
    demandInteger(Math.floor(cursor[0] as number), 0, 2 ** 53, 'cursor');
    let slot = Math.floor(cursor[0] as number);
    let to = 0;
    let first = 0;
    for (const { rows: slots } of this.tables) {
      const end = first + slots.length / ROW_WORDS;
      for (; slot < end && to < out.length; slot++) {
        const at = (slot - first) * ROW_WORDS;
        if (isEmpty(slots, at)) continue;
        out.set(slots.subarray(at, at + ROW_WORDS), to);
        to += ROW_WORDS;
      }
      first = end;
    }
    cursor[0] = slot;
    return to / ROW_WORDS;
  }

  copyRange(range: number, cursor: Float64Array, into: RowBytes): number {
    this.demandOpen();
    return copyRange(this.tables, range, cursor, rowWords(into));
  }

  find(accountId: bigint, into: RowBytes): number {
    this.demandOpen();
    const [low, high] = keyWords(accountId);
    const out = rowWords(into);
    const found = this.tableOf(low, high).ofKey(low, high);
    found.slice(0, out.length / ROW_WORDS).forEach((row, i) => {
      out.set(row, i * ROW_WORDS);
    });
    return found.length;
  }

  async fire(watermark: number): Promise<RowRun> {
    this.demandOpen();
    if (Math.abs(watermark) !== Number.POSITIVE_INFINITY)
      demandInteger(watermark, -(2 ** 53), 2 ** 53, 'watermark');
    const parts = this.tables.map((table) => {
      if (table.haveAllEnded(watermark)) return slotsOf(table.detach());
      const rows: Int32Array[] = [];
      table.fire(watermark, (words, at) => rows.push(words.slice(at, at + ROW_WORDS)));
      return listOf(rows);
    });
    return sessionRun(parts);
  }

  async detach(): Promise<RowRun> {
    this.demandOpen();
    return openSessionsRun(this.tables.map((table) => slotsOf(table.detach())));
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
    for (let at = 0; at < rows.length; at += ROW_WORDS)
      this.tableOf(rows[at + KEY] as number, rows[at + KEY + 1] as number).fold(rows, at);
  }

  private makeRoom(rows: number): void {
    let slots = INDEX_MIN;
    while (slots < rows * 2) slots *= 2;
    if (this.index.length < slots) this.index = new Int32Array(slots);
    if (this.deltas.length < rows * ROW_WORDS) this.deltas = new Int32Array(rows * ROW_WORDS);
  }

  /** Folds the row of one event into the partial sessions of its key less than a gap away: none,
   *  one, or the two that it connects. Two connected ones become the one with the lower number. */
  private aggregate(one: Int32Array): void {
    const { index, deltas, gapMs } = this;
    const mask = index.length - 1;
    const [low, high] = [one[KEY] as number, one[KEY + 1] as number];
    const ts = timeAt(one, LAST);
    let near = -1;
    let slot = tableHash(low, high) & mask;
    for (let entry = index[slot] as number; entry !== 0; entry = index[slot] as number) {
      slot = (slot + 1) & mask;
      const at = (entry - 1) * ROW_WORDS;
      if (deltas[at + KEY] !== low || deltas[at + KEY + 1] !== high || isEmpty(deltas, at)) continue;
      if (ts - timeAt(deltas, at + LAST) >= gapMs || timeAt(deltas, at + START) - ts >= gapMs) continue;
      if (near >= 0) {
        this.join(Math.min(near, at), Math.max(near, at), one);
        return;
      }
      near = at;
    }
    if (near < 0) {
      deltas.set(one, this.deltaCount * ROW_WORDS);
      index[slot] = ++this.deltaCount;
    } else {
      this.foldInto(near, one, 0);
    }
  }

  private join(into: number, other: number, one: Int32Array): void {
    this.foldInto(into, one, 0);
    this.foldInto(into, this.deltas, other);
    this.deltas.fill(0, other, other + ROW_WORDS);
  }

  private foldInto(at: number, rows: Int32Array, from: number): void {
    const start = Math.min(timeAt(this.deltas, at + START), timeAt(rows, from + START));
    foldRow(rows, from, this.deltas, at);
    putTime(this.deltas, at + START, start);
  }

  /** Removes merged deltas from number `first` on. */
  private compactDeltas(first: number): void {
    const { deltas } = this;
    let to = first;
    for (let number = first; number < this.deltaCount; number++) {
      const at = number * ROW_WORDS;
      if (isEmpty(deltas, at)) continue;
      if (to < number) deltas.copyWithin(to * ROW_WORDS, at, at + ROW_WORDS);
      to++;
    }
    this.deltaCount = to;
  }
}
