/** A consumer group as a lease on a topic: the member that holds every partition may read.
 *
 *  The member itself reads no records. Its partitions are paused; the engine reads with a client of
 *  its own from the offsets of its changelog. The group therefore decides only if the engine reads,
 *  never from which offset. Invariants: (1) the lease is complete only from the rebalance that
 *  assigns the last partition until the next one that revokes any; (2) offsets are committed only
 *  while the lease is complete, and never lie beyond the offset at which a restart resumes; (3) a
 *  member that holds a part, and has not held all partitions since it joined, leaves. So of two
 *  engines the reading one keeps all partitions. */
import type { Clock } from '../../core/clock.ts';
import { findMillraceError } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { BatchConsumer, Rebalance } from '../../io/kafka/port.ts';

const POLL_MS = 100;
/** Longest time that a member keeps a part of the partitions: a member that has read waits for the
 *  others to be assigned again, a newcomer leaves. */
const PART_MS_READER = 30_000;
const PART_MS_NEWCOMER = 1_000;
/** A member that left joins again after 1 to 2 times this delay. */
const REJOIN_MS = 5_000;
/** Code of the error of a missing right, which a later attempt does not get either. */
const FORBIDDEN = 'broker_forbidden';
/** Records that arrive before a partition is paused are discarded. */
const UNREAD_ROWS = 16;
const UNREAD_BYTES = 65_536;

/** The part of a lease that the source needs. */
export interface PartitionLease {
  /** True if all of the first `partitions` are held. */
  holds(partitions: number): boolean;
  has(partition: number): boolean;
  /** @throws broker_forbidden when the group refuses this member for good */
  check(): void;
  /** Commits offsets for consumer-group tools; a restart resumes at these offsets or later. */
  commit(offsets: readonly number[]): void;
}

export interface GroupLeaseParts {
  readonly topic: string;
  readonly partitionCount: () => number;
  readonly join: (onRebalance: (rebalance: Rebalance) => void) => Promise<BatchConsumer>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sleep: (ms: number) => Promise<void>;
  /** Uniform in [0, 1). */
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
  /** Monotonic ms since when the member holds only a part. */
  private partSince: number | undefined;
  private pending: readonly number[] | undefined;
  /** Offsets whose commit failed; they are retried only on close. */
  private failed: readonly number[] | undefined;
  private isClosing = false;
  /** Monotonic ms until which the commit of the last offsets is retried. */
  private closeByMs = 0;
  private running: Promise<void> | undefined;
  /** Error for which the member does not join again. */
  private refusal: unknown;

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
  check(): void {
    if (this.refusal !== undefined) throw this.refusal;
  }
  commit(offsets: readonly number[]): void {
    this.pending = offsets;
  }

  /** Joins the group, and joins again after each departure, until it is closed or the group refuses
   *  it for good. */
  start(): void {
    this.running ??= this.run();
  }

  /** Commits the remaining offsets and leaves the group. @param withinMs how long a failed commit
   *  is retried */
  async close(withinMs = 0): Promise<void> {
    this.closeByMs = this.parts.clock.monotonicMs() + withinMs;
    this.isClosing = true;
    await this.running;
  }

  private async run(): Promise<void> {
    const { log, sleep, random } = this.parts;
    while (!this.isClosing) {
      try {
        await this.runMember();
      } catch (thrown) {
        log.warn({ error: String(thrown) }, 'consumer group membership failed');
        if (findMillraceError(thrown)?.code === FORBIDDEN) this.refusal = thrown;
      }
      this.reset();
      if (this.refusal !== undefined) return;
      let left = this.isClosing ? 0 : REJOIN_MS * (1 + random());
      for (; left > 0 && !this.isClosing; left -= POLL_MS) await sleep(Math.min(left, POLL_MS));
    }
  }

  /** Runs one membership, from joining to leaving. */
  private async runMember(): Promise<void> {
    const { join, topic, log } = this.parts;
    const member = await join((rebalance) => this.onRebalance(rebalance));
    try {
      await member.subscribe([topic]);
      while (!this.isClosing) {
        await this.poll(member);
        await this.commitTo(member);
        if (this.shouldLeave()) {
          log.info({ held: [...this.held] }, 'another member holds the other partitions; leaving the group');
          break;
        }
      }
      if (this.isClosing) await this.commitLast(member);
    } finally {
      await member.close();
    }
  }

  /** Polls, as membership and rebalance callbacks require, and pauses new partitions. */
  private async poll(member: BatchConsumer): Promise<void> {
    const { events } = await member.consume(this.batch, POLL_MS);
    for (const { name, message } of events)
      this.parts.log.info({ event: name, message }, 'consumer group event');
    await this.pause(member);
  }

  /** Commits after the last checkpoint: without these offsets, tools report a backlog until the
   *  next run. */
  private async commitLast(member: BatchConsumer): Promise<void> {
    for (;;) {
      await this.commitTo(member);
      const isLate = this.parts.clock.monotonicMs() >= this.closeByMs;
      if (this.pending === undefined || !this.isWhole || isLate) return;
      await this.poll(member);
    }
  }

  private onRebalance({ kind, partitions }: Rebalance): void {
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
    // A member that lost its session yields to the member that took over.
    if (kind === 'lost') this.hasRead = false;
    this.partSince = undefined;
    if (wasWhole !== this.isWhole && !this.isClosing)
      log.info(
        { kind, held: this.held.size },
        wasWhole
          ? 'the group revoked partitions; reading stops'
          : 'the group assigned every partition; reading starts',
      );
  }

  private async pause(member: BatchConsumer): Promise<void> {
    const { topic, log } = this.parts;
    for (const partition of [...this.unpaused]) {
      try {
        await member.pause([{ topic, partition }]);
        this.unpaused.delete(partition);
      } catch (thrown) {
        // The partition may have been revoked meanwhile; otherwise the next poll retries.
        log.debug({ partition, error: String(thrown) }, 'a partition of the group is not paused yet');
      }
    }
  }

  private async commitTo(member: BatchConsumer): Promise<void> {
    const { pending } = this;
    if (pending === undefined || !this.isWhole) return;
    if (pending === this.failed && !this.isClosing) return;
    const { topic, log } = this.parts;
    try {
      const outcome = await member.commit(
        pending.map((offset, partition) => ({ topic, partition, offset: BigInt(offset) })),
      );
      if (outcome === 'committed' && this.pending === pending) this.pending = undefined;
    } catch (thrown) {
      // No restart depends on these offsets: the next checkpoint commits newer ones, and closing
      // retries.
      const isNew = this.failed !== pending;
      this.failed = pending;
      const error = findMillraceError(thrown)?.toLine() ?? String(thrown);
      if (isNew) log.info({ error }, 'offsets were not committed');
    }
  }

  private shouldLeave(): boolean {
    if (this.held.size === 0 || this.isWhole) {
      this.partSince = undefined;
      return false;
    }
    const now = this.parts.clock.monotonicMs();
    this.partSince ??= now;
    return now - this.partSince >= (this.hasRead ? PART_MS_READER : PART_MS_NEWCOMER);
  }

  private reset(): void {
    this.held.clear();
    this.unpaused.clear();
    this.hasRead = false;
    this.partSince = undefined;
  }
}
