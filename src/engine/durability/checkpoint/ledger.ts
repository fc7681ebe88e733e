/** Where the rows of a state on disk stand: in memory since which record of the changelog, or in
 *  which piece.
 *
 *  The run and a replay keep it alike, from the same records, so both know from which record on the
 *  changelog is needed. Invariants: (1) what was folded into a part is in its table, in the one
 *  table that is aside, or in a piece; (2) records from `replayFrom` on are enough to build every
 *  table again.
 */
import { invariant } from '../../../core/errors.ts';
import type { PieceEntry } from '../spill/pieces.ts';

/** The first record that is in a table, and how much of the changelog came before it. */
interface Since {
  readonly first: number;
  readonly at: number;
}

/** Sessions of some pieces that ended by a frontier are durable in the sink, the others are in
 *  other pieces. */
export interface SweepEntry {
  readonly frontier: number;
  readonly gone: readonly number[];
  /** Greatest of the ids that it had for what is left. */
  readonly lastId: number;
  readonly left: readonly PieceEntry[];
}

type LastEndOf = (part: number) => number;

export class Ledger {
  /** By part: rows in memory, live or in order. */
  private readonly tables = new Map<number, Since>();
  /** Detached, and not yet a piece. */
  private aside: (Since & { readonly id: number; readonly part: number }) | undefined;
  private readonly standing = new Map<number, PieceEntry>();
  /** Ids of pieces that are not named in the changelog yet. */
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
  /** Piece that the table which is aside becomes. */
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
  /** Whether all rows are in live tables. */
  get isWhole(): boolean {
    return this.standing.size === 0 && this.aside === undefined;
  }

  /** Ids of pieces that may be written, one behind the other: the first. */
  reserve(count: number): number {
    const first = this.last + 1;
    while (this.last < first + count - 1) this.reserved.add(++this.last);
    return first;
  }

  /** Pieces have what is left of others. Sweeps end in the order in which they had their ids. */
  swept({ gone, lastId, left }: SweepEntry): void {
    for (const one of gone) this.standing.delete(one);
    for (const id of this.reserved) if (id <= lastId) this.reserved.delete(id);
    for (const piece of left) this.standing.set(piece.id, piece);
    this.last = Math.max(this.last, lastId);
  }

  /** Record `first` was folded in, behind `at` bytes of changelog; these parts have live tables. */
  grew(first: number, at: number, parts: Iterable<number>): void {
    for (const part of parts) if (!this.tables.has(part)) this.tables.set(part, { first, at });
  }

  /** The table of a part is set aside, to become a piece; `seq` and `at` of the record that says
   *  so. */
  detached(id: number, part: number, seq: number, at: number): void {
    invariant(this.aside === undefined, 'one table is aside at a time');
    this.aside = { id, part, ...(this.tables.get(part) ?? { first: seq, at }) };
    this.tables.delete(part);
    this.last = Math.max(this.last, id);
  }

  /** The piece is durable and has the rows. */
  spilled(piece: PieceEntry): void {
    if (this.aside?.id === piece.id) this.aside = undefined;
    this.standing.set(piece.id, piece);
    this.last = Math.max(this.last, piece.id);
  }

  /** What is aside goes back: whoever wrote it died. */
  foldedBack(): void {
    if (this.aside === undefined) return;
    const { part, first, at } = this.aside;
    const since = this.tables.get(part);
    this.tables.set(part, since === undefined || first < since.first ? { first, at } : since);
    this.aside = undefined;
  }

  /** Everything that ends at or before the frontier is durable in the sink. */
  fired(frontier: number, lastEndOf: LastEndOf): void {
    for (const part of this.tables.keys()) if (lastEndOf(part) <= frontier) this.tables.delete(part);
    for (const { id, part } of this.standing.values())
      if (lastEndOf(part) <= frontier) this.standing.delete(id);
    if (this.aside !== undefined && lastEndOf(this.aside.part) <= frontier) this.aside = undefined;
  }

  /** First record that a replay needs; `next` when it needs none of those there are. */
  replayFrom(next: number): number {
    let from = Math.min(next, this.aside?.first ?? next);
    for (const { first } of this.tables.values()) from = Math.min(from, first);
    return from;
  }

  /** Parts whose tables need the changelog from before byte `at`, the oldest first; none while one
   *  is aside. */
  olderThan(at: number): readonly number[] {
    if (this.aside !== undefined) return [];
    return [...this.tables]
      .filter(([, since]) => since.at < at)
      .sort(([, a], [, b]) => a.first - b.first)
      .map(([part]) => part);
  }
}
