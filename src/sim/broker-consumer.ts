/** Simulated consumer: reads the cluster's logs, and processes group changes inside `consume` and
 *  `close`. */
import { coreError, invariant } from '../core/errors.ts';
import { TIMESTAMP_TYPE } from '../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import {
  type BatchConsumer,
  type BrokerEvent,
  type CommitOutcome,
  type ConsumeResult,
  type ConsumerOptions,
  NO_OFFSET,
  OFFSET_BEGINNING,
  OFFSET_END,
  OFFSET_STORED,
  type PartitionLag,
  type Rebalance,
  type TopicPartition,
  type TopicPartitionOffset,
} from '../io/kafka/port.ts';
import {
  type Group,
  type SimCluster,
  type SimMember,
  simError,
  simEvent,
  unknownPartition,
} from './broker-cluster.ts';
import type { SimLink } from './broker-link.ts';
import { keyOf, type StoredRecord } from './broker-log.ts';

/** Polls per session of a member that waits in `consume`. */
const POLLS_PER_SESSION = 3;

interface Reading {
  readonly at: TopicPartition;
  readonly key: string;
  position: bigint;
  /** True if a row was delivered since the position was set. */
  delivered: boolean;
  /** End offset that was reported last. */
  reportedEnd: bigint;
}

export class SimConsumer implements BatchConsumer {
  readonly topics: string[] = [];
  private readonly cluster: SimCluster;
  private readonly link: SimLink;
  private readonly options: ConsumerOptions;
  private readonly readings = new Map<string, Reading>();
  private readonly paused = new Set<string>();
  private events: BrokerEvent[] = [];
  private member: SimMember | undefined;
  private consuming = false;
  private closing: Promise<void> | undefined;
  private rebalanceDepth = 0;
  /** Rotates the partition that is read first, so that none starves. */
  private rotation = 0;

  constructor(cluster: SimCluster, link: SimLink, options: ConsumerOptions) {
    this.cluster = cluster;
    this.link = link;
    this.options = options;
  }

  async assign(partitions: readonly TopicPartitionOffset[]): Promise<void> {
    this.checkOpen();
    this.readings.clear();
    this.paused.clear();
    for (const at of partitions) this.enter(at, at.offset);
    this.cluster.changed();
  }

  async subscribe(topics: readonly string[]): Promise<void> {
    this.checkOpen();
    const group = this.groupOf('subscribe');
    const sessionMs = Number(this.options.properties?.['session.timeout.ms'] ?? Number.POSITIVE_INFINITY);
    this.member = { topics: [...topics], owned: new Map(), sessionMs, polledMs: this.nowMs() };
    group.members.push(this.member);
    group.target = undefined;
    this.cluster.changed();
  }

  async consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult> {
    this.checkOpen();
    invariant(!this.consuming, 'one consume at a time');
    this.consuming = true;
    into.clear();
    const ends: TopicPartitionOffset[] = [];
    const { clock } = this.link;
    const deadline = clock.monotonicMs() + waitMs;
    try {
      for (;;) {
        await this.rebalance();
        if (this.link.isUp) this.fill(into, ends);
        const left = deadline - clock.monotonicMs();
        if (
          into.rowCount > 0 ||
          ends.length > 0 ||
          this.events.length > 0 ||
          left <= 0 ||
          this.closing !== undefined
        )
          break;
        await this.link.rest(Math.min(left, (this.member?.sessionMs ?? left) / POLLS_PER_SESSION));
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
    for (const at of partitions) this.paused.add(keyOf(at));
  }

  async resume(partitions: readonly TopicPartition[]): Promise<void> {
    this.checkOpen();
    for (const at of partitions) this.paused.delete(keyOf(at));
    this.cluster.changed();
  }

  async seek(position: TopicPartitionOffset): Promise<void> {
    this.checkOpen();
    if (!this.readings.has(keyOf(position))) throw unknownPartition(position);
    this.enter(position, position.offset);
    this.cluster.changed();
  }

  async commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome> {
    this.checkOpen();
    await this.link.sleep(0);
    const group = this.groupOf('commit');
    if (offsets.length > 0 && this.cluster.strikes('lostCommit')) {
      throw simError('broker_unavailable', 'commit: Local: Broker transport failure', {
        details: { event: simEvent('_TRANSPORT') },
      });
    }
    const { member } = this;
    if (offsets.length > 0 && member !== undefined && !group.members.includes(member))
      throw simError('group_fenced', 'commit: the group has evicted this member');
    for (const at of offsets) {
      if (member !== undefined && !member.owned.has(keyOf(at))) {
        throw simError('group_fenced', `commit: ${keyOf(at)} belongs to another member`);
      }
    }
    // Commits during a rebalance belong into `onRebalance`.
    const isMember = member !== undefined && this.rebalanceDepth === 0;
    if (offsets.length > 0 && isMember && this.cluster.isRebalancing(group)) return 'not_now';
    for (const at of offsets) group.committed.set(keyOf(at), at.offset);
    return 'committed';
  }

  async committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]> {
    this.checkOpen();
    const group = this.groupOf('committed');
    return partitions.map(({ topic, partition }) => ({
      topic,
      partition,
      offset: group.committed.get(keyOf({ topic, partition })) ?? NO_OFFSET,
    }));
  }

  assignment(): readonly TopicPartition[] {
    return [...this.readings.values()].map((reading) => reading.at);
  }

  async reach(_timeoutMs: number): Promise<void> {
    this.checkOpen();
  }

  async lag(_timeoutMs: number): Promise<readonly PartitionLag[]> {
    this.checkOpen();
    return [...this.readings.values()].map(({ at, position, delivered }) => ({
      ...at,
      low: 0n,
      high: this.endOf(at),
      position: delivered ? position : OFFSET_STORED,
    }));
  }

  async watermarkOffsets(
    at: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }> {
    this.checkOpen();
    const answer = await this.link.ask(timeoutMs, () => ({ low: 0n, high: this.endOf(at) }));
    if (answer !== undefined) return answer.reply;
    throw coreError('timeout', `offsets of ${keyOf(at)}: Local: Timed out`);
  }

  close(): Promise<void> {
    this.closing ??= this.leave();
    this.cluster.changed();
    return this.closing;
  }

  private async leave(): Promise<void> {
    const { member } = this;
    if (member !== undefined) {
      await this.revoke([...member.owned.values()]);
      const group = this.groupOf('close');
      if (group.members.includes(member)) group.members.splice(group.members.indexOf(member), 1);
      group.target = undefined;
      this.cluster.changed();
    }
    this.readings.clear();
  }

  private checkOpen(): void {
    if (this.closing !== undefined && this.rebalanceDepth === 0)
      throw coreError('closed', 'the consumer is closed');
  }

  private endOf(at: TopicPartition): bigint {
    return this.cluster.endOf(at, this.options.isolation ?? 'committed');
  }

  private groupOf(what: string): Group {
    if (this.options.group === undefined) throw simError('bad_broker_property', `${what} needs a group`);
    return this.cluster.group(this.options.group);
  }

  private enter(at: TopicPartition, offset: bigint): void {
    const key = keyOf(at);
    const high = this.cluster.logOf(at) === undefined ? 0n : this.endOf(at);
    const reset = this.options.autoOffsetReset === 'latest' ? high : 0n;
    const stored = this.options.group === undefined ? undefined : this.groupOf('assign').committed.get(key);
    const position =
      offset === OFFSET_BEGINNING
        ? 0n
        : offset === OFFSET_END
          ? high
          : offset === OFFSET_STORED
            ? (stored ?? reset)
            : offset;
    this.readings.set(key, {
      at: { topic: at.topic, partition: at.partition },
      key,
      position,
      delivered: offset >= 0n,
      reportedEnd: -1n,
    });
  }

  /** Revokes partitions that are assigned to other members, then takes over unowned partitions that
   *  are assigned to this one. */
  private async rebalance(): Promise<void> {
    const { member } = this;
    if (member === undefined || this.closing !== undefined) return;
    let group = this.groupOf('rebalance');
    if (!group.members.includes(member)) await this.rejoin(member, group);
    member.polledMs = this.nowMs();
    const target = this.cluster.target(group).get(member) as ReadonlyMap<string, TopicPartition>;
    if (isOwned(member, target)) return;
    const leaving = [...member.owned.values()].filter((at) => !target.has(keyOf(at)));
    if (leaving.length > 0) await this.revoke(leaving);
    // The group may have evicted this member during the callback.
    group = this.groupOf('rebalance');
    if (!group.members.includes(member)) return;
    const taken = (key: string): boolean => group.members.some(({ owned }) => owned.has(key));
    const coming = [...target.values()].filter((at) => !taken(keyOf(at)));
    if (coming.length === 0) return;
    for (const at of coming) member.owned.set(keyOf(at), at);
    group.target = undefined;
    await this.notify({ kind: 'assigned', partitions: coming });
    for (const at of coming) this.enter(at, OFFSET_STORED);
  }

  /** Returns the monotonic time of the cluster, which measures sessions. */
  private nowMs(): number {
    return this.cluster.options.clock.monotonicMs();
  }

  /** Rejoins after an eviction; the owned partitions are lost. */
  private async rejoin(member: SimMember, group: Group): Promise<void> {
    await this.revoke([...member.owned.values()], 'lost');
    member.polledMs = this.nowMs();
    group.members.push(member);
    group.target = undefined;
    this.cluster.changed();
  }

  private async revoke(
    partitions: readonly TopicPartition[],
    kind: 'revoked' | 'lost' = 'revoked',
  ): Promise<void> {
    if (partitions.length === 0) return;
    await this.notify({ kind, partitions });
    for (const at of partitions) {
      this.readings.delete(keyOf(at));
      this.paused.delete(keyOf(at));
      this.member?.owned.delete(keyOf(at));
    }
    if (this.member !== undefined) this.groupOf('revoke').target = undefined;
    this.cluster.changed();
  }

  private async notify(rebalance: Rebalance): Promise<void> {
    this.rebalanceDepth++;
    try {
      await this.options.onRebalance?.(rebalance);
    } catch (thrown) {
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      this.events.push(simEvent('_APPLICATION', {}, `onRebalance failed: ${why}`));
    } finally {
      this.rebalanceDepth--;
    }
  }

  private fill(into: RecordBatch, ends: TopicPartitionOffset[]): void {
    const all = [...this.readings.values()];
    this.rotation++;
    for (let i = 0; i < all.length; i++) {
      const reading = all[(i + this.rotation) % all.length] as Reading;
      if (this.paused.has(reading.key)) continue;
      if (!this.fillFrom(reading, into, ends)) return;
    }
  }

  /** Reads rows of one partition. False: the batch is full, or a fault ends the read. */
  private fillFrom(reading: Reading, into: RecordBatch, ends: TopicPartitionOffset[]): boolean {
    const log = this.cluster.logOf(reading.at);
    if (log === undefined) return true;
    const { topic, partition } = reading.at;
    let topicIndex = this.topics.indexOf(topic);
    if (topicIndex < 0) topicIndex = this.topics.push(topic) - 1;
    const end = this.endOf(reading.at);
    while (reading.position < end) {
      const record = log[Number(reading.position)] as (typeof log)[number];
      if (!this.isVisible(record)) {
        reading.position++;
        continue;
      }
      if (into.rowCount > 0 && this.cluster.strikes('shortRead')) return false;
      const { timestamp, key, value, headers } = record;
      const { position: offset } = reading;
      const timestampType = TIMESTAMP_TYPE.CREATE;
      const row = { timestamp, key, value, headers, topicIndex, partition, offset, timestampType };
      if (!into.append(row)) {
        if (into.rowCount === 0) {
          const why = `the record at offset ${reading.position} is larger than the arena of ${into.arenaCapacity} bytes`;
          this.events.push(simEvent('MILLRACE_OVERSIZE', { topic, partition }, why));
        }
        return false;
      }
      reading.position++;
      reading.delivered = true;
    }
    if (this.options.partitionEof === true && reading.reportedEnd !== reading.position) {
      reading.reportedEnd = reading.position;
      ends.push({ topic, partition, offset: reading.position });
    }
    return true;
  }

  private isVisible({ isMark, transaction }: StoredRecord): boolean {
    if (isMark === true) return false;
    return this.options.isolation === 'uncommitted' || transaction?.state !== 'aborted';
  }
}

/** True if a member owns exactly its assignment. */
function isOwned({ owned }: SimMember, target: ReadonlyMap<string, TopicPartition>): boolean {
  if (owned.size !== target.size) return false;
  for (const key of target.keys()) if (!owned.has(key)) return false;
  return true;
}
