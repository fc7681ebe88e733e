/** A member of the payments group: reads batches, has them written, then commits their offsets. While one batch is written
 *  the next is read and parsed; batches are written one after the other, so the order of a partition is kept.
 *
 *  Invariants: (1) an offset is committed after the database committed every record before it, so a crash repeats
 *  records and loses none; (2) partitions that leave in mid-batch take only finished offsets with them, and what was read
 *  of them and not written is dropped; (3) while the database is away the member stays in the group with its partitions
 *  paused, and reads on where it stopped; (4) one call to the broker client's consume at a time.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type {
  BatchConsumer,
  BrokerEvent,
  ConsumeResult,
  ConsumerOptions,
  Rebalance,
  TopicPartitionOffset,
} from '../../io/broker/port.ts';
import type { SqlPool } from '../../io/sql/port.ts';
import type { UuidV7 } from '../ids.ts';
import type { InboxPort } from '../inbox/port.ts';
import type { Delivery, DuplicateInjector } from './duplicates.ts';
import { countOutcome, type PaymentsMetrics } from './metrics.ts';
import { ReadBatch } from './read-batch.ts';
import { applyBatch, type BatchOutcome } from './store.ts';
import { PaymentWriter } from './writer.ts';

export type PaymentsCrashPoint = 'effect' | 'offset';

export interface PaymentsConsumerOptions {
  /** Makes the broker client with this rebalance handler; it must report partition ends. */
  readonly connect: (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>) => Promise<BatchConsumer>;
  readonly topic: string;
  readonly pool: SqlPool;
  readonly ids: UuidV7;
  readonly inbox: Pick<InboxPort, 'claim'>;
  readonly injector: DuplicateInjector;
  readonly metrics: PaymentsMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  readonly batchWaitMs: number;
  /** Least time between the starts of two batches while they are not full: fewer, larger transactions. */
  readonly batchEveryMs: number;
  /** Partitions with the offset where each is done; undefined: runs until the drain. */
  readonly ends: ReadonlyMap<number, bigint> | undefined;
  /** Called where a crash is of interest, with the batches committed so far and how much a crash would leave unfinished:
   *  `effect` charges inserted and not committed, `offset` records committed whose offsets are not. */
  readonly crashPoint: (
    point: PaymentsCrashPoint,
    batchesCommitted: number,
    unfinished: number,
  ) => Promise<void>;
  readonly onCommitted: (outcome: BatchOutcome) => void;
}

const OFFSET_COMMIT_EVERY_MS = 500;
/** While the group is between two assignments a commit is answered only after this member reads again, so it is not waited for. */
const OFFSET_COMMIT_WAIT_MS = 1000;
const LAG_EVERY_MS = 5000;
/** How often partitions that others read are asked for, with -exit-at-end. */
const ENDS_EVERY_MS = 1000;
/** How long a rebalance waits for the batch under way. */
const REBALANCE_WAIT_MS = 10_000;
const REBALANCE_LOOK_MS = 50;
/** Where a batch that is too small for one record stops to grow. */
const BATCH_BYTES_MAX = 1024 * 1024 * 1024;
const OVERSIZE = 'MILLRACE_OVERSIZE';

export class PaymentsConsumer {
  private readonly options: PaymentsConsumerOptions;
  private readonly writer: PaymentWriter;
  private readonly open: Map<number, bigint>;
  /** Filled in turns: one is read while the other is written. */
  private reading: ReadBatch;
  private writing: ReadBatch;
  /** Takes what arrives while the database is away. */
  private spare: ReadBatch | undefined;
  private consumer: BatchConsumer | undefined;
  /** Next offset to commit, by partition; behind it everything is in the database. */
  private readonly positions = new Map<number, bigint>();
  private readonly offsetsCommitted = new Map<number, bigint>();
  /** Next offset to take, by partition: ahead of `positions` by the batches under way. */
  private readonly received = new Map<number, bigint>();
  private readonly paused = new Set<number>();
  /** The batch that is being written; never rejects unheard. */
  private processing: Promise<boolean> | undefined;
  /** `reading` is being filled: what comes into it after an assignment belongs to that assignment. */
  private isReading = false;
  /** The read under way at the broker client. */
  private consuming: Promise<unknown> = Promise.resolve();
  private waiting = false;
  /** Since the database was last waited for it has taken no batch. */
  private isDoubtful = false;
  private batchesCommitted = 0;
  /** Records written since offsets were last committed. */
  private recordsAhead = 0;
  private lastOffsetCommitMs = 0;
  private isCommitting = false;
  private lastLagMs = Number.NEGATIVE_INFINITY;
  private lastEndsMs = 0;

  constructor(options: PaymentsConsumerOptions) {
    this.options = options;
    this.open = new Map(options.ends);
    this.reading = new ReadBatch(options.batchRows, options.batchBytes);
    this.writing = new ReadBatch(options.batchRows, options.batchBytes);
    this.writer = new PaymentWriter({
      pool: options.pool,
      apply: (session, orders, parked) =>
        applyBatch(session, orders, parked, {
          ids: options.ids,
          inbox: options.inbox,
          afterCharges: (charges) => options.crashPoint('effect', this.batchesCommitted, charges),
        }),
      log: options.log,
      idle: (ms) => this.idle(ms),
      givenUp: () => options.drain.aborted,
      isOurs: (delivery) => !this.writing.left.has(delivery.partition),
      onCommitted: (outcome, seconds) => {
        this.batchesCommitted++;
        this.isDoubtful = false;
        countOutcome(options.metrics, outcome, seconds, options.clock.wallNowMs());
        options.onCommitted(outcome);
      },
      onWait: (waiting) => this.wait(waiting),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** The database answered the last time it was asked. */
  isHealthy(): boolean {
    return !this.waiting;
  }

  /** Reads until the drain, or until the ends are reached. @throws unreachable, sql_failed */
  async run(): Promise<void> {
    const { options } = this;
    const consumer = await options.connect({ onRebalance: (rebalance) => this.onRebalance(rebalance) });
    this.consumer = consumer;
    this.lastOffsetCommitMs = options.clock.monotonicMs();
    try {
      await consumer.subscribe([options.topic]);
      while (!options.drain.aborted && !this.isDone()) {
        // The batch that waits for the database reads by itself, to stay in the group: no other read until it is through.
        if (this.waiting) {
          if (!(await this.written())) break;
          if (!this.waiting) continue;
        }
        const startMs = options.clock.monotonicMs();
        this.isReading = true;
        const result = await this.read(this.reading);
        this.isReading = false;
        const deliveries = this.reading.deliveries(options.topic, result, this.received);
        if (!(await this.written())) break;
        this.startWriting(deliveries);
        await this.housekeep(options.clock.monotonicMs());
        if (result.rowCount < options.batchRows) await this.pace(startMs);
      }
      await this.written();
      if (!this.waiting) await this.deliverRest();
      await this.commitOffsets();
      await this.measureLag();
    } finally {
      await consumer.close();
    }
  }

  /** Reads what is there into an empty batch; at most one such call is under way. */
  private async read(into: ReadBatch): Promise<ConsumeResult> {
    into.begin();
    const consumed = (this.consumer as BatchConsumer).consume(into.records, this.options.batchWaitMs);
    this.consuming = consumed.catch(() => {});
    const result = await consumed;
    for (const event of result.events) this.note(event, into);
    into.ends = result.ends;
    return result;
  }

  /** Waits for the batch that is being written. false: given up, the drain came before the database did. */
  private async written(): Promise<boolean> {
    const finished = (await this.processing) ?? true;
    this.processing = undefined;
    return finished;
  }

  /** Hands the batch that was read to the writer and takes the other one for the next read. */
  private startWriting(deliveries: readonly Delivery[]): void {
    [this.reading, this.writing] = [this.writing, this.reading];
    const processing = this.process(this.writing, deliveries);
    processing.catch(() => {});
    this.processing = processing;
  }

  /** Lets a batch gather for a while where the last one was not full. */
  private async pace(startMs: number): Promise<void> {
    const { batchEveryMs, clock, drain } = this.options;
    const restMs = batchEveryMs - (clock.monotonicMs() - startMs);
    if (restMs > 0 && !this.isDone()) await sleep(restMs, undefined, { signal: drain }).catch(() => {});
  }

  private isDone(): boolean {
    return this.options.ends !== undefined && this.open.size === 0;
  }

  private reached(partition: number, nextOffset: bigint): void {
    const end = this.open.get(partition);
    if (end !== undefined && nextOffset >= end) this.open.delete(partition);
  }

  /** false: given up, the drain came before the database did. */
  private async process(batch: ReadBatch, deliveries: readonly Delivery[]): Promise<boolean> {
    const { options } = this;
    if (deliveries.length > 0) {
      options.metrics.messages.add(deliveries.length);
      if (!(await this.write(options.injector.inject(deliveries)))) return false;
      const last = new Map<number, bigint>();
      for (const { partition, offset } of deliveries) last.set(partition, offset);
      for (const [partition, offset] of last) {
        if (batch.left.has(partition)) continue;
        this.positions.set(partition, offset + 1n);
        this.reached(partition, offset + 1n);
      }
      this.recordsAhead += deliveries.length;
    }
    for (const end of batch.ends) this.reached(end.partition, end.offset);
    return true;
  }

  private write(deliveries: readonly Delivery[]): Promise<boolean> {
    const { metrics } = this.options;
    let injected = 0;
    let ignored = 0;
    for (const delivery of deliveries) {
      if (delivery.injected) injected++;
      if (delivery.event.kind === 'other') ignored++;
    }
    metrics.injected.add(injected);
    metrics.ignored.add(ignored);
    return this.writer.write(deliveries);
  }

  /** Copies that waited for a next batch which does not come. */
  private async deliverRest(): Promise<void> {
    const rest = this.options.injector.rest();
    if (rest.length === 0) return;
    this.writing.begin();
    this.processing = this.write(rest);
    await this.written();
  }

  private note(event: BrokerEvent, batch: ReadBatch): void {
    this.options.log.warn({ ...event }, 'broker event');
    const bytes = batch.records.arenaCapacity;
    // Nothing was read into a batch that is too small even when it is empty.
    if (event.name === OVERSIZE && bytes < BATCH_BYTES_MAX && batch.records.rowCount === 0)
      batch.grow(Math.min(BATCH_BYTES_MAX, bytes * 2));
  }

  private async housekeep(nowMs: number): Promise<void> {
    if (nowMs - this.lastOffsetCommitMs >= OFFSET_COMMIT_EVERY_MS) await this.commitOffsets();
    if (nowMs - this.lastLagMs >= LAG_EVERY_MS) await this.measureLag();
    if (this.open.size > 0 && nowMs - this.lastEndsMs >= ENDS_EVERY_MS) await this.askForEnds(nowMs);
  }

  /** Partitions that another member reads are done when the group has committed their end. */
  private async askForEnds(nowMs: number): Promise<void> {
    this.lastEndsMs = nowMs;
    const consumer = this.consumer as BatchConsumer;
    const owned = new Set(consumer.assignment().map((at) => at.partition));
    const others = [...this.open.keys()].filter((partition) => !owned.has(partition));
    if (others.length === 0) return;
    const { topic, log } = this.options;
    try {
      for (const at of await consumer.committed(others.map((partition) => ({ topic, partition }))))
        this.reached(at.partition, at.offset);
    } catch (thrown) {
      log.debug({ error: (thrown as Error).message }, 'committed offsets not read');
    }
  }

  private async commitOffsets(): Promise<void> {
    const { topic, log, clock } = this.options;
    const consumer = this.consumer as BatchConsumer;
    this.lastOffsetCommitMs = clock.monotonicMs();
    const owned = new Set(consumer.assignment().map((at) => at.partition));
    const offsets: TopicPartitionOffset[] = [];
    for (const [partition, offset] of this.positions) {
      if (owned.has(partition) && this.offsetsCommitted.get(partition) !== offset)
        offsets.push({ topic, partition, offset });
    }
    if (offsets.length === 0 || this.isCommitting) return;
    const ahead = this.recordsAhead;
    await this.options.crashPoint('offset', this.batchesCommitted, ahead);
    this.isCommitting = true;
    const answered = consumer.commit(offsets).then(
      () => {
        this.isCommitting = false;
        this.recordsAhead -= ahead;
        for (const { partition, offset } of offsets) this.offsetsCommitted.set(partition, offset);
      },
      (thrown: unknown) => {
        this.isCommitting = false;
        // The charges are safe; what is not committed is read again and suppressed.
        log.warn({ error: (thrown as Error).message }, 'offset commit failed; it is tried again');
      },
    );
    await Promise.race([answered, sleep(OFFSET_COMMIT_WAIT_MS, undefined, { ref: false })]);
  }

  private async measureLag(): Promise<void> {
    const { metrics, clock, log } = this.options;
    this.lastLagMs = clock.monotonicMs();
    try {
      for (const at of await (this.consumer as BatchConsumer).lag()) {
        const next = this.positions.get(at.partition) ?? (at.position < 0n ? at.low : at.position);
        metrics.lag.set(Number(at.high - next), metrics.lag.series(at.topic, String(at.partition)));
      }
    } catch (thrown) {
      log.debug({ error: (thrown as Error).message }, 'lag not measured');
    }
  }

  private async onRebalance({ kind, partitions }: Rebalance): Promise<void> {
    const { log, injector } = this.options;
    log.info({ kind, partitions: partitions.map((at) => at.partition) }, 'rebalance');
    if (kind === 'revoked') {
      await this.finishBeforeLeaving();
      await this.commitOffsets();
    }
    for (const { partition } of partitions) {
      this.positions.delete(partition);
      this.offsetsCommitted.delete(partition);
      this.received.delete(partition);
      this.paused.delete(partition);
      if (kind !== 'assigned') for (const batch of [this.reading, this.writing]) batch.left.add(partition);
      else if (this.isReading) this.reading.left.delete(partition);
    }
    if (kind !== 'assigned') injector.forget(new Set(partitions.map((at) => at.partition)));
  }

  /** Waits for the batch under way, not for one that waits for the database, or is the first to ask it again: its next owner reads
   *  that again, and a member that joins would wait as long as a connection that is not answered. */
  private async finishBeforeLeaving(): Promise<void> {
    const over = this.processing?.then(
      () => true,
      () => true,
    );
    for (let waitedMs = 0; over !== undefined && !this.isDoubtful && waitedMs < REBALANCE_WAIT_MS; ) {
      if ((await Promise.race([over, sleep(REBALANCE_LOOK_MS, false, { ref: false })])) === true) return;
      waitedMs += REBALANCE_LOOK_MS;
    }
  }

  private async wait(waiting: boolean): Promise<void> {
    this.options.metrics.waiting.set(waiting ? 1 : 0);
    // Set at once, so that no read begins beside the pause; taken back last, so that none begins before the seeks.
    if (waiting) this.waiting = this.isDoubtful = true;
    await this.consuming;
    if (waiting) return this.pause();
    await this.goOn();
    this.waiting = false;
  }

  private async goOn(): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer.assignment().filter((at) => this.paused.has(at.partition));
    this.paused.clear();
    if (places.length === 0) return;
    await consumer.resume(places);
    // A pause forgets how far the client has read; what was taken is known here.
    for (const { topic, partition } of places)
      await consumer.seek({ topic, partition, offset: this.received.get(partition) as bigint });
  }

  /** Pauses the partitions of which it is known where to go on. */
  private async pause(): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer
      .assignment()
      .filter((at) => this.received.has(at.partition) && !this.paused.has(at.partition));
    for (const { partition } of places) this.paused.add(partition);
    if (places.length > 0) await consumer.pause(places);
  }

  /** Stays a member of the group: a client that does not read is thrown out of it. What still arrives is not taken;
   *  it is read again from its first record once the partitions are resumed. */
  private async idle(ms: number): Promise<void> {
    const { drain } = this.options;
    const rest = sleep(ms, undefined, { signal: drain }).catch(() => {});
    if (!this.waiting) return rest;
    await this.consuming;
    this.spare ??= new ReadBatch(this.options.batchRows, this.options.batchBytes);
    const { spare } = this;
    const { rowCount, ends } = await this.read(spare);
    const { partition, offset } = spare.records.columns;
    for (let row = 0; row < rowCount; row++) {
      const place = partition[row] as number;
      if (!this.received.has(place)) this.received.set(place, offset[row] as bigint);
    }
    // Of a partition that nothing was taken of, the end is reached without a batch.
    for (const end of ends) if (!this.received.has(end.partition)) this.reached(end.partition, end.offset);
    if (rowCount > 0) await this.pause();
    await rest;
  }
}
