/** Held partitions: partitions that are paused because a topic refuses one of their records as too
 *  large.
 *  Invariants: (1) the position of a held partition stays before its first undelivered record, so
 *  that a restart reads that record again;
 *  (2) an undelivered record stays in memory unchanged until its topic accepts it or the partition
 *  is revoked. */

/** Record that could not be delivered. */
export interface HeldRow {
  readonly partition: number;
  readonly offset: bigint;
  /** Topic that refuses the record. */
  readonly topic: string;
  readonly bytes: number;
  /** Sends the record again. True: delivered. @throws not_delivered */
  readonly retry: () => Promise<boolean>;
}

interface Held {
  readonly rows: HeldRow[];
  /** Position of the partition once its rows are delivered. */
  next: bigint;
}

const RETRY_MS = 1000;
const RETRY_MS_MAX = 30_000;

export class HeldPartitions {
  private readonly byPartition = new Map<number, Held>();
  private delayMs = RETRY_MS;
  private retryAtMs = 0;

  has(partition: number): boolean {
    return this.byPartition.has(partition);
  }

  /** @returns true if the partition was not held before */
  hold(row: HeldRow, nowMs: number): boolean {
    const held = this.byPartition.get(row.partition);
    if (held !== undefined) {
      held.rows.push(row);
      return false;
    }
    if (this.byPartition.size === 0) this.wait(nowMs, RETRY_MS);
    this.byPartition.set(row.partition, { rows: [row], next: row.offset });
    return true;
  }

  /** Notes that every record before `next` was received. False: no undelivered record precedes
   *  `next`, so the caller may advance the position. */
  advance(partition: number, next: bigint): boolean {
    const held = this.byPartition.get(partition);
    if (held === undefined || next <= (held.rows[0] as HeldRow).offset) return false;
    held.next = next;
    return true;
  }

  drop(partition: number): boolean {
    return this.byPartition.delete(partition);
  }

  /** Reason of the first held partition; undefined if no partition is held. */
  reason(): string | undefined {
    const [held] = this.byPartition.values();
    const row = held?.rows[0];
    return row === undefined ? undefined : reasonOf(row);
  }

  isDue(nowMs: number): boolean {
    return this.byPartition.size > 0 && nowMs >= this.retryAtMs;
  }

  /** Sends every held record again.
   *  @returns the partitions that are no longer held
   *  @throws not_delivered */
  async retry(nowMs: number): Promise<ReadonlyArray<{ readonly partition: number; readonly next: bigint }>> {
    const released: Array<{ partition: number; next: bigint }> = [];
    for (const [partition, held] of [...this.byPartition]) {
      let first = held.rows[0];
      while (first !== undefined && (await first.retry())) {
        held.rows.shift();
        first = held.rows[0];
      }
      // The partition may have been revoked during the retry.
      if (first !== undefined || this.byPartition.get(partition) !== held) continue;
      this.byPartition.delete(partition);
      released.push({ partition, next: held.next });
    }
    this.wait(nowMs, released.length > 0 ? RETRY_MS : Math.min(this.delayMs * 2, RETRY_MS_MAX));
    return released;
  }

  private wait(nowMs: number, delayMs: number): void {
    this.delayMs = delayMs;
    this.retryAtMs = nowMs + delayMs;
  }
}

/** Sentence for /ready and the log. */
export const reasonOf = ({ partition, offset, topic, bytes }: HeldRow): string =>
  `partition ${partition} waits at offset ${offset}: topic ${topic} refuses the record of ${bytes} bytes as too large; raise its max.message.bytes`;
