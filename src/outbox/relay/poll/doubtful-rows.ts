/** Doubtful rows: rows that were in flight when the database may have lost them. A read does not
 *  leave out their ids, which may belong to other rows since. A row is doubtful until the table has
 *  shown it again, or its outcome is known. */
import type { OutboxRow } from '../store.ts';

/** Row of a read, without its payload. */
export type ReadRow = Pick<OutboxRow, 'id' | 'msgId'>;

export class DoubtfulRows {
  /** Messages of each id. */
  private readonly messages = new Map<bigint, Set<string>>();

  get size(): number {
    return this.messages.size;
  }

  has(id: bigint): boolean {
    return this.messages.has(id);
  }

  add({ id, msgId }: ReadRow): void {
    const known = this.messages.get(id);
    if (known === undefined) this.messages.set(id, new Set([msgId]));
    else known.add(msgId);
  }

  remove({ id, msgId }: ReadRow): void {
    const known = this.messages.get(id);
    if (known?.delete(msgId) === true && known.size === 0) this.messages.delete(id);
  }

  /** Ends the doubt about the rows of a read that has settled. A row of another unsettled read may
   *  still be in flight: a read after the loss may have shown it too.
   *  @param unsettled the other reads */
  settled(read: readonly ReadRow[], unsettled: Iterable<readonly ReadRow[]>): void {
    const done = new DoubtfulRows();
    for (const row of read) done.add(row);
    for (const other of unsettled) for (const row of other) done.remove(row);
    for (const [id, messages] of done.messages) for (const msgId of messages) this.remove({ id, msgId });
  }
}
