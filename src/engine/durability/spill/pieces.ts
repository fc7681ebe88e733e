/** Spilled state in pieces. A piece is a sorted run of rows in an embedded key-value store.
 *
 *  A piece has the rows of one table. It is written once, under an id that is used once, and never
 *  changes. Its rows are stored in chunks. The key of a chunk is the piece and the first key of the
 *  rows, or the chunk's number if a key may have several rows. A list of the first keys in memory
 *  finds a row with one look-up. The changelog names the pieces that are state; a crash left every
 *  other piece, and it is removed.
 */

import type { RowRun } from '../../../addon/window-surface.ts';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import {
  type KvFamilyUse,
  type KvRange,
  type KvScan,
  type KvStore,
  kvError,
} from '../../../io/rocksdb/port.ts';
import { engineError } from '../../errors.ts';
import type { RowsWriter } from '../../state/end-order-sorter.ts';
import type { SizedStream } from '../../state/rows.ts';
import type { HeldRows } from '../../state/run.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import type { StepHook } from '../checkpoint/steps.ts';
import {
  BufferedChunkWriter,
  ChunkWriter,
  chunkKey,
  chunkRowsOf,
  ID_BYTES,
  type PieceEntry,
  type PieceOrder,
  PieceSummary,
  prefixOf,
  type SpilledRun,
  writeRowsOf,
} from './writing.ts';

export type { PieceEntry, PieceOrder, SpilledRun } from './writing.ts';

const FAMILY = 'pieces';
/** Family of ended rows that are in flight to the sink and belong to no state. */
const ENDED_FAMILY = 'ended';
export const PIECE_FAMILIES: Readonly<Record<string, KvFamilyUse>> = {
  [FAMILY]: 'runs',
  [ENDED_FAMILY]: 'runs',
};

const shapeOf = (rowBytes: number) => ({ shape: 'records', recordBytes: rowBytes }) as const;

const pieceName = ({ id, part }: Pick<PieceEntry, 'id' | 'part'>): string => `piece ${id} of part ${part}`;

const rangeOf = (id: number): KvRange => ({ from: prefixOf(id), to: prefixOf(id + 1) });

/** Writer of a piece from rows that are appended. */
export type PieceWriter = Pick<BufferedChunkWriter<SpilledRun>, 'append' | 'finish' | 'close'>;

/** Stream of the rows of a piece. */
class PieceRows implements SizedStream {
  readonly rowsMax: number;
  private readonly scan: KvScan;
  private readonly piece: Pick<SpilledRun, 'id' | 'part' | 'rows'>;
  private readonly rowBytes: number;
  /** Rows that were read and did not fit into the caller's buffer. */
  private page = new Uint8Array(0);
  private at = 0;
  private end = 0;
  private read = 0;

  constructor(scan: KvScan, piece: Pick<SpilledRun, 'id' | 'part' | 'rows'>, rowBytes: number) {
    this.scan = scan;
    this.rowBytes = rowBytes;
    this.piece = piece;
    this.rowsMax = piece.rows;
  }

  async next(into: Uint8Array): Promise<number> {
    const { rowBytes } = this;
    const chunkRows = chunkRowsOf(rowBytes);
    const chunkBytes = chunkRows * rowBytes;
    const room = Math.floor(into.byteLength / rowBytes);
    let rows = 0;
    while (rows < room && (this.at < this.end || this.read < this.piece.rows)) {
      if (this.at < this.end) {
        const count = Math.min(room - rows, this.end - this.at);
        into.set(this.page.subarray(this.at * rowBytes, (this.at + count) * rowBytes), rows * rowBytes);
        this.at += count;
        rows += count;
        continue;
      }
      // Reads whole chunks, or all that is left, directly into the destination.
      const left = this.piece.rows - this.read;
      const direct = left <= room - rows ? left : room - rows - ((room - rows) % chunkRows);
      if (direct > 0) {
        const from = rows * rowBytes;
        rows += await this.fill(into.subarray(from, from + direct * rowBytes));
        continue;
      }
      if (this.page.length === 0) this.page = new Uint8Array(chunkBytes);
      this.end = await this.fill(this.page);
      this.at = 0;
    }
    return rows;
  }

  close(): void {
    this.scan.close();
  }

  private async fill(bytes: Uint8Array): Promise<number> {
    const rows = await this.scan.next({ bytes }).catch((thrown: unknown) => {
      const hasRoom = bytes.length >= (this.piece.rows - this.read) * this.rowBytes;
      if (findMillraceError(thrown)?.code !== 'kv_row_too_large' || !hasRoom) throw thrown;
      // All rows of the piece fit, so there are others.
      throw kvError('kv_corrupt', `${pieceName(this.piece)} holds more than ${this.piece.rows} rows`, {
        cause: thrown,
      });
    });
    this.read += rows;
    // A missing row would make a result wrong without an error.
    if (rows === 0 || this.read > this.piece.rows)
      throw kvError('kv_corrupt', `${pieceName(this.piece)} holds ${this.read} rows, not ${this.piece.rows}`);
    return rows;
  }
}

/** Sorted runs of window state on disk, in a key-value store that the caller opens and closes. */
export class PieceStore {
  private readonly store: KvStore;
  private readonly order: PieceOrder;
  /** Bytes of a row. */
  readonly rowBytes: number;
  /** Ids of the pieces that exist or may exist in the store. */
  private readonly ids: Set<number>;
  /** Number of look-ups in progress by piece. */
  private readonly lookups: Map<number, number>;
  private readonly ended: { last: number };
  /** Hook for the pieces that a sweep writes. */
  private hook: StepHook = () => {};
  private onWritten: (bytes: number) => void = () => {};

  private constructor(store: KvStore, order: PieceOrder, rowBytes: number, other?: PieceStore) {
    this.store = store;
    this.order = order;
    this.rowBytes = rowBytes;
    this.ids = other?.ids ?? new Set();
    this.lookups = other?.lookups ?? new Map();
    this.ended = other?.ended ?? { last: 0 };
  }

  /** The same store for pieces whose rows have another length. */
  withRows(rowBytes: number): PieceStore {
    return rowBytes === this.rowBytes ? this : new PieceStore(this.store, this.order, rowBytes, this);
  }

  /** Opens the store. @param rowBytes bytes of a row of the state @throws state_corrupt if the
   *  store exists and cannot be opened */
  static async open(
    open: () => Promise<KvStore>,
    order: PieceOrder = 'key',
    rowBytes: number = ROW_BYTES,
  ): Promise<PieceStore> {
    try {
      return new PieceStore(await open(), order, rowBytes);
    } catch (thrown) {
      const known = findMillraceError(thrown);
      if (known?.code !== 'kv_corrupt') throw thrown;
      throw engineError('state_corrupt', `the spilled state cannot be opened: ${known.message}`, {
        next: 'put the files back from a copy, or give an empty -state-dir to compute everything again',
        cause: thrown,
      });
    }
  }

  /** Sets the observers of sweeps: the hook may end the process at a step, and `onWritten` receives
   *  the bytes of each piece. */
  watchSweeps(hook: StepHook, onWritten: (bytes: number) => void): void {
    this.hook = hook;
    this.onWritten = onWritten;
  }

  /** Writes the rows of a run, which are in the order of the store, as a piece. The piece exists
   *  and is durable when this settles. Returns undefined if `isStopped` ended the write. @throws
   *  kv_full, kv_io */
  async write(
    id: number,
    part: number,
    run: RowRun,
    hook: StepHook,
    isStopped: () => boolean,
  ): Promise<SpilledRun | undefined> {
    this.ids.add(id);
    const page = new Uint8Array(
      Math.min(writeRowsOf(this.rowBytes), Math.max(1, run.rowCount)) * this.rowBytes,
    );
    const summary = new PieceSummary(this.rowBytes, this.order);
    const writer = new ChunkWriter(this.store, FAMILY, this.rowBytes, this.order, id, hook);
    try {
      while (summary.rows < run.rowCount) {
        if (isStopped()) return undefined;
        const count = await run.readAside(summary.rows, page);
        summary.add(page, count);
        await writer.put(page, count);
      }
      await writer.ingest();
    } finally {
      writer.close();
    }
    return summary.piece(id, part);
  }

  /** Opens a writer of a piece, for rows in the order of the store. The piece is durable when
   *  `finish` settles. */
  writer(id: number, part: number): PieceWriter {
    this.ids.add(id);
    const writer = new ChunkWriter(this.store, FAMILY, this.rowBytes, this.order, id, this.hook);
    return new BufferedChunkWriter(writer, new PieceSummary(this.rowBytes, this.order), (rows, summary) => {
      this.onWritten(rows * this.rowBytes);
      return (summary as PieceSummary).piece(id, part);
    });
  }

  /** Opens a writer of temporary rows in any order. `drop` deletes them, and so does the next
   *  start. */
  endedWriter(): RowsWriter {
    const id = ++this.ended.last;
    const writer = new ChunkWriter(this.store, ENDED_FAMILY, this.rowBytes, 'start', id, () => {});
    return new BufferedChunkWriter(writer, undefined, (rows) => ({
      rowCount: rows,
      rows: async () =>
        new PieceRows(
          await this.store.scan(ENDED_FAMILY, rangeOf(id), shapeOf(this.rowBytes)),
          { id, part: 0, rows },
          this.rowBytes,
        ),
      // The next start deletes rows that remain after a failure.
      drop: () => void this.store.deleteRange(ENDED_FAMILY, rangeOf(id), 'off').catch(() => {}),
    }));
  }

  /** Reads a whole piece. Returns the piece, or the reason why it is not the piece of the entry. */
  async verify(entry: PieceEntry): Promise<{ readonly piece: SpilledRun } | { readonly fault: string }> {
    this.ids.add(entry.id);
    const summary = new PieceSummary(this.rowBytes, this.order);
    try {
      const scan = await this.store.scan(FAMILY, rangeOf(entry.id), shapeOf(this.rowBytes));
      try {
        const page = new Uint8Array(writeRowsOf(this.rowBytes) * this.rowBytes);
        for (
          let count = await scan.next({ bytes: page });
          count > 0;
          count = await scan.next({ bytes: page })
        )
          summary.add(page, count);
      } finally {
        scan.close();
      }
    } catch (thrown) {
      const known = findMillraceError(thrown);
      if (known?.code !== 'kv_corrupt' && known?.code !== 'kv_row_too_large') throw thrown;
      return { fault: `${pieceName(entry)} cannot be read: ${known.message}` };
    }
    if (summary.rows === 0) return { fault: `${pieceName(entry)} is missing` };
    if (summary.rows !== entry.rows)
      return { fault: `${pieceName(entry)} holds ${summary.rows} rows, not ${entry.rows}` };
    if (summary.crc !== entry.crc32) return { fault: `${pieceName(entry)} has changed since it was written` };
    return { piece: summary.piece(entry.id, entry.part) };
  }

  async rows(piece: Pick<SpilledRun, 'id' | 'part' | 'rows'>): Promise<SizedStream> {
    return new PieceRows(
      await this.store.scan(FAMILY, rangeOf(piece.id), shapeOf(this.rowBytes)),
      piece,
      this.rowBytes,
    );
  }

  /** Copies the row of a key. Returns true if the piece has the key. */
  async find(piece: SpilledRun, accountId: bigint, into: Uint8Array): Promise<boolean> {
    const { firsts } = piece;
    const { rowBytes } = this;
    const low = chunksTo(firsts, (first) => first <= accountId);
    if (low === 0) return false;
    const key = chunkKey(prefixOf(piece.id), firsts[low - 1] as bigint);
    const found = await this.store.get(FAMILY, { bytes: key, count: 1, keyBytes: key.length });
    const length = found.length[0] ?? -1;
    if (length < 0 && !this.ids.has(piece.id)) return false;
    if (length <= 0 || length > chunkRowsOf(rowBytes) * rowBytes || length % rowBytes !== 0)
      throw kvError('kv_corrupt', `${pieceName(piece)} has a chunk of ${length} bytes`);
    const rows = found.bytes.subarray(found.start[0] as number, (found.start[0] as number) + length);
    const view = new DataView(rows.buffer, rows.byteOffset, length);
    for (let at = 0; at < length; at += rowBytes) {
      if (view.getBigUint64(at, true) !== accountId) continue;
      into.set(rows.subarray(at, at + rowBytes));
      return true;
    }
    return false;
  }

  /** Returns all rows of a key, in their order. The piece is not removed during the look-up. */
  async ofKey(piece: SpilledRun, accountId: bigint): Promise<Uint8Array> {
    const { id, firsts } = piece;
    const { rowBytes } = this;
    const from = Math.max(0, chunksTo(firsts, (first) => first < accountId) - 1);
    const to = chunksTo(firsts, (first) => first <= accountId);
    if (to === 0) return new Uint8Array(0);
    this.lookups.set(id, (this.lookups.get(id) ?? 0) + 1);
    try {
      const keys = Buffer.concat(
        Array.from({ length: to - from }, (_, i) => chunkKey(prefixOf(id), from + i)),
      );
      const found = await this.store.get(FAMILY, { bytes: keys, count: to - from, keyBytes: 2 * ID_BYTES });
      const rows: Uint8Array[] = [];
      for (let i = 0; i < to - from; i++) {
        const [start, length] = [found.start[i] as number, found.length[i] as number];
        if (length <= 0 || length > chunkRowsOf(rowBytes) * rowBytes || length % rowBytes !== 0)
          throw kvError('kv_corrupt', `${pieceName(piece)} has a chunk of ${length} bytes`);
        const view = new DataView(found.bytes.buffer, found.bytes.byteOffset + start, length);
        for (let at = 0; at < length; at += rowBytes)
          if (view.getBigUint64(at, true) === accountId)
            rows.push(found.bytes.subarray(start + at, start + at + rowBytes));
      }
      // A copy, because typed views of the rows need an aligned start.
      return new Uint8Array(Buffer.concat(rows));
    } finally {
      const left = (this.lookups.get(id) as number) - 1;
      if (left === 0) this.lookups.delete(id);
      else this.lookups.set(id, left);
    }
  }

  /** Removes the known pieces that need not be kept. If there are any, it first awaits `forGood`,
   *  which makes durable that they are not needed. A later call removes a piece that is being
   *  looked up. */
  async keepOnly(isKept: (id: number) => boolean, forGood: () => Promise<void>): Promise<void> {
    const unneeded = [...this.ids].filter((id) => !isKept(id));
    if (unneeded.length === 0) return;
    await forGood();
    for (const id of unneeded) if (!this.lookups.has(id)) await this.drop(id);
  }

  /** Removes a piece. The removal is durable when this settles, so the id may be used again. */
  async drop(id: number): Promise<void> {
    this.ids.delete(id);
    await this.store.deleteRange(FAMILY, rangeOf(id), 'sync');
  }

  /** Removes every piece except those with these ids: a crash may have left others. */
  async dropOthers(ids: Iterable<number>): Promise<void> {
    let from: Uint8Array | null = null;
    this.ids.clear();
    for (const id of [...new Set(ids)].sort((a, b) => a - b)) {
      this.ids.add(id);
      const { from: to, to: behind } = rangeOf(id);
      await this.store.deleteRange(FAMILY, { from, to }, 'sync');
      from = behind;
    }
    await this.store.deleteRange(FAMILY, { from, to: null }, 'sync');
    await this.store.deleteRange(ENDED_FAMILY, { from: null, to: null }, 'sync');
  }
}

/** Number of leading keys for which `holds` is true (binary search). */
function chunksTo(firsts: BigUint64Array, holds: (first: bigint) => boolean): number {
  let [low, high] = [0, firsts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(firsts[middle] as bigint)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Piece as part of a state. `hold` and `release` do nothing: checkpoints decide when it is
 *  removed. */
export abstract class StoredPiece {
  readonly piece: SpilledRun;
  protected readonly store: PieceStore;

  constructor(store: PieceStore, piece: SpilledRun) {
    this.store = store;
    this.piece = piece;
  }

  get rowCount(): number {
    return this.piece.rows;
  }
  /** Bytes in memory: only the list of first keys, because the rows are on disk. */
  get bytes(): number {
    return this.piece.firsts.byteLength;
  }

  hold(): this {
    return this;
  }
  release(): void {}

  rows(): Promise<SizedStream> {
    return this.store.rows(this.piece);
  }
}

/** Piece of a slice. */
export class SlicePiece extends StoredPiece implements HeldRows {
  find(accountId: bigint, into: Uint8Array): Promise<boolean> {
    return this.store.find(this.piece, accountId, into);
  }
}

/** Refuses a piece: the state has no store of pieces. @throws out_of_range */
export function refusePiece(entry: PieceEntry): never {
  throw coreError(
    'out_of_range',
    `${pieceName(entry)} belongs to a state on disk, but this state is in memory`,
  );
}
