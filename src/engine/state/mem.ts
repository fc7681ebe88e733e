/** Keyed state in memory: one table a (slice, shard), freed whole when the slice is taken. */
import { invariant } from '../../core/errors.ts';
import { ROW_BYTES, ROW_WORDS } from '../accumulator.ts';
import type { AcceptedRows, SliceRows, StateBackend } from './port.ts';
import { AccumulatorTable } from './table.ts';

/** Slices found without a map look-up; events of a stream fall into few slices at a time. */
const RECENT = 64;

interface Slice {
  readonly start: number;
  /** By shard. */
  readonly tables: readonly AccumulatorTable[];
}

export class MemState implements StateBackend {
  readonly name = 'mem';
  readonly shards: number;
  private readonly sliceMs: number;
  private readonly slices = new Map<number, Slice>();
  private readonly recent: Array<Slice | undefined> = new Array(RECENT).fill(undefined);
  /** Keys a shard of the slice taken last: what a fresh table is sized for. */
  private keysExpected = 0;

  constructor(shards: number, sliceMs: number) {
    invariant(Number.isInteger(shards) && shards > 0, 'state has at least one shard');
    this.shards = shards;
    this.sliceMs = sliceMs;
  }

  accumulate(rows: AcceptedRows): void {
    const { accountId, value, eventTs, shard } = rows.columns;
    let current: Slice | undefined;
    for (let i = 0; i < rows.count; i++) {
      const start = rows.slice[i] as number;
      if (current === undefined || current.start !== start) current = this.slice(start);
      const row = rows.row[i] as number;
      const at = row * 2;
      (current.tables[shard[row] as number] as AccumulatorTable).add(
        accountId[at] as number,
        accountId[at + 1] as number,
        value[at] as number,
        value[at + 1] as number,
        eventTs[at] as number,
        eventTs[at + 1] as number,
      );
    }
  }

  take(sliceStart: number): SliceRows {
    const slice = this.slices.get(sliceStart);
    if (slice === undefined) return { sliceStart, rowCount: 0, rows: new ArrayBuffer(0) };
    this.slices.delete(sliceStart);
    this.recent[this.recentIndex(sliceStart)] = undefined;
    let rowCount = 0;
    for (const table of slice.tables) rowCount += table.keyCount;
    this.keysExpected = Math.ceil(rowCount / this.shards);

    const keys = new BigUint64Array(rowCount);
    let at = 0;
    for (const table of slice.tables) {
      table.keysTo(keys, at);
      at += table.keyCount;
    }
    // Sorted as native 64-bit cells; each row is then found again by its key.
    keys.sort();
    const words = new Int32Array(keys.buffer);
    const rows = new ArrayBuffer(rowCount * ROW_BYTES);
    const into = new Int32Array(rows);
    for (let i = 0; i < rowCount; i++) {
      const low = words[i * 2] as number;
      const high = words[i * 2 + 1] as number;
      let found = false;
      for (let s = 0; s < slice.tables.length && !found; s++) {
        found = (slice.tables[s] as AccumulatorTable).copyKey(low, high, into, i * ROW_WORDS);
      }
      invariant(found, 'a key of a slice is in one of its tables');
    }
    return { sliceStart, rowCount, rows };
  }

  snapshot(): readonly SliceRows[] {
    return this.openSlices().map((sliceStart) => {
      const tables = (this.slices.get(sliceStart) as Slice).tables;
      let rowCount = 0;
      for (const table of tables) rowCount += table.keyCount;
      const rows = new ArrayBuffer(rowCount * ROW_BYTES);
      const into = new Int32Array(rows);
      let at = 0;
      for (const table of tables) at = table.copyTo(into, at);
      return { sliceStart, rowCount, rows };
    });
  }

  load(saved: SliceRows, shardOf: (accountId: BigUint64Array) => Int32Array): void {
    const cells = new BigUint64Array(saved.rows);
    const keys = new BigUint64Array(saved.rowCount);
    for (let i = 0; i < saved.rowCount; i++) keys[i] = cells[(i * ROW_BYTES) / 8] as bigint;
    const owner = shardOf(keys);
    this.keysExpected = Math.ceil(saved.rowCount / this.shards);
    const slice = this.slice(saved.sliceStart);
    const words = new Int32Array(saved.rows);
    for (let i = 0; i < saved.rowCount; i++) {
      (slice.tables[owner[i] as number] as AccumulatorTable).put(words, i * ROW_WORDS);
    }
  }

  openSlices(): readonly number[] {
    return [...this.slices.keys()].sort((a, b) => a - b);
  }

  openSliceCount(): number {
    return this.slices.size;
  }

  keyCount(): number {
    return this.sum((table) => table.keyCount);
  }

  bytes(): number {
    return this.sum((table) => table.bytes);
  }

  private sum(of: (table: AccumulatorTable) => number): number {
    let total = 0;
    for (const slice of this.slices.values()) for (const table of slice.tables) total += of(table);
    return total;
  }

  private recentIndex(start: number): number {
    const index = Math.floor(start / this.sliceMs) % RECENT;
    return index < 0 ? index + RECENT : index;
  }

  private slice(start: number): Slice {
    const index = this.recentIndex(start);
    const recent = this.recent[index];
    if (recent !== undefined && recent.start === start) return recent;
    let slice = this.slices.get(start);
    if (slice === undefined) {
      const keys = this.keysExpected;
      slice = { start, tables: Array.from({ length: this.shards }, () => new AccumulatorTable(keys)) };
      this.slices.set(start, slice);
    }
    this.recent[index] = slice;
    return slice;
  }
}
