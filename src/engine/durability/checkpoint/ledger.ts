/** Ledger of a state on disk: for each part, since which changelog record it is in memory, or which
 *  piece has it.
 *
 *  The running engine and a replay update it from the same records, so both know from which record
 *  on the changelog is needed. Invariants: (1) the folded rows of a part are in its table, in the
 *  one table that is aside, or in a piece; (2) the records from `replayFrom` on are enough to
 *  rebuild every table. */
import { invariant } from '../../../core/errors.ts';
import type { PieceEntry } from '../spill/pieces.ts';

/** First record in a table, and the bytes of changelog before it. */
interface Since {
  readonly first: number;
  readonly at: number;
}

/** Sweep of pieces: the sessions that ended by a watermark are durable in the sink, the others are
 *  in other pieces. */
export interface SweepEntry {
  readonly frontier: number;
  readonly gone: readonly number[];
  /** Greatest id that was reserved for the remaining rows. */
  readonly lastId: number;
  readonly left: readonly PieceEntry[];
}

type LastEndOf = (part: number) => number;

export class Ledger {
  /** Rows in memory by part, in live tables or sorted. */
  private readonly tables = new Map<number, Since>();
  /** Part that was detached and is not yet a piece. */
  private aside: (Since & { readonly id: number; readonly part: number }) | undefined;
  private readonly standing = new Map<number, PieceEntry>();
  /** Ids of pieces that the changelog does not name yet. */
  private readonly reserved = new Set<number>();
  private last: number;

  constructor(pieces: readonly PieceEntry[] = [], lastId = 0) {
    this.last = lastId;
    for (const piece of pieces) this.standing.set(piece.id, piece);
  }

  /** Greatest id that a piece was given. */
  get lastId(): number {
    return this.last;
  }
  /** Id of the piece that the table aside becomes. */
  get asideId(): number | undefined {
    return this.aside?.id;
  }
  get asidePart(): number | undefined {
    return this.aside?.part;
  }
  get pieces(): readonly PieceEntry[] {
    return [...this.standing.values()];
  }
  hasPart(part: number): boolean {
    return this.pieces.some((piece) => piece.part === part);
  }
  has(id: number): boolean {
    return this.standing.has(id) || this.aside?.id === id || this.reserved.has(id);
  }
  /** True when all rows are in live tables. */
  get isWhole(): boolean {
    return this.standing.size === 0 && this.aside === undefined;
  }

  /** Reserves consecutive ids for pieces. Returns the first. */
  reserve(count: number): number {
    const first = this.last + 1;
    while (this.last < first + count - 1) this.reserved.add(++this.last);
    return first;
  }

  /** Replaces swept pieces by the pieces with the remaining rows. Sweeps end in the order of their
   *  ids. */
  swept({ gone, lastId, left }: SweepEntry): void {
    for (const one of gone) this.standing.delete(one);
    for (const id of this.reserved) if (id <= lastId) this.reserved.delete(id);
    for (const piece of left) this.standing.set(piece.id, piece);
    this.last = Math.max(this.last, lastId);
  }

  /** Notes that record `first` was folded in, after `at` bytes of changelog, into the live tables
   *  of these parts. */
  grew(first: number, at: number, parts: Iterable<number>): void {
    for (const part of parts) if (!this.tables.has(part)) this.tables.set(part, { first, at });
  }

  /** Sets the table of a part aside, to become a piece; `seq` and `at` belong to the record that
   *  reports it. */
  detached(id: number, part: number, seq: number, at: number): void {
    invariant(this.aside === undefined, 'one table is aside at a time');
    this.aside = { id, part, ...(this.tables.get(part) ?? { first: seq, at }) };
    this.tables.delete(part);
    this.last = Math.max(this.last, id);
  }

  /** Notes that the piece is durable and has the rows. */
  spilled(piece: PieceEntry): void {
    if (this.aside?.id === piece.id) this.aside = undefined;
    this.standing.set(piece.id, piece);
    this.last = Math.max(this.last, piece.id);
  }

  /** Returns the table aside to its part: the process that wrote its piece has ended. */
  foldedBack(): void {
    if (this.aside === undefined) return;
    const { part, first, at } = this.aside;
    const since = this.tables.get(part);
    this.tables.set(part, since === undefined || first < since.first ? { first, at } : since);
    this.aside = undefined;
  }

  /** Notes that all windows that end at or before the watermark are durable in the sink. */
  fired(frontier: number, lastEndOf: LastEndOf): void {
    for (const part of this.tables.keys()) if (lastEndOf(part) <= frontier) this.tables.delete(part);
    for (const { id, part } of this.standing.values())
      if (lastEndOf(part) <= frontier) this.standing.delete(id);
    if (this.aside !== undefined && lastEndOf(this.aside.part) <= frontier) this.aside = undefined;
  }

  /** First record that a replay needs; `next` when it needs none of the existing records. */
  replayFrom(next: number): number {
    let from = Math.min(next, this.aside?.first ?? next);
    for (const { first } of this.tables.values()) from = Math.min(from, first);
    return from;
  }

  /** Parts whose tables need the changelog before byte `at`, oldest first; none while a table is
   *  aside. */
  olderThan(at: number): readonly number[] {
    if (this.aside !== undefined) return [];
    return [...this.tables]
      .filter(([, since]) => since.at < at)
      .sort(([, a], [, b]) => a.first - b.first)
      .map(([part]) => part);
  }
}
