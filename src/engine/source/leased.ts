/** Decorator of a source that returns rows only while the lease covers every partition. Rows that
 *  were read ahead are kept until the lease is complete again. */

import type { Bounds, EventRows, EventSource, Receipt } from './events.ts';
import type { PartitionLease } from './group.ts';

/** Source that returns rows only while the lease on its partitions is complete. Rows that were
 *  read ahead wait until then.
 */
export class LeasedSource implements EventSource {
  private readonly source: EventSource;
  private readonly lease: PartitionLease;
  private readonly sleep: (ms: number) => Promise<void>;
  /** Rows that arrived while the lease was being lost. */
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

  /** Only the partitions that the group has already assigned: a partition without lease would stop
   *  the reading. */
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

  /** @throws broker_forbidden when the group refuses this process for good */
  async next(waitMs: number): Promise<EventRows | undefined> {
    this.lease.check();
    if (!this.isHeld) {
      await this.sleep(waitMs);
      return undefined;
    }
    const rows = this.kept ?? (await this.source.next(waitMs));
    this.kept = this.isHeld ? undefined : rows;
    return this.isHeld ? rows : undefined;
  }

  /** -1 without the lease, because another process may be reading: the end of a partition is
   *  unknown then, so no partition becomes idle. */
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
