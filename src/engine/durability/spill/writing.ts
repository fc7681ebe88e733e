/** Writers of rows into the store: in chunks, in runs that every driver can hold, with a summary
 *  that identifies the piece. */
import { crc32 } from 'node:zlib';
import { ACCUMULATOR } from '../../../core/layout/layouts.gen.ts';
import { portionRows } from '../../../core/layout/row-form.ts';
import type { SpanRows } from '../../../core/rows.ts';
import { fromWords } from '../../../core/time.ts';
import type { KvRun, KvStore } from '../../../io/rocksdb/port.ts';
import type { RowSink } from '../../state/sweep.ts';
import { type StepHook, stepped } from '../checkpoint/steps.ts';

/** Rows under one key. */
export const chunkRowsOf = (rowBytes: number): number => portionRows(256, rowBytes);
/** Rows of one write, and of one read of a scan. */
export const writeRowsOf = (rowBytes: number): number => portionRows(16_384, rowBytes);
/** Rows of one write of a sweep, which writes several pieces at the same time. */
const appendRowsOf = (rowBytes: number): number => portionRows(4096, rowBytes);
/** Greatest number of rows of a run of the store: drivers that have no files hold a run in memory.
 */
const runRowsMaxOf = (rowBytes: number): number => 16 * writeRowsOf(rowBytes);
export const ID_BYTES = 8;

/** Order of the rows of a piece: by account_id, each key once; or sessions by account_id and start.
 */
export type PieceOrder = 'key' | 'start';

/** Id, part, row count and checksum of a piece, as manifests and changelog list it; a reader checks
 *  the piece against them. */
export interface PieceEntry {
  readonly id: number;
  /** Start of the slice, 0 for sessions. */
  readonly part: number;
  readonly rows: number;
  /** CRC-32 of all rows. */
  readonly crc32: number;
}

export interface SpilledRun extends PieceEntry {
  /** First account of each chunk. */
  readonly firsts: BigUint64Array;
  /** Sessions only: least time of a last event, and of a first event. */
  readonly leastLast: number;
  readonly leastFirst: number;
}

const timeAt = (view: DataView, at: number): number =>
  fromWords(view.getInt32(at, true), view.getInt32(at + 4, true));

export function prefixOf(id: number): Uint8Array {
  const prefix = new Uint8Array(ID_BYTES);
  new DataView(prefix.buffer).setBigUint64(0, BigInt(id));
  return prefix;
}

/** Collects the summary of a piece while its rows are written. */
export class PieceSummary {
  rows = 0;
  crc = 0;
  private readonly rowBytes: number;
  private readonly order: PieceOrder;
  private readonly firsts: bigint[] = [];
  private leastLast = Number.POSITIVE_INFINITY;
  private leastFirst = Number.POSITIVE_INFINITY;

  constructor(rowBytes: number, order: PieceOrder) {
    this.rowBytes = rowBytes;
    this.order = order;
  }

  /** Adds rows: whole chunks, except in the last call. */
  add(rows: Uint8Array, count: number): void {
    const { rowBytes } = this;
    this.crc = crc32(rows.subarray(0, count * rowBytes), this.crc);
    const view = new DataView(rows.buffer, rows.byteOffset, count * rowBytes);
    const chunkRows = chunkRowsOf(rowBytes);
    for (let row = (chunkRows - (this.rows % chunkRows)) % chunkRows; row < count; row += chunkRows)
      this.firsts.push(view.getBigUint64(row * rowBytes, true));
    this.rows += count;
    if (this.order === 'key') return;
    for (let at = 0; at < view.byteLength; at += rowBytes) {
      this.leastLast = Math.min(this.leastLast, timeAt(view, at + ACCUMULATOR.LAST_UPDATE_TS));
      this.leastFirst = Math.min(this.leastFirst, timeAt(view, at + ACCUMULATOR.SPARE));
    }
  }

  piece(id: number, part: number): SpilledRun {
    const { rows, crc, leastLast, leastFirst } = this;
    return { id, part, rows, crc32: crc, leastLast, leastFirst, firsts: BigUint64Array.from(this.firsts) };
  }
}

/** Writer of chunks into the store, in as many runs as needed. */
export class ChunkWriter {
  rows = 0;
  readonly rowBytes: number;
  private readonly store: KvStore;
  private readonly family: string;
  private readonly order: PieceOrder;
  private readonly prefix: Uint8Array;
  private readonly hook: StepHook;
  private run: KvRun | undefined;
  private inRun = 0;
  private keyed = new Uint8Array(0);

  constructor(
    store: KvStore,
    family: string,
    rowBytes: number,
    order: PieceOrder,
    id: number,
    hook: StepHook,
  ) {
    this.rowBytes = rowBytes;
    this.store = store;
    this.family = family;
    this.order = order;
    this.prefix = prefixOf(id);
    this.hook = hook;
  }

  /** Writes rows: whole chunks, except in the last call. */
  async put(rows: Uint8Array, count: number): Promise<void> {
    this.run ??= this.store.openRun(this.family);
    const { run, prefix, rowBytes } = this;
    const perValue = chunkRowsOf(rowBytes);
    const records = { shape: 'records', recordBytes: rowBytes, wordAt: 0, perValue } as const;
    const portion =
      this.order === 'key' ? { ...records, prefix, bytes: rows, count } : this.keyedByNumber(rows, count);
    this.rows += count;
    this.inRun += count;
    await stepped(this.hook, 'spill write', () => run.append(portion));
    if (this.inRun >= runRowsMaxOf(rowBytes)) await this.ingest();
  }

  /** Makes the written rows durable. */
  async ingest(): Promise<void> {
    const { run } = this;
    if (run === undefined) return;
    await stepped(this.hook, 'spill ingest', () => run.finish());
    this.close();
    this.inRun = 0;
  }

  close(): void {
    this.run?.close();
    this.run = undefined;
  }

  /** Keys each chunk by its number in the piece. */
  private keyedByNumber(rows: Uint8Array, count: number): SpanRows {
    const { rowBytes } = this;
    const chunkRows = chunkRowsOf(rowBytes);
    const chunks = Math.ceil(count / chunkRows);
    const chunkBytes = chunkRows * rowBytes;
    const bytes = chunks * 2 * ID_BYTES + count * rowBytes;
    if (this.keyed.length < bytes) this.keyed = new Uint8Array(bytes);
    const ends = new Uint32Array(2 * chunks);
    let to = 0;
    for (let chunk = 0; chunk < chunks; chunk++) {
      const from = chunk * chunkBytes;
      const portion = rows.subarray(from, Math.min(from + chunkBytes, count * rowBytes));
      this.keyed.set(chunkKey(this.prefix, this.rows / chunkRows + chunk), to);
      this.keyed.set(portion, to + 2 * ID_BYTES);
      ends[2 * chunk] = to + 2 * ID_BYTES;
      to += 2 * ID_BYTES + portion.length;
      ends[2 * chunk + 1] = to;
    }
    return { shape: 'spans', count: chunks, bytes: this.keyed.subarray(0, to), ends };
  }
}

export function chunkKey(prefix: Uint8Array, number: number | bigint): Uint8Array {
  const key = new Uint8Array(2 * ID_BYTES);
  key.set(prefix);
  new DataView(key.buffer).setBigUint64(ID_BYTES, BigInt(number));
  return key;
}

/** Gathers rows into whole chunks and writes them: as a piece, or as temporary rows. */
export class BufferedChunkWriter<K> implements RowSink {
  private readonly writer: ChunkWriter;
  private readonly summary: PieceSummary | undefined;
  private readonly end: (rows: number, summary: PieceSummary | undefined) => K;
  private page = new Uint8Array(0);
  private used = 0;

  constructor(
    writer: ChunkWriter,
    summary: PieceSummary | undefined,
    end: (rows: number, summary: PieceSummary | undefined) => K,
  ) {
    this.writer = writer;
    this.summary = summary;
    this.end = end;
  }

  async append(rows: Uint8Array): Promise<void> {
    const { rowBytes } = this.writer;
    if (this.page.length === 0) this.page = new Uint8Array(appendRowsOf(rowBytes) * rowBytes);
    for (let from = 0; from < rows.length; ) {
      const portion = rows.subarray(from, from + this.page.length - this.used);
      this.page.set(portion, this.used);
      this.used += portion.length;
      from += portion.length;
      if (this.used === this.page.length) await this.flush();
    }
  }

  async finish(): Promise<K> {
    if (this.used > 0) await this.flush();
    await this.writer.ingest();
    return this.end(this.writer.rows, this.summary);
  }

  close(): void {
    this.writer.close();
  }

  private async flush(): Promise<void> {
    const count = this.used / this.writer.rowBytes;
    this.used = 0;
    this.summary?.add(this.page, count);
    await this.writer.put(this.page, count);
  }
}
