/** Transactions that a server streams before they end (protocol version 2): their rows are held until it says that they were
 *  committed. The relay asks for version 1, where only committed transactions are sent; a server or proxy that streams all the
 *  same makes nothing visible too early. */
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

  /** @param rowsMax rows held of all transactions together */
  constructor(rowsMax: number) {
    this.rowsMax = rowsMax;
  }

  /** Whether a block of a streamed transaction is open: a row that comes belongs to it. */
  get isOpen(): boolean {
    return this.open !== undefined;
  }

  /** Rows held. */
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

  /** @throws wal_undecodable above the limit */
  add(row: OutboxRow, subXid: number): void {
    if (this.count >= this.rowsMax)
      throw outboxError(
        'wal_undecodable',
        `more than ${this.rowsMax} rows of transactions that have not ended`,
        {
          next: 'take what forces streaming=on out of the way between relay and server',
        },
      );
    this.held.get(this.open as number)?.push({ subXid, row });
    this.count++;
  }

  /** The rows of the transaction in their order; it is held no more. */
  commit(xid: number): readonly OutboxRow[] {
    const rows = this.held.get(xid) ?? [];
    this.held.delete(xid);
    this.count -= rows.length;
    return rows.map(({ row }) => row);
  }

  /** Forgets a part of the transaction, or all of it where both are the same. */
  abort(xid: number, subXid: number): void {
    const rows = this.held.get(xid) ?? [];
    const kept = xid === subXid ? [] : rows.filter((one) => one.subXid !== subXid);
    this.count -= rows.length - kept.length;
    if (xid === subXid) this.held.delete(xid);
    else this.held.set(xid, kept);
  }
}
