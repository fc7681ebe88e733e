/** Consumer of the node-rdkafka driver: one JavaScript object a message, copied into the caller's
 *  batch.
 *
 *  Invariants: (1) one read of the client is in flight at a time; (2) `pending` has the messages
 *  that were read and not delivered, in order, at most one read; (3) after the revocation of a
 *  partition is announced, none of its rows is delivered; a partition that returns starts after the
 *  read in flight has ended.
 *  Limits of node-rdkafka: it does not report the origin of a timestamp, null header values, or
 *  that an assignment is lost and not revoked.
 */
import type { KafkaConsumer, LibrdKafkaError, Message } from 'node-rdkafka';
import { invariant } from '../../../core/errors.ts';
import { TIMESTAMP_TYPE } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch, RecordHeader } from '../../../core/layout/record-batch.ts';
import { commitToGroup, groupAnswerMs } from '../commit.ts';
import {
  brokerError,
  brokerEvent,
  closedError,
  ERR,
  endsPolling,
  errorOfEvent,
  OVERSIZE_CODE,
  thrownEvent,
  unreachable,
} from '../errors.ts';
import {
  type BatchConsumer,
  type BrokerEvent,
  type CommitOutcome,
  type ConsumeResult,
  type ConsumerOptions,
  NO_OFFSET,
  OFFSET_STORED,
  type PartitionLag,
  type TopicPartition,
  type TopicPartitionOffset,
} from '../port.ts';
import { retryTransient } from '../retry.ts';
import { Commits } from './commits.ts';

/** Most messages of one read: the read blocks the event loop while it creates their objects. */
const READ_MESSAGES_MAX = 2000;
/** Most errors kept between two calls of consume; the oldest are dropped first. */
const EVENTS_MAX = 256;
const IDLE_READ_MS_MAX = 8;
const SEEK_TIMEOUT_MS = 5000;
/** Time that a leaving member waits for its revocation: during a rebalance that others delay,
 *  librdkafka announces none. */
const REVOKE_TIMEOUT_MS = 3000;
const LATE_POLL_MS = 100;
const LEAVE_GRACE_MS = 50;

interface End {
  readonly end: TopicPartitionOffset;
}
type Pending = Message | End;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const keyOf = (at: TopicPartition): string => `${at.partition}@${at.topic}`;
function headersOf(message: Message): RecordHeader[] {
  const out: RecordHeader[] = [];
  for (const header of message.headers ?? []) {
    const names = Object.keys(header);
    // A header of the name __proto__ arrives as the object's prototype.
    if (names.length === 0) out.push(['__proto__', Object.getPrototypeOf(header) as Buffer]);
    for (const name of names) out.push([name, header[name] as Buffer]);
  }
  return out;
}

export class NodeConsumer implements BatchConsumer {
  readonly topics: string[] = [];
  private readonly topicIndex = new Map<string, number>();
  private readonly client: KafkaConsumer;
  private readonly commits: Commits;
  private readonly options: ConsumerOptions;
  private pending: Pending[] = [];
  private events: BrokerEvent[] = [];
  private readonly assigned = new Map<string, TopicPartition>();
  private readonly positions = new Map<string, bigint>();
  private readonly paused = new Set<string>();
  private readonly leaving = new Set<string>();
  private reading: Promise<void> | undefined;
  private rebalancing: Promise<void> = Promise.resolve();
  private isMember = false;
  private consuming = false;
  private cooperative = true;
  /** Above zero while onRebalance runs, which may commit although close has begun. */
  private rebalanceDepth = 0;
  private closing: Promise<void> | undefined;
  private fatal: BrokerEvent | undefined;

  constructor(client: KafkaConsumer, options: ConsumerOptions) {
    this.client = client;
    this.commits = new Commits(client, () => this.read(1));
    this.options = options;
    client.setDefaultConsumeTimeout(0);
    client.on('data', (message) => this.pending.push(message));
    client.on('partition.eof', (end) =>
      this.pending.push({ end: { topic: end.topic, partition: end.partition, offset: BigInt(end.offset) } }),
    );
    client.on('event.error', (error) => this.record(thrownEvent(error)));
    client.on('rebalance', (error, partitions) => {
      this.rebalancing = this.rebalancing.then(() => this.rebalance(error.code, partitions));
    });
  }

  async assign(partitions: readonly TopicPartitionOffset[]): Promise<void> {
    this.checkOpen();
    await this.reading;
    this.call('assign', () =>
      this.client.assign(partitions.map((at) => ({ ...at, offset: Number(at.offset) }))),
    );
    this.pending = [];
    this.assigned.clear();
    this.positions.clear();
    this.paused.clear();
    for (const at of partitions) this.addAssigned(at, at.offset >= 0n ? at.offset : OFFSET_STORED);
  }

  async subscribe(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    if (this.options.group === undefined)
      throw brokerError('bad_broker_property', 'subscribe needs a group', { next: 'give -group' });
    this.call('subscribe', () => this.client.subscribe([...topics]));
    this.isMember = true;
  }

  async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    this.checkOpen();
    invariant(!this.consuming, 'one consume at a time');
    this.consuming = true;
    into.clear();
    try {
      const deadline = performance.now() + waitMs;
      const ends: TopicPartitionOffset[] = [];
      for (let idleMs = 1; ; idleMs = Math.min(idleMs * 2, IDLE_READ_MS_MAX)) {
        if (this.pending.length === 0) await this.read(Math.min(into.rowCapacity, READ_MESSAGES_MAX));
        this.deliver(into, ends);
        if (this.fatal !== undefined) throw errorOfEvent('the consumer cannot continue', this.fatal);
        const remaining = deadline - performance.now();
        if (
          into.rowCount > 0 ||
          ends.length > 0 ||
          this.events.length > 0 ||
          remaining <= 0 ||
          this.closing !== undefined
        )
          break;
        await sleep(Math.min(idleMs, Math.max(1, remaining)));
        // All pending rows may belong to paused partitions, so read further.
        if (this.pending.length > 0 && this.pending.length < READ_MESSAGES_MAX)
          await this.read(READ_MESSAGES_MAX - this.pending.length);
      }
      const events = this.events;
      this.events = [];
      return { rowCount: into.rowCount, ends, events };
    } finally {
      this.consuming = false;
    }
  }

  async pause(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    this.call('pause', () => this.client.pause([...partitions]));
    for (const at of partitions) this.paused.add(keyOf(at));
  }

  async resume(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    this.call('resume', () => this.client.resume([...partitions]));
    for (const at of partitions) this.paused.delete(keyOf(at));
  }

  async seek(position: TopicPartitionOffset): Promise<void> {
    this.checkOpen();
    await this.reading;
    const key = keyOf(position);
    const deadline = performance.now() + SEEK_TIMEOUT_MS;
    for (;;) {
      const error = await new Promise<LibrdKafkaError | undefined>((resolve) => {
        this.client.seek(
          { ...position, offset: Number(position.offset) },
          SEEK_TIMEOUT_MS,
          (answer: unknown) => resolve((answer ?? undefined) as LibrdKafkaError | undefined),
        );
      });
      if (error === undefined) break;
      const event = thrownEvent(error);
      // A partition that was assigned just now has no fetcher to seek in yet.
      if (event.code !== ERR.STATE || !this.assigned.has(key) || performance.now() > deadline) {
        throw errorOfEvent(`seek ${position.topic}/${position.partition}`, event);
      }
      await sleep(10);
    }
    await this.reading;
    this.pending = this.pending.filter((entry) => keyOf('end' in entry ? entry.end : entry) !== key);
    this.positions.set(key, position.offset >= 0n ? position.offset : OFFSET_STORED);
  }

  async commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome> {
    this.checkOpen();
    if (this.options.group === undefined)
      throw brokerError('bad_broker_property', 'commit needs a group', { next: 'give -group' });
    if (offsets.length === 0) return 'committed';
    const once = (timeoutMs: number) => this.commits.once(offsets, timeoutMs);
    return commitToGroup(this.isMember, once, offsets, (at) => this.assigned.has(keyOf(at)));
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    const answer = await new Promise<Array<{ topic: string; partition: number; offset?: number }>>(
      (resolve, reject) => {
        this.client.committed([...partitions], groupAnswerMs(this.isMember), (error, list) =>
          error ? reject(errorOfEvent('committed', thrownEvent(error))) : resolve(list),
        );
      },
    );
    return answer.map((at) => {
      if (at instanceof Error) throw errorOfEvent('committed', thrownEvent(at));
      return {
        topic: at.topic,
        partition: at.partition,
        offset: at.offset === undefined ? NO_OFFSET : BigInt(at.offset),
      };
    });
  }

  assignment(): readonly TopicPartition[] {
    return [...this.assigned.values()];
  }

  async reach(timeoutMs: number): Promise<void> {
    this.checkOpen();
    await new Promise<void>((resolve, reject) => {
      this.client.getMetadata({ allTopics: false, timeout: timeoutMs }, (error) =>
        error ? reject(unreachable(this.options, thrownEvent(error).message)) : resolve(),
      );
    });
  }

  async lag(timeoutMs: number): Promise<readonly PartitionLag[]> {
    return Promise.all(
      this.assignment().map(async (at) => {
        const { low, high } = await this.watermarkOffsets(at, timeoutMs);
        return { ...at, low, high, position: this.positions.get(keyOf(at)) ?? OFFSET_STORED };
      }),
    );
  }

  async watermarkOffsets(
    at: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }> {
    this.checkOpen();
    return retryTransient(timeoutMs, (leftMs) => {
      this.checkOpen();
      return new Promise((resolve, reject) => {
        this.client.queryWatermarkOffsets(at.topic, at.partition, leftMs, (error, offsets) =>
          error
            ? reject(errorOfEvent(`offsets of ${at.topic}/${at.partition}`, thrownEvent(error)))
            : resolve({ low: BigInt(offsets.lowOffset), high: BigInt(offsets.highOffset) }),
        );
      });
    });
  }

  close(): Promise<void> {
    this.closing ??= this.leave();
    return this.closing;
  }

  /** Releases the partitions while calls still work, then disconnects: calls fail inside
   *  node-rdkafka's disconnect. */
  private async leave(): Promise<void> {
    await this.reading;
    await this.rebalancing;
    if (this.options.group !== undefined && this.client.subscription().length > 0) {
      this.client.unsubscribe();
      const deadline = performance.now() + REVOKE_TIMEOUT_MS;
      while (this.assigned.size > 0 && performance.now() < deadline) {
        await this.read(1);
        this.pending = [];
        await sleep(2);
        await this.rebalancing;
      }
      // A thread that disconnect would end sends the request to leave the group.
      await sleep(LEAVE_GRACE_MS);
    }
    this.commits.end();
    // A disconnect waits for the results of commits, in a thread that keeps the process alive.
    if (this.commits.hasAbandoned) void this.disconnectLater();
    else await this.disconnect();
  }

  private disconnect(): Promise<void> {
    return new Promise((resolve) => this.client.disconnect(() => resolve()));
  }

  /** Disconnects after abandoned commits have ended; does not keep the process alive meanwhile. */
  private async disconnectLater(): Promise<void> {
    while (this.commits.hasAbandoned) {
      await new Promise((resolve) => setTimeout(resolve, LATE_POLL_MS).unref());
      await this.read(1);
      this.pending = [];
    }
    await this.disconnect();
  }

  private checkOpen(): void {
    if (this.closing === undefined) return;
    if (this.rebalanceDepth === 0 || !this.client.isConnected()) throw closedError('consumer');
  }

  private addAssigned(at: TopicPartition, position: bigint): void {
    this.assigned.set(keyOf(at), { topic: at.topic, partition: at.partition });
    this.positions.set(keyOf(at), position);
  }

  private record(event: BrokerEvent): void {
    if (endsPolling(this.isMember, event)) this.fatal = event;
    if (this.events.length >= EVENTS_MAX) this.events.shift();
    this.events.push(event);
  }

  private call(what: string, act: () => unknown): void {
    try {
      act();
    } catch (thrown) {
      throw errorOfEvent(what, thrownEvent(thrown));
    }
  }

  /** Moves available messages from the client to `pending`; never waits for the broker. */
  private async read(count: number): Promise<void> {
    if (this.reading !== undefined) return this.reading;
    this.reading = new Promise<void>((resolve) => {
      this.client.consume(count, (error) => {
        if (error) this.record(thrownEvent(error));
        resolve();
      });
    });
    try {
      await this.reading;
    } finally {
      this.reading = undefined;
    }
  }

  private deliver(into: RecordBatch, ends: TopicPartitionOffset[]): void {
    const kept: Pending[] = [];
    let at = 0;
    for (; at < this.pending.length; at++) {
      const entry = this.pending[at] as Pending;
      const place = 'end' in entry ? entry.end : entry;
      const key = keyOf(place);
      if (this.leaving.has(key) || !this.assigned.has(key)) continue;
      if ('end' in entry) {
        ends.push(entry.end);
      } else if (this.paused.has(key)) {
        kept.push(entry);
      } else if (this.append(into, entry)) {
        this.positions.set(key, BigInt(entry.offset) + 1n);
      } else {
        if (into.rowCount === 0) {
          const why = `the record at ${entry.topic}/${entry.partition}/${entry.offset} is larger than the arena of ${into.arenaCapacity} bytes`;
          this.record(brokerEvent(OVERSIZE_CODE, why, entry));
        }
        break;
      }
    }
    this.pending =
      kept.length === 0 && at === this.pending.length ? [] : [...kept, ...this.pending.slice(at)];
  }

  private append(into: RecordBatch, message: Message): boolean {
    let topicIndex = this.topicIndex.get(message.topic);
    if (topicIndex === undefined) {
      topicIndex = this.topics.push(message.topic) - 1;
      this.topicIndex.set(message.topic, topicIndex);
    }
    return into.append({
      topicIndex,
      partition: message.partition,
      offset: BigInt(message.offset),
      timestamp: BigInt(message.timestamp ?? -1),
      timestampType: TIMESTAMP_TYPE.NONE,
      key: message.key as Buffer | null,
      value: message.value,
      headers: message.headers === undefined ? [] : headersOf(message),
    });
  }

  private async rebalance(code: number, partitions: readonly TopicPartition[]): Promise<void> {
    const list = partitions.map((at) => ({ topic: at.topic, partition: at.partition }));
    const assigning = code === ERR.ASSIGN_PARTITIONS;
    const protocol = this.client.rebalanceProtocol();
    if (protocol !== 'NONE') this.cooperative = protocol === 'COOPERATIVE';
    if (!assigning) for (const at of list) this.leaving.add(keyOf(at));
    this.rebalanceDepth++;
    try {
      await this.options.onRebalance?.({ kind: assigning ? 'assigned' : 'revoked', partitions: list });
    } catch (thrown) {
      this.record(
        brokerEvent(
          ERR.APPLICATION,
          `onRebalance failed: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
        ),
      );
    } finally {
      this.rebalanceDepth--;
    }
    try {
      if (assigning) {
        await this.reading;
        if (this.cooperative) this.client.incrementalAssign(list);
        else this.client.assign(list);
        if (list.length > 0) this.client.resume(list);
        for (const at of list) this.addAssigned(at, OFFSET_STORED);
      } else {
        if (this.cooperative) this.client.incrementalUnassign(list);
        else this.client.unassign();
        await this.reading;
        this.forget(list);
      }
    } catch (thrown) {
      this.record(thrownEvent(thrown));
      if (!assigning) this.forget(list);
    }
  }

  private forget(partitions: readonly TopicPartition[]): void {
    for (const at of partitions) {
      const key = keyOf(at);
      this.assigned.delete(key);
      this.positions.delete(key);
      this.paused.delete(key);
    }
    this.pending = this.pending.filter((entry) =>
      this.assigned.has(keyOf('end' in entry ? entry.end : entry)),
    );
    for (const at of partitions) this.leaving.delete(keyOf(at));
  }
}

/** Refuses calls outside the process's main thread, the only thread where node-rdkafka loads.
 *  @throws driver_unusable */
export function mainThreadOnly(isMainThread: boolean): void {
  if (!isMainThread) {
    throw brokerError('driver_unusable', 'node-rdkafka loads in the main thread only', {
      next: 'use the librdkafka driver in worker threads',
    });
  }
}
