/** Idle partitions: partitions without events, which would otherwise hold every window back.
 *
 *  A partition is quiet while all of it has been read, or while only invalid records and tombstones
 *  arrive from it. It becomes idle after it was quiet for the timeout without a valid event. The
 *  changelog records the decision before a result that depends on it leaves the process.
 *
 *  Invariant: time at the end of a partition counts only before an answer of the broker that has
 *  the same end. A broker that does not answer, or a process that was suspended, therefore proves
 *  no silence: the records of that time may be unread. */
import type { WatermarkGenerator } from './admission.ts';
import type { EventSource } from './events.ts';
import type { LagWatch } from './lag.ts';

/** Interval between two checks of all partitions. */
const CHECK_MS = 100;
/** Longest time that one check may add. Also the longest time from an invalid record to the next
 *  record or to the end of the partition: the broker client reports an end after a fetch that
 *  waited 500 ms. */
const STEP_MS_MAX = 1000;
/** Longest time that one answer of the broker may prove. */
const PROVEN_MS_MAX = 2000;
/** Largest share of the timeout that one check, one invalid record or one answer accounts for. */
const SHARE_MAX = 0.5;
/** Queries in the time that one answer may prove, because an answer takes time to arrive. */
const QUERIES = 2;
/** Time after its arrival from which on an answer proves nothing. A longer pause between two checks
 *  is a suspension, and answers to queries from before it prove nothing either. */
const ANSWER_MS_MAX = 5000;
const NEVER = Number.NEGATIVE_INFINITY;

interface Quiet {
  /** Number of valid events of the partition so far. */
  readonly valid: number;
  /** Next offset; `movedAt`: monotonic ms of its last change. */
  position: number;
  movedAt: number;
  wasQuiet: boolean;
  /** Quiet time that counts. */
  provenMs: number;
  /** Time at the end that no answer of the broker has proven yet. */
  pendingMs: number;
}

export class IdleWatch {
  private readonly watermarks: Pick<
    WatermarkGenerator,
    'mode' | 'partitionCount' | 'position' | 'validCount' | 'isIdle' | 'progress'
  >;
  private readonly source: Pick<EventSource, 'endOf'>;
  private readonly lag: Pick<LagWatch, 'answer'>;
  private readonly timeoutMs: number;
  private readonly stepMs: number;
  private readonly provenMsMax: number;
  private readonly partitions = new Map<number, Quiet>();
  private nextCheck = 0;
  private lastCheck = 0;
  /** End of the last suspension. */
  private resumedAt = NEVER;
  private isWaiting = false;

  constructor(
    watermarks: IdleWatch['watermarks'],
    source: IdleWatch['source'],
    lag: IdleWatch['lag'],
    timeoutMs: number,
  ) {
    this.watermarks = watermarks;
    this.source = source;
    this.lag = lag;
    this.timeoutMs = timeoutMs;
    this.stepMs = Math.min(STEP_MS_MAX, SHARE_MAX * timeoutMs);
    this.provenMsMax = Math.min(PROVEN_MS_MAX, SHARE_MAX * timeoutMs);
  }

  /** Interval at which answers of the broker are needed; Infinity: no partition depends on them. */
  get queryMs(): number {
    return this.isWaiting ? Math.max(CHECK_MS, this.provenMsMax / QUERIES) : Number.POSITIVE_INFINITY;
  }

  /** Excludes time in which no partition was read. */
  unread(ms: number): void {
    this.lastCheck += ms;
    for (const quiet of this.partitions.values()) quiet.movedAt += ms;
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
    this.isWaiting = false;
    if (now - this.lastCheck > ANSWER_MS_MAX) this.resumedAt = now;
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
    if (isAtEnd) this.isWaiting = true;
    const quiet = partitions.get(partition);
    if (quiet === undefined || quiet.valid !== valid) {
      const none = { movedAt: NEVER, provenMs: 0, pendingMs: 0 };
      partitions.set(partition, { valid, position, wasQuiet: isAtEnd, ...none });
      return false;
    }
    if (position !== quiet.position) {
      quiet.position = position;
      quiet.movedAt = now;
    }
    const isMoving = now - quiet.movedAt <= this.stepMs;
    const isQuiet = isAtEnd || isMoving;
    // The time since the last check counts if the partition was quiet then and is quiet now.
    const ms = isQuiet && quiet.wasQuiet ? Math.min(this.stepMs, now - this.lastCheck) : 0;
    quiet.wasQuiet = isQuiet;
    // Records that arrive prove themselves that the partition is read.
    if (isMoving) quiet.provenMs += ms;
    else quiet.pendingMs += ms;
    const isProven = this.prove(partition, quiet, now) || isMoving;
    return isQuiet && isProven && quiet.provenMs >= this.timeoutMs;
  }

  /** Counts the time before the last answer of the broker if everything up to the end that it names
   *  was read. False: the answer is too old, or records are unread. */
  private prove(partition: number, quiet: Quiet, now: number): boolean {
    const { answer } = this.lag;
    const high = answer?.highs[partition];
    if (answer === undefined || high === undefined) return false;
    const isOld = now - answer.answeredMs > ANSWER_MS_MAX || answer.askedMs < this.resumedAt;
    if (isOld || this.source.endOf(partition) < high) return false;
    const ageMs = now - answer.askedMs;
    quiet.provenMs += Math.min(this.provenMsMax, Math.max(0, quiet.pendingMs - ageMs));
    quiet.pendingMs = Math.min(quiet.pendingMs, ageMs);
    return true;
  }
}
