/** Event-time watermarks with bounded out-of-orderness, one a partition.
 *
 *  For partition p: watermark = running max of event_ts - skew, frontier = watermark - lateness. The engine's frontier
 *  is the minimum over the partitions.
 *  Invariants: (1) a watermark never falls; (2) it advances row by row, so a verdict does not depend on where batches
 *  are cut; (3) a partition without an event holds the frontier at -Infinity; (4) an event admitted at frontier f_p has
 *  event_ts >= f_p >= frontier, so it cannot fall into a window that ended at or before the frontier.
 */
import { invariant } from './errors.ts';

export interface WatermarkGenerator {
  readonly mode: string;
  readonly partitionCount: number;
  /** Takes one row in arrival order: advances the partition's watermark, then says whether the row is in time. */
  admit(partition: number, eventTs: number): boolean;
  /** min over partitions of watermark - lateness: every window that ends at or before it is final. */
  readonly frontier: number;
  /** min over partitions of the watermark; -Infinity while one of them has had no event. */
  watermark(): number;
  watermarkOf(partition: number): number;
  /** Greatest event_ts seen a partition, -Infinity before the first: all there is to save. */
  maxSeen(): Float64Array;
  restore(maxSeen: ArrayLike<number>): void;
}

export class PartitionWatermarks implements WatermarkGenerator {
  readonly mode = 'partition';
  readonly partitionCount: number;
  frontier = Number.NEGATIVE_INFINITY;
  private readonly skewMs: number;
  private readonly delayMs: number;
  private readonly seen: Float64Array;
  private least = Number.NEGATIVE_INFINITY;

  constructor(partitionCount: number, skewMs: number, latenessMs: number) {
    invariant(
      partitionCount > 0 && skewMs >= 0 && latenessMs >= 0,
      'watermarks take partitions, skew and lateness',
    );
    this.partitionCount = partitionCount;
    this.skewMs = skewMs;
    this.delayMs = skewMs + latenessMs;
    this.seen = new Float64Array(partitionCount).fill(Number.NEGATIVE_INFINITY);
  }

  admit(partition: number, eventTs: number): boolean {
    const before = this.seen[partition] as number;
    if (eventTs <= before) return eventTs >= before - this.delayMs;
    this.seen[partition] = eventTs;
    if (before === this.least) this.findLeast();
    return true;
  }

  watermark(): number {
    return this.least - this.skewMs;
  }

  watermarkOf(partition: number): number {
    return (this.seen[partition] as number) - this.skewMs;
  }

  maxSeen(): Float64Array {
    return this.seen.slice();
  }

  restore(maxSeen: ArrayLike<number>): void {
    invariant(maxSeen.length === this.partitionCount, 'watermarks are restored for every partition');
    this.seen.set(maxSeen);
    this.findLeast();
  }

  private findLeast(): void {
    let least = Number.POSITIVE_INFINITY;
    for (let p = 0; p < this.partitionCount; p++) {
      const seen = this.seen[p] as number;
      if (seen < least) least = seen;
    }
    this.least = least;
    this.frontier = least - this.delayMs;
  }
}
