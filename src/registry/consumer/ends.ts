/** End offsets of a topic at the start of the run, for `-exit-at-end`. */
import type { TopicPartition } from '../../io/kafka/port.ts';

export class EndTracker {
  private readonly open = new Map<number, bigint>();

  /** @param ends watermarks of each partition at the start; an empty partition is done immediately
   */
  constructor(ends: ReadonlyArray<TopicPartition & { readonly low: bigint; readonly high: bigint }>) {
    for (const { partition, low, high } of ends) if (high > low) this.open.set(partition, high);
  }

  /** @param nextOffset next offset to read: every record before it is finished */
  reached(partition: number, nextOffset: bigint): void {
    const end = this.open.get(partition);
    if (end !== undefined && nextOffset >= end) this.open.delete(partition);
  }

  done(): boolean {
    return this.open.size === 0;
  }

  /** Partitions not yet at their end. */
  remaining(): readonly number[] {
    return [...this.open.keys()];
  }
}
