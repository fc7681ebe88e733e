/** Source that returns rows only while the lease on its partitions is complete. Rows that were read
 *  ahead wait until then. */

import type { Bounds, EventRows, EventSource, Receipt } from './events.ts';
import type { PartitionLease } from './group.ts';

/** Source that returns rows only while the lease on its partitions is complete. Rows that were
 *  read ahead wait until then.
 */
export class LeasedSource implements EventSource {
  private readonly source: EventSource;
  private readonly lease: PartitionLease;
  private readonly sleep: (ms: number) => Promise<void>;
  /** Rows that arrived while the lease was lost. */
  private kept: EventRows | undefined;

  constructor(source: EventSource, lease: PartitionLease, sleep: (ms: number) => Promise<void>) {
    this.source = source;
    this.lease = lease;
    this.sleep = sleep;
  }

  get partitionCount(): number {
    return this.source.partitionCount;
  }
  get receipts(): readonly Receipt[] {
    return this.source.receipts;
  }

  bounds(): Promise<readonly Bounds[]> {
    return this.source.bounds();
  }

  /** Only partitions that the group has assigned, so that a new one does not stop the reading. */
  async added(): Promise<readonly number[]> {
    const lows = await this.source.added();
    const known = this.partitionCount;
    const missing = lows.findIndex((_, i) => !this.lease.has(known + i));
    return missing < 0 ? lows : lows.slice(0, missing);
  }

  start(offsets: readonly number[]): Promise<void> {
    this.kept = undefined;
    return this.source.start(offsets);
  }

  async next(waitMs: number): Promise<EventRows | undefined> {
    if (!this.isHeld) {
      await this.sleep(waitMs);
      return undefined;
    }
    const rows = this.kept ?? (await this.source.next(waitMs));
    this.kept = this.isHeld ? undefined : rows;
    return this.isHeld ? rows : undefined;
  }

  /** While another engine may be reading, the end of a partition is unknown, so no partition
   *  becomes idle. */
  endOf(partition: number): number {
    return this.isHeld ? this.source.endOf(partition) : -1;
  }

  saved(offsets: readonly number[]): void {
    this.lease.commit(offsets);
  }

  stop(): Promise<void> {
    return this.source.stop();
  }

  private get isHeld(): boolean {
    return this.lease.holds(this.partitionCount);
  }
}
