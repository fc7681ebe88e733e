/** Driver `direct`: assigned partitions are fetched from their leaders by the addon, which reads
 *  record batches in place. librdkafka serves the rest: groups, committed offsets, the bounds of
 *  partitions, producers, and every consumer that the direct client cannot serve.
 */
import type { DirectHandle, NativeEvent } from '../../../addon/broker-functions.ts';
import { callAddon, loadAddon } from '../../../addon/load.ts';
import { batchBytes } from '../../../addon/raw.ts';
import { invariant } from '../../../core/errors.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import { brokerEvent, closedError } from '../errors.ts';
import { demand, eventOf, flat, librdkafkaDriver, openNative, pairs, placeOf } from '../librdkafka.ts';
import {
  type BatchConsumer,
  type BrokerDriver,
  type BrokerEvent,
  type CommitOutcome,
  type ConsumeResult,
  type ConsumerOptions,
  NO_OFFSET,
  OFFSET_BEGINNING,
  OFFSET_END,
  OFFSET_STORED,
  type PartitionLag,
  type TopicPartition,
  type TopicPartitionOffset,
} from '../port.ts';
import { CONNECT_TIMEOUT_MS, consumerProperties, secretsOf } from '../properties.ts';
import { directObstacle } from './obstacle.ts';

type Addon = ReturnType<typeof loadAddon>;

/** Code of librdkafka for a feature that is missing. */
const UNSUPPORTED = -165;

const keyOf = ({ topic, partition }: TopicPartition): string => `${partition}@${topic}`;

/** Event that tells that librdkafka reads instead. */
const fallbackEvent = (why: string): BrokerEvent =>
  brokerEvent(UNSUPPORTED, `librdkafka reads instead of the direct client: ${why}`);

const isSymbolic = (offset: bigint): boolean => offset === OFFSET_BEGINNING || offset === OFFSET_END;

/** Consumer whose assigned partitions the direct client reads, until there is something that it
 *  cannot do; from then on librdkafka reads. */
export class DirectConsumer implements BatchConsumer {
  readonly topics: string[] = [];
  private readonly addon: Addon;
  private readonly options: ConsumerOptions;
  /** Client of librdkafka: it reads nothing before the direct client is replaced. */
  private readonly control: BatchConsumer;
  /** Undefined once librdkafka reads. */
  private handle: DirectHandle | undefined;
  private readonly assigned = new Map<string, TopicPartition>();
  private readonly paused = new Map<string, TopicPartition>();
  /** Symbolic starts of partitions whose position the direct client does not know yet. */
  private readonly starts = new Map<string, bigint>();
  private events: BrokerEvent[] = [];
  private consuming = false;
  private closing: Promise<void> | undefined;

  /** @param obstacle reason why librdkafka reads from the start */
  constructor(addon: Addon, options: ConsumerOptions, control: BatchConsumer, obstacle: string | undefined) {
    this.addon = addon;
    this.options = options;
    this.control = control;
    if (obstacle === undefined)
      this.handle = openNative(options, () => addon.brokerDirectOpen(pairs(consumerProperties(options))));
    else this.replace(obstacle);
  }

  /** Connects. A client that cannot is replaced by librdkafka, which has reached a broker. */
  async connect(timeoutMs: number): Promise<void> {
    if (this.handle === undefined) return;
    const [failure] = await this.addon.brokerDirectConnect(this.handle, timeoutMs);
    if (failure !== null) this.replace(this.textOf(failure));
  }

  async assign(partitions: readonly TopicPartitionOffset[]): Promise<void> {
    this.checkOpen();
    this.paused.clear();
    if (this.handle === undefined) return this.control.assign(partitions);
    const places = await this.stored(partitions);
    demand('assign', await this.addon.brokerDirectAssign(this.handle, ...flat(places)));
    this.assigned.clear();
    for (const at of partitions) this.assigned.set(keyOf(at), { topic: at.topic, partition: at.partition });
    this.starts.clear();
    for (const at of places) this.keepStart(at);
  }

  async subscribe(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    if (this.handle !== undefined && this.options.group !== undefined)
      this.replace('it does not join groups', false);
    await this.control.subscribe(topics);
  }

  async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    this.checkOpen();
    const handle = this.handle;
    if (handle === undefined) return this.consumeByControl(into, waitMs);
    invariant(!this.consuming, 'one consume at a time');
    this.consuming = true;
    into.clear();
    try {
      const [rowCount, ends, events, topics, tookMs, runs] = await callAddon(() =>
        this.addon.brokerDirectConsume(handle, batchBytes(into), Math.max(0, Math.ceil(waitMs))),
      );
      this.topics.push(...topics);
      const old = events.find(([code]) => code === UNSUPPORTED);
      if (old !== undefined) await this.continueByControl(this.textOf(old));
      else if (this.starts.size > 0 && this.closing === undefined) await this.positions(handle);
      const reported = [
        ...this.events.splice(0),
        ...events.filter((event) => event !== old).map((event) => eventOf(event)),
      ];
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
    if (this.handle === undefined) return this.control.pause(partitions);
    demand('pause', await this.addon.brokerDirectPause(this.handle, ...flat(partitions)));
    for (const at of partitions) this.paused.set(keyOf(at), at);
  }

  async resume(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    if (this.handle === undefined) return this.control.resume(partitions);
    demand('resume', await this.addon.brokerDirectResume(this.handle, ...flat(partitions)));
    for (const at of partitions) this.paused.delete(keyOf(at));
  }

  async seek(position: TopicPartitionOffset): Promise<void> {
    this.checkOpen();
    if (this.handle === undefined) return this.control.seek(position);
    const places = await this.stored([position]);
    const what = `seek ${position.topic}/${position.partition}`;
    demand(what, await this.addon.brokerDirectSeek(this.handle, ...flat(places)));
    for (const at of places) this.keepStart(at);
  }

  async commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome> {
    this.checkOpen();
    return this.control.commit(offsets);
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    return this.control.committed(partitions);
  }

  assignment(): readonly TopicPartition[] {
    return this.handle === undefined ? this.control.assignment() : [...this.assigned.values()];
  }

  async lag(timeoutMs: number): Promise<readonly PartitionLag[]> {
    this.checkOpen();
    if (this.handle === undefined) return this.control.lag(timeoutMs);
    const positions = await this.positions(this.handle);
    return Promise.all(
      positions.map(async ({ offset, ...at }) => ({
        ...at,
        ...(await this.control.watermarkOffsets(at, timeoutMs)),
        position: offset,
      })),
    );
  }

  async reach(timeoutMs: number): Promise<void> {
    this.checkOpen();
    await this.control.reach(timeoutMs);
  }

  async watermarkOffsets(
    at: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }> {
    this.checkOpen();
    return this.control.watermarkOffsets(at, timeoutMs);
  }

  close(): Promise<void> {
    this.closing ??= this.leave();
    return this.closing;
  }

  private async leave(): Promise<void> {
    const handle = this.handle;
    if (handle !== undefined) {
      await this.addon.brokerDirectLeave(handle);
      this.addon.brokerDirectClose(handle);
    }
    await this.control.close();
    this.assigned.clear();
  }

  /** librdkafka, once it reads, answers calls of a rebalance also while it closes. */
  private checkOpen(): void {
    if (this.closing !== undefined && this.handle !== undefined) throw closedError('consumer');
  }

  private textOf([, message]: NativeEvent): string {
    return secretsOf(this.options.properties).hide(message);
  }

  /** Replaces the stored position of a group by its offset; the direct client knows no groups. */
  private async stored(
    partitions: readonly TopicPartitionOffset[],
  ): Promise<readonly TopicPartitionOffset[]> {
    const asked = partitions.filter(({ offset }) => offset === OFFSET_STORED);
    if (asked.length === 0) return partitions;
    const found = new Map((await this.control.committed(asked)).map((at) => [keyOf(at), at.offset]));
    return partitions.map((at) =>
      at.offset === OFFSET_STORED ? { ...at, offset: found.get(keyOf(at)) ?? NO_OFFSET } : at,
    );
  }

  private keepStart(at: TopicPartitionOffset): void {
    if (isSymbolic(at.offset)) this.starts.set(keyOf(at), at.offset);
    else this.starts.delete(keyOf(at));
  }

  /** Positions of the direct client. A known position ends the memory of a symbolic start: from
   *  then on a position that is lost again is found by auto.offset.reset. */
  private async positions(handle: DirectHandle): Promise<readonly TopicPartitionOffset[]> {
    const positions = demand('positions', await this.addon.brokerDirectPositions(handle)).map(placeOf);
    for (const at of positions) if (at.offset !== OFFSET_STORED) this.starts.delete(keyOf(at));
    return positions;
  }

  /** Closes the direct client. @param isNews the next consume reports it */
  private replace(why: string, isNews = true): void {
    if (this.handle !== undefined) this.addon.brokerDirectClose(this.handle);
    this.handle = undefined;
    if (isNews) this.events.push(fallbackEvent(why));
  }

  /** Lets librdkafka continue at the positions of the direct client. A partition without a position
   *  begins where its caller asked: librdkafka would begin at a stored offset, or by
   *  auto.offset.reset. */
  private async continueByControl(why: string): Promise<void> {
    const positions = await this.positions(this.handle as DirectHandle);
    const places = positions.map((at) => ({ ...at, offset: this.starts.get(keyOf(at)) ?? at.offset }));
    this.replace(why);
    await this.control.assign(places);
    if (this.paused.size > 0) await this.control.pause([...this.paused.values()]);
  }

  /** Rows of librdkafka, whose topics have numbers of their own. */
  private async consumeByControl(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    const result = await this.control.consume(into, this.events.length > 0 ? 0 : waitMs);
    const numbers = this.control.topics.map((topic) => {
      if (!this.topics.includes(topic)) this.topics.push(topic);
      return this.topics.indexOf(topic);
    });
    if (numbers.some((number, i) => number !== i)) {
      const { topicIndex } = into.columns;
      for (let row = 0; row < result.rowCount; row++)
        topicIndex[row] = numbers[topicIndex[row] as number] as number;
    }
    return { ...result, events: [...this.events.splice(0), ...result.events] };
  }
}

/** Reason why this machine's addon has no direct client; undefined: it has.
 *  @throws addon_missing, addon_mismatch
 *  @example
 *  missingDirectClient();
 */
export const missingDirectClient = (): string | undefined => loadAddon().brokerDirectObstacle() ?? undefined;

async function consumer(options: ConsumerOptions): Promise<BatchConsumer> {
  const control = await librdkafkaDriver.consumer(options);
  // A consumer that follows rebalances is a member of a group.
  if (options.onRebalance !== undefined) return control;
  try {
    // The driver's own choice of properties is never an obstacle.
    const obstacle = missingDirectClient() ?? directObstacle(options.properties ?? {});
    const made = new DirectConsumer(loadAddon(), options, control, obstacle);
    await made.connect(options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS);
    return made;
  } catch (thrown) {
    await control.close();
    throw thrown;
  }
}

export const directDriver: BrokerDriver = { ...librdkafkaDriver, name: 'direct', consumer };
