/** Progress of the stream: computes the position that may be confirmed to the server.
 *
 *  Invariants: (1) a row counts as soon as it is received; (2) only the end of a transaction is a
 *  position, because the rows of one COPY share a position, and so do a BEGIN and its first row;
 *  (3) a position is confirmed when its rows and all earlier rows are done; (4) while a transaction
 *  is open or rows are in flight, no other position is confirmed.
 */

/** Consecutive received rows that are finished together. */
export interface Portion {
  readonly rows: number;
  done: boolean;
}

interface Ending {
  /** Number of rows received up to the end of the transaction. */
  readonly rows: number;
  readonly endLsn: bigint;
}

/** FIFO queue that removes its head without moving the other items. */
class Queue<T> {
  private items: T[] = [];
  private head = 0;

  push(item: T): void {
    this.items.push(item);
  }

  first(): T | undefined {
    return this.items[this.head];
  }

  shift(): void {
    this.head++;
    if (this.head > 1024 && this.head * 2 > this.items.length) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
  }

  get size(): number {
    return this.items.length - this.head;
  }
}

export class WalProgress {
  private received = 0;
  private done = 0;
  private open = false;
  private readonly portions = new Queue<Portion>();
  private readonly endings = new Queue<Ending>();
  private position = 0n;
  private ended = 0;

  /** Position below which everything is done; 0 until one is known. */
  get confirmed(): bigint {
    return this.position;
  }

  /** Number of rows received and not done. */
  get outstanding(): number {
    return this.received - this.done;
  }

  /** Number of transactions that ended and are not confirmed. */
  get unconfirmed(): number {
    return this.endings.size;
  }

  /** Number of transactions that ended. */
  get commits(): number {
    return this.ended;
  }

  begin(): void {
    this.open = true;
  }

  row(): void {
    this.received++;
  }

  commit(endLsn: bigint): void {
    this.open = false;
    this.ended++;
    this.endings.push({ rows: this.received, endLsn });
    this.advance();
  }

  /** Groups the next `rows` received rows. */
  portion(rows: number): Portion {
    const portion = { rows, done: false };
    this.portions.push(portion);
    return portion;
  }

  finish(portion: Portion): void {
    portion.done = true;
    for (let first = this.portions.first(); first?.done === true; first = this.portions.first()) {
      this.done += first.rows;
      this.portions.shift();
    }
    this.advance();
  }

  /** Reports that the server sent everything below `walEnd`; ignored while rows or transactions are
   *  open. */
  keepalive(walEnd: bigint): void {
    if (this.open || this.outstanding > 0 || this.endings.size > 0) return;
    if (walEnd > this.position) this.position = walEnd;
  }

  private advance(): void {
    for (
      let next = this.endings.first();
      next !== undefined && next.rows <= this.done;
      next = this.endings.first()
    ) {
      if (next.endLsn > this.position) this.position = next.endLsn;
      this.endings.shift();
    }
  }
}
