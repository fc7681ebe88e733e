/** Detection of idle partitions: those that hold every window back although no event arrives from
 *  them.
 *
 *  A partition is quiet while all of it was read, and while only invalid records and tombstones
 *  arrive from it. It is idle once it was quiet for the timeout without a valid event in between.
 *  The changelog has the decision before a result that depends on it leaves. */
import type { WatermarkGenerator } from './admission.ts';
import type { EventSource } from './events.ts';

/** Interval between two checks of all partitions. */
const CHECK_MS = 100;
/** Greatest time from an invalid record to the next one or to the reported end of the partition:
 *  the broker client reports an end after an empty fetch of 500 ms. */
const RECORD_MS_MAX = 1000;
/** Fraction of the timeout that one invalid record may count for. */
const RECORD_SHARE = 0.5;
const NEVER = Number.NEGATIVE_INFINITY;

interface Quiet {
  /** Number of valid events of the partition so far. */
  readonly valid: number;
  /** Monotonic ms since when the partition is quiet; time without knowledge of the partition is
   *  left out. */
  since: number;
  /** Next offset, and monotonic ms of its last advance. */
  position: number;
  movedAt: number;
  wasQuiet: boolean;
}

export class IdleWatch {
  private readonly watermarks: Pick<
    WatermarkGenerator,
    'mode' | 'partitionCount' | 'position' | 'validCount' | 'isIdle' | 'progress'
  >;
  private readonly source: Pick<EventSource, 'endOf'>;
  private readonly timeoutMs: number;
  private readonly recordMs: number;
  private readonly partitions = new Map<number, Quiet>();
  private nextCheck = 0;
  private lastCheck = 0;

  constructor(watermarks: IdleWatch['watermarks'], source: IdleWatch['source'], timeoutMs: number) {
    this.watermarks = watermarks;
    this.source = source;
    this.timeoutMs = timeoutMs;
    this.recordMs = Math.min(RECORD_MS_MAX, RECORD_SHARE * timeoutMs);
  }

  /** Excludes a time in which no partition was read. */
  unread(ms: number): void {
    this.lastCheck += ms;
    for (const one of this.partitions.values()) {
      one.since += ms;
      one.movedAt += ms;
    }
  }

  /** Returns the partitions that become idle now. The order matters where all become idle together,
   *  because the watermark stays where the last one leaves it: partitions without an event come
   *  first, and the partition with the least event time comes last, so that none of its events
   *  becomes late because the others are silent. */
  due(now: number): readonly number[] {
    const { watermarks, timeoutMs } = this;
    // A global watermark waits for no partition.
    if (timeoutMs === 0 || watermarks.mode === 'global' || now < this.nextCheck) return [];
    this.nextCheck = now + CHECK_MS;
    const due: number[] = [];
    for (let partition = 0; partition < watermarks.partitionCount; partition++)
      if (this.isDue(partition, now)) due.push(partition);
    this.lastCheck = now;
    if (due.length === 0) return due;
    const seen = watermarks.progress().map(({ maxSeenTs }) => maxSeenTs);
    const isEmpty = (partition: number): boolean => seen[partition] === NEVER;
    // No result has left while a partition without an event holds all windows back; if it were
    // last, no result would ever leave.
    const isHeld = seen.some((_, one) => isEmpty(one) && !watermarks.isIdle(one) && !due.includes(one));
    if (isHeld) return due.filter(isEmpty);
    const rank = (partition: number): number => (isEmpty(partition) ? NEVER : -(seen[partition] as number));
    return due.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
  }

  private isDue(partition: number, now: number): boolean {
    const { watermarks, source, partitions } = this;
    if (watermarks.isIdle(partition)) {
      partitions.delete(partition);
      return false;
    }
    const [valid, position] = [watermarks.validCount(partition), watermarks.position(partition)];
    const isAtEnd = source.endOf(partition) >= position;
    const one = partitions.get(partition);
    if (one === undefined || one.valid !== valid) {
      partitions.set(partition, { valid, since: now, position, movedAt: NEVER, wasQuiet: isAtEnd });
      return false;
    }
    if (position !== one.position) {
      one.position = position;
      one.movedAt = now;
    }
    const isQuiet = isAtEnd || now - one.movedAt <= this.recordMs;
    // The time since the last check counts when the partition was quiet at both checks.
    if (!isQuiet || !one.wasQuiet) one.since += now - this.lastCheck;
    one.wasQuiet = isQuiet;
    return isQuiet && now - one.since >= this.timeoutMs;
  }
}
