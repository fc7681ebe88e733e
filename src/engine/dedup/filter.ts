/** Removes duplicates from the admitted rows of a step, and encodes the identifiers that the step
 *  added, for the changelog.
 *
 *  Encoding, each padded to 8: account_id u64 | event_ts i64 | bytes of the identifier u32 | zero
 *  u32 | identifier, all little-endian. */
import type { AdmittedBatch } from '../../core/layout/admitted-batch.ts';
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { formatSize } from '../../core/quantity.ts';
import { isEventTs } from '../../core/time.ts';
import { engineError } from '../errors.ts';
import { padded, type SideBytes, viewOf } from '../output/side/sections.ts';
import { ELEMENT_ID_BYTES_MAX } from '../source/list/rows.ts';
import { EventIds } from './ids.ts';
import type { SeenId, SeenIds } from './seen.ts';

const HEAD_BYTES = 24;
/** Bytes of identifiers that one changelog record of a copy has, approximately. */
const COPY_BYTES = 256 * 1024;

/** Identifier with the 64 bits of its key. */
export interface SavedId extends Omit<SeenId, 'key'> {
  readonly accountId: bigint;
}

export class DuplicateFilter {
  private readonly seen: SeenIds;
  private readonly bytesMax: number;
  private readonly added: SavedId[] = [];

  /** @param bytesMax memory for identifiers; Infinity: no limit */
  constructor(seen: SeenIds, bytesMax: number) {
    this.seen = seen;
    this.bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.seen.bytes;
  }
  get count(): number {
    return this.seen.count;
  }

  /** Keeps the first row of each identifier in `admitted`. Returns the number of duplicates; the
   *  identifiers of the other rows are returned by `takeAdded`. */
  apply(events: EventBatch, admitted: AdmittedBatch): number {
    const { row: rows, slice } = admitted.columns;
    const { eventTs, accountId } = events.columns;
    const ids = EventIds.of(events);
    let kept = 0;
    for (let i = 0; i < admitted.rowCount; i++) {
      const row = rows[i] as number;
      const account = accountId[row] as bigint;
      const [id, at] = [ids.text(row), Number(eventTs[row])];
      if (!this.seen.add(String(account), id, at)) continue;
      this.added.push({ accountId: account, id, eventTs: at });
      if (kept < i) {
        rows[kept] = row;
        slice[kept] = slice[i] as bigint;
      }
      kept++;
    }
    const duplicates = admitted.rowCount - kept;
    admitted.rowCount = kept;
    return duplicates;
  }

  /** Encodes the identifiers that were added since the last call; undefined for none. */
  takeAdded(): SideBytes | undefined {
    const added = this.added.splice(0);
    return added.length === 0 ? undefined : encodeIds(added);
  }

  /** Forgets identifiers of ended windows: some, or as many as the limit requires.
   *  @throws dedup_full */
  expire(frontier: number): void {
    let isDone = this.seen.expire(frontier);
    while (!isDone && this.seen.bytes > this.bytesMax) isDone = this.seen.expire(frontier);
    if (this.seen.bytes <= this.bytesMax) return;
    throw engineError(
      'dedup_full',
      `the ${this.seen.count} identifiers of open windows need more than ${formatSize(this.bytesMax)}`,
      { next: 'restart with a larger -mem-budget, or without one (-state=mem); the run then continues' },
    );
  }

  /** Adds the identifiers of a changelog record, which were decoded before. */
  restore(saved: Iterable<SavedId>): void {
    for (const { accountId, ...seen } of saved) this.seen.restore({ ...seen, key: String(accountId) });
  }

  /** Copies all identifiers, in parts of about COPY_BYTES; see SeenIds.all. */
  *copies(): Iterator<SideBytes> {
    let part: SavedId[] = [];
    let bytes = 0;
    const all = this.seen.all();
    for (let next = all.next(); next.done !== true; next = all.next()) {
      const { key, ...seen } = next.value;
      part.push({ ...seen, accountId: BigInt(key) });
      bytes += HEAD_BYTES + seen.id.length;
      if (bytes < COPY_BYTES) continue;
      yield encodeIds(part);
      part = [];
      bytes = 0;
    }
    if (part.length > 0) yield encodeIds(part);
  }
}

/** REQUIRES: at least one identifier. */
export function encodeIds(saved: readonly SavedId[]): SideBytes {
  const into = Buffer.alloc(saved.reduce((sum, { id }) => sum + padded(HEAD_BYTES + id.length), 0));
  let at = 0;
  for (const { accountId, eventTs, id } of saved) {
    into.writeBigUInt64LE(accountId, at);
    into.writeBigInt64LE(BigInt(eventTs), at + 8);
    into.writeUInt32LE(id.length, at + 16);
    into.write(id, at + HEAD_BYTES, 'latin1');
    at += padded(HEAD_BYTES + id.length);
  }
  return { count: saved.length, bytes: into };
}

/** Decodes identifiers, or says why they are invalid. Never throws. */
export function decodeIds({
  count,
  bytes,
}: SideBytes): { readonly copies: readonly SavedId[] } | { readonly fault: string } {
  const view = viewOf(bytes);
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const copies: SavedId[] = [];
  let at = 0;
  for (let i = 0; i < count; i++) {
    if (bytes.length - at < HEAD_BYTES) return { fault: 'its identifiers are cut short' };
    const length = view.getUint32(at + 16, true);
    const end = at + HEAD_BYTES + length;
    const isSound =
      length >= 1 && length <= ELEMENT_ID_BYTES_MAX + 1 && isEventTs(view.getInt32(at + 12, true));
    if (!isSound || end > bytes.length) return { fault: `identifier ${i} is invalid` };
    copies.push({
      accountId: view.getBigUint64(at, true),
      eventTs: Number(view.getBigInt64(at + 8, true)),
      id: text.toString('latin1', at + HEAD_BYTES, end),
    });
    at += padded(HEAD_BYTES + length);
  }
  return at === bytes.length
    ? { copies }
    : { fault: `its identifiers end at byte ${at}, not ${bytes.length}` };
}
