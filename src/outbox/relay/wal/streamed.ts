/** Buffer of transactions that a server streams before they end (protocol version 2): it holds
 *  their rows until the commit. The relay requests version 1, which sends only committed
 *  transactions. The buffer keeps uncommitted rows invisible if a server or proxy streams
 *  nevertheless. */
import { outboxError } from '../../errors.ts';
import type { OutboxRow } from '../store.ts';

interface Held {
  readonly subXid: number;
  readonly row: OutboxRow;
}

export class StreamedTransactions {
  private readonly rowsMax: number;
  private readonly held = new Map<number, Held[]>();
  private open: number | undefined;
  private count = 0;

  /** Creates a buffer. @param rowsMax limit of the rows of all transactions together */
  constructor(rowsMax: number) {
    this.rowsMax = rowsMax;
  }

  /** True inside of a block of a streamed transaction, to which the next rows belong. */
  get isOpen(): boolean {
    return this.open !== undefined;
  }

  /** Number of rows held. */
  get size(): number {
    return this.count;
  }

  start(xid: number): void {
    this.open = xid;
    if (!this.held.has(xid)) this.held.set(xid, []);
  }

  stop(): void {
    this.open = undefined;
  }

  /** Holds a row. @throws wal_undecodable above the limit */
  add(row: OutboxRow, subXid: number): void {
    if (this.count >= this.rowsMax)
      throw outboxError('wal_undecodable', `the open transactions have more than ${this.rowsMax} rows`, {
        next: 'remove the server setting or proxy that forces streaming=on',
      });
    this.held.get(this.open as number)?.push({ subXid, row });
    this.count++;
  }

  /** Removes the transaction and returns its rows in order. */
  commit(xid: number): readonly OutboxRow[] {
    const rows = this.held.get(xid) ?? [];
    this.held.delete(xid);
    this.count -= rows.length;
    return rows.map(({ row }) => row);
  }

  /** Drops the rows of a subtransaction, or of the whole transaction where both ids are the
   *  same. */
  abort(xid: number, subXid: number): void {
    const rows = this.held.get(xid) ?? [];
    const kept = xid === subXid ? [] : rows.filter((one) => one.subXid !== subXid);
    this.count -= rows.length - kept.length;
    if (xid === subXid) this.held.delete(xid);
    else this.held.set(xid, kept);
  }
}
