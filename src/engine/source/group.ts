/** Consumer group as a lease on a topic: a member may read while it owns every partition.
 *
 *  The member reads nothing: its partitions are paused, and the engine reads with a client of its
 *  own from the offsets of its changelog. So the group decides whether the engine reads, never
 *  which records. Invariants: (1) the lease is complete only between a rebalance that assigned the
 *  last partition and one that revokes any; (2) offsets are committed only while it is complete,
 *  and are never after the position at which a restart resumes; (3) a member that owns only some
 *  partitions, and has not owned all since it joined, leaves: so of two engines the reading engine
 *  keeps all. */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { BatchConsumer, Rebalance } from '../../io/kafka/port.ts';

const POLL_MS = 100;
/** Time for which a member keeps some partitions: a member that has read waits for the others, a
 *  newcomer leaves. */
const PART_MS_READER = 30_000;
const PART_MS_NEWCOMER = 1_000;
/** Least time after which a member that left joins again; at most twice as long. */
const REJOIN_MS = 5_000;
/** Room for records that arrive before a partition is paused; they are dropped. */
const UNREAD_ROWS = 16;
const UNREAD_BYTES = 65_536;

/** Interface of the lease that the source uses. */
export interface PartitionLease {
  /** True when all of the first `partitions` are owned. */
  holds(partitions: number): boolean;
  has(partition: number): boolean;
  /** Commits offsets at or before those at which a restart resumes, for monitoring tools. */
  commit(offsets: readonly number[]): void;
}

export interface GroupLeaseParts {
  readonly topic: string;
  readonly partitionCount: () => number;
  readonly join: (onRebalance: (rebalance: Rebalance) => void) => Promise<BatchConsumer>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** In [0, 1). */
  readonly random: () => number;
}

/** Lease on all partitions of a topic through a consumer group, so that two engines of one group
 *  never read at the same time.
 */
export class GroupLease implements PartitionLease {
  private readonly parts: GroupLeaseParts;
  private readonly held = new Set<number>();
  private readonly unpaused = new Set<number>();
  private readonly batch = RecordBatch.create(UNREAD_ROWS, UNREAD_BYTES);
  private hasRead = false;
  /** Monotonic ms since when only some partitions are owned. */
  private partSince: number | undefined;
  private wanted: readonly number[] | undefined;
  /** Offsets whose commit was refused; they are retried only at the end. */
  private refused: readonly number[] | undefined;
  private isClosing = false;
  /** Monotonic ms until when the last commit is retried. */
  private closeByMs = 0;
  private running: Promise<void> | undefined;

  constructor(parts: GroupLeaseParts) {
    this.parts = parts;
  }

  get isWhole(): boolean {
    return this.holds(this.parts.partitionCount());
  }
  holds(partitions: number): boolean {
    for (let partition = 0; partition < partitions; partition++) if (!this.held.has(partition)) return false;
    return true;
  }
  has(partition: number): boolean {
    return this.held.has(partition);
  }
  commit(offsets: readonly number[]): void {
    this.wanted = offsets;
  }

  /** Joins the group, and again after leaving it, until close. */
  start(): void {
    this.running ??= this.run();
  }

  /** Commits remaining offsets and leaves the group.
   *  @param withinMs time for which a failing commit is retried */
  async close(withinMs = 0): Promise<void> {
    this.closeByMs = this.parts.clock.monotonicMs() + withinMs;
    this.isClosing = true;
    await this.running;
  }

  private async run(): Promise<void> {
    const { log, sleep, random } = this.parts;
    while (!this.isClosing) {
      try {
        await this.member();
      } catch (thrown) {
        log.warn({ error: String(thrown) }, 'the consumer group could not be held');
      }
      this.forget();
      let left = this.isClosing ? 0 : REJOIN_MS * (1 + random());
      for (; left > 0 && !this.isClosing; left -= POLL_MS) await sleep(Math.min(left, POLL_MS));
    }
  }

  /** Runs one membership, from joining to leaving. */
  private async member(): Promise<void> {
    const { join, topic, log } = this.parts;
    const member = await join((rebalance) => this.turn(rebalance));
    try {
      await member.subscribe([topic]);
      while (!this.isClosing) {
        await this.read(member);
        await this.commitTo(member);
        if (this.isToLeave()) {
          log.info(
            { held: [...this.held] },
            'another member has the rest of the partitions: leaving the group',
          );
          break;
        }
      }
      if (this.isClosing) await this.commitLast(member);
    } finally {
      await member.close();
    }
  }

  /** Polls, which keeps the membership and reports rebalances. */
  private async read(member: BatchConsumer): Promise<void> {
    const { events } = await member.consume(this.batch, POLL_MS);
    for (const { name, message } of events) this.parts.log.info({ event: name, message }, 'consumer group');
    await this.pause(member);
  }

  /** The last commit of a run: no checkpoint comes after it, and without its offsets tools show a
   *  backlog until the next run. */
  private async commitLast(member: BatchConsumer): Promise<void> {
    for (;;) {
      await this.commitTo(member);
      const isLate = this.parts.clock.monotonicMs() >= this.closeByMs;
      if (this.wanted === undefined || !this.isWhole || isLate) return;
      await this.read(member);
    }
  }

  private turn({ kind, partitions }: Rebalance): void {
    const { topic, log } = this.parts;
    const wasWhole = this.isWhole;
    for (const { partition } of partitions.filter((one) => one.topic === topic)) {
      if (kind === 'assigned') {
        this.held.add(partition);
        this.unpaused.add(partition);
      } else {
        this.held.delete(partition);
        this.unpaused.delete(partition);
      }
    }
    if (this.isWhole) this.hasRead = true;
    // A member that the group evicted must leave the partitions to its successor.
    if (kind === 'lost') this.hasRead = false;
    this.partSince = undefined;
    if (wasWhole !== this.isWhole && !this.isClosing)
      log.info(
        { kind, held: this.held.size },
        wasWhole
          ? 'the group takes partitions away: reading stops'
          : 'the group gave every partition: reading',
      );
  }

  private async pause(member: BatchConsumer): Promise<void> {
    const { topic, log } = this.parts;
    for (const partition of [...this.unpaused]) {
      try {
        await member.pause([{ topic, partition }]);
        this.unpaused.delete(partition);
      } catch (thrown) {
        // The partition may be revoked meanwhile; otherwise the next poll retries.
        log.debug({ partition, error: String(thrown) }, 'a partition of the group is not paused yet');
      }
    }
  }

  private async commitTo(member: BatchConsumer): Promise<void> {
    const { wanted } = this;
    if (wanted === undefined || !this.isWhole) return;
    if (wanted === this.refused && !this.isClosing) return;
    const { topic, log } = this.parts;
    try {
      const outcome = await member.commit(
        wanted.map((offset, partition) => ({ topic, partition, offset: BigInt(offset) })),
      );
      if (outcome === 'committed' && this.wanted === wanted) this.wanted = undefined;
    } catch (thrown) {
      // No restart resumes at these offsets: the next checkpoint commits soon enough, and the close
      // retries.
      const isNew = this.refused !== wanted;
      this.refused = wanted;
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      if (isNew) log.info({ error }, 'offsets were not committed');
    }
  }

  private isToLeave(): boolean {
    if (this.held.size === 0 || this.isWhole) {
      this.partSince = undefined;
      return false;
    }
    const now = this.parts.clock.monotonicMs();
    this.partSince ??= now;
    return now - this.partSince >= (this.hasRead ? PART_MS_READER : PART_MS_NEWCOMER);
  }

  private forget(): void {
    this.held.clear();
    this.unpaused.clear();
    this.hasRead = false;
    this.partSince = undefined;
  }
}
