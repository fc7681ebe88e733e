/** Idle partitions: partitions without events, which would otherwise hold every window back.
 *
 *  A partition is quiet while all of it has been read, or while only invalid records and tombstones
 *  arrive from it. It becomes idle after it was quiet for the timeout without a valid event. The
 *  changelog records the decision before a result that depends on it leaves the process. */
import type { WatermarkGenerator } from './admission.ts';
import type { EventSource } from './events.ts';

/** Interval between two checks of all partitions. */
const CHECK_MS = 100;
/** Longest time from an invalid record to the next record or to the end of the partition: the
 *  broker client reports an end after a fetch that waited 500 ms. */
const RECORD_MS_MAX = 1000;
/** Share of the timeout that one invalid record may account for. */
const RECORD_SHARE = 0.5;
const NEVER = Number.NEGATIVE_INFINITY;

interface Quiet {
  /** Number of valid events of the partition so far. */
  readonly valid: number;
  /** Monotonic ms at which the quiet time began, shifted by time that does not count. */
  since: number;
  /** Next offset; `movedAt`: monotonic ms of its last change. */
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

  /** Excludes time in which no partition was read. */
  unread(ms: number): void {
    this.lastCheck += ms;
    for (const quiet of this.partitions.values()) {
      quiet.since += ms;
      quiet.movedAt += ms;
    }
  }

  /** Returns the partitions that become idle now. If all become idle together, the frontier stops
   *  where the last of them leaves it. So the order is: partitions without an event first, then by
   *  falling event time. The partition that lags most is last, so none of its events becomes late
   *  because the others are silent. */
  due(now: number): readonly number[] {
    const { watermarks, timeoutMs } = this;
    // No partition holds a global watermark back.
    if (timeoutMs === 0 || watermarks.mode === 'global' || now < this.nextCheck) return [];
    this.nextCheck = now + CHECK_MS;
    const due: number[] = [];
    for (let partition = 0; partition < watermarks.partitionCount; partition++)
      if (this.isDue(partition, now)) due.push(partition);
    this.lastCheck = now;
    if (due.length === 0) return due;
    const seen = watermarks.progress().map(({ maxSeenTs }) => maxSeenTs);
    const isEmpty = (partition: number): boolean => seen[partition] === NEVER;
    // An empty partition that is not due holds the frontier at -Infinity. If it became idle last,
    // the frontier would stay there forever, so only empty partitions may become idle before it.
    const isHeld = seen.some((_, p) => isEmpty(p) && !watermarks.isIdle(p) && !due.includes(p));
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
    const quiet = partitions.get(partition);
    if (quiet === undefined || quiet.valid !== valid) {
      partitions.set(partition, { valid, since: now, position, movedAt: NEVER, wasQuiet: isAtEnd });
      return false;
    }
    if (position !== quiet.position) {
      quiet.position = position;
      quiet.movedAt = now;
    }
    const isQuiet = isAtEnd || now - quiet.movedAt <= this.recordMs;
    // The time since the last check counts if the partition was quiet then and is quiet now.
    if (!isQuiet || !quiet.wasQuiet) quiet.since += now - this.lastCheck;
    quiet.wasQuiet = isQuiet;
    return isQuiet && now - quiet.since >= this.timeoutMs;
  }
}
