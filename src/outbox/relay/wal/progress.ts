/** How far the stream is done: which position may be confirmed.
 *
 *  Invariants: (1) a row counts from the moment it is received, not from the moment somebody works on it; (2) only the end of a
 *  transaction is a position, because rows of one COPY, and a BEGIN with its first row, share theirs; (3) it is confirmed
 *  when its rows and all rows received before them are done; (4) while anything is open or under way nothing else is.
 */

/** Rows received in a row, done together. */
export interface Portion {
  readonly rows: number;
  done: boolean;
}

interface Ending {
  /** Rows received up to its end. */
  readonly rows: number;
  readonly endLsn: bigint;
}

/** A queue whose head is taken without moving the rest. */
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

  /** Everything below it is done. 0 until something is known. */
  get confirmed(): bigint {
    return this.position;
  }

  /** Rows received and not done. */
  get outstanding(): number {
    return this.received - this.done;
  }

  /** Transactions that ended and are not confirmed. */
  get unconfirmed(): number {
    return this.endings.size;
  }

  /** Transactions that ended. */
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

  /** The next `rows` received rows are worked on together. */
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

  /** Everything below `walEnd` was sent; it concerns us only where nothing is left of it. */
  quiet(walEnd: bigint): void {
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
