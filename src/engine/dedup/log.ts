/** Keeps the identifiers of open windows durable in the changelog.
 *
 *  Each batch record has the identifiers that it added. When these records have grown beyond the
 *  identifiers that are left, all are copied into new records, some between two batches, so that a
 *  restart needs the records from the beginning of that copy on alone. */
import type { SideBytes } from '../output/side/sections.ts';
import type { DuplicateFilter } from './filter.ts';

export interface IdLogParts {
  readonly filter: Pick<DuplicateFilter, 'copies' | 'bytes'>;
  /** Appends a record with identifiers. Returns its number. */
  readonly append: (ids: SideBytes) => number;
  /** Bytes of changelog at which a copy is made at the earliest. */
  readonly bytesMin: number;
}

export class IdLog {
  private readonly parts: IdLogParts;
  /** First record that a restart needs; undefined: none. */
  private from: number | undefined;
  /** Bytes of the changelog before it. */
  private fromBytes: number;
  private copying:
    | { readonly parts: Iterator<SideBytes>; first: number | undefined; readonly bytes: number }
    | undefined;

  /** @param from first record that a restart needed @param bytes of the changelog since then */
  constructor(parts: IdLogParts, from: number | undefined, bytes: number) {
    this.parts = parts;
    this.from = from;
    this.fromBytes = bytes;
  }

  /** First record of the changelog that a restart needs; `next` if it needs no existing record. */
  replayFrom(next: number): number {
    return this.from ?? next;
  }

  /** Notes that a record has identifiers, after `bytes` of changelog. */
  applied(seq: number, bytes: number): void {
    if (this.from !== undefined) return;
    this.from = seq;
    this.fromBytes = bytes;
  }

  /** Copies a part of the identifiers if that is due. `next`: number of the next record; `bytes`:
   *  of the changelog so far. */
  advance(next: number, bytes: number): void {
    const { filter, append, bytesMin } = this.parts;
    if (this.from === undefined) return;
    if (this.copying === undefined) {
      if (bytes - this.fromBytes <= Math.max(bytesMin, filter.bytes)) return;
      this.copying = { parts: filter.copies(), first: undefined, bytes };
    }
    const { copying } = this;
    const part = copying.parts.next();
    copying.first ??= next;
    if (part.done !== true) {
      append(part.value);
      return;
    }
    this.from = copying.first;
    this.fromBytes = copying.bytes;
    this.copying = undefined;
  }
}
