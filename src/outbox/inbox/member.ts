/** Membership in a consumer group, shared by every consumer with an inbox: positions, offset
 *  commits, pauses while the database is unavailable, rebalances and health.
 *
 *  Invariants: (1) an offset is committed after the database committed every record before it, so a
 *  crash repeats records and loses none; (2) when a partition is revoked in mid-batch, only
 *  finished offsets are committed; (3) while the database is unavailable, the member stays in the
 *  group with its partitions paused, and then resumes at the record where it stopped; (4) at most
 *  one consume call of the broker client is in flight.
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
  /** Creates the broker client of a group with this rebalance handler. */
  readonly connect: (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>) => Promise<BatchConsumer>;
  readonly topics: readonly string[];
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** Longest wait of a read for its first record, ms. */
  readonly batchWaitMs: number;
  /** Settlement of the batch in flight; undefined: none. */
  readonly inFlight: () => Promise<unknown> | undefined;
  /** Called after partitions were assigned or revoked. Uncommitted records of a revoked partition
   *  belong to its next owner. */
  readonly onMoved: (kind: Rebalance['kind'], partitions: readonly TopicPartition[]) => void;
  /** Called before offsets are committed. The function that it resolves to is called after the
   *  commit. */
  readonly onCommit?: () => Promise<() => void>;
}

/** Buffer of a read. */
export interface Intake {
  readonly records: RecordBatch;
  /** Replaces the buffer, which is empty, by a larger one. */
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

interface PartitionState {
  /** Next offset to read: ahead of `done` by the batches in flight. */
  taken?: bigint;
  /** Next offset to commit: the database has every record before it. */
  done?: bigint;
  committed?: bigint;
  isPaused?: boolean;
}

const COMMIT_EVERY_MS = 500;
/** Longest single wait inside a read, which bounds the delay of a drain. */
const WAIT_SLICE_MS = 250;
/** Longest wait of a rebalance for the batch in flight. */
const REBALANCE_WAIT_MS = 10_000;
const REBALANCE_POLL_MS = 50;
/** Largest buffer that a record which does not fit may cause. */
const BATCH_BYTES_MAX = 1024 * 1024 * 1024;
const OVERSIZE = 'MILLRACE_OVERSIZE';

export const placeKey = (at: TopicPartition): string => `${at.topic}/${at.partition}`;

export class Member {
  private readonly options: MemberOptions;
  private readonly partitions = new Map<string, PartitionState>();
  private client: BatchConsumer | undefined;
  /** Receives the records that arrive while the database is unavailable; they are discarded. */
  private discarded: RecordIntake | undefined;
  /** The read in flight at the broker client. */
  private consuming: Promise<unknown> = Promise.resolve();
  private waiting = false;
  /** True from a wait for the database until it commits a batch. */
  private isDatabaseSuspect = false;
  private lastCommitMs = 0;
  private readonly health: MemberHealth;

  constructor(options: MemberOptions) {
    this.options = options;
    this.health = new MemberHealth(options.clock);
  }

  async join(): Promise<void> {
    const { connect, topics, clock } = this.options;
    this.client = await connect({ onRebalance: (rebalance) => this.onRebalance(rebalance) });
    this.health.heard();
    this.lastCommitMs = clock.monotonicMs();
    await this.client.subscribe(topics);
  }

  async leave(): Promise<void> {
    await this.client?.close();
  }

  /** The broker client; valid after `join`. */
  get consumer(): BatchConsumer {
    return this.client as BatchConsumer;
  }

  /** True while the database does not accept the batch in flight. */
  get isWaiting(): boolean {
    return this.waiting;
  }

  /** Returns why this member may not be reading; undefined: it is healthy. A rebalance in progress
   *  is no reason. */
  async unhealthyReason(): Promise<string | undefined> {
    return this.client === undefined
      ? 'the consumer has not connected to a broker yet'
      : this.health.unhealthyReason(this.client);
  }

  /** Reads the available records. Records do not advance the position until `took` is called.
   *  @param waitMs longest wait for the first record */
  async read(into: Intake, waitMs = this.options.batchWaitMs): Promise<ConsumeResult> {
    const consumed = this.consume(into.records, waitMs);
    this.consuming = consumed.catch(() => {});
    const result = await consumed;
    if (result.rowCount > 0) this.health.heard();
    for (const event of result.events) this.note(event, into);
    return result;
  }

  /** Advances the read position: a batch in flight has every record before this offset. */
  took(at: TopicPartition, next: bigint): void {
    this.stateOf(at).taken = next;
  }

  /** Advances the offset to commit: the database has every record before it. */
  finished(at: TopicPartition, next: bigint): void {
    const state = this.stateOf(at);
    if (state.done === undefined || state.done < next) state.done = next;
  }

  /** Returns the next offset to commit; undefined: nothing is finished. */
  doneOf(at: TopicPartition): bigint | undefined {
    return this.partitions.get(placeKey(at))?.done;
  }

  /** Records that the database committed a batch. */
  noteCommitted(): void {
    this.isDatabaseSuspect = false;
  }

  /** Returns true if a commit was due: for a while no other is. */
  async commitIfDue(): Promise<boolean> {
    if (this.options.clock.monotonicMs() - this.lastCommitMs < COMMIT_EVERY_MS) return false;
    await this.commit();
    return true;
  }

  /** Commits the finished offsets of the assigned partitions. A failed commit is retried the next
   *  time. */
  async commit(): Promise<void> {
    const { log, clock, onCommit } = this.options;
    this.lastCommitMs = clock.monotonicMs();
    const offsets: TopicPartitionOffset[] = [];
    for (const { topic, partition } of this.consumer.assignment()) {
      const { done, committed } = this.partitions.get(placeKey({ topic, partition })) ?? {};
      invariant(
        committed === undefined || (done !== undefined && done >= committed),
        'a committed offset never decreases while the member owns the partition',
      );
      if (done !== undefined && done !== committed) offsets.push({ topic, partition, offset: done });
    }
    if (offsets.length === 0) return;
    const committedCallback = await onCommit?.();
    try {
      if ((await this.consumer.commit(offsets)) === 'not_now') {
        this.lastCommitMs = clock.monotonicMs();
        log.debug({}, 'offset commit deferred: a rebalance is in progress');
        return;
      }
      this.health.heard();
    } catch (thrown) {
      // The effects are committed. Records after the committed offset are read again, and the inbox
      // skips them.
      log.warn({ error: (thrown as Error).message }, 'offset commit failed; it will be retried');
      return;
    }
    committedCallback?.();
    for (const at of offsets) {
      const state = this.partitions.get(placeKey(at));
      if (state !== undefined) state.committed = at.offset;
    }
  }

  /** Pauses the partitions because the database does not accept the batch in flight (true), or
   *  resumes them. */
  async wait(waiting: boolean): Promise<void> {
    // Set before the pause, so that no read starts beside it. Cleared last, so that no read starts
    // before the seeks.
    if (waiting) this.waiting = this.isDatabaseSuspect = true;
    await this.consuming;
    if (waiting) return this.pause();
    await this.resume();
    this.waiting = false;
  }

  /** Waits, and polls while paused: a client that does not poll is evicted from its group. Records
   *  that still arrive are discarded and read again after the partitions resume. Returns the ends
   *  of partitions of which no record was read. */
  async idle(ms: number): Promise<readonly TopicPartitionOffset[]> {
    const { clock, drain, batchRows, batchBytes } = this.options;
    const rest = sleep(clock, ms, drain);
    if (!this.waiting) {
      await rest;
      return [];
    }
    await this.consuming;
    this.discarded ??= new RecordIntake(batchRows, batchBytes);
    const { rowCount, ends } = await this.read(this.discarded);
    const { topicIndex, partition, offset } = this.discarded.records.columns;
    for (let row = 0; row < rowCount; row++) {
      const topic = this.consumer.topics[topicIndex[row] as number] as string;
      this.stateOf({ topic, partition: partition[row] as number }).taken ??= offset[row] as bigint;
    }
    if (rowCount > 0) await this.pause();
    await rest;
    return ends.filter((end) => this.partitions.get(placeKey(end))?.taken === undefined);
  }

  /** Waits for a first record in slices: a client's wait cannot be cancelled, and a drain must not
   *  wait for it. */
  private async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    const { clock, drain } = this.options;
    const untilMs = clock.monotonicMs() + waitMs;
    for (;;) {
      const restMs = Math.max(0, untilMs - clock.monotonicMs());
      const result = await this.consumer.consume(into, Math.min(restMs, WAIT_SLICE_MS));
      const { rowCount, ends, events } = result;
      if (rowCount + ends.length + events.length > 0 || drain.aborted || restMs <= WAIT_SLICE_MS)
        return result;
    }
  }

  private stateOf(at: TopicPartition): PartitionState {
    const key = placeKey(at);
    let state = this.partitions.get(key);
    if (state === undefined) {
      state = {};
      this.partitions.set(key, state);
    }
    return state;
  }

  private note(event: BrokerEvent, into: Intake): void {
    this.options.log.warn({ ...event }, 'broker event');
    this.health.note(event);
    const { arenaCapacity, rowCount } = into.records;
    // The record does not fit into an empty buffer.
    if (event.name === OVERSIZE && arenaCapacity < BATCH_BYTES_MAX && rowCount === 0)
      into.grow(Math.min(BATCH_BYTES_MAX, arenaCapacity * 2));
  }

  private async onRebalance({ kind, partitions }: Rebalance): Promise<void> {
    this.options.log.info({ kind, partitions: partitions.map(placeKey) }, 'rebalance');
    this.health.moved(kind);
    if (kind === 'revoked') {
      await this.finishBeforeLeaving();
      await this.commit();
    }
    for (const at of partitions) this.partitions.delete(placeKey(at));
    this.options.onMoved(kind, partitions);
  }

  /** Waits for the batch in flight before partitions are revoked, except if the database is
   *  unavailable or has not committed since: the next owner reads that batch again. Waiting would
   *  block the whole rebalance for as long as a statement timeout. */
  private async finishBeforeLeaving(): Promise<void> {
    const settled = this.options.inFlight()?.then(
      () => true,
      () => true,
    );
    for (
      let waitedMs = 0;
      settled !== undefined && !this.isDatabaseSuspect && waitedMs < REBALANCE_WAIT_MS;
    ) {
      if (await within(this.options.clock, REBALANCE_POLL_MS, settled)) return;
      waitedMs += REBALANCE_POLL_MS;
    }
  }

  /** Pauses the partitions whose resume position is known. */
  private async pause(): Promise<void> {
    const places = this.consumer.assignment().filter((at) => {
      const state = this.partitions.get(placeKey(at));
      return state?.taken !== undefined && state.isPaused !== true;
    });
    for (const at of places) this.stateOf(at).isPaused = true;
    if (places.length > 0) await this.consumer.pause(places);
  }

  private async resume(): Promise<void> {
    const places: TopicPartitionOffset[] = [];
    for (const { topic, partition } of this.consumer.assignment()) {
      const { taken, isPaused } = this.partitions.get(placeKey({ topic, partition })) ?? {};
      if (taken !== undefined && isPaused === true) places.push({ topic, partition, offset: taken });
    }
    for (const state of this.partitions.values()) state.isPaused = false;
    if (places.length === 0) return;
    await this.consumer.resume(places);
    // A pause discards the client's position; the position kept here replaces it.
    for (const at of places) await this.consumer.seek(at);
  }
}
