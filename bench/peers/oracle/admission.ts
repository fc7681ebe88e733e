/** Which events count. Everything a watermark decides, in the order of the arrival log:
 *
 *    seen      the greatest event_ts of the partition so far, this event included (of all partitions: `global`);
 *              an event beyond append time + max-future moves it to that time only
 *    late      iff event_ts < seen - skew - lateness
 *    frontier  the least of (seen - skew - lateness) over the partitions that are not idle, and never below what it was;
 *              none before each of these has had an event, and as it was while all are idle
 *    late too  iff event_ts < frontier, which can only be so after idleness: then it is counted as dropped after idle
 *
 *  A partition is idle from a decision in the log to its next valid event. One that is added starts
 *  at the frontier. In `global` neither changes anything.
 */
import { checkRules, noCounts, type OracleRules, type PartitionCounters, TS_LIMIT } from './rules.ts';

export type Verdict = 'accepted' | 'late' | 'late after idle' | 'invalid';

interface Partition {
  seen: bigint | undefined;
  idle: boolean;
  readonly counters: PartitionCounters;
}

export class Admission {
  private readonly partitions: Partition[] = [];
  private readonly maxFutureMs: bigint | undefined;
  private readonly isGlobal: boolean;
  private readonly delayMs: bigint;
  private readonly dropsLate: boolean;
  private seenAnywhere: bigint | undefined;
  private reached: bigint | undefined;

  /** `dropsLate` false: every valid event counts, whatever its order. */
  constructor(rules: OracleRules, partitions: number, dropsLate: boolean) {
    checkRules(rules);
    this.maxFutureMs = rules.maxFutureMs;
    this.isGlobal = rules.watermark === 'global';
    this.delayMs = rules.skewMs + rules.latenessMs;
    this.dropsLate = dropsLate;
    for (let p = 0; p < partitions; p++) this.add();
  }

  /** Every window that ends at or before it is final; undefined before there is one. */
  get frontier(): bigint | undefined {
    return this.reached;
  }

  /** By partition. Throws where an event went missing. */
  get counters(): readonly PartitionCounters[] {
    for (const { counters } of this.partitions) {
      const { consumed, accepted, droppedLate, droppedAfterIdle, invalid } = counters;
      if (consumed !== accepted + droppedLate + invalid || droppedAfterIdle > droppedLate)
        throw new Error(`${consumed} consumed are not ${accepted} + ${droppedLate} + ${invalid}`);
    }
    return this.partitions.map(({ counters }) => counters);
  }

  add(): void {
    const seen = this.reached === undefined ? undefined : this.reached + this.delayMs;
    this.partitions.push({ seen, idle: false, counters: noCounts() });
  }

  idle(partition: number): void {
    this.partition(partition).idle = true;
    this.advance();
  }

  broken(partition: number): Verdict {
    const { counters } = this.partition(partition);
    counters.consumed += 1n;
    counters.invalid += 1n;
    return 'invalid';
  }

  event(partition: number, eventTs: bigint, appendTs: bigint | undefined): Verdict {
    if (eventTs < -TS_LIMIT || eventTs >= TS_LIMIT) return this.broken(partition);
    const one = this.partition(partition);
    const { counters } = one;
    counters.consumed += 1n;
    let moves = eventTs;
    if (this.maxFutureMs !== undefined && appendTs !== undefined && eventTs > appendTs + this.maxFutureMs) {
      moves = appendTs + this.maxFutureMs;
      counters.futureClamped += 1n;
    }
    const changes = one.idle || one.seen === undefined || moves > one.seen;
    if (one.seen === undefined || moves > one.seen) one.seen = moves;
    if (this.seenAnywhere === undefined || moves > this.seenAnywhere) this.seenAnywhere = moves;
    one.idle = false;
    const verdict = this.dropsLate ? this.judge(one.seen, eventTs) : 'accepted';
    if (verdict === 'accepted') counters.accepted += 1n;
    else counters.droppedLate += 1n;
    if (verdict === 'late after idle') counters.droppedAfterIdle += 1n;
    if (changes) this.advance();
    return verdict;
  }

  private judge(seenHere: bigint, eventTs: bigint): Verdict {
    const seen = this.isGlobal ? (this.seenAnywhere as bigint) : seenHere;
    if (eventTs < seen - this.delayMs) return 'late';
    return this.reached !== undefined && eventTs < this.reached ? 'late after idle' : 'accepted';
  }

  private advance(): void {
    const seen = this.isGlobal ? this.seenAnywhere : this.leastSeen();
    if (seen === undefined) return;
    const frontier = seen - this.delayMs;
    if (this.reached === undefined || frontier > this.reached) this.reached = frontier;
  }

  private leastSeen(): bigint | undefined {
    let least: bigint | undefined;
    for (const { seen, idle } of this.partitions) {
      if (idle) continue;
      if (seen === undefined) return undefined;
      if (least === undefined || seen < least) least = seen;
    }
    return least;
  }

  private partition(number: number): Partition {
    const found = this.partitions[number];
    if (found === undefined)
      throw new Error(`partition ${number} of ${this.partitions.length} is not there yet`);
    return found;
  }
}
