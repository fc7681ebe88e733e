/** A member of the payments group: reads batches, has them written, then commits their offsets.
 *  While one batch is written the next is read and parsed; batches are written one after the other,
 *  so the order of a partition is kept.
 *
 *  Invariants: those of a member (inbox/member.ts), and: what was read of partitions that leave in
 *  mid-batch and not written is dropped.
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
  /** Makes the broker client with this rebalance handler; it must report partition ends. */
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
  /** Least time between the starts of two batches while they are not full: fewer, larger
   *  transactions. */
  readonly batchEveryMs: number;
  /** Partitions with the offset where each is done; undefined: runs until the drain. */
  readonly ends: ReadonlyMap<number, bigint> | undefined;
  /** Called where a crash is of interest, with the batches committed so far and how much a crash
   *  would leave unfinished: `effect` charges inserted and not committed, `offset` records
   *  committed whose offsets are not. */
  readonly crashPoint: (
    point: PaymentsCrashPoint,
    batchesCommitted: number,
    unfinished: number,
  ) => Promise<void>;
  readonly onCommitted: (outcome: BatchOutcome) => void;
}

const LAG_EVERY_MS = 5000;
/** How long a broker may take to say where a partition ends; commits wait behind the question. */
const LAG_WITHIN_MS = 1000;
/** How often partitions that others read are asked for, with -exit-at-end. */
const ENDS_EVERY_MS = 1000;

export class PaymentsConsumer {
  private readonly options: PaymentsConsumerOptions;
  private readonly member: Member;
  private readonly writer: PaymentWriter;
  private readonly open: Map<number, bigint>;
  /** Filled in turns: one is read while the other is written. */
  private reading: ReadBatch;
  private writing: ReadBatch;
  /** The batch that is being written; never rejects unheard. */
  private processing: Promise<boolean> | undefined;
  /** `reading` is being filled: what comes into it after an assignment belongs to that assignment.
   */
  private isReading = false;
  private batchesCommitted = 0;
  /** Records written since offsets were last committed. */
  private recordsAhead = 0;
  private lastLagMs = Number.NEGATIVE_INFINITY;
  private lastEndsMs = 0;

  constructor(options: PaymentsConsumerOptions) {
    this.options = options;
    this.open = new Map(options.ends);
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
      isOurs: (delivery) => !this.writing.left.has(delivery.partition),
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

  /** The database answered the last time it was asked. */
  isHealthy(): boolean {
    return !this.member.isWaiting;
  }

  /** Why it may not be reading what comes; undefined: it is a member of its group, and a broker
   *  answers. */
  unhealthyReason(): Promise<string | undefined> {
    return this.member.unhealthyReason();
  }

  /** Reads until the drain, or until the ends are reached. @throws unreachable, sql_failed */
  async run(): Promise<void> {
    const { options, member } = this;
    try {
      await member.join();
      while (!options.drain.aborted && !this.isDone()) {
        // The batch that waits for the database reads by itself, to stay in the group: no other
        // read until it is through.
        if (member.isWaiting) {
          if (!(await this.written())) break;
          if (!member.isWaiting) continue;
        }
        const startMs = options.clock.monotonicMs();
        this.isReading = true;
        const result = await this.read(this.reading);
        this.isReading = false;
        const deliveries = this.reading.deliveries(options.topic, result, (partition, next) =>
          member.took({ topic: options.topic, partition }, next),
        );
        if (!(await this.written())) break;
        this.startWriting(deliveries);
        await this.housekeep(options.clock.monotonicMs());
        if (result.rowCount < options.batchRows) await this.pace(startMs);
      }
      await this.written();
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

  /** Waits for the batch that is being written. false: given up, the drain came before the database
   *  did. */
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
    if (restMs > 0 && !this.isDone()) await sleep(clock, restMs, drain);
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
    const { options, member } = this;
    if (deliveries.length > 0) {
      options.metrics.messages.add(deliveries.length);
      if (!(await this.write(options.injector.inject(deliveries)))) return false;
      const last = new Map<number, bigint>();
      for (const { partition, offset } of deliveries) last.set(partition, offset);
      for (const [partition, offset] of last) {
        if (batch.left.has(partition)) continue;
        member.finished({ topic: options.topic, partition }, offset + 1n);
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

  private async housekeep(nowMs: number): Promise<void> {
    await this.member.commitIfDue();
    if (nowMs - this.lastLagMs >= LAG_EVERY_MS) await this.measureLag();
    if (this.open.size > 0 && nowMs - this.lastEndsMs >= ENDS_EVERY_MS) await this.askForEnds(nowMs);
  }

  /** Partitions that another member reads are done when the group has committed their end. */
  private async askForEnds(nowMs: number): Promise<void> {
    this.lastEndsMs = nowMs;
    const { consumer } = this.member;
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
      if (kind !== 'assigned') for (const batch of [this.reading, this.writing]) batch.left.add(partition);
      else if (this.isReading) this.reading.left.delete(partition);
    }
    if (kind !== 'assigned') this.options.injector.forget(new Set(partitions.map((at) => at.partition)));
  }

  private async wait(waiting: boolean): Promise<void> {
    this.options.metrics.waiting.set(waiting ? 1 : 0);
    await this.member.wait(waiting);
  }

  private async idle(ms: number): Promise<void> {
    // Of a partition that nothing was taken of, the end is reached without a batch.
    for (const end of await this.member.idle(ms)) this.reached(end.partition, end.offset);
  }
}
