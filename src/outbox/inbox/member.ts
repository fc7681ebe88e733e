/** A member of a consumer group as every consumer with an inbox is one: where it stands in each
 *  partition, when it commits, how it waits for its database, how it hands partitions on, and
 *  whether it is one.
 *
 *  Invariants: (1) an offset is committed after the database committed every record before it, so a
 *  crash repeats records and loses none; (2) partitions that leave in mid-batch take only finished
 *  offsets with them; (3) while the database is away the member stays in the group with its
 *  partitions paused, and reads on where it stopped; (4) one call to the broker client's consume at
 *  a time.
 */
import { sleep, type Timers, within } from '../../core/clock.ts';
import { invariant } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type {
  BatchConsumer,
  BrokerEvent,
  ConsumeResult,
  ConsumerOptions,
  Rebalance,
  TopicPartition,
  TopicPartitionOffset,
} from '../../io/kafka/port.ts';
import { MemberHealth } from './health.ts';

export interface MemberOptions {
  /** Makes the broker client of a group with this rebalance handler. */
  readonly connect: (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>) => Promise<BatchConsumer>;
  readonly topics: readonly string[];
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** How long a read waits for its first record. */
  readonly batchWaitMs: number;
  /** The batch that is on its way into the database. */
  readonly underWay: () => Promise<unknown> | undefined;
  /** Partitions came, or left: what is read of those and not in the database is their next owner's.
   */
  readonly onMoved: (kind: Rebalance['kind'], partitions: readonly TopicPartition[]) => void;
  /** Called before offsets are committed; what it resolves to is called once they are. */
  readonly onCommit?: () => Promise<() => void>;
}

/** What a batch is read into. */
export interface Intake {
  readonly records: RecordBatch;
  /** Makes room for a larger record; the batch is empty. */
  grow(arenaBytes: number): void;
}

export class RecordIntake implements Intake {
  records: RecordBatch;

  constructor(rows: number, arenaBytes: number) {
    this.records = RecordBatch.create(rows, arenaBytes);
  }

  grow(arenaBytes: number): void {
    this.records = RecordBatch.create(this.records.rowCapacity, arenaBytes);
  }
}

interface Standing {
  /** Next offset to take: ahead of `done` by the batches in flight. */
  taken?: bigint;
  /** Next offset to commit; behind it everything is in the database. */
  done?: bigint;
  committed?: bigint;
  isPaused?: boolean;
}

const COMMIT_EVERY_MS = 500;
/** Of the wait for a first record, what a drain may have to wait for. */
const WAIT_PART_MS = 250;
/** Longest wait of a rebalance for the batch in flight. */
const REBALANCE_WAIT_MS = 10_000;
const REBALANCE_LOOK_MS = 50;
/** Where a batch that is too small for one record stops to grow. */
const BATCH_BYTES_MAX = 1024 * 1024 * 1024;
const OVERSIZE = 'MILLRACE_OVERSIZE';

export const placeKey = (at: TopicPartition): string => `${at.topic}/${at.partition}`;

export class Member {
  private readonly options: MemberOptions;
  private readonly standings = new Map<string, Standing>();
  private client: BatchConsumer | undefined;
  /** Takes what arrives while the database is away. */
  private spare: RecordIntake | undefined;
  /** The read in flight at the broker client. */
  private consuming: Promise<unknown> = Promise.resolve();
  private waiting = false;
  /** Since the database was last waited for it has taken no batch. */
  private isDoubtful = false;
  private lastCommitMs = 0;
  private readonly presence: MemberHealth;

  constructor(options: MemberOptions) {
    this.options = options;
    this.presence = new MemberHealth(options.clock);
  }

  async join(): Promise<void> {
    const { connect, topics, clock } = this.options;
    this.client = await connect({ onRebalance: (rebalance) => this.onRebalance(rebalance) });
    this.presence.heard();
    this.lastCommitMs = clock.monotonicMs();
    await this.client.subscribe(topics);
  }

  async leave(): Promise<void> {
    await this.client?.close();
  }

  /** From `join` on. */
  get consumer(): BatchConsumer {
    return this.client as BatchConsumer;
  }

  /** The database does not take the batch in flight. */
  get isWaiting(): boolean {
    return this.waiting;
  }

  /** Why this is not a member that reads; undefined: it is one. A rebalance on its way is no
   *  reason. */
  async unhealthyReason(): Promise<string | undefined> {
    return this.client === undefined ? 'no broker was asked yet' : this.presence.unhealthyReason(this.client);
  }

  /** Reads the available records; they do not advance the position until `took` is called. @param
   *  waitMs for the first record */
  async read(into: Intake, waitMs = this.options.batchWaitMs): Promise<ConsumeResult> {
    const consumed = this.consume(into.records, waitMs);
    this.consuming = consumed.catch(() => {});
    const result = await consumed;
    if (result.rowCount > 0) this.presence.heard();
    for (const event of result.events) this.note(event, into);
    return result;
  }

  /** A batch in flight has everything before this offset. */
  took(at: TopicPartition, next: bigint): void {
    this.standing(at).taken = next;
  }

  /** The database has everything before this offset. */
  finished(at: TopicPartition, next: bigint): void {
    const standing = this.standing(at);
    if (standing.done === undefined || standing.done < next) standing.done = next;
  }

  /** The next offset to commit; undefined: nothing is finished. */
  doneOf(at: TopicPartition): bigint | undefined {
    return this.standings.get(placeKey(at))?.done;
  }

  /** The database took a batch. */
  trust(): void {
    this.isDoubtful = false;
  }

  async commitIfDue(): Promise<void> {
    if (this.options.clock.monotonicMs() - this.lastCommitMs >= COMMIT_EVERY_MS) await this.commit();
  }

  /** Commits what is finished of the partitions that are this member's; what fails is tried again
   *  the next time. */
  async commit(): Promise<void> {
    const { log, clock, onCommit } = this.options;
    this.lastCommitMs = clock.monotonicMs();
    const offsets: TopicPartitionOffset[] = [];
    for (const { topic, partition } of this.consumer.assignment()) {
      const { done, committed } = this.standings.get(placeKey({ topic, partition })) ?? {};
      invariant(
        committed === undefined || (done !== undefined && done >= committed),
        'a committed offset never decreases while the member owns the partition',
      );
      if (done !== undefined && done !== committed) offsets.push({ topic, partition, offset: done });
    }
    if (offsets.length === 0) return;
    const told = await onCommit?.();
    try {
      if ((await this.consumer.commit(offsets)) === 'not_now') {
        this.lastCommitMs = clock.monotonicMs();
        log.debug({}, 'offsets not committed amid a rebalance; tried again');
        return;
      }
      this.presence.heard();
    } catch (thrown) {
      // The effects are safe; what is not committed is read again and found in the inbox.
      log.warn({ error: (thrown as Error).message }, 'offset commit failed; it is tried again');
      return;
    }
    told?.();
    for (const at of offsets) {
      const standing = this.standings.get(placeKey(at));
      if (standing !== undefined) standing.committed = at.offset;
    }
  }

  /** The database does not take the batch in flight (true), or takes it again. */
  async wait(waiting: boolean): Promise<void> {
    // Set before the wait, so that no read begins beside the pause; taken back last, so that none
    // begins before the seeks.
    if (waiting) this.waiting = this.isDoubtful = true;
    await this.consuming;
    if (waiting) return this.pause();
    await this.resume();
    this.waiting = false;
  }

  /** Stays a member of the group: a client that does not read is thrown out of it. What still
   *  arrives is not taken; it is read again from its first record once the partitions are resumed.
   *  Returns the ends of partitions that nothing was taken of. */
  async idle(ms: number): Promise<readonly TopicPartitionOffset[]> {
    const { clock, drain, batchRows, batchBytes } = this.options;
    const rest = sleep(clock, ms, drain);
    if (!this.waiting) {
      await rest;
      return [];
    }
    await this.consuming;
    this.spare ??= new RecordIntake(batchRows, batchBytes);
    const { rowCount, ends } = await this.read(this.spare);
    const { topicIndex, partition, offset } = this.spare.records.columns;
    for (let row = 0; row < rowCount; row++) {
      const topic = this.consumer.topics[topicIndex[row] as number] as string;
      this.standing({ topic, partition: partition[row] as number }).taken ??= offset[row] as bigint;
    }
    if (rowCount > 0) await this.pause();
    await rest;
    return ends.filter((end) => this.standings.get(placeKey(end))?.taken === undefined);
  }

  /** Waits for a first record in parts: a client's wait cannot be cut short, and a drain must not
   *  stand behind it. */
  private async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    const { clock, drain } = this.options;
    const untilMs = clock.monotonicMs() + waitMs;
    for (;;) {
      const restMs = Math.max(0, untilMs - clock.monotonicMs());
      const result = await this.consumer.consume(into, Math.min(restMs, WAIT_PART_MS));
      const { rowCount, ends, events } = result;
      if (rowCount + ends.length + events.length > 0 || drain.aborted || restMs <= WAIT_PART_MS)
        return result;
    }
  }

  private standing(at: TopicPartition): Standing {
    const key = placeKey(at);
    let standing = this.standings.get(key);
    if (standing === undefined) {
      standing = {};
      this.standings.set(key, standing);
    }
    return standing;
  }

  private note(event: BrokerEvent, into: Intake): void {
    this.options.log.warn({ ...event }, 'broker event');
    this.presence.note(event);
    const { arenaCapacity, rowCount } = into.records;
    // Nothing was read into a batch that is too small even when it is empty.
    if (event.name === OVERSIZE && arenaCapacity < BATCH_BYTES_MAX && rowCount === 0)
      into.grow(Math.min(BATCH_BYTES_MAX, arenaCapacity * 2));
  }

  private async onRebalance({ kind, partitions }: Rebalance): Promise<void> {
    this.options.log.info({ kind, partitions: partitions.map(placeKey) }, 'rebalance');
    this.presence.moved(kind);
    if (kind === 'revoked') {
      await this.finishBeforeLeaving();
      await this.commit();
    }
    for (const at of partitions) this.standings.delete(placeKey(at));
    this.options.onMoved(kind, partitions);
  }

  /** Waits for the batch in flight, not for one that waits for the database, or is the first to ask
   *  it again: its next owner reads that again, and a member that joins would wait as long as a
   *  connection that is not answered. */
  private async finishBeforeLeaving(): Promise<void> {
    const over = this.options.underWay()?.then(
      () => true,
      () => true,
    );
    for (let waitedMs = 0; over !== undefined && !this.isDoubtful && waitedMs < REBALANCE_WAIT_MS; ) {
      if (await within(this.options.clock, REBALANCE_LOOK_MS, over)) return;
      waitedMs += REBALANCE_LOOK_MS;
    }
  }

  /** Pauses the partitions of which it is known where to go on. */
  private async pause(): Promise<void> {
    const places = this.consumer.assignment().filter((at) => {
      const standing = this.standings.get(placeKey(at));
      return standing?.taken !== undefined && standing.isPaused !== true;
    });
    for (const at of places) this.standing(at).isPaused = true;
    if (places.length > 0) await this.consumer.pause(places);
  }

  private async resume(): Promise<void> {
    const places: TopicPartitionOffset[] = [];
    for (const { topic, partition } of this.consumer.assignment()) {
      const { taken, isPaused } = this.standings.get(placeKey({ topic, partition })) ?? {};
      if (taken !== undefined && isPaused === true) places.push({ topic, partition, offset: taken });
    }
    for (const standing of this.standings.values()) standing.isPaused = false;
    if (places.length === 0) return;
    await this.consumer.resume(places);
    // A pause forgets how far the client has read; what was taken is known here.
    for (const at of places) await this.consumer.seek(at);
  }
}
