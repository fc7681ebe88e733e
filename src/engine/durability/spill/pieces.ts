/** Spilled state: pieces, which are sorted runs of rows in an embedded key-value store.
 *
 *  A piece has the rows of one table, is written once under an id that is used once, and never
 *  changes. Its rows are stored in chunks, keyed by the piece and by their first key, or by their
 *  number where a key may have several rows. A list of the first keys in memory finds a row with
 *  one look-up. The changelog decides which pieces are state: a piece that it does not name was
 *  left by a crash and is removed. */

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
import type { RowStream } from '../../state/rows.ts';
import type { HeldRows } from '../../state/run.ts';
import { ROW_BYTES } from '../../window/accumulator.ts';
import type { StepHook } from '../checkpoint/steps.ts';
import {
  Appended,
  CHUNK_BYTES,
  CHUNK_ROWS,
  chunkKey,
  ID_BYTES,
  type PieceEntry,
  type PieceOrder,
  prefixOf,
  type SpilledRun,
  Tally,
  WRITE_ROWS,
  Writing,
} from './writing.ts';

export type { PieceEntry, PieceOrder, SpilledRun } from './writing.ts';

const FAMILY = 'pieces';
/** Rows on their way to the sink that belong to no state. */
const ENDED_FAMILY = 'ended';
export const PIECE_FAMILIES: Readonly<Record<string, KvFamilyUse>> = {
  [FAMILY]: 'runs',
  [ENDED_FAMILY]: 'runs',
};

const SHAPE = { shape: 'records', recordBytes: ROW_BYTES } as const;

const pieceName = ({ id, part }: Pick<PieceEntry, 'id' | 'part'>): string => `piece ${id} of part ${part}`;

const rangeOf = (id: number): KvRange => ({ from: prefixOf(id), to: prefixOf(id + 1) });

/** Writer of a piece whose rows do not come from a run. */
export type PieceWriter = Pick<Appended<SpilledRun>, 'append' | 'finish' | 'close'>;

/** Stream of the rows of a piece. */
class PieceRows implements RowStream {
  private readonly scan: KvScan;
  private readonly piece: Pick<SpilledRun, 'id' | 'part' | 'rows'>;
  /** Rows that were read and did not fit. */
  private page = new Uint8Array(0);
  private at = 0;
  private end = 0;
  private read = 0;

  constructor(scan: KvScan, piece: Pick<SpilledRun, 'id' | 'part' | 'rows'>) {
    this.scan = scan;
    this.piece = piece;
  }

  async next(into: Uint8Array): Promise<number> {
    const room = Math.floor(into.byteLength / ROW_BYTES);
    let rows = 0;
    while (rows < room && (this.at < this.end || this.read < this.piece.rows)) {
      if (this.at < this.end) {
        const some = Math.min(room - rows, this.end - this.at);
        into.set(this.page.subarray(this.at * ROW_BYTES, (this.at + some) * ROW_BYTES), rows * ROW_BYTES);
        this.at += some;
        rows += some;
        continue;
      }
      // Reads whole chunks directly into the destination.
      const chunks = Math.floor((room - rows) / CHUNK_ROWS);
      if (chunks > 0) {
        const from = rows * ROW_BYTES;
        rows += await this.fill(into.subarray(from, from + chunks * CHUNK_BYTES));
        continue;
      }
      if (this.page.length === 0) this.page = new Uint8Array(CHUNK_BYTES);
      this.end = await this.fill(this.page);
      this.at = 0;
    }
    return rows;
  }

  close(): void {
    this.scan.close();
  }

  private async fill(bytes: Uint8Array): Promise<number> {
    const rows = await this.scan.next({ bytes });
    this.read += rows;
    // Fewer rows would give a wrong result.
    if (rows === 0 || this.read > this.piece.rows)
      throw kvError('kv_corrupt', `${pieceName(this.piece)} holds ${this.read} rows, not ${this.piece.rows}`);
    return rows;
  }
}

/** Sorted runs of window state on disk, in a key-value store that the caller opens and closes. */
export class PieceStore {
  private readonly store: KvStore;
  private readonly order: PieceOrder;
  /** Ids of pieces that exist or may exist. */
  private readonly ids = new Set<number>();
  /** Number of look-ups in progress by piece. */
  private readonly lookups = new Map<number, number>();
  private lastEnded = 0;
  /** Hook for the pieces that a sweep writes. */
  private hook: StepHook = () => {};
  private onWritten: (bytes: number) => void = () => {};

  private constructor(store: KvStore, order: PieceOrder) {
    this.store = store;
    this.order = order;
  }

  /** Opens the store. @throws state_corrupt where the store exists and cannot be opened */
  static async open(open: () => Promise<KvStore>, order: PieceOrder = 'key'): Promise<PieceStore> {
    try {
      return new PieceStore(await open(), order);
    } catch (thrown) {
      const known = findMillraceError(thrown);
      if (known?.code !== 'kv_corrupt') throw thrown;
      throw engineError('state_corrupt', `the spilled state does not open: ${known.message}`, {
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

  /** Writes the rows of a run, which are in the order of the store. The piece exists and is durable
   *  when this settles. Returns undefined when the run was stopped. @throws kv_full, kv_io */
  async write(
    id: number,
    part: number,
    run: RowRun,
    hook: StepHook,
    isStopped: () => boolean,
  ): Promise<SpilledRun | undefined> {
    this.ids.add(id);
    const page = new Uint8Array(Math.min(WRITE_ROWS, Math.max(1, run.rowCount)) * ROW_BYTES);
    const tally = new Tally(this.order);
    const writing = new Writing(this.store, FAMILY, this.order, id, hook);
    try {
      while (tally.rows < run.rowCount) {
        if (isStopped()) return undefined;
        const count = run.read(tally.rows, page);
        tally.add(page, count);
        await writing.put(page, count);
      }
      await writing.ingest();
    } finally {
      writing.close();
    }
    return tally.piece(id, part);
  }

  /** Opens a piece for rows in the order of the store; it is durable when `finish` has settled. */
  writer(id: number, part: number): PieceWriter {
    this.ids.add(id);
    const writing = new Writing(this.store, FAMILY, this.order, id, this.hook);
    return new Appended(writing, new Tally(this.order), (rows, tally) => {
      this.onWritten(rows * ROW_BYTES);
      return (tally as Tally).piece(id, part);
    });
  }

  /** Opens temporary rows in any order; they are deleted by `drop`, or at the next start. */
  endedWriter(): RowsWriter {
    const id = ++this.lastEnded;
    const writing = new Writing(this.store, ENDED_FAMILY, 'start', id, () => {});
    return new Appended(writing, undefined, (rows) => ({
      rowCount: rows,
      rows: async () =>
        new PieceRows(await this.store.scan(ENDED_FAMILY, rangeOf(id), SHAPE), { id, part: 0, rows }),
      // Rows that remain after a failure are deleted at the next start.
      drop: () => void this.store.deleteRange(ENDED_FAMILY, rangeOf(id), 'off').catch(() => {}),
    }));
  }

  /** Reads a whole piece and returns it, or the reason why it is not the named one. */
  async verify(entry: PieceEntry): Promise<{ readonly piece: SpilledRun } | { readonly fault: string }> {
    this.ids.add(entry.id);
    const tally = new Tally(this.order);
    try {
      const scan = await this.store.scan(FAMILY, rangeOf(entry.id), SHAPE);
      try {
        const page = new Uint8Array(WRITE_ROWS * ROW_BYTES);
        for (
          let count = await scan.next({ bytes: page });
          count > 0;
          count = await scan.next({ bytes: page })
        )
          tally.add(page, count);
      } finally {
        scan.close();
      }
    } catch (thrown) {
      const known = findMillraceError(thrown);
      if (known?.code !== 'kv_corrupt' && known?.code !== 'kv_row_too_large') throw thrown;
      return { fault: `${pieceName(entry)} does not read: ${known.message}` };
    }
    if (tally.rows === 0) return { fault: `${pieceName(entry)} is missing` };
    if (tally.rows !== entry.rows)
      return { fault: `${pieceName(entry)} holds ${tally.rows} rows, not ${entry.rows}` };
    if (tally.crc !== entry.crc32) return { fault: `${pieceName(entry)} has changed since it was written` };
    return { piece: tally.piece(entry.id, entry.part) };
  }

  async rows(piece: SpilledRun): Promise<RowStream> {
    return new PieceRows(await this.store.scan(FAMILY, rangeOf(piece.id), SHAPE), piece);
  }

  /** Copies the row of a key; true when it exists. */
  async find(piece: SpilledRun, accountId: bigint, into: Uint8Array): Promise<boolean> {
    const { firsts } = piece;
    const low = chunksTo(firsts, (first) => first <= accountId);
    if (low === 0) return false;
    const key = chunkKey(prefixOf(piece.id), firsts[low - 1] as bigint);
    const found = await this.store.get(FAMILY, { bytes: key, count: 1, keyBytes: key.length });
    const length = found.length[0] ?? -1;
    if (length < 0 && !this.ids.has(piece.id)) return false;
    if (length <= 0 || length > CHUNK_BYTES || length % ROW_BYTES !== 0)
      throw kvError('kv_corrupt', `${pieceName(piece)} has a chunk of ${length} bytes`);
    const rows = found.bytes.subarray(found.start[0] as number, (found.start[0] as number) + length);
    const view = new DataView(rows.buffer, rows.byteOffset, length);
    for (let at = 0; at < length; at += ROW_BYTES) {
      if (view.getBigUint64(at, true) !== accountId) continue;
      into.set(rows.subarray(at, at + ROW_BYTES));
      return true;
    }
    return false;
  }

  /** Returns all rows of a key, in their order. The piece is kept until they are read. */
  async ofKey(piece: SpilledRun, accountId: bigint): Promise<Uint8Array> {
    const { id, firsts } = piece;
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
        if (length <= 0 || length > CHUNK_BYTES || length % ROW_BYTES !== 0)
          throw kvError('kv_corrupt', `${pieceName(piece)} has a chunk of ${length} bytes`);
        const view = new DataView(found.bytes.buffer, found.bytes.byteOffset + start, length);
        for (let at = 0; at < length; at += ROW_BYTES)
          if (view.getBigUint64(at, true) === accountId)
            rows.push(found.bytes.subarray(start + at, start + at + ROW_BYTES));
      }
      // Copies, because views of words need an aligned start.
      return new Uint8Array(Buffer.concat(rows));
    } finally {
      const left = (this.lookups.get(id) as number) - 1;
      if (left === 0) this.lookups.delete(id);
      else this.lookups.set(id, left);
    }
  }

  /** Removes the known pieces that need not be kept. It calls `forGood` first if there are any,
   *  which settles when it is durable that they are not needed. A piece with a look-up in progress
   *  is removed by a later call. */
  async keepOnly(isKept: (id: number) => boolean, forGood: () => Promise<void>): Promise<void> {
    const goes = [...this.ids].filter((id) => !isKept(id));
    if (goes.length === 0) return;
    await forGood();
    for (const id of goes) if (!this.lookups.has(id)) await this.drop(id);
  }

  /** Removes a piece durably: its id may be used again. */
  async drop(id: number): Promise<void> {
    this.ids.delete(id);
    await this.store.deleteRange(FAMILY, rangeOf(id), 'sync');
  }

  /** Removes all other pieces in the store, which a crash may have left. */
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

/** Piece as part of a state. It is kept until no checkpoint needs it, so holds are not counted. */
export abstract class StandingPiece {
  readonly piece: SpilledRun;
  protected readonly store: PieceStore;

  constructor(store: PieceStore, piece: SpilledRun) {
    this.store = store;
    this.piece = piece;
  }

  get rowCount(): number {
    return this.piece.rows;
  }
  /** Bytes in memory: the rows are on disk. */
  get bytes(): number {
    return this.piece.firsts.byteLength;
  }

  hold(): this {
    return this;
  }
  release(): void {}

  rows(): Promise<RowStream> {
    return this.store.rows(this.piece);
  }
}

/** Piece of a slice. */
export class HeldPiece extends StandingPiece implements HeldRows {
  find(accountId: bigint, into: Uint8Array): Promise<boolean> {
    return this.store.find(this.piece, accountId, into);
  }
}

/** Refuses a piece for a state without a store of pieces. */
export function refusePiece(entry: PieceEntry): never {
  throw coreError('out_of_range', `${pieceName(entry)} is of a state on disk`);
}
