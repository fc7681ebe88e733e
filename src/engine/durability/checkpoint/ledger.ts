/** Ledger of a state on disk. It records for each part the first changelog record whose rows are in
 *  memory, and the pieces that have the other rows.
 *
 *  The running engine and a replay update the ledger from the same records, so both compute the
 *  same first record that a replay needs. Invariants: (1) the rows of a part are in its table, in
 *  the one detached table, or in a piece; (2) the records from `replayFrom` on are enough to
 *  rebuild every table.
 */
import { invariant } from '../../../core/errors.ts';
import type { PieceEntry } from '../spill/pieces.ts';

/** First record in a table, and the number of changelog bytes before it. */
interface TableStart {
  readonly first: number;
  readonly at: number;
}

/** Result of a sweep: the sessions of some pieces that ended by a frontier are durable in the sink,
 *  the other sessions are in new pieces. */
export interface SweepEntry {
  readonly frontier: number;
  /** Ids of the swept pieces. */
  readonly gone: readonly number[];
  /** Greatest id that was reserved for the remaining rows. */
  readonly lastId: number;
  /** Pieces with the remaining rows. */
  readonly left: readonly PieceEntry[];
}

type LastEndOf = (part: number) => number;

export class Ledger {
  /** Start of the rows in memory by part, in a live table or in a sorted run. */
  private readonly tables = new Map<number, TableStart>();
  /** Table that was detached and is not yet a piece. */
  private detachedTable: (TableStart & { readonly id: number; readonly part: number }) | undefined;
  private readonly pieceById = new Map<number, PieceEntry>();
  /** Ids of pieces that the changelog does not name yet. */
  private readonly reserved = new Set<number>();
  private last: number;

  constructor(pieces: readonly PieceEntry[] = [], lastId = 0) {
    this.last = lastId;
    for (const piece of pieces) this.pieceById.set(piece.id, piece);
  }

  /** Greatest id assigned to a piece. */
  get lastId(): number {
    return this.last;
  }
  /** Id of the piece that the detached table becomes. */
  get detachedId(): number | undefined {
    return this.detachedTable?.id;
  }
  get detachedPart(): number | undefined {
    return this.detachedTable?.part;
  }
  get pieces(): readonly PieceEntry[] {
    return [...this.pieceById.values()];
  }
  hasPart(part: number): boolean {
    return this.pieces.some((piece) => piece.part === part);
  }
  has(id: number): boolean {
    return this.pieceById.has(id) || this.detachedTable?.id === id || this.reserved.has(id);
  }
  /** True if all rows are in live tables. */
  get isAllInTables(): boolean {
    return this.pieceById.size === 0 && this.detachedTable === undefined;
  }

  /** Reserves consecutive ids for pieces. Returns the first. */
  reserve(count: number): number {
    const first = this.last + 1;
    while (this.last < first + count - 1) this.reserved.add(++this.last);
    return first;
  }

  /** Replaces swept pieces by the new pieces. Sweeps must be applied in the order of their ids. */
  swept({ gone, lastId, left }: SweepEntry): void {
    for (const id of gone) this.pieceById.delete(id);
    for (const id of this.reserved) if (id <= lastId) this.reserved.delete(id);
    for (const piece of left) this.pieceById.set(piece.id, piece);
    this.last = Math.max(this.last, lastId);
  }

  /** Notes that record `first` was applied, after `at` bytes of changelog. `parts` have live
   *  tables; a table with a known start keeps it. */
  applied(first: number, at: number, parts: Iterable<number>): void {
    for (const part of parts) if (!this.tables.has(part)) this.tables.set(part, { first, at });
  }

  /** Detaches the table of a part, which becomes piece `id`. `seq` and `at` belong to the DETACHED
   *  record. */
  detached(id: number, part: number, seq: number, at: number): void {
    invariant(this.detachedTable === undefined, 'one table is detached at a time');
    this.detachedTable = { id, part, ...(this.tables.get(part) ?? { first: seq, at }) };
    this.tables.delete(part);
    this.last = Math.max(this.last, id);
  }

  /** Notes that the piece is durable, so its rows need no replay. */
  spilled(piece: PieceEntry): void {
    if (this.detachedTable?.id === piece.id) this.detachedTable = undefined;
    this.pieceById.set(piece.id, piece);
    this.last = Math.max(this.last, piece.id);
  }

  /** Returns the detached table to its part: the process that wrote the piece ended before SPILLED.
   */
  reattached(): void {
    if (this.detachedTable === undefined) return;
    const { part, first, at } = this.detachedTable;
    const since = this.tables.get(part);
    this.tables.set(part, since === undefined || first < since.first ? { first, at } : since);
    this.detachedTable = undefined;
  }

  /** Removes the parts whose windows all end at or before the frontier: they are durable in the
   *  sink. */
  fired(frontier: number, lastEndOf: LastEndOf): void {
    for (const part of this.tables.keys()) if (lastEndOf(part) <= frontier) this.tables.delete(part);
    for (const { id, part } of this.pieceById.values())
      if (lastEndOf(part) <= frontier) this.pieceById.delete(id);
    if (this.detachedTable !== undefined && lastEndOf(this.detachedTable.part) <= frontier)
      this.detachedTable = undefined;
  }

  /** First record that a replay needs; `next` if it needs none of the existing records. */
  replayFrom(next: number): number {
    let from = Math.min(next, this.detachedTable?.first ?? next);
    for (const { first } of this.tables.values()) from = Math.min(from, first);
    return from;
  }

  /** Parts whose tables need the changelog before byte `at`, oldest first; empty while a table is
   *  detached. */
  olderThan(at: number): readonly number[] {
    if (this.detachedTable !== undefined) return [];
    return [...this.tables]
      .filter(([, since]) => since.at < at)
      .sort(([, a], [, b]) => a.first - b.first)
      .map(([part]) => part);
  }
}
