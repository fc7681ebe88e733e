/** Consumer of the payments group: reads batches, writes them, then commits their offsets. While
 *  one batch is written, the next is read and parsed. Batches are written one after the other, so
 *  the order of a partition is kept.
 *
 *  Invariants: those of inbox/member.ts, and: records of a partition that was revoked before they
 *  were written are dropped.
 */
import { sleep, type Timers } from '../../core/clock.ts';
import type { Logger } from '../../core/log.ts';
import type { ConsumeResult, Rebalance, TopicPartition } from '../../io/kafka/port.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { UuidV7 } from '../ids.ts';
import { Member, type MemberOptions } from '../inbox/member.ts';
import type { InboxPort } from '../inbox/port.ts';
import type { Delivery, DuplicateInjector } from './duplicates.ts';
import { countOutcome, type PaymentsMetrics } from './metrics.ts';
import { ReadBatch } from './read-batch.ts';
import { applyBatch, type BatchOutcome } from './store.ts';
import { PaymentWriter } from './writer.ts';

export type PaymentsCrashPoint = 'effect' | 'offset';

export interface PaymentsConsumerOptions {
  /** Creates the broker client with this rebalance handler; it must report partition ends. */
  readonly connect: MemberOptions['connect'];
  readonly topic: string;
  readonly pool: SqlPool;
  readonly ids: UuidV7;
  readonly inbox: Pick<InboxPort, 'claim'>;
  readonly injector: DuplicateInjector;
  readonly metrics: PaymentsMetrics;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  readonly batchWaitMs: number;
  /** Minimum time between the starts of two batches that are not full, ms: fewer, larger
   *  transactions. */
  readonly batchEveryMs: number;
  /** End offset of each partition, for -exit-at-end; undefined: runs until the drain. */
  readonly ends: ReadonlyMap<number, bigint> | undefined;
  /** Called at the points where a test crashes the process, with the number of committed batches
   *  and of unfinished items. `effect`: charges inserted and not committed; `offset`: records
   *  committed whose offsets are not. */
  readonly crashPoint: (
    point: PaymentsCrashPoint,
    batchesCommitted: number,
    unfinished: number,
  ) => Promise<void>;
  readonly onCommitted: (outcome: BatchOutcome) => void;
}

const LAG_EVERY_MS = 5000;
/** Timeout of the query for partition ends; offset commits queue behind it. */
const LAG_WITHIN_MS = 1000;
/** Interval of the check, with -exit-at-end, if other members reached the ends of their partitions.
 */
const ENDS_EVERY_MS = 1000;

export class PaymentsConsumer {
  private readonly options: PaymentsConsumerOptions;
  private readonly member: Member;
  private readonly writer: PaymentWriter;
  private readonly openEnds: Map<number, bigint>;
  /** Double buffer: one batch is read while the other is written. */
  private reading: ReadBatch;
  private writing: ReadBatch;
  /** Write of the current batch; it has a rejection handler. */
  private processing: Promise<boolean> | undefined;
  /** True while `reading` is being filled: records that it gets of a partition after its assignment
   *  belong to that assignment. */
  private isReading = false;
  private batchesCommitted = 0;
  /** Number of records written since the last offset commit. */
  private recordsAhead = 0;
  private lastLagMs = Number.NEGATIVE_INFINITY;
  private lastEndsMs = 0;

  constructor(options: PaymentsConsumerOptions) {
    this.options = options;
    this.openEnds = new Map(options.ends);
    this.reading = new ReadBatch(options.batchRows, options.batchBytes);
    this.writing = new ReadBatch(options.batchRows, options.batchBytes);
    this.member = new Member({
      ...options,
      topics: [options.topic],
      inFlight: () => this.processing,
      onMoved: (kind, partitions) => this.moved(kind, partitions),
      onCommit: async () => {
        const ahead = this.recordsAhead;
        await options.crashPoint('offset', this.batchesCommitted, ahead);
        return () => {
          this.recordsAhead -= ahead;
        };
      },
    });
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
      shouldStop: () => options.drain.aborted,
      isOurs: (delivery) => !this.writing.revoked.has(delivery.partition),
      onCommitted: (outcome, seconds) => {
        this.batchesCommitted++;
        this.member.noteCommitted();
        countOutcome(options.metrics, outcome, seconds, options.clock.wallNowMs());
        options.onCommitted(outcome);
      },
      onWait: (waiting) => this.wait(waiting),
      monotonicMs: () => options.clock.monotonicMs(),
    });
  }

  /** False while the database does not accept a batch. */
  isHealthy(): boolean {
    return !this.member.isWaiting;
  }

  /** Returns why this consumer may not be reading. Undefined: it is a member of its group and a
   *  broker answers. */
  unhealthyReason(): Promise<string | undefined> {
    return this.member.unhealthyReason();
  }

  /** Consumes until the drain or until all ends are reached.
   *  @throws unreachable, sql_failed */
  async run(): Promise<void> {
    const { options, member } = this;
    try {
      await member.join();
      while (!options.drain.aborted && !this.isDone()) {
        // While a batch waits for the database, it polls by itself to stay in the group; no other
        // read may run.
        if (member.isWaiting) {
          if (!(await this.awaitWrite())) break;
          if (!member.isWaiting) continue;
        }
        const startMs = options.clock.monotonicMs();
        this.isReading = true;
        const result = await this.read(this.reading);
        this.isReading = false;
        const deliveries = this.reading.deliveries(options.topic, result, (partition, next) =>
          member.took({ topic: options.topic, partition }, next),
        );
        if (!(await this.awaitWrite())) break;
        this.startWriting(deliveries);
        await this.housekeep(options.clock.monotonicMs());
        if (result.rowCount < options.batchRows) await this.pace(startMs);
      }
      await this.awaitWrite();
      if (!member.isWaiting) await this.deliverRest();
      await member.commit();
      await this.measureLag();
    } finally {
      await member.leave();
    }
  }

  /** Reads the available records into an empty batch. */
  private async read(into: ReadBatch): Promise<ConsumeResult> {
    into.begin();
    const result = await this.member.read(into);
    into.ends = result.ends;
    return result;
  }

  /** Waits for the batch that is being written. False if the drain came before the database
   *  accepted it. */
  private async awaitWrite(): Promise<boolean> {
    const finished = (await this.processing) ?? true;
    this.processing = undefined;
    return finished;
  }

  /** Starts to write the batch that was read, and swaps the buffers. */
  private startWriting(deliveries: readonly Delivery[]): void {
    [this.reading, this.writing] = [this.writing, this.reading];
    const processing = this.process(this.writing, deliveries);
    processing.catch(() => {});
    this.processing = processing;
  }

  /** Waits before the next read so that the batch fills, if the last one was not full. */
  private async pace(startMs: number): Promise<void> {
    const { batchEveryMs, clock, drain } = this.options;
    const restMs = batchEveryMs - (clock.monotonicMs() - startMs);
    if (restMs > 0 && !this.isDone()) await sleep(clock, restMs, drain);
  }

  private isDone(): boolean {
    return this.options.ends !== undefined && this.openEnds.size === 0;
  }

  private noteOffset(partition: number, nextOffset: bigint): void {
    const end = this.openEnds.get(partition);
    if (end !== undefined && nextOffset >= end) this.openEnds.delete(partition);
  }

  /** Writes one batch and advances its offsets. False if the drain came before the database
   *  accepted it. */
  private async process(batch: ReadBatch, deliveries: readonly Delivery[]): Promise<boolean> {
    const { options, member } = this;
    if (deliveries.length > 0) {
      options.metrics.messages.add(deliveries.length);
      if (!(await this.write(options.injector.inject(deliveries)))) return false;
      const last = new Map<number, bigint>();
      for (const { partition, offset } of deliveries) last.set(partition, offset);
      for (const [partition, offset] of last) {
        if (batch.revoked.has(partition)) continue;
        member.finished({ topic: options.topic, partition }, offset + 1n);
        this.noteOffset(partition, offset + 1n);
      }
      this.recordsAhead += deliveries.length;
    }
    for (const end of batch.ends) this.noteOffset(end.partition, end.offset);
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

  /** Delivers the injected copies that were scheduled for a later batch. */
  private async deliverRest(): Promise<void> {
    const rest = this.options.injector.rest();
    if (rest.length === 0) return;
    this.writing.begin();
    this.processing = this.write(rest);
    await this.awaitWrite();
  }

  private async housekeep(nowMs: number): Promise<void> {
    const hasCommitted = await this.member.commitIfDue();
    // Not awaited: its requests queue behind fetches that wait for records, one a partition. A
    // commit would queue behind them, and the next is not due soon.
    if (hasCommitted && nowMs - this.lastLagMs >= LAG_EVERY_MS) void this.measureLag();
    if (this.openEnds.size > 0 && nowMs - this.lastEndsMs >= ENDS_EVERY_MS) await this.readOtherEnds(nowMs);
  }

  /** Reads committed offsets: a partition of another member is done when the group has committed
   *  its end. */
  private async readOtherEnds(nowMs: number): Promise<void> {
    this.lastEndsMs = nowMs;
    const { consumer } = this.member;
    const owned = new Set(consumer.assignment().map((at) => at.partition));
    const others = [...this.openEnds.keys()].filter((partition) => !owned.has(partition));
    if (others.length === 0) return;
    const { topic, log } = this.options;
    try {
      for (const at of await consumer.committed(others.map((partition) => ({ topic, partition }))))
        this.noteOffset(at.partition, at.offset);
    } catch (thrown) {
      log.debug({ error: (thrown as Error).message }, 'committed offsets not read');
    }
  }

  private async measureLag(): Promise<void> {
    const { metrics, clock, log } = this.options;
    this.lastLagMs = clock.monotonicMs();
    try {
      for (const at of await this.member.consumer.lag(LAG_WITHIN_MS)) {
        const next = this.member.doneOf(at) ?? (at.position < 0n ? at.low : at.position);
        metrics.lag.set(Number(at.high - next), metrics.lag.series(at.topic, String(at.partition)));
      }
    } catch (thrown) {
      log.debug({ error: (thrown as Error).message }, 'lag not measured');
    }
  }

  private moved(kind: Rebalance['kind'], partitions: readonly TopicPartition[]): void {
    for (const { partition } of partitions) {
      if (kind !== 'assigned') for (const batch of [this.reading, this.writing]) batch.revoked.add(partition);
      else if (this.isReading) this.reading.revoked.delete(partition);
    }
    if (kind !== 'assigned') this.options.injector.forget(new Set(partitions.map((at) => at.partition)));
  }

  private async wait(waiting: boolean): Promise<void> {
    this.options.metrics.waiting.set(waiting ? 1 : 0);
    await this.member.wait(waiting);
  }

  private async idle(ms: number): Promise<void> {
    // The member reports the ends of partitions of which no record was read; no batch contains
    // them.
    for (const end of await this.member.idle(ms)) this.noteOffset(end.partition, end.offset);
  }
}
