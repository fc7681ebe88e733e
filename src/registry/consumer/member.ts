/** Member of a consumer group that decodes every record with its writer schema.
 *  Invariants: (1) an offset is committed only after the record before it is written to the sink or
 *  acknowledged by the quarantine: a crash repeats records and loses none;
 *  (2) a record that cannot be read never ends the group;
 *  (3) while the registry is unavailable, the partitions are paused, the member stays in the group,
 *  and no record is judged;
 *  (4) a record that a topic refuses as too large holds only its own partition, until the topic
 *  accepts the record. */
import { sleep, type Timers, within } from '../../core/clock.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { Counter, Gauge, Histogram, Metrics } from '../../core/metrics.ts';
import type { BatchConsumer, ConsumerOptions, Rebalance, TopicPartitionOffset } from '../../io/kafka/port.ts';
import { isRegistryAway } from '../../serde/client.ts';
import type { DecodedBatch, RecordDecoder } from './decoder.ts';
import { copyOf, rowBytes } from './deliver.ts';
import type { EndTracker } from './ends.ts';
import { HeldPartitions, type HeldRow, reasonOf } from './held.ts';
import type { Quarantine } from './quarantine.ts';
import type { RegistryWait } from './registry-wait.ts';
import type { DecodedSink } from './sink.ts';

export interface ConsumerMetrics {
  readonly consumed: Counter;
  readonly decoded: Counter;
  readonly errors: Counter;
  readonly decodeSeconds: Histogram;
  readonly registryWaits: Counter;
  readonly heldRecords: Counter;
  readonly heldPartitions: Gauge;
  readonly lag: Gauge;
}

export function consumerMetrics(metrics: Metrics): ConsumerMetrics {
  return {
    consumed: metrics.counter('consumed_records_total', 'Records read from the topic.'),
    decoded: metrics.counter('decoded_records_total', 'Records decoded with the reader schema.'),
    errors: metrics.counter(
      'deserialize_errors_total',
      'Records that cannot be read and went to quarantine.',
      ['subject', 'reason'],
    ),
    decodeSeconds: metrics.histogram(
      'serde_decode_seconds',
      'Time to decode one record, as the mean of its batch.',
    ),
    registryWaits: metrics.counter(
      'registry_unavailable_total',
      'Pauses because the registry did not answer.',
    ),
    heldRecords: metrics.counter(
      'consumer_held_records_total',
      'Records that the quarantine or the output topic refused as too large; their partition waits.',
      ['topic'],
    ),
    heldPartitions: metrics.gauge(
      'consumer_held_partitions',
      'Partitions that wait until a topic accepts a record that it refused as too large.',
      [],
      'sum',
    ),
    lag: metrics.gauge('consumer_lag_records', 'Records between the next one to read and the end.', [
      'topic',
      'partition',
    ]),
  };
}

export interface GroupMemberOptions {
  /** Creates the broker client with this rebalance handler. */
  readonly connect: (hooks: Required<Pick<ConsumerOptions, 'onRebalance'>>) => Promise<BatchConsumer>;
  readonly topic: string;
  readonly subject: string;
  readonly decoder: RecordDecoder;
  readonly sink: DecodedSink | undefined;
  readonly quarantine: Quarantine;
  readonly metrics: ConsumerMetrics;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
  /** Undefined: run until the drain. */
  readonly ends: EndTracker | undefined;
  /** Limit of a wait for the registry; undefined: none. */
  readonly registryWait?: RegistryWait | undefined;
  /** True when no further record is wanted. Default: never. */
  readonly isEnough?: () => boolean;
  readonly onRows: (rows: number, failed: number, selected: number) => void;
}

const WAIT_MS = 250;
const COMMIT_EVERY_MS = 1000;
const LAG_EVERY_MS = 5000;
/** Timeout of the end offsets query; commits wait behind the query. */
const LAG_WITHIN_MS = 1000;
/** Longest wait of a rebalance for the batch in flight. */
const REBALANCE_WAIT_MS = 10_000;
const REGISTRY_RETRY_MS = 100;
const REGISTRY_RETRY_MS_MAX = 5000;
/** Most batches kept while the registry is unavailable. Each comes from a partition that had not
 *  delivered before. */
const KEPT_BATCHES_MAX = 16;

export class GroupMember {
  private readonly options: GroupMemberOptions;
  private readonly records: RecordBatch;
  /** Batches that arrived while the registry was unavailable, in order; `spares` are reusable
   *  batches. */
  private readonly kept: RecordBatch[] = [];
  private readonly keptEnds: TopicPartitionOffset[] = [];
  private readonly spares: RecordBatch[] = [];
  private readonly paused = new Set<number>();
  private readonly held = new HeldPartitions();
  /** Next offset to commit, by partition. */
  private readonly positions = new Map<number, bigint>();
  private readonly committed = new Map<number, bigint>();
  /** First offset received, by partition. */
  private readonly receivedFrom = new Map<number, bigint>();
  /** Next offset to receive, by partition: `positions` plus the unfinished records. */
  private readonly received = new Map<number, bigint>();
  private consumer: BatchConsumer | undefined;
  private processing: Promise<void> = Promise.resolve();
  private waitsForRegistry = false;
  private lastCommitMs = 0;
  private lastLagMs = 0;

  constructor(options: GroupMemberOptions) {
    this.options = options;
    this.records = RecordBatch.create(options.batchRows, options.batchBytes);
  }

  /** Reads until the drain, or until the end offsets are reached. @throws not_delivered,
   *  unreachable, and with a limited wait the errors of the registry */
  async run(): Promise<void> {
    const { options } = this;
    const consumer = await options.connect({ onRebalance: (rebalance) => this.onRebalance(rebalance) });
    this.consumer = consumer;
    this.lastCommitMs = options.clock.monotonicMs();
    try {
      await consumer.subscribe([options.topic]);
      while (!options.drain.aborted && options.ends?.done() !== true && options.isEnough?.() !== true) {
        const result = await consumer.consume(this.records, WAIT_MS);
        for (const event of result.events) options.log.warn({ ...event }, 'broker event');
        if (result.rowCount > 0) {
          this.noteReceived(this.records);
          this.processing = this.process(this.records);
          await this.processing;
        }
        this.reached(result.ends);
        await this.maintain();
      }
      await this.commit(options.clock.monotonicMs());
    } finally {
      await consumer.close();
    }
  }

  /** Reason why a partition is held; undefined if no partition is held. */
  heldReason(): string | undefined {
    return this.held.reason();
  }

  private async maintain(): Promise<void> {
    const nowMs = this.options.clock.monotonicMs();
    if (this.held.isDue(nowMs)) await this.retryHeld(nowMs);
    if (nowMs - this.lastCommitMs >= COMMIT_EVERY_MS) await this.commit(nowMs);
    if (nowMs - this.lastLagMs >= LAG_EVERY_MS) await this.measureLag(nowMs);
  }

  private sleep(ms: number): Promise<void> {
    const { clock, drain } = this.options;
    return sleep(clock, ms, drain);
  }

  /** Finishes a batch, then the batches that arrived behind it while the registry was unavailable,
   *  in order. */
  private async process(records: RecordBatch): Promise<void> {
    if (!(await this.finish(records))) return;
    for (let next = this.kept.shift(); next !== undefined; next = this.kept.shift()) {
      if (!(await this.finish(next))) return;
      this.spares.push(next);
    }
    this.reached(this.keptEnds.splice(0));
  }

  /** Marks partitions as at their end, except held partitions. */
  private reached(ends: readonly TopicPartitionOffset[]): void {
    for (const end of ends)
      if (!this.held.has(end.partition)) this.options.ends?.reached(end.partition, end.offset);
  }

  /** False: the drain came before the registry answered, so no record of the batch counts as read.
   */
  private async finish(records: RecordBatch): Promise<boolean> {
    const { options } = this;
    if (!(await this.prepare(records))) return false;
    const startMs = options.clock.monotonicMs();
    const batch = options.decoder.decode(records);
    const { decoded, failed, skipped = 0, end = records.rowCount } = batch;
    const rows = decoded.length + failed.length + skipped;
    const seconds = (options.clock.monotonicMs() - startMs) / 1000;
    if (rows > 0) options.metrics.decodeSeconds.observeMany(seconds / rows, rows);
    const newlyHeld = this.hold(await this.deliver(records, batch));
    options.metrics.consumed.add(rows);
    options.metrics.decoded.add(decoded.length + skipped);
    for (const { reason } of failed)
      options.metrics.errors.add(1, options.metrics.errors.series(options.subject, reason));
    const { partition, offset } = records.columns;
    for (let row = 0; row < end; row++) {
      const at = partition[row] as number;
      const next = (offset[row] as bigint) + 1n;
      if (!this.held.advance(at, next)) this.positions.set(at, next);
    }
    for (const [at, next] of this.positions) options.ends?.reached(at, next);
    options.onRows(rows, failed.length, decoded.length);
    await this.pauseHeld(newlyHeld);
    return true;
  }

  /** @returns the rows that a topic refuses as too large, in the order of their offsets */
  private async deliver(
    records: RecordBatch,
    { decoded, failed }: DecodedBatch,
  ): Promise<readonly HeldRow[]> {
    const { sink, quarantine, topic } = this.options;
    const [unwritten, unquarantined] = await Promise.all([
      sink?.write(records, decoded) ?? [],
      failed.length === 0 ? [] : quarantine.write(records, topic, failed),
    ]);
    const { partition, offset } = records.columns;
    const heldRow = (
      row: number,
      to: string,
      write: (copy: RecordBatch) => Promise<readonly unknown[]>,
    ): HeldRow => {
      const copy = copyOf(records, row);
      return {
        partition: partition[row] as number,
        offset: offset[row] as bigint,
        topic: to,
        bytes: rowBytes(records, row),
        retry: async () => (await write(copy)).length === 0,
      };
    };
    const rows = [
      ...unwritten.map((one) =>
        heldRow(one.row, sink?.target ?? '', (copy) =>
          (sink as DecodedSink).write(copy, [{ ...one, row: 0 }]),
        ),
      ),
      ...unquarantined.map((one) =>
        heldRow(one.row, quarantine.topic, (copy) => quarantine.write(copy, topic, [{ ...one, row: 0 }])),
      ),
    ];
    return rows.sort((a, b) => (a.offset < b.offset ? -1 : 1));
  }

  /** @returns the partitions that were not held before */
  private hold(rows: readonly HeldRow[]): readonly number[] {
    const { metrics, log, clock } = this.options;
    const owned = new Set(this.consumer?.assignment().map((at) => at.partition));
    const partitions: number[] = [];
    for (const row of rows) {
      // The new owner of a revoked partition reads the record again.
      if (!owned.has(row.partition)) continue;
      metrics.heldRecords.add(1, metrics.heldRecords.series(row.topic));
      if (!this.held.hold(row, clock.monotonicMs())) continue;
      log.error({ partition: row.partition, offset: String(row.offset), topic: row.topic }, reasonOf(row));
      partitions.push(row.partition);
      this.countHeld(1);
    }
    return partitions;
  }

  private countHeld(more: number): void {
    const { heldPartitions } = this.options.metrics;
    heldPartitions.set(heldPartitions.value() + more);
  }

  private async pauseHeld(partitions: readonly number[]): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer.assignment().filter((at) => partitions.includes(at.partition));
    if (places.length > 0) await consumer.pause(places);
  }

  private async retryHeld(nowMs: number): Promise<void> {
    const { options } = this;
    const released = await this.held.retry(nowMs);
    for (const { partition, next } of released) {
      this.countHeld(-1);
      this.positions.set(partition, next);
      options.ends?.reached(partition, next);
      options.log.info(
        { partition },
        'the record that was too large is delivered; the partition is read again',
      );
      this.paused.add(partition);
    }
    // While the registry is unavailable, the released partitions stay paused with the others.
    if (released.length > 0 && !this.waitsForRegistry) await this.resume();
  }

  /** Loads the schemas of a batch, and waits for the registry. False: the drain came first.
   *  @throws the registry's error when the wait has a limit that is over; what is finished is
   *    committed */
  private async prepare(records: RecordBatch): Promise<boolean> {
    const { options } = this;
    const { registryWait } = options;
    registryWait?.begin();
    let delayMs = REGISTRY_RETRY_MS;
    for (;;) {
      try {
        await options.decoder.prepare(records);
        registryWait?.end();
        break;
      } catch (thrown) {
        if (!isRegistryAway(thrown)) throw thrown;
        if (!this.waitsForRegistry) {
          this.waitsForRegistry = true;
          options.metrics.registryWaits.add();
          options.log.warn(
            { error: (thrown as Error).message },
            'the registry does not answer; paused until it does',
          );
          await this.pause();
        }
        if (options.drain.aborted) return false;
        const leftMs = registryWait?.leftMs() ?? delayMs;
        if (leftMs === 0) {
          await this.commit(options.clock.monotonicMs());
          throw registryWait?.error(thrown);
        }
        await this.idle(Math.min(delayMs, leftMs));
        await this.maintain();
        delayMs = Math.min(delayMs * 2, REGISTRY_RETRY_MS_MAX);
      }
    }
    if (this.waitsForRegistry) {
      this.waitsForRegistry = false;
      await this.resume();
      options.log.info({}, 'the registry answers again');
    }
    return true;
  }

  /** Pauses the partitions that delivered records: only their next offset is known. */
  private async pause(): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer
      .assignment()
      .filter(
        ({ partition }) =>
          this.received.has(partition) && !this.paused.has(partition) && !this.held.has(partition),
      );
    for (const { partition } of places) this.paused.add(partition);
    if (places.length > 0) await consumer.pause(places);
  }

  private async resume(): Promise<void> {
    const consumer = this.consumer as BatchConsumer;
    const places = consumer.assignment().filter((at) => this.paused.has(at.partition));
    this.paused.clear();
    if (places.length === 0) return;
    await consumer.resume(places);
    // A pause discards the client's read position, so the position is set again from the received
    // offsets.
    for (const { topic, partition } of places) {
      await consumer.seek({ topic, partition, offset: this.received.get(partition) as bigint });
    }
  }

  private noteReceived(records: RecordBatch): void {
    const { partition, offset } = records.columns;
    for (let row = 0; row < records.rowCount; row++) {
      const at = partition[row] as number;
      if (!this.receivedFrom.has(at)) this.receivedFrom.set(at, offset[row] as bigint);
      this.received.set(at, (offset[row] as bigint) + 1n);
    }
  }

  /** Polls while the registry is unavailable, because the group evicts a member that does not poll.
   *  Each partition that still delivers does so once, is kept, and is paused. */
  private async idle(ms: number): Promise<void> {
    const { options } = this;
    if (this.kept.length >= KEPT_BATCHES_MAX) {
      await this.sleep(ms);
      return;
    }
    const into = this.spares.pop() ?? RecordBatch.create(options.batchRows, options.batchBytes);
    const { rowCount, ends } = await (this.consumer as BatchConsumer).consume(into, ms);
    this.keptEnds.push(...ends);
    if (rowCount === 0) {
      this.spares.push(into);
      return;
    }
    this.kept.push(into);
    this.noteReceived(into);
    await this.pause();
    await this.sleep(ms);
  }

  private async onRebalance(rebalance: Rebalance): Promise<void> {
    this.options.log.info(
      { kind: rebalance.kind, partitions: rebalance.partitions.map((at) => at.partition) },
      'rebalance',
    );
    if (rebalance.kind === 'revoked') {
      // A batch that waits for the registry cannot finish now. The new owner reads it again.
      if (!this.waitsForRegistry)
        await within(
          this.options.clock,
          REBALANCE_WAIT_MS,
          this.processing.catch(() => {}),
        );
      await this.commit(this.options.clock.monotonicMs());
    }
    const { lag } = this.options.metrics;
    for (const { topic, partition } of rebalance.partitions) {
      this.positions.delete(partition);
      this.committed.delete(partition);
      this.receivedFrom.delete(partition);
      this.received.delete(partition);
      this.paused.delete(partition);
      if (this.held.drop(partition)) this.countHeld(-1);
      lag.drop(topic, String(partition));
    }
  }

  private async commit(nowMs: number): Promise<void> {
    const { topic, log, clock } = this.options;
    const consumer = this.consumer as BatchConsumer;
    const owned = new Set(consumer.assignment().map((at) => at.partition));
    const offsets: TopicPartitionOffset[] = [];
    for (const [partition, offset] of this.positions) {
      if (owned.has(partition) && this.committed.get(partition) !== offset)
        offsets.push({ topic, partition, offset });
    }
    this.lastCommitMs = nowMs;
    if (offsets.length === 0) return;
    try {
      if ((await consumer.commit(offsets)) === 'committed') {
        for (const { partition, offset } of offsets) this.committed.set(partition, offset);
      } else {
        this.lastCommitMs = clock.monotonicMs();
        log.debug({}, 'offsets not committed amid a rebalance; tried again');
      }
    } catch (thrown) {
      // The records are delivered; uncommitted offsets only cause repeated reads.
      log.warn({ error: (thrown as Error).message }, 'offset commit failed; it is tried again');
    }
  }

  private async measureLag(nowMs: number): Promise<void> {
    this.lastLagMs = nowMs;
    const { lag } = this.options.metrics;
    try {
      const consumer = this.consumer as BatchConsumer;
      const all = await consumer.lag(LAG_WITHIN_MS);
      const owned = new Set(consumer.assignment().map((at) => at.partition));
      for (const at of all) {
        // A partition that was revoked meanwhile has no lag here.
        if (!owned.has(at.partition)) continue;
        // The client's position counts received records; this lag counts finished records.
        const next = this.positions.get(at.partition) ?? this.receivedFrom.get(at.partition) ?? at.position;
        const records = next < 0n ? at.high - at.low : at.high - next;
        lag.set(Number(records), lag.series(at.topic, String(at.partition)));
      }
    } catch (thrown) {
      this.options.log.debug({ error: (thrown as Error).message }, 'lag not measured');
    }
  }
}
