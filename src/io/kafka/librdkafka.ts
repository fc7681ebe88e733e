/** Driver over librdkafka: the addon reads and writes whole batches on its own threads. Works in
 *  any thread.
 *
 *  One call into C++ handles a whole batch. The process has one librdkafka: the copy that
 *  node-rdkafka built. Topics are administered through node-rdkafka, which works on the main thread
 *  only.
 */

import type {
  ConsumerHandle,
  NativeAnswer,
  NativeEvent,
  NativePlace,
  ProducerHandle,
} from '../../addon/broker-functions.ts';
import { callAddon, loadAddon } from '../../addon/load.ts';
import { batchBytes } from '../../addon/raw.ts';
import { invariant } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import { commitToGroup, groupAnswerMs } from './commit.ts';
import {
  type BROKER_ERRORS,
  badProperty,
  brokerError,
  brokerEvent,
  closedError,
  ERR,
  endsPolling,
  errorOfEvent,
  transactionFailure,
} from './errors.ts';
import { nodeRdkafkaDriver } from './node-rdkafka/driver.ts';
import {
  type BatchConsumer,
  type BatchProducer,
  type BrokerDriver,
  type BrokerEvent,
  type BrokerOptions,
  type CommitOutcome,
  type ConsumeResult,
  type ConsumerOptions,
  type DeliveryReport,
  NO_OFFSET,
  type PartitionLag,
  type ProducerOptions,
  type Rebalance,
  type TopicPartition,
  type TopicPartitionOffset,
  type TransactionalOptions,
  type TransactionalProducer,
  type TransactionFailure,
} from './port.ts';
import {
  CONNECT_TIMEOUT_MS,
  consumerProperties,
  producerProperties,
  QUEUE_BYTES_MAX,
  transactionalProperties,
} from './properties.ts';
import { reachBroker } from './reach.ts';
import { retryTransient } from './retry.ts';

const SEEK_TIMEOUT_MS = 5000;
const FLUSH_AT_CLOSE_MS = 30_000;

type Addon = ReturnType<typeof loadAddon>;

export const eventOf = ([code, message, fatal, topic, partition]: NativeEvent): BrokerEvent =>
  brokerEvent(
    code,
    message,
    { ...(topic === null ? {} : { topic }), ...(partition < 0 ? {} : { partition }) },
    fatal,
  );

export const placeOf = ([topic, partition, offset]: NativePlace): TopicPartitionOffset => ({
  topic,
  partition,
  offset,
});

export function flat(
  places: ReadonlyArray<TopicPartition & { readonly offset?: bigint }>,
): [string[], Int32Array, BigInt64Array] {
  return [
    places.map((at) => at.topic),
    Int32Array.from(places, (at) => at.partition),
    BigInt64Array.from(places, (at) => at.offset ?? NO_OFFSET),
  ];
}

export function demand(what: string, [failure, places]: NativeAnswer): readonly NativePlace[] {
  if (failure !== null) throw errorOfEvent(what, eventOf(failure));
  return places ?? [];
}

export const pairs = (properties: Readonly<Record<string, string>>): string[] => Object.entries(properties).flat();

/** Opens a native client. A property that librdkafka refuses is an error of the caller. @throws
 *  bad_broker_property */
export function openNative<H>({ properties }: BrokerOptions, make: () => H): H {
  try {
    return callAddon(make);
  } catch (thrown) {
    if ((thrown as { code?: unknown }).code !== ('bad_broker_property' satisfies keyof typeof BROKER_ERRORS))
      throw thrown;
    throw badProperty(properties, (thrown as Error).message);
  }
}

class NativeConsumer implements BatchConsumer {
  readonly topics: string[] = [];
  private readonly addon: Addon;
  private readonly options: ConsumerOptions;
  private readonly handle: ConsumerHandle;
  /** Callback that must stay referenced here: the addon holds a weak reference. */
  private readonly onRebalance: Parameters<Addon['brokerConsumerOpen']>[1];
  private ended = false;
  private isMember = false;
  private readonly assigned = new Map<string, TopicPartition>();
  private consuming = false;
  private fatal: BrokerEvent | undefined;
  private failures: BrokerEvent[] = [];
  private closing: Promise<void> | undefined;
  /** Above zero while onRebalance runs, which may commit although close has begun. */
  private rebalanceDepth = 0;

  constructor(addon: Addon, options: ConsumerOptions) {
    this.addon = addon;
    this.options = options;
    this.onRebalance = (kind, places) => void this.rebalance(kind, places);
    this.handle = openNative(options, () =>
      addon.brokerConsumerOpen(pairs(consumerProperties(options)), this.onRebalance),
    );
  }

  async connect(): Promise<void> {
    try {
      await this.reach(this.options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS);
    } catch (thrown) {
      this.addon.brokerConsumerClose(this.handle);
      throw thrown;
    }
  }

  async reach(timeoutMs: number): Promise<void> {
    await reachBroker(this.options, timeoutMs, async (limitMs) => {
      this.checkOpen();
      return (await this.addon.brokerConsumerConnect(this.handle, limitMs))[0]?.[1];
    });
  }

  async assign(partitions: readonly TopicPartitionOffset[]): Promise<void> {
    this.checkOpen();
    demand('assign', await this.addon.brokerConsumerAssign(this.handle, ...flat(partitions)));
    this.assigned.clear();
    for (const at of partitions) this.addAssigned(at);
  }

  async subscribe(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    this.checkGroup('subscribe');
    demand('subscribe', await this.addon.brokerConsumerSubscribe(this.handle, topics));
    this.isMember = true;
  }

  async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    this.checkOpen();
    invariant(!this.consuming, 'one consume at a time');
    this.consuming = true;
    into.clear();
    try {
      const [rowCount, ends, events, topics, tookMs, runs] = await callAddon(() =>
        this.addon.brokerConsumerConsume(this.handle, batchBytes(into), Math.max(0, Math.ceil(waitMs))),
      );
      this.topics.push(...topics);
      const reported = [...this.failures, ...events.map(eventOf)];
      this.failures = [];
      this.fatal ??= reported.find((event) => endsPolling(this.isMember, event));
      if (this.fatal !== undefined && rowCount === 0)
        throw errorOfEvent('the consumer cannot continue', this.fatal);
      const receipts = Array.from({ length: runs.length / 2 }, (_, i) => ({
        rows: runs[2 * i] as number,
        ageMs: runs[2 * i + 1] as number,
      }));
      return { rowCount, ends: ends.map(placeOf), events: reported, tookMs, receipts };
    } finally {
      this.consuming = false;
    }
  }

  async pause(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    demand('pause', await this.addon.brokerConsumerPause(this.handle, ...flat(partitions)));
  }

  async resume(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    demand('resume', await this.addon.brokerConsumerResume(this.handle, ...flat(partitions)));
  }

  async seek(position: TopicPartitionOffset): Promise<void> {
    this.checkOpen();
    const what = `seek ${position.topic}/${position.partition}`;
    demand(what, await this.addon.brokerConsumerSeek(this.handle, ...flat([position]), SEEK_TIMEOUT_MS));
  }

  async commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome> {
    this.checkOpen();
    this.checkGroup('commit');
    if (offsets.length === 0) return 'committed';
    const once = async (timeoutMs: number): Promise<BrokerEvent | undefined> => {
      const [failure] = await this.addon.brokerConsumerCommit(this.handle, ...flat(offsets), timeoutMs);
      return failure === null ? undefined : eventOf(failure);
    };
    const isOwn = (at: TopicPartition): boolean => this.assigned.has(`${at.partition}@${at.topic}`);
    return commitToGroup(this.isMember, once, offsets, isOwn);
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    const waitMs = groupAnswerMs(this.isMember);
    return demand(
      'committed',
      await this.addon.brokerConsumerCommitted(this.handle, ...flat(partitions), waitMs),
    ).map(placeOf);
  }

  assignment(): readonly TopicPartition[] {
    return [...this.assigned.values()];
  }

  async lag(timeoutMs: number): Promise<readonly PartitionLag[]> {
    this.checkOpen();
    const positions = demand('positions', await this.addon.brokerConsumerPositions(this.handle)).map(placeOf);
    const marks = demand(
      'offsets',
      await this.addon.brokerConsumerWatermarks(this.handle, ...flat(positions), timeoutMs),
    );
    return positions.map(({ topic, partition, offset }, i) => ({
      topic,
      partition,
      low: (marks[2 * i] as NativePlace)[2],
      high: (marks[2 * i + 1] as NativePlace)[2],
      position: offset,
    }));
  }

  async watermarkOffsets(
    at: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }> {
    this.checkOpen();
    return retryTransient(timeoutMs, async (leftMs) => {
      this.checkOpen();
      const answer = await this.addon.brokerConsumerWatermarks(this.handle, ...flat([at]), leftMs);
      const [low, high] = demand(`offsets of ${at.topic}/${at.partition}`, answer) as [
        NativePlace,
        NativePlace,
      ];
      return { low: low[2], high: high[2] };
    });
  }

  close(): Promise<void> {
    this.closing ??= this.leave();
    return this.closing;
  }

  private async leave(): Promise<void> {
    await this.addon.brokerConsumerLeave(this.handle);
    this.ended = true;
    this.addon.brokerConsumerClose(this.handle);
    this.assigned.clear();
  }

  private checkOpen(): void {
    if (this.closing !== undefined && this.rebalanceDepth === 0) throw closedError('consumer');
  }

  private checkGroup(what: string): void {
    if (this.options.group === undefined)
      throw brokerError('bad_broker_property', `${what} needs a group`, { next: 'give -group' });
  }

  private addAssigned(at: TopicPartition): void {
    this.assigned.set(`${at.partition}@${at.topic}`, { topic: at.topic, partition: at.partition });
  }

  private async rebalance(kind: Rebalance['kind'], places: readonly NativePlace[]): Promise<void> {
    const partitions = places.map(([topic, partition]) => ({ topic, partition }));
    this.rebalanceDepth++;
    try {
      await this.options.onRebalance?.({ kind, partitions });
    } catch (thrown) {
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      this.failures.push(brokerEvent(ERR.APPLICATION, `onRebalance failed: ${why}`));
    } finally {
      this.rebalanceDepth--;
    }
    for (const at of partitions) {
      if (kind === 'assigned') this.addAssigned(at);
      else this.assigned.delete(`${at.partition}@${at.topic}`);
    }
    // The client may be closed already when the handler took too long.
    if (!this.ended) this.addon.brokerConsumerAnswer(this.handle);
  }
}

class NativeProducer implements BatchProducer {
  protected readonly addon: Addon;
  private readonly options: ProducerOptions;
  protected readonly handle: ProducerHandle;
  private readonly queueBytesMax: number;
  private readonly inFlight = new Set<Promise<unknown>>();
  private turn: Promise<void> = Promise.resolve();
  private bytes = 0;
  /** Resolves the wait for queue space when bytes have left the queue. */
  private wake: (() => void) | undefined;
  private closing: Promise<void> | undefined;
  /** True once calls that wait for queue space must fail with `closed`. */
  private stopsWaiting = false;

  constructor(addon: Addon, options: ProducerOptions, properties = producerProperties(options)) {
    this.addon = addon;
    this.options = options;
    this.queueBytesMax = options.queueBytesMax ?? QUEUE_BYTES_MAX;
    this.handle = openNative(options, () => addon.brokerProducerOpen(pairs(properties)));
  }

  async connect(): Promise<void> {
    try {
      await reachBroker(
        this.options,
        this.options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS,
        async (limitMs) => (await this.addon.brokerProducerConnect(this.handle, limitMs))[0]?.[1],
      );
    } catch (thrown) {
      this.addon.brokerProducerClose(this.handle);
      throw thrown;
    }
  }

  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    this.checkUsable();
    const before = this.turn;
    let next = (): void => {};
    this.turn = new Promise((resolve) => {
      next = resolve;
    });
    const rows = batch.rowCount;
    const report = { status: new Int32Array(rows), offset: new BigInt64Array(rows).fill(NO_OFFSET) };
    const bytes = batch.arenaUsed;
    let delivery: ReturnType<Addon['brokerProducerProduce']>;
    try {
      await before;
      while (this.bytes >= this.queueBytesMax) {
        if (this.stopsWaiting) throw closedError('producer');
        await new Promise<void>((resolve) => {
          this.wake = resolve;
        });
      }
      this.checkUsable(true);
      delivery = callAddon(() =>
        this.addon.brokerProducerProduce(
          this.handle,
          batchBytes(batch),
          topics,
          report.status,
          report.offset,
        ),
      );
      this.bytes += bytes;
      this.inFlight.add(delivery);
    } finally {
      next();
    }
    try {
      const [failed, events] = await delivery;
      return { delivered: rows - failed, failed, ...report, events: events.map(eventOf) };
    } finally {
      this.inFlight.delete(delivery);
      this.bytes -= bytes;
      this.wake?.();
    }
  }

  queuedBytes(): number {
    return this.bytes;
  }

  async flush(timeoutMs: number): Promise<void> {
    if (this.closing !== undefined) throw closedError('producer');
    const deadline = performance.now() + timeoutMs;
    await Promise.race([this.turn, new Promise((resolve) => setTimeout(resolve, timeoutMs).unref())]);
    if (this.closing !== undefined) throw closedError('producer');
    const left = Math.max(1, Math.ceil(deadline - performance.now()));
    demand('flush', await this.addon.brokerProducerFlush(this.handle, left));
  }

  close(flushMs = FLUSH_AT_CLOSE_MS): Promise<void> {
    this.closing ??= this.leave(flushMs);
    return this.closing;
  }

  private async leave(flushMs: number): Promise<void> {
    await Promise.race([this.turn, new Promise((resolve) => setTimeout(resolve, flushMs).unref())]);
    this.stopsWaiting = true;
    this.wake?.();
    await this.turn;
    await this.addon.brokerProducerLeave(this.handle, Math.max(1, Math.ceil(flushMs)));
    this.addon.brokerProducerClose(this.handle);
    await Promise.allSettled(this.inFlight);
  }

  protected checkNotClosed(): void {
    if (this.closing !== undefined) throw closedError('producer');
  }

  /** Checks that the producer works. @param waited the call began before close, which waits for it
   */
  private checkUsable(waited = false): void {
    if (!waited) this.checkNotClosed();
    const fatal = this.addon.brokerProducerFatal(this.handle);
    if (fatal !== null) throw errorOfEvent('the producer cannot continue', eventOf(fatal));
  }
}

/** Transactional producer; its steps block a thread of the addon, never the event loop. */
class NativeTransactionalProducer extends NativeProducer implements TransactionalProducer {
  init(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(0, timeoutMs);
  }

  begin(): Promise<TransactionFailure | undefined> {
    return this.step(1, 0);
  }

  commit(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(2, timeoutMs);
  }

  abort(timeoutMs: number): Promise<TransactionFailure | undefined> {
    return this.step(3, timeoutMs);
  }

  private async step(step: number, timeoutMs: number): Promise<TransactionFailure | undefined> {
    this.checkNotClosed();
    const [failure, flags] = await this.addon.brokerProducerTransact(
      this.handle,
      step,
      Math.max(0, Math.ceil(timeoutMs)),
    );
    if (failure === null) return undefined;
    return transactionFailure(eventOf(failure), {
      retriable: (flags & 1) !== 0,
      abortable: (flags & 2) !== 0,
    });
  }
}

async function consumer(options: ConsumerOptions): Promise<BatchConsumer> {
  const made = new NativeConsumer(loadAddon(), options);
  await made.connect();
  return made;
}

async function producer(options: ProducerOptions): Promise<BatchProducer> {
  const made = new NativeProducer(loadAddon(), options);
  await made.connect();
  return made;
}

async function transactional(options: TransactionalOptions): Promise<TransactionalProducer> {
  const made = new NativeTransactionalProducer(loadAddon(), options, transactionalProperties(options));
  await made.connect();
  return made;
}

export const librdkafkaDriver: BrokerDriver = {
  name: 'librdkafka',
  consumer,
  producer,
  transactional,
  admin: (options: BrokerOptions) => nodeRdkafkaDriver.admin(options),
};
