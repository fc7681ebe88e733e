/** Where a topic ended when the run started: what `-exit-at-end` waits for. */
import type { TopicPartition } from '../../io/kafka/port.ts';

export class EndTracker {
  private readonly open = new Map<number, bigint>();

  /** @param ends next offset of each partition at the start; a partition without records is done at once */
  constructor(ends: ReadonlyArray<TopicPartition & { readonly low: bigint; readonly high: bigint }>) {
    for (const { partition, low, high } of ends) if (high > low) this.open.set(partition, high);
  }

  /** `nextOffset` is the next one to read: everything before it is done with. */
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
