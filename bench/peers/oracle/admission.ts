/** Admission of events by the oracle: all watermark decisions, in the order of the arrival log.
 *
 *      seen      the greatest event_ts of the partition so far, including this event (`global`: of
 *                all partitions); an event beyond append time + max-future moves it only to that
 *                time
 *      late      iff event_ts < seen - skew - lateness
 *      frontier  the running maximum of the least (seen - skew - lateness) over the partitions that
 *                are not idle; none before each of these has an event; unchanged while all are idle
 *      late too  iff event_ts < frontier, which is possible only after idleness: the event counts
 *                as dropped after idle
 *
 *  A partition is idle from a decision in the log to its next valid event. An added partition
 *  starts at the frontier, but with no greater time than that of any other. In `global` mode
 *  neither changes anything. */
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
  private delayMs: bigint;
  private readonly dropsLate: boolean;
  private seenAnywhere: bigint | undefined;
  private frontierTs: bigint | undefined;

  /** `dropsLate` false: every valid event counts, in any order. */
  constructor(rules: OracleRules, partitions: number, dropsLate: boolean) {
    checkRules(rules);
    this.maxFutureMs = rules.maxFutureMs;
    this.isGlobal = rules.watermark === 'global';
    this.delayMs = rules.skewMs + rules.latenessMs;
    this.dropsLate = dropsLate;
    for (let p = 0; p < partitions; p++) this.add();
  }

  /** Every window that ends at or before the frontier is final; undefined before there is one. */
  get frontier(): bigint | undefined {
    return this.frontierTs;
  }

  /** Counters by partition. @throws Error if the counters of a partition do not add up */
  get counters(): readonly PartitionCounters[] {
    for (const { counters } of this.partitions) {
      const { consumed, accepted, droppedLate, droppedAfterIdle, invalid } = counters;
      if (consumed !== accepted + droppedLate + invalid || droppedAfterIdle > droppedLate)
        throw new Error(`${consumed} consumed are not ${accepted} + ${droppedLate} + ${invalid}`);
    }
    return this.partitions.map(({ counters }) => counters);
  }

  add(): void {
    let seen: bigint | undefined;
    if (this.frontierTs !== undefined && this.seenAnywhere !== undefined) {
      seen = this.frontierTs + this.delayMs;
      if (seen > this.seenAnywhere) seen = this.seenAnywhere;
    }
    this.partitions.push({ seen, idle: false, counters: noCounts() });
  }

  /** Changes skew and lateness from here on. The frontier never falls. */
  retime({ skewMs, latenessMs }: Pick<OracleRules, 'skewMs' | 'latenessMs'>): void {
    this.delayMs = skewMs + latenessMs;
    this.advance();
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
    const target = this.partition(partition);
    const { counters } = target;
    counters.consumed += 1n;
    let effectiveTs = eventTs;
    if (this.maxFutureMs !== undefined && appendTs !== undefined && eventTs > appendTs + this.maxFutureMs) {
      effectiveTs = appendTs + this.maxFutureMs;
      counters.futureClamped += 1n;
    }
    const changes = target.idle || target.seen === undefined || effectiveTs > target.seen;
    if (target.seen === undefined || effectiveTs > target.seen) target.seen = effectiveTs;
    if (this.seenAnywhere === undefined || effectiveTs > this.seenAnywhere) this.seenAnywhere = effectiveTs;
    target.idle = false;
    const verdict = this.dropsLate ? this.verdictOf(target.seen, eventTs) : 'accepted';
    if (verdict === 'accepted') counters.accepted += 1n;
    else counters.droppedLate += 1n;
    if (verdict === 'late after idle') counters.droppedAfterIdle += 1n;
    if (changes) this.advance();
    return verdict;
  }

  private verdictOf(seenHere: bigint, eventTs: bigint): Verdict {
    const seen = this.isGlobal ? (this.seenAnywhere as bigint) : seenHere;
    if (eventTs < seen - this.delayMs) return 'late';
    return this.frontierTs !== undefined && eventTs < this.frontierTs ? 'late after idle' : 'accepted';
  }

  private advance(): void {
    const seen = this.isGlobal ? this.seenAnywhere : this.leastSeen();
    if (seen === undefined) return;
    const frontier = seen - this.delayMs;
    if (this.frontierTs === undefined || frontier > this.frontierTs) this.frontierTs = frontier;
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
      throw new Error(`partition ${number} of ${this.partitions.length} does not exist yet`);
    return found;
  }
}
