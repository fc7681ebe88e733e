/** Simulated Kafka cluster in memory: topics, committed offsets, groups, and faults drawn from a
 *  seed.
 *  Invariants: (1) A partition's log only grows. (2) A partition of a group has at most one owner
 *  among the members that were not evicted. (3) The same seed and the same calls in the same order
 *  give the same answers. */
import type { Timers } from '../core/clock.ts';
import { coreError, errorRow, errorsOf, type MillraceError } from '../core/errors.ts';
import type { BrokerEvent, TopicPartition } from '../io/kafka/port.ts';
import { keyOf, type StoredRecord } from './broker-log.ts';
import { Coordinator } from './broker-transactions.ts';
import { SeededRandom } from './clock.ts';

/** Probability of each fault per row or call, in [0, 1]. */
export interface BrokerFaults {
  /** A row is not appended; its report says _MSG_TIMED_OUT. */
  readonly lostRow: number;
  /** A row is appended, but its report says _MSG_TIMED_OUT. */
  readonly lostReport: number;
  /** A consume returns early although more rows exist. */
  readonly shortRead: number;
  /** A commit of offsets fails with _TRANSPORT. */
  readonly lostCommit: number;
  /** The end of a transaction gets no reply. Half of these requests never arrive; the others take
   *  effect. */
  readonly lostReply: number;
  /** The request that ends a transaction is delayed, and its marks are stored after its reply, each
   *  by up to `slowMs`. */
  readonly slow: number;
}

export interface SimOptions {
  readonly brokers: string;
  readonly seed: number;
  readonly clock: Timers;
  readonly faults?: Partial<BrokerFaults>;
  /** Longest delay of the fault `slow`. Default 1000. */
  readonly slowMs?: number;
  /** Largest record in bytes: key, value and headers. */
  readonly messageBytesMax?: number;
}

/** Member of a group, as the group sees it. */
export interface SimMember {
  readonly topics: readonly string[];
  readonly owned: Map<string, TopicPartition>;
  /** Time in ms without a poll after which a member is evicted; infinite without the property
   *  `session.timeout.ms`. */
  readonly sessionMs: number;
  /** Time of the last poll, monotonic ms. */
  polledMs: number;
}

export interface Group {
  readonly committed: Map<string, bigint>;
  readonly members: SimMember[];
  /** Assignment of the current members; undefined after a change of members, owners or topics. */
  target: Assignment | undefined;
}

export type Assignment = ReadonlyMap<SimMember, ReadonlyMap<string, TopicPartition>>;

const SIM_ERRORS = {
  broker_refused: errorRow('conflict', { exit: 3 }),
  broker_unavailable: errorRow('unavailable'),
  group_fenced: errorRow('fenced'),
  bad_broker_property: errorRow('invalid'),
} as const;
export const simError = errorsOf(SIM_ERRORS);

const EVENTS = {
  _TIMED_OUT: [-185, 'Local: Timed out', true],
  _STATE: [-172, 'Local: Erroneous state', false],
  _GAPLESS_GUARANTEE: [-148, 'Local: Gap-less ordering would not be guaranteed', false],
  _FENCED: [-144, 'Local: This instance has been fenced by a newer instance', false],
  INVALID_PRODUCER_EPOCH: [47, 'Broker: Producer attempted an operation with an old epoch', false],
  _MSG_TIMED_OUT: [-192, 'Local: Message timed out', true],
  _TRANSPORT: [-195, 'Local: Broker transport failure', true],
  _UNKNOWN_PARTITION: [-190, 'Local: Unknown partition', false],
  _APPLICATION: [-143, 'Local: Application generated error', false],
  MSG_SIZE_TOO_LARGE: [10, 'Broker: Message size too large', false],
  MILLRACE_OVERSIZE: [-10_000, 'the record is larger than the arena', false],
} as const;

export function simEvent(
  name: keyof typeof EVENTS,
  place: Partial<TopicPartition> = {},
  message?: string,
): BrokerEvent {
  const [code, text, retriable] = EVENTS[name];
  return { code, name, message: message ?? text, retriable, fatal: false, ...place };
}

const DEFAULT_MESSAGE_BYTES_MAX = 1_000_000;
const DEFAULT_SLOW_MS = 1000;
export class SimCluster {
  readonly options: SimOptions;
  readonly messageBytesMax: number;
  readonly coordinator = new Coordinator(this);
  /** Called when the cluster has new data for its readers. */
  readonly watchers = new Set<() => void>();
  readonly topics = new Map<string, StoredRecord[][]>();
  readonly topicIds = new Map<string, string>();
  lastTopicId = 0;
  readonly configs = new Map<string, ReadonlyMap<string, string>>();
  readonly replicas = new Map<string, number>();
  private readonly groups = new Map<string, Group>();
  private faults: BrokerFaults;
  private readonly chance: SeededRandom;

  constructor(options: SimOptions) {
    this.options = options;
    this.messageBytesMax = options.messageBytesMax ?? DEFAULT_MESSAGE_BYTES_MAX;
    this.faults = { ...NO_FAULTS, ...options.faults };
    this.chance = new SeededRandom(options.seed);
  }

  random(): number {
    return this.chance.fraction();
  }

  /** Disables all faults, so that a test can check the final state. */
  heal(): void {
    this.faults = NO_FAULTS;
  }

  /** Draws the delay of one step of a transaction, in ms. */
  slowness(): number {
    return this.strikes('slow') ? 1 + this.random() * (this.options.slowMs ?? DEFAULT_SLOW_MS) : 0;
  }

  /** Draws whether a fault occurs now. */
  strikes(fault: keyof BrokerFaults): boolean {
    const chance = this.faults[fault];
    return chance > 0 && this.random() < chance;
  }

  /** Checks the address of this cluster. @throws unreachable */
  admit(brokers: string): void {
    if (brokers === this.options.brokers) return;
    throw coreError(
      'unreachable',
      `no broker answers at ${brokers}: the simulated one is at ${this.options.brokers}`,
    );
  }

  /** Checks that the simulation knows all properties, so that no test relies on an ignored one.
   *  @throws bad_broker_property */
  checkProperties(properties: Readonly<Record<string, unknown>> | undefined): void {
    const unknown = Object.keys(properties ?? {}).find((name) => !KNOWN_PROPERTIES.has(name));
    if (unknown !== undefined) {
      throw simError('bad_broker_property', `No such configuration property: "${unknown}"`);
    }
  }

  logOf(at: TopicPartition): StoredRecord[] | undefined {
    return this.topics.get(at.topic)?.[at.partition];
  }

  /** Returns the log of a partition. @throws broker_refused */
  demandLog(at: TopicPartition): StoredRecord[] {
    const log = this.logOf(at);
    if (log === undefined) throw unknownPartition(at);
    return log;
  }

  append(at: TopicPartition, record: StoredRecord): void {
    this.logOf(at)?.push(record);
  }

  /** Wakes the waiting readers. */
  changed(): void {
    for (const wake of [...this.watchers]) wake();
  }

  /** Returns the end offset of a partition for a reader of this isolation level. */
  endOf(at: TopicPartition, isolation: 'committed' | 'uncommitted'): bigint {
    const end = BigInt(this.demandLog(at).length);
    return isolation === 'uncommitted' ? end : (this.coordinator.firstUnstable(at) ?? end);
  }

  group(name: string): Group {
    let group = this.groups.get(name);
    if (group === undefined) {
      group = { committed: new Map(), members: [], target: undefined };
      this.groups.set(name, group);
    }
    const nowMs = this.options.clock.monotonicMs();
    for (let at = group.members.length - 1; at >= 0; at--) {
      const { polledMs, sessionMs } = group.members[at] as SimMember;
      if (nowMs - polledMs <= sessionMs) continue;
      group.members.splice(at, 1);
      group.target = undefined;
    }
    return group;
  }

  /** Called after a change of the topics: every group is assigned anew. */
  topicsChanged(): void {
    for (const group of this.groups.values()) group.target = undefined;
    this.changed();
  }

  target(group: Group): Assignment {
    group.target ??= this.assign(group);
    return group.target;
  }

  /** Computes the assignment: balanced over the members, and sticky, so a partition stays with its
   *  owner if the balance allows it. */
  private assign(group: Group): Assignment {
    const out = new Map<SimMember, Map<string, TopicPartition>>(
      group.members.map((member) => [member, new Map()]),
    );
    for (const topic of new Set(group.members.flatMap((member) => member.topics))) {
      const members = group.members.filter((member) => member.topics.includes(topic));
      const partitions = (this.topics.get(topic) ?? []).map((_, partition) => ({ topic, partition }));
      const most = Math.ceil(partitions.length / members.length);
      const share = (member: SimMember): number =>
        [...(out.get(member) as Map<string, TopicPartition>).values()].filter((one) => one.topic === topic)
          .length;
      const unassigned: TopicPartition[] = [];
      for (const at of partitions) {
        const owner = members.find((member) => member.owned.has(keyOf(at)));
        if (owner !== undefined && share(owner) < most) out.get(owner)?.set(keyOf(at), at);
        else unassigned.push(at);
      }
      for (const at of unassigned) {
        const leastLoaded = members.reduce((least, member) =>
          share(member) < share(least) ? member : least,
        );
        out.get(leastLoaded)?.set(keyOf(at), at);
      }
    }
    return out;
  }

  /** True if a member still owns a partition that is assigned to another member. */
  isRebalancing(group: Group): boolean {
    for (const [member, target] of this.target(group))
      for (const key of member.owned.keys()) if (!target.has(key)) return true;
    return false;
  }
}

const NO_FAULTS: BrokerFaults = {
  ...{ lostRow: 0, lostReport: 0, shortRead: 0, lostCommit: 0, lostReply: 0, slow: 0 },
};

export const unknownPartition = (at: TopicPartition): MillraceError =>
  simError('broker_refused', `${at.topic}/${at.partition}: unknown partition`);

/** Properties that have no effect here, or that the simulation implements. */
const KNOWN_PROPERTIES = new Set([
  'batch.size',
  'enable.gapless.guarantee',
  'queue.buffering.max.messages',
  'message.max.bytes',
  'linger.ms',
  'partition.assignment.strategy',
  'heartbeat.interval.ms',
  'session.timeout.ms',
  // Time that a row waits for unknown topics; without effect, because all topics are known.
  'topic.metadata.propagation.max.ms',
  'message.timeout.ms',
  'fetch.wait.max.ms',
  'fetch.message.max.bytes',
  'queued.max.messages.kbytes',
]);
